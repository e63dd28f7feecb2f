"""Decoding: one thread at a time finds work, all do it, and they end. What is decoded is RangeBuffer's."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue

import pytest

from kbatch.network import workers
from kbatch.network.decoding import MOST_DECODERS, Decoding, decoder_count
from tests.support.patience import HANG_SECONDS, until
from tests.support.running_threads import threads_named

NAME = "kbatch-decoder-test"


@contextmanager
def decoding(
    next_work: Callable[[], Callable[[], object] | None],
    threads: int,
    notify: Callable[[], object] = lambda: None,
) -> Iterator[Decoding]:
    made = Decoding(next_work, name=NAME, notify=notify)
    assert made.start(threads) == threads
    yield made
    until(lambda: not threads_named(NAME))


def test_one_thread_at_a_time_finds_work_and_all_do_it() -> None:
    work: SimpleQueue[int | None] = SimpleQueue()
    finding: list[None] = []
    together = threading.Barrier(3)

    def next_work() -> Callable[[], object] | None:
        finding.append(None)
        assert len(finding) == 1
        number = work.get(timeout=HANG_SECONDS)
        finding.clear()
        return None if number is None else lambda: together.wait(HANG_SECONDS)

    with decoding(next_work, 3):
        for _ in range(9):
            work.put(0)
        for _ in range(3):
            work.put(None)
    assert not together.broken


def test_reader_is_notified_after_each_work() -> None:
    works, notified = iter(range(5)), SimpleQueue[int]()
    done: list[int] = []

    def next_work() -> Callable[[], object] | None:
        number = next(works, None)
        return None if number is None else lambda: done.append(number)

    with decoding(next_work, 1, lambda: notified.put(len(done))):
        assert [notified.get(timeout=HANG_SECONDS) for _ in range(5)] == [1, 2, 3, 4, 5]


def test_stopped_threads_find_nothing_more() -> None:
    may_find = threading.Event()

    def next_work() -> Callable[[], object]:
        assert may_find.wait(HANG_SECONDS)
        return lambda: None

    with decoding(next_work, 2) as made:
        made.stop()
        may_find.set()
    assert made.error is None


def test_error_of_finding_is_kept_for_the_reader_and_ends_all() -> None:
    notified = threading.Event()

    def next_work() -> Callable[[], object]:
        raise MemoryError("no work")

    with decoding(next_work, 3, notified.set) as made:
        assert notified.wait(HANG_SECONDS)
    assert isinstance(made.error, MemoryError)


def test_a_cpu_has_a_thread_up_to_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = itertools.count(1)
    monkeypatch.setattr("kbatch.network.decoding.cpu_count", lambda: next(counts))
    assert [decoder_count() for _ in range(6)] == [1, 2, 3, 4, 4, 4]
    assert MOST_DECODERS == 4 and workers.cpu_count() >= 1
