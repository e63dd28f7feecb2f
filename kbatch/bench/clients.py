"""Ways to use a producer, each a class: how its documentation has one send many records, or one at a time.

All have the same settings, under Kafka's names; `settings` translates them into a client's own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, Protocol

from kbatch.bench.contents import Contents, Tally
from kbatch.bench.settings import Settings, for_kafka_python, for_librdkafka
from kbatch.bench.work import CHUNK_RECORDS, FIRST_ROW, Row, Work

# The documentation has poll(0) called before each record, or at regular intervals; so often it costs least.
POLL_EVERY_RECORDS = 100
POLL_SECONDS = 0.1


class Pace(Protocol):
    """When records are due, and what became of them."""

    @property
    def rows(self) -> Iterable[Row]: ...
    def left_seconds(self, number: int) -> float: ...
    def send(self, number: int) -> Callable[[object], None]:
        """The record is sent now; what is returned takes its error, or None, when that is known."""


class Client(Protocol):
    """What the jobs need of a producer. One that cannot do a job has the method raise NotImplementedError."""

    producer: Any

    def __init__(self, settings: Settings) -> None: ...

    def first(self, topic: str) -> None:
        """Sends FIRST_ROW and waits for its acknowledgement."""

    def prepare(self, topic: str, work: Work) -> Any:
        """What `load` takes, made before the time runs."""

    def load(self, topic: str, prepared: Any) -> int:
        """Sends all as fast as it can, waits for the last, and returns how many are said to be delivered."""

    def pace(self, topic: str, pace: Pace) -> None:
        """Sends a record each time that one is due, and waits for the last."""

    def transact(self, topic: str, work: Work, count: int) -> None:
        """Sends `work` in a transaction and commits it, `count` times."""

    def close(self) -> None: ...


class Sync:
    """What clients without an event loop have in common: `send` one at a time."""

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
    """`send` with an on_delivery."""

    def __init__(self, settings: Settings) -> None:
        # as a user does; a layer below may not name the package itself
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


class KbatchSilent(Kbatch):
    """`send` alone; flush() raises where a record failed."""

    def load(self, topic: str, prepared: Any) -> int:
        send = self.producer.send
        count = 0
        for count, (key, value) in enumerate(prepared, 1):  # noqa: B007 - what is left of it is returned
            send(topic, value, key)
        self.producer.flush()
        return count


class KbatchMany(Kbatch):
    """`send_many`."""

    def prepare(self, topic: str, work: Work) -> Any:
        return work.chunks()

    def load(self, topic: str, prepared: Any) -> int:
        send_many = self.producer.send_many
        for chunk in prepared:
            send_many(topic, chunk)
        self.producer.flush()
        return sum(map(len, prepared))


class KbatchTable(Kbatch):
    """`send_table`, one call for all."""

    def first(self, topic: str) -> None:
        key, value = FIRST_ROW
        self._first = self.producer.send(topic, value, key).result()

    def prepare(self, topic: str, work: Work) -> Any:
        import pyarrow as pa

        table = work.table()
        pa.default_memory_pool().release_unused()  # what making it took is not sending's
        return table

    def load(self, topic: str, prepared: Any) -> int:
        self._report = report = self.producer.send_table(topic, prepared).result()
        return int(report.done_rows - report.failed_rows)

    def reported(self, work: Work) -> Contents:
        """What lies where, by what was told of the first record and of each row of the table."""
        tally = Tally()
        tally.add_at(self._first.partition, self._first.offset, *FIRST_ROW)
        partitions, offsets, each = self._report.partitions, self._report.offsets, work.each()
        for start in range(0, work.records, CHUNK_RECORDS):  # all at once would be a Python object a row
            places = (column[start : start + CHUNK_RECORDS].tolist() for column in (partitions, offsets))
            for (partition, offset), row in zip(zip(*places, strict=True), each, strict=False):
                tally.add_at(partition, offset, *row)
        return tally.contents


class KbatchBatches(Kbatch):
    """`send_batch` with batches that `encode_arrow` made before: a client that has nothing to do but to send,
    for the broker's and the kernel's share.
    """

    def prepare(self, topic: str, work: Work) -> Any:
        config = self.producer.config
        encoded = import_module("kbatch").encode_arrow(
            work.table(),
            partitions=len(self.producer.partitions_for(topic)),
            compression=config.compression_type,
            batch_size=config.batch_size,
        )
        batches = [bytes(batch.as_buffer()) for batch in encoded["batch"]]
        self._records = work.records
        return list(zip(encoded["partition"].to_pylist(), batches, strict=True))

    def load(self, topic: str, prepared: Any) -> int:
        for partition, batch in prepared:
            self.producer.send_batch(topic, partition, batch)
        self.producer.flush()
        return self._records


# confluent-kafka


class Confluent(Sync):
    """`produce` with an on_delivery, and poll(0) every POLL_EVERY_RECORDS.

    A sender that sleeps between records has a thread for the callbacks.
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


class ConfluentSilent(Confluent):
    """`produce` alone; what it could not deliver, nobody is told."""

    def load(self, topic: str, prepared: Any) -> int:
        count = self.produce_all(topic, prepared, None)
        return count - int(self.producer.flush())


class ConfluentBatches(Confluent):
    """`produce_batch` with one on_delivery, and a poll(0) behind each call."""

    def prepare(self, topic: str, work: Work) -> Any:
        chunks = work.chunks()
        once = {id(chunk): chunk for chunk in chunks}
        made = {
            number: [{"key": key, "value": value} for key, value in chunk] for number, chunk in once.items()
        }
        return [made[id(chunk)] for chunk in chunks]

    def load(self, topic: str, prepared: Any) -> int:
        delivered = 0

        def count(error: object, message: object) -> None:
            nonlocal delivered
            if error is None:
                delivered += 1

        for chunk in prepared:
            left = chunk
            while left:  # it takes the first that there is room for
                left = left[self.producer.produce_batch(topic, left, on_delivery=count) :]
                self.producer.poll(POLL_SECONDS if left else 0)
        self.producer.flush()
        return delivered


# kafka-python


class KafkaPython(Sync):
    """`send` with a callback."""

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
