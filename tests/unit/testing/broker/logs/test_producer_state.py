"""ProducerStateTable: R01 to R08, markers, stability, snapshots; and a slow model of the five batches."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

import kbatch
from kbatch import CorruptRecordError, RecordBatch
from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.logs.producer_state import (
    AbortedTransaction,
    BatchMetadata,
    EndTransactionMarker,
    ProducerDescription,
    ProducerStateFiles,
    ProducerStateStore,
    ProducerStateTable,
)
from tests.oracle import plain

MAX = 2**31 - 1
DAY_MS = 86_400_000
PID = 7


def batch(
    base_sequence: int,
    count: int = 1,
    *,
    epoch: int = 0,
    offset: int = 0,
    producer_id: int = PID,
    timestamp_ms: int = 1000,
    transactional: bool = False,
) -> RecordBatch:
    (made,) = kbatch.decode(
        kbatch.encode(
            [(b"k", b"v", (), timestamp_ms)] * count,
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=base_sequence,
            transactional=transactional,
        )
    )
    return made


def append(table: ProducerStateTable, made: RecordBatch, *, is_verified: bool = False) -> None:
    """Append a batch as a partition does; it must not be a duplicate."""
    assert table.find_duplicate(made) is None
    table.check_batch(made, is_verified=is_verified)
    table.add_batch(made)


def begin(table: ProducerStateTable, made: RecordBatch, *, supports_epoch_bump: bool = False) -> None:
    """Append the first batch of a transaction, which the coordinator has verified."""
    assert table.requires_verification(
        made.producer_id,
        made.producer_epoch,
        made.base_sequence,
        supports_epoch_bump=supports_epoch_bump,
        now_ms=0,
    )
    append(table, made, is_verified=True)


def end(
    table: ProducerStateTable,
    offset: int,
    *,
    commit: bool = True,
    epoch: int = 0,
    producer_id: int = PID,
    coordinator_epoch: int = 0,
    transaction_version: int = 1,
    timestamp_ms: int = 2000,
) -> AbortedTransaction | None:
    table.check_marker(producer_id, epoch, coordinator_epoch, transaction_version)
    return table.add_marker(
        producer_id, epoch, EndTransactionMarker(commit, coordinator_epoch), offset, timestamp_ms
    )


def code_of(action: Callable[[], Any]) -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        action()
    return caught.value.code


def code_for(table: ProducerStateTable, made: RecordBatch, *, is_verified: bool = False) -> ErrorCode:
    before = table.describe()
    code = code_of(lambda: table.check_batch(made, is_verified=is_verified))
    assert table.describe() == before
    return code


def described(table: ProducerStateTable, producer_id: int = PID) -> ProducerDescription:
    (found,) = (each for each in table.describe() if each.producer_id == producer_id)
    return found


# Sequences and epochs


def test_R01_sequences_wrap() -> None:
    table = ProducerStateTable()
    append(table, batch(MAX))
    assert code_for(table, batch(1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(table, batch(0))
    assert described(table).last_sequence == 0


def test_R01_batch_may_span_the_wrap() -> None:
    table = ProducerStateTable()
    append(table, batch(MAX - 1, 4))
    assert described(table).last_sequence == 1
    assert table.find_duplicate(batch(MAX - 1, 4)) is not None
    append(table, batch(2))


def test_R02_new_epoch_begins_at_0() -> None:
    table = ProducerStateTable()
    append(table, batch(0, 3))
    for sequence in (1, 3):
        assert code_for(table, batch(sequence, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(table, batch(0, epoch=1))
    assert described(table)[1:3] == (1, 0)


def test_R02_unknown_producer_begins_anywhere() -> None:
    table = ProducerStateTable()
    append(table, batch(17, 3, epoch=5))
    assert described(table)[1:3] == (5, 19)


def test_R03_old_epoch_is_refused() -> None:
    table = ProducerStateTable()
    append(table, batch(0, epoch=4))
    assert code_for(table, batch(0, epoch=3)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_for(table, batch(1, epoch=3)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_R04_marker_with_a_new_epoch_ends_the_old_one() -> None:
    table = ProducerStateTable()
    begin(table, batch(0, 2, transactional=True))
    end(table, 2, commit=False, epoch=1, transaction_version=2)
    assert described(table) == (PID, 1, -1, 2000, 0, -1, ())
    late = batch(2, transactional=True)
    assert code_for(table, late, is_verified=True) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_for(table, batch(2, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert table.find_duplicate(batch(0, 2, transactional=True)) is None, "the batches are forgotten"
    append(table, batch(0, epoch=1))


def test_R05_open_transaction_takes_only_its_own_batches() -> None:
    table = ProducerStateTable()
    begin(table, batch(0, transactional=True))
    assert code_for(table, batch(1)) == ErrorCode.INVALID_TXN_STATE
    append(table, batch(1, transactional=True))
    end(table, 2)
    append(table, batch(2))


def test_R06_stateless_version_1_transaction_begins_anywhere() -> None:
    begin(ProducerStateTable(), batch(5, transactional=True), supports_epoch_bump=False)


def test_R06_stateless_version_2_transaction_begins_at_0() -> None:
    table = ProducerStateTable()
    assert table.requires_verification(PID, 0, 5, supports_epoch_bump=True, now_ms=0)
    late = batch(5, transactional=True)
    assert code_for(table, late, is_verified=True) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    begin(table, batch(0, transactional=True), supports_epoch_bump=True)


def test_R06_epoch_without_batches_is_no_state_in_version_2() -> None:
    table = ProducerStateTable()
    end(table, 0, epoch=3)
    assert table.requires_verification(PID, 3, 1, supports_epoch_bump=True, now_ms=0)
    late = batch(1, epoch=3, transactional=True)
    assert code_for(table, late, is_verified=True) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_R07_lowest_waiting_sequence_comes_first() -> None:
    table = ProducerStateTable()
    second, first = batch(3, transactional=True), batch(1, transactional=True)
    for made in (second, first):
        assert table.requires_verification(PID, 0, made.base_sequence, supports_epoch_bump=False, now_ms=0)
    assert code_for(table, second, is_verified=True) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(table, first, is_verified=True)
    assert not table.requires_verification(PID, 0, 2, supports_epoch_bump=False, now_ms=0)
    append(table, batch(2, transactional=True))


def test_R07_new_epoch_waits_anew() -> None:
    table = ProducerStateTable()
    for epoch, sequence in ((0, 1), (1, 4), (0, 0)):
        assert table.requires_verification(PID, epoch, sequence, supports_epoch_bump=False, now_ms=0)
    late = batch(5, epoch=1, transactional=True)
    assert code_for(table, late, is_verified=True) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(table, batch(4, epoch=1, transactional=True), is_verified=True)


def test_R08_idle_producer_is_forgotten_in_the_end() -> None:
    table = ProducerStateTable()
    append(table, batch(0, timestamp_ms=1000))
    table.remove_expired(1000 + DAY_MS - 1)
    assert code_for(table, batch(5)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    table.remove_expired(1000 + DAY_MS)
    append(table, batch(5))


def test_R08_open_transaction_keeps_its_producer() -> None:
    table = ProducerStateTable(expiration_ms=10)
    begin(table, batch(0, transactional=True, timestamp_ms=1000))
    table.remove_expired(10**15)
    assert table.first_unstable_offset(1) == 0
    end(table, 1, timestamp_ms=2000)
    table.remove_expired(2009)
    assert len(table.describe()) == 1
    table.remove_expired(2010)
    assert table.describe() == []


def test_R08_transaction_awaiting_its_coordinator_is_forgotten() -> None:
    table = ProducerStateTable(expiration_ms=10)
    assert table.requires_verification(PID, 0, 0, supports_epoch_bump=False, now_ms=100)
    table.remove_expired(110)
    made = batch(0, transactional=True)
    assert code_for(table, made, is_verified=True) == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("sequence", [0, 2, 4])
def test_older_duplicate_than_five_batches_is_out_of_order(sequence: int) -> None:
    table = ProducerStateTable()
    for number in range(8):
        append(table, batch(2 * number, 2, offset=100 + 2 * number))
    again = batch(sequence, 2)
    assert table.find_duplicate(again) is None
    assert code_for(table, again) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for number in range(3, 8):
        known = table.find_duplicate(batch(2 * number, 2))
        assert known == BatchMetadata(2 * number, 2 * number + 1, 100 + 2 * number, 101 + 2 * number, 1000)
    assert table.find_duplicate(batch(6, 1)) is None, "a part of one is none"


def test_transactional_batches_are_verified_until_added() -> None:
    table = ProducerStateTable()
    made = batch(0, transactional=True)
    assert code_for(table, made) == ErrorCode.INVALID_TXN_STATE
    assert code_for(table, made, is_verified=True) == ErrorCode.INVALID_TXN_STATE, "nothing waits for it"
    begin(table, made)
    append(table, batch(1, transactional=True))
    assert code_for(table, batch(0, epoch=1, transactional=True)) == ErrorCode.INVALID_TXN_STATE
    append(table, batch(0, producer_id=8))


def test_verification_ends_with_a_marker() -> None:
    """The coordinator's yes to a transaction that was ended meanwhile is none (KAFKA-14402)."""
    table = ProducerStateTable()
    assert table.requires_verification(PID, 0, 0, supports_epoch_bump=False, now_ms=0)
    end(table, 0, commit=False)
    made = batch(0, transactional=True)
    assert code_for(table, made, is_verified=True) == ErrorCode.INVALID_TXN_STATE


