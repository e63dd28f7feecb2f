"""PartitionLog, in memory and on disk: offsets, times, epochs, retention, compaction, and recovery."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch import CorruptRecordError, IllegalStateError, RecordBatch, decode
from kbatch.testing.broker.logs.partition_log import FoundOffset, LeaderEpochs, PartitionLog
from kbatch.testing.broker.logs.topic_config import TopicConfig
from tests import ROOT
from tests.oracle import plain

NEVER = 10**15
OpenLog = Callable[..., PartitionLog]


def config(**overrides: Any) -> TopicConfig:
    return TopicConfig({name.replace("_", "."): str(value) for name, value in overrides.items()})


@pytest.fixture(params=["memory", "disk"])
def open_log(request: pytest.FixtureRequest, tmp_path: Path) -> OpenLog:
    def opened(**overrides: Any) -> PartitionLog:
        return PartitionLog(tmp_path / "t-0" if request.param == "disk" else None, config(**overrides))

    return opened


def add(
    log: PartitionLog, *timestamps_ms: int, epoch: int = 0, now_ms: int = 0, value: bytes = b"value"
) -> bytes:
    rows: list[plain.Row] = [(b"key", value, (), timestamp_ms) for timestamp_ms in timestamps_ms or (1000,)]
    return add_batch(log, rows, epoch=epoch, now_ms=now_ms)


def add_batch(
    log: PartitionLog, rows: list[plain.Row], *, epoch: int = 0, now_ms: int = 0, **parameters: Any
) -> bytes:
    batch = plain.encode(rows, base_offset=log.end_offset, partition_leader_epoch=epoch, **parameters)
    log.append(batch, now_ms=now_ms)
    return batch


def read_all(log: PartitionLog) -> list[bytes]:
    return [bytes(view) for view in log.read(log.start_offset, NEVER, NEVER)]


def records(log: PartitionLog) -> list[tuple[int, Any, Any]]:
    return [(record.offset, record.key, record.value) for batch in log.batches() for record in batch]


# Offsets


@settings(deadline=None, max_examples=40)
@given(
    counts=st.lists(st.integers(1, 4), max_size=6),
    segment_batches=st.integers(1, 5),
    max_bytes=st.sampled_from([0, 85, 170, 300, NEVER]),
    at_least_one=st.booleans(),
    on_disk=st.booleans(),
)
def test_read_gives_the_whole_batches_that_fit(
    tmp_path_factory: pytest.TempPathFactory,
    counts: list[int],
    segment_batches: int,
    max_bytes: int,
    at_least_one: bool,
    on_disk: bool,
) -> None:
    directory = tmp_path_factory.mktemp("log") if on_disk else None
    log = PartitionLog(directory, config(internal_segment_bytes=100 * segment_batches))
    batches = [add(log, *[1000] * count) for count in counts]
    ends = [sum(counts[: number + 1]) for number in range(len(counts))]
    assert log.end_offset == sum(counts)
    assert log.size_bytes == sum(map(len, batches))
    for offset in range(log.end_offset + 2):
        following = [(batch, end) for batch, end in zip(batches, ends, strict=True) if end > offset]
        assert [bytes(batch) for batch in log.batches(offset)] == [batch for batch, _ in following]
        for limit in [0, *ends]:
            expected: list[bytes] = []
            for batch, end in following:
                fits = sum(map(len, expected)) + len(batch) <= max_bytes
                if end > limit or not (fits or (at_least_one and not expected)):
                    break
                expected.append(batch)
            found = log.read(offset, max_bytes, limit, at_least_one=at_least_one)
            assert [bytes(view) for view in found] == expected


def test_reading_copies_nothing_and_what_was_read_stays(open_log: OpenLog) -> None:
    log = open_log(retention_ms=0)
    batch = add(log)
    (view,) = log.read(0, NEVER, NEVER)
    (again,) = log.read(0, NEVER, NEVER)
    assert view.obj is again.obj, "the same memory"
    assert view.readonly
    add(log, value=bytes(10_000))
    (held,) = log.batches(1)
    assert log.delete_old_segments(NEVER, NEVER) == 1
    log.close()
    assert bytes(view) == batch
    assert [record.value for record in held] == [bytes(10_000)]


@pytest.mark.parametrize("base_offset", [0, 2, 77])
def test_batch_out_of_turn_is_refused(open_log: OpenLog, base_offset: int) -> None:
    log = open_log()
    add(log)
    with pytest.raises(ValueError, match=f"must have offset 1, got {base_offset}"):
        log.append(plain.encode([(b"k", b"v", (), 1)], base_offset=base_offset), now_ms=0)
    assert len(read_all(log)) == 1


# Segments


def test_segment_ends_before_the_batch_that_would_be_too_much(open_log: OpenLog) -> None:
    size = len(add(PartitionLog()))
    log = open_log(internal_segment_bytes=2 * size)
    for _ in range(5):
        add(log)
    assert log.segment_base_offsets == [0, 2, 4]
    add(log, value=bytes(3 * size))
    assert log.segment_base_offsets == [0, 2, 4, 5], "one that is larger has its own"


def test_segment_ends_by_the_timestamps_of_its_batches(open_log: OpenLog) -> None:
    log = open_log(segment_ms=100)
    for timestamp_ms in (1000, 1100, 900, 1101, 1201, 1202):
        add(log, timestamp_ms, now_ms=10**9)
    assert log.segment_base_offsets == [0, 3, 5]


def test_segment_ends_by_the_clock_where_batches_have_no_time(open_log: OpenLog) -> None:
    log = open_log(segment_ms=100)
    for now_ms in (50, 100, 101, 200, 202):
        add(log, -1, now_ms=now_ms)
    assert log.segment_base_offsets == [0, 2, 4]


def test_append_reports_a_new_segment(open_log: OpenLog) -> None:
    log = open_log(internal_segment_bytes=100)
    assert [
        log.append(plain.encode([(b"k", b"v", (), 1)], base_offset=offset), now_ms=0) for offset in range(3)
    ] == [False, True, True]


def test_an_empty_segment_is_not_closed(open_log: OpenLog) -> None:
    log = open_log()
    log.roll(0)
    assert log.segment_base_offsets == [0]
    add(log)
    log.roll(0)
    log.roll(0)
    assert log.segment_base_offsets == [0, 1]


# Times


timestamp_lists = st.lists(st.lists(st.integers(-1, 9), min_size=1, max_size=3), max_size=8)


@settings(deadline=None)
@given(
    batches=timestamp_lists,
    start_offset=st.integers(0, 8),
    timestamp_ms=st.integers(-1, 11),
    on_disk=st.booleans(),
)
def test_offset_by_time_is_that_of_the_first_record_as_late(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[int]],
    start_offset: int,
    timestamp_ms: int,
    on_disk: bool,
) -> None:
    log = PartitionLog(
        tmp_path_factory.mktemp("log") if on_disk else None, config(internal_segment_bytes=150)
    )
    for epoch, timestamps_ms in enumerate(batches):
        add(log, *timestamps_ms, epoch=epoch)
    start_offset = min(start_offset, log.end_offset)
    log.delete_records_before(start_offset)
    flat = [(ms, epoch) for epoch, timestamps_ms in enumerate(batches) for ms in timestamps_ms]
    placed = [FoundOffset(ms, offset, epoch) for offset, (ms, epoch) in enumerate(flat)]
    late = (found for found in placed if found.offset >= start_offset and found.timestamp_ms >= timestamp_ms)
    assert log.offset_for_timestamp(timestamp_ms) == next(late, None)
    largest = max((found.timestamp_ms for found in placed), default=None)
    assert log.offset_of_max_timestamp() == next(
        (found for found in placed if found.timestamp_ms == largest), None
    )


# Retention


def test_size_beyond_retention_bytes_goes_a_segment_at_a_time(open_log: OpenLog) -> None:
    size = len(add(PartitionLog()))
    log = open_log(internal_segment_bytes=2 * size, retention_bytes=3 * size, retention_ms=-1)
    for _ in range(7):
        add(log)
    assert log.delete_old_segments(0, NEVER) == 2
    assert log.segment_base_offsets == [4, 6]
    assert log.start_offset == 4
    assert log.size_bytes == 3 * size
    assert log.delete_old_segments(0, NEVER) == 0


def test_age_beyond_retention_ms_is_that_of_the_latest_record(open_log: OpenLog) -> None:
    log = open_log(internal_segment_bytes=1, retention_ms=100)
    for timestamp_ms in (1000, 1050, 900, 1100):
        add(log, timestamp_ms, now_ms=0)
    assert log.delete_old_segments(1100, NEVER) == 0
    assert log.delete_old_segments(1101, NEVER) == 1
    assert log.delete_old_segments(1150, NEVER) == 0
    assert log.delete_old_segments(1151, NEVER) == 2, "a young segment in front kept an old one"
    assert log.delete_old_segments(1201, NEVER) == 1, "the last one goes too"
    assert (log.start_offset, log.end_offset, read_all(log)) == (4, 4, [])
    add(log, 1300)
    assert [batch.base_offset for batch in log.batches()] == [4]


def test_segment_without_times_is_as_old_as_its_last_batch(open_log: OpenLog) -> None:
    log = open_log(retention_ms=100)
    add(log, -1, now_ms=10**12)
    assert log.delete_old_segments(10**12 + 100, NEVER) == 0
    assert log.delete_old_segments(10**12 + 101, NEVER) == 1


def test_nothing_at_or_after_the_high_watermark_is_deleted(open_log: OpenLog) -> None:
    log = open_log(internal_segment_bytes=1, retention_ms=0)
    for _ in range(4):
        add(log)
    assert log.delete_old_segments(NEVER, 2) == 2
    assert log.start_offset == 2


@pytest.mark.parametrize("policy", ["compact", ""])
def test_without_the_policy_only_deleted_records_go(open_log: OpenLog, policy: str) -> None:
    log = open_log(internal_segment_bytes=1, retention_ms=0, retention_bytes=0, cleanup_policy=policy)
    for _ in range(3):
        add(log)
    assert log.delete_old_segments(NEVER, NEVER) == 0
    log.delete_records_before(2)
    assert log.delete_old_segments(NEVER, NEVER) == 2
    log.delete_records_before(3)
    assert log.delete_old_segments(NEVER, NEVER) == 0, "the last segment stays"


def test_deleted_records_stay_deleted(tmp_path: Path) -> None:
    log = PartitionLog(tmp_path)
    add(log, 1, 2, 3)
    log.delete_records_before(2)
    log.delete_records_before(1)
    assert log.start_offset == 2
    log.close()
    again = PartitionLog(tmp_path)
    assert (again.start_offset, again.end_offset) == (2, 3)
    assert len(again.read(2, NEVER, NEVER)) == 1, "the batch is whole"


def test_files_of_a_deleted_segment_go(tmp_path: Path) -> None:
    log = PartitionLog(tmp_path, config(internal_segment_bytes=1, retention_ms=0))
    add(log)
    add(log)
    (tmp_path / f"{0:020d}.snapshot").touch()
    log.delete_old_segments(NEVER, 1)
    assert {path.stem for path in tmp_path.glob("0*")} == {f"{1:020d}"}


# Leader epochs


@pytest.mark.parametrize(
    ("asked", "answer"), [(-1, (-1, -1)), (0, (0, 3)), (1, (1, 7)), (2, (1, 7)), (3, (3, 9)), (4, (-1, -1))]
)
def test_end_of_a_leader_epoch(asked: int, answer: tuple[int, int]) -> None:
    epochs = LeaderEpochs()
    epochs.assign(1, 3)
    epochs.assign(3, 7)
    assert epochs.end_offset_for(asked, 9) == answer


def test_epoch_that_wrote_nothing_gives_way() -> None:
    epochs = LeaderEpochs()
    for epoch, start_offset in ((0, 0), (1, 5), (2, 5), (1, 9)):
        epochs.assign(epoch, start_offset)
    assert epochs.entries == [(0, 0), (2, 5)]
    assert [epochs.epoch_at(offset) for offset in (0, 4, 5, 99)] == [0, 0, 2, 2]


def test_epochs_follow_the_start_of_the_log(open_log: OpenLog) -> None:
    log = open_log()
    for epoch in (1, 1, 4, 6):
        add(log, epoch=epoch)
    log.delete_records_before(1)
    assert log.leader_epochs.entries == [(1, 1), (4, 2), (6, 3)]
    log.delete_records_before(3)
    assert log.leader_epochs.entries == [(6, 3)]


def test_epochs_are_kept_as_kafka_keeps_them(tmp_path: Path) -> None:
    log = PartitionLog(tmp_path)
    add(log, epoch=1)
    add(log, epoch=4)
    log.leader_epochs.assign(5, 2)
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n3\n1 0\n4 1\n5 2\n"
    assert PartitionLog(tmp_path).leader_epochs.entries == [(1, 0), (4, 1)], "an epoch without data is gone"


def test_epochs_that_were_not_kept_are_read_from_the_log(tmp_path: Path) -> None:
    log = PartitionLog(tmp_path)
    add(log, epoch=1)
    add(log, epoch=4)
    log.close()
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n1\n1 0\n")
    assert PartitionLog(tmp_path).leader_epochs.entries == [(1, 0), (4, 1)]


@pytest.mark.parametrize("content", ["", "1\n0\n", "0\n2\n1 0\n", "0\n1\none 0\n"])
def test_checkpoint_that_is_none_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text(content)
    with pytest.raises(CorruptRecordError, match=str(path)):
        PartitionLog(tmp_path)


# Recovery


def test_log_is_found_again_whatever_byte_its_writing_ended_at(tmp_path: Path) -> None:
    log = PartitionLog(tmp_path / "whole", config(internal_segment_bytes=250, index_interval_bytes=0))
    batches = [add(log, *range(count), epoch=count) for count in (1, 2, 1, 3, 2, 1)]
    last = sorted((tmp_path / "whole").glob("*.log"))[-1]
    assert len(log.segment_base_offsets) == 3
    before = len(batches) - len(placed(last.read_bytes()))
    ends = [0]
    for batch in batches[before:]:
        ends.append(ends[-1] + len(batch))
    files = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
    torn = tmp_path / "torn"
    torn.mkdir()
    for cut in range(ends[-1] + 1):
        for name, content in files.items():
            (torn / name).write_bytes(content[:cut] if name == last.name else content)
        kept = batches[: before + sum(end <= cut for end in ends[1:])]
        again = PartitionLog(torn, config(internal_segment_bytes=250, index_interval_bytes=0))
        assert read_all(again) == kept
        epochs = dict.fromkeys(batch.partition_leader_epoch for batch in again.batches())
        assert again.leader_epochs.latest == max(epochs)
        assert [*read_all(again), add(again, epoch=9)] == read_all(again)


def placed(log: bytes) -> list[RecordBatch]:
    return list(decode(log))


def test_acknowledged_batches_survive_the_death_of_the_process(tmp_path: Path) -> None:
    program = f"""
