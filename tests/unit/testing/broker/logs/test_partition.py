"""Partition: log and producers together, as clients meet them, and as a restart finds them."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kbatch
from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.logs.partition import (
    EARLIEST,
    EARLIEST_LOCAL,
    HIGH_WATERMARK,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    Appended,
    Partition,
)
from kbatch.testing.broker.logs.producer_state import ProducerDescription
from kbatch.testing.broker.logs.topic_config import TopicConfig
from kbatch.testing.broker.logs.validation import RecordErrors, read_produced
from tests.oracle import plain, strategies

NOW_MS = 1_700_000_000_000
EVERYTHING = 1 << 30
MAX = 2**31 - 1
OpenPartition = Callable[..., Partition]


def config(**overrides: Any) -> TopicConfig:
    return TopicConfig({name.replace("_", "."): str(value) for name, value in overrides.items()})


def opened(directory: Path | None, **options: Any) -> Partition:
    parameters = {
        name: options.pop(name) for name in ("snapshot_batches", "strict", "now_ms") if name in options
    }
    parameters.setdefault("now_ms", NOW_MS)
    return Partition("t", 0, config=config(**options), directory=directory, **parameters)


@pytest.fixture(params=["memory", "disk"])
def open_partition(request: pytest.FixtureRequest, tmp_path: Path) -> OpenPartition:
    return lambda **options: opened(tmp_path if request.param == "disk" else None, **options)


def data_of(
    count: int = 1,
    base_sequence: int = -1,
    *,
    producer_id: int = -1,
    epoch: int = -1,
    transactional: bool = False,
    timestamp_ms: int = NOW_MS,
    keys: str = "k",
    value: bytes = b"v",
) -> bytes:
    return kbatch.encode(
        [(key.encode(), value, (), timestamp_ms) for key in (keys * count)[: max(count, len(keys))]],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=base_sequence,
        transactional=transactional,
    )


def send(partition: Partition, data: bytes | bytearray, **parameters: Any) -> Appended:
    parameters = {"now_ms": NOW_MS, "leader_epoch": 3} | parameters
    return partition.append_produced(read_produced(data, 13), **parameters)


def idempotent(base_sequence: int, count: int = 1, *, epoch: int = 0, **parameters: Any) -> bytes:
    return data_of(count, base_sequence, producer_id=7, epoch=epoch, **parameters)


def code_of(action: Callable[[], Any]) -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        action()
    return caught.value.code


def end(partition: Partition, producer_id: int, commit: bool, epoch: int = 0, **parameters: Any) -> int:
    parameters = {"now_ms": NOW_MS, "leader_epoch": 3} | parameters
    return partition.append_marker(producer_id, epoch, commit, 0, **parameters)


def stored(partition: Partition) -> list[bytes]:
    return [bytes(batch) for batch in partition.batches()]


# Producing


def test_batch_is_appended_with_offset_and_epoch(open_partition: OpenPartition) -> None:
    partition = open_partition()
    assert send(partition, data_of(3)) == Appended(0, 2, -1, 0, duplicate=False)
    assert send(partition, data_of(2)) == Appended(3, 4, -1, 0, duplicate=False)
    assert [(batch.base_offset, batch.partition_leader_epoch) for batch in partition.batches()] == [
        (0, 3),
        (3, 3),
    ]
    assert (partition.log_end_offset, partition.high_watermark, partition.last_stable_offset) == (5, 5, 5)
    assert partition.size_bytes == len(data_of(3)) + len(data_of(2))


def test_what_the_client_does_to_its_bytes_later_changes_nothing(open_partition: OpenPartition) -> None:
    partition = open_partition()
    frame = bytearray(data_of())
    send(partition, frame)
    frame[:] = bytes(len(frame))
    ((record,),) = partition.batches()
    assert record.value == b"v"


@pytest.mark.parametrize("back", range(5))
def test_duplicate_of_the_last_five_gets_the_first_answer(open_partition: OpenPartition, back: int) -> None:
    partition = open_partition()
    for number in range(8):
        send(partition, idempotent(2 * number, 2, timestamp_ms=NOW_MS + number))
    before = stored(partition), partition.describe_producers()
    number = 7 - back
    answer = send(partition, idempotent(2 * number, 2))
    assert answer == Appended(2 * number, 2 * number + 1, NOW_MS + number, 0, duplicate=True)
    assert (stored(partition), partition.describe_producers()) == before


def test_duplicate_beyond_five_is_out_of_order(open_partition: OpenPartition) -> None:
    partition = open_partition()
    for number in range(6):
        send(partition, idempotent(number))
    assert code_of(lambda: send(partition, idempotent(0))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_log_append_time_of_a_duplicate_is_the_first(open_partition: OpenPartition) -> None:
    partition = open_partition(message_timestamp_type="LogAppendTime")
    assert send(partition, idempotent(0)).log_append_time_ms == NOW_MS
    again = send(partition, idempotent(0), now_ms=NOW_MS + 50)
    assert (again.log_append_time_ms, again.duplicate) == (NOW_MS, True)
    (batch,) = partition.batches()
    assert [record.timestamp_ms for record in batch] == [NOW_MS]


def corrupt(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (corrupt(idempotent(1)), ErrorCode.CORRUPT_MESSAGE),
        (idempotent(1, value=bytes(2000)), ErrorCode.MESSAGE_TOO_LARGE),
        (idempotent(1, value=bytes(800)), ErrorCode.RECORD_LIST_TOO_LARGE),
        (idempotent(1, timestamp_ms=NOW_MS + 10**10), ErrorCode.INVALID_TIMESTAMP),
        (idempotent(2, epoch=5), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (idempotent(1, epoch=9), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (idempotent(1, epoch=4), ErrorCode.INVALID_PRODUCER_EPOCH),
        (idempotent(1, epoch=5, transactional=True), ErrorCode.INVALID_TXN_STATE),
    ],
    ids=["crc", "message", "segment", "time", "gap", "new epoch", "old epoch", "transaction"],
)
def test_refusal_changes_nothing(open_partition: OpenPartition, data: bytes, code: ErrorCode) -> None:
    partition = open_partition(max_message_bytes=1000, internal_segment_bytes=500)
    send(partition, idempotent(0, epoch=5))
    before = stored(partition), partition.describe_producers(), partition.log_end_offset
    assert code_of(lambda: send(partition, data)) == code
    assert (stored(partition), partition.describe_producers(), partition.log_end_offset) == before


def test_size_is_refused_before_a_duplicate_is_known(open_partition: OpenPartition) -> None:
    partition = open_partition()
    send(partition, idempotent(0, value=bytes(500)))
    partition.config = config(max_message_bytes=100)
    again = idempotent(0, value=bytes(500))
    assert code_of(lambda: send(partition, again)) == ErrorCode.MESSAGE_TOO_LARGE


def test_strict_partition_refuses_what_kafka_takes(open_partition: OpenPartition) -> None:
    data = data_of() + b"\0"
    send(open_partition(), data)
    strict = open_partition(strict=True)
    assert code_of(lambda: send(strict, data)) == ErrorCode.INVALID_RECORD


def test_records_at_fault_are_listed(open_partition: OpenPartition) -> None:
    partition = open_partition(cleanup_policy="compact")
    rows = [(b"k", b"v", (), NOW_MS), (None, b"v", (), NOW_MS)]
    with pytest.raises(RecordErrors) as caught:
        send(partition, kbatch.encode(rows))
    assert [index for index, _ in caught.value.record_errors] == [1]


def test_verification_is_required_until_the_first_batch_is_in(open_partition: OpenPartition) -> None:
    partition = open_partition()
    produced = read_produced(idempotent(0, transactional=True), 13)
    options: dict[str, Any] = {"supports_epoch_bump": True, "now_ms": NOW_MS}
    assert partition.requires_verification(produced, **options)
    send(partition, idempotent(0, transactional=True), verified=True, supports_epoch_bump=True)
    assert not partition.requires_verification(produced, **options)
    send(partition, idempotent(1, transactional=True))


def test_verified_batch_of_version_2_begins_at_0(open_partition: OpenPartition) -> None:
    partition = open_partition()
    late = idempotent(3, transactional=True)
    assert (
        code_of(lambda: send(partition, late, verified=True, supports_epoch_bump=True))
        == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )


# Markers and readers of committed data


def test_marker_is_kafkas(open_partition: OpenPartition) -> None:
    partition = open_partition()
    send(partition, idempotent(0, transactional=True), verified=True)
    assert partition.append_marker(7, 0, True, 3, now_ms=NOW_MS, leader_epoch=4) == 1
    _, marker = stored(partition)
    row = strategies.end_transaction_marker(commit=True, timestamp_ms=NOW_MS)
    assert marker == plain.encode(
        [row],
        base_offset=1,
        partition_leader_epoch=4,
        transactional=True,
        control=True,
        producer_id=7,
        producer_epoch=0,
    )


def test_late_marker_is_refused_and_not_appended(open_partition: OpenPartition) -> None:
    partition = open_partition()
    send(partition, idempotent(0, epoch=2, transactional=True), verified=True)
    assert code_of(lambda: end(partition, 7, True, epoch=1)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (
        code_of(lambda: end(partition, 7, True, epoch=2, transaction_version=2))
        == ErrorCode.INVALID_PRODUCER_EPOCH
    )
    assert partition.log_end_offset == 1
    end(partition, 7, True, epoch=3, transaction_version=2)
    assert partition.last_stable_offset == 2


def test_open_transaction_holds_readers_of_committed_data(open_partition: OpenPartition) -> None:
    partition = open_partition()
    send(partition, data_of())
    send(partition, idempotent(0, 2, transactional=True), verified=True)
    send(partition, data_of())
    assert partition.last_stable_offset == 1
    assert len(partition.fetch(0, max_bytes=EVERYTHING, committed=True).batches) == 1
    read = partition.fetch(0, max_bytes=EVERYTHING)
    assert (len(read.batches), read.high_watermark, read.last_stable_offset) == (3, 4, 1)
    end(partition, 7, commit=False)
    read = partition.fetch(0, max_bytes=EVERYTHING, committed=True)
    assert (len(read.batches), read.last_stable_offset) == (4, 5)
    assert read.aborted_transactions == [(7, 1)]
    assert partition.fetch(0, max_bytes=EVERYTHING).aborted_transactions == []
    assert partition.fetch(0, max_bytes=1, committed=True).aborted_transactions == []
    assert [partition.is_committed(batch) for batch in partition.batches()] == [True, False, True, False]


class Step(NamedTuple):
    producer_id: int
    action: str  # "send", "plain", "commit", "abort", "roll"


steps_strategy = st.lists(
    st.builds(
        Step,
        producer_id=st.integers(1, 3),
        action=st.sampled_from(["send", "send", "plain", "commit", "abort", "roll"]),
    ),
    max_size=30,
)


class Play:
    """Plays steps into a partition, and keeps in mind what was committed and aborted."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.sequences: dict[int, int] = {}
        self.open: dict[int, list[int]] = {}
        self.decided: dict[int, bool] = {}  # offset of a record to whether a reader sees it

    def play(self, steps: list[Step]) -> None:
        for number, step in enumerate(steps):
            getattr(self, f"_{step.action}")(step.producer_id, NOW_MS + number)

    def _send(self, producer_id: int, now_ms: int) -> None:
        sequence = self.sequences.get(producer_id, 0)
        data = data_of(2, sequence, producer_id=producer_id, epoch=0, transactional=True, timestamp_ms=now_ms)
        offset = send(self.partition, data, verified=True, now_ms=now_ms).base_offset
        self.sequences[producer_id] = sequence + 2
        self.open.setdefault(producer_id, []).extend([offset, offset + 1])

    def _plain(self, _: int, now_ms: int) -> None:
        self.decided[send(self.partition, data_of(), now_ms=now_ms).base_offset] = True

    def _commit(self, producer_id: int, now_ms: int) -> None:
        self._end(producer_id, True, now_ms)

    def _abort(self, producer_id: int, now_ms: int) -> None:
        self._end(producer_id, False, now_ms)

    def _end(self, producer_id: int, commit: bool, now_ms: int) -> None:
        end(self.partition, producer_id, commit, now_ms=now_ms)
        self.decided.update(dict.fromkeys(self.open.pop(producer_id, []), commit))

    def _roll(self, _: int, now_ms: int) -> None:
        self.partition.roll(now_ms)

    @property
    def last_stable_offset(self) -> int:
        return min([self.partition.log_end_offset, *(offsets[0] for offsets in self.open.values())])

    def visible(self, start: int) -> list[int]:
        end = self.last_stable_offset
        return sorted(offset for offset, seen in self.decided.items() if seen and start <= offset < end)


