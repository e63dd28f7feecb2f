"""Headers of a table's records, with one more: the ids of schemas that do not stand in front of values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ITEM = pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])
HEADERS = pa.large_list(ITEM)


def can_add(kind: pa.DataType) -> bool:
    """True if headers may be of this type."""
    if pa.types.is_map(kind):
        return True
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return (
        is_list
        and pa.types.is_struct(kind.value_type)
        and {"key", "value"} == {field.name for field in kind.value_type}
    )


def with_header(headers: pa.Array, header: tuple[str, bytes], has_value: pa.Array) -> pa.Array:
    """Return the headers of each row, and after them another one where there is a value.

    Parameters
    ----------
    headers : pyarrow.Array
        Of a type that `can_add` accepts.
    header : tuple of (str, bytes)
    has_value : pyarrow.Array of bool

    Returns
    -------
    pyarrow.Array
        Of the type HEADERS.
    """
    lengths, items = _items_of(headers)
    is_more = has_value.to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(headers) + 1, np.int64)
    np.cumsum(lengths + is_more, out=offsets[1:])
    # the row of each item says where it goes; the new one is the last of its row
    taken = np.empty(offsets[-1], np.int64)
    added = offsets[1:][is_more] - 1
    is_old = np.ones(len(taken), bool)
    is_old[added] = False
    taken[added] = len(items)
    taken[is_old] = np.arange(len(items))
    name, data = header
    more = pa.array([{"key": name, "value": data}], ITEM)
    return pa.LargeListArray.from_arrays(
        pa.array(offsets), pa.concat_arrays([items, more]).take(pa.array(taken))
    )


def _items_of(headers: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """Return how many headers each row has, and all of them."""
    if pa.types.is_map(headers.type):
        offsets = headers.offsets.to_numpy()
        first, last = int(offsets[0]), int(offsets[-1])
        names, values = (each.slice(first, last - first) for each in (headers.keys, headers.items))
        return np.diff(offsets), _items(names, values, None)
    found = headers.flatten()
    names, values = (found.field(found.type.get_field_index(name)) for name in ("key", "value"))
    lengths = pc.fill_null(pc.list_value_length(headers), 0)
    return lengths.to_numpy().astype(np.int64), _items(names, values, found.is_null())


def _items(names: pa.Array, values: pa.Array, mask: pa.Array | None) -> pa.Array:
    columns = [names.cast(pa.large_string()), values.cast(pa.large_binary())]
    return pa.StructArray.from_arrays(columns, fields=list(ITEM), mask=mask)
