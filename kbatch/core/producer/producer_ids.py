"""Producer ids: the request for one, and how a producer without transactions gets it.

After org.apache.kafka.clients.producer.internals.TransactionManager; KIP-98, KIP-360 (epoch bumps).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbatch._native.send.in_flight import NO_IDENTITY, Identity
from kbatch.core.client.any_node_request import AnyNodeRequest
from kbatch.core.producer.idempotence import Idempotence, WithoutIdempotence
from kbatch.errors import ErrorCode, UnsupportedVersionError, error_of
from kbatch.protocol import messages

if TYPE_CHECKING:
    from kbatch.core.client.backoff import ExponentialBackoff
    from kbatch.core.client.connections import Connections, Response
    from kbatch.core.producer.sender import Sender
    from kbatch.protocol.structs import Message

NO_TRANSACTION_TIMEOUT_MS = 2**31 - 1


def init_producer_id(
    transactional_id: str | None, timeout_ms: int, current: Identity = NO_IDENTITY
) -> Message:
    """Return the request for a producer id and epoch; for the next epoch of `current`, if there is one."""
    return messages.InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=current.producer_id,
        producer_epoch=current.epoch,
    )


def identity_of(answer: Any) -> Identity:
    """Return the producer id and epoch that an answer has."""
    return Identity(answer.producer_id, answer.producer_epoch)


class ProducerIds:
    """Requests a producer id from any node, and retries until the producer has one."""

    def __init__(
        self,
        connections: Connections,
        backoff: ExponentialBackoff,
        sequences: Idempotence | WithoutIdempotence,
        sender: Sender,
    ) -> None:
        self._connections = connections
        self._backoff = backoff
        self._sequences = sequences
        self._sender = sender
        self._pending = AnyNodeRequest()
        self._had_id = False

    def run(self, now_ns: int) -> None:
        """Send the request if it is due."""
        pending = self._pending
        if pending.is_in_flight or now_ns < pending.not_before_ns:
            return
        kind = messages.InitProducerIdRequest
        node_id = pending.find_node(self._connections, self._backoff, now_ns, kind)
        if node_id is None:
            return
        if self._connections.lacks(node_id, kind):
            self._handle_lack(node_id, now_ns)
            return
        pending.is_in_flight = True
        request = init_producer_id(None, NO_TRANSACTION_TIMEOUT_MS)
        self._connections.send(node_id, request, self._handle_response, now_ns)

    def _handle_lack(self, node_id: int, now_ns: int) -> None:
        """Wait for a node that offers the request, as no node does now. Without an id this cluster never had
        it, and idempotence is impossible.
        """
        connections, kind = self._connections, messages.InitProducerIdRequest
        if not self._had_id:
            try:
                connections.check_offered(node_id, kind, now_ns)
            except UnsupportedVersionError as error:
                error.add_note("enable.idempotence=false needs no such request")
                self._sender.fail_for_good(error)
                return
        delay_ns = connections.renew_versions(node_id, kind, now_ns)
        self._pending.retry_ns = now_ns + delay_ns

    @property
    def deadline_ns(self) -> int:
        """The time of the next `run`, if nothing happens before."""
        return self._pending.deadline_ns

    def _handle_response(self, response: Response) -> None:
        pending, message = self._pending, response.message
        pending.is_in_flight = False
        if message is not None and message.error_code == ErrorCode.NONE:
            pending.attempts = 0
            self._had_id = True
            assert isinstance(self._sequences, Idempotence)
            self._sequences.adopt(identity_of(message))
            self._sender.identity_changed(response.now_ns)
            return
        error = response.error if message is None else error_of(message.error_code)
        assert error is not None
        pending.back_off(self._backoff, response.now_ns)
        if error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:  # an administrator may still grant it
            self._sender.abort(error, queued=True, in_flight=True)
        elif not error.retriable:
            self._sender.fail_for_good(error)
