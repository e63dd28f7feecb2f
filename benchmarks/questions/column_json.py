"""What does a row of columns cost as JSON? Peers: json.dumps of rows from pyarrow, and of ready dicts; orjson
if it is installed.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from benchmarks.clients.java_codec import Peers
from benchmarks.pages.harness import Claim, Contender, Question

ROWS = 16384


def columns() -> Any:
    """Five columns of common kinds."""
    import pyarrow as pa

    start_us = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
    return pa.RecordBatch.from_pydict(
        {
            "id": pa.array(range(ROWS)),
            "name": pa.array([f"user {number % 977}" for number in range(ROWS)]),
            "amount": pa.array([number * 0.37 for number in range(ROWS)]),
            "ok": pa.array([number % 3 == 0 for number in range(ROWS)]),
            "at": pa.array(range(start_us, start_us + ROWS)).cast(pa.timestamp("us", "UTC")),
        }
    )


def question(peers: Peers) -> Question:
    from kbatch.formats.writing import JsonLines

    batch = columns()
    serializer = JsonLines()
    rows = batch.to_pylist()
    texts = [{**row, "at": row["at"].isoformat()} for row in rows]

    def from_columns() -> list[bytes]:
        return [json.dumps({**row, "at": row["at"].isoformat()}).encode() for row in batch.to_pylist()]

    def from_dicts() -> list[bytes]:
        return [json.dumps(row).encode() for row in texts]

    contenders = [
        Contender("JsonLines", ROWS, lambda: serializer(batch), note="columns to a binary column"),
        Contender("json.dumps", ROWS, from_columns, note="columns to rows to bytes"),
        Contender("json.dumps alone", ROWS, from_dicts, note="of dicts that are there"),
    ]
    try:
        import orjson
    except ImportError:
        pass
    else:
        contenders.append(
            Contender(
                "orjson",
                ROWS,
                lambda: [orjson.dumps(row) for row in batch.to_pylist()],
                note="columns to rows to bytes",
            )
        )
    return Question(
        "Rows of a table as JSON",
        f"{ROWS:,} rows of an integer, a string, a float, a bool and a timestamp.",
        contenders,
        [Claim("JsonLines", "json.dumps", 1 / 3, "JsonLines: 3 x as fast as json.dumps of rows")],
    )
