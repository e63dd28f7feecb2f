"""Log segments: the files against Kafka's rules restated here, and reading them back whole or damaged."""

import gc
import itertools
import mmap
import os
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kbatch
from kbatch import CorruptRecordError, IllegalStateError, SegmentWriter, read_segment
from kbatch.codec.segments import Segment, segment_name
from tests.oracle import plain

INT32_MAX = 2**31 - 1
ROW: plain.Row = (b"key", b"value", (), 1000)


def batch_of(count: int = 1, value_bytes: int = 10, timestamp_ms: int = 1000, **parameters: Any) -> bytes:
    rows: list[plain.Row] = [(b"k", bytes(value_bytes), (), timestamp_ms)] * count
    return plain.encode(rows, **parameters)


def write(directory: Path, batches: list[bytes], **limits: Any) -> list[Path]:
    with SegmentWriter(directory, "t", 0, **limits) as writer:
        for batch in batches:
            writer.append(batch)
    return writer.log_paths


class Placed(NamedTuple):
    position: int
    size: int
    last_offset: int
    max_timestamp_ms: int


def placed(log: bytes) -> list[Placed]:
    """Return the batches of a .log by their header fields, read without kbatch."""
    found, position = [], 0
    while position < len(log):
        fields = plain.HEADER.unpack_from(log, position)
        size = fields[1] + plain.LOG_OVERHEAD
        found.append(Placed(position, size, fields[0] + fields[6], fields[8]))
        position += size
    return found


Entries = list[tuple[int, int]]


def rebuilt_indexes(base_offset: int, log: list[Placed], interval: int) -> tuple[Entries, Entries]:
    """Return the indexes that a broker rebuilds from a .log (LogSegment.recover), but for the last entry."""
    offsets: Entries = []
    times: Entries = []
    largest, largest_at, last_entry = -1, base_offset, 0
    for batch in log:
        if batch.max_timestamp_ms > largest:
            largest, largest_at = batch.max_timestamp_ms, batch.last_offset
        if batch.position - last_entry > interval:
            offsets.append((batch.last_offset - base_offset, batch.position))
            add_time(times, largest, largest_at - base_offset)
            last_entry = batch.position
    return offsets, times


def add_time(times: Entries, timestamp_ms: int, relative_offset: int) -> None:
    if timestamp_ms > (times[-1][0] if times else -1):
        times.append((timestamp_ms, relative_offset))


def closing_entry(base_offset: int, log: list[Placed]) -> tuple[int, int]:
    largest = max((batch.max_timestamp_ms for batch in log), default=-1)
    first = next((batch for batch in log if batch.max_timestamp_ms == largest), None)
    return largest, (first.last_offset - base_offset if first else 0)


batches_strategy = st.lists(
    st.builds(
        batch_of,
        count=st.integers(1, 4),
        value_bytes=st.integers(0, 300),
        timestamp_ms=st.integers(-1, 50),
        base_offset=st.integers(0, 1000),
    ),
    max_size=40,
)


@pytest.mark.slow
@settings(deadline=None)
@given(
    batches=batches_strategy,
    segment_bytes=st.integers(2000, 20_000),
    index_bytes=st.integers(24, 80),
    index_interval_bytes=st.integers(0, 2000),
)
def test_files_follow_kafkas_rules(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[bytes],
    segment_bytes: int,
    index_bytes: int,
    index_interval_bytes: int,
) -> None:
    directory = tmp_path_factory.mktemp("log")
    firsts = []
    limits: dict[str, Any] = {"segment_bytes": segment_bytes, "index_bytes": index_bytes}
    with SegmentWriter(directory, "t", 3, **limits, index_interval_bytes=index_interval_bytes) as writer:
        firsts += [writer.append(batch) for batch in batches]
    logs = writer.log_paths
    assert logs == sorted((directory / "t-3").glob("*.log"))

    read = [batch for log in logs for batch in read_segment(log)]
    assert [bytes(batch)[8:] for batch in read] == [batch[8:] for batch in batches]
    assert [batch.base_offset for batch in read] == firsts
    assert [after.base_offset for after in read[1:]] == [before.last_offset + 1 for before in read[:-1]]
    assert writer.next_offset == (read[-1].last_offset + 1 if read else 0)

    def is_full(offsets: Entries, times: Entries) -> bool:
        return len(offsets) >= index_bytes // 8 or len(times) >= index_bytes // 12 - 1

    for log, following in zip(logs, [*logs[1:], None], strict=True):
        base_offset, content = int(log.stem), placed(log.read_bytes())
        offsets, times = rebuilt_indexes(base_offset, content, index_interval_bytes)
        was_full = is_full(offsets, times)
        add_time(times, *closing_entry(base_offset, content))
        assert list(struct.iter_unpack(">ii", log.with_suffix(".index").read_bytes())) == offsets
        assert list(struct.iter_unpack(">qi", log.with_suffix(".timeindex").read_bytes())) == times
        size = log.stat().st_size
        assert size <= segment_bytes
        assert len(times) * 12 <= index_bytes
        if len(content) > 1:
            before = rebuilt_indexes(base_offset, content[:-1], index_interval_bytes)
            assert not is_full(*before), "the last batch belonged to another segment"
        if following:
            assert int(following.stem) == content[-1].last_offset + 1
            assert was_full or size + placed(following.read_bytes())[0].size > segment_bytes, "it ended early"


