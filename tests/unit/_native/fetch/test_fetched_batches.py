"""FetchedRecords: what it does with batches that are special, and what it says of broken ones."""

import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

import kbatch
from kbatch._native.fetch.fetched_batches import FetchedRecords
from kbatch._native.fetch.frames import FramePool
from kbatch.codec.columns import FETCHED_COLUMNS, fetched_batch, fetched_schema
from kbatch.errors import CorruptRecordError
from tests.oracle import plain, strategies
from tests.support.rival import Rival

ROWS: list[plain.Row] = [(b"k%d" % n, b"value %d" % n, (), 1000 + n) for n in range(10)]
ABORT = strategies.end_transaction_marker(False, 1)
COMMIT = strategies.end_transaction_marker(True, 1)
ENOUGH = 10_000


def fetched(data: Any, **options: Any) -> FetchedRecords:
    given: dict[str, Any] = {"topic": "orders", "partition": 3, "from_offset": 0}
    return FetchedRecords(data, **given | options)


def offsets(records: FetchedRecords) -> list[int]:
    return [record.offset for record in records.take_records(ENOUGH)]


def transactional(base_offset: int, producer_id: int, rows: list[plain.Row] = ROWS[:2]) -> bytes:
    return plain.encode(rows, base_offset=base_offset, producer_id=producer_id, transactional=True)


def marker(base_offset: int, producer_id: int, row: plain.Row = ABORT) -> bytes:
    return plain.encode(
        [row], base_offset=base_offset, producer_id=producer_id, transactional=True, control=True
    )


# Transactions


def test_R48_several_aborts_of_one_producer_in_an_answer() -> None:
    data = transactional(0, 7) + marker(2, 7) + transactional(3, 7) + marker(5, 7) + transactional(6, 7)
    data += marker(8, 7, COMMIT)
    records = fetched(data, aborted=[(7, 3), (7, 0)])
    assert offsets(records) == [6, 7]
    assert (records.next_offset, records.row_bound) == (9, 2)


def test_R48_answer_that_begins_at_a_marker() -> None:
    assert offsets(fetched(marker(5, 7) + transactional(6, 7), from_offset=5, aborted=[(7, 0)])) == [6, 7]


def test_R48_abort_marker_without_an_entry_hides_nothing() -> None:
    assert offsets(fetched(transactional(0, 7) + marker(2, 7) + transactional(3, 7), aborted=[])) == [
        *(0, 1, 3, 4)
    ]


def test_R02_R48_marker_in_the_last_batch_moves_the_position() -> None:
    records = fetched(transactional(0, 7) + marker(2, 7), aborted=[(7, 0)])
    assert (offsets(records), records.next_offset, records.position) == ([], 3, 3)


def test_others_and_plain_batches_of_an_aborter_are_seen() -> None:
    """An idempotent producer's batch has a producer id, but is in no transaction."""
    data = transactional(0, 7) + transactional(2, 8) + plain.encode(ROWS[:1], base_offset=4, producer_id=7)
    assert offsets(fetched(data, aborted=[(7, 0)])) == [2, 3, 4]


def test_transaction_that_aborts_later_hides_nothing_before() -> None:
    data = transactional(0, 7) + marker(2, 7, COMMIT) + transactional(3, 7)
    assert offsets(fetched(data, aborted=[(7, 3)])) == [0, 1]


def test_empty_control_batch_ends_nothing() -> None:
    empty = plain.encode([], base_offset=2, producer_id=7, transactional=True, control=True)
    assert offsets(fetched(transactional(0, 7) + empty + transactional(3, 7), aborted=[(7, 0)])) == []


def test_R02_uncommitted_sees_all_but_markers() -> None:
    assert offsets(fetched(transactional(0, 7) + marker(2, 7) + transactional(3, 7))) == [0, 1, 3, 4]


def test_unreadable_marker_of_an_aborter_is_a_fault() -> None:
    bad: plain.Row = (b"\0", None, (), 1)
    records = fetched(transactional(0, 7) + marker(2, 7, bad), aborted=[(7, 0)])
    assert "orders-3 at offset 2: the marker of producer 7" in str(records.fault)
    assert (records.next_offset, offsets(records), records.position) == (2, [], 2)


# Offsets outside of a batch

