"""The campaign of forks: children of a process whose other threads encode, decode and produce all the time.

Theory of operation. A block is a process with an embedded broker, a producer that three threads use, and
two threads that encode and decode, in a codec drawn from the block's number. Its main thread forks, and each
child does one job: encode and decode, send with a producer of its own, use what it has of the parent's, or
let go of it. A child has 60 seconds; one that hangs prints where, and fails the block. The parent's records
must all arrive in the end.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import random
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import kbatch
from kbatch._native.codec.memory import new_memory
from kbatch.errors import ForkedProducerError
from kbatch.testing import Broker
from tests.fuzz import campaign
from tests.oracle.plain import CODECS

BLOCK_CASES = 250
CHILD_SECONDS = 60.0
TOPIC, OWN_TOPIC = "parents", "children"


class Parent:
    """The objects that children inherit: a busy producer and its deliveries."""

    def __init__(self, broker: Broker, rng: random.Random) -> None:
        self.bootstrap_servers = broker.bootstrap_servers
        self.codec = rng.choice(CODECS)
        self.table = pa.table({"value": pa.array([rng.randbytes(700) for _ in range(200)], pa.binary())})
        self.producer = kbatch.Producer(
            bootstrap_servers=self.bootstrap_servers,
            compression_type=self.codec,
            buffer_memory=1 << 20,
            linger_ms=rng.choice((0, 5)),
        )
        self.patient = kbatch.Producer(
            bootstrap_servers=self.bootstrap_servers, linger_ms=600_000, delivery_timeout_ms=2**31 - 1
        )
        self.pending = self.patient.send(TOPIC, b"pending")
        self.pending_rows = self.patient.send_table(TOPIC, self.table.slice(0, 1))
        self.sent_count = 2
        self._counting = threading.Lock()

    def encode(self) -> None:
        table = kbatch.encode_arrow(self.table, partitions=2, compression=self.codec, batch_size=100_000)
        for batch in table["batch"]:
            kbatch.decode_arrow(batch.as_py())

    def send(self) -> None:
        deliveries = [self.producer.send(TOPIC, b"%d" % number) for number in range(50)]
        self.producer.metrics()
        deliveries[-1].result(CHILD_SECONDS)
        self._count(50)

    def send_table(self) -> None:
        assert self.producer.send_table(TOPIC, self.table).result(CHILD_SECONDS).failed_rows == 0
        self._count(len(self.table))

    def flush(self) -> None:
        self.producer.send(TOPIC, b"flushed", on_delivery=lambda metadata, error: None)
        self._count(1)
        self.producer.flush(CHILD_SECONDS)

    def _count(self, count: int) -> None:
        with self._counting:
            self.sent_count += count


def again_and_again(function: Callable[[], None]) -> Callable[[threading.Event], None]:
    def run(stop: threading.Event) -> None:
        while not stop.is_set():
            function()

    return run


# The child


def codecs_work(parent: Parent) -> None:
    new_memory(1 << 17)
    for codec in CODECS:
        (batch,) = kbatch.decode(kbatch.encode([(b"key", b"value")], compression=codec))
        assert [record.value for record in batch] == [b"value"]
    parent.encode()


def own_producer_sends(parent: Parent) -> None:
    with parent.producer.recreate() as own:
        own.send(OWN_TOPIC, b"child").result(CHILD_SECONDS)
        assert own.send_table(OWN_TOPIC, parent.table).result(CHILD_SECONDS).failed_rows == 0


def parents_producer_refuses(parent: Parent) -> None:
    producer = parent.producer
    batch = kbatch.encode([(None, b"child")])
    calls: tuple[Callable[[], Any], ...] = (
        lambda: producer.send(TOPIC, b"child"),
        lambda: producer.try_send(TOPIC, b"child"),
        lambda: producer.send_batch(TOPIC, 0, batch),
        lambda: producer.send_table(TOPIC, parent.table),
        lambda: producer.partitions_for(TOPIC),
        producer.flush,
        producer.purge,
        producer.resume,
        producer.metrics,
        parent.pending.result,
        parent.pending_rows.result,
        lambda: kbatch.wait([parent.pending]),
        lambda: list(kbatch.as_completed([parent.pending])),
    )
    for call in calls:
        try:
            call()
        except ForkedProducerError:
            continue
        raise AssertionError(f"a child could call {call}")
    producer.close()
    assert "forked" in repr(producer)


def parents_objects_go(parent: Parent) -> None:
    """Drop the objects as the end of the child's interpreter does."""
    assert repr(parent.pending) and repr(parent.pending_rows)
    vars(parent).clear()
    gc.collect()


JOBS = (codecs_work, own_producer_sends, parents_producer_refuses, parents_objects_go)


def forked(job: Callable[[Parent], None], parent: Parent) -> None:
    """Do the job in a child; AssertionError unless it ends well."""
    child = os.fork()
    if not child:
        code = 1
        try:
            faulthandler.dump_traceback_later(CHILD_SECONDS, exit=True)
            job(parent)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert status == 0, f"a child that was to do {job.__name__} ended with {status}"


def play(run: campaign.Run) -> None:
    """Check a block of children."""
    rng = random.Random(f"forks {run.block}")
    with Broker({TOPIC: 2, OWN_TOPIC: 2}) as broker:
        parent = Parent(broker, rng)
        work = (parent.send, parent.send_table, parent.flush, parent.encode, parent.encode)
        with campaign.at_work([again_and_again(function) for function in work]):
            for number in range(run.cases):
                job = rng.choice(JOBS)
                run.say(number, job.__name__)
                forked(job, parent)
                run.outcomes[job.__name__.replace("_", " ")] += 1
        parent.producer.close()
        parent.patient.close()
        assert len(broker.records(TOPIC)) == parent.sent_count
