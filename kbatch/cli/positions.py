"""Positions in a topic, as a person writes them: `earliest`, `1h`, `2026-11-01`, `42`, `-10`, `0:42,1:7`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import click

_DURATION = re.compile(r"(\d+)\s*(ms|s|m|h|d|w)")
_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
HELP = "earliest, latest, a time (2026-11-01T12:00), 1h (ago), an offset, -10 (before the end), P:OFFSET,..."

# What `TopicReader.offsets` takes, or a negative number: offsets before the end.
Position = str | int | datetime | timedelta | Mapping[int, Any]


class OffsetSource(Protocol):
    """What positions are resolved by, part of a TopicReader."""

    def partitions(self, topic: str) -> Iterable[int]: ...
    def offsets(self, topic: str, spec: Any, partitions: Iterable[int] | None = None) -> dict[int, int]: ...


class PositionType(click.ParamType[Position]):
    """A position in a topic."""

    name = "POSITION"

    def convert(
        self, value: object, param: click.Parameter | None, context: click.Context | None
    ) -> Position:
        if not isinstance(value, str):
            return value  # type: ignore[return-value]  # a default that is converted already
        try:
            return position_of(value.strip())
        except ValueError:
            self.fail(f"{value!r} is no position; write {HELP}", param, context)


def position_of(text: str) -> Position:
    """Return the position that a text means; raise ValueError if none. Times without a zone are local."""
    if text in ("earliest", "beginning"):
        return "earliest"
    if text in ("latest", "end"):
        return "latest"
    if ":" in text and re.fullmatch(r"\d+:[^,]+(,\d+:[^,]+)*", text) and not _is_clock(text):
        parts = (each.split(":", 1) for each in text.split(","))
        return {int(partition): position_of(position) for partition, position in parts}
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    if (found := _DURATION.fullmatch(text)) is not None:
        return int(found[1]) * _UNITS[found[2]]
    moment = datetime.fromisoformat(text)
    return moment.astimezone(UTC)


def _is_clock(text: str) -> bool:
    """True for times of the day, which look like a partition and its offset."""
    return re.fullmatch(r"\d\d:\d\d:\d\d(\.\d+)?", text) is not None


def resolve(log: OffsetSource, topic: str, position: Position, partitions: Iterable[int]) -> dict[int, int]:
    """Return the offset that a position means in each of the partitions."""
    wanted = list(partitions)
    if isinstance(position, Mapping):
        strays = [number for number in position if number not in wanted]
        if strays:
            raise click.UsageError(
                f"{topic} is read in partitions {_listed(wanted)}, but a position names {_listed(strays)}"
            )
        named = [resolve(log, topic, each, [number]) for number, each in position.items()]
        return {number: offset for found in named for number, offset in found.items()}
    if isinstance(position, int) and position < 0:
        first, last = log.offsets(topic, "earliest", wanted), log.offsets(topic, "latest", wanted)
        return {number: max(last[number] + position, first[number]) for number in wanted}
    return log.offsets(topic, position, wanted)


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