WAYS = {
    "objects": lambda records: offsets(records),
    "columns": lambda records: column_of(records, "copy"),
    "views": lambda records: column_of(records, "view"),
}


def column_of(records: FetchedRecords, layout: Any) -> list[int]:
    """Return the offsets that `decode` finds."""
    chunks = records.decode(["offset", "value"], layout)
    return [
        offset
        for chunk in chunks
        for offset in fetched_batch(chunk, "orders", 3, ["offset"]).column("offset").to_pylist()
    ]


def bent(base: int, deltas: list[int], last: int, compression: str = "none") -> bytes:
    """Return a batch with the last offset delta, and records with these deltas."""
    at = [base + delta for delta in deltas]
    rows = ROWS[: len(deltas)]
    return plain.encode(rows, base_offset=base, offsets=at, last_offset=base + last, compression=compression)


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("base", "deltas", "last", "seen"),
    [
        (0, [0, 5], 1, [0]),
        (0, [-3, 1], 1, []),
        (100, [2**31 - 1, 0], 1, []),
        (2**63 - 10, [0, 1, 2**31 - 1], 2, [2**63 - 10, 2**63 - 9]),
        (2**62, [1, -(2**31)], 1, [2**62 + 1]),
        (10, [1, 0, 0], 2, [11, 10, 10]),  # within it, all go
    ],
)
def test_record_outside_of_its_batch_is_corrupt(
    way: str, compression: str, base: int, deltas: list[int], last: int, seen: list[int]
) -> None:
    data = bent(base, deltas, last, compression)
    records = fetched(data, from_offset=base)
    assert WAYS[way](records) == seen
    if len(seen) == len(deltas):
        assert records.fault is None
        assert [record.offset for record in next(kbatch.decode(data))] == seen
        assert kbatch.decode_arrow(data).column("offset").to_pylist() == seen
        return
    message = f"record {len(seen)} of the batch at offset {base}: its offset is outside"
    assert message in str(records.fault)
    with pytest.raises(CorruptRecordError, match=message):
        iter(next(kbatch.decode(data)))
    with pytest.raises(CorruptRecordError, match=message):
        kbatch.decode_arrow(data)


@pytest.mark.parametrize("way", WAYS)
def test_records_before_the_position_are_no_fault(way: str) -> None:
    records = fetched(bent(0, [0, 1, 2, 3], 3), from_offset=2, to_offset=3)
    assert (WAYS[way](records), records.fault) == ([2], None)
    records = fetched(bent(0, [0, 1, 9, 3], 3), from_offset=1, to_offset=2)
    assert (WAYS[way](records), records.fault is None) == ([1], False)


def test_negative_epoch_of_a_batch_is_unknown() -> None:
    records = fetched(plain.encode(ROWS, partition_leader_epoch=-7))
    (record,) = records.take_records(1)
    assert (record.leader_epoch, records.last_epoch) == (-1, -1)


def test_records_of_each_batch_say_its_epoch_and_kind_of_timestamp() -> None:
    kinds = [(4, False), (5, False), (5, True), (5, True), (6, False)]
    data = b"".join(
        plain.encode(
            ROWS[:2],
            base_offset=2 * i,
            partition_leader_epoch=epoch,
            log_append_time_ms=9 if appended else None,
        )
        for i, (epoch, appended) in enumerate(kinds)
    )
    records = fetched(data, topic_id=b"i" * 16).take_records(ENOUGH)
    found = [(record.leader_epoch, record.timestamp_type == "log_append_time") for record in records]
    assert found == [kind for kind in kinds for _ in range(2)]
    assert {(record.topic, record.topic_id, record.partition) for record in records} == {
        ("orders", b"i" * 16, 3)
    }


# Positions


def test_R03_empty_batch_moves_the_position() -> None:
    records = fetched(plain.encode([], base_offset=4, last_offset=9), from_offset=4)
    assert (records.next_offset, records.row_bound, records.decode(["value"])) == (10, 0, [])


@pytest.mark.parametrize("compression", plain.CODECS)
def test_R04_batch_that_begins_before_the_position(compression: str) -> None:
    data = plain.encode(ROWS, compression=compression)
    records = fetched(data, from_offset=4, to_offset=8)
    assert offsets(records) == [4, 5, 6, 7]
    assert (records.next_offset, records.is_past_end, records.row_bound) == (8, True, 4)


