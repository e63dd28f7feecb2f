"""What a client knows of the cluster beside its records, by an Admin that is made at the first question."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, final

from kbatch.admin.client import Admin
from kbatch.compat.confluent_kafka.error import error_of, translated
from kbatch.compat.confluent_kafka.values import (
    OFFSET_END,
    BrokerMetadata,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
    TopicPartition,
    as_partition,
)
from kbatch.errors import KafkaTimeoutError, PartialFailure
from kbatch.unpatched import real_threading
from kbatch.waiting.deadline import Deadline

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def seconds(timeout: float | None) -> float | None:
    """Return a time-out as kbatch takes it; a negative one is none."""
    return None if timeout is None or timeout < 0 else timeout


@final
class Cluster:
    """Questions about the cluster. A time-out that is None is default.api.timeout.ms.

    Parameters
    ----------
    settings : mapping of str to object
        Those of an Admin.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._made: Admin | None = None
        self._making = real_threading().Lock()

    @property
    def admin(self) -> Admin:
        """The Admin."""
        with self._making:
            if self._made is None:
                self._made = Admin(self._settings)
            return self._made

    def close(self) -> None:
        """Close the Admin, if there is one."""
        if self._made is not None:
            self._made.close()

    def list_topics(self, topic: str | None, timeout: float | None) -> ClusterMetadata:
        """Return the cluster with its topics, or with one."""
        with translated():
            admin = self.admin
            deadline = Deadline(admin.config.default_api_timeout_ms / 1000 if timeout is None else timeout)
            found = admin.cluster.describe(timeout=deadline.left)
            names = (
                [each.name for each in admin.topics.list(internal=True, timeout=deadline.left)]
                if topic is None
                else [topic]
            )
            failed: Mapping[Any, Any] = {}
            try:
                described: Mapping[Any, Any] = admin.topics.describe(names, timeout=deadline.left)
            except PartialFailure as failure:
                described, failed = failure.results, failure.errors
                for error in failed.values():
                    if isinstance(error, KafkaTimeoutError):
                        raise error from None
        topics = {
            name: TopicMetadata(
                name,
                {
                    each.partition: PartitionMetadata(
                        each.partition,
                        -1 if each.leader is None else each.leader,
                        list(each.replicas),
                        list(each.isr),
                    )
                    for each in described[name].partitions
                },
            )
            for name in described
        }
        missing = {name: TopicMetadata(name, error=error_of(error)) for name, error in failed.items()}
        brokers = {node.node_id: BrokerMetadata(node.node_id, node.host, node.port) for node in found.nodes}
        controller = -1 if found.controller is None else found.controller
        return ClusterMetadata(found.cluster_id, controller, brokers, {**topics, **missing})

    def watermarks(self, partition: TopicPartition, isolation: str, timeout: float | None) -> tuple[int, int]:
        """Return the first offset of a partition, and the one after its last record."""
        deadline = Deadline(timeout)
        asked = as_partition(partition)
        try:
            low, high = (
                self._offsets({asked: end}, isolation, deadline)[asked].offset
                for end in ("earliest", "latest")
            )
        except PartialFailure as failure:
            raise failure.errors[asked] from None
        return low, high

    def offsets_for_times(
        self, partitions: list[TopicPartition], isolation: str, timeout: float | None
    ) -> list[TopicPartition]:
        """Return partitions with the offset of the first record at a time or later: the times are in the
        place of their offsets, in milliseconds. Without such a record, the offset is OFFSET_END.
        """
        times = {as_partition(each): _EPOCH + timedelta(milliseconds=each.offset) for each in partitions}
        failed: Mapping[Any, Any] = {}
        try:
            found = self._offsets(times, isolation, Deadline(timeout))
        except PartialFailure as failure:
            found, failed = dict(failure.results), failure.errors
        results = []
        for each in partitions:
            at = found.get(as_partition(each))
            result = TopicPartition(each.topic, each.partition, OFFSET_END if at is None else at.offset)
            if (error := failed.get(as_partition(each))) is not None:
                result.error = error_of(error)
            results.append(result)
        return results

    def _offsets(self, specs: Mapping[Any, Any], isolation: str, deadline: Deadline) -> dict[Any, Any]:
        return self.admin.topics.offsets(specs, isolation=isolation, timeout=deadline.left)
