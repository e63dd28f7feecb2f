"""Unchanged real clients against the embedded broker, and against a real Kafka: they must see the same."""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from kafka.admin import NewTopic

from tests.oracle import java_clients
from tests.oracle.kafka import create_topic
from tests.oracle.plain import CODECS
from tests.support.patience import HANG_SECONDS, until

TIMEOUT_SECONDS = HANG_SECONDS
CREATE_TIME_MS = 1_700_000_000_000
NEW_PROTOCOL = {"group_protocol": "consumer"}
JAVA_NEW_PROTOCOL = {"group.protocol": "consumer"}
_numbers = itertools.count()


@pytest.fixture
def topic(target: str) -> str:
    """Return a topic of this test's own, with one partition."""
    return new_topic(target)


def new_topic(target: str, partitions: int = 1) -> str:
    name = f"clients-{next(_numbers)}"
    create_topic(target, name, partitions)
    return name


# librdkafka


def librdkafka_producer(target: str, **settings: Any) -> Producer:
    return Producer(
        {"bootstrap.servers": target, "enable.idempotence": True, "linger.ms": 5}
        | {name.replace("_", "."): value for name, value in settings.items()}
    )


@contextmanager
def librdkafka_consumer(target: str, group: str, **settings: Any) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": target,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
        }
        | ({} if "group_protocol" in settings else {"heartbeat.interval.ms": 200})
        | {name.replace("_", "."): value for name, value in settings.items()}
    )
    try:
        yield consumer
    finally:
        consumer.close()


def produce(target: str, topic: str, values: Iterable[str], **settings: Any) -> None:
    producer = librdkafka_producer(target, **settings)
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(TIMEOUT_SECONDS) == 0


def poll(consumers: Iterable[Consumer], into: list[Message]) -> int:
    """Poll each consumer once; return the number of records in `into`. Raises KafkaException."""
    for consumer in consumers:
        for message in consumer.consume(1000, timeout=0.05):
            if message.error():
                raise KafkaException(message.error())
            into.append(message)
    return len(into)


def values_of(target: str, topic: str, count: int, isolation_level: str = "read_committed") -> list[str]:
    """Return the first `count` values of a topic, for a new group."""
    messages: list[Message] = []
    group = f"reader-{next(_numbers)}"
    with librdkafka_consumer(target, group, isolation_level=isolation_level) as consumer:
        consumer.subscribe([topic])
        until(lambda: poll([consumer], messages) >= count)
    return [(message.value() or b"").decode() for message in messages]


def test_librdkafka_idempotent_producer_gets_each_offset_once(target: str) -> None:
    topic = new_topic(target, partitions=3)
    reports: dict[int | None, list[tuple[int | None, bytes | None]]] = defaultdict(list)

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None
        reports[message.partition()].append((message.offset(), message.value()))

    producer = librdkafka_producer(target, batch_num_messages=50)
    for number in range(900):
        value = b"%d" % number
        producer.produce(topic, value, partition=number % 3, on_delivery=delivered)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    assert reports == {
        partition: [(offset, b"%d" % (offset * 3 + partition)) for offset in range(300)]
        for partition in range(3)
    }


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_reads_keys_values_headers_and_timestamps(target: str, topic: str, codec: str) -> None:
    headers: list[tuple[str, str | bytes | None]]
    headers = [("name", b"content"), ("name", b"again"), ("empty", b""), ("null", None)]
    producer = librdkafka_producer(target, compression_type=codec)
    sent = [(b"key-%d" % (n % 7) if n % 5 else None, b"value " * n, CREATE_TIME_MS + n) for n in range(200)]
    for key, value, timestamp_ms in sent:
        producer.produce(topic, value, key=key, timestamp=timestamp_ms, headers=headers)
    producer.produce(topic, None, key=b"tombstone", timestamp=CREATE_TIME_MS)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    messages: list[Message] = []
    with librdkafka_consumer(target, f"codec-{topic}") as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        until(lambda: poll([consumer], messages) == 201)
    assert [(m.key(), m.value(), m.timestamp()[1]) for m in messages[:-1]] == sent
    assert all(m.headers() == headers for m in messages[:-1])
    assert (messages[-1].key(), messages[-1].value(), messages[-1].headers()) == (b"tombstone", None, None)
    assert [m.offset() for m in messages] == list(range(201))