def test_end_within_a_gap_is_past() -> None:
    data = plain.encode(ROWS[:2]) + plain.encode(ROWS[:2], base_offset=10)
    records = fetched(data, to_offset=5)
    assert (records.next_offset, records.is_past_end, records.byte_count) == (5, True, len(data) // 2)


def test_last_stable_offset_is_no_end() -> None:
    data = plain.encode(ROWS[:2]) + plain.encode(ROWS[:2], base_offset=2)
    records = fetched(data, visible_end=2, aborted=[])
    assert (offsets(records), records.next_offset, records.is_past_end) == ([0, 1], 2, False)


@pytest.mark.parametrize("size", [1, 11, 12, 60, 61, 100])
def test_R05_cut_off_first_batch_says_its_size(size: int) -> None:
    data = plain.encode(ROWS)
    records = fetched(data[:size])
    assert records.needed_bytes == (len(data) if size >= 12 else 61)
    assert (records.next_offset, records.fault, offsets(records)) == (0, None, [])


def test_R05_cut_off_tail_is_ignored() -> None:
    data = plain.encode(ROWS) + plain.encode(ROWS, base_offset=10)
    records = fetched(data[:-1])
    assert (records.needed_bytes, records.next_offset, len(offsets(records))) == (0, 10, 10)


def test_no_records_need_nothing() -> None:
    records = fetched(b"", from_offset=5)
    assert (records.needed_bytes, records.next_offset, records.last_epoch) == (0, 5, -1)


# Faults


def test_R06_bad_checksum_keeps_what_is_before() -> None:
    second = plain.encode(ROWS, base_offset=10)
    data = plain.encode(ROWS) + second[:-1] + bytes([second[-1] ^ 1])
    records = fetched(data)
    assert records.fault is None
    assert [chunk.row_count for chunk in records.decode(["value"])] == [10]
    assert "orders-3 at offset 10: CRC-32C is" in str(records.fault)
    assert "seek to offset 20 to skip the batch" in str(records.fault)
    assert records.position == 10


@pytest.mark.parametrize("field", [plain.CONTROL, plain.TRANSACTIONAL | plain.CONTROL])
def test_batch_bent_into_a_marker_is_not_skipped(field: int) -> None:
    """It has no visible rows, so that only the constructor sees it."""
    batch = bytearray(plain.encode(ROWS))
    batch[22] |= field
    records = fetched(bytes(batch))
    assert (records.next_offset, records.row_bound) == (0, 0)
    assert "CRC-32C" in str(records.fault)
    assert fetched(bytes(batch), check_crcs=False).next_offset == 10


def test_R06_bad_checksum_is_read_without_checks() -> None:
    data = plain.encode(ROWS)
    records = fetched(data[:-1] + bytes([data[-1] ^ 1]), check_crcs=False)
    records.decode(["offset"])
    assert records.fault is None


@pytest.mark.parametrize("magic", [0, 1])
def test_R08_old_message_set_is_a_fault_that_says_so(magic: int) -> None:
    old = plain.encode(ROWS, base_offset=10)
    old = old[:16] + bytes([magic]) + old[17:]
    records = fetched(plain.encode(ROWS) + old)
    assert f"orders-3 at offset 10: magic {magic} is a message set" in str(records.fault)
    assert (records.next_offset, len(offsets(records))) == (10, 10)


def test_broken_record_keeps_the_records_before() -> None:
    batch = bytearray(plain.encode(ROWS))
    at = batch.index(b"value 5") - 1
    batch[at] = 0x7F  # the size of the value
    records = fetched(plain.with_crc(bytes(batch)))
    for layout in ("copy", "view"):
        (chunk,) = records.decode(["offset", "value"], layout)
        assert chunk.row_count == 5
        assert "record 5 of the batch at offset 0: the value's size" in str(records.fault)
        assert records.position == 5
    assert offsets(records) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("columns", [[], ["offset"], ["leader_epoch"]])
@pytest.mark.parametrize("compression", plain.CODECS)
def test_impossible_count_makes_no_rows(compression: str, columns: list[str]) -> None:
    """Its header says all that is wanted, so that the records are not looked at."""
    count = 2**31 - 1
    batch = bytearray(plain.encode(ROWS, compression=compression))
    struct.pack_into(">i", batch, 23, count - 1)  # the last offset
    struct.pack_into(">i", batch, 57, count)
    records = fetched(plain.encode(ROWS) + plain.with_crc(bytes(batch)))
    assert sum(chunk.row_count for chunk in records.decode(columns)) == len(ROWS)
    assert f"{count} records cannot be in the batch at offset 0" in str(records.fault)


def test_broken_headers_before_the_position_are_no_fault() -> None:
    batch = bytearray(plain.encode([(None, b"v", (("name", b"x"),), 1), *ROWS]))
    batch[batch.index(b"name") - 1] = 0x7F  # the size of the header's key
    data = plain.with_crc(bytes(batch))
    later = fetched(data, from_offset=1)
    assert [chunk.row_count for chunk in later.decode(["headers"])] == [10]
    assert offsets(later) == list(range(1, 11))
    assert later.fault is None
    records = fetched(data)
    assert (records.decode(["headers"]), offsets(records)) == ([], [])
    assert "record 0 of the batch at offset 0: a header's key" in str(records.fault)


def _as_objects(records: FetchedRecords) -> None:
    assert records.take_records(ENOUGH)


def _as_columns(records: FetchedRecords) -> None:
    assert records.decode(["key", "value", "headers"])


@pytest.mark.parametrize("read", [_as_objects, _as_columns])
def test_small_answers_keep_the_gil(read: Callable[[FetchedRecords], None]) -> None:
    """From the headers to the records: beside a thread that computes, each time without it costs 5 ms."""
    small, large = plain.encode(ROWS), plain.encode([(None, bytes(1 << 20), (), 0)])
    with Rival() as rival:
        assert rival.turns_during(lambda: read(fetched(small))) == 0
        assert rival.had_a_turn_during(lambda: read(fetched(large)))


@pytest.mark.parametrize("compression", plain.CODECS[1:])
def test_broken_stream_names_the_codec(compression: str) -> None:
    batch = plain.encode(ROWS, compression=compression, base_offset=4)
    records = fetched(plain.with_crc(batch[:61] + b"\xff" * (len(batch) - 61)))
    assert records.decode(["value"]) == []
    assert f"{compression} records do not decompress" in str(records.fault)
    assert "seek to offset 14" in str(records.fault)


@pytest.mark.parametrize("compression", plain.CODECS[1:])
@pytest.mark.parametrize("layout", ["copy", "view"])
def test_R07_decompressed_size_is_bounded(compression: str, layout: Any) -> None:
    batch = plain.encode([(None, bytes(100_000), (), 0)], compression=compression)
    records = fetched(batch, max_decompressed_bytes=99_999)
    assert records.decode(["value"], layout) == []
    assert "max_decompressed_bytes" in str(records.fault)
    assert fetched(batch, max_decompressed_bytes=100_100).decode(["value"], layout) != []


def test_impossible_count_is_a_fault() -> None:
    batch = bytearray(plain.encode(ROWS))
    batch[57:61] = struct.pack(">i", 2**31 - 1)
    records = fetched(plain.with_crc(bytes(batch)))
    assert records.decode(["value"]) == []
    assert "2147483647 records cannot be in the batch" in str(records.fault)


@pytest.mark.parametrize("option", ["from_offset", "to_offset", "visible_end"])
def test_negative_offset_is_refused(option: str) -> None:
    with pytest.raises(ValueError, match=f"{option} must not be negative, got -1"):
        fetched(b"", **{option: -1})


def test_unknown_column_and_layout_are_refused() -> None:
    with pytest.raises(ValueError, match=r"columns must be of offset, .* got 'values'"):
        fetched(b"").decode(["values"])
    with pytest.raises(ValueError, match="layout must be 'copy' or 'view', got 'zero-copy'"):
        fetched(b"").decode(["value"], "zero-copy")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"columns must be of topic, .* got 'values'"):
        fetched_schema(["values"])


