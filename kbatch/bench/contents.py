"""The content of a log as a count and a hash per partition, which processes can exchange."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

# Neither keys nor values of the workload contain it, so the hash shows where each ends.
SEPARATOR = b"\0"

Contents = dict[int, tuple[int, str]]


class Tally:
    """Count and hash everything added to each partition, in order."""

    def __init__(self) -> None:
        from hashlib import blake2b  # OpenSSL takes 4 MiB, which senders should not have

        self._counts: dict[int, int] = defaultdict(int)
        self._hashes: dict[int, Any] = defaultdict(blake2b)

    def add(self, partition: int, *fields: bytes) -> None:
        self._counts[partition] += 1
        self._hashes[partition].update(SEPARATOR.join((*fields, SEPARATOR)))

    def add_at(self, partition: int, offset: int, key: bytes, value: bytes) -> None:
        """Add a record and its location."""
        self.add(partition, b"%d" % offset, key, value)

    @property
    def contents(self) -> Contents:
        return {p: (count, self._hashes[p].hexdigest()) for p, count in self._counts.items()}


def contents_of(rows: Iterable[tuple[int, bytes, bytes]]) -> Contents:
    """Return count and hash of each partition's keys and values, in order."""
    tally = Tally()
    for partition, key, value in rows:
        tally.add(partition, key, value)
    return tally.contents
