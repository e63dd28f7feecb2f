"""Cluster and Connections with the embedded broker, all of it in virtual time."""

from __future__ import annotations

import random
from typing import Any

from kbatch.config import ClientConfig
from kbatch.core.client.backoff import ExponentialBackoff
from kbatch.core.client.cluster import Cluster, TopicUse
from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_state import Connection as Session
from tests.support.broker_core import TOPIC, VirtualBroker, produce_request
from tests.support.core_shell import Peer, Shell


class Pair:
    """A client and a cluster of brokers. Node 0 is behind the bootstrap server."""

    def __init__(self, **options: Any) -> None:
        self.broker = VirtualBroker(2, **options)
        self.shell = Shell()
        config = ClientConfig(bootstrap_servers="a:9092")
        topic_use = TopicUse(300_000, 60_000, "DESCRIBE", creates=True)
        backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random.Random(1))
        self.cluster = Cluster(config, backoff, 0, topic_use)
        self._sessions: dict[int, Session] = {}

    def ready(self, node_id: int) -> None:
        peer = self.shell.connect(node_id)
        self.exchange(peer)
        assert self.shell.connections.is_ready(node_id, self.shell.now_ns)

    def exchange(self, peer: Peer) -> None:
        """Write the requests in parts, and deliver the responses byte by byte."""
        node_id = max(peer.action.node_id, 0)
        session = self._sessions.setdefault(peer.connection_id, Session(node_id))
        while peer.unwritten:
            self.shell.write(peer, (len(peer.unwritten) + 1) // 2)
        while len(peer.received):
            end = 4 + int.from_bytes(peer.received[:4], "big")
            frame, peer.received = bytes(peer.received[4:end]), peer.received[end:]
            reply = self.broker.core.handle(session, frame, self.broker.now_ms)
            for byte in b"".join(reply.buffers or ()):
                self.shell.give(peer, bytes([byte]))

    def ask(self, node_id: int, message: Any) -> Any:
        """Return the answer to a request in the highest version."""
        self.shell.send(message, node_id, written=False)
        self.exchange(self.shell.peer(node_id))
        (response,) = self.shell.taken()
        assert response.error is None
        return response.message

    def update(self) -> None:
        node_id = self.shell.connections.least_loaded(self.shell.now_ns)
        assert node_id is not None
        if not self.shell.connections.is_ready(node_id, self.shell.now_ns):
            self.ready(node_id)
        self.cluster.handle_response(self.ask(node_id, self.cluster.make_request()), self.shell.now_ns)
        self.shell.connections.set_nodes(self.cluster.snapshot.nodes)
        self.shell.advance(0)


def test_a_client_finds_the_leader_of_a_topic_and_produces_to_it() -> None:
    pair = Pair()
    pair.cluster.want(TOPIC, 0)
    pair.update()
    snapshot = pair.cluster.snapshot
    assert {node.host for node in snapshot.nodes.values()} == {"node-0", "node-1"}
    topic = snapshot.topics[TOPIC]
    assert topic.topic_id == pair.broker.topic_id()
    leader = topic.partitions[0].leader
    pair.ready(leader)
    assert pair.shell.connections.finalized_features(leader).levels
    answer = pair.ask(leader, produce_request(pair.broker))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert pair.broker.values() == [b"value"]


def test_missing_topic_is_created_by_a_metadata_request() -> None:
    pair = Pair()
    pair.cluster.want("new", 0)
    for _ in range(3):
        if pair.cluster.update_delay_ns(pair.shell.now_ns) < 200_000_000:
            pair.shell.advance(pair.cluster.update_delay_ns(pair.shell.now_ns))
            pair.update()
    assert pair.cluster.topic_error("new") is None
    assert pair.cluster.snapshot.topics["new"].partitions[0].leader in (0, 1)
