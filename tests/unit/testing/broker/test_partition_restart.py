"""Partition: what a restart finds, after a clean end or a kill, and what becomes of it on a full disk."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.partition import HIGH_WATERMARK, Partition
from kbatch.testing.broker.producer_state import ProducerDescription
from tests.unit.testing.broker.test_partition import (
    EVERYTHING,
    NOW_MS,
    Play,
    Step,
    code_of,
    consume,
    data_of,
    end,
    idempotent,
    opened,
    send,
    steps_strategy,
    stored,
)


def as_a_snapshot_has_it(producer: ProducerDescription, batch_count: int) -> ProducerDescription:
    """With as many batches, whose times a marker behind them may have replaced: an entry has but one."""
    kept = (batch._replace(timestamp_ms=0) for batch in producer.batches[-batch_count:])
    return producer._replace(batches=tuple(kept))


def check_equal(found: Partition, expected: Partition, batch_count: int) -> None:
    assert [as_a_snapshot_has_it(producer, 5) for producer in found.describe_producers()] == [
        as_a_snapshot_has_it(producer, batch_count) for producer in expected.describe_producers()
    ]
    assert stored(found) == stored(expected)
    for committed in (False, True):
        assert found.fetch(0, max_bytes=EVERYTHING, committed=committed) == expected.fetch(
            0, max_bytes=EVERYTHING, committed=committed
        )


@settings(deadline=None, max_examples=60)
@given(
    steps=steps_strategy,
    batch_count=st.sampled_from([1, 5]),
    is_killed=st.booleans(),
    loses_snapshots=st.booleans(),
    more=steps_strategy,
)
def test_restart_finds_what_was_there(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[Step],
    batch_count: int,
    is_killed: bool,
    loses_snapshots: bool,
    more: list[Step],
) -> None:
    directory = tmp_path_factory.mktemp("log")
    before = opened(directory / "a", snapshot_batches=batch_count)
    play = Play(before)
    play.play(steps)
    if not is_killed:
        before.close()
    shutil.copytree(directory / "a", directory / "b")
    for path in (directory / "b").glob("*/*.snapshot") if loses_snapshots else ():
        path.write_bytes(path.read_bytes()[:-1])
    after = opened(directory / "b", snapshot_batches=batch_count)
    check_equal(after, before, batch_count)
    play.partition = after
    play.play(more)
    assert consume(after, 0, EVERYTHING) == play.visible(0)


def test_restart_of_a_log_in_memory_forgets_as_one_on_disk() -> None:
    partition = opened(None)
    for number in range(5):
        send(partition, idempotent(number))
    partition.recover(NOW_MS)
    assert send(partition, idempotent(4)).duplicate
    assert code_of(lambda: send(partition, idempotent(3))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize(("batch_count", "known"), [(1, [4]), (3, [2, 3, 4]), (5, [0, 1, 2, 3, 4])])
@pytest.mark.parametrize("is_killed", [False, True])
def test_restart_knows_as_many_batches_as_snapshots_have(
    tmp_path: Path, batch_count: int, known: list[int], is_killed: bool
) -> None:
    partition = opened(tmp_path, snapshot_batches=batch_count)
    for number in range(5):
        send(partition, idempotent(number))
    if not is_killed:
        partition.close()
    again = opened(tmp_path, snapshot_batches=batch_count)
    for number in range(5):
        if number in known:
            assert send(again, idempotent(number)).duplicate
        else:
            code = code_of(lambda number=number: send(again, idempotent(number)))  # type: ignore[misc]
            assert code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(again, idempotent(5))


def test_torn_tail_takes_its_producers_state_along(tmp_path: Path) -> None:
    whole = opened(tmp_path / "whole")
    sizes = [0]
    for number in range(3):
        send(whole, idempotent(number, transactional=True), verified=True)
        sizes.append(whole.size_bytes)
    end(whole, 7, commit=False)
    whole.take_snapshot()
    (log,) = (tmp_path / "whole").glob("*/*.log")
    content = log.read_bytes()
    for cut in range(len(content)):
        shutil.rmtree(tmp_path / "torn", ignore_errors=True)
        shutil.copytree(tmp_path / "whole", tmp_path / "torn")
        (tmp_path / "torn" / "t-0" / log.name).write_bytes(content[:cut])
        torn = opened(tmp_path / "torn")
        count = sum(size <= cut for size in sizes[1:])
        assert torn.log_end_offset == count
        assert torn.last_stable_offset == 0
        assert [each.last_sequence for each in torn.describe_producers()] == [count - 1] * (count > 0)
        send(torn, idempotent(count, transactional=True), verified=True)
        end(torn, 7, commit=False)
        for partition in (torn, opened(tmp_path / "torn")):
            aborted = partition.fetch(0, max_bytes=EVERYTHING, committed=True).aborted_transactions
            assert aborted == [(7, 0)]


def test_snapshots_stand_where_segments_begin_and_at_the_end(tmp_path: Path) -> None:
    partition = opened(tmp_path, internal_segment_bytes=150)
    for number in range(4):
        send(partition, idempotent(number))
    snapshots = [int(path.stem) for path in sorted(tmp_path.glob("*/*.snapshot"))]
    assert snapshots == [int(path.stem) for path in sorted(tmp_path.glob("*/*.log"))][1:]
    send(partition, data_of())
    last = tmp_path / "t-0" / f"{partition.log_end_offset:020d}.snapshot"
    assert not last.exists()
    partition.close()
    assert last.exists()
    again = opened(tmp_path)
    send(again, data_of())
    again.close()
    assert not last.exists(), "only the newest of those within a segment is kept"


def test_producers_of_deleted_records_are_known_until_a_restart(tmp_path: Path) -> None:
    """UnifiedLog.rebuildProducerState has no snapshot above the start of an empty log."""
    partition = opened(tmp_path)
    send(partition, idempotent(0))
    partition.delete_records_before(HIGH_WATERMARK)
    assert send(partition, idempotent(0)).duplicate
    partition.close()
    assert opened(tmp_path).describe_producers() == []


def test_expired_producers_are_not_found_again(tmp_path: Path) -> None:
    partition = opened(tmp_path)
    send(partition, idempotent(0))
    partition.close()
    assert opened(tmp_path, now_ms=NOW_MS + 86_400_000).describe_producers() == []


# Disks


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_disk_that_refuses_takes_the_partition_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = opened(tmp_path)
    send(partition, idempotent(0))
    with monkeypatch.context() as patch:
        patch.setattr("kbatch.codec.segments.Segment.append", full)
        with pytest.raises(BrokerError, match="No space left") as caught:
            send(partition, idempotent(1))
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    for action in (
        lambda: send(partition, idempotent(1)),
        lambda: end(partition, 7, True),
        lambda: partition.fetch(0, max_bytes=1),
        lambda: partition.delete_records_before(0),
    ):
        assert code_of(action) == ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.describe_producers()[0].last_sequence == 0
    partition.close()
    again = opened(tmp_path)
    assert not send(again, idempotent(1)).duplicate
