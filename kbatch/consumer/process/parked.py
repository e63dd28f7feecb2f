"""ParkedReads: reads parked records again, while the consumer itself goes on elsewhere in the partition.

A consumer is at one position of a partition at a time, so this takes a client of its own, a TopicReader that
is made at the first need. It is used on one thread, which blocks; what was read is taken from a queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, final

from kbatch._native.io.backoff import backoff_ns
from kbatch.config.readers import GROUP_KEYS
from kbatch.consumer.topic_reader import TopicReader
from kbatch.core.client.backoff import NEVER_NS
from kbatch.core.client.lasting_faults import NS_PER_SECOND, LastingFaults
from kbatch.errors import KafkaError
from kbatch.logs import ClientLogger
from kbatch.network.workers import Workers
from kbatch.records import NO_TOPIC_ID

if TYPE_CHECKING:
    from kbatch._native.codec.record import ConsumerRecord
    from kbatch.config import ConsumerConfig
    from kbatch.core.process.scheduler import KeyQueue, ProcessScheduler

logger = ClientLogger("kbatch.consumer")

# Of a consumer's keys, those that a TopicReader does not have.
NOT_FOR_READERS = GROUP_KEYS | {
    "interceptor.classes",
    "key.deserializer",
    "on.deserialization.error",
    "value.deserializer",
}
BACKOFF_NS, MOST_BACKOFF_NS = NS_PER_SECOND, 30 * NS_PER_SECOND
WITHOUT_JITTER = 0.5


class _Read(NamedTuple):
    """What was read: the records of some offsets of a queue, or why they could not be read."""

    queue: KeyQueue
    offsets: tuple[int, ...]
    records: dict[int, ConsumerRecord]
    error: KafkaError | None


@final
class ParkedReads:
    """The reads of a `process()`.

    Parameters
    ----------
    config : ConsumerConfig
    scheduler : ProcessScheduler
    typed : callable
        Makes a record as the program gets it.
    notify : callable
        Called on the thread after each read.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        scheduler: ProcessScheduler,
        typed: Callable[[ConsumerRecord], ConsumerRecord],
        notify: Callable[[], object],
    ) -> None:
        self._settings = {
            name: value for name, value in config.settings().items() if name not in NOT_FOR_READERS
        } | {"isolation.level": config.isolation_level}
        self._scheduler = scheduler
        self._typed = typed
        self._notify = notify
        self._worker = Workers(f"kbatch-parked-{config.client_id}", 1)
        self._reader: TopicReader | None = None
        self._is_used = False
        self._done: deque[_Read] = deque()
        self._failed_count = 0
        self._until_ns = 0  # of the back-off
        self._faults = LastingFaults(logger)

    @property
    def has_read(self) -> bool:
        """True if `run` has something to take."""
        return bool(self._done)

    def deadline_ns(self, now_ns: int) -> int:
        """Return when to `run` again, after a failure."""
        return self._until_ns if self._until_ns > now_ns and self._scheduler.parked_count else NEVER_NS

    def run(self, now_ns: int) -> None:
        """Take what was read, and begin to read what is needed."""
        while self._done:
            self._take(self._done.popleft(), now_ns)
        if self._scheduler.parked_count and now_ns >= self._until_ns:
            for queue in self._scheduler.to_read():
                self._is_used = True
                self._worker.submit(partial(self._read, queue, queue.reading))

    def _take(self, read: _Read, now_ns: int) -> None:
        if read.error is None:
            self._failed_count = 0
            self._scheduler.take_again(read.queue, read.offsets, read.records)
            return
        partition = read.queue.owned.partition
        self._faults.note(partition, f"records of {partition} cannot be read again: {read.error}", now_ns)
        wait_ns = backoff_ns(BACKOFF_NS, MOST_BACKOFF_NS, self._failed_count, WITHOUT_JITTER)
        self._until_ns = now_ns + wait_ns
        self._failed_count += 1
        self._scheduler.park_again(read.queue, read.offsets)

    def _read(self, queue: KeyQueue, offsets: tuple[int, ...]) -> None:
        """Read records, on the thread."""
        partition, wanted = queue.owned.partition, set(offsets)
        topic_id = queue.owned.progress.topic_id
        topic_ids = {} if topic_id == NO_TOPIC_ID else {partition.topic: topic_id}
        records: dict[int, ConsumerRecord] = {}
        error: KafkaError | None = None
        try:
            if self._reader is None:
                self._reader = TopicReader(self._settings)
            ranges = {partition: (offsets[0], offsets[-1] + 1)}
            with self._reader.read_records(ranges, on_data_loss="skip", topic_ids=topic_ids) as reading:
                for each in reading:
                    if each.offset in wanted:
                        records[each.offset] = self._typed(each)
        except KafkaError as raised:
            error = raised
        self._done.append(_Read(queue, offsets, records, error))
        self._notify()

    def close(self) -> None:
        """End the client and the thread, without waiting for them."""
        if self._is_used:
            self._worker.submit(self._close_reader)
            self._worker.stop()

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
