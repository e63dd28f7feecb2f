"""The options of reading with the format `kbatch`: those of Spark's own Kafka source, and a few more.

Spark passes names in lower case and values as strings. Everything is checked here on the driver, before there
is a task, with the error texts of Spark's source where it has one. The result is pickled to the tasks.

After org.apache.spark.sql.kafka010.KafkaSourceProvider.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from kbatch.config import ConsumerConfig
from kbatch.config.readers import GROUP_KEYS
from kbatch.consumer.projection import ERROR_SUFFIX
from kbatch.errors import ConfigError
from kbatch.formats.reading.base import WITH_REASONS
from kbatch.records import TopicPartition
from kbatch.spark.java_patterns import java_pattern
from kbatch.spark.kafka_options import KAFKA_PREFIX, kafka_settings
from kbatch.spark.source_columns import RECORD_COLUMNS
from kbatch.spark.source_formats import ColumnFormat, read_formats

logger = logging.getLogger(__name__)

STRATEGIES = ("assign", "subscribe", "subscribepattern")
# The purpose of each option, whose name Spark passes in lower case; docs/spark.md says more.
OPTIONS = {
    "subscribe": "topics, separated by commas",
    "subscribePattern": "a regular expression of Java; topics in whose name it is found are read",
    "assign": 'partitions, as in {"topicA":[0,1],"topicB":[2]}',
    "startingOffsets": "earliest, latest, or an offset for each partition",
    "startingOffsetsByTimestamp": "a time in milliseconds for each partition",
    "startingTimestamp": "a time in milliseconds for all partitions",
    "startingOffsetsByTimestampStrategy": "error or latest: what a time after the last record means",
    "endingOffsets": "latest, or an offset for each partition; batch queries only",
    "endingOffsetsByTimestamp": "a time in milliseconds for each partition; batch queries only",
    "endingTimestamp": "a time in milliseconds for all partitions; batch queries only",
    "failOnDataLoss": "true or false: whether records that are gone fail the query",
    "minPartitions": "split large ranges until there are about this many tasks",
    "maxRecordsPerPartition": "the maximum number of offsets in a task",
    "maxOffsetsPerTrigger": "the maximum number of offsets in a micro-batch",
    "minOffsetsPerTrigger": "the minimum number of offsets in a micro-batch",
    "maxBytesPerTrigger": "about the maximum bytes of record batches in a micro-batch",
    "maxTriggerDelay": "the longest wait for minOffsetsPerTrigger, as in 30s or 15m",
    "includeHeaders": "true or false: whether there is a column headers",
    "columns": "the columns to read, separated by commas; others are not decoded",
    "key.format": "the type of key: binary, string, json, avro, protobuf and others",
    "key.schema": "the schema of key.format",
    "key.message": "the protobuf message of keys",
    "key.subject": "the subject of keys in the schema registry",
    "key.raw": "true or false: whether there is a column key_raw of the bytes, beside key.format",
    "value.format": "the type of value: binary, string, json, avro, protobuf and others",
    "value.schema": "the schema of value.format",
    "value.message": "the protobuf message of values",
    "value.subject": "the subject of values in the schema registry",
    "value.raw": "true or false: whether there is a column value_raw of the bytes, beside value.format",
    "schema.registry.url": "a schema registry, for avro and protobuf",
    "on.malformed": "raise, null, column or fields: what becomes of a key or value not of its format; "
    "column adds the reasons as key_error and value_error, and fields keeps the other members of json",
    "isolation": "read_committed or read_uncommitted; the default is kafka.isolation.level",
    "pushFilters": "true or false: whether filters on topic, partition, offset and timestamp narrow the read",
    "commit.group.id": "a group that gets the end offsets of each micro-batch, for tools that show lag",
    "groupIdPrefix": "accepted and without effect: there is no group",
    "kafkaConsumer.pollTimeoutMs": "the longest wait of a task for records, in milliseconds",
    "fetchOffset.numRetries": "accepted and without effect: default.api.timeout.ms bounds retries",
    "fetchOffset.retryIntervalMs": "accepted and without effect: retry.backoff.ms is the interval",
}
SPELT = {name.lower(): name for name in OPTIONS}
OF_BATCHES = ("endingoffsets", "endingoffsetsbytimestamp", "endingtimestamp")
OF_STREAMS = (
    "maxoffsetspertrigger",
    "minoffsetspertrigger",
    "maxbytespertrigger",
    "maxtriggerdelay",
    "commit.group.id",
)
# Names that Spark adds to the options of a stream.
OF_SPARK = frozenset({"checkpointlocation", "path"})
# Options of Kafka's consumer that a query must not have, and why.
REFUSED = {
    "auto.offset.reset": "is not supported. Instead set the source option 'startingOffsets' to 'earliest' or "
    "'latest' to specify where to start. Spark keeps the offsets of a query",
    "key.deserializer": "is not supported as keys are deserialized as byte arrays with "
    "ByteArrayDeserializer. Set the option 'key.format', or use DataFrame operations to explicitly "
    "deserialize the keys.",
    "value.deserializer": "is not supported as values are deserialized as byte arrays with "
    "ByteArrayDeserializer. Set the option 'value.format', or use DataFrame operations to explicitly "
    "deserialize the values.",
    "enable.auto.commit": "is not supported",
    "interceptor.classes": "is not supported",
}
# Options of Kafka's consumer that Spark's jobs have, and that have no effect here.
NO_GROUP = "a read is in no consumer group"
IGNORED: Mapping[str, str] = {
    **dict.fromkeys(sorted(GROUP_KEYS - REFUSED.keys()), NO_GROUP),
    "auto.include.jmx.reporter": "there is no JMX",
    "internal.leave.group.on.close": NO_GROUP,
    "internal.throw.on.fetch.stable.offset.unsupported": NO_GROUP,
    "metric.reporters": "there is no JMX",
    "share.acknowledgement.mode": NO_GROUP,
    "share.acquire.mode": NO_GROUP,
}
LATEST, EARLIEST = -1, -2
_DELAY = re.compile(r"\s*(\d+)\s*(ms|s|m|min|h|d)?\s*")
_DELAY_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
DEFAULT_TRIGGER_DELAY = "15m"


@dataclass(frozen=True)
class Limit:
    """Where reading starts or ends.

    Attributes
    ----------
    kind : str
        "earliest", "latest", "offsets", "times" (by partition), or "time" (of all partitions).
    by_partition : Mapping[TopicPartition, int]
        Offsets (LATEST and EARLIEST have their meaning), or milliseconds.
    time_ms : int
    accepts_no_match : bool
        True if a time after the last record means the end.
    """

    kind: Literal["earliest", "latest", "offsets", "times", "time"]
    by_partition: Mapping[TopicPartition, int]
    time_ms: int
    accepts_no_match: bool


@dataclass(frozen=True)
class SourceOptions:
    """The checked options of a read.

    Attributes
    ----------
    strategy : str
        The name in STRATEGIES.
    topics : tuple of str
        Of subscribe.
    pattern : str
        Of subscribePattern.
    assigned : frozenset of TopicPartition
        Of assign.
    starting, ending : Limit
    fails_on_data_loss, pushes_filters : bool
    min_partitions, max_records_per_partition : int | None
    max_offsets_per_trigger, min_offsets_per_trigger, max_bytes_per_trigger : int | None
    max_trigger_delay_ms : int
    columns : tuple of str
        The columns of the frame, in order.
    formats : Mapping[str, ColumnFormat]
        Of key and value, if they are not binary.
    commit_group_id : str | None
    poll_timeout_ms : int | None
    settings : Mapping[str, str]
        Checked settings of the consumer.
    """

    strategy: str
    topics: tuple[str, ...]
    pattern: str
    assigned: frozenset[TopicPartition]
    starting: Limit
    ending: Limit
    fails_on_data_loss: bool
    pushes_filters: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_bytes_per_trigger: int | None
    max_trigger_delay_ms: int
    columns: tuple[str, ...]
    formats: Mapping[str, ColumnFormat]
    commit_group_id: str | None
    poll_timeout_ms: int | None
    settings: Mapping[str, str]

    @property
    def task_settings(self) -> Mapping[str, str]:
        """The settings of the consumer of a task."""
        if self.poll_timeout_ms is None:
            return self.settings
        return {**self.settings, "default.api.timeout.ms": str(self.poll_timeout_ms)}


class FrameOptions(NamedTuple):
    """The columns of a frame in order, and the formats of those of key and value that are not binary."""

    columns: tuple[str, ...]
    formats: Mapping[str, ColumnFormat]


def read_frame_options(options: Mapping[str, str]) -> FrameOptions:
    """Return what determines the frame's schema, before it is known what reads it.

    Raises
    ------
    ValueError
        One of the options that determine it is invalid.
    SchemaRegistryError
        The registry does not have the schema, or cannot be reached.
    """
    given = {name.lower(): value for name, value in options.items()}
    formats = read_formats(given)
    return FrameOptions(tuple(_with_raw_and_errors(_columns(given), given, formats)), formats)


def read_source_options(
    options: Mapping[str, str], *, streaming: bool, frame: FrameOptions | None = None
) -> SourceOptions:
    """Read the options of a batch or streaming read. `frame` is what `read_frame_options` has returned for
    them before.

    Raises
    ------
    ValueError
        An option is unknown, missing or invalid; the text names it and says what to write.
    """
    given = {name.lower(): value for name, value in options.items() if name.lower() not in OF_SPARK}
    for name in given:
        if not name.startswith(KAFKA_PREFIX):
            _check_known(name)
    _check_kind(given, streaming=streaming)
    strategy = _strategy(given)
    starting = _limit(given, "starting", "latest" if streaming else "earliest")
    ending = _limit(given, "ending", "latest")
    _check_limits(starting, ending, streaming=streaming)
    columns, formats = read_frame_options(options) if frame is None else frame
    most, least = _number(given, "maxoffsetspertrigger"), _number(given, "minoffsetspertrigger")
    if most is not None and least is not None and least > most:
        raise ValueError(
            f"The value of minOffsetPerTrigger({least}) is higher than the maxOffsetsPerTrigger({most})."
        )
    return SourceOptions(
        strategy=strategy,
        topics=_topics(given),
        pattern=_pattern(given),
        assigned=_assigned(given),
        starting=starting,
        ending=ending,
        fails_on_data_loss=_truth(given, "failondataloss", "true"),
        pushes_filters=_truth(given, "pushfilters", "false"),
        min_partitions=_number(given, "minpartitions"),
        max_records_per_partition=_number(given, "maxrecordsperpartition"),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_bytes_per_trigger=_number(given, "maxbytespertrigger"),
        max_trigger_delay_ms=_delay_ms(given.get("maxtriggerdelay", DEFAULT_TRIGGER_DELAY)),
        columns=columns,
        formats=formats,
        commit_group_id=given.get("commit.group.id"),
        poll_timeout_ms=_number(given, "kafkaconsumer.polltimeoutms", 2**31),
        settings=_settings(given),
    )


def _check_known(name: str) -> None:
    if name in SPELT:
        return
    spelt = [*SPELT, KAFKA_PREFIX + "bootstrap.servers", KAFKA_PREFIX + "isolation.level"]
    nearest = difflib.get_close_matches(name, spelt, 1, 0)[0]
    raise ValueError(
        f"unknown option {name!r}: did you mean {SPELT.get(nearest, nearest)!r}? Known: "
        f"{', '.join(OPTIONS)}, and kafka.<key> for every key of the consumer (docs/configuration.md)"
    )


def _check_kind(given: Mapping[str, str], *, streaming: bool) -> None:
    """Refuse options of batch queries in streams; warn of the others, which Spark's source ignores too."""
    for name in OF_BATCHES if streaming else ():
        if name in given:
            what = "offset" if name == "endingoffsets" else "timestamp"
            raise ValueError(f"ending {what} not valid in streaming queries: omit the option {SPELT[name]!r}")
    for name in () if streaming else OF_STREAMS:
        if name in given:
            logger.warning("%s option ignored in batch queries", SPELT[name])


