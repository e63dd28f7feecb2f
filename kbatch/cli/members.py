"""A member of a group, for `kbatch consume --group`: it commits what was written, after that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from kbatch.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

    from kbatch.cli.positions import Position
    from kbatch.consumer.threads import Consumer
    from kbatch.records import TopicPartition

# How often a member that waits looks whether it has reached the end.
WAIT_SECONDS = 0.2
MOST_ROWS = 10_000


def open_member(settings: dict[str, str], group: str, start: Position | None) -> Consumer:
    """Return a consumer of the group; faults of the call are UsageErrors."""
    settings = {"client.id": "kbatch-consume", "auto.offset.reset": str(start), **settings, "group.id": group}
    from kbatch.consumer.threads import Consumer

    try:
        return Consumer({**settings, "enable.auto.commit": "false"})
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


class TopicMember:
    """A member of a group that reads a topic.

    Parameters
    ----------
    consumer : Consumer
    topic : str
    follows : bool
        False to end where the partitions ended when the member got them.
    most : int or None
        The number of rows that are wanted.
    """

    def __init__(self, consumer: Consumer, topic: str, *, follows: bool, most: int | None) -> None:
        consumer.partitions_for(topic)  # which says at once if there is no such topic
        self._consumer = consumer
        self._follows = follows
        self._left = most
        self._is_assigned = False
        self._ends: dict[TopicPartition, int] = {}
        consumer.subscribe([topic], on_assigned=self._take)

    def _take(self, partitions: list[TopicPartition]) -> None:
        self._ends.update(self._consumer.end_offsets(partitions))
        self._is_assigned = True

    @property
    def _is_at_end(self) -> bool:
        consumer = self._consumer
        if self._follows or not self._is_assigned:
            return False
        return all(consumer.position(each) >= self._ends[each] for each in consumer.assignment())

    def batches(self, *, commits: bool, **columns: Any) -> Iterator[pa.RecordBatch]:
        """Yield what is read, never more than is wanted. With `commits`, the next step commits it."""
        while self._left != 0 and not self._is_at_end:
            rows = MOST_ROWS if self._left is None else min(self._left, MOST_ROWS)
            table = self._consumer.poll_table(WAIT_SECONDS, max_rows=rows, **columns)
            yield from (each for each in table.to_batches() if each.num_rows)
            if commits and table.num_rows:
                self.commit()

    def counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches, and count their rows as wanted ones."""
        for batch in batches:
            if self._left is not None:
                self._left -= batch.num_rows
            yield batch

    def commit(self) -> None:
        """Commit everything that was yielded."""
        self._consumer.commit()
