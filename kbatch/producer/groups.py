"""GroupQueries: consumer groups and their committed offsets; a part of the producer.

A program that keeps its progress with `send_offsets_to_transaction` reads it back here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kbatch.core.admin.groups import CommittedOffsets, GroupListings
from kbatch.records import OffsetAndMetadata, TopicPartition, check_group_id, checked_partitions

if TYPE_CHECKING:
    from kbatch.producer.runtime import Runtime


class GroupQueries:
    """Requests about groups. `timeout` is in seconds; None is max.block.ms. They raise KafkaTimeoutError
    after it, and KafkaError if brokers refuse (GroupAuthorizationError, TopicAuthorizationError).
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def committed_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that a group has committed, by partition, without partitions that have none.
        Wait for the end of transactions that have pending offsets (KIP-447).

        It needs the ACL Describe on the group and on the topics.
        """
        check_group_id(group_id)
        request = CommittedOffsets({group_id: checked_partitions("committed_offsets", partitions)})
        deadline = self._runtime.block_deadline(timeout)
        found: dict[TopicPartition, OffsetAndMetadata] = await self._runtime.await_answer_of(
            request, deadline
        )
        return found

    async def group_ids(self, timeout: float | None = None) -> list[str]:
        """Return the consumer groups of the cluster for which this client has the ACL Describe."""
        deadline = self._runtime.block_deadline(timeout)
        request = GroupListings(await self._runtime.await_brokers(deadline, "group_ids"))
        await self._runtime.await_request(request, deadline)
        if request.error is not None:
            raise request.error
        return sorted({each.group_id for found in request.results.values() for each in found})
