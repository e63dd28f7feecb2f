"""Lent: what an engine takes back of connections that it has lent to a producer's lane or a reader's road."""

from typing import NamedTuple


class Lent(NamedTuple):
    """What the engine must know of a connection after a loan.

    Attributes
    ----------
    node_id, connection_id, next_correlation_id : int
    queued_bytes, written_bytes : int
        Of its outgoing stream, from its beginning on.
    active_ns : int
        When bytes last went either way; 0 if none did.
    requests : list of LentRequest
        Those in flight, oldest first.
    received, unsent : bytes
        What the engine must read; what it must write.
    needs_engine : bool
        There are batches for its node that the lane does not send.
    """

    node_id: int
    connection_id: int
    next_correlation_id: int
    queued_bytes: int
    written_bytes: int
    active_ns: int
    requests: list
    received: bytes
    unsent: bytes
    needs_engine: bool = False


cdef class LentRequest:
    """A request in flight on a connection that was lent. The borrower's subclass owns what it refers to.

    Attributes
    ----------
    version : int
        Of the request; the subclass has it.
    expects_answer : bool
        False for Produce with acks=0; the subclass has it.
    correlation_id, created_ns : int
    written_ns : int
        When its last byte was written; -1 before.
    start_offset, end_offset : int
        Its offsets in the outgoing stream.
    is_counted : bool
        The engine has seen it before, and recorded that it was sent.
    """

    cdef kb_lent_request *_seen(self) except NULL:
        if self.sent == NULL:
            raise ValueError("the borrower has this request again")
        return self.sent

    @property
    def version(self):
        raise NotImplementedError

    @property
    def expects_answer(self):
        raise NotImplementedError

    @property
    def correlation_id(self):
        return self._seen().correlation_id

    @property
    def created_ns(self):
        return self._seen().created_ns

    @property
    def written_ns(self):
        return self._seen().written_ns

    @property
    def start_offset(self):
        return self._seen().start_offset

    @property
    def end_offset(self):
        return self._seen().end_offset

    @property
    def is_counted(self):
        return self._seen().is_counted

    @is_counted.setter
    def is_counted(self, bint value):
        self._seen().is_counted = value