@pytest.mark.slow
@settings(deadline=None)
@given(batches=batches_strategy.filter(len), data=st.data())
def test_torn_tail_ends_the_reading(
    tmp_path_factory: pytest.TempPathFactory, batches: list[bytes], data: st.DataObject
) -> None:
    (path,) = write(tmp_path_factory.mktemp("log"), batches)
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)), label="cut")
    zeros = data.draw(st.sampled_from([0, 1, 11, 12, 60, 61, 5000]), label="zeros")
    ends = [batch.position + batch.size for batch in placed(whole)]
    if zeros:  # a file that was extended but not written: zeros begin between two batches
        cut = max((end for end in ends if end <= cut), default=0)
    path.write_bytes(whole[:cut] + bytes(zeros))
    assert len(list(read_segment(path))) == sum(end <= cut for end in ends)


@pytest.mark.slow
@settings(deadline=None)
@given(batches=batches_strategy.filter(len), data=st.data())
def test_changed_bit_is_found(
    tmp_path_factory: pytest.TempPathFactory, batches: list[bytes], data: st.DataObject
) -> None:
    (path,) = write(tmp_path_factory.mktemp("log"), batches)
    log = bytearray(path.read_bytes())
    number = data.draw(st.integers(0, len(batches) - 1), label="batch")
    hit = placed(bytes(log))[number]
    at = data.draw(st.integers(hit.position + 17, hit.position + hit.size - 1), label="byte")
    log[at] ^= 1 << data.draw(st.integers(0, 7), label="bit")
    path.write_bytes(log)

    reading = read_segment(path)
    for _ in range(number):
        next(reading)
    with pytest.raises(CorruptRecordError) as caught:
        next(reading)
    assert str(path) in str(caught.value)
    assert f"batch at byte {hit.position}: CRC" in str(caught.value)


def test_zeros_before_another_batch_are_not_a_tail(tmp_path: Path) -> None:
    (path,) = write(tmp_path, [batch_of()])
    path.write_bytes(path.read_bytes() + bytes(100) + batch_of())
    reading = read_segment(path)
    first = next(reading)
    with pytest.raises(CorruptRecordError, match=f"batch at byte {first.size_bytes}:"):
        next(reading)


def test_unchecked_crc_reads_what_is_there(tmp_path: Path) -> None:
    (path,) = write(tmp_path, [batch_of()])
    log = bytearray(path.read_bytes())
    log[17] ^= 1
    path.write_bytes(log)
    (batch,) = read_segment(path, check_crc=False)
    assert [record.value for record in batch] == [bytes(10)]


def test_empty_file_has_no_batches(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.touch()
    assert list(read_segment(path)) == []


def test_missing_file_is_raised_by_the_call(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_segment(tmp_path / "none.log")


def test_batches_keep_their_memory_map(tmp_path: Path) -> None:
    (path,) = write(tmp_path, [batch_of(3, value_bytes=100_000)] * 3)
    batches = list(read_segment(path))
    path.unlink()
    gc.collect()
    assert [len(record.value or b"") for batch in batches for record in batch] == [100_000] * 9


@pytest.mark.parametrize(
    ("topic", "noted"),
    [
        ("", "letter"),
        (".", "letter"),
        ("..", "letter"),
        ("a" * 250, "got 250"),
        ("a/b", "'/'"),
        ("a b", "' '"),
        ("é", "'é'"),
        ("new\nline", "n"),
    ],
)
def test_topic_that_kafka_refuses(tmp_path: Path, topic: str, noted: str) -> None:
    with pytest.raises(ValueError, match="topic") as caught:
        SegmentWriter(tmp_path, topic, 0)
    assert noted in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("topic", ["a", "a" * 249, "A.b_c-9", "...", "__consumer_offsets"])
def test_topic_that_kafka_takes(tmp_path: Path, topic: str) -> None:
    with SegmentWriter(tmp_path, topic, INT32_MAX if len(topic) < 240 else 0) as writer:
        assert writer.directory.parent == tmp_path


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("partition", -1),
        ("partition", 2**31),
        ("segment_bytes", 0),
        ("segment_bytes", 2**31),
        ("index_bytes", 23),
        ("index_interval_bytes", -1),
    ],
)
def test_number_out_of_range(tmp_path: Path, argument: str, value: int) -> None:
    arguments: dict[str, Any] = {"partition": 0, argument: value}
    with pytest.raises(ValueError, match=rf"{argument} must be .*, got {value}"):
        SegmentWriter(tmp_path, "t", **arguments)


