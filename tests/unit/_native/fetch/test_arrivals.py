"""Arrivals: what the network's thread hands to the program's, also while another holds the GIL."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

import kbatch
from kbatch._native.fetch.arrivals import Arrivals
from kbatch._native.io.waiters import Waiters
from kbatch._native.send.lane import CAN_WAIT
from kbatch.metrics import FETCH
from kbatch.testing import Broker
from tests.support.patience import until
from tests.support.polling import PARTITIONS, TOPIC, consuming, fill
from tests.support.producing import metric

TOPICS = {TOPIC: 3}

# Another process: a broker, and a producer that sends a record a moment until the end of its input.
SENDING = f"""
import sys, threading, kbatch
from kbatch.testing import Broker
with (
    Broker(topics={{{TOPIC!r}: 1}}) as broker,
    kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
):
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    print(broker.bootstrap_servers, flush=True)
    while not ended.wait(0.005):
        producer.send({TOPIC!r}, b"x").result(30)
"""


@contextmanager
def sending() -> Iterator[str]:
    """Run SENDING, and yield the address of its broker."""
    with subprocess.Popen(
        [sys.executable, "-c", SENDING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()


def test_results_come_in_the_order_of_calls() -> None:
    calls = list[int]()

    def notify() -> bool:
        calls.append(len(calls))
        return False

    arrivals: Arrivals[int] = Arrivals(notify)
    assert not arrivals
    assert not arrivals([1, 2])
    assert not arrivals([])
    assert not arrivals([3])
    assert calls == [0, 1, 2]
    assert arrivals
    results = arrivals.collect()
    assert list(results) == [1, 2, 3]
    results.popleft()
    assert arrivals
    arrivals([4])
    assert arrivals.collect() is results
    assert list(results) == [2, 3, 4]
    results.clear()
    assert not arrivals


def test_results_that_nobody_takes_go_with_their_list() -> None:
    class Result:
        pass

    result = Result()
    gone = weakref.ref(result)
    arrivals: Arrivals[Any] = Arrivals(lambda: False, Waiters())
    arrivals([result])
    del result
    assert gone() is not None
    del arrivals
    assert gone() is None


def test_results_that_refer_to_their_list_are_garbage_with_it() -> None:
    class Result:
        def __init__(self, arrivals: object) -> None:
            self.arrivals = arrivals  # as one of the engine does, by its partition and the road

    arrivals: Arrivals[Any] = Arrivals(lambda: False, Waiters())
    result = Result(arrivals)
    gone = weakref.ref(result)
    arrivals([result])
    del result, arrivals
    gc.collect()
    assert gone() is None


@pytest.mark.skipif(not CAN_WAIT, reason="the network's thread cannot wait without the GIL on this system")
def test_answers_are_taken_while_another_thread_holds_the_gil() -> None:
    sleep = ctypes.PyDLL(None).usleep  # which keeps the GIL
    with sending() as address, kbatch.Consumer(bootstrap_servers=address) as consumer:
        consumer.assign({PARTITIONS[0]: 0})
        assert consumer.poll(30)

        def fetched_meanwhile() -> bool:
            before = metric(consumer, "fetch-total", FETCH)
            sleep(200_000)
            return metric(consumer, "fetch-total", FETCH) >= before + 3

        until(fetched_meanwhile)
        offset = consumer.position(PARTITIONS[0])
        for record in consumer.poll(30):
            assert record.offset == offset
            offset += 1


@pytest.mark.skipif(not CAN_WAIT, reason="the network's thread cannot wait without the GIL on this system")
@pytest.mark.parametrize("way", ["records", "batches"])
def test_reads_are_fetched_for_while_another_thread_holds_the_gil(way: str) -> None:
    sleep = ctypes.PyDLL(None).usleep  # which keeps the GIL
    with sending() as address, kbatch.TopicReader(bootstrap_servers=address) as reader:
        ranges: Any = {PARTITIONS[0]: (0, None)}
        reading: Any = reader.read_records(ranges) if way == "records" else reader.read(ranges)
        next(reading)

        def fetched_meanwhile() -> bool:
            before = metric(reader, "fetch-total", FETCH)
            sleep(200_000)
            return metric(reader, "fetch-total", FETCH) >= before + 8

        until(fetched_meanwhile)
        reading.close()


def has_arrivals(consumer: Any) -> bool:
    return bool(consumer._engine._budget.unread > 0)


def test_memory_comes_back_of_what_the_program_never_took(broker: Broker) -> None:
    fill(broker, 40)
    with consuming(broker) as consumer:
        until(partial(has_arrivals, consumer))
        consumer.seek_to_end(PARTITIONS)  # their earlier readings end
        # without a poll: the network's thread may wait for this memory, and sees that it is free
        until(lambda: not has_arrivals(consumer))
        assert not consumer.poll(0)


def test_a_consumer_with_arrivals_can_be_collected(broker: Broker) -> None:
    fill(broker, 40)
    for _ in range(3):
        consumer = kbatch.Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
        consumer.assign(PARTITIONS)
        until(partial(has_arrivals, consumer))
        consumer.close()
        cycle: list[Any] = [consumer, consumer._backlog, consumer._engine]
        cycle.append(cycle)
        del consumer, cycle
        gc.collect()
