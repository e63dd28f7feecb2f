"""Record: one record, for reading and writing."""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t

from types import GenericAlias

cdef extern from *:
    """
    #define KB_OFFSET(record, field) ((char *)&(record)->field - (char *)(record))
    #define kb_key_offset(record) KB_OFFSET(record, key)
    #define kb_value_offset(record) KB_OFFSET(record, value)
    #define kb_headers_offset(record) KB_OFFSET(record, headers)
    #define kb_topic_offset(record) KB_OFFSET(record, _topic)
    """
    Py_ssize_t kb_key_offset(Record record)
    Py_ssize_t kb_value_offset(Record record)
    Py_ssize_t kb_headers_offset(Record record)
    Py_ssize_t kb_topic_offset(Record record)

cdef extern from "structmember.h":
    ctypedef struct PyMemberDef:
        const char *name
        int type
        Py_ssize_t offset
        int flags
        const char *doc

    int READONLY
    int T_OBJECT_EX

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        PyObject *tp_dict

    object PyDescr_NewMember(PyTypeObject *type, PyMemberDef *member)
    int PyDict_SetItemString(PyObject *dict, const char *name, object item) except -1
    void PyObject_GC_Track(void *object)
    void PyObject_GC_UnTrack(void *object)
    int PyObject_GC_IsTracked(object object)
    void PyType_Modified(PyTypeObject *type)


@cython.final
@cython.no_gc
cdef class RecordOrigin:
    """What the records of a batch have in common, beside the topic's name: one object for all of them."""


cdef RecordOrigin record_origin(bytes topic_id, int32_t partition, int32_t leader_epoch,
                                bint is_log_append_time):
    cdef RecordOrigin origin = RecordOrigin.__new__(RecordOrigin)
    origin.topic_id = topic_id
    origin.partition = partition
    origin.leader_epoch = leader_epoch
    origin.is_log_append_time = is_log_append_time
    return origin


@cython.freelist(1024)  # programs hold the records of a poll for a while
@cython.no_gc  # holds bytes, not containers that could form a cycle
cdef class Record:
    """One record: `kbatch.decode` yields it within a batch, and `kbatch.encode` accepts it.

    Attributes
    ----------
    key, value : bytes-like or None
    headers : tuple of (str, bytes-like or None)
    timestamp_ms : int or None
        Milliseconds since the Unix epoch; -1 is Kafka's "no timestamp", None becomes the time of the call in
        `encode`.
    offset : int
        Offset in the partition's log; -1 if it has none yet. `encode` renumbers records.
    """

    # For annotations, which programs evaluate: ConsumerRecord[str, Order].
    __class_getitem__ = classmethod(GenericAlias)

    def __init__(self, key=None, value=None, headers=(), timestamp_ms=None, int64_t offset=-1):
        self.key = key
        self.value = value
        self.headers = tuple(headers)
        self._has_timestamp = timestamp_ms is not None
        self._timestamp_ms = timestamp_ms if self._has_timestamp else -1
        self.offset = offset

    @property
    def timestamp_ms(self):
        return self._timestamp_ms if self._has_timestamp else None

    def _fields(self):
        return self.key, self.value, self.headers, self.timestamp_ms, self.offset

    def __eq__(self, other):
        if not isinstance(other, Record):
            return NotImplemented
        return self._fields() == (<Record>other)._fields()

    def __hash__(self):
        return hash(self._fields())

    def __reduce__(self):
        return type(self), self._fields()

    def __repr__(self):
        return (f"Record(key={self.key!r}, value={self.value!r}, headers={self.headers!r}, "
                f"timestamp_ms={self.timestamp_ms}, offset={self.offset})")


