"""kbatch.compat.confluent_kafka: the same programs over it and over confluent-kafka see the same.

Each program gets the library and a broker of its own, and returns what it saw.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import confluent_kafka.error
import confluent_kafka.serialization
import pytest

import kbatch.compat.confluent_kafka as compat
import kbatch.compat.confluent_kafka.admin
import kbatch.compat.confluent_kafka.error
import kbatch.compat.confluent_kafka.serialization
from kbatch.compat.confluent_kafka.settings import CONSUMER, WITHOUT_EFFECT, within_delivery_timeout
from kbatch.config import ConsumerConfig, ProducerConfig
from kbatch.config.names import FOREIGN
from kbatch.testing import Broker
from tests import ROOT
from tests.support.patience import HANG_SECONDS, until

Program = Callable[[Any, str], Any]
TOPIC = "orders"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with new_broker() as running:
        yield running


def new_broker() -> Broker:
    return Broker({TOPIC: 3}, group_initial_rebalance_delay_ms=0)


def reader(library: Any, servers: str, more: Mapping[str, Any] = {}) -> Any:
    settings = {
        "bootstrap.servers": servers,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    return library.Consumer({**settings, **more})


def fill(library: Any, servers: str, count: int = 6) -> None:
    """Send messages in turn to the partitions."""
    producer = library.Producer({"bootstrap.servers": servers})
    for number in range(count):
        producer.produce(TOPIC, f"v{number}", f"k{number}", number % 3, timestamp=1000 + number)
    assert producer.flush(HANG_SECONDS) == 0


def taken(consumer: Any, count: int) -> list[Any]:
    """Poll so many messages, and return them in the order of their values."""
    messages: list[Any] = []
    while len(messages) < count:
        if (message := consumer.poll(HANG_SECONDS)) is not None:
            assert message.error() is None
            messages.append(message)
    return sorted(messages, key=lambda message: message.value() or b"")


def seen_of(message: Any) -> tuple[Any, ...]:
    return (
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        message.headers(),
        message.timestamp(),
        message.error(),
        len(message),
    )


def places(partitions: Any) -> list[tuple[Any, ...]]:
    return sorted((each.topic, each.partition, each.offset, each.metadata) for each in partitions)


def raised_by(call: Callable[..., object], *arguments: Any, **keywords: Any) -> Any:
    """Return what a call raises: the kind of exception, and the name of a Kafka error."""
    with pytest.raises(Exception) as caught:
        call(*arguments, **keywords)
    error = caught.value
    if type(error).__name__ == "KafkaException":
        return error.args[0].name()
    return next(kind.__name__ for kind in (BufferError, RuntimeError, ValueError) if isinstance(error, kind))


def deliveries(library: Any, servers: str) -> Any:
    producer = library.Producer({"bootstrap.servers": servers, "linger.ms": 60_000})
    reports: list[Any] = []

    def note(error: Any, message: Any) -> None:
        reports.append(
            (error, message.key(), message.value(), message.partition(), message.offset(), message.error())
        )

    for number in range(5):
        headers = {"h": "text"} if number % 2 else [("a", b"b"), ("none", None)]
        producer.produce(TOPIC, f"v{number}", b"k", 1, on_delivery=note, timestamp=1000, headers=headers)
    producer.produce(TOPIC, None, None, 1, callback=note)
    waiting = len(producer), bool(producer), list(reports)
    left = producer.flush(HANG_SECONDS), len(producer), bool(producer)
    with reader(library, servers) as consumer:
        consumer.assign([library.TopicPartition(TOPIC, 1, library.OFFSET_BEGINNING)])
        messages = [seen_of(each)[:6] for each in consumer.consume(6, HANG_SECONDS)]
    return waiting, left, reports, messages


def partitions_of_keys(library: Any, servers: str) -> Any:
    producer = library.Producer({"bootstrap.servers": servers})
    found: dict[bytes, int] = {}
    for number in range(100):
        producer.produce(
            TOPIC,
            b"",
            b"%d" % number,
            callback=lambda error, each: found.update({each.key(): each.partition()}),
        )
    producer.flush(HANG_SECONDS)
    return found


def callbacks_in_poll(library: Any, servers: str) -> Any:
    producer = library.Producer({"bootstrap.servers": servers})
    order: list[Any] = []

    def again(error: Any, message: Any) -> None:
        order.append(message.value())
        if message.value() == b"first":
            producer.produce(TOPIC, b"second", partition=0, callback=again)

    def fail(error: Any, message: Any) -> None:
        raise LookupError("of the program")

    producer.produce(TOPIC, b"first", partition=0, callback=again)
    left = producer.flush(HANG_SECONDS)
    producer.produce(TOPIC, b"third", partition=0, callback=fail)
    with pytest.raises(LookupError):
        until(lambda: producer.poll(HANG_SECONDS))
    return order, left, len(producer)


def full_queue(library: Any, servers: str) -> Any:
    producer = library.Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 3})
    for _ in range(3):
        producer.produce(TOPIC, b"v", callback=lambda error, message: None)
    refused = raised_by(producer.produce, TOPIC, b"v")
    producer.flush(HANG_SECONDS)
    producer.produce(TOPIC, b"v")
    return refused, producer.flush(HANG_SECONDS)


def group(library: Any, servers: str) -> Any:
    fill(library, servers)
    commits: list[Any] = []
    moves: list[Any] = []
    consumer = reader(
        library, servers, {"on_commit": lambda error, offsets: commits.append((error, places(offsets)))}
    )
    consumer.subscribe(
        [TOPIC],
        on_assign=lambda given, partitions: moves.append((given is consumer, places(partitions))),
        on_revoke=lambda given, partitions: moves.append(len(partitions)),
    )
    messages = taken(consumer, 6)
    nothing = consumer.poll(0)
    everything = [library.TopicPartition(TOPIC, partition) for partition in range(3)]
    positions = places(consumer.position(everything))
    committed = places(consumer.commit(asynchronous=False)), places(consumer.committed(everything))
    first = places(consumer.commit(message=messages[0], asynchronous=False))
    given = [library.TopicPartition(TOPIC, 1, 1, "note")]
    chosen = places(consumer.commit(offsets=given, asynchronous=False))
    consumer.commit(message=messages[5])  # does not wait
    until(lambda: consumer.poll(0.01) or any((TOPIC, 2, 2, None) in offsets for _, offsets in commits))
    finally_committed = places(consumer.committed(everything))
    has_id = bool(consumer.memberid())
    consumer.close()
    return (
        list(map(seen_of, messages)),
        nothing,
        positions,
        committed,
        first,
        chosen,
        finally_committed,
        has_id,
        moves,
    )


def offsets(library: Any, servers: str) -> Any:
    fill(library, servers)
    at = library.TopicPartition
    with reader(library, servers) as consumer:
        ends = [consumer.get_watermark_offsets(at(TOPIC, each), timeout=HANG_SECONDS) for each in range(3)]
        times = consumer.offsets_for_times([at(TOPIC, 0, 1001), at(TOPIC, 1, 5000)], timeout=HANG_SECONDS)
        unread = places(consumer.committed([at(TOPIC, 0)], timeout=HANG_SECONDS))
        consumer.assign([at(TOPIC, 0, library.OFFSET_BEGINNING), at(TOPIC, 1, library.OFFSET_END)])
        first = [each.value() for each in consumer.consume(2, HANG_SECONDS)]
        consumer.incremental_assign([at(TOPIC, 2, 1)])
        second = [each.value() for each in consumer.consume(1, HANG_SECONDS)]
        consumer.seek(at(TOPIC, 2, 0))
        third = [each.value() for each in consumer.consume(2, HANG_SECONDS)]
        consumer.pause([at(TOPIC, 2)])
        consumer.seek(at(TOPIC, 2, 0))
        paused = consumer.poll(0)
        consumer.resume([at(TOPIC, 2)])
        resumed = [each.value() for each in consumer.consume(2, HANG_SECONDS)]
        consumer.incremental_unassign([at(TOPIC, 2)])
        assigned = [(each.topic, each.partition) for each in sorted(consumer.assignment())]
        consumer.unassign()
        return (
            ends,
            places(times),
            unread,
            first,
            second,
            third,
            paused,
            resumed,
            assigned,
            consumer.assignment(),
        )


def ends(library: Any, servers: str) -> Any:
    """Empty partitions end, too; a partition ends again after more messages, and after a seek."""
    fill(library, servers, 4)
    at = library.TopicPartition
    with reader(library, servers, {"enable.partition.eof": True}) as consumer:
        consumer.assign([at(TOPIC, each, 0) for each in range(3)])
        found = [ended(consumer, 3)]
        fill(library, servers, 1)
        found.append(ended(consumer, 1))
        consumer.seek(at(TOPIC, 1, 0))
        found.append(ended(consumer, 1))
    with reader(library, servers, {"enable.partition.eof": True}) as consumer:
        consumer.subscribe([TOPIC])
        return [*found, ended(consumer, 3)]


def ended(consumer: Any, count: int) -> Any:
    """Return the values that come before so many ends, and the ends."""
    values: list[Any] = []
    found: list[Any] = []
    while len(found) < count:
        (message,) = consumer.consume(1, HANG_SECONDS)
        if message.error() is None:
            values.append(message.value())
        else:
            found.append((message.error().name(), message.topic(), message.partition(), message.offset()))
    return sorted(values), sorted(found)


def assign_in_callback(library: Any, servers: str) -> Any:
    fill(library, servers, 9)

    def from_second(consumer: Any, partitions: Any) -> None:
        for each in partitions:
            each.offset = 1
        consumer.assign(partitions)

    with reader(library, servers) as consumer:
        consumer.subscribe([TOPIC], on_assign=from_second)
        return [seen_of(each)[1:5] for each in taken(consumer, 6)]


def stored_offsets(library: Any, servers: str) -> Any:
    fill(library, servers)
    with reader(
        library, servers, {"enable.auto.commit": True, "enable.auto.offset.store": False}
    ) as consumer:
        consumer.subscribe([TOPIC])
        messages = taken(consumer, 6)
        consumer.store_offsets(message=messages[0])
        consumer.store_offsets(offsets=[library.TopicPartition(TOPIC, 1, 1)])
    with reader(library, servers) as consumer:
        everything = [library.TopicPartition(TOPIC, partition) for partition in range(3)]
        refused = raised_by(consumer.store_offsets, message=messages[0])
        return places(consumer.committed(everything)), refused


def automatic_commits(library: Any, servers: str) -> Any:
    fill(library, servers)
    with reader(library, servers, {"enable.auto.commit": True}) as consumer:
        consumer.subscribe([TOPIC])
        taken(consumer, 6)
    with reader(library, servers) as consumer:
        return places(consumer.committed([library.TopicPartition(TOPIC, each) for each in range(3)]))


def patterns(library: Any, servers: str) -> Any:
    fill(library, servers)
    with reader(library, servers) as consumer:
        consumer.subscribe(["^ord"])
        return [each.value() for each in taken(consumer, 6)]


def refusals(library: Any, servers: str) -> Any:
    to = {"bootstrap.servers": servers}
    producer = library.Producer(to)
    consumer = reader(library, servers)
    found = [
        raised_by(library.Producer, to | {"no.such.key": 1}),
        raised_by(library.Producer, to | {"linger.ms": "soon"}),
        raised_by(library.Consumer, to),
        raised_by(producer.produce, TOPIC, b"x" * 2_000_000),
        raised_by(consumer.commit, asynchronous=False),
        consumer.commit(),
        consumer.poll(0),
    ]
    consumer.close()
    consumer.close()
    return [*found, raised_by(consumer.poll, 0), raised_by(consumer.commit)]


def transactions(library: Any, servers: str) -> Any:
    fill(library, servers, 3)
    producer = library.Producer({"bootstrap.servers": servers, "transactional.id": "t"})
    producer.init_transactions(HANG_SECONDS)
    with reader(library, servers) as consumer:
        consumer.subscribe([TOPIC])
        taken(consumer, 3)
        producer.begin_transaction()
        producer.produce(TOPIC, b"aborted", partition=0)
        producer.flush(HANG_SECONDS)
        producer.abort_transaction(HANG_SECONDS)
        producer.begin_transaction()
        producer.produce(TOPIC, b"committed", partition=0)
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), HANG_SECONDS)
        producer.commit_transaction(HANG_SECONDS)
        committed = places(consumer.committed(consumer.assignment(), HANG_SECONDS))
        return [each.value() for each in taken(consumer, 1)], committed


def with_three(topics: Any) -> Any:
    """Return topics if one of them has its new partition, else None."""
    return topics if len(topics["new"].partitions) == 3 else None


def administration(library: Any, servers: str) -> Any:
    admin = library.AdminClient({"bootstrap.servers": servers})
    made = admin.create_topics([library.NewTopic("new", num_partitions=2, config={"retention.ms": "1000"})])
    created = [future.result(HANG_SECONDS) for future in made.values()]
    again = raised_by(admin.create_topics([library.NewTopic("new", 2, 1)])["new"].result, HANG_SECONDS)
    missing = raised_by(admin.delete_topics(["missing"])["missing"].result, HANG_SECONDS)
    grown = admin.create_partitions([library.NewPartitions("new", 3)])["new"].result(HANG_SECONDS)
    resource = library.ConfigResource("topic", "new")
    entry = library.ConfigEntry("retention.ms", "2000", incremental_operation=library.AlterConfigOpType.SET)
    change = library.ConfigResource("topic", "new", incremental_configs=[entry])
    (altered,) = (each.result(HANG_SECONDS) for each in admin.incremental_alter_configs([change]).values())
    (found,) = (each.result(HANG_SECONDS) for each in admin.describe_configs([resource]).values())
    setting = found["retention.ms"]
    topics = until(lambda: with_three(admin.list_topics(timeout=HANG_SECONDS).topics))
    partition = topics["new"].partitions[2]
    fill(library, servers)
    with reader(library, servers) as consumer:
        consumer.subscribe([TOPIC])
        taken(consumer, 6)
        consumer.commit(asynchronous=False)
    request = library.ConsumerGroupTopicPartitions("g")
    committed = admin.list_consumer_group_offsets([request])["g"].result(HANG_SECONDS)
    moved = library.ConsumerGroupTopicPartitions("g", [library.TopicPartition(TOPIC, 0, 1)])
    admin.alter_consumer_group_offsets([moved])["g"].result(HANG_SECONDS)
    after = admin.list_consumer_group_offsets([library.ConsumerGroupTopicPartitions("g")])["g"].result(
        HANG_SECONDS
    )
    groups = admin.list_consumer_groups().result(HANG_SECONDS)
    described = admin.describe_consumer_groups(["g"])["g"].result(HANG_SECONDS)
    kept = library.TopicPartition(TOPIC, 0, 1)
    cut = admin.delete_records([kept])[kept].result(HANG_SECONDS)
    return (
        created,
        again,
        missing,
        grown,
        altered,
        (
            setting.value,
            library.ConfigSource(setting.source).name,
            setting.is_read_only,
            setting.is_sensitive,
        ),
        (partition.id, partition.leader, partition.replicas, partition.isrs, topics["new"].error),
        places(committed.topic_partitions),
        places(after.topic_partitions),
        [(each.group_id, each.state.name, each.type.name) for each in groups.valid],
        groups.errors,
        (described.group_id, described.state.name, described.members),
        cut.low_watermark,
        admin.delete_consumer_groups(["g"])["g"].result(HANG_SECONDS),
        admin.delete_topics(["new"])["new"].result(HANG_SECONDS),
    )


def serializers(library: Any, servers: str) -> Any:
    contexts: list[Any] = []

    def serialize(value: Any, context: Any) -> bytes:
        contexts.append((context.topic, str(context.field), context.headers))
        return str(value).encode()

    to = {"bootstrap.servers": servers}
    producer = library.SerializingProducer(
        to | {"key.serializer": library.IntegerSerializer(), "value.serializer": serialize}
    )
    producer.produce(TOPIC, 5, 2.5, partition=0, headers=[("h", b"1")])
    producer.produce(TOPIC, None, "not a number", partition=0)
    refused = type(_caught(producer.produce, TOPIC, "five", 1)).__name__
    producer.flush(HANG_SECONDS)
    with library.DeserializingConsumer(
        to
        | {
            "group.id": "g",
            "key.deserializer": library.IntegerDeserializer(),
            "value.deserializer": lambda value, context: float(value),
        }
    ) as consumer:
        consumer.assign([library.TopicPartition(TOPIC, 0, 0)])
        message = consumer.poll(HANG_SECONDS)
        failed = _caught(consumer.poll, HANG_SECONDS)
    text = (
        library.StringSerializer("latin-1")("é"),
        library.StringDeserializer()(b"a"),
        library.StringSerializer()(None),
    )
    double = library.DoubleDeserializer()(library.DoubleSerializer()(0.5))
    wrong = type(_caught(library.StringDeserializer(), b"\xff")).__name__
    return (
        contexts,
        refused,
        message.key(),
        message.value(),
        type(failed).__name__,
        failed.name,
        failed.code,
        failed.kafka_message.value(),
        text,
        double,
        wrong,
    )


def _caught(call: Callable[..., object], *arguments: Any) -> Any:
    with pytest.raises(Exception) as caught:
        call(*arguments)
    return caught.value


def values(library: Any, servers: str) -> Any:
    error, at = library.KafkaError, library.TopicPartition
    return (
        repr(error(-185, "text", fatal=True, retriable=True)),
        error(3).str(),
        error(3) == 3,
        error(3) == error(3),
        error(3) != error(4),
        hash(error(3)) == hash(error(3)),
        error(9999).name(),
        bool(error(0)),
        error(1, "", True, False, True).fatal(),
        error(1, txn_requires_abort=True).txn_requires_abort(),
        repr(at("t", 1, 5)),
        at("t", 1, 5) == at("t", 1),
        at("t", 1) < at("t", 2),
        len({at("t", 1), at("t", 1, 7)}),
        library.Message().timestamp(),
        library.Message(value=b"v", error=error(3)).error(),
        [getattr(library, name) for name in CONSTANTS],
    )


CONSTANTS = [name for name in compat.__all__ if name.isupper()]
PROGRAMS: list[Program] = [
    administration,
    assign_in_callback,
    automatic_commits,
    callbacks_in_poll,
    deliveries,
    ends,
    full_queue,
    group,
    offsets,
    partitions_of_keys,
    patterns,
    refusals,
    serializers,
    stored_offsets,
    transactions,
    values,
]


def all_of(package: ModuleType) -> Any:
    """Return the names of a library in one namespace."""
    modules = [package, *(vars(package)[name] for name in ("error", "serialization", "admin"))]
    return SimpleNamespace(**{name: each for module in modules for name, each in vars(module).items()})


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_sees_the_same_over_both(program: Program) -> None:
    with new_broker() as first, new_broker() as second:
        theirs = program(all_of(confluent_kafka), first.bootstrap_servers)
        assert program(all_of(compat), second.bootstrap_servers) == theirs


def test_codes_and_their_names_are_the_same() -> None:
    theirs = confluent_kafka.KafkaError
    names = [name for name in dir(theirs) if isinstance(getattr(theirs, name), int) and name[:2] != "__"]
    assert len(names) > 150
    for name in names:
        code = getattr(theirs, name)
        assert (name, getattr(compat.KafkaError, name)) == (name, code)
        assert compat.KafkaError(code).name() == theirs(code).name()


@pytest.mark.parametrize("enum", ["ConsumerGroupState", "ConsumerGroupType", "ResourceType", "ConfigSource",
                                  "AlterConfigOpType", "MessageField"])  # fmt: skip
def test_members_of_enums_have_the_same_values(enum: str) -> None:
    theirs, ours = getattr(all_of(confluent_kafka), enum), getattr(all_of(compat), enum)
    assert {each.name: each.value for each in ours} == {each.name: each.value for each in theirs}


def test_an_item_that_fails_does_not_fail_the_others(broker: Broker) -> None:
    with compat.admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        topics = admin.delete_topics([TOPIC, "missing"], request_timeout=HANG_SECONDS)
        assert topics[TOPIC].result(HANG_SECONDS) is None
        failure = topics["missing"].exception(HANG_SECONDS)
        assert isinstance(failure, compat.KafkaException)
        assert failure.args[0] == compat.KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_second_close_has_no_effect(broker: Broker) -> None:
    with compat.Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        producer.produce(TOPIC, b"v")
        producer.close()
    assert len(broker.records(TOPIC)) == 1
    with pytest.raises(RuntimeError):
        producer.produce(TOPIC, b"v")


def test_keys_without_effect_are_named_once(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "log_level": 7,
        "stats_cb": print,
        "session.timeout.ms": 7000,
    }
    kbatch.compat.confluent_kafka.settings._leave_out.cache_clear()
    with caplog.at_level(logging.WARNING, "kbatch.compat.confluent_kafka"):
        for _ in range(2):
            compat.Producer(settings).close()
    named = [record.getMessage().partition(" ")[0] for record in caplog.records]
    assert named == ["log_level", "stats_cb", "session.timeout.ms"]


def test_keys_without_effect_are_those_of_librdkafka_that_kbatch_lacks() -> None:
    assert set(FOREIGN) >= WITHOUT_EFFECT


def test_one_of_two_keys_for_the_same_decides() -> None:
    """librdkafka has two keys in some places where kbatch has one: its own name wins, then the later one."""
    given = {
        "topic.metadata.refresh.interval.ms": 1000,
        "metadata.max.age.ms": 5000,
        "bootstrap.servers": "a:1",
        "metadata.broker.list": "b:1",
        "client.id": None,
    }
    client = kbatch.compat.confluent_kafka.settings.settings_of(CONSUMER, given, {"group_id": "g"}).client
    config = ConsumerConfig(client)
    assert (config.metadata_max_age_ms, config.bootstrap_servers) == (1000, ("b:1",))
    assert (config.group_id, config.isolation_level) == ("g", "read_committed")


def test_keys_that_decide_what_a_program_gets_are_refused(broker: Broker) -> None:
    to = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
    assert raised_by(compat.Consumer, to | {"enable.ssl.certificate.verification": False}) == "_INVALID_ARG"


@pytest.mark.parametrize("given", [{"message.timeout.ms": 1900}, {"socket.timeout.ms": 60_000}, {}], ids=str)
def test_requests_and_calls_end_with_their_messages(given: dict[str, int]) -> None:
    settings = {"bootstrap.servers": "a:1", "message.timeout.ms": "9000", "queue.buffering.max.ms": "1000"}
    config = ProducerConfig(within_delivery_timeout(settings | given))
    assert config.request_timeout_ms + config.linger_ms == config.delivery_timeout_ms == config.max_block_ms


def test_requests_are_as_long_as_ever_without_a_limit() -> None:
    for given in ({"message.timeout.ms": 0}, {"message.timeout.ms": "none"}, {"linger.ms": 5}):
        assert within_delivery_timeout(given) == given


def test_names_and_patterns_may_be_subscribed_together(broker: Broker) -> None:
    broker.create_topic("a.b", partitions=1)
    broker.create_topic("aXb", partitions=1)
    with reader(compat, broker.bootstrap_servers) as consumer:
        consumer.subscribe(["^ord", "a.b"])
        until(lambda: consumer.poll(0.01) or consumer.assignment())
        assert {each.topic for each in consumer.assignment()} == {TOPIC, "a.b"}


def test_seek_goes_to_the_first_offset_whatever_the_reset(broker: Broker) -> None:
    fill(compat, broker.bootstrap_servers)
    with reader(compat, broker.bootstrap_servers, {"auto.offset.reset": "latest"}) as consumer:
        consumer.assign([compat.TopicPartition(TOPIC, 0, compat.OFFSET_END)])
        consumer.seek(compat.TopicPartition(TOPIC, 0, 0))
        assert [each.value() for each in taken(consumer, 2)] == [b"v0", b"v3"]
        consumer.seek(compat.TopicPartition(TOPIC, 0))  # where auto.offset.reset says
        assert consumer.poll(0.05) is None


def test_what_an_exception_kept_back_comes_next_but_not_after_a_seek(broker: Broker) -> None:
    """A callback of the program may raise while a call has messages already."""
    fill(compat, broker.bootstrap_servers)
    with reader(compat, broker.bootstrap_servers) as consumer:

        def consume() -> None:
            consumer.assign([compat.TopicPartition(TOPIC, 0, 0)])
            first = consumer._client.poll

            def once_more(*arguments: Any) -> Any:
                consumer._client.poll = interrupted
                return first(*arguments)

            def interrupted(*arguments: Any) -> Any:
                consumer._client.poll = first
                raise KeyboardInterrupt

            consumer._client.poll = once_more
            with pytest.raises(KeyboardInterrupt):
                consumer.consume(3, HANG_SECONDS)

        consume()
        assert [each.value() for each in consumer.consume(2, HANG_SECONDS)] == [b"v0", b"v3"]
        consume()
        consumer.seek(compat.TopicPartition(TOPIC, 0, 1))
        assert [each.value() for each in consumer.consume(1, HANG_SECONDS)] == [b"v3"]


def test_ends_are_looked_for_where_messages_came(broker: Broker) -> None:
    """Not in all the other partitions, of which there may be thousands."""
    broker.create_topic("wide", partitions=30)
    with reader(compat, broker.bootstrap_servers, {"enable.partition.eof": True}) as consumer:
        consumer.assign([compat.TopicPartition("wide", each, 0) for each in range(30)])
        assert len(ended(consumer, 30)[1]) == 30
        looked_at: set[int] = set()
        lag = consumer._client.lag

        def noted(partition: Any) -> Any:
            looked_at.add(partition.partition)
            return lag(partition)

        consumer._client.lag = noted
        with compat.Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
            producer.produce("wide", b"v", partition=7)
        assert ended(consumer, 1) == ([b"v"], [("_PARTITION_EOF", "wide", 7, 1)])
        assert looked_at == {7}


def test_a_lasting_error_is_a_message_now_and_then(broker: Broker) -> None:
    with reader(compat, broker.bootstrap_servers, {"auto.offset.reset": "error"}) as consumer:
        consumer.assign([compat.TopicPartition(TOPIC, 0)])
        first = until(lambda: consumer.poll(0.01))
        assert first.error().name() == "_AUTO_OFFSET_RESET"
        assert consumer.poll(0) is None
        assert until(lambda: consumer.poll(HANG_SECONDS)).error().name() == "_AUTO_OFFSET_RESET"


def test_a_message_to_a_topic_that_cannot_be_is_failed_by_its_callback(broker: Broker) -> None:
    reports: list[compat.KafkaError | None] = []
    with compat.Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        producer.produce("not a topic", b"v", callback=lambda error, message: reports.append(error))
        assert reports == []
        assert producer.flush(HANG_SECONDS) == 0
    assert reports == [compat.KafkaError(compat.KafkaError.TOPIC_EXCEPTION)]


def test_failed_logins_are_for_error_cb() -> None:
    errors: list[Any] = []
    with Broker({TOPIC: 1}, users={"anne": "right"}) as broker:
        consumer = compat.Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "g",
                "security.protocol": "sasl_plaintext",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "anne",
                "sasl.password": "wrong",
                "error_cb": errors.append,
            }
        )
        consumer.subscribe([TOPIC])
        until(lambda: consumer.poll(0.01) or errors)
        consumer.close()
    assert errors[0].code() == compat.KafkaError._AUTHENTICATION


def run(program: str, *arguments: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_install_refuses_after_the_import_of_the_real_one() -> None:
    run("""
