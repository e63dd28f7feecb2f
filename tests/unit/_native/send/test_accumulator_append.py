"""Appending: what is taken, what is refused, what it costs, who seals.

Behaviours by their ids: A12, A13 (RecordAccumulatorTest), B04.. (waiting for memory).
"""

from __future__ import annotations

import gc
import random
import sys
import threading
from functools import partial
from typing import Any

import pytest

from kbatch import BufferExhaustedError, IllegalStateError, KafkaError
from kbatch._native.batch.delivery import Delivery
from kbatch._native.batch.producer_batch import ProducerBatch
from kbatch._native.send.accumulator import RecordAccumulator, Refusal
from kbatch._native.send.cluster_view import ClusterView
from kbatch.errors import RecordTooLargeError
from tests.patience import HANG_SECONDS
from tests.unit.accumulating import (
    BY_OTHERS,
    MEGABYTE,
    NEVER,
    accumulator,
    all_drained,
    codec_replaced,
    drained,
    fail_all,
    is_whole,
    one,
    put,
    records_of,
    values_of,
)

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
FAILURE = KafkaError("failed in a test")
DEADLINE_S = HANG_SECONDS


# What is taken


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_appended_is_what_is_sealed(codec: str) -> None:
    records = accumulator(compression=codec, batch_size=50_000)
    rows: list[Any] = [
        (b"key", b"value" * number, (("h", b"1"), ("null", None)) * (number % 3), 1000 + number % 7)
        for number in range(0, 400, 3)
    ]
    rows += [(None, None, (), -1), (b"", b"", (("", b""),), 0), (bytes(20_000), bytes(20_000), (), 5)]
    for key, value, headers, timestamp_ms in rows:
        put(records, value, key=key, headers=headers, timestamp_ms=timestamp_ms)
    batches = all_drained(records)
    found = [record for batch in batches for record in records_of(batch)]
    assert [(r.key, r.value, r.headers, r.timestamp_ms) for r in found] == rows
    assert all(batch.size_bytes <= 50_000 for batch in batches)
    for batch in batches:
        batch.complete(0)
    assert is_whole(records)


def test_what_is_bytes_like_is_taken_as_it_is_now() -> None:
    records = accumulator()
    value, key, header = bytearray(b"value"), memoryview(b"key"), bytearray(b"header")
    put(records, value, key=key, headers=[["h", header]])
    value[:] = header[:] = b"xx"
    (record,) = records_of(one(records))
    assert (record.key, record.value, record.headers) == (b"key", b"value", (("h", b"header"),))


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"value": "text"}, TypeError, r"value must be bytes-like or None, got str \(encode it"),
        ({"key": 5}, TypeError, "key must be bytes-like or None, got int"),
        ({"headers": {"h": b"1"}}, TypeError, "headers must be a sequence"),
        ({"headers": [("h",)]}, TypeError, "headers: item 0 must be a pair"),
        ({"headers": [("h", b""), 7]}, TypeError, "headers: item 1 must be a pair"),
        ({"headers": [("h", "text")]}, TypeError, "headers: the value of 'h' must be bytes-like or None"),
        ({"headers": [("\ud800", b"")]}, ValueError, "headers: key .* cannot be written as UTF-8"),
        ({"timestamp_ms": -2}, ValueError, "timestamp_ms must be 0 to .*, got -2"),
        ({"timestamp_ms": NEVER}, ValueError, "timestamp_ms must be"),
        ({"partition": 1_000_000}, ValueError, "partition must be 0 to 999999, .* got 1000000"),
        ({"partition": -2}, ValueError, "partition must be .* got -2"),
    ],
)
def test_errors_name_the_field_and_take_nothing(fields: Any, error: type[Exception], text: str) -> None:
    records = accumulator()
    with pytest.raises(error, match=text):
        put(records, **fields)
    assert is_whole(records)


