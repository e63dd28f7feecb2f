"""RecordAccumulator.drain: what goes into a request, and what is sealed for it."""

from __future__ import annotations

import pytest

from kbatch._native.send.sealing import SealPolicy
from tests.unit.accumulating import BY_OTHERS, MEGABYTE, NEVER, accumulator, drained, put

FULL = bytes(600)  # with batch_size=1000 a second one does not fit


def test_A04_the_first_batch_goes_however_large_it_is() -> None:
    records = accumulator(2, batch_size=500)
    put(records, bytes(5000), 0)
    put(records, bytes(5000), 1)
    assert [batch.partition for batch in drained(records, size=100)] == [0]
    assert [batch.partition for batch in drained(records, size=100)] == [1]


def test_A04_a_place_is_kept_for_batches_that_are_still_open() -> None:
    records = accumulator(3, batch_size=2000)
    for partition in range(3):
        put(records, FULL, partition)
    records.ready(0)
    assert records.drain([1], 1500, 0) == {1: []}
    closed = records.take_unsealed()
    assert [(batch.partition, batch.seal()) for batch in closed] == [(0, True), (1, True)]
    assert [batch.state for batch in records.batches("t", 2)] == ["open"]
    assert [batch.partition for batch in drained(records, size=1500)] == [0, 1]  # it is theirs


def test_drain_seals_what_is_small_and_takes_it_at_once() -> None:
    records = accumulator(3, batch_size=100_000, seal_policy=SealPolicy(inline_bytes=1000))
    for partition, size in enumerate((10, 50_000, 20)):
        put(records, b"x" * size, partition)
    records.ready(0)
    taken = records.drain([1], 1_000_000, 0)[1]
    assert [batch.partition for batch in taken] == [0, 2]
    assert {batch.state for batch in taken} == {"in_flight"}
    (large,) = records.take_unsealed()
    assert (large.partition, large.state) == (1, "sealing")
    large.seal()
    assert records.drain([1], 1_000_000, 0)[1] == [large]


@pytest.mark.parametrize(
    ("compression", "on_loop", "sizes", "taken"),
    [
        ("lz4", False, (16_000, 17_000), [0]),
        ("lz4", True, (1_900, 2_100), [0]),
        ("none", False, (17_000, 260_000, 263_000), [0, 1]),
        ("none", True, (17_000, 260_000, 263_000), [0, 1]),
    ],
)
def test_drain_seals_what_the_policy_of_the_codec_calls_small(
    compression: str, on_loop: bool, sizes: tuple[int, ...], taken: list[int]
) -> None:
    policy = SealPolicy.of(compression, on_loop=on_loop)
    records = accumulator(len(sizes), batch_size=1 << 20, compression=compression, seal_policy=policy)
    for partition, size in enumerate(sizes):
        put(records, bytes(size), partition)
    records.ready(0)
    assert [batch.partition for batch in records.drain([1], 1 << 26, 0)[1]] == taken
    (large,) = records.take_unsealed()
    assert (large.partition, large.state) == (len(taken), "sealing")


@pytest.mark.parametrize(("on_loop", "state"), [(False, "sealed"), (True, "sealing")])
def test_the_thread_that_fills_a_batch_seals_it_unless_it_runs_a_loop(on_loop: bool, state: str) -> None:
    records = accumulator(batch_size=1000, seal_policy=SealPolicy.of("none", on_loop=on_loop))
    put(records, FULL)
    put(records, FULL)
    assert [batch.state for batch in records.batches("t", 0)] == [state, "open"]


def test_drain_leaves_no_sealed_batch_behind_where_the_request_is_full() -> None:
    records = accumulator(3, batch_size=100_000, seal_policy=SealPolicy(inline_bytes=1000))
    for partition in range(3):
        put(records, b"x" * 900, partition)
    records.ready(0)
    sizes = []
    while taken := records.drain([1], 2000, 0)[1]:
        sizes.append([batch.partition for batch in taken])
        assert records.take_unsealed() == []
    assert sizes == [[0, 1], [2]]


def test_drain_stops_at_an_unsealed_head_and_the_sealer_wakes() -> None:
    rings: list[str] = []
    records = accumulator(batch_size=1000, seal_policy=BY_OTHERS, wake=lambda: rings.append("ring"))
    put(records, FULL)
    put(records, FULL)
    assert [batch.state for batch in records.batches("t", 0)] == ["sealing", "open"]
    (unsealed,) = records.take_unsealed()
    assert records.ready(0) == (set(), NEVER, set())
    assert records.drain([1], MEGABYTE, 0) == {1: []}
    rings.clear()
    unsealed.seal()
    assert rings == ["ring"]
    assert records.ready(0)[0] == {1}
