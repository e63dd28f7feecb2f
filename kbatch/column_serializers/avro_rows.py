"""Avro values of rows, by fastavro (the extra `avro`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kbatch.column_serializers.base import (
    ColumnSerializer,
    RowError,
    binary_column,
    check_fields,
    chosen_id,
    confluent_header,
    find_column,
    first_beyond,
    python_values,
    registered_id,
    rows_of,
)
from kbatch.distribution import needs

if TYPE_CHECKING:
    from kbatch.schema_registry import SchemaRegistry

# The integers that fastavro writes without a range check, so that readers see other numbers.
_BITS = {"int": 32, "long": 64}


class Avro(ColumnSerializer):
    """An Avro value for each row in the format of Confluent's deserializers: 0, the schema's id in four
    bytes, the value.

    A record schema takes the columns that its fields name, even if they have another role; fields without a
    column must have a default. Any other schema takes one column, whose nulls stay null. Logical types accept
    their Arrow equivalents: timestamps, dates, times, decimals.

    Parameters
    ----------
    schema : str, Mapping, sequence or None
        The schema as JSON, or as Python's form of that JSON. None takes the latest one of `subject`.
    schema_id : int or None
        Its id in the schema registry, 0 to 2147483647; None writes the Avro value alone. Required without
        `registry`.
    registry : SchemaRegistry or None
        Knows the id. It is asked at once.
    subject : str or None
        The schema's subject, by convention the topic's name with -key or -value.
    registers : bool
        Register the schema under the subject if it is new. False: an unknown one is an error.
    columns : str, sequence of str, or None
        See ColumnSerializer, if the schema's fields do not name them. One name, as a str, means a column of
        structs.

    Raises
    ------
    ImportError
        fastavro is not installed.
    ValueError
        The schema is invalid.
    SchemaRegistryError
        The registry refuses the schema, does not have it, or cannot be reached.
    """

    def __init__(
        self,
        schema: str | Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        schema_id: int | EllipsisType | None = ...,
        registry: SchemaRegistry | None = None,
        subject: str | None = None,
        registers: bool = True,
        columns: str | Iterable[str] | None = None,
    ) -> None:
        super().__init__(columns)
        with needs("Avro", "avro"):
            import fastavro
        parts: list[Any] = [schema]
        if schema is None:
            if registry is None or subject is None:
                raise TypeError("Avro needs a schema, or registry= and subject= that have it")
            latest = registry.get_version(subject)
            parts = [each.text for each in registry.with_references(latest)]
            schema_id, registry, subject = latest.id, None, None
        named: dict[str, Any] = {}
        try:
            for part in parts:
                parsed: Any = fastavro.parse_schema(as_python(part), named)
        except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType, KeyError) as error:
            raise ValueError(f"invalid Avro schema: {type(error).__name__}: {error}") from error

        def ask(registry: SchemaRegistry, subject: str) -> int:
            text = json.dumps(as_python(parts[0]))
            return registered_id(registry, subject, text, "AVRO", registers=registers)

        self._header = confluent_header(chosen_id("Avro", schema_id, registry, subject, ask))
        self._schema: Any = parsed
        is_record = isinstance(parsed, dict) and parsed.get("type") == "record"
        self._fields = {field["name"]: field for field in parsed["fields"]} if is_record else None

    @property
    def takes_one(self) -> bool:
        return super().takes_one or self._fields is None

    def choose(self, schema: pa.Schema, free: Sequence[str]) -> list[str]:
        names = super().choose(schema, free)
        if self._fields is None:
            if len(names) != 1:
                raise ValueError(
                    f"an Avro schema other than a record takes one column; name it (columns=..); there are "
                    f"{', '.join(names) or 'none'}"
                )
            return names
        if super().takes_one:
            return names
        if self.columns is None:
            check_fields(self, names, self._fields, f"the Avro schema {self._schema['name']}")
            names = [name for name in self._fields if name in schema.names]
        check_fields(self, names, self._fields, f"the Avro schema {self._schema['name']}")
        for name, field in self._fields.items():
            if name not in names and "default" not in field:
                find_column(schema, name, f"Avro field, which has no default, of {self._schema['name']}")
                raise ValueError(f"the Avro field {name!r} has no default; add it to columns=[..]")
        return names

    def __call__(self, columns: pa.RecordBatch) -> pa.Array:
        from fastavro import schemaless_writer
        from fastavro.validation import validate

        rows = python_values(columns.column(0)) if self.takes_one else rows_of(columns)
        self._check_integers(columns)
        is_checked = self._hides_ints(columns)
        output = BytesIO()
        ends, is_null = [], []
        for number, row in enumerate(rows):
            is_null.append(row is None)
            if row is not None:
                output.write(self._header)
                try:
                    if is_checked:
                        validate(row, self._schema)
                    schemaless_writer(output, self._schema, row)
                except Exception as error:
                    raise self._refused(number, row, error) from error
            ends.append(output.tell())
        return binary_column(output.getvalue(), ends, is_null)

    def _check_integers(self, columns: pa.RecordBatch) -> None:
        """Raise RowError for integers that are too large for their field."""
        fields = None if self.takes_one else self._fields
        for name, array in zip(columns.schema.names, columns.columns, strict=True):
            kind = self._schema if fields is None else fields[name]["type"]
            bits = [_BITS[each] for each in _branches(kind) if each in _BITS]
            if not bits or not pa.types.is_integer(array.type):
                continue
            row = first_beyond(array, max(bits))
            if row is not None:
                raise RowError(row, f"{array[row]} is too large for the Avro type {json.dumps(kind)}", name)

    def _hides_ints(self, columns: pa.RecordBatch) -> bool:
        """True if nested integers may be too large for their field, so that each row needs a check."""
        is_nested = any(pa.types.is_nested(kind) and "int64" in str(kind) for kind in columns.schema.types)
        return is_nested and '"int"' in json.dumps(self._schema, default=str)

    def _refused(self, number: int, row: Any, error: Exception) -> RowError:
        """Return fastavro's error for a value, from its validation."""
        from fastavro.validation import ValidationError, validate

        try:
            validate(row, self._schema, raise_errors=True)
        except ValidationError as invalid:
            (first, *_) = invalid.errors
            text = f"Avro does not take {first.datum!r} for {json.dumps(first.schema, default=str)}"
            column = first.field.removeprefix(f"{self._record_name()}.") if first.field else None
            return RowError(number, text, column)
        except Exception:
            pass
        return RowError(number, f"Avro refuses it: {type(error).__name__}: {error}")

    def _record_name(self) -> str:
        return str(self._schema["name"]) if isinstance(self._schema, dict) and "name" in self._schema else ""


def as_python(schema: str | Mapping[str, Any] | Sequence[Any]) -> Any:
    """Return the Python form of a schema's JSON; the name of a primitive type may stand without quotes."""
    if not isinstance(schema, str) or schema == "null":
        return schema
    try:
        return json.loads(schema)
    except ValueError:
        if schema.lstrip()[:1] in ("{", "["):
            raise
        return schema  # a primitive type


def _branches(kind: Any) -> list[Any]:
    """Return the names of a value's possible types."""
    if isinstance(kind, list):
        return [name for each in kind for name in _branches(each)]
    return _branches(kind["type"]) if isinstance(kind, dict) and "type" in kind else [kind]
