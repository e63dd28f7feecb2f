"""ControllerCluster: the controllers of a cluster, for clients that ask them instead of brokers (KIP-919).

Theory of operation. Controllers do not answer Metadata. Each of them, active or not, answers DescribeCluster
about controllers, and names the active one, which alone takes changes. They know nothing of topics' leaders
here.

After org.apache.kafka.clients.admin.internals.AdminMetadataManager.
"""

from __future__ import annotations

from typing import Any, ClassVar, final

from kbatch.core.client.cluster import Cluster
from kbatch.protocol import messages
from kbatch.protocol.structs import Message

# What DescribeCluster is to describe.
BROKERS, CONTROLLERS = 1, 2


@final
class ControllerCluster(Cluster):
    """The controllers, as a Cluster without topics: its controller is the active one."""

    request_type: ClassVar[type[Message]] = messages.DescribeClusterRequest
    remedy: ClassVar[str] = (
        "name controllers of Kafka 3.7 or newer in bootstrap.controllers, and brokers in bootstrap.servers"
    )
    is_of_controllers: ClassVar[bool] = True

    def make_request(self) -> Any:
        super().make_request()
        return messages.DescribeClusterRequest(endpoint_type=CONTROLLERS)

    def handle_response(self, response: Any, now_ns: int, *, has_epochs: bool = True) -> None:
        super().handle_response(_as_metadata(response), now_ns, has_epochs=has_epochs)


def _as_metadata(answer: Any) -> Any:
    """Return the nodes of a cluster as metadata has them."""
    kind = messages.MetadataResponse
    brokers = [
        kind.MetadataResponseBroker(node_id=each.broker_id, host=each.host, port=each.port, rack=each.rack)
        for each in answer.brokers
    ]
    return kind(
        error_code=answer.error_code,
        brokers=brokers,
        cluster_id=answer.cluster_id,
        controller_id=answer.controller_id,
    )
