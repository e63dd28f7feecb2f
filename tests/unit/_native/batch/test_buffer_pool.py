"""The buffer pool: a budget, given in the order of requests, and whole again after any fault; and as a
producer uses it, by chunks and charges.
"""

import gc
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import kbatch
from kbatch import Buffer, BufferExhaustedError, BufferPool, KafkaError
from kbatch._native.batch.buffer_pool import MemoryWaiter
from kbatch._native.send.accumulator import Refusal
from tests.support.accumulating import accumulator, all_drained, put
from tests.support.accumulating import is_whole as all_came_back
from tests.support.patience import until

DEADLINE_S = 30.0


class Asking(threading.Thread):
    """A thread that allocates once; started, and in the queue, when the constructor returns.

    There is no time-out: a thread that is not woken must not be saved by looking again in the end.
    """

    def __init__(self, pool: BufferPool, size: int, timeout: float | None = None) -> None:
        super().__init__(daemon=True)
        self.pool, self.size, self.timeout = pool, size, timeout
        self.buffer: Buffer | None = None
        self.error: BaseException | None = None
        waiting = pool.queued
        self.start()
        until(lambda: pool.queued > waiting or not self.is_alive())

    def run(self) -> None:
        try:
            self.buffer = self.pool.allocate(self.size, self.timeout)
        except BaseException as error:
            self.error = error

    def ended(self) -> "Asking":
        self.join(DEADLINE_S)
        assert not self.is_alive()
        return self


def is_whole(pool: BufferPool) -> bool:
    return (pool.available, pool.queued) == (pool.total_memory, 0)


# B01, B02: what is handed out


def test_B01_poolable_buffers_come_back_and_others_do_not() -> None:
    pool = BufferPool(1000, 100)
    kept, other = pool.allocate(100), pool.allocate(150)
    assert (pool.available, pool.unallocated) == (750, 750)
    pool.release(kept)
    assert (pool.available, pool.unallocated) == (850, 750)
    pool.release(other)
    assert (pool.available, pool.unallocated) == (1000, 900)
    again = pool.allocate(100)
    assert (pool.available, pool.unallocated) == (900, 900)
    pool.release(again)
    assert is_whole(pool)


@pytest.mark.parametrize("poison", [False, True])
def test_B01_buffers_are_handed_out_cleared(poison: bool) -> None:
    pool = BufferPool(300, 100, poison=poison)
    for size in (100, 100, 37, 37):
        buffer = pool.allocate(size)
        assert bytes(buffer) == bytes(size)
        with memoryview(buffer) as view:
            view[:] = b"\xaa" * size
        pool.release(buffer)


def test_B01_the_free_list_gives_way_to_other_sizes() -> None:
    pool = BufferPool(1000, 100)
    for buffer in [pool.allocate(100) for _ in range(10)]:
        pool.release(buffer)
    assert (pool.available, pool.unallocated) == (1000, 0)
    large = pool.allocate(950)
    assert (pool.available, pool.unallocated) == (50, 50)
    pool.release(large)
    assert is_whole(pool)


def test_buffer_is_writable_memory_of_the_requested_size() -> None:
    pool = BufferPool(100, 10)
    buffer = pool.allocate(7)
    with memoryview(buffer) as view:
        assert (len(buffer), view.nbytes, view.format, view.readonly) == (7, 7, "B", False)
        view[1:3] = b"ab"
    assert bytes(buffer) == b"\0ab\0\0\0\0"
    assert kbatch.crc32c(buffer) == kbatch.crc32c(bytes(buffer))
    assert len(pool.allocate(0)) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((101,), r"size must be at most 100 bytes, .* \(total_memory\), got 101"),
        ((-1,), "size must not be negative, got -1"),
        ((5, -0.5), "timeout must be 0 or more seconds, or None, got -0.5"),
        ((5, float("nan")), "timeout .* got nan"),
    ],
)
def test_B02_impossible_requests_are_refused_at_once(arguments: tuple[Any, ...], message: str) -> None:
    pool = BufferPool(100, 10)
    held = pool.allocate(100)
    with pytest.raises(ValueError, match=message):
        pool.allocate(*arguments)
    pool.release(held)
    assert is_whole(pool)


