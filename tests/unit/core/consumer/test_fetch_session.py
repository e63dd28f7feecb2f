"""Fetch sessions: what a request names, and when it is complete again (KIP-227)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kbatch.core.consumer.fetch_session import INITIAL_EPOCH, MAX_EPOCH, NO_SESSION, FetchSession, Wanted
from kbatch.errors import ErrorCode
from kbatch.records import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))
OLD_ID, NEW_ID = bytes(15) + b"\1", bytes(15) + b"\2"


def wanted(offset: int, topic_id: bytes = OLD_ID) -> Wanted:
    return Wanted(topic_id, 3, offset, -1, 1000)


def opened(**partitions: int) -> FetchSession:
    session = FetchSession()
    session.request({TopicPartition("t", "ABC".index(name)): wanted(at) for name, at in partitions.items()})
    session.handle_answer(7)
    return session


def test_first_request_names_all_partitions() -> None:
    request = FetchSession().request({A: wanted(1), B: wanted(2)})
    assert (request.session_id, request.epoch) == (NO_SESSION, INITIAL_EPOCH)
    assert request.named == {A: wanted(1), B: wanted(2)}
    assert request.forgotten == []


def test_later_requests_name_what_has_changed() -> None:
    session = opened(A=1, B=2)
    request = session.request({A: wanted(1), B: wanted(5), C: wanted(0)})
    assert (request.session_id, request.epoch) == (7, 1)
    assert request.named == {B: wanted(5), C: wanted(0)}
    assert request.forgotten == []
    session.handle_answer(7)
    request = session.request({C: wanted(0)})
    assert (request.epoch, request.named) == (2, {})
    assert request.forgotten == [(A, OLD_ID), (B, OLD_ID)]


def test_new_topic_id_forgets_the_old_one() -> None:
    request = opened(A=1).request({A: wanted(1, NEW_ID)})
    assert request.named == {A: wanted(1, NEW_ID)}
    assert request.forgotten == [(A, OLD_ID)]


def test_broker_without_room_for_sessions() -> None:
    session = FetchSession()
    session.request({A: wanted(1)})
    session.handle_answer(NO_SESSION)
    request = session.request({A: wanted(2), B: wanted(1)})
    assert (request.session_id, request.epoch) == (NO_SESSION, INITIAL_EPOCH)
    assert request.named == {A: wanted(2), B: wanted(1)}


def test_lost_answer_makes_the_next_request_complete() -> None:
    session = opened(A=1, B=2)
    session.request({A: wanted(1), B: wanted(3)})
    session.end()
    request = session.request({A: wanted(1), B: wanted(3)})
    assert (request.session_id, request.epoch) == (7, INITIAL_EPOCH)  # which closes the old one
    assert request.named == {A: wanted(1), B: wanted(3)}


def test_forgotten_session_is_not_named_again() -> None:
    session = opened(A=1)
    session.end(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert session.request({A: wanted(1)}).session_id == NO_SESSION


def test_epoch_after_the_last_is_one() -> None:
    session = opened(A=1)
    session.epoch = MAX_EPOCH
    session.handle_answer(7)
    assert session.epoch == 1


@given(st.lists(st.tuples(st.dictionaries(st.integers(0, 3), st.integers(0, 3)), st.booleans()), max_size=12))
def test_R18_broker_always_knows_what_is_wanted(steps: list[tuple[dict[int, int], bool]]) -> None:
    """A broker that does what requests say has exactly the partitions that are wanted."""
    session = FetchSession()
    known: dict[TopicPartition, Wanted] = {}
    for asked, is_lost in steps:
        everything = {TopicPartition("t", number): wanted(at) for number, at in asked.items()}
        request = session.request(everything)
        if request.epoch == INITIAL_EPOCH:
            known = {}
        for partition, _ in request.forgotten:
            known.pop(partition, None)
        known |= request.named
        assert known == everything
        if is_lost:
            session.end()
        else:
            session.handle_answer(7)
