"""FetchedRecords on logs of every kind: the log's maker knows what is visible, and judges."""

import random
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch._native.arrow.record_chunks import RecordChunk
from kbatch._native.codec.record import ConsumerRecord
from kbatch._native.fetch.fetched_batches import FetchedRecords
from kbatch._native.fetch.read_cursor import FetchIterator, ReadCursor
from kbatch.codec.columns import FETCHED_COLUMNS, fetched_batch
from kbatch.errors import CorruptRecordError
from tests.fuzz import mutator
from tests.oracle.partition_log import PartitionLog, Seen, random_log
from tests.property.test_codec_properties import deterministic, few

Layout = Literal["copy", "view"]
LAYOUTS: tuple[Layout, ...] = ("copy", "view")
DECODED = tuple(name for name in FETCHED_COLUMNS if name not in ("topic", "partition"))
ALL = frozenset(DECODED)
SEEDS = st.integers(0, 10**6)
FOREVER = 2**63 - 1


def reader(log: PartitionLog, first: int, end: int, *, committed: bool, **options: Any) -> FetchedRecords:
    if committed:
        options |= {"aborted": log.aborted(first), "visible_end": log.last_stable_offset}
    return FetchedRecords(
        log.fetched(first), topic="orders", partition=3, from_offset=first, to_offset=end, **options
    )


def row_of(record: Seen) -> dict[str, Any]:
    return {
        "topic": "orders",
        "partition": 3,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestamp_type": "log_append_time" if record.is_log_append_time else "create_time",
        "key": record.key,
        "value": record.value,
        "headers": [{"key": key, "value": value} for key, value in record.headers],
        "leader_epoch": record.leader_epoch,
    }