import os, signal, sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from tests.unit.testing.broker.logs.test_partition_log import PartitionLog, add, config
log = PartitionLog(Path({str(tmp_path)!r}), config(internal_segment_bytes=1000))
for number in range(100):
    add(log, number, epoch=number // 10)
print(log.end_offset, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "100\n"), done.stderr
    log = PartitionLog(tmp_path)
    assert [record[0] for record in records(log)] == list(range(100))
    assert log.leader_epochs.entries == [(epoch, 10 * epoch) for epoch in range(10)]


def test_segments_are_synced_when_full_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    log = PartitionLog(tmp_path, config(internal_segment_bytes=200))
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    add(log)
    inodes = [path.stat().st_ino for path in sorted(tmp_path.glob("*.log"))]
    synced.clear()
    add(log)
    assert inodes[0] not in synced
    add(log)
    assert inodes[0] in synced
    log.close()
    assert {path.stat().st_ino for path in tmp_path.glob("*.log")} <= set(synced)
    assert synced[-1] == tmp_path.stat().st_ino


def test_damage_is_named_and_nothing_is_lost(tmp_path: Path) -> None:
    log = PartitionLog(tmp_path, config(internal_segment_bytes=1))
    for _ in range(2):
        add(log)
    log.close()
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptRecordError, match=str(path)):
        PartitionLog(tmp_path)