def consume(partition: Partition, offset: int, max_bytes: int) -> list[int]:
    """Return the offsets that a read_committed consumer hands out, as Kafka's CompletedFetch does."""
    seen: list[int] = []
    while True:
        read = partition.fetch(offset, max_bytes=max_bytes, committed=True)
        if not read.batches:
            return seen
        aborted = sorted(read.aborted_transactions, key=lambda each: each[1])
        hidden: set[int] = set()
        for batch in kbatch.decode(b"".join(read.batches)):
            while aborted and aborted[0][1] <= batch.last_offset:
                hidden.add(aborted.pop(0)[0])
            if batch.is_control:
                ((kind,),) = [struct.unpack_from(">2xh", record.key or b"") for record in batch]
                if kind == 0:
                    hidden.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in hidden):
                seen += [record.offset for record in batch if record.offset >= offset]
            next_offset = batch.last_offset + 1
        offset = next_offset


@settings(deadline=None)
@given(
    steps=steps_strategy,
    start=st.integers(0, 60),
    max_bytes=st.sampled_from([0, 200, 1000, EVERYTHING]),
    on_disk=st.booleans(),
)
def test_readers_see_what_was_committed_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step], start: int, max_bytes: int, on_disk: bool
) -> None:
    partition = opened(tmp_path_factory.mktemp("log") if on_disk else None)
    play = Play(partition)
    play.play(steps)
    start = min(start, partition.log_end_offset)
    assert partition.last_stable_offset == play.last_stable_offset
    assert consume(partition, start, max_bytes) == play.visible(start)
    committed = [
        record.offset
        for batch in partition.batches()
        if not batch.is_control and partition.is_committed(batch)
        for record in batch
    ]
    assert committed == play.visible(0)


