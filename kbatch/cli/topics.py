"""`kbatch topics` and `kbatch records`: which topics a Kafka has; create, change and delete them, and the
oldest records of their partitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from kbatch.cli.administration import (
    DRY_RUN,
    JSON,
    YES,
    PartitionType,
    confirm,
    open_admin,
    print_failures,
    print_rows,
    results_of,
    say_dry_run,
)
from kbatch.cli.name_choice import PATTERNS, NameChoice
from kbatch.cli.name_completion import complete_topics
from kbatch.cli.options import client_options, need_servers, pairs
from kbatch.errors import InvalidTopicError, KafkaError, OffsetOutOfRangeError, PolicyViolationError
from kbatch.records import TopicPartition

if TYPE_CHECKING:
    from kbatch.admin.client import Admin

COLUMNS = ("topic", "topic_id", "partitions")
PARTITION_COLUMNS = ("topic", "partition", "leader", "replicas", "isr", "elr")


class _AssignmentType(click.ParamType[list[list[int]]]):
    """Brokers of partitions, as 0:1,1:2 of kafka-topics: those of the first, and of the second."""

    name = "BROKER:BROKER,..."

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> list[list[int]]:
        partitions = [each.split(":") for each in value.split(",")]
        if not all(broker.strip().isdecimal() for brokers in partitions for broker in brokers):
            self.fail(f"{value!r} must be brokers of each partition, as 0:1,1:2", param, context)
        return [[int(broker) for broker in brokers] for brokers in partitions]


@click.group(invoke_without_command=True)
@client_options("admin", needs_servers=False)
@JSON
@click.option("--internal", is_flag=True, help="Also Kafka's own, such as __consumer_offsets.")
@click.option("--offsets", is_flag=True, help="Also how many offsets they have.")
@click.pass_context
def command(
    context: click.Context, settings: dict[str, str], as_json: bool, internal: bool, offsets: bool
) -> None:
    """List topics, or create, describe, change and delete them.

    The number of offsets is the number of records, except for what compaction and transactions leave out.
    """
    if context.invoked_subcommand is None:
        need_servers(settings)
        _list(settings, as_json, internal, offsets)


@command.command("list")
@client_options("admin")
@JSON
@click.option("--internal", is_flag=True, help="Also Kafka's own, such as __consumer_offsets.")
@click.option("--offsets", is_flag=True, help="Also how many offsets they have.")
def list_topics(settings: dict[str, str], as_json: bool, internal: bool, offsets: bool) -> None:
    """List the topics."""
    _list(settings, as_json, internal, offsets)


def _list(settings: dict[str, str], as_json: bool, internal: bool, offsets: bool) -> None:
    with open_admin(settings, "topics") as admin:
        found = admin.topics.list(internal=internal)
        rows: list[list[object]] = [list(each[:3]) for each in found]
        if offsets:
            counts = _counts(admin, {each.name: each.partitions for each in found})
            rows = [[*row, counts[str(row[0])]] for row in rows]
    print_rows((*COLUMNS, "offsets") if offsets else COLUMNS, rows, as_json=as_json)


def _counts(admin: Admin, partitions: Mapping[str, int]) -> dict[str, int]:
    """Return how many offsets topics have, which have so many partitions."""
    every = [TopicPartition(topic, at) for topic, count in partitions.items() for at in range(count)]
    first = admin.topics.offsets(dict.fromkeys(every, "earliest"))
    last = admin.topics.offsets(dict.fromkeys(every, "latest"))
    counts = dict.fromkeys(partitions, 0)
    for each in every:
        begin, end = first[each], last[each]
        counts[each.topic] += end.offset - begin.offset if begin and end else 0
    return counts


def _show_counts(admin: Admin, topics: Sequence[str], *, missing_ok: bool, as_json: bool) -> None:
    """Show the topics that would be deleted, and how many offsets they have."""
    found, failure = results_of(lambda: admin.topics.describe(topics))
    counts = _counts(admin, {name: len(each.partitions) for name, each in found.items()})
    rows = [(name, each.topic_id, len(each.partitions), counts[name]) for name, each in found.items()]
    print_rows((*COLUMNS, "offsets"), rows, as_json=as_json)
    say_dry_run()
    if failure and not missing_ok:
        print_failures(failure, "topic", as_json=as_json)


def _chosen(admin: Admin, choice: NameChoice) -> Sequence[str]:
    """Return the topics that are chosen; patterns mean none of Kafka's own."""
    if not choice.has_patterns:
        return choice.names
    return choice.among(each.name for each in admin.topics.list())


