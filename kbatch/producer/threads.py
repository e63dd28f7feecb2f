"""Producer: records in, deliveries out; the shell around the engine for programs with threads.

Theory of operation. `send` (RecordSender) puts a record into the accumulator on the caller's thread. The
sender's thread (ThreadNetwork) drives the engine, which takes batches out and sends them to the brokers. A
third thread (DeliveryThread) runs the callbacks, so that none of them delays sending. The caller waits
for metadata, memory, a flush or the end in Runtime only.

A producer that is still open when the interpreter exits flushes, which takes EXIT_SECONDS at most.

After org.apache.kafka.clients.producer.KafkaProducer.
"""

from __future__ import annotations

import atexit
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Self

from kbatch._native.io.interrupts import at_once
from kbatch._native.io.threads import ClientThread
from kbatch.errors import DeliveryError
from kbatch.logs import ClientLogger
from kbatch.network import DeliveryThread, Sealers, ThreadNetwork, register_sealers
from kbatch.network.runtime import ClientRuntime
from kbatch.producer.base import EXIT_SECONDS, LiveProducer, ProducerBase, open_producers
from kbatch.producer.groups import GroupQueries
from kbatch.producer.memory_queue import ThreadQueue
from kbatch.producer.runtime import Runtime
from kbatch.producer.tables import TableSending
from kbatch.producer.transactions import TransactionCalls
from kbatch.waiting.methods import blocking, named_for_users
from kbatch.waiting.threads import ThreadWaiter

if TYPE_CHECKING:
    from random import Random

    from kbatch._native.batch.delivery import Delivery
    from kbatch._native.batch.producer_batch import ProducerBatch
    from kbatch._native.io.waker import Waker
    from kbatch._native.send.accumulator import Refusal
    from kbatch._native.send.encoded_batch import PendingBatch
    from kbatch._native.send.send import PendingRecord
    from kbatch.config import ProducerConfig
    from kbatch.waiting.deadline import Deadline

logger = ClientLogger(__name__)


@named_for_users
class Producer(LiveProducer):
    """Sends records to Kafka."""

    def _new_runtime(self, config: ProducerConfig, random: Random, waker: Waker) -> Runtime:
        return Runtime(config, random=random, new_waiter=ThreadWaiter, queue=ThreadQueue(), wake=waker.ring)

    def _start(self, waker: Waker) -> None:
        config, runtime = self.config, self._runtime
        name = config.client_id
        entered = partial(setattr, runtime.accumulator, "callback_thread_ident")
        self._delivery = runtime.callbacks = DeliveryThread(config, runtime.registry, entered)
        self._sealers = Sealers(f"kbatch-table-sealer-{name}", config.compression_type)
        network = runtime.network = ThreadNetwork(
            runtime.engine,
            config=config,
            deliver=self._delivery.deliver,
            name=f"kbatch-sender-{name}",
            metrics=runtime.registry,
            waker=waker,
        )
        by_hand = config.kbatch_lane == "python"
        network.use_loans(runtime.engine, self._delivery.queue, by_hand=by_hand)
        self._delivery.start()
        register_sealers(network)
        network.start()
        self._opened()
        runtime.accept_directly()

    send_table = blocking(TableSending.send_table, "_tables")
    partitions_for = blocking(ProducerBase._partitions_for)
    flush = blocking(ProducerBase._flush)
    purge = blocking(ProducerBase._purge)
    resume = blocking(ProducerBase._resume)
    init_transactions = blocking(TransactionCalls.init_transactions, "_transactions")
    begin_transaction = blocking(TransactionCalls.begin_transaction, "_transactions")
    commit_transaction = blocking(TransactionCalls.commit_transaction, "_transactions")
    abort_transaction = blocking(TransactionCalls.abort_transaction, "_transactions")
    send_offsets_to_transaction = blocking(TransactionCalls.send_offsets_to_transaction, "_transactions")
    client_instance_id = blocking(ClientRuntime.client_instance_id, "_runtime")
    committed_offsets = blocking(GroupQueries.committed_offsets, "_groups")
    group_ids = blocking(GroupQueries.group_ids, "_groups")
    close = blocking(ProducerBase._close)
    __exit__ = blocking(ProducerBase._end_block)

    def __enter__(self) -> Self:
        return self

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a with block in a transaction: commit at its end; abort on an exception, and raise that.

        If the commit times out nothing is aborted, because it may have succeeded; call commit_transaction()
        again.
        """
        self.begin_transaction()
        try:
            yield
            self.commit_transaction()
        except BaseException as error:
            at_once(self._transactions.abort_for, error)
            raise

    def _send_slowly(
        self, record: PendingRecord | PendingBatch, refusal: Refusal | None, may_wait: bool
    ) -> Delivery | None:
        return at_once(self._send_waiting, record, refusal, may_wait)

    @property
    def _tables(self) -> TableSending:
        return TableSending(self, self._runtime, self._transactions, sealer=self._sealer)

    def _sealer(self) -> Callable[[ProducerBatch], object]:
        self._sealers.start()
        return self._sealers.seal

    # Its end

    async def _await_last_callbacks(self, deadline: Deadline) -> None:
        self._delivery.close(deadline.left)
        self._sealers.stop()

    def _close_at_exit(self) -> None:
        self.close(timeout=EXIT_SECONDS)

    def _close_elsewhere(self) -> None:
        # the collector may run on any thread, even the sender's, which cannot wait for its own end
        close = partial(at_once, self._close_dropped)
        ClientThread(close, "kbatch-closer", daemon=False).start()


def _close_all() -> None:
    for producer in list(open_producers):
        message = f"{producer!r} is still open at exit; close() it. It gets {EXIT_SECONDS} s to flush"
        warnings.warn(message, ResourceWarning, source=producer, stacklevel=2)
        try:
            producer._close_at_exit()
        except DeliveryError as error:
            logger.error("at exit: %s", error)


atexit.register(_close_all)