def test_left_overs_are_cleared_away(tmp_path: Path) -> None:
    log = PartitionLog(tmp_path)
    add(log)
    log.close()
    expected = {path.name for path in tmp_path.iterdir()}
    for name in (f"{5:020d}.index", f"{5:020d}.txnindex", f"{0:020d}.log.cleaned"):
        (tmp_path / name).touch()
    PartitionLog(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == expected


def test_log_that_a_disk_refused_takes_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    log = PartitionLog(tmp_path)
    add(log)
    with monkeypatch.context() as patch:
        patch.setattr("kbatch.codec.segments.Segment.append", full)
        with pytest.raises(OSError, match="No space left"):
            add(log)
    with pytest.raises(IllegalStateError, match="open the log again"):
        add(log)
    assert len(read_all(log)) == 1


# Compaction

LONG_AGO = 1


def compact(log: PartitionLog, now_ms: int = LONG_AGO, **predicates: Any) -> None:
    nothing: dict[str, Any] = {"is_aborted": lambda _: False, "is_last_of_producer": lambda _: False}
    log.compact(now_ms, log.end_offset, **nothing | predicates)


@pytest.mark.slow
@settings(deadline=None)
@given(
    batches=st.lists(
        st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), min_size=1, max_size=4), max_size=10
    ),
    rolls=st.sets(st.integers(0, 9)),
    compression=st.sampled_from(plain.CODECS),
    on_disk=st.booleans(),
)
def test_newest_record_of_each_key_is_kept(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[tuple[str, bool]]],
    rolls: set[int],
    compression: str,
    on_disk: bool,
) -> None:
    directory = tmp_path_factory.mktemp("log") if on_disk else None
    log = PartitionLog(directory)
    for number, keys in enumerate(batches):
        rows: list[plain.Row] = [(key.encode(), None if gone else b"v", (), 5) for key, gone in keys]
        add_batch(log, rows, compression=compression, epoch=3)
        if number in rolls:
            log.roll(0)
    closed_end = log.segment_base_offsets[-1]
    before = records(log)
    newest = {key: offset for offset, key, _ in before if offset < closed_end}
    end_offset = log.end_offset
    compact(log)
    expected = [row for row in before if row[0] >= closed_end or newest[row[1]] == row[0]]
    assert records(log) == expected
    assert log.end_offset == end_offset
    for batch in log.batches():
        plain.decode(bytes(batch))
        assert batch.partition_leader_epoch == 3
        assert batch.compression == compression
    for offset, *_ in expected:
        (view,) = log.read(offset, 1, NEVER)
        assert offset in [record.offset for batch in decode(view) for record in batch]
    if directory is not None:
        log.close()
        assert records(PartitionLog(directory)) == expected
        assert not list(directory.glob("*.cleaned"))


