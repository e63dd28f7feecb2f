"""Confluent's wire format: which schema each value was written by, and where its own bytes begin.

A value begins with a 0 and the schema's id in four bytes, or with a 1 and its GUID in sixteen. Or a header of
the record has these bytes, `__key_schema_id` or `__value_schema_id`; then the value has none. Protobuf adds
the position of the message in its file: a count and that many indexes, as zigzag varints; 0 means [0].
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kbatch.column_deserializers.base import Spans, Where

ID_BYTES, GUID_BYTES = 5, 17
HEADERS = {"key": "__key_schema_id", "value": "__value_schema_id"}
MAX_INDEXES = 100
# An index that a varint of one byte has.
INDEX_BITS, INDEX_MASK = 7, 0x7F
# An id or a GUID; of Protobuf also the path of the message.
Written = tuple[int | str, tuple[int, ...]]


class Framed(NamedTuple):
    """The values of a column by the schemas that they were written by.

    Attributes
    ----------
    groups : dict
        For each id or GUID and path, the rows in ascending order.
    starts : numpy.ndarray of int64
        Where each value's own bytes begin.
    faults : dict
        Why a row has none of these, by row.
    """

    groups: dict[Written, np.ndarray]
    starts: np.ndarray
    faults: dict[int, str]


def framed(spans: Spans, where: Where, *, has_path: bool = False) -> Framed:
    """Find the schema of each value.

    Parameters
    ----------
    has_path : bool
        True for Protobuf.
    """
    starts, faults = spans.starts.copy(), dict[int, str]()
    paths: dict[int, Written] = {}  # rows that are not usual, one by one
    is_open = spans.is_valid.copy()
    for row, data in _in_headers(where).items():
        if is_open[row]:
            is_open[row] = False
            _read_one(row, data, 0, len(data), has_path, paths, faults)
    plain, codes, sizes = _plain(spans, is_open, has_path)
    starts[plain] += sizes
    is_open[plain] = False
    for row in map(int, np.flatnonzero(is_open)):
        first, last = int(spans.starts[row]), int(spans.ends[row])
        starts[row] = _read_one(row, spans.data, first, last, has_path, paths, faults)
    groups: dict[Written, Any] = {}
    for code in map(int, np.unique(codes)):
        written = code >> INDEX_BITS, (code & INDEX_MASK,) if has_path else ()
        groups[written] = plain[codes == code]
    return Framed(_with_others(groups, paths), starts, faults)


def _plain(spans: Spans, is_open: np.ndarray, has_path: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows with an id and a path of one byte's index, the id and the index of each as one number,
    and the bytes before its value.
    """
    lengths = spans.ends - spans.starts
    rows = np.flatnonzero(is_open & (lengths >= ID_BYTES + has_path))
    heads = spans.matrix(rows, ID_BYTES + has_path)
    sizes = np.full(len(rows), ID_BYTES + has_path, np.int64)
    indexes = np.zeros(len(rows), np.int64)
    is_plain = heads[:, 0] == 0
    if has_path and len(rows):
        index = spans.data[np.minimum(spans.starts[rows] + ID_BYTES + 1, len(spans.data) - 1)]
        is_one = (heads[:, -1] == 2) & (lengths[rows] > ID_BYTES + 1) & (index < 0x80) & (index & 1 == 0)
        is_plain &= is_one | (heads[:, -1] == 0)
        indexes[is_one] = index[is_one] >> 1
        sizes += is_one
    ids = heads[:, 1:ID_BYTES].copy().view(">u4").reshape(-1).astype(np.int64)
    return rows[is_plain], (ids << INDEX_BITS | indexes)[is_plain], sizes[is_plain]


def _with_others(
    groups: dict[Written, np.ndarray], others: Mapping[int, Written]
) -> dict[Written, np.ndarray]:
    """Return the rows of each schema, with those that were read one by one."""
    more: dict[Written, list[int]] = {}
    for row, written in others.items():
        more.setdefault(written, []).append(row)
    for written, listed in more.items():
        found = groups.get(written, np.empty(0, np.int64))
        groups[written] = np.union1d(found, np.array(listed, np.int64))
    return groups


def _read_one(
    row: int,
    data: Any,
    first: int,
    last: int,
    has_path: bool,
    paths: dict[int, Written],
    faults: dict[int, str],
) -> int:
    """Read one value's schema, and return where its own bytes begin."""
    magic = data[first] if last > first else None
    size = {0: ID_BYTES, 1: GUID_BYTES}.get(-1 if magic is None else int(magic))
    if size is None:
        found = "it is empty" if magic is None else f"it begins with the byte {int(magic)}"
        faults[row] = f"it has no schema id: {found}, instead of 0 or 1 (Confluent's wire format)"
        return first
    if last - first < size:
        faults[row] = f"its schema id is cut off: it has {last - first} bytes"
        return first
    head = bytes(data[first + 1 : first + size])
    written = int.from_bytes(head, "big") if size == ID_BYTES else str(uuid.UUID(bytes=head))
    path: tuple[int, ...] = ()
    value_start = first + size
    if has_path:
        found_path, value_start = _path(data, value_start, last)
        if found_path is None:
            faults[row] = "the position of its message is no list of varints (Confluent's wire format)"
            return first
        path = found_path
    paths[row] = written, path
    return value_start


def _path(data: Any, index: int, last: int) -> tuple[tuple[int, ...] | None, int]:
    """Return the path of a message, None if it is invalid, and the index of the byte after it."""
    numbers: list[int] = []
    count = 1
    while len(numbers) < count + 1:
        number, shift = 0, 0
        while True:
            if index >= last or shift > 28:
                return None, index
            byte = int(data[index])
            number |= (byte & 0x7F) << shift
            index, shift = index + 1, shift + 7
            if byte < 0x80:
                break
        if number & 1:  # negative
            return None, index
        numbers.append(number >> 1)
        count = numbers[0]
        if count > MAX_INDEXES:
            return None, index
    return tuple(numbers[1:]) or (0,), index


def _in_headers(where: Where) -> dict[int, bytes]:
    """Return the ids that stand in headers, by row."""
    if where.headers is None:
        return {}
    headers = where.headers
    items = headers.flatten()
    if not len(items):
        return {}
    names, values = items.field(0), items.field(1)
    is_id = pc.fill_null(pc.equal(names.cast(pa.string()), HEADERS[where.part]), False)
    if not pc.any(is_id).as_py():
        return {}
    parents = pc.list_parent_indices(headers).filter(is_id).to_pylist()
    found = values.filter(is_id).to_pylist()
    pairs = list(zip(parents, found, strict=True))
    return {row: data for row, data in reversed(pairs) if data is not None}  # the first of a name counts
