"""A batch: its states, its header, and how long its bytes are used.

Behaviours by their ids: B11 (BufferPool), F02, F04 (ProducerBatchTest).
"""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib
import random
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kbatch
from kbatch import IllegalStateError, KafkaError
from kbatch._native.batch.producer_batch import BatchPiece, ProducerBatch
from kbatch._native.send.cluster_view import ClusterView
from tests.oracle import plain
from tests.oracle.plain import CODECS
from tests.support.accumulating import (
    BY_OTHERS,
    MEGABYTE,
    NEVER,
    accumulator,
    codec_replaced,
    data_of,
    is_whole,
    one,
    put,
    values_of,
)
from tests.support.producing import SECONDS, within
from tests.support.rival import Rival

FAILURE = KafkaError("failed in a test")
POISON = 0xDD


@pytest.mark.parametrize("codec", CODECS)
def test_a_sealed_batch_is_what_the_oracle_expects(codec: str) -> None:
    records = accumulator(compression=codec, transactional=True, batch_size=60_000)
    rows: list[Any] = [(b"%d" % n, bytes(n), (("h", b"x"),) * (n % 2), 1000 - n % 5) for n in range(200)]
    for key, value, headers, timestamp_ms in rows:
        put(records, value, key=key, headers=headers, timestamp_ms=timestamp_ms)
    batch = one(records)
    batch.stamp(4242, 7, 2**31 - 100)
    (read,) = plain.decode(data_of(batch))
    plain.check_produced(read)
    assert read.header == read.header | {
        "producer_id": 4242,
        "producer_epoch": 7,
        "base_sequence": 2**31 - 100,
        "is_transactional": True,
        "compression": codec,
    }
    assert batch.last_sequence == 99
    assert [(r.key, r.value, r.headers, r.timestamp_ms) for r in read.records] == rows


Compress = Callable[..., bytes]
# Who lets go of the GIL may have to do so more than once before another thread runs.
TRIES = 100
# Where the function that compresses is in a codec's package, and how another gets there.
COMPRESSING: dict[str, tuple[str, str, Callable[[Any, Callable[[Compress], Compress]], Any]]] = {
    "gzip": ("isal.igzip_lib", "compress", lambda compress, noting: noting(compress)),
    "lz4": ("lz4.frame", "compress", lambda compress, noting: noting(compress)),
    "snappy": (
        "cramjam",
        "snappy",
        lambda snappy, noting: _Package(compress_raw=noting(snappy.compress_raw)),
    ),
    "zstd": (
        "zstandard",
        "ZstdCompressor",
        lambda made, noting: lambda level: _Package(compress=noting(made(level=level).compress)),
    ),
}
_Package = types.SimpleNamespace


@pytest.mark.parametrize("codec", COMPRESSING)
def test_filling_thread_compresses_the_batch_without_the_gil(codec: str) -> None:
    """An append that fills no batch never releases the GIL; no thread has to release it here."""
    module, name, replaced = COMPRESSING[codec]
    noted: list[tuple[int, bool]] = []

    def noting(compress: Compress) -> Compress:
        def compress_and_note(*arguments: Any, **options: Any) -> bytes:
            before = rival.turns
            for _ in range(TRIES):
                compressed = compress(*arguments, **options)
                if rival.turns > before:
                    break
            noted.append((threading.get_ident(), rival.turns > before))
            return compressed

        return compress_and_note

    def fill() -> int:
        records = accumulator(compression=codec, batch_size=4 * MEGABYTE)
        noted.clear()  # it has tried the codec
        put(records, value)
        (batch,) = records.batches("t", 0)
        while str(batch.state) == "open":  # an appender of the other thread seals it
            turns = rival.turns
            assert not noted
            put(records, value)
            assert batch.state == "sealed" or rival.turns == turns
        assert batch.state == "sealed"
        return threading.get_ident()

    value = random.Random(1).randbytes(10_000)
    real = getattr(importlib.import_module(module), name)
    with codec_replaced(module, **{name: replaced(real, noting)}), Rival() as rival:
        appender = within(fill).result(SECONDS)  # a new thread, which has no compressor of zstd's yet
    assert {thread for thread, _ in noted} == {appender}
    assert any(others_ran for _, others_ran in noted)


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_other_threads_run_while_a_batch_is_sealed(codec: str) -> None:
    """By the codec's library: gathering, compressing and all. snappy has only its package."""
    value = random.Random(2).randbytes(100_000)

    def seal_closed_batch() -> int:
        records = accumulator(compression=codec, batch_size=2 * MEGABYTE, seal_policy=BY_OTHERS)
        while not (batches := records.take_unsealed()):
            put(records, value)
        return rival.turns_during(batches[0].seal, 1)

    with Rival() as rival:
        assert any(seal_closed_batch() for _ in range(10 * TRIES))