def test_existing_segments_are_not_overwritten(tmp_path: Path) -> None:
    (path,) = write(tmp_path, [batch_of()])
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match="delete that folder first"):
        SegmentWriter(tmp_path, "t", 0)
    assert path.read_bytes() == before
    with SegmentWriter(tmp_path, "t", 1):
        pass


@pytest.mark.parametrize(
    ("data", "error", "noted"),
    [
        (b"", ValueError, "empty"),
        (batch_of()[:-1], CorruptRecordError, "cut off"),
        (batch_of()[:10], CorruptRecordError, "cut off"),
        (batch_of() + batch_of(), ValueError, "one batch per call"),
        (batch_of()[:16] + b"\x01" + batch_of()[17:], CorruptRecordError, "magic 1"),
        (batch_of()[:-1] + b"\xff", CorruptRecordError, "CRC"),
        (batch_of(value_bytes=5000), ValueError, "raise segment_bytes"),
    ],
    ids=["empty", "cut", "cut header", "two", "magic", "crc", "large"],
)
def test_refused_batch_leaves_no_trace(
    tmp_path: Path, data: bytes, error: type[Exception], noted: str
) -> None:
    with SegmentWriter(tmp_path, "t", 0, segment_bytes=1000) as writer:
        assert writer.append(batch_of()) == 0
        with pytest.raises(error, match=noted):
            writer.append(data)
        assert writer.append(batch_of()) == 1
    assert [batch.base_offset for batch in read_segment(*writer.log_paths)] == [0, 1]


def test_not_bytes(tmp_path: Path) -> None:
    with SegmentWriter(tmp_path, "t", 0) as writer, pytest.raises(TypeError, match="bytes-like"):
        writer.append("text")  # type: ignore[arg-type]


def test_any_buffer_is_taken_and_left_as_it_was(tmp_path: Path) -> None:
    batch = batch_of(base_offset=77)
    mapped = mmap.mmap(-1, len(batch))
    mapped.write(batch)
    with SegmentWriter(tmp_path, "t", 0) as writer:
        for data in (batch, bytearray(batch), memoryview(batch), mapped):
            writer.append(data)
            assert bytes(data) == batch
    assert [batch.base_offset for batch in read_segment(*writer.log_paths)] == [0, 1, 2, 3]


def test_compacted_batches_keep_their_gaps(tmp_path: Path) -> None:
    sparse = plain.encode([ROW, ROW], offsets=[3, 8], last_offset=9)
    with SegmentWriter(tmp_path, "t", 0) as writer:
        assert [writer.append(data) for data in (batch_of(), sparse, batch_of())] == [0, 1, 11]
    offsets = [record.offset for batch in read_segment(*writer.log_paths) for record in batch]
    assert offsets == [0, 4, 9, 11]


def test_segment_may_be_filled_to_the_last_byte(tmp_path: Path) -> None:
    logs = write(tmp_path, [batch_of()] * 3, segment_bytes=2 * len(batch_of()))
    assert [int(log.stem) for log in logs] == [0, 2]


def test_offset_beyond_int32_begins_a_segment(tmp_path: Path) -> None:
    huge = plain.encode([ROW], last_offset=INT32_MAX)
    logs = write(tmp_path, [huge, batch_of(), huge], index_interval_bytes=0)
    assert [int(log.stem) for log in logs] == [0, 2**31, 2**31 + 1]


def test_nothing_appended_leaves_an_empty_segment(tmp_path: Path) -> None:
    (log,) = write(tmp_path, [])
    assert [log.with_suffix(suffix).stat().st_size for suffix in (".log", ".index", ".timeindex")] == [
        0,
        0,
        0,
    ]


def test_records_without_timestamp_are_not_in_the_time_index(tmp_path: Path) -> None:
    (log,) = write(tmp_path, [batch_of(timestamp_ms=-1)] * 3, index_interval_bytes=0)
    assert log.with_suffix(".timeindex").read_bytes() == b""
    assert len(log.with_suffix(".index").read_bytes()) == 2 * 8


