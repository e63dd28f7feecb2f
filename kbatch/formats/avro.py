"""Avro: records and columns, with a registry and without (the extra `avro`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

from kbatch.distribution import needs
from kbatch.formats.framing import Framing, Written
from kbatch.formats.models import FromDict, ToDict, from_dict_of
from kbatch.formats.registered import LATEST_SECONDS, IdIn, Read, RegisteredFormat, Write
from kbatch.formats.strategies import Strategy
from kbatch.schema_registry import Schema, SchemaReference
from kbatch.typed import Part, T

with needs("Avro", "avro"):
    import fastavro

    from kbatch.formats.avro_records import decoder_of, encoder_of
    from kbatch.formats.avro_schemas import AvroSchema, as_python, kind_of, logical_of, name_of, within
    from kbatch.formats.model_schemas import Times, avro_schema_of
    from kbatch.formats.reading.avro_arrays import DECIMALS, Decimals
    from kbatch.formats.reading.avro_resolution import reading
    from kbatch.formats.reading.base import reason_of

if TYPE_CHECKING:
    from kbatch.formats.reading.base import ColumnDeserializer, Errors
    from kbatch.formats.writing.base import ColumnSerializer
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
    schema : str, Mapping, sequence, class or None
        The writer's schema, and the reader's, as JSON or as Python's form of that JSON. Of a dataclass, a
        NamedTuple, or a class of attrs, msgspec or pydantic, its own schema; the class is the `model`, too.
        None: the latest schema of the subject is written; it needs a registry.
    registry : SchemaRegistry or None
    references : iterable of SchemaReference
        Schemas of the registry that have types of `schema`.
    id, subject, version, metadata, register, normalize, latest_ttl, verify_subject, id_in, framing, columns,
    on_error
        See RegisteredFormat.
    model : class or None
        What records are read as: a dataclass, NamedTuple, or class of attrs, msgspec or pydantic.
    namespace, times : str
        Of the schema of a class: its namespace, and the unit of its times, "micros" or "millis".
    decimals : "exact", "narrow", "string" or "double"
        Of columns that are read. "exact": as many digits as the schema says, of which some readers of Arrow
        have 38 at most. "narrow": 38 digits; a value with more is an error. "string": text. "double": the
        nearest double.
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
        schema: str | Mapping[str, Any] | Sequence[Any] | type[T] | None = None,
        *,
        registry: SchemaRegistry | None = None,
        references: Iterable[SchemaReference] = (),
        id: int | None = None,
        subject: str | Strategy = "topic",
        version: int | str = "latest",
        metadata: Mapping[str, str] | None = None,
        register: bool = False,
        normalize: bool = False,
        latest_ttl: float = LATEST_SECONDS,
        verify_subject: bool = False,
        id_in: IdIn = "prefix",
        framing: Framing = "confluent",
        model: type[T] | None = None,
        namespace: str = "",
        times: Times = "micros",
        decimals: Decimals = "exact",
        to_dict: ToDict | None = None,
        from_dict: FromDict | None = None,
        columns: str | Iterable[str] | None = None,
        on_error: Errors = "raise",
    ) -> None:
        if schema is None and registry is None:
            raise TypeError("Avro needs schema=, or registry= that has the schemas")
        if decimals not in DECIMALS:
            raise ValueError(f"decimals must be one of {', '.join(DECIMALS)}, got {decimals!r}")
        self._decimals = decimals
        given: Any = schema
        if isinstance(schema, type):
            model = model or schema
            given = avro_schema_of(schema, namespace=namespace, times=times)
        elif namespace or times != "micros":
            raise TypeError("namespace= and times= are for the schema of a class")
        own = None
        if schema is not None:
            own = Schema(json.dumps(as_python(given)), self.schema_type, tuple(references))
        super().__init__(
            own,
            registry=registry,
            id=id,
            subject=subject,
            version=version,
            metadata=metadata,
            register=register,
            normalize=normalize,
            latest_ttl=latest_ttl,
            verify_subject=verify_subject,
            id_in=id_in,
            framing=framing,
            columns=columns,
            on_error=on_error,
        )
        if own is not None and not own.references:
            _ = self.schema  # ValueError for an invalid one
        self._to_dict = to_dict
        self._from_dict = from_dict
        self._model: Any = model
        if model is not None and from_dict is None:
            from_dict_of(self._model)  # TypeError for other classes

    schema_type = "AVRO"

    @staticmethod
    def parse(schema: Schema, registry: SchemaRegistry | None) -> AvroSchema:
        return AvroSchema.of(schema.text) if registry is None else AvroSchema.registered(schema, registry)

    @property
    def record_name(self) -> str:
        schema = self.schema
        is_named = schema is not None and isinstance(schema.schema, dict) and "name" in schema.schema
        return name_of(schema.schema, schema.named) if is_named else ""

    def new_write(self, schema: AvroSchema, prefix: bytes) -> Write:
        encode = encoder_of(schema.schema, schema.named, schema.physical[1])
        physical, _ = schema.physical
        to_dict = self._to_dict
        write_value = fastavro.schemaless_writer

        def write(value: Any) -> bytes:
            stream = BytesIO()
            write_value(stream, physical, encode(value if to_dict is None else to_dict(value)))
            return prefix + stream.getvalue()

        return write

    def new_read(self, written: Written | None) -> Read:
        writer = self.writer_of(written)
        read = _reading(writer, self.schema or writer)
        make = self._from_dict or (None if self._model is None else from_dict_of(self._model))

        def read_whole(data: bytes, start: int) -> Any:
            stream = BytesIO(data)
            stream.seek(start)
            try:
                value = read(stream)
            except Exception as error:  # fastavro's errors have no common class
                raise ValueError(f"it is no value of its Avro schema: {reason_of(error)}") from error
            if stream.tell() != len(data):
                raise ValueError(f"{len(data) - stream.tell()} bytes follow its Avro value")
            return value if make is None else make(value)

        return read_whole

    def new_column_serializer(self, schema: AvroSchema, prefix: bytes) -> ColumnSerializer:
        from kbatch.formats.writing.avro_rows import AvroColumns

        return AvroColumns(schema, prefix, self._columns)

    def new_column_deserializer(self, topic: str | None, part: Part) -> ColumnDeserializer:
        from kbatch.formats.reading.avro_values import AvroColumns

        schemas = self.schemas_for(topic, part)
        return AvroColumns(
            self.schema,
            self._on_error,
            schemas=schemas,
            has_frame=self.has_frame,
            id_bytes=self.id_bytes,
            decimals=self._decimals,
        )


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