# The high watermark


def test_held_high_watermark_holds_readers(open_partition: OpenPartition) -> None:
    partition = open_partition()
    send(partition, idempotent(0, transactional=True), verified=True)
    partition.hold_high_watermark = True
    assert partition.hold_high_watermark
    send(partition, idempotent(1, transactional=True))
    end(partition, 7, commit=True)
    assert (partition.high_watermark, partition.log_end_offset, partition.last_stable_offset) == (1, 3, 0)
    assert len(partition.fetch(0, max_bytes=EVERYTHING).batches) == 1
    assert partition.fetch(2, max_bytes=EVERYTHING).batches == []
    assert partition.list_offset(LATEST) == (-1, 1, 3)
    assert code_of(lambda: partition.delete_records_before(2)) == ErrorCode.OFFSET_OUT_OF_RANGE
    partition.hold_high_watermark = True
    assert partition.high_watermark == 1
    partition.hold_high_watermark = False
    assert (partition.high_watermark, partition.last_stable_offset) == (3, 3)


def test_transaction_is_stable_when_its_marker_is_replicated(open_partition: OpenPartition) -> None:
    partition = open_partition()
    send(partition, idempotent(0, transactional=True), verified=True)
    send(partition, data_of())
    partition.hold_high_watermark = True
    end(partition, 7, commit=False)
    assert partition.last_stable_offset == 0
    partition.hold_high_watermark = False
    assert partition.last_stable_offset == 3


