"""Results of an Admin as Arrow tables, for notebooks and reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kbatch.distribution import needs

if TYPE_CHECKING:
    import pyarrow as pa

# The columns of keys that have no names for their parts.
KEY, VALUE = "item", "value"


def to_arrow(results: Mapping[Any, Any] | Iterable[Any]) -> pa.Table:
    """Return the results of a call as a table.

    Parameters
    ----------
    results : mapping or iterable
        What a call about many items returns, such as `groups.offsets`, `topics.list` or `configs.describe`.

    Returns
    -------
    pyarrow.Table
        A row for each result; for each of several, if an item has several. The parts of a key, such as topic
        and partition, are the first columns, "item" if it has none; then come the fields of the result and
        what follows from them, such as lag, or "value". A part of a key that is named like a field is
        "item_..." then. Fields with parts are structs, and ids are text.

    Raises
    ------
    TypeError
        It is one result, not those of many items.
    ImportError
        pyarrow, of the extra `arrow`, is not installed.
    """
    with needs("to_arrow()", "arrow"):
        import pyarrow as pa

    if isinstance(results, str | bytes) or _is_record(results) or not isinstance(results, Iterable):
        raise TypeError(f"to_arrow() needs the results of many items, got {type(results).__name__}")
    return pa.Table.from_pylist(_with_all_columns(list(_rows(results, {}))))


def _rows(results: Any, above: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a result, each of which begins with the columns of the keys above it."""
    if isinstance(results, Mapping):
        for key, result in results.items():
            yield from _rows(result, {**above, **_key_columns(key, above)})
    elif isinstance(results, list | tuple) and not _is_record(results):
        for result in results:
            yield from _rows(result, above)
    else:
        columns = _plain(results) if _is_record(results) else {VALUE: _plain(results)}
        keys = {f"{KEY}_{name}" if name in columns else name: value for name, value in above.items()}
        yield {**keys, **columns}


def _key_columns(key: Any, above: Mapping[str, Any]) -> dict[str, Any]:
    if _is_record(key):
        columns: dict[str, Any] = _plain(key)
        return columns
    return {KEY if KEY not in above else f"{KEY}_2": _plain(key)}


def _is_record(value: object) -> bool:
    """True if it has fields."""
    return _fields_of(value) is not None


def _fields_of(value: object) -> tuple[str, ...] | None:
    """Return the fields of a NamedTuple or of a dataclass; None if it has none."""
    if is_dataclass(value):
        return tuple(field.name for field in fields(value))
    return getattr(value, "_fields", None) if isinstance(value, tuple) else None


def _plain(value: Any) -> Any:
    """Return a value as Arrow takes it."""
    names = _fields_of(value)
    if names is not None:
        derived = [name for name, member in vars(type(value)).items() if isinstance(member, property)]
        return {name: _plain(getattr(value, name)) for name in (*names, *derived)}
    if isinstance(value, Mapping):
        return [{"key": _plain(key), VALUE: _plain(each)} for key, each in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, UUID) else value


def _with_all_columns(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of which the first one has every column: Arrow looks at no other."""
    if rows:
        rows[0] = {**rows[0], **{name: None for row in rows for name in row if name not in rows[0]}}
    return rows
