"""A member of a group, for `kbatch consume --group`: it commits what was written, after that."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any

from kbatch.cli.options import ask_soon, new_client, topics_of
from kbatch.errors import KafkaTimeoutError

if TYPE_CHECKING:
    import pyarrow as pa

    from kbatch.cli.name_choice import NameChoice
    from kbatch.cli.positions import Position
    from kbatch.consumer.threads import Consumer
    from kbatch.consumer.topic_reader import TopicReader
    from kbatch.records import TopicPartition

# How often a member that waits looks whether it has reached the end.
WAIT_SECONDS = 0.2
MOST_ROWS = 10_000


def check_topics(choice: NameChoice, settings: dict[str, str]) -> None:
    """Raise KafkaError unless there are these topics; a member of a group would wait for them."""
    from kbatch.consumer.topic_reader import TopicReader

    def check(reader: TopicReader) -> None:
        for topic in topics_of(choice, reader):
            reader.partitions(topic)

    ask_soon(TopicReader, settings, "default.api.timeout.ms", check)


def open_member(settings: dict[str, str], group: str, start: Position | None) -> Consumer:
    """Return a consumer of the group; faults of the call are UsageErrors."""
    from kbatch.consumer.threads import Consumer

    settings = {"client.id": "kbatch-consume", "auto.offset.reset": str(start), **settings, "group.id": group}
    return new_client(Consumer, {**settings, "enable.auto.commit": "false"})


class TopicMember:
    """A member of a group that reads topics.

    Parameters
    ----------
    consumer : Consumer
    choice : NameChoice
    follows : bool
        False to end where the partitions ended when the member got them, or without any after 8 s.
    most : int or None
        The number of rows that are wanted.
    """

    def __init__(self, consumer: Consumer, choice: NameChoice, *, follows: bool, most: int | None) -> None:
        from kbatch.consumer.group_member import FIRST_PARTITIONS_SECONDS

        self._consumer = consumer
        self._patience = FIRST_PARTITIONS_SECONDS
        self._follows = follows
        self._left = most
        self._assigned_at: float | None = None
        self._ends: dict[TopicPartition, int] = {}
        self._after: dict[TopicPartition, int] = {}
        consumer.subscribe(choice.subscription, on_assigned=self._take)

    def _take(self, partitions: list[TopicPartition]) -> None:
        for each in partitions:  # others may have committed more of them since
            self._after.pop(each, None)
        self._ends.update(self._consumer.end_offsets(partitions))
        self._assigned_at = time.monotonic()

    @property
    def _is_at_end(self) -> bool:
        consumer = self._consumer
        if self._follows or self._assigned_at is None:
            return False
        if not (assigned := consumer.assignment()):
            return time.monotonic() > self._assigned_at + self._patience
        return all(consumer.position(each) >= self._ends[each] for each in assigned)

    def batches(
        self, *, commits: bool, waits: Callable[[], AbstractContextManager[None]], **columns: Any
    ) -> Iterator[pa.RecordBatch]:
        """Yield what is read, never more than is wanted. With `commits`, the next step commits it. It waits
        in blocks of `waits`, which Ctrl-C ends.
        """
        while self._left != 0:
            rows = MOST_ROWS if self._left is None else min(self._left, MOST_ROWS)
            with waits():
                if self._is_at_end:  # which may ask brokers
                    return
                table = self._consumer.poll_table(WAIT_SECONDS, max_rows=rows, **columns)
            yield from (each for each in table.to_batches() if each.num_rows)
            if commits and table.num_rows:
                self.commit()
            elif self._follows and table.num_rows:
                self._after = self._positions()

    def _positions(self) -> dict[TopicPartition, int]:
        """Return the known positions."""
        found = {}
        for each in self._consumer.assignment():
            with suppress(KafkaTimeoutError):
                found[each] = self._consumer.position(each, timeout=0)
        return found

    def counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches, and count their rows as wanted ones."""
        for batch in batches:
            if self._left is not None:
                self._left -= batch.num_rows
            yield batch

    def commit(self) -> None:
        """Commit everything that was yielded."""
        self._consumer.commit()

    def commit_before(self) -> None:
        """Commit what was yielded before the last step, of partitions that the member still has: all that is
        known to be written when that step did not end.
        """
        assigned = self._consumer.assignment()
        self._consumer.commit({each: offset for each, offset in self._after.items() if each in assigned})
