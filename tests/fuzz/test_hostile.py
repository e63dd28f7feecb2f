"""Hostile bytes: input from a broker, a disk or an attacker gives records or CorruptRecordError.

`make soak` runs the same campaign ten times as long. A block that fails is replayed with
`python -m tests.fuzz.soak --block K`.
"""

import os
import random
import struct
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

import kbatch
from tests.fuzz import campaign, hostile_bytes, mutator, streams
from tests.oracle import plain
from tests.support.effort import MUTANTS

pytestmark = pytest.mark.slow

ROWS: list[plain.Row] = [(b"key", b"value", (("h", b"x"),), 1000 + number) for number in range(5)]
CODECS = plain.CODECS[1:]


def test_no_mutant_is_anything_but_valid_or_corrupt() -> None:
    """KBATCH_FUZZ_MUTANTS says how many; blocks have processes of their own, which bound memory and time."""
    block_mutants = min(MUTANTS, hostile_bytes.BLOCK_CASES)
    blocks = range(max(1, MUTANTS // block_mutants))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        run = partial(campaign.run_block_apart, hostile_bytes.__name__, cases=block_mutants)
        tallies = list(pool.map(run, blocks))
    outcomes = campaign.total(tallies).outcomes
    assert sum(outcomes.values()) == len(blocks) * block_mutants
    # the mutator must reach both: what only ever breaks the CRC proves little
    assert min(outcomes["valid"], outcomes["corrupt"]) > MUTANTS // 20, outcomes


def test_mutants_depend_on_the_seed_alone() -> None:
    first = list(mutator.mutants(1, 50))
    assert first == list(mutator.mutants(1, 50))
    assert first != list(mutator.mutants(2, 50))


def _oracle_reads(data: bytes) -> list[hostile_bytes.Fields] | None:
    try:
        batches = plain.decode(data, strict=False)
    except Exception:  # a codec package raises what it likes, where a mutant claims to be compressed
        return None
    if any(_has_record_outside(batch) for batch in batches):  # which Java lets pass
        return None
    records = [record for batch in batches for record in batch.records]
    return [(_int64(record.offset), _int64(record.timestamp_ms), *record[2:]) for record in records]


def _has_record_outside(batch: plain.Batch) -> bool:
    first, last = batch.header["base_offset"], batch.header["last_offset"]
    return any(not first <= record.offset <= last for record in batch.records)


def _int64(value: int) -> int:
    """Java's arithmetic wraps."""
    return (value + 2**63) % 2**64 - 2**63


def _kbatch_reads(data: bytes) -> list[hostile_bytes.Fields] | None:
    try:
        return [
            (record.offset, record.timestamp_ms, record.key, record.value, record.headers)
            for batch in kbatch.decode(data, partial="raise")
            for record in batch
        ]
    except kbatch.CorruptRecordError:
        return None


def test_C03_verdict_on_uncompressed_mutant_equals_the_oracles() -> None:
    count = min(MUTANTS, 8000)
    read = 0
    for mutant in mutator.mutants("the oracle", count, ("none",)):
        expected, ours = _oracle_reads(mutant.data), _kbatch_reads(mutant.data)
        if expected is None or ours is not None:
            assert ours == expected, mutant
        else:  # the one rule that kbatch adds: no offset beyond 2^63 - 1
            assert _has_impossible_last_offset(mutant.data), mutant
        read += ours is not None
    assert read > count // 20


def _has_impossible_last_offset(data: bytes) -> bool:
    return any(batch.header["last_offset"] > mutator.INT64_MAX for batch in plain.decode(data, strict=False))


# Bombs and claims, each in a process whose memory is little and its own


def _batch_around(stream: bytes, compression: str, count: int = 1) -> bytes:
    data = plain.encode(ROWS, compression=compression, compressor=lambda _: stream)
    return plain.with_crc(data[:57] + struct.pack(">i", count) + data[61:])


def _both_refuse(batches: list[bytes], limit: int) -> None:
    """Both readers, with the first batch once before: imports and first windows do not count."""
    for data, bound in [(batches[0], 1 << 30), *((batch, 8 << 20) for batch in batches)]:
        with campaign.growing_less_than(bound):
            with pytest.raises(kbatch.CorruptRecordError):
                [list(batch) for batch in kbatch.decode(data, max_decompressed_bytes=limit)]
            with pytest.raises(kbatch.CorruptRecordError):
                kbatch.decode_arrow(data, max_decompressed_bytes=limit)


@pytest.mark.parametrize("compression", CODECS)
def test_a_bomb_takes_no_more_memory_than_its_limit_allows(compression: str) -> None:
    bombs = [_batch_around(bomb, compression) for bomb in streams.bombs(compression, 64 << 20)]
    campaign.apart(_both_refuse, bombs, 1 << 20)


@pytest.mark.parametrize("compression", plain.CODECS)
def test_C03_a_claimed_count_allocates_nothing(compression: str) -> None:
    stream = plain.compress(plain.encode(ROWS[:1])[plain.HEADER_BYTES :], compression)
    counts = (2, 1000, 2**20, plain.INT32_MAX, -1, -(2**31))
    campaign.apart(_both_refuse, [_batch_around(stream, compression, count) for count in counts], 1 << 28)


@pytest.mark.parametrize("compression", CODECS)
def test_a_claimed_size_of_a_stream_allocates_nothing(compression: str) -> None:
    rng = random.Random(compression)
    hostile = [streams.hostile(compression, b"not a record", rng) for _ in range(500)]
    campaign.apart(_both_refuse, [_batch_around(stream, compression) for stream in hostile], 1 << 28)


def _evil_records() -> list[bytes]:
    """Return a record with a header, each of its fields in turn replaced by each evil varint."""
    fields = mutator.taken_apart(ROWS[:1], "none").records[0]
    records = []
    for at in range(len(fields)):
        for encoded in (*map(plain.encode_varint, mutator.EVIL_INTS), *mutator.BROKEN_VARINTS):
            bent = [*fields[:at], fields[at]._replace(encoded=encoded), *fields[at + 1 :]]
            records.append(mutator.record_bytes(bent))
    return records


def _readers_agree_with_the_oracle(batches: list[bytes]) -> None:
    _kbatch_reads(batches[0])
    with campaign.growing_less_than(8 << 20):
        for data in batches:
            assert _kbatch_reads(data) == _oracle_reads(data), data.hex()


def test_C03_a_claimed_size_within_a_record_allocates_nothing() -> None:
    batches = [_batch_around(record, "none") for record in _evil_records()]
    campaign.apart(_readers_agree_with_the_oracle, batches)