# Offsets


@pytest.mark.parametrize("offset", [-1, 1, 6, 10**9])
def test_offset_out_of_the_log_is_refused(open_partition: OpenPartition, offset: int) -> None:
    partition = open_partition()
    send(partition, data_of(5))
    partition.delete_records_before(2)
    assert code_of(lambda: partition.fetch(offset, max_bytes=EVERYTHING)) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.fetch(2, max_bytes=EVERYTHING).log_start_offset == 2
    assert partition.fetch(5, max_bytes=EVERYTHING).batches == []


def test_first_batch_may_exceed_the_requested_size(open_partition: OpenPartition) -> None:
    partition = open_partition()
    send(partition, data_of(5))
    assert len(partition.fetch(3, max_bytes=1).batches) == 1
    assert partition.fetch(3, max_bytes=1, at_least_one=False).batches == []


def test_offsets_by_name_and_time(open_partition: OpenPartition) -> None:
    partition = open_partition()
    assert partition.list_offset(EARLIEST) == (-1, 0, -1)
    assert partition.list_offset(LATEST) == (-1, 0, -1)
    assert partition.list_offset(MAX_TIMESTAMP) is None
    partition.start_leader_epoch(3)
    for timestamp_ms in (10, 40, 30):
        send(partition, data_of(2, timestamp_ms=timestamp_ms))
    partition.start_leader_epoch(5)
    send(partition, idempotent(0, transactional=True, timestamp_ms=50), verified=True, leader_epoch=5)
    partition.delete_records_before(1)
    assert partition.list_offset(EARLIEST) == (-1, 1, 3)
    assert partition.list_offset(EARLIEST_LOCAL) == (-1, 1, 3)
    assert partition.list_offset(LATEST) == (-1, 7, 5)
    assert partition.list_offset(LATEST, committed=True) == (-1, 6, 5)
    assert partition.list_offset(MAX_TIMESTAMP) == (50, 6, 5)
    assert partition.list_offset(MAX_TIMESTAMP, committed=True) is None
    assert partition.list_offset(LATEST_TIERED) is None
    assert partition.list_offset(5) == (10, 1, 3)
    assert partition.list_offset(11) == (40, 2, 3)
    assert partition.list_offset(41) == (50, 6, 5)
    assert partition.list_offset(41, committed=True) is None
    assert partition.list_offset(51) is None
    assert [partition.end_of_leader_epoch(epoch) for epoch in (3, 4, 5, 6)] == [
        (3, 6),
        (3, 6),
        (5, 7),
        (-1, -1),
    ]


