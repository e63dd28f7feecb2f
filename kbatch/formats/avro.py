"""Avro: records and columns, with a registry and without (the extra `avro`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from io import BytesIO
from typing import TYPE_CHECKING, Any

from kbatch.distribution import needs
from kbatch.formats.base import Part, T
from kbatch.formats.models import FromDict, ToDict, from_dict_of
from kbatch.formats.registered import Read, RegisteredFormat, Write, check_no_loop
from kbatch.formats.strategies import Strategy

with needs("Avro", "avro"):
    import fastavro

    from kbatch.column_deserializers.avro_resolution import reading
    from kbatch.column_deserializers.registered import SchemaOfRecords
    from kbatch.column_serializers.avro_schemas import AvroSchema, kind_of, logical_of, name_of, within
    from kbatch.column_serializers.base import confluent_header, registered_id
    from kbatch.formats.avro_records import decoder_of, encoder_of

if TYPE_CHECKING:
    from kbatch.column_deserializers.base import ColumnDeserializer, Errors
    from kbatch.column_serializers.base import ColumnSerializer
    from kbatch.schema_registry import SchemaRegistry


class Avro(RegisteredFormat[T]):
    """Avro values: with a registry in Confluent's wire format (0, the schema's id, the value), without it the
    values alone.

    A record's value is a dict, or an object of a dataclass, NamedTuple, attrs, msgspec or pydantic class.
    Logical types are Python's: aware datetimes for timestamp-*, naive ones for local-timestamp-*, date, time,
    Decimal, UUID. A value that its field does not have exactly is an error: an int that is too large, a bool
    for a number, a naive datetime for a timestamp, a field that the schema lacks.

    The branch of a union is that of the value's type, whatever stands first: a datetime is never a date, and
    text is never parsed. `(name, value)` names a branch.

    Read, a value is resolved to `schema` by Avro's rules; without `schema` it is what its writer wrote.

    Parameters
    ----------
    schema : str, Mapping, sequence or None
        The writer's schema, and the reader's, as JSON or as Python's form of that JSON. None: the latest
        schema of the subject is written; it needs a registry.
    registry : SchemaRegistry or None
    id : int or None
        The schema's id, instead of looking it up.
    subject, register, columns, on_error : see RegisteredFormat
    model : class or None
        What records are read as: a dataclass, NamedTuple, or class of attrs, msgspec or pydantic.
    to_dict, from_dict : Callable or None
        Make a dict of a value, and a value of what was read, for other classes.

    Raises
    ------
    ImportError
        fastavro is not installed.
    ValueError, TypeError
        The schema or the model is invalid, or neither schema nor registry is given.
    """

    def __init__(
        self,
        schema: str | Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        registry: SchemaRegistry | None = None,
        id: int | None = None,
        subject: str | Strategy = "topic",
        register: bool = False,
        model: type[T] | None = None,
        to_dict: ToDict | None = None,
        from_dict: FromDict | None = None,
        columns: str | Iterable[str] | None = None,
        on_error: Errors = "raise",
    ) -> None:
        super().__init__(
            registry=registry, subject=subject, register=register, columns=columns, on_error=on_error
        )
        if schema is None and registry is None:
            raise TypeError("Avro needs schema=, or registry= that has the schemas")
        if id is not None and (schema is None or registry is None):
            raise TypeError("id= is the registry's id of schema=; give schema= and registry=, too")
        self._schema = None if schema is None else AvroSchema.of(schema)
        self._id = id
        self._known: dict[str, tuple[AvroSchema, int | None]] = {}  # what is written, by subject
        self._to_dict = to_dict
        self._from_dict = from_dict
        self._model: Any = model
        if model is not None and from_dict is None:
            from_dict_of(self._model)  # TypeError for other classes

    @cached_property
    def _schemas(self) -> SchemaOfRecords[AvroSchema]:
        assert self._registry is not None
        return SchemaOfRecords(self._registry, AvroSchema.registered, subject=self.fixed_subject)

    def __getstate__(self) -> dict[str, Any]:
        state = {name: each for name, each in super().__getstate__().items() if name != "_schemas"}
        return {**state, "_known": {}}

    def new_write(self, topic: str, part: Part) -> Write:
        schema, number = self._written(topic, part)
        header = confluent_header(number)
        encode = encoder_of(schema.schema, schema.named, schema.physical[1])
        physical, _ = schema.physical
        to_dict = self._to_dict
        write_value = fastavro.schemaless_writer

        def write(value: Any) -> bytes:
            stream = BytesIO()
            stream.write(header)
            write_value(stream, physical, encode(value if to_dict is None else to_dict(value)))
            return stream.getvalue()

        return write

    def _written(self, topic: str | None, part: Part) -> tuple[AvroSchema, int | None]:
        """Return the schema that values for a topic are written by, and its id; None without a registry."""
        schema, registry = self._schema, self._registry
        if registry is None or self._id is not None:
            assert schema is not None
            return schema, self._id
        subject = self.subject_of(topic, part, self._record_name)
        if subject not in self._known:
            check_no_loop(f"the schema of {subject}")
            if schema is None:
                latest = registry.get_version(subject)
                self._known[subject] = AvroSchema.registered(latest, registry), latest.id
            else:
                text = json.dumps(schema.parts[0])
                number = registered_id(registry, subject, text, "AVRO", registers=self._register)
                self._known[subject] = schema, number
        return self._known[subject]

    @property
    def _record_name(self) -> str:
        """The full name of the schema's record; "" if it is no named type."""
        schema = self._schema
        is_named = schema is not None and isinstance(schema.schema, dict) and "name" in schema.schema
        return name_of(schema.schema, schema.named) if is_named and schema is not None else ""

    def new_read(self, written: int | str | None) -> Read:
        writer: AvroSchema | str | None = self._schema if written is None else self._schemas.of(written)
        if isinstance(writer, str):
            raise ValueError(writer)
        assert writer is not None  # there is a schema, or a registry
        read = _reading(writer, self._schema or writer)
        make = self._from_dict or (None if self._model is None else from_dict_of(self._model))

        def read_whole(data: bytes, start: int) -> Any:
            stream = BytesIO(data)
            stream.seek(start)
            value = read(stream)
            if stream.tell() != len(data):
                raise ValueError(f"{len(data) - stream.tell()} bytes follow its Avro value")
            return value if make is None else make(value)

        return read_whole

    def column_serializer(self, topic: str | None, part: Part) -> ColumnSerializer:
        from kbatch.column_serializers import Avro as AvroColumns

        schema, number = self._written(topic, part)
        return AvroColumns(schema, schema_id=number, columns=self._columns)

    @cached_property
    def column_deserializer(self) -> ColumnDeserializer:
        from kbatch.column_deserializers import Avro as AvroColumns

        schema = None if self._schema is None else self._schema.parts[-1]
        subject = None if schema is not None else self.fixed_subject
        return AvroColumns(schema, self._on_error, registry=self._registry, subject=subject)


def _reading(writer: AvroSchema, reader: AvroSchema) -> Any:
    """Return what reads a value from a stream."""
    everything = within([reader.schema, *reader.named.values()])
    has_fixed_uuids = any(kind_of(each) == "fixed" and logical_of(each) == "uuid" for each in everything)
    if writer.parts == reader.parts and not has_fixed_uuids:  # fastavro leaves those bytes
        writer.check_lengths()
        schema = writer.schema
        return lambda stream: fastavro.schemaless_reader(stream, schema, None)
    read, _ = reading(writer, reader)
    decode = decoder_of(reader.schema, reader.named)
    return lambda stream: decode(read(stream))