def _strategy(given: Mapping[str, str]) -> str:
    found = [name for name in STRATEGIES if name in given]
    if len(found) != 1:
        which = "Only one" if found else "One"
        allowed = "can" if found else "must"
        raise ValueError(
            f"{which} of the following options {allowed} be specified for Kafka source: "
            f"{', '.join(STRATEGIES)}. See the docs for more details."
        )
    return found[0]


def _topics(given: Mapping[str, str]) -> tuple[str, ...]:
    text = given.get("subscribe")
    if text is None:
        return ()
    topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not topics:
        raise ValueError(
            f"No topics to subscribe to as specified value for option 'subscribe' is {text!r}; write "
            "names, separated by commas"
        )
    return topics


def _pattern(given: Mapping[str, str]) -> str:
    text = given.get("subscribepattern")
    if text is None:
        return ""
    if not text.strip():
        raise ValueError(
            f"Pattern to subscribe is empty as specified value for option 'subscribePattern' is {text!r}"
        )
    try:
        java_pattern(text.strip())
    except ValueError as error:
        raise ValueError(f"option 'subscribePattern' must be a regular expression, {error}") from error
    return text.strip()


def _assigned(given: Mapping[str, str]) -> frozenset[TopicPartition]:
    text = given.get("assign")
    if text is None:
        return frozenset()
    expected = f'Expected e.g. {{"topicA":[0,1],"topicB":[0,1]}}, got {text}'
    try:
        found = frozenset(
            TopicPartition(topic, partition)
            for topic, partitions in json.loads(text).items()
            for partition in partitions
            if _is_partition(partition)
        )
    except (ValueError, AttributeError, TypeError):
        raise ValueError(expected) from None
    if not found:
        raise ValueError(f"No topicpartitions to assign as specified value for option 'assign' is {text!r}")
    return found