@cython.no_gc
@cython.nonecheck(True)  # one that __init__ has not filled in has no origin
cdef class ConsumerRecord(Record):
    """A record that was read from a partition (org.apache.kafka.clients.consumer.ConsumerRecord).

    Attributes
    ----------
    key, value : bytes or None
        Of a consumer with deserializers: what they make of `raw_key` and `raw_value`, at first use.
    raw_key, raw_value : bytes or None
        The bytes, with and without deserializers.
    deserialization_error : RecordDeserializationError or None
        Why key or value is None, under on.deserialization.error=null.
    topic : str
    partition : int
    leader_epoch : int
        The epoch of the leader that wrote it; -1 if the broker does not say.
    timestamp_type : "create_time" or "log_append_time"
    topic_id : bytes
        The id of the topic, which another one of the same name does not have; 16 zero bytes if it is unknown.
        It does not count in comparisons.
    """

    def __init__(self, topic, int32_t partition, key=None, value=None, headers=(), timestamp_ms=None,
                 int64_t offset=-1, int32_t leader_epoch=-1, timestamp_type="create_time",
                 bytes topic_id not None=bytes(16)):
        if timestamp_type not in ("create_time", "log_append_time"):
            raise ValueError("timestamp_type must be 'create_time' or 'log_append_time', got "
                             f"{timestamp_type!r}")
        super().__init__(key, value, headers, timestamp_ms, offset)
        self._topic = topic
        self._origin = record_origin(topic_id, partition, leader_epoch, timestamp_type == "log_append_time")

    @property
    def deserialization_error(self):
        return None

    @property
    def partition(self):
        return self._origin.partition

    @property
    def leader_epoch(self):
        return self._origin.leader_epoch

    @property
    def timestamp_type(self):
        return "log_append_time" if self._origin.is_log_append_time else "create_time"

    @property
    def topic_id(self):
        return self._origin.topic_id

    def __reduce__(self):
        return ConsumerRecord, (*self._fields(), self._origin.topic_id)

    def _fields(self):
        return (self._topic, self.partition, self.key, self.value, self.headers, self.timestamp_ms,
                self.offset, self.leader_epoch, self.timestamp_type)

    def __repr__(self):
        return (f"ConsumerRecord(topic={self._topic!r}, partition={self.partition}, key={self.key!r}, "
                f"value={self.value!r}, headers={self.headers!r}, timestamp_ms={self.timestamp_ms}, "
                f"offset={self.offset}, leader_epoch={self.leader_epoch}, "
                f"timestamp_type={self.timestamp_type!r})")


cdef class RecordDecoder:
    """How a consumer makes the keys and values of its records.

    Parameters
    ----------
    key, value : tuple of (Callable, bool), or None
        What makes it of (topic, headers, bytes), or of the bytes alone if the second is True; None leaves
        bytes.
    failed : Callable
        Called with ("key" or "value", record, exception) if that raises. It returns the value to use and the
        error to keep, or raises.
    keeps_errors : bool
        True if it does not raise.
    """

    cdef object _key
    cdef bint _key_of_data
    cdef object _value
    cdef bint _value_of_data
    cdef object _failed
    cdef bint _keeps_errors

    def __init__(self, key, value, failed, *, bint keeps_errors):
        if key is not None:
            self._key, self._key_of_data = key
        if value is not None:
            self._value, self._value_of_data = value
        self._failed = failed
        self._keeps_errors = keeps_errors

    def typed(self, ConsumerRecord record not None):
        """Return a record with the same bytes, whose key and value are made at first use."""
        cdef TypedRecord made = TypedRecord.__new__(TypedRecord)
        # a record without made values refers to nothing that could refer to it
        PyObject_GC_UnTrack(<void *>made)
        made.offset = record.offset
        made._timestamp_ms = record._timestamp_ms
        made._has_timestamp = record._has_timestamp
        made.key = record.key
        made.value = record.value
        made.headers = record.headers
        made._topic = record._topic
        made._origin = record._origin
        made._decoder = self
        return made

    cdef object decode(self, TypedRecord record, bint is_key):
        cdef object function = self._key if is_key else self._value
        cdef object data = record.key if is_key else record.value
        if function is None or data is None:
            return data
        try:
            if self._key_of_data if is_key else self._value_of_data:
                return function(data)
            return function(record._topic, record.headers, data)
        except Exception as error:
            made, failure = self._failed("key" if is_key else "value", record, error)
            record._note_error(failure)
            return made


cdef enum:
    KEY_MADE = 1
    VALUE_MADE = 2