# A few records at a time


@pytest.mark.parametrize("compression", plain.CODECS)
def test_records_taken_a_few_at_a_time_move_the_position(compression: str) -> None:
    data = b"".join(plain.encode(ROWS, base_offset=base, compression=compression) for base in (0, 10, 25))
    records = fetched(data, from_offset=3)
    assert (records.position, records.is_used_up) == (3, False)
    found: list[int] = []
    while taken := [record.offset for record in records.take_records(4)]:
        found += taken
        if len(found) < 27:
            assert (len(taken), records.is_used_up, records.position) == (4, False, found[-1] + 1)
    assert found == [*range(3, 20), *range(25, 35)]
    assert (records.position, records.is_used_up, records.take_records(4)) == (35, True, [])


def test_R49_last_record_moves_the_position_past_the_invisible() -> None:
    """So that the lag of a reader that has all records is 0, and the memory can go at once."""
    data = transactional(0, 7) + marker(2, 7, COMMIT) + transactional(3, 8) + marker(5, 8)
    records = fetched(data, aborted=[(8, 3)])
    assert [record.offset for record in records.take_records(1)] == [0]
    assert (records.position, records.is_used_up) == (1, False)
    assert [record.offset for record in records.take_records(1)] == [1]
    assert (records.position, records.is_used_up) == (6, True)