def _is_partition(number: object) -> bool:
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise ValueError(number)
    return True


def _limit(given: Mapping[str, str], side: str, default: Literal["earliest", "latest"]) -> Limit:
    """Return where to start or end: a time of all partitions goes before times, and times before offsets."""
    strategy = given.get("startingoffsetsbytimestampstrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise ValueError(
            f"option 'startingOffsetsByTimestampStrategy' must be error or latest, got {strategy!r}"
        )
    accepts = strategy == "latest" or side == "ending"
    if (time := given.get(f"{side}timestamp")) is not None:
        if not time.strip().isdecimal():
            raise ValueError(
                f"option '{side}Timestamp': Expected a single long value, got {time.strip()}; a time is in "
                "milliseconds since 1970, and not negative"
            )
        return Limit("time", {}, int(time), accepts)
    if (times := given.get(f"{side}offsetsbytimestamp")) is not None:
        return Limit("times", _by_partition(times, f"{side}OffsetsByTimestamp", 0), 0, accepts)
    offsets = given.get(f"{side}offsets", default).strip()
    match offsets.lower():
        case "earliest":
            return Limit("earliest", {}, 0, accepts)
        case "latest":
            return Limit("latest", {}, 0, accepts)
    return Limit("offsets", _by_partition(offsets, f"{side}Offsets", EARLIEST), 0, accepts)


