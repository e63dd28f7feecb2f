"""Checks of what a transactional producer writes: those of the Wire, and the order of a transaction.

A sequence may be reused in the same epoch if its batch failed and is known not to be in the log: later
batches move up. Requests to coordinators are sent one at a time, except searches for coordinators. EndTxn is
sent when every record of the transaction is done. Until it is answered, no other request of a transaction is
sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from tests.simulation.producers.wire import ConnectionWatch, Host, Key, SentBatch, SentRequest, Wire
from tests.simulation.world.trace import Violation

if TYPE_CHECKING:
    from tests.simulation.transactions.ledger import Transaction

TO_COORDINATORS = (
    messages.InitProducerIdRequest,
    messages.AddPartitionsToTxnRequest,
    messages.AddOffsetsToTxnRequest,
    messages.TxnOffsetCommitRequest,
    messages.EndTxnRequest,
)
# These requests begin a transaction, or add to it.
ADDING = (messages.AddPartitionsToTxnRequest.api_key, messages.AddOffsetsToTxnRequest.api_key)
ANSWERS = tuple(kind.response for kind in TO_COORDINATORS)


class TransactionalHost(Host, Protocol):
    """A producer that has a transactional.id."""

    transaction: Transaction | None

    def has_failed(self, number: int) -> bool:
        """True if the record failed, or may have: parts of a split batch report it after all are done."""


class TransactionalWire(Wire):
    """Checks one producer's requests.

    Attributes
    ----------
    may_reopen : bool
        A request that adds to a transaction was not answered. A broker that executes it after the end of that
        transaction begins another, and fences the producer when that times out. KIP-890 ends this weakness of
        transaction version 1.
    may_be_forgotten : bool
        The coordinator may have bumped the epoch without an answer that says so. Its log does not have the
        epoch before (KIP-360 keeps that in memory), so the next coordinator fences who asks again.
    """

    def __init__(self, client: TransactionalHost) -> None:
        super().__init__(client)
        self._client = client
        self._numbers: dict[tuple[str, int, tuple[int, int, int]], tuple[int, ...]] = {}
        self.may_reopen = False
        self.may_be_forgotten = False
        self._is_bump = False  # the last InitProducerId

    def _check_sequence(self, batch: SentBatch) -> None:
        sequence = (batch.topic, batch.partition, batch.key)
        before = self._numbers.get(sequence)
        if before is not None and before != batch.numbers and self._is_free(before, batch.key):
            self._bytes.pop(sequence, None)
        self._numbers[sequence] = batch.numbers
        super()._check_sequence(batch)

    def _is_free(self, before: tuple[int, ...], key: Key) -> bool:
        """True if the batch with this sequence has failed, or has itself moved up since; no batch that may be
        in the log does so."""
        has_moved = self._last_key[before[0]] != key
        return has_moved or all(map(self._is_lost, before))

    def _is_lost(self, number: int) -> bool:
        """True if the record failed and is not in the topic's current log."""
        return self._client.has_failed(number) and number not in self.ambiguous

    def _produce(self, sent: SentRequest, message: Any) -> None:
        super()._produce(sent, message)
        if message.transactional_id != self._client.config.transactional_id:
            raise Violation(f"a Produce request has transactional_id {message.transactional_id}")
        if self._is_asked(messages.EndTxnRequest):
            raise Violation("a Produce request is sent while EndTxn is unanswered")

    def _over(self, connection: ConnectionWatch, request: SentRequest, *, ambiguous: bool) -> None:
        super()._over(connection, request, ambiguous=ambiguous)
        self.may_reopen = self.may_reopen or (ambiguous and request.api_key in ADDING)
        if ambiguous and request.api_key == messages.InitProducerIdRequest.api_key:
            self._note_lost_bump()

    def _note_lost_bump(self) -> None:
        self.may_be_forgotten = self.may_be_forgotten or self._is_bump

    def _question(self, message: Any) -> None:
        if not isinstance(message, TO_COORDINATORS):
            return
        if isinstance(message, messages.InitProducerIdRequest):
            self._is_bump = message.producer_id >= 0
        asked = [kind.__name__ for kind in TO_COORDINATORS if self._is_asked(kind)]
        if asked:
            raise Violation(f"{type(message).__name__} is sent while {asked} is unanswered")
        if isinstance(message, messages.EndTxnRequest):
            self._end(message)

    def _end(self, message: Any) -> None:
        transaction = self._client.transaction
        if transaction is None:
            raise Violation("EndTxn is sent before a transaction was begun")
        pending = [record.number for record in transaction.records if not record.is_done]
        if pending:
            raise Violation(f"EndTxn is sent, and records {pending} are not done")
        if message.committed:
            failed = [
                each.number for each in transaction.records if each.delivery and each.delivery.exception()
            ]
            if failed or not transaction.is_to_be_committed:
                raise Violation(f"{transaction} is committed, and must not be; failed: {failed}")
            transaction.may_be_committed = True
        self._client.trace("EndTxn: %s", "commit" if message.committed else "abort")

    def _response(self, message: Any) -> None:
        if isinstance(message, ANSWERS):
            self._client.trace("   says %s", message)
        is_initialised = isinstance(message, messages.InitProducerIdResponse)
        if is_initialised and message.error_code == ErrorCode.NOT_COORDINATOR:
            self._note_lost_bump()  # in the log of one that is deposed meanwhile

    def _is_asked(self, kind: type[Any]) -> bool:
        return any(
            request.api_key == kind.api_key
            for connection in self.connections.values()
            for request in connection.unanswered
        )
