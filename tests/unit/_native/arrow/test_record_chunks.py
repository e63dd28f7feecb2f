"""The memory of chunks: buffers of several are cut from one region, and live as long as they are in use."""

import random
import threading

import pyarrow as pa
import pytest

from kbatch._native.fetch.fetched_batches import FetchedRecords
from kbatch.codec.columns import fetched_batch
from tests.oracle import plain

COLUMNS = ("offset", "timestamp", "key", "value", "headers", "leader_epoch")


def rows(seed: int, count: int, size: int) -> list[plain.Row]:
    rng = random.Random(seed)
    return [
        (
            rng.choice((None, rng.randbytes(12))),
            rng.choice((None, rng.randbytes(rng.randrange(size)))),
            (("name", rng.randbytes(rng.randrange(30))),) * rng.choice((0, 0, 2)),
            1000 + at,
        )
        for at in range(count)
    ]


def decoded(data: bytes) -> pa.Table:
    records = FetchedRecords(data, topic="t", partition=0, from_offset=0)
    batches = [fetched_batch(chunk, "t", 0, COLUMNS) for chunk in records.decode(COLUMNS)]
    assert records.fault is None
    return pa.Table.from_batches(batches)


def expected(given: list[plain.Row]) -> list[tuple[object, ...]]:
    return [(key, value, [*map(tuple, headers)]) for key, value, headers, _ in given]


def content(table: pa.Table) -> list[tuple[object, ...]]:
    return [
        (row["key"], row["value"], [(header["key"], header["value"]) for header in row["headers"]])
        for row in table.to_pylist()
    ]


def hold_and_drop(seed: int, cases: list[tuple[bytes, list[tuple[object, ...]]]]) -> None:
    """Keep some tables at a time, drop them in any order, and look at each before."""
    rng = random.Random(seed)
    held: list[tuple[pa.Table, list[tuple[object, ...]]]] = []
    for _ in range(50):
        data, owed = rng.choice(cases)
        held.append((decoded(data), owed))
        while len(held) > rng.randrange(8):
            table, owed = held.pop(rng.randrange(len(held)))
            table.validate(full=True)
            assert content(table) == owed
            del table


@pytest.fixture(scope="module")
def cases() -> list[tuple[bytes, list[tuple[object, ...]]]]:
    """Small ones, some near the size of a region, one with growing rows, so that estimates fail."""
    made = [rows(seed, count, size) for seed, (count, size) in enumerate(((3, 10), (200, 400), (60, 60_000)))]
    growing = [row for size in (1, 10, 5000) for row in rows(size, 40, size)]
    cases = []
    for given in [*made, growing]:
        batches = [given[at : at + 40] for at in range(0, len(given), 40)]
        data = b"".join(plain.encode(batch, base_offset=40 * at) for at, batch in enumerate(batches))
        cases.append((data, expected(given)))
    return cases


def test_chunks_of_one_region_do_not_disturb_each_other(
    cases: list[tuple[bytes, list[tuple[object, ...]]]],
) -> None:
    hold_and_drop(1, cases)


def test_threads_share_regions(cases: list[tuple[bytes, list[tuple[object, ...]]]]) -> None:
    failures: list[BaseException] = []

    def run(seed: int) -> None:
        try:
            hold_and_drop(seed, cases)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_first_records_unlike_the_rest_are_decoded() -> None:
    """The estimate from the first 32 records expects no keys, no headers and values of a byte."""
    first: list[plain.Row] = [(None, b"x", (), 1)] * 40
    rest = rows(9, 400, 3000)
    data = plain.encode(first) + plain.encode(rest, base_offset=40)
    assert content(decoded(data)) == expected(first + rest)
    data = plain.encode([*first, *rest], compression="zstd")
    assert content(decoded(data)) == expected(first + rest)
