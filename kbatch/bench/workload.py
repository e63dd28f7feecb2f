"""The workload: 16-byte keys and 100-byte JSON values, in batches of 1,000, for one partition."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from kbatch._native.codec.batch_writer import encode

RECORDS_PER_BATCH = 1000
# Rows that Spark passes at a time (spark.sql.execution.arrow.maxRecordsPerBatch).
TABLE_ROWS = 10_000
TIMESTAMP_MS = 1_700_000_000_000

Row = tuple[bytes, bytes, tuple[()], int]


def row(number: int, value_bytes: int = 100) -> Row:
    """Return a key of 16 bytes and a JSON object of 100 that looks like a service's event; other sizes are
    cut off if too short for one.
    """
    noise = f"{number * 0x9E3779B97F4A7C15 % (1 << 64):016x}" * (value_bytes // 16 + 1)
    event = {
        "id": number,
        "user": f"u{number * 7919 % 100_000:05d}",
        "amount": number * 31 % 9973,
        "note": "",
    }
    event["note"] = noise[: max(0, value_bytes - len(json.dumps(event, separators=(",", ":"))))]
    key = b"key-%012d" % (number * 7919 % 1_000_000)
    value = json.dumps(event, separators=(",", ":")).encode()[:value_bytes]
    return key, value, (), TIMESTAMP_MS + number // 100


@cache
def batch_rows(value_bytes: int = 100) -> list[Row]:
    rows = [row(number, value_bytes) for number in range(RECORDS_PER_BATCH)]
    assert all(len(key) == 16 and len(value) == value_bytes for key, value, _, _ in rows)
    return rows


def table_of(rows: list[Row]) -> Any:
    """Return a pyarrow.Table with the columns key, value and timestamp."""
    import pyarrow as pa

    return pa.table(
        {
            "key": pa.array([key for key, _, _, _ in rows], pa.binary()),
            "value": pa.array([value for _, value, _, _ in rows], pa.binary()),
            "timestamp": pa.array([timestamp for _, _, _, timestamp in rows], pa.timestamp("ms", "UTC")),
        }
    )


@cache
def table() -> Any:
    return table_of([row(number) for number in range(TABLE_ROWS)])


@cache
def batch_size() -> int:
    """Return the batch.size that closes uncompressed batches after exactly RECORDS_PER_BATCH records."""
    rows = [row(number) for number in range(TABLE_ROWS - RECORDS_PER_BATCH, TABLE_ROWS)]
    return max(len(encode(rows)), len(encode(batch_rows())))
