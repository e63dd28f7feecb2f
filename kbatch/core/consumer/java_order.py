"""The orders in which Java sorts strings and iterates over a HashMap.

Theory of operation. A leader of a classic group may be a Java client before and after us, and an assignment
should not depend on which of them leads. Java's assignors iterate over HashMaps, so some of their choices
follow its order: buckets by the spread hash, and within a bucket the order of insertion. Here that order is a
stable sort. (Java keeps a bucket of nine or more keys as a tree, whose order is not reproduced.)

After java.util.HashMap and java.lang.String.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import unpack
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from kbatch.records import TopicPartition

_Key = TypeVar("_Key")

_BITS = 0xFFFF_FFFF
_SMALLEST_TABLE = 16


def sort_key(text: str) -> bytes:
    """Return the key by which Java sorts strings: UTF-16 code units, where Python compares code points."""
    return text.encode("utf-16-be")


def string_hash(text: str) -> int:
    """Return String.hashCode as an unsigned integer."""
    units = sort_key(text)
    value = 0
    for unit in unpack(f">{len(units) // 2}H", units):
        value = (31 * value + unit) & _BITS
    return value


def partition_hash(partition: TopicPartition) -> int:
    """Return TopicPartition.hashCode as an unsigned integer."""
    return (31 * (31 + partition.partition) + string_hash(partition.topic)) & _BITS


def table_size(count: int) -> int:
    """Return the number of buckets of a HashMap with `count` keys, which uses three quarters at most."""
    size = _SMALLEST_TABLE
    while count > size * 3 // 4:
        size *= 2
    return size


def hash_order(
    keys: Iterable[_Key], hash_of: Callable[[_Key], int], buckets: int | None = None
) -> list[_Key]:
    """Return the distinct keys in the order in which a HashMap iterates over them after they were put into it
    in the given order. `buckets` is the size of a table that had more keys before.
    """
    distinct = list(dict.fromkeys(keys))
    last_bucket = (buckets or table_size(len(distinct))) - 1

    def bucket(key: _Key) -> int:
        value = hash_of(key)
        return (value ^ value >> 16) & last_bucket

    return sorted(distinct, key=bucket)