def test_librdkafka_read_committed_sees_only_what_was_committed(target: str, topic: str) -> None:
    producer = librdkafka_producer(target, transactional_id=f"transactional-{topic}")
    producer.init_transactions(TIMEOUT_SECONDS)
    for name, end in (("one", "commit"), ("two", "abort"), ("three", "commit"), ("four", "abort")):
        producer.begin_transaction()
        for number in range(5):
            producer.produce(topic, f"{name}-{number}")
        producer.flush(TIMEOUT_SECONDS)
        (producer.commit_transaction if end == "commit" else producer.abort_transaction)(TIMEOUT_SECONDS)
    produce(target, topic, ["last"])
    expected = {name: [f"{name}-{number}" for number in range(5)] for name in ("one", "two", "three", "four")}
    assert values_of(target, topic, 11) == [*expected["one"], *expected["three"], "last"]
    assert values_of(target, topic, 21, "read_uncommitted") == [*itertools.chain(*expected.values()), "last"]


def test_librdkafka_open_transaction_holds_back_later_records(target: str, topic: str) -> None:
    producer = librdkafka_producer(target, transactional_id=f"transactional-{topic}")
    producer.init_transactions(TIMEOUT_SECONDS)
    produce(target, topic, ["before"])
    producer.begin_transaction()
    producer.produce(topic, "inside")
    producer.flush(TIMEOUT_SECONDS)
    produce(target, topic, ["after"])
    with librdkafka_consumer(target, f"open-{topic}") as consumer:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_SECONDS) == (0, 1)
    assert values_of(target, topic, 3, "read_uncommitted") == ["before", "inside", "after"]
    assert values_of(target, topic, 1) == ["before"]
    producer.commit_transaction(TIMEOUT_SECONDS)
    assert values_of(target, topic, 3) == ["before", "inside", "after"]


def test_librdkafka_second_transactional_producer_fences_first(target: str, topic: str) -> None:
    first, second = (librdkafka_producer(target, transactional_id=f"fenced-{topic}") for _ in range(2))
    first.init_transactions(TIMEOUT_SECONDS)
    first.begin_transaction()
    first.produce(topic, "zombie")
    first.flush(TIMEOUT_SECONDS)
    second.init_transactions(TIMEOUT_SECONDS)
    with pytest.raises(KafkaException) as fenced:
        first.commit_transaction(TIMEOUT_SECONDS)
    assert fenced.value.args[0].fatal()
    second.begin_transaction()
    second.produce(topic, "heir")
    second.commit_transaction(TIMEOUT_SECONDS)
    assert values_of(target, topic, 1) == ["heir"]


def test_librdkafka_offsets_of_aborted_transaction_are_dropped(target: str, topic: str) -> None:
    source, group = new_topic(target), f"offsets-{topic}"
    produce(target, source, map(str, range(10)))
    producer = librdkafka_producer(target, transactional_id=group)
    producer.init_transactions(TIMEOUT_SECONDS)
    committed = []
    with librdkafka_consumer(target, group, enable_auto_commit=False) as consumer:
        consumer.subscribe([source])
        until(lambda: poll([consumer], []) or consumer.assignment())
        for position, end in ((4, producer.commit_transaction), (9, producer.abort_transaction)):
            producer.begin_transaction()
            producer.produce(topic, f"up to {position}")
            offsets = [TopicPartition(source, 0, position)]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_SECONDS)
            end(TIMEOUT_SECONDS)
            (found,) = consumer.committed([TopicPartition(source, 0)], timeout=TIMEOUT_SECONDS)
            committed.append(found.offset)
    assert committed == [4, 4]
    assert values_of(target, topic, 1) == ["up to 4"]