# Shrinking


def test_records_are_deleted_up_to_an_offset(open_partition: OpenPartition) -> None:
    partition = open_partition()
    send(partition, data_of(5))
    assert partition.delete_records_before(3) == 3
    assert partition.delete_records_before(1) == 3
    for offset in (6, -2):
        code = code_of(lambda offset=offset: partition.delete_records_before(offset))  # type: ignore[misc]
        assert code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.delete_records_before(HIGH_WATERMARK) == 5
    partition.config = config(cleanup_policy="compact")
    assert code_of(lambda: partition.delete_records_before(5)) == ErrorCode.POLICY_VIOLATION


def test_open_transaction_before_the_start_of_the_log(open_partition: OpenPartition) -> None:
    partition = open_partition()
    send(partition, idempotent(0, 5, transactional=True), verified=True)
    send(partition, data_of())
    partition.delete_records_before(3)
    assert partition.last_stable_offset == 3
    assert partition.fetch(3, max_bytes=EVERYTHING, committed=True).batches == []
    end(partition, 7, commit=True)
    assert partition.last_stable_offset == 7


def test_old_segments_go_with_what_was_aborted_in_them(open_partition: OpenPartition) -> None:
    partition = open_partition(retention_ms=1000)
    send(partition, idempotent(0, transactional=True), verified=True)
    end(partition, 7, commit=False)
    partition.roll(NOW_MS)
    send(partition, data_of(timestamp_ms=NOW_MS + 2000))
    assert partition.delete_old_segments(NOW_MS + 1001) == 1
    assert partition.log_start_offset == 2
    assert partition.fetch(2, max_bytes=EVERYTHING, committed=True).aborted_transactions == []


