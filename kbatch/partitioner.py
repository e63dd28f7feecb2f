"""Which partition a record goes to, where the caller does not say.

A partitioner either chooses, or leaves the record to the sticky state of the accumulator (`STICKY`), which
fills one partition's batch and then takes another (KIP-480, KIP-794). What weighs partitions by their load is
here too; the state itself is native.
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

# "The sticky state decides": RecordMetadata.UNKNOWN_PARTITION.
STICKY = -1

CustomPartitioner = Callable[[str, "Buffer | None", "Buffer | None", int, Sequence[int]], int | None]


class Partitioner(Protocol):
    """What `partitioner_for` makes.

    Attributes
    ----------
    name : str
        As configured, or of the callable.
    sticky : bool
        Whether `partition` may ever answer `STICKY`.
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
        """The partition of a record, or `STICKY`.

        Parameters
        ----------
        key, value
            Serialized.
        partition_count : int
            Of the topic, at least 1.
        available : Sequence[int]
            Partitions that have a leader, in their order; may be empty.
        """
        ...


# Hashes of keys: not negative.


def _java(key: "Buffer") -> int:
    return murmur2(key) & 0x7FFFFFFF


def _crc32(key: "Buffer") -> int:
    return zlib.crc32(key)


def _fnv1a(key: "Buffer") -> int:
    """32 bits, made positive as Sarama does it: the absolute value of the signed hash (rdfnv1a.c)."""
    value = 0x811C9DC5
    for byte in bytes(key):
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value if value < 1 << 31 else (1 << 32) - value


@final
class HashPartitioner(NamedTuple):
    """By the hash of the key, over all partitions, whether they have a leader or not.

    Attributes
    ----------
    hash_key : Callable[[Buffer], int] | None
        None hashes nothing (partitioner.ignore.keys).
    hashes_null, hashes_empty : bool
        Whether a record without a key is hashed like one with an empty key, and whether an empty key is
        hashed; otherwise it is sticky.
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
        """Whether keys go by Java's murmur2 and the rest is sticky, which native code does by itself."""
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
    """Every record, with a key or without, to any partition that has a leader, or to any if none has one."""

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
    """Every record, with a key or without, to the next partition that has a leader."""

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
    """A program's own function. It may return None, which leaves the record to the sticky state; what it
    raises comes through `send()`.
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
        """TypeError and ValueError for what is not a partition of the topic."""
        chosen: object = self._function(topic, key, value, partition_count, available)
        if chosen is None:
            return STICKY
        if isinstance(chosen, bool) or not hasattr(chosen, "__index__"):
            kind = type(chosen).__name__
            raise TypeError(f"partitioner.class {self.name} must return an int or None; it returned {kind}")
        partition = chosen.__index__()
        if not 0 <= partition < partition_count:
            raise ValueError(
                f"partitioner.class {self.name} must return 0 to {partition_count - 1} for topic {topic}; "
                f"it returned {partition}"
            )
        return int(partition)


_DEFAULT = HashPartitioner("murmur2 of the key, as in Java", _java, hashes_null=False, hashes_empty=True)
_IGNORING_KEYS = HashPartitioner("sticky", None, hashes_null=False, hashes_empty=False)
# rdkafka_msg.c: what has _random in its name spreads records without a key, stickily by default; the others
# hash them as if their key were empty.
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
    """The partitioner by partitioner.class and partitioner.ignore.keys; ConfigError for an unknown name.

    Parameters
    ----------
    random : random.Random
        What the random partitioner draws from.
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
        raise ConfigError(f"partitioner.class must be a callable, or one of {names}; it is {given!r}")
    return named[given]