def test_without_metadata_no_sticky_partition_is_chosen() -> None:
    records = accumulator()
    assert records.append("unknown", -1, None, b"v", None, 0, 0) is Refusal.METADATA
    records.publish(ClusterView({"unknown": []}))
    assert records.append("unknown", -1, None, b"v", None, 0, 0) is Refusal.METADATA
    records.publish(ClusterView({"unknown": [(-1, -1)]}))
    assert isinstance(records.append("unknown", -1, None, b"v", None, 0, 0), Delivery)
    assert is_whole(records) is False


# Memory: what is refused, and how one waits


def test_B02_a_record_that_never_fits_is_an_error_at_once() -> None:
    records = accumulator(buffer_memory=10_000)
    with pytest.raises(RecordTooLargeError, match=r"more than buffer\.memory, which is 10000"):
        put(records, bytes(10_000))
    put(records, bytes(8_000))
    assert records.append("t", 0, None, bytes(500), None, 0, 0) is Refusal.MEMORY
    assert records.memory.exhausted_count > 0
    one(records).complete(0)
    assert is_whole(records)


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("buffer_memory", [4000, 20_000, 100_000])
def test_every_record_that_fits_gets_in_when_memory_is_free(codec: str, buffer_memory: int) -> None:
    records = accumulator(2, buffer_memory=buffer_memory, batch_size=50_000, compression=codec)
    sent = []
    for number in range(60):
        value = bytes([number]) * (number * 37 % 1500)
        while records.append("t", number % 2, None, value, None, 0, 0) is Refusal.MEMORY:
            batches = drained(records)
            assert batches, "memory is short although nothing is charged with it"
            for batch in batches:
                sent += values_of(batch)
                batch.complete(0)
    for batch in all_drained(records):
        sent += values_of(batch)
        batch.complete(0)
    assert len(sent) == 60
    assert is_whole(records)


def append_in_line(records: RecordAccumulator, value: bytes, timeout_s: float | None = None) -> Delivery:
    """What a thread of a producer does."""
    outcome = records.append("t", 0, None, value, None, 0, 0)
    if outcome is Refusal.MEMORY:
        attempt = partial(records.append, "t", 0, None, value, None, 0, 0, first_in_line=True)
        outcome = records.await_memory(attempt, timeout_s)
    if outcome is Refusal.MEMORY:
        raise BufferExhaustedError("no memory in time")
    assert isinstance(outcome, Delivery)
    return outcome


def in_line(records: RecordAccumulator, value: bytes, taken: list[bytes]) -> threading.Thread:
    """A thread that waits with its record, when this returns."""
    before = records.memory.queued

    def run() -> None:
        append_in_line(records, value)
        taken.append(value)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    pause = threading.Event()
    while records.memory.queued == before:
        assert thread.is_alive()
        pause.wait(0.001)
    return thread


def test_B03_B05_memory_gathers_for_the_first_in_line() -> None:
    records = accumulator(buffer_memory=20_000, batch_size=1000)
    for _ in range(6):
        put(records, bytes(1000))
    batches = all_drained(records)
    taken: list[bytes] = []
    big = in_line(records, bytes(14_000), taken)
    small = in_line(records, b"small", taken)
    assert records.append("t", 0, None, b"late", None, 0, 0) is Refusal.MEMORY  # though there would be enough
    for batch in batches[:-1]:
        batch.complete(0)
        assert taken == []
    batches[-1].complete(0)
    big.join(DEADLINE_S)
    small.join(DEADLINE_S)
    assert sorted(taken) == [bytes(14_000), b"small"]
    assert records.memory.queued == 0
    first, second = all_drained(records)
    assert first.records_bytes > 14_000 > second.records_bytes
    for batch in (first, second):
        batch.complete(0)
    assert is_whole(records)


def test_B04_B06_who_gives_up_leaves_the_line_to_the_next() -> None:
    records = accumulator(buffer_memory=6500, batch_size=1000)
    put(records, bytes(2000))
    with pytest.raises(BufferExhaustedError):
        append_in_line(records, bytes(3000), 0.05)
    assert records.memory.queued == 0
    taken: list[bytes] = []
    first = records.begin_waiting()
    assert first.may_try()
    assert records.append("t", 0, None, bytes(3500), None, 0, 0, first_in_line=True) is Refusal.MEMORY
    second = in_line(records, b"fits", taken)
    assert taken == []
    first.leave()
    first.leave()
    second.join(DEADLINE_S)
    assert taken == [b"fits"]
    for batch in all_drained(records):
        batch.complete(0)
    assert is_whole(records)


