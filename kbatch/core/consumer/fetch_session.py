"""Fetch sessions: a broker remembers the partitions, and a request names only changes (KIP-227).

Theory of operation. Without a session, a request names all partitions and has epoch 0, which asks for one. If
the answer has an id, the session is open, and requests have epochs 1, 2 and so on: they name partitions
that are new or whose request differs, and those to forget. The answer leaves out partitions without news.
An error, or a lost answer, ends the session: the next request is complete again, and closes the old session
if the broker may still have it.

Native code makes the requests (src_c/fetch_road.h): a node has one in flight at most.

After org.apache.kafka.clients.FetchSessionHandler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbatch._native.fetch.fetch_answer import FetchAnswer, read_fetch_answer
from kbatch._native.fetch.reading import FetchNode
from kbatch.core.client.api_versions import read_response
from kbatch.core.client.backoff import Retrying
from kbatch.errors import ErrorCode
from kbatch.protocol import codec

if TYPE_CHECKING:
    from kbatch._native.fetch.road import FetchRoad
    from kbatch._native.io.sensor import Sensor
    from kbatch.core.client.connections import Request

NO_SESSION = 0
# A request with this epoch asks for a session; with -1 it is without one, and ends the one that it names.
INITIAL_EPOCH, FINAL_EPOCH = 0, -1
MAX_EPOCH = 2**31 - 1


class FetchSession(FetchNode, Retrying):
    """The session of one client with one node, and its request in flight.

    Attributes
    ----------
    attempts, not_before_ns : int
        Those of Retried: another session after an error of this one.
    """

    __slots__ = ("attempts", "not_before_ns")

    def __init__(self, road: FetchRoad, node_id: int, latency: Sensor) -> None:
        super().__init__(road, node_id, latency)
        self.attempts = 0
        self.not_before_ns = 0

    @property
    def is_open(self) -> bool:
        """True if the broker has the session, as far as is known."""
        return self.epoch != INITIAL_EPOCH

    def end(self, code: ErrorCode | None = None) -> None:
        """End the session, after an error, or after a lost answer if there is no code."""
        self.epoch = INITIAL_EPOCH
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self.session_id = NO_SESSION

    def read(self, request: Request, frame: bytes | memoryview) -> FetchAnswer:
        """Return the answer in a frame. Raise ProtocolError if there is none."""
        answer = read_fetch_answer(frame, request.api_version)
        return _from_message(request, read_response(request, frame)) if answer is None else answer


def _from_message(request: Request, message: Any) -> FetchAnswer:
    """Return an answer that only the codec can read, as it would usually be written."""
    version = request.api_version
    frame = b"".join(codec.encode_response(message, version, request.correlation_id))
    answer = read_fetch_answer(memoryview(frame)[4:], version)
    assert answer is not None
    return answer
