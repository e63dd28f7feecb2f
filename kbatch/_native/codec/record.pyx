"""Record: one record, for reading and writing."""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t

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


@cython.final
@cython.no_gc
@cython.nonecheck(True)  # one that __init__ has not filled in has no origin
cdef class ConsumerRecord(Record):
    """A record that was read from a partition (org.apache.kafka.clients.consumer.ConsumerRecord).

    Attributes
    ----------
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


# Cython reads a field that is an object by a function. The interpreter reads a member of a type without a
# call, which counts where a program reads the key and the value of each of millions of records.
cdef PyMemberDef[4] members


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
    return 0


_add_members()