def test_verification_of_an_old_epoch_is_refused() -> None:
    table = ProducerStateTable()
    append(table, batch(0, epoch=2))
    assert (
        code_of(lambda: table.requires_verification(PID, 1, 0, supports_epoch_bump=True, now_ms=0))
        == ErrorCode.INVALID_PRODUCER_EPOCH
    )


# The five batches against a slow model


class SequenceMachine(RuleBasedStateMachine):
    """Batches in every order, near the end of the sequences, against all that was ever appended."""

    def __init__(self) -> None:
        super().__init__()
        self.table = ProducerStateTable()
        self.history: list[tuple[int, int, int, int]] = []  # epoch, base sequence, last sequence, base offset
        self.offset = 0

    @initialize(sequence=st.integers(MAX - 8, MAX) | st.integers(0, 3))
    def first(self, sequence: int) -> None:
        self.send(0, sequence, 1)

    @rule(count=st.integers(1, 4))
    def next_in_order(self, count: int) -> None:
        epoch, _, last, _ = self.history[-1]
        self.send(epoch, (last + 1) % 2**31, count)

    @rule(back=st.integers(1, 9))
    def again(self, back: int) -> None:
        epoch, base, last, _ = self.history[-min(back, len(self.history))]
        self.send(epoch, base, (last - base) % 2**31 + 1)

    @rule(epoch=st.integers(-1, 1), sequence=st.integers(-3, 12), count=st.integers(1, 4))
    def anything(self, epoch: int, sequence: int, count: int) -> None:
        self.send(max(0, self.history[-1][0] + epoch), sequence % 2**31, count)

    def send(self, epoch: int, sequence: int, count: int) -> None:
        last = (sequence + count - 1) % 2**31
        made = batch(sequence, count, epoch=epoch, offset=self.offset)
        expected = self.expected(epoch, sequence, last)
        known = self.table.find_duplicate(made)
        if isinstance(expected, int) and not isinstance(expected, ErrorCode):
            assert known is not None and known.base_offset == expected
        elif expected == ErrorCode.NONE:
            append(self.table, made)
            self.history.append((epoch, sequence, last, self.offset))
            self.offset += count
        else:
            assert known is None
            assert code_for(self.table, made) == expected

    def expected(self, epoch: int, sequence: int, last: int) -> int:
        """Return the base offset of a duplicate, or the result for a new batch."""
        if not self.history:
            return ErrorCode.NONE
        present, _, last_before, _ = self.history[-1]
        of_epoch = [each for each in self.history if each[0] == epoch]
        for _, known_base, known_last, offset in of_epoch[-5:] if epoch == present else ():
            if (known_base, known_last) == (sequence, last):
                return offset
        if epoch < present:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        wanted = 0 if epoch > present else (last_before + 1) % 2**31
        return ErrorCode.NONE if sequence == wanted else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


