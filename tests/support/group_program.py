"""A program that reads as a member of a group, over sockets: an engine and its network alone."""

from __future__ import annotations

import queue
import time
from collections.abc import Mapping
from contextlib import suppress
from random import Random
from types import TracebackType
from typing import Any, Self

from kbatch.config import ConsumerConfig
from kbatch.core.client.calls import Call
from kbatch.core.consumer.commits import CommitOffsets
from kbatch.core.consumer.group_engine import GroupEngine
from kbatch.core.consumer.membership import Rebalance
from kbatch.core.consumer.results import Failed, Fetched, Result
from kbatch.core.consumer.subscription import Subscription
from kbatch.metrics import CONSUMER_METRICS, COORDINATOR_METRICS, MetricsRegistry
from kbatch.network.threads import ThreadNetwork
from kbatch.records import OffsetAndMetadata, TopicPartition
from tests.support.patience import HANG_SECONDS

SLICE_SECONDS = 0.02
ALL = 10_000


class GroupProgram:
    """The program. It commits what it has got, in each poll and before it gives up partitions.

    Attributes
    ----------
    got : list of (int, int, bytes | None)
        The partition, offset and value of each record.
    owned : set of int
        The numbers of its partitions.
    """

    def __init__(self, topic: str, **settings: Any) -> None:
        config = ConsumerConfig(**{"auto_offset_reset": "earliest", **settings})
        registry = MetricsRegistry("member", metrics=(*CONSUMER_METRICS, *COORDINATOR_METRICS))
        self.engine = GroupEngine(
            config,
            random=Random(),
            registry=registry,
            now_ns=time.monotonic_ns(),
            wall_clock_ms=lambda: time.time_ns() // 1_000_000,
        )
        self._arrived: queue.SimpleQueue[list[Result]] = queue.SimpleQueue()
        self._network = ThreadNetwork(
            self.engine, config=config, deliver=self._arrived.put, name="member", metrics=registry
        )
        self._generations: dict[TopicPartition, int] = {}
        self._positions: dict[TopicPartition, OffsetAndMetadata] = {}
        self.got: list[tuple[int, int, bytes | None]] = []
        self.engine.subscribe(Subscription(frozenset([topic])))
        self._network.start()

    @property
    def owned(self) -> set[int]:
        return {each.partition for each in self._generations}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def poll(self) -> None:
        """Take what is there within a moment."""
        self.engine.note_poll(time.monotonic_ns())
        self._network.wake()
        with suppress(queue.Empty):
            for result in self._arrived.get(timeout=SLICE_SECONDS):
                self._take(result)
        self._commit(self._positions)
        self._do_steps()
        if (error := self.engine.membership_error) is not None:
            raise error

    def close(self) -> None:
        """Leave the group, and end."""
        call = Call("close")
        self.engine.leave(call)
        self._await(call)
        self._network.stop()

    def _take(self, result: Result) -> None:
        if isinstance(result, Failed):
            raise result.error
        if not isinstance(result, Fetched):
            return
        partition = result.partition
        if result.generation == self._generations.get(partition):
            rows = [] if result.records is None else result.records.take_records(ALL)
            self.got += [(partition.partition, row.offset, row.value) for row in rows]
            self._positions[partition] = OffsetAndMetadata(result.next_offset)
        self.engine.release(result)

    def _do_steps(self) -> None:
        while (step := self.engine.take_rebalance()) is not None:
            self._do(step)
            self.engine.finish_rebalance(step)
            self._network.wake()

    def _do(self, step: Rebalance) -> None:
        if step.kind == "assign":
            self._generations.update(dict.fromkeys(step.partitions, step.number))
            return
        given_up = {each: self._positions.pop(each) for each in step.partitions if each in self._positions}
        for partition in step.partitions:
            del self._generations[partition]
        if step.kind == "revoke":
            self._commit(given_up)

    def _commit(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        if positions:
            call = CommitOffsets(positions)
            self.engine.commit(call)
            self._await(call, does_steps=False)

    def _await(self, call: Call, *, does_steps: bool = True) -> None:
        deadline = time.monotonic() + HANG_SECONDS
        self._network.wake()
        while not call.is_done:
            assert time.monotonic() < deadline, call.name
            if does_steps:
                self._do_steps()
            time.sleep(0.001)
        if call.error is not None:
            raise call.error
