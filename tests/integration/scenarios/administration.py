"""What an administrator asks of a cluster about topics of one partition."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any

from kbatch.errors import ErrorCode
from kbatch.protocol import messages

PREFERRED, UNCLEAN = 0, 1
TOPIC, BROKER, SET = 2, 4, 0  # types of resources; an operation of configs
TIMEOUT_MS = 30_000


class Administration(ABC):
    """The base of what scenarios are given."""

    @abstractmethod
    def administer(self, request: Any) -> Any:
        """Return the answer of a node that passes such requests on to the controller."""

    def create(self, name: str, replicas: Collection[int], configs: Mapping[str, object]) -> bytes:
        """Create a topic on these nodes, and return its id; underscores in configs are dots."""
        kind = messages.CreateTopicsRequest
        assigned = kind.CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))
        wanted = kind.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[assigned],
            configs=[
                kind.CreatableTopicConfig(name=key.replace("_", "."), value=str(value))
                for key, value in configs.items()
            ],
        )
        (created,) = self.administer(kind(topics=[wanted], timeout_ms=TIMEOUT_MS)).topics
        assert created.error_code == ErrorCode.NONE, created
        topic_id: bytes = created.topic_id
        return topic_id

    def configure(self, resource: str, name: str, value: object, *, resource_type: int = TOPIC) -> None:
        kind = messages.IncrementalAlterConfigsRequest
        change = kind.AlterableConfig(name=name, config_operation=SET, value=str(value))
        changed = kind.AlterConfigsResource(
            resource_type=resource_type, resource_name=resource, configs=[change]
        )
        (answer,) = self.administer(kind(resources=[changed])).responses
        assert answer.error_code == ErrorCode.NONE, answer

    def elect(self, topic: str, kind_of_election: int = PREFERRED) -> tuple[str, Any]:
        """Elect by request; return code and text of the partition."""
        kind = messages.ElectLeadersRequest
        named = kind.TopicPartitions(topic=topic, partitions=[0])
        request = kind(election_type=kind_of_election, topic_partitions=[named], timeout_ms=TIMEOUT_MS)
        (answer,) = self.administer(request).replica_election_results
        (result,) = answer.partition_result
        return ErrorCode(result.error_code).name, result.error_message

    def reassign(self, topic: str, replicas: Collection[int] | None) -> tuple[str, Any]:
        """Begin to move a partition, or cancel that; return code and text."""
        kind = messages.AlterPartitionReassignmentsRequest
        moved = kind.ReassignablePartition(
            partition_index=0, replicas=None if replicas is None else list(replicas)
        )
        request = kind(topics=[kind.ReassignableTopic(name=topic, partitions=[moved])], timeout_ms=TIMEOUT_MS)
        (answer,) = self.administer(request).responses
        return ErrorCode(answer.partitions[0].error_code).name, answer.partitions[0].error_message

    def reassigned(self, topic: str) -> list[Any]:
        """Return (replicas, adding, removing) of a move that is under way."""
        kind = messages.ListPartitionReassignmentsRequest
        named = kind.ListPartitionReassignmentsTopics(name=topic, partition_indexes=[0])
        answer = self.administer(kind(topics=[named], timeout_ms=TIMEOUT_MS))
        return [
            (each.replicas, each.adding_replicas, each.removing_replicas)
            for found in answer.topics
            for each in found.partitions
        ]
