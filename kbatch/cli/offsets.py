"""`kbatch offsets`: where the partitions of topics begin and end, or stood at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from kbatch.cli.administration import JSON, open_admin, print_rows
from kbatch.cli.name_choice import PATTERNS, NameChoice
from kbatch.cli.name_completion import complete_topics
from kbatch.cli.options import client_options
from kbatch.cli.positions import HELP, Position, PositionType, resolve
from kbatch.records import TopicPartition

if TYPE_CHECKING:
    from kbatch.admin.client import Admin

# What brokers look up beside times; kafka-get-offsets has numbers from -3 on for them.
SPECS = ("max_timestamp", "earliest_local", "latest_tiered", "earliest_pending_upload")
# An offset, and the time of its record.
Found = tuple[int | None, datetime | None]


class _SpecType(PositionType):
    """A position, or one of SPECS."""

    def convert(
        self, value: object, param: click.Parameter | None, context: click.Context | None
    ) -> Position:
        return str(value) if value in SPECS else super().convert(value, param, context)


class ClusterLog:
    """What positions are resolved by, asked of brokers.

    Parameters
    ----------
    admin : Admin
    isolation : str
        As Admin.topics.offsets has it.
    """

    def __init__(self, admin: Admin, isolation: str) -> None:
        self._admin = admin
        self._isolation = isolation

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic."""
        return [each.partition for each in self._admin.topics.describe(topic).partitions]

    def offsets(self, topic: str, spec: Any, partitions: Iterable[int] | None = None) -> dict[int, int]:
        """Return offsets; the end of the log for times after its last record."""
        wanted = self.partitions(topic) if partitions is None else list(partitions)
        if isinstance(spec, int):
            return dict.fromkeys(wanted, spec)
        found = self.found(topic, spec, wanted)
        ends = {} if None not in found.values() else self.found(topic, "latest", wanted)
        return {each: (found[each] or ends[each])[0] for each in wanted}

    def found(
        self, topic: str, spec: str | datetime | timedelta, partitions: Iterable[int]
    ) -> dict[int, Any]:
        """Return the offset and time that brokers find in each partition; None if there is no such record."""
        specs = {TopicPartition(topic, each): spec for each in partitions}
        found = self._admin.topics.offsets(specs, isolation=self._isolation)
        return {at.partition: each and (each.offset, each.timestamp) for at, each in found.items()}


@click.command(epilog=PATTERNS)
@click.argument("topics", nargs=-1, metavar="[TOPIC]...", shell_complete=complete_topics)
@click.option(
    "--at",
    "position",
    type=_SpecType(),
    metavar="POSITION",
    help=f"Also the offsets there, and times of records that were looked for: {HELP}; {', '.join(SPECS)}.",
)
@click.option("--committed", is_flag=True, help="The ends for readers of committed records only.")
@client_options("admin")
@JSON
def command(
    topics: tuple[str, ...],
    position: Position | None,
    committed: bool,
    settings: dict[str, str],
    as_json: bool,
) -> None:
    """Show the first and the end offset of each partition of each TOPIC, or of all but Kafka's own."""
    choice = NameChoice(topics)
    with open_admin(settings, "offsets") as admin:
        log = ClusterLog(admin, "read_committed" if committed else "read_uncommitted")
        names: Sequence[str] = choice.names
        if choice.has_patterns or not topics:
            names = choice.among(each.name for each in admin.topics.list())
        rows = [row for topic in names for row in _rows(log, topic, position)]
    columns = ("topic", "partition", "earliest", "latest", *(() if position is None else ("at", "time")))
    print_rows(columns, rows, as_json=as_json)


def _rows(log: ClusterLog, topic: str, position: Position | None) -> list[Sequence[object]]:
    numbers = sorted(log.partitions(topic))
    first, last = (log.offsets(topic, end, numbers) for end in ("earliest", "latest"))
    if position is None:
        return [(topic, each, first[each], last[each]) for each in numbers]
    found = _found(log, topic, position, numbers)
    return [(topic, each, first[each], last[each], *found.get(each, (None, None))) for each in numbers]


def _found(log: ClusterLog, topic: str, position: Position, numbers: Sequence[int]) -> dict[int, Found]:
    """Return the offset at a position in each partition, and the time of a record that was looked for."""
    times: dict[int, Any] = {}
    if isinstance(position, str | datetime | timedelta):
        times = {each: row for each, row in log.found(topic, position, numbers).items() if row is not None}
        if position in SPECS:
            return times
    offsets = resolve(log, topic, position, numbers)
    return {each: (offset, times.get(each, (None, None))[1]) for each, offset in offsets.items()}
