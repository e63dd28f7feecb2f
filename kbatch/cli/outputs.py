"""What `kbatch consume` writes: records as JSON lines, raw values, CSV, a table for people, Parquet or Arrow.

An output takes record batches one after another. Standard output that is closed by its reader raises
BrokenPipeError, which ends the command quietly.
"""

from __future__ import annotations

import csv
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from typing import IO, TYPE_CHECKING, Any, final

import pyarrow as pa
import pyarrow.parquet as pq

from kbatch.cli.json_values import plain, raw
from kbatch.cli.templates import Template
from kbatch.formats.arrow_types import in_microseconds, mapped_type

if TYPE_CHECKING:
    from collections.abc import Mapping

# Rows of `table` that share the widths of its columns.
PAGE_ROWS = 200
# Characters of a cell of `table`.
CELL_WIDTH = 60


class Output(ABC):
    """Writes record batches to a binary file."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        self.file = file
        self.schema = schema

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch."""

    def close(self) -> None:
        """Write what is still to be written; the file stays open."""
        self.file.flush()


@final
class JsonOutput(Output):
    """A JSON object a line. Bytes are text if they are UTF-8, else {"base64": ...}."""

    def write(self, batch: pa.RecordBatch) -> None:
        lines = (json.dumps(row, default=plain, ensure_ascii=False) for row in _rows(batch))
        text = "\n".join(lines)
        self.file.write(f"{text}\n".encode("utf-8", "surrogatepass"))
        self.file.flush()


@final
class RawOutput(Output):
    """The bytes of each value, and a line feed. Tombstones are empty lines."""

    def write(self, batch: pa.RecordBatch) -> None:
        self.file.write(b"".join(raw(row["value"]) + b"\n" for row in _rows(batch)))
        self.file.flush()


@final
class TemplateOutput(Output):
    """What a template makes of each record."""

    def __init__(self, template: str, file: IO[bytes], schema: pa.Schema) -> None:
        super().__init__(file, schema)
        self._template = Template(template)

    def write(self, batch: pa.RecordBatch) -> None:
        self.file.write(b"".join(map(self._template.written, _rows(batch))))
        self.file.flush()


@final
class CsvOutput(Output):
    """CSV with a line of names (RFC 4180). Nested values are JSON; null is an empty cell."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        super().__init__(file, schema)
        self._put([schema.names])

    def write(self, batch: pa.RecordBatch) -> None:
        self._put([[_cell(value) for value in row.values()] for row in _rows(batch)])
        self.file.flush()

    def _put(self, rows: Iterable[Iterable[str]]) -> None:
        text = io.StringIO(newline="")
        csv.writer(text).writerows(rows)
        self.file.write(text.getvalue().encode("utf-8", "surrogateescape"))


@final
class TableOutput(Output):
    """Columns side by side, for people; long cells are cut."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        super().__init__(file, schema)
        self._widths = [len(name) for name in schema.names]
        self._has_names = False

    def write(self, batch: pa.RecordBatch) -> None:
        for first in range(0, batch.num_rows, PAGE_ROWS):
            rows = [[_short(value) for value in row.values()] for row in _rows(batch.slice(first, PAGE_ROWS))]
            widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
            self._widths = [max(pair) for pair in zip(self._widths, widths, strict=True)]
            if not self._has_names:
                self._has_names = True
                rows.insert(0, list(self.schema.names))
            self.file.write("".join(self._line(row) for row in rows).encode("utf-8", "replace"))
        self.file.flush()

    def _line(self, row: list[str]) -> str:
        cells = (cell.ljust(width) for cell, width in zip(row, self._widths, strict=True))
        return "  ".join(cells).rstrip() + "\n"


@final
class ParquetOutput(Output):
    """A Parquet file. Row groups are of some size, whatever the size of the batches."""

    ROWS = 1 << 17

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        super().__init__(file, schema)
        self._writer = pq.ParquetWriter(file, schema, compression="zstd")
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._rows += batch.num_rows
        if self._rows >= self.ROWS:
            self._put()

    def _put(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self.schema))
        self._waiting, self._rows = [], 0

    def close(self) -> None:
        self._put()
        self._writer.close()
        super().close()


@final
class ArrowOutput(Output):
    """An Arrow IPC stream, as `pyarrow.ipc.open_stream`, polars and duckdb read it."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        super().__init__(file, schema)
        self._writer = pa.ipc.new_stream(file, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)
        self.file.flush()

    def close(self) -> None:
        self._writer.close()
        super().close()


OUTPUTS: Mapping[str, Callable[[IO[bytes], pa.Schema], Output]] = {
    "json": JsonOutput,
    "raw": RawOutput,
    "csv": CsvOutput,
    "table": TableOutput,
    "parquet": ParquetOutput,
    "arrow": ArrowOutput,
}


def output_of(form: str) -> Callable[[IO[bytes], pa.Schema], Output]:
    """Return what makes the output of a format, or of a template."""
    return OUTPUTS[form] if form in OUTPUTS else partial(TemplateOutput, form)


# Formats that a terminal cannot show, and those of file names.
BINARY = ("parquet", "arrow")
# Of these, what nobody can read before its end.
AT_END = ("parquet",)
SUFFIXES = {
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".txt": "table",
}


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows as Python's values; what is below a microsecond is cut off."""
    kinds = [mapped_type(kind, in_microseconds) for kind in batch.schema.types]
    columns = [
        column if column.type == kind else column.cast(kind, safe=False)
        for column, kind in zip(batch.columns, kinds, strict=True)
    ]
    rows = pa.RecordBatch.from_arrays(columns, batch.schema.names)
    try:
        return list(rows.to_pylist(maps_as_pydicts="lossy"))
    except (OverflowError, ValueError):  # a time that Python does not have
        return [
            {name: _value(row) for name, row in zip(rows.schema.names, each, strict=True)}
            for each in zip(*rows.columns, strict=True)
        ]


def _value(scalar: pa.Scalar) -> Any:
    """Return a value as `to_pylist` does, but the plain number of a time that Python does not have."""
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.StructScalar):
        return {name: _value(each) for name, each in scalar.items()}
    if isinstance(scalar, pa.MapScalar):
        return {_value(pair["key"]): _value(pair["value"]) for pair in scalar.values}
    if isinstance(scalar, pa.ListScalar):
        return [_value(each) for each in scalar.values]
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return scalar.value


def _cell(value: object) -> str:
    """Return a value as a cell of CSV."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, dict | list):
        return json.dumps(value, default=plain, ensure_ascii=False)
    found = value if isinstance(value, str | int | float | bool) else plain(value)
    return ("true" if found else "false") if isinstance(found, bool) else str(found)


def _short(value: object) -> str:
    """Return a value as a cell of a table, on one line."""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else _cell(value)
    text = text.encode("unicode_escape").decode().replace("\\\\", "\\") if not text.isprintable() else text
    return text if len(text) <= CELL_WIDTH else text[: CELL_WIDTH - 1] + "\u2026"
