"""Requests about the cluster itself: its nodes, features, and the quorum of controllers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kbatch.core.admin.names import operations_of
from kbatch.core.admin.results import (
    ClusterDescription,
    ClusterNode,
    Features,
    Quorum,
    QuorumReplica,
    time_of,
)
from kbatch.core.client.admin_requests import AdminRequest, Refusal, done_or_refused, refused
from kbatch.core.client.controllers import BROKERS
from kbatch.core.client.routes import ANY, CONTROLLER, NODE
from kbatch.errors import UnsupportedVersionError
from kbatch.protocol import features, messages
from kbatch.version import VERSION

if TYPE_CHECKING:
    from kbatch.protocol.structs import Message

# The log of the metadata.
METADATA_TOPIC = "__cluster_metadata"
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


class DescribeCluster(AdminRequest):
    """The cluster; the only item is None, the result a ClusterDescription.

    Parameters
    ----------
    fenced, operations : bool
    endpoint_type : int
        BROKERS or CONTROLLERS, which the nodes of the description are.
    """

    kind = messages.DescribeClusterRequest
    route = ANY

    def __init__(self, *, fenced: bool, operations: bool, endpoint_type: int = BROKERS) -> None:
        super().__init__("describe", {None: None})
        self.endpoint_type = endpoint_type
        self.fenced = fenced
        self.operations = operations

    def message(self, items: Mapping[Any, None], version: int, timeout_ms: int) -> Message:
        if self.fenced and version < features.DESCRIBE_CLUSTER_FENCED:
            raise UnsupportedVersionError(
                f"the broker does not tell fenced brokers (DescribeCluster version {version}); leave out "
                "fenced=True, or upgrade it to Kafka 4.0 or newer"
            )
        return messages.DescribeClusterRequest(
            include_cluster_authorized_operations=self.operations,
            endpoint_type=self.endpoint_type,
            include_fenced_brokers=self.fenced,
        )

    def read(self, answer: Any, items: Mapping[Any, None]) -> Iterable[tuple[Any, Any]]:
        if answer.error_code:
            return refused(items, answer)
        nodes = sorted(
            ClusterNode(each.broker_id, each.host, each.port, each.rack, each.is_fenced)
            for each in answer.brokers
        )
        controller = answer.controller_id if answer.controller_id >= 0 else None
        operations = operations_of(answer.cluster_authorized_operations)
        return [(None, ClusterDescription(answer.cluster_id, controller, tuple(nodes), operations))]

    def subject(self, key: Any) -> str:
        return "describe of the cluster"


class DescribeFeatures(AdminRequest):
    """The features of the cluster; the only item is None, the result a Features."""

    kind = messages.ApiVersionsRequest
    route = ANY

    def __init__(self) -> None:
        super().__init__("features", {None: None})

    def message(self, items: Mapping[Any, None], version: int, timeout_ms: int) -> Message:
        return messages.ApiVersionsRequest(client_software_name="kbatch", client_software_version=VERSION)

    def read(self, answer: Any, items: Mapping[Any, None]) -> Iterable[tuple[Any, Any]]:
        if answer.error_code:
            return refused(items, answer)
        finalized = {each.name: each.max_version_level for each in answer.finalized_features}
        supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
        return [(None, Features(answer.finalized_features_epoch, finalized, supported))]


class UpdateFeatures(AdminRequest):
    """New levels of features, all or none; the results are None.

    Parameters
    ----------
    items : mapping of str to int
    kind_of_update : int
        UPGRADE, SAFE_DOWNGRADE or UNSAFE_DOWNGRADE.
    """

    kind = messages.UpdateFeaturesRequest
    route = CONTROLLER
    noun = "feature"

    def __init__(self, items: Mapping[str, int], kind_of_update: int, *, validate_only: bool) -> None:
        super().__init__("update_features", items)
        self.kind_of_update = kind_of_update
        self.validate_only = validate_only

    def message(self, items: Mapping[str, int], version: int, timeout_ms: int) -> Message:
        kind = messages.UpdateFeaturesRequest
        if version < features.UPDATE_FEATURES_VALIDATES:
            if self.validate_only or self.kind_of_update == UNSAFE_DOWNGRADE:
                raise UnsupportedVersionError(
                    f"the broker neither validates nor downgrades unsafely (UpdateFeatures version {version}"
                    "); upgrade it to Kafka 3.3 or newer"
                )
            updates = [
                kind.FeatureUpdateKey(
                    feature=name, max_version_level=level, allow_downgrade=self.kind_of_update != UPGRADE
                )
                for name, level in items.items()
            ]
            return kind(timeout_ms=timeout_ms, feature_updates=updates)
        updates = [
            kind.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=self.kind_of_update)
            for name, level in items.items()
        ]
        return kind(timeout_ms=timeout_ms, feature_updates=updates, validate_only=self.validate_only)

    def read(self, answer: Any, items: Mapping[str, int]) -> Iterable[tuple[str, Any]]:
        if answer.error_code:
            return refused(items, answer)
        codes = {
            each.feature: Refusal(each.error_code, each.error_message)
            for each in answer.results
            if each.error_code
        }
        return [(name, codes.get(name)) for name in items]


class DescribeQuorum(AdminRequest):
    """The quorum of controllers; the only item is None, the result a Quorum."""

    kind = messages.DescribeQuorumRequest
    route = CONTROLLER

    def __init__(self) -> None:
        super().__init__("quorum", {None: None})

    def message(self, items: Mapping[Any, None], version: int, timeout_ms: int) -> Message:
        kind = messages.DescribeQuorumRequest
        partition = kind.PartitionData(partition_index=0)
        return kind(topics=[kind.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])])

    def read(self, answer: Any, items: Mapping[Any, None]) -> Iterable[tuple[Any, Any]]:
        if answer.error_code:
            return refused(items, answer)
        ((partition,),) = [topic.partitions for topic in answer.topics]
        if partition.error_code:
            return [(None, Refusal(partition.error_code, partition.error_message))]
        leader = next(
            (
                each.log_end_offset
                for each in partition.current_voters
                if each.replica_id == partition.leader_id
            ),
            0,
        )
        quorum = Quorum(
            partition.leader_id,
            partition.leader_epoch,
            partition.high_watermark,
            tuple(_replica(each, leader) for each in partition.current_voters),
            tuple(_replica(each, leader) for each in partition.observers),
            {
                node.node_id: {each.name: f"{each.host}:{each.port}" for each in node.listeners}
                for node in answer.nodes
            },
        )
        return [(None, quorum)]

    def subject(self, key: Any) -> str:
        return "describe of the quorum"


def _replica(found: Any, leader_end: int) -> QuorumReplica:
    return QuorumReplica(
        found.replica_id,
        UUID(bytes=found.replica_directory_id),
        found.log_end_offset,
        max(leader_end - found.log_end_offset, 0),
        time_of(found.last_fetch_timestamp),
        time_of(found.last_caught_up_timestamp),
    )


class AddVoter(AdminRequest):
    """A controller that is to vote: by id its directory id and listeners. The results are None."""

    kind = messages.AddRaftVoterRequest
    route = CONTROLLER
    noun = "voter"

    def __init__(
        self,
        node_id: int,
        directory_id: UUID,
        endpoints: Mapping[str, tuple[str, int]],
        cluster_id: str | None,
    ) -> None:
        super().__init__("add_voter", {node_id: directory_id})
        self.endpoints = endpoints
        self.cluster_id = cluster_id

    def message(self, items: Mapping[int, UUID], version: int, timeout_ms: int) -> Message:
        kind = messages.AddRaftVoterRequest
        ((node_id, directory_id),) = items.items()
        listeners = [
            kind.Listener(name=name, host=host, port=port) for name, (host, port) in self.endpoints.items()
        ]
        return kind(
            cluster_id=self.cluster_id,
            timeout_ms=timeout_ms,
            voter_id=node_id,
            voter_directory_id=directory_id.bytes,
            listeners=listeners,
        )

    def read(self, answer: Any, items: Mapping[int, UUID]) -> Iterable[tuple[int, Any]]:
        return done_or_refused(items, answer)


class RemoveVoter(AdminRequest):
    """A controller that is not to vote any more: by id its directory id. The results are None."""

    kind = messages.RemoveRaftVoterRequest
    route = CONTROLLER
    noun = "voter"

    def __init__(self, node_id: int, directory_id: UUID, cluster_id: str | None) -> None:
        super().__init__("remove_voter", {node_id: directory_id})
        self.cluster_id = cluster_id

    def message(self, items: Mapping[int, UUID], version: int, timeout_ms: int) -> Message:
        ((node_id, directory_id),) = items.items()
        return messages.RemoveRaftVoterRequest(
            cluster_id=self.cluster_id, voter_id=node_id, voter_directory_id=directory_id.bytes
        )

    def read(self, answer: Any, items: Mapping[int, UUID]) -> Iterable[tuple[int, Any]]:
        return done_or_refused(items, answer)


class Reminder(AdminRequest):
    """A change of nothing, by ids of brokers, which pass it on. One that knows an old controller only is told
    so by NOT_CONTROLLER, and looks for the active one. The results are None.
    """

    kind = messages.UpdateFeaturesRequest
    route = NODE

    def __init__(self, node_ids: Iterable[int]) -> None:
        super().__init__("reminder", dict.fromkeys(node_ids))

    def message(self, items: Mapping[int, None], version: int, timeout_ms: int) -> Message:
        return messages.UpdateFeaturesRequest(timeout_ms=timeout_ms, validate_only=True)

    def read(self, answer: Any, items: Mapping[int, None]) -> Iterable[tuple[int, Any]]:
        return done_or_refused(items, answer)


class UnregisterBroker(AdminRequest):
    """A broker that the cluster is to forget, by its id; the results are None."""

    kind = messages.UnregisterBrokerRequest
    route = CONTROLLER
    noun = "broker"

    def __init__(self, node_id: int) -> None:
        super().__init__("unregister", {node_id: None})

    def message(self, items: Mapping[int, None], version: int, timeout_ms: int) -> Message:
        (node_id,) = items
        return messages.UnregisterBrokerRequest(broker_id=node_id)

    def read(self, answer: Any, items: Mapping[int, None]) -> Iterable[tuple[int, Any]]:
        return done_or_refused(items, answer)
