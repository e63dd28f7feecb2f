"""A Produce request on its way, and what is known of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbatch.core.connections import Request, Response
    from kbatch.core.idempotence import InFlight
    from kbatch.core.sender import Sender


class ProduceAttempt:
    """A Produce request and the batches in it."""

    __slots__ = ("entries", "names", "node_id", "request", "sender", "sent_ns")

    def __init__(self, sender: Sender, node_id: int, sent_ns: int) -> None:
        self.sender = sender
        self.node_id = node_id
        self.sent_ns = sent_ns
        self.entries: dict[tuple[str, int], InFlight] = {}
        self.names: dict[bytes, str] = {}
        self.request: Request | None = None

    @property
    def was_written(self) -> bool:
        """Whether the broker may have seen any of it."""
        return self.request is not None and self.request.was_written

    def handle(self, response: Response) -> None:
        self.sender.handle_response(self, response)
