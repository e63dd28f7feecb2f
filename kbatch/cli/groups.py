"""`kbatch groups`: consumer groups and share groups, how far they are behind, and what becomes of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kbatch.cli.administration import (
    DRY_RUN,
    JSON,
    YES,
    PartitionType,
    confirm,
    faults_of_the_call,
    open_admin,
    print_failures,
    print_rows,
    results_of,
    say_dry_run,
)
from kbatch.cli.name_choice import PATTERNS, NameChoice
from kbatch.cli.options import client_options, open_reader
from kbatch.cli.resets import SHARE, GroupIdType, reset
from kbatch.core.process.finished_runs import VERSION, MetadataError, decode_runs
from kbatch.errors import (
    GroupIdNotFoundError,
    GroupNotEmptyError,
    GroupSubscribedToTopicError,
    KafkaError,
    UnknownMemberIdError,
)
from kbatch.errors.words import shown
from kbatch.records import GroupDescription, GroupMember, GroupOffset, TopicPartition

if TYPE_CHECKING:
    from kbatch.admin.client import Admin
    from kbatch.admin.threads import Groups
    from kbatch.consumer.topic_reader import TopicReader


@click.group()
def command() -> None:
    """List and describe groups, reset and delete their offsets, remove members, and delete groups."""


@command.command("list")
@client_options("consumer")
@click.option(
    "--protocol", "kinds", multiple=True, help="consumer, classic, share or streams; may be repeated."
)
@click.option("--state", "states", multiple=True, help="Such as Stable or Empty; may be repeated.")
@JSON
def list_groups(
    settings: dict[str, str], kinds: tuple[str, ...], states: tuple[str, ...], as_json: bool
) -> None:
    """List the groups, with their protocols and states."""
    with open_reader(settings, "groups") as reader, faults_of_the_call():
        found = reader.groups.list(kinds or None, states or None)
    rows = [(each.group_id, each.kind or each.protocol_type, each.state) for each in found]
    print_rows(("group", "protocol", "state"), rows, as_json=as_json)


@command.command("describe", epilog=PATTERNS)
@click.argument("groups", nargs=-1, type=GroupIdType(), metavar="[GROUP]...")
@client_options("consumer")
@click.option("--members", is_flag=True, help="In tables, members instead of partitions; JSON has both.")
@JSON
def describe(groups: tuple[str, ...], settings: dict[str, str], members: bool, as_json: bool) -> None:
    """Show the members of each GROUP, or of all, what it has committed, and its lag: the offsets that it has
    not read. Of a share group, show where it starts, and the records that are not acknowledged.

    A partition without an offset is shown if a member reads it.
    """
    choice = NameChoice(groups)
    with open_reader(settings, "groups") as reader:
        for group_id in _chosen(reader.groups, choice) if groups else _all(reader.groups):
            described = reader.groups.describe(group_id)
            rows = _rows(reader, described)
            if as_json:
                click.echo(json.dumps(_as_json(described, rows)))
            else:
                _print_head(described, rows)
                (_print_members if members else _print_partitions)(described, rows)


def _all(groups: Groups) -> list[str]:
    return [each.group_id for each in groups.list()]


def _chosen(groups: Groups, choice: NameChoice) -> Sequence[str]:
    """Return the groups that are chosen."""
    return choice.among(_all(groups)) if choice.has_patterns else choice.names


class _Figures(NamedTuple):
    """How far a group is in a partition.

    Attributes
    ----------
    offset, end, lag : int or None
    done : int
        The number of offsets after the first that `process()` has finished already, by its commits.
    """

    offset: int | None = None
    end: int | None = None
    lag: int | None = None
    done: int = 0


class _Row(NamedTuple):
    """A partition of a group. Those of a share group may have several owners."""

    partition: TopicPartition
    figures: _Figures
    owners: list[GroupMember]


def _rows(reader: TopicReader, described: GroupDescription) -> list[_Row]:
    owners: dict[TopicPartition, list[GroupMember]] = {}
    for member in described.members:
        for partition in member.partitions:
            owners.setdefault(partition, []).append(member)
    figures = _figures(reader, described)
    return [
        _Row(partition, figures.get(partition, _Figures()), owners.get(partition, []))
        for partition in sorted({*figures, *owners})
    ]


def _figures(reader: TopicReader, described: GroupDescription) -> dict[TopicPartition, _Figures]:
    if described.kind == SHARE:
        starts = reader.groups.share_offsets(described.group_id)
        return {at: _Figures(*each) for at, each in starts.items()}
    offsets = reader.groups.offsets(described.group_id)
    done = _done(reader, offsets)
    return {
        at: _Figures(each.committed.offset, each.end, each.lag, done.get(at, 0))
        for at, each in offsets.items()
    }


def _done(reader: TopicReader, offsets: Mapping[TopicPartition, GroupOffset]) -> dict[TopicPartition, int]:
    """Return the number of offsets that are finished after the committed ones, where commits say so."""
    kept = {at: each for at, each in offsets.items() if (each.committed.metadata or "").startswith(VERSION)}
    topics = reader.describe({at.topic for at in kept}) if kept else {}
    found = {}
    for at, (committed, end) in kept.items():
        if at.topic in topics and end is not None:
            with suppress(MetadataError):
                topic_id = topics[at.topic].topic_id
                runs = decode_runs(committed.offset, committed.metadata, topic_id, end)
                found[at] = sum(last - first for first, last in runs)
    return found


def _lag(rows: Sequence[_Row]) -> int | None:
    """Return the lag over all partitions; None if nothing says it, as before the first commit."""
    known = [each.figures.lag for each in rows if each.figures.lag is not None]
    return sum(known) if known else None


def _as_json(described: GroupDescription, rows: Sequence[_Row]) -> dict[str, Any]:
    return {
        "group": described.group_id,
        "protocol": described.kind,
        "state": described.state,
        "assignor": described.assignor,
        "lag": _lag(rows),
        "members": [
            {
                "member": member.member_id,
                "client": member.client_id,
                "host": member.host,
                "instance": member.group_instance_id,
                "epoch": member.epoch,
            }
            for member in described.members
        ],
        "partitions": [_partition_as_json(each, is_share=described.kind == SHARE) for each in rows],
    }


def _partition_as_json(row: _Row, *, is_share: bool) -> dict[str, Any]:
    figures, members = row.figures, [each.member_id for each in row.owners]
    found = {
        "topic": row.partition.topic,
        "partition": row.partition.partition,
        "start" if is_share else "committed": figures.offset,
        "end": figures.end,
        "lag": figures.lag,
    }
    if is_share:
        return found | {"members": members}
    return found | {"done": figures.done, "member": members[0] if members else None}


def _print_head(described: GroupDescription, rows: Sequence[_Row]) -> None:
    count = len(described.members)
    members = f"{count} member{'' if count == 1 else 's'}"
    assignor = f", assignor {described.assignor}" if described.assignor else ""
    state = f"{described.state}, {described.kind}{assignor}, {members}, {_lag_text(rows)}"
    click.echo(shown(f"{described.group_id}: {state}"))


def _print_members(described: GroupDescription, rows: Sequence[_Row]) -> None:
    cells = [
        (
            *(each.member_id, each.group_instance_id, each.client_id, each.host, each.epoch),
            [str(partition) for partition in each.partitions],
        )
        for each in described.members
    ]
    print_rows(("member", "instance", "client", "host", "epoch", "partitions"), cells, as_json=False)


def _print_partitions(described: GroupDescription, rows: Sequence[_Row]) -> None:
    has_done = any(each.figures.done for each in rows)
    cells = [
        (
            *(each.partition.topic, each.partition.partition, *each.figures[:3]),
            *([each.figures.done] if has_done else []),
            [member.client_id for member in each.owners],
            sorted({member.host for member in each.owners}),
        )
        for each in rows
    ]
    offset = "start" if described.kind == SHARE else "committed"
    columns = ("topic", "partition", offset, "end", "lag", *(["done"] if has_done else []), "client", "host")
    print_rows(columns, cells, as_json=False)


def _lag_text(rows: Sequence[_Row]) -> str:
    lag, done = _lag(rows), sum(each.figures.done for each in rows)
    if lag is None:
        return "lag unknown: it has no offsets"
    unknown = sum(each.figures.lag is None for each in rows)
    text = f"lag {lag:,}"
    if done:
        text += f" of which {done:,} are done"
    return text + (f", and {unknown} without one" if unknown else "")


command.add_command(reset)


@command.command("delete", epilog=PATTERNS)
@click.argument("groups", nargs=-1, required=True, type=GroupIdType(), metavar="GROUP...")
@click.option("--if-exists", is_flag=True, help="Accept that there is no such group.")
@client_options("admin")
@DRY_RUN
@YES
@JSON
def delete(
    groups: tuple[str, ...],
    if_exists: bool,
    settings: dict[str, str],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete each GROUP with its offsets. It must have no members."""
    choice = NameChoice(groups)
    if not dry_run and not choice.has_patterns:
        confirm("delete", choice.names, yes=yes)
    with open_admin(settings, "groups") as admin:
        names = _chosen(admin.groups, choice)
        if dry_run:
            _show_deletable(admin, names, missing_ok=if_exists, as_json=as_json)
            return
        if choice.has_patterns:
            confirm("delete", names, yes=yes)
        found, failure = results_of(lambda: admin.groups.delete(names, missing_ok=if_exists))
    print_rows(("group",), [(name,) for name in found], as_json=as_json)
    if failure:
        print_failures(failure, "group", as_json=as_json)