TestSequences = SequenceMachine.TestCase


# Markers


@pytest.mark.parametrize("transaction_version", [0, 1])
def test_marker_of_version_1_has_the_epoch_of_its_transaction(transaction_version: int) -> None:
    table = ProducerStateTable()
    begin(table, batch(0, 2, epoch=3, transactional=True))
    assert (
        code_of(lambda: end(table, 2, epoch=2, transaction_version=transaction_version))
        == ErrorCode.INVALID_PRODUCER_EPOCH
    )
    end(table, 2, epoch=3, transaction_version=transaction_version)
    assert described(table).last_sequence == 1, "sequences go on in the next transaction"
    end(table, 3, epoch=3, transaction_version=transaction_version)


def test_marker_of_version_2_has_a_new_epoch() -> None:
    table = ProducerStateTable()
    begin(table, batch(0, 2, epoch=3, transactional=True))
    for epoch in (2, 3):
        code = code_of(lambda epoch=epoch: end(table, 2, epoch=epoch, transaction_version=2))  # type: ignore[misc]
        assert code == ErrorCode.INVALID_PRODUCER_EPOCH
    end(table, 2, epoch=4, transaction_version=2)
    end(table, 3, epoch=4, transaction_version=2)  # sent again: its answer was lost
    assert table.first_unstable_offset(4) is None


