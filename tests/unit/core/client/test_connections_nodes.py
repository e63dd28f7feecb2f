"""Connections: how nodes are reached, which one is asked, and what becomes of those that leave."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch.core.client.actions import Close
from kbatch.core.client.cluster import Node
from kbatch.errors import NetworkError
from kbatch.protocol import messages
from tests.unit.core_shell import MS, NEVER, SECOND, Peer, Shell, address, versions_answer

METADATA = messages.MetadataResponse
NODES = {node_id: Node(node_id, f"host{node_id}", 9092, None) for node_id in (1, 2, 3)}
REFUSED = ConnectionRefusedError("refused")


def cluster(**settings: Any) -> Shell:
    """With three nodes, none of them connected."""
    shell = Shell(**settings)
    shell.connections.set_nodes(NODES)
    shell.advance(0)
    return shell


# Names and addresses


def test_N08_all_addresses_of_a_name_are_tried_at_once_before_it_is_resolved_again() -> None:
    shell = Shell()
    peer = shell.begin(-1, address(1), address(2), address(3))
    tried = [peer.action.sockaddr]
    for _ in range(2):
        shell.close(peer, REFUSED)
        peer = shell.peer(-1)
        tried.append(peer.action.sockaddr)
    assert [sockaddr for _, sockaddr in map(address, (1, 2, 3))] == tried
    assert shell.connections.poll_disconnected() == []
    shell.close(peer, REFUSED)
    assert shell.connections.poll_disconnected() == [-1]
    assert shell.connections.delay_ns(-1, 0) > 0
    shell.connections.connect(-1, 0)  # too early
    assert shell.poll() == []
    shell.advance(SECOND)
    peer = shell.begin(-1, address(3), address(1))
    assert peer.action.sockaddr == address(1)[1]  # not the one that failed last


def test_N08_a_name_is_resolved_again_after_a_connection_that_worked() -> None:
    shell = Shell()
    peer = shell.connect(-1, address(1), address(2))
    shell.answer(peer, versions_answer())
    shell.close(peer)
    shell.advance(SECOND)
    shell.connections.connect(-1, shell.now_ns)
    shell.poll()
    shell.resolve(address(1), address(2))
    assert shell.peer(-1).action.sockaddr == address(2)[1]


@pytest.mark.parametrize("addresses", [(), OSError("no such name")])
def test_N08_a_name_that_is_not_resolved_is_asked_again_after_a_pause(addresses: Any) -> None:
    shell = Shell()
    shell.connections.connect(-1, 0)
    shell.poll()
    name = shell.resolves.pop()
    shell.connections.handle_resolved(*name, addresses, 0)
    assert 40 * MS <= shell.connections.delay_ns(-1, 0) <= 60 * MS
    assert shell.connections.poll_disconnected() == [-1]
    shell.advance(60 * MS)
    shell.ready()


def test_N08_one_question_for_a_name_serves_all_nodes_that_have_it() -> None:
    shell = Shell()
    shell.connections.connect(-1, 0)
    shell.connections.set_nodes({1: Node(1, "a", 9092, None), 2: Node(2, "a", 9092, None)})
    shell.connections.connect(1, 0)
    shell.connections.connect(2, 0)
    shell.poll()
    assert len(shell.resolves) == 1
    shell.resolve(address(1))
    assert {peer.action.node_id for peer in shell.peers.values()} == {1, 2}


def test_N08_a_resolver_that_hangs_is_not_waited_for_nor_asked_twice() -> None:
    shell = Shell()
    shell.connections.connect(-1, 0)
    shell.poll()
    shell.advance(12 * SECOND)
    assert shell.connections.poll_disconnected() == [-1]
    shell.connections.connect(-1, shell.now_ns)
    shell.poll()
    assert len(shell.resolves) == 1  # the first question is still out, and its answer will do
    shell.resolve(address(1))
    assert shell.peer(-1).action.sockaddr == address(1)[1]


# Time


def test_N08_setting_up_times_out_at_ten_seconds_doubling_to_thirty() -> None:
    shell = Shell()
    for expected in (10, 20, 30, 30):
        shell.begin(-1)
        start_ns = shell.now_ns
        peer = shell.peer(-1)
        shell.advance(int(min(0.8 * expected, 30) * SECOND) - 1)
        assert not peer.is_closed
        while not peer.is_closed:
            shell.advance(100 * MS)
        assert shell.now_ns - start_ns <= min(1.2 * expected, 30) * SECOND + 100 * MS
        shell.advance(2 * SECOND)
    shell.ready()
    shell.close(shell.peer(-1))
    shell.advance(SECOND)
    peer = shell.begin(-1)
    shell.advance(12 * SECOND)
    assert peer.is_closed  # it is ten seconds again


def test_N08_pauses_double_to_a_second_and_are_short_again_after_success() -> None:
    shell = Shell()
    for expected in (50, 100, 200, 400, 800, 1000, 1000):
        shell.close(shell.begin(-1), REFUSED)
        delay_ns = shell.connections.delay_ns(-1, shell.now_ns)
        assert 0.8 * expected * MS <= delay_ns <= min(1.2 * expected, 1000) * MS
        shell.advance(delay_ns)
    shell.close(shell.connect(-1))  # an end in the handshake counts as a failure too
    assert shell.connections.delay_ns(-1, shell.now_ns) >= 800 * MS
    shell.advance(SECOND)
    shell.close(shell.ready())
    assert shell.connections.delay_ns(-1, shell.now_ns) <= 60 * MS


def test_a_node_that_is_being_connected_to_is_heard_of_otherwise() -> None:
    shell = Shell()
    shell.begin(-1)
    assert shell.connections.delay_ns(-1, 0) == NEVER
    assert shell.connections.delay_ns(5, 0) == NEVER
    shell.connections.connect(5, 0)
    assert shell.poll() == []


# Which node


def test_N10_the_node_with_the_fewest_requests_is_asked() -> None:
    shell = cluster()
    for node_id in NODES:
        shell.ready(node_id)
    for node_id in (1, 1, 2, 3, 3):
        shell.ask(node_id)
    assert shell.connections.least_loaded(0) == 2


def test_N10_a_ready_node_is_preferred_then_one_on_its_way_then_the_one_left_alone_longest() -> None:
    shell = cluster()
    found = {shell.connections.least_loaded(0) for _ in range(50)}
    assert found == {1, 2, 3}  # all alike: chance decides
    shell.now_ns = 5
    shell.close(shell.begin(1), REFUSED)
    shell.advance(SECOND)
    shell.close(shell.begin(2), REFUSED)
    shell.close(shell.begin(3), REFUSED)
    assert shell.connections.least_loaded(shell.now_ns) == 1
    shell.advance(SECOND)
    assert {shell.connections.least_loaded(shell.now_ns) for _ in range(20)} == {1}
    shell.begin(2)
    assert shell.connections.least_loaded(shell.now_ns) == 2
    shell.ready(3)
    assert shell.connections.least_loaded(shell.now_ns) == 3


def test_N10_with_no_node_that_can_be_asked_there_is_none() -> None:
    shell = Shell(bootstrap_servers="a:9092,b:9092")
    for node_id in (-1, -2):
        shell.close(shell.begin(node_id), REFUSED)
    assert shell.connections.least_loaded(0) is None
    shell.advance(60 * MS)
    assert shell.connections.least_loaded(shell.now_ns) in (-1, -2)


def test_N10_a_node_that_is_full_or_still_writing_is_not_asked() -> None:
    shell = Shell(max_in_flight_requests_per_connection=1)
    peer = shell.ready()
    shell.ask(written=False)
    assert shell.connections.least_loaded(0) is None
    shell.write(peer)
    assert shell.connections.least_loaded(0) is None
    shell.answer(peer, METADATA())
    assert shell.connections.least_loaded(0) == -1


# Nodes come and go


def test_bootstrap_connections_are_closed_when_the_cluster_is_known_and_nothing_is_out_on_them() -> None:
    shell = Shell(bootstrap_servers="a:9092,b:9092")
    idle, busy = shell.ready(-1), shell.ready(-2)
    shell.ask(-2)
    shell.connections.set_nodes(NODES)
    assert not shell.connections.is_ready(-2, 0)
    assert shell.connections.least_loaded(0) in NODES
    shell.advance(0)
    assert idle.is_closed
    assert not busy.is_closed
    shell.answer(busy, METADATA())
    assert len(shell.taken()) == 1
    assert busy.is_closed
    assert not shell.connections.is_connected(-2)
    assert shell.connections.poll_disconnected() == []


def test_a_node_that_vanishes_and_returns_keeps_its_connection_while_a_request_is_out() -> None:
    shell = cluster()
    peer = shell.ready(1)
    shell.ask(1)
    shell.connections.set_nodes({2: NODES[2]})
    shell.advance(0)
    shell.connections.set_nodes(NODES)
    shell.advance(0)
    assert shell.connections.is_ready(1, shell.now_ns)
    shell.answer(peer, METADATA())
    assert not peer.is_closed


def test_0151_a_vanished_node_is_not_connected_to_and_its_attempt_is_dropped() -> None:
    shell = cluster()
    peer = shell.begin(1)
    shell.connections.set_nodes({2: NODES[2]})
    shell.advance(0)
    assert peer.is_closed
    shell.connections.connect(1, shell.now_ns)
    assert shell.poll() == []
    assert shell.connections.delay_ns(1, shell.now_ns) == NEVER


def test_a_vanished_node_whose_connection_breaks_is_forgotten() -> None:
    shell = cluster()
    peer = shell.ready(1)
    shell.ask(1)
    shell.connections.set_nodes({2: NODES[2]})
    shell.advance(0)
    shell.close(peer)
    assert isinstance(shell.taken()[0].error, NetworkError)
    shell.advance(0)
    shell.connections.set_nodes(NODES)
    assert shell.connections.delay_ns(1, shell.now_ns) == 0  # as if it had never been there


@pytest.mark.parametrize("stage", ["resolving", "connecting", "idle", "busy"])
def test_a_node_that_moved_is_connected_to_at_its_new_place(stage: str) -> None:
    shell = cluster()
    moved = {**NODES, 1: Node(1, "elsewhere", 9093, None)}
    if stage == "resolving":
        shell.connections.connect(1, 0)
        shell.poll()
    elif stage == "connecting":
        shell.begin(1)
    else:
        shell.ready(1)
    if stage == "busy":
        shell.ask(1)
    for _ in range(2):  # and the next metadata say the same
        shell.connections.set_nodes(moved)
        assert not shell.connections.is_ready(1, shell.now_ns)
        shell.advance(0)
    if stage == "busy":
        assert not shell.peer(1).is_closed
        shell.answer(shell.peer(1), METADATA())
    assert all(peer.is_closed for peer in shell.peers.values())
    shell.resolves.clear()
    shell.connections.connect(1, shell.now_ns)
    shell.poll()
    assert [name.host for name in shell.resolves] == ["elsewhere"]
    shell.resolve(address(9))
    assert shell.peer(1).action.port == 9093


def test_no_nodes_at_all_leave_the_bootstrap_nodes_as_they_are() -> None:
    shell = Shell()
    shell.ready()
    shell.connections.set_nodes({})
    assert shell.connections.is_ready(-1, 0)


# Starting over


def test_N12_starting_over_closes_everything_and_fails_requests_in_order() -> None:
    shell = cluster()
    first, second = shell.ready(1), shell.ready(2)
    requests = [shell.ask(1), shell.ask(1), shell.ask(2)]
    shell.connections.rebootstrap(shell.now_ns)
    assert [type(action) for action in shell.poll()] == [Close, Close]
    assert first.is_closed
    assert second.is_closed
    responses = shell.taken()
    assert [response.request for response in responses] == requests
    assert all(isinstance(response.error, NetworkError) for response in responses)
    assert shell.connections.least_loaded(shell.now_ns) == -1
    assert shell.connections.delay_ns(1, shell.now_ns) == NEVER
    shell.connections.connect(-1, shell.now_ns)
    shell.poll()
    assert [name.host for name in shell.resolves] == ["a"]
    shell.resolve(address(1))


def test_N12_starting_over_while_starting_resolves_names_afresh_after_a_pause() -> None:
    shell = Shell()
    peer = shell.begin(-1, address(1), address(2))
    shell.connections.rebootstrap(0)
    shell.poll()
    assert peer.is_closed
    assert 40 * MS <= shell.connections.delay_ns(-1, 0) <= 60 * MS
    shell.advance(60 * MS)
    shell.connections.connect(-1, shell.now_ns)
    shell.poll()
    assert len(shell.resolves) == 1


def test_N12_the_client_is_cut_off_when_every_node_is_left_alone() -> None:
    shell = Shell()
    shell.close(shell.begin(-1), REFUSED)
    assert not shell.connections.is_cut_off(0)  # of bootstrap.servers there is nothing to start over from
    shell.connections.set_nodes({1: NODES[1], 2: NODES[2]})
    shell.advance(0)
    assert not shell.connections.is_cut_off(0)
    shell.close(shell.begin(1), REFUSED)
    assert not shell.connections.is_cut_off(0)
    shell.close(shell.begin(2), REFUSED)
    assert shell.connections.is_cut_off(0)
    shell.advance(60 * MS)
    assert not shell.connections.is_cut_off(shell.now_ns)
    shell.close(shell.begin(1), REFUSED)
    shell.begin(2)
    assert not shell.connections.is_cut_off(shell.now_ns)


def test_N12_a_throttled_node_is_not_out_of_reach() -> None:
    shell = cluster()
    shell.connections.set_nodes({1: NODES[1]})
    peer = shell.ready(1)
    shell.ask(1)
    shell.answer(peer, METADATA(throttle_time_ms=1000))
    assert shell.connections.least_loaded(shell.now_ns) is None
    assert not shell.connections.is_cut_off(shell.now_ns)


# Lanes


def lanes() -> tuple[Shell, list[Peer]]:
    """Node 1 with a ready connection in each of two lanes."""
    shell = cluster(lane_count=2, max_in_flight_requests_per_connection=1)
    return shell, [shell.ready(1, lane=lane) for lane in range(2)]


def test_a_lane_has_a_connection_of_its_own_when_it_is_used() -> None:
    shell = cluster(lane_count=2)
    shell.ready(1)
    assert not shell.connections.is_connected(1, lane=1)
    assert shell.connections.delay_ns(1, shell.now_ns, lane=1) == 0
    second = shell.ready(1, lane=1)
    assert [peer.action.node_id for peer in shell.peers.values()] == [1, 1]
    assert second.action.host == NODES[1].host


def test_an_unanswered_request_holds_up_its_lane_only() -> None:
    shell, (first, second) = lanes()
    shell.connections.send(1, messages.MetadataRequest(topics=[]), shell.responses.append, shell.now_ns)
    shell.poll()
    shell.write(first)
    assert not shell.connections.is_ready(1, shell.now_ns)
    assert shell.connections.is_ready(1, shell.now_ns, lane=1)
    asked = messages.MetadataRequest(topics=[])
    shell.connections.send(1, asked, shell.responses.append, shell.now_ns, lane=1)
    shell.poll()
    shell.write(second)
    assert shell.connections.in_flight_count(1) == shell.connections.in_flight_count() == 2
    shell.answer(second, METADATA(throttle_time_ms=500))
    (response,) = shell.taken()
    assert response.request.node_id == 1
    assert shell.connections.delay_ns(1, shell.now_ns, lane=1) == 500 * MS
    shell.answer(first, METADATA())
    assert shell.connections.is_ready(1, shell.now_ns)


def test_a_connection_that_breaks_backs_off_its_lane_only() -> None:
    shell, (first, _) = lanes()
    shell.close(first)
    assert shell.connections.poll_disconnected() == [1]
    assert shell.connections.delay_ns(1, shell.now_ns) > 0
    assert shell.connections.is_ready(1, shell.now_ns, lane=1)


def test_a_node_that_leaves_or_moves_is_closed_in_all_lanes() -> None:
    shell, peers = lanes()
    shell.connections.set_nodes({**NODES, 1: Node(1, "elsewhere", 9092, None)})
    shell.advance(0)
    assert all(peer.is_closed for peer in peers)
    assert {shell.ready(1, lane=lane).action.host for lane in range(2)} == {"elsewhere"}
    shell.connections.set_nodes({2: NODES[2]})
    shell.advance(0)
    assert all(peer.is_closed for peer in shell.peers.values())
    assert not any(shell.connections.is_connected(1, lane) for lane in range(2))


def test_starting_over_closes_all_lanes() -> None:
    shell, peers = lanes()
    shell.connections.rebootstrap(shell.now_ns)
    shell.poll()
    assert all(peer.is_closed for peer in peers)
    assert [shell.ready(-1, lane=lane).action.node_id for lane in range(2)] == [-1, -1]


def test_what_any_node_can_answer_is_asked_in_the_first_lane() -> None:
    shell = cluster(lane_count=2)
    shell.ready(2, lane=1)
    assert shell.connections.least_loaded(shell.now_ns) is not None
    shell.ready(3)
    assert shell.connections.least_loaded(shell.now_ns) == 3