@pytest.mark.parametrize(
    ("total", "poolable", "name"), [(0, 1, "total_memory"), (1, 0, "poolable_size"), (-5, 1, "-5")]
)
def test_a_pool_has_sizes_above_0(total: int, poolable: int, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        BufferPool(total, poolable)


def test_a_buffer_comes_from_a_pool() -> None:
    with pytest.raises(TypeError, match=r"BufferPool\.allocate"):
        Buffer()
    with pytest.raises(TypeError, match=r"RecordAccumulator\.begin_waiting"):
        MemoryWaiter()


# B03 - B05: waiting


@pytest.mark.parametrize("size", [50, 100], ids=["another size", "the poolable size"])
def test_B03_waits_until_memory_is_free(size: int) -> None:
    pool = BufferPool(100, 100)
    held = pool.allocate(100)
    asking = Asking(pool, size)
    assert (pool.queued, asking.buffer) == (1, None)
    pool.release(held)
    assert len(asking.ended().buffer or b"") == size
    assert (pool.available, pool.queued) == (100 - size, 0)


def test_B03_memory_is_collected_piece_by_piece() -> None:
    pool = BufferPool(100, 10)
    held = [pool.allocate(10) for _ in range(10)]
    asking = Asking(pool, 95)
    for buffer in held[:-1]:
        pool.release(buffer)
        assert asking.is_alive()
    pool.release(held[-1])
    assert asking.ended().buffer is not None
    assert pool.available == 5


@pytest.mark.parametrize("timeout", [0, 0.02])
def test_B04_timed_out_waiter_leaves_queue_and_returns_memory(timeout: float) -> None:
    pool = BufferPool(100, 10)
    held = pool.allocate(60)
    with pytest.raises(
        BufferExhaustedError, match=f"no 50 bytes became free within {timeout} s, of 100"
    ) as caught:
        pool.allocate(50, timeout)
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.retriable
    assert (pool.available, pool.queued) == (40, 0)
    pool.release(held)
    assert is_whole(pool)


def test_B04_a_time_out_wakes_the_next_in_the_queue() -> None:
    pool = BufferPool(100, 10)
    held = pool.allocate(60)
    large, small = Asking(pool, 90, timeout=0.05), Asking(pool, 30)
    assert isinstance(large.ended().error, BufferExhaustedError)
    assert small.ended().buffer is not None
    pool.release(held)


def test_B05_a_large_request_is_not_overtaken() -> None:
    pool = BufferPool(100, 10)
    held = [pool.allocate(10) for _ in range(10)]
    large, small = Asking(pool, 80), Asking(pool, 10)
    for buffer in held[:7]:
        pool.release(buffer)
        # what is free belongs to the first alone, even where the second would be content with it
        assert (large.buffer, small.buffer) == (None, None)
        with pytest.raises(BufferExhaustedError, match="2 others wait"):
            pool.allocate(1, timeout=0)
    pool.release(held[7])
    assert large.ended().buffer is not None
    assert small.is_alive()
    pool.release(held[8])
    assert small.ended().buffer is not None


def test_B05_requests_are_met_in_the_order_they_came() -> None:
    pool = BufferPool(10, 10)
    held = pool.allocate(10)
    askings = [Asking(pool, 10) for _ in range(5)]
    for number, asking in enumerate(askings):
        assert [other.buffer is not None for other in askings] == [other < number for other in range(5)]
        pool.release(held)
        held = asking.ended().buffer  # type: ignore[assignment]
    pool.release(held)
    assert is_whole(pool)


# B06, B07: what goes wrong while waiting


class Interrupted(Exception):
    pass


@contextmanager
def interrupting(number: int) -> Iterator[None]:
    def interrupt(*_: object) -> None:
        raise Interrupted

    previous = signal.signal(number, interrupt)
    try:
        yield
    finally:
        signal.signal(number, previous)


def test_B06_an_interrupt_leaves_memory_and_queue_as_they_were() -> None:
    pool = BufferPool(100, 10)
    held = pool.allocate(60)
    main = threading.get_ident()

    def interrupt_when_queued() -> None:
        until(lambda: pool.queued == 1)
        signal.pthread_kill(main, signal.SIGUSR1)

    thread = threading.Thread(target=interrupt_when_queued)
    with interrupting(signal.SIGUSR1):
        thread.start()
        with pytest.raises(Interrupted):
            pool.allocate(50, DEADLINE_S)
        thread.join()
    assert (pool.available, pool.queued) == (40, 0)
    pool.release(held)
    assert is_whole(pool)


def test_B06_an_interrupt_wakes_the_next_in_the_queue() -> None:
    pool = BufferPool(100, 10)
    held = pool.allocate(60)
    main = threading.get_ident()
    after: list[Asking] = []

    def queue_up_and_interrupt() -> None:
        until(lambda: pool.queued == 1)
        after.append(Asking(pool, 30))
        signal.pthread_kill(main, signal.SIGUSR1)

    thread = threading.Thread(target=queue_up_and_interrupt)
    with interrupting(signal.SIGUSR1):
        thread.start()
        with pytest.raises(Interrupted):
            pool.allocate(90, DEADLINE_S)
        thread.join()
    assert after[0].ended().buffer is not None
    assert (pool.available, pool.queued) == (10, 0)
    pool.release(held)


def test_B06_wait_continues_after_a_signal_handler_returns() -> None:
    pool = BufferPool(10, 10)
    held = pool.allocate(10)
    main = threading.get_ident()
    handled = threading.Event()

    def signal_then_release() -> None:
        until(lambda: pool.queued == 1)
        signal.pthread_kill(main, signal.SIGUSR1)
        assert handled.wait(DEADLINE_S)
        pool.release(held)

    previous = signal.signal(signal.SIGUSR1, lambda *_: handled.set())
    thread = threading.Thread(target=signal_then_release)
    try:
        thread.start()
        assert len(pool.allocate(10, DEADLINE_S)) == 10
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, previous)


