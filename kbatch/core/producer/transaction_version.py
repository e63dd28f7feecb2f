"""TransactionVersion: the version of transactions in the cluster, from the features that nodes send.

After org.apache.kafka.clients.producer.internals.TransactionManager.maybeUpdateTransactionV2Enabled; KIP-584
(features), KIP-890 (version 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbatch.core.client.api_versions import NO_FEATURES, ApiVersions, versions_request
from kbatch.errors import ErrorCode

if TYPE_CHECKING:
    from kbatch.core.client.api_versions import FinalizedFeatures
    from kbatch.core.client.cluster import Cluster
    from kbatch.core.client.connections import Connections, Response

FEATURE = "transaction.version"


class TransactionVersion:
    """The version of the cluster. A transaction keeps the version with which it begins."""

    def __init__(self, cluster: Cluster, connections: Connections) -> None:
        self._cluster = cluster
        self._connections = connections
        self._features = NO_FEATURES

    def latest(self) -> int:
        """Return 1 or 2, from the latest features of any node."""
        for node_id in self._cluster.snapshot.nodes:
            self._note(self._connections.finalized_features(node_id))
        return 2 if self._features.levels.get(FEATURE, 0) >= 2 else 1

    def request(self, node_id: int, now_ns: int) -> None:
        """Request the node's features, which may have changed since the connection. Java waits for the next
        connection.
        """

        def note(response: Response) -> None:
            if response.message is not None and response.message.error_code == ErrorCode.NONE:
                self._note(ApiVersions(response.message).features)

        if self._connections.is_ready(node_id, now_ns):
            self._connections.send(node_id, versions_request(), note, now_ns)

    def _note(self, found: FinalizedFeatures) -> None:
        if found.epoch > self._features.epoch:
            self._features = found
