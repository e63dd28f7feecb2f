"""Record: one record, for reading and writing."""

cimport cython
from libc.stdint cimport int32_t, int64_t


@cython.freelist(256)
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
cdef class ConsumerRecord(Record):
    """A record that was read from a partition (org.apache.kafka.clients.consumer.ConsumerRecord).

    Attributes
    ----------
    topic : str
    partition : int
    leader_epoch : int
        The epoch of the leader that wrote it; -1 if the broker does not say.
    timestamp_type : "create_time" or "log_append_time"
    """

    def __init__(self, topic, int32_t partition, key=None, value=None, headers=(), timestamp_ms=None,
                 int64_t offset=-1, int32_t leader_epoch=-1, timestamp_type="create_time"):
        if timestamp_type not in ("create_time", "log_append_time"):
            raise ValueError("timestamp_type must be 'create_time' or 'log_append_time', got "
                             f"{timestamp_type!r}")
        super().__init__(key, value, headers, timestamp_ms, offset)
        self.topic = topic
        self.partition = partition
        self.leader_epoch = leader_epoch
        self._is_log_append_time = timestamp_type == "log_append_time"

    @property
    def timestamp_type(self):
        return "log_append_time" if self._is_log_append_time else "create_time"

    def _fields(self):
        return (self.topic, self.partition, self.key, self.value, self.headers, self.timestamp_ms,
                self.offset, self.leader_epoch, self.timestamp_type)

    def __repr__(self):
        return (f"ConsumerRecord(topic={self.topic!r}, partition={self.partition}, key={self.key!r}, "
                f"value={self.value!r}, headers={self.headers!r}, timestamp_ms={self.timestamp_ms}, "
                f"offset={self.offset}, leader_epoch={self.leader_epoch}, "
                f"timestamp_type={self.timestamp_type!r})")