@pytest.mark.parametrize(
    "settings",
    [
        {"partition_assignment_strategy": "range"},
        {"partition_assignment_strategy": "cooperative-sticky"},
        {"group_protocol": "consumer"},
        {"group_protocol": "consumer", "group_remote_assignor": "range"},
    ],
    ids=lambda settings: "-".join(settings.values()),
)
def test_librdkafka_group_divides_partitions_and_rebalances(target: str, settings: dict[str, str]) -> None:
    topic = new_topic(target, partitions=4)
    group = f"group-{topic}"
    messages: list[Message] = []

    def assigned(consumer: Consumer) -> set[int]:
        return {partition.partition for partition in consumer.assignment()}

    with librdkafka_consumer(target, group, **settings) as stays:
        stays.subscribe([topic])
        with librdkafka_consumer(target, group, **settings) as leaves:
            leaves.subscribe([topic])

            def divided() -> bool:
                poll([stays, leaves], messages)
                return len(assigned(stays)) == len(assigned(leaves)) == 2

            until(divided)
            assert assigned(stays) | assigned(leaves) == {0, 1, 2, 3}
            produce(target, topic, map(str, range(400)))
            until(lambda: poll([stays, leaves], messages) == 400)
        until(lambda: poll([stays], messages) and assigned(stays) == {0, 1, 2, 3})
        produce(target, topic, map(str, range(400, 500)))
        until(lambda: poll([stays], messages) == 500)
    assert sorted(int(message.value() or b"") for message in messages) == list(range(500))


@pytest.mark.parametrize("settings", [{}, NEW_PROTOCOL], ids=["classic", "consumer"])
def test_librdkafka_group_goes_on_where_it_committed(
    target: str, topic: str, settings: dict[str, str]
) -> None:
    produce(target, topic, map(str, range(20)))
    messages: list[Message] = []
    for _ in range(2):
        with librdkafka_consumer(target, f"resume-{topic}", enable_auto_commit=False, **settings) as consumer:
            consumer.subscribe([topic])
            wanted = len(messages) + 1
            while len(messages) < wanted:
                messages += consumer.consume(1, timeout=0.2)
            consumer.commit(message=messages[-1], asynchronous=False)
    assert [message.value() for message in messages] == [b"0", b"1"]


def test_librdkafka_pattern_of_the_new_protocol_finds_new_topics(target: str, topic: str) -> None:
    pattern = f"^{topic}(-later)?$"
    messages: list[Message] = []
    produce(target, topic, ["first"])
    with librdkafka_consumer(target, f"pattern-{topic}", **NEW_PROTOCOL) as consumer:
        consumer.subscribe([pattern])
        until(lambda: poll([consumer], messages) == 1)
        create_topic(target, f"{topic}-later", 1)
        produce(target, f"{topic}-later", ["second"])
        until(lambda: poll([consumer], messages) == 2)
    assert [message.value() for message in messages] == [b"first", b"second"]


def test_librdkafka_static_member_of_the_new_protocol_comes_back(target: str) -> None:
    topic = new_topic(target, partitions=4)
    group = f"static-{topic}"

    def owned(consumer: Consumer) -> set[int]:
        return {partition.partition for partition in consumer.assignment()}

    with librdkafka_consumer(target, group, **NEW_PROTOCOL, group_instance_id="b") as stays:
        stays.subscribe([topic])
        with librdkafka_consumer(target, group, **NEW_PROTOCOL, group_instance_id="a") as leaves:
            leaves.subscribe([topic])
            until(lambda: not poll([stays, leaves], []) and len(owned(stays)) == len(owned(leaves)) == 2)
            had = owned(leaves)
        kept = owned(stays)
        with librdkafka_consumer(target, group, **NEW_PROTOCOL, group_instance_id="a") as back:
            back.subscribe([topic])
            until(lambda: not poll([stays, back], []) and owned(back) == had)
            assert owned(stays) == kept


# aiokafka


@asynccontextmanager
async def running(client: Any) -> AsyncIterator[Any]:
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


def aiokafka_consumer(target: str, topic: str, group: str) -> Any:
    return AIOKafkaConsumer(
        topic,
        bootstrap_servers=target,
        group_id=group,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        heartbeat_interval_ms=200,
        fetch_max_wait_ms=50,
    )


async def aiokafka_values(consumer: Any, count: int) -> list[bytes]:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        return [(await consumer.getone()).value for _ in range(count)]


