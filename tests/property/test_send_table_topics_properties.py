"""send_table with a topic column against send: the same rows give each partition of each topic the same
batches, byte by byte; topics that turn up late, or never, change nothing for the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kbatch import KafkaError
from kbatch._native.send.accumulator import RecordAccumulator, Refusal
from kbatch._native.send.cluster_view import ClusterView
from kbatch._native.send.table_sender import TableSender
from kbatch.core.client.backoff import NEVER_NS
from kbatch.producer.tables import TableReport
from tests.oracle import plain, strategies, tables
from tests.property.test_codec_properties import deterministic
from tests.property.test_send_table_properties import NAMES, Direct, contents, direct, keys
from tests.support.accumulating import all_drained, data_of, is_whole, records_of

# Names that begin alike, one without a character, one that is not ASCII.
PARTITIONS = {"t": 1, "tt": 2, "": 3, "größe": 5}
FALLBACK = "tt"
KINDS = (
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.uint16(), pa.large_string()),
)

topics = st.none() | st.sampled_from(tuple(PARTITIONS))
rows = st.tuples(keys, contents, strategies.headers, st.just(1000) | st.integers(0, 2**40))
# A row, its topic and, for some, which of its topic's partitions.
items = st.lists(st.tuples(rows, topics, st.none() | st.integers(0, 4)), max_size=60)
# A part goes by send_table, in record batches of so many rows, or record by record.
parts = st.tuples(items, st.sampled_from((0, 1, 7, 1000)))
Item = tuple[plain.Row, str | None, int | None]


def accumulator(partitions: dict[str, int] = PARTITIONS, **settings: Any) -> RecordAccumulator:
    made = RecordAccumulator(**{"poison": True, "linger_ns": 10**9, "seed": 7} | settings)
    publish(made, partitions)
    return made


def publish(records: RecordAccumulator, partitions: dict[str, int]) -> None:
    records.publish(ClusterView({name: [(1, 0)] * count for name, count in partitions.items()}))


def partition_of(item: Item) -> int | None:
    _, topic, partition = item
    return None if partition is None else partition % PARTITIONS[FALLBACK if topic is None else topic]


def table_of(data: list[Item], chunk: int, kind: pa.DataType = KINDS[0]) -> Any:
    names = [None if topic is None else topic.encode() for _, topic, _ in data]
    table = tables.table_of([row for row, _, _ in data])
    table = table.append_column("partition", pa.array([partition_of(item) for item in data], pa.int32()))
    return table.append_column("to", tables.array_of(names, kind)).to_reader(max_chunksize=chunk)


def sending(sender: Direct, data: Any) -> TableSender:
    return TableSender(sender, FALLBACK, data, NAMES | {"topic": ("to", True)})


def send_rows(sender: Direct, data: list[Item]) -> None:
    for item in data:
        (key, value, headers, timestamp_ms), topic, _ = item
        topic = FALLBACK if topic is None else topic
        at = partition_of(item)
        sender.send(topic, value, key, headers=headers, partition=at, timestamp_ms=timestamp_ms)


def by_partition(records: RecordAccumulator) -> dict[tuple[str, int], list[bytes]]:
    found: dict[tuple[str, int], list[bytes]] = {}
    for batch in all_drained(records):
        found.setdefault((batch.topic, batch.partition), []).append(data_of(batch))
        batch.complete(0)
    return found


@deterministic
@given(st.lists(parts, max_size=4), st.sampled_from((1, 100, 300, 16384)), st.sampled_from(KINDS))
def test_the_batches_are_those_of_send(
    given_parts: list[tuple[list[Item], int]], batch_size: int, kind: pa.DataType
) -> None:
    by_table, by_record = (accumulator(batch_size=batch_size) for _ in range(2))
    ours, theirs = direct(by_table), direct(by_record)
    for data, chunk in given_parts:
        if chunk:
            table = sending(ours, table_of(data, chunk, kind))
            assert table.accept() is True
            table.end()
            report = TableReport(table.outcome)
            names = [FALLBACK if topic is None else topic for _, topic, _ in data]
            assert report.topics == tuple(dict.fromkeys(names))
            assert [report.topics[code] for code in report.topic_codes] == names
        else:
            send_rows(ours, data)
        send_rows(theirs, data)
    assert by_table.counters() == by_record.counters()
    assert by_partition(by_table) == by_partition(by_record)
    assert is_whole(by_table)


@deterministic
@given(items, st.sampled_from((61, 300, 2000)), st.randoms(use_true_random=False))
def test_rows_wait_for_memory_and_topics_and_get_their_outcome(
    data: list[Item], batch_size: int, choices: Any
) -> None:
    """Topics become known one by one, or are refused; batches are answered where memory is short, or fail."""
    known: dict[str, int] = {}
    refused: dict[str, KafkaError] = {}
    records = accumulator(known, batch_size=batch_size, buffer_memory=24_000)
    table = sending(direct(records), table_of(data, 13))
    logs: dict[tuple[str, int], list[Any]] = {}
    failed: dict[tuple[str, int], KafkaError] = {}
    failure_rate = choices.choice((0, 0.2, 0.8))

    def answer() -> None:
        for batch in all_drained(records):
            place = (batch.topic, batch.partition)
            if place not in failed and choices.random() >= failure_rate:
                log = logs.setdefault(place, [])
                log += records_of(batch)
                batch.complete(len(log) - batch.record_count)
            else:
                batch.fail(failed.setdefault(place, KafkaError(f"not {place}")))

    while (refusal := table.accept()) is not True:
        if refusal is Refusal.METADATA:
            name, partition = choices.choice(table.unknown_partitions)
            assert partition is None
            assert name not in refused and name not in known
            if choices.random() < 0.3:
                refused[name] = KafkaError(f"no {name}")
                table.refuse_topic(name, refused[name])
            else:
                known[name] = PARTITIONS[name]
                publish(records, known)
            continue
        waiter = records.begin_waiting()
        while table.accept(first_in_queue=True) is Refusal.MEMORY:
            answer()
        waiter.withdraw()
    table.end()
    answer()
    report = TableReport(table.outcome)
    errors, delivered = report.errors, 0
    assert table.outcome.is_done and report.done_rows == report.row_count == len(data)
    for i, (row, topic, _) in enumerate(data):
        name = FALLBACK if topic is None else topic
        place = (name, int(report.partitions[i]))
        assert report.topics[report.topic_codes[i]] == name
        assert (place[1] == -1) == (name in refused)
        if report.offsets[i] >= 0:
            record = logs[place][int(report.offsets[i])]
            assert (record.key, record.value, record.headers, record.timestamp_ms) == row
            assert i not in errors
            delivered += 1
        else:
            assert errors[i] is (refused[name] if name in refused else failed[place])
    assert delivered == sum(map(len, logs.values()))
    assert report.failed_rows == len(errors) == len(data) - delivered
    for code in range(len(report.topics)):
        for partition in range(5):
            offsets = report.offsets[(report.topic_codes == code) & (report.partitions == partition)]
            assert (np.diff(offsets[offsets >= 0]) == 1).all()
    assert is_whole(records)


@deterministic
@given(items, st.integers(0, 8))
def test_what_is_given_up_has_failed_whole(data: list[Item], blocks: int) -> None:
    """Insert rows of an unknown topic between the others."""
    records = accumulator({name: count for name, count in PARTITIONS.items() if name})
    table = sending(direct(records), table_of(data, 7))
    for _ in range(blocks):
        if table.accept(blocks=1) is not False:
            break
    error = KafkaError("no more")
    table.count_remaining(NEVER_NS)
    table.give_up(error)
    table.end(error)
    accepted = sum(batch.record_count for batch in all_drained(records))
    report = TableReport(table.outcome)
    assert report.row_count == len(data)
    assert report.failed_rows == len(data) - accepted
    assert set(report.errors.values()) <= {error}