def test_compaction_heeds_transactions_and_producers(open_partition: OpenPartition) -> None:
    partition = open_partition(cleanup_policy="compact")
    send(partition, idempotent(0, keys="ab"))
    send(partition, data_of(2, 0, producer_id=8, epoch=0, keys="ac", transactional=True), verified=True)
    end(partition, 8, commit=False)
    send(partition, data_of(keys="b"))
    partition.roll(NOW_MS)
    send(partition, data_of(1, 2, producer_id=8, epoch=0, keys="b", transactional=True), verified=True)
    send(partition, data_of(keys="a"))
    partition.roll(NOW_MS)
    partition.compact(NOW_MS)
    found = [[record.offset for record in batch] for batch in partition.batches() if not batch.is_control]
    assert found == [[0], [5], [6], [7]], "what was aborted is gone, what is undecided untouched"
    assert send(partition, idempotent(0, keys="ab")).duplicate
    end(partition, 8, commit=True)
    partition.compact(NOW_MS)
    found = [[record.offset for record in batch] for batch in partition.batches() if not batch.is_control]
    assert found == [[], [6], [7]], "the last batch of a producer stays, empty"
    partition.recover(NOW_MS)
    assert send(partition, idempotent(0, keys="ab")).duplicate


def played(partition: Partition, count: int) -> Partition:
    """Return the first `count` of eight appends: two producers, one of them with an aborted transaction, over
    three segments and two leader epochs.
    """
    steps: list[Callable[[], object]] = [
        lambda: send(partition, idempotent(0, 2)),
        lambda: send(partition, data_of(1, 0, producer_id=8, epoch=0, transactional=True), verified=True),
        lambda: send(partition, idempotent(2)),
        lambda: end(partition, 8, commit=False),
        lambda: send(partition, idempotent(3, 3), leader_epoch=4),
        lambda: send(partition, data_of(1, 1, producer_id=8, epoch=0, transactional=True), verified=True),
        lambda: end(partition, 8, commit=True),
        lambda: send(partition, idempotent(0, epoch=1), leader_epoch=5),
    ]
    for number, step in enumerate(steps[:count]):
        if number in (2, 5):
            partition.roll(NOW_MS)
        step()
    return partition


def seen_of(partition: Partition) -> list[Any]:
    """Return the visible state of a partition, except a producer's batches before its last."""
    fetched = partition.fetch(0, max_bytes=EVERYTHING, committed=True)
    return [
        stored(partition),
        [each._replace(batches=each.batches[-1:]) for each in partition.describe_producers()],
        (partition.log_start_offset, partition.log_end_offset, partition.high_watermark),
        (partition.last_stable_offset, fetched.aborted_transactions),
        [partition.end_of_leader_epoch(epoch) for epoch in (3, 4, 5)],
    ]


