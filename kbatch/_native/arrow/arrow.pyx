"""Arrow columns as input, by the PyCapsule interface, without an Arrow library.

A stream is read batch by batch. Each column class checks the type of a schema and then points into the
buffers of one batch at a time (`bind`); nothing is copied here. Messages call types by the common names of
their Arrow format strings.
"""

cimport cython
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t
from libc.stdlib cimport atoll
from libc.string cimport memset, strcmp, strerror, strncmp

from kbatch._native.codec.c cimport kb_is_utf8, kb_record_header, kb_span

import sys

_BINARY_TYPES = (
    "binary, large_binary, binary_view, string, large_string, string_view, fixed_size_binary, a dictionary "
    "of those, or null"
)

# format: (kind, width)
_BINARY_FORMATS = {
    b"n": (KB_COLUMN_NULL, 0),
    b"z": (KB_COLUMN_OFFSETS32, 0),
    b"u": (KB_COLUMN_OFFSETS32, 0),
    b"Z": (KB_COLUMN_OFFSETS64, 0),
    b"U": (KB_COLUMN_OFFSETS64, 0),
    b"vz": (KB_COLUMN_VIEWS, 0),
    b"vu": (KB_COLUMN_VIEWS, 0),
}
# format: (kind, width), the width negative for signed integers
_INDEX_WIDTHS = {b"c": -1, b"C": 1, b"s": -2, b"S": 2, b"i": -4, b"I": 4, b"l": -8, b"L": 8}

cdef enum:
    UNIT_S
    UNIT_MS
    UNIT_US
    UNIT_NS

_TIMESTAMP_UNITS = {b"tss:": UNIT_S, b"tsm:": UNIT_MS, b"tsu:": UNIT_US, b"tsn:": UNIT_NS, b"l": UNIT_MS}

# Reasons for refusing a row's headers; HeadersColumn.fill returns the number.
header_faults = ("is malformed", "is null", "has a null key", "has a key that is not UTF-8")


@cython.final
cdef class ArrowBatch:
    """One struct array of a stream, released with this object."""

    def __dealloc__(self):
        if self._owned and self.array.release != NULL:
            self.array.release(&self.array)


@cython.final
cdef class ArrowStream:
    """The batches of any object with `__arrow_c_stream__` or `__arrow_c_array__`, and their schema."""

    def __init__(self, data):
        if hasattr(data, "__arrow_c_stream__"):
            self._capsules = data.__arrow_c_stream__()
            self._stream = <ArrowArrayStream *>PyCapsule_GetPointer(self._capsules, "arrow_array_stream")
            self._raise_stream_error(self._stream.get_schema(self._stream, &self._schema), "give its schema")
            self.schema = &self._schema
        elif hasattr(data, "__arrow_c_array__"):
            self._capsules = data.__arrow_c_array__()
            self.schema = <ArrowSchema *>PyCapsule_GetPointer(self._capsules[0], "arrow_schema")
            self._single = ArrowBatch()
            self._single._owner = self._capsules
            self._single.array = (<ArrowArray *>PyCapsule_GetPointer(self._capsules[1], "arrow_array"))[0]
        else:
            raise TypeError(
                "data must have __arrow_c_stream__ or __arrow_c_array__ (a pyarrow, polars or duckdb table, "
                f"for example), got {type(data).__name__}"
            )

    def __dealloc__(self):
        if self._schema.release != NULL:
            self._schema.release(&self._schema)

    cdef ArrowBatch next_batch(self):
        """Return the next batch, or None at the end."""
        cdef ArrowBatch batch
        cdef int code
        if self._stream == NULL:
            batch, self._single = self._single, None
            return batch
        batch = ArrowBatch()
        with nogil:  # a stream may compute on threads that need the GIL
            code = self._stream.get_next(self._stream, &batch.array)
        self._raise_stream_error(code, "give its next batch")
        batch._owned = True
        return batch if batch.array.release != NULL else None

    cdef int _raise_stream_error(self, int code, str verb) except -1:
        cdef const char *reason
        if code == 0:
            return 0
        reason = self._stream.get_last_error(self._stream)
        text = (reason if reason != NULL else strerror(code)).decode("utf-8", "replace")
        raise ValueError(f"the Arrow stream cannot {verb}: {text}")


def rows_at_hand(data):
    """Return the number of rows of data that know it without being read; 0 for others, such as streams.

    A duckdb relation has a length too, but it runs the query: so only the length of listed types is read.
    """
    for name in ("num_rows", "height"):  # pyarrow's, also for numpy columns, and polars'
        rows = getattr(data, name, None)
        if isinstance(rows, int):
            return rows
    pandas = sys.modules.get("pandas")
    if hasattr(data, "__arrow_c_array__") or (pandas is not None and isinstance(data, pandas.DataFrame)):
        return len(data) if hasattr(data, "__len__") else 0
    return 0


