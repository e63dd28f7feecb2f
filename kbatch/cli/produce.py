"""`kbatch produce`: the rows of a file, or of standard input, to a topic.

Rows are sent block by block while the file is read, within buffer.memory. `_Tally` counts their outcomes. The
first unreadable row, or an error that more rows would only repeat, ends the command; a row that is refused by
itself does not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbatch.cli.column_roles import MAX_PARTITION, ColumnRoles
from kbatch.cli.name_completion import complete_topics
from kbatch.cli.options import (
    INTERRUPTED_STATUS,
    ask_soon,
    client_options,
    names,
    need_arrow,
    need_servers,
    new_client,
    pairs,
)
from kbatch.cli.value_formats import TYPED_KINDS, format_of, schema_options
from kbatch.errors import (
    DeliveryError,
    InvalidRecordError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    SchemaRegistryError,
)
from kbatch.errors.rows import InvalidRowError
from kbatch.producer.tables import TableReport
from kbatch.producer.threads import Producer
from kbatch.progress import ProgressBar
from kbatch.typed import Part

if TYPE_CHECKING:
    from kbatch.cli.records import Formats
    from kbatch.cli.typed_parts import TypedPart

# Errors of single rows; others may succeed.
OF_A_ROW = (RecordTooLargeError, InvalidRecordError)
SHOWN_ERRORS = 5
SHOWN_RECORDS = 3
# Time after Ctrl-C for accepted rows.
LAST_SECONDS = 5.0
# After this time without a topic the command says what it waits for.
NOTICE_MS = 2000
INTERRUPTED = "interrupted"


@click.command()
@click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("-t", "--topic", required=True, shell_complete=complete_topics, help="Where to.")
@click.option(
    "-f",
    "--format",
    "form",
    type=click.Choice(["csv", "jsonl", "parquet", "text"]),
    help="Else by FILE's suffix; text for standard input: each line is a value.",
)
@click.option("-k", "--key", metavar="COLUMN", help="Its text is the key; empty or null is no key.")
@click.option(
    "--value", metavar="COLUMN", help="Its text is the value, null a tombstone; the default is a JSON object."
)
@click.option(
    "--columns",
    metavar="COLUMN,...",
    callback=names,
    help="Members of the JSON object; the default is all columns without another role.",
)
@click.option(
    "--key-format",
    "key_kind",
    type=click.Choice(TYPED_KINDS),
    help="What keys become instead of text.",
)
@click.option(
    "--value-format",
    "value_kind",
    type=click.Choice(TYPED_KINDS),
    help="What values become instead of text or JSON: of the columns of a row, of a line's JSON, or of "
    "--value. Times are ISO 8601, binary is base64.",
)
@schema_options
@click.option("--register", is_flag=True, help="Register a schema that its subject does not have yet.")
@click.option(
    "--timestamp", metavar="COLUMN", help="Milliseconds since 1970, or times like 2026-01-31T12:00:00Z."
)
@click.option("-p", "--partition", metavar="NUMBER|COLUMN", help="By default the key chooses, as in Java.")
@click.option("--headers", metavar="COLUMN,...", callback=names, help="Each becomes a header with its name.")
@click.option(
    "-H", "--header", "fixed", metavar="NAME=VALUE", multiple=True, callback=pairs, help="For every record."
)
@click.option("-K", "--key-separator", metavar="TEXT", help="Text: what is before it in a line is the key.")
@click.option("--delimiter", metavar="CHARACTER", help="Separator of CSV's cells; a comma, or a tab in .tsv.")
@click.option("--strings", is_flag=True, help="CSV: numbers, true and false are strings in JSON too.")
@client_options("producer", needs_servers=False)
@click.option("--dry-run", is_flag=True, help="Read everything, show the first records, send nothing.")
@click.option(
    "--progress/--no-progress", default=None, help="A bar on standard error; by default only on a terminal."
)
def command(
    file: str,
    topic: str,
    settings: dict[str, str],
    form: str | None,
    partition: str | None,
    headers: tuple[str, ...] | None,
    fixed: tuple[tuple[str, str], ...],
    key_separator: str | None,
    delimiter: str | None,
    strings: bool,
    dry_run: bool,
    progress: bool | None,
    key_kind: str | None,
    value_kind: str | None,
    key: str | None,
    value: str | None,
    columns: tuple[str, ...] | None,
    timestamp: str | None,
    **schemas: Any,
) -> None:
    """Send the rows of FILE to a topic: CSV with a line of names, JSON lines, Parquet, or lines of text.

    FILE may be - for standard input, and all but Parquet may be packed with gzip or zstd. A row becomes a
    JSON object of the columns without another role; a line of JSON or text is sent unchanged. Rows are sent
    in order, and reading stops at the first broken one.

    Exit status: 0 all rows are acknowledged; 1 some are not, with the reasons; 2 the call is wrong; 130
    Ctrl-C.

    \b
      kbatch produce orders.csv -b localhost:9092 --topic orders --key id
      echo user-7:hello | kbatch produce - -b localhost:9092 --topic greetings -K :
      kbatch produce orders.jsonl -t orders --value-format avro --schema-registry http://localhost:8081
      zcat log.json.gz | kbatch produce - -f jsonl -b localhost:9092 --topic log -X compression.type=zstd
    """
    roles = ColumnRoles(
        key=key,
        value=value,
        columns=columns,
        timestamp=timestamp,
        partition=_partition(partition),
        header_columns=headers or (),
        headers=tuple((name, value.encode()) for name, value in fixed),
    )
    if roles.value is not None and roles.columns is not None:
        raise click.UsageError(
            "--value and --columns exclude each other; use a column's text, or a JSON object"
        )
    if not dry_run:
        need_servers(settings)
    roles, form = _of_text(file, form, roles, key_separator)
    kinds: dict[Part, str | None] = {"key": key_kind, "value": value_kind}
    if key_kind is not None and roles.key is None:
        raise click.UsageError("--key-format needs --key COLUMN")
    leaves_rows = value_kind is not None
    source = _open(file, form, delimiter, not strings, key_separator, roles, leaves_rows=leaves_rows)
    formats = _formats(kinds, topic, source, roles, schemas)
    if dry_run:
        _show(source, roles, file, formats)
        return
    start = time.monotonic()
    with ProgressBar("rows", is_shown=progress) as bar:
        tally = _Tally(source, bar)
        fault = _send(file, topic, source, roles, settings, tally, formats)
    if not _report(topic, tally, fault, time.monotonic() - start):
        raise click.exceptions.Exit(INTERRUPTED_STATUS if fault == INTERRUPTED else 1)


# Options


def _partition(given: str | None) -> int | str | None:
    if given is None or not given.isdecimal():
        return given
    if int(given) > MAX_PARTITION:
        raise click.BadParameter(f"{given} is no partition", param_hint="--partition")
    return int(given)


def _of_text(
    file: str, form: str | None, roles: ColumnRoles, key_separator: str | None
) -> tuple[ColumnRoles, str | None]:
    """Return the roles of lines of text, and the format, if the call says it."""
    if key_separator is None:
        return roles, form or ("text" if file == "-" else None)
    if not key_separator or form not in (None, "text") or roles.key is not None:
        raise click.UsageError("--key-separator is for lines of text, and not empty; omit --format and --key")
    return replace(roles, key="key"), "text"


def _open(
    file: str,
    form: str | None,
    delimiter: str | None,
    infers: bool,
    key_separator: str | None,
    roles: ColumnRoles,
    *,
    leaves_rows: bool,
) -> Any:
    with need_arrow():
        from kbatch.cli import sources
    path = None if file == "-" else Path(file)
    form = form or (None if path is None else sources.format_of(path))
    if form is None:
        raise click.UsageError(f"{file} has no suffix of {', '.join(sources.FORMATS)}; add --format")
    if form == "parquet" and path is None:
        raise click.UsageError("Parquet cannot be read from standard input, because its schema is at its end")
    if delimiter is not None and len(delimiter) != 1:
        raise click.BadParameter("it must be one character", param_hint="--delimiter")
    try:
        source = sources.open_source(path, form, delimiter, infers, key_separator, leaves_rows=leaves_rows)
    except sources.UnreadableError as error:
        raise click.ClickException(f"{file}: {error}") from error
    if source.names is not None and (missing := roles.missing(source.names)):
        raise click.UsageError(
            f"{file} has no column {', '.join(map(repr, missing))}; its columns are {', '.join(source.names)}"
        )
    return source


def _formats(
    kinds: Mapping[Part, str | None], topic: str, source: Any, roles: ColumnRoles, options: Mapping[str, Any]
) -> Formats:
    """Return what makes keys and values of other kinds than text and JSON. It asks the registry."""
    from kbatch.cli.records import Formats

    parts = {part: _typed(part, kind, topic, source, roles, options) for part, kind in kinds.items()}
    return Formats(parts["key"], parts["value"], source.form)


def _typed(
    part: Part, kind: str | None, topic: str, source: Any, roles: ColumnRoles, options: Mapping[str, Any]
) -> TypedPart | None:
    from kbatch.cli.typed_parts import TypedPart

    # of a file whose columns have types
    columns = roles.key if part == "key" else roles.value or roles.in_value(source.names or ())
    common = {"columns": columns, "register": options["register"]}
    format = format_of(part, kind or "text", f"--{part}-format", options, **common)
    if format is None:
        return None
    try:
        made = TypedPart(part, format, topic)
    except (ValueError, TypeError) as error:
        raise click.UsageError(f"--{part}-format {kind}: {error}") from error
    except SchemaRegistryError as error:
        raise click.ClickException(str(error)) from error
    if (
        part == "value"
        and roles.value is None
        and source.form in ("cells", "columns")
        and not made.has_fields
    ):
        raise click.UsageError(
            f"--value-format {kind} has one value, not several columns: add --value COLUMN"
        )
    return made


# Sending


class _Tally:
    """Outcomes of rows. The delivery thread counts, the main one reads."""

    def __init__(self, source: Any, bar: ProgressBar) -> None:
        self.acknowledged = 0
        self.failed = 0
        self.maybe_persisted = 0
        self.partitions: set[int] = set()
        self.first_errors: list[tuple[int, KafkaError]] = []
        self.ends = False
        self.unit = source.unit
        self._size: int | None = source.size
        self._position = 0
        self._bar = bar
        self._lock = threading.Lock()

    def add_report(self, block: Any, report: TableReport) -> None:
        """Count the outcome of a block."""
        with self._lock:
            self.acknowledged += report.row_count - report.failed_rows
            self.failed += report.failed_rows
            self.partitions.update(set(report.partitions[report.error_codes == 0].tolist()))
            for row, error in report.errors.items():
                self.maybe_persisted += error.possibly_persisted is True
                self.ends |= not isinstance(error, OF_A_ROW)
                self.first_errors.append((block.number(row), error))
            self.first_errors.sort(key=itemgetter(0))  # a later block may be done earlier
            del self.first_errors[SHOWN_ERRORS:]
            self._position = max(self._position, block.position)
            self._bar.show(self._position, self._size, self.acknowledged)


def _send(
    file: str,
    topic: str,
    source: Any,
    roles: ColumnRoles,
    settings: dict[str, str],
    tally: _Tally,
    formats: Formats,
) -> str | None:
    """Return why the file was not sent completely, or None."""
    producer = new_client(Producer, settings)
    fault = None
    try:
        _await_topic(topic, settings)
        _send_blocks(file, topic, source, roles, producer, tally, formats)
        producer.flush()
    except (KafkaError, _StopError) as error:
        fault = str(error)
    except KeyboardInterrupt:
        fault = INTERRUPTED
    finally:
        _close(producer, LAST_SECONDS if fault == INTERRUPTED else None)
    return fault


def _close(producer: Producer, timeout: float | None) -> None:
    """Close without raising: failures are counted already. Another Ctrl-C ends the waiting."""
    try:
        with suppress(DeliveryError):
            producer.close(timeout)
    except KeyboardInterrupt:
        with suppress(DeliveryError):
            producer.close(timeout=0)


class _StopError(Exception):
    """Stop reading, for this reason."""


def _await_topic(topic: str, settings: dict[str, str]) -> None:
    """Check that the topic exists, and that a broker answers; this is soon decided, unlike later."""
    try:
        if "max.block.ms" in settings or not _is_known_at_once(topic, settings):
            ask_soon(Producer, settings, "max.block.ms", lambda asking: asking.partitions_for(topic))
    except KafkaTimeoutError as error:
        raise _StopError(f"there is no metadata of topic {topic}: {error.reason}") from error


def _is_known_at_once(topic: str, settings: dict[str, str]) -> bool:
    """True if brokers know the topic. Else say why the command waits: they may be about to make it."""
    try:
        soon = {**settings, "max.block.ms": str(NOTICE_MS)}
        ask_soon(Producer, soon, "max.block.ms", lambda asking: asking.partitions_for(topic))
    except KafkaTimeoutError as error:
        click.echo(f"waiting for topic {topic}: {error.reason}", err=True)
        return False
    return True


def _send_blocks(
    file: str,
    topic: str,
    source: Any,
    roles: ColumnRoles,
    producer: Producer,
    tally: _Tally,
    formats: Formats,
) -> None:
    from kbatch.cli.records import sendable
    from kbatch.cli.sources import BrokenRowError

    try:
        for block in source.blocks(roles):
            records, fault = sendable(block, roles, source.unit, formats)
            if records.num_rows:
                send = partial(producer.send_table, topic, on_delivery=partial(tally.add_report, block))
                try:
                    send(records)
                except InvalidRowError as error:  # nothing of the table was accepted
                    if error.row:
                        send(records.slice(0, error.row))
                    reason = str(error).partition(f"row {error.row}: ")[2] or error
                    raise BrokenRowError(f"{source.unit} {block.number(error.row)}: {reason}") from error
            if fault is not None:
                raise BrokenRowError(fault)
            if tally.ends:
                raise _StopError("reading stopped, because more rows would only repeat the error")
    except (BrokenRowError, TypeError) as error:
        raise _StopError(f"{file}: {error}; that {source.unit} and later ones were not sent") from error


def _report(topic: str, tally: _Tally, fault: str | None, seconds: float) -> bool:
    """Report the outcomes of all rows. True if all succeeded."""
    say = partial(click.echo, err=True)
    for number, error in tally.first_errors:
        say(f"{tally.unit} {number}: {type(error).__name__}: {error}")
    if tally.failed > len(tally.first_errors):
        say(f"... and {tally.failed - len(tally.first_errors)} more")
    if fault is not None:
        say(f"Error: {fault}")
    partitions = _counted(len(tally.partitions), "partition")
    say(f"{_counted(tally.acknowledged, 'row')} acknowledged by {topic} ({partitions}) in {seconds:.1f} s")
    if tally.failed:
        doubt = f", of which {tally.maybe_persisted:,} may be in the topic all the same"
        say(f"{_counted(tally.failed, 'row')} failed{doubt if tally.maybe_persisted else ''}")
    return fault is None and not tally.failed


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


# A dry run


def _show(source: Any, roles: ColumnRoles, file: str, formats: Formats) -> None:
    """Show what would be sent."""
    from kbatch.cli.records import sendable
    from kbatch.cli.sources import BrokenRowError

    count = 0
    try:
        for block in source.blocks(roles):
            records, fault = sendable(block, roles, source.unit, formats)
            for row in (
                islice(records.to_pylist(), max(0, SHOWN_RECORDS - count)) if count < SHOWN_RECORDS else ()
            ):
                click.echo("\t".join(f"{part}={_visible(content)}" for part, content in row.items()))
            count += records.num_rows
            if fault is not None:
                raise BrokenRowError(fault)
    except (BrokenRowError, TypeError) as error:
        raise click.ClickException(f"{file}: {error}; valid before it: {_counted(count, 'row')}") from error
    click.echo(f"{_counted(count, 'row')} would be sent", err=True)


def _visible(content: object) -> str:
    return content.decode("utf-8", "backslashreplace") if isinstance(content, bytes) else str(content)
