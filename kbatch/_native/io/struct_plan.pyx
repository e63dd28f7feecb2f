"""StructPlan: the structs of messages, read and written without a step of Python.

Theory of operation. A plan describes a struct of a message in one version: a step for each field, in wire
order. It handles the usual cases and gives up otherwise: for unreadable or unwritable values, or tagged
fields. Then it returns None, having changed nothing, and the readers and writers of kbatch.protocol start
again, which handle everything and explain faults. No message with records has a plan: `produce_wire` and
`fetch_answer` have the steps for those.

Reading has one bound, the end of the data, and every step checks for its bytes first. Writing goes into a
growing space.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Realloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from "Python.h":
    object PyType_GenericAlloc(type kind, Py_ssize_t count)
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    int64_t PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1
    bint PyLong_Check(object value)

# As in kbatch.protocol.wire.
cdef Py_ssize_t MAX_STRING_BYTES = 32767
cdef Py_ssize_t FIRST_ROOM = 512

cdef enum Kind:
    INTEGER, BOOL, UUID, STRING, BYTES, STRUCT

KINDS = {
    "int8": (INTEGER, 1, True),
    "int16": (INTEGER, 2, True),
    "int32": (INTEGER, 4, True),
    "int64": (INTEGER, 8, True),
    "uint16": (INTEGER, 2, False),
    "uint32": (INTEGER, 4, False),
    "bool": (BOOL, 1, False),
    "uuid": (UUID, 16, False),
    "string": (STRING, 0, False),
    "bytes": (BYTES, 0, False),
}

cdef struct Step:
    Kind kind
    int width  # in bytes, for fixed widths
    bint is_signed
    bint is_array
    bint is_nullable
    bint is_compact

cdef struct Source:
    const uint8_t *data
    Py_ssize_t pos
    Py_ssize_t end
    bint failed

cdef struct Space:
    uint8_t *data
    Py_ssize_t size
    Py_ssize_t room
    bint failed


@cython.final
cdef class StructPlan:
    """A struct of a message, in one version.

    Parameters
    ----------
    kind : type
        The class of the struct.
    fields : list of (name, type, is_array, is_nullable, is_compact)
        The fields on the wire, in order; `type` is a key of `KINDS` or a StructPlan.
    others : list of (name, default)
        Absent or tagged fields: their values after reading. A type is called for each; a StructPlan stands
        for a struct of defaults.
    unwritten : list of (name, default)
        Those that must have their default for writing.
    is_flexible : bool
        Whether tagged fields end it.
    """

    cdef type _kind
    cdef Step *_steps
    cdef Py_ssize_t _count
    cdef list _names, _inner, _others, _unwritten
    cdef bint _is_flexible

    def __cinit__(self, type kind not None, list fields not None, list others not None,
                  list unwritten not None, bint is_flexible):
        cdef Py_ssize_t i
        cdef Step *step
        self._steps = <Step *>PyMem_Calloc(max(len(fields), 1), sizeof(Step))
        if self._steps == NULL:
            raise MemoryError
        self._kind = kind
        self._count = len(fields)
        self._names = []
        self._inner = []
        self._others = others
        self._unwritten = unwritten
        self._is_flexible = is_flexible
        for i, (name, type_, is_array, is_nullable, is_compact) in enumerate(fields):
            step = &self._steps[i]
            step.is_array, step.is_nullable, step.is_compact = is_array, is_nullable, is_compact
            if isinstance(type_, StructPlan):
                step.kind = STRUCT
            else:
                step.kind, step.width, step.is_signed = KINDS[type_]
            self._names.append(name)
            self._inner.append(type_ if isinstance(type_, StructPlan) else None)

    def __dealloc__(self):
        PyMem_Free(self._steps)

    def read(self, data not None, Py_ssize_t pos):
        """Read the struct at `pos` of `data`, which is contiguous.

        Returns
        -------
        (object, int) or None
            The struct and the position after it; None in an unusual case.
        """
        cdef Py_buffer buffer
        cdef Source source
        cdef object found
        PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
        try:
            source.data, source.pos, source.end = <const uint8_t *>buffer.buf, pos, buffer.len
            source.failed = not 0 <= pos <= buffer.len
            found = None if source.failed else read_struct(self, &source)
        finally:
            PyBuffer_Release(&buffer)
        return None if source.failed else (found, source.pos)

    def frame(self, bytes head not None, message not None):
        """Write a frame: size, header, message.

        Parameters
        ----------
        head : bytes
            The header.
        message : object
            A message of the plan's class.

        Returns
        -------
        bytes or None
            None in an unusual case.
        """
        cdef Space space
        space.data, space.size, space.room, space.failed = NULL, 4, 0, type(message) is not self._kind
        try:
            put(&space, PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head))
            if not space.failed:
                write_struct(self, message, &space)
            if space.failed or space.size - 4 > INT32_MAX:
                return None
            store(space.data, space.size - 4, 4)
            return PyBytes_FromStringAndSize(<const char *>space.data, space.size)
        except (AttributeError, UnicodeError):
            return None
        finally:
            PyMem_Free(space.data)


# Reading


cdef object read_struct(StructPlan plan, Source *source):
    cdef object made = PyType_GenericAlloc(plan._kind, 0)
    cdef Py_ssize_t i
    cdef object value
    set_defaults(plan, made)
    for i in range(plan._count):
        value = read_field(plan, &plan._steps[i], i, source)
        if source.failed:
            return None
        setattr(made, <str>plan._names[i], value)
    if plan._is_flexible and take(source, 1) and source.data[source.pos - 1] != 0:
        source.failed = True
    return made


cdef int set_defaults(StructPlan plan, object made) except -1:
    cdef object name, value
    for name, value in plan._others:
        if type(value) is StructPlan:
            default = PyType_GenericAlloc((<StructPlan>value)._kind, 0)
            set_defaults(<StructPlan>value, default)
            value = default
        elif value is list:
            value = []
        setattr(made, <str>name, value)
    return 0


cdef object read_field(StructPlan plan, Step *step, Py_ssize_t i, Source *source):
    cdef int64_t count
    cdef list values
    if not step.is_array:
        return read_value(plan, step, i, source)
    count = read_length(step, source, 4)
    if count < 0:
        return None
    if count > source.end - source.pos:  # each takes a byte, unless it takes none at all
        source.failed = True
        return None
    values = []
    while count > 0 and not source.failed:
        values.append(read_value(plan, step, i, source))
        count -= 1
    return values


cdef object read_value(StructPlan plan, Step *step, Py_ssize_t i, Source *source):
    cdef const uint8_t *here = source.data + source.pos
    cdef int64_t length
    if step.kind == STRUCT:
        return read_struct(<StructPlan>plan._inner[i], source)
    if step.kind == INTEGER:
        return read_integer(here, step) if take(source, step.width) else None
    if step.kind == BOOL:
        return here[0] != 0 if take(source, 1) else None
    if step.kind == UUID:
        return PyBytes_FromStringAndSize(<const char *>here, 16) if take(source, 16) else None
    length = read_length(step, source, 2 if step.kind == STRING else 4)
    here = source.data + source.pos
    if length < 0 or not take(source, length):
        return None
    if step.kind == BYTES:
        return PyBytes_FromStringAndSize(<const char *>here, length)
    source.failed = step.kind != STRING or length > MAX_STRING_BYTES
    return None if source.failed else read_text(<const char *>here, length, source)


cdef object read_text(const char *text, Py_ssize_t size, Source *source):
    try:
        return PyUnicode_DecodeUTF8(text, size, NULL)
    except UnicodeDecodeError:
        source.failed = True
        return None


cdef object read_integer(const uint8_t *here, Step *step):
    cdef uint64_t value = 0
    cdef int i
    for i in range(step.width):
        value = value << 8 | here[i]
    if not step.is_signed:
        return value
    i = 64 - 8 * step.width
    return <int64_t>(value << i) >> i


cdef int64_t read_length(Step *step, Source *source, int width) noexcept:
    """Read the length of an array, or of a non-compact value with `width` bytes of length; -1 for null, or
    set failed.
    """
    cdef int64_t length = -1
    cdef const uint8_t *here = source.data + source.pos
    if step.is_compact:
        length = read_uvarint(source) - 1
    elif take(source, width):
        length = <int16_t>(here[0] << 8 | here[1])
        if width == 4:
            length = <int32_t>(<uint32_t>here[0] << 24 | here[1] << 16 | here[2] << 8 | here[3])
    if length < -1 or (length < 0 and not step.is_nullable):
        source.failed = True
    return max(length, <int64_t>-1)


cdef int64_t read_uvarint(Source *source) noexcept:
    """Read a varint of at most four bytes."""
    cdef int64_t value = 0
    cdef int shift = 0
    while shift < 28 and take(source, 1):
        value |= <int64_t>(source.data[source.pos - 1] & 0x7F) << shift
        if source.data[source.pos - 1] < 0x80:
            return value
        shift += 7
    source.failed = True
    return 0


cdef bint take(Source *source, int64_t count) noexcept:
    """True if there are this many more bytes, which are after `pos` then."""
    if source.failed or count > source.end - source.pos:
        source.failed = True
        return False
    source.pos += count
    return True


# Writing


cdef int write_struct(StructPlan plan, object message, Space *space) except -1:
    cdef object name, default
    cdef Py_ssize_t i
    for name, default in plan._unwritten:
        if not is_default(getattr(message, <str>name), default):
            space.failed = True
    for i in range(plan._count):
        if space.failed:
            return 0
        write_field(plan, i, getattr(message, <str>plan._names[i]), space)
    if plan._is_flexible:
        put_uvarint(space, 0)
    return 0


cdef bint is_default(object value, object default) except -1:
    cdef object name, inner
    if default is list:
        return type(value) is list and not value
    if type(default) is StructPlan:
        for name, inner in (<StructPlan>default)._others:
            if not is_default(getattr(value, <str>name), inner):
                return False
        return True
    return value is default or value == default


cdef int write_field(StructPlan plan, Py_ssize_t i, object value, Space *space) except -1:
    cdef Step *step = &plan._steps[i]
    cdef object each
    if value is None:
        put_null(space, step)
    elif not step.is_array:
        write_value(plan, i, value, space)
    elif type(value) is not list:
        space.failed = True
    else:
        put_length(space, step, PyList_GET_SIZE(value), 4)
        for each in <list>value:
            write_value(plan, i, each, space)
    return 0


cdef int write_value(StructPlan plan, Py_ssize_t i, object value, Space *space) except -1:
    cdef Step *step = &plan._steps[i]
    cdef const char *text
    cdef Py_ssize_t size
    if step.kind == STRUCT:
        space.failed = space.failed or type(value) is not (<StructPlan>plan._inner[i])._kind
        if not space.failed:
            write_struct(<StructPlan>plan._inner[i], value, space)
    elif step.kind == INTEGER:
        write_integer(space, value, step)
    elif step.kind == BOOL:
        space.failed = space.failed or (value is not True and value is not False)
        put_number(space, value is True, 1)
    elif step.kind == STRING:
        if type(value) is not str:
            space.failed = True
            return 0
        text = PyUnicode_AsUTF8AndSize(value, &size)
        space.failed = space.failed or size > MAX_STRING_BYTES
        put_length(space, step, size, 2)
        put(space, text, size)
    elif type(value) is not bytes or (step.kind == UUID and PyBytes_GET_SIZE(value) != 16):
        space.failed = True
    else:
        if step.kind == BYTES:
            put_length(space, step, PyBytes_GET_SIZE(value), 4)
        put(space, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
    return 0


cdef int write_integer(Space *space, object value, Step *step) except -1:
    cdef int overflow = 0
    cdef int bits = 8 * step.width - step.is_signed
    cdef int64_t number
    if not PyLong_Check(value):
        space.failed = True
        return 0
    number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow or (bits < 63 and (number >= <int64_t>1 << bits
                                   or number < -(<int64_t>step.is_signed << bits))):
        space.failed = True
    put_number(space, <uint64_t>number, step.width)
    return 0


cdef void put_null(Space *space, Step *step) noexcept:
    if not step.is_nullable or (step.kind == STRUCT and not step.is_array):
        space.failed = True
    elif step.is_compact:
        put_number(space, 0, 1)
    else:
        put_number(space, <uint64_t>-1, 2 if step.kind == STRING and not step.is_array else 4)


cdef void put_length(Space *space, Step *step, Py_ssize_t length, int width) noexcept:
    if step.is_compact:
        put_uvarint(space, length + 1)
    else:
        put_number(space, length, width)


cdef void put_uvarint(Space *space, uint64_t value) noexcept:
    cdef uint8_t byte
    while value >= 0x80:
        byte = <uint8_t>(value & 0x7F | 0x80)
        put(space, <const char *>&byte, 1)
        value >>= 7
    byte = <uint8_t>value
    put(space, <const char *>&byte, 1)


cdef void put_number(Space *space, uint64_t value, int width) noexcept:
    cdef uint8_t number[8]
    store(number, value, width)
    put(space, <const char *>number, width)


cdef void store(uint8_t *here, uint64_t value, int width) noexcept:
    cdef int i
    for i in range(width):
        here[width - 1 - i] = <uint8_t>(value >> (8 * i))


cdef void put(Space *space, const char *data, Py_ssize_t size) noexcept:
    cdef Py_ssize_t room
    cdef void *grown
    if space.failed:
        return
    if size > space.room - space.size:
        room = max(FIRST_ROOM, 2 * (space.size + size))
        grown = PyMem_Realloc(space.data, room)
        if grown == NULL:
            space.failed = True  # Python's writer finds no memory either, and says so
            return
        space.data, space.room = <uint8_t *>grown, room
    memcpy(space.data + space.size, data, size)
    space.size += size
