"""JSON with a JSON Schema: records and columns, with a registry and without (the extra `jsonschema`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from kbatch.distribution import needs
from kbatch.formats.framing import Framing, Written
from kbatch.formats.json_format import encoded, encoded_plain
from kbatch.formats.models import FromDict, ToDict, from_dict_of
from kbatch.formats.parsed_json import parser
from kbatch.formats.registered import LATEST_SECONDS, IdIn, Read, RegisteredFormat, Write
from kbatch.formats.strategies import Strategy
from kbatch.schema_registry import Schema, SchemaReference
from kbatch.typed import Part, T

if TYPE_CHECKING:
    import pyarrow as pa

    from kbatch.formats.reading.base import ColumnDeserializer, Errors
    from kbatch.formats.writing.base import ColumnSerializer
    from kbatch.schema_registry import SchemaRegistry

Validate = Literal["out", "both", "none"]


class JsonSchema(RegisteredFormat[T]):
    """JSON values that a JSON Schema describes: with a registry in Confluent's wire format (0, the schema's
    id, the value), without it the values alone.

    What may be sent, and how it becomes JSON, is as for `Json`. A record's value is validated as it is
    written; read, it is validated by `schema` if there is one, else by the schema that wrote it. `format` is
    an annotation, as confluent-kafka has it. References are resolved by those of the schema in the registry,
    never by a request to their URL. Rows of tables are validated one by one; `validate="none"` is faster.

    Parameters
    ----------
    schema : str, Mapping, bool, class or None
        As JSON, or as Python's form of that JSON. Of a class of pydantic or msgspec, or of a dataclass (with
        msgspec), its own schema; the class is the `model`, too. None: the latest schema of the subject is
        written; it needs a registry.
    registry : SchemaRegistry or None
    references : iterable of SchemaReference
        Schemas of the registry that `schema` refers to, by their names.
    validate : "both", "out" or "none"
        Which values are validated: all, those that are written, or none.
    id, subject, version, metadata, register, normalize, latest_ttl, verify_subject, id_in, framing, columns,
    on_error
        See RegisteredFormat.
        The record's name is the schema's `title`.
    model : class or None
        What records are read as: a dataclass, NamedTuple, or class of attrs, msgspec or pydantic.
    type : pyarrow.Schema, pyarrow.DataType or None
        Of columns that are read: see Json.
    decimals : "number" or "string"
        Of columns that are sent: see Json.
    to_dict, from_dict : Callable or None
        Make a dict of a value, and a value of what was read, for other classes.

    Raises
    ------
    ImportError
        jsonschema-rs is not installed, and `validate` is not "none".
    ValueError, TypeError
        The schema or the model is invalid, or neither schema nor registry is given.
    """

    schema_type = "JSON"

    def __init__(
        self,
        schema: str | Mapping[str, Any] | bool | type[T] | None = None,
        *,
        registry: SchemaRegistry | None = None,
        references: Iterable[SchemaReference] = (),
        validate: Validate = "both",
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
        type: pa.Schema | pa.DataType | None = None,
        decimals: str = "number",
        to_dict: ToDict | None = None,
        from_dict: FromDict | None = None,
        columns: str | Iterable[str] | None = None,
        on_error: Errors = "raise",
    ) -> None:
        if schema is None and registry is None:
            raise TypeError("JsonSchema needs schema=, or registry= that has the schemas")
        if validate not in ("both", "out", "none"):
            raise ValueError(f"validate must be 'both', 'out' or 'none', got {validate!r}")
        if validate != "none":
            with needs("JsonSchema", "jsonschema"):
                import jsonschema_rs  # noqa: F401
        if isinstance(schema, _Class):
            model = model or schema
            schema = schema_of(schema)
        own = None if schema is None else Schema(_text(schema), self.schema_type, tuple(references))
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
        self._validate = validate
        if own is not None and not own.references and validate != "none":
            _ = self.schema.validator  # ValueError for an invalid one
        self._type = type
        self._decimals = decimals
        self._to_dict = to_dict
        self._from_dict = from_dict
        self._model: Any = model
        if model is not None and from_dict is None:
            from_dict_of(self._model)  # TypeError for other classes

    # Schemas

    @staticmethod
    def parse(schema: Schema, registry: SchemaRegistry | None) -> ParsedSchema:
        if schema.schema_type != JsonSchema.schema_type:
            raise ValueError(f"its schema is of the type {schema.schema_type}, not JSON")
        if registry is None or not schema.references:
            return ParsedSchema(schema.text, {})
        listed = registry.with_references(schema)
        names = {(each.subject, each.version): each.name for other in listed for each in other.references}
        others = {names[other.subject or "", other.version or 0]: other.text for other in listed[:-1]}
        return ParsedSchema(schema.text, others)

    @property
    def record_name(self) -> str:
        contents = None if self._own is None else json.loads(self._own.text)
        return str(contents.get("title", "")) if isinstance(contents, dict) else ""

    # Values

    def new_write(self, schema: ParsedSchema, prefix: bytes) -> Write:
        check = None if self._validate == "none" else schema.check
        to_dict = self._to_dict

        def write(value: Any) -> bytes:
            if to_dict is not None:
                value = to_dict(value)
            data = encoded_plain(value)
            if data is None:
                data = value = encoded(value)  # what is checked is what is written
            if check is not None:
                check(value, data)
            return prefix + data

        return write

    def new_read(self, written: Written | None) -> Read:
        schema: ParsedSchema = self.schema or self.writer_of(written)
        check = schema.check if self._validate == "both" else None
        make = self._from_dict or (None if self._model is None else from_dict_of(self._model))
        parse = parser()

        def read(data: bytes, start: int) -> Any:
            text = data[start:]
            value = parse(text)
            if check is not None:
                check(value, text)
            return value if make is None else make(value)

        return read

    # Columns

    def new_column_serializer(self, schema: ParsedSchema, prefix: bytes) -> ColumnSerializer:
        from kbatch.formats.writing import JsonLines

        check = None if self._validate == "none" else schema.check_text
        return JsonLines(self._columns, decimals=self._decimals, prefix=prefix, check=check)

    def new_column_deserializer(self, topic: str | None, part: Part) -> ColumnDeserializer:
        from kbatch.formats.reading.checked_json import CheckedJson
        from kbatch.formats.reading.json_values import Json as JsonColumns

        if self._validate != "both":
            return JsonColumns(self._type, self._on_error, id_bytes=self.id_bytes)
        return CheckedJson(
            self._type,
            self._on_error,
            own=self.schema,
            schemas=self.schemas_for(topic, part),
            id_bytes=self.id_bytes,
        )


_Class = type  # which an argument hides


class ParsedSchema:
    """A schema with those that it refers to.

    Parameters
    ----------
    text : str
    others : mapping
        The texts of those that it refers to, by the names that it has for them.
    """

    def __init__(self, text: str, others: Mapping[str, str]) -> None:
        self.text = text
        self._others = others

    def __getstate__(self) -> dict[str, Any]:
        return {"text": self.text, "_others": self._others}

    @cached_property
    def validator(self) -> Any:
        """jsonschema-rs's validator. Raise ValueError if the schema is invalid."""
        import jsonschema_rs

        try:
            contents = json.loads(self.text)
            return jsonschema_rs.validator_for(contents, retriever=self._retrieve, validate_formats=False)
        except (ValueError, jsonschema_rs.ReferencingError) as error:
            raise ValueError(f"invalid JSON Schema: {str(error).partition(chr(10))[0]}") from error

    def _retrieve(self, url: str) -> Any:
        for name, text in self._others.items():
            if url == name or url.endswith(f"/{name}"):  # a relative name, wherever it was resolved from
                return json.loads(text)
        raise ValueError(f"it refers to {url}, which is none of its references in the registry")

    def check(self, value: Any, data: bytes) -> None:
        """Raise ValueError, which says where and why, for a value that the schema does not describe.

        Parameters
        ----------
        value : Any
            What the text says, or something like it that may be quicker to look at.
        data : bytes
            The text, which decides.
        """
        validator = self.validator
        try:
            if value is not data and validator.is_valid(value):
                return
        except ValueError:
            pass  # a dict has keys that are no strings
        for fault in validator.iter_errors(json.loads(data)):
            where = "/".join(map(str, fault.instance_path))
            raise ValueError(f"{where}: {fault.message}" if where else fault.message)

    def check_text(self, data: bytes) -> None:
        """Raise ValueError for JSON that the schema does not describe."""
        self.check(parser()(data), data)


def _text(schema: str | Mapping[str, Any] | bool) -> str:
    """Return a user's schema as JSON. Raise ValueError if it is none."""
    if not isinstance(schema, str):
        return json.dumps(schema)
    try:
        json.loads(schema)
    except ValueError as error:
        raise ValueError(f"invalid JSON Schema: {error}") from error
    return schema


def schema_of(model: Any) -> dict[str, Any]:
    """Return the schema that a class has of itself.

    Raises
    ------
    TypeError
        It is none of pydantic or msgspec, and no dataclass.
    ImportError
        It is a dataclass, and msgspec is not installed.
    """
    if hasattr(model, "model_json_schema"):
        return dict(model.model_json_schema(by_alias=True))
    from_dict_of(model)  # TypeError for other classes
    try:
        import msgspec
    except ImportError as error:
        raise ImportError(f"the schema of {model.__name__} needs msgspec; pip install msgspec") from error
    return {"title": model.__name__, **msgspec.json.schema(model)}
