"""Which column of a table becomes what of its records.

If all roles are names, the table is used as it is, and needs no pyarrow. If one is a serializer, or None, a
stream of pieces takes its place, see `formats.writing.serialized_columns`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


class SentFormat(Protocol):
    """A format of kbatch.formats, which has a column serializer for each topic."""

    def column_serializer(self, topic: str | None, part: Any, /) -> Callable[[pa.RecordBatch], Any]: ...


# A role's argument name, if it differs from the role.
_ARGUMENTS = {"topic": "topic_column"}
Part = str | Callable[["pa.RecordBatch"], Any] | SentFormat | None


class RecordColumns(NamedTuple):
    """The columns of a table that records are made of.

    Attributes
    ----------
    source : table
    names : dict
        For each role, the name of a column of the source and whether it is required.
    reading : callable
        Returns the context in which to read the source; it raises the original errors of serializers.
    """

    source: Any
    names: dict[str, tuple[str, bool]]
    reading: Callable[[], AbstractContextManager[None]]


def record_columns(
    data: Any,
    *,
    key: Part,
    value: Part,
    headers: str | None,
    timestamp: str | None,
    partition: str | None,
    topic: str | None = None,
    to_topic: str | None = None,
) -> RecordColumns:
    """Return the stream to read, and how to read it.

    Parameters
    ----------
    topic : str or None
        The role of that name.
    to_topic : str or None
        The topic of all rows, for formats whose schema depends on it.

    Raises
    ------
    ValueError, TypeError
        A column is missing, or its serializer does not accept its type.
    """
    parts: dict[str, Part] = {
        "key": _serializer(key, to_topic, "key"),
        "value": _serializer(value, to_topic, "value"),
        "headers": headers,
        "timestamp": timestamp,
        "partition": partition,
    }
    if topic is not None:
        parts["topic"] = topic
    _check_parts(parts)
    names = {
        role: (part, role in ("value", "topic") or part != role)
        for role, part in parts.items()
        if isinstance(part, str)
    }
    if len(names) == len(parts):
        return RecordColumns(data, names, nullcontext)
    from kbatch.formats.writing.serialized_columns import SerializedColumns  # which takes pyarrow

    stream = SerializedColumns(data, parts, names)
    return RecordColumns(stream, stream.names, stream.reading)


def _serializer(part: Any, topic: str | None, role: str) -> Part:
    """Return the column serializer of a format, and anything else as it is."""
    bind = getattr(part, "column_serializer", None)
    return part if bind is None else bind(topic, role)  # type: ignore[no-any-return]


def _check_parts(parts: Mapping[str, Part]) -> None:
    for role, part in parts.items():
        is_serializable = role in ("key", "value")
        if isinstance(part, str) or (is_serializable and callable(part) and not isinstance(part, type)):
            continue
        if part is not None or role == "value":
            raise TypeError(
                f"{_ARGUMENTS.get(role, role)} must be a column's name"
                f"{' or a column serializer' if is_serializable else ''}"
                f"{'' if role == 'value' else ', or None'}, got {part!r}"
            )
