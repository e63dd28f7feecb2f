"""Record: one record, for reading and writing."""

cimport cython
from libc.stdint cimport int64_t


@cython.final
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
        return Record, self._fields()

    def __repr__(self):
        return (f"Record(key={self.key!r}, value={self.value!r}, headers={self.headers!r}, "
                f"timestamp_ms={self.timestamp_ms}, offset={self.offset})")