import confluent_kafka
from kbatch.compat.confluent_kafka import install
try:
    install()
except RuntimeError as error:
    assert "imported before" in str(error)
else:
    raise AssertionError
""")


KOMBU = """
import sys
from kbatch.compat.confluent_kafka import install
install()
import confluent_kafka
from kombu import Connection
host, port = sys.argv[1].split(":")
with Connection(f"confluentkafka://{host}:{port}", transport_options={"wait_time_seconds": 60}) as connection:
    queue = connection.SimpleQueue("work")
    for number in range(3):
        queue.put({"number": number})
    got = []
    for _ in range(3):
        message = queue.get(timeout=60)
        got.append(message.payload["number"])
        if len(got) == 3:
            print(queue.qsize())
        message.ack()
    message = None
    queue.put({"number": 3})
    message = queue.get(timeout=60)
    message.requeue()
    again = queue.get(timeout=60)
    got += [message.payload["number"], again.payload["number"]]
    again.ack()
    print(got, confluent_kafka.__name__)
    queue.close()
"""


def test_kombus_transport_runs_on_it(broker: Broker) -> None:
    pytest.importorskip("kombu")
    printed = run(KOMBU, broker.bootstrap_servers).splitlines()
    assert printed[-1] == "[0, 1, 2, 3, 3] kbatch.compat.confluent_kafka"


AIRFLOW = """
import asyncio, json, os, sys, tempfile
os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp()
settings = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
extra = settings | {"bootstrap.servers": sys.argv[1]}
os.environ["AIRFLOW_CONN_KAFKA_DEFAULT"] = json.dumps({"conn_type": "kafka", "extra": extra})
from kbatch.compat.confluent_kafka import install
install()
from airflow.providers.apache.kafka.hooks.client import KafkaAdminClientHook
from airflow.providers.apache.kafka.operators.consume import ConsumeFromTopicOperator
from airflow.providers.apache.kafka.operators.produce import ProduceToTopicOperator
from airflow.providers.apache.kafka.triggers.await_message import AwaitMessageTrigger