def test_without_compression_every_byte_is_that_of_encode() -> None:
    """Across many chunks: records that begin in one and end in another."""
    source = random.Random(3)
    records = accumulator(batch_size=200_000)
    rows: list[Any] = [
        (source.randbytes(source.randrange(40)), source.randbytes(source.randrange(3000)), (), 1000)
        for _ in range(100)
    ]
    rows.append((None, source.randbytes(40_000), (("h" * 200, None), ("h", source.randbytes(500))), 5))
    for key, value, headers, timestamp_ms in rows:
        put(records, value, key=key, headers=headers, timestamp_ms=timestamp_ms)
    batch = one(records)
    assert len(batch.buffers()) > 10
    assert data_of(batch) == kbatch.encode(rows)
    batch.stamp(5, 1, 9)
    assert data_of(batch) == kbatch.encode(rows, producer_id=5, producer_epoch=1, base_sequence=9)
    assert batch.size_bytes == len(data_of(batch))


def test_stamping_touches_the_header_alone_and_can_be_repeated() -> None:
    records = accumulator(compression="zstd")
    put(records, bytes(5000))
    batch = one(records)
    before = data_of(batch)
    for state in ((1, 0, 0), (2, 5, 77), (-1, -1, -1)):
        batch.stamp(*state)
        data = data_of(batch)
        assert data[61:] == before[61:]
        (read,) = kbatch.decode(data)
        assert (read.producer_id, read.producer_epoch, read.base_sequence) == state
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == state
        assert batch.has_sequence == (state[2] >= 0)
    assert data_of(batch) == before


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ((1, -1, 0), "must all be -1, or none"),
        ((1, 0, -1), "must all be -1, or none"),
        ((-1, 0, -1), "must all be -1, or none"),
        ((1, 32768, 0), "producer_epoch must be -1 to 32767"),
        ((1, 0, 2**31), "base_sequence must be"),
        ((-1, -1, -1), "producer_id must be 0 or more for a transactional batch"),
    ],
)
def test_a_stamp_is_checked(state: tuple[int, int, int], text: str) -> None:
    records = accumulator(transactional=True)
    put(records)
    with pytest.raises(ValueError, match=text):
        one(records).stamp(*state)


def test_no_stamp_while_the_network_has_views_of_the_header() -> None:
    records = accumulator()
    put(records)
    batch = one(records)
    views = batch.buffers()
    with pytest.raises(IllegalStateError, match="have one user"):
        batch.stamp(1, 0, 0)
    views.clear()
    batch.stamp(1, 0, 0)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 40])
def test_a_small_batch_can_be_had_as_a_copy_that_outlives_it(codec: str, count: int) -> None:
    records = accumulator(compression=codec, batch_size=60_000, poison=True)
    for _ in range(count):
        put(records, random.Random(1).randbytes(500))
    batch = one(records)
    batch.stamp(5, 1, 9)
    data, size_bytes = data_of(batch), batch.size_bytes
    (copy,) = batch.buffers(size_bytes)
    batch.complete(0)
    assert is_whole(records)
    assert type(copy) is bytes and copy == data


def test_large_batch_is_referenced_and_its_header_copied() -> None:
    records = accumulator(compression="lz4", batch_size=60_000)
    put(records, bytes(5000))
    batch = one(records)
    data = data_of(batch)
    header, body = batch.buffers(batch.size_bytes - 1)
    assert (header, b"".join([header, body])) == (data[:61], data)
    assert type(header) is bytes
    assert isinstance(body, memoryview) and isinstance(body.obj, BatchPiece)


def test_F02_a_closed_batch_takes_no_record() -> None:
    records = accumulator(seal_policy=BY_OTHERS, batch_size=1000)
    put(records, bytes(500))
    put(records, bytes(500))
    put(records, b"small")
    closed, opened = records.batches("t", 0)
    assert (closed.record_count, opened.record_count) == (1, 2)


def test_bytes_are_there_while_a_batch_is_sealed_and_not_done() -> None:
    records = accumulator()
    put(records)
    (batch,) = records.batches("t", 0)
    for call in (batch.buffers, lambda: batch.stamp(1, 0, 0), batch.seal):
        with pytest.raises(IllegalStateError):
            call()
    assert one(records) is batch
    batch.complete(0)
    assert (batch.state, batch.user_count) == ("done", 0)
    for call in (batch.buffers, lambda: batch.stamp(1, 0, 0)):
        with pytest.raises(IllegalStateError):
            call()
    assert batch.seal() is False


