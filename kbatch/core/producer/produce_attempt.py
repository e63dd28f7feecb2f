"""A Produce request in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbatch._native.send.produce_wire import ProduceFrame
from kbatch.core.client.api_versions import read_response

if TYPE_CHECKING:
    from kbatch.core.client.connections import Request


class ProduceAttempt(ProduceFrame):
    """A Produce request and the batches in it."""

    __slots__ = ("request",)

    def __init__(self, node_id: int, sent_ns: int) -> None:
        super().__init__(node_id, sent_ns)
        self.request: Request | None = None

    @property
    def was_written(self) -> bool:
        """True if the broker may have seen a part of it."""
        return self.request is not None and self.request.was_written

    def answer(self, request: Request, frame: bytes | memoryview) -> Any:
        """Return the answer in a frame: AllAccepted, or the ProduceResponse of any other. Raise ProtocolError
        if there is none.
        """
        accepted = self.read(frame)
        return read_response(request, frame) if accepted is None else accepted
