"""What does `send` cost a record, until it is in a batch? The limit is the accumulator's append, which gets
everything that `send` determines: types, size, partition, time. A thread drains and answers at once.
"""

from __future__ import annotations

import threading
import time
from typing import Any, NoReturn

from benchmarks.clients.java_codec import Peers
from benchmarks.pages.harness import Claim, Contender, Question
from kbatch._native.send.accumulator import RecordAccumulator
from kbatch._native.send.cluster_view import ClusterView
from kbatch._native.send.encoded_batch import PendingBatch
from kbatch._native.send.send import PendingRecord, RecordSender
from kbatch.bench.workload import batch_records

RECORDS = 10_000
PARTITIONS = 12
MAX_REQUEST_BYTES = 1 << 20
NODE = 1


class Direct(RecordSender):
    def _send_slowly(self, record: PendingRecord | PendingBatch, *rest: Any) -> NoReturn:
        raise AssertionError(f"{record!r} should go at once")


def topic_names(count: int) -> list[str]:
    return ["t", *(f"t{number}" for number in range(1, count))]


class Drained:
    """An accumulator, and the thread that empties it."""

    def __init__(self, topics: int = 1, partitions: int = PARTITIONS, **settings: Any) -> None:
        self._awake = threading.Event()
        settings = {"buffer_memory": 1 << 28} | settings
        self.records = RecordAccumulator(wake=self._awake.set, **settings)
        self.records.publish(ClusterView({name: [(NODE, 0)] * partitions for name in topic_names(topics)}))
        threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self) -> None:
        delay_ns = 0
        while True:
            self._awake.wait(min(delay_ns, 10**9) / 1e9)
            self._awake.clear()
            now_ns = time.monotonic_ns()
            nodes, delay_ns, _ = self.records.ready(now_ns)
            batches = self.records.drain(nodes, MAX_REQUEST_BYTES, now_ns).get(NODE, [])
            for batch in self.records.take_unsealed():
                batch.seal(wake=False)
            for batch in batches:
                batch.complete(0)
                batch.completion.run_callbacks(print)
            if nodes:
                delay_ns = 0

    def flush(self) -> None:
        flush = self.records.begin_flush()
        flush.wait()
        self.records.end_flush()


def question(peers: Peers) -> Question:
    import confluent_kafka

    rows = [(row[0], row[1]) for row in batch_records()]
    rows = (rows * (RECORDS // len(rows) + 1))[:RECORDS]
    drained = Drained()
    sender = Direct(drained.records)
    sender._accumulator.accepts_directly = True
    partitions = [sender.send("t", value, key).partition for key, value in rows]
    confluent = confluent_kafka.Producer(
        {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "queue.buffering.max.messages": 2 * RECORDS}
    )

    def append() -> None:
        append = drained.records.append
        for (key, value), partition in zip(rows, partitions, strict=True):
            append("t", partition, key, value, None, 1000, 0, None)
        drained.flush()

    def send() -> None:
        send = sender.send
        for key, value in rows:
            send("t", value, key)
        drained.flush()

    def send_many() -> None:
        sender.send_many("t", rows)
        drained.flush()

    def produce() -> None:
        produce = confluent.produce
        for key, value in rows:
            produce("t", value, key)
        confluent.purge()
        while len(confluent):
            confluent.poll(0.01)

    return Question(
        "A record accepted",
        f"{PARTITIONS} partitions, batches of 16 KiB without compression, all answered when a round ends.",
        [
            Contender("append", RECORDS, append, note="partition and time given"),
            Contender("send", RECORDS, send),
            Contender("send_many", RECORDS, send_many),
            Contender("confluent-kafka", RECORDS, produce, note="produce() without a broker, then purge()"),
        ],
        [
            Claim("send", "append", 2.0, "send: at most twice what append takes"),
            Claim("send", "confluent-kafka", 1.0, "send: faster than confluent-kafka"),
        ],
    )