def _show_deletable(admin: Admin, names: Sequence[str], *, missing_ok: bool, as_json: bool) -> None:
    """Show the groups that would be deleted; those with members, and missing ones, fail."""
    found, failure = results_of(lambda: admin.groups.describe(names))
    errors = {} if failure is None else dict(failure.errors)
    if missing_ok:
        errors = {
            name: error for name, error in errors.items() if not isinstance(error, GroupIdNotFoundError)
        }
    live = {name: each for name, each in found.items() if each.members}
    errors |= {
        name: GroupNotEmptyError(f"it is {each.state} and has {len(each.members)} members: stop them first")
        for name, each in live.items()
    }
    rows = [
        (name, each.kind, each.state, len(each.members)) for name, each in found.items() if name not in live
    ]
    print_rows(("group", "protocol", "state", "members"), rows, as_json=as_json)
    say_dry_run(errors, "group", as_json=as_json)


@command.command("delete-offsets")
@click.argument("group", type=GroupIdType())
@click.argument("partitions", nargs=-1, required=True, type=PartitionType(), metavar="TOPIC:PARTITION...")
@client_options("admin")
@DRY_RUN
@YES
@JSON
def delete_offsets(
    group: str,
    partitions: tuple[TopicPartition, ...],
    settings: dict[str, str],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete the offsets that GROUP has committed for partitions of topics that no member subscribes to."""
    if dry_run:
        _show_committed(settings, group, partitions, as_json=as_json)
        return
    confirm(f"delete offsets of {group} in", [str(each) for each in partitions], yes=yes)
    with open_admin(settings, "groups") as admin:
        _, failure = results_of(lambda: admin.groups.delete_offsets(group, partitions))
    failed = failure.errors if failure else {}
    rows = [(each.topic, each.partition) for each in partitions if each not in failed]
    print_rows(("topic", "partition"), rows, as_json=as_json)
    if failure:
        print_failures(failure, "partition", as_json=as_json)


def _show_committed(
    settings: dict[str, str], group: str, partitions: Sequence[TopicPartition], *, as_json: bool
) -> None:
    """Show the offsets that would be deleted; those of topics that a member subscribes to fail."""
    with open_admin(settings, "groups") as admin:
        described = admin.groups.describe(group)
        offsets = admin.groups.offsets(group)
    subscribed = {
        topic
        for member in described.members
        for topic in (*member.subscribed, *(each.topic for each in member.partitions))
    }
    errors: dict[TopicPartition, KafkaError] = {
        each: GroupSubscribedToTopicError(f"a member of group {group} reads {each.topic}: stop it first")
        for each in partitions
        if each.topic in subscribed
    }
    rows = [
        (*each, offsets[each].committed.offset)
        for each in partitions
        if each in offsets and each not in errors
    ]
    print_rows(("topic", "partition", "committed"), rows, as_json=as_json)
    say_dry_run(errors, "partition", as_json=as_json)


@command.command("remove-members")
@click.argument("group", type=GroupIdType())
@click.argument("instances", nargs=-1, metavar="[INSTANCE]...")
@click.option("--all", "removes_all", is_flag=True, help="All members, also those that are dynamic.")
@click.option("--reason", default="", help="What the coordinator's log says.")
@client_options("admin")
@DRY_RUN
@YES
@JSON
def remove_members(
    group: str,
    instances: tuple[str, ...],
    removes_all: bool,
    reason: str,
    settings: dict[str, str],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove members from GROUP: those with a group.instance.id of INSTANCE, or all."""
    if bool(instances) == removes_all:
        raise click.UsageError("name instances, or pass --all")
    if dry_run:
        _show_members(settings, group, instances, as_json=as_json)
        return
    from kbatch.admin.groups import ALL

    confirm(f"remove from {group}", instances or ["all"], yes=yes)
    with open_admin(settings, "groups") as admin:
        members = ALL if removes_all else instances
        found, failure = results_of(lambda: admin.groups.remove_members(group, members, reason))
    print_rows(("member",), [(each,) for each in found], as_json=as_json)
    if failure:
        print_failures(failure, "member", as_json=as_json)


def _show_members(settings: dict[str, str], group: str, instances: Sequence[str], *, as_json: bool) -> None:
    """Show the members that would be removed; without instances, all. Instances that the group does not have
    fail.
    """
    with open_admin(settings, "groups") as admin:
        members = admin.groups.describe(group).members
    rows = [
        (each.member_id, each.group_instance_id, each.client_id, each.host)
        for each in members
        if not instances or each.group_instance_id in instances
    ]
    print_rows(("member", "instance", "client", "host"), rows, as_json=as_json)
    there = {each.group_instance_id for each in members}
    errors = {each: UnknownMemberIdError() for each in instances if each not in there}
    say_dry_run(errors, "member", as_json=as_json)
