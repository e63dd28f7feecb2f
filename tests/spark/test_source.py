"""Reading with the format `kbatch` in a real session: rows, columns, tasks, streams, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

import kbatch
from kbatch import Admin
from kbatch.errors import DataLossError
from kbatch.spark.source import KbatchReader, read_range
from kbatch.spark.source_offsets import OffsetRange
from kbatch.spark.source_options import read_source_options
from kbatch.spark.source_stream import KbatchStreamReader
from tests.oracle.kafka import create_topic
from tests.spark.sinks import (
    PARTITIONS,
    FaultySource,
    Sink,
    finish,
    killed_transformation,
    new_sink,
    numbers,
    read,
)
from tests.support.effort import only_if_long
from tests.support.shop import ORDER, SHOP

pytestmark = pytest.mark.spark
COUNT = 4000
ALL = list(range(COUNT))


@pytest.fixture
def embedded(embedded_bootstrap_servers: str) -> Sink:
    """Return a topic of the embedded broker, for what is the same with every broker."""
    return new_sink(embedded_bootstrap_servers)


@pytest.fixture(scope="module", autouse=True)
def faulty_source(spark: SparkSession) -> None:
    spark.dataSource.register(FaultySource)


def reading(spark: SparkSession, sink: Sink, **options: object) -> DataFrame:
    given = {"kafka.bootstrap.servers": sink.brokers, "subscribe": sink.topic, **options}
    texts = {name.replace("__", "."): str(value) for name, value in given.items() if value is not None}
    return spark.read.format("kbatch").options(**texts).load()


def streaming(spark: SparkSession, sink: Sink, form: str = "kbatch", **options: object) -> DataFrame:
    given = {
        "kafka.bootstrap.servers": sink.brokers,
        "subscribe": sink.topic,
        "startingOffsets": "earliest",
        **options,
    }
    texts = {name.replace("__", "."): str(value) for name, value in given.items()}
    return spark.readStream.format(form).options(**texts).load()


def numbers_of(frame: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


def produce(sink: Sink, records: Sequence[tuple[int, bytes | None, bytes | None]], **keywords: Any) -> None:
    with kbatch.Producer(bootstrap_servers=sink.brokers, linger_ms=0) as producer:
        for partition, key, value in records:
            producer.send(sink.topic, value, key=key, partition=partition, **keywords)


def position_of(row: Row) -> tuple[int, int]:
    return row.partition, row.offset


def test_rows_are_those_of_another_client(spark: SparkSession, sink: Sink) -> None:
    headers = [("h", b"1"), ("h", None)]
    produce(sink, [(0, b"k", None), (1, None, b"\x00\xff"), (3, b"", b"")], headers=headers)
    sink.write(numbers(spark))
    expected = {
        (found.partition, found.offset): (found.key, found.value, list(found.headers), found.timestamp_ms)
        for found in sink.read()
    }
    rows = reading(spark, sink, includeHeaders="true").collect()
    assert all(row.topic == sink.topic and row.timestampType == 0 for row in rows)
    assert {
        position_of(row): (
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            [(each.key, None if each.value is None else bytes(each.value)) for each in row.headers or ()],
            round(row.timestamp.timestamp() * 1000),
        )
        for row in rows
    } == expected


def test_headers_of_a_record_without_any_are_null(spark: SparkSession, embedded: Sink) -> None:
    produce(embedded, [(0, None, b"0")])
    produce(embedded, [(0, None, b"1")], headers=[("h", b"1")])
    frame = reading(spark, embedded, includeHeaders="true")
    assert numbers_of(frame.where("headers is null")) == [0]
    target = new_sink(embedded.brokers)  # which takes a null as no headers
    target.write(frame.select("value", "headers"))
    assert sorted((each.value, each.headers) for each in target.read()) == [
        (b"0", ()),
        (b"1", (("h", b"1"),)),
    ]


def test_columns_choose_what_is_read(spark: SparkSession, sink: Sink) -> None:
    sink.write(numbers(spark))
    frame = reading(spark, sink, columns="offset, value")
    assert frame.columns == ["offset", "value"]
    assert numbers_of(frame) == ALL
    assert reading(spark, sink, columns="partition").count() == COUNT


def test_values_are_typed_in_the_task(spark: SparkSession, sink: Sink) -> None:
    produce(sink, [(0, b"\x00\x00\x00\x07", b'{"id": 1, "tags": ["a"]}'), (0, None, None), (0, None, b"{}")])
    frame = reading(
        spark,
        sink,
        key__format="int",
        value__format="json",
        value__schema="id BIGINT, tags ARRAY<STRING>",
    )
    assert frame.select("key", "value.id", "value.tags").collect() == [
        (7, 1, ["a"]),
        (None, None, None),
        (None, None, None),
    ]


def test_messages_are_structs(spark: SparkSession, sink: Sink, tmp_path: Path) -> None:
    path = tmp_path / "shop.pb"
    path.write_bytes(SHOP)
    order = ORDER(id=2**64 - 1, labels={"a": 2**32 - 1}, at={"seconds": 5, "nanos": 999}, took={"seconds": 1})
    produce(sink, [(0, None, order.SerializeToString()), (0, None, None), (0, None, b"")])
    options = {"value__format": "protobuf", "value__schema": path, "value__message": "shop.Order"}
    frame = reading(spark, sink, columns="value", **options)
    first, second, third = frame.collect()
    assert first.value.asDict() == {
        "id": 2**64 - 1,
        "labels": {"a": 2**32 - 1},
        "at": datetime.fromtimestamp(5),
        "took": timedelta(seconds=1),
    }
    assert second.value is None
    assert third.value.asDict() == {"id": 0, "labels": {}, "at": None, "took": None}


def test_malformed_value_fails_or_is_null(spark: SparkSession, sink: Sink) -> None:
    produce(sink, [(2, b"k", b"12345678"), (2, b"k", b"123")])
    with pytest.raises(PySparkException, match=f"{sink.topic}.*offset 1"):
        reading(spark, sink, value__format="long").collect()
    rows = reading(spark, sink, value__format="long", on__malformed="null").orderBy("offset").collect()
    assert [row.value for row in rows] == [int.from_bytes(b"12345678", "big"), None]


def test_F_MIG_03_bytes_and_reasons_are_columns(spark: SparkSession, sink: Sink) -> None:
    produce(sink, [(2, b"k", b"12345678"), (2, b"k", b"123")])
    frame = reading(
        spark, sink, columns="value,offset", value__format="long", value__raw="true", on__malformed="column"
    )
    assert frame.columns == ["value", "value_error", "value_raw", "offset"]
    good, bad = frame.orderBy("offset").collect()
    assert good[:3] == (int.from_bytes(b"12345678", "big"), None, b"12345678")
    assert bad[:3] == (None, "Int64 has 8 bytes, it has 3", b"123")


@pytest.mark.parametrize(
    ("options", "tasks"),
    [({}, PARTITIONS), ({"minPartitions": 9}, 8), ({"maxRecordsPerPartition": 100}, 40)],
)
def test_R98_ranges_are_split_into_tasks(
    spark: SparkSession, sink: Sink, options: dict[str, object], tasks: int
) -> None:
    produce(sink, [(number % PARTITIONS, None, b"%d" % number) for number in range(COUNT)])
    frame = reading(spark, sink, **options)
    assert frame.rdd.getNumPartitions() == tasks
    assert numbers_of(frame) == ALL


def test_offsets_and_times_bound_a_read(spark: SparkSession, sink: Sink) -> None:
    for number in range(10):
        produce(sink, [(0, None, b"%d" % number)], timestamp_ms=1_000 * number)

    def between(**options: object) -> list[int]:
        return numbers_of(reading(spark, sink, subscribe=None, assign=f'{{"{sink.topic}":[0]}}', **options))

    place = json.dumps({sink.topic: {"0": 3}})
    assert between(startingOffsets=place) == list(range(3, 10))
    assert between(endingOffsets=place) == [0, 1, 2]
    assert between(startingTimestamp=2_500, endingTimestamp=7_000) == [3, 4, 5, 6]
    with pytest.raises(PySparkException, match="No offset matched"):
        between(startingTimestamp=9_001)
    assert between(startingTimestamp=9_001, startingOffsetsByTimestampStrategy="latest") == []


@pytest.mark.slow
def test_R99_filters_narrow_the_ranges(spark: SparkSession, sink: Sink) -> None:
    produce(sink, [(number % PARTITIONS, None, b"%d" % number) for number in range(COUNT)])
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = reading(spark, sink, pushFilters="true").where(
            (f.col("partition") == 1) & (f.col("offset") >= 10) & (f.col("offset") < 20)
        )
        assert numbers_of(frame) == list(range(41, 81, 4))
        assert frame.rdd.getNumPartitions() == 1
        late = reading(spark, sink, pushFilters="true").where(f.col("timestamp") > "2100-01-01")
        assert late.count() == 0
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_R102_aborted_records_are_left_out(spark: SparkSession, sink: Sink) -> None:
    with kbatch.Producer(bootstrap_servers=sink.brokers, transactional_id=sink.topic) as producer:
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            producer.send(sink.topic, b"%d" % number, partition=0)
            producer.flush()
            producer.commit_transaction() if number % 2 else producer.abort_transaction()
    assert numbers_of(reading(spark, sink, isolation="read_committed")) == [1, 3, 5]
    assert numbers_of(reading(spark, sink)) == [0, 1, 2, 3, 4, 5]


def test_deleted_records_are_data_loss(spark: SparkSession, sink: Sink) -> None:
    produce(sink, [(0, None, b"%d" % number) for number in range(10)])
    with Admin(bootstrap_servers=sink.brokers) as admin:
        admin.topics.delete_records({(sink.topic, 0): 4})
    place = json.dumps({sink.topic: {"0": 2, **{str(each): 0 for each in range(1, PARTITIONS)}}})
    with pytest.raises(PySparkException, match="DataLossError"):
        reading(spark, sink, startingOffsets=place).collect()
    rest = reading(spark, sink, startingOffsets=place, failOnDataLoss="false")
    assert numbers_of(rest) == list(range(4, 10))


@pytest.mark.parametrize("fails", ["true", "false"])
def test_topic_that_was_created_again_is_read_whole(spark: SparkSession, sink: Sink, fails: str) -> None:
    """Workers keep their readers, which know the topic that had the name before."""

    def fill(count: int) -> list[int]:
        produce(sink, [(number % PARTITIONS, None, b"%d" % number) for number in range(count)])
        return numbers_of(reading(spark, sink, failOnDataLoss=fails))

    assert fill(100) == list(range(100))
    with Admin(bootstrap_servers=sink.brokers) as admin:
        admin.topics.delete(sink.topic)
    create_topic(sink.brokers, sink.topic, PARTITIONS)
    assert fill(300) == list(range(300))


def deleted_up_to(sink: Sink, offset: int) -> None:
    """Produce ten records to partition 0, and delete those before the offset."""
    produce(sink, [(0, None, b"%d" % number) for number in range(10)])
    with Admin(bootstrap_servers=sink.brokers) as admin:
        admin.topics.delete_records({(sink.topic, 0): offset})


def rows_of_range(sink: Sink, start: int, end: int, **options: str) -> list[int]:
    """Read a range as a task does, which the driver has planned before records were deleted."""
    given = {"kafka.bootstrap.servers": sink.brokers, "subscribe": sink.topic, **options}
    read_options = read_source_options(given, streaming=False)
    schema = pa.schema([("offset", pa.int64())])
    batches = list(read_range(read_options, schema, OffsetRange(sink.topic, 0, start, end)))
    return [offset for batch in batches for offset in batch["offset"].to_pylist()]


def test_task_warns_of_what_it_skips(embedded: Sink, caplog: pytest.LogCaptureFixture) -> None:
    deleted_up_to(embedded, 7)
    place = f"{embedded.topic}-0"
    assert rows_of_range(embedded, 0, 10, failOnDataLoss="false") == [7, 8, 9]
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert f"7 offsets of {place} are gone (0 to 6). Some data may have been lost" in record.getMessage()
    with pytest.raises(
        DataLossError, match=rf"7 offsets of {place} are gone \(0 to 6\)\. .*failOnDataLoss"
    ) as e:
        rows_of_range(embedded, 0, 10)
    assert "on_data_loss" not in str(e.value) and "auto.offset.reset" not in str(e.value)


def test_range_after_its_log_ends_with_the_log(embedded: Sink, caplog: pytest.LogCaptureFixture) -> None:
    deleted_up_to(embedded, 0)
    soon = {"kafkaConsumer.pollTimeoutMs": "200"}
    with pytest.raises(DataLossError, match=r"is to be read up to offset 15, but its log ends at 10"):
        rows_of_range(embedded, 8, 15, **soon)
    assert rows_of_range(embedded, 8, 15, failOnDataLoss="false", **soon) == [8, 9]
    assert "is to be read up to offset 15, but its log ends at 10" in caplog.text


@pytest.mark.parametrize(
    ("limits", "text", "left"),
    [
        ({"endingOffsets": 15}, "is to be read up to offset 15, but its log ends at 10", range(4, 10)),
        ({"startingOffsets": 15}, "is to be read from offset 15, but its log ends at 10", []),
        ({"startingOffsets": 1}, r"3 offsets of .*-0 are gone \(1 to 3\)", range(4, 10)),
    ],
)
def test_driver_knows_limits_that_logs_do_not_have(
    embedded: Sink, caplog: pytest.LogCaptureFixture, limits: dict[str, int], text: str, left: Sequence[int]
) -> None:
    deleted_up_to(embedded, 4)
    given = {"kafka.bootstrap.servers": embedded.brokers, "assign": json.dumps({embedded.topic: [0]})}
    given |= {name: json.dumps({embedded.topic: {"0": offset}}) for name, offset in limits.items()}

    def planned(**more: str) -> list[OffsetRange]:
        reader = KbatchReader(read_source_options({**given, **more}, streaming=False), pa.schema([]))
        return [each.value for each in reader.partitions() if each.value is not None]

    with pytest.raises(DataLossError, match=text):
        planned()
    ranges = planned(failOnDataLoss="false")
    assert [offset for each in ranges for offset in range(each.start, each.end)] == list(left)
    assert re.search(text, caplog.text)


def test_pattern_is_searched_in_names_of_users_topics(spark: SparkSession, sink: Sink) -> None:
    produce(sink, [(0, None, b"1")])
    read(sink.brokers, sink.topic, "read_committed")  # a group, whose offsets make an internal topic
    part = sink.topic.removeprefix("sink.")
    frame = reading(spark, sink, subscribe=None, subscribePattern=f"{part}$|^__")
    assert {row.topic for row in frame.collect()} == {sink.topic}


@pytest.mark.slow
def test_wrong_calls_name_the_remedy(spark: SparkSession, sink: Sink) -> None:
    with pytest.raises(PySparkException, match="did you mean 'startingOffsets'"):
        reading(spark, sink, startingOffset="latest").count()
    with pytest.raises(PySparkException, match="choose with the option 'columns'"):
        spark.read.format("kbatch").schema("value BINARY").options(
            **{"kafka.bootstrap.servers": sink.brokers, "subscribe": sink.topic}
        ).load().count()
    with pytest.raises(PySparkException, match="no-such-topic"):
        reading(spark, sink, subscribe="no-such-topic").count()


# Streams


def test_running_stream_reads_a_topic_that_was_created_again(embedded: Sink) -> None:
    """From the offsets of its checkpoint on, as in Spark; driver and worker keep their readers."""
    given = {"kafka.bootstrap.servers": embedded.brokers, "subscribe": embedded.topic}
    options = read_source_options({**given, "startingOffsets": "earliest"}, streaming=True)
    stream = KbatchStreamReader(options, pa.schema([("offset", pa.int64())]))

    def batch(start: dict[str, dict[str, int]]) -> tuple[int, dict[str, dict[str, int]]]:
        end = stream.latestOffset(start, stream.getDefaultReadLimit())
        tasks = stream.partitions(start, end)
        return sum(found.num_rows for task in tasks for found in stream.read(task)), end

    produce(embedded, [(number % PARTITIONS, None, b"") for number in range(100)])
    count, end = batch(stream.initialOffset())
    assert count == 100
    with Admin(bootstrap_servers=embedded.brokers) as admin:
        admin.topics.delete(embedded.topic)
    create_topic(embedded.brokers, embedded.topic, PARTITIONS)
    produce(embedded, [(number % PARTITIONS, None, b"") for number in range(400)])
    count, end = batch(end)
    assert (count, end) == (300, {embedded.topic: {str(each): 100 for each in range(PARTITIONS)}})
    stream.stop()


def test_repeated_batch_of_a_topic_that_is_shorter_now_is_data_loss(
    embedded: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    """The offsets of a micro-batch in the checkpoint are older than the topic."""
    produce(embedded, [(0, None, b"") for _ in range(10)])
    given = {"kafka.bootstrap.servers": embedded.brokers, "assign": json.dumps({embedded.topic: [0]})}
    start, end = ({embedded.topic: {"0": offset}} for offset in (4, 30))
    text = "is to be read up to offset 30, but its log ends at 10"
    for fails in ("true", "false"):
        options = read_source_options({**given, "failOnDataLoss": fails}, streaming=True)
        stream = KbatchStreamReader(options, pa.schema([("offset", pa.int64())]))
        if fails == "true":
            with pytest.raises(DataLossError, match=text):
                stream.partitions(start, end)
        else:
            (task,) = stream.partitions(start, end)
            assert sum(found.num_rows for found in stream.read(task)) == 6
            assert text in caplog.text
        stream.stop()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "text", "trigger"),
    [
        ({"endingOffsets": "latest"}, "ending offset not valid in streaming queries", {"availableNow": True}),
        ({"maxOffsetsPerTriger": 5}, "did you mean 'maxOffsetsPerTrigger'", {"processingTime": "1 second"}),
    ],
)
def test_error_of_options_is_shown_last(
    spark: SparkSession,
    embedded: Sink,
    tmp_path: Path,
    options: dict[str, Any],
    text: str,
    trigger: dict[str, Any],
) -> None:
    writer = streaming(spark, embedded, **options).writeStream.format("noop").trigger(**trigger)
    with pytest.raises(StreamingQueryException) as caught:
        finish(writer.option("checkpointLocation", str(tmp_path)))
    assert "UnboundLocalError" not in str(caught.value)
    errors = [line for line in str(caught.value).splitlines() if re.match(r"[\w.]*Error: ", line)]
    assert text in errors[-1]


def run_to_end(frame: DataFrame, folder: Path, each: Callable[[DataFrame, int], None]) -> StreamingQuery:
    writer = frame.writeStream.foreachBatch(each).option("checkpointLocation", str(folder))
    return finish(writer.trigger(availableNow=True))


class Batches:
    """Collects the values of each micro-batch."""

    def __init__(self) -> None:
        self.values: list[list[int]] = []

    def __call__(self, frame: DataFrame, number: int) -> None:
        self.values.append(numbers_of(frame))

    @property
    def all(self) -> list[int]:
        return sorted(value for batch in self.values for value in batch)


def test_R100_stream_reads_what_is_there_in_batches(spark: SparkSession, sink: Sink, tmp_path: Path) -> None:
    produce(sink, [(number % PARTITIONS, None, b"%d" % number) for number in range(1000)])
    found = Batches()
    run_to_end(streaming(spark, sink, maxOffsetsPerTrigger=300), tmp_path, found)
    assert found.all == list(range(1000))
    assert [len(batch) for batch in found.values] == [300, 300, 300, 100]


@pytest.mark.slow
def test_R100_bytes_bound_a_batch(spark: SparkSession, sink: Sink, tmp_path: Path) -> None:
    value = b"%%0%dd" % 1000
    with kbatch.Producer(bootstrap_servers=sink.brokers, batch_size=16384) as producer:
        for number in range(2000):
            producer.send(sink.topic, value % number, partition=number % PARTITIONS)
    found = Batches()
    run_to_end(streaming(spark, sink, maxBytesPerTrigger=600_000), tmp_path, found)
    assert found.all == list(range(2000))
    *whole, last = found.values
    assert all(500 < len(batch) <= 600 for batch in whole) and len(last) <= 600


@pytest.mark.slow
def test_stream_goes_on_after_a_restart(spark: SparkSession, sink: Sink, tmp_path: Path) -> None:
    found = Batches()
    for first in (0, 100, 200):
        produce(sink, [(number % PARTITIONS, None, b"%d" % number) for number in range(first, first + 100)])
        run_to_end(streaming(spark, sink), tmp_path, found)
    assert found.values == [list(range(first, first + 100)) for first in (0, 100, 200)]
    logs = [path for path in (tmp_path / "offsets").iterdir() if path.name.isdigit()]
    last = max(logs, key=lambda path: int(path.name))
    offsets = json.loads(last.read_text().splitlines()[-1])
    assert offsets == {sink.topic: {str(each): 75 for each in range(PARTITIONS)}}


@pytest.mark.slow
def test_R100_new_partitions_are_read_from_their_beginning(
    spark: SparkSession, sink: Sink, tmp_path: Path
) -> None:
    found = Batches()
    produce(sink, [(0, None, b"0")])
    run_to_end(streaming(spark, sink), tmp_path, found)
    with Admin(bootstrap_servers=sink.brokers) as admin:
        admin.topics.add_partitions(sink.topic, PARTITIONS + 1)
    produce(sink, [(PARTITIONS, None, b"1"), (0, None, b"2")])
    run_to_end(streaming(spark, sink), tmp_path, found)
    assert found.values == [[0], [1, 2]]


@pytest.mark.slow
def test_R103_offsets_are_committed_for_tools(spark: SparkSession, sink: Sink, tmp_path: Path) -> None:
    produce(sink, [(0, None, b"%d" % number) for number in range(10)])
    group = f"lag.{sink.topic}"
    for _ in range(2):  # Spark commits a batch to its source when it plans the next one
        produce(sink, [(1, None, b"0")])
        run_to_end(streaming(spark, sink, commit__group__id=group), tmp_path, Batches())
    with kbatch.Producer(bootstrap_servers=sink.brokers) as producer:
        found = producer.committed_offsets(group, [kbatch.TopicPartition(sink.topic, 0)])
    assert [each.offset for each in found.values()] == [10]


@pytest.mark.slow
@pytest.mark.parametrize(
    "brokers",
    [
        "embedded",
        pytest.param(
            "real",
            marks=[
                pytest.mark.java,
                only_if_long("starts Spark's workers over and over"),
            ],
        ),
    ],
    indirect=True,
)
def test_R104_pipeline_that_is_killed_at_each_step_is_exact(
    spark: SparkSession, sink: Sink, tmp_path: Path
) -> None:
    """Source, transformation and sink fail and are killed in tasks of their own, in three runs."""
    target = new_sink(sink.brokers)
    written = 0
    for _ in range(3):
        produce(
            sink, [(number % PARTITIONS, None, b"%d" % number) for number in range(written, written + 500)]
        )
        written += 500
        keys: dict[str, object] = {"columns": "key,value", "minPartitions": 8, "fault": f"tasks {tmp_path}"}
        frame = streaming(spark, sink, FaultySource.name(), **keys)
        finish(
            frame.mapInArrow(partial(killed_transformation, str(tmp_path)), frame.schema)
            .writeStream.format(FaultySource.name())
            .options(**target.options(delivery="exactly_once", fault="tasks"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
        )
        for step in ("source", "transformation"):
            (tmp_path / step).unlink()  # it was killed
    values = sorted(int(found.value or b"-1") for found in read(sink.brokers, target.topic, "read_committed"))
    assert values == list(range(written))


def test_limit_leaves_the_worker_usable(spark: SparkSession, sink: Sink) -> None:
    produce(sink, [(number % PARTITIONS, None, b"%d" % number) for number in range(COUNT)])
    for _ in range(3):
        assert len(reading(spark, sink).limit(3).collect()) == 3
    assert numbers_of(reading(spark, sink)) == ALL
