"""`kbatch top`: rates of topics, lag of groups and load of brokers, once a second.

A terminal shows tables that change in place. Elsewhere each row is a JSON object a line, or with --table a
line of a table; either way rows come again every time.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import click

from kbatch.cli.administration import JSON, cell_of, open_admin, print_rows, results_of
from kbatch.cli.name_choice import HELP, NameChoice
from kbatch.cli.name_completion import complete_groups, complete_topics
from kbatch.cli.options import client_options
from kbatch.errors import KafkaTimeoutError
from kbatch.progress import is_terminal, new_console
from kbatch.records import TopicPartition

if TYPE_CHECKING:
    from rich.console import Group

    from kbatch.admin.client import Admin
    from kbatch.core.admin.results import ClusterNode, PartitionDescription
    from kbatch.records import GroupOffset

TOPIC_COLUMNS = ("topic", "partitions", "offsets", "records_per_s")
GROUP_COLUMNS = ("group", "state", "lag", "records_per_s")
BROKER_COLUMNS = ("broker", "address", "rack", "leaders", "replicas", "out_of_sync", "records_per_s")
Row = Sequence[object]
# How often topics, leaders and nodes are looked up.
LAYOUT_SECONDS = 15.0
# The time for an answer: brokers that are dead must not stop the picture of the others.
ANSWER_SECONDS = 5.0
# The rows of each table that a terminal shows.
ROWS = 15
Rate = Callable[[int], float | None]
# By what a table is about: its columns and rows.
Tables = Mapping[str, tuple[Sequence[str], list[Row]]]


class GroupState(NamedTuple):
    """How far a group is: the sum of what it has committed, and its lag; None if it has committed nothing."""

    state: str
    committed: int
    lag: int | None


class Layout(NamedTuple):
    """What changes rarely, and is asked for every LAYOUT_SECONDS only: of thousands of topics it is much.

    Attributes
    ----------
    seconds : float
        When it was looked up, by a clock that never goes back.
    partitions : mapping of TopicPartition to PartitionDescription
    nodes : tuple of ClusterNode
    """

    seconds: float
    partitions: Mapping[TopicPartition, PartitionDescription]
    nodes: tuple[ClusterNode, ...]


class Sample(NamedTuple):
    """A cluster at a moment.

    Attributes
    ----------
    seconds : float
        When it was taken, by a clock that never goes back.
    layout : Layout
    ends : mapping of TopicPartition to int
        The offsets after the last records, of partitions with a leader.
    groups : mapping of str to GroupState
    """

    seconds: float
    layout: Layout
    ends: Mapping[TopicPartition, int]
    groups: Mapping[str, GroupState]


class Chosen(NamedTuple):
    """The topics and groups to show."""

    topics: NameChoice
    groups: NameChoice
    internal: bool = False


def take_sample(admin: Admin, chosen: Chosen, before: Sample | None = None) -> Sample:
    """Ask the cluster. What cannot be told now, such as topics without a leader, is left out.

    Raises
    ------
    KafkaTimeoutError
        No broker answers.
    """
    layout = before.layout if before else None
    if layout is None or time.monotonic() - layout.seconds >= LAYOUT_SECONDS:
        layout = _layout(admin, chosen)
    led = [each for each, found in layout.partitions.items() if found.leader is not None]
    ends, failure = results_of(
        lambda: admin.topics.offsets(dict.fromkeys(led, "latest"), timeout=ANSWER_SECONDS)
    )
    if failure:  # leaders have changed
        layout = layout._replace(seconds=-LAYOUT_SECONDS)
    return Sample(
        time.monotonic(),
        layout,
        {partition: found.offset for partition, found in ends.items() if found is not None},
        _group_states(admin, chosen.groups),
    )


def _layout(admin: Admin, chosen: Chosen) -> Layout:
    listed = admin.topics.list(internal=chosen.internal, timeout=ANSWER_SECONDS)
    names = [each.name for each in listed if chosen.topics.matches(each.name)]
    topics, _ = results_of(lambda: admin.topics.describe(names, timeout=ANSWER_SECONDS))
    partitions = {
        TopicPartition(topic.name, each.partition): each
        for topic in topics.values()
        for each in topic.partitions
    }
    return Layout(time.monotonic(), partitions, admin.cluster.describe(timeout=ANSWER_SECONDS).nodes)


def _group_states(admin: Admin, chosen: NameChoice) -> dict[str, GroupState]:
    listed, _ = results_of(lambda: admin.groups.list(kinds=["classic", "consumer"], timeout=ANSWER_SECONDS))
    states = {each.group_id: each.state for each in listed if chosen.matches(each.group_id)}
    offsets, _ = results_of(lambda: admin.groups.offsets(states, timeout=ANSWER_SECONDS))
    return {
        group_id: GroupState(states[group_id], _committed(found), _lag(found))
        for group_id, found in offsets.items()
    }


def _committed(offsets: Mapping[TopicPartition, GroupOffset]) -> int:
    return sum(each.committed.offset for each in offsets.values())


def _lag(offsets: Mapping[TopicPartition, GroupOffset]) -> int | None:
    known = [each.lag for each in offsets.values() if each.lag is not None]
    return sum(known) if known else None


def tables_of(sample: Sample, before: Sample | None) -> Tables:
    """Return what a sample shows; rates are those since the one before, None without it."""
    written = _grown(sample.ends, before.ends if before else {})
    seconds = sample.seconds - before.seconds if before else 0.0

    def rate(grown: int) -> float | None:
        return round(grown / seconds, 1) if seconds else None

    return {
        "topics": (TOPIC_COLUMNS, _topic_rows(sample, written, rate)),
        "groups": (GROUP_COLUMNS, _group_rows(sample, before, rate)),
        "brokers": (BROKER_COLUMNS, _broker_rows(sample, written, rate)),
    }


def _grown(
    now: Mapping[TopicPartition, int], before: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return by how much offsets have grown; a topic that was made again has not."""
    return {each: max(end - before.get(each, end), 0) for each, end in now.items()}