cdef int64_t child_index(const ArrowSchema *schema, str name) except -2:
    """Return the index of the column `name`, -1 if there is none. Raise ValueError if there are several."""
    cdef int64_t i, found = -1
    cdef bytes wanted = name.encode()
    for i in range(schema.n_children):
        if schema.children[i].name != NULL and strcmp(schema.children[i].name, wanted) == 0:
            if found >= 0:
                raise ValueError(f"two columns are named {name!r}: rename one of them")
            found = i
    return found


cdef object _type_error(str name, const ArrowSchema *schema, str expected):
    described = schema.format.decode("utf-8", "replace")
    if schema.dictionary != NULL:
        described += " -> " + schema.dictionary.format.decode("utf-8", "replace")
    return TypeError(f"column {name!r} must be {expected}; its Arrow format is {described!r}")


cdef const uint8_t *_validity(const ArrowArray *array) noexcept:
    """Return the validity bits, or NULL if no row is null; a null count of -1 means "not counted"."""
    return NULL if array.null_count == 0 or array.n_buffers == 0 else <const uint8_t *>array.buffers[0]


cdef class Column:
    """A named column; `bind` checks its type and points it to the buffers of one batch."""

    def __init__(self, str name):
        self.name = name

    cdef int bind(self, const ArrowSchema *schema, const ArrowArray *array, int64_t parent_offset) except -1:
        raise NotImplementedError


cdef class BinaryColumn(Column):
    """A column of any binary-like type: key, value, and both sides of headers."""

    cdef int bind(self, const ArrowSchema *schema, const ArrowArray *array, int64_t parent_offset) except -1:
        if schema.dictionary == NULL:
            self._bind(&self.column, schema, array, parent_offset)
            return 0
        width = _INDEX_WIDTHS.get(<bytes>schema.format)
        if width is None or schema.dictionary.dictionary != NULL:
            raise _type_error(self.name, schema, _BINARY_TYPES)
        self._bind(&self._dictionary, schema.dictionary, array.dictionary, 0)
        self.column.kind = KB_COLUMN_DICTIONARY
        self.column.width = width
        self.column.validity = _validity(array)
        self.column.offset = parent_offset + array.offset
        self.column.length = array.length
        self.column.index = array.buffers[1]
        self.column.dictionary = &self._dictionary
        return 0

    cdef int _bind(self, kb_column *column, const ArrowSchema *schema, const ArrowArray *array,
                   int64_t parent_offset) except -1:
        if strncmp(schema.format, b"w:", 2) == 0:
            kind, width = KB_COLUMN_FIXED, atoll(schema.format + 2)
        else:
            kind, width = _BINARY_FORMATS.get(<bytes>schema.format, (-1, 0))
            if kind == -1:
                raise _type_error(self.name, schema, _BINARY_TYPES)
        memset(column, 0, sizeof(kb_column))
        column.kind = kind
        column.width = width
        column.offset = parent_offset + array.offset
        column.length = array.length
        if column.kind == KB_COLUMN_NULL:
            return 0
        column.validity = _validity(array)
        column.index = array.buffers[1]
        column.data = <const uint8_t *>(array.buffers[1] if column.kind == KB_COLUMN_FIXED
                                        else array.buffers[2])
        column.view_data = <const uint8_t *const *>(array.buffers + 2)
        return 0


cdef bint _is_string(const ArrowSchema *schema) except -1:
    cdef const ArrowSchema *plain = schema if schema.dictionary == NULL else schema.dictionary
    return <bytes>plain.format in (b"u", b"U", b"vu")


@cython.final
cdef class StringColumn(BinaryColumn):
    """A column of text, or of nulls only: the topic."""

    cdef int bind(self, const ArrowSchema *schema, const ArrowArray *array, int64_t parent_offset) except -1:
        if not _is_string(schema) and strcmp(schema.format, b"n") != 0:
            raise _type_error(self.name, schema,
                              "string, large_string, string_view, a dictionary of those, or null")
        return BinaryColumn.bind(self, schema, array, parent_offset)


@cython.final
cdef class IntColumn(Column):
    """A column of int32: the partition."""

    cdef int bind(self, const ArrowSchema *schema, const ArrowArray *array, int64_t parent_offset) except -1:
        if strcmp(schema.format, b"i") != 0 or schema.dictionary != NULL:
            raise _type_error(self.name, schema, "int32")
        self.validity = _validity(array)
        self.values = <const int32_t *>array.buffers[1]
        self.offset = parent_offset + array.offset
        return 0