@cython.final
cdef class TypedRecord(ConsumerRecord):
    """A ConsumerRecord whose key and value are made at first use, and kept. The collector sees it only from
    then on: a value may refer to its record.
    """

    cdef RecordDecoder _decoder  # None of one that was pickled
    cdef object _made_key
    cdef object _made_value
    cdef object _error
    cdef object _key_fault  # of one that was pickled: what its key raises
    cdef object _value_fault
    cdef int _made

    cdef object _make(self, bint is_key):
        cdef int bit = KEY_MADE if is_key else VALUE_MADE
        cdef object made = self._key_fault if is_key else self._value_fault  # which do not change
        if made is not None:
            raise made
        if not self._is_made(bit):
            self._keep(self._decoder.decode(self, is_key), is_key)
        return self._made_key if is_key else self._made_value

    @cython.critical_section
    cdef bint _is_made(self, int bit) noexcept:
        return self._made & bit != 0

    @cython.critical_section
    cdef void _note_error(self, object error) noexcept:
        self._error = error

    @cython.critical_section
    cdef object _error_now(self):
        return self._error

    @cython.critical_section
    cdef void _keep(self, object made, bint is_key) noexcept:
        """Keep what was made of the key or the value, unless another thread was first."""
        cdef int bit = KEY_MADE if is_key else VALUE_MADE
        if self._made & bit:
            return
        if is_key:
            self._made_key = made
        else:
            self._made_value = made
        self._made |= bit
        if not PyObject_GC_IsTracked(self):
            PyObject_GC_Track(<void *>self)

    @property
    def key(self):
        return self._make(True)

    @property
    def value(self):
        return self._make(False)

    @property
    def deserialization_error(self):
        if self._decoder is not None and self._decoder._keeps_errors:
            self._make(True)
            self._make(False)
        return self._error_now()

    def __reduce__(self):
        return _unpickled, (self._fields(), self._origin.topic_id, self._outcome(True), self._outcome(False),
                            self._error_now())

    cdef tuple _outcome(self, bint is_key):
        """Return what using the key or the value gives: it, or the error that it raises."""
        try:
            return self._make(is_key), None
        except Exception as error:
            return None, error

    def __repr__(self):
        key = self._made_key if self._is_made(KEY_MADE) else (<ConsumerRecord>self).key
        value = self._made_value if self._is_made(VALUE_MADE) else (<ConsumerRecord>self).value
        return (f"ConsumerRecord(topic={self._topic!r}, partition={self.partition}, key={key!r}, "
                f"value={value!r}, headers={self.headers!r}, timestamp_ms={self.timestamp_ms}, "
                f"offset={self.offset}, leader_epoch={self.leader_epoch}, "
                f"timestamp_type={self.timestamp_type!r})")


def _unpickled(tuple fields, bytes topic_id, tuple key, tuple value, error):
    """Return a record with made values, or the errors of those that cannot be made."""
    cdef TypedRecord record = TypedRecord(*fields, topic_id)
    record._made_key, record._key_fault = key
    record._made_value, record._value_fault = value
    record._error = error
    record._made = KEY_MADE | VALUE_MADE
    return record


# Cython reads a field that is an object by a function. The interpreter reads a member of a type without a
# call, which counts where a program reads the key and the value of each of millions of records.
cdef PyMemberDef[6] members


cdef int _add_member(PyMemberDef *member, object type_, const char *name, Py_ssize_t offset) except -1:
    cdef PyTypeObject *changed = <PyTypeObject *><PyObject *>type_
    member.name = name
    member.type = T_OBJECT_EX
    member.offset = offset
    member.flags = READONLY
    PyDict_SetItemString(changed.tp_dict, name, PyDescr_NewMember(changed, member))
    PyType_Modified(changed)
    return 0


cdef int _add_members() except -1:
    cdef ConsumerRecord record = ConsumerRecord.__new__(ConsumerRecord)
    _add_member(&members[0], Record, "key", kb_key_offset(record))
    _add_member(&members[1], Record, "value", kb_value_offset(record))
    _add_member(&members[2], Record, "headers", kb_headers_offset(record))
    _add_member(&members[3], ConsumerRecord, "topic", kb_topic_offset(record))
    _add_member(&members[4], ConsumerRecord, "raw_key", kb_key_offset(record))
    _add_member(&members[5], ConsumerRecord, "raw_value", kb_value_offset(record))
    return 0


_add_members()
