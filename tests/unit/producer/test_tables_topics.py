"""send_table with a topic column: the topic of each row, the report, and invalid topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from kbatch import DeliveryError, KafkaError, KafkaTimeoutError
from kbatch.errors import (
    ErrorCode,
    InvalidRecordError,
    InvalidTopicError,
    SerializationError,
    UnknownTopicOrPartitionError,
)
from kbatch.formats.writing import JsonLines
from kbatch.interceptors import Interceptor
from kbatch.producer.tables import TableReport
from kbatch.testing import Broker
from tests.oracle import plain
from tests.support.patience import until
from tests.support.producing import (
    SECONDS,
    SECONDS_MS,
    begin,
    metric,
    producing,
    requests_seen,
    values,
    within,
)

pytestmark = pytest.mark.usefixtures("shell")

TOPICS = PARTITIONS = {"one": 1, "three": 3, "seven": 7}
TEXTS = (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()))
COLUMN: dict[str, Any] = {"topic_column": "topic"}
UNKNOWN = (UnknownTopicOrPartitionError, KafkaTimeoutError)


def rows(topics: Sequence[str | None], kind: pa.DataType | None = None, **columns: Any) -> pa.Table:
    numbered = [b"%06d" % row for row in range(len(topics))]
    names = pa.array(topics, pa.string())
    if kind is not None:
        is_dictionary = pa.types.is_dictionary(kind)
        names = names.dictionary_encode().cast(kind) if is_dictionary else names.cast(kind)
    return pa.table({"topic": names, "value": numbered} | columns)


def check(broker: Broker, report: TableReport, data: pa.Table, topics: list[str]) -> None:
    """Check that every row is where the report says, and that each partition has its rows in order."""
    codes = report.topic_codes.tolist()
    assert [report.topics[code] for code in codes] == topics
    assert list(report.topics) == list(dict.fromkeys(topics))
    logs = {
        (topic, partition): list(broker.records(topic, partition))
        for topic in report.topics
        for partition in range(PARTITIONS[topic])
    }
    places = zip(topics, report.partitions.tolist(), report.offsets.tolist(), strict=True)
    found = [logs[topic, partition][offset].value for topic, partition, offset in places]
    assert found == data["value"].to_pylist()
    assert all(
        (np.diff(report.offsets[(report.topic_codes == code) & (report.partitions == partition)]) > 0).all()
        for code in range(len(report.topics))
        for partition in range(7)
    )
    assert not report.errors and report.done_rows == report.row_count == len(topics)


# Topics of rows


@pytest.mark.parametrize("kind", TEXTS, ids=str)
def test_each_row_goes_to_its_topic(broker: Broker, kind: pa.DataType) -> None:
    topics = [("one", "three", "seven", "one", "seven")[row * row % 7 % 5] for row in range(500)]
    data = rows(topics, kind)
    with producing(broker) as producer:
        delivery = producer.send_table(None, data.to_reader(max_chunksize=90), topic_column="topic")
        report = delivery.result(SECONDS)
        check(broker, report, data, topics)
        assert report.topic_codes.dtype == np.int32
        assert delivery.topic is None
        assert repr(delivery) == "<TableDelivery one, three, seven, 500 of 500 rows done>"


def test_a_null_goes_to_the_topic_of_the_call(broker: Broker) -> None:
    data = rows(["three", None, "one", None, "seven"])
    with producing(broker) as producer:
        report = producer.send_table("one", data, **COLUMN).result(SECONDS)
        check(broker, report, data, ["three", "one", "one", "one", "seven"])
        nothing = pa.table({"value": [b"x"], "topic": pa.nulls(1)})
        assert producer.send_table("one", nothing, **COLUMN).result(SECONDS).topics == ("one",)


def test_a_key_goes_by_the_partitions_of_its_rows_topic(broker: Broker) -> None:
    topics = ["one", "three", "seven"] * 40
    keys = [b"k%d" % (row // 3) for row in range(120)]
    data = rows(topics, key=keys)
    with producing(broker) as producer:
        report = producer.send_table(None, data, **COLUMN).result(SECONDS)
        check(broker, report, data, topics)
    assert report.partitions.tolist() == [
        plain.partition_for_key(key, PARTITIONS[topic]) for key, topic in zip(keys, topics, strict=True)
    ]


def test_a_named_partition_is_one_of_the_rows_topic(broker: Broker) -> None:
    data = rows(["seven", "three"], partition=pa.array([6, 2], pa.int32()))
    wrong = rows(["seven", "three"], partition=pa.array([6, 3], pa.int32()))
    with producing(broker, ["seven", "three"], max_block_ms=1000) as producer:
        assert producer.send_table(None, data, **COLUMN).result(SECONDS).partitions.tolist() == [6, 2]
        with pytest.raises(ValueError, match=r"row 1: partition 3 is out of range 0..2 of topic three"):
            producer.send_table(None, wrong, **COLUMN)


@pytest.mark.parametrize("named", [True, False])
def test_rows_may_name_partitions_that_were_just_added(broker: Broker, named: bool) -> None:
    """Metadata is requested again, as for records and encoded batches."""
    topics = ["three", "seven", "three"] if named else ["three"] * 3
    data = rows(topics, partition=pa.array([0, 1, 4], pa.int32()))
    with producing(broker) as producer:
        producer.send("three", b"", partition=2).result(SECONDS)  # what there is, is known
        producer.send("seven", b"", partition=2).result(SECONDS)
        broker.create_partitions("three", 5)
        call = (None, data) if named else ("three", data.select(["value", "partition"]))
        report = producer.send_table(*call, **(COLUMN if named else {})).result(SECONDS)
        assert report.partitions.tolist() == [0, 1, 4]
        assert [record.value for record in broker.records("three", 4)] == [data["value"][2].as_py()]


def test_a_table_stops_at_a_partition_that_never_comes(broker: Broker) -> None:
    """Rows of blocks before it are sent."""
    partitions = [0] * 30_000 + [5]
    data = rows(["three"] * len(partitions), partition=pa.array(partitions, pa.int32()))
    with producing(broker, ["three"], max_block_ms=1000) as producer:
        report = producer.send_table(None, data, **COLUMN).result(SECONDS)
        assert "partition 5 is out of range 0..2 of topic three" in str(report.stopped)
        assert report.done_rows > 0
        assert report.failed_rows >= 1


def test_rows_without_a_key_stick_to_a_partition_of_each_topic(broker: Broker) -> None:
    topics = ["three", "seven"] * 3000
    data = rows(topics)
    with producing(broker, batch_size=1000, linger_ms=1000) as producer:
        report = producer.send_table(None, data, **COLUMN).result(SECONDS)
        check(broker, report, data, topics)
    for code, count in ((0, 3), (1, 7)):
        partitions = report.partitions[report.topic_codes == code]
        assert 5 < np.count_nonzero(np.diff(partitions)) < 120
        assert 1 < len(set(partitions.tolist())) <= count


def test_order_against_send_from_the_same_thread(broker: Broker) -> None:
    with producing(broker, linger_ms=1000) as producer:
        producer.send("one", b"first")
        delivery = producer.send_table(None, rows(["one", "three", "one"]), **COLUMN)
        last = producer.send("one", b"last")
        producer.flush(SECONDS)
        assert values(broker, topic="one") == [b"first", b"000000", b"000002", b"last"]
        assert len(broker.batches("one")) == 1
        assert delivery.result(0).offsets.tolist() == [1, 0, 2]
        assert last.result(0).offset == 3


def test_tables_of_several_threads(broker: Broker) -> None:
    topics = ["one", "three", "seven", "three"] * 500
    data = rows(topics, key=[b"%d" % (row % 40) for row in range(2000)])
    keys: dict[str, Any] = {"buffer_memory": 200_000, "batch_size": 2000, "max_block_ms": SECONDS_MS}
    with producing(broker, **keys, compression_type="lz4") as producer:
        running = [
            within(lambda: producer.send_table(None, data.to_reader(max_chunksize=300), **COLUMN))
            for _ in range(3)
        ]
        others = within(lambda: [producer.send("one", b"other").result(SECONDS) for _ in range(50)])
        for each in running:
            check(broker, each.result(SECONDS).result(SECONDS), data, topics)
        assert len(others.result(SECONDS)) == 50
        until(lambda: producer._accumulator.memory.available == keys["buffer_memory"])
    assert len(values(broker, topic="three")) == 3 * 1000


def test_a_stream_larger_than_memory(broker: Broker) -> None:
    batch = rows(["one", "three"] * 5, value=[bytes(500)] * 10).to_batches()[0]
    stream = pa.RecordBatchReader.from_batches(batch.schema, (batch for _ in range(100)))
    memory = {"buffer_memory": 30_000, "batch_size": 1000, "max_block_ms": SECONDS_MS}
    with producing(broker, **memory) as producer:
        report = producer.send_table(None, stream, **COLUMN).result(SECONDS)
        assert report.row_count == 1000 and not report.errors
        assert report.topic_codes.tolist() == [0, 1] * 500
        assert metric(producer, "buffer-available-bytes") == 30_000


def test_any_arrow_source_works_and_topic_is_not_serialized(broker: Broker) -> None:
    frame = pl.DataFrame({"to": ["one", "one"], "id": [1, 2]})
    columns = {"value": np.array([b"a", b"b"]), "topic": pa.array(["one", "three"])}
    with producing(broker) as producer:
        producer.send_table(None, frame, value=JsonLines(), topic_column="to").result(SECONDS)
        assert values(broker, topic="one") == [b'{"id":1}', b'{"id":2}']
        report = producer.send_table(None, columns, **COLUMN).result(SECONDS)
        assert report.topics == ("one", "three") and report.offsets.tolist() == [2, 0]


def test_hundreds_of_topics(broker: Broker) -> None:
    names = [f"t{number}" for number in range(300)]
    for name in names:
        broker.create_topic(name, 1)
    with producing(broker) as producer:
        report = producer.send_table(None, rows([*names, *reversed(names)]), **COLUMN).result(SECONDS)
        assert report.topics == tuple(names)
        assert report.offsets.tolist() == [0] * 300 + [1] * 300
        again = producer.send_table(None, rows([*names]), **COLUMN)
        assert "t0, t1, t2 and 297 more topics" in repr(again)


def test_one_topic_for_all_rows_needs_no_memory_for_codes(broker: Broker) -> None:
    with producing(broker) as producer:
        report = producer.send_table("one", rows([None] * 5)).result(SECONDS)  # no role uses the column
        assert (report.topics, report.topic_codes.tolist()) == (("one",), [0] * 5)
        assert report.topic_codes.strides == (0,) and report.topic_codes.dtype == np.int32


def test_topics_are_requested_together(broker: Broker) -> None:
    with producing(broker) as producer:
        producer.send_table(None, rows([*PARTITIONS]), **COLUMN).result(SECONDS)
    asked = [[topic.name for topic in each.message.topics or ()] for each in broker.requests("Metadata")]
    assert sorted(PARTITIONS) in [sorted(names) for names in asked]


# Invalid tables


def test_nothing_is_accepted_of_what_cannot_be_sent(broker: Broker) -> None:
    good = rows(["one"])
    with producing(broker, ["one"], max_block_ms=1000) as producer:
        with pytest.raises(TypeError, match=r"topic is None; pass the topic, or topic_column=\.\.\."):
            producer.send_table(None, good)
        with pytest.raises(TypeError, match="topic must be a str, got int"):
            producer.send_table(1, good, **COLUMN)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="topic_column must be a column's name, or None, got 1"):
            producer.send_table(None, good, topic_column=1)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"there is no column 'to' \(the topic\); the columns are topic"):
            producer.send_table("one", good, topic_column="to")
        with pytest.raises(TypeError, match="column 'value' must be string, large_string, string_view, a"):
            producer.send_table(None, good, topic_column="value")
        with pytest.raises(ValueError, match=r"'topic', row 1: is null, and the call gives no topic"):
            producer.send_table(None, rows(["one", None]), **COLUMN)
        not_text = pa.array([b"one", b"\xff"]).view(pa.string())
        with pytest.raises(ValueError, match=r"column 'topic', row 1: is not UTF-8"):
            producer.send_table(None, pa.table({"topic": not_text, "value": ["a", "b"]}), **COLUMN)
        producer.flush(SECONDS)
        assert values(broker, topic="one") == []


def test_null_after_accepted_rows_ends_the_table(broker: Broker) -> None:
    data = pa.concat_tables([rows(["one", "three"]), rows(["one", None]), rows(["one"])])
    with producing(broker) as producer:
        report = producer.send_table(None, data, **COLUMN).result(SECONDS)
        assert report.offsets.tolist() == [0, 0, -1, -1, -1]
        assert report.topic_codes.tolist() == [0, 1, -1, -1, -1]
        assert isinstance(report.errors[2], SerializationError)
        assert "column 'topic', row 3: is null" in str(report.errors[2])


def test_rows_of_a_topic_that_is_none_fail_and_others_do_not(broker: Broker) -> None:
    """This includes rows of later record batches, which wait no more."""
    topics = ["one", "nowhere", "three", "bad name!", "one", "x" * 40_000]
    data = pa.concat_tables([rows(topics)] * 3)
    noted: list[TableReport] = []
    with producing(broker, ["one", "three"], max_block_ms=300) as producer:
        delivery = producer.send_table(None, data, **COLUMN, on_delivery=noted.append)
        report = delivery.result(SECONDS)
        assert report.topics == ("one", "nowhere", "three", "bad name!", "x" * 40_000)
        assert report.offsets.tolist() == [0, -1, 0, -1, 1, -1, 2, -1, 1, -1, 3, -1, 4, -1, 2, -1, 5, -1]
        assert report.topic_codes.tolist() == [0, 1, 2, 3, 0, 4] * 3
        assert sorted(report.errors) == [row for row in range(18) if row % 2]
        assert isinstance(report.errors[1], UNKNOWN) and "nowhere" in str(report.errors[7])
        assert isinstance(report.errors[3], InvalidTopicError)
        assert report.error_codes[3] == report.error_codes[15] == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert isinstance(report.errors[17], InvalidTopicError)
        assert report.failed_rows == 9 and delivery.done()
        failed = delivery.exception()
        assert isinstance(failed, DeliveryError) and failed.first is report.errors[1]
        producer.flush(SECONDS)
        assert noted == [report]


def test_where_no_topic_is_one_the_call_raises(broker: Broker) -> None:
    noted: list[TableReport] = []
    with producing(broker, max_block_ms=1000) as producer:
        with pytest.raises(UNKNOWN, match="nowhere"):
            producer.send_table(None, rows(["nowhere"] * 3), **COLUMN, on_delivery=noted.append)
        with pytest.raises(InvalidTopicError):
            producer.send_table("a\ud800", rows([None]), **COLUMN)
        producer.flush(SECONDS)
        assert noted == []


def test_errors_are_those_of_the_rows_own_topic(broker: Broker) -> None:
    """Partitions of several topics have the same numbers; two of them take no record without a key."""
    for name in ("kept", "compacted"):
        broker.create_topic(name, 1, **{"cleanup.policy": "compact"})
    topics = ["kept", "compacted", "one"] * 2
    with producing(broker, linger_ms=1000) as producer:
        delivery = producer.send_table(None, rows(topics), **COLUMN)
        with pytest.raises(DeliveryError, match="4 records failed"):
            producer.flush(SECONDS)
        report = delivery.result(0)
        assert report.offsets.tolist() == [-1, -1, 0, -1, -1, 1]
        assert sorted(report.errors) == [0, 1, 3, 4]
        assert {type(error) for error in report.errors.values()} == {InvalidRecordError}


def test_refused_rows_are_raised_by_flush_unless_observed(broker: Broker) -> None:
    data = rows(["one", "bad name!", "three", "bad name!"])
    with producing(broker) as producer:
        producer.send_table(None, data, **COLUMN)
        with pytest.raises(DeliveryError, match=r"2 records failed.*bad name!"):
            producer.flush(SECONDS)
        producer.flush(SECONDS)
        producer.send_table(None, data, **COLUMN).result(SECONDS)
        producer.send_table(None, data, **COLUMN, on_delivery=lambda report: None)
        producer.flush(SECONDS)
        producer.send_table(None, rows(["one"] * 8192 + [None]), **COLUMN)
        with pytest.raises(DeliveryError, match="row 8192: is null"):
            producer.flush(SECONDS)


def test_a_refused_topic_is_missing_in_a_transaction(broker: Broker) -> None:
    with producing(broker, transactional_id="t", max_block_ms=SECONDS_MS) as producer:
        begin(producer)
        report = producer.send_table(None, rows(["one", "bad name!"]), **COLUMN).report
        with pytest.raises(KafkaError, match="bad name!"):
            producer.commit_transaction()
        producer.abort_transaction()
        assert isinstance(report.errors[1], InvalidTopicError)


@pytest.mark.parametrize(
    ("topic", "column"), [("bad name!", {}), (None, COLUMN)], ids=["topic", "topic column"]
)
def test_table_refused_whole_makes_transaction_abortable(
    broker: Broker, topic: str | None, column: dict[str, Any]
) -> None:
    with producing(broker, transactional_id="t", max_block_ms=SECONDS_MS) as producer:
        begin(producer)
        with pytest.raises(InvalidTopicError, match="bad name!"):
            producer.send_table(topic, rows(["bad name!"]), **column)
        with pytest.raises(KafkaError, match="bad name!"):
            producer.commit_transaction()
        producer.abort_transaction()
        producer.begin_transaction()
        with pytest.raises(ValueError, match="nothing"):
            producer.send_table("one", rows(["one"]), value="nothing")
        producer.commit_transaction()


class SeesTables(Interceptor):
    def __init__(self) -> None:
        self.seen: list[str | None] = []

    def on_send_table(self, topic: str | None, table: Any) -> Any:
        self.seen.append(topic)
        return table.slice(1)


@pytest.mark.threads
def test_rows_waiting_past_their_transaction_join_no_other(broker: Broker) -> None:
    data = pa.Table.from_batches(rows(["one"]).to_batches() + rows(["late"]).to_batches())
    with producing(broker, transactional_id="t", max_block_ms=SECONDS_MS) as producer:
        begin(producer)
        asked = requests_seen(broker, "Metadata")
        sent = within(lambda: producer.send_table(None, data, **COLUMN))
        while "late" not in [topic.name for topic in asked.get(timeout=SECONDS).topics or ()]:
            pass
        producer.abort_transaction()
        broker.create_topic("late", 1)
        report = sent.result(SECONDS).result(SECONDS)
        assert "needs an open transaction" in str(report.errors[1])
        producer.begin_transaction()
        producer.commit_transaction()
        assert not values(broker, topic="late")


def test_interceptors_see_the_table_and_no_topic(broker: Broker) -> None:
    interceptor = SeesTables()
    with producing(broker, interceptor_classes=[interceptor]) as producer:
        report = producer.send_table("three", rows(["three", "one", None]), **COLUMN).result(SECONDS)
        assert report.topics == ("one", "three")
        producer.send_table("three", rows(["one", "one"])).result(SECONDS)
    assert interceptor.seen == [None, "three"]
