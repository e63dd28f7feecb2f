"""The formats of a read's keys and values: json and others make a typed column of a binary one.

Theory of operation. The driver reads what a format needs: a file of descriptors, the latest schema of a
registry's subject. From these it makes the type of the column in SQL's notation, from which Spark makes the
frame's schema. A ColumnFormat is pickled to the tasks, which need no file then, and converts there.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from kbatch.errors import ConfigError
from kbatch.formats.arrow_types import in_microseconds, mapped_type
from kbatch.schema_registry import SchemaReference

if TYPE_CHECKING:
    from kbatch.formats import Format
    from kbatch.schema_registry import SchemaRegistry


class PlainFormat(NamedTuple):
    """A format without a schema: its type in SQL, and its name in kbatch.formats."""

    sql_type: str
    name: str


PLAIN_FORMATS: Mapping[str, PlainFormat] = {
    "binary": PlainFormat("BINARY", "Bytes"),
    "string": PlainFormat("STRING", "Utf8"),
    "short": PlainFormat("SMALLINT", "Int16"),
    "int": PlainFormat("INT", "Int32"),
    "long": PlainFormat("BIGINT", "Int64"),
    "float": PlainFormat("FLOAT", "Float32"),
    "double": PlainFormat("DOUBLE", "Float64"),
}
FORMATS = (*PLAIN_FORMATS, "json", "avro", "protobuf")
# Formats whose schema a registry may have.
REGISTERED = ("avro", "protobuf")
MALFORMED = ("raise", "null", "column", "fields")
# The options that formats need, for errors.
NEEDED = {
    "json": "'id BIGINT, name STRING'",
    "avro": "the Avro schema as JSON, or the option 'schema.registry.url'",
    "protobuf": "a file of protoc --include_imports --descriptor_set_out=FILE, or 'schema.registry.url'",
}


@dataclass(frozen=True)
class ColumnFormat:
    """The format of key or value.

    Attributes
    ----------
    name : str
        A name in FORMATS.
    schema : str
        For json the fields in SQL's notation, for avro the schema as JSON, for protobuf a FileDescriptorSet
        in base64; "" for other formats.
    message : str
        For protobuf the full name of the message.
    registry_url : str | None
    on_malformed : str
        A name in MALFORMED.
    references : tuple of SchemaReference
        Those of the schema in the registry.
    """

    name: str
    schema: str
    message: str
    registry_url: str | None
    on_malformed: str
    references: tuple[SchemaReference, ...] = ()

    @property
    def sql_type(self) -> str:
        """The type of the column in SQL."""
        if self.name in PLAIN_FORMATS:
            return PLAIN_FORMATS[self.name].sql_type
        return f"STRUCT<{self.schema}>" if self.name == "json" else self._sql_type_of_schema()

    def _sql_type_of_schema(self) -> str:
        from pyspark.sql.pandas.types import from_arrow_type

        kind = self.format(pa.null()).column_deserializer(None, "value").data_type
        assert kind is not None, "a schema determines the type"
        return from_arrow_type(spark_type(kind), prefer_timestamp_ntz=True).simpleString()

    def format(self, kind: pa.DataType) -> Format[Any]:
        """Return the format of the column; the type `kind` is that of json."""
        from kbatch import formats

        common: dict[str, Any] = {"on_error": self.on_malformed}
        if self.name == "json":
            return formats.Json(type=kind, lenient=True, **common)
        if self.name in REGISTERED:
            common["registry"] = None if self.registry_url is None else registry_of(self.registry_url)
            if self.name == "avro":
                return formats.Avro(self.schema, references=self.references, **common)
            return formats.Protobuf.from_descriptor_set(
                b64decode(self.schema), self.message, times="us", **common
            )
        made: Format[Any] = getattr(formats, PLAIN_FORMATS[self.name].name)(**common)
        return made


def registry_of(url: str) -> SchemaRegistry:
    """Return the registry of an option. Raise ValueError for an invalid URL."""
    from kbatch.schema_registry import SchemaRegistry

    try:
        return SchemaRegistry(url)
    except ConfigError as error:
        raise ValueError(f"option 'schema.registry.url': {error}") from error


def spark_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which Spark has the values of an Arrow type: it has no unsigned integers, and times
    in microseconds.
    """
    return mapped_type(kind, _spark_leaf)