def test_marker_of_version_2_may_repeat_the_last_epoch_of_all() -> None:
    table = ProducerStateTable()
    begin(table, batch(0, epoch=32767, transactional=True))
    end(table, 1, epoch=32767, transaction_version=2)
    assert described(table).current_transaction_first_offset == -1


def test_marker_of_an_old_coordinator_is_refused() -> None:
    table = ProducerStateTable()
    end(table, 0, coordinator_epoch=5)
    assert code_of(lambda: end(table, 1, coordinator_epoch=4)) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    end(table, 1, coordinator_epoch=5)
    end(table, 2, coordinator_epoch=6)
    assert described(table).coordinator_epoch == 6


# Stability


def test_oldest_open_transaction_is_the_first_unstable_offset() -> None:
    table = ProducerStateTable()
    for number, producer_id in enumerate((1, 2, 3)):
        begin(table, batch(0, offset=10 * number, producer_id=producer_id, transactional=True))
    assert table.first_unstable_offset(100) == 0
    end(table, 30, producer_id=2)
    assert table.first_unstable_offset(100) == 0
    end(table, 31, producer_id=1)
    assert table.first_unstable_offset(100) == 20
    end(table, 32, producer_id=3)
    assert table.first_unstable_offset(100) is None


def test_transaction_whose_end_is_not_replicated_is_unstable() -> None:
    table = ProducerStateTable()
    begin(table, batch(0, offset=4, transactional=True))
    end(table, 5)
    assert table.first_unstable_offset(5) == 4
    assert table.first_unstable_offset(6) is None


def test_aborted_transactions_of_a_range() -> None:
    table = ProducerStateTable()
    begin(table, batch(0, offset=0, producer_id=1, transactional=True))
    begin(table, batch(0, offset=5, producer_id=2, transactional=True))
    assert end(table, 10, commit=False, producer_id=2) == (2, 5, 10, 0)
    assert end(table, 11, commit=True, producer_id=3) is None
    assert end(table, 12, commit=False, producer_id=1) == (1, 0, 12, 13)
    begin(table, batch(0, offset=20, producer_id=4, transactional=True))
    assert end(table, 25, commit=False, producer_id=4) == (4, 20, 25, 26)

    def found(start: int, end: int) -> list[int]:
        return [aborted.producer_id for aborted in table.aborted_transactions(start, end)]

    assert found(0, 5) == [1]
    assert found(0, 6) == [2, 1]
    assert found(10, 11) == [2, 1]
    assert found(11, 20) == [1]
    assert found(13, 20) == []
    assert found(13, 21) == [4]
    assert found(0, 100) == [2, 1, 4]
    assert found(26, 100) == []
    table.truncate_from_start(11)
    assert found(0, 100) == [1, 4]


