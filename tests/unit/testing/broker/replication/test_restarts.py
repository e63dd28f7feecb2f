"""Nodes that restart: what their replicas still know."""

from __future__ import annotations

from tests.support.broker_core import batch, produce_request
from tests.unit.testing.broker.replication.replicated import Replicated


def test_node_that_restarts_knows_only_the_last_batch_of_a_producer() -> None:
    """As after any restart, what it knows of producers is what its snapshot has."""
    broker = Replicated()
    for sequence in range(3):
        value = b"%d" % sequence
        data = batch(value, producer_id=7, producer_epoch=0, base_sequence=sequence)
        assert broker.client(0).ask(produce_request(broker, data)).responses
    broker.kill(1)
    broker.start(1)
    known = {node: broker.log(node).describe_producers()[0] for node in (0, 1)}
    assert [len(known[node].batches) for node in (0, 1)] == [3, 1]
    assert known[0].last_sequence == known[1].last_sequence == 2