def test_aiokafka_idempotent_producer_gets_each_offset_once(target: str, topic: str) -> None:
    async def scenario() -> list[int]:
        producer = AIOKafkaProducer(bootstrap_servers=target, enable_idempotence=True, max_batch_size=500)
        async with running(producer), asyncio.timeout(TIMEOUT_SECONDS):
            sends = [await producer.send(topic, b"%d" % number) for number in range(300)]
            return [(await send).offset for send in sends]

    assert asyncio.run(scenario()) == list(range(300))
    assert values_of(target, topic, 300) == [str(number) for number in range(300)]


def test_aiokafka_read_committed_sees_only_what_was_committed(target: str, topic: str) -> None:
    async def scenario() -> list[bytes]:
        producer = AIOKafkaProducer(bootstrap_servers=target, transactional_id=f"aiokafka-{topic}")
        async with running(producer), asyncio.timeout(TIMEOUT_SECONDS):
            async with producer.transaction():
                await producer.send_and_wait(topic, b"committed")
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"aborted")
                    raise ZeroDivisionError
            async with producer.transaction():
                await producer.send_and_wait(topic, b"committed again")
        async with running(aiokafka_consumer(target, topic, f"aiokafka-{topic}")) as consumer:
            return await aiokafka_values(consumer, 2)

    assert asyncio.run(scenario()) == [b"committed", b"committed again"]


def test_aiokafka_group_divides_partitions_and_rebalances(target: str) -> None:
    topic = new_topic(target, partitions=4)

    async def has(consumer: Any, count: int) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while len(consumer.assignment()) != count:
                await asyncio.sleep(0.02)

    async def scenario() -> list[bytes]:
        async with running(aiokafka_consumer(target, topic, f"aiokafka-{topic}")) as stays:
            async with running(aiokafka_consumer(target, topic, f"aiokafka-{topic}")) as leaves:
                await asyncio.gather(has(stays, 2), has(leaves, 2))
                assert not stays.assignment() & leaves.assignment()
            await has(stays, 4)
            produce(target, topic, map(str, range(40)))
            return await aiokafka_values(stays, 40)

    assert sorted(map(int, asyncio.run(scenario()))) == list(range(40))


# kafka-python


def test_kafka_python_producer_and_group(target: str, topic: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=target)
    sends = [
        producer.send(topic, b"%d" % number, key=b"key", headers=[("h", b"v")], timestamp_ms=CREATE_TIME_MS)
        for number in range(100)
    ]
    offsets = [send.get(timeout=TIMEOUT_SECONDS).offset for send in sends]
    producer.close()
    assert offsets == list(range(100))
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=target,
        group_id=f"kafka-python-{topic}",
        auto_offset_reset="earliest",
        heartbeat_interval_ms=200,
        consumer_timeout_ms=TIMEOUT_SECONDS * 1000,
    )
    records = list(itertools.islice(consumer, 100))
    consumer.commit()
    committed = consumer.committed(kafka.TopicPartition(topic, 0))
    consumer.close()
    assert [int(record.value) for record in records] == list(range(100))
    assert {(r.key, r.timestamp, tuple(r.headers)) for r in records} == {
        (b"key", CREATE_TIME_MS, (("h", b"v"),))
    }
    assert committed == 100


def test_kafka_python_admin_creates_lists_grows_and_deletes(target: str) -> None:
    name = f"clients-{next(_numbers)}"
    admin = kafka.KafkaAdminClient(bootstrap_servers=target)
    admin.create_topics([NewTopic(name, num_partitions=2, replication_factor=1)])
    until(lambda: name in admin.list_topics())
    admin.create_partitions({name: 3})
    until(lambda: len(admin.describe_topics([name])[0]["partitions"]) == 3)
    admin.delete_topics([name])
    until(lambda: name not in admin.list_topics())
    admin.close()


# Java

java = pytest.mark.usefixtures("java_jars")


@java
@pytest.mark.java
@pytest.mark.parametrize("transactional", [False, True])
def test_java_producer_performance_sends_all(target: str, topic: str, transactional: bool) -> None:
    arguments = ("--transactional-id", topic, "--transaction-duration-ms", "100") if transactional else ()
    performance = java_clients.perf(
        target, topic, records=20_000, properties={"compression.type": "lz4"}, arguments=arguments
    )
    assert performance.records == 20_000
    assert len(values_of(target, topic, 20_000)) == 20_000


