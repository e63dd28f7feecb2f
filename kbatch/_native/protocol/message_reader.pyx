"""Messages out of bytes: steps, made once for each class and version, that fill the slots of its structs.

A step reads one field. `kbatch/protocol/readers.py` makes the steps from the tables, and explains them; here
they are taken. No step trusts a length before it has compared it with the rest, and each knows its field, so
an error can name it.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from kbatch.errors import ProtocolError

cdef extern from *:
    """
    #include <structmember.h>

    /* Return where objects keep the value of a slot; -1 if it is no slot for an object. */
    static Py_ssize_t kb_slot_offset(PyObject *slot) {
        if (!Py_IS_TYPE(slot, &PyMemberDescr_Type))
            return -1;
        PyMemberDef *member = ((PyMemberDescrObject *)slot)->d_member;
        return member->type == T_OBJECT_EX ? member->offset : -1;
    }

    /* Return a new object of a class that has only slots, all of them empty. */
    static PyObject *kb_new_struct(PyObject *kind) {
        return ((PyTypeObject *)kind)->tp_alloc((PyTypeObject *)kind, 0);
    }

    static void kb_set_slot(PyObject *target, Py_ssize_t offset, PyObject *value) {
        PyObject **slot = (PyObject **)((char *)target + offset);
        PyObject *before = *slot;
        Py_INCREF(value);
        *slot = value;
        Py_XDECREF(before);
    }
    """
    Py_ssize_t kb_slot_offset(object slot)
    object kb_new_struct(object kind)
    void kb_set_slot(object target, Py_ssize_t offset, object value)

cdef extern from "bytes.h" nogil:
    uint16_t kb_load_be16(const uint8_t *source) noexcept
    uint32_t kb_load_be32(const uint8_t *source) noexcept
    uint64_t kb_load_be64(const uint8_t *source) noexcept

# A string's length is an int16; Kafka keeps that limit for compact lengths.
cdef enum:
    MAX_STRING_BYTES = 32767
    # Arrays within arrays.
    MAX_DEPTH = 16

# The kinds of steps; `readers.py` explains them. First those of a fixed width, then other values.
cpdef enum StepKind:
    NEEDS
    BOOL
    INT8
    INT16
    INT32
    INT64
    UINT16
    UINT32
    FLOAT64
    UUID
    TEXT
    BYTES
    RECORDS
    ARRAY
    STRUCT
    DEFAULT
    EMPTY_ARRAY
    NEW_STRUCT
    TAGGED
    NO_TAGS
    PASS
    PASS_TEXT
    PASS_BYTES
    PASS_VALUES
    PASS_ARRAY

cdef struct Step:
    StepKind kind
    bint is_compact         # its length is a varint, one more than the length
    bint is_nullable
    StepKind element        # of an array: STRUCT, or the kind of its values
    Py_ssize_t slot         # the place of the value in the struct
    Py_ssize_t width        # the bytes of a value of a fixed width; the fewest of an element
    int path                # the field, as an index into `MessageReader.paths`
    int depth               # how many structs the field is in
    int64_t tag
    int repeated            # which of the arrays of repeated elements; -1 if none
    PyObject *value         # a default
    PyObject *inner         # a StructReader: of the struct, the element or the tagged fields

cdef struct Place:
    const uint8_t *data
    Py_ssize_t size
    Py_ssize_t pos
    int path                             # of the step that is taken
    Py_ssize_t indices[MAX_DEPTH]        # by depth, in arrays
    PyObject *view
    PyObject *before                     # by repeated array the elements of the last one


class _EndError(Exception):
    """The message ends too early."""


cdef class StructReader:
    """The steps of a struct, or of what is in a field.

    Parameters
    ----------
    kind : type of Struct or None
        Its class; None for steps that fill no struct.
    steps : list of tuple
        Each has the values of a Step, in the order of its fields.
    """

    cdef object kind
    cdef list kept
    cdef Step *steps
    cdef Py_ssize_t count

    def __cinit__(self, kind, list steps):
        cdef Step *step
        cdef Py_ssize_t index
        self.kind = kind
        self.kept = steps
        self.count = len(steps)
        self.steps = <Step *>PyMem_Calloc(max(self.count, 1), sizeof(Step))
        if self.steps is NULL:
            raise MemoryError()
        for index in range(self.count):
            step = &self.steps[index]
            (step.kind, step.is_compact, step.is_nullable, step.element, slot, step.width, step.path,
             step.depth, step.tag, step.repeated, value, inner) = steps[index]
            if step.depth >= MAX_DEPTH:
                raise ValueError(f"{kind}: structs within {step.depth} others")
            step.slot = -1 if slot is None else kb_slot_offset(getattr(kind, slot))
            if slot is not None and step.slot < 0:
                raise ValueError(f"{kind.__qualname__}.{slot} is no slot")
            step.value = <PyObject *>value
            step.inner = <PyObject *>inner

    def __dealloc__(self):
        PyMem_Free(self.steps)


cdef class MessageReader:
    """Reads the messages of a class in one version.

    Parameters
    ----------
    name : str
        The class and the version, for errors.
    root : StructReader
    paths : list of str
        The fields that steps name, with `{i0}` for the index at depth 0.
    repeated_count : int
    """

    cdef str name
    cdef StructReader root
    cdef list paths
    cdef int repeated_count

    def __cinit__(self, str name, StructReader root, list paths, int repeated_count):
        self.name = name
        self.root = root
        self.paths = paths
        self.repeated_count = repeated_count

    def read(self, view, Py_ssize_t start):
        """Return the message at a position of a view of bytes, and the position after it. Its records are
        views of these. Raise ProtocolError.
        """
        cdef Py_buffer buffer
        cdef Place place
        cdef list before = [[] for _ in range(self.repeated_count)]
        PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
        try:
            place.data = <const uint8_t *>buffer.buf
            place.size = buffer.len
            place.pos = start
            place.path = 0
            memset(place.indices, 0, sizeof(place.indices))
            place.view = <PyObject *>view
            place.before = <PyObject *>before
            return read_struct(self.root, &place), place.pos
        except _EndError:
            raise ProtocolError(f"{self._failed(&place)}: it ends at byte {buffer.len}") from None
        except ValueError as error:
            raise ProtocolError(f"{self._failed(&place)}: {error}") from error
        finally:
            PyBuffer_Release(&buffer)

    cdef str _failed(self, Place *place):
        """Return the message and its field that cannot be read."""
        cdef int depth
        indices = {f"i{depth}": place.indices[depth] for depth in range(MAX_DEPTH)}
        return f"{self.name}, {self.paths[place.path].format_map(indices)}"


cdef object read_struct(StructReader reader, Place *place):
    made = kb_new_struct(reader.kind)
    take_steps(reader, made, place)
    return made


cdef int take_steps(StructReader reader, object target, Place *place) except -1:
    """Fill a struct."""
    cdef Step *step = reader.steps
    cdef Step *end = step + reader.count
    while step < end:
        if step.kind <= UUID:
            if step.kind == NEEDS:
                need(step, place, step.width)
            else:
                kb_set_slot(target, step.slot, fixed_value(step.kind, place))
        elif step.kind <= STRUCT:
            kb_set_slot(target, step.slot, read_value(step, step.kind, place))
        elif step.kind == DEFAULT:
            kb_set_slot(target, step.slot, <object>step.value)
        elif step.kind == EMPTY_ARRAY:
            kb_set_slot(target, step.slot, [])
        elif step.kind == NEW_STRUCT:
            kb_set_slot(target, step.slot, read_struct(<StructReader>step.inner, place))
        elif step.kind == TAGGED:
            read_tags(step, target, place)
        else:
            pass_over(step, place)
        step += 1
    return 0


cdef inline int need(Step *step, Place *place, Py_ssize_t size) except -1:
    """Raise _EndError unless as many bytes are left."""
    place.path = step.path
    if place.size - place.pos < size:
        raise _EndError
    return 0


cdef object fixed_value(StepKind kind, Place *place):
    """Read a value whose bytes are there."""
    cdef const uint8_t *data = place.data + place.pos
    cdef uint64_t bits
    cdef double number
    if kind == INT32:
        place.pos += 4
        return <int32_t>kb_load_be32(data)
    if kind == INT64:
        place.pos += 8
        return <int64_t>kb_load_be64(data)
    if kind == INT16:
        place.pos += 2
        return <int16_t>kb_load_be16(data)
    if kind == INT8:
        place.pos += 1
        return <int8_t>data[0]
    if kind == BOOL:
        place.pos += 1
        return data[0] != 0
    if kind == UUID:
        place.pos += 16
        return PyBytes_FromStringAndSize(<const char *>data, 16)
    if kind == UINT16:
        place.pos += 2
        return kb_load_be16(data)
    if kind == UINT32:
        place.pos += 4
        return kb_load_be32(data)
    bits = kb_load_be64(data)
    memcpy(&number, &bits, 8)
    place.pos += 8
    return number


cdef object read_value(Step *step, StepKind kind, Place *place):
    """Read a value of this kind: a field, an element or a tagged field."""
    cdef Py_ssize_t size
    if kind <= UUID:
        need(step, place, step.width)
        return fixed_value(kind, place)
    if kind == STRUCT:
        if step.is_nullable and read_null_marker(step, place):
            return None
        return read_struct(<StructReader>step.inner, place)
    size = read_length(step, kind, place)
    if size < 0:
        if step.is_nullable:
            return None
        raise ValueError("null is not allowed")
    if kind == ARRAY:
        return read_array(step, size, place)
    place.pos += size
    if kind == TEXT:
        if size > MAX_STRING_BYTES:
            raise ValueError(f"a string of {size} bytes")
        return PyUnicode_DecodeUTF8(<const char *>place.data + place.pos - size, size, NULL)
    if kind == BYTES:
        return PyBytes_FromStringAndSize(<const char *>place.data + place.pos - size, size)
    return (<object>place.view)[place.pos - size:place.pos]


cdef list read_array(Step *step, Py_ssize_t count, Place *place):
    cdef StructReader inner
    cdef Step *element
    cdef Py_ssize_t index
    cdef list values = []
    if step.element != STRUCT and step.element <= UUID:
        # the length was compared with the rest
        for index in range(count):
            values.append(fixed_value(step.element, place))
        return values
    inner = <StructReader>step.inner
    if step.element != STRUCT:
        element = inner.steps
        for index in range(count):
            place.indices[step.depth] = index
            values.append(read_value(element, element.kind, place))
    elif step.repeated < 0:
        for index in range(count):
            place.indices[step.depth] = index
            values.append(read_struct(inner, place))
    else:
        for index in range(count):
            place.indices[step.depth] = index
            values.append(read_repeated(inner, <list>(<list>place.before)[step.repeated], index, place))
    return values


cdef object read_repeated(StructReader inner, list before, Py_ssize_t index, Place *place):
    """Take the struct from the array before if its bytes come again, or read it. `before` has position, size
    and object by the index.
    """
    cdef Py_ssize_t start = place.pos
    cdef Py_ssize_t known, size
    if index < len(before):
        known, size, found = before[index]
        if size <= place.size - start and memcmp(place.data + start, place.data + known, size) == 0:
            place.pos += size
            return found
    found = read_struct(inner, place)
    before[index:index + 1] = [(start, place.pos - start, found)]
    return found


# Lengths


cdef Py_ssize_t read_length(Step *step, StepKind kind, Place *place) except? -2:
    """Read the length of a value, -1 for null, and compare it with the rest."""
    cdef int64_t length, left
    cdef Py_ssize_t width = step.width if kind in (ARRAY, PASS_VALUES, PASS_ARRAY) else 1
    if step.is_compact:
        need(step, place, 1)
        length = <int64_t>place.data[place.pos] - 1
        place.pos += 1
        if length > 126:
            length = rest_of_varint(step, place, length)
    elif kind in (TEXT, PASS_TEXT):
        need(step, place, 2)
        length = <int16_t>kb_load_be16(place.data + place.pos)
        place.pos += 2
    else:
        need(step, place, 4)
        length = <int32_t>kb_load_be32(place.data + place.pos)
        place.pos += 4
    left = place.size - place.pos
    if length < -1 or length * width > left:
        refuse_length(length, width, left)
    return length


cdef int64_t rest_of_varint(Step *step, Place *place, int64_t length) except? -2:
    """Read the rest of a compact length of several bytes, a varint of one more, like Kafka also if it is
    longer than needed; `length` is from the first byte.
    """
    cdef int shift
    for shift in (7, 14, 21, 28):
        need(step, place, 1)
        length += (<int64_t>place.data[place.pos] << shift) - (<int64_t>1 << shift)
        place.pos += 1
        if shift < 28 and length < (<int64_t>1 << (shift + 7)) - 1:
            return length
    if length > <int64_t>0xFFFFFFFE:
        raise ValueError("a varint of more than 32 bits")
    return length


cdef int refuse_length(int64_t length, int64_t width, int64_t left) except -1:
    if length < -1:
        raise ValueError(f"a length of {length}")
    raise ValueError(f"a length of {length}, {length * width} bytes or more, but {left} are left")


cdef bint read_null_marker(Step *step, Place *place) except -1:
    """Read the marker of a struct that may be null (KIP-893): -1 is null, 1 is present."""
    cdef uint8_t marker
    need(step, place, 1)
    marker = place.data[place.pos]
    if marker not in (1, 0xFF):
        raise ValueError(f"the marker of a struct is {marker}, neither 1 nor -1")
    place.pos += 1
    return marker == 0xFF


# Tagged fields (KIP-482)


cdef int64_t read_uvarint(Step *step, Place *place) except -1:
    cdef int64_t value
    need(step, place, 1)
    value = place.data[place.pos]
    place.pos += 1
    return value if value < 0x80 else rest_of_varint(step, place, value - 1) + 1


cdef Py_ssize_t next_tag(Step *step, Place *place, int64_t *tag) except -1:
    """Read the next tag, which must be above the last one, and return the end of its value."""
    cdef int64_t last = tag[0], size
    tag[0] = read_uvarint(step, place)
    if tag[0] <= last:
        raise ValueError(f"tag {tag[0]} after tag {last}")
    size = read_uvarint(step, place)
    if size > place.size - place.pos:
        refuse_length(size, 1, place.size - place.pos)
    return place.pos + size


cdef int read_tags(Step *step, object target, Place *place) except -1:
    """Read tagged fields; those that are not known are skipped."""
    cdef StructReader known = <StructReader>step.inner
    cdef Step *field
    cdef int64_t tag = -1
    cdef int64_t count = read_uvarint(step, place)
    cdef Py_ssize_t end, index
    while count > 0:
        count -= 1
        end = next_tag(step, place, &tag)
        for index in range(known.count):
            field = &known.steps[index]
            if field.tag == tag:
                kb_set_slot(target, field.slot, read_value(field, field.kind, place))
                if place.pos != end:
                    place.path = field.path
                    raise ValueError("its value ends before or after its tagged field")
                break
        place.pos = end
    return 0


# What is passed over


cdef int pass_over(Step *step, Place *place) except -1:
    cdef StructReader inner
    cdef Py_ssize_t length, index, each
    cdef int64_t tag = -1, count
    if step.kind == NO_TAGS:
        count = read_uvarint(step, place)
        while count > 0:
            count -= 1
            place.pos = next_tag(step, place, &tag)
    elif step.kind == PASS:
        place.pos += step.width
    else:
        length = read_length(step, step.kind, place)
        if step.kind != PASS_ARRAY:
            place.pos += max(length, 0) * (step.width if step.kind == PASS_VALUES else 1)
            return 0
        inner = <StructReader>step.inner
        for index in range(length):
            place.indices[step.depth] = index
            for each in range(inner.count):
                pass_over(&inner.steps[each], place)
    return 0
