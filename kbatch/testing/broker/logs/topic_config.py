"""Topic configs: Kafka's keys, types, defaults and limits (LogConfig of org.apache.kafka.storage)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Self

from kbatch.codecs import CODEC_NAMES, LEVELS, Levels
from kbatch.records import INT32_MAX, INT64_MAX

COMPRESSION_TYPES = ("uncompressed", *reversed(CODEC_NAMES[1:]), "producer")
# The keys of levels, by codec.
LEVEL_KEYS = {codec: f"compression.{codec}.level" for codec in LEVELS}


class ConfigKey(NamedTuple):
    """A row of TOPIC_CONFIGS.

    Attributes
    ----------
    kind : str
        "int", "long", "double", "boolean", "string" or "list".
    default : str or None
    lowest, highest : float
        Limits of a number.
    choices : tuple of str
        The only values, or the only items of a list; empty allows all.
    honoured : bool
        True if the embedded broker acts by it; others are stored and described.
    """

    kind: str
    default: str | None
    lowest: float = 0
    highest: float = INT64_MAX
    choices: tuple[str, ...] = ()
    honoured: bool = False


def _honoured(
    kind: str,
    default: str | None,
    lowest: float = 0,
    highest: float = INT64_MAX,
    choices: tuple[str, ...] = (),
) -> ConfigKey:
    return ConfigKey(kind, default, lowest, highest, choices, honoured=True)


def _level(levels: Levels) -> ConfigKey:
    """Return the row of a codec's level; Kafka lists those of a codec whose default is outside the range."""
    lowest, highest, default = levels
    if levels.outside is None:
        return _honoured("int", str(default), lowest, highest)
    choices = (str(default), *map(str, range(lowest, highest + 1)))
    return _honoured("int", str(default), min(lowest, default), highest, choices)


TOPIC_CONFIGS = {
    "cleanup.policy": _honoured("list", "delete", choices=("compact", "delete")),
    **{name: _level(LEVELS[codec]) for codec, name in LEVEL_KEYS.items()},
    "compression.type": _honoured("string", "producer", choices=COMPRESSION_TYPES),
    "delete.retention.ms": _honoured("long", "86400000"),
    "file.delete.delay.ms": ConfigKey("long", "60000"),
    "flush.messages": ConfigKey("long", str(INT64_MAX), 1),
    "flush.ms": ConfigKey("long", str(INT64_MAX)),
    "follower.replication.throttled.replicas": ConfigKey("list", ""),
    "index.interval.bytes": _honoured("int", "4096", 0, INT32_MAX),
    "internal.segment.bytes": _honoured("int", None, 1, INT32_MAX),
    "leader.replication.throttled.replicas": ConfigKey("list", ""),
    "local.retention.bytes": ConfigKey("long", "-2", -2),
    "local.retention.ms": ConfigKey("long", "-2", -2),
    "max.compaction.lag.ms": ConfigKey("long", str(INT64_MAX), 1),
    "max.message.bytes": _honoured("int", "1048588", 0, INT32_MAX),
    "message.timestamp.after.max.ms": _honoured("long", "3600000"),
    "message.timestamp.before.max.ms": _honoured("long", str(INT64_MAX)),
    "message.timestamp.type": _honoured("string", "CreateTime", choices=("CreateTime", "LogAppendTime")),
    "min.cleanable.dirty.ratio": ConfigKey("double", "0.5", 0, 1),
    "min.compaction.lag.ms": ConfigKey("long", "0"),
    "min.insync.replicas": _honoured("int", "1", 1, INT32_MAX),
    "preallocate": ConfigKey("boolean", "false"),
    "remote.log.copy.disable": ConfigKey("boolean", "false"),
    "remote.log.delete.on.disable": ConfigKey("boolean", "false"),
    "remote.storage.enable": ConfigKey("boolean", "false"),
    "retention.bytes": _honoured("long", "-1", -INT64_MAX - 1),
    "retention.ms": _honoured("long", "604800000", -1),
    "segment.bytes": _honoured("int", "1073741824", 1 << 20, INT32_MAX),
    "segment.index.bytes": _honoured("int", "10485760", 4, INT32_MAX),
    "segment.jitter.ms": ConfigKey("long", "0"),
    "segment.ms": _honoured("long", "604800000", 1),
    "unclean.leader.election.enable": ConfigKey("boolean", "false"),
}


