"""A partition's log as a broker keeps it, from a seed, and what a reader of it must see.

It has transactions of several producers, committed, aborted and open ones, side by side; batches that
compaction has thinned out or emptied; every codec, both timestamp types and several leader epochs. What is
visible follows from how the log was made, not from a reading of its batches: so it judges readers.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.oracle import plain, strategies


class Seen(NamedTuple):
    """A record as a consumer sees it."""

    offset: int
    timestamp_ms: int | None
    is_log_append_time: bool
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int


@dataclass
class Transaction:
    """A transaction; `end_offset` is that of its marker, None while it is open."""

    producer_id: int
    first_offset: int
    end_offset: int | None = None
    is_aborted: bool = False


class LoggedBatch(NamedTuple):
    """A batch of the log, with its records but for a marker."""

    data: bytes
    base_offset: int
    last_offset: int
    leader_epoch: int
    records: list[Seen]
    transaction: Transaction | None


@dataclass
class PartitionLog:
    """Call `random_log` for one."""

    batches: list[LoggedBatch] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)

    @property
    def end_offset(self) -> int:
        return self.batches[-1].last_offset + 1

    @property
    def last_stable_offset(self) -> int:
        """The first offset of a transaction that is open, or the end."""
        opened = [each.first_offset for each in self.transactions if each.end_offset is None]
        return min(opened, default=self.end_offset)

    def last_position(self, *, committed: bool) -> int:
        """Return the position after the last batch that a reader gets. Compaction may have removed others
        between it and the last stable offset.
        """
        end = self.last_stable_offset if committed else self.end_offset
        read = [each for each in self.batches if each.base_offset < end]
        return read[-1].last_offset + 1 if read else self.batches[0].base_offset

    def fetched(self, offset: int) -> bytes:
        """Return the batches that a Fetch from the offset gets."""
        return b"".join(batch.data for batch in self.batches if batch.last_offset >= offset)

    def aborted(self, offset: int) -> tuple[tuple[int, int], ...]:
        """Return the aborted transactions that such an answer lists, in the order of their markers, as the
        broker's index of them has it.
        """
        found = [
            each
            for each in self.transactions
            if each.is_aborted and each.end_offset is not None and each.end_offset >= offset
        ]
        found.sort(key=lambda each: each.end_offset or 0)
        return tuple((each.producer_id, each.first_offset) for each in found)

    def visible(self, first: int, end: int, *, committed: bool) -> list[Seen]:
        """Return the records from `first` on and before `end`."""
        if committed:
            end = min(end, self.last_stable_offset)
        return [
            record
            for batch in self.batches
            for record in batch.records
            if first <= record.offset < end
            and not (committed and batch.transaction is not None and batch.transaction.is_aborted)
        ]


def random_log(
    seed: object, *, batches: int = 20, most_rows: int = 6, leader_epoch: int | None = None
) -> PartitionLog:
    """Return a log of so many batches, the same for the same seed: one of fewer batches is its beginning.

    `leader_epoch` is that of all batches; None for several.
    """
    return _Writer(random.Random(f"log {seed}"), most_rows, leader_epoch).log(batches)


def lay(log: PartitionLog, folder: Path, torn: bytes = b"") -> None:
    """Write a log into the folder of a partition whose broker does not run, instead of what is there. The
    broker has to find its indexes and transactions by itself. `torn` is what a writer that died left of a
    next batch.
    """
    for path in (*folder.glob("[0-9]*.*"), *folder.glob("leader-epoch-checkpoint")):
        path.unlink()
    segment = folder / f"{log.batches[0].base_offset:020}.log"
    segment.write_bytes(b"".join(each.data for each in log.batches) + torn)


class _Writer:
    def __init__(self, rng: random.Random, most_rows: int, leader_epoch: int | None) -> None:
        self.rng = rng
        self.most_rows = most_rows
        self.has_epochs = leader_epoch is None
        self.made = PartitionLog()
        self.open: dict[int, Transaction] = {}
        self.offset = rng.choice((0, 5, 2**31, 2**40))
        epoch = rng.choice((-1, 0, 7))
        self.epoch = epoch if leader_epoch is None else leader_epoch
        self.compression = rng.choice(plain.CODECS)

    def log(self, batches: int) -> PartitionLog:
        for _ in range(batches):
            if self.rng.random() < 0.1:
                self.epoch += self.has_epochs
            if self.open and self.rng.random() < 0.35:
                self.end_transaction(self.rng.choice(sorted(self.open)))
            else:
                self.produce()
            if self.rng.random() < 0.1:
                self.offset += self.rng.randrange(4)  # whole batches that compaction has removed
        return self.made

    def transaction(self) -> Transaction | None:
        producer_id = self.rng.choice((None, None, 1, 2, 9_000_000_000))
        if producer_id is None:
            return None
        if producer_id not in self.open:
            self.open[producer_id] = Transaction(producer_id, self.offset)
            self.made.transactions.append(self.open[producer_id])
        return self.open[producer_id]

    def produce(self) -> None:
        rng = self.rng
        transaction = self.transaction()
        rows = [rng.choice(strategies.random_rows(rng)) for _ in range(rng.randint(1, self.most_rows))]
        last_offset = self.offset + len(rows) - 1
        offsets = list(range(self.offset, last_offset + 1))
        if rng.random() < 0.25:  # compaction
            kept = sorted(rng.sample(range(len(rows)), rng.randrange(len(rows) + 1)))
            rows, offsets = [rows[at] for at in kept], [offsets[at] for at in kept]
        append_time = rng.choice(strategies.EDGE_TIMESTAMPS_MS) if rng.random() < 0.2 else None
        if rng.random() < 0.3:
            self.compression = rng.choice(plain.CODECS)
        data = plain.encode(
            rows,
            # the log cleaner compresses no batch that it has emptied (DefaultRecordBatch.writeEmptyHeader)
            compression=self.compression if rows else "none",
            base_offset=self.offset,
            offsets=offsets,
            last_offset=last_offset,
            partition_leader_epoch=self.epoch,
            producer_id=transaction.producer_id if transaction else -1,
            producer_epoch=0 if transaction else -1,
            base_sequence=0 if transaction else -1,
            transactional=transaction is not None,
            log_append_time_ms=append_time,
        )
        records = [
            Seen(
                offset,
                timestamp_ms if append_time is None else append_time,
                append_time is not None,
                *(key, value, tuple(headers), self.epoch),
            )
            for offset, (key, value, headers, timestamp_ms) in zip(offsets, rows, strict=True)
        ]
        self.append(data, last_offset, records, transaction)

    def end_transaction(self, producer_id: int) -> None:
        transaction = self.open.pop(producer_id)
        transaction.is_aborted = self.rng.random() < 0.6
        transaction.end_offset = self.offset
        marker = strategies.end_transaction_marker(not transaction.is_aborted, 1_700_000_000_000)
        data = plain.encode(
            [marker],
            base_offset=self.offset,
            partition_leader_epoch=self.epoch,
            producer_id=producer_id,
            producer_epoch=0,
            transactional=True,
            control=True,
        )
        self.append(data, self.offset, [], transaction)

    def append(
        self, data: bytes, last_offset: int, records: list[Seen], transaction: Transaction | None
    ) -> None:
        self.made.batches.append(
            LoggedBatch(data, self.offset, last_offset, self.epoch, records, transaction)
        )
        self.offset = last_offset + 1
