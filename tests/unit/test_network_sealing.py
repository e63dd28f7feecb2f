"""Sealers: who compresses a batch, and that somebody does."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Any

from kbatch.network.sealing import BACKLOG, SMALL_BYTES, Sealers
from tests.unit.producing import SECONDS


class Batch:
    """Notes who seals it, and takes as long as it is told."""

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


def seal(sealers: Sealers, batch: Any) -> Any:
    sealers.seal(batch)
    return batch


def test_large_batches_go_to_the_threads_and_small_ones_do_not() -> None:
    sealers = Sealers("sealer", "lz4", 1)
    assert seal(sealers, Batch()).sealer().name == "sealer-0"
    assert seal(sealers, Batch(SMALL_BYTES - 1)).sealer() is threading.current_thread()
    sealers.stop()


def test_when_the_threads_have_enough_to_do_the_caller_lends_a_hand() -> None:
    sealers = Sealers("sealer", "lz4", 1)
    held = threading.Event()
    waiting = [seal(sealers, Batch(held=held)) for _ in range(BACKLOG)]
    assert waiting[0].sealer().name == "sealer-0"
    assert seal(sealers, Batch()).sealer() is threading.current_thread()
    held.set()
    assert waiting[-1].sealer().name == "sealer-0"
    sealers.stop()


def test_without_compression_and_behind_stop_the_caller_does_it() -> None:
    assert seal(Sealers("sealer", "none"), Batch()).sealer() is threading.current_thread()
    sealers = Sealers("sealer", "lz4", 1)
    sealers.stop()
    assert seal(sealers, Batch()).sealer() is threading.current_thread()
