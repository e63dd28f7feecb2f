"""What is known of a partition's leader, and for how long."""

from __future__ import annotations

from kbatch._native.send.in_flight import Identity, PartitionState

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
