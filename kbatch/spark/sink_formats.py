"""The formats of a write's keys and values: columns of structs, numbers and others become bytes in the tasks.

Theory of operation. The driver reads what a format needs: a file of descriptors, the latest schema of a
registry's subject, the id of a given one. From these it makes the column's serializer, which checks the type
of the column and is pickled to the tasks. So these need neither files nor a registry, and all rows of a write
name the same schema.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from kbatch.errors import SchemaRegistryError
from kbatch.errors.rows import InvalidRowError
from kbatch.formats.writing import ColumnSerializer, JsonLines, RowError
from kbatch.spark.source_columns import UNSUPPORTED, fields_within
from kbatch.spark.source_formats import (
    FORMATS,
    NEEDED,
    PLAIN_FORMATS,
    REGISTERED,
    descriptors_of,
    registered_message,
    registry_of,
)
from kbatch.typed import Part

if TYPE_CHECKING:
    from kbatch.formats import Format

PARTS: tuple[Part, ...] = ("key", "value")
_FLAGS = {"true": True, "false": False}
# Options of a format that only some have.
_ONLY_OF: Mapping[str, tuple[str, ...]] = {
    "schema": REGISTERED,
    "message": ("protobuf",),
    "subject": REGISTERED,
    "register": REGISTERED,
}


@dataclass(frozen=True)
class SinkFormat:
    """The format of key or value, as options say it.

    Attributes
    ----------
    part : "key" or "value"
    name : str
        A name of FORMATS, other than binary.
    schema : str
        For avro the schema as JSON, for protobuf a FileDescriptorSet in base64; "" for the latest of the
        subject, and for formats without a schema.
    message : str
        For protobuf the full name of the message; "" for the first one of the subject's schema.
    subject : str or None
        None: the topic's.
    registers : bool
        True if a schema that the subject does not have is registered.
    registry_url : str or None
    """

    part: Part
    name: str
    schema: str
    message: str
    subject: str | None
    registers: bool
    registry_url: str | None

    def serializer(self, topic: str | None) -> ColumnSerializer:
        """Return what makes bytes of the column. It asks the registry.

        Raises
        ------
        SchemaRegistryError
            The registry does not have the schema, refuses it, or cannot be reached.
        ValueError
            The schema cannot be used.
        """
        try:
            return self._format(topic).column_serializer(topic, self.part)
        except SchemaRegistryError as error:
            if self.schema and not self.registers:
                error.add_note(f"option '{self.part}.register' = 'true' registers a schema that is not there")
            raise

    def _format(self, topic: str | None) -> Format[Any]:
        from kbatch import formats

        if self.name == "json":
            return formats.Json(columns=self.part)
        if self.name in PLAIN_FORMATS:
            plain: Format[Any] = getattr(formats, PLAIN_FORMATS[self.name].name)(self.part)
            return plain
        registered: dict[str, Any] = {"columns": self.part}
        if self.registry_url is not None:
            registered["registry"] = registry_of(self.registry_url)
            registered |= {"subject": self.subject or "topic", "register": self.registers}
        if self.name == "avro":
            return formats.Avro(self.schema or None, **registered)
        if self.schema:
            data = b64decode(self.schema)
            return formats.Protobuf.from_descriptor_set(data, self.message, **registered)
        subject = self.subject or f"{topic}-{self.part}"
        number, message = registered_message(registered["registry"], subject, self.message)
        return formats.Protobuf(message, registry=registered["registry"], id=number, columns=self.part)


class Serializer(NamedTuple):
    """What tasks make bytes of a column by.

    Attributes
    ----------
    of_rows : ColumnSerializer
        Makes what is written.
    of_digest : ColumnSerializer
        Makes what a repeated write must have again: it does not depend on a schema, whose latest version may
        be another one then.
    """

    of_rows: ColumnSerializer
    of_digest: ColumnSerializer


Serializers = Mapping[Part, Serializer]


def read_sink_formats(given: Mapping[str, str], topic: str | None) -> Mapping[Part, SinkFormat]:
    """Return the formats of key and value that are not binary. Files are read now.

    Raises
    ------
    ValueError
        A format is unknown, or what it needs is missing, superfluous or invalid.
    """
    found = {part: made for part in PARTS if (made := _format_of(part, given, topic)) is not None}
    if "schema.registry.url" in given and not any(each.registry_url for each in found.values()):
        raise ValueError(
            "option 'schema.registry.url' has no use without 'key.format' or 'value.format' of "
            f"{' or '.join(REGISTERED)}; omit it"
        )
    return found


def _format_of(part: Part, given: Mapping[str, str], topic: str | None) -> SinkFormat | None:
    name = given.get(f"{part}.format", "binary").lower()
    if name not in FORMATS:
        raise ValueError(
            f"option '{part}.format' must be one of {', '.join(FORMATS)}, got {given[f'{part}.format']!r}"
        )
    for option, names in _ONLY_OF.items():
        if f"{part}.{option}" in given and name not in names:
            raise ValueError(f"option '{part}.{option}' has no use in a write with {part}.format={name}")
    if name == "binary":
        return None
    url = given.get("schema.registry.url") if name in REGISTERED else None
    schema, message = given.get(f"{part}.schema", "").strip(), given.get(f"{part}.message", "").strip()
    subject, registers = given.get(f"{part}.subject"), _flag(given, f"{part}.register")
    if name in REGISTERED:
        _check_schema(part, name, schema, message, url)
        _check_registry(part, schema, subject, registers, url, topic)
    if name == "protobuf" and schema:
        try:
            schema = descriptors_of(schema, message)
        except ValueError as error:
            raise ValueError(f"option '{part}.schema' is not a valid protobuf schema: {error}") from error
    return SinkFormat(part, name, schema, message, subject, registers, url)


def _check_schema(part: Part, name: str, schema: str, message: str, url: str | None) -> None:
    if not schema and url is None:
        raise ValueError(f"option '{part}.schema' is missing; {part}.format={name} needs {NEEDED[name]}")
    if name == "protobuf" and schema and not message:
        raise ValueError(f"option '{part}.message' is missing: name a message of {schema}, as in shop.Order")


def _check_registry(
    part: Part, schema: str, subject: str | None, registers: bool, url: str | None, topic: str | None
) -> None:
    if url is None:
        for option, is_given in (("subject", subject is not None), ("register", registers)):
            if is_given:
                raise ValueError(f"option '{part}.{option}' needs 'schema.registry.url'; set it, or omit it")
    elif subject is None and topic is None:
        raise ValueError(
            f"option '{part}.subject' is missing: topics are in a column, so it must name the subject in the "
            "schema registry"
        )
    if registers and not schema:
        raise ValueError(f"option '{part}.register' registers '{part}.schema', which is missing")


def _flag(given: Mapping[str, str], name: str) -> bool:
    value = given.get(name, "false").lower()
    if value not in _FLAGS:
        raise ValueError(f"option {name!r} must be true or false, got {given[name]!r}")
    return _FLAGS[value]


def serializers_of(formats: Mapping[Part, SinkFormat], schema: StructType, topic: str | None) -> Serializers:
    """Return what makes bytes of the columns of a write.

    Raises
    ------
    TypeError, ValueError
        A column is missing, or its format does not take its type; or a schema cannot be used.
    SchemaRegistryError
        See SinkFormat.serializer.
    """
    found: dict[Part, Serializer] = {}
    for part, each in formats.items():
        if part not in schema.names:
            raise ValueError(f"option '{part}.format' has no use without a column {part!r}")
        columns = pa.schema([(part, _arrow_type(schema[part]))])
        try:
            of_rows = each.serializer(topic)
            of_digest = JsonLines(part) if each.name in REGISTERED else of_rows
            for serializer in (of_rows, of_digest):
                serializer.choose(columns, columns.names)
        except TypeError as error:
            raise TypeError(f"{part}.format={each.name}: {error}") from error
        except ValueError as error:
            raise ValueError(f"{part}.format={each.name}: {error}") from error
        found[part] = Serializer(of_rows, of_digest)
    return found


def _arrow_type(field: StructField) -> pa.DataType:
    from pyspark.sql.pandas.types import to_arrow_type

    for name, each in fields_within(field.name, field):
        if isinstance(each.dataType, UNSUPPORTED):
            raise TypeError(
                f"column {name!r} is of {each.dataType.simpleString()}, which no format has; cast it in Spark"
            )
    return to_arrow_type(field.dataType, timezone="UTC")


def with_bytes(
    batch: pa.RecordBatch, serializers: Serializers, *, for_digest: bool = False
) -> pa.RecordBatch:
    """Return rows whose keys and values are bytes. Raise InvalidRowError, with the row in the batch, for one
    that its format does not take.
    """
    for part, each in serializers.items():
        serialize = each.of_digest if for_digest else each.of_rows
        try:
            made = serialize(batch.select([part]))
        except RowError as error:
            raise InvalidRowError(f"column {part!r}: {error.reason}", error.row) from error
        batch = batch.set_column(batch.schema.get_field_index(part), part, made)
    return batch
