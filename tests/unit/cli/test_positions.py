"""Positions in a topic: what a person may write, and the offsets it means."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest

from kbatch.cli.positions import OffsetSource, position_of, resolve

LOGS = {0: (10, 100), 1: (0, 5)}


class FixedLog:
    """Two partitions; a time means the offset of its milliseconds."""

    def partitions(self, topic: str) -> Iterable[int]:
        return LOGS

    def offsets(self, topic: str, spec: object, partitions: Iterable[int] | None = None) -> dict[int, int]:
        numbers = LOGS if partitions is None else partitions
        if isinstance(spec, int):
            return dict.fromkeys(numbers, spec)
        return {number: LOGS[number][spec == "latest"] for number in numbers}


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", "earliest"),
        ("beginning", "earliest"),
        ("end", "latest"),
        ("42", 42),
        ("-10", -10),
        ("1h", timedelta(hours=1)),
        ("90s", timedelta(seconds=90)),
        ("2w", timedelta(days=14)),
        ("2026-11-01T12:00:00Z", datetime(2026, 11, 1, 12, tzinfo=UTC)),
        ("2026-11-01T12:00:00+02:00", datetime(2026, 11, 1, 10, tzinfo=UTC)),
        ("0:42,1:earliest", {0: 42, 1: "earliest"}),
    ],
)
def test_text_means_position(text: str, position: object) -> None:
    assert position_of(text) == position


@pytest.mark.parametrize("text", ["", "yesterday", "1x", "1:", "0:a", "2026-13-01"])
def test_other_text_is_no_position(text: str) -> None:
    with pytest.raises(ValueError):
        position_of(text)


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ("earliest", {0: 10, 1: 0}),
        ("latest", {0: 100, 1: 5}),
        ("-7", {0: 93, 1: 0}),
        ("1:-2", {1: 3}),
        ("0:12,1:latest", {0: 12, 1: 5}),
    ],
)
def test_position_resolves_to_offsets(text: str, offsets: dict[int, int]) -> None:
    log: OffsetSource = FixedLog()
    assert resolve(log, "t", position_of(text), LOGS) == offsets


def test_position_in_unread_partition_is_refused() -> None:
    with pytest.raises(Exception, match="a position names 7"):
        resolve(FixedLog(), "t", position_of("7:0"), LOGS)
