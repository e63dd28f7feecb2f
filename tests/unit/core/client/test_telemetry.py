"""When metrics are pushed, and what errors lead to: the state machine with a clock of its own."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from kbatch.core.client.backoff import NEVER_NS, NS_PER_MS, ExponentialBackoff
from kbatch.core.client.node_state import SLOW_NS
from kbatch.core.client.telemetry import DEFAULT_INTERVAL_MS, Telemetry
from kbatch.errors import ErrorCode, NetworkError
from kbatch.protocol import messages

INSTANCE_ID = bytes(range(16))
INTERVAL_MS = 1000


class OneNode:
    """Connections to a node that is ready; requests are answered by the test."""

    def __init__(self) -> None:
        self.lacks_telemetry = False
        self.is_ready = True
        self.sent: list[tuple[Any, Callable[[Any], None]]] = []

    def least_loaded(self, now_ns: int, kind: Any, avoided: object) -> int:
        return 0

    def ready_at(self, node_id: int, now_ns: int, purpose: int, *, joins: bool) -> int:
        return now_ns if self.is_ready else NEVER_NS

    def lacks(self, node_id: int, kind: Any) -> bool:
        return self.lacks_telemetry

    def send(self, node_id: int, message: Any, handle: Callable[[Any], None], now_ns: int) -> None:
        self.sent.append((message, handle))


class World:
    """A client's telemetry at a time."""

    def __init__(self) -> None:
        self.connections = OneNode()
        self.now_ns = 0
        self.payloads: list[tuple[tuple[str, ...], bool]] = []
        self.changes = 0
        connections: Any = self.connections
        backoff = ExponentialBackoff(100, 1000, Random(5))
        self.telemetry = Telemetry(connections, backoff, Random(5), self._payload, self._changed)

    def _payload(self, prefixes: tuple[str, ...], now_ms: int, *, is_delta: bool) -> bytes:
        self.payloads.append((prefixes, is_delta))
        return b"metrics"

    def _changed(self) -> None:
        self.changes += 1

    def request(self) -> Any:
        """Go on to when something is due, and return the request that is sent then."""
        assert not self.connections.sent
        self.now_ns = max(self.now_ns, self.telemetry.deadline_ns())
        self.telemetry.run(self.now_ns)
        ((message, _),) = self.connections.sent
        return message

    def answer(self, message: Any, error: Exception | None = None) -> None:
        ((_, handle),) = self.connections.sent
        self.connections.sent.clear()
        handle(SimpleNamespace(message=message, error=error, now_ns=self.now_ns))

    def subscribe(self, *prefixes: str, accepted: tuple[int, ...] = (), most_bytes: int = 1000) -> None:
        assert isinstance(self.request(), messages.GetTelemetrySubscriptionsRequest)
        self.answer(
            messages.GetTelemetrySubscriptionsResponse(
                client_instance_id=INSTANCE_ID,
                subscription_id=7,
                accepted_compression_types=list(accepted),
                push_interval_ms=INTERVAL_MS,
                telemetry_max_bytes=most_bytes,
                delta_temporality=True,
                requested_metrics=list(prefixes),
            )
        )

    def take_push(self, code: ErrorCode = ErrorCode.NONE) -> messages.PushTelemetryRequest:
        pushed = self.request()
        assert isinstance(pushed, messages.PushTelemetryRequest)
        self.answer(messages.PushTelemetryResponse(error_code=code))
        return pushed

    @property
    def delay_ms(self) -> float:
        return (self.telemetry.deadline_ns() - self.now_ns) / NS_PER_MS


@pytest.fixture
def world() -> World:
    return World()


def test_pushes_come_every_interval_the_first_at_some_time_around_it(world: World) -> None:
    world.subscribe("a.", "b.")
    assert INTERVAL_MS / 2 <= world.delay_ms <= INTERVAL_MS * 1.5
    for _ in range(3):
        pushed = world.take_push()
        assert (bytes(pushed.client_instance_id), pushed.subscription_id) == (INSTANCE_ID, 7)
        assert (pushed.terminating, pushed.compression_type, bytes(pushed.metrics)) == (False, 0, b"metrics")
        assert world.delay_ms == INTERVAL_MS
    assert world.payloads == [(("a.", "b."), True)] * 3


