"""Ways to use a producer, each a class that follows its documentation to send many records, or one at a time.

All get the same settings under Kafka's names; `settings` translates them for each client.
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


class KbatchSilent(Kbatch):
    """Use `send` alone; flush() raises if a record failed."""

    def load(self, topic: str, prepared: Any) -> int:
        send = self.producer.send
        count = 0
        for count, (key, value) in enumerate(prepared, 1):  # noqa: B007 - what is left of it is returned
            send(topic, value, key)
        self.producer.flush()
        return count


class KbatchMany(Kbatch):
    """Use `send_many`."""

    def prepare(self, topic: str, work: Work) -> Any:
        return work.chunks()

    def load(self, topic: str, prepared: Any) -> int:
        send_many = self.producer.send_many
        for chunk in prepared:
            send_many(topic, chunk)
        self.producer.flush()
        return sum(map(len, prepared))


class KbatchTable(Kbatch):
    """Use `send_table`, one call for all rows."""

    def first(self, topic: str) -> None:
        key, value = FIRST_ROW
        self._first = self.producer.send(topic, value, key).result()

    def prepare(self, topic: str, work: Work) -> Any:
        import pyarrow as pa

        table = work.table()
        pa.default_memory_pool().release_unused()  # creating it is not part of sending
        return table

    def load(self, topic: str, prepared: Any) -> int:
        self._report = report = self.producer.send_table(topic, prepared).result()
        return int(report.done_rows - report.failed_rows)

    def reported(self, work: Work) -> Contents:
        """Return the location of each row, from the reports of the first record and of the table."""
        tally = Tally()
        tally.add_at(self._first.partition, self._first.offset, *FIRST_ROW)
        partitions, offsets, each = self._report.partitions, self._report.offsets, work.each()
        for start in range(0, work.records, CHUNK_RECORDS):  # all at once would make a Python object per row
            places = (column[start : start + CHUNK_RECORDS].tolist() for column in (partitions, offsets))
            for (partition, offset), row in zip(zip(*places, strict=True), each, strict=False):
                tally.add_at(partition, offset, *row)
        return tally.contents


class KbatchBatches(Kbatch):
    """Use `send_batch` with batches that `encode_arrow` made before: the client only sends, so the rest is
    the share of broker and kernel.
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


class ConfluentSilent(Confluent):
    """Use `produce` alone; undelivered records are not reported."""

    def load(self, topic: str, prepared: Any) -> int:
        count = self.produce_all(topic, prepared, None)
        return count - int(self.producer.flush())


class ConfluentBatches(Confluent):
    """Use `produce_batch` with one on_delivery, and poll(0) after each call."""

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
            while left:  # it accepts as many as there is room for
                left = left[self.producer.produce_batch(topic, left, on_delivery=count) :]
                self.producer.poll(POLL_SECONDS if left else 0)
        self.producer.flush()
        return delivered


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
