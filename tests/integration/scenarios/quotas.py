"""Client quotas: limits that are set and described, and clients that exceed them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from tests.integration.scenarios.requests import fetch_request, produce_request
from tests.integration.scenarios.wire import Wire, scenario
from tests.oracle import plain
from tests.support.broker_wire import ConnectionClosed
from tests.support.patience import until

TIME = "request_percentage"
PRODUCE, FETCH, MUTATIONS = "producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate"
EXACT, DEFAULT, ANY = range(3)
Entity = list[tuple[str, str | None]]
Limits = dict[str, float | None]


def _altered(wire: Wire, entity: Entity, limits: Limits, **how: Any) -> Any:
    kind = messages.AlterClientQuotasRequest
    entry = kind.EntryData(
        entity=[kind.EntityData(entity_type=each, entity_name=name) for each, name in entity],
        ops=[kind.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in limits.items()],
    )
    (answer,) = wire.ask(kind(entries=[entry], **how)).entries
    names = [(each.entity_type, each.entity_name) for each in answer.entity]
    return ErrorCode(answer.error_code).name, answer.error_message, names


def _described(wire: Wire, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    kind = messages.DescribeClientQuotasRequest
    named = [kind.ComponentData(entity_type=t, match_type=how, match=name) for t, how, name in components]
    answer = wire.ask(kind(components=named, strict=strict))
    entries = answer.entries and sorted(map(_row, answer.entries))
    return ErrorCode(answer.error_code).name, answer.error_message, entries


def _row(entry: Any) -> str:
    names = [(each.entity_type, each.entity_name) for each in entry.entity]
    return repr((names, sorted((each.key, each.value) for each in entry.values)))


@contextmanager
def _limited(wire: Wire, client_id: str, **limits: float) -> Iterator[None]:
    """Limit a client."""
    entity: Entity = [("client-id", client_id)]
    _altered(wire, entity, {**limits})
    until(lambda: _described(wire, ("client-id", EXACT, client_id))[2])
    try:
        yield
    finally:
        _altered(wire, entity, dict.fromkeys(limits))
        until(lambda: not _described(wire, ("client-id", EXACT, client_id))[2])


def _asked(wire: Wire, client_id: str, request: Any, version: int | None = None) -> tuple[Any, bool]:
    """Return the answer to a client, and if it was throttled; its connection need not wait for that long."""
    with wire.second_connection() as connection:
        connection.client_id = client_id
        answer = connection.ask(request, version)
    return answer, answer.throttle_time_ms > 0


@scenario
def quotas_are_set_and_described(wire: Wire) -> None:
    alice, default = ("user", "alice"), ("user", None)
    entities: dict[str, Entity] = {
        "user": [alice],
        "client": [("client-id", "x")],
        "default user": [default],
        "client of a user": [alice, ("client-id", None)],
        "address": [("ip", "127.0.0.9")],
    }
    limits: dict[str, Limits] = {
        "user": {PRODUCE: 1000.0},
        "client": {FETCH: 2000.0, "request_percentage": 50.0},
        "default user": {MUTATIONS: 3.5},
        "client of a user": {PRODUCE: 4.0},
        "address": {"connection_creation_rate": 10.0},
    }
    wire.note("only validated", _altered(wire, [alice], {PRODUCE: 5.0}, validate_only=True))
    for name, entity in entities.items():
        wire.note(f"set {name}", _altered(wire, entity, limits[name]))
    until(lambda: len(_described(wire)[2]) == len(entities))
    wire.note("all", _described(wire))
    for strict in (False, True):
        wire.note(f"alice {strict}", _described(wire, ("user", EXACT, "alice"), strict=strict))
        wire.note(f"any user {strict}", _described(wire, ("user", ANY, None), strict=strict))
        wire.note(f"any client {strict}", _described(wire, ("client-id", ANY, None), strict=strict))
        both = (("user", ANY, None), ("client-id", DEFAULT, None))
        wire.note(f"default client of any user {strict}", _described(wire, *both, strict=strict))
    wire.note("default user", _described(wire, ("user", DEFAULT, None)))
    wire.note("address", _described(wire, ("ip", EXACT, "127.0.0.9")))
    for name, entity in entities.items():
        wire.note(f"remove {name}", _altered(wire, entity, dict.fromkeys(limits[name])))
    until(lambda: not _described(wire)[2])
    wire.note("none", _described(wire))


@scenario
def quotas_refusals(wire: Wire) -> None:
    user: Entity = [("user", "alice")]
    address: Entity = [("ip", "127.0.0.9")]
    rate: Limits = {PRODUCE: 1.0}
    changes: dict[str, tuple[Entity, Limits]] = {
        "unknown key": (user, {"nope": 1.0}),
        "unknown type": ([("nope", "alice")], rate),
        "negative": (user, {PRODUCE: -1.0}),
        "fraction": (user, {PRODUCE: 1.5}),
        "no entity": ([], rate),
        "address and user": ([*user, ("ip", "1.1.1.1")], rate),
        "rate of an address": (address, rate),
        "connections of a user": (user, {"connection_creation_rate": 1.0}),
        "no address": ([("ip", "not an ip")], {"connection_creation_rate": 1.0}),
        "no name": ([("user", "")], rate),
        "one of two wrong": (user, {PRODUCE: 1.0, "nope": 1.0}),
        "remove what is not there": ([("user", "bob")], {PRODUCE: None}),
    }
    for note, (entity, limits) in changes.items():
        wire.note(note, _altered(wire, entity, limits))
    wire.note("describe unknown type", _described(wire, ("nope", ANY, None)))
    wire.note("describe match 7", _described(wire, ("user", 7, None)))
    wire.note("describe no type", _described(wire, ("", ANY, None)))
    wire.note("describe twice", _described(wire, ("user", ANY, None), ("user", ANY, None)))
    wire.note("describe user and address", _described(wire, ("user", ANY, None), ("ip", ANY, None)))
    wire.note("describe exactly nothing", _described(wire, ("user", EXACT, None)))
    wire.note("describe default name", _described(wire, ("user", DEFAULT, "alice")))
    wire.note("describe any name", _described(wire, ("user", ANY, "alice")))


# The rates are such that a slow machine changes nothing: it would have to sleep for eight seconds.


@scenario
def producers_are_throttled(wire: Wire) -> None:
    topic = wire.topic()
    small, large = (plain.encode([(None, bytes(size), (), 0)]) for size in (5_000, 50_000))
    with _limited(wire, "producer", **{PRODUCE: 1_000.0}):
        for name, batch in (("small", small), ("large", large), ("small again", small)):
            answer, is_throttled = _asked(wire, "producer", produce_request(wire, {(topic, 0): batch}))
            (found,) = answer.responses[0].partition_responses
            wire.note(name, (found.error_code, found.base_offset, is_throttled))
        _, is_throttled = _asked(wire, "another", produce_request(wire, {(topic, 0): small}))
        wire.note("another client", is_throttled)


@scenario
def consumers_are_throttled(wire: Wire) -> None:
    topic = wire.topic()
    wire.ask(produce_request(wire, {(topic, 0): plain.encode([(None, bytes(60_000), (), 0)])}))
    with _limited(wire, "consumer", **{FETCH: 6_500.0}):
        for number in range(3):
            answer, is_throttled = _asked(wire, "consumer", fetch_request(wire, topic))
            wire.note(f"fetch {number}", (answer.error_code, len(answer.responses), is_throttled))


@scenario
def time_of_requests_is_limited(wire: Wire) -> None:
    """The limit is so low that a machine however fast exceeds it."""
    topic = wire.topic()
    wire.ask(produce_request(wire, {(topic, 0): plain.encode([(None, b"value", (), 0)])}))

    def wait_ms() -> int:
        answer, _ = _asked(wire, "hasty", messages.MetadataRequest(topics=None))
        return int(answer.throttle_time_ms)

    with _limited(wire, "hasty", **{TIME: 0.0001}):
        wire.note("at most", until(lambda: max(wait_ms(), 0) // 1000))
        wire.note("again", wait_ms())
        answer, is_throttled = _asked(wire, "hasty", fetch_request(wire, topic))
        wire.note("fetch", (answer.error_code, len(answer.responses), is_throttled))
        batch = plain.encode([(None, b"value", (), 0)])
        answer, is_throttled = _asked(wire, "hasty", produce_request(wire, {(topic, 0): batch}))
        wire.note("produce", (answer.responses[0].partition_responses[0].error_code, is_throttled))
        wire.note("another client", _asked(wire, "another", messages.MetadataRequest(topics=[]))[1])


@scenario
def mutations_are_throttled(wire: Wire) -> None:
    kind, delete = messages.CreateTopicsRequest, messages.DeleteTopicsRequest

    def create(client_id: str, suffix: str, version: int = 7, *, validate: bool = False) -> None:
        named = kind.CreatableTopic(name=wire.topic_name(suffix), num_partitions=9, replication_factor=1)
        request = kind(topics=[named], timeout_ms=10_000, validate_only=validate)
        answer, is_throttled = _asked(wire, client_id, request, version)
        code = ErrorCode(answer.topics[0].error_code).name
        wire.note(f"create {suffix} v{version}", (code, answer.topics[0].error_message, is_throttled))

    with _limited(wire, "creator", **{MUTATIONS: 0.1}), _limited(wire, "checker", **{MUTATIONS: 0.1}):
        create("creator", "a")
        create("creator", "b")
        create("creator", "checked", validate=True)
        topic = delete.DeleteTopicState(name=wire.topic_name("a"), topic_id=bytes(16))
        answer, is_throttled = _asked(wire, "creator", delete(topics=[topic], timeout_ms=10_000))
        wire.note("delete", (answer.responses[0].error_code, answer.responses[0].error_message, is_throttled))
        create("creator", "c", 5)
        create("checker", "d", validate=True)
        create("checker", "e")


@scenario
def connections_are_limited(wire: Wire) -> None:
    """One a second, and so ten at once; those that are refused are so after a moment."""
    name, rate = "127.0.0.1", "connection_creation_rate"
    _altered(wire, [("ip", name)], {rate: 1.0})
    until(lambda: _described(wire, ("ip", EXACT, name))[2])
    made = [_is_answered(wire) for _ in range(30)]
    wire.note("the first ten", all(made[:10]))
    wire.note("all", all(made))
    _altered(wire, [("ip", name)], {rate: None})
    until(lambda: not _described(wire, ("ip", EXACT, name))[2])
    until(lambda: _is_answered(wire))


def _is_answered(wire: Wire) -> bool:
    """True if a new connection is not closed."""
    try:
        with wire.second_connection() as connection:
            return bool(connection.ask(messages.ApiVersionsRequest(), 0).api_keys)
    except (ConnectionClosed, ConnectionError):
        return False
