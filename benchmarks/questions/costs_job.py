"""Records accepted, sealed, drained and answered without a network. callgrind counts the instructions of
`python -m benchmarks.questions.costs_job send|send_table RECORDS MADE`. It creates MADE records, the same
number for each count so that creating them cancels, and sends the first RECORDS.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from benchmarks.clients.work import table_of
from benchmarks.questions.send import PARTITIONS, Direct, Drained, topic_names
from kbatch.bench.workload import Record, batch_records

if TYPE_CHECKING:
    from kbatch._native.batch.producer_batch import ProducerBatch

PATHS = ("send", "send_table")
SETTINGS: dict[str, Any] = {"compression": "lz4", "batch_size": 128 << 10, "buffer_memory": 1 << 30}
ROLES = ("key", "value", "headers", "timestamp", "partition")


def job(
    path: str,
    records: int,
    value_bytes: int = 100,
    partitions: int | None = None,
    *,
    made: int | None = None,
) -> Callable[[], None]:
    """A repeatable job; with `partitions`, all keys are different. It creates `made` records and sends the
    first ones; None creates only those it sends.
    """
    drained = Drained(partitions=partitions or PARTITIONS, **SETTINGS)
    rows = _rows(made or records, value_bytes)
    if partitions is not None:
        rows = [(b"key-%012d" % number, *row[1:]) for number, row in enumerate(rows)]
    if path == "send_table":
        return table_job(drained, table_of(rows).select(["key", "value"]).slice(0, records))
    rows = rows[:records]
    sender = _sender(drained)

    def send() -> None:
        send = sender.send
        for key, value, _, _ in rows:
            send("t", value, key)
        drained.flush()

    return send


def table_job(
    drained: Drained,
    data: Any,
    topic: str | None = "t",
    seal: Callable[[ProducerBatch], object] | None = None,
) -> Callable[[], None]:
    """Run the job; without `topic` a column names it, and without `seal` the caller seals."""
    from kbatch._native.send.table_sender import TableSender

    sender = _sender(drained)
    roles = ROLES if topic is not None else (*ROLES, "topic")
    names = {role: (role, role in ("value", "topic")) for role in roles}

    def send_table() -> None:
        sending = TableSender(sender, topic, data, names, seal=seal)
        assert sending.accept() is True
        sending.end()
        drained.flush()
        assert sending.outcome.is_done and not sending.outcome.failed_count

    return send_table


def job_over_topics(path: str, records: int, topics: int) -> Callable[[], None]:
    """Send to one topic after the other, each with one partition."""
    drained = Drained(topics, 1, **SETTINGS)
    rows = _rows(records)
    names = list(islice(cycle(topic_names(topics)), records))
    if path == "send_table":
        import pyarrow as pa

        table = table_of(rows).select(["key", "value"]).append_column("topic", pa.array(names))
        return table_job(drained, table, None)
    sender = _sender(drained)

    def send() -> None:
        send = sender.send
        for topic, (key, value, _, _) in zip(names, rows, strict=True):
            send(topic, value, key)
        drained.flush()

    return send


def job_on_cores(path: str, records: int, cores: int) -> Callable[[], None]:
    """Send from several threads, or send a table from one with as many sealers as a producer on these cores
    has.
    """
    drained = Drained(**SETTINGS)
    rows = _rows(records)
    if path == "send_table":
        from kbatch.network.sealing import Sealers

        table = table_of(rows).select(["key", "value"])
        sealers = Sealers("sealer", SETTINGS["compression"])
        sealers.start()
        return table_job(drained, table, seal=sealers.seal)
    sender = _sender(drained)

    def send(rows: Sequence[Record]) -> None:
        send = sender.send
        for key, value, _, _ in rows:
            send("t", value, key)

    shares = [rows[number::cores] for number in range(cores)]

    def together() -> None:
        threads = [threading.Thread(target=send, args=(share,)) for share in shares]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        drained.flush()

    return together


def _rows(count: int, value_bytes: int = 100) -> list[Record]:
    rows = batch_records(value_bytes)
    return (rows * (count // len(rows) + 1))[:count]


def _sender(drained: Drained) -> Direct:
    sender = Direct(drained.records)
    sender._accumulator.accepts_directly = True
    return sender


if __name__ == "__main__":
    job(sys.argv[1], int(sys.argv[2]), made=int(sys.argv[3]))()
