"""Arguments that a user gives wrong: limits of time, one partition for a list, names of other clients."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

import kbatch
from kbatch import TopicPartition
from kbatch.timeouts import LONGEST_SECONDS, checked_seconds
from kbatch.waiting.deadline import Deadline
from tests.support.producing import TOPIC

NOWHERE: dict[str, Any] = {"bootstrap_servers": "127.0.0.1:1"}
PLACE = TopicPartition("orders", 0)
NAN = float("nan")
# What is no limit of time, and what the error says of it.
NO_TIMES = [
    (-1, ValueError, "at least 0 seconds, got -1; "),
    (-0.5, ValueError, "at least 0 seconds, got -0.5; "),
    (NAN, ValueError, "at least 0 seconds, got nan; "),
    (Decimal(-1), ValueError, "at least 0 seconds, got Decimal"),
    ("1", TypeError, "a number of seconds, or None, got '1'"),
    (True, TypeError, "a number of seconds, or None, got True"),
    (timedelta(seconds=1), TypeError, r"got datetime.timedelta\(seconds=1\); pass its total_seconds\(\)"),
]
CLIENTS = {
    kbatch.Producer: {},
    kbatch.Consumer: {"group_id": "readers"},
    kbatch.ShareConsumer: {"group_id": "sharers"},
    kbatch.AsyncProducer: {},
    kbatch.AsyncConsumer: {"group_id": "readers"},
    kbatch.AsyncShareConsumer: {"group_id": "sharers"},
}


@pytest.fixture(scope="module")
def consumer() -> Iterator[kbatch.Consumer]:
    made = kbatch.Consumer(group_id="readers", **NOWHERE)
    made.assign([PLACE])
    yield made
    made.close(timeout=0)


# Limits of time


@pytest.mark.parametrize(("given", "kind", "text"), NO_TIMES)
def test_what_is_no_limit_of_time_is_refused(given: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=f"^timeout must be {text}" if kind is ValueError else text):
        Deadline(given)


@pytest.mark.parametrize("given", [0, 0.0, 1, Decimal("0.5"), float("inf"), 10**400])
def test_numbers_from_zero_on_are_limits_of_time(given: Any) -> None:
    assert checked_seconds(given) == min(given, LONGEST_SECONDS)


def timed_calls() -> list[Any]:
    """Return each public method of a client that has a time-out."""
    return [
        pytest.param(client, name, parameter, id=f"{client.__name__}.{name}({parameter})")
        for client in CLIENTS
        for name, method in inspect.getmembers(client, callable)
        if not name.startswith("_") and name != "recreate"
        for parameter in inspect.signature(method).parameters
        if parameter in ("timeout", "linger")
    ]


@pytest.mark.parametrize(("client", "name", "parameter"), timed_calls())
def test_every_call_with_a_limit_judges_it_before_it_begins(client: Any, name: str, parameter: str) -> None:
    needs_partitions = {
        "committed": ([PLACE],),
        "committed_offsets": ("readers", [PLACE]),
        "position": (PLACE,),
    }
    settings = CLIENTS[client] | NOWHERE
    if name.endswith("transaction") or name.endswith("transactions"):
        settings["transactional_id"] = "writer"
    arguments = needs_partitions.get(name, ())

    async def call(made: Any) -> None:
        found = getattr(made, name)(*arguments, **{parameter: -1})
        if inspect.isawaitable(found):
            await found

    async def use() -> None:
        made = client(**settings)
        try:
            if hasattr(made, "subscribe"):
                made.subscribe(["orders"])
            with pytest.raises(ValueError, match=f"^{parameter} must be at least 0 seconds, got -1; "):
                await call(made)
        finally:
            closing = made.close(timeout=0)
            if inspect.isawaitable(closing):
                await closing

    asyncio.run(use())


@pytest.mark.parametrize("wait", ["result", "exception", "wait"])
def test_deliveries_judge_limits_also_when_they_are_done(wait: str, broker: kbatch.testing.Broker) -> None:
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        delivery = producer.send(TOPIC, b"v", partition=0)
        delivery.result()
        for given, text in ((-1, "got -1; pass None to wait without a limit"), (NAN, "got nan")):
            with pytest.raises(ValueError, match=text):
                getattr(delivery, wait)(given)
            with pytest.raises(ValueError, match=text):
                kbatch.wait([delivery], given)
            with pytest.raises(ValueError, match=text):
                list(kbatch.as_completed([delivery], given))


# Partitions


@pytest.mark.parametrize(
    "call", ["assign", "pause", "resume", "seek_to_beginning", "seek_to_end", "committed", "end_offsets"]
)
@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        (PLACE, r"TopicPartition\(topic='orders', partition=0\)"),
        (("orders", 0), r"\('orders', 0\)"),
        ("orders", r"TopicPartition\('orders', 0\)"),
        (3, r"TopicPartition\(topic, 3\)"),
    ],
)
def test_one_partition_for_a_list_is_refused_with_the_remedy(
    call: str, given: Any, remedy: str, consumer: kbatch.Consumer
) -> None:
    with pytest.raises(
        TypeError, match=rf"^{call}\(\) takes a list of partitions, .*; write {call}\(\[{remedy}\]\)$"
    ):
        getattr(consumer, call)(given)


def test_a_topic_or_number_among_partitions_is_refused_with_the_remedy(consumer: kbatch.Consumer) -> None:
    for given, remedy in (("orders", r"TopicPartition\('orders', 0\)"), (2, r"TopicPartition\(topic, 2\)")):
        with pytest.raises(TypeError, match=f"got {given!r}; write {remedy}$"):
            consumer.pause([given])  # type: ignore[list-item]
        with pytest.raises(TypeError, match=f"got {given!r}; write {remedy}$"):
            consumer.poll(0).records(given)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [PLACE, [PLACE], 5, [5], "orders"])
def test_commit_names_what_it_was_given(given: Any, consumer: kbatch.Consumer) -> None:
    with pytest.raises(TypeError, match=r"write \{TopicPartition\(topic, 0\): offset\} for an offset"):
        consumer.commit(given)


def test_times_and_offsets_of_partitions_must_be_mappings(consumer: kbatch.Consumer) -> None:
    with pytest.raises(TypeError, match="times must be a mapping of TopicPartition to times"):
        consumer.offsets_for_times([PLACE])  # type: ignore[arg-type]


@pytest.mark.parametrize("client", [each for each in CLIENTS if hasattr(each, "subscribe")])
def test_subscribe_and_assign_name_what_is_no_list(client: Any) -> None:
    async def use() -> None:
        made = client(**CLIENTS[client], **NOWHERE)
        try:
            with pytest.raises(TypeError, match=r"topics must be .*, got None; call unsubscribe\(\)"):
                made.subscribe(None)
            with pytest.raises(TypeError, match=r"topics must be .*, got 5; write subscribe\(\[name\]\)"):
                made.subscribe(5)
            if hasattr(made, "assign"):
                with pytest.raises(
                    TypeError, match=r"assign\(\) takes a list of partitions, got None; write"
                ):
                    made.assign(None)
        finally:
            closing = made.close(timeout=0)
            if inspect.isawaitable(closing):
                await closing

    asyncio.run(use())


# Names


@pytest.mark.parametrize("client", CLIENTS)
def test_errors_of_arguments_name_methods_as_users_call_them(client: type) -> None:
    calls: list[tuple[str, Callable[..., Any]]] = [
        (name, member)
        for name, member in inspect.getmembers(client, inspect.isfunction)
        if not name.startswith("_") and "self" in str(inspect.signature(inspect.unwrap(member)))
    ]
    assert len(calls) > 5
    for name, member in calls:
        inner = inspect.unwrap(member)
        assert member.__name__ == inner.__name__ == name
        assert inner.__qualname__ in (name, f"{client.__name__}.{name}"), inner.__qualname__