# The broker's own config that has the default of a topic's (ServerTopicConfigSynonyms).
BROKER_NAMES = {
    "cleanup.policy": "log.cleanup.policy",
    **{name: name for name in LEVEL_KEYS.values()},
    "compression.type": "compression.type",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.hours",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.ms": "log.roll.hours",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
HOUR_MS = 3_600_000


class TopicConfig:
    """A topic's configs: the given ones, and as attributes the values that the embedded broker acts by.

    `internal.segment.bytes` is Kafka's own key for tests that need segments smaller than 1 MiB.

    Parameters
    ----------
    overrides : mapping of str to str
        Kafka's key to its value, as text.

    Raises
    ------
    ValueError
        A key that Kafka does not have, or a value that it refuses; the text names both.
    """

    def __init__(self, overrides: Mapping[str, str] | None = None) -> None:
        self.overrides = dict(overrides or {})
        for name in self.overrides:
            if name not in TOPIC_CONFIGS:
                raise ValueError(f"Unknown topic config name: {name}")
        parsed = _DEFAULTS | {name: parse(name, text) for name, text in self.overrides.items()}
        self.is_compacted = "compact" in parsed["cleanup.policy"]
        self.is_deleted = "delete" in parsed["cleanup.policy"]
        self.compression_type: str = parsed["compression.type"]
        self.compression_levels = {codec: parsed[name] for codec, name in LEVEL_KEYS.items()}
        self.delete_retention_ms: int = parsed["delete.retention.ms"]
        self.index_interval_bytes: int = parsed["index.interval.bytes"]
        self.max_message_bytes: int = parsed["max.message.bytes"]
        self.message_timestamp_after_max_ms: int = parsed["message.timestamp.after.max.ms"]
        self.message_timestamp_before_max_ms: int = parsed["message.timestamp.before.max.ms"]
        self.is_log_append_time = parsed["message.timestamp.type"] == "LogAppendTime"
        self.min_insync_replicas: int = parsed["min.insync.replicas"]
        self.retention_bytes: int = parsed["retention.bytes"]
        self.retention_ms: int = parsed["retention.ms"]
        self.segment_bytes: int = parsed.get("internal.segment.bytes", parsed["segment.bytes"])
        self.segment_index_bytes: int = parsed["segment.index.bytes"]
        self.segment_ms: int = parsed["segment.ms"]

    @classmethod
    def of(cls, configs: Mapping[str, str | None]) -> Self:
        """Make the config of a request, where a value may be null; Kafka refuses null."""
        for name, value in configs.items():
            if value is None:
                raise ValueError(f"{name}: null is no value of a topic config")
        return cls({name: value for name, value in configs.items() if value is not None})

    def items(self) -> Iterator[tuple[str, str]]:
        """Yield every key that has a value, in Kafka's order, with that value."""
        for name, key in sorted(TOPIC_CONFIGS.items()):
            text = self.overrides.get(name, key.default)
            if text is not None:
                yield name, text


def broker_default(name: str) -> tuple[str, str] | None:
    """Return the broker's config that has the default of a topic's, with its value; None without one."""
    default = TOPIC_CONFIGS[name].default
    if name not in BROKER_NAMES or default is None:
        return None
    named = BROKER_NAMES[name]
    return named, str(int(default) // HOUR_MS) if named.endswith(".hours") else default


def parse(name: str, text: str) -> Any:
    """Parse the value of a key, or raise ValueError with the text of Kafka's ConfigDef."""
    key = TOPIC_CONFIGS[name]
    try:
        value = _PARSERS[key.kind](text.strip())
    except ValueError:
        if key.kind == "boolean":
            raise _invalid(name, text, "Expected value to be either true or false") from None
        raise _invalid(name, text, f"Not a number of type {key.kind.upper()}") from None
    if isinstance(value, int | float) and value < key.lowest:
        raise _invalid(name, text, f"Value must be at least {key.lowest}")
    if isinstance(value, int | float) and value > key.highest:
        raise _invalid(name, text, f"Value must be no more than {key.highest}")
    items = value if isinstance(value, list) else [value]
    if key.choices and not {str(item) for item in items} <= set(key.choices):
        raise _invalid(name, text, f"String must be one of: {', '.join(key.choices)}")
    return value


def _invalid(name: str, text: str, reason: str) -> ValueError:
    return ValueError(f"Invalid value {text} for configuration {name}: {reason}")


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _list(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")] if text else []


_PARSERS: dict[str, Callable[[str], Any]] = {
    "int": int,
    "long": int,
    "double": float,
    "boolean": _boolean,
    "string": str,
    "list": _list,
}
_DEFAULTS = {name: parse(name, key.default) for name, key in TOPIC_CONFIGS.items() if key.default is not None}