def test_end_within_a_batch_ends_the_records() -> None:
    records = fetched(plain.encode(ROWS, offsets=range(0, 20, 2)), to_offset=7)
    assert [record.offset for record in records.take_records(4)] == [0, 2, 4, 6]
    assert (records.position, records.is_used_up) == (7, True)


def test_fault_ends_the_records_after_those_before_it() -> None:
    second = plain.encode(ROWS, base_offset=10)
    records = fetched(plain.encode(ROWS) + second[:-1] + bytes([second[-1] ^ 1]))
    assert [record.offset for record in records.take_records(9)] == list(range(9))
    assert (records.position, records.is_used_up, records.fault) == (9, False, None)
    assert [record.offset for record in records.take_records(9)] == [9]
    assert (records.position, records.is_used_up, records.take_records(1)) == (10, True, [])
    assert "orders-3 at offset 10: CRC-32C is" in str(records.fault)


def test_columns_are_all_whatever_was_taken() -> None:
    records = fetched(plain.encode(ROWS, compression="lz4"))
    assert len(records.take_records(3)) == 3
    assert [chunk.row_count for chunk in records.decode(["value"])] == [10]
    assert [record.offset for record in records.take_records(ENOUGH)] == list(range(3, 10))


def test_records_do_not_keep_the_frame() -> None:
    pool = FramePool()
    data = plain.encode(ROWS, compression="lz4")
    frame = pool.take(len(data))
    memoryview(frame)[:] = data
    records = fetched(memoryview(frame))
    del frame
    found = records.take_records(5)
    assert pool.used_bytes > 0
    del records  # in the middle of a batch
    assert pool.used_bytes == 0
    assert [(record.key, record.value, record.timestamp_ms) for record in found] == [
        (key, value, timestamp) for key, value, _, timestamp in ROWS[:5]
    ]


@pytest.mark.parametrize("count", [0, -1])
def test_taking_less_than_one_record_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"count must be at least 1, got {count}"):
        fetched(plain.encode(ROWS)).take_records(count)


def test_each_record_goes_to_one_of_the_threads_that_take() -> None:
    """One that comes while another is in a call is refused, and changes nothing."""
    data = b"".join(
        plain.encode(ROWS * 50, base_offset=base, compression="lz4") for base in range(0, 50_000, 500)
    )
    records = fetched(data)
    found: list[int] = []

    def take() -> None:
        while not records.is_used_up:
            with suppress(RuntimeError):
                found.extend(record.offset for record in records.take_records(700))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(50_000))
    assert (records.fault, records.position) == (None, 50_000)


# Columns


def test_R12_headers_of_batches_suffice_for_counts_and_offsets() -> None:
    """The records are bytes that no codec can read."""
    batch = plain.encode(ROWS, compression="zstd", base_offset=5)
    batch = plain.with_crc(batch[:61] + bytes(len(batch) - 61))
    records = fetched(batch, from_offset=7, to_offset=12)
    (chunk,) = records.decode(["offset", "timestamp_type", "leader_epoch"])
    assert fetched_batch(chunk, "orders", 3, ["offset"]).column(0).to_pylist() == [7, 8, 9, 10, 11]
    assert records.fault is None
    records.decode(["timestamp"])
    assert records.fault is not None