# B11: who uses the bytes


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("end", ["complete", "fail", "expire"])
def test_B11_bytes_that_the_network_still_has_are_not_reused(codec: str, end: str) -> None:
    records = accumulator(compression=codec, batch_size=40_000, delivery_timeout_ns=10)
    source = random.Random(1)
    for _ in range(20):
        put(records, source.randbytes(1000))
    batch = one(records)
    before = data_of(batch)
    size = batch.size_bytes
    views = batch.buffers()
    assert batch.user_count == 1 + len(views)
    if end == "complete":
        batch.complete(0)
    if end == "expire":
        assert records.expire(10) == [batch]
    if end != "complete":
        batch.fail(FAILURE)
    assert records.memory.total_memory - records.memory.available >= size - 61
    for number in range(30):  # the next batch gets other memory
        put(records, bytes([number]) * 1000)
    assert b"".join(views) == before
    for batch in [*records.incomplete_batches()]:
        batch.fail(FAILURE)
    assert not is_whole(records)
    while views:
        assert not is_whole(records)
        views.pop().release()
    assert is_whole(records)


def test_freed_bytes_are_poisoned() -> None:
    records = accumulator(poison=True)
    put(records, bytes(12_000))  # a whole chunk, which is kept
    batch = one(records)
    data = np.frombuffer(batch.buffers()[1], np.uint8)
    address, size = data.ctypes.data, len(data)
    batch.complete(0)
    assert not data[-12_000:].any()
    del data
    gc.collect()
    assert ctypes.string_at(address, size) == b"\xdd" * size


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_piece_outlives_the_bytes_and_says_that_they_are_gone(codec: str) -> None:
    records = accumulator(compression=codec, poison=True)
    put(records, b"secret" * 1000)
    batch = one(records)
    seen = batch.buffers()[1]
    piece = seen.obj
    assert isinstance(piece, BatchPiece) and len(piece) == len(seen)
    address_kept = memoryview(piece)
    assert bytes(address_kept) == bytes(seen)
    del seen, address_kept
    gc.collect()
    batch.complete(0)
    with pytest.raises(BufferError, match="its memory is released"):
        memoryview(piece)
    put(records, b"x" * 500)
    (again,) = records.batches("t", 0)
    assert again.record_count == 1
    assert values_of(one(records)) == [b"x" * 500]


def test_bytes_are_read_only() -> None:
    records = accumulator()
    put(records)
    for view in one(records).buffers():
        assert view.readonly
        with pytest.raises(TypeError):
            view[0] = 0


def test_an_accumulator_that_is_dropped_frees_what_is_in_it() -> None:
    records = accumulator(batch_size=1000)
    for _ in range(10):
        put(records, bytes(700), on_delivery=functools.partial(isinstance, records))  # a cycle
    views = one(records).buffers()
    before = b"".join(views)
    del records
    gc.collect()
    assert b"".join(views) == before


# F04: leader epochs


def test_F04_leader_epoch_only_grows_and_keeps_its_attempt() -> None:
    records = accumulator(retry_backoff_ns=1, retry_backoff_max_ns=1)
    put(records)
    steps = [(-1, -1, 0), (3, 3, 1), (3, 3, 1), (2, 3, 1), (-1, 3, 1), (5, 5, 5)]
    for attempt, (epoch, known, changed) in enumerate(steps):
        records.publish(ClusterView({"t": [(1, epoch)]}))
        batch = one(records, 10 * attempt)
        assert (batch.attempts, batch.leader_epoch, batch.leader_changed_attempt) == (attempt, known, changed)
        assert batch.leader_changed == (attempt > 0 and changed == attempt)
        records.reenqueue(batch, 10 * attempt)


def test_what_the_core_notes_stays_on_the_batch() -> None:
    records = accumulator()
    put(records)
    batch = one(records)
    assert (batch.was_sent, batch.possibly_persisted) == (False, False)
    batch.was_sent = batch.possibly_persisted = True
    records.reenqueue(batch, 0)
    assert one(records, NEVER).was_sent and batch.possibly_persisted


def test_only_an_accumulator_makes_batches() -> None:
    for cls in (ProducerBatch, BatchPiece):
        with pytest.raises(TypeError, match="comes from"):
            cls()


def test_batch_views_and_accumulator_are_collected_together() -> None:
    """The collector lets go of them in any order."""
    for _ in range(20):
        records = accumulator()
        put(records, b"value" * 100)
        batch = one(records)
        held: list[Any] = [records, batch, batch.buffers()]
        held.append(held)
    del records, batch, held
    gc.collect()
