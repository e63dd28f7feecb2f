"""Fetch sessions: incremental requests compared with full requests."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing.broker.fetch_sessions import EVICTION_MS, SLOTS
from tests.support.broker_core import START_MS, TOPIC, VirtualBroker, batch, fetch_request, produce_request

OTHER = "others"
kind = messages.FetchRequest


def ask(
    broker: VirtualBroker,
    session_id: int,
    epoch: int,
    *,
    named: bool = True,
    node: int = 0,
    leader_epoch: int = -1,
) -> Any:
    request = fetch_request(broker, leader_epoch=leader_epoch)
    if not named:
        request.topics = []
    request.session_id, request.session_epoch = session_id, epoch
    return broker.client(node).ask(request)


def test_full_request_begins_a_session(broker: VirtualBroker) -> None:
    first, second = ask(broker, 0, 0), ask(broker, 0, 0)
    assert 0 < first.session_id != second.session_id > 0
    assert len(first.responses) == 1


@pytest.mark.parametrize(
    ("session", "epoch", "code"),
    [
        ("its", 2, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        ("another", 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        ("none", 3, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    ],
)
def test_wrong_session_or_epoch_fails_the_request(
    broker: VirtualBroker, session: str, epoch: int, code: int
) -> None:
    its = ask(broker, 0, 0).session_id
    answer = ask(broker, {"its": its, "another": its + 1, "none": 0}[session], epoch)
    assert (answer.error_code, answer.session_id, answer.responses) == (code, 0, [])
    assert ask(broker, its, 1).error_code == 0  # and the session continues


def test_topic_ids_in_a_session_with_names_fail_the_request(broker: VirtualBroker) -> None:
    request = fetch_request(broker)
    request.session_epoch = 0
    for topic in request.topics:
        topic.topic = TOPIC
    session_id = broker.client().ask(request, 12).session_id
    answer = ask(broker, session_id, 1)
    assert answer.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_epoch_minus_one_ends_the_session(broker: VirtualBroker) -> None:
    session_id = ask(broker, 0, 0).session_id
    last = ask(broker, session_id, -1)
    assert (last.session_id, len(last.responses)) == (0, 1)
    assert ask(broker, session_id, 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_error_is_answered_each_time_and_its_end_once() -> None:
    broker = VirtualBroker(nodes=2)
    codes = []
    session_id = 0
    for epoch in range(5):
        if epoch == 3:
            broker.act(lambda state: state.move_leader(TOPIC, 0, 1))
        answer = ask(broker, session_id, epoch, named=epoch == 0, leader_epoch=1)
        session_id = answer.session_id
        codes.append([each.partitions[0].error_code for each in answer.responses])
    early = [ErrorCode.UNKNOWN_LEADER_EPOCH]
    assert codes == [early, early, early, [0], []]


def test_partition_with_records_comes_last_in_the_next_response() -> None:
    broker = VirtualBroker(topics=(TOPIC, OTHER))
    for topic in (TOPIC, OTHER):
        for _ in range(2):
            broker.client().ask(produce_request(broker, batch(bytes(200)), topic=topic))
    first = fetch_request(broker, topic=TOPIC, max_bytes=250)
    first.topics += fetch_request(broker, topic=OTHER, max_bytes=250).topics
    first.session_id, first.session_epoch = 0, 0
    session_id = broker.client().ask(first).session_id
    with_records = []
    for epoch in (1, 2, 3):
        again = kind(max_wait_ms=0, max_bytes=250, session_id=session_id, session_epoch=epoch)
        answer = broker.client().ask(again)
        with_records += [each.topic_id for each in answer.responses if each.partitions[0].records]
    assert with_records == [broker.topic_id(topic) for topic in (TOPIC, OTHER, TOPIC)]


def test_stopped_node_forgets_its_sessions() -> None:
    broker = VirtualBroker(nodes=2)
    kept, lost = ask(broker, 0, 0, node=0).session_id, ask(broker, 0, 0, node=1).session_id
    broker.act(lambda state: state.stop_node(1))
    broker.act(lambda state: state.start_node(1))
    assert ask(broker, kept, 1, node=0).error_code == 0
    assert ask(broker, lost, 1, node=1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_full_cache_gives_no_session_until_one_is_idle(broker: VirtualBroker) -> None:
    first = ask(broker, 0, 0).session_id
    for _ in range(SLOTS - 1):
        assert ask(broker, 0, 0).session_id
    assert ask(broker, first, 1).session_id == first  # the others are idle for longer now
    broker.advance(EVICTION_MS)
    assert ask(broker, 0, 0).session_id == 0
    broker.advance(1)
    assert ask(broker, 0, 0).session_id
    assert ask(broker, first, 2).error_code == 0


def test_session_that_goes_on_fails_its_waiting_request(broker: VirtualBroker) -> None:
    session_id = ask(broker, 0, 0).session_id
    waiting = kind(max_wait_ms=10_000, min_bytes=1, session_id=session_id, session_epoch=1)
    answer = broker.client().send(waiting)
    assert not answer.is_there
    assert ask(broker, session_id, 2, named=False).error_code == 0
    broker.client().ask(produce_request(broker, batch(b"v")))
    assert answer.message.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


class Reader(RuleBasedStateMachine):
    """A reader in a session has each record once and in order, and the watermarks of a full answer.

    It keeps what the session's answers said of each partition, as Java's FetchSessionHandler does.
    """

    @initialize(limit=st.sampled_from((120, 1 << 20)))
    def connect(self, limit: int) -> None:
        self.broker = VirtualBroker(topics=(TOPIC, OTHER))
        self.limit = limit
        self.offsets = {TOPIC: 0, OTHER: 0}
        self.named: dict[str, int] = {}  # the offsets that the session knows
        self.forgotten: list[str] = []
        self.said: dict[str, int] = {}  # high watermarks
        self.session_id = self.epoch = 0

    @rule(topic=st.sampled_from((TOPIC, OTHER)), count=st.integers(1, 3))
    def produce(self, topic: str, count: int) -> None:
        values = [bytes(40) for _ in range(count)]
        request: Any = produce_request(self.broker, batch(*values, timestamp_ms=START_MS))
        request.topic_data[0].topic_id = self.broker.topic_id(topic)
        self.broker.client().ask(request)

    @rule(topic=st.sampled_from((TOPIC, OTHER)))
    def forget(self, topic: str) -> None:
        if len(self.named) == 2:  # a session without partitions ends
            del self.named[topic]
            self.said.pop(topic, None)
            self.forgotten = [topic]
            self.fetch(names=False)

    @rule()
    def end(self) -> None:
        self.session_id = self.epoch = 0
        self.named, self.said = {}, {}

    @rule(names=st.booleans())
    def fetch(self, names: bool = True) -> None:
        names = names or not self.epoch
        moved = {topic: at for topic, at in self.offsets.items() if self.named.get(topic) != at}
        wanted = {topic: at for topic, at in moved.items() if names or topic in self.named}
        request = kind(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=self.limit,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[self._topic(topic, at) for topic, at in wanted.items()],
            forgotten_topics_data=[
                kind.ForgottenTopic(topic_id=self.broker.topic_id(topic), partitions=[0])
                for topic in self.forgotten
            ],
        )
        answer = self.broker.client().ask(request)
        assert answer.error_code == 0
        assert self.epoch == 0 or answer.session_id == self.session_id
        self.session_id, self.epoch, self.forgotten = answer.session_id, self.epoch + 1, []
        self.named |= wanted
        for response in answer.responses:
            topic = next(name for name in self.offsets if self.broker.topic_id(name) == response.topic_id)
            self._take(topic, response.partitions[0])

    def _topic(self, topic: str, offset: int) -> Any:
        partition = kind.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        return kind.FetchTopic(topic_id=self.broker.topic_id(topic), partitions=[partition])

    def _take(self, topic: str, answer: Any) -> None:
        assert answer.error_code == 0
        self.said[topic] = answer.high_watermark
        for found in self.broker.state.cluster.partition(topic, 0).log.batches():
            if found.base_offset >= self.named[topic] and bytes(found) in bytes(answer.records):
                assert found.base_offset == self.offsets[topic]
                self.offsets[topic] = found.last_offset + 1

    @rule()
    def catch_up(self) -> None:
        """Read to the end of both partitions, however small an answer may be."""
        for _ in range(60):
            self.fetch()
        ends = {t: self.broker.state.cluster.partition(t, 0).log.high_watermark for t in self.offsets}
        assert self.offsets == ends

    @rule()
    def compare_watermarks(self) -> None:
        """Check that one request returns every change."""
        if self.epoch:
            self.fetch(names=False)
            for topic, high_watermark in self.said.items():
                assert high_watermark == self.broker.state.cluster.partition(topic, 0).log.high_watermark


TestReader = Reader.TestCase
TestReader.settings = settings(max_examples=60, stateful_step_count=15, deadline=None)
