"""Planted bugs about topics that are made again, and about nodes that lack requests for a while."""

from __future__ import annotations

from typing import Any

from kbatch.core.client import cluster
from kbatch.core.client.connections import Connections
from kbatch.core.producer.sender import Sender
from kbatch.errors import UnsupportedVersionError
from tests.simulation.planted.planting import plants


@plants(Sender, "_can_send")
def a_node_without_produce_is_left_to_the_lane(original: Any, self: Sender, node_id: int, now_ns: int) -> Any:
    """The engine leaves batches to the lane for a node that offers no Produce, and so is not lent."""
    if self.has_lane and self.lacks_produce(node_id):
        self._has_left_batches = True
        return False
    return original(self, node_id, now_ns)


@plants(Sender, "_wait_for_produce")
def a_node_without_produce_ends_the_producer(original: Any, self: Any, node_id: Any, now_ns: Any) -> Any:
    """Java, for its batches: a node without a common version of Produce is no matter of time."""
    return self.fail_for_good(UnsupportedVersionError())


@plants(Sender, "lacks_produce")
def a_node_without_produce_gets_it(*_: Any) -> bool:
    """Batches go to a node that offers no Produce."""
    return False


@plants(Connections, "renew_versions")
def versions_are_those_of_the_connection(*_: Any) -> int:
    """What a node lacked when it was connected it lacks until the connection ends."""
    return 2**62


@plants(cluster.Cluster, "handle_response")
def epochs_of_old_brokers_are_believed(
    original: Any, self: Any, response: Any, now_ns: Any, *, has_epochs: Any
) -> Any:
    """Leader epochs of Metadata below version 9 count, although they start over with a topic."""
    return original(self, response, now_ns)


@plants(cluster._Topic, "believes_lower")
def a_leader_epoch_is_never_given_up(*_: Any, **__: Any) -> bool:
    """The leader of the highest epoch is believed for ever, whatever it answers."""
    return False


@plants(Sender, "_fail_lacking")
def partitions_that_are_gone_are_awaited(*_: Any) -> None:
    """Java, librdkafka: records of partitions that a topic lost wait for delivery.timeout.ms."""
