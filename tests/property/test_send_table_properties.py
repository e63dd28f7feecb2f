"""send_table against send: the same rows give the same batches, byte by byte, and each row's outcome is that
of the record that the batch has for it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch import IllegalStateError, KafkaError
from kbatch._native.batch.producer_batch import ProducerBatch
from kbatch._native.send.accumulator import RecordAccumulator, Refusal
from kbatch._native.send.send import RecordSender
from kbatch._native.send.table_sender import TableSender
from kbatch.errors import ErrorCode, error_of
from kbatch.producer.tables import TableReport
from tests.oracle import plain, strategies, tables
from tests.property.test_codec_properties import deterministic
from tests.support.accumulating import accumulator, all_drained, data_of, is_whole, records_of

ROLES = ("key", "value", "headers", "timestamp", "partition")
NAMES = {role: (role, role == "value") for role in ROLES}
PARTITIONS = 5
BATCH_SIZES = (1, 61, 100, 300, 2000, 16384)

keys = st.none() | st.binary(max_size=4)
contents = st.none() | st.binary(max_size=40) | st.sampled_from([b"x" * 300, b"y" * 5000])
rows = st.tuples(keys, contents, strategies.headers, st.just(1000) | st.integers(0, 2**40))
named = st.none() | st.integers(0, PARTITIONS - 1)
# A part goes by send_table, in record batches of so many rows, or record by record.
parts = st.tuples(st.lists(st.tuples(rows, named), max_size=30), st.sampled_from((0, 1, 7, 1000)))
Part = tuple[list[tuple[plain.Row, int | None]], int]


class Direct(RecordSender):
    def _send_slowly(self, record: Any, refusal: Any, may_wait: bool) -> Any:
        raise AssertionError(f"{record!r} should go at once, not {refusal}")


def direct(records: RecordAccumulator, **settings: Any) -> Direct:
    sender = Direct(records, **settings)
    sender._accumulator.accepts_directly = True
    return sender


def table_of(part: Part) -> Any:
    data, chunk = part
    table = tables.table_of([row for row, _ in data])
    table = table.append_column("partition", pa.array([partition for _, partition in data], pa.int32()))
    return table.to_reader(max_chunksize=chunk)


def send_rows(sender: Direct, part: Part) -> None:
    for (key, value, headers, timestamp_ms), partition in part[0]:
        sender.send("t", value, key, headers=headers, partition=partition, timestamp_ms=timestamp_ms)


def send_table(sender: Direct, data: Any) -> TableSender:
    table = TableSender(sender, "t", data, NAMES)
    assert table.accept() is True
    table.end()
    return table


def by_partition(batches: Sequence[ProducerBatch]) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for batch in batches:
        found.setdefault(batch.partition, []).append(data_of(batch))
    return found


@deterministic
@given(st.lists(parts, max_size=5), st.sampled_from(BATCH_SIZES), st.integers(1, PARTITIONS), st.booleans())
def test_the_batches_are_those_of_send(
    given_parts: list[Part], batch_size: int, partitions: int, ignore_keys: bool
) -> None:
    settings: dict[str, Any] = {"batch_size": batch_size, "seed": 7, "linger_ns": 10**9}
    by_table, by_record = accumulator(partitions, **settings), accumulator(partitions, **settings)
    ours, theirs = (direct(records, ignore_keys=ignore_keys) for records in (by_table, by_record))
    given_parts = [
        ([(row, name if name is None else name % partitions) for row, name in data], chunk)
        for data, chunk in given_parts
    ]
    for part in given_parts:
        if part[1]:
            send_table(ours, table_of(part))
        else:
            send_rows(ours, part)
        send_rows(theirs, part)
    assert by_table.counters() == by_record.counters()
    drained = all_drained(by_table)
    assert by_partition(drained) == by_partition(all_drained(by_record))
    for batch in drained:
        batch.complete(0)
    assert is_whole(by_table)


@pytest.mark.parametrize("seed", range(5))
def test_a_switch_is_forced_at_the_same_row_as_by_send(seed: int) -> None:
    """Rows with a partition of their own fill the batches, so that the sticky ones never see a full one."""
    source = random.Random(seed)
    data: list[tuple[plain.Row, int | None]] = []
    for _ in range(150):
        data += [((None, bytes(source.randrange(3)), (), 1000), None) for _ in range(source.randrange(5))]
        data += [((None, bytes(170), (), 1000), partition) for partition in (0, 1)]
    by_table, by_record = (accumulator(2, batch_size=300, seed=seed, linger_ns=10**9) for _ in range(2))
    send_table(direct(by_table), table_of((data, 1000)))
    send_rows(direct(by_record), (data, 1000))
    assert by_partition(all_drained(by_table)) == by_partition(all_drained(by_record))


@deterministic
@given(st.lists(st.tuples(rows, st.none()), max_size=60), st.sampled_from(("lz4", "zstd", "gzip")))
def test_with_compression_the_ratio_is_learnt_as_by_send(data: Any, codec: str) -> None:
    settings: dict[str, Any] = {"batch_size": 500, "compression": codec, "linger_ns": 10**9}
    by_table, by_record = accumulator(**settings), accumulator(**settings)
    send_table(direct(by_table), table_of((data, 9)))
    send_rows(direct(by_record), (data, 9))
    ours, theirs = ([len(records_of(b)) for b in all_drained(r)] for r in (by_table, by_record))
    assert ours == theirs


@deterministic
@given(
    st.lists(st.integers(0, 30), max_size=8),
    st.sampled_from((100, 300, 2000)),
    st.sampled_from(("none", "lz4")),
    st.randoms(use_true_random=False),
)
def test_each_row_gets_the_outcome_of_its_record(
    counts: list[int], batch_size: int, codec: str, choices: Any
) -> None:
    """Tables of so many rows, with records of others between, in batches that are delivered, fail, fail in
    part, or are split first; in some worlds all are delivered, and a caller reads the result too early.
    """
    records = accumulator(3, batch_size=batch_size, compression=codec, linger_ns=10**9)
    sender = direct(records)
    reports, is_of = [], {}
    expected: list[list[tuple[int, int, int, KafkaError | None]]] = []
    for number, count in enumerate(counts):
        values = [b"%d-%d" % (number, row) + b"." * choices.randrange(60) for row in range(count)]
        row_keys = [choices.choice((None, b"a", b"b", b"c", b"d")) for _ in values]
        is_of.update({value: (number, row) for row, value in enumerate(values)})
        times = pa.array([1000] * count, pa.timestamp("ms", "UTC"))  # the clock's would be of other sizes
        data = pa.table({"key": pa.array(row_keys, pa.binary()), "value": pa.array(values, pa.binary())})
        reader = data.append_column("timestamp", times).to_reader(max_chunksize=choices.choice((3, 1000)))
        table = TableSender(sender, "t", reader, NAMES)
        while table.accept(blocks=1) is False:
            if choices.random() < 0.5:
                sender.send("t", b"other", choices.choice((b"a", b"b")), timestamp_ms=1000)
        table.end()
        reports.append(TableReport(table.outcome))
        expected.append([(-2, -2, -2, None)] * count)
        if choices.random() < 0.5:
            sender.send("t", b"other", b"a", timestamp_ms=1000)
    base_offset = 0
    endings = choices.choice([(0,), (0, 0, 0, 1), range(4)])
    while batches := all_drained(records):
        choices.shuffle(batches)
        for batch in batches:
            if choices.random() < 0.1:
                assert len(choices.choice([*reports]).offsets) <= max(counts)
            read = records_of(batch)
            if len(read) > 1 and choices.random() < 0.3:
                records.split(batch)
                continue
            outcome: list[tuple[int, KafkaError | None]] = [(base_offset + i, None) for i in range(len(read))]
            ending = choices.choice(endings)
            if ending == 0:
                batch.complete(base_offset)
            elif ending == 1:
                batch.complete(-1)
                outcome = [(-1, None)] * len(read)
            else:
                error, other = error_of(ErrorCode.INVALID_RECORD), KafkaError("other")
                faulty = choices.randrange(len(read))
                by_index = {faulty: other} if ending == 2 else None
                batch.fail(error, by_index)
                outcome = [(-1, other if by_index and i == faulty else error) for i in range(len(read))]
            for record, (offset, failure) in zip(read, outcome, strict=True):
                if record.value in is_of:
                    number, row = is_of[record.value]
                    code = 0 if failure is None else 87 if failure.code is not None else -1
                    expected[number][row] = (batch.partition, offset, code, failure)
            base_offset += len(read)
    for report, outcomes in zip(reports, expected, strict=True):
        found = zip(report.partitions, report.offsets, report.error_codes, strict=True)
        errors = dict(report.errors)
        assert [(*map(int, row), errors.get(i)) for i, row in enumerate(found)] == outcomes
        assert report.done_rows == report.row_count == len(outcomes)
        assert len(errors) == report.failed_rows == np.count_nonzero(report.error_codes)
    assert is_whole(records)


@deterministic
@given(st.lists(st.tuples(rows, named), max_size=60), st.sampled_from((61, 300, 2000)), st.booleans())
def test_rows_wait_for_memory_and_none_is_lost_or_doubled(
    data: Any, batch_size: int, ends_first: bool
) -> None:
    """Whenever memory is short what there is gets drained and answered, as a sender would."""
    records = accumulator(PARTITIONS, batch_size=batch_size, buffer_memory=24_000, linger_ns=10**9)
    table = TableSender(direct(records), "t", table_of((data, 13)), NAMES)
    offsets = dict.fromkeys(range(PARTITIONS), 0)
    log: dict[int, list[Any]] = {partition: [] for partition in offsets}

    def answer() -> None:
        for batch in all_drained(records):
            log[batch.partition] += records_of(batch)
            batch.complete(offsets[batch.partition])
            offsets[batch.partition] += batch.record_count

    while (refusal := table.accept()) is not True:
        assert refusal is Refusal.MEMORY
        waiter = records.begin_waiting()
        while table.accept(first_in_queue=True) is Refusal.MEMORY:
            answer()
        waiter.withdraw()
        assert records.memory.available >= 0
    if ends_first:
        table.end()
        answer()
    else:
        answer()
        table.end()
    report = TableReport(table.outcome)
    assert table.outcome.is_done
    for i, ((key, value, headers, timestamp_ms), partition) in enumerate(data):
        record = log[int(report.partitions[i])][int(report.offsets[i])]
        assert (record.key, record.value, record.headers, record.timestamp_ms) == (
            key,
            value,
            headers,
            timestamp_ms,
        )
        assert partition is None or partition == report.partitions[i]
    assert sum(map(len, log.values())) == len(data)
    for partition in offsets:
        assert (np.diff(report.offsets[report.partitions == partition]) == 1).all()
    assert is_whole(records)


@pytest.mark.slow
def test_a_batch_may_have_rows_of_very_many_tables() -> None:
    """The response is handled on a thread with a stack as small as on macOS."""
    records = accumulator(batch_size=1 << 20)
    sender = direct(records)
    data = pa.table({"value": [b""]})
    tables_sent = [send_table(sender, data) for _ in range(20_000)]
    (batch,) = all_drained(records)
    outcome = tables_sent[0].outcome
    del tables_sent
    before = threading.stack_size(512 << 10)
    try:
        answering = threading.Thread(target=batch.complete, args=(7,))
        answering.start()
        answering.join()
    finally:
        threading.stack_size(before)
    assert TableReport(outcome).offsets.tolist() == [7]
    assert is_whole(records)


def test_split_of_batch_not_in_flight_changes_nothing() -> None:
    records = accumulator()
    table = send_table(direct(records), pa.table({"value": [b"1", b"2"]}))
    (batch,) = all_drained(records)
    parts = records.split(batch)
    assert [part.record_count for part in parts] == [1, 1]
    with pytest.raises(IllegalStateError):
        records.split(batch)
    for offset, part in enumerate(all_drained(records)):
        part.complete(offset + 5)
    assert TableReport(table.outcome).offsets.tolist() == [5, 6]


def test_full_batch_does_not_hide_the_outcome_of_the_next_row() -> None:
    """The open batch is full when the table comes; it fails after the batch with the rows."""
    records = accumulator(batch_size=150)
    sender = direct(records)
    sender.send("t", bytes(60), timestamp_ms=1000)
    noted: list[int] = []
    table = TableSender(sender, "t", pa.table({"value": [bytes(60)]}), NAMES)
    report = TableReport(table.outcome)
    table.outcome.watch(report, lambda report: noted.append(report.done_rows))
    assert table.accept() is True
    table.end()
    before, batch = all_drained(records)
    assert (before.record_count, batch.record_count) == (1, 1)
    batch.fail(error_of(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not yours"))
    before.fail(error_of(ErrorCode.NOT_ENOUGH_REPLICAS, "too few"))
    for each in (before, batch):
        each.completion.run_callbacks(_threw)
    assert report.error_codes.tolist() == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert report.errors[0].code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert noted == [1]


def _threw(function: Any, error: Exception) -> None:
    raise error
