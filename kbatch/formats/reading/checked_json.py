"""JSON of whole columns, each value of which is validated by a JSON Schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import pyarrow as pa

from kbatch.formats.framing import ID_BYTES
from kbatch.formats.reading.base import Errors, Spans, Where, reason_of
from kbatch.formats.reading.framing import framed
from kbatch.formats.reading.json_values import Json, without_headers
from kbatch.formats.schemas import Schemas


class Checks(Protocol):
    """A JSON Schema."""

    def check_text(self, data: bytes) -> None:
        """Raise ValueError for JSON that it does not describe."""
        ...


class CheckedJson(Json):
    """JSON values; one that its schema does not describe cannot be read.

    Parameters
    ----------
    schema, errors : see Json
    own : Checks or None
        What validates all values. None: the schemas that wrote them.
    schemas : Schemas or None
        Those of a registry.
    id_bytes : int
        See AvroColumns.
    """

    def __init__(
        self,
        schema: pa.Schema | pa.DataType | None,
        errors: Errors,
        *,
        own: Checks | None,
        schemas: Schemas[Checks] | None,
        id_bytes: int = ID_BYTES,
    ) -> None:
        super().__init__(schema, errors, id_bytes=id_bytes)
        self._own = own
        self._schemas = schemas

    def unreadable(self, column: pa.Array, where: Where) -> Mapping[int, str]:
        return {**self._refused(column, where), **super().unreadable(column, where)}

    def decode(self, column: pa.Array, where: Where) -> tuple[pa.Array, Mapping[int, str]]:
        values, faults = super().decode(column, where)
        refused = self._refused(column, where)
        if refused:
            values = values.take(pa.array([None if row in refused else row for row in range(len(column))]))
        return values, {**refused, **faults}

    def _refused(self, column: pa.Array, where: Where) -> dict[int, str]:
        """Return why a schema refuses values, by row."""
        texts = without_headers(column, self._id_bytes).to_pylist()
        if self._schemas is None:
            assert self._own is not None  # there is a schema, or a registry
            rows: Iterable[int] = (row for row, text in enumerate(texts) if text is not None)
            return _faults(self._own.check_text, rows, texts)
        groups, _, refused = framed(Spans(column), where, id_bytes=self._id_bytes)
        for (written, _), found in groups.items():
            schema = self._own or self._schemas.of(written)
            if isinstance(schema, str):
                refused.update(dict.fromkeys(found.tolist(), schema))
            else:
                refused |= _faults(schema.check_text, found.tolist(), texts)
        return refused


def _faults(check: Callable[[bytes], None], rows: Iterable[int], texts: list[bytes]) -> dict[int, str]:
    found = {}
    for row in rows:
        try:
            check(texts[row])
        except (ValueError, RecursionError) as error:
            found[row] = reason_of(error)
    return found
