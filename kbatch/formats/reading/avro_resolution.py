"""Avro values of one schema as data of another: fastavro resolves, without logical types.

Python does not tell an int from a long in a union, nor a record from a map. And a number under the unit of
another schema would be another time. So numbers, decimals and named types get a private logical type where
that matters, a mark, whose reader fastavro calls with both schemas: it returns the data with the name of the
reader's branch, and converts a time or decimal to the reader's unit or scale, exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from kbatch.formats.avro_schemas import (
    NAMED,
    NUMBERS,
    WIDER,
    AvroSchema,
    kind_of,
    logical_of,
    members,
    name_of,
    parsed,
    rebuilt,
    set_defaults,
    within,
)

_MARK = "kbatch"
_LOGICAL = "kbatch-logical"  # the logical type that the mark replaces
_IN_UNION = "kbatch-in-union"
_PER_SECOND = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}
_TEXTS = ("bytes", "string")
# Types of which Python does not tell data apart, or to each of which fastavro promotes the other's.
_TWINS = (*WIDER.items(), _TEXTS)


class Branch(tuple[str, Any]):
    """Data with the name of the branch of the reader's union that they are of."""

    __slots__ = ()


def reading(writer: AvroSchema, reader: AvroSchema) -> tuple[Callable[[Any], Any], bool]:
    """Return what reads a value that `writer` wrote, from a stream, as physical data of `reader`; and whether
    named types have their names even outside of unions. Those of unions of several types always have.

    Raises
    ------
    ValueError
        A schema is not to be used.
    """
    from fastavro import schemaless_reader
    from fastavro.read import LOGICAL_READERS

    for kind in (*NUMBERS, *NAMED, *_TEXTS):
        LOGICAL_READERS[f"{kind}-{_MARK}"] = _MARKED.get(kind, _of_named)
    writer.check_lengths()
    has_choices = any(len(members(each)) > 1 for each in _unions(reader))
    if writer.parts == reader.parts:
        schema, _ = parsed(list(map(_Marks().of, writer.valid_parts)))
        return partial(schemaless_reader, writer_schema=schema, return_named_type=has_choices), False
    is_marked = has_choices or sorted(_logicals(writer)) != sorted(_logicals(reader))
    has_texts = any({"bytes", "string"} <= set(map(_text, each)) for each in _unions(reader))
    kinds = (*NUMBERS, *NAMED, *(_TEXTS if has_texts else ())) if is_marked else ()
    mark = _Marks(kinds).of if is_marked else _without
    from_schema, _ = parsed(list(map(mark, writer.valid_parts)))
    to_schema, named = parsed(list(map(mark, reader.valid_parts)))
    set_defaults([to_schema, *named.values()], named, _default_of_branch if is_marked else _default)
    for each in within([to_schema, *named.values()]) if is_marked else ():
        if isinstance(each, list):  # fastavro takes the first branch to which it can promote a value
            each.sort(key=_width)
    return partial(schemaless_reader, writer_schema=from_schema, reader_schema=to_schema), is_marked


def _default(member: Any, datum: Any, named: Mapping[str, Any]) -> Any:
    return datum


def _default_of_branch(member: Any, datum: Any, named: Mapping[str, Any]) -> Any:
    return None if datum is None else Branch((name_of(member, named), datum))


def _unions(schema: AvroSchema) -> Iterator[Any]:
    return (each for each in within([schema.schema, *schema.named.values()]) if isinstance(each, list))


def _logicals(schema: AvroSchema) -> Iterator[tuple[str, str, int]]:
    """Return where times and decimals stand, and their kinds and scales."""
    return (found for part in schema.valid_parts for found in _logicals_in(part, ""))


def _logicals_in(schema: Any, path: str) -> Iterator[tuple[str, str, int]]:
    if isinstance(schema, list):
        for each in schema:
            yield from _logicals_in(each, path)
    elif isinstance(schema, dict):
        logical = logical_of(schema)
        if logical is not None and logical != "uuid":
            yield path, logical, schema.get("scale", 0)
        for name in ("type", "items", "values"):
            yield from _logicals_in(schema.get(name), f"{path}/{name}")
        for field in schema.get("fields", ()):
            yield from _logicals_in(field["type"], f"{path}.{field['name']}")


# Marks


def _without(schema: Any) -> Any:
    return rebuilt(schema, lambda made: {name: each for name, each in made.items() if name != "logicalType"})


