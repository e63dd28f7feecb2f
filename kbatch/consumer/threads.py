"""Consumer: records of topics, one poll after another; for programs with threads.

Theory of operation. The network's thread (ThreadNetwork) drives the engine, which fetches ahead. A call that
has to wait blocks its thread, and Ctrl-C ends it. What the workers decode, and objects that the program makes
of records, come from the Backlog (`base`).

After org.apache.kafka.clients.consumer.KafkaConsumer.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kbatch._native.io.interrupts import at_once
from kbatch.config import ConsumerConfig
from kbatch.consumer.base import ConsumerBase
from kbatch.consumer.runtime import ReaderRuntime, configured
from kbatch.consumer.sole_user import SoleUser
from kbatch.network import ThreadNetwork
from kbatch.waiting.methods import blocking
from kbatch.waiting.threads import ThreadWaiter

if TYPE_CHECKING:
    from kbatch._native.codec.record import ConsumerRecord


class Consumer(ConsumerBase):
    """Reads records from Kafka. One thread uses it at a time; any thread may close it.

    Iterating over it gives record after record, and never ends.

    Parameters
    ----------
    settings : ConsumerConfig or Mapping[str, object], optional
        Configuration keys with dots, as docs/configuration.md lists them.
    **keywords
        The same keys with underscores.

    Attributes
    ----------
    config : ConsumerConfig

    Raises
    ------
    ConfigError
        Keys or values are unknown, invalid or contradictory.
    """

    def __init__(
        self, settings: ConsumerConfig | Mapping[str, object] | None = None, /, **keywords: object
    ) -> None:
        config = configured(settings, keywords)
        runtime = ReaderRuntime(config, "consumer", new_waiter=ThreadWaiter)
        super().__init__(runtime, SoleUser(threading.current_thread, lambda thread: thread.name))
        network = runtime.network = ThreadNetwork(
            runtime.engine,
            config=config,
            deliver=self._backlog.arrivals.deliver,
            name=f"kbatch-reader-{config.client_id}",
            metrics=runtime.registry,
        )
        network.start()
        self._opened()

    poll = blocking(ConsumerBase._poll)
    poll_table = blocking(ConsumerBase._poll_table)
    position = blocking(ConsumerBase._position)
    lag = blocking(ConsumerBase._lag)
    topics = blocking(ConsumerBase._topics)
    partitions_for = blocking(ConsumerBase._partitions_for)
    beginning_offsets = blocking(ConsumerBase._beginning_offsets)
    end_offsets = blocking(ConsumerBase._end_offsets)
    offsets_for_times = blocking(ConsumerBase._offsets_for_times)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Iterate over the records of all polls from now on, without an end."""
        return self._records()

    def until_end(self) -> Iterator[ConsumerRecord]:
        """Iterate over the records up to where each log ends when the iteration begins: under
        read_committed, at its last stable offset. Partitions that are paused are left out.

        Raises
        ------
        KafkaTimeoutError
            No record, and no end, came within default.api.timeout.ms.
        KafkaError
            As in `poll`.
        """
        at_once(self._begin_until_end)
        yield from self._records(is_bounded=True)

    def _records(self, *, is_bounded: bool = False) -> Iterator[ConsumerRecord]:
        while (found := at_once(self._next_lot, is_bounded=is_bounded)) is not None:
            held, records = found
            for record in records:
                if held.lot is not records:  # another call has moved the partition, or paused it
                    break
                held.last = record
                yield record

    # Its end

    def close(self) -> None:
        """End all connections and threads; a poll that waits raises ConsumerClosedError. A second call has no
        effect. Any thread may call it.
        """
        if not (self._runtime.is_forked or self._is_released):
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _close_at_exit(self) -> None:
        self.close()

    def _close_elsewhere(self) -> None:
        # the collector may run on any thread, even the network's, which cannot wait for its own end
        threading.Thread(target=self.close, name="kbatch-closer").start()
