"""librdkafka's clients, which continue while their broker is killed and restarted, and their answers.

Each runs in a thread of its own from `start` to `finish`. A note before a request is an upper bound of its
effect, a note after the response a lower bound.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.support.patience import HANG_SECONDS

FLUSH_SECONDS = HANG_SECONDS
POLL_SECONDS = 0.005
# So that clients reconnect soon after the broker. After rebootstrapping, librdkafka 2.16 would wait for a
# group's coordinator that it knew before, for ever.
SETTINGS: dict[str, Any] = {
    "metadata.recovery.strategy": "none",
    "log_level": 0,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 50,
}
MAX_UNACKNOWLEDGED = 2_000


class Record(NamedTuple):
    partition: int
    offset: int
    value: str


def record_of(message: Message) -> Record:
    """Return one record that was delivered or read."""
    partition, offset, value = message.partition(), message.offset(), message.value()
    assert partition is not None and offset is not None and value is not None
    return Record(partition, offset, value.decode())


class Client:
    """A loop of `step` in a thread."""

    def __init__(self, name: str, seed: object) -> None:
        self.name = name
        self.rng = random.Random(f"{name} {seed}")
        self._is_over = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """End after the last step; raise what ended the loop before."""
        self._is_over.set()
        self._thread.join()
        self.check()

    def check(self) -> None:
        if self._error is not None:
            raise AssertionError(f"{self.name} failed: {self._error!r}") from self._error

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                self.step()
            self.end()
        except BaseException as error:
            self._error = error

    def step(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        """Wait for records in flight."""


class Writer(Client):
    """An idempotent producer. The values of a partition are numbered.

    Attributes
    ----------
    sent : dict of int to int
        How many values a partition was given.
    acknowledged : list of Record
    """

    def __init__(
        self, name: str, seed: object, bootstrap_servers: str, topic: str, partitions: int, max_in_flight: int
    ) -> None:
        super().__init__(name, seed)
        self.sent: dict[int, int] = defaultdict(int)
        self.acknowledged: list[Record] = []
        self._topic = topic
        self._partitions = partitions
        self._producer = Producer(
            SETTINGS
            | {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "max.in.flight": max_in_flight,
                "linger.ms": self.rng.choice((0, 1, 5)),
                "batch.num.messages": self.rng.choice((1, 10, 100)),
                "compression.type": self.rng.choice(("none", "lz4", "zstd")),
            }
        )

    def step(self) -> None:
        if len(self._producer) < MAX_UNACKNOWLEDGED:
            for _ in range(self.rng.randrange(1, 20)):
                partition = self.rng.randrange(self._partitions)
                value = f"{self.name} {self.sent[partition]}"
                self.sent[partition] += 1
                self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
        self._producer.poll(POLL_SECONDS)

    def end(self) -> None:
        assert self._producer.flush(FLUSH_SECONDS) == 0, "what was sent is not acknowledged"

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        self.acknowledged.append(record_of(message))


class Transactor(Client):
    """A transactional producer, which ends each transaction and says in it how far a group has come.

    Attributes
    ----------
    states : list of str
        Of each transaction: "open", "committing", "committed", "aborting", "aborted".
    sizes : list of int
        How many values each has.
    """

    def __init__(
        self, name: str, seed: object, bootstrap_servers: str, topic: str, partitions: int, max_in_flight: int
    ) -> None:
        super().__init__(name, seed)
        self.states: list[str] = []
        self.sizes: list[int] = []
        self.group = f"group of {name}"
        self._topic = topic
        self._partitions = partitions
        servers = SETTINGS | {"bootstrap.servers": bootstrap_servers}
        self._group = Consumer(servers | {"group.id": self.group})
        self._producer = Producer(
            servers
            | {
                "transactional.id": name,
                "max.in.flight": max_in_flight,
                "linger.ms": self.rng.choice((0, 5)),
                "batch.num.messages": self.rng.choice((1, 10)),
            }
        )
        self._until_done(lambda: self._producer.init_transactions(FLUSH_SECONDS))

    def step(self) -> None:
        number, size = len(self.states), self.rng.randrange(1, 30)
        self.sizes.append(size)
        self.states.append("open")
        self._producer.begin_transaction()
        try:
            self._fill(number, size)
            if self.rng.random() < 0.7:
                self.states[number] = "committing"
                self._until_done(lambda: self._producer.commit_transaction(FLUSH_SECONDS))
                self.states[number] = "committed"
                return
            self._producer.flush(FLUSH_SECONDS)
        except KafkaException as error:
            if error.args[0].fatal():
                raise
        # librdkafka has taken the transaction for lost, or it is to be given up
        self.states[number] = "aborting"
        self._until_done(lambda: self._producer.abort_transaction(FLUSH_SECONDS))
        self.states[number] = "aborted"

    def _fill(self, number: int, size: int) -> None:
        for index in range(size):
            partition = self.rng.randrange(self._partitions)
            self._producer.produce(self._topic, f"{self.name} {number} {index}", partition=partition)
            self._producer.poll(self.rng.choice((0, 0, POLL_SECONDS)))
        offsets = [TopicPartition(self._topic, 0, number + 1)]
        group = self._group.consumer_group_metadata()
        self._until_done(lambda: self._producer.send_offsets_to_transaction(offsets, group, FLUSH_SECONDS))

    def _until_done(self, action: Callable[[], None]) -> None:
        """librdkafka says by itself which calls are to be made again."""
        while True:
            try:
                action()
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return

    @property
    def committed_offset(self) -> int:
        """Return the group's offsets at the end."""
        committed = [number for number, state in enumerate(self.states) if state == "committed"]
        return committed[-1] + 1 if committed else -1001

    def end(self) -> None:
        self._group.close()


class Member(Client):
    """A group of one, which commits rising offsets.

    Attributes
    ----------
    tried, committed : int
        The last offset that it tried to commit, and the last that was confirmed.
    seen : dict of (int, int) to str
        Values by partition and offset.
    """

    def __init__(self, name: str, seed: object, bootstrap_servers: str, topic: str) -> None:
        super().__init__(name, seed)
        self.tried = self.committed = 0
        self.seen: dict[tuple[int, int], str] = {}
        self.group = f"group of {name}"
        self._topic = topic
        self._consumer = Consumer(
            SETTINGS
            | {
                "bootstrap.servers": bootstrap_servers,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 200,
                "fetch.wait.max.ms": 20,
            }
        )
        self._consumer.subscribe([topic])

    def step(self) -> None:
        for message in self._consumer.consume(100, timeout=POLL_SECONDS):
            if message.error() is None:
                record = record_of(message)
                assert self.seen.setdefault(record[:2], record.value) == record.value, record
        if self._consumer.assignment():
            self._commit()

    def _commit(self) -> None:
        self.tried += 1
        try:
            self._consumer.commit(offsets=[TopicPartition(self._topic, 0, self.tried)], asynchronous=False)
        except KafkaException:  # the broker is down, or the group is rebalancing: the next commit counts
            return
        self.committed = self.tried

    def end(self) -> None:
        self._consumer.close()
