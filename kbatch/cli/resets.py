"""`kbatch groups reset`: other offsets for a consumer group or a share group, also from and to CSV."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import StringIO
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from kbatch.cli.administration import JSON, print_rows
from kbatch.cli.name_completion import complete_groups, complete_topics
from kbatch.cli.options import client_options, open_reader
from kbatch.cli.positions import HELP, Position, PositionType, resolve
from kbatch.errors import GroupIdNotFoundError
from kbatch.records import GroupDescription, TopicPartition, check_group_id

if TYPE_CHECKING:
    from kbatch.consumer.topic_reader import TopicReader

SHARE = "share"
# Targets beside positions: no offset; what is committed, or else the end.
NONE, CURRENT = "none", "current"
# Topics, or some of their partitions: None are all.
Chosen = dict[str, tuple[int, ...] | None]
Offsets = Mapping[TopicPartition, int]


class GroupIdType(click.ParamType[str]):
    """The name of a group."""

    name = "GROUP"

    def shell_complete(
        self, context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return complete_groups(context, parameter, incomplete)

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> str:
        try:
            check_group_id(value)
        except ValueError as error:
            self.fail(str(error), param, context)
        return str(value)


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
    """A position, or NONE or CURRENT."""

    def convert(
        self, value: object, param: click.Parameter | None, context: click.Context | None
    ) -> Position:
        return str(value) if value in (NONE, CURRENT) else super().convert(value, param, context)


@click.command("reset")
@click.argument("group", type=GroupIdType())
@click.option(
    "-t",
    "--topic",
    "topics",
    type=_Chosen(),
    multiple=True,
    shell_complete=complete_topics,
    help="The offsets of these; may be repeated.",
)
@click.option("--all-topics", is_flag=True, help="All offsets that the group has committed.")
@click.option(
    "--to",
    "target",
    type=_Target(),
    metavar="POSITION",
    help=f"{HELP}; current keeps what is committed; none deletes the offsets.",
)
@click.option("--shift-by", type=int, metavar="N", help="N offsets on, or back if it is negative.")
@click.option(
    "--from-file",
    "file",
    type=click.File("r", encoding="utf-8"),
    help="Offsets as --export prints them, or kafka-consumer-groups; - is standard input.",
)
@click.option("--export", is_flag=True, help="Print the new offsets as CSV: topic, partition, offset.")
@click.option("--execute/--dry-run", "executes", default=False, help="Do it; the default is a dry run.")
@client_options("consumer")
@JSON
def reset(
    group: str,
    topics: Sequence[tuple[str, tuple[int, ...] | None]],
    all_topics: bool,
    target: Position | None,
    shift_by: int | None,
    file: IO[str] | None,
    export: bool,
    executes: bool,
    settings: dict[str, str],
    as_json: bool,
) -> None:
    """Move GROUP to other offsets: show them, and with --execute commit them. It must have no members.

    New offsets lie within the log: one before its beginning or after its end becomes that. Records that a
    share group has acknowledged after its new offsets are delivered again.

    \b
      kbatch groups reset billing -b localhost:9092 --all-topics --to 1h
      kbatch groups reset billing -b localhost:9092 -t orders:0,1 --to 42 --execute
      kbatch groups reset billing -b localhost:9092 --all-topics --to current --export > offsets.csv
      kbatch groups reset billing -b localhost:9092 --from-file offsets.csv --execute
    """
    _check_call(topics, target, shift_by, file, all_topics=all_topics)
    rows = None if file is None else offsets_of_file(file, group)
    with open_reader(settings, "groups") as reader:
        kept = _kept_offsets(reader, group)
        committed = kept.committed()
        if rows is None:
            chosen = _chosen_partitions(reader, group, dict(topics), committed, exists=kept.exists)
            new = _new_offsets(reader, chosen, committed, target, shift_by)
        else:
            new = _within(reader, rows)
        if executes:
            _execute(kept, new, deletes=target == NONE)
    if not kept.exists:
        click.echo(
            f"group {group} is new: {'it has these offsets' if executes else '--execute makes it'}", err=True
        )
    _print(new, committed, export=export, as_json=as_json)
    if not executes:
        click.echo("dry run: nothing has changed; add --execute", err=True)


def _check_call(
    topics: Sequence[object],
    target: Position | None,
    shift_by: int | None,
    file: object,
    *,
    all_topics: bool,
) -> None:
    if sum(each is not None for each in (target, shift_by, file)) != 1:
        raise click.UsageError("say where with --to POSITION, --shift-by N or --from-file FILE, one of them")
    if file is not None and (topics or all_topics):
        raise click.UsageError("--from-file has the topics: omit --topic and --all-topics")
    if file is None and bool(topics) == all_topics:
        raise click.UsageError("name topics with --topic, or all of them with --all-topics")


def _execute(kept: _KeptOffsets, new: Mapping[TopicPartition, int | None], *, deletes: bool) -> None:
    if deletes:
        kept.delete(list(new))
    else:
        kept.commit({partition: offset for partition, offset in new.items() if offset is not None})


def _print(
    new: Mapping[TopicPartition, int | None], committed: Offsets, *, export: bool, as_json: bool
) -> None:
    if export:
        text = StringIO(newline="")
        rows = [(*each, new[each]) for each in sorted(new) if new[each] is not None]
        csv.writer(text, lineterminator="\n").writerows(rows)
        click.echo(text.getvalue(), nl=False)
        return
    cells = [(each.topic, each.partition, committed.get(each), new[each]) for each in sorted(new)]
    print_rows(("topic", "partition", "committed", "new"), cells, as_json=as_json)


# CSV


def offsets_of_file(file: Iterable[str], group: str) -> dict[TopicPartition, int]:
    """Return the offsets of lines of CSV: topic, partition and offset, or these after a group. Lines of other
    groups are left out.

    Raises
    ------
    UsageError
        A line is something else; there is none for the group.
    """
    found: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(file), 1):
        if not row:
            continue  # Kafka's tool ends its file with an empty line
        if len(row) not in (3, 4) or not all(each.strip().isdecimal() for each in row[-2:]):
            raise click.UsageError(
                f"--from-file: line {number} must be topic, partition, offset, or group, topic, partition, "
                f"offset, got {','.join(row)!r}"
            )
        if len(row) == 3 or row[0] == group:
            found[TopicPartition(row[-3], int(row[-2]))] = int(row[-1])
    if not found:
        raise click.UsageError(f"--from-file: there is no line for group {group}")
    return found


# What groups keep


class _KeptOffsets(NamedTuple):
    """How the offsets of a group are read, set and deleted; and whether there is such a group."""

    committed: Callable[[], dict[TopicPartition, int]]
    commit: Callable[[Offsets], object]
    delete: Callable[[list[TopicPartition]], object]
    exists: bool = True


def _kept_offsets(reader: TopicReader, group_id: str) -> _KeptOffsets:
    """Return those of a group without members; one that does not exist is made by its offsets."""
    try:
        described = reader.groups.describe(group_id)
    except GroupIdNotFoundError:
        return _of_consumers(reader, group_id)._replace(exists=False)
    _check_no_members(described)
    return (_of_share_group if described.kind == SHARE else _of_consumers)(reader, group_id)


def _check_no_members(described: GroupDescription) -> None:
    if described.members:
        clients = ", ".join(sorted({f"{each.client_id} at {each.host}" for each in described.members}))
        raise click.ClickException(
            f"group {described.group_id} is {described.state} and has members, which commit offsets of their "
            f"own: {clients}; stop them first"
        )


def _of_consumers(reader: TopicReader, group_id: str) -> _KeptOffsets:
    groups = reader.groups
    return _KeptOffsets(
        lambda: {at: each.committed.offset for at, each in groups.offsets(group_id).items()},
        lambda offsets: groups.commit_offsets(group_id, offsets),
        lambda partitions: groups.delete_offsets(group_id, partitions),
    )


def _of_share_group(reader: TopicReader, group_id: str) -> _KeptOffsets:
    groups = reader.groups

    def delete(partitions: list[TopicPartition]) -> None:
        topics = {each.topic for each in partitions}
        there = {at for at in groups.share_offsets(group_id) if at.topic in topics}
        if left := sorted(there - {*partitions}):
            raise click.UsageError(
                f"a share group forgets whole topics: name {left[0].topic} without partitions, or all of them"
            )
        groups.delete_share_offsets(group_id, topics)

    return _KeptOffsets(
        lambda: {at: each.start for at, each in groups.share_offsets(group_id).items()},
        lambda offsets: groups.set_share_offsets(group_id, offsets),
        delete,
    )


# New offsets


def _chosen_partitions(
    reader: TopicReader, group_id: str, topics: Chosen, committed: Offsets, *, exists: bool
) -> list[TopicPartition]:
    if not topics:
        if not exists:
            raise click.ClickException(
                f"there is no group {group_id}: `kbatch groups list` has the names of all; name topics with "
                "--topic to make it"
            )
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
    committed: Offsets,
    target: Position | None,
    shift_by: int | None,
) -> Mapping[TopicPartition, int | None]:
    """Return the new offset of each partition; None deletes it."""
    if target == NONE:
        return dict.fromkeys(each for each in chosen if each in committed)
    if target == CURRENT:
        new = {each: committed[each] for each in chosen if each in committed}
        others = [each for each in chosen if each not in committed]
        return _within(reader, new | _positions(reader, others, "latest"))
    if target is not None:
        return _within(reader, _positions(reader, chosen, target))
    return _within(reader, {each: _shifted(each, committed, shift_by or 0) for each in chosen})


def _positions(
    reader: TopicReader, chosen: Iterable[TopicPartition], target: Position
) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, number): offset
        for topic, numbers in _by_topic(chosen).items()
        for number, offset in resolve(reader, topic, target, numbers).items()
    }


def _within(reader: TopicReader, wanted: Offsets) -> dict[TopicPartition, int]:
    """Return offsets that lie in the logs."""
    new = {}
    for topic, numbers in _by_topic(wanted).items():
        first, last = (reader.offsets(topic, end, numbers) for end in ("earliest", "latest"))
        for number in numbers:
            partition = TopicPartition(topic, number)
            new[partition] = min(max(wanted[partition], first[number]), last[number])
    return new


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for partition in partitions:
        found.setdefault(partition.topic, []).append(partition.partition)
    return found


def _shifted(partition: TopicPartition, committed: Offsets, by: int) -> int:
    if partition not in committed:
        raise click.UsageError(f"the group has no offset of {partition} to shift; set one with --to POSITION")
    return committed[partition] + by
