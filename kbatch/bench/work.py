"""The records that a contestant sends, the same for all, in the forms that their calls accept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from kbatch.bench.workload import table_of

# Records a call, for calls that take many.
CHUNK_RECORDS = 10_000
PIECE_CHUNKS = 100
# Sent before anything is measured, so that connections, metadata and a producer id exist.
FIRST_ROW = b"first", b""

Row = tuple[bytes, bytes]


@dataclass
class Work:
    """The rows, repeated up to `records` records; or their values alone, under all different keys."""

    rows: list[Row]
    records: int
    different_keys: bool = False

    @classmethod
    def of(cls, job: Mapping[str, Any]) -> Work:
        rows = [(key.encode(), value.encode()) for key, value in job["rows"]]
        return cls(rows, job["records"], job.get("different_keys", False))

    def each(self) -> Iterator[Row]:
        if self.different_keys:
            keys = map(b"key-%012d".__mod__, range(self.records))
            return zip(keys, cycle([value for _, value in self.rows]), strict=False)
        return islice(cycle(self.rows), self.records)

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
