"""Groups of kbatch's, Java's and librdkafka's members, on the embedded and on a real broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Message

import kbatch
from tests.integration.test_broker_clients import (
    JAVA_NEW_PROTOCOL,
    NEW_PROTOCOL,
    librdkafka_consumer,
    new_topic,
    poll,
    produce,
)
from tests.oracle import java_clients
from tests.support.patience import until

pytestmark = pytest.mark.slow

PARTITIONS, RECORDS = 8, 1000
# The group may settle slowly before Java's member has a record.
JAVA_FIRST_MS, JAVA_IDLE_MS = 40_000, 6_000
SLICE_SECONDS = 0.02
ASSIGNORS = "org.apache.kafka.clients.consumer."


class Way(NamedTuple):
    """How a group shares out: settings of the members of each client."""

    kbatch: Mapping[str, object]
    librdkafka: Mapping[str, str]
    java: Mapping[str, str]


def classic(kbatch: str, librdkafka: str, java: str) -> Way:
    """Return the classic protocol with these assignors."""
    return Way(
        {
            "group_protocol": "classic",
            "partition_assignment_strategy": kbatch,
            "heartbeat_interval_ms": 200,
        },
        {"partition_assignment_strategy": librdkafka},
        {
            "partition.assignment.strategy": ",".join(ASSIGNORS + name for name in java.split(",")),
            "heartbeat.interval.ms": "200",
        },
    )


WAYS = {
    "range": classic("range", "range", "RangeAssignor"),
    "cooperative": classic("cooperative-sticky", "cooperative-sticky", "CooperativeStickyAssignor"),
    # all have range, and some could do more
    "mixed": classic(
        "cooperative-sticky,range", "range,roundrobin", "RangeAssignor,CooperativeStickyAssignor"
    ),
    "consumer": Way({"group_protocol": "consumer"}, NEW_PROTOCOL, JAVA_NEW_PROTOCOL),
}


class Member:
    """A member of kbatch, which commits by itself.

    Attributes
    ----------
    got : list of (int, int, bytes | None)
        The partition, offset and value of each record.
    """

    def __init__(self, topic: str, **keys: Any) -> None:
        self.got: list[tuple[int, int, bytes | None]] = []
        self._consumer = kbatch.Consumer(auto_offset_reset="earliest", **keys)
        self._consumer.subscribe([topic])

    @property
    def owned(self) -> set[int]:
        """Return the numbers of its partitions."""
        return {each.partition for each in self._consumer.assignment()}

    def poll(self) -> None:
        """Take what is there within a moment."""
        polled = self._consumer.poll(SLICE_SECONDS)
        self.got += [
            (each.partition, each.offset, None if each.value is None else bytes(each.value))
            for each in polled
        ]

    def close(self) -> None:
        self._consumer.close()


class MixedGroup:
    """A group in which members of three clients read one topic."""

    def __init__(self, target: str, way: Way) -> None:
        self.target, self.way = target, way
        self.topic = new_topic(target, PARTITIONS)
        self.group = f"mixed-{self.topic}"
        self.ours: list[Member] = []
        self.theirs: list[Consumer] = []
        self.messages: list[Message] = []
        self.java: Future[list[dict[str, object]]] | None = None
        self._stack = ExitStack()
        self._pool = self._stack.enter_context(ThreadPoolExecutor(1))

    def close(self) -> None:
        self._stack.close()

    def add(self, kind: str) -> None:
        """Add a member of a client, and wait until the group has divided the partitions anew."""
        if kind == "kbatch":
            keys = {"bootstrap_servers": self.target, "group_id": self.group, **self.way.kbatch}
            self.ours.append(self._stack.enter_context(closing(Member(self.topic, **keys))))
        elif kind == "librdkafka":
            theirs = librdkafka_consumer(self.target, self.group, **self.way.librdkafka)
            self.theirs.append(self._stack.enter_context(theirs))
            self.theirs[-1].subscribe([self.topic])
        else:
            self.java = self._pool.submit(
                java_clients.consume,
                self.target,
                [self.topic],
                group=self.group,
                first_ms=JAVA_FIRST_MS,
                idle_ms=JAVA_IDLE_MS,
                properties=dict(self.way.java),
            )

    def live(self) -> None:
        for each in self.ours:
            each.poll()
        poll(self.theirs, self.messages)

    def owned(self) -> list[set[int]]:
        """Return the partitions of members of kbatch and librdkafka."""
        ours = [each.owned for each in self.ours]
        return ours + [{part.partition for part in each.assignment()} for each in self.theirs]

    def is_divided(self, members: int) -> bool:
        """True if each of as many members has its share, as far as can be seen."""
        self.live()
        share = PARTITIONS // members
        return all(len(each) == share for each in self.owned())


def fill(mixed: MixedGroup, numbers: range) -> None:
    """Send the numbers to all partitions, not to one as long as batches go there."""
    produce(mixed.target, mixed.topic, map(str, numbers), sticky_partitioning_linger_ms="0")


@pytest.fixture
def mixed(target: str, request: pytest.FixtureRequest) -> Iterator[MixedGroup]:
    group = MixedGroup(target, WAYS[request.param])
    yield group
    group.close()


@pytest.mark.java
@pytest.mark.parametrize(
    ("mixed", "order"),
    [
        ("cooperative", ("kbatch", "java", "librdkafka", "kbatch")),
        ("range", ("java", "kbatch", "librdkafka", "kbatch")),
        ("cooperative", ("librdkafka", "kbatch", "java", "kbatch")),
        ("mixed", ("kbatch", "librdkafka", "java", "kbatch")),
        ("consumer", ("kbatch", "java", "librdkafka", "kbatch")),
    ],
    indirect=["mixed"],
    ids=["kbatch-leads", "java-leads", "librdkafka-leads", "mixed-assignors", "new-protocol"],
)
def test_R68_members_of_three_clients_lose_and_double_nothing(
    mixed: MixedGroup, order: tuple[str, ...]
) -> None:
    fill(mixed, range(RECORDS))
    for count, kind in enumerate(order, 1):
        mixed.add(kind)
        if count in (1, 2, 4) and (mixed.ours or mixed.theirs):
            until(lambda count=count: mixed.is_divided(count))  # type: ignore[misc]
    fill(mixed, range(RECORDS, 2 * RECORDS))
    assert mixed.java is not None
    until(lambda: mixed.live() or mixed.java.done())  # type: ignore[union-attr, func-returns-value]
    by_java = [str(row["value"]) for row in mixed.java.result()]

    def values() -> list[str]:
        mixed.live()
        ours = [(value or b"").decode() for each in mixed.ours for _, _, value in each.got]
        return [*ours, *((message.value() or b"").decode() for message in mixed.messages), *by_java]

    until(lambda: len(values()) >= 2 * RECORDS)
    fill(mixed, range(2 * RECORDS, 3 * RECORDS))  # without Java's
    until(lambda: len(values()) >= 3 * RECORDS)
    assert Counter(values()) == Counter(map(str, range(3 * RECORDS)))
    assert by_java and mixed.messages and all(each.got for each in mixed.ours)
