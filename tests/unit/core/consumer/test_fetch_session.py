"""Fetch sessions: what a request names, and when it is complete again (KIP-227). The codec reads requests
back, as a broker does.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch.core.consumer.fetch_session import INITIAL_EPOCH, MAX_EPOCH, NO_SESSION, FetchSession
from kbatch.core.consumer.partition_state import NO_END, PartitionState, Start
from kbatch.errors import ErrorCode
from kbatch.protocol import codec, features
from kbatch.protocol.messages import FetchRequest
from kbatch.records import NO_TOPIC_ID, TopicPartition
from tests.support.roads import new_road

A, B, C = (TopicPartition("t", number) for number in range(3))
OLD_ID, NEW_ID = bytes(15) + b"\1", bytes(15) + b"\2"
VERSION, PARTITION_BYTES = 17, 1000


class Asked(NamedTuple):
    """What a request asks of a partition."""

    topic_id: bytes
    leader_epoch: int
    offset: int
    last_epoch: int
    max_bytes: int


class Request(NamedTuple):
    """A request as a broker reads it: partitions by topic (id or name) and number."""

    session_id: int
    epoch: int
    named: dict[tuple[bytes | str, int], Asked]
    forgotten: list[tuple[bytes | str, int]]


def asked(offset: int, topic_id: bytes = OLD_ID) -> Asked:
    return Asked(topic_id, 3, offset, -1, PARTITION_BYTES)


class Reader:
    """The partitions of a client with one node."""

    def __init__(self, version: int = VERSION) -> None:
        self.version = version
        self.road, self.session = new_road(client_id="client", partition_bytes=PARTITION_BYTES)
        self.states: dict[TopicPartition, PartitionState] = {}

    def want(self, wanted: Mapping[TopicPartition, Asked]) -> None:
        """Read these partitions, and no others."""
        for partition in self.states.keys() - wanted.keys():
            self.road.remove(self.states.pop(partition))
        for partition, ask in wanted.items():
            state = self.states.get(partition)
            if state is None:
                state = PartitionState(partition, 1, Start(ask.offset), NO_END, None, 0)
                state.move_to(ask.offset, -1)
                self.states[partition] = state
                self.road.add(state)
            state.topic_id, state.leader_epoch, state.fetch_offset = (
                ask.topic_id,
                ask.leader_epoch,
                ask.offset,
            )
            state.place(self.road, self.session)

    def request(self, wanted: Mapping[TopicPartition, Asked]) -> Request:
        """Ask for these partitions, and no others."""
        self.want(wanted)
        request = self.send(0)
        self.session.is_in_flight = False
        return request

    def send(self, now_ns: int) -> Request:
        """Ask for what can be asked for."""
        self.road.scan(1 << 40, now_ns)
        self.session.ask(self.version, 1, now_ns)
        (frame,) = self.session.write(FetchRequest(), self.version, 7, "client")
        return _read(codec.decode_request(memoryview(frame)[4:]).message, self.version)


def _read(message: Any, version: int) -> Request:
    def name(topic: Any) -> bytes | str:
        found: bytes | str = topic.topic if version < features.FETCH_TOPIC_IDS else topic.topic_id
        return found

    named = {
        (name(topic), each.partition): Asked(
            topic.topic_id,
            each.current_leader_epoch,
            each.fetch_offset,
            each.last_fetched_epoch,
            each.partition_max_bytes,
        )
        for topic in message.topics
        for each in topic.partitions
    }
    forgotten = [
        (name(topic), index) for topic in message.forgotten_topics_data for index in topic.partitions
    ]
    return Request(message.session_id, message.session_epoch, named, forgotten)


def id_of(topic: str, number: int) -> bytes:
    """Return one of the ids of topics with the same name, of one letter."""
    return topic.encode() * 15 + bytes([number])


def by_id(wanted: Mapping[TopicPartition, Asked]) -> dict[tuple[bytes | str, int], Asked]:
    return {(ask.topic_id, at.partition): ask for at, ask in wanted.items()}


def opened(**partitions: int) -> Reader:
    reader = Reader()
    reader.request({TopicPartition("t", "ABC".index(name)): asked(at) for name, at in partitions.items()})
    reader.session.handle_answer(7)
    return reader


def test_first_request_names_all_partitions() -> None:
    request = Reader().request({A: asked(1), B: asked(2)})
    assert (request.session_id, request.epoch) == (NO_SESSION, INITIAL_EPOCH)
    assert request.named == by_id({A: asked(1), B: asked(2)})
    assert request.forgotten == []


def test_later_requests_name_what_has_changed() -> None:
    reader = opened(A=1, B=2)
    request = reader.request({A: asked(1), B: asked(5), C: asked(0)})
    assert (request.session_id, request.epoch) == (7, 1)
    assert request.named == by_id({B: asked(5), C: asked(0)})
    assert request.forgotten == []
    reader.session.handle_answer(7)
    request = reader.request({C: asked(0)})
    assert (request.epoch, request.named) == (2, {})
    assert sorted(request.forgotten) == [(OLD_ID, 0), (OLD_ID, 1)]


def test_new_topic_id_forgets_the_old_one() -> None:
    request = opened(A=1).request({A: asked(1, NEW_ID)})
    assert request.named == by_id({A: asked(1, NEW_ID)})
    assert request.forgotten == [(OLD_ID, 0)]


def test_partitions_of_two_ids_of_a_topic_stand_apart() -> None:
    wanted = {A: asked(1), B: asked(1, NEW_ID), C: asked(2)}
    assert opened(A=1).request(wanted).named == by_id({B: asked(1, NEW_ID), C: asked(2)})


def test_another_reading_of_a_partition_is_named_only_if_it_differs() -> None:
    reader = opened(A=1, B=2)
    reader.want({B: asked(2)})  # A is closed, and read again, as after a seek
    assert reader.request({A: asked(1), B: asked(2)}).named == {}


def test_broker_without_room_for_sessions() -> None:
    reader = Reader()
    reader.request({A: asked(1)})
    reader.session.handle_answer(NO_SESSION)
    request = reader.request({A: asked(2), B: asked(1)})
    assert (request.session_id, request.epoch) == (NO_SESSION, INITIAL_EPOCH)
    assert request.named == by_id({A: asked(2), B: asked(1)})


@pytest.mark.parametrize("version", [4, 6])
def test_versions_without_sessions_name_all_partitions(version: int) -> None:
    reader = Reader(version)
    for offset in (1, 2):
        named = reader.request({A: asked(offset), B: asked(1)}).named
        assert {at: ask.offset for at, ask in named.items()} == {("t", 0): offset, ("t", 1): 1}
        reader.session.handle_answer(NO_SESSION)


def test_lost_answer_makes_the_next_request_complete() -> None:
    reader = opened(A=1, B=2)
    reader.request({A: asked(1), B: asked(3)})
    reader.session.end()
    request = reader.request({A: asked(1), B: asked(3)})
    assert (request.session_id, request.epoch) == (7, INITIAL_EPOCH)  # which closes the old one
    assert request.named == by_id({A: asked(1), B: asked(3)})


def test_forgotten_session_is_not_named_again() -> None:
    reader = opened(A=1)
    reader.session.end(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert reader.request({A: asked(1)}).session_id == NO_SESSION


def test_epoch_after_the_last_is_one() -> None:
    reader = opened(A=1)
    reader.session.epoch = MAX_EPOCH
    reader.session.handle_answer(7)
    assert reader.session.epoch == 1


# Partitions of two topics.
_WANTED = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["t", "u"]), st.integers(0, 3)),
    st.tuples(st.integers(0, 3), st.integers(1, 2)),  # the offset, and the number of the topic's id
)


@pytest.mark.slow
@given(st.lists(st.tuples(_WANTED, st.booleans()), max_size=12))
def test_R18_broker_always_knows_what_is_wanted(
    steps: list[tuple[dict[TopicPartition, tuple[int, int]], bool]],
) -> None:
    """A broker that does what requests say has exactly the partitions that are wanted."""
    reader = Reader()
    known: dict[tuple[bytes | str, int], Asked] = {}
    for step, is_lost in steps:
        wanted = {at: asked(offset, id_of(at.topic, number)) for at, (offset, number) in step.items()}
        request = reader.request(wanted)
        if request.epoch == INITIAL_EPOCH:
            known = {}
        for partition in request.forgotten:
            del known[partition]
        known |= request.named
        assert known == by_id(wanted)
        if is_lost:
            reader.session.end()
        else:
            reader.session.handle_answer(7)


class Changes:
    """What may change about partitions between two requests, and while one is in flight."""

    def __init__(self, choices: random.Random) -> None:
        self._choices = choices
        self.reader = Reader()
        self.other = FetchSession(self.reader.road, 1, self.reader.session.latency)
        self.now_ns = 0
        self.placed = dict[TopicPartition, FetchSession]()
        partitions = [TopicPartition(topic, number) for topic in "tu" for number in range(4)]
        self.reader.want({each: asked(0, id_of(each.topic, 1)) for each in partitions})
        self.placed.update(dict.fromkeys(self.reader.states, self.reader.session))

    def make(self) -> None:
        """Change something about a few partitions."""
        choices, reader = self._choices, self.reader
        self.now_ns += choices.choice((0, 1, 5))
        if not choices.randrange(8):
            reader.version = choices.choice((6, 11, 12, 17))
        if not choices.randrange(8):  # leaders may have moved
            reader.road.displace()
            for state in reader.road.unplaced(self.now_ns):
                self._place(state)
        for state in choices.sample(list(reader.states.values()), choices.randrange(4)):
            match choices.randrange(9):
                case 0 | 1:
                    state.is_paused = not state.is_paused
                case 2:
                    state.move_to(choices.randrange(3), choices.choice((-1, 2)))
                case 3:
                    state.not_before_ns = self.now_ns + choices.randrange(8)
                case 4:
                    state.needed_bytes = choices.choice((0, 3 * PARTITION_BYTES))
                case 5:
                    self._place(state)
                case 6:
                    state.topic_id = id_of(state.topic_name, choices.choice((1, 2)))
                case 7:
                    state.leader_epoch += 1
                case 8:
                    state.withdraw()  # as a part of an answer does
                    self._begin_again(state)

    def _place(self, state: PartitionState) -> None:
        node = self.placed[state.partition] = self._choices.choice((self.reader.session, self.other))
        state.place(self.reader.road, node)

    def _begin_again(self, old: PartitionState) -> None:
        """Read a partition anew, as after a seek."""
        new = PartitionState(old.partition, 2, Start(0), NO_END, None, 0)
        new.topic_id, new.leader_epoch, new.is_paused = old.topic_id, old.leader_epoch, old.is_paused
        self.reader.road.remove(old)
        self.reader.road.add(new)
        self.reader.states[old.partition] = new
        new.move_to(self._choices.randrange(3), -1)
        self._place(new)

    def wanted(self) -> dict[tuple[bytes | str, int], Asked]:
        """Return what a request must ask for, by what each partition is now."""
        by_name = self.reader.version < features.FETCH_TOPIC_IDS
        compares = self.reader.version >= features.FETCH_COMPARES_EPOCHS
        return {
            (at.topic if by_name else state.topic_id, at.partition): Asked(
                NO_TOPIC_ID if by_name else state.topic_id,
                state.leader_epoch if self.reader.version >= 9 else -1,
                state.fetch_offset,
                state.last_epoch if compares else -1,
                max(PARTITION_BYTES, state.needed_bytes),
            )
            for at, state in self.reader.states.items()
            if self.placed[at] is self.reader.session
            and not state.is_paused
            and self.now_ns >= state.not_before_ns
        }

    def answer(self, *, is_lost: bool) -> None:
        """End the request in flight."""
        session = self.reader.session
        session.is_in_flight = False
        if is_lost:
            session.end()
        else:
            session.handle_answer(NO_SESSION if session.version < features.FETCH_SESSIONS else 7)


@given(st.randoms(use_true_random=False))
def test_R18_requests_ask_for_what_partitions_are_now(choices: random.Random) -> None:
    """Whatever changes, and when, a broker has exactly what is wanted of it, as if all were looked at."""
    changes = Changes(choices)
    known: dict[tuple[bytes | str, int], Asked] = {}
    session, was_by_name = changes.reader.session, False
    for _ in range(12):
        changes.make()
        wanted = changes.wanted()
        request = changes.reader.send(changes.now_ns)
        assert session.wanted_count == len(wanted)
        assert all(state.is_in_flight for state in session.asked())
        by_name = changes.reader.version < features.FETCH_TOPIC_IDS
        goes_on = changes.reader.version >= features.FETCH_SESSIONS and request.epoch != INITIAL_EPOCH
        if not goes_on:
            known = {}
        is_refused = goes_on and by_name != was_by_name  # FETCH_SESSION_TOPIC_ID_ERROR
        if not is_refused:
            for partition in request.forgotten:
                del known[partition]
            known |= request.named
            assert known == wanted
        was_by_name = by_name
        changes.make()  # which the next request has
        changes.answer(is_lost=is_refused or choices.random() < 0.1)


def test_ids_of_topics_have_16_bytes() -> None:
    state = PartitionState(A, 1, Start(0), NO_END, None, 0)
    assert state.topic_id == NO_TOPIC_ID
    with pytest.raises(ValueError, match="topic_id must have 16 bytes, got 3"):
        state.topic_id = b"abc"
