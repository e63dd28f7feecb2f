"""The rows and columns that `kbatch consume` writes."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import IO, Any, Never

import click
import pyarrow as pa

from kbatch.cli.conditions import ConditionError, columns_of, condition_of
from kbatch.cli.interrupts import interrupts_held
from kbatch.cli.options import COLUMNS
from kbatch.cli.outputs import BINARY, output_of
from kbatch.consumer.projection import ERROR_SUFFIX, Projection

# The column that is read in any case: rows without columns could not be counted.
ALWAYS = "offset"


class Selection:
    """What is written of the records, and what has to be read for that.

    Parameters
    ----------
    topic : str or None
        That of a reader.
    columns : tuple of str
    formats : dict
        By the names of their columns.
    options : dict
        Those of the command.

    Attributes
    ----------
    read : tuple of str
        Columns to read.
    used : dict
        The formats that they need.
    projection : Projection
    counts : bool
        Only the number of records is written.
    is_whole : bool
        `write` has ended, perhaps by an error or Ctrl-C, and its file has all but what the last step gave.
    """

    def __init__(
        self,
        topic: str | None,
        columns: tuple[str, ...],
        formats: dict[str, Any],
        options: dict[str, Any],
    ) -> None:
        self._where: str | None = options["where"]
        self._most: int | None = options["max_records"]
        self._holds = False  # batches whose types are looked for
        self.is_whole = False
        self.counts: bool = options["count"]
        self._columns = () if self.counts else columns
        named = set() if self._where is None else columns_of(self._where)
        needed = tuple({name.removesuffix(ERROR_SUFFIX) for name in named} & {*COLUMNS})
        self.read = tuple(dict.fromkeys((*self._columns, *needed, ALWAYS)))
        self.used = {part: each for part, each in formats.items() if part in self.read}
        self.projection = Projection(self.read, "copy", self.used, topic=topic)
        if options["malformed"] == "column":
            self._columns = tuple(_with_errors(self._columns, self.used))

    def passing(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are wanted."""
        return _passing(batches, self._where, self._most)

    def write(
        self, passing: Iterator[pa.RecordBatch], form: str, path: Path | None, schema: pa.Schema | None
    ) -> None:
        """Write the columns of rows, or print how many there are. Without a schema the rows say the types."""
        if self.counts:
            click.echo(sum(batch.num_rows for batch in passing))
            return
        selected: Iterator[pa.RecordBatch] = (batch.select(list(self._columns)) for batch in passing)
        if schema is None:
            waits = path is not None and form in BINARY
            selected, schema = self._with_schema(selected, waits=waits)
        if schema is not None:
            self._put(selected, [schema.field(name) for name in self._columns], form, path)

    def _with_schema(
        self, batches: Iterator[pa.RecordBatch], *, waits: bool
    ) -> tuple[Iterator[pa.RecordBatch], pa.Schema | None]:
        """Return the batches with the schema of the first; or, for a file that has one type a column, of the
        first after which each type is known. None if there are none.
        """
        first: list[pa.RecordBatch] = []
        self._holds = True
        try:
            for batch in batches:
                first.append(batch)
                if not (waits and self.projection.missing_types):
                    break
        except BaseException as error:  # what there is becomes a file, also after Ctrl-C
            if not first:
                self.is_whole = True
                raise
            batches = _raising(error)
        if not first:
            return iter(()), None
        schema = first[-1].schema
        return chain(self._held(first, schema), batches), schema

    def _held(self, batches: list[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield batches with the types of a schema, and note when they are done with."""
        for batch in batches:
            yield _retyped(batch, schema)
        self._holds = False

    def _put(
        self, batches: Iterator[pa.RecordBatch], fields: list[pa.Field], form: str, path: Path | None
    ) -> None:
        """Write batches in a format. What was written is a whole file, even if an error or Ctrl-C ends it."""
        with ExitStack() as opened:
            file: IO[bytes] = (
                _standard_output(opened) if path is None else opened.enter_context(path.open("wb"))
            )
            output = output_of(form)(file, pa.schema(fields))
            try:
                for batch in batches:
                    with interrupts_held(is_file=path is not None):
                        output.write(batch)
            finally:
                with interrupts_held(is_file=path is not None):
                    output.close()
                    self.is_whole = not self._holds


def _standard_output(opened: ExitStack) -> IO[bytes]:
    """Return standard output, whose writes take all bytes or raise. Where Python has no buffer for it (-u,
    PYTHONUNBUFFERED), a write may take a part of them and say so only in its result.
    """
    file: IO[bytes] = sys.stdout.buffer
    if not isinstance(file, io.RawIOBase):
        return file
    return opened.enter_context(open(file.fileno(), "wb", closefd=False))


def _raising(error: BaseException) -> Iterator[Never]:
    """Raise an error at the first step."""
    raise error
    yield


def _with_errors(columns: tuple[str, ...], formats: dict[str, Any]) -> Iterator[str]:
    """Yield the columns, those with a format before that of its errors."""
    for name in columns:
        yield name
        if name in formats:
            yield name + ERROR_SUFFIX


def _passing(
    batches: Iterator[pa.RecordBatch], where: str | None, most: int | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that meet the condition, up to a number of them."""
    condition = None
    left = most
    for batch in batches:
        if where is not None:
            try:
                condition = condition_of(where, batch.schema) if condition is None else condition
                table = pa.Table.from_batches([batch]).filter(condition).combine_chunks()
            except (ConditionError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise click.UsageError(f"--where: {error}") from error
            found = table.to_batches()
        else:
            found = [batch]
        for each in found:
            yield each if left is None else each.slice(0, left)
            if left is not None:
                left -= min(left, each.num_rows)
        if left == 0:
            return


def _retyped(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the types of a schema, where it has columns of null."""
    columns = [
        pa.nulls(batch.num_rows, field.type) if pa.types.is_null(column.type) else column
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
