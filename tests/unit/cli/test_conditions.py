"""Conditions on records: which rows they keep, and which texts are refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from kbatch.cli.conditions import ConditionError, columns_of, condition_of

ROWS = pa.table(
    {
        "partition": pa.array([0, 1, 2, 3], pa.int32()),
        "offset": pa.array([10, 20, 30, 40], pa.int64()),
        "timestamp": pa.array(
            [datetime(2026, 11, day, tzinfo=UTC) for day in (1, 2, 3, 4)], pa.timestamp("ms", "UTC")
        ),
        "key": pa.array([b"a", b"b", None, b"a"]),
        "value": pa.array([{"id": 1, "paid": True}, {"id": 2, "paid": False}, None, {"id": 4, "paid": True}]),
        "topic": pa.array(["t"] * 4).dictionary_encode(),
    }
)


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ("partition == 1", [20]),
        ("offset > 10 and offset <= 30", [20, 30]),
        ("10 < offset <= 30", [20, 30]),
        ("partition in (0, 3) or offset == 20", [10, 20, 40]),
        ("partition not in [0, 3]", [20, 30]),
        ("key == 'a'", [10, 40]),
        ("key is None", [30]),
        ("key is not None and not value.paid", [20]),
        ("value.id >= 2", [20, 40]),
        ("timestamp > '2026-11-02T12:00:00Z'", [30, 40]),
        ("topic == 't'", [10, 20, 30, 40]),
        ("partition == value.id", []),
    ],
)
def test_condition_keeps_rows(text: str, offsets: list[int]) -> None:
    assert ROWS.filter(condition_of(text, ROWS.schema))["offset"].to_pylist() == offsets


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("partition =", "is not a condition"),
        ("__import__('os')", "cannot be used there"),
        ("open('x') == 1", "cannot be used there"),
        ("partitions == 1", "there is no 'partitions'; there are partition"),
        ("value.name == 'x'", "there is no 'name' in value; there are id, paid"),
        ("partition == 'three'", "'three' is not a valid int32"),
        ("partition + 1 == 2", "cannot be used there"),
    ],
)
def test_other_text_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ConditionError, match=reason):
        condition_of(text, ROWS.schema)


def test_columns_of_condition() -> None:
    assert columns_of("value.id == 1 and partition < 3") == {"value", "partition"}