def test_marker_without_transaction_is_in_no_index() -> None:
    table = ProducerStateTable()
    assert end(table, 0, commit=False) is None
    assert table.all_aborted_transactions() == []


# Forgetting, describing


def test_forgotten_producer_begins_anywhere() -> None:
    table = ProducerStateTable()
    for producer_id in (1, 2, 3):
        append(table, batch(0, producer_id=producer_id))
    begin(table, batch(0, producer_id=4, transactional=True))
    table.forget(2)
    assert [each.producer_id for each in table.describe()] == [1, 3, 4]
    table.forget()
    assert [each.producer_id for each in table.describe()] == [4], "an open transaction keeps its producer"
    append(table, batch(17, producer_id=1))


def test_description_is_complete() -> None:
    table = ProducerStateTable()
    begin(table, batch(3, 2, epoch=1, offset=40, timestamp_ms=5, transactional=True))
    end(table, 42, epoch=1, coordinator_epoch=9, timestamp_ms=6)
    begin(table, batch(5, 1, epoch=1, offset=43, timestamp_ms=7, transactional=True))
    batches = BatchMetadata(3, 4, 40, 41, 5), BatchMetadata(5, 5, 43, 43, 7)
    assert table.describe() == [ProducerDescription(PID, 1, 5, 7, 9, 43, batches)]


# Snapshots


def busy_table() -> ProducerStateTable:
    table = ProducerStateTable()
    for number in range(7):
        append(table, batch(number, offset=number, producer_id=1, timestamp_ms=1000 + number))
    begin(table, batch(MAX - 1, 3, epoch=2, offset=7, producer_id=2, timestamp_ms=1100, transactional=True))
    end(table, 10, epoch=5, producer_id=3, coordinator_epoch=4, timestamp_ms=1200)
    return table


def test_snapshot_is_kafkas() -> None:
    table = ProducerStateTable()
    append(table, batch(3, 2, epoch=1, offset=40, timestamp_ms=5))
    end(table, 42, epoch=9, producer_id=8, coordinator_epoch=6, timestamp_ms=7)
    body = struct.pack(">i", 2) + struct.pack(">qhiqiqiq", PID, 1, 4, 41, 1, 5, -1, -1)
    body += struct.pack(">qhiqiqiq", 8, 9, -1, -1, 0, 7, 6, -1)
    assert table.snapshot() == struct.pack(">hI", 1, plain.crc32c(body)) + body