def test_waiting_is_for_a_batch_not_for_a_record() -> None:
    """After the first in line has got its record in, others take what is there, for a batch's worth."""
    records = accumulator(buffer_memory=400_000, batch_size=16_000)
    while records.append("t", 0, None, bytes(300), None, 0, 0) is not Refusal.MEMORY:
        pass
    waiting = [records.begin_waiting() for _ in range(3)]
    for batch in all_drained(records):
        batch.complete(0)
    got = []
    for waiter in waiting:
        assert records.append("t", 0, None, bytes(300), None, 0, 0) is Refusal.MEMORY
        assert waiter.may_try()
        put(records, bytes(300), first_in_line=True)
        waiter.leave()
        taken = 1
        while taken < 2000 and records.append("t", 0, None, bytes(300), None, 0, 0) is not Refusal.MEMORY:
            taken += 1
        got.append(taken)
    assert got[0] == got[1] > 100, "a batch has some 50 records: of eight that much at least"
    assert got[2] > got[1], "nobody is in line any more"
    for batch in all_drained(records):
        batch.complete(0)
    assert is_whole(records)


def test_large_record_is_not_starved_by_those_that_take_what_they_find() -> None:
    """Memory that comes free gathers from when the first in line found too little."""
    records = accumulator(buffer_memory=200_000, batch_size=4000)
    answered: list[ProducerBatch] = []
    while records.append("t", 0, None, bytes(1000), None, 0, 0) is not Refusal.MEMORY:
        pass
    waiter = records.begin_waiting()
    assert waiter.may_try()
    large = partial(records.append, "t", 0, None, bytes(90_000), None, 0, 0, first_in_line=True)
    for batch in all_drained(records):
        if (answer := large()) is not Refusal.MEMORY:
            break
        batch.complete(0)
        answered.append(batch)
        assert records.append("t", 0, None, bytes(1000), None, 0, 0) is Refusal.MEMORY
    assert isinstance(answer, Delivery)
    assert 10 < len(answered) < 30, "what was freed went to it, some 6,000 bytes a batch"


def test_memory_wakes_the_first_in_line_when_it_is_enough() -> None:
    """And nobody else, nor before: to be woken in vain costs more than to append."""
    rings: list[int] = []
    records = accumulator(buffer_memory=40_000, batch_size=1000, memory_freed=lambda: rings.append(1))
    while records.append("t", 0, None, bytes(900), None, 0, 0) is not Refusal.MEMORY:
        pass
    batches = all_drained(records)
    batches.pop().complete(0)
    assert rings == []  # nobody waits
    first, second = records.begin_waiting(), records.begin_waiting()
    assert first.may_try()
    assert not second.may_try()
    wanted = partial(records.append, "t", 0, None, bytes(9000), None, 0, 0, first_in_line=True)
    assert wanted() is Refusal.MEMORY
    batches.pop().complete(0)
    assert (rings, first.is_rung, second.is_rung) == ([], False, False)
    while not first.is_rung:
        batches.pop().complete(0)
    batches.pop().complete(0)
    assert (rings, second.is_rung) == ([1], False)
    assert first.may_try()
    assert isinstance(wanted(), Delivery)
    rings.clear()
    first.leave()
    assert (rings, second.is_rung, second.may_try()) == ([], True, True)  # the task that leaves tells it
    assert not second.is_rung
    second.leave()
    for batch in batches + all_drained(records):
        batch.complete(0)
    assert is_whole(records)


def test_waiter_that_is_dropped_leaves_the_line() -> None:
    records = accumulator()
    waiters = [records.begin_waiting() for _ in range(3)]
    assert records.memory.queued == 3
    del waiters[1], waiters[0]
    assert waiters[0].may_try()
    before = records.begin_waiting(goes_first=True)
    assert (before.may_try(), waiters[0].may_try(), records.memory.queued) == (True, False, 2)
    before.leave()
    waiters.clear()
    assert records.memory.queued == 0