def _by_partition(text: str, option: str, least: int) -> dict[TopicPartition, int]:
    """Return the numbers of an option by partition. ValueError for one below `least`."""
    example = (
        '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}' if least < 0 else '{"topicA":{"0":1700000000000}}'
    )
    try:
        found = json.loads(text)
        numbers = partition_offsets(found)
        if not all(type(each) is int for of_topic in found.values() for each in of_topic.values()):
            raise TypeError(text)
    except (ValueError, AttributeError, TypeError):
        raise ValueError(f"option {option!r}: Expected e.g. {example}, got {text}") from None
    for partition, number in numbers.items():
        if not least <= number < 2**63:
            meaning = "-1 is latest, -2 earliest" if least < 0 else "milliseconds since 1970"
            raise ValueError(
                f"option {option!r}: {partition} has {number}; a number is at least {least} ({meaning})"
            )
    return numbers


def partition_offsets(by_topic: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Return the offsets of Spark's JSON, {"topic": {"partition": offset}}, by partition."""
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, offsets in by_topic.items()
        for partition, offset in offsets.items()
        if _is_partition(int(partition))
    }


def _check_limits(starting: Limit, ending: Limit, *, streaming: bool) -> None:
    if streaming:
        return
    if starting.kind == "latest":
        raise ValueError("starting offset can't be latest for batch queries on Kafka")
    if ending.kind == "earliest":
        raise ValueError("ending offset can't be earliest for batch queries on Kafka")
    for limit, side, refused in ((starting, "startingOffsets", LATEST), (ending, "ending offset", EARLIEST)):
        for partition, offset in limit.by_partition.items():
            if limit.kind == "offsets" and offset == refused:
                name = "latest" if refused == LATEST else "earliest"
                raise ValueError(f"{side} for {partition} can't be {name} for batch queries on Kafka")
    if starting.kind != ending.kind or not starting.by_partition:
        return
    _check_same_partitions(starting, ending)


