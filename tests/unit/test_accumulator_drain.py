"""RecordAccumulator.drain: what goes into a request, and what is sealed for it."""

from __future__ import annotations

from tests.unit.accumulating import MEGABYTE, NEVER, accumulator, drained, put

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
    records = accumulator(3, batch_size=100_000)
    for partition, size in enumerate((10, 50_000, 20)):
        put(records, b"x" * size, partition)
    records.ready(0)
    taken = records.drain([1], 1_000_000, 0, sealed_bytes=1000)[1]
    assert [batch.partition for batch in taken] == [0, 2]
    assert {batch.state for batch in taken} == {"in_flight"}
    (large,) = records.take_unsealed()
    assert (large.partition, large.state) == (1, "sealing")
    large.seal()
    assert records.drain([1], 1_000_000, 0, sealed_bytes=1000)[1] == [large]


def test_drain_leaves_no_sealed_batch_behind_where_the_request_is_full() -> None:
    records = accumulator(3, batch_size=100_000)
    for partition in range(3):
        put(records, b"x" * 900, partition)
    records.ready(0)
    sizes = []
    while taken := records.drain([1], 2000, 0, sealed_bytes=1000)[1]:
        sizes.append([batch.partition for batch in taken])
        assert records.take_unsealed() == []
    assert sizes == [[0, 1], [2]]


def test_drain_stops_at_an_unsealed_head_and_the_sealer_wakes() -> None:
    rings: list[str] = []
    records = accumulator(batch_size=1000, seal_on_append=False, wake=lambda: rings.append("ring"))
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
