"""A ReadingEngine and an embedded cluster of brokers, joined without sockets, threads or clocks.

`Reading.run` lets both work until nothing more happens without time; `advance` lets time pass, deadline by
deadline. Records that arrive are decoded at once, and released unless `keeps` is set.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from kbatch.config import ConsumerConfig
from kbatch.core.client.actions import Close, Connect, Resolve, Write
from kbatch.core.client.calls import Call
from kbatch.core.consumer.calls import OffsetLookup, PartitionCount, TopicNames
from kbatch.core.consumer.engine import ReadingEngine
from kbatch.core.consumer.partition_state import EARLIEST, GroupStart, OffsetSpec, Start
from kbatch.core.consumer.results import Failed, Fetched, Moved
from kbatch.errors import KafkaError, NetworkError
from kbatch.metrics import CONSUMER_METRICS, Metric, MetricsRegistry
from kbatch.protocol import messages
from kbatch.records import TopicPartition
from kbatch.testing.broker.broker_state import Connection
from tests.support.broker_core import START_MS, TOPIC, VirtualBroker

MS = 1_000_000
FIRST = TopicPartition(TOPIC, 0)
# Steps without a passing of time, after which work is taken for endless.
MANY_STEPS = 10_000


class Link:
    """A connection between the engine and a node."""

    def __init__(self, connection_id: int, node_id: int) -> None:
        self.connection_id = connection_id
        self.connection = Connection(node_id)
        self.received = bytearray()
        self.frames: deque[bytes] = deque()
        self.is_busy = False  # a broker reads the next request after the answer to the last one
        self.is_open = True


class Reading:
    """The engine, the brokers and what has been read.

    Parameters
    ----------
    nodes, partitions : int
        Of the cluster, and of the topic TOPIC.
    versions : mapping of int to (int, int)
        Ranges of versions that brokers offer, by API, instead of their own.
    keeps : bool
        True to keep records until `release_all`.
    broker : VirtualBroker | None
        A cluster that there is already.
    **settings
        Of ConsumerConfig.

    Attributes
    ----------
    values : dict of TopicPartition to list of (offset, value)
        The records that came.
    results : list
        All results that came.
    unreachable : set of int
        Nodes to which no connection is made.
    """

    engine_class: type[Any] = ReadingEngine
    metrics: tuple[Metric, ...] = CONSUMER_METRICS
    engine: ReadingEngine

    def __init__(
        self,
        *,
        nodes: int = 1,
        partitions: int = 1,
        versions: Mapping[int, tuple[int, int]] | None = None,
        keeps: bool = False,
        seed: int = 1,
        broker: VirtualBroker | None = None,
        **settings: Any,
    ) -> None:
        self.broker = VirtualBroker(nodes, topics=(), shares_logs=True) if broker is None else broker
        self.now_ns = (self.broker.now_ms - START_MS) * MS
        self.cluster = self.broker.state.cluster
        if TOPIC not in self.cluster.topics:
            self.cluster.create_topic(TOPIC, partitions)
        self.faults = self.broker.core.faults
        self.keeps = keeps
        settings.setdefault("bootstrap_servers", "a:9092")
        settings.setdefault("auto_offset_reset", "none")
        self.config = ConsumerConfig(**settings)
        self.registry = MetricsRegistry("c", metrics=self.metrics)
        self.change_count = 0
        self.engine = self._new_engine(seed)
        self.links: dict[int, Link] = {}
        self.unreachable: set[int] = set()
        self.values: dict[TopicPartition, list[tuple[int, bytes | None]]] = {}
        self.results: list[Fetched | Moved | Failed] = []
        self.kept: list[Fetched] = []
        self._due: deque[Callable[[], object]] = deque()
        if versions is not None:
            self.faults.intercept("ApiVersions", lambda request: self._versions(versions))

    def _new_engine(self, seed: int) -> Any:
        return self.engine_class(
            self.config,
            random=random.Random(seed),
            registry=self.registry,
            now_ns=self.now_ns,
            wall_clock_ms=lambda: START_MS + self.now_ns // MS,
            on_change=self._changed,
        )

    def _changed(self) -> None:
        self.change_count += 1

    def _versions(self, versions: Mapping[int, tuple[int, int]]) -> Any:
        kind = messages.ApiVersionsResponse
        known = {each.api_key: (each.versions.start, each.versions[-1]) for each in self._answered()}
        return kind(
            api_keys=[
                kind.ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in (known | dict(versions)).items()
                if high >= 0
            ]
        )

    def _answered(self) -> list[Any]:
        return list(self.broker.state.answered_requests)

    # What brokers have

    def log(self, partition: TopicPartition = FIRST) -> Any:
        return self.cluster.partition(*partition).log

    def put(self, *values: bytes, partition: TopicPartition = FIRST, producer_id: int = -1) -> int:
        """Append a batch to a log, and return its base offset. With a producer id, it is in a transaction."""
        led = self.cluster.partition(*partition)
        offset: int = led.log.append_records(
            [(b"", value) for value in values],
            now_ms=self.broker.now_ms,
            leader_epoch=led.leader_epoch,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
        )
        self.broker.act(lambda state: state.partition_changed(*partition))
        return offset

    def end_transaction(self, producer_id: int, *, commit: bool, partition: TopicPartition = FIRST) -> None:
        led = self.cluster.partition(*partition)
        led.log.append_marker(
            producer_id, 0, commit, 0, now_ms=self.broker.now_ms, leader_epoch=led.leader_epoch
        )
        self.broker.act(lambda state: state.partition_changed(*partition))

    def move_leader(self, node_id: int, partition: TopicPartition = FIRST) -> None:
        self.broker.act(lambda state: state.move_leader(*partition, node_id))

    def requests(self, api: str) -> list[Any]:
        """Return the requests that brokers have received."""
        return [each.message for each in self.broker.core.requests if each.api == api]

    # What the program does

    def read(
        self,
        *partitions: TopicPartition,
        start: Start | OffsetSpec | GroupStart = EARLIEST,
        ends: Mapping[TopicPartition, int] | None = None,
        **rest: Any,
    ) -> None:
        self.engine.assign(dict.fromkeys(partitions or (FIRST,), start), ends, **rest)
        self.run()

    def found(self, specs: Mapping[TopicPartition, OffsetSpec]) -> OffsetLookup:
        call = OffsetLookup(specs)
        self.engine.list_offsets(call)
        self.run()
        return call

    def partition_count(self, topic: str) -> PartitionCount:
        call = PartitionCount(topic)
        self.engine.partition_count(call)
        self.run()
        return call

    def topic_names(self) -> TopicNames:
        call = TopicNames()
        self.engine.list_topics(call)
        self.run()
        return call

    def release_all(self) -> None:
        """Release what `keeps` has kept."""
        for each in self.kept:
            self.engine.release(each)
        self.kept.clear()
        self.run()

    # Both at work

    def run(self) -> None:
        """Let both work until only time or an event helps."""
        for _ in range(MANY_STEPS):
            self.engine.run(self.now_ns)
            actions = self.engine.poll_actions()
            for action in actions:
                self._perform(action)
            self.engine.observe(self.now_ns)
            self._take_results()
            is_busy = bool(actions or self._due)
            while self._due:
                self._due.popleft()()
            self._take_results()
            if not is_busy:
                return
        raise AssertionError("there is no end of work although no time passes")

    @property
    def is_busy(self) -> bool:
        """True if `run` has something to do, since a broker has answered."""
        return bool(self._due)

    def advance(self, duration_ms: int) -> None:
        """Let time pass, deadline by deadline."""
        end_ns = self.now_ns + duration_ms * MS
        self.run()
        for _ in range(MANY_STEPS):
            broker_ms = self.broker.core.next_deadline_ms()
            due_ns = self.engine.deadline_ns(self.now_ns)
            if broker_ms is not None:
                due_ns = min(due_ns, (broker_ms - START_MS) * MS)
            if due_ns > end_ns:
                break
            self.now_ns = max(self.now_ns, due_ns)
            self.broker.now_ms = START_MS + self.now_ns // MS
            self.broker.core.handle_timeout(self.broker.now_ms)
            self.run()
        else:
            raise AssertionError("a deadline that is not met: the loop would spin")
        self.now_ns = end_ns
        self.broker.now_ms = START_MS + end_ns // MS
        self.run()

    def cut(self, node_id: int | None = None) -> None:
        """Close the connections to one node, or to all."""
        for link in list(self.links.values()):
            if link.is_open and node_id in (None, link.connection.node_id):
                self._end(link)
        self.run()

    def _end(self, link: Link) -> None:
        link.is_open = False
        self.engine.handle_closed(link.connection_id, NetworkError("cut"), self.now_ns)

    def _perform(self, action: Any) -> None:
        if isinstance(action, Resolve):
            addresses = [(2, ("10.0.0.1", action.port))]
            self._due.append(
                lambda: self.engine.handle_resolved(action.host, action.port, addresses, self.now_ns)
            )
        elif isinstance(action, Connect):
            link = Link(action.connection_id, max(action.node_id, 0))
            self.links[action.connection_id] = link
            self._due.append(lambda: self._connect(link))
        elif isinstance(action, Write):
            link = self.links[action.connection_id]
            link.received += b"".join(action.buffers)
            self._due.append(lambda: self._written(link, action.size_bytes))
        elif isinstance(action, Close):
            self.links[action.connection_id].is_open = False

    def _connect(self, link: Link) -> None:
        if not link.is_open:
            return
        if link.connection.node_id in self.unreachable:
            self._end(link)
        else:
            self.engine.handle_connected(link.connection_id, self.now_ns)

    def _written(self, link: Link, size_bytes: int) -> None:
        if not link.is_open:
            return
        self.engine.handle_written(link.connection_id, size_bytes, self.now_ns)
        while len(link.received) >= 4:
            end = 4 + int.from_bytes(link.received[:4], "big")
            link.frames.append(bytes(link.received[4:end]))
            del link.received[:end]
        self._serve(link)

    def _serve(self, link: Link) -> None:
        if link.is_busy or not link.frames or not link.is_open:
            return
        link.is_busy = True
        reply = self.broker.core.handle(link.connection, link.frames.popleft(), self.broker.now_ms)
        reply.then(lambda: self._due.append(lambda: self._answer(link, reply)))

    def _answer(self, link: Link, reply: Any) -> None:
        link.is_busy = False
        if not link.is_open:
            return
        if reply.buffers:
            self._receive(link, b"".join(reply.buffers))
        if reply.closes_connection and link.is_open:
            self._end(link)
        self._serve(link)

    def _receive(self, link: Link, data: bytes) -> None:
        """Deliver an answer in pieces, the rest of a large one in place."""
        view, space = memoryview(data), None
        while view and link.is_open:
            size = min(len(view), 1000 if space is None else len(space))
            piece = view[:size]
            if space is not None:
                space[:size] = piece
                piece = space[:size]
            space = self.engine.handle_bytes(link.connection_id, piece, self.now_ns)
            view = view[size:]

    def _take_results(self) -> None:
        for result in self.engine.poll_completed():
            self.results.append(result)
            if isinstance(result, Fetched):
                if result.records is not None:
                    self._keep(result)
                if self.keeps:
                    self.kept.append(result)
                else:
                    self.engine.release(result, 1)

    def _keep(self, fetched: Fetched) -> None:
        assert fetched.records is not None
        rows = self.values.setdefault(fetched.partition, [])
        for record in fetched.records.take_records(fetched.records.row_bound + 1):
            rows.append((record.offset, None if record.value is None else bytes(record.value)))
        assert fetched.records.fault is None or not fetched.is_last

    # What came

    def offsets(self, partition: TopicPartition = FIRST) -> list[int]:
        return [offset for offset, _ in self.values.get(partition, [])]

    @property
    def errors(self) -> list[KafkaError]:
        """The errors of failed partitions."""
        return [each.error for each in self.results if isinstance(each, Failed)]

    @property
    def moves(self) -> list[Moved]:
        return [each for each in self.results if isinstance(each, Moved)]

    def is_complete(self, partition: TopicPartition = FIRST) -> bool:
        """True if the partition's end has come, once and as the last of its results."""
        ends = [
            each.is_last for each in self.results if isinstance(each, Fetched) and each.partition == partition
        ]
        assert sum(ends) <= 1 and not any(ends[:-1])
        return bool(ends) and ends[-1]


def done(call: Call) -> Any:
    """Return the answer of a call that is done without an error."""
    assert call.is_done, f"{call.name} has no answer"
    if call.error is not None:
        raise call.error
    return call.answer  # type: ignore[attr-defined]
