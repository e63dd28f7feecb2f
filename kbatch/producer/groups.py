"""GroupQueries: consumer groups and their committed offsets; a part of the producer.

A program that keeps its progress with `send_offsets_to_transaction` reads it back here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from kbatch.core.client.admin_requests import AdminRequest, CommittedOffsets, GroupIds
from kbatch.records import OffsetAndMetadata, TopicPartition, check_text, checked_partition

if TYPE_CHECKING:
    from kbatch.producer.runtime import Runtime
    from kbatch.waiting.deadline import Deadline


class GroupQueries:
    """Requests about groups. `timeout` is in seconds; None is max.block.ms. They raise KafkaTimeoutError
    after it, and KafkaError if brokers refuse (GroupAuthorizationError, TopicAuthorizationError).
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._engine = runtime.engine

    async def committed_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that a group has committed, by partition, without partitions that have none.
        Wait for the end of transactions that have pending offsets (KIP-447).

        It needs the ACL Describe on the group and on the topics.
        """
        if not isinstance(group_id, str) or not group_id:
            raise ValueError(f"group_id must be a str that is not empty, got {group_id!r}")
        check_text("group_id", group_id)
        request = CommittedOffsets(group_id, map(checked_partition, partitions))
        await self._request([request], self._runtime.block_deadline(timeout))
        answer: dict[TopicPartition, OffsetAndMetadata] = request.answer
        return answer

    async def group_ids(self, timeout: float | None = None) -> list[str]:
        """Return the consumer groups of the cluster for which this client has the ACL Describe."""
        deadline = self._runtime.block_deadline(timeout)
        self._runtime.check_usable()
        await self._runtime.await_answer(lambda: self._engine.snapshot.nodes, deadline, "group_ids")
        requests = [GroupIds(node_id) for node_id in self._engine.snapshot.nodes]
        await self._request(requests, deadline)
        return sorted({group_id for each in requests for group_id in each.answer})

    async def _request(self, requests: Sequence[AdminRequest], deadline: Deadline) -> None:
        self._runtime.check_usable()
        for request in requests:
            self._engine.submit_request(request)
        try:
            for request in requests:
                is_done = partial(attrgetter("is_done"), request)
                await self._runtime.await_answer(is_done, deadline, request.name)
                if request.error is not None:
                    raise request.error
        finally:
            for request in requests:  # in case that it was not answered
                request.finish()
