"""The files that `kbatch produce` reads, CSV, JSON lines and Parquet, block by block.

A source yields blocks of rows: the requested columns, and the values of the records. An unreadable row raises
BrokenRowError, after all rows before it.
"""

from __future__ import annotations

import csv
import io
import json
import os
import select
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from kbatch.cli.column_roles import ColumnRoles
from kbatch.formats.writing import JsonLines, RowError
from kbatch.formats.writing.json_text import objects, or_null, quoted, texts

if TYPE_CHECKING:
    from collections.abc import Sequence

FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "jsonl",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".txt": "text",
    ".log": "text",
}
PACKED = (".gz", ".zst")
PIECE_ROWS = 16384
BLOCK_BYTES = 1 << 20
LOOK_SECONDS = 0.2
# How long to wait for Arrow to drop a file, which takes it milliseconds.
DROP_SECONDS = 5.0
# The column of keys that lines have before a separator.
KEY = "key"
# The texts that are also numbers, or true or false, in JSON.
_JSON_LITERAL = r"^(-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false)$"
_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class BrokenRowError(Exception):
    """A row cannot be read; all before it were yielded."""


class UnreadableError(Exception):
    """The file does not have the expected format."""


class RowBlock(NamedTuple):
    """Consecutive rows.

    Attributes
    ----------
    first_row : int
        The number of the first, in units of `InputFile.unit`, from 1.
    fields : pyarrow.RecordBatch
        At least the requested columns.
    values : pyarrow.Array or None
        Binary, a value for each row. None: a format makes them of `fields`.
    position : int
        How much of `InputFile.size` was read so far.
    numbers : sequence of int or None
        The number of each row, if they are not consecutive.
    """

    first_row: int
    fields: pa.RecordBatch
    values: pa.Array | None
    position: int
    numbers: Sequence[int] | None = None

    def number(self, row: int) -> int:
        """Return the number of a row of the block."""
        return self.first_row + row if self.numbers is None else self.numbers[row]


class InputFile(Protocol):
    """An open file.

    Attributes
    ----------
    unit : str
        "row" or "line": the unit of numbers.
    names : list of str or None
        The columns; None if they may differ between rows.
    size : int or None
        Total bytes or rows, in the unit of positions; None if unknown.
    form : "cells", "columns", "json" or "lines"
        What values are made of: columns of text, typed columns, JSON, or text.
    """

    unit: str
    form: str

    @property
    def names(self) -> list[str] | None: ...

    @property
    def size(self) -> int | None: ...

    def blocks(self, roles: ColumnRoles) -> Iterator[RowBlock]: ...


def format_of(path: Path) -> str | None:
    """Return the format by the suffix, before one of compression; None for others."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in PACKED]
    return FORMATS.get(suffixes[-1]) if suffixes else None


def open_source(
    path: Path | None,
    form: str,
    delimiter: str | None,
    infers: bool,
    key_separator: str | None = None,
    *,
    leaves_rows: bool = False,
) -> InputFile:
    """Open a file, or standard input for None. `leaves_rows`: a format makes values of rows with columns.

    Raises
    ------
    OSError, UnreadableError
    """
    if form == "parquet":
        assert path is not None
        return ParquetSource(path, leaves_rows=leaves_rows)
    raw = _Raw(path)
    if form == "jsonl":
        return JsonSource(raw)
    if form == "text":
        return TextSource(raw, key_separator)
    is_tabbed = path is not None and ".tsv" in [suffix.lower() for suffix in path.suffixes]
    return CsvSource(raw, delimiter or ("\t" if is_tabbed else ","), infers, leaves_rows=leaves_rows)


class _Raw:
    """A file's bytes, unpacked if they are gzip or zstd, as they come: a pipe need not fill a block."""

    def __init__(self, path: Path | None) -> None:
        file: Any = _standard_input() if path is None else path.open("rb", BLOCK_BYTES)
        self._file: io.BufferedReader = file
        self.size = path.stat().st_size if path is not None and path.is_file() else None
        self.stream = _unpacked(self._file)
        self.closed = False

    @property
    def position(self) -> int:
        return int(self._file.tell()) if self.size is not None else 0

    def read(self, size: int = BLOCK_BYTES) -> bytes:
        return self.stream.read1(size)

    def lines(self) -> Iterator[tuple[bytes, int, bool]]:
        """Yield each line, its number, and whether the next has yet to come."""
        number, begun = 0, [b""]
        while True:
            try:
                block = self.read()
            except (EOFError, OSError) as error:
                raise BrokenRowError(f"after line {number}: reading the file failed: {error}") from error
            *whole, begun_line = block.split(b"\n")
            if whole:
                whole[0] = b"".join(begun) + whole[0]
                begun = []
            for at, line in enumerate(whole, 1):
                number += 1
                yield line, number, at == len(whole)
            begun.append(begun_line)
            if not block:
                last = b"".join(begun)
                if last:
                    yield last, number + 1, True
                return

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        pass