# With little address space: malloc fails within the budget.
WITHOUT_MEMORY = """
import resource, threading
import kbatch
pool = kbatch.BufferPool(1 << 40, 10)
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
for _ in range(3):
    try:
        pool.allocate((1 << 40) - 10)
        raise SystemExit("a terabyte was allocated")
    except MemoryError as error:
        assert str((1 << 40) - 10) in str(error), error
    assert (pool.available, pool.queued) == (1 << 40, 0)
pool.release(pool.allocate(10))
assert pool.available == 1 << 40
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_AS")
@pytest.mark.skipif(
    "asan" in os.environ.get("LD_PRELOAD", ""), reason="AddressSanitizer needs terabytes of addresses"
)
def test_B07_without_memory_the_budget_is_as_before() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_MEMORY], check=True, timeout=2 * DEADLINE_S)


# B08 - B11


def test_B08_sizes_beyond_2_31_add_up() -> None:
    total = 2**40
    pool = BufferPool(total, 2**32)
    small = [pool.allocate(1000) for _ in range(3)]
    assert (pool.available, pool.unallocated) == (total - 3000, total - 3000)
    for buffer in small:
        pool.release(buffer)
    assert is_whole(pool)


SIZES = (1, 37, 100, 100, 100, 450, 1000)
TIMEOUTS = (0, 0.001, None)


def test_B09_after_much_use_by_many_threads_all_is_there() -> None:
    pool = BufferPool(1000, 100, poison=True)
    failures: list[BaseException] = []
    held = pool.allocate(600)

    def work(seed: int) -> None:
        rng = random.Random(seed)
        try:
            for _ in range(400):
                try:
                    buffer = pool.allocate(rng.choice(SIZES), rng.choice(TIMEOUTS))
                except BufferExhaustedError:
                    continue
                mark = bytes([seed]) * len(buffer)
                assert bytes(buffer) == bytes(len(buffer))
                with memoryview(buffer) as view:
                    view[:] = mark
                assert bytes(buffer) == mark
                if rng.random() < 0.9:
                    pool.release(buffer)
                del buffer
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 9)]
    switch_interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads meet within the pool, and not only where they wait
    try:
        for thread in threads:
            thread.start()
        until(lambda: pool.queued == len(threads))
        pool.release(held)
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch_interval)
    assert failures == []
    assert is_whole(pool)


def test_B10_close_ends_all_waiting_and_refuses_what_comes() -> None:
    pool = BufferPool(100, 10)
    held = pool.allocate(60)
    askings = [Asking(pool, 50), Asking(pool, 50, DEADLINE_S)]
    pool.close()
    for asking in askings:
        error = asking.ended().error
        assert isinstance(error, KafkaError)
        assert not isinstance(error, BufferExhaustedError)
        assert "closed" in str(error)
    for size in (1, 10):
        with pytest.raises(KafkaError, match="closed"):
            pool.allocate(size, 0)
    assert (pool.available, pool.queued) == (40, 0)
    pool.release(held)
    assert is_whole(pool)
    pool.close()


def test_B11_a_second_release_is_ignored() -> None:
    pool = BufferPool(100, 10)
    buffer = pool.allocate(10)
    pool.release(buffer)
    other = pool.allocate(10)  # the same memory, which now belongs to another buffer
    pool.release(buffer)
    assert pool.available == 90
    assert pool.allocate(10) is not other
    with pytest.raises(ValueError, match="released"):
        bytes(buffer)
    with pytest.raises(ValueError, match="released"):
        memoryview(buffer)
    assert len(buffer) == 10


def test_B11_a_buffer_with_views_is_not_taken_back() -> None:
    pool = BufferPool(100, 10)
    buffer = pool.allocate(10)
    first, second = memoryview(buffer), memoryview(buffer)
    with pytest.raises(BufferError, match="2 views"):
        pool.release(buffer)
    first.release()
    with pytest.raises(BufferError, match="1 views"):
        pool.release(buffer)
    second[:] = b"x" * 10
    second.release()
    pool.release(buffer)
    assert is_whole(pool)


def test_B11_dropped_buffer_is_returned_with_its_last_view() -> None:
    pool = BufferPool(100, 10)
    view = memoryview(pool.allocate(10))
    gc.collect()
    view[:] = b"x" * 10
    assert (pool.available, bytes(view)) == (90, b"x" * 10)
    view.release()
    del view
    gc.collect()
    assert is_whole(pool)


def test_B11_dropped_buffer_wakes_a_waiter() -> None:
    pool = BufferPool(10, 10)
    held: list[Buffer] = [pool.allocate(10)]
    asking = Asking(pool, 10)
    held.clear()
    assert asking.ended().buffer is not None


def test_a_buffer_keeps_its_pool_and_goes_back_to_no_other() -> None:
    buffer = BufferPool(100, 10).allocate(10)
    gc.collect()
    assert bytes(buffer) == bytes(10)
    with pytest.raises(ValueError, match="another pool"):
        BufferPool(100, 10).release(buffer)
    with pytest.raises(TypeError):
        BufferPool(100, 10).release(None)  # type: ignore[arg-type]


def test_buffers_in_a_cycle_come_back() -> None:
    pool = BufferPool(100, 10)
    cycle: list[Any] = [pool.allocate(10)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert is_whole(pool)


# A producer's


def test_chunks_come_back_and_are_used_again() -> None:
    records = accumulator(buffer_memory=100_000, batch_size=60_000)
    for round_number in range(5):
        for _ in range(40):
            put(records, bytes(1000))
        assert records.memory.available < 60_000, round_number
        for batch in all_drained(records):
            batch.complete(0)
        assert all_came_back(records)


def test_a_record_may_take_what_is_in_the_free_list() -> None:
    """The memory is then no longer there: the budget counts it once."""
    records = accumulator(buffer_memory=70_000, batch_size=60_000)
    for _ in range(40):
        put(records, bytes(1000))
    for batch in all_drained(records):
        batch.complete(0)
    put(records, bytes(68_000))
    assert records.append("t", 0, None, bytes(3000), None, 0, 0) is Refusal.MEMORY
    for batch in all_drained(records):
        batch.complete(0)
    assert all_came_back(records)


def test_refusals_are_counted() -> None:
    records = accumulator(buffer_memory=4000, batch_size=100)
    put(records, bytes(1500))
    before = records.memory.exhausted_count
    for _ in range(3):
        assert records.append("t", 0, None, bytes(500), None, 0, 0) is Refusal.MEMORY
    assert records.memory.exhausted_count >= before + 3