def test_count_of_a_compacted_batch_is_its_headers() -> None:
    batch = plain.encode(ROWS, compression="zstd", offsets=range(0, 20, 2), last_offset=30)
    batch = plain.with_crc(batch[:61] + bytes(len(batch) - 61))
    (chunk,) = fetched(batch).decode([])
    assert fetched_batch(chunk, "orders", 3, ()).num_rows == 10
    records = fetched(batch, from_offset=1)
    assert records.decode([]) == []
    assert records.fault is not None


def test_R09_log_append_time_needs_no_records() -> None:
    batch = plain.encode(ROWS, compression="zstd", log_append_time_ms=77)
    (chunk,) = fetched(plain.with_crc(batch[:61] + bytes(len(batch) - 61))).decode(["timestamp"])
    times = fetched_batch(chunk, "orders", 3, ["timestamp"]).column(0)
    assert times.cast(pa.int64()).to_pylist() == [77] * 10


def test_R13_chunks_have_one_timestamp_type() -> None:
    data = b"".join(
        plain.encode(ROWS[:2], base_offset=base, log_append_time_ms=stamp)
        for base, stamp in ((0, None), (2, None), (4, 9), (6, None))
    )
    for layout in ("copy", "view"):
        chunks = fetched(data).decode(["value"], layout)
        assert [(chunk.row_count, chunk.is_log_append_time) for chunk in chunks] == [
            *((4, False), (2, True), (2, False))
        ]


@pytest.mark.parametrize("compression", ["none", "lz4"])
@pytest.mark.parametrize("layout", ["copy", "view"])
def test_R13_large_chunks_are_split(compression: str, layout: Any) -> None:
    row: plain.Row = (b"key", b"\x5a" * 1_000_000, (("h", b"x"),), 1)
    data = b"".join(kbatch.encode([row] * 6, base_offset=n * 6, compression=compression) for n in range(8))
    chunks = fetched(data).decode(FETCHED_COLUMNS[2:], layout)
    assert len(chunks) > 1 or (compression == "none" and layout == "view")
    table = pa.Table.from_batches([fetched_batch(chunk, "orders", 3, FETCHED_COLUMNS) for chunk in chunks])
    table.validate(full=True)
    assert table["offset"].to_pylist() == list(range(48))
    assert set(table["value"].to_pylist()) == {row[1]}


def test_R14_views_keep_the_frame_and_only_they() -> None:
    pool = FramePool()
    batch = plain.encode([(None, b"long enough for a view", (), 1)] * 3)
    frame = pool.take(len(batch))
    memoryview(frame)[:] = batch
    records = fetched(memoryview(frame))
    del frame
    (copies,) = records.decode(["value"])
    (views,) = records.decode(["value"], "view")
    del records
    assert pool.used_bytes > 0
    column = fetched_batch(views, "orders", 3, ["value"]).column(0)
    del views
    assert pool.used_bytes > 0
    assert column.to_pylist() == [b"long enough for a view"] * 3
    del column
    assert pool.used_bytes == 0
    assert fetched_batch(copies, "orders", 3, ["value"]).num_rows == 3


def test_schema_is_that_of_the_batches() -> None:
    for as_views, layout in ((False, "copy"), (True, "view")):
        (chunk,) = fetched(plain.encode(ROWS)).decode(FETCHED_COLUMNS[2:], layout)  # type: ignore[arg-type]
        batch = fetched_batch(chunk, "orders", 3, FETCHED_COLUMNS)
        assert batch.schema == fetched_schema(FETCHED_COLUMNS, as_views=as_views)
        assert batch.schema.field("value").type == (pa.binary_view() if as_views else pa.binary())


@pytest.mark.slow
@pytest.mark.parametrize("compression", plain.CODECS)
def test_threads_decode_alike(compression: str) -> None:
    data = b"".join(
        plain.encode(ROWS, base_offset=base, compression=compression) for base in range(0, 500, 10)
    )
    found: list[list[Any]] = []

    def decode() -> None:
        for _ in range(20):
            (chunk,) = fetched(data).decode(FETCHED_COLUMNS[2:])
            found.append(fetched_batch(chunk, "orders", 3, FETCHED_COLUMNS).to_pylist())

    threads = [threading.Thread(target=decode) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80
    assert all(rows == found[0] for rows in found)
