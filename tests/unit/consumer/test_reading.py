"""read_table and scan_topic: the records that were sent, whatever they are, and clear errors."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import kbatch
from kbatch import ReadProgress, TopicPartition
from kbatch.config import ConsumerConfig
from kbatch.errors import (
    ConfigError,
    CorruptRecordError,
    DataLossError,
    DeserializationError,
    IllegalStateError,
    KafkaTimeoutError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
)
from kbatch.formats.reading import Int64, Json, Utf8
from kbatch.testing import AclBinding, Broker
from kbatch.testing.broker.logs.partition import Partition
from tests.oracle.plain import CODECS
from tests.support.producing import SECONDS, within
from tests.support.topics import FIRST_MS, Sent, logged, records, rows, send

TOPIC = "orders"
TOPICS = {TOPIC: 3}
NODES = 2
COLUMNS = ["topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"]


def read(broker: Broker, topic: str = TOPIC, **keys: Any) -> pa.Table:
    return kbatch.read_table(topic, bootstrap_servers=broker.bootstrap_servers, **keys)


def scan(broker: Broker, topic: str = TOPIC, **keys: Any) -> Any:
    return kbatch.scan_topic(topic, bootstrap_servers=broker.bootstrap_servers, **keys)


def produce(
    broker: Broker, count: int, seed: int = 1, topic: str = TOPIC, **keys: Any
) -> dict[int, list[Sent]]:
    """Send records to each partition of a topic; return them."""
    rng = random.Random(seed)
    sent = {partition: records(rng, count) for partition in range(3)}
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers, **keys) as producer:
        for partition, each in sent.items():
            send(producer, topic, partition, each)
    return sent


def sent_rows(sent: dict[int, list[Sent]]) -> dict[int, list[tuple[int, Sent]]]:
    return {partition: list(enumerate(each)) for partition, each in sent.items()}


# What comes


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("layout", ["copy", "view"])
def test_R14_a_table_has_the_records_that_were_sent(broker: Broker, codec: str, layout: str) -> None:
    sent = produce(broker, 300, compression_type=codec, batch_size=2000)
    table = read(broker, layout=layout)
    assert rows(table) == sent_rows(sent)
    assert table.column_names == [*COLUMNS, "leader_epoch"]
    assert set(table["topic"].to_pylist()) == {TOPIC}
    assert set(table["timestamp_type"].to_pylist()) == {"create_time"}
    assert table["partition"].to_pylist() == sorted(table["partition"].to_pylist())


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_R88_the_table_is_the_same_for_all_numbers_of_threads(broker: Broker, threads: int) -> None:
    produce(broker, 500, compression_type="lz4", batch_size=1000)
    config = {"max.partition.fetch.bytes": 3000}
    assert read(broker, config=config, threads=threads) == read(broker)


def test_a_stream_has_the_records_in_bounded_batches(broker: Broker) -> None:
    sent = produce(broker, 300, compression_type="zstd")
    batches = list(scan(broker, batch_rows=70))
    assert max(batch.num_rows for batch in batches) == 70
    assert rows(batches) == sent_rows(sent)


def test_only_the_wanted_columns_come_in_their_order(broker: Broker) -> None:
    sent = produce(broker, 10)
    table = read(broker, columns=["value", "partition"])
    assert table.column_names == ["value", "partition"]
    assert table["value"].to_pylist() == [each.value for part in sent.values() for each in part]
    assert read(broker, columns=["topic"]).num_rows == 30
    assert scan(broker, columns=["offset"]).schema == pa.schema([("offset", pa.int64())])


def test_R09_times_of_the_broker_have_their_type(broker: Broker) -> None:
    configs: dict[str, Any] = {"message.timestamp.type": "LogAppendTime"}
    broker.create_topic("times", **configs)
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("times", b"value", timestamp_ms=FIRST_MS)
    (row,) = read(broker, "times").to_pylist()
    assert row["timestamp_type"] == "log_append_time"
    assert row["timestamp"] == datetime.fromtimestamp(
        (broker.records("times")[0].timestamp_ms or 0) / 1000, UTC
    )


def test_an_empty_topic_is_an_empty_table(broker: Broker) -> None:
    table = read(broker)
    assert table.num_rows == 0 and table.column_names == [*COLUMNS, "leader_epoch"]
    assert list(scan(broker)) == []
    assert read(broker, value=Int64()).schema.field("value").type == pa.int64()


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("seed", range(3))
def test_transactions_are_read_by_the_isolation(broker: Broker, isolation: str, seed: int) -> None:
    rng = random.Random(seed)
    with (
        kbatch.Producer(bootstrap_servers=broker.bootstrap_servers, compression_type="lz4") as plain,
        kbatch.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="a") as first,
        kbatch.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="b") as second,
    ):
        for producer in (first, second):
            producer.init_transactions()
        for _ in range(12):
            for producer in (first, second):
                producer.begin_transaction()
            for _ in range(rng.randint(1, 4)):
                sender = rng.choice((plain, first, second))
                send(sender, TOPIC, rng.randrange(3), records(rng, rng.randint(1, 5)))
                sender.flush()
            for producer in rng.sample((first, second), 2):
                rng.choice((producer.commit_transaction, producer.abort_transaction))()
        first.begin_transaction()
        send(first, TOPIC, 0, records(rng, 3))  # stays open
        first.flush()
        send(plain, TOPIC, 0, records(rng, 3))  # after the last stable offset
        plain.flush()
        found = rows(read(broker, isolation=isolation))
        assert found == logged(broker, TOPIC, range(3), committed=isolation == "read_committed")
        assert rows(scan(broker, isolation=isolation)) == found
        first.abort_transaction()


def test_without_isolation_only_committed_records_come(broker: Broker) -> None:
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="a") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(TOPIC, b"open", partition=0)
        producer.flush()
        assert read(broker).num_rows == 0
        assert read(broker, config={"isolation.level": "read_uncommitted"}).num_rows == 1
        producer.abort_transaction()


# Ranges


def test_R87_a_range_is_exact_by_offset(broker: Broker) -> None:
    sent = produce(broker, 50, batch_size=500, compression_type="gzip")
    expected = sent_rows(sent)
    assert rows(read(broker, start=17, end=33)) == {each: part[17:33] for each, part in expected.items()}
    table = read(broker, start={0: 5, 2: "latest"}, end={0: 6, 2: "latest"}, partitions=[2, 0])
    assert rows(table) == {0: expected[0][5:6]}
    assert read(broker, start=50).num_rows == 0


def test_R87_a_range_is_exact_by_time(broker: Broker) -> None:
    sent = produce(broker, 50, batch_size=500)
    first, last = (datetime.fromtimestamp((FIRST_MS + number) / 1000, UTC) for number in (10, 20))
    expected = {each: part[10:20] for each, part in sent_rows(sent).items()}
    assert rows(read(broker, start=first, end=last)) == expected
    assert read(broker, start=timedelta(hours=1)).num_rows == 0  # they are of 2023
    assert read(broker, start=timedelta(days=36500)).num_rows == 150


def test_R87_the_end_is_fixed_when_the_call_begins(broker: Broker) -> None:
    produce(broker, 20)
    stream = scan(broker)
    produce(broker, 5)
    assert sum(batch.num_rows for batch in stream) == 60


def test_a_stream_without_end_waits_for_records(broker: Broker) -> None:
    produce(broker, 2)
    with scan(broker, end=None, columns=["partition", "offset"]) as stream:
        found = [row for _ in range(3) for row in next(stream).to_pylist()]
        coming = within(lambda: next(stream))
        produce(broker, 1)
        found += coming.result(SECONDS).to_pylist()
        while len(found) < 9:
            found += next(stream).to_pylist()
    assert sorted((row["partition"], row["offset"]) for row in found) == [
        (partition, offset) for partition in range(3) for offset in range(3)
    ]


def test_R89_deleted_records_raise_or_are_skipped(broker: Broker) -> None:
    sent = produce(broker, 30)
    delete_records(broker, {0: 10, 1: 30})
    expected = {0: sent_rows(sent)[0][10:], 2: sent_rows(sent)[2]}
    assert rows(read(broker)) == expected
    with pytest.raises(DataLossError, match=r"orders-0 from 5 to 9, orders-1 from 5 to 29; .*skip") as caught:
        read(broker, start=5)
    assert caught.value.lost == {TopicPartition(TOPIC, 0): (5, 10), TopicPartition(TOPIC, 1): (5, 30)}
    table = read(broker, start=5, on_data_loss="skip")
    assert rows(table) == expected | {2: expected[2][5:]}
    assert json.loads(table.schema.metadata[b"kbatch.lost"]) == {"0": [[5, 10]], "1": [[5, 30]]}
    stream = scan(broker, start=5, on_data_loss="skip")
    assert rows(stream) == rows(table)
    assert stream.lost == {TopicPartition(TOPIC, 0): [(5, 10)], TopicPartition(TOPIC, 1): [(5, 30)]}


@pytest.mark.parametrize("on_data_loss", ["raise", "skip"])
def test_records_deleted_under_a_read_are_a_loss_too(broker: Broker, on_data_loss: str) -> None:
    sent = produce(broker, 200, batch_size=100)
    small = {"kbatch.fetch.buffer.memory": 1 << 20, "max.partition.fetch.bytes": 500}
    broker.delay("Fetch", 0.05)  # so that most records are not fetched yet
    with scan(broker, partitions=[0], config=small, on_data_loss=on_data_loss, threads=1) as stream:
        found = [next(stream)]
        broker.fail_next("Fetch", "NOT_LEADER_OR_FOLLOWER", times=1_000_000)
        delete_records(broker, {0: 150})
        broker.clear_faults()
        if on_data_loss == "raise":
            message = r"orders-0 from \d+ to 149; .*on_data_loss='skip'"
            with pytest.raises(DataLossError, match=message) as caught:
                found.extend(stream)
            read = [offset for offset, _ in rows(found)[0]]
            assert read == list(range(len(read)))
            assert caught.value.lost == {TopicPartition(TOPIC, 0): (len(read), 150)}
            return
        found.extend(stream)
    offsets = [offset for offset, _ in rows(found)[0]]
    (gap,) = stream.lost[TopicPartition(TOPIC, 0)]
    assert gap[1] == 150
    assert offsets == [offset for offset in range(200) if not gap[0] <= offset < gap[1]]
    assert rows(found)[0] == [sent_rows(sent)[0][offset] for offset in offsets]


def delete_records(broker: Broker, before: dict[int, int]) -> None:
    with kbatch.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.topics.delete_records({(TOPIC, partition): offset for partition, offset in before.items()})


# Types


def test_deserializers_make_typed_columns(broker: Broker) -> None:
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(20):
            key = number.to_bytes(8, "big")
            producer.send(TOPIC, b'{"id": %d, "name": "n%d"}' % (number, number), key, partition=number % 3)
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    for value in (Json(schema), Json()):
        table = read(broker, columns=["key", "value"], key=Int64(), value=value)
        assert table.schema.types == [pa.int64(), pa.struct(schema)]
        assert sorted(table.to_pylist(), key=lambda row: row["key"]) == [
            {"key": number, "value": {"id": number, "name": f"n{number}"}} for number in range(20)
        ]
    stream = scan(broker, columns=["value"], value=Utf8())
    assert stream.schema == pa.schema([("value", pa.string())])
    assert sum(batch.num_rows for batch in stream) == 20


def test_R90_what_cannot_be_deserialized_says_where_it_is(broker: Broker) -> None:
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(5):
            producer.send(TOPIC, b"x" * (1 if number == 3 else 8), partition=1)
    with pytest.raises(DeserializationError) as caught:
        read(broker, columns=["value"], value=Int64())
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (TOPIC, 1, 3)
    table = read(broker, columns=["value", "offset"], value=Int64(errors="column"))
    assert table.column_names == ["value", "value_error", "offset"]
    assert [row["offset"] for row in table.to_pylist() if row["value_error"] is not None] == [3]
    assert table["value"].null_count == 1
    assert read(broker, value=Int64(errors="null"))["value"].null_count == 1


@pytest.mark.parametrize("bad", [0, 4])
def test_rows_before_one_that_cannot_be_read_come_first(broker: Broker, bad: int) -> None:
    """The first such row counts, whatever columns others are in."""
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(10):
            key = b"k" * (1 if number == bad else 8)
            producer.send(TOPIC, b"v" * (1 if number == 7 else 8), key, partition=1)
    for columns in (["offset", "key", "value"], ["value", "key", "offset"]):
        found: list[int] = []
        with pytest.raises(DeserializationError) as caught:
            for batch in scan(broker, columns=columns, key=Int64(), value=Int64()):
                assert batch.num_rows
                found += batch["offset"].to_pylist()
        assert found == list(range(bad))
        assert (caught.value.part, caught.value.offset) == ("key", bad)


def test_a_type_cannot_be_learnt_from_nothing(broker: Broker) -> None:
    with pytest.raises(ValueError, match=r"topic orders has no value yet from which value= could learn"):
        scan(broker, end=None, value=Json())


# Progress


def test_progress_is_reported_up_to_the_end(broker: Broker) -> None:
    produce(broker, 50)
    reported: list[ReadProgress] = []
    read(broker, start=10, progress=reported.append)
    assert reported[-1][:1] + reported[-1][2:] == (120, 120, 120)
    assert reported[-1].bytes > 0
    assert reported == sorted(reported)
    with scan(broker, end=None, progress=reported.append) as stream:
        next(stream)
    assert reported[-1].total is None


def test_an_error_of_the_progress_callback_ends_the_read(broker: Broker) -> None:
    produce(broker, 5)

    def stop(progress: ReadProgress) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        read(broker, progress=stop)


# Errors


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("keys", "kind", "text"),
    [
        ({"start": "now"}, ValueError, "start must be 'earliest'"),
        ({"start": datetime(2026, 1, 1)}, ValueError, "time zone"),
        ({"start": 3, "end": 1}, ValueError, "ends at offset 1, before its start at 3"),
        ({"end": 100}, ValueError, "end=100 of orders-0 is after the end of its log, 5"),
        ({"partitions": [7]}, ValueError, "topic orders has no partition 7: it has 3"),
        ({"columns": ["values"]}, ValueError, "columns has no 'values'; choose from topic, "),
        ({"columns": "value"}, TypeError, r"columns must be a list of names.*\['value'\]"),
        ({"columns": []}, ValueError, "at least one"),
        ({"columns": ["key"], "value": Utf8()}, ValueError, "needs the column 'value'"),
        ({"value": str}, TypeError, "value must be a format of kbatch.formats"),
        ({"layout": "fast"}, ValueError, "layout must be one of copy, view"),
        ({"on_data_loss": "ignore"}, ValueError, "on_data_loss must be one of raise, skip"),
        ({"isolation": "dirty"}, ValueError, "isolation must be one of read_committed, read_uncommitted"),
        ({"threads": -1}, ValueError, "threads must be 0 to 64, got -1"),
        ({"config": {"fetch.min.byte": 1}}, ConfigError, "fetch.min.byte"),
        ({"topic": 5}, TypeError, "topic must be a str"),
        ({"topic": "nowhere"}, UnknownTopicOrPartitionError, "nowhere"),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else None,
)
def test_a_mistake_is_a_clear_error(broker: Broker, keys: dict[str, Any], kind: Any, text: str) -> None:
    produce(broker, 5)
    for reading in (read, scan):
        with pytest.raises(kind, match=text):
            reading(broker, **keys)
    assert "nowhere" not in str(broker.requests("CreateTopics"))


def test_a_batch_size_of_no_rows_is_an_error(broker: Broker) -> None:
    with pytest.raises(ValueError, match="batch_rows must be 1 to"):
        scan(broker, batch_rows=0)


def test_a_config_is_a_dict_or_a_configuration(broker: Broker) -> None:
    produce(broker, 5)
    config = ConsumerConfig({"bootstrap.servers": broker.bootstrap_servers, "fetch.min.bytes": 1})
    assert kbatch.read_table(TOPIC, config=config).num_rows == 15
    assert kbatch.read_table(TOPIC, config={"metadata.broker.list": broker.bootstrap_servers}).num_rows == 15
    with pytest.raises(ConfigError, match=r"bootstrap.?servers"):
        read(broker, config=config)


def test_R06_a_corrupt_batch_says_where_it_is(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    produce(broker, 30, batch_size=200)
    broken = broker.batches(TOPIC, 1)[2].base_offset
    fetch = Partition.fetch

    def corrupted(log: Partition, *arguments: Any, **keywords: Any) -> Any:
        fetched = fetch(log, *arguments, **keywords)
        batches = [bytes(each) for each in fetched.batches]
        for index, batch in enumerate(batches):
            if int.from_bytes(batch[:8], "big") == broken and log is logs[1]:
                batches[index] = batch[:-1] + bytes([batch[-1] ^ 1])
        return fetched._replace(batches=[memoryview(each) for each in batches])

    logs = broker._call(lambda core: [each.log for each in core.state.cluster.topics[TOPIC].partitions])
    monkeypatch.setattr(Partition, "fetch", corrupted)
    with pytest.raises(CorruptRecordError, match=rf"{TOPIC}-1.*offset {broken}"):
        read(broker)
    with scan(broker, partitions=[1]) as stream:
        found: list[pa.RecordBatch] = []
        with pytest.raises(CorruptRecordError):
            found.extend(stream)
        with pytest.raises(IllegalStateError, match="has failed with CorruptRecordError"):
            next(stream)
    assert [offset for offset, _ in rows(found)[1]] == list(range(broken))
    after = broker.batches(TOPIC, 1)[3].base_offset
    assert read(broker, partitions=[1], start=after).num_rows == 30 - after


@pytest.mark.parametrize("operations", [(), ("DESCRIBE",)], ids=["nothing", "no READ"])
def test_a_topic_that_may_not_be_read_is_an_error(operations: tuple[str, ...]) -> None:
    acls = [AclBinding.of(("TOPIC", TOPIC, "User:ANONYMOUS", each)) for each in (*operations, "WRITE")]
    with Broker(TOPICS, authorizer=acls) as broker:
        produce(broker, 5, enable_idempotence=False)
        for reading in (read, lambda broker: list(scan(broker))):
            with pytest.raises(TopicAuthorizationError, match=TOPIC):
                reading(broker)


def test_brokers_that_do_not_answer_are_an_error(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    broker.stop()
    config: dict[str, object] = {"default.api.timeout.ms": 300, "request.timeout.ms": 200}
    config |= {"fetch.max.wait.ms": 100, "reconnect.backoff.ms": 1}
    with pytest.raises(KafkaTimeoutError, match=r"default.api.timeout.ms=300.*127.0.0.1"):
        kbatch.read_table(TOPIC, bootstrap_servers=servers, config=config)