@command.command("describe", epilog=PATTERNS)
@click.argument("topics", nargs=-1, metavar="[TOPIC]...", shell_complete=complete_topics)
@client_options("admin")
@click.option("--unavailable", is_flag=True, help="Only partitions without a leader.")
@click.option("--under-replicated", is_flag=True, help="Only partitions with replicas out of sync.")
@JSON
def describe(
    topics: tuple[str, ...],
    settings: dict[str, str],
    unavailable: bool,
    under_replicated: bool,
    as_json: bool,
) -> None:
    """Show the partitions of each TOPIC, or of all but Kafka's own, with their leaders and replicas."""
    choice = NameChoice(topics)
    with open_admin(settings, "topics") as admin:
        names = _chosen(admin, choice) if topics else [each.name for each in admin.topics.list()]
        found, failure = results_of(lambda: admin.topics.describe(names))
    rows = [
        (topic.name, each.partition, each.leader, each.replicas, each.isr, each.elr)
        for topic in found.values()
        for each in topic.partitions
        if not (unavailable and each.leader is not None)
        and not (under_replicated and len(each.isr) == len(each.replicas))
    ]
    print_rows(PARTITION_COLUMNS, rows, as_json=as_json)
    if failure:
        print_failures(failure, "topic", as_json=as_json)