@cython.final
cdef class TimestampColumn(Column):
    """A column of timestamps of any unit, or int64 milliseconds."""

    cdef int bind(self, const ArrowSchema *schema, const ArrowArray *array, int64_t parent_offset) except -1:
        # tss:, tsm:, tsu: or tsn: and a time zone, which is irrelevant: values count from the epoch in UTC
        unit = _TIMESTAMP_UNITS.get((<bytes>schema.format)[:4])
        if unit is None or schema.dictionary != NULL:
            raise _type_error(self.name, schema, "a timestamp, or int64 milliseconds")
        self.unit = unit
        self.validity = _validity(array)
        self.values = <const int64_t *>array.buffers[1]
        self.offset = parent_offset + array.offset
        return 0

    cdef int64_t fill(self, int64_t first, int64_t count, int64_t now_ms,
                      int64_t *timestamps_ms) noexcept nogil:
        """Fill in milliseconds, rounded down; null is `now_ms`. Return `count`, or the first row that is out
        of range.
        """
        cdef const int64_t *values = self.values + self.offset + first
        cdef int64_t i
        if self.unit == UNIT_S:
            for i in range(count):
                timestamps_ms[i] = values[i] * 1000 if -1 <= values[i] <= INT64_MAX // 1000 else INT64_MIN
        elif self.unit == UNIT_MS:
            for i in range(count):
                timestamps_ms[i] = values[i]
        elif self.unit == UNIT_US:
            for i in range(count):
                timestamps_ms[i] = values[i] // 1000 if values[i] >= 0 else INT64_MIN
        else:
            for i in range(count):
                timestamps_ms[i] = values[i] // 1000000 if values[i] >= 0 else INT64_MIN
        if self.validity != NULL:
            for i in range(count):
                if not kb_is_valid(self.validity, self.offset + first + i):
                    timestamps_ms[i] = now_ms
        for i in range(count):
            if timestamps_ms[i] < -1 or timestamps_ms[i] == INT64_MAX:
                return i
        return count


@cython.final
cdef class HeadersColumn(Column):
    """A column of list<struct<key, value>> (or large_list), or map<string, binary>."""

    def __init__(self, str name):
        super().__init__(name)
        self.keys = BinaryColumn(f"{name}.key")
        self.values = BinaryColumn(f"{name}.value")

    cdef int bind(self, const ArrowSchema *schema, const ArrowArray *array, int64_t parent_offset) except -1:
        cdef const ArrowSchema *item
        cdef const ArrowArray *items
        cdef int64_t key, value
        if <bytes>schema.format not in (b"+l", b"+L", b"+m") or strcmp(schema.children[0].format, b"+s") != 0:
            raise self._wrong_type(schema)
        item = schema.children[0]
        items = array.children[0]
        if strcmp(schema.format, b"+m") == 0:
            key, value = 0, 1  # by position: the fields of a map may have any name
        else:
            key, value = child_index(item, "key"), child_index(item, "value")
        if item.n_children != 2 or key < 0 or value < 0 or not _is_string(item.children[key]):
            raise self._wrong_type(schema)
        self.validity = _validity(array)
        self.offset = parent_offset + array.offset
        self.offsets32 = self.offsets64 = NULL
        if strcmp(schema.format, b"+L") == 0:
            self.offsets64 = <const int64_t *>array.buffers[1]
        else:
            self.offsets32 = <const int32_t *>array.buffers[1]
        self.item_validity = _validity(items)
        self.item_offset = items.offset
        self.keys.bind(item.children[key], items.children[key], items.offset)
        self.values.bind(item.children[value], items.children[value], items.offset)
        return 0

    cdef object _wrong_type(self, const ArrowSchema *schema):
        return _type_error(
            self.name, schema,
            "list<struct<key: string, value: binary>> or map<string, binary>, also large ones"
        )

    cdef int64_t start(self, int64_t row) noexcept nogil:
        """Return the bounds of a row's headers among the items."""
        row += self.offset
        return self.offsets64[row] if self.offsets64 != NULL else self.offsets32[row]

    cdef int64_t fill(self, int64_t first, int64_t count, int64_t *starts, int64_t *counts,
                      kb_record_header *headers, int *why) noexcept nogil:
        """Fill in headers. Return `count`, or the first refused row, with `why` (header_faults)."""
        cdef int64_t origin = self.start(first)
        cdef int64_t items = self.start(first + count) - origin
        cdef kb_span *spans = <kb_span *>headers
        cdef int64_t row, i
        cdef int64_t good_keys = kb_column_spans(&self.keys.column, origin, items, spans, 2)
        cdef int64_t good_values = kb_column_spans(&self.values.column, origin, items, spans + 1, 2)
        for row in range(count):
            starts[row] = self.start(first + row) - origin
            counts[row] = self.start(first + row + 1) - origin - starts[row]
            if not kb_is_valid(self.validity, self.offset + first + row):
                counts[row] = 0
            for i in range(starts[row], starts[row] + counts[row]):
                why[0] = self._fault(headers + i, i, min(good_keys, good_values), origin)
                if why[0] >= 0:
                    return row
        return count

    cdef int _fault(self, const kb_record_header *header, int64_t item, int64_t good,
                    int64_t origin) noexcept nogil:
        if item >= good:
            return 0
        if not kb_is_valid(self.item_validity, self.item_offset + origin + item):
            return 1
        if header.key.size < 0:
            return 2
        return 3 if not kb_is_utf8(header.key.data, header.key.size) else -1

