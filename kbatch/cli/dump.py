"""`kbatch dump`: log segments as a table or as JSON lines, with a line for each batch or record."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from pathlib import Path
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from kbatch._native.codec.record_batch import RecordBatch
from kbatch.cli.json_values import plain
from kbatch.codec.segments import read_segment
from kbatch.errors import CorruptRecordError
from kbatch.progress import is_terminal, new_console

Row = dict[str, Any]

BATCH_FIELDS = (
    "base_offset", "last_offset", "size_bytes", "compression", "timestamp_type", "base_timestamp_ms",
    "max_timestamp_ms", "partition_leader_epoch", "producer_id", "producer_epoch", "base_sequence",
    "last_sequence", "is_transactional", "is_control", "delete_horizon_ms", "crc", "magic", "attributes",
)  # fmt: skip
# The columns of the tables. Those with a width have it on a terminal, the others share what is
# left, so the tables of a long listing line up whatever is in them.
BATCH_COLUMNS = ("position", "base_offset", "records", "size_bytes", "compression", "max_timestamp",
                 "producer", "flags")  # fmt: skip
RECORD_COLUMNS = ("offset", "timestamp", "key", "value", "headers")
WIDTHS = {"position": 10, "base_offset": 10, "records": 7, "size_bytes": 9, "compression": 11,
          "max_timestamp": 24, "offset": 10, "timestamp": 24}  # fmt: skip
SHARES = {"value": 3}
NUMBERS = {"position", "base_offset", "records", "size_bytes", "offset"}
# The rows of one printed table: a segment may have millions of records.
TABLE_ROWS = 500
# The header of a batch, without its records.
HEADER_BYTES = 61
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@click.command()
@click.argument(
    "segments", nargs=-1, required=True, metavar="SEGMENT...", type=click.Path(exists=True, path_type=Path)
)
@click.option(
    "--batches/--records", "show_batches", default=True, help="A line a batch (default) or a record."
)
@click.option("--format", "form", type=click.Choice(["table", "jsonl"]), default="table", show_default=True)
@click.option("-n", "--limit", type=click.IntRange(min=0), metavar="N", help="Stop after N lines.")
@click.option("--check-crc/--no-check-crc", default=True, help="Refuse batches whose CRC is wrong (default).")
def command(
    segments: tuple[Path, ...], show_batches: bool, form: str, limit: int | None, check_crc: bool
) -> None:
    """Show the content of log segments.

    SEGMENT is a .log file or a folder with .log files. In a pipe the table has tabs between its columns.
    Bytes that are not UTF-8 appear as b'..' in the table and as {"base64": ".."} in JSON lines.
    """
    files = _log_files(segments)
    rows_of, cells_of, columns = (
        (_batch_rows, _batch_cells, BATCH_COLUMNS)
        if show_batches
        else (_record_rows, _record_cells, RECORD_COLUMNS)
    )
    rows = islice(chain.from_iterable(rows_of(path, check_crc) for path in files), limit)
    if form == "jsonl":
        for row in rows:
            values = {name: _json_value(value) for name, value in row.items()}
            click.echo(json.dumps(values))  # ASCII, without line ends or terminal codes
    elif len(files) == 1:
        _print_table(columns, map(cells_of, rows))
    else:
        _print_table(("file", *columns), ([row["file"], *cells_of(row)] for row in rows))


def _log_files(paths: Iterable[Path]) -> list[Path]:
    files = []
    for path in paths:
        found = sorted(path.glob("*.log")) if path.is_dir() else [path]
        if not found:
            raise click.UsageError(f"{path} has no .log files; name a segment or a partition's folder")
        if path.suffix in (".index", ".timeindex"):
            raise click.UsageError(f"{path} is an index; name the segment, {path.with_suffix('.log').name}")
        files += found
    return files


# Rows: the facts of a batch or a record, in Python's types


def _positioned(path: Path, check_crc: bool) -> Iterator[tuple[int, RecordBatch]]:
    """Yield the batches with their positions in the file; report bytes after the last one on stderr. Raise
    CorruptRecordError if there is none, unless the file is empty or, so far, only reserved (log.preallocate).
    """
    position = 0
    for batch in read_segment(path, check_crc=check_crc):
        yield position, batch
        position += batch.size_bytes
    if not position and _has_something(path):
        raise CorruptRecordError(f"{path} does not begin with a whole batch; is it a segment, *.log?")
    if unread := path.stat().st_size - position:
        click.echo(f"{path}: the last {unread} bytes, from byte {position}, are not a whole batch", err=True)


def _has_something(path: Path) -> bool:
    with path.open("rb") as file:
        return any(file.read(HEADER_BYTES))


def _batch_rows(path: Path, check_crc: bool) -> Iterator[Row]:
    for position, batch in _positioned(path, check_crc):
        yield {
            "file": str(path),
            "position": position,
            "records": len(batch),
            **{name: getattr(batch, name) for name in BATCH_FIELDS},
        }


def _record_rows(path: Path, check_crc: bool) -> Iterator[Row]:
    for position, batch in _positioned(path, check_crc):
        try:
            for record in batch:
                yield {
                    "file": str(path),
                    "offset": record.offset,
                    "timestamp_ms": record.timestamp_ms,
                    "timestamp_type": batch.timestamp_type,
                    "is_control": batch.is_control,
                    "key": record.key,
                    "value": record.value,
                    "headers": record.headers,
                }
        except CorruptRecordError as error:
            raise CorruptRecordError(f"{path}: batch at byte {position}: {error}") from error


def _json_value(value: Any) -> Any:
    """Return bytes as JSON has them, and headers as objects, as their keys may repeat."""
    if isinstance(value, tuple):
        return [{"key": key, "value": _json_value(content)} for key, content in value]
    return plain(value) if isinstance(value, bytes) else value


# Cells for people


def _batch_cells(row: Row) -> list[str]:
    producer = f"{row['producer_id']}/{row['producer_epoch']} from {row['base_sequence']}"
    flags = {
        "transactional": row["is_transactional"],
        "control": row["is_control"],
        "log append time": row["timestamp_type"] == "log_append_time",
        "delete horizon": row["delete_horizon_ms"] is not None,
    }
    return [
        str(row["position"]),
        str(row["base_offset"]),
        str(row["records"]),
        str(row["size_bytes"]),
        row["compression"],
        _time(row["max_timestamp_ms"]),
        "" if row["producer_id"] < 0 else producer,
        ", ".join(name for name, is_set in flags.items() if is_set),
    ]


def _record_cells(row: Row) -> list[str]:
    headers = " ".join(f"{_printable(key)}={_visible(value)}" for key, value in row["headers"])
    return [
        str(row["offset"]),
        _time(row["timestamp_ms"]),
        _visible(row["key"]),
        _visible(row["value"]),
        headers,
    ]


def _time(timestamp_ms: int) -> str:
    """Return UTC in ISO 8601; the number itself beyond Python's calendar, nothing for no timestamp."""
    if timestamp_ms == -1:
        return ""
    try:
        return str(plain(EPOCH + timedelta(milliseconds=timestamp_ms)))
    except OverflowError:
        return str(timestamp_ms)


def _visible(data: bytes | None) -> str:
    if data is None:
        return "null"
    try:
        return _printable(data.decode())
    except UnicodeDecodeError:
        return repr(data)


def _printable(text: str) -> str:
    """Return text without tabs, line ends and terminal codes."""
    return text if text.isprintable() else repr(text)[1:-1]


def _on_a_terminal() -> bool:
    return is_terminal(sys.stdout)


def _print_table(columns: Sequence[str], rows: Iterator[list[str]]) -> None:
    if not _on_a_terminal():
        for cells in chain([columns], rows):
            click.echo("\t".join(cells))
        return
    console = new_console()
    is_first = True
    while some := list(islice(rows, TABLE_ROWS)):
        table = Table(box=SIMPLE_HEAD, expand=True, show_header=is_first, pad_edge=False)
        for name in columns:
            table.add_column(
                name.replace("_", " "),
                width=WIDTHS.get(name),
                ratio=None if name in WIDTHS else SHARES.get(name, 1),
                justify="right" if name in NUMBERS else "left",
                no_wrap=True,
                overflow="ellipsis",
            )
        for cells in some:
            table.add_row(*map(Text, cells))
        console.print(table)
        is_first = False