@command.command("create")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@client_options("admin")
@click.option("-p", "--partitions", type=int, help="How many; by default the cluster's num.partitions.")
@click.option("-r", "--replication-factor", type=int, help="By default the cluster's.")
@click.option(
    "--assignment",
    type=_AssignmentType(),
    help="The brokers of each partition, the preferred leader first, instead of the two numbers.",
)
@click.option(
    "--setting", "configs", multiple=True, callback=pairs, metavar="NAME=VALUE", help="May be repeated."
)
@click.option("--if-not-exists", is_flag=True, help="Accept that there is such a topic.")
@click.option("--no-wait", is_flag=True, help="Return before all brokers show it.")
@DRY_RUN
@JSON
def create(
    topics: tuple[str, ...],
    settings: dict[str, str],
    partitions: int | None,
    replication_factor: int | None,
    assignment: Sequence[Sequence[int]] | None,
    configs: tuple[tuple[str, str], ...],
    if_not_exists: bool,
    no_wait: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Create each TOPIC."""
    from kbatch.core.admin.topics import NewTopic

    brokers = None if assignment is None else dict(enumerate(assignment))
    new = NewTopic(partitions, replication_factor, brokers, dict(configs))
    with open_admin(settings, "topics") as admin:
        found, failure = results_of(
            lambda: admin.topics.create(
                dict.fromkeys(topics, new), exist_ok=if_not_exists, validate_only=dry_run, wait=not no_wait
            )
        )
    columns = ("topic", "topic_id", "partitions", "replication_factor", "existed")
    print_rows(columns, found.values(), as_json=as_json)
    if dry_run:
        say_dry_run()
    if failure:
        print_failures(failure, "topic", as_json=as_json)


@command.command("delete", epilog=PATTERNS)
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topics)
@client_options("admin")
@click.option("--if-exists", is_flag=True, help="Accept that there is no such topic.")
@DRY_RUN
@YES
@JSON
def delete(
    topics: tuple[str, ...],
    settings: dict[str, str],
    if_exists: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete each TOPIC with its records."""
    choice = NameChoice(topics)
    if not dry_run and not choice.has_patterns:
        confirm("delete", choice.names, yes=yes)
    with open_admin(settings, "topics") as admin:
        names = _chosen(admin, choice)
        if dry_run:
            _show_counts(admin, names, missing_ok=if_exists, as_json=as_json)
            return
        if choice.has_patterns:
            confirm("delete", names, yes=yes)
        found, failure = results_of(lambda: admin.topics.delete(names, missing_ok=if_exists))
    print_rows(("topic",), [(name,) for name in found], as_json=as_json)
    if failure:
        print_failures(failure, "topic", as_json=as_json)


@command.command("alter", epilog=PATTERNS)
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topics)
@client_options("admin")
@click.option("-p", "--partitions", type=int, required=True, help="How many each is to have.")
@click.option("--assignment", type=_AssignmentType(), help="The brokers of each new partition.")
@DRY_RUN
@JSON
def alter(
    topics: tuple[str, ...],
    settings: dict[str, str],
    partitions: int,
    assignment: Sequence[Sequence[int]] | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Give each TOPIC more partitions. Keys may go to other ones from then on."""
    from kbatch.core.admin.topics import NewPartitions

    choice, new = NameChoice(topics), NewPartitions(partitions, assignment)
    with open_admin(settings, "topics") as admin:
        wanted = dict.fromkeys(_chosen(admin, choice), new)
        found, failure = results_of(lambda: admin.topics.add_partitions(wanted, validate_only=dry_run))
    print_rows(("topic", "partitions"), found.items(), as_json=as_json)
    if dry_run:
        say_dry_run()
    if failure:
        print_failures(failure, "topic", as_json=as_json)


@click.group()
def records() -> None:
    """Delete the oldest records of partitions."""


class _KeptType(click.ParamType[tuple[TopicPartition, int | str]]):
    """A partition and the first offset to keep, as orders:0=42 or orders:0=end."""

    name = "TOPIC:PARTITION=OFFSET"

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> tuple[TopicPartition, int | str]:
        partition, equals, offset = value.rpartition("=")
        if not equals or not (offset.isdecimal() or offset == "end"):
            self.fail(
                f"{value!r} is no partition with an offset, as orders:0=42 or orders:0=end", param, context
            )
        return PartitionType().convert(partition, param, context), offset if offset == "end" else int(offset)


@records.command("delete")
@click.argument("kept", nargs=-1, required=True, type=_KeptType(), metavar="TOPIC:PARTITION=OFFSET...")
@client_options("admin")
@DRY_RUN
@YES
@JSON
def delete_records(
    kept: tuple[tuple[TopicPartition, int | str], ...],
    settings: dict[str, str],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete the records before OFFSET of each partition; "end" deletes all. Show the new first offsets."""
    if dry_run:
        _show_deleted(settings, dict(kept), as_json=as_json)
        return
    confirm("delete records of", [str(partition) for partition, _ in kept], yes=yes)
    with open_admin(settings, "records") as admin:
        found, failure = results_of(lambda: admin.topics.delete_records(dict(kept)))
    rows = [(each.topic, each.partition, first) for each, first in found.items()]
    print_rows(("topic", "partition", "earliest"), rows, as_json=as_json)
    if failure:
        print_failures(failure, "partition", as_json=as_json)


def _show_deleted(
    settings: dict[str, str], kept: Mapping[TopicPartition, int | str], *, as_json: bool
) -> None:
    """Show where partitions begin and end, and would begin; what would be refused fails."""
    with open_admin(settings, "records") as admin:
        first = admin.topics.offsets(dict.fromkeys(kept, "earliest"))
        last = admin.topics.offsets(dict.fromkeys(kept, "latest"))
        internal = {each.name for each in admin.topics.list(internal=True) if each.internal}
        topics = {each.topic for each in kept}
        policies = {topic: admin.configs.describe(topic=topic)["cleanup.policy"].value for topic in topics}
    rows = []
    errors: dict[TopicPartition, KafkaError] = {}
    for partition, keep in kept.items():
        begin, end = first[partition], last[partition]
        ends = (begin.offset if begin else 0, end.offset if end else 0)
        new = ends[1] if keep == "end" else max(int(keep), ends[0])
        if partition.topic in internal:
            errors[partition] = InvalidTopicError("brokers keep the records of Kafka's own topics")
        elif "delete" not in (policies[partition.topic] or ""):
            errors[partition] = PolicyViolationError(
                "brokers delete no records of a topic that is only compacted"
            )
        elif new > ends[1]:
            errors[partition] = OffsetOutOfRangeError(f"it ends at {ends[1]}")
        else:
            rows.append((*partition, *ends, new))
    print_rows(("topic", "partition", "earliest", "latest", "new"), rows, as_json=as_json)
    say_dry_run(errors, "partition", as_json=as_json)
