"""The schemas of a column's values, which stand in front of them or in headers (`formats.framing`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kbatch.formats.framing import ID_BYTES, ID_HEADERS, MAX_FRAME_BYTES, Written, frame_of, written_of
from kbatch.formats.reading.base import Spans, Where

# An index that a varint of one byte has.
INDEX_BITS, INDEX_MASK = 7, 0x7F


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


def framed(spans: Spans, where: Where, *, has_path: bool = False, id_bytes: int = ID_BYTES) -> Framed:
    """Find the schema of each value.

    Parameters
    ----------
    has_path : bool
        True for Protobuf.
    id_bytes : int
        The bytes that end with an id in front of a value.
    """
    starts, faults = spans.starts.copy(), dict[int, str]()
    paths: dict[int, Written] = {}  # rows that are not usual, one by one
    is_open = spans.is_valid.copy()
    for row, data in _in_headers(where).items():
        if is_open[row]:
            is_open[row] = False
            _read_one(row, data, has_path, ID_BYTES, paths, faults)
    plain, codes, sizes = _plain(spans, is_open, has_path, id_bytes)
    starts[plain] += sizes
    is_open[plain] = False
    for row in map(int, np.flatnonzero(is_open)):
        first = int(spans.starts[row])
        head = bytes(spans.view[first : min(int(spans.ends[row]), first + MAX_FRAME_BYTES)])
        starts[row] += _read_one(row, head, has_path, id_bytes, paths, faults)
    groups: dict[Written, np.ndarray] = {}
    for code in map(int, np.unique(codes)):
        written = (code >> INDEX_BITS, (code & INDEX_MASK,)) if has_path else (code, ())
        groups[written] = plain[codes == code]
    return Framed(_with_others(groups, paths), starts, faults)


def _plain(
    spans: Spans, is_open: np.ndarray, has_path: bool, id_bytes: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows with an id and a path of one byte's index, the id and the index, if there is one, of
    each as one number, and the bytes before its value.
    """
    lengths = spans.ends - spans.starts
    rows = np.flatnonzero(is_open & (lengths >= id_bytes + has_path))
    heads = spans.matrix(rows, id_bytes + has_path)
    sizes = np.full(len(rows), id_bytes + has_path, np.int64)
    indexes = np.zeros(len(rows), np.int64)
    is_plain = heads[:, 0] == 0
    if has_path and len(rows):
        index = spans.data[np.minimum(spans.starts[rows] + id_bytes + 1, len(spans.data) - 1)]
        is_one = (heads[:, -1] == 2) & (lengths[rows] > id_bytes + 1) & (index < 0x80) & (index & 1 == 0)
        is_plain &= is_one | (heads[:, -1] == 0)
        indexes[is_one] = index[is_one] >> 1
        sizes += is_one
    ids = heads[:, 1:id_bytes].copy().view(f">u{id_bytes - 1}").reshape(-1).astype(np.int64)
    is_plain &= ids >= 0  # no registry has others
    codes = ids << INDEX_BITS | indexes if has_path else ids
    return rows[is_plain], codes[is_plain], sizes[is_plain]


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
    data: bytes,
    has_path: bool,
    id_bytes: int,
    paths: dict[int, Written],
    faults: dict[int, str],
) -> int:
    """Read what names one value's schema, and return how many bytes that takes."""
    try:
        frame = frame_of(data, has_path=has_path, id_bytes=id_bytes)
    except ValueError as error:
        faults[row] = str(error)
        return 0
    paths[row] = written_of(frame, has_path=has_path)
    return len(frame)


def _in_headers(where: Where) -> dict[int, bytes]:
    """Return the ids that stand in headers, by row."""
    if where.headers is None:
        return {}
    headers = where.headers
    items = headers.flatten()
    if not len(items):
        return {}
    names, values = items.field(0), items.field(1)
    is_id = pc.fill_null(pc.equal(names.cast(pa.string()), ID_HEADERS[where.part]), False)
    if not pc.any(is_id).as_py():
        return {}
    parents = pc.list_parent_indices(headers).filter(is_id).to_pylist()
    found = values.filter(is_id).to_pylist()
    pairs = list(zip(parents, found, strict=True))
    return {row: data for row, data in reversed(pairs) if data is not None}  # the first of a name counts


def newest(groups: Mapping[Written, np.ndarray]) -> Iterable[Written]:
    """Return the schemas of records, those with the highest ids first, GUIDs last."""
    return sorted(groups, key=lambda each: (isinstance(each[0], int), each[0], each[1]), reverse=True)