def closed_log(open_log: OpenLog, *batches: list[plain.Row], **parameters: Any) -> PartitionLog:
    log = open_log(delete_retention_ms=100)
    for rows in batches:
        add_batch(log, rows, **parameters)
    log.roll(0)
    return log


def test_tombstone_stays_for_its_time(open_log: OpenLog) -> None:
    log = closed_log(open_log, [(b"a", b"1", (), 5), (b"b", b"1", (), 6), (b"a", None, (), 7)])
    compact(log, now_ms=1000)
    assert records(log) == [(1, b"b", b"1"), (2, b"a", None)]
    (batch,) = log.batches()
    assert batch.delete_horizon_ms == 1100
    assert [record.timestamp_ms for record in batch] == [6, 7]
    compact(log, now_ms=1099)
    assert len(records(log)) == 2
    compact(log, now_ms=1100)
    assert records(log) == [(1, b"b", b"1")]
    assert (next(log.batches()).base_offset, next(log.batches()).last_offset) == (0, 2)


def test_records_without_key_go(open_log: OpenLog) -> None:
    log = closed_log(open_log, [(None, b"1", (), 5)], [(b"a", b"2", (), 5)])
    compact(log)
    assert records(log) == [(1, b"a", b"2")]


def test_aborted_records_go_and_hide_nothing(open_log: OpenLog) -> None:
    log = closed_log(open_log, [(b"a", b"1", (), 5)], [(b"a", b"2", (), 5)])
    compact(log, is_aborted=lambda batch: batch.base_offset == 1)
    assert records(log) == [(0, b"a", b"1")]