def _spark_leaf(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_uint64(kind):
        return pa.decimal128(20, 0)
    return pa.int64() if pa.types.is_uint32(kind) else in_microseconds(kind)


def read_formats(given: Mapping[str, str]) -> dict[str, ColumnFormat]:
    """Return the formats of key and value that are not binary. What they need of files and of a schema
    registry is read now.

    Raises
    ------
    ValueError
        A format is unknown, or its schema is missing, superfluous or invalid.
    SchemaRegistryError
        The registry does not have the schema, or cannot be reached.
    """
    malformed = given.get("on.malformed", "raise").lower()
    if malformed not in MALFORMED:
        raise ValueError(
            f"option 'on.malformed' must be {' or '.join(MALFORMED)}, got {given['on.malformed']!r}"
        )
    found = {}
    for part in ("key", "value"):
        name = given.get(f"{part}.format", "binary").lower()
        if name not in FORMATS:
            raise ValueError(
                f"option '{part}.format' must be one of {', '.join(FORMATS)}, got {given[f'{part}.format']!r}"
            )
        schema, message, references = _schema_of(part, name, given)
        if malformed == "fields" and name not in ("json", "binary"):
            raise ValueError(
                f"option 'on.malformed' = 'fields' is for json, and {part}.format is {name}; set 'column'"
            )
        if name != "binary":
            url = given.get("schema.registry.url")
            found[part] = ColumnFormat(name, schema, message, url, malformed, references)
    return found


# A schema, the message of protobuf, and what the schema refers to.
_Found = tuple[str, str, tuple[SchemaReference, ...]]


def _schema_of(part: str, name: str, given: Mapping[str, str]) -> _Found:
    """Return the schema of a format and, for protobuf, the name of its message."""
    schema, message = given.get(f"{part}.schema", "").strip(), given.get(f"{part}.message", "").strip()
    if schema and name in PLAIN_FORMATS:
        raise ValueError(f"option '{part}.schema' has no use with {part}.format={name}; omit it")
    if message and name != "protobuf":
        raise ValueError(f"option '{part}.message' has no use with {part}.format={name}; omit it")
    if f"{part}.subject" in given and (schema or name not in REGISTERED):
        why = f"{part}.schema" if schema else f"{part}.format={name}"
        raise ValueError(f"option '{part}.subject' has no use with {why}; omit it")
    if not schema and name not in PLAIN_FORMATS:
        if name == "json" or "schema.registry.url" not in given:
            raise ValueError(f"option '{part}.schema' is missing; {part}.format={name} needs {NEEDED[name]}")
        return _registered(part, name, message, given)
    if name == "protobuf" and not message:
        raise ValueError(f"option '{part}.message' is missing: name a message of {schema}, as in shop.Order")
    try:
        if name == "avro":
            from kbatch.formats import Avro

            Avro[Any](schema).column_deserializer(None, "value")
        if name == "protobuf":
            schema = descriptors_of(schema, message)
    except ValueError as error:
        raise ValueError(f"option '{part}.schema' is not a valid {name} schema: {error}") from error
    return schema, message, ()


def descriptors_of(path: str, message: str) -> str:
    """Return the FileDescriptorSet in a file, which has the message, as base64."""
    from kbatch.formats.protobuf_files import descriptor_in

    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"the file {path!r} cannot be read: {error.strerror}") from error
    descriptor_in(data, message)
    return b64encode(data).decode()


def _registered(part: str, name: str, message: str, given: Mapping[str, str]) -> _Found:
    """Return the latest schema of a subject in the registry."""
    topics = [topic.strip() for topic in given.get("subscribe", "").split(",") if topic.strip()]
    subject = given.get(f"{part}.subject") or (f"{topics[0]}-{part}" if len(topics) == 1 else None)
    if subject is None:
        raise ValueError(
            f"option '{part}.subject' is missing: {part}.format={name} without {part}.schema needs the "
            "subject in the schema registry, unless 'subscribe' names one topic"
        )
    registry = registry_of(given["schema.registry.url"])
    try:
        if name == "protobuf":
            return _registered_message(registry, subject, message)
        found = registry.get_version(subject)
        return found.text, "", found.references
    except ValueError as error:
        raise ValueError(f"the schema of subject {subject} cannot be used: {error}") from error


def _registered_message(registry: SchemaRegistry, subject: str, message: str) -> _Found:
    from kbatch.formats.protobuf_files import descriptor_set

    _, found = registered_message(registry, subject, message)
    return b64encode(descriptor_set(found.file)).decode(), found.full_name, ()


def registered_message(registry: SchemaRegistry, subject: str, message: str) -> tuple[int, Any]:
    """Return the id of a subject's latest schema, and the descriptor of a message in it, or of the first one
    for "". Raise ValueError if it has none.
    """
    from kbatch.formats.protobuf_files import descriptor_in, descriptor_set, registered_file

    schema = registry.get_version(subject, format="serialized")
    file = registered_file(schema, registry)
    names = [message] if message else [each.full_name for each in file.message_types_by_name.values()]
    if not names:
        raise ValueError("it has no message")
    assert schema.id is not None  # an answer about a subject has it
    return schema.id, descriptor_in(descriptor_set(file), names[0])