@pytest.mark.parametrize("is_within", [False, True], ids=["at a batch", "within a batch"])
@pytest.mark.parametrize("count", range(9))
def test_cut_log_is_as_if_its_tail_had_never_been(
    open_partition: OpenPartition, tmp_path: Path, count: int, is_within: bool
) -> None:
    partition = played(open_partition(), 8)
    expected = played(opened(None), count)
    cut_offset = expected.log_end_offset
    if is_within and count < 8:
        batch = list(partition.batches())[count]
        cut_offset = batch.last_offset
    partition.truncate_to(cut_offset, NOW_MS)
    assert seen_of(partition) == seen_of(expected)
    for each in (partition, expected):
        send(each, data_of(2, 0, producer_id=9, epoch=0), leader_epoch=6)
        each.close()
    assert seen_of(partition) == seen_of(expected)
    if (tmp_path / "t-0").exists():
        again = opened(tmp_path)
        assert stored(again) == stored(expected)
        assert again.end_of_leader_epoch(4) == expected.end_of_leader_epoch(4)


def test_cut_log_refuses_what_it_has_lost_before_what_follows(open_partition: OpenPartition) -> None:
    partition = open_partition()
    for number in range(3):
        send(partition, idempotent(number))
    partition.truncate_to(1, NOW_MS)
    assert send(partition, idempotent(0)).duplicate
    assert code_of(lambda: send(partition, idempotent(2))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(partition, idempotent(1)) == Appended(1, 1, -1, 0, duplicate=False)
    partition.truncate_to(0, NOW_MS)
    assert partition.describe_producers() == []
    send(partition, idempotent(2))


def test_cut_below_a_held_high_watermark_takes_it_along(open_partition: OpenPartition) -> None:
    partition = open_partition()
    for _ in range(3):
        send(partition, data_of(2))
    partition.hold_high_watermark = True
    send(partition, data_of(2))
    partition.truncate_to(6, NOW_MS)
    assert (partition.log_end_offset, partition.high_watermark) == (6, 6)
    partition.truncate_to(2, NOW_MS)
    send(partition, data_of(2))
    assert (partition.log_end_offset, partition.high_watermark) == (4, 2)


def test_what_was_read_of_a_tail_stays_valid_when_it_is_cut(open_partition: OpenPartition) -> None:
    partition = open_partition()
    send(partition, data_of(2))
    send(partition, data_of(3, value=b"v" * 10_000))
    views = partition.fetch(2, max_bytes=EVERYTHING).batches
    partition.truncate_to(2, NOW_MS)
    assert [len(batch) for batch in kbatch.decode(b"".join(views))] == [3]


def test_cut_below_the_start_of_a_log_leaves_it_empty(open_partition: OpenPartition) -> None:
    partition = open_partition()
    send(partition, data_of(5))
    send(partition, data_of(5))
    partition.delete_records_before(7)
    partition.truncate_to(6, NOW_MS)
    assert (partition.log_start_offset, partition.log_end_offset) == (5, 5)
    send(partition, data_of(2))
    assert partition.log_end_offset == 7


def test_log_that_begins_later_goes_on_empty_where_it_is_cut(open_partition: OpenPartition) -> None:
    partition = open_partition()
    send(partition, data_of(2))
    partition.begin_anew(9, NOW_MS)
    partition.truncate_to(4, NOW_MS)
    offsets = (partition.log_start_offset, partition.high_watermark, partition.log_end_offset)
    assert offsets == (4, 4, 4)
    assert send(partition, data_of(2)).base_offset == 4


# Producers


def test_producers_are_forgotten_on_request_and_by_age(open_partition: OpenPartition) -> None:
    partition = open_partition()
    send(partition, idempotent(0))
    partition.remove_expired_producers(NOW_MS + 86_400_000 - 1)
    assert code_of(lambda: send(partition, idempotent(9))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    partition.remove_expired_producers(NOW_MS + 86_400_000)
    send(partition, idempotent(9))
    partition.forget_producers()
    assert partition.describe_producers() == []
    send(partition, idempotent(4))


# Partition: what a restart finds, after a clean end or a kill, and what becomes of it on a full disk.


def as_a_snapshot_has_it(producer: ProducerDescription, batch_count: int) -> ProducerDescription:
    """Keep `batch_count` batches, without their times: an entry has one time, which a marker may replace."""
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


@pytest.mark.slow
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
