"""The choice of a record's partition if the caller names none.

A partitioner either chooses a partition, or leaves the record to the sticky state of the accumulator
(`STICKY`), which fills one partition's batch and then takes another (KIP-480, KIP-794). The weights of
partitions by load are here too; the state itself is native.
"""

import zlib
from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from typing import TYPE_CHECKING, NamedTuple, Protocol, final

from kbatch._native.codec.hashes import murmur2
from kbatch.config import ProducerConfig
from kbatch.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Partitioner"]

# "The sticky state decides": RecordMetadata.UNKNOWN_PARTITION.
STICKY = -1

CustomPartitioner = Callable[[str, "Buffer | None", "Buffer | None", int, Sequence[int]], int | None]


class Partitioner(Protocol):
    """The result of `partitioner_for`.

    Attributes
    ----------
    name : str
        The configured name, or that of the callable.
    sticky : bool
        True if `partition` may return `STICKY`.
    """

    @property
    def name(self) -> str: ...

    @property
    def sticky(self) -> bool: ...

    def partition(
        self,
        topic: str,
        key: "Buffer | None",
        value: "Buffer | None",
        partition_count: int,
        available: Sequence[int],
    ) -> int:
        """Return the partition of a record, or `STICKY`.

        Parameters
        ----------
        key, value
            The serialized key and value.
        partition_count : int
            The topic's number, at least 1.
        available : Sequence[int]
            Partitions with a leader, in order; may be empty.
        """
        ...


# Hashes of keys, never negative.


def _java(key: "Buffer") -> int:
    return murmur2(key) & 0x7FFFFFFF


def _crc32(key: "Buffer") -> int:
    return zlib.crc32(key)


def _fnv1a(key: "Buffer") -> int:
    """Return a 32-bit hash, made positive like Sarama's: its absolute value (rdfnv1a.c)."""
    value = 0x811C9DC5
    for byte in bytes(key):
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value if value < 1 << 31 else (1 << 32) - value


@final
class HashPartitioner(NamedTuple):
    """Choose by the hash of the key, over all partitions, with or without a leader.

    Attributes
    ----------
    hash_key : Callable[[Buffer], int] | None
        None hashes nothing (partitioner.ignore.keys).
    hashes_null, hashes_empty : bool
        True if a record without a key is hashed like one with an empty key, and if an empty key is hashed;
        otherwise it is sticky.
    """

    name: str
    hash_key: "Callable[[Buffer], int] | None"
    hashes_null: bool
    hashes_empty: bool

    @property
    def sticky(self) -> bool:
        return self.hash_key is None or not (self.hashes_null and self.hashes_empty)

    @property
    def is_javas(self) -> bool:
        """True if keys go by Java's murmur2 and the rest is sticky, which native code does alone."""
        return self.hash_key is _java and self.hashes_empty and not self.hashes_null

    def partition(
        self,
        topic: str,
        key: "Buffer | None",
        value: "Buffer | None",
        partition_count: int,
        available: Sequence[int],
    ) -> int:
        if self.hash_key is None or (key is None and not self.hashes_null):
            return STICKY
        if not self.hashes_empty and not memoryview(key or b"").nbytes:
            return STICKY
        return self.hash_key(b"" if key is None else key) % partition_count


@final
class RandomPartitioner:
    """Send every record, with or without a key, to a random partition with a leader, or to any if none has
    one.
    """

    name = "random"
    sticky = False

    def __init__(self, random: Random) -> None:
        self._random = random

    def partition(
        self,
        topic: str,
        key: "Buffer | None",
        value: "Buffer | None",
        partition_count: int,
        available: Sequence[int],
    ) -> int:
        return self._random.choice(available or range(partition_count))


@final
class RoundRobinPartitioner:
    """Send every record, with or without a key, to the next partition with a leader."""

    name = "round_robin"
    sticky = False

    def __init__(self) -> None:
        self._next: dict[str, count[int]] = {}

    def partition(
        self,
        topic: str,
        key: "Buffer | None",
        value: "Buffer | None",
        partition_count: int,
        available: Sequence[int],
    ) -> int:
        partitions = available or range(partition_count)
        counter = self._next.get(topic) or self._next.setdefault(topic, count())
        return partitions[next(counter) % len(partitions)]


@final
class CallablePartitioner:
    """A program's own function. It may return None, which leaves the record to the sticky state; `send()`
    raises its exceptions.
    """

    sticky = True

    def __init__(self, function: CustomPartitioner) -> None:
        self._function = function
        self.name = getattr(function, "__qualname__", repr(function))

    def partition(
        self,
        topic: str,
        key: "Buffer | None",
        value: "Buffer | None",
        partition_count: int,
        available: Sequence[int],
    ) -> int:
        """Raise TypeError or ValueError for anything but a partition of the topic."""
        chosen: object = self._function(topic, key, value, partition_count, available)
        if chosen is None:
            return STICKY
        if isinstance(chosen, bool) or not hasattr(chosen, "__index__"):
            kind = type(chosen).__name__
            raise TypeError(f"partitioner.class {self.name} must return an int or None, got {kind}")
        partition = chosen.__index__()
        if not 0 <= partition < partition_count:
            raise ValueError(
                f"partitioner.class {self.name} must return 0 to {partition_count - 1} for topic {topic}, "
                f"got {partition}"
            )
        return int(partition)


_DEFAULT = HashPartitioner("murmur2 of the key, as in Java", _java, hashes_null=False, hashes_empty=True)
_IGNORING_KEYS = HashPartitioner("sticky", None, hashes_null=False, hashes_empty=False)
# rdkafka_msg.c: partitioners with _random in their name spread records without a key, stickily by default;
# the others hash them like an empty key.
_HASHING = (
    HashPartitioner("consistent", _crc32, hashes_null=True, hashes_empty=True),
    HashPartitioner("consistent_random", _crc32, hashes_null=False, hashes_empty=False),
    HashPartitioner("murmur2", _java, hashes_null=True, hashes_empty=True),
    HashPartitioner("murmur2_random", _java, hashes_null=False, hashes_empty=True),
    HashPartitioner("fnv1a", _fnv1a, hashes_null=True, hashes_empty=True),
    HashPartitioner("fnv1a_random", _fnv1a, hashes_null=False, hashes_empty=True),
)
_JAVA_ROUND_ROBIN = "org.apache.kafka.clients.producer.RoundRobinPartitioner"


def partitioner_for(config: ProducerConfig, random: Random) -> Partitioner:
    """Return the partitioner for partitioner.class and partitioner.ignore.keys. Raise ConfigError for an
    unknown name.

    Parameters
    ----------
    random : random.Random
        The random source of the random partitioner.
    """
    given = config.partitioner_class
    if given is None:
        return _IGNORING_KEYS if config.partitioner_ignore_keys else _DEFAULT
    if callable(given):
        return CallablePartitioner(given)
    named: dict[object, Partitioner] = {partitioner.name: partitioner for partitioner in _HASHING}
    named["random"] = RandomPartitioner(random)
    named["round_robin"] = named[_JAVA_ROUND_ROBIN] = RoundRobinPartitioner()
    if not isinstance(given, str) or given not in named:
        names = ", ".join(str(name) for name in named if name != _JAVA_ROUND_ROBIN)
        raise ConfigError(f"partitioner.class must be a callable, or one of {names}, got {given!r}")
    return named[given]
