"""Intake: which of the fetched records `process()` takes now, and which partitions are paused meanwhile.

Theory of operation. Records are looked at before they are taken, as taking moves the position. Those of a
retry topic wait until they are due, those of an unknown schema until a worker has asked the registry for it.
Their partition is paused meanwhile: what was fetched stays, polls go on, and other partitions too. It is
looked at again when the time has come.

A registry that cannot be reached is no failure of a record: it is asked again, after a back-off.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, final

from kbatch._native.io.backoff import backoff_ns
from kbatch.core.client.backoff import NEVER_NS, NS_PER_MS
from kbatch.core.client.lasting_faults import NS_PER_SECOND, LastingFaults
from kbatch.errors import SchemaRegistryError
from kbatch.logs import ClientLogger

if TYPE_CHECKING:
    from kbatch._native.codec.record import ConsumerRecord
    from kbatch._native.fetch.fetch_buffer import PolledRecords
    from kbatch.consumer.backlog import AssignedPartition
    from kbatch.consumer.base import ConsumerBase
    from kbatch.consumer.process.retry_topics import RetryTopics
    from kbatch.consumer.typed_records import Outcomes, Unknown
    from kbatch.records import TopicPartition

logger = ClientLogger("kbatch.consumer")

# Records that are looked at before they are taken.
LOOK_RECORDS = 100
# Between questions to a registry that cannot be reached.
REGISTRY_BACKOFF_NS = NS_PER_SECOND
MOST_REGISTRY_BACKOFF_NS = 30 * NS_PER_SECOND
WITHOUT_JITTER = 0.5
REGISTRY = "the schema registry"


@final
class Intake:
    """What is taken from a consumer's backlog.

    Parameters
    ----------
    consumer : ConsumerBase
    retries : RetryTopics or None
        Which topics have delays.

    Attributes
    ----------
    waiting : dict of TopicPartition to int
        When a partition is looked at again whose next record may not be taken yet.
    """

    def __init__(self, consumer: ConsumerBase, retries: RetryTopics | None) -> None:
        self._consumer = consumer
        self._runtime = consumer._runtime
        self._backlog = consumer._backlog
        self._retries = retries
        typed = consumer._typed
        self._typed = typed if typed is not None and typed.asks else None
        self._blocked: set[TopicPartition] = set()
        self.waiting: dict[TopicPartition, int] = {}
        self._outcomes: Outcomes | None = None  # of the question that the registry has
        self._failed_count = 0  # of questions without an answer, one after the other
        self._faults = LastingFaults(logger)

    # Taking

    def take(self, most: int) -> list[PolledRecords]:
        """Return the next records that may be taken, `most` at most. Raise the error of a partition."""
        if self._typed is None and self._retries is None:
            return self._backlog.take_records(most)
        polled: list[PolledRecords] = []
        while most > 0 and (assigned := self._backlog.next_with_record(not polled)) is not None:
            count = self._ready_count(assigned, min(most, LOOK_RECORDS))
            if count:
                polled += self._backlog.take_records(count)
                most -= count
        return polled

    def _ready_count(self, assigned: AssignedPartition, most: int) -> int:
        """Return how many of a partition's next records may be taken; pause it if that is none."""
        fetched = assigned.queue[0].records
        assert fetched is not None
        due = self._due(assigned.partition, fetched.peek_records(most))
        if due and self._typed is not None and (unknown := self._typed.unknown(due)):
            self._ask(unknown)
            self._wait(assigned.partition, NEVER_NS)
            return 0
        return len(due)

    # Retry topics

    def _due(self, partition: TopicPartition, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Return the first of these records that are due. If there are none, let the partition wait."""
        delay_ms = 0 if self._retries is None else self._retries.delay_ms(partition.topic)
        if not delay_ms:
            return records
        now_ms = time.time_ns() // NS_PER_MS
        # of clocks that differ, none makes a record wait for longer than its delay
        left = [min((each.timestamp_ms or 0) + delay_ms - now_ms, delay_ms) for each in records]
        count = next((index for index, left_ms in enumerate(left) if left_ms > 0), len(records))
        if not count:
            self._wait(partition, self._runtime.now_ns() + left[0] * NS_PER_MS)
        return records[:count]

    # A registry

    def _ask(self, unknown: Unknown) -> None:
        """Ask a registry for schemas, one question at a time."""
        if self._outcomes is None:
            assert self._typed is not None
            self._outcomes = self._typed.begin_to_ask(
                unknown, self._consumer._decoders.submit, self._runtime.changed.notify
            )

    @property
    def has_answer(self) -> bool:
        """True if the registry has answered, or cannot be reached."""
        return bool(self._outcomes)

    def _take_answer(self) -> None:
        """Draw the conclusion of an answer. Raise what the registry refuses."""
        if not self._outcomes:
            return
        (error,), self._outcomes = self._outcomes, None
        now_ns = again_ns = self._runtime.now_ns()
        if error is None:
            self._failed_count = 0
            self._faults.end(REGISTRY, f"{REGISTRY} answers again", now_ns)
        elif isinstance(error, SchemaRegistryError) and error.retriable:
            wait_ns = backoff_ns(
                REGISTRY_BACKOFF_NS, MOST_REGISTRY_BACKOFF_NS, self._failed_count, WITHOUT_JITTER
            )
            self._failed_count += 1
            again_ns += wait_ns
            self._faults.note(REGISTRY, f"records wait for {REGISTRY}: {error}", now_ns)
        else:
            raise error
        waiting = [each for each, until_ns in self.waiting.items() if until_ns == NEVER_NS]
        self.waiting.update(dict.fromkeys(waiting, again_ns))

    # Pauses

    @property
    def deadline_ns(self) -> int:
        """When a partition is to be looked at again."""
        return min(self.waiting.values(), default=NEVER_NS)

    def look_again(self) -> None:
        """Resume the partitions whose time has come. Raise what a registry refuses."""
        self._take_answer()
        now_ns = self._runtime.now_ns()
        for each in [each for each, until_ns in self.waiting.items() if until_ns <= now_ns]:
            del self.waiting[each]
            self._apply(each)

    def set_blocked(self, partition: TopicPartition, is_blocked: bool) -> None:
        """Stop reading a partition that is too far ahead, or go on."""
        (self._blocked.add if is_blocked else self._blocked.discard)(partition)
        self._apply(partition)

    def _wait(self, partition: TopicPartition, until_ns: int) -> None:
        self.waiting[partition] = until_ns
        self._apply(partition)

    def _apply(self, partition: TopicPartition) -> None:
        """Pause a partition if there is a reason to, else resume it."""
        assigned = self._backlog.assigned.get(partition)
        if assigned is not None:
            assigned.is_paused = partition in self._blocked or partition in self.waiting
            engine = self._consumer._engine
            (engine.pause if assigned.is_paused else engine.resume)([partition])
            self._runtime.network.wake()

    def forget(self, partition: TopicPartition) -> None:
        """Forget a partition that is given up."""
        self._blocked.discard(partition)
        self.waiting.pop(partition, None)

    def end(self) -> None:
        """Resume all partitions."""
        paused = [*self._blocked, *self.waiting]
        self._blocked.clear()
        self.waiting.clear()
        for each in paused:
            self._apply(each)