@java
@pytest.mark.java
def test_java_copies_exactly_once_through_transactions(target: str) -> None:
    source, copied = new_topic(target, partitions=2), new_topic(target, partitions=2)
    expected = [str(number) for number in range(1000)]
    produce(target, source, expected)
    names = {"group": f"copy-{copied}", "transactional_id": copied}
    counts = java_clients.copy(target, source, copied, batch_records=100, abort_every=3, **names)
    assert counts == {"copied": 1000, "committed": 10, "aborted": 4}
    records = java_clients.consume(target, [copied], group=f"judge-{copied}", max_records=1000)
    assert sorted(record["value"] for record in records) == sorted(expected)
    (offsets,) = java_clients.admin(target, {"call": "listConsumerGroupOffsets", "group": f"copy-{copied}"})
    assert sum(offsets.values()) == 1000


@java
@pytest.mark.java
@pytest.mark.parametrize("by_pattern", [False, True], ids=["names", "pattern"])
def test_java_reads_by_the_new_protocol(target: str, by_pattern: bool) -> None:
    topic = new_topic(target, partitions=3)
    expected = [str(number) for number in range(300)]
    produce(target, topic, expected)
    topics = f"{topic}|nothing" if by_pattern else [topic]
    names: Any = {"group": f"java-{topic}", "properties": JAVA_NEW_PROTOCOL}
    records = java_clients.consume(target, topics, max_records=300, **names)
    assert sorted(record["value"] for record in records) == sorted(expected)
    (offsets,) = java_clients.admin(target, {"call": "listConsumerGroupOffsets", "group": f"java-{topic}"})
    assert sum(offsets.values()) == 300


@java
@pytest.mark.java
def test_java_and_librdkafka_share_a_group_of_the_new_protocol(target: str) -> None:
    topic = new_topic(target, partitions=6)
    group = f"shared-{topic}"
    messages: list[Message] = []
    with (
        ThreadPoolExecutor(1) as pool,
        librdkafka_consumer(target, group, **NEW_PROTOCOL) as consumer,
    ):
        consumer.subscribe([topic])
        until(lambda: not poll([consumer], messages) and len(consumer.assignment()) == 6)
        names: Any = {"group": group, "properties": JAVA_NEW_PROTOCOL, "idle_ms": 5_000}
        java = pool.submit(java_clients.consume, target, [topic], **names)
        until(lambda: not poll([consumer], messages) and len(consumer.assignment()) == 3)
        producer = librdkafka_producer(target)
        for number in range(600):
            producer.produce(topic, str(number), partition=number % 6)
        assert producer.flush(TIMEOUT_SECONDS) == 0
        until(lambda: poll([consumer], messages) >= 0 and java.done())
        theirs = [record["value"] for record in java.result()]
        ours = [(message.value() or b"").decode() for message in messages]
    assert sorted(map(int, ours + theirs)) == list(range(600))
    assert ours and theirs


@java
@pytest.mark.java
def test_java_admin_describes_groups_of_the_new_protocol(target: str, topic: str) -> None:
    group = f"described-{topic}"
    with librdkafka_consumer(target, group, client_id="member", **NEW_PROTOCOL) as consumer:
        consumer.subscribe([topic])
        until(lambda: poll([consumer], []) or consumer.assignment())
        listed, groups = java_clients.admin(
            target, {"call": "listGroups"}, {"call": "describeConsumerGroups", "groups": [group]}
        )
    names = {"group": group, "type": "Consumer", "protocol": "consumer", "state": "Stable"}
    assert names in listed
    member = {"client_id": "member", "assignment": [f"{topic}-0"]}
    described = {"type": "Consumer", "state": "Stable", "assignor": "uniform", "members": [member]}
    assert groups[group] == described


@java
@pytest.mark.java
def test_java_console_consumer_reads_with_a_group(target: str, topic: str) -> None:
    produce(target, topic, map(str, range(50)))
    rows = java_clients.console_consumer(target, topic, group=f"console-{topic}", max_messages=50)
    assert rows == [(0, offset, "null", str(offset)) for offset in range(50)]


