"""Share consumers with deserializers: what each policy does with a record that cannot be read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

import kbatch
from kbatch import formats
from kbatch.errors import (
    ConfigError,
    IllegalStateError,
    RecordDeserializationError,
    SchemaRegistryError,
)
from kbatch.testing import Broker
from tests.support.producing import SECONDS
from tests.support.registry import Registry

GOOD, BAD = b'{"id": 1}', b"{"
SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture
def broker() -> Iterator[Broker]:
    topics = {"t": 1, "t.dlq": 1}
    with Broker(topics=topics, auto_create_topics=False, group_share_delivery_count_limit=2) as running:
        running.alter_configs(group="g", set={"share.auto.offset.reset": "earliest"})
        yield running


def send(broker: Broker, *values: bytes | None) -> None:
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number, value in enumerate(values):
            producer.send("t", value, b"%d" % number, headers=[("n", b"%d" % number)])


def consumer_of(broker: Broker, **settings: Any) -> kbatch.ShareConsumer[Any, Any]:
    given: dict[str, Any] = {
        "key_deserializer": lambda data: int(data),
        "value_deserializer": formats.Json(),
    } | settings
    consumer: kbatch.ShareConsumer[Any, Any] = kbatch.ShareConsumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="g", **given
    )
    consumer.subscribe(["t"])
    return consumer


def poll_of(consumer: kbatch.ShareConsumer[Any, Any]) -> list[Any]:
    return [(each.offset, each.value) for each in consumer.poll(SECONDS)]


def test_F_PILL_10_keys_and_values_are_of_the_programs_types(broker: Broker) -> None:
    send(broker, GOOD, None)
    with consumer_of(broker) as consumer:
        first, second = consumer.poll(SECONDS)
    assert (first.key, first.value, first.raw_key, first.raw_value) == (0, {"id": 1}, b"0", GOOD)
    assert (second.key, second.value, second.raw_value) == (1, None, None)
    assert first.deserialization_error is None and first.delivery_count == 1


def test_bytes_without_deserializers_are_raw_too(broker: Broker) -> None:
    send(broker, BAD)
    with consumer_of(broker, key_deserializer=None, value_deserializer=None) as consumer:
        (record,) = consumer.poll(SECONDS)
        assert (record.key, record.value, record.raw_key, record.raw_value) == (b"0", BAD, b"0", BAD)
        with pytest.raises(IllegalStateError, match="for consumers with deserializers"):
            consumer.skip(RecordDeserializationError("x"))


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_F_PILL_10_raise_is_after_what_is_before_and_skip_rejects(broker: Broker, mode: str) -> None:
    send(broker, GOOD, BAD, GOOD)
    with consumer_of(broker, share_acknowledgement_mode=mode) as consumer:

        def next_poll() -> list[Any]:
            found = consumer.poll(SECONDS)
            for each in found if mode == "explicit" else ():
                consumer.acknowledge(each)
            return [each.offset for each in found]

        assert next_poll() == [0]
        with pytest.raises(RecordDeserializationError) as raised:
            consumer.poll(SECONDS)
        error = raised.value
        assert (error.topic, error.partition, error.offset, error.value) == ("t", 0, 1, BAD)
        consumer.skip(error)
        assert next_poll() == [2]
        consumer.commit()
        with pytest.raises(IllegalStateError, match="offset 1 of t-0"):
            consumer.skip(error)
        send(broker, GOOD)
        assert next_poll() == [3]


def test_F_PILL_10_without_skip_it_is_released_up_to_the_limit(broker: Broker) -> None:
    """The limit is 2 deliveries; then the group gives it up."""
    send(broker, BAD)
    with consumer_of(broker) as consumer:
        for _ in range(2):
            with pytest.raises(RecordDeserializationError):
                consumer.poll(SECONDS)
        send(broker, GOOD)
        assert poll_of(consumer) == [(1, {"id": 1})]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("null", [(0, {"id": 1}), (1, None), (2, {"id": 1})]),
        ("skip", [(0, {"id": 1}), (2, {"id": 1})]),
        (lambda error: error.offset, [(0, {"id": 1}), (1, 1), (2, {"id": 1})]),
        (lambda error: formats.SKIP, [(0, {"id": 1}), (2, {"id": 1})]),
    ],
    ids=["null", "skip", "function", "SKIP"],
)
def test_F_PILL_10_policies(broker: Broker, policy: Any, expected: Any) -> None:
    send(broker, GOOD, BAD, GOOD)
    with consumer_of(broker, on_deserialization_error=policy) as consumer:
        records = consumer.poll(SECONDS)
        assert [(each.offset, each.value) for each in records] == expected
        errors = [each.deserialization_error for each in records]
        assert [each is not None for each in errors] == [offset == 1 for offset, _ in expected]
        consumer.commit()
    with consumer_of(broker) as another:
        send(broker, GOOD)
        assert [offset for offset, _ in poll_of(another)] == [3]  # nothing comes again


def test_F_PILL_10_dead_letters_are_acknowledged_first(broker: Broker) -> None:
    send(broker, BAD, BAD)
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        letter = kbatch.DeadLetter(producer)
        with consumer_of(broker, on_deserialization_error=letter) as consumer:
            send(broker, GOOD)
            assert poll_of(consumer) == [(2, {"id": 1})]
    letters = broker.records("t.dlq")
    assert [(each.key, each.value) for each in letters] == [(b"0", BAD), (b"1", BAD)]
    assert dict(letters[1].headers)["__dlq.offset"] == b"1"


def test_dead_letter_of_tasks_is_refused(broker: Broker) -> None:
    letter = kbatch.DeadLetter(kbatch.AsyncProducer(bootstrap_servers=broker.bootstrap_servers))
    with pytest.raises(ConfigError, match="the DeadLetter of ShareConsumer needs a Producer"):
        consumer_of(broker, on_deserialization_error=letter)


def test_failure_of_a_function_keeps_what_was_acquired(broker: Broker) -> None:
    """The limit of deliveries is 2: a third poll that acquired the records again would not get them."""
    send(broker, GOOD, BAD)
    failures = [LookupError("one"), LookupError("two"), LookupError("three")]

    def replace(error: RecordDeserializationError) -> Any:
        if failures:
            raise failures.pop(0)
        return "replaced"

    with consumer_of(broker, on_deserialization_error=replace) as consumer:
        for word in ("one", "two", "three"):
            with pytest.raises(LookupError, match=word):
                consumer.poll(SECONDS)
        records = consumer.poll(SECONDS)
    assert [(each.value, each.delivery_count) for each in records] == [({"id": 1}, 1), ("replaced", 1)]


def test_F_IO_05_registry_that_is_away_is_no_fault_of_records(broker: Broker) -> None:
    with Registry() as registry:
        format = formats.Avro(SCHEMA, registry=registry.client(), register=True)
        send(broker, format.bind("value").encode("t", (), {"id": 1}))
        reading = formats.Avro(registry=registry.client(retries=0))
        registry.faults.extend([(500, b"")] * 3)
        with consumer_of(broker, value_deserializer=reading) as consumer:
            for _ in range(3):
                with pytest.raises(SchemaRegistryError):
                    consumer.poll(SECONDS)
            (record,) = consumer.poll(SECONDS)
    assert (record.value, record.delivery_count) == ({"id": 1}, 1)


def test_tasks_poll_typed_records(broker: Broker) -> None:
    send(broker, GOOD, BAD)

    async def run() -> list[Any]:
        async with kbatch.AsyncShareConsumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            value_deserializer=json.loads,
            on_deserialization_error="null",
        ) as consumer:
            consumer.subscribe(["t"])
            return [each.value for each in await consumer.poll(SECONDS)]

    assert asyncio.run(run()) == [{"id": 1}, None]
