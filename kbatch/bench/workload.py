"""The records that contestants send, the same for all: 16-byte keys and JSON values of 100 bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import cycle, islice

RECORDS_PER_BATCH = 1000
TIMESTAMP_MS = 1_700_000_000_000
# Sent before anything is measured, so that connections, metadata and a producer id exist.
FIRST_ROW = b"first", b""

Row = tuple[bytes, bytes]
# A record as `encode` takes it: key, value, headers, timestamp.
Record = tuple[bytes, bytes, tuple[()], int]


def record(number: int, value_bytes: int = 100) -> Record:
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
def batch_records(value_bytes: int = 100) -> list[Record]:
    records = [record(number, value_bytes) for number in range(RECORDS_PER_BATCH)]
    assert all(len(key) == 16 and len(value) == value_bytes for key, value, _, _ in records)
    return records


@dataclass
class Work:
    """The rows, repeated up to `records` records."""

    rows: list[Row]
    records: int

    def each(self) -> Iterator[Row]:
        return islice(cycle(self.rows), self.records)
