"""Records accepted, sealed, drained and answered, without a network. `python -m benchmarks.costs_job
send|send_table RECORDS MADE` is what callgrind counts the instructions of: of MADE records, the same for each
count so that what making them takes cancels, the first RECORDS are sent.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import cycle
from typing import Any

from benchmarks.send import PARTITIONS, Direct, Drained, topic_names
from kbatch.bench.workload import Row, batch_rows, table_of

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
    """Ready to run, again and again; with `partitions`, keys that are all different. `made` records are there
    then, of which the first are sent; None: as many as are sent.
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


def table_job(drained: Drained, data: Any) -> Callable[[], None]:
    from kbatch._native.table_sender import TableSender

    sender = _sender(drained)
    names = {role: (role, role == "value") for role in ROLES}

    def send_table() -> None:
        sending = TableSender(sender, "t", data, names)
        assert sending.accept() is True
        sending.end()
        drained.flush()
        assert sending.outcome.is_done and not sending.outcome.failed_count

    return send_table


def job_over_topics(records: int, topics: int) -> Callable[[], None]:
    """`send` to one topic after the other, of one partition each."""
    drained = Drained(topics, 1, **SETTINGS)
    sender = _sender(drained)
    rows = _rows(records)

    def send() -> None:
        send = sender.send
        for topic, (key, value, _, _) in zip(cycle(topic_names(topics)), rows, strict=False):
            send(topic, value, key)
        drained.flush()

    return send


def _rows(count: int, value_bytes: int = 100) -> list[Row]:
    rows = batch_rows(value_bytes)
    return (rows * (count // len(rows) + 1))[:count]


def _sender(drained: Drained) -> Direct:
    sender = Direct(drained.records)
    sender.sends_directly = True
    return sender


if __name__ == "__main__":
    job(sys.argv[1], int(sys.argv[2]), made=int(sys.argv[3]))()
