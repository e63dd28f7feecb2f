"""Nodes that offer no Produce request, at first or for a while: their records wait, and other nodes go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kbatch.errors import ErrorCode, KafkaTimeoutError, UnsupportedVersionError
from kbatch.protocol import messages
from tests.support.sending import OK, OUT_OF_ORDER, PRODUCER_ID, Sending

PRODUCE = messages.ProduceRequest.api_key
INIT_PRODUCER_ID = messages.InitProducerIdRequest.api_key
LACKS: list[tuple[int, int] | None] = [None, (14, 20), (0, 2)]
LACK_IDS = ["missing", "newer", "older"]


def two_nodes(**settings: Any) -> Sending:
    """Partition 0 is led by node 1, partition 1 by node 2."""
    s = Sending(2, **settings)
    s.move(2, partition=1)
    s.refresh()
    return s


def sickened(s: Sending, offer: tuple[int, int] | None, node_id: int = 2) -> None:
    """The node reconnects, and offers no usable Produce."""
    s.node_versions[node_id] = {PRODUCE: offer}
    s.drop(node_id)


@pytest.mark.parametrize("has_lane", [True, False], ids=["lane", "engine"])
@pytest.mark.parametrize("offer", LACKS, ids=LACK_IDS)
def test_a_node_without_produce_stops_no_other(offer: tuple[int, int] | None, has_lane: bool) -> None:
    s = two_nodes().warmed()
    if has_lane:
        s.with_lane()
    sickened(s, offer)
    s.send("waits", partition=1)
    s.advance(100)
    for number in range(20):
        s.send(f"b{number}", partition=0)
        if has_lane:
            s.lend_once()
        s.answer(**{f"b{number}": OK})
    assert not s.is_done("waits")
    assert s.engine.deadline_ns(s.now_ns) > s.now_ns
    del s.node_versions[2]
    s.advance(5_000)  # the connection is the same
    if has_lane:
        s.lend_once()
    s.answer(waits=OK)
    assert s.offset("waits") == 1


@pytest.mark.parametrize("has_lane", [True, False], ids=["lane", "engine"])
def test_a_node_that_lacks_produce_at_first_is_waited_for(has_lane: bool) -> None:
    """As later, if another node has it: nothing is fatal."""
    s = two_nodes()
    s.node_versions[2] = {PRODUCE: None}
    if has_lane:
        s.with_lane()
    s.send("waits", partition=1)
    assert s.engine.fatal_error is None
    s.send("goes", partition=0)
    if has_lane:
        s.lend_once()
    s.answer(goes=OK)
    assert (s.engine.fatal_error, s.is_done("waits")) == (None, False)
    del s.node_versions[2]
    s.advance(5_000)
    if has_lane:
        s.lend_once()
    s.answer(waits=OK)


def test_another_leader_ends_the_wait() -> None:
    s = two_nodes().warmed()
    sickened(s, None)
    s.send("waits", partition=1)
    s.move(1, partition=1)
    s.advance(5_000)
    s.answer(waits=OK)
    assert s.offset("waits") == 1


def test_the_error_says_what_it_waited_for() -> None:
    s = two_nodes(delivery_timeout_ms=3000, request_timeout_ms=2000).warmed()
    sickened(s, None)
    s.send("waits", partition=1)
    s.advance(3_000)
    error = s.error("waits")
    assert isinstance(error, KafkaTimeoutError)
    assert "node 2 offers no Produce version 3..13" in str(error)
    assert not error.possibly_persisted


def test_a_partition_without_leader_is_the_reason_of_its_error() -> None:
    s = Sending(delivery_timeout_ms=3000, request_timeout_ms=2000).warmed()
    s.move(-1)
    s.refresh()
    s.send("waits")
    s.advance(3_000)
    assert "its partition has no known leader" in str(s.error("waits"))


def test_a_node_is_asked_again_with_back_off() -> None:
    """Ten seconds are some ten requests, whatever else is sent."""
    s = two_nodes(reconnect_backoff_max_ms=1000, retry_backoff_max_ms=1000).warmed()
    sickened(s, None)
    s.send("waits", partition=1)
    s.asked.clear()
    for number in range(100):
        s.send(f"b{number}", partition=0)
        s.answer(**{f"b{number}": OK})
        s.advance(100)
    assert 5 <= s.asked["ApiVersions"] <= 20
    assert 5 <= s.asked["Metadata"] <= 20


def test_the_lack_is_logged_once_a_connection(caplog: Any) -> None:
    s = two_nodes().warmed()
    sickened(s, None)
    s.send("waits", partition=1)
    s.advance(5_000)
    lines = [each for each in caplog.records if "does not offer ProduceRequest" in each.getMessage()]
    assert len(lines) == 1


def test_a_cluster_that_never_offers_produce_is_fatal_when_all_nodes_are_known() -> None:
    s = two_nodes()
    s.node_versions = {1: {PRODUCE: None}, 2: {PRODUCE: (14, 20)}}
    s.cut_off(1)
    s.cut_off(2)
    s.unreachable.remove(1)
    s.send("b0", partition=0)
    s.advance(2_000)
    assert s.engine.fatal_error is None
    s.unreachable.clear()
    s.advance(2_000)
    for error in (s.engine.fatal_error, s.error("b0")):
        assert isinstance(error, UnsupportedVersionError)
        assert error.fatal and not error.abortable


def test_a_cluster_that_lacks_produce_later_is_waited_for() -> None:
    s = Sending().warmed()
    s.nodes = {1}
    s.refresh()
    sickened(s, None, node_id=1)
    s.send("waits")
    s.advance(5_000)
    assert s.engine.fatal_error is None
    del s.node_versions[1]
    s.advance(5_000)
    s.answer(waits=OK)


# Which of engine and lane serves a node


def throttled(s: Sending) -> None:
    s.send("t1", partition=1)
    s.lend_once()
    s.answer(t1=OK, throttle_ms=5_000)


def with_answer_begun(s: Sending) -> None:
    (link,) = [each for each in s.links.values() if each.node_id == 2]
    s.engine.handle_bytes(link.connection_id, b"\x00\x00", s.now_ns)


def moved_away(s: Sending) -> None:
    s.nodes = {1}
    s.refresh()


STATES: dict[str, Callable[[Sending], None]] = {
    "sound": lambda s: None,
    "without produce": lambda s: sickened(s, None),
    "too new": lambda s: sickened(s, (14, 20)),
    "disconnected": lambda s: s.cut_off(2),
    "throttled": throttled,
    "amid an answer": with_answer_begun,
    "gone": moved_away,
}


@pytest.mark.parametrize("state", STATES)
def test_what_the_engine_leaves_to_the_lane_is_lent_to_it(state: str) -> None:
    s = two_nodes().warmed().with_lane()
    s.unreachable.clear()
    STATES[state](s)
    s.send("b1", partition=1)
    s.advance(100)  # it connects again
    sender = s.engine._sender
    left = {node_id for node_id in (1, 2) if sender._leaves_to_lane(node_id, s.now_ns)}
    lent = set()

    def descriptor_of(connection_id: int) -> int:
        lent.add(s.links[connection_id].node_id)
        return -1

    lane = s.engine.lend(descriptor_of, s.now_ns)
    assert lane is not None
    s.engine.take_back(s.now_ns)
    assert left == lent


# Requests that any node answers


def without_ids(*nodes: int) -> Sending:
    """The producer's id is used up, and it needs another; these nodes lack the request for it."""
    s = Sending(identities=((PRODUCER_ID, 32767),)).warmed()
    for node_id in nodes:
        s.node_versions[node_id] = {INIT_PRODUCER_ID: None}
    s.cut_off(1)
    s.cut_off(2)
    s.unreachable.clear()
    s.advance(100)
    s.refresh()
    s.send("b0", "b1")
    s.answer(b0=ErrorCode.MESSAGE_TOO_LARGE, b1=OUT_OF_ORDER)
    s.advance(5_000)
    return s


@pytest.mark.parametrize("node_id", [1, 2])
def test_a_node_without_init_producer_id_is_passed_over(node_id: int) -> None:
    s = without_ids(node_id)
    assert s.engine.fatal_error is None
    assert s.waiting == ["b1"]


def test_no_node_with_init_producer_id_is_waited_for_later() -> None:
    s = without_ids(1, 2)
    assert s.engine.fatal_error is None
    assert s.waiting == []
    s.node_versions.clear()
    s.advance(5_000)
    assert s.waiting == ["b1"]


def test_no_node_with_init_producer_id_is_fatal_at_first() -> None:
    s = Sending(versions={INIT_PRODUCER_ID: (90, 91)}, identities=("wait",))
    s.advance(1000)
    error = s.engine.fatal_error
    assert isinstance(error, UnsupportedVersionError) and error.fatal
    assert ["enable.idempotence=false" in note for note in error.__notes__] == [True, False]
