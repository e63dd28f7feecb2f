"""The records of a job in the forms that calls accept: one by one, in lists, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import cycle, islice
from typing import Any

import kbatch.bench.workload
from kbatch._native.codec.batch_writer import encode
from kbatch.bench.workload import RECORDS_PER_BATCH, Record, Row, batch_records, record

# Records a call, for calls that take many.
CHUNK_RECORDS = 10_000
PIECE_CHUNKS = 100
# Rows that Spark passes at a time (spark.sql.execution.arrow.maxRecordsPerBatch).
TABLE_ROWS = 10_000


@dataclass
class Work(kbatch.bench.workload.Work):
    """The rows, repeated up to `records` records; or their values alone, under all different keys."""

    different_keys: bool = False

    @classmethod
    def of(cls, job: Mapping[str, Any]) -> Work:
        rows = [(key.encode(), value.encode()) for key, value in job["rows"]]
        return cls(rows, job["records"], job.get("different_keys", False))

    def each(self) -> Iterator[Row]:
        if self.different_keys:
            keys = map(b"key-%012d".__mod__, range(self.records))
            return zip(keys, cycle([value for _, value in self.rows]), strict=False)
        return super().each()

    def chunks(self) -> list[list[Row]]:
        """Return lists of CHUNK_RECORDS; made once if rows repeat."""
        if self.different_keys or CHUNK_RECORDS % len(self.rows):
            rows = self.each()
            return list(iter(lambda: list(islice(rows, CHUNK_RECORDS)), []))
        whole, rest = divmod(self.records, CHUNK_RECORDS)
        chunk = list(islice(cycle(self.rows), CHUNK_RECORDS))
        return [chunk] * whole + [chunk[:rest]] * bool(rest)

    def table(self) -> Any:
        """Return a pyarrow.Table of key and value in which each row has its own memory, PIECE_CHUNKS chunks
        in a piece, so that creating it needs little more than the table itself.
        """
        import pyarrow as pa

        chunks = self.chunks()
        once = {id(chunk): chunk for chunk in chunks}
        tables = {number: table_of([(*row, (), 0) for row in chunk]) for number, chunk in once.items()}
        pieces = [
            pa.concat_tables([tables[id(chunk)] for chunk in chunks[start : start + PIECE_CHUNKS]])
            for start in range(0, len(chunks), PIECE_CHUNKS)
        ]
        return pa.concat_tables([piece.select(["key", "value"]).combine_chunks() for piece in pieces])


def forms_of(work: kbatch.bench.workload.Work) -> Work:
    """Return the work of a job of these benchmarks, which has other forms than single records."""
    assert isinstance(work, Work)
    return work


def table_of(records: list[Record]) -> Any:
    """Return a pyarrow.Table with the columns key, value and timestamp."""
    import pyarrow as pa

    return pa.table(
        {
            "key": pa.array([key for key, _, _, _ in records], pa.binary()),
            "value": pa.array([value for _, value, _, _ in records], pa.binary()),
            "timestamp": pa.array([timestamp for _, _, _, timestamp in records], pa.timestamp("ms", "UTC")),
        }
    )


@cache
def table() -> Any:
    return table_of([record(number) for number in range(TABLE_ROWS)])


@cache
def batch_size() -> int:
    """Return the batch.size that closes uncompressed batches after exactly RECORDS_PER_BATCH records."""
    records = [record(number) for number in range(TABLE_ROWS - RECORDS_PER_BATCH, TABLE_ROWS)]
    return max(len(encode(records)), len(encode(batch_records())))