def test_last_batch_of_a_producer_is_kept_empty(open_log: OpenLog) -> None:
    state = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 4}
    log = closed_log(open_log, [(b"a", b"1", (), 5)] * 3, [(b"a", b"2", (), 5)], **state)
    compact(log, is_last_of_producer=lambda batch: batch.base_offset == 0)
    first, second = log.batches()
    assert (len(first), first.base_offset, first.last_offset) == (0, 0, 2)
    assert (first.producer_id, first.producer_epoch, first.base_sequence, first.last_sequence) == (7, 1, 4, 6)
    assert len(second) == 1
    compact(log)
    assert [batch.base_offset for batch in log.batches()] == [3]


def test_control_batches_stay(open_log: OpenLog) -> None:
    marker: plain.Row = (bytes(4), bytes(6), (), 5)
    log = closed_log(open_log, [marker], [marker], control=True, transactional=True, producer_id=7)
    compact(log)
    assert len(records(log)) == 2


def test_log_append_time_is_kept(open_log: OpenLog) -> None:
    log = closed_log(open_log, [(b"a", b"1", (), 5), (b"a", b"2", (), 6)], log_append_time_ms=99)
    compact(log)
    (batch,) = log.batches()
    assert batch.timestamp_type == "log_append_time"
    assert [record.timestamp_ms for record in batch] == [99]


def test_compaction_leaves_segments_beyond_the_limit(open_log: OpenLog) -> None:
    log = open_log(internal_segment_bytes=1)
    for _ in range(4):
        add(log)
    log.compact(0, 2, is_aborted=lambda _: False, is_last_of_producer=lambda _: False)
    assert [record[0] for record in records(log)] == [1, 2, 3]


def test_index_of_before_the_compaction_is_written_anew(tmp_path: Path) -> None:
    """Leave the files as a crash between renaming the log and its indexes does."""
    log = PartitionLog(tmp_path, config(index_interval_bytes=0))
    for _ in range(5):
        add(log)
    log.roll(0)
    index = tmp_path / f"{0:020d}.index"
    before = index.read_bytes()
    compact(log)
    after = index.read_bytes()
    log.close()
    index.write_bytes(before)
    again = PartitionLog(tmp_path, config(index_interval_bytes=0))
    assert before != after == index.read_bytes()
    assert [record[0] for record in records(again)] == [4]