class _PatientInput(io.RawIOBase):
    """Standard input. A signal between Python's last check and a blocking read would be seen only after
    input, so reads wait in steps.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not select.select([self._descriptor], [], [], LOOK_SECONDS)[0]:
            pass
        data = os.read(self._descriptor, len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _standard_input() -> io.BufferedReader:
    stream: Any = sys.stdin.buffer
    try:
        descriptor = stream.fileno()
    except OSError:  # it has been replaced
        return io.BufferedReader(stream)
    if os.name == "nt":  # where select supports sockets only
        return cast(io.BufferedReader, stream)
    return io.BufferedReader(_PatientInput(descriptor), BLOCK_BYTES)


def _gzip() -> ModuleType:
    """Return the faster of the two modules that are installed."""
    try:
        from isal import igzip
    except ModuleNotFoundError:
        import gzip

        return gzip
    return igzip


def _unpacked(file: io.BufferedReader) -> io.BufferedReader:
    start = file.peek(4)[:4]
    if start[:2] == b"\x1f\x8b":
        unpack: Any = _gzip().open
        return io.BufferedReader(unpack(file, "rb"), BLOCK_BYTES)
    if start == b"\x28\xb5\x2f\xfd":
        import zstandard

        reader = zstandard.ZstdDecompressor().stream_reader(cast(BinaryIO, file), read_across_frames=True)
        return io.BufferedReader(cast(Any, reader), BLOCK_BYTES)
    return file


class CsvSource:
    """CSV with a line of names. Cells are text; an empty one without quotes is null.

    In a row's JSON, a cell whose text is also a JSON number, true or false keeps that value, to the digit,
    and any other is a string: `00123` stays as it is.
    """

    unit = "row"
    form = "cells"

    def __init__(self, raw: _Raw, delimiter: str, infers: bool, *, leaves_rows: bool = False) -> None:
        self._raw = raw
        self._leaves_rows = leaves_rows
        self._delimiter = delimiter
        self._infers = infers
        self.size = raw.size
        self._after_header = b""
        self.names = self._read_names()
        self._broken: tuple[int, str] | None = None

    def _read_names(self) -> list[str]:
        """Return the end of the first record, whose names may contain line ends."""

        def lines() -> Iterator[str]:
            while True:
                line, at_end = self._line()
                yield line.decode("utf-8-sig")
                if at_end:
                    return

        try:
            names = next(csv.reader(lines(), delimiter=self._delimiter, strict=True), [])
        except (csv.Error, UnicodeDecodeError, EOFError) as error:
            raise UnreadableError(
                f"its first line, the names of the columns, cannot be read: {error}"
            ) from error
        if not names:
            raise UnreadableError("it is empty, but CSV starts with a line of column names")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise UnreadableError(f"column {twice!r} exists twice; rename one of them")
        return names

    def _line(self) -> tuple[bytes, bool]:
        while b"\n" not in self._after_header:
            block = self._raw.read()
            if not block:
                line, self._after_header = self._after_header, b""
                return line, True
            self._after_header += block
        line, _, self._after_header = self._after_header.partition(b"\n")
        return line + b"\n", False

    def blocks(self, roles: ColumnRoles) -> Iterator[RowBlock]:
        row = 1
        for batch in self._batches():
            sound = batch
            if self._broken is not None and self._broken[0] < row + batch.num_rows:
                sound = batch.slice(0, self._broken[0] - row)
            sound = self._decoded(sound, row)
            for first in range(0, sound.num_rows, PIECE_ROWS):
                fields = sound.slice(first, PIECE_ROWS)
                yield RowBlock(row + first, fields, self._values(fields, roles), self._raw.position)
            row += sound.num_rows
            if sound.num_rows < batch.num_rows:
                break
        if self._broken is not None:
            raise BrokenRowError("row {}: {}".format(*self._broken))

    def _batches(self) -> Iterator[pa.RecordBatch]:
        unread = _UnreadFile(self._after_header, self._raw)
        if unread.is_empty:
            return
        is_dropped = threading.Event()
        weakref.finalize(unread, is_dropped.set).atexit = False
        try:
            yield from self._read(unread)
        except (pa.ArrowInvalid, EOFError) as error:
            raise BrokenRowError(str(error)) from error.with_traceback(None)  # which refers to the file
        finally:
            # A thread of Arrow's drops the file at last, and aborts the process if Python ends meanwhile.
            del unread
            is_dropped.wait(DROP_SECONDS)

    def _read(self, unread: _UnreadFile) -> Iterator[pa.RecordBatch]:
        yield from pa_csv.open_csv(
            pa.PythonFile(unread, "r"),
            read_options=pa_csv.ReadOptions(column_names=self.names, use_threads=False),
            parse_options=pa_csv.ParseOptions(
                delimiter=self._delimiter, newlines_in_values=True, invalid_row_handler=self._refuse
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types=dict.fromkeys(self.names, pa.large_binary()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def _decoded(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        """Return cells as text, up to the first row with one that is none. Arrow, which could read cells as
        text, would give no row of its block then.
        """
        try:
            columns = [column.cast(pa.large_string()) for column in batch.columns]
        except pa.ArrowInvalid:
            at, name = next(
                (at, name)
                for at, row in enumerate(batch.to_pylist())
                for name, cell in row.items()
                if cell is not None and not _is_text(cell)
            )
            self._broken = first_row + at, f"{name} is not UTF-8: {batch[name][at].as_py()[:200]!r}"
            return self._decoded(batch.slice(0, at), first_row)
        return pa.RecordBatch.from_arrays(columns, batch.schema.names)

    def _refuse(self, row: Any) -> str:
        if self._broken is None:
            self._broken = (
                row.number,
                f"it has {row.actual_columns} cells, not {row.expected_columns}: {row.text[:200]!r}",
            )
        return "skip"

    def _values(self, fields: pa.RecordBatch, roles: ColumnRoles) -> pa.Array | None:
        if self._leaves_rows:
            return None
        if roles.value is not None:
            return texts(fields[roles.value], roles.value)
        members = [(name, or_null(self._member(fields[name]))) for name in roles.in_value(self.names)]
        return objects(members, fields.num_rows).cast(pa.large_binary())

    def _member(self, cells: pa.Array) -> pa.Array:
        if not self._infers:
            return quoted(cells)
        return pc.if_else(pc.match_substring_regex(cells, _JSON_LITERAL), cells, quoted(cells))


def _is_text(cell: bytes) -> bool:
    try:
        cell.decode()
    except UnicodeDecodeError:
        return False
    return True


class _UnreadFile:
    """What follows in a file after the bytes read so far; a file for pyarrow."""

    closed = False

    def __init__(self, head: bytes, raw: _Raw) -> None:
        self._head = head or raw.read()
        self._raw = raw
        self.is_empty = not self._head

    def read(self, size: int = BLOCK_BYTES) -> bytes:
        if self._head:
            head, self._head = self._head[:size], self._head[size:]
            return head
        return self._raw.read(size)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        pass


class JsonSource:
    """JSON lines: a JSON value in every line that is not blank. The line itself is the record's value, unless
    columns are named for it.
    """

    unit = "line"
    form = "json"
    names = None

    def __init__(self, raw: _Raw) -> None:
        self._raw = raw
        self.size = raw.size

    def blocks(self, roles: ColumnRoles) -> Iterator[RowBlock]:
        wanted = list(dict.fromkeys(roles.beside_value))
        needed = [*wanted, *filter(None, [roles.value])]
        numbers: list[int] = []
        rows: list[list[str | None]] = []
        values: list[bytes | None] = []

        def row_block() -> RowBlock:
            columns = list(zip(*rows, strict=True)) or [()] * len(wanted)
            fields = pa.RecordBatch.from_arrays(
                [pa.array(column, pa.large_string()) for column in columns[: len(wanted)]], wanted
            )
            made = RowBlock(
                numbers[0], fields, pa.array(values, pa.large_binary()), self._raw.position, list(numbers)
            )
            for each in (numbers, rows, values):
                each.clear()
            return made

        for line, number, is_last_for_now in self._raw.lines():
            try:
                found = _parsed(line, needed) if needed or roles.columns is not None else _checked(line)
            except ValueError as error:
                if numbers:
                    yield row_block()
                raise BrokenRowError(f"line {number}: {error}") from error
            if found is not _BLANK:
                numbers.append(number)
                rows.append([_text(found[name]) for name in wanted] if wanted else [])
                values.append(_value(line, found, roles))
            if numbers and (is_last_for_now or len(numbers) == PIECE_ROWS):
                yield row_block()


_BLANK: dict[str, Any] = {}


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_decode = json.JSONDecoder(parse_constant=_no_constant).decode


def _checked(line: bytes) -> Any:
    """Return the JSON of a line, or _BLANK for an empty one. Raise ValueError with the offset of a fault."""
    try:
        text = line.decode("utf-8-sig")
        if not text.strip():
            return _BLANK
        return _decode(text)
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start + 1} is not UTF-8") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at character {error.colno}: {text.strip()[:100]!r}") from error


def _parsed(line: bytes, needed: Sequence[str]) -> Any:
    found = _checked(line)
    if found is _BLANK:
        return found
    if not isinstance(found, dict):
        raise ValueError(f"it is not an object, so it has no {', '.join(needed) or 'columns'}")
    for name in needed:
        if name not in found:
            raise ValueError(f"there is no {name!r}; the members are {', '.join(found) or 'none'}")
    return found


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else _json(value)


def _value(line: bytes, found: Any, roles: ColumnRoles) -> bytes | None:
    if roles.value is not None:
        text = _text(found[roles.value])
        return None if text is None else text.encode()
    if roles.columns is not None:
        return _json({name: found[name] for name in roles.columns if name in found}).encode()
    return line.strip().removeprefix(b"\xef\xbb\xbf")


class TextSource:
    """Lines of any bytes: each is a value. With a separator, what is before it in a line is the key."""

    unit = "line"
    form = "lines"

    def __init__(self, raw: _Raw, key_separator: str | None) -> None:
        self._raw = raw
        self._separator = None if key_separator is None else key_separator.encode()
        self.size = raw.size
        self.names: list[str] = [] if self._separator is None else [KEY]

    def blocks(self, roles: ColumnRoles) -> Iterator[RowBlock]:
        first, keys, values = 1, [], []
        for line, number, is_last_for_now in self._raw.lines():
            key, value = self._parts(line.removesuffix(b"\r"))
            keys.append(key)
            values.append(value)
            if is_last_for_now or len(values) == PIECE_ROWS:
                yield self._block(first, keys, values)
                first, keys, values = number + 1, [], []

    def _parts(self, line: bytes) -> tuple[bytes | None, bytes]:
        if self._separator is None or self._separator not in line:
            return None, line
        key, _, value = line.partition(self._separator)
        return key, value

    def _block(self, first: int, keys: list[bytes | None], values: list[bytes]) -> RowBlock:
        made = pa.array(values, pa.large_binary())
        fields = pa.RecordBatch.from_arrays([pa.array(keys, pa.large_binary())], [KEY])
        return RowBlock(first, fields, made, self._raw.position)


class ParquetSource:
    """Parquet, with its own types."""

    unit = "row"
    form = "columns"

    def __init__(self, path: Path, *, leaves_rows: bool = False) -> None:
        self._leaves_rows = leaves_rows
        try:
            self._file = pq.ParquetFile(path)
        except pa.ArrowInvalid as error:
            raise UnreadableError(f"it is not a Parquet file: {error}") from error
        self.names = list(self._file.schema_arrow.names)
        self.size = self._file.metadata.num_rows

    def blocks(self, roles: ColumnRoles) -> Iterator[RowBlock]:
        value: Any = JsonLines() if roles.value is None and not self._leaves_rows else None
        used = list(dict.fromkeys([*roles.beside_value, *roles.in_value(self.names)]))
        schema = self._file.schema_arrow
        if value is not None:
            value.choose(schema, roles.in_value(self.names))  # TypeError for types without JSON
        row = 1

        def row_block(fields: pa.RecordBatch) -> RowBlock:
            chosen = fields.select(roles.in_value(self.names))
            if self._leaves_rows:
                values = None
            else:
                values = value(chosen) if value is not None else texts(chosen.column(0), roles.value or "")
            return RowBlock(row, fields, values, row - 1 + fields.num_rows)

        for fields in self._file.iter_batches(PIECE_ROWS, columns=used):
            try:
                yield row_block(fields)
            except RowError as fault:
                yield row_block(fields.slice(0, fault.row))
                raise BrokenRowError(fault.text(row)) from fault
            row += fields.num_rows
