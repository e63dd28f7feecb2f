"""ShareEngine: a client that reads as a member of a share group, without sockets, threads and clocks.

Theory of operation. ShareMembership says which partitions are assigned; ShareFetcher acquires their records
while the program waits for some, and acknowledges them. The program gets Acquired and ShareFailed. Nothing
has a position here: brokers know which records are delivered, acknowledged or locked.

After org.apache.kafka.clients.consumer.internals.ShareConsumerImpl; KIP-932.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Unpack

from kbatch.core.client.backoff import NEVER_NS
from kbatch.core.consumer.engine import EngineOptions
from kbatch.core.consumer.fetch_metrics import ShareFetchMetrics
from kbatch.core.consumer.group_metrics import MemberMetrics
from kbatch.core.consumer.member_engine import MemberEngine
from kbatch.core.consumer.share_fetcher import Acquired, ShareFetcher
from kbatch.core.consumer.share_membership import ShareMembership
from kbatch.metrics import SHARE_METRICS, Metric
from kbatch.records import TopicPartition

if TYPE_CHECKING:
    from kbatch.config import ConsumerConfig
    from kbatch.core.client.calls import Call
    from kbatch.core.consumer.share_session import Acknowledge, Key
    from kbatch.errors import KafkaError

_NOTHING = (None, None)


class ShareEngine(MemberEngine):
    """The engine of a share consumer.

    Parameters
    ----------
    config : ConsumerConfig
        It has a group.id.
    random, registry, now_ns, wall_clock_ms, on_change
        Parameters of ReadingEngine; `registry` has SHARE_METRICS.
    """

    metrics: ClassVar[tuple[Metric, ...]] = SHARE_METRICS

    def __init__(self, config: ConsumerConfig, **options: Unpack[EngineOptions]) -> None:
        super().__init__(config, **options)
        registry = options["registry"]
        self._acquiring_metrics = ShareFetchMetrics(registry, self._budget)
        metrics = MemberMetrics(registry, lambda: len(self._acquirer.partitions))
        self._member = ShareMembership(
            config, self._coordinator, metrics, self._new_member_id, options["now_ns"]
        )
        self._acquirer = ShareFetcher(
            config,
            self._cluster,
            self._connections,
            self._backoff,
            self._budget,
            self._frames,
            self._acquiring_metrics,
            member_id=self._member.member_id,
            results=self._completed,
            on_change=self._on_change,
        )
        self._is_leaving = False
        # the assignment and the topics from which the fetcher has its partitions, if all have names
        self._named: tuple[object, object] = _NOTHING
        self._unnamed_deadline_ns = NEVER_NS

    # For any thread; the caller wakes the owner

    def subscribe(self, topics: frozenset[str]) -> None:
        """Join the group, or change the subscription. It also recovers from `membership_error`, and ends a
        `leave` in progress.
        """

        def subscribe(now_ns: int) -> None:
            for topic in topics:
                self._cluster.want(topic, now_ns)
            self._is_leaving = False
            self._finish_leaving()
            self._acquirer.open()
            self._member.subscribe(topics, now_ns)
            if self._expired_ns is None:
                self.polled_ns = now_ns

        self.submit(subscribe)

    def acknowledge(self, call: Acknowledge, wanted_records: int = 0) -> None:
        """Acknowledge records, and acquire others if some are wanted: then the program polls."""

        def acknowledge(call: Acknowledge, now_ns: int) -> None:
            self._make(self._acquirer.acknowledge, call, now_ns)
            self._acquirer.wanted_records = wanted_records

        self.call(call, acknowledge)

    def note_poll(self, now_ns: int) -> None:
        """Record a poll, or a wait in one: call it at least once in max.poll.interval.ms."""
        self.polled_ns = now_ns

    def stop_acquiring(self) -> None:
        """Acquire nothing until the next `acknowledge` that wants records."""

        def stop(now_ns: int) -> None:
            self._acquirer.wanted_records = 0

        self.submit(stop)

    def discard(self, acquired: Acquired, record_count: int = 0) -> None:
        """Return the memory of records, of which the program got so many. A second call has no effect."""

        def discard(now_ns: int) -> None:
            if acquired.release() and record_count:
                self._acquiring_metrics.consumed(record_count, now_ns)

        self.submit(discard)

    def leave(self, call: Call) -> None:
        """Send what was acknowledged, release all other records, and leave the group."""

        def leave(call: Call, now_ns: int) -> None:
            self._is_leaving = True
            self._acquirer.close()
            self._named = _NOTHING
            self._leave_calls.append(call)

        self.call(call, leave)

    @property
    def group_member_id(self) -> str:
        return self._member.member_id

    @property
    def membership_error(self) -> KafkaError | None:
        """The error that has ended the membership. The next poll raises it; `subscribe` recovers."""
        return self._member.error

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions that the group has assigned."""
        return frozenset(self._acquirer.partitions.values())

    # What is to be done

    def fail(self, error: KafkaError) -> None:
        if self._fatal_error is None:
            self._acquirer.fail(error)
            for call in self._leave_calls:
                call.finish(error)
            super().fail(error)

    def _work(self, now_ns: int) -> None:
        super()._work(now_ns)
        if self._fatal_error is not None:
            return
        error = self._member.error
        if not self._is_leaving:
            self._name_assignment(now_ns)
        self._acquirer.run(now_ns)
        if self._is_leaving and self._acquirer.is_closed:
            self._is_leaving = False
            self._expired_ns = None
            self._member.leave(now_ns)
        if self._member.is_member or self._expired_ns is not None:
            self._check_polls(self._member, now_ns)
        self._member.run(now_ns)
        if self._member.error is not error:
            self._on_change()
        if self._leave_calls and not self._is_leaving and self._member.is_out:
            self._finish_leaving()

    def _finish_leaving(self) -> None:
        """End the calls of `leave`."""
        for call in self._leave_calls:
            call.finish()
        self._leave_calls.clear()
        self._on_change()

    def _name_assignment(self, now_ns: int) -> None:
        """Pass the assignment to the fetcher, as far as the names of its topics are known."""
        assignment, topics = self._member.assignment, self._cluster.snapshot.topics
        if self._named[0] is assignment and self._named[1] is topics:
            return
        self._unnamed_deadline_ns = NEVER_NS
        partitions: dict[Key, TopicPartition] = {}
        unnamed = []
        for topic_id, indexes in assignment.items():
            name = self._topic_ids.name_of(topic_id)
            if name is None:
                unnamed.append(topic_id)
            else:
                partitions.update(((topic_id, each), TopicPartition(name, each)) for each in indexes)
        self._acquirer.partitions = partitions
        self._named = _NOTHING if unnamed else (assignment, topics)
        if unnamed:
            self._topic_ids.request(unnamed, now_ns)
            self._unnamed_deadline_ns = self._topic_ids.deadline_ns

    def _has_work(self, now_ns: int) -> bool:
        is_member = not self._member.is_out or self._is_leaving or bool(self._leave_calls)
        return super()._has_work(now_ns) or (
            self._fatal_error is None and (is_member or self._acquirer.is_busy)
        )

    def _work_deadline_ns(self, now_ns: int) -> int:
        if self._fatal_error is not None:
            return super()._work_deadline_ns(now_ns)
        return min(
            super()._work_deadline_ns(now_ns),
            self._member.deadline_ns,
            self._expiry_ns() if self._member.is_member else NEVER_NS,
            self._acquirer.deadline_ns,
            self._unnamed_deadline_ns,
        )

    def _topics_in_use(self) -> Iterable[str]:
        assigned = {each.topic for each in self._acquirer.partitions.values()}
        return {*super()._topics_in_use(), *self._member.topics, *assigned}
