"""ShareSession: what a broker knows of a member of a share group, and its acknowledgements in flight.

Theory of operation. The first request of a session has the epoch 0 and names all partitions. Later ones count
the epoch up, and name what is added, forgotten or acknowledged. A broker takes acknowledgements only in an
open session, which ends with the connection. Records that were acquired in a session are released at its end.

After org.apache.kafka.clients.consumer.internals.ShareSessionHandler; KIP-932.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kbatch.core.client.backoff import Retried
from kbatch.core.client.calls import Call

if TYPE_CHECKING:
    from kbatch.errors import KafkaError
    from kbatch.records import TopicPartition

INITIAL_EPOCH, FINAL_EPOCH, MAX_EPOCH = 0, -1, 2**31 - 1
# A partition as brokers name it: the topic's id, and its number.
Key = tuple[bytes, int]


class AcquiredAt(NamedTuple):
    """Where records were acquired.

    Attributes
    ----------
    node_id : int
    topic_id : bytes
    partition : TopicPartition
    """

    node_id: int
    topic_id: bytes
    partition: TopicPartition


class Acknowledge(Call):
    """Acknowledgements that the program makes together.

    Attributes
    ----------
    types : Mapping[AcquiredAt, Mapping[int, int]]
        The type of acknowledgement of each offset.
    results : dict[TopicPartition, KafkaError | None]
        The outcome of each partition, complete when the call is done.
    """

    __slots__ = ("_open_count", "results", "types")

    def __init__(self, types: Mapping[AcquiredAt, Mapping[int, int]], name: str = "commit") -> None:
        super().__init__(name)
        self.types = types
        self.results: dict[TopicPartition, KafkaError | None] = {}
        self._open_count = len(types)

    def finish_partition(self, partition: TopicPartition, error: KafkaError | None) -> None:
        """Record the outcome of one partition."""
        self.results[partition] = self.results.get(partition) or error
        self._open_count -= 1
        if self._open_count == 0:
            self.finish(next(filter(None, self.results.values()), None))


class PartitionAcks(NamedTuple):
    """The acknowledgements of a call for a partition, which wait for its node.

    Attributes
    ----------
    call : Acknowledge
    at : AcquiredAt
    types : Mapping[int, int]
    deadline_ns : int
    """

    call: Acknowledge
    at: AcquiredAt
    types: Mapping[int, int]
    deadline_ns: int

    @property
    def key(self) -> Key:
        return self.at.topic_id, self.at.partition.partition


class ShareSession(Retried):
    """The session with a node.

    Attributes
    ----------
    epoch : int
        That of the next request.
    is_in_flight : bool
    acks : list[PartitionAcks]
        Acknowledgements that wait for the next request.
    attempts, not_before_ns : int
        Those of Retried.
    """

    def __init__(self) -> None:
        super().__init__()
        self.epoch = INITIAL_EPOCH
        self.is_in_flight = False
        self.acks: list[PartitionAcks] = []
        self._known: frozenset[Key] = frozenset()

    @property
    def is_open(self) -> bool:
        """True if the broker has the session, as far as is known."""
        return self.epoch != INITIAL_EPOCH

    def request(self, wanted: frozenset[Key]) -> tuple[frozenset[Key], frozenset[Key]]:
        """Return what the next request adds and forgets, so that the session has these partitions."""
        known, self._known = self._known if self.is_open else frozenset(), wanted
        if known is wanted:
            return frozenset(), frozenset()
        return wanted - known, known - wanted

    def handle_answer(self) -> None:
        """Record an answer without an error."""
        self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1

    def end(self) -> None:
        """End the session, after an error or a lost answer."""
        self.epoch = INITIAL_EPOCH
        self._known = frozenset()


def ranges(types: Mapping[int, int]) -> list[tuple[int, int, list[int]]]:
    """Return offsets with their types as batches: first and last offset, and one type for all if they agree,
    else one for each.
    """
    found: list[tuple[int, int, list[int]]] = []
    for first, last in _runs(sorted(types)):
        each = [types[offset] for offset in range(first, last + 1)]
        found.append((first, last, each[:1] if len(set(each)) == 1 else each))
    return found


def _runs(offsets: Iterable[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for offset in offsets:
        if runs and runs[-1][1] == offset - 1:
            runs[-1] = (runs[-1][0], offset)
        else:
            runs.append((offset, offset))
    return runs
