"""The options of the data source `kbatch`: their names, valid values, and effects.

Spark passes names in lower case and values as strings. Everything is checked here on the driver, before there
is a task, and the result is pickled to the tasks.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from kbatch.codec.segments import check_topic
from kbatch.config import ProducerConfig
from kbatch.errors import ConfigError
from kbatch.spark.kafka_options import KAFKA_PREFIX, kafka_settings
from kbatch.spark.sink_formats import Serializers, SinkFormat, read_sink_formats
from kbatch.typed import Part

# The purpose of each option; docs/spark.md says more.
OPTIONS = {
    "topic": "the topic of all rows, instead of a column",
    "delivery": "at_least_once or exactly_once",
    "sink": "a name for this write within its batch",
    "txnappid": "the name of the job, the same after a restart",
    "txnversion": "the number of the write, which grows",
    "marker.topic": "the topic under whose name markers are kept",
    "transactional.id.prefix": "the prefix of transactional ids and marker groups",
    "unknown.columns": "error or ignore",
    "key.format": "what becomes of the column key: binary, string, json, avro, protobuf and others",
    "key.schema": "the schema of key.format",
    "key.message": "the protobuf message of keys",
    "key.subject": "the subject of keys in the schema registry",
    "key.register": "true or false: whether key.schema is registered",
    "value.format": "what becomes of the column value: binary, string, json, avro, protobuf and others",
    "value.schema": "the schema of value.format",
    "value.message": "the protobuf message of values",
    "value.subject": "the subject of values in the schema registry",
    "value.register": "true or false: whether value.schema is registered",
    "schema.registry.url": "a schema registry, for avro and protobuf",
}
# Names that a streaming query adds to the options of its sink.
OF_SPARK = frozenset({"checkpointlocation", "queryname"})
DELIVERIES = ("at_least_once", "exactly_once")
UNKNOWN_COLUMNS = ("error", "ignore")

# For tables with many rows: large batches, which brokers handle cheaply, and a fast codec.
BULK_SETTINGS: Mapping[str, object] = {"linger.ms": 20, "batch.size": 256 << 10, "compression.type": "lz4"}
# The brokers' default maximum (transaction.max.timeout.ms), because stages are long.
TRANSACTION_TIMEOUT_MS = 900_000
REFUSED = {
    "key.serializer": "is not supported as keys are serialized with ByteArraySerializer. Set the option "
    "'key.format', or use DataFrame operations to explicitly serialize the keys.",
    "value.serializer": "is not supported as values are serialized with ByteArraySerializer. Set the option "
    "'value.format', or use DataFrame operations to explicitly serialize the values.",
    "transactional.id": "is not supported as it is made from the write and its task; set the option "
    "transactional.id.prefix.",
}


@dataclass(frozen=True)
class SinkOptions:
    """The checked options of a write.

    Attributes
    ----------
    topic : str | None
        None: a column names it.
    exactly_once : bool
    sink, marker_topic, prefix : str
        Parts of the names of markers and transactional ids; see exactly_once.py.
    app_id, version
        txnappid and txnversion; None in a streaming query, which supplies its id and batch.
    names_sink : bool
        True if the option sink was set.
    ignores_unknown : bool
        True if columns that are not the sink's are omitted.
    settings : Mapping[str, object]
        Checked settings of the producer.
    formats : Mapping[str, SinkFormat]
        Of key and value, if they are not binary.
    serializers : Mapping[str, Serializer]
        Made of these on the driver, for the tasks.
    """

    topic: str | None
    exactly_once: bool
    sink: str
    marker_topic: str
    prefix: str
    app_id: str | None
    version: int | None
    names_sink: bool
    ignores_unknown: bool
    settings: Mapping[str, object]
    formats: Mapping[Part, SinkFormat]
    serializers: Serializers = field(default_factory=dict)


def read_options(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Read the options of a write.

    Raises
    ------
    ValueError
        An option is unknown, missing or invalid; the text names it and says what to write.
    """
    given = {name.lower(): value for name, value in options.items()}
    given = {name: value for name, value in given.items() if not (streaming and name in OF_SPARK)}
    for name in given:
        if not name.startswith(KAFKA_PREFIX):
            _check_known(name)
    exactly_once = _one_of(given, "delivery", DELIVERIES) == "exactly_once"
    topic = given.get("topic")
    if topic is not None:
        check_topic(topic)
    if given.get("transactional.id.prefix") == "":
        raise ValueError("option 'transactional.id.prefix' must not be empty; the default is 'kbatch'")
    app_id, version = _identity(given, exactly_once, streaming)
    return SinkOptions(
        topic=topic,
        exactly_once=exactly_once,
        sink=_named_or_topic(given, "sink", exactly_once),
        marker_topic=_named_or_topic(given, "marker.topic", exactly_once),
        prefix=given.get("transactional.id.prefix", "kbatch"),
        app_id=app_id,
        version=version,
        names_sink="sink" in given,
        ignores_unknown=_one_of(given, "unknown.columns", UNKNOWN_COLUMNS) == "ignore",
        settings=_settings(given, exactly_once),
        formats=read_sink_formats(given, topic),
    )