hook = KafkaAdminClientHook()
for _ in range(2):
    hook.create_topic([("events", 2, 1)])
assert hook.test_connection()[0]
sent = [(f"k{number}", f"v{number}") for number in range(5)]
ProduceToTopicOperator(task_id="produce", topic="events", producer_function=lambda: sent).execute({})
got = []
ConsumeFromTopicOperator(
    task_id="consume", topics=["events"], apply_function=lambda message: got.append(message.value().decode()),
    max_messages=5, max_batch_size=5, commit_cadence="end_of_batch",
).execute({})
ProduceToTopicOperator(task_id="more", topic="events", producer_function=lambda: [("k", "later")]).execute({})

async def awaited():
    trigger = AwaitMessageTrigger(topics=["events"], poll_interval=0.01)
    try:
        async for event in trigger.run():
            return event.payload
    finally:
        await trigger.cleanup()

got.append(asyncio.run(awaited()))
hook.delete_topic(["events"])
print(sorted(got))
"""


@pytest.mark.slow
def test_airflows_provider_runs_on_it(broker: Broker) -> None:
    pytest.importorskip("airflow.providers.apache.kafka")
    printed = run(AIRFLOW, broker.bootstrap_servers).splitlines()
    assert printed[-1] == "['later', 'v0', 'v1', 'v2', 'v3', 'v4']"


FASTSTREAM = """
import asyncio, sys
from kbatch.compat.confluent_kafka import install
install()
from faststream.confluent import KafkaBroker

broker, got, done = KafkaBroker(sys.argv[1]), [], asyncio.Event()

@broker.subscriber("numbers", group_id="doubling", auto_offset_reset="earliest")
@broker.publisher("doubled")
async def double(number: int) -> int:
    return 2 * number

@broker.subscriber("doubled", group_id="collecting", auto_offset_reset="earliest", batch=True, max_records=5)
async def collect(numbers: list[int]) -> None:
    got.extend(numbers)
    if len(got) == 5:
        done.set()

async def main():
    await broker.start()
    for number in range(5):
        await broker.publish(number, "numbers", key=b"k", headers={"h": "1"})
    await done.wait()
    assert await broker.ping(60)
    await broker.stop()

asyncio.run(main())
print(sorted(got))
"""


@pytest.mark.slow
def test_faststreams_broker_runs_on_it(broker: Broker) -> None:
    pytest.importorskip("faststream")
    assert run(FASTSTREAM, broker.bootstrap_servers).splitlines()[-1] == "[0, 2, 4, 6, 8]"