def table_of(chunks: Sequence[RecordChunk], columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows, with timestamps as milliseconds: datetime lacks most of their range."""
    rows: list[dict[str, Any]] = []
    for chunk in chunks:
        batch = fetched_batch(chunk, "orders", 3, columns)
        batch.validate(full=True)
        assert batch.num_rows == chunk.row_count > 0
        if "timestamp" in columns:
            at = batch.schema.get_field_index("timestamp")
            batch = batch.set_column(at, "timestamp", batch.column(at).cast(pa.int64()))
        rows += batch.to_pylist()
    return rows


def object_of(record: Seen) -> ConsumerRecord:
    return ConsumerRecord(
        "orders",
        3,
        record.key,
        record.value,
        record.headers,
        record.timestamp_ms,
        record.offset,
        record.leader_epoch,
        "log_append_time" if record.is_log_append_time else "create_time",
    )


def objects_of(records: FetchedRecords) -> list[ConsumerRecord]:
    """Return all records, taken by a few, so that iterators end within batches and with them."""
    found: list[ConsumerRecord] = []
    while taken := records.take_records(5):
        found += taken
    assert records.is_used_up
    return found


def ranges(log: PartitionLog, seed: int) -> tuple[int, int]:
    rng = random.Random(f"range {seed}")
    offsets = range(log.batches[0].base_offset, log.end_offset + 1)
    first, end = sorted(rng.sample(offsets, 2)) if len(offsets) > 1 else (offsets[0], offsets[0] + 1)
    return rng.choice(((offsets[0], FOREVER), (first, end), (first, FOREVER)))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("committed", [False, True], ids=["uncommitted", "committed"])
@deterministic
@given(SEEDS)
def test_R11_columns_are_the_visible_records(layout: Layout, committed: bool, seed: int) -> None:
    log = random_log(seed)
    first, end = ranges(log, seed)
    records = reader(log, first, end, committed=committed)
    visible = log.visible(first, end, committed=committed)
    assert table_of(records.decode(ALL, layout), FETCHED_COLUMNS) == [row_of(record) for record in visible]
    assert records.fault is None
    assert records.position == records.next_offset
    assert records.row_bound >= len(visible)


@pytest.mark.parametrize("committed", [False, True], ids=["uncommitted", "committed"])
@deterministic
@given(SEEDS)
def test_R11_objects_are_the_visible_records(committed: bool, seed: int) -> None:
    log = random_log(seed)
    first, end = ranges(log, seed)
    records = reader(log, first, end, committed=committed)
    visible = log.visible(first, end, committed=committed)
    assert objects_of(records) == [object_of(record) for record in visible]
    assert (records.fault, records.position) == (None, records.next_offset)


@pytest.mark.parametrize("committed", [False, True], ids=["uncommitted", "committed"])
@deterministic
@given(SEEDS)
def test_reading_goes_on_at_the_position_after_any_take(committed: bool, seed: int) -> None:
    """What is left is what a Fetch from the position has; iterators of any length give the same records."""
    rng = random.Random(seed)
    log = random_log(seed)
    first, end = ranges(log, seed)
    records = reader(log, first, end, committed=committed)
    visible = [object_of(record) for record in log.visible(first, end, committed=committed)]
    found: list[ConsumerRecord] = []
    while True:
        count = rng.choice((1, 2, 3, 10, 1000))
        taken = records.take_records(count)
        found += taken
        assert found == visible[: len(found)]
        assert len(taken) == count or (records.is_used_up and found == visible)
        position = min(records.position, log.end_offset)
        if position < end:
            rest = reader(log, position, end, committed=committed)
            assert objects_of(rest) == visible[len(found) :]
        if not taken:
            break
    assert (records.fault, records.position) == (None, records.next_offset)


@deterministic
@given(SEEDS)
def test_objects_are_the_same_by_all_ways_of_taking(seed: int) -> None:
    """By iterators, several at once, and after a look at them; what is skipped counts."""
    rng = random.Random(seed)
    log = random_log(seed)
    first, end = ranges(log, seed)
    records, cursor = reader(log, first, end, committed=True), ReadCursor()
    visible = [object_of(record) for record in log.visible(first, end, committed=True)]
    done = 0
    while not records.is_used_up:
        count = rng.choice((1, 2, 5, 1000))
        match rng.choice(("peek", "take", "iterator", "skip")):
            case "peek":
                assert records.peek_records(count) == visible[done : done + count]
                continue
            case "take":
                taken = cursor.take(records, count)
            case "iterator":
                cursor.iterator = FetchIterator(cursor, records, count)
                taken = list(cursor.iterator)
            case "skip":
                offset = records.position + rng.randrange(4)
                taken = [record for record in visible[done:] if record.offset < offset]
                assert records.skip_to(offset) == (done + len(taken) < len(visible))
        assert taken == visible[done : done + len(taken)]
        done += len(taken)
        assert records.taken_count == done
    assert (done, records.fault, records.position) == (len(visible), None, records.next_offset)


@deterministic
@given(SEEDS, st.sets(st.sampled_from(DECODED)), st.sampled_from(LAYOUTS))
def test_R12_fewer_columns_are_those_of_all(seed: int, columns: set[str], layout: Layout) -> None:
    log = random_log(seed)
    first, end = ranges(log, seed)
    chosen = [name for name in DECODED if name in columns]
    chunks = reader(log, first, end, committed=True).decode(chosen, layout)
    visible = [row_of(record) for record in log.visible(first, end, committed=True)]
    assert table_of(chunks, chosen) == [{name: row[name] for name in chosen} for row in visible]
    assert sum(chunk.row_count for chunk in chunks) == len(visible)


@deterministic
@given(SEEDS, st.booleans())
def test_fetching_by_pieces_reads_all_and_moves(seed: int, committed: bool) -> None:
    """Each answer is cut off somewhere; one that has no whole batch says how much is needed."""
    rng = random.Random(seed)
    log = random_log(seed)
    first = offset = log.batches[0].base_offset
    found: list[ConsumerRecord] = []
    size = 61
    end = log.last_stable_offset if committed else log.end_offset
    while offset < end:
        options: dict[str, Any] = {"aborted": log.aborted(offset), "visible_end": end} if committed else {}
        piece = log.fetched(offset)[:size]
        records = FetchedRecords(piece, topic="orders", partition=3, from_offset=offset, **options)
        found += objects_of(records)
        assert records.fault is None
        assert (records.needed_bytes > 0) == (records.next_offset == offset)
        assert records.needed_bytes > len(piece) or not records.needed_bytes
        size = records.needed_bytes or rng.randrange(61, 2000)
        offset = records.next_offset
    assert found == [object_of(record) for record in log.visible(first, end, committed=committed)]


@deterministic
@given(SEEDS)
def test_the_end_is_known_from_headers_alone(seed: int) -> None:
    log = random_log(seed)
    first, end = ranges(log, seed)
    records = reader(log, first, end, committed=False)
    read = [batch for batch in log.batches if batch.last_offset >= first and batch.base_offset < end]
    assert records.next_offset == min(end, log.end_offset)
    assert records.is_past_end == (records.next_offset >= end)
    assert records.last_epoch == (read[-1].leader_epoch if read else -1)


def bent(log: PartitionLog, seed: int) -> Iterator[bytes]:
    rng = random.Random(f"bent {seed}")
    data = log.fetched(0)
    for _ in range(20):
        copy = bytearray(data)
        for _ in range(rng.choice((1, 1, 4))):
            copy[rng.randrange(len(copy))] ^= 1 << rng.randrange(8)
        yield bytes(copy[: rng.choice((len(copy), rng.randrange(len(copy) + 1)))])


@few
@given(SEEDS, st.sampled_from(LAYOUTS), st.booleans())
def test_flipped_bits_give_a_fault_or_right_records(seed: int, layout: Layout, committed: bool) -> None:
    """With checksums a bent batch is not handed out, but for fields that none covers."""
    log = random_log(seed)
    options: dict[str, Any] = {"aborted": log.aborted(0)} if committed else {}
    contents = {
        (record.key, record.value, record.headers) for record in log.visible(0, FOREVER, committed=False)
    }
    for data in bent(log, seed):
        records = FetchedRecords(data, topic="orders", partition=3, from_offset=0, **options)
        rows = table_of(records.decode(ALL, layout), FETCHED_COLUMNS)
        for row in rows:
            headers = tuple((header["key"], header["value"]) for header in row["headers"])
            assert (row["key"], row["value"], headers) in contents
        assert records.fault is None or "orders-3 at offset" in str(records.fault)
        position = records.position
        objects = objects_of(records)
        assert [record.offset for record in objects] == [row["offset"] for row in rows]
        assert records.position == position


@few
@given(SEEDS)
def test_mutants_without_checksums_end_in_faults(seed: int) -> None:
    """Columns, views, objects and fewer columns agree on what was read before a fault."""
    for mutant in mutator.mutants(seed, 30):
        options: dict[str, Any] = {"topic": "orders", "partition": 3, "from_offset": 0, "check_crcs": False}
        records = FetchedRecords(mutant.data, **options, max_decompressed_bytes=1 << 22)
        rows = table_of(records.decode(ALL), DECODED)
        fault, position = str(records.fault), records.position
        assert records.fault is None or isinstance(records.fault, CorruptRecordError)
        assert table_of(records.decode(ALL, "view"), DECODED) == rows
        assert (str(records.fault), records.position) == (fault, position)
        objects = objects_of(records)
        assert [(each.offset, each.key, each.value) for each in objects] == [
            (row["offset"], row["key"], row["value"]) for row in rows
        ]
        assert (str(records.fault), records.position) == (fault, position)
        values = table_of(records.decode(["value"]), ["value"])
        assert values[: len(rows)] == [{"value": row["value"]} for row in rows]
