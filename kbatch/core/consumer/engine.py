"""ReadingEngine: a client that reads partitions, without sockets, threads and clocks.

Theory of operation. It is a ClientEngine that fetches the records of the assigned partitions ahead of the
program, within kbatch.fetch.buffer.memory. `poll_completed` returns what it has for the program: records that
are not decoded yet, moved positions, failed partitions. The program releases each Fetched after it has read
it, and only then more is fetched in its place.

`assign`, `add` and `seek` return a generation. Results of earlier generations of a partition may still
arrive; they are released unread. `pause` throws nothing away.

The parts: Fetcher asks for records; Positions finds and corrects offsets, by LeaderRequests; TopicCalls
answers calls about topics and offsets.

After org.apache.kafka.clients.consumer.internals.ConsumerNetworkThread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NotRequired, TypedDict, TypeVar

from kbatch._native.fetch.budget import Budget
from kbatch._native.fetch.frames import FramePool
from kbatch._native.fetch.releases import Releases
from kbatch.core.client.backoff import NS_PER_MS
from kbatch.core.client.calls import Call
from kbatch.core.client.cluster import TopicUse
from kbatch.core.client.engine import ClientEngine
from kbatch.core.consumer.budget import RowsAwaited
from kbatch.core.consumer.calls import OffsetLookup, PartitionCount, TopicCalls, TopicNames
from kbatch.core.consumer.distances import Distances
from kbatch.core.consumer.fetch_metrics import FetchMetrics
from kbatch.core.consumer.fetcher import FETCH_PURPOSE, Fetcher
from kbatch.core.consumer.leader_requests import LeaderRequests
from kbatch.core.consumer.partition_state import (
    NO_END,
    FetchEvent,
    FetchState,
    GroupStart,
    OffsetSpec,
    PartitionState,
    Reset,
    Start,
    reset_of,
)
from kbatch.core.consumer.positions import Positions
from kbatch.core.consumer.results import Result
from kbatch.errors import IllegalStateError, KafkaError
from kbatch.metrics import CONSUMER_METRICS, Metric, MetricsRegistry

if TYPE_CHECKING:
    from kbatch._native.batch.delivery_queue import DeliveryQueue
    from kbatch._native.fetch.road import FetchRoad
    from kbatch.config import ConsumerConfig
    from kbatch.records import TopicPartition

_Call = TypeVar("_Call", bound=Call)

# As in Java. A node has one Fetch in flight; this limits the other requests.
MAX_IN_FLIGHT = 100
# The time for which a topic is kept after its last use, and for which a missing one may still appear: brokers
# learn of a new topic at different times.
TOPIC_IDLE_MS = 300_000
PATIENCE_MS = 5_000
ENDED = (FetchState.COMPLETE, FetchState.FAILED, FetchState.CLOSED)


class EngineOptions(TypedDict):
    """The parameters of every engine of a client that reads, besides its configuration."""

    random: Random
    registry: MetricsRegistry
    now_ns: int
    wall_clock_ms: Callable[[], int]
    on_change: NotRequired[Callable[[], object]]


class ReadingEngine(ClientEngine):
    """The engine of a client that reads.

    Parameters
    ----------
    config : ConsumerConfig
    random, registry, now_ns, on_change
        Parameters of ClientEngine. `on_change` is also called after a call is done.
    wall_clock_ms : Callable[[], int]
        Returns milliseconds since 1970, for auto.offset.reset=by_duration.

    Attributes
    ----------
    metrics : tuple[Metric, ...]
        The table of the registry.
    distances : Distances
        How far the program is from the ends of the logs.
    remedy : str
        What errors say about a position that a log does not have.
    release : Releases
        Gives the memory of results back. Any thread may call it.
    """

    purpose_count: ClassVar[int] = FETCH_PURPOSE + 1
    metrics: ClassVar[tuple[Metric, ...]] = CONSUMER_METRICS
    remedy: ClassVar[str] = "begin where the log has records, or pass on_data_loss='skip'"

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        random: Random,
        registry: MetricsRegistry,
        now_ns: int,
        wall_clock_ms: Callable[[], int],
        on_change: Callable[[], object] = lambda: None,
    ) -> None:
        creates = config.allow_auto_create_topics
        super().__init__(
            config,
            random=random,
            registry=registry,
            now_ns=now_ns,
            max_in_flight=MAX_IN_FLIGHT,
            topic_use=TopicUse(
                max_idle_ms=TOPIC_IDLE_MS,
                patience_ms=config.default_api_timeout_ms if creates else PATIENCE_MS,
                acl_operations="DESCRIBE and READ",
                creates=creates,
            ),
            purpose_count=self.purpose_count,
            on_change=on_change,
        )
        self._default_reset = reset_of(config)
        self._generations = count(1)
        self._seen = (0, 0, 0)  # of `_changes`, in the last run
        self._completed: list[Result] = []
        self._postponed: dict[TopicPartition, PartitionState] = {}  # of failed partitions
        self._budget = Budget(config.kbatch_fetch_buffer_memory)
        reads_committed = config.isolation_level == "read_committed"
        self.distances = Distances(reads_committed=reads_committed)
        self._metrics = FetchMetrics(registry, self._budget, self.distances)
        self._leader_requests = LeaderRequests(
            self._cluster,
            self._connections,
            self._backoff,
            isolation_level=int(reads_committed),
            timeout_ms=config.request_timeout_ms,
        )
        self._calls = TopicCalls(
            self._cluster,
            self._connections,
            self._backoff,
            self._leader_requests,
            timeout_ms=config.default_api_timeout_ms,
            on_change=on_change,
        )
        self._positions = Positions(
            self._cluster, self._leader_requests, self._completed, wall_clock_ms, on_change, self.remedy
        )
        self._frames = FramePool(spare_bytes=self._budget.limit // 4)
        self._fetcher = Fetcher(
            config,
            self._cluster,
            self._connections,
            self._backoff,
            self._positions,
            self._budget,
            self._frames,
            self._completed,
            self._metrics,
            self.distances,
        )
        look_again = partial(self._commands.append, _look_again)
        self.release = Releases(self._fetcher.road, self._metrics.consumed, look_again)

    # For any thread; the caller wakes the owner

    def list_topics(self, call: TopicNames) -> None:
        """Schedule the call for the next `run`."""
        self.call(call, partial(self._make, self._calls.list_topics))

    def partition_count(self, call: PartitionCount) -> None:
        """Schedule the call for the next `run`."""
        self.call(call, partial(self._make, self._calls.count_partitions))

    def list_offsets(self, call: OffsetLookup) -> None:
        """Schedule the call for the next `run`."""
        self.call(call, partial(self._make, self._calls.list_offsets))

    def new_generation(self) -> int:
        """Return the generation of an `assign` to come, so that its results find who awaits them."""
        return next(self._generations)

    def assign(
        self,
        starts: Mapping[TopicPartition, Start | OffsetSpec | GroupStart],
        ends: Mapping[TopicPartition, int] | None = None,
        *,
        reset: Reset | Literal["auto.offset.reset"] = "auto.offset.reset",
        generation: int | None = None,
    ) -> int:
        """Read these partitions, and no others, from their starts. Return the generation. Starts that name
        no topic id are of the topic that has the name now, whatever the client knew of it before.

        Parameters
        ----------
        starts : Mapping[TopicPartition, Start | OffsetSpec | COMMITTED]
            Only a GroupEngine has COMMITTED.
        ends : Mapping[TopicPartition, int]
            The offsets at which partitions are complete; without one a partition never is.
        reset : Reset
            What to do if the log does not have a position: the offset at a time or an end of the log, a
            duration back from then, or None to fail. The default is the configuration's auto.offset.reset.
        generation : int or None
            One of `new_generation`; None for the next.
        """
        self.submit(lambda now_ns: self._close(self._fetcher.partitions.keys() - starts.keys()))
        if generation is None:
            generation = self.new_generation()
        return self._add(starts, ends, reset, generation, is_topic_sure=False)

    def add(
        self,
        starts: Mapping[TopicPartition, Start | OffsetSpec | GroupStart],
        ends: Mapping[TopicPartition, int] | None = None,
        *,
        reset: Reset | Literal["auto.offset.reset"] = "auto.offset.reset",
    ) -> int:
        """Start reading these partitions, besides the others. Return the generation.

        Parameters are those of `assign`.
        """
        return self._add(starts, ends, reset, self.new_generation(), is_topic_sure=True)

    def _add(
        self,
        starts: Mapping[TopicPartition, Start | OffsetSpec | GroupStart],
        ends: Mapping[TopicPartition, int] | None,
        reset: Reset | Literal["auto.offset.reset"],
        generation: int,
        *,
        is_topic_sure: bool,
    ) -> int:
        policy = self._default_reset if isinstance(reset, str) else reset

        def add(now_ns: int) -> None:
            for partition, start in starts.items():
                end_offset = (ends or {}).get(partition, NO_END)
                state = PartitionState(partition, generation, start, end_offset, policy, now_ns)
                state.is_topic_sure &= is_topic_sure
                self._begin(state, now_ns)

        self.submit(add)
        return generation

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        """Stop reading these partitions. Results already fetched may still arrive."""
        self.submit(lambda now_ns: self._close(partitions))

    def seek(
        self, partition: TopicPartition, start: Start | OffsetSpec | GroupStart, end_offset: int | None = None
    ) -> int:
        """Read an assigned partition from another position. Return the generation. Its reset policy stays,
        and so does its end if `end_offset` is None. A partition that is not assigned is ignored. One that has
        failed more than once is read after a wait.
        """
        generation = self.new_generation()

        def seek(now_ns: int) -> None:
            old = self._fetcher.partitions.get(partition)
            if old is not None:
                end = old.end_offset if end_offset is None else end_offset
                new = PartitionState(partition, generation, start, end, old.reset, now_ns)
                new.is_paused, new.assigned_id = old.is_paused, old.assigned_id
                if old.topic_id == self.snapshot.topic_id(partition.topic):
                    new.adopt_log(old)
                waiting = self._postponed.get(partition)
                if waiting is not None:  # another seek must not make the wait longer
                    new.attempts, new.not_before_ns = waiting.attempts, waiting.not_before_ns
                elif old.state is FetchState.FAILED:
                    new.attempts, new.not_before_ns = old.attempts, old.not_before_ns
                    new.back_off(self._backoff, now_ns, at_once=1)
                self._postponed[partition] = new
                self._begin_postponed(now_ns)

        self.submit(seek)
        return generation

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Stop fetching these partitions until `resume`. Results in flight still arrive."""
        self._set_paused(partitions, is_paused=True)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Fetch these partitions again."""
        self._set_paused(partitions, is_paused=False)

    def stop(self, generation: int | None = None) -> None:
        """Stop reading what is of this generation or earlier, or everything. Close the fetch sessions if
        nothing else is read. Results already fetched may still arrive.
        """
        last = self.new_generation() if generation is None else generation

        def stop(now_ns: int) -> None:
            partitions = self._fetcher.partitions
            self._close([each for each, state in partitions.items() if state.generation <= last])
            if not partitions:
                self._fetcher.close_sessions(now_ns)

        self.submit(stop)

    def await_rows(self, awaited: RowsAwaited | None) -> None:
        """Fetch for a poll that waits for more rows than were fetched, until the next call; None for none."""

        def await_rows(now_ns: int) -> None:
            self._fetcher.rows_awaited = awaited

        self.submit(await_rows)

    def reading(self, partition: TopicPartition) -> PartitionState | None:
        """Return what is known of a partition, for reading its attributes; None if it is not read. Commands
        may still be waiting for the next `run`; its generation says so.
        """
        return self._fetcher.partitions.get(partition)

    def lag(self, partition: TopicPartition, end_offset: int | None = None) -> int | None:
        """Return how far the program is from the end of a log by the last answer, or from `end_offset`. None
        if that is not known.
        """
        state = self._fetcher.partitions.get(partition)
        return None if state is None else self.distances.lag(state, end_offset)

    # Loans

    def open_loans(self, deliver: Callable[[list[Any]], object], queue: DeliveryQueue | None = None) -> None:
        """Have the road read what is usual, for an owner that calls `lend` before it waits. `deliver` gets
        results meanwhile. There is no `queue` of deliveries.
        """
        self._fetcher.open_loans(deliver)

    def close_loans(self) -> None:
        """Read nothing more (`Fetcher.close_loans`)."""
        self._fetcher.close_loans()

    def lend(self, descriptor_of: Callable[[int], int], now_ns: int) -> FetchRoad | None:
        """Lend connections to the road (`Fetcher.lend`), while the owner waits; None if there is none."""
        if self._fatal_error is not None or not self._fetcher.partitions:
            return None
        return self._fetcher.lend(descriptor_of, now_ns)

    def take_back(self, now_ns: int) -> None:
        """Take back what is lent (`Fetcher.take_back`)."""
        self._fetcher.take_back(now_ns)

    def seal(self) -> list[Any]:
        """Return nothing: a reader has no batches to seal."""
        return []

    # What is to be done

    def run(self, now_ns: int) -> None:
        self._fetcher.awaits_memory = True  # what is released from here on may come too late for this run
        if self._postponed:
            self._begin_postponed(now_ns)
        super().run(now_ns)

    def poll_completed(self) -> list[Result]:
        """Return what there is for the program, in order per partition."""
        if not self._completed:
            return []
        completed = self._completed[:]
        self._completed.clear()
        return completed

    def fail(self, error: KafkaError) -> None:
        if self._fatal_error is None:
            super().fail(error)
            self._calls.fail(error)
            self._leader_requests.withdraw()
            for state in self._fetcher.partitions.values():
                if state.state not in ENDED:
                    self._positions.fail(state, error)
            self._begin_postponed(0)

    def _work(self, now_ns: int) -> None:
        if self._fatal_error is not None:
            return
        may_differ = self._calls.is_open or self._leader_requests.is_open
        if self._calls.is_open:
            self._calls.run(now_ns)
        if self._leader_requests.is_open:
            self._leader_requests.run(now_ns)
        seen, self._seen = self._seen, self._changes()
        if may_differ or self._seen != seen:
            self._fetcher.run(now_ns)
        else:
            self._fetcher.run_if_due(now_ns)

    def _has_work(self, now_ns: int) -> bool:
        return self._fatal_error is None and (
            self._calls.is_open or self._leader_requests.is_open or bool(self._fetcher.partitions)
        )

    def _follows_cluster(self, now_ns: int) -> bool:
        # a reader that is kept for later must not log, as long as it lives, that its cluster is gone
        return bool(self._admin_requests.open) or self._has_work(now_ns)

    def _observe_work(self, now_ns: int) -> None:
        self._fetcher.observe()
        self._metrics.observe(now_ns // NS_PER_MS)

    def _work_deadline_ns(self, now_ns: int) -> int:
        deadline_ns = self._fetcher.deadline_ns
        for state in self._postponed.values():
            deadline_ns = min(deadline_ns, state.not_before_ns)
        if self._calls.is_open:
            deadline_ns = min(deadline_ns, self._calls.deadline_ns())
        if self._leader_requests.is_open:
            deadline_ns = min(deadline_ns, self._leader_requests.deadline_ns(now_ns))
        return deadline_ns

    def _topics_in_use(self) -> Iterable[str]:
        read = {each.topic for each, state in self._fetcher.partitions.items() if state.state not in ENDED}
        read.update(each.topic for each in self._postponed)
        return read | self._calls.topics() | self._leader_requests.topics()

    # Commands

    def _make(self, begin: Callable[[_Call, int], None], call: _Call, now_ns: int) -> None:
        if self._fatal_error is None:
            begin(call, now_ns)
        else:
            call.finish(self._fatal_error)
            self._on_change()

    def _begin(self, state: PartitionState, now_ns: int) -> None:
        """Start reading a partition, in place of an earlier state of it."""
        self._close([state.partition])
        self._fetcher.add(state)
        self._cluster.want(state.partition.topic, now_ns)
        self._metrics.assigned(state)
        if self._fatal_error is not None:
            self._positions.fail(state, self._fatal_error)
        elif isinstance(state.start, GroupStart):
            self._look_up_committed(state, now_ns)
        else:
            self._positions.begin(state, state.start, now_ns)

    def _begin_postponed(self, now_ns: int) -> None:
        """Start reading the partitions whose wait after a failure is over."""
        for partition, state in list(self._postponed.items()):
            if now_ns >= state.not_before_ns or self._fatal_error is not None:
                state.is_paused = self._fetcher.partitions[partition].is_paused
                self._begin(state, now_ns)
                self._seen = (0, 0, 0)  # the fetcher must look, though nothing else has happened

    def _look_up_committed(self, state: PartitionState, now_ns: int) -> None:
        """Find the first position of a partition that begins at the committed offset."""
        raise IllegalStateError(f"{state.partition}: a reader without a group has no committed offsets")

    def _close(self, partitions: Collection[TopicPartition]) -> None:
        for partition in list(partitions):
            self._postponed.pop(partition, None)
            state = self._fetcher.remove(partition)
            if state is not None:
                state.transition(FetchEvent.CLOSE)
                self._metrics.unassigned(partition)

    def _set_paused(self, partitions: Collection[TopicPartition], *, is_paused: bool) -> None:
        def set_paused(now_ns: int) -> None:
            for partition in partitions:
                if (state := self._fetcher.partitions.get(partition)) is not None:
                    state.is_paused = is_paused

        self.submit(set_paused)


def _look_again(now_ns: int) -> None:
    """Do nothing: the fetcher looks again after any command."""