def test_exception_in_the_block_keeps_what_was_appended(tmp_path: Path) -> None:
    with pytest.raises(KeyError), SegmentWriter(tmp_path, "t", 0) as writer:
        writer.append(batch_of())
        raise KeyError
    assert len(list(read_segment(*writer.log_paths))) == 1


def test_closed_writer(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, "t", 0)
    writer.close()
    writer.close()
    with pytest.raises(IllegalStateError, match="closed"):
        writer.append(batch_of())


def test_close_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor)))
    (log,) = write(tmp_path, [batch_of()])
    files = [log, log.with_suffix(".index"), log.with_suffix(".timeindex")]
    assert [(stat.st_ino, stat.st_size) for stat in synced[:3]] == [
        (file.stat().st_ino, file.stat().st_size) for file in files
    ], "each file, when all of it was written"
    assert synced[3].st_ino == log.parent.stat().st_ino


def test_full_disk_ends_the_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with SegmentWriter(tmp_path, "t", 0) as writer:
        writer.append(batch_of())
        with monkeypatch.context() as patch:
            patch.setattr("kbatch.codec.segments.Segment.append", full)
            with pytest.raises(OSError, match="No space left"):
                writer.append(batch_of())
        with pytest.raises(IllegalStateError, match="No space left"):
            writer.append(batch_of())


def test_kbatch_batches_are_taken(tmp_path: Path) -> None:
    records = [(b"k", b"v" * 50, [("h", None)], 1000 + n) for n in range(20)]
    with kbatch.SegmentWriter(tmp_path, "t", 0) as writer:
        for compression in plain.CODECS:
            writer.append(kbatch.encode(records, compression=compression))
    read = [(record.key, record.value) for batch in read_segment(*writer.log_paths) for record in batch]
    assert len(read) == 20 * len(plain.CODECS)
    assert set(read) == {(b"k", b"v" * 50)}


