"""Producer: records in, deliveries out; the shell around the engine for programs with threads.

Theory of operation. `send` (RecordSender) puts a record into the accumulator from the caller's thread. The
sender's thread (Network) drives the engine, which takes batches out and to the brokers. What brokers said is
told by a third thread (DeliveryThread), so that no callback holds up sending. The caller's thread waits only
here (ProducerBase): for metadata, for memory, for a flush, for the end.

A producer that is still open when the interpreter exits flushes, which takes EXIT_SECONDS at most.

After org.apache.kafka.clients.producer.KafkaProducer.
"""

from __future__ import annotations

import atexit
import logging
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Self

from kbatch._native.io.interrupts import at_once
from kbatch._native.io.waker import Waker
from kbatch.errors import DeliveryError
from kbatch.network import DeliveryThread, Network, Sealers, register_sealers
from kbatch.producer.base import EXIT_SECONDS, ProducerBase, note_callback_thread, open_producers
from kbatch.producer.groups import GroupMethods
from kbatch.producer.transactions import TransactionMethods
from kbatch.waiting.deadline import Deadline
from kbatch.waiting.threads import Change, MemoryLine, ThreadEvent, blocking

if TYPE_CHECKING:
    from kbatch._native.batch.delivery import Delivery
    from kbatch._native.batch.producer_batch import ProducerBatch
    from kbatch._native.send.accumulator import Refusal
    from kbatch._native.send.encoded_batch import PendingBatch
    from kbatch._native.send.send import PendingRecord

logger = logging.getLogger(__name__)


class Producer(TransactionMethods, GroupMethods, ProducerBase):
    """Sends records to Kafka.

    Parameters
    ----------
    settings : Mapping[str, object], optional
        Configuration keys with dots, as docs/configuration.md lists them.
    **keywords
        The same keys with underscores.

    Attributes
    ----------
    config : ProducerConfig

    Raises
    ------
    ConfigError
        For keys or values that cannot be.
    """

    _delivery: DeliveryThread
    _network: Network

    def __init__(self, settings: Mapping[str, object] | None = None, /, **keywords: object) -> None:
        waker = Waker()
        super().__init__(settings, keywords, changed=Change(), wake=waker.wake, line=MemoryLine())
        name = self.config.client_id
        self._delivery = DeliveryThread(
            self.config, self._registry, partial(note_callback_thread, weakref.ref(self))
        )
        self._sealers = Sealers(f"kbatch-table-sealer-{name}", self.config.compression_type)
        self._network = Network(
            self._engine,
            config=self.config,
            deliver=self._delivery.deliver,
            name=f"kbatch-sender-{name}",
            metrics=self._registry,
            waker=waker,
        )
        register_sealers(self._network)
        self._network.start()
        self._opened()
        self.sends_directly = self._may_send_directly

    send_table = blocking(ProducerBase._send_table)
    partitions_for = blocking(ProducerBase._partitions_for)
    flush = blocking(ProducerBase._flush)
    purge = blocking(ProducerBase._purge)
    resume = blocking(ProducerBase._resume)
    init_transactions = blocking(TransactionMethods._init_transactions)
    begin_transaction = blocking(TransactionMethods._begin_transaction)
    commit_transaction = blocking(TransactionMethods._commit_transaction)
    abort_transaction = blocking(TransactionMethods._abort_transaction)
    send_offsets_to_transaction = blocking(TransactionMethods._send_offsets_to_transaction)
    committed_offsets = blocking(GroupMethods._committed_offsets)
    group_ids = blocking(GroupMethods._group_ids)
    close = blocking(ProducerBase._close)
    __exit__ = blocking(ProducerBase._leave)

    def __enter__(self) -> Self:
        return self

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction for a with block: committed at its end, aborted on an exception, which goes on.

        Where the commit times out nothing is aborted, since it may have been done: make it again.
        """
        self.begin_transaction()
        try:
            yield
            self.commit_transaction()
        except BaseException as error:
            at_once(self._abort_for, error)
            raise

    def _send_slowly(
        self, record: PendingRecord | PendingBatch, refusal: Refusal | None, may_wait: bool
    ) -> Delivery | None:
        return at_once(self._send_waiting, record, refusal, may_wait)

    def _sealer(self) -> Callable[[ProducerBatch], object]:
        self._sealers.start()
        return self._sealers.seal

    # How it waits

    _new_event = staticmethod(ThreadEvent)

    async def _await_last_callbacks(self, deadline: Deadline) -> None:
        self._delivery.close(deadline.left)
        self._sealers.stop()

    def _close_at_exit(self) -> None:
        self.close(timeout=EXIT_SECONDS)

    def _close_elsewhere(self) -> None:
        # the collector may run on any thread, the sender's too, which cannot wait for its own end
        threading.Thread(target=self._close_now, name="kbatch-closer").start()


def _close_all() -> None:
    for producer in list(open_producers):
        message = f"{producer!r} is still open at exit; it gets {EXIT_SECONDS} s to send what it has"
        warnings.warn(message, ResourceWarning, source=producer, stacklevel=2)
        try:
            producer._close_at_exit()
        except DeliveryError as error:
            logger.error("at exit: %s", error)


atexit.register(_close_all)
