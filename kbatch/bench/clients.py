"""Ways to use a producer, each a class that follows its documentation to send many records, or one at a time.

All get the same settings under Kafka's names; `settings` translates them for each client.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, Protocol

from kbatch.bench.settings import Settings, for_kafka_python, for_librdkafka
from kbatch.bench.workload import FIRST_ROW, Row, Work

# The documentation calls poll(0) before each record, or at regular intervals; this interval costs least.
POLL_EVERY_RECORDS = 100
POLL_SECONDS = 0.1


class Pace(Protocol):
    """The times at which records are due, and their outcomes."""

    @property
    def rows(self) -> Iterable[Row]: ...
    def left_seconds(self, number: int) -> float: ...
    def send(self, number: int) -> Callable[[object], None]:
        """Note that the record is sent now, and return a function that takes its final error, or None."""


class Client(Protocol):
    """The jobs' interface to a producer. A job that a producer cannot do raises NotImplementedError."""

    producer: Any

    def __init__(self, settings: Settings) -> None: ...

    def first(self, topic: str) -> None:
        """Send FIRST_ROW and wait for its acknowledgement."""

    def prepare(self, topic: str, work: Work) -> Any:
        """Return what `load` needs, prepared before the clock starts."""

    def load(self, topic: str, prepared: Any) -> int:
        """Send everything as fast as possible, wait for the last, and return the number of reported
        deliveries.
        """

    def pace(self, topic: str, pace: Pace) -> None:
        """Send a record whenever one is due, and wait for the last."""

    def transact(self, topic: str, work: Work, count: int) -> None:
        """Send `work` in a transaction and commit it, `count` times."""

    def close(self) -> None: ...


class Sync:
    """The common part of clients without an event loop: `send`, one record at a time."""

    producer: Any

    def prepare(self, topic: str, work: Work) -> Any:
        return work.each()

    def pace(self, topic: str, pace: Pace) -> None:
        for number, row in enumerate(pace.rows):
            left = pace.left_seconds(number)
            if left > 0:
                time.sleep(left)
            self.send(topic, row, pace.send(number))
        self.producer.flush()

    def send(self, topic: str, row: Row, settled: Callable[[object], None]) -> None:
        raise NotImplementedError

    def transact(self, topic: str, work: Work, count: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.producer.close()


# kbatch


class Kbatch(Sync):
    """Use `send` with an on_delivery."""

    def __init__(self, settings: Settings) -> None:
        # like a user; a lower layer may not import the package itself
        self.producer = import_module("kbatch").Producer(settings)

    def first(self, topic: str) -> None:
        key, value = FIRST_ROW
        self.producer.send(topic, value, key).result()

    def load(self, topic: str, prepared: Any) -> int:
        delivered = 0

        def count(metadata: object, error: object) -> None:
            nonlocal delivered
            if error is None:
                delivered += 1

        send = self.producer.send
        for key, value in prepared:
            send(topic, value, key, on_delivery=count)
        self.producer.flush()
        return delivered

    def send(self, topic: str, row: Row, settled: Callable[[object], None]) -> None:
        key, value = row
        self.producer.send(topic, value, key, on_delivery=lambda metadata, error: settled(error))

    def transact(self, topic: str, work: Work, count: int) -> None:
        send = self.producer.send
        for _ in range(count):
            with self.producer.transaction():
                for key, value in work.each():
                    send(topic, value, key)


# confluent-kafka


class Confluent(Sync):
    """Use `produce` with an on_delivery, and poll(0) every POLL_EVERY_RECORDS.

    A sender that sleeps between records has its own thread for callbacks.
    """

    def __init__(self, settings: Settings) -> None:
        from confluent_kafka import Producer

        self.producer = Producer(for_librdkafka(settings))
        self._is_closed = False
        self._poller: threading.Thread | None = None

    def first(self, topic: str) -> None:
        key, value = FIRST_ROW
        self.producer.produce(topic, value, key)
        self.producer.flush()

    def load(self, topic: str, prepared: Any) -> int:
        delivered = 0

        def count(error: object, message: object) -> None:
            nonlocal delivered
            if error is None:
                delivered += 1

        self.produce_all(topic, prepared, count)
        self.producer.flush()
        return delivered

    def produce_all(self, topic: str, rows: Iterable[Row], on_delivery: Any) -> int:
        produce, poll = self.producer.produce, self.producer.poll
        count = 0
        for count, (key, value) in enumerate(rows, 1):
            if count % POLL_EVERY_RECORDS == 0:
                poll(0)
            while True:
                try:
                    produce(topic, value, key, on_delivery=on_delivery)
                    break
                except BufferError:
                    poll(POLL_SECONDS)
        return count

    def send(self, topic: str, row: Row, settled: Callable[[object], None]) -> None:
        if self._poller is None:
            self._poller = threading.Thread(target=self._poll, daemon=True)
            self._poller.start()
        key, value = row
        self.producer.produce(topic, value, key, on_delivery=lambda error, message: settled(error))

    def transact(self, topic: str, work: Work, count: int) -> None:
        for _ in range(count):
            self.producer.begin_transaction()
            self.produce_all(topic, work.each(), None)
            self.producer.commit_transaction()

    def close(self) -> None:
        self._is_closed = True
        if self._poller is not None:
            self._poller.join()

    def _poll(self) -> None:
        while not self._is_closed:
            self.producer.poll(POLL_SECONDS)


# kafka-python


class KafkaPython(Sync):
    """Use `send` with a callback."""

    def __init__(self, settings: Settings) -> None:
        from kafka import KafkaProducer

        self.producer = KafkaProducer(**for_kafka_python(settings))

    def first(self, topic: str) -> None:
        key, value = FIRST_ROW
        self.producer.send(topic, value, key).get()

    def load(self, topic: str, prepared: Any) -> int:
        delivered = 0

        def count(metadata: object) -> None:
            nonlocal delivered
            delivered += 1

        send = self.producer.send
        for key, value in prepared:
            send(topic, value, key).add_callback(count)
        self.producer.flush()
        return delivered

    def send(self, topic: str, row: Row, settled: Callable[[object], None]) -> None:
        key, value = row
        future = self.producer.send(topic, value, key)
        future.add_callback(lambda metadata: settled(None))
        future.add_errback(settled)