# Continuing after existing batches


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*/*")}


@pytest.mark.slow
@settings(deadline=None)
@given(batches=batches_strategy, stops=st.lists(st.integers(0, 40), max_size=3), data=st.data())
def test_resumed_files_are_those_of_one_writer(
    tmp_path_factory: pytest.TempPathFactory, batches: list[bytes], stops: list[int], data: st.DataObject
) -> None:
    limits = {
        "segment_bytes": data.draw(st.integers(2000, 20_000), label="segment_bytes"),
        "index_bytes": data.draw(st.integers(24, 80), label="index_bytes"),
        "index_interval_bytes": data.draw(st.integers(0, 2000), label="index_interval_bytes"),
    }
    at_once, resumed = tmp_path_factory.mktemp("once"), tmp_path_factory.mktemp("resumed")
    paths = write(at_once, batches, **limits)
    for start, stop in itertools.pairwise([0, *sorted(stops), len(batches)]):
        with SegmentWriter(resumed, "t", 0, **limits, resume=True) as writer:
            assert writer.next_offset == sum(plain.HEADER.unpack_from(batch)[12] for batch in batches[:start])
            assert writer.torn_bytes == 0
            for batch in batches[start:stop]:
                writer.append(batch)
    assert [path.name for path in writer.log_paths] == [path.name for path in paths]
    assert contents(resumed) == contents(at_once)


LARGE = plain.encode([(b"k", b"v" * 5000, (), 1000)])
BATCHES = [batch_of(count, timestamp_ms=1000 + count) for count in (1, 3, 2, 1)]


@pytest.mark.slow
def test_tail_cut_at_every_byte_is_cut_off(tmp_path: Path) -> None:
    (path,) = write(tmp_path / "whole", BATCHES, index_interval_bytes=0)
    whole = contents(tmp_path / "whole")
    ends = [0, *(batch.position + batch.size for batch in placed(path.read_bytes()))]
    expected = {}
    for count in range(len(BATCHES) + 1):
        write(tmp_path / str(count), [*BATCHES[:count], batch_of()], index_interval_bytes=0)
        expected[ends[count]] = contents(tmp_path / str(count))
    torn = tmp_path / "torn" / "t-0"
    torn.mkdir(parents=True)
    for cut in range(ends[-1] + 1):
        for name, content in whole.items():
            (torn / name).write_bytes(content[:cut] if name.endswith(".log") else content)
        end = max(end for end in ends if end <= cut)
        with SegmentWriter(tmp_path / "torn", "t", 0, index_interval_bytes=0, resume=True) as writer:
            assert writer.torn_bytes == cut - end
            writer.append(batch_of())
        assert contents(tmp_path / "torn") == expected[end], cut


def index_missing(log: Path) -> None:
    log.with_suffix(".index").unlink()


def index_damaged(log: Path) -> None:
    log.with_suffix(".index").write_bytes(bytes(8) + log.with_suffix(".index").read_bytes()[8:])


def indexes_preallocated(log: Path) -> None:
    """Extend the indexes with zeros, as a broker has them while it writes."""
    for suffix in (".index", ".timeindex"):
        log.with_suffix(suffix).write_bytes(log.with_suffix(suffix).read_bytes() + bytes(10_000))


def indexes_behind(log: Path) -> None:
    """Cut the indexes, as a killed writer leaves them."""
    for suffix in (".index", ".timeindex"):
        log.with_suffix(suffix).write_bytes(log.with_suffix(suffix).read_bytes()[:13])


@pytest.mark.parametrize("damage", [index_missing, index_damaged, indexes_preallocated, indexes_behind])
def test_indexes_that_do_not_match_are_written_anew(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    (path,) = write(tmp_path, BATCHES, index_interval_bytes=0)
    before = contents(tmp_path)
    damage(path)
    assert contents(tmp_path) != before
    SegmentWriter(tmp_path, "t", 0, index_interval_bytes=0, resume=True).close()
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "tail",
    [
        bytes(1),
        bytes(5000),
        LARGE[:-4000] + bytes(4000),
        LARGE[:-1] + b"\1" + bytes(12),
        batch_of()[:20],
    ],
    ids=["a zero", "zeros", "half a batch and zeros", "a broken batch and zeros", "a header cut off"],
)
def test_tails_of_a_power_cut_are_cut_off(tmp_path: Path, tail: bytes) -> None:
    (path,) = write(tmp_path, BATCHES)
    before = contents(tmp_path)
    path.write_bytes(path.read_bytes() + tail)
    with SegmentWriter(tmp_path, "t", 0, resume=True) as writer:
        assert writer.torn_bytes == len(tail)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("tail", [batch_of()[:-1] + b"\xff" + batch_of(), bytes(100) + b"\1"])
def test_damage_before_the_end_is_an_error_and_changes_nothing(tmp_path: Path, tail: bytes) -> None:
    (path,) = write(tmp_path, BATCHES)
    path.write_bytes(path.read_bytes() + tail)
    path.with_suffix(".index").unlink()
    before = contents(tmp_path)
    with pytest.raises(CorruptRecordError, match=str(path)):
        SegmentWriter(tmp_path, "t", 0, resume=True)
    assert contents(tmp_path) == before


def test_nothing_there_to_resume_is_a_beginning(tmp_path: Path) -> None:
    for count in range(3):
        with SegmentWriter(tmp_path, "t", 0, resume=True) as writer:
            assert writer.next_offset == count
            assert writer.append(batch_of()) == count


def test_segment_that_was_closed_must_be_whole(tmp_path: Path) -> None:
    (path,) = write(tmp_path, BATCHES)
    before = contents(tmp_path)
    segment = Segment.reopen(path, was_closed=True)
    assert contents(tmp_path) == before, "nothing is written that is there"
    segment.close()
    assert contents(tmp_path) == before
    path.write_bytes(path.read_bytes()[:-1])
    torn = contents(tmp_path)
    with pytest.raises(CorruptRecordError, match="are not a whole batch"):
        Segment.reopen(path, was_closed=True)
    assert contents(tmp_path) == torn


def test_write_through_leaves_nothing_to_be_lost(tmp_path: Path) -> None:
    """A killed process leaves the files as they are while it lives."""
    path = tmp_path / segment_name(0)
    segment = Segment.create(path, index_interval_bytes=0, write_through=True)
    written = b""
    for number, batch in enumerate(BATCHES):
        segment.append([batch[:10], batch[10:]], number, 1000 + number)
        written += batch
        assert path.read_bytes() == written
        assert len(path.with_suffix(".index").read_bytes()) == 8 * number
        assert len(path.with_suffix(".timeindex").read_bytes()) == 12 * number
    segment.close()


def test_short_writes_are_carried_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = Segment.create(tmp_path / segment_name(0), write_through=True)
    write_some = segment._log.write
    with monkeypatch.context() as patch:
        patch.setattr(segment, "_log", SimpleNamespace(write=lambda data: write_some(data[:7])))
        segment.append(BATCHES[:1], 0, 1000)
    segment.close()
    assert segment.log_path.read_bytes() == BATCHES[0]