def test_snapshot_has_the_last_batch_of_each_producer() -> None:
    table = busy_table()
    again = ProducerStateTable.from_snapshot(table.snapshot(), 0)
    assert again.describe() == [each._replace(batches=each.batches[-1:]) for each in table.describe()]
    assert again.first_unstable_offset(100) == 7
    assert again.find_duplicate(batch(MAX - 1, 3, epoch=2, producer_id=2)) is not None
    assert code_for(again, batch(5, producer_id=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(again, batch(7, producer_id=1))
    end(again, 20, epoch=2, producer_id=2)
    assert again.first_unstable_offset(100) is None


@pytest.mark.parametrize("batch_count", [2, 3, 5])
def test_snapshot_with_more_batches_keeps_them(batch_count: int) -> None:
    table = busy_table()
    again = ProducerStateTable.from_snapshot(table.snapshot(batch_count), 0)
    assert again.describe() == [
        each._replace(batches=each.batches[-batch_count:]) for each in table.describe()
    ]


def test_snapshot_leaves_out_what_expired() -> None:
    table = busy_table()
    again = ProducerStateTable.from_snapshot(table.snapshot(), 1150 + DAY_MS)
    assert [each.producer_id for each in again.describe()] == [2, 3]
    again = ProducerStateTable.from_snapshot(table.snapshot(5), 1007 + 20, expiration_ms=20)
    assert [each.producer_id for each in again.describe()] == [2, 3]


@given(data=st.data())
def test_damaged_snapshot_is_found(data: st.DataObject) -> None:
    snapshot = bytearray(busy_table().snapshot())
    position = data.draw(st.integers(0, len(snapshot) - 1))
    snapshot[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptRecordError):
        ProducerStateTable.from_snapshot(bytes(snapshot), 0)


def test_cut_snapshot_is_found() -> None:
    snapshot = busy_table().snapshot()
    for size in range(len(snapshot)):
        with pytest.raises(CorruptRecordError):
            ProducerStateTable.from_snapshot(snapshot[:size], 0)


def test_log_that_is_replayed_gives_the_same_state() -> None:
    table, replayed = ProducerStateTable(), ProducerStateTable()
    rows: list[plain.Row] = [(struct.pack(">hh", 0, 0), struct.pack(">hi", 0, 4), (), 50)]
    marker = plain.encode(
        rows, base_offset=2, transactional=True, control=True, producer_id=PID, producer_epoch=1
    )
    anonymous = plain.encode([(b"k", b"v", (), 1)], base_offset=3)
    begin(table, batch(0, 2, epoch=1, transactional=True))
    end(table, 2, commit=False, epoch=1, coordinator_epoch=4, timestamp_ms=50)
    for data in (batch(0, 2, epoch=1, transactional=True), *kbatch.decode(marker + anonymous)):
        replayed.replay(data)
    assert replayed.describe() == table.describe()
    assert replayed.all_aborted_transactions() == [AbortedTransaction(PID, 0, 2, 3)]
    assert replayed.first_unstable_offset(3) is None


def test_emptied_control_batch_says_nothing() -> None:
    table = ProducerStateTable()
    data = plain.encode(
        [], last_offset=0, transactional=True, control=True, producer_id=PID, producer_epoch=1
    )
    table.replay(next(kbatch.decode(data)))
    assert table.describe() == []


def test_control_record_of_another_kind_is_named() -> None:
    data = plain.encode([(b"", b"", (), 1)], base_offset=9, transactional=True, control=True, producer_id=PID)
    with pytest.raises(CorruptRecordError, match="at offset 9"):
        ProducerStateTable().replay(next(kbatch.decode(data)))


# Storage


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ProducerStateStore:
    return ProducerStateFiles(tmp_path) if request.param == "disk" else ProducerStateStore()


def test_snapshots_are_kept_by_offset(store: ProducerStateStore) -> None:
    for offset in (30, 4, 200):
        store.write_snapshot(offset, b"%d" % offset)
    store.write_snapshot(4, b"new")
    assert store.snapshot_offsets() == [4, 30, 200]
    assert store.read_snapshot(4) == b"new"
    store.delete_snapshot(30)
    assert store.snapshot_offsets() == [4, 200]


def test_aborted_transactions_are_kept(store: ProducerStateStore) -> None:
    first, second, third = (AbortedTransaction(1, n, n + 5, n + 6) for n in (0, 10, 20))
    store.append_aborted(first, 0)
    store.append_aborted(second, 12)
    assert store.read_aborted() == [first, second]
    store.replace_aborted([second, third], [0, 12, 25, 30])
    assert store.read_aborted() == [second, third]


def test_files_are_kafkas(tmp_path: Path) -> None:
    files = ProducerStateFiles(tmp_path)
    files.write_snapshot(30, b"snapshot")
    files.append_aborted(AbortedTransaction(1, 2, 3, 4), 12)
    assert (tmp_path / f"{30:020d}.snapshot").read_bytes() == b"snapshot"
    index = tmp_path / f"{12:020d}.txnindex"
    assert index.read_bytes() == struct.pack(">hqqqq", 0, 1, 2, 3, 4)
    index.write_bytes(index.read_bytes() + b"torn")
    assert files.read_aborted() == [AbortedTransaction(1, 2, 3, 4)]
    assert {path.suffix for path in tmp_path.iterdir()} == {".snapshot", ".txnindex"}
