"""Sealers: which thread compresses a batch, and that one does."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Any

import pytest

from kbatch._native.send.sealing import BACKLOG, SMALL_BYTES
from kbatch.network.sealing import Sealers
from kbatch.network.workers import sealer_count
from tests.support.patience import until
from tests.support.producing import SECONDS
from tests.support.running_threads import threads_named


class Batch:
    """A batch that notes the thread that seals it, and takes a configured time."""

    def __init__(self, records_bytes: int = SMALL_BYTES, held: threading.Event | None = None) -> None:
        self.records_bytes = records_bytes
        self.held = held
        self.sealed_by: SimpleQueue[threading.Thread] = SimpleQueue()

    def seal(self) -> None:
        self.sealed_by.put(threading.current_thread())
        if self.held is not None:
            assert self.held.wait(SECONDS)

    def sealer(self) -> threading.Thread:
        return self.sealed_by.get(timeout=SECONDS)


def started(name: str, compression: str, limit: int | None = None, *, count: int) -> Sealers:
    """Start sealers with `count` busy threads."""
    sealers = Sealers(name, compression, limit)
    sealers.start()
    until(lambda: sealers.queue.thread_count == count)
    return sealers


def seal(sealers: Sealers, batch: Any) -> Any:
    sealers.seal(batch)
    return batch


def test_large_batches_go_to_the_threads_and_small_ones_do_not() -> None:
    sealers = started("sealer", "lz4", 1, count=1)
    assert seal(sealers, Batch()).sealer().name == "sealer-0"
    assert seal(sealers, Batch(SMALL_BYTES - 1)).sealer() is threading.current_thread()
    sealers.stop()


def test_caller_seals_when_the_threads_are_busy() -> None:
    sealers = started("sealer", "lz4", 1, count=1)
    held = threading.Event()
    waiting = [seal(sealers, Batch(held=held)) for _ in range(BACKLOG)]
    assert waiting[0].sealer().name == "sealer-0"
    assert seal(sealers, Batch()).sealer() is threading.current_thread()
    held.set()
    assert waiting[-1].sealer().name == "sealer-0"
    sealers.stop()


@pytest.mark.parametrize(
    ("cpus", "of_the_sender", "of_tables"), [(1, 1, 0), (2, 2, 1), (4, 4, 3), (5, 4, 4), (64, 4, 4)]
)
def test_there_are_as_many_threads_as_cpus_and_four_at_most(
    monkeypatch: pytest.MonkeyPatch, cpus: int, of_the_sender: int, of_tables: int
) -> None:
    """CPUs that the process may run on, of however many there are."""
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(cpus)), raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    assert (sealer_count(), sealer_count(beside=1)) == (of_the_sender, of_tables)
    held = threading.Event()
    name = f"sealer-on-{cpus}"  # no thread of another test, which may not have ended yet, has it
    sealers = started(name, "lz4", count=of_tables)
    batches = [seal(sealers, Batch(held=held)) for _ in range(BACKLOG * of_tables)]
    running = {thread.name for thread in threads_named(name)}
    held.set()
    assert all(batch.sealer().name.startswith(name) for batch in batches)
    assert len(running) == of_tables
    assert seal(Sealers("none", "none"), Batch()).sealer() is threading.current_thread()
    sealers.stop()


def test_where_the_system_knows_no_affinity_all_cpus_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    assert sealer_count() == 3
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert sealer_count() == 1


def test_two_threads_seal_at_once() -> None:
    both = threading.Barrier(2)

    class Meeting(Batch):
        def seal(self) -> None:
            both.wait(SECONDS)
            super().seal()

    sealers = started("sealer", "lz4", 2, count=2)
    batches = [seal(sealers, Meeting()) for _ in range(2)]
    assert {batch.sealer().name for batch in batches} == {"sealer-0", "sealer-1"}
    sealers.stop()


def test_without_threads_the_caller_does_it() -> None:
    """Without compression, before they are there, and after they were stopped."""
    assert seal(started("sealer", "none", count=0), Batch()).sealer() is threading.current_thread()
    sealers = Sealers("sealer", "lz4", 1)
    assert seal(sealers, Batch()).sealer() is threading.current_thread()
    sealers.stop()
    sealers.start()
    assert seal(sealers, Batch()).sealer() is threading.current_thread()
    assert sealers.queue.thread_count == 0


def test_threads_finish_what_they_have_when_they_are_stopped() -> None:
    sealers = started("sealer", "lz4", 1, count=1)
    held = threading.Event()
    waiting = [seal(sealers, Batch(held=held)) for _ in range(BACKLOG)]
    sealers.stop()
    held.set()
    assert [batch.sealer().name for batch in waiting] == ["sealer-0"] * BACKLOG


def test_a_batch_that_fails_keeps_no_thread_from_the_next(caplog: pytest.LogCaptureFixture) -> None:
    class Unsealable(Batch):
        def seal(self) -> None:
            super().seal()
            raise MemoryError

    sealers = started("sealer", "lz4", 1, count=1)
    for _ in range(2 * BACKLOG):  # those that failed are not counted as unfinished
        assert seal(sealers, Unsealable()).sealer() is not None
    sealers.stop()
    assert "MemoryError" in caplog.text