class _Marks:
    """Replaces the logical types of a schema by marks, where they matter.

    Parameters
    ----------
    kinds : collection of str
        The types that get one, wherever they are; decimals do, too. Empty: only the numbers of unions that
        Python does not tell apart get one.
    """

    def __init__(self, kinds: Collection[str] = ()) -> None:
        self._kinds = kinds

    def of(self, schema: Any) -> Any:
        """Return a schema with marks."""
        if isinstance(schema, list):
            return self._union(schema)
        if not isinstance(schema, dict):
            return _mark({"type": schema}) if schema in self._kinds and schema not in NAMED else schema
        logical = logical_of(schema)
        made = {name: each for name, each in schema.items() if name != "logicalType"}
        for name in ("items", "values", "type"):
            if isinstance(made.get(name), dict | list) or (name != "type" and name in made):
                made[name] = self.of(made[name])
        if "fields" in made:
            made["fields"] = [{**field, "type": self.of(field["type"])} for field in made["fields"]]
        is_for_mark = isinstance(made["type"], str) and made["type"] in self._kinds
        is_for_mark = is_for_mark or (bool(self._kinds) and logical == "decimal")
        return _mark(made, logical) if is_for_mark else made

    def _union(self, union: Sequence[Any]) -> list[Any]:
        kinds = {kind_of(each) for each in union if isinstance(kind_of(each), str)}
        twins = {kind for pair in _TWINS if kinds.issuperset(pair) for kind in pair}
        if len(members(union)) < 2:
            twins = set()
        if not self._kinds:
            twins -= set(_TEXTS)
        return [
            {**_Marks([kind_of(each)]).of(each), _IN_UNION: True} if _text(each) in twins else self.of(each)
            for each in union
        ]


def _text(schema: Any) -> str:
    kind = kind_of(schema)
    return kind if isinstance(kind, str) else ""


def _width(schema: Any) -> int:
    kind = _text(schema)
    return NUMBERS.index(kind) if kind in NUMBERS else -1


def _mark(schema: dict[str, Any], logical: str | None = None) -> dict[str, Any]:
    return {**schema, "logicalType": _MARK, **({} if logical is None else {_LOGICAL: logical})}


# Readers of marks. fastavro calls them with its data, the writer's type and the reader's or None.


def _of_number(data: Any, writer: Any, reader: Any) -> Any:
    if reader is None:
        reader = writer
    if not isinstance(reader, dict):
        return float(data) if reader in ("float", "double") else data
    ours, theirs = reader.get(_LOGICAL), writer.get(_LOGICAL)
    if ours is not None and theirs is not None and ours != theirs:
        data = _in_unit(data, theirs, ours)
    kind = reader["type"]
    if kind in ("float", "double"):
        data = float(data)
    return Branch((kind, data)) if _IN_UNION in reader else data


def _in_unit(number: int, written: str, read: str) -> int:
    """Return a time of one logical type as that of another. Raise ValueError if it has none."""
    written_kind, _, written_unit = written.removeprefix("local-").rpartition("-")
    read_kind, _, read_unit = read.removeprefix("local-").rpartition("-")
    if written_kind != read_kind or not read_kind:
        raise ValueError(f"a {written} is no {read}")
    made, remainder = divmod(number * _PER_SECOND[read_unit], _PER_SECOND[written_unit])
    if remainder:
        raise ValueError(f"its {written} is finer than {read}")
    return made


def _of_text(data: Any, writer: Any, reader: Any) -> Any:
    if reader is not None and isinstance(reader, dict) and _IN_UNION in reader:
        # the union has the writer's type, too
        return Branch((writer["type"], _rescaled(data, writer, reader)))
    kind = writer["type"] if reader is None else kind_of(reader)
    if kind == writer["type"]:
        return _rescaled(data, writer, reader)
    return data.decode() if kind == "string" else data.encode()


def _of_named(data: Any, writer: Any, reader: Any) -> Any:
    own = writer if reader is None else reader
    return Branch((own["name"] if isinstance(own, dict) else own, _rescaled(data, writer, reader)))


def _rescaled(data: Any, writer: Any, reader: Any) -> Any:
    """Return the bytes of a decimal at the reader's scale. Raise ValueError if it has more digits."""
    if reader is None or not isinstance(reader, dict) or reader.get(_LOGICAL) != "decimal":
        return data
    if writer.get(_LOGICAL) != "decimal" or writer.get("scale", 0) == reader.get("scale", 0):
        return data
    number = int.from_bytes(data, "big", signed=True) * 10 ** reader.get("scale", 0)
    made, remainder = divmod(number, 10 ** writer.get("scale", 0))
    if remainder:
        raise ValueError("its decimal has more digits than the reader's scale")
    size = reader.get("size") or (made.bit_length() + 8) // 8
    return made.to_bytes(size, "big", signed=True)


_MARKED: Mapping[str, Callable[[Any, Any, Any], Any]] = {
    **dict.fromkeys(NUMBERS, _of_number),
    **dict.fromkeys(_TEXTS, _of_text),
}
