"""Column serializers that are formats now: one class for records and tables, in `kbatch.formats`."""

from collections.abc import Iterable, Mapping, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any

from kbatch.renamed import renamed

if TYPE_CHECKING:
    from kbatch.formats.writing import ColumnSerializer, Int32, Int64, RowError, Utf8
    from kbatch.schema_registry import SchemaRegistry

__all__ = ["Avro", "ColumnSerializer", "Int32", "Int64", "JsonLines", "Protobuf", "RowError", "Utf8"]

_Columns = str | Iterable[str] | None
_Id = int | EllipsisType | None


def _avro(
    schema: str | Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    schema_id: _Id = ...,
    registry: "SchemaRegistry | None" = None,
    subject: str | None = None,
    registers: bool = True,
    columns: _Columns = None,
) -> "ColumnSerializer":
    from kbatch.formats import Avro

    if schema is None and (registry is None or subject is None):
        raise TypeError("Avro needs a schema, or registry= and subject= that have it")
    options = _registered("Avro", schema_id, registry, subject, registers)
    return Avro[Any](schema, columns=columns, **options).column_serializer(None, "value")


def _protobuf(
    message: Any,
    *,
    schema_id: _Id = ...,
    registry: "SchemaRegistry | None" = None,
    subject: str | None = None,
    registers: bool = True,
    columns: _Columns = None,
) -> "ColumnSerializer":
    from kbatch.formats import Protobuf

    options = _registered("Protobuf", schema_id, registry, subject, registers)
    return Protobuf[Any](message, columns=columns, **options).column_serializer(None, "value")


def _json_lines(
    columns: _Columns = None,
    *,
    decimals: str = "number",
    schema_id: int | None = None,
    registry: "SchemaRegistry | None" = None,
    subject: str | None = None,
    schema: str | Mapping[str, Any] | None = None,
    registers: bool = True,
) -> "ColumnSerializer":
    from kbatch.formats import Json, JsonSchema

    if schema is not None and registry is None:
        raise TypeError("schema= is for a registry: give registry= and subject= too")
    given: _Id = ... if registry is not None and schema_id is None else schema_id
    options = _registered("JsonLines", given, registry, subject, registers)
    if registry is None and schema_id is None:
        return Json[Any](columns=columns, decimals=decimals).column_serializer(None, "value")
    made = JsonSchema[Any](
        True if registry is None else schema, validate="none", decimals=decimals, columns=columns, **options
    )
    return made.column_serializer(None, "value")


def _registered(
    name: str, schema_id: _Id, registry: "SchemaRegistry | None", subject: str | None, registers: bool
) -> dict[str, Any]:
    """Return the options of a format. Raise TypeError for calls that were wrong."""
    if registry is None:
        if schema_id is ... or subject is not None:
            raise TypeError(
                f"{name} needs schema_id=, the schema's number in the schema registry or None for values "
                "without a header, or registry= and subject="
            )
        return {"id": schema_id}
    if schema_id is not ...:
        raise TypeError("schema_id= and registry= exclude each other; leave out one of them")
    if subject is None:
        raise TypeError(f"registry= needs subject=, by convention the topic with -key or -value, for {name}")
    return {"registry": registry, "subject": subject, "register": registers}


if TYPE_CHECKING:
    Avro, JsonLines, Protobuf = _avro, _json_lines, _protobuf

_CHANGED = {
    "Avro": (
        f"{__name__}:_avro",
        "kbatch.formats.Avro(schema, id=, registry=, subject=, register=, columns=)",
    ),
    "JsonLines": (
        f"{__name__}:_json_lines",
        "kbatch.formats.Json(columns=, decimals=), or JsonSchema with a registry",
    ),
    "Protobuf": (
        f"{__name__}:_protobuf",
        "kbatch.formats.Protobuf(message, id=, registry=, subject=, register=, columns=)",
    ),
}

__getattr__ = renamed(
    __name__,
    {
        name: _CHANGED.get(name) or (f"kbatch.formats.writing:{name}", f"kbatch.formats.{name}")
        for name in __all__
    },
)
