"""GroupQueries: what a producer can say of consumer groups and their offsets; a part of the producer.

For whoever keeps with `send_offsets_to_transaction` how far it came, and reads it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kbatch.core.client.questions import CommittedOffsets, GroupIds, Question
from kbatch.errors import KafkaTimeoutError
from kbatch.records import OffsetAndMetadata, TopicPartition, check_text, checked_partition

if TYPE_CHECKING:
    from kbatch.producer.runtime import Runtime
    from kbatch.waiting.deadline import Deadline


class GroupQueries:
    """Their `timeout` is seconds; None is max.block.ms. They raise KafkaTimeoutError when it is over, and
    KafkaError for what brokers refuse (GroupAuthorizationError, TopicAuthorizationError).
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._engine = runtime.engine

    async def committed_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed for partitions; those for which it has nothing are left out. Offsets of
        a transaction that is not over are waited for (KIP-447).

        Needs the ACLs Describe of the group and of the topics.
        """
        if not isinstance(group_id, str) or not group_id:
            raise ValueError(f"group_id must be a str that is not empty, got {group_id!r}")
        check_text("group_id", group_id)
        question = CommittedOffsets(group_id, map(checked_partition, partitions))
        await self._ask([question], self._runtime.block_deadline(timeout))
        answer: dict[TopicPartition, OffsetAndMetadata] = question.answer
        return answer

    async def group_ids(self, timeout: float | None = None) -> list[str]:
        """The consumer groups of the cluster that the ACL Describe lets us see."""
        deadline = self._runtime.block_deadline(timeout)
        self._runtime.check_usable()
        await self._wait(lambda: self._engine.snapshot.nodes, deadline, "group_ids")
        questions = [GroupIds(node_id) for node_id in self._engine.snapshot.nodes]
        await self._ask(questions, deadline)
        return sorted({group_id for each in questions for group_id in each.answer})

    async def _ask(self, questions: Sequence[Question], deadline: Deadline) -> None:
        self._runtime.check_usable()
        for question in questions:
            self._engine.ask(question)
        try:
            for question in questions:
                await self._wait(partial(attrgetter("is_done"), question), deadline, question.name)
                if question.error is not None:
                    raise question.error
        finally:
            for question in questions:  # nobody waits for it any more
                question.finish()

    async def _wait(self, is_there: Callable[[], Any], deadline: Deadline, name: str) -> None:
        """Return once `is_there()`, unless the producer or its brokers refuse."""

        def is_answered() -> bool:
            if is_there():
                return True
            self._runtime.check_usable()
            if self._engine.authentication_error is not None:
                raise self._engine.authentication_error
            return False

        self._runtime.network.wake()
        if not await self._runtime.await_until(is_answered, deadline):
            why = self._engine.last_connection_failure or "brokers are slow"
            raise KafkaTimeoutError(f"{name}() has no answer in time: {why}")