@java
@pytest.mark.java
def test_java_admin_describes_groups_producers_and_transactions(target: str, topic: str) -> None:
    transactional_id = f"open-{topic}"
    producer = librdkafka_producer(target, transactional_id=transactional_id)
    producer.init_transactions(TIMEOUT_SECONDS)
    producer.begin_transaction()
    for number in range(3):
        producer.produce(topic, str(number))
    producer.flush(TIMEOUT_SECONDS)
    with librdkafka_consumer(target, f"group-{topic}", client_id="member") as consumer:
        consumer.subscribe([topic])
        until(lambda: poll([consumer], []) or consumer.assignment())
        consumer.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
        answers = java_clients.admin(
            target,
            {"call": "listGroups"},
            {"call": "describeConsumerGroups", "groups": [f"group-{topic}"]},
            {"call": "describeClassicGroups", "groups": [f"group-{topic}"]},
            {"call": "listConsumerGroupOffsets", "group": f"group-{topic}"},
            {"call": "listTransactions"},
            {"call": "describeTransactions", "transactional_ids": [transactional_id]},
            {"call": "describeProducers", "topic": topic, "partition": 0},
        )
    producer.abort_transaction(TIMEOUT_SECONDS)
    groups, consumer_groups, classic_groups, offsets, transactions, described, producers = answers
    member = {"client_id": "member", "assignment": [f"{topic}-0"]}
    names = {"group": f"group-{topic}", "type": "Classic", "protocol": "consumer"}
    assert names | {"state": "Stable"} in groups
    assert consumer_groups[f"group-{topic}"] == {
        "type": "Classic",
        "state": "Stable",
        "assignor": "range",
        "members": [member],
    }
    assert classic_groups[f"group-{topic}"] == {
        "protocol": "consumer",
        "protocol_data": "range",
        "state": "Stable",
        "members": [member],
    }
    assert offsets == {f"{topic}-0": 2}
    (listed,) = (found for found in transactions if found["transactional_id"] == transactional_id)
    assert listed["state"] == "Ongoing"
    (active,) = producers
    assert active["producer_id"] == listed["producer_id"]
    assert (active["last_sequence"], active["transaction_start_offset"]) == (2, 0)
    transaction = described[transactional_id]
    assert transaction["producer_id"] == listed["producer_id"]
    assert transaction["producer_epoch"] == active["producer_epoch"]
    assert (transaction["state"], transaction["partitions"]) == ("Ongoing", [f"{topic}-0"])


@java
@pytest.mark.java
def test_java_admin_manages_topics(target: str, topic: str) -> None:
    produce(target, topic, ["a", "b"])
    other = f"{topic}-other"
    wanted = {"partitions": 2, "configs": {"cleanup.policy": "compact"}}
    answers = java_clients.admin(
        target,
        {"call": "createTopics", "topics": {other: wanted}},
        {"call": "createTopics", "topics": {other: {}}},
        {"call": "createPartitions", "topic": other, "count": 3},
        {"call": "describeTopics", "topics": [other]},
        {"call": "describeConfigs", "type": "TOPIC", "name": other},
        {"call": "deleteTopics", "topics": [other]},
        {"call": "listTopics"},
        {"call": "listOffsets", "topic": topic, "partition": 0, "at": "earliest"},
        {"call": "listOffsets", "topic": topic, "partition": 0, "at": "latest"},
        {"call": "describeCluster"},
    )
    created, twice, grown, described, configs, deleted, listed, earliest, latest, cluster = answers
    assert (created, grown, deleted) == (None, None, None)
    assert isinstance(twice, java_clients.JavaAdminError)
    assert twice.class_name == "TopicExistsException"
    assert [row["partition"] for row in described[other]["partitions"]] == [0, 1, 2]
    assert (configs["cleanup.policy"], configs["max.message.bytes"]) == ("compact", "1048588")
    assert topic in listed
    # the controller answers; brokers hear of a deletion a moment later
    until(lambda: other not in listed or other not in java_clients.admin(target, {"call": "listTopics"})[0])
    assert (earliest["offset"], latest["offset"]) == (0, 2)
    assert [f"{host}:{port}" for _, host, port in cluster["nodes"]] == target.split(",")
