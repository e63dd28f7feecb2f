"""ClientEngine: a client without a record, with the embedded broker in virtual time."""

from __future__ import annotations

import logging
import random
import socket
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from kbatch.config import ClientConfig
from kbatch.core.admin.groups import CommittedOffsets, GroupListings
from kbatch.core.admin.topics import Offsets
from kbatch.core.client import coordinators
from kbatch.core.client.actions import Close, Connect, Resolve, Write
from kbatch.core.client.admin_requests import AdminRequest
from kbatch.core.client.any_node_request import AnyNodeRequest
from kbatch.core.client.cluster import TopicUse
from kbatch.core.client.coordinators import CoordinatorKey
from kbatch.core.client.engine import ClientEngine
from kbatch.errors import (
    AuthenticationError,
    BrokerNotAvailableError,
    ErrorCode,
    GroupAuthorizationError,
    KafkaTimeoutError,
    NetworkError,
)
from kbatch.metrics import MetricsRegistry
from kbatch.protocol import codec
from kbatch.records import TopicPartition
from kbatch.testing.broker.broker_state import Connection as Session
from tests.support.broker_core import GROUP, TOPIC, VirtualBroker

PARTITION = TopicPartition(TOPIC, 0)

MS = 1_000_000
BACKOFF_MS = 100


class Alone:
    """A ClientEngine and two nodes. Its actions are performed at once; `asked` counts requests by name."""

    def __init__(
        self,
        kind: type[ClientEngine] = ClientEngine,
        bootstrap_servers: str = "node-0:9092",
        topics: Iterable[str] = (TOPIC,),
    ) -> None:
        self.broker = VirtualBroker(2, topics=topics)
        self.now_ns = 0
        self.change_count = 0
        self.asked: Counter[str] = Counter()
        config = ClientConfig(
            bootstrap_servers=bootstrap_servers,
            retry_backoff_ms=BACKOFF_MS,
            retry_backoff_max_ms=BACKOFF_MS,
        )
        self.engine = kind(
            config,
            random=random.Random(1),
            registry=MetricsRegistry(config.client_id),
            now_ns=self.now_ns,
            max_in_flight=5,
            topic_use=TopicUse(300_000, 60_000, "DESCRIBE", creates=False),
            purpose_count=2,
            on_change=self._changed,
        )
        self._sessions: dict[int, Session] = {}

    def _changed(self) -> None:
        self.change_count += 1

    def work(self) -> None:
        """Run the engine as long as it returns actions."""
        self.engine.run(self.now_ns)
        while actions := self.engine.poll_actions():
            for action in actions:
                self._perform(action)
            self.engine.run(self.now_ns)

    def _perform(self, action: Any) -> None:
        match action:
            case Resolve(host=host, port=port):
                self.engine.handle_resolved(host, port, [(socket.AF_INET, (host, port))], self.now_ns)
            case Connect(connection_id=connection_id, host=host):
                self._sessions[connection_id] = Session(int(host.removeprefix("node-")))
                self.engine.handle_connected(connection_id, self.now_ns)
            case Write(connection_id, buffers, size_bytes):
                self.engine.handle_written(connection_id, size_bytes, self.now_ns)
                rest = b"".join(buffers)
                while rest and connection_id in self._sessions:
                    size = 4 + int.from_bytes(rest[:4], "big")
                    self._answer(connection_id, rest[4:size])
                    rest = rest[size:]
            case Close(connection_id):
                del self._sessions[connection_id]

    def _answer(self, connection_id: int, frame: bytes) -> None:
        self.asked[type(codec.decode_request(frame).message).__name__.removesuffix("Request")] += 1
        reply = self.broker.core.handle(self._sessions[connection_id], frame, self.broker.now_ms)
        if reply.closes_connection:
            self.engine.handle_closed(connection_id, None, self.now_ns)
        else:
            self.engine.handle_bytes(connection_id, b"".join(reply.buffers or ()), self.now_ns)

    def advance(self, duration_ms: int) -> None:
        self.now_ns += duration_ms * MS
        self.broker.advance(duration_ms)
        self.work()

    def ask(self, *requests: AdminRequest) -> None:
        """Send the requests, and wait for their answers."""
        for request in requests:
            self.engine.submit_request(request)
        self.work()
        for _ in range(20):
            if all(request.is_done for request in requests):
                return
            self.advance(BACKOFF_MS)
        raise AssertionError(f"no answer: {self.asked}")

    @property
    def deadline_ms(self) -> float:
        return (self.engine.deadline_ns(self.now_ns) - self.now_ns) / MS