def _check_known(name: str) -> None:
    if name in OPTIONS:
        return
    if name == "path":
        raise ValueError(
            "option 'path' does not apply; name the topic with .option('topic', ...) and call .save()"
        )
    spelt = [
        *OPTIONS,
        *(KAFKA_PREFIX + key for key in ("bootstrap.servers", "compression.type", "linger.ms")),
    ]
    nearest = difflib.get_close_matches(name, spelt, 1, 0)[0]
    raise ValueError(
        f"unknown option {name!r}: did you mean {nearest!r}? Known: {', '.join(OPTIONS)}, and "
        "kafka.<key> for every key of the producer (docs/configuration.md)"
    )


def _one_of(given: Mapping[str, str], name: str, values: tuple[str, ...]) -> str:
    value = given.get(name, values[0])
    if value not in values:
        raise ValueError(f"option {name!r} must be {' or '.join(values)}, got {value!r}")
    return value


def _named_or_topic(given: Mapping[str, str], name: str, exactly_once: bool) -> str:
    """Return an option of exactly_once, by default the topic's name."""
    value = given.get(name, given.get("topic"))
    if name in given and not exactly_once:
        raise ValueError(f"option {name!r} is for delivery=exactly_once; omit it, or set that")
    if exactly_once and not value:
        why = "its topics are in a column" if name not in given else "it is empty"
        raise ValueError(
            f"option {name!r} is missing; delivery=exactly_once needs it when {why}: {OPTIONS[name]}"
        )
    if name == "marker.topic" and value:
        check_topic(value)
    return value or ""


def _identity(given: Mapping[str, str], exactly_once: bool, streaming: bool) -> tuple[str | None, int | None]:
    app_id, version = given.get("txnappid"), given.get("txnversion")
    found = [name for name in ("txnappid", "txnversion") if name in given]
    if found and (streaming or not exactly_once):
        why = "a streaming query has its own id and batch" if streaming else "it is for delivery=exactly_once"
        raise ValueError(f"option {found[0]!r} must not be set: {why}")
    if not exactly_once or streaming:
        return None, None
    if not app_id or version is None:
        missing = "txnversion" if app_id else "txnappid"
        raise ValueError(
            f"option {missing!r} is missing; delivery=exactly_once needs txnappid (the "
            "job's name, the same after a restart) and txnversion (a number that grows with every write)"
        )
    if not (version.isascii() and version.isdigit()) or int(version) >= 2**63:
        raise ValueError(f"option 'txnversion' must be a whole number from 0 to {2**63 - 1}, got {version!r}")
    return app_id, int(version)


def _settings(given: Mapping[str, str], exactly_once: bool) -> Mapping[str, object]:
    """Return the producer's settings: the given ones, and defaults that suit tables."""
    kafka = kafka_settings(given)
    for name, why in REFUSED.items():
        if name in kafka:
            raise ValueError(f"Kafka option '{name}' {why}")
    if "bootstrap.servers" not in kafka:
        raise ValueError(
            "option 'kafka.bootstrap.servers' is missing; name brokers, as in host:9092,host:9092"
        )
    defaults: dict[str, object] = {**BULK_SETTINGS}
    if exactly_once:
        defaults["transaction.timeout.ms"] = TRANSACTION_TIMEOUT_MS
    try:
        config = ProducerConfig(kafka)
    except ConfigError as error:
        raise ValueError(f"options kafka.*: {error}") from error
    if exactly_once and not config.enable_idempotence:
        raise ValueError(
            "delivery=exactly_once needs kafka.enable.idempotence=true and kafka.acks=all; omit them"
        )
    return {**{name: value for name, value in defaults.items() if name not in config.given}, **kafka}