def _check_same_partitions(starting: Limit, ending: Limit) -> None:
    """Raise unless both sides name the same partitions, and none ends before it starts."""
    if starting.by_partition.keys() != ending.by_partition.keys():
        strays = sorted(starting.by_partition.keys() ^ ending.by_partition.keys())
        raise ValueError(
            "starting and ending offsets must name the same partitions; only one side has "
            + ", ".join(map(str, strays))
        )
    for partition, start in starting.by_partition.items():
        end = ending.by_partition[partition]
        if start > end >= 0:
            raise ValueError(f"{partition} starts at {start} and ends at {end}; the end must not be less")


def _number(given: Mapping[str, str], name: str, end: int = 2**63) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not text.strip().isdecimal() or not 0 < int(text) < end:
        raise ValueError(f"{SPELT[name]} must be positive: a whole number from 1, got {text!r}")
    return int(text)


def _truth(given: Mapping[str, str], name: str, default: str) -> bool:
    text = given.get(name, default).strip().lower()
    if text not in ("true", "false"):
        raise ValueError(f"option {SPELT[name]!r} must be true or false, got {given[name]!r}")
    return text == "true"


def _delay_ms(text: str) -> int:
    found = _DELAY.fullmatch(text.lower())
    if found is None:
        raise ValueError(f"option 'maxTriggerDelay' must be a time such as 30s or 15m, got {text!r}")
    return int(found[1]) * _DELAY_MS[found[2] or "ms"]


def _columns(given: Mapping[str, str]) -> tuple[str, ...]:
    has_headers = _truth(given, "includeheaders", "false")
    text = given.get("columns")
    if text is None:
        return tuple(name for name in RECORD_COLUMNS if has_headers or name != "headers")
    spelt = {name.lower(): name for name in RECORD_COLUMNS}
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name.lower() not in spelt:
            raise ValueError(
                f"option 'columns': there is no column {name!r}; the columns are {', '.join(RECORD_COLUMNS)}"
            )
    if not names or len({name.lower() for name in names}) < len(names):
        raise ValueError(f"option 'columns' must name each column once, got {text!r}")
    return tuple(spelt[name.lower()] for name in names)


def _with_raw_and_errors(
    columns: Iterable[str], given: Mapping[str, str], formats: Mapping[str, ColumnFormat]
) -> Iterator[str]:
    """Yield columns, those of a format before that of its bytes and that of its errors."""
    for part in ("key", "value"):
        if _truth(given, f"{part}.raw", "false") and part not in formats:
            raise ValueError(f"option '{part}.raw' has no use without {part}.format; omit it")
    for name in columns:
        yield name
        if name in formats:
            if formats[name].on_malformed in WITH_REASONS:
                yield name + ERROR_SUFFIX
            if _truth(given, f"{name}.raw", "false"):
                yield f"{name}_raw"


def _settings(given: Mapping[str, str]) -> Mapping[str, str]:
    """Return the consumer's settings, checked, without those that have no effect."""
    kafka = kafka_settings(given)
    for name, why in REFUSED.items():
        if name in kafka:
            raise ValueError(f"Kafka option '{name}' {why}")
    ignored = sorted(kafka.keys() & IGNORED.keys())
    if ignored:
        reasons = " and ".join(sorted({IGNORED[name] for name in ignored}))
        names = ", ".join(KAFKA_PREFIX + name for name in ignored)
        logger.warning("options without an effect, as %s: %s", reasons, names)
        kafka = {name: value for name, value in kafka.items() if name not in IGNORED}
    if "bootstrap.servers" not in kafka:
        raise ValueError(
            "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer, as in "
            "host:9092,host:9092"
        )
    isolation = given.get("isolation", kafka.get("isolation.level", "read_uncommitted"))
    if kafka.setdefault("isolation.level", isolation) != isolation:
        raise ValueError(
            f"options 'isolation'={isolation!r} and 'kafka.isolation.level'={kafka['isolation.level']!r} "
            "contradict each other; omit one"
        )
    try:
        ConsumerConfig(kafka)
    except ConfigError as error:
        raise ValueError(f"options kafka.*: {error}") from error
    return kafka
