"""The batches of a partition's segments that a read_committed consumer sees.

A broker sends consumers the aborted transactions; here there are only the files. A producer has one open
transaction at a time, which ends with a control record after its batches, so the next control record of its
producer decides about a batch. If there is none, the transaction's first offset is the last stable offset,
and nothing is visible from there on. Compaction keeps the control record of a transaction while one of its
batches is left (org.apache.kafka.storage.internals.log.CleanedTransactionMetadata).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable

from kbatch._native.codec.record_batch import RecordBatch

ABORT, COMMIT = 0, 1


class CommittedBatches:
    """The knowledge from the headers of all batches of a partition, in order."""

    def __init__(self, batches: Iterable[RecordBatch]) -> None:
        self._marker_offsets: dict[int, list[int]] = defaultdict(list)
        self._commits: dict[int, list[bool]] = defaultdict(list)
        first_open: dict[int, int] = {}
        for batch in batches:
            if not batch.is_transactional:
                continue
            if not batch.is_control:
                first_open.setdefault(batch.producer_id, batch.base_offset)
            elif (kind := _kind_of(batch)) in (ABORT, COMMIT):
                first_open.pop(batch.producer_id, None)
                self._marker_offsets[batch.producer_id].append(batch.base_offset)
                self._commits[batch.producer_id].append(kind == COMMIT)
        self._last_stable_offset = min(first_open.values(), default=None)

    def holds(self, batch: RecordBatch) -> bool:
        """True if a consumer sees the batch, which is not a control batch."""
        if self._last_stable_offset is not None and batch.base_offset >= self._last_stable_offset:
            return False
        if not batch.is_transactional:
            return True
        producer_id = batch.producer_id
        return self._commits[producer_id][bisect_right(self._marker_offsets[producer_id], batch.base_offset)]


def _kind_of(control: RecordBatch) -> int | None:
    """Return the type in the key of a control record: version int16, type int16 (ControlRecordType); None if
    it was removed.
    """
    for record in control:
        key = b"" if record.key is None else bytes(record.key)
        return int.from_bytes(key[2:4], "big", signed=True) if len(key) >= 4 else None
    return None
