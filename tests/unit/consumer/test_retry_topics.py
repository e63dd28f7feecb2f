"""RetryTopics: the names of retry topics, and what a record has on its way through them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kbatch import ConsumerRecord, DeadLetter, Producer, RetryTopics
from kbatch.core.consumer.membership import Subscription
from kbatch.errors import RecordDeserializationError
from kbatch.formats import Json

SERVERS = "127.0.0.1:1"


class Sent:
    """A producer that keeps what it is to send."""

    def __init__(self) -> None:
        with Producer(bootstrap_servers=SERVERS) as producer:
            self.config = producer.config
        self.records: list[ConsumerRecord] = []

    async def send(
        self, topic: str, value: Any = None, key: Any = None, *, headers: Any = None, timestamp_ms: Any = None
    ) -> Any:
        self.records.append(ConsumerRecord(topic, 0, key, value, headers, timestamp_ms, len(self.records)))
        return asyncio.sleep(0)  # the acknowledgement


def moved(retries: RetryTopics, sent: Sent, record: ConsumerRecord, error: Exception) -> ConsumerRecord:
    """Return what becomes of a record that has failed."""
    forwarded: Any = retries(record, error)
    asyncio.run(forwarded)
    return sent.records[-1]


def test_POOL10_topics_and_their_delays() -> None:
    retries = RetryTopics(Sent(), [5, 60])
    names = retries.topics_for(["orders", "events", "orders.retry.1"])
    assert names == ["events.retry.1", "events.retry.2", "orders.retry.1", "orders.retry.2"]
    delays = [
        retries.delay_ms(each) for each in ("orders", "orders.retry.2", "orders.retry.3", "orders.retry.0")
    ]
    assert delays == [0, 60_000, 0, 0]
    single = RetryTopics(Sent(), [1.5], "later-{topic}")
    assert (single.topics_for(["a.b"]), single.delay_ms("later-a.b")) == (["later-a.b"], 1500)
    assert single.delay_ms("later-") == 0


def test_POOL10_pattern_is_about_the_first_topic() -> None:
    retries = RetryTopics(Sent(), [5, 60])
    wanted = Subscription(pattern="^ord[a-z]+", origin=retries.first_of)
    found = ["orders", "orders.retry.1", "orders.retry.2", "orders.retry.3", "events.retry.1", "orders.dlq"]
    assert [each for each in found if not wanted.excludes(each)] == found[:3]


def test_POOL10_a_dead_letter_is_as_if_it_came_from_the_first_topic() -> None:
    sent = Sent()
    retries = RetryTopics(sent, [5, 60])
    first = ConsumerRecord("orders", 3, b"k", b"v", [("h", b"1"), ("__retry.of", b"another")], 1234, 77)
    once = moved(retries, sent, first, OSError("away"))
    assert (once.topic, once.raw_key, once.raw_value, once.timestamp_ms) == (
        "orders.retry.1",
        b"k",
        b"v",
        None,
    )
    twice = moved(retries, sent, once, OSError("still away"))
    assert twice.topic == "orders.retry.2"
    headers = dict(twice.headers)
    assert headers == {
        "h": b"1",
        "__retry.topic": b"orders",
        "__retry.partition": b"3",
        "__retry.offset": b"77",
        "__retry.timestamp": b"1234",
        "__retry.error": b"OSError",
        "__retry.reason": b"still away",
    }
    letter = moved(retries, sent, twice, ValueError("no"))
    assert (letter.topic, letter.timestamp_ms) == ("orders.dlq", 1234)
    found = dict(letter.headers)
    assert {name for name in found if name.startswith("__retry")} == set() and found["h"] == b"1"
    assert (found["__dlq.topic"], found["__dlq.partition"], found["__dlq.offset"]) == (b"orders", b"3", b"77")


@pytest.mark.parametrize("headers", [[], [("__retry.offset", b"x" * 30), ("__retry.partition", None)]])
def test_records_that_others_put_into_a_retry_topic_are_taken(headers: Any) -> None:
    sent = Sent()
    record = ConsumerRecord("orders.retry.1", 2, None, b"v", headers, None, 5)
    letter = moved(RetryTopics(sent, [5]), sent, record, OSError())
    found = dict(letter.headers)
    assert (letter.topic, letter.timestamp_ms) == ("orders.dlq", None)
    assert (found["__dlq.partition"], found["__dlq.offset"]) == (b"2", b"5")


def test_what_cannot_be_read_is_a_dead_letter_at_once() -> None:
    sent = Sent()
    retries = RetryTopics(sent, [5], dead_letter=DeadLetter(sent, "bad"))
    record = ConsumerRecord("orders", 0, None, b"{", offset=1)
    assert (
        moved(retries, sent, record, RecordDeserializationError.of(record, "value", "no JSON")).topic == "bad"
    )


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"delays": []}, ValueError, "delays must have at least one"),
        ({"delays": [-1]}, ValueError, "delays must be at least 0"),
        ({"topic": "retry.{n}"}, ValueError, 'must have "{topic}" once'),
        ({"topic": "{topic}", "delays": [1]}, ValueError, "and more than that"),
        ({"topic": "{topic}.retry"}, ValueError, 'must have "{n}" once, as there are 3 delays'),
        ({"dead_letter": print}, TypeError, "dead_letter must be a kbatch.DeadLetter"),
        ({"on": ValueError}, TypeError, "on must be a tuple of exception types"),
        ({"timeout": "x"}, TypeError, "timeout must be a number"),
    ],
)
def test_unsuitable_retry_topics_are_refused(options: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        RetryTopics(Sent(), **options)


def test_producers_that_it_cannot_use_are_refused() -> None:
    with (
        Producer(bootstrap_servers=SERVERS, value_serializer=Json()) as producer,
        pytest.raises(ValueError, match="RetryTopics takes a producer without serializers"),
    ):
        RetryTopics(producer)
    with (
        Producer(bootstrap_servers=SERVERS, transactional_id="t") as producer,
        pytest.raises(ValueError, match="the RetryTopics of process\\(\\) takes a producer without transact"),
    ):
        RetryTopics(producer).check_no_transactions()
    with pytest.raises(TypeError, match="the RetryTopics of a Consumer needs a Producer"):
        RetryTopics(Sent()).check_kind("a Consumer", is_async=False)