def test_waiter_in_a_forked_child_leaves_the_line_alone() -> None:
    """Its lock may be held by a thread that the child does not have."""
    records = accumulator()
    waiter = records.begin_waiting()
    records.memory.is_forked = True
    waiter.leave()
    assert records.memory.queued == 1


def test_a_callback_stands_in_no_line_and_may_pass_the_budget_by_what_waits_for_callbacks() -> None:
    records = accumulator(buffer_memory=20_000, batch_size=1000)
    for number in range(5):
        put(records, b"%d" % number + bytes(800), on_delivery=lambda metadata, error: None)
    answered = all_drained(records)
    for batch in answered:
        batch.complete(0)
    assert records.memory.callback_bytes == 5 * 1792
    waiter = records.begin_waiting()
    put(records, bytes(17_000), in_callback=True)
    assert records.memory.available < 0
    assert records.append("t", 0, None, bytes(9000), None, 0, 0, first_in_line=True) is Refusal.MEMORY
    for batch in answered:
        assert batch.completion.run_callbacks(print) == 1
    waiter.leave()
    one(records).complete(0)
    assert is_whole(records)


# What it costs


def test_ten_thousand_open_partitions_live_within_the_default_memory() -> None:
    records = accumulator(10_000, batch_size=131_072, compression="lz4", linger_ns=NEVER)
    for partition in range(10_000):
        put(records, bytes(100), partition)
    assert records.memory.total_memory == 32 << 20
    assert records.memory.available > 0
    assert len(fail_all(records, FAILURE)) == 10_000
    assert is_whole(records)


@pytest.mark.parametrize("codec", CODECS)
def test_everything_accepted_is_charged(codec: str) -> None:
    records = accumulator(compression=codec, batch_size=100_000, buffer_memory=MEGABYTE)
    source = random.Random(5)
    for _ in range(300):
        put(records, source.randbytes(200), on_delivery=lambda metadata, error: None)
    state = 300 * (64 + 128)
    charged = records.memory.total_memory - records.memory.available
    assert charged >= 300 * 200 + state
    batch = one(records)
    charged = records.memory.total_memory - records.memory.available
    assert batch.size_bytes + state <= charged <= batch.size_bytes + state + 2048 + 16384


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 10, 1000, 40_000, 300_000])
def test_sealing_asks_for_no_memory(codec: str, size: int) -> None:
    """What it may add, where nothing shrinks, is charged when the record is accepted."""
    records = accumulator(compression=codec, batch_size=1, seal_policy=BY_OTHERS)
    put(records, random.Random(1).randbytes(size))
    before = records.memory.available
    (batch,) = records.take_unsealed()
    batch.seal()
    assert records.memory.available >= before
    batch.fail(FAILURE)
    assert is_whole(records)


def test_a_busy_partition_takes_chunks_that_are_reused() -> None:
    records = accumulator(batch_size=65_536, linger_ns=NEVER)
    for _ in range(3):
        for _ in range(70):
            put(records, bytes(1000))
        for batch in all_drained(records, NEVER):
            batch.complete(0)
    assert is_whole(records)


