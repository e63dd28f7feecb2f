"""Decoding: results come out decoded, in order, a bounded number ahead, and its threads end."""

from __future__ import annotations

import gc
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import pytest

from kbatch.network import workers
from kbatch.network.decoding import FETCHES_AHEAD, MOST_DECODERS, Decoding, decoder_count
from tests.support.patience import HANG_SECONDS, until
from tests.support.running_threads import threads_named

NAME = "kbatch-decoder-test"


@contextmanager
def decoding(
    decode: Callable[[Any], Any], threads: int = 2, notify: Callable[[], object] = lambda: None
) -> Iterator[Decoding[Any, Any]]:
    made: Decoding[Any, Any] = Decoding(decode, name=NAME, threads=threads, notify=notify)
    try:
        yield made
    finally:
        made.stop()
        until(lambda: not threads_named(NAME))


def taken(made: Decoding[Any, Any]) -> Any:
    until(lambda: made.is_ready)
    task = made.take()
    assert task is not None
    return task


@pytest.mark.parametrize("threads", [0, 1, 4])
def test_results_come_out_in_the_order_of_arguments(threads: int) -> None:
    first_may_end = threading.Event()

    def decode(number: int) -> int:
        if number == 0 and threads > 1:  # while others overtake it
            assert first_may_end.wait(HANG_SECONDS)
        return number * number

    with decoding(decode, threads) as made:
        assert made.take() is None
        for number in range(100):
            made.put(number)
        if threads > 1:
            assert made.take() is None
        first_may_end.set()
        assert [taken(made).decoded for _ in range(100)] == [number * number for number in range(100)]
        assert made.take() is None


@pytest.mark.parametrize("threads", [1, 3])
def test_R29_few_fetches_are_decoded_ahead_of_the_reader(threads: int) -> None:
    begun: SimpleQueue[int] = SimpleQueue()
    with decoding(begun.put, threads) as made:
        for number in range(50):
            made.put(number)
        ahead = FETCHES_AHEAD * threads
        assert sorted(begun.get(timeout=HANG_SECONDS) for _ in range(ahead)) == list(range(ahead))
        for number in range(50 - ahead):
            assert begun.empty()
            taken(made)
            assert begun.get(timeout=HANG_SECONDS) == ahead + number


@pytest.mark.parametrize("threads", [0, 2])
def test_exception_comes_out_with_its_argument(threads: int) -> None:
    def decode(number: int) -> float:
        return 1 / number

    with decoding(decode, threads) as made:
        for number in (1, 0, 2):
            made.put(number)
        assert taken(made).decoded == 1
        failed = taken(made)
        assert isinstance(failed.error, ZeroDivisionError) and failed.argument == 0
        assert taken(made).decoded == 0.5


@pytest.mark.parametrize("threads", [0, 2])
def test_the_reader_is_notified_of_what_is_ready(threads: int) -> None:
    notified: SimpleQueue[None] = SimpleQueue()
    with decoding(str, threads, lambda: notified.put(None)) as made:
        for number in range(10):
            made.put(number)
            notified.get(timeout=HANG_SECONDS)
            task = made.take()
            assert task is not None and task.decoded == str(number)


@pytest.mark.parametrize("threads", [0, 2])
def test_stop_returns_what_was_not_taken(threads: int) -> None:
    with decoding(str, threads) as made:
        for number in range(20):
            made.put(number)
        taken(made)
        assert made.stop() == list(range(1, 20))
        assert made.take() is None
        made.put(20)
        assert made.stop() == [20]


def test_stop_waits_for_no_worker() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def decode(number: int) -> None:
        begun.set()
        assert may_end.wait(HANG_SECONDS)

    with decoding(decode, 1) as made:
        made.put(0)
        assert begun.wait(HANG_SECONDS)
        made.stop()
        assert threads_named(NAME)
        may_end.set()


def test_taken_result_is_kept_by_no_worker() -> None:
    class Columns:
        pass

    with decoding(lambda number: Columns(), 2) as made:
        made.put(0)
        task = taken(made)
        columns = weakref.ref(task.decoded)
        del task
        until(lambda: gc.collect() is not None and columns() is None)


def test_without_new_threads_the_reader_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with decoding(str, 4) as made:
        made.put(1)
        task = made.take()
        assert task is not None and task.decoded == "1"


def test_a_cpu_has_a_thread_up_to_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = itertools.count(1)
    monkeypatch.setattr("kbatch.network.decoding.cpu_count", lambda: next(counts))
    assert [decoder_count() for _ in range(6)] == [1, 2, 3, 4, 4, 4]
    assert MOST_DECODERS == 4 and workers.cpu_count() >= 1
