"""CoroutineProducer: the calls of a producer whose callers are tasks, of an event loop or of virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbatch._native.io.interrupts import at_once
from kbatch.network.runtime import ClientRuntime
from kbatch.producer.base import ProducerBase
from kbatch.producer.groups import GroupQueries
from kbatch.producer.transactions import TransactionCalls
from kbatch.waiting.methods import awaited

if TYPE_CHECKING:
    from kbatch._native.send.accumulator import Refusal
    from kbatch._native.send.encoded_batch import PendingBatch
    from kbatch._native.send.send import PendingRecord


class CoroutineProducer(ProducerBase):
    """A producer with coroutines for methods. A record that has to wait becomes one too."""

    partitions_for = ProducerBase._partitions_for
    flush = ProducerBase._flush
    purge = ProducerBase._purge
    resume = ProducerBase._resume
    close = ProducerBase._close
    client_instance_id = awaited(ClientRuntime.client_instance_id, "_runtime")
    committed_offsets = awaited(GroupQueries.committed_offsets, "_groups")
    group_ids = awaited(GroupQueries.group_ids, "_groups")
    init_transactions = awaited(TransactionCalls.init_transactions, "_transactions")
    begin_transaction = awaited(TransactionCalls.begin_transaction, "_transactions")
    commit_transaction = awaited(TransactionCalls.commit_transaction, "_transactions")
    abort_transaction = awaited(TransactionCalls.abort_transaction, "_transactions")
    send_offsets_to_transaction = awaited(TransactionCalls.send_offsets_to_transaction, "_transactions")

    def _send_slowly(
        self, record: PendingRecord | PendingBatch, refusal: Refusal | None, may_wait: bool
    ) -> Any:
        if may_wait:
            return self._send_later(record, refusal)
        return at_once(self._send_waiting, record, refusal, may_wait)

    async def _send_later(self, record: PendingRecord | PendingBatch, refusal: Refusal | None) -> Any:
        try:
            return await self._send_in_turn(record, refusal)
        except BaseException as error:
            self._handle_refused(record, error)
            raise

    async def _send_in_turn(self, record: PendingRecord | PendingBatch, refusal: Refusal | None) -> Any:
        """Send a record that was not accepted at once, when other tasks let it."""
        return await self._send_waiting(record, refusal, True)