def test_A13_who_comes_second_with_a_new_batch_gives_it_up() -> None:
    """Another opens the batch while the first one allocates: here from within a garbage collection."""
    records = accumulator(batch_size=MEGABYTE)
    put(records)  # so that nothing but the batch is new
    one(records).complete(0)
    append = records.append
    nested: list[Delivery] = []

    def collecting(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and not nested:
            gc.set_threshold(*threshold)
            nested.append(put(records, b"second"))

    threshold = gc.get_threshold()
    gc.callbacks.append(collecting)
    try:
        gc.set_threshold(1)
        append("t", 0, None, b"first", None, 0, 0)
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(collecting)
    if not nested:
        pytest.skip("this interpreter collects garbage between bytecodes only")
    batch = one(records)
    assert values_of(batch) == [b"second", b"first"]
    batch.complete(0)
    assert is_whole(records)


def test_who_makes_a_new_batch_while_its_topic_goes_gives_it_up() -> None:
    """The metadata come while the batch is allocated: here from within a garbage collection."""
    records = accumulator(batch_size=MEGABYTE)
    put(records, partition=-1)  # so that nothing but the batch is new
    one(records).complete(0)
    append = records.append
    without_topics = ClusterView()
    collections: list[str] = []

    def collecting(phase: str, info: dict[str, int]) -> None:
        records.publish(without_topics)
        collections.append(phase)

    threshold = gc.get_threshold()
    gc.callbacks.append(collecting)
    try:
        gc.set_threshold(1)
        refused = append("t", -1, None, b"value", None, 0, 0)
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(collecting)
    if not collections or isinstance(refused, Delivery):
        pytest.skip("this interpreter collects garbage between bytecodes only")
    assert refused is Refusal.METADATA
    assert is_whole(records)


# Sealing


def test_what_full_batches_shrink_to_lets_later_ones_take_more() -> None:
    records = accumulator(compression="lz4", batch_size=4096)
    for _ in range(400):
        put(records, bytes(500))
    sizes = [batch.records_bytes for batch in records.batches("t", 0) if batch.state == "sealed"]
    assert sizes[0] < 4096 < sizes[-1] and sizes == sorted(sizes)


def test_a_tiny_batch_teaches_nothing() -> None:
    records = accumulator(compression="lz4", batch_size=4096)
    put(records, b"tiny")
    assert one(records).size_bytes > 61 + 19  # it grew, by its frame
    for _ in range(9):
        put(records, bytes(500))
    assert records.batches("t", 0)[0].record_count == 7  # as many as with the ratio of the beginning


def test_an_open_batch_keeps_the_estimate_of_its_creation() -> None:
    records = accumulator(2, compression="lz4", batch_size=4096)
    put(records, bytes(500), 1)
    for _ in range(400):
        put(records, bytes(500), 0)
    for _ in range(9):
        put(records, bytes(500), 1)
    assert records.batches("t", 1)[0].record_count == 7


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_a_codec_that_fails_costs_its_compression_and_no_record(codec: str) -> None:
    module, function = {
        "gzip": ("isal.igzip_lib", "compress"),
        "lz4": ("lz4.frame", "compress"),
        "zstd": ("zstandard", "ZstdCompressor"),
    }[codec]
    records = accumulator(compression=codec, batch_size=90_000)
    for number in range(60):
        put(records, b"%d" % number + bytes(1000))

    def failing(*args: object, **options: object) -> bytes:
        raise RuntimeError("no")

    outcome: list[Any] = []

    def seal() -> None:  # a thread without compressor of its own
        outcome.append(one(records))

    with codec_replaced(module, **{function: failing}):
        thread = threading.Thread(target=seal)
        thread.start()
        thread.join()
    (batch,) = outcome
    assert values_of(batch) == [b"%d" % number + bytes(1000) for number in range(60)]
    assert records.counters()["unpacked_batches"] == 1
    batch.complete(0)
    assert is_whole(records)


def test_an_interrupt_while_sealing_leaves_the_batch_whole() -> None:
    records = accumulator(compression="lz4", batch_size=1000)
    put(records, bytes(800))

    def interrupted(*args: object, **options: object) -> bytes:
        raise KeyboardInterrupt

    with codec_replaced("lz4.frame", compress=interrupted), pytest.raises(KeyboardInterrupt):
        put(records, bytes(800))
    batch = one(records)
    assert values_of(batch) == [bytes(800)]
    assert all_drained(records) == []
    batch.complete(0)
    assert is_whole(records)


@pytest.mark.parametrize("end", ["fail", "expire"])
def test_a_batch_that_ends_while_it_is_sealed_is_freed_by_its_sealer(end: str) -> None:
    records = accumulator(compression="lz4", batch_size=1000, delivery_timeout_ns=10)
    delivery = put(records, bytes(800))
    compress = sys.modules["lz4.frame"].compress
    seen: list[int] = []

    def slow(*args: object, **options: object) -> bytes:
        (batch,) = records.incomplete_batches()
        if end == "expire":
            assert records.expire(10) == [batch]
        batch.fail(FAILURE)
        seen.append(records.memory.total_memory - records.memory.available)
        assert batch.user_count == 1
        result: bytes = compress(*args, **options)
        return result

    with codec_replaced("lz4.frame", compress=slow):
        put(records, bytes(100))
    assert delivery.exception(0) is FAILURE
    assert seen[0] > 800
    one(records).complete(0)
    assert is_whole(records)


def test_a_batch_has_one_sealer() -> None:
    records = accumulator(batch_size=1000, seal_policy=BY_OTHERS)
    put(records, bytes(800))
    with pytest.raises(IllegalStateError, match="must be closed for append, and not sealed before"):
        records.batches("t", 0)[0].seal()
    put(records, bytes(800))
    (batch,) = records.take_unsealed()
    assert records.take_unsealed() == []
    assert batch.seal()
    with pytest.raises(IllegalStateError, match="must be closed for append, and not sealed before"):
        batch.seal()
    put(records, bytes(800))
    (failed,) = records.take_unsealed()
    failed.fail(FAILURE)
    assert not failed.seal()


# Several threads


def test_A12_all_records_once_and_each_threads_in_order() -> None:
    records = accumulator(3, batch_size=2000, compression="lz4", buffer_memory=MEGABYTE)
    count, threads_count = 3000, 3
    stop = threading.Event()

    def appender(thread: int) -> None:
        for number in range(count):
            while not isinstance(
                records.append("t", -1, None, b"%d-%d" % (thread, number), None, 0, 0), Delivery
            ):
                stop.wait(0.001)

    threads = [threading.Thread(target=appender, args=(number,)) for number in range(threads_count)]
    for thread in threads:
        thread.start()
    sent: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    while any(thread.is_alive() for thread in threads) or records.has_undrained:
        for batch in drained(records):
            sent[batch.partition] += values_of(batch)
            batch.complete(0)
    everything = [value for values in sent.values() for value in values]
    expected = [b"%d-%d" % (thread, number) for thread in range(threads_count) for number in range(count)]
    assert sorted(everything) == sorted(expected)
    for values in sent.values():
        for who in range(threads_count):
            numbers = [int(value.split(b"-")[1]) for value in values if value.startswith(b"%d-" % who)]
            assert numbers == sorted(numbers)
    assert is_whole(records)


def test_A11_closing_while_others_append_leaves_nothing_behind() -> None:
    for _ in range(20):
        records = accumulator(4, batch_size=500)
        taken: list[Delivery] = []

        def appender(partition: int, records: RecordAccumulator = records, taken: list[Any] = taken) -> None:
            with pytest.raises(IllegalStateError):
                while True:
                    outcome = records.append("t", partition, None, bytes(200), None, 1000, 0, None)
                    if outcome is not Refusal.MEMORY:  # which is full where closing comes late
                        taken.append(outcome)

        threads = [threading.Thread(target=appender, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        while len(taken) < 20:
            pass
        records.close()
        fail_all(records, FAILURE)
        for thread in threads:
            thread.join()
        assert all(delivery.done() for delivery in taken)
        assert is_whole(records)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_B09_memory_is_whole_after_a_storm(codec: str) -> None:
    records = accumulator(buffer_memory=60_000, batch_size=4000, compression=codec)
    done = threading.Event()

    def sender() -> None:
        while not done.is_set() or records.has_undrained:
            for batch in drained(records):
                batch.complete(0)

    def appender(seed: int) -> None:
        source = random.Random(seed)
        for _ in range(300):
            append_in_line(records, source.randbytes(source.choice([10, 500, 3000, 20_000])))

    sending = threading.Thread(target=sender)
    sending.start()
    threads = [threading.Thread(target=appender, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    done.set()
    sending.join(DEADLINE_S)
    assert is_whole(records) and records.memory.queued == 0
