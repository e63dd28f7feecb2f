"""More ways to use the producers of `kbatch.bench.clients`: no callbacks, many records a call, tables."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import kbatch.bench.workload
from benchmarks.clients.work import CHUNK_RECORDS, Work, forms_of
from kbatch.bench.clients import POLL_SECONDS, Confluent, Kbatch
from kbatch.bench.contents import Contents, Tally
from kbatch.bench.workload import FIRST_ROW


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

    def prepare(self, topic: str, work: kbatch.bench.workload.Work) -> Any:
        return forms_of(work).chunks()

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

    def prepare(self, topic: str, work: kbatch.bench.workload.Work) -> Any:
        import pyarrow as pa

        table = forms_of(work).table()
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

    def prepare(self, topic: str, work: kbatch.bench.workload.Work) -> Any:
        config = self.producer.config
        encoded = import_module("kbatch").encode_arrow(
            forms_of(work).table(),
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


class ConfluentSilent(Confluent):
    """Use `produce` alone; undelivered records are not reported."""

    def load(self, topic: str, prepared: Any) -> int:
        count = self.produce_all(topic, prepared, None)
        return count - int(self.producer.flush())


class ConfluentBatches(Confluent):
    """Use `produce_batch` with one on_delivery, and poll(0) after each call."""

    def prepare(self, topic: str, work: kbatch.bench.workload.Work) -> Any:
        chunks = forms_of(work).chunks()
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
