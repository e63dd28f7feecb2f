"""`kbatch groups`: consumer groups and share groups, how far they are behind, and where they go on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kbatch.cli.administration import (
    JSON,
    YES,
    PartitionType,
    confirm,
    open_admin,
    print_failures,
    print_rows,
    results_of,
)
from kbatch.cli.options import client_options, open_reader
from kbatch.cli.positions import HELP, Position, PositionType, resolve
from kbatch.errors import GroupIdNotFoundError
from kbatch.errors.words import shown
from kbatch.records import GroupDescription, GroupMember, TopicPartition, check_group_id

if TYPE_CHECKING:
    from kbatch.consumer.topic_reader import TopicReader

# A target of `reset`: no offset.
NONE = "none"
SHARE = "share"
# An offset, the end, and the lag.
Figures = tuple[int | None, int | None, int | None]
NO_FIGURES: Figures = None, None, None
# Topics, or some of their partitions: None are all.
Chosen = dict[str, tuple[int, ...] | None]


class _GroupId(click.ParamType[str]):
    name = "GROUP"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> str:
        try:
            check_group_id(value)
        except ValueError as error:
            self.fail(str(error), param, context)
        return str(value)


@click.group()
def command() -> None:
    """List and describe groups, reset and delete their offsets, remove members, and delete groups."""


@command.command("list")
@client_options("consumer")
@JSON
def list_groups(settings: dict[str, str], as_json: bool) -> None:
    """List the groups, with their protocols and states."""
    with open_reader(settings, "groups") as reader:
        found = reader.groups.list()
    rows = [(each.group_id, each.kind or each.protocol_type, each.state) for each in found]
    print_rows(("group", "protocol", "state"), rows, as_json=as_json)


@command.command("describe")
@click.argument("groups", nargs=-1, required=True, type=_GroupId(), metavar="GROUP...")
@client_options("consumer")
@JSON
def describe(groups: tuple[str, ...], settings: dict[str, str], as_json: bool) -> None:
    """Show the members of each GROUP, what it has committed, and its lag: the offsets that it has not read.
    Of a share group, show where it starts, and the records that are not acknowledged.

    A partition without an offset is shown if a member reads it.
    """
    with open_reader(settings, "groups") as reader:
        for group_id in groups:
            described = reader.groups.describe(group_id)
            rows = _rows(reader, described)
            if as_json:
                click.echo(json.dumps(_as_json(described, rows)))
            else:
                _print_group(described, rows)


class _Row(NamedTuple):
    """A partition of a group. Those of a share group may have several owners."""

    partition: TopicPartition
    offset: int | None
    end: int | None
    lag: int | None
    owners: list[GroupMember]


def _rows(reader: TopicReader, described: GroupDescription) -> list[_Row]:
    owners: dict[TopicPartition, list[GroupMember]] = {}
    for member in described.members:
        for partition in member.partitions:
            owners.setdefault(partition, []).append(member)
    figures: dict[TopicPartition, Figures] = {}
    if described.kind == SHARE:
        figures.update(reader.groups.share_offsets(described.group_id))
    else:
        offsets = reader.groups.offsets(described.group_id)
        figures = {at: (each.committed.offset, each.end, each.lag) for at, each in offsets.items()}
    return [
        _Row(partition, *figures.get(partition, NO_FIGURES), owners.get(partition, []))
        for partition in sorted({*figures, *owners})
    ]


def _as_json(described: GroupDescription, rows: Sequence[_Row]) -> dict[str, Any]:
    is_share = described.kind == SHARE
    return {
        "group": described.group_id,
        "protocol": described.kind,
        "state": described.state,
        "assignor": described.assignor,
        "lag": sum(each.lag or 0 for each in rows),
        "members": [
            {
                "member": member.member_id,
                "client": member.client_id,
                "host": member.host,
                "instance": member.group_instance_id,
            }
            for member in described.members
        ],
        "partitions": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "start" if is_share else "committed": each.offset,
                "end": each.end,
                "lag": each.lag,
            }
            | (
                {"members": [member.member_id for member in each.owners]}
                if is_share
                else {"member": next((member.member_id for member in each.owners), None)}
            )
            for each in rows
        ],
    }


def _print_group(described: GroupDescription, rows: Sequence[_Row]) -> None:
    count = len(described.members)
    plural = "" if count == 1 else "s"
    assignor = f", assignor {described.assignor}" if described.assignor else ""
    lag = sum(each.lag or 0 for each in rows)
    state = f"{described.state}, {described.kind}{assignor}, {count} member{plural}, lag {lag:,}"
    click.echo(shown(f"{described.group_id}: {state}"))
    offset = "start" if described.kind == SHARE else "committed"
    cells = [
        (
            *(each.partition.topic, each.partition.partition, each.offset, each.end, each.lag),
            [member.client_id for member in each.owners],
            sorted({member.host for member in each.owners}),
        )
        for each in rows
    ]
    columns = ("topic", "partition", offset, "end", "lag", "client", "host")
    print_rows(columns, cells, as_json=False)


class _Chosen(click.ParamType[tuple[str, tuple[int, ...] | None]]):
    name = "TOPIC[:PARTITION,...]"

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> tuple[str, tuple[int, ...] | None]:
        topic, colon, listed = value.partition(":")
        numbers = listed.split(",")
        if not topic or (colon and not all(each.strip().isdecimal() for each in numbers)):
            self.fail(f"{value!r} is no topic, or topic and partitions as in orders:0,1", param, context)
        return topic, tuple(map(int, numbers)) if colon else None


class _Target(PositionType):
    """A position, or NONE."""

    def convert(
        self, value: object, param: click.Parameter | None, context: click.Context | None
    ) -> Position:
        return NONE if value == NONE else super().convert(value, param, context)


@command.command("reset")
@click.argument("group", type=_GroupId())
@click.option(
    "-t", "--topic", "topics", type=_Chosen(), multiple=True, help="The offsets of these; may be repeated."
)
@click.option("--all-topics", is_flag=True, help="All offsets that the group has committed.")
@click.option("--to", "target", type=_Target(), metavar="POSITION", help=f"{HELP}; none deletes the offsets.")
@click.option("--shift-by", type=int, metavar="N", help="N offsets on, or back if it is negative.")
@click.option("--execute/--dry-run", "executes", default=False, help="Do it; the default is a dry run.")
@client_options("consumer")
@JSON
def reset(
    group: str,
    topics: Sequence[tuple[str, tuple[int, ...] | None]],
    all_topics: bool,
    target: Position | None,
    shift_by: int | None,
    executes: bool,
    settings: dict[str, str],
    as_json: bool,
) -> None:
    """Move GROUP to other offsets: show them, and with --execute commit them. It must have no members.

    New offsets lie within the log: one before its beginning or after its end becomes that.

    \b
      kbatch groups reset billing -b localhost:9092 --all-topics --to 1h
      kbatch groups reset billing -b localhost:9092 -t orders:0,1 --to 42 --execute
    """
    if bool(topics) == all_topics:
        raise click.UsageError("name topics with --topic, or all of them with --all-topics")
    if (target is None) == (shift_by is None):
        raise click.UsageError("say where with --to POSITION or --shift-by N, one of them")
    with open_reader(settings, "groups") as reader:
        _check_no_members(reader, group)
        committed = {at: each.committed.offset for at, each in reader.groups.offsets(group).items()}
        chosen = _chosen_partitions(reader, group, dict(topics), committed)
        if target == NONE:
            chosen = [partition for partition in chosen if partition in committed]
        new = _new_offsets(reader, chosen, committed, target, shift_by)
        if executes and target == NONE:
            reader.groups.delete_offsets(group, chosen)
        elif executes:
            found = {partition: offset for partition, offset in new.items() if offset is not None}
            reader.groups.commit_offsets(group, found)
    rows = [(each.topic, each.partition, committed.get(each), new[each]) for each in sorted(new)]
    print_rows(("topic", "partition", "committed", "new"), rows, as_json=as_json)
    if not executes:
        click.echo("dry run: nothing has changed; add --execute", err=True)


def _check_no_members(reader: TopicReader, group_id: str) -> None:
    try:
        described = reader.groups.describe(group_id)
    except GroupIdNotFoundError:
        return  # the offsets make it
    if described.kind == SHARE:
        raise click.ClickException(
            f"{group_id} is a share group and commits no offsets; use kafka-share-groups.sh --reset-offsets"
        )
    if described.members:
        clients = ", ".join(sorted({f"{each.client_id} at {each.host}" for each in described.members}))
        raise click.ClickException(
            f"group {group_id} is {described.state} and has members, which commit offsets of their own: "
            f"{clients}; stop them first"
        )


def _chosen_partitions(
    reader: TopicReader, group_id: str, topics: Chosen, committed: Mapping[TopicPartition, int]
) -> list[TopicPartition]:
    if not topics:
        if not committed:
            raise click.ClickException(
                f"group {group_id} has committed no offsets; name topics with --topic to give it some"
            )
        return list(committed)
    found = []
    for topic, numbers in topics.items():
        there = reader.partitions(topic)
        strays = sorted(set(numbers or ()) - set(there))
        if strays:
            last = len(there) - 1
            raise click.UsageError(f"topic {topic} has no partition {strays[0]}; it has 0 to {last}")
        found += [TopicPartition(topic, each) for each in (there if numbers is None else numbers)]
    return found


def _new_offsets(
    reader: TopicReader,
    chosen: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, int],
    target: Position | None,
    shift_by: int | None,
) -> dict[TopicPartition, int | None]:
    """Return the new offset of each partition; None deletes it."""
    if target == NONE:
        return dict.fromkeys(chosen)
    by_topic: dict[str, list[int]] = {}
    for partition in chosen:
        by_topic.setdefault(partition.topic, []).append(partition.partition)
    new: dict[TopicPartition, int | None] = {}
    for topic, numbers in by_topic.items():
        if target is not None:
            wanted = resolve(reader, topic, target, numbers)
        else:
            by = shift_by or 0
            wanted = {each: _shifted(TopicPartition(topic, each), committed, by) for each in numbers}
        first = reader.offsets(topic, "earliest", wanted)
        last = reader.offsets(topic, "latest", wanted)
        for number, offset in wanted.items():
            new[TopicPartition(topic, number)] = min(max(offset, first[number]), last[number])
    return new


def _shifted(partition: TopicPartition, committed: Mapping[TopicPartition, int], by: int) -> int:
    if partition not in committed:
        raise click.UsageError(f"the group has no offset of {partition} to shift; set one with --to POSITION")
    return committed[partition] + by


@command.command("delete")
@click.argument("groups", nargs=-1, required=True, type=_GroupId(), metavar="GROUP...")
@click.option("--if-exists", is_flag=True, help="Accept that there is no such group.")
@client_options("admin")
@YES
@JSON
def delete(
    groups: tuple[str, ...], if_exists: bool, settings: dict[str, str], yes: bool, as_json: bool
) -> None:
    """Delete each GROUP with its offsets. It must have no members."""
    confirm("delete", groups, yes=yes)
    with open_admin(settings, "groups") as admin:
        found, failure = results_of(lambda: admin.groups.delete(groups, missing_ok=if_exists))
    print_rows(("group",), [(name,) for name in found], as_json=as_json)
    if failure:
        print_failures(failure, "group", as_json=as_json)


@command.command("delete-offsets")
@click.argument("group", type=_GroupId())
@click.argument("partitions", nargs=-1, required=True, type=PartitionType(), metavar="TOPIC:PARTITION...")
@client_options("admin")
@YES
@JSON
def delete_offsets(
    group: str,
    partitions: tuple[TopicPartition, ...],
    settings: dict[str, str],
    yes: bool,
    as_json: bool,
) -> None:
    """Delete the offsets that GROUP has committed for partitions of topics that no member subscribes to."""
    confirm(f"delete offsets of {group} in", [str(each) for each in partitions], yes=yes)
    with open_admin(settings, "groups") as admin:
        _, failure = results_of(lambda: admin.groups.delete_offsets(group, partitions))
    failed = failure.errors if failure else {}
    rows = [(each.topic, each.partition) for each in partitions if each not in failed]
    print_rows(("topic", "partition"), rows, as_json=as_json)
    if failure:
        print_failures(failure, "partition", as_json=as_json)


@command.command("remove-members")
@click.argument("group", type=_GroupId())
@click.argument("instances", nargs=-1, metavar="[INSTANCE]...")
@click.option("--all", "removes_all", is_flag=True, help="All members, also those that are dynamic.")
@click.option("--reason", default="", help="What the coordinator's log says.")
@client_options("admin")
@YES
@JSON
def remove_members(
    group: str,
    instances: tuple[str, ...],
    removes_all: bool,
    reason: str,
    settings: dict[str, str],
    yes: bool,
    as_json: bool,
) -> None:
    """Remove members from GROUP: those with a group.instance.id of INSTANCE, or all."""
    if bool(instances) == removes_all:
        raise click.UsageError("name instances, or pass --all")
    from kbatch.admin.groups import ALL

    confirm(f"remove from {group}", instances or ["all"], yes=yes)
    with open_admin(settings, "groups") as admin:
        members = ALL if removes_all else instances
        found, failure = results_of(lambda: admin.groups.remove_members(group, members, reason))
    print_rows(("member",), [(each,) for each in found], as_json=as_json)
    if failure:
        print_failures(failure, "member", as_json=as_json)
