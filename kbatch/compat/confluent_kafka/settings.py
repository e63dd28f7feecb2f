"""The configuration of a client of librdkafka as one for kbatch.

Programs have one dictionary for clients of all kinds, and keys that tune what librdkafka does inside. So keys
of another kind of client, and those in WITHOUT_EFFECT, are left out, and a warning says so once in a process.
All others have their effect, or are errors, as in kbatch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from kbatch.config import ADMIN_KEYS, CONSUMER_KEYS, KEYS, Key
from kbatch.config.names import ALIASES, FOREIGN
from kbatch.config.values import BOOLEAN, INT
from kbatch.errors import ConfigError

logger = logging.getLogger("kbatch.compat.confluent_kafka")

# Keys that change when and how librdkafka works, and not what a program gets.
_TUNING = """
api.version.fallback.ms api.version.request api.version.request.timeout.ms broker.address.ttl
broker.version.fallback batch.num.messages coordinator.query.interval.ms debug enable.random.seed
fetch.error.backoff.ms fetch.queue.backoff.ms log.connection.close log.level log.queue log.thread.name
logger message.copy.max.bytes metrics.enabled queue.buffering.backpressure.threshold queued.min.messages
receive.message.max.bytes reconnect.backoff.jitter.ms socket.blocking.max.ms socket.keepalive.enable
socket.max.fails socket.nagle.disable statistics.interval.ms stats.cb sticky.partitioning.linger.ms
throttle.cb topic.metadata.propagation.max.ms topic.metadata.refresh.fast.cnt
topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.sparse
"""
WITHOUT_EFFECT = frozenset(_TUNING.split())


class Kind(NamedTuple):
    """A kind of client.

    Attributes
    ----------
    keys : mapping of str to Key
        What the client of kbatch takes.
    own : frozenset of str
        What the classes of this package do themselves.
    defaults : mapping of str to object
        Where librdkafka has others, which decide what a program reads, and where its records go.
    """

    keys: Mapping[str, Key]
    own: frozenset[str]
    defaults: Mapping[str, object]


PRODUCER = Kind(
    KEYS,
    frozenset({"error.cb", "on.delivery", "queue.buffering.max.messages"}),
    {"partitioner.class": "consistent_random"},
)
CONSUMER = Kind(
    CONSUMER_KEYS,
    frozenset({"enable.auto.offset.store", "enable.partition.eof", "error.cb", "on.commit"}),
    {"group.protocol": "classic", "isolation.level": "read_committed"},
)
# librdkafka's words for values.
_VALUES = {
    "auto.offset.reset": {
        "smallest": "earliest",
        "beginning": "earliest",
        "largest": "latest",
        "end": "latest",
        "error": "none",
    }
}
_TIMES = ("delivery.timeout.ms", "linger.ms", "request.timeout.ms")
ADMIN = Kind(ADMIN_KEYS, frozenset({"error.cb"}), {})
_KINDS = (PRODUCER, CONSUMER, ADMIN)
_NAMES = {name.replace(".", "_"): name for name in FOREIGN}


class Settings(NamedTuple):
    """A configuration.

    Attributes
    ----------
    client : dict
        For the client of kbatch.
    own : dict
        The keys `own` of the kind.
    """

    client: dict[str, Any]
    own: dict[str, Any]

    def callback(self, name: str) -> Callable[..., object] | None:
        """Return a callback. Raise ConfigError for what cannot be called."""
        given = self.own.get(name)
        if given is not None and not callable(given):
            raise ConfigError(f"{name} must be callable, got {given!r}")
        return given

    def flag(self, name: str, default: bool) -> bool:
        """Return True or False. Raise ConfigError for a value that means neither."""
        try:
            return bool(BOOLEAN.parse(self.own.get(name, default)))
        except (TypeError, ValueError):
            raise ConfigError(f"{name} must be true or false, got {self.own[name]!r}") from None


def settings_of(kind: Kind, config: Mapping[str, Any] | None, keywords: Mapping[str, Any]) -> Settings:
    """Return the configuration of a client. Keywords have underscores, and win over the mapping."""
    given = dict(config or {}) | {name.replace("_", "."): value for name, value in keywords.items()}
    client: dict[str, Any] = {}
    own: dict[str, Any] = {}
    names: dict[str, str] = {}  # by key, how it is given
    for name, value in given.items():
        dotted = _NAMES.get(name, name)  # error_cb
        key = dotted if dotted in kind.keys else _key_of(dotted)
        if dotted in kind.own:
            own[dotted] = value
        elif key in kind.keys:
            value = _VALUES.get(key, {}).get(value, value)
            if value is None:
                continue
            before = names.setdefault(key, name)
            if before != name and name == key:
                _leave_out(name, f"{before} decides")
                continue
            if before != name:
                del client[before]
                _leave_out(before, f"{name} decides")
            names[key], client[name] = name, value
        elif any(key in other.keys or dotted in other.own for other in _KINDS):
            _leave_out(name, "it is for clients of another kind")
        elif dotted in WITHOUT_EFFECT:
            _leave_out(name, FOREIGN[dotted].reason)
        else:
            client[name] = value  # kbatch says what is wrong with it
    return Settings({**{key: kind.defaults[key] for key in kind.defaults if key not in names}, **client}, own)


def within_delivery_timeout(client: Mapping[str, Any]) -> dict[str, Any]:
    """Return a producer's configuration in which neither a request nor a call of `produce` takes longer than
    a message may: what is without end in librdkafka ends with its messages, and kbatch wants that said.
    """
    found = dict(client)
    given = {_key_of(name): name for name in client}
    try:
        allowed, linger, wanted = (INT.parse(_value(client, given, key)) for key in _TIMES)
    except (TypeError, ValueError):
        return found  # kbatch says what is wrong
    if allowed < KEYS["max.block.ms"].default:
        found.setdefault(given.get("max.block.ms", "max.block.ms"), allowed)
    if linger < allowed < linger + wanted:
        found[given.get("request.timeout.ms", "request.timeout.ms")] = allowed - linger
    return found


def _value(client: Mapping[str, Any], given: Mapping[str, str], key: str) -> object:
    """Return the value of a key, whatever name it was given by."""
    if key not in given:
        return KEYS[key].default
    name = given[key]
    convert = ALIASES[name].convert if name in ALIASES else None
    return client[name] if convert is None else convert(client[name])


def for_admin(client: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of another client's configuration an Admin takes: how brokers are reached."""
    return {name: value for name, value in client.items() if _key_of(name) in ADMIN_KEYS}


def _key_of(name: str) -> str:
    """Return the key of kbatch that a name, with dots, means; the name itself if it is no alias."""
    return ALIASES[name].key if name in ALIASES else name


@cache
def _leave_out(name: str, reason: str) -> None:
    logger.warning("%s has no effect: %s", name, reason)
