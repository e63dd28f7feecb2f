"""What is known of a partition's leader, and for how long."""

from __future__ import annotations

import pytest

from kbatch._native.send.in_flight import Identity, PartitionState
from tests.support.accumulating import accumulator, one, put

NOW_NS = 1_000_000
OLDEST_NS = 900_000  # what was known then is known no more


def known_state() -> PartitionState:
    state = PartitionState("t", 0)
    state.restart(Identity(7, 3), 0)
    state.begin_leader(1, 0)
    state.known_ns = OLDEST_NS + 1
    state.begin_leader(1, 0)
    return state


def test_another_leader_or_epoch_ends_what_is_known() -> None:
    state = known_state()
    assert state.is_known_since(OLDEST_NS)
    for leader, epoch in ((1, 1), (2, 2), (-1, -1)):
        state.known_ns = NOW_NS
        state.begin_leader(leader, epoch)
        assert not state.is_known_since(OLDEST_NS)


def test_a_topic_made_anew_ends_what_is_known() -> None:
    state = known_state()
    for topic_id, is_known in ((b"a" * 16, True), (b"a" * 16, True), (b"b" * 16, False)):
        state.begin_topic(topic_id)
        assert state.is_known_since(OLDEST_NS) == is_known


@pytest.mark.parametrize("begins", ["leader", "topic"])
def test_answer_of_a_former_leader_or_topic_makes_nothing_known(begins: str) -> None:
    """The leader is in the same epoch in the new topic, as if it had answered."""
    state = known_state()
    state.begin_topic(b"a" * 16)
    records = accumulator(2)
    put(records, b"value", partition=0)
    entry = state.add(one(records), NOW_NS)
    entry.node_id = 1
    if begins == "topic":
        state.begin_topic(b"b" * 16)
    else:
        state.begin_leader(1, 1)
    state.acknowledge(entry, OLDEST_NS)
    assert not state.is_known_since(OLDEST_NS)


def test_batch_may_be_in_the_log_of_a_topic_that_comes_back() -> None:
    """A broker with old metadata names the topic of before for a while."""
    state = known_state()
    state.begin_topic(b"a" * 16)
    records = accumulator(2)
    put(records, b"value", partition=0)
    entry = state.add(one(records), NOW_NS)
    state.begin_topic(b"b" * 16)
    entry.is_ambiguous = entry.batch.possibly_persisted = True
    for topic_id, is_ambiguous in (
        (b"a" * 16, True),
        (b"c" * 16, False),
        (b"b" * 16, True),
        (b"d" * 16, False),
    ):
        state.begin_topic(topic_id)
        assert entry.is_ambiguous == is_ambiguous