class Advertised(Alone):
    """A cluster whose bootstrap server answers, and whose nodes do not at the addresses that it names."""

    def __init__(self, fault: BaseException | None, *, accepts: bool = False) -> None:
        super().__init__(bootstrap_servers="node-0:9099")
        self.fault = fault
        self.accepts = accepts
        self.attempts: Counter[int] = Counter()

    def _perform(self, action: Any) -> None:
        if isinstance(action, Connect):
            self.attempts[min(action.node_id, 0)] += 1
            if action.node_id >= 0:
                if self.accepts:
                    self.engine.handle_connected(action.connection_id, self.now_ns)
                self.engine.handle_closed(action.connection_id, self.fault, self.now_ns)
                return
        elif isinstance(action, Resolve) and isinstance(self.fault, OSError) and action.port != 9099:
            self.attempts[0] += 1
            self.engine.handle_resolved(action.host, action.port, self.fault, self.now_ns)
            return
        super()._perform(action)


@pytest.mark.parametrize(
    ("fault", "accepts"),
    [
        (NetworkError("Connection refused"), False),
        (OSError("Name or service not known"), False),
        (AuthenticationError("the certificate was refused"), False),
        (None, True),
    ],
    ids=["refused", "unresolved", "certificate", "drops"],
)
def test_unreachable_advertised_addresses_are_tried_seldom_and_named_once(
    fault: BaseException | None, accepts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    alone = Advertised(fault, accepts=accepts)
    alone.engine.want_topic(TOPIC)
    for _ in range(3000):
        alone.engine.want_topic(TOPIC)
        alone.advance(20)
    assert 20 <= alone.attempts[-1] <= 80  # of the bootstrap server, in a minute
    assert alone.attempts[0] <= 160  # of two nodes
    assert alone.asked["Metadata"] <= 80
    warnings = [each.message for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(warnings) == 2
    assert all("advertised.listeners" in each for each in warnings)
    assert len(caplog.records) == 2
    assert "advertised.listeners" in str(alone.engine.last_connection_failure)


def test_client_engine_learns_nodes_and_the_topics_it_wants() -> None:
    alone = Alone()
    alone.engine.want_topic(TOPIC)
    alone.work()
    snapshot = alone.engine.snapshot
    assert {node.host for node in snapshot.nodes.values()} == {"node-0", "node-1"}
    assert snapshot.topics[TOPIC].topic_id == alone.broker.topic_id()
    assert alone.change_count > 0
    alone.advance(BACKOFF_MS)
    assert alone.engine.is_quiet(alone.now_ns)
    assert alone.deadline_ms > BACKOFF_MS  # it has no work of its own
    assert alone.asked["Produce"] == alone.asked["InitProducerId"] == 0


def test_requests_of_one_group_search_its_coordinator_once() -> None:
    alone = Alone()
    first, second = (CommittedOffsets({GROUP: [PARTITION]}) for _ in range(2))
    alone.ask(first)
    searches = alone.asked["FindCoordinator"]
    alone.ask(second)
    assert (first.answer, second.answer) == ({}, {})
    assert searches >= 1
    assert alone.asked["FindCoordinator"] == searches


def test_a_coordinator_that_has_moved_is_searched_again() -> None:
    alone = Alone()
    alone.ask(CommittedOffsets({GROUP: [PARTITION]}))
    searches = alone.asked["FindCoordinator"]
    alone.broker.core.faults.fail_next("OffsetFetch", ErrorCode.NOT_COORDINATOR, 1)
    moved = CommittedOffsets({GROUP: [PARTITION]})
    alone.ask(moved)
    assert moved.error is None
    assert alone.asked["FindCoordinator"] == searches + 1


def test_requests_share_a_search_and_its_final_error() -> None:
    alone = Alone()
    alone.broker.core.faults.fail_next("FindCoordinator", ErrorCode.GROUP_AUTHORIZATION_FAILED, 1)
    refused = [CommittedOffsets({GROUP: [PARTITION]}) for _ in range(2)]
    alone.ask(*refused)
    assert [type(request.error) for request in refused] == [GroupAuthorizationError] * 2
    assert alone.asked["FindCoordinator"] == 1
    assert alone.asked["OffsetFetch"] == 0
    later = CommittedOffsets({GROUP: [PARTITION]})
    alone.ask(later)
    assert later.error is None
    assert alone.asked["FindCoordinator"] == 2


def test_search_backs_off_after_a_retriable_error() -> None:
    alone = Alone()
    alone.broker.core.faults.fail_next("FindCoordinator", ErrorCode.COORDINATOR_NOT_AVAILABLE, 2)
    request = CommittedOffsets({GROUP: [PARTITION]})
    alone.engine.submit_request(request)
    for searches in (1, 2):
        alone.work()
        assert alone.asked["FindCoordinator"] == searches
        assert alone.deadline_ms == BACKOFF_MS
        alone.advance(BACKOFF_MS - 1)
        assert alone.asked["FindCoordinator"] == searches
        alone.advance(1)
    assert request.error is None
    assert request.is_done


def test_search_ends_with_its_last_user() -> None:
    alone = Alone()
    alone.broker.core.faults.fail_next("FindCoordinator", ErrorCode.COORDINATOR_NOT_AVAILABLE, 100)
    request = CommittedOffsets({GROUP: [PARTITION]})
    alone.engine.submit_request(request)
    alone.work()
    request.finish()
    alone.advance(10 * BACKOFF_MS)
    assert alone.asked["FindCoordinator"] == 1


def test_a_question_to_a_node_searches_no_coordinator() -> None:
    alone = Alone()
    alone.work()
    named = [GroupListings([node_id]) for node_id in alone.engine.snapshot.nodes]
    alone.ask(*named)
    assert [request.answer for request in named] == [[], []]
    assert alone.asked["FindCoordinator"] == 0


def counted_looks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often requests look whether the coordinator of a group is ready."""
    looks: Counter[str] = Counter()
    ready_node = coordinators.Coordinators.ready_node

    def counted(self: coordinators.Coordinators, key: CoordinatorKey, *given: Any) -> int | None:
        looks[key.key] += 1
        return ready_node(self, key, *given)

    monkeypatch.setattr(coordinators.Coordinators, "ready_node", counted)
    return looks


def test_many_requests_share_a_search_and_look_a_few_times_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call of the engine would else look at all of them."""
    alone = Alone()
    alone.ask(CommittedOffsets({GROUP: None}))  # which connects
    looks = counted_looks(monkeypatch)
    requests = [CommittedOffsets({f"{GROUP}-{number}": None}) for number in range(300)]
    alone.ask(*requests)
    assert [request.error for request in requests if request.error] == []
    assert (alone.asked["FindCoordinator"], alone.asked["OffsetFetch"]) == (2, 301)
    assert looks.total() < 5 * 300


def test_offsets_of_new_topics_wait_for_metadata_only() -> None:
    """One update for all topics, then one request a leader, without a back-off."""
    names = [f"new-{number}" for number in range(50)]
    alone = Alone(topics=names)
    request = Offsets({TopicPartition(name, 0): -1 for name in names})
    alone.engine.submit_request(request)
    alone.work()
    assert (request.is_done, request.errors, len(request.results)) == (True, {}, 50)
    nodes = {alone.engine.snapshot.leader(name, 0)[0] for name in names}
    assert alone.asked["ListOffsets"] == len(nodes)


def test_items_that_are_refused_are_tried_again_together() -> None:
    names = [f"new-{number}" for number in range(30)]
    alone = Alone(topics=names)
    alone.ask(Offsets({TopicPartition(name, 0): -1 for name in names}))
    before = alone.asked["ListOffsets"]
    alone.broker.core.faults.fail_next("ListOffsets", ErrorCode.NOT_LEADER_OR_FOLLOWER, before)
    request = Offsets({TopicPartition(name, 0): -1 for name in names})
    alone.ask(request)
    assert list(request.results) == [TopicPartition(name, 0) for name in names]
    assert alone.asked["ListOffsets"] == 3 * before


def test_requests_that_wait_for_a_lost_node_go_on() -> None:
    alone = Alone()
    alone.broker.core.faults.drop_connection("OffsetFetch", "before", 3)
    requests = [CommittedOffsets({f"{GROUP}-{number}": None}) for number in range(40)]
    alone.ask(*requests)
    assert [request.error for request in requests if request.error] == []


def test_request_that_waits_behind_others_ends_at_its_deadline() -> None:
    alone = Alone()
    alone.broker.core.faults.delay("OffsetFetch", 1000)
    requests = [CommittedOffsets({f"{GROUP}-{number}": None}) for number in range(20)]
    for request in requests:
        request.deadline_ns = 500 * MS
        alone.engine.submit_request(request)
    alone.work()
    assert not any(request.is_done for request in requests)
    alone.advance(499)
    assert not any(request.is_done for request in requests)
    assert alone.deadline_ms == 1
    alone.advance(1)
    assert {type(request.error) for request in requests} == {KafkaTimeoutError}


class _Member(ClientEngine):
    """A client that looks for the coordinator of a group, for requests of purpose 1."""

    node_id: int | None = None

    def __init__(self, *given: Any, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self.pending = AnyNodeRequest(purpose=1)

    def _work(self, now_ns: int) -> None:
        key = CoordinatorKey(coordinators.GROUP, GROUP)
        self.node_id = self._coordinators.ready_node(key, self.pending, now_ns)


def test_coordinator_is_ready_in_the_lane_of_the_request() -> None:
    alone = Alone(_Member)
    assert isinstance(alone.engine, _Member)
    alone.work()
    node_id = alone.engine.node_id
    assert node_id is not None
    assert alone.engine.is_ready(node_id, alone.now_ns, purpose=1)
    assert not alone.engine.is_ready(node_id, alone.now_ns)  # nothing needed purpose 0


def test_failed_client_fails_its_requests_and_sends_no_more() -> None:
    alone = Alone()
    request = CommittedOffsets({GROUP: [PARTITION]})
    alone.engine.submit_request(request)
    alone.engine.run(alone.now_ns)
    before = alone.change_count
    error = BrokerNotAvailableError()
    alone.engine.fail(error)
    assert alone.engine.fatal_error is request.error is error
    assert alone.change_count == before + 1
    alone.engine.submit_request(CommittedOffsets({GROUP: [PARTITION]}))
    alone.work()
    assert alone.asked["FindCoordinator"] == 0
