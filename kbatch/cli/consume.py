"""`kbatch consume`: the records of topics, between two positions, to a file or standard output.

Records are read and written batch by batch, within kbatch.fetch.buffer.memory. Where the end is known, a bar
on standard error shows the progress. A closed pipe and Ctrl-C end the command quietly.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbatch.cli.interrupts import ended_by_closed_output, interrupts_between_steps
from kbatch.cli.members import TopicMember, check_topics, open_member
from kbatch.cli.name_choice import NameChoice
from kbatch.cli.name_completion import complete_groups, complete_topics
from kbatch.cli.options import (
    COLUMNS,
    CONDITION_HELP,
    client_options,
    names,
    need_arrow,
    open_reader,
    topics_of,
)
from kbatch.cli.positions import HELP as POSITION_HELP
from kbatch.cli.positions import Position, PositionType, resolve
from kbatch.cli.value_formats import KINDS, format_of, schema_options
from kbatch.errors import DeserializationError, SchemaRegistryError
from kbatch.progress import ProgressBar, is_terminal
from kbatch.records import TopicPartition
from kbatch.typed import Part

if TYPE_CHECKING:
    from kbatch.cli.selection import Selection
    from kbatch.consumer.topic_reader import ReadProgress, TopicReader
    from kbatch.formats import Format

PARTS: tuple[Part, ...] = ("key", "value")
FORMATS = ("json", "raw", "table", "csv", "parquet", "arrow")
# Settings for which the command has options.
TYPED_KEYS = {"key.deserializer", "value.deserializer", "on.deserialization.error"}
# What becomes of values that cannot be read, as formats call it.
MALFORMED = {"fail": "raise", "null": "null", "column": "column"}


class FormatType(click.ParamType[str]):
    """The name of a format, or a template with a percent sign."""

    name = "format"

    def convert(self, value: str, parameter: click.Parameter | None, context: click.Context | None) -> str:
        if value not in FORMATS and "%" not in value:
            choices = ", ".join(FORMATS)
            self.fail(f"{value!r} is not one of {choices}, nor a template with %", parameter, context)
        return value


@click.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topics)
@click.option(
    "--from", "start", type=PositionType(), metavar="POSITION", help=f"Where to start: {POSITION_HELP}."
)
@click.option(
    "--to", "end", type=PositionType(), metavar="POSITION", help="Where to end; the default is latest."
)
@click.option("-p", "--partition", "partitions", metavar="NUMBER,...", callback=names, help="Only these.")
@click.option("--follow", is_flag=True, help="Go on for ever; starts at latest unless --from is given.")
@click.option(
    "-g",
    "--group",
    metavar="NAME",
    shell_complete=complete_groups,
    help="Read as a member of this group, and commit what is written; --from earliest or latest is for "
    "partitions without a commit.",
)
@click.option("-n", "--max-records", type=click.IntRange(min=1), help="End after this many records.")
@click.option(
    "-f",
    "--format",
    "form",
    type=FormatType(),
    metavar="FORMAT|TEMPLATE",
    help=f"{', '.join(FORMATS)}; else by FILE's suffix, else json. Or a template, such as '%k %o %s\\n': "
    "%t topic, %p partition, %o offset, %T milliseconds since 1970, %k key, %K its bytes, %s value, %S its "
    "bytes, %h headers.",
)
@click.option("--key", "key_kind", type=click.Choice(KINDS), default="text", show_default=True)
@click.option("--value", "value_kind", type=click.Choice(KINDS), default="text", show_default=True)
@click.option(
    "--malformed",
    type=click.Choice(tuple(MALFORMED)),
    default="fail",
    show_default=True,
    help="What becomes of a key or value that is not of its type; column adds the reasons as key_error and "
    "value_error.",
)
@schema_options
@click.option("--columns", metavar="COLUMN,...", callback=names, help=f"Of {', '.join(COLUMNS)}.")
@click.option("--where", metavar="CONDITION", help=f"Only records for which it is true: {CONDITION_HELP}.")
@click.option("--count", is_flag=True, help="Print the number of records only.")
@click.option("--uncommitted", is_flag=True, help="Records of open and aborted transactions too.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the records go, instead of standard output.",
)
@client_options("consumer")
@click.option(
    "--progress/--no-progress", default=None, help="A bar on standard error; by default only on a terminal."
)
def command(
    topics: tuple[str, ...],
    start: Position | None,
    end: Position | None,
    partitions: tuple[str, ...] | None,
    form: str | None,
    columns: tuple[str, ...] | None,
    output: Path | None,
    settings: dict[str, str],
    **options: Any,
) -> None:
    """Write the records of each TOPIC: all of them, or those between two positions. A TOPIC that begins with
    ^ is a regular expression of Python, which matches whole names.

    Keys and values are text by default. Bytes that are no UTF-8 become {"base64": ...} in JSON, and stay as
    they are in CSV. Arrow is an IPC stream. Without --follow the command ends where the topic ended when it
    began.

    Exit status: 0 the end is reached; 1 it is not, with the reason; 2 the call is wrong. A file of -o is
    complete also then, with the records before. A group has read them if the end is reached, or if Ctrl-C
    ends --follow.

    \b
      kbatch consume orders -b localhost:9092 --from 1h
      kbatch consume orders -b localhost:9092 --value json --where "value.price > 100" -o large.parquet
      kbatch consume orders -b localhost:9092 --follow --format raw | grep -i error
      kbatch consume orders -b localhost:9092 -f '%p:%o %k %s\\n'
      kbatch consume orders '^returns-.*' -b localhost:9092 --group audit --follow -f raw >> orders.txt
    """
    with need_arrow():
        from kbatch.cli.selection import Selection
        from kbatch.consumer.ranges import only_topic
    if options["follow"] and end is not None:
        raise click.UsageError("--follow and --to exclude each other; omit one")
    if options["group"] is not None:
        _check_group(start, end, partitions)
    form = _format(form, output)
    _check_settings(settings)
    settings.setdefault("isolation.level", "read_uncommitted" if options["uncommitted"] else "read_committed")
    chosen = _columns(columns, form)
    if options["malformed"] == "column" and (form == "raw" or form not in FORMATS):
        raise click.UsageError("--malformed column needs a --format with columns, not raw or a template")
    read = {part: _format_of(part, options) for part in PARTS}
    formats: dict[str, Any] = {part: each for part, each in read.items() if each is not None}
    start = start if start is not None else ("latest" if options["follow"] else "earliest")
    choice = NameChoice(topics)
    try:
        if options["group"] is not None:
            check_topics(choice, settings)
            selection = Selection(None, chosen, formats, options)
            with open_member(settings, options["group"], start) as consumer:
                member = TopicMember(consumer, choice, follows=options["follow"], most=options["max_records"])
                _write_of_group(member, selection, form, output, follows=options["follow"])
            return
        with open_reader(settings, "consume") as reader:
            ranges = _ranges(reader, choice, start, end, partitions, follows=options["follow"])
            selection = Selection(only_topic(ranges), chosen, formats, options)
            _write(reader, ranges, selection, form, output, options)
    except DeserializationError as error:
        raise click.ClickException(f"{error}; --malformed null goes on") from error
    except SchemaRegistryError as error:
        raise click.ClickException(str(error)) from error


def _check_settings(settings: Mapping[str, str]) -> None:
    if typed := sorted(settings.keys() & TYPED_KEYS):
        raise click.UsageError(
            f"{', '.join(typed)}: --key and --value say what keys and values are; leave the setting out"
        )


def _check_group(start: Position | None, end: Position | None, partitions: tuple[str, ...] | None) -> None:
    if start not in (None, "earliest", "latest"):
        raise click.UsageError("--group starts at the group's offsets: --from must be earliest or latest")
    if end is not None or partitions is not None:
        raise click.UsageError("--group reads to the end of what it is assigned: omit --to and --partition")


def _format(form: str | None, output: Path | None) -> str:
    """Return the format, from the option or the suffix of the file."""
    from kbatch.cli.outputs import BINARY, SUFFIXES

    if form is None and output is not None:
        form = SUFFIXES.get(output.suffix.lower())
        if form is None:
            raise click.UsageError(f"{output} has no suffix of {', '.join(SUFFIXES)}; add --format")
    form = form or "json"
    if form in BINARY and output is None and is_terminal(sys.stdout):
        raise click.UsageError(
            f"{form} is binary, and standard output is a terminal; name a file with -o FILE"
        )
    return form


def _columns(given: tuple[str, ...] | None, form: str) -> tuple[str, ...]:
    if form not in FORMATS:
        return _columns_of_template(given, form)
    if form == "raw":
        if given not in (None, ("value",)):
            raise click.UsageError("--format raw writes values only; omit --columns")
        return ("value",)
    for name in given or ():
        if name not in COLUMNS:
            raise click.UsageError(f"there is no column {name!r}; the columns are {', '.join(COLUMNS)}")
    return given or COLUMNS


def _columns_of_template(given: tuple[str, ...] | None, template: str) -> tuple[str, ...]:
    from kbatch.cli.templates import Template

    if given is not None:
        raise click.UsageError("a template names its columns; omit --columns")
    return Template(template).columns or ("offset",)


def _format_of(part: Part, options: dict[str, Any]) -> Format[Any] | None:
    on_error = MALFORMED[options["malformed"]]
    return format_of(part, options[f"{part}_kind"], f"--{part}", options, on_error=on_error)


def _ranges(
    reader: TopicReader,
    choice: NameChoice,
    start: Position,
    end: Position | None,
    partitions: Sequence[str] | None,
    *,
    follows: bool,
) -> dict[TopicPartition, tuple[int, int | None]]:
    """Return the offsets to read of each partition of the topics that there are now."""
    ranges: dict[TopicPartition, tuple[int, int | None]] = {}
    for topic in topics_of(choice, reader):
        ranges |= _ranges_of(reader, topic, start, end, partitions, follows=follows)
    return ranges


def _ranges_of(
    reader: TopicReader,
    topic: str,
    start: Position,
    end: Position | None,
    partitions: Sequence[str] | None,
    *,
    follows: bool,
) -> dict[TopicPartition, tuple[int, int | None]]:
    """Return the offsets to read of each partition. The end is fixed now, unless the command follows."""
    there = sorted(reader.partitions(topic))
    numbers = there if partitions is None else [_number(each, there, topic) for each in partitions]
    starts = resolve(reader, topic, start, numbers)
    ends: dict[int, int] = (
        {} if follows else resolve(reader, topic, "latest" if end is None else end, numbers)
    )
    return {
        TopicPartition(topic, number): (first, None if follows else max(ends.get(number, first), first))
        for number, first in sorted(starts.items())
    }


def _number(text: str, there: Sequence[int], topic: str) -> int:
    if not text.isdecimal() or int(text) not in there:
        raise click.BadParameter(
            f"{text!r} is no partition of {topic}, which has 0 to {len(there) - 1}", param_hint="--partition"
        )
    return int(text)


def _write(
    reader: TopicReader,
    ranges: dict[TopicPartition, tuple[int, int | None]],
    selection: Selection,
    form: str,
    path: Path | None,
    options: dict[str, Any],
) -> None:
    """Read the ranges, and write what is selected of them."""
    is_shown: bool | None = options["progress"]
    if is_shown is None and path is None and is_terminal(sys.stdout):
        is_shown = False  # the records show how far it is
    waits = options["follow"] and path is None
    with ProgressBar("records", is_shown=is_shown) as bar, ended_by_closed_output(waits=waits):

        def show(progress: ReadProgress) -> None:
            bar.show(progress.position, progress.total, progress.rows)

        batches = reader.read(ranges, columns=selection.read, progress=show, **selection.used)
        # --follow does not wait for the first values, which may have a type
        schema = None if options["follow"] and selection.projection.missing_types else batches.schema
        selection.write(selection.passing(batches), form, path, schema)


def _write_of_group(
    member: TopicMember, selection: Selection, form: str, path: Path | None, *, follows: bool
) -> None:
    """Write what the group has not read yet, and commit it after that."""
    from kbatch.cli.outputs import AT_END

    is_file = path is not None or form in AT_END or selection.counts  # complete at its end only
    schema = None if selection.projection.missing_types else selection.projection.schema
    try:
        with (
            interrupts_between_steps(is_file=is_file) as waits,
            ended_by_closed_output(waits=follows and path is None),
        ):
            batches = member.batches(
                commits=not is_file, waits=waits, columns=selection.read, **selection.used
            )
            selection.write(member.counted(selection.passing(batches)), form, path, schema)
    except KeyboardInterrupt:
        if follows and is_file and selection.is_whole:  # Ctrl-C is how these end
            member.commit_before()
        raise
    member.commit()