def test_nothing_is_pushed_if_nothing_is_wanted(world: World) -> None:
    for _ in range(3):
        world.subscribe()
        assert world.delay_ms == INTERVAL_MS
    assert world.payloads == []


def test_the_id_of_the_client_stays(world: World) -> None:
    world.subscribe()
    assert bytes(world.request().client_instance_id) == INSTANCE_ID


@pytest.mark.parametrize(("accepted", "codec"), [((4, 3), 4), ((9, 1), 1), ((9,), 0)])
def test_the_first_compression_that_is_known_is_used(
    world: World, accepted: tuple[int, ...], codec: int
) -> None:
    world.subscribe("*", accepted=accepted)
    assert world.take_push().compression_type == codec


def test_too_much_is_not_pushed(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.subscribe("*", most_bytes=3)
    world.now_ns = world.telemetry.deadline_ns()
    world.telemetry.run(world.now_ns)
    assert not world.connections.sent and world.delay_ms == INTERVAL_MS
    assert "subscribe to fewer" in caplog.text


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE])
def test_a_changed_subscription_is_asked_for_at_once(world: World, code: ErrorCode) -> None:
    world.subscribe("*")
    world.take_push(code)
    assert world.delay_ms <= 1000
    world.subscribe("*")
    world.take_push()


@pytest.mark.parametrize("code", [ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.THROTTLING_QUOTA_EXCEEDED])
def test_a_broker_that_has_enough_is_left_alone(world: World, code: ErrorCode) -> None:
    world.subscribe("*")
    world.take_push(code)
    assert world.delay_ms == INTERVAL_MS


@pytest.mark.parametrize("code", [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD])
def test_refusals_that_will_not_change_end_it(world: World, code: ErrorCode) -> None:
    world.subscribe("*")
    world.take_push(code)
    assert world.telemetry.is_over and world.telemetry.deadline_ns() == NEVER_NS


def test_lost_answers_are_waited_out(world: World) -> None:
    delays = []
    for _ in range(5):
        world.request()
        world.answer(None, NetworkError("gone"))
        delays.append(world.delay_ms)
    assert delays[0] < delays[-1] <= 1200 and min(delays) > 0


def test_a_connection_that_is_made_is_used(world: World) -> None:
    world.connections.is_ready = False
    world.telemetry.run(0)
    assert not world.connections.sent and world.telemetry.deadline_ns() == SLOW_NS
    world.connections.is_ready = True
    world.telemetry.run(0)  # because of an event
    assert len(world.connections.sent) == 1


def test_brokers_without_a_receiver_are_asked_rarely(world: World) -> None:
    world.connections.lacks_telemetry = True
    world.telemetry.run(0)
    assert world.delay_ms == DEFAULT_INTERVAL_MS and not world.connections.sent


def test_the_end_pushes_a_last_time_at_once(world: World) -> None:
    world.subscribe("*")
    world.telemetry.end(world.now_ns)
    assert world.delay_ms <= 0
    assert world.take_push().terminating
    assert world.telemetry.is_over and world.changes == 2


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.UNKNOWN_SUBSCRIPTION_ID])
def test_the_end_waits_for_a_push_that_goes_on(world: World, code: ErrorCode) -> None:
    world.subscribe("*")
    assert not world.request().terminating
    world.telemetry.end(world.now_ns)
    world.answer(messages.PushTelemetryResponse(error_code=code))
    if not code:
        assert world.take_push().terminating
    elif not world.telemetry.is_over:
        world.now_ns = world.telemetry.deadline_ns()
        world.telemetry.run(world.now_ns)
    assert world.telemetry.is_over


def test_the_end_pushes_nothing_if_nothing_is_wanted(world: World) -> None:
    world.subscribe()
    world.telemetry.end(world.now_ns)
    assert world.telemetry.is_over


def test_the_end_during_the_search_is_the_end(world: World) -> None:
    world.request()
    world.telemetry.end(world.now_ns)
    world.answer(None, NetworkError("gone"))
    world.now_ns = world.telemetry.deadline_ns()
    world.telemetry.run(world.now_ns)
    assert world.telemetry.is_over and not world.connections.sent