def _topic_rows(sample: Sample, written: Mapping[TopicPartition, int], rate: Rate) -> list[Row]:
    partitions = Counter(each.topic for each in sample.layout.partitions)
    offsets, grown = Counter[str](), Counter[str]()
    for each, end in sample.ends.items():
        offsets[each.topic] += end
        grown[each.topic] += written[each]
    busiest = sorted(partitions, key=lambda topic: (-grown[topic], topic))
    return [(topic, partitions[topic], offsets[topic], rate(grown[topic])) for topic in busiest]


def _group_rows(sample: Sample, before: Sample | None, rate: Rate) -> list[Row]:
    def read(group_id: str, now: GroupState) -> int:
        earlier = before.groups.get(group_id, now) if before else now
        return now.committed - earlier.committed

    latest = sorted(sample.groups.items(), key=lambda item: (-(item[1].lag or 0), item[0]))
    return [(name, each.state, each.lag, rate(read(name, each))) for name, each in latest]


def _broker_rows(sample: Sample, written: Mapping[TopicPartition, int], rate: Rate) -> list[Row]:
    leaders, replicas, missing, grown = Counter[int](), Counter[int](), Counter[int](), Counter[int]()
    for partition, each in sample.layout.partitions.items():
        replicas.update(each.replicas)
        missing.update(set(each.replicas) - set(each.isr))
        if each.leader is not None:
            leaders[each.leader] += 1
            grown[each.leader] += written.get(partition, 0)
    return [
        (
            *(each.node_id, f"{each.host}:{each.port}", each.rack),
            *(leaders[each.node_id], replicas[each.node_id], missing[each.node_id]),
            rate(grown[each.node_id]),
        )
        for each in sample.layout.nodes
    ]


@click.command()
@client_options("admin")
@click.option("-n", "--count", type=click.IntRange(1), help="How often; by default until you press Ctrl-C.")
@click.option(
    "--interval", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True, help="Seconds."
)
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    shell_complete=complete_topics,
    help=f"{HELP}; may be repeated.",
)
@click.option(
    "-g",
    "--group",
    "groups",
    multiple=True,
    metavar="GROUP",
    shell_complete=complete_groups,
    help=f"{HELP}; may be repeated.",
)
@click.option("--internal", is_flag=True, help="Also Kafka's own topics, such as __consumer_offsets.")
@JSON
def command(
    settings: dict[str, str],
    count: int | None,
    interval: float,
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    internal: bool,
    as_json: bool,
) -> None:
    """Show the rates of topics, the lag of groups and the load of brokers, again and again.

    With --topic brokers show their load by these topics only.
    """
    chosen = Chosen(NameChoice(topics), NameChoice(groups), internal)
    with open_admin(settings, "top") as admin:
        samples = _samples(admin, chosen, count, interval)
        if not as_json and is_terminal(sys.stdout):
            _show_live(samples)
        else:
            _print_all(samples, as_json=as_json)


def _samples(admin: Admin, chosen: Chosen, count: int | None, interval: float) -> Iterable[Tables]:
    """Yield so many tables, and wait between them. While no broker answers there are none."""
    before, number = take_sample(admin, chosen), 1
    yield tables_of(before, None)
    while count is None or number < count:
        time.sleep(interval)
        with suppress(KafkaTimeoutError):  # the log of connections says why
            sample = take_sample(admin, chosen, before)
            yield tables_of(sample, before)
            before, number = sample, number + 1


def _print_all(samples: Iterable[Tables], *, as_json: bool) -> None:
    for tables in samples:
        now = datetime.now(UTC)
        for columns, rows in tables.values():
            print_rows(("time", *columns), [(now, *row) for row in rows], as_json=as_json)


def _show_live(samples: Iterable[Tables]) -> None:
    from rich.live import Live

    with Live(console=new_console(), screen=True, auto_refresh=False) as live:
        for tables in samples:
            live.update(_drawn(tables), refresh=True)


def _drawn(tables: Tables) -> Group:
    """Return tables that share the height of the screen."""
    from rich.console import Group
    from rich.table import Table

    drawn: list[Table | str] = []
    for columns, rows in tables.values():
        table = Table(*columns, box=None, pad_edge=False, expand=False)
        for row in rows[:ROWS]:
            table.add_row(*(cell_of(each) for each in row))
        drawn += [table, ""]
    return Group(*drawn)
