"""Client telemetry: what the broker asks for, takes and refuses, as Kafka's ClientMetricsManager does."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from tests.support.broker_core import VirtualBroker

NO_ID = bytes(16)


def subscription(broker: VirtualBroker, instance_id: bytes = NO_ID) -> Any:
    request = messages.GetTelemetrySubscriptionsRequest(client_instance_id=instance_id)
    return broker.client().ask(request)


def push(broker: VirtualBroker, to: Any, **fields: Any) -> int:
    given = {"subscription_id": to.subscription_id, "metrics": b"m", **fields}
    request = messages.PushTelemetryRequest(client_instance_id=to.client_instance_id, **given)
    return int(broker.client().ask(request).error_code)


def test_nothing_is_wanted_at_first(broker: VirtualBroker) -> None:
    found = subscription(broker)
    assert (found.requested_metrics, found.push_interval_ms) == ([], 300_000)
    assert found.client_instance_id != NO_ID
    again = subscription(broker, found.client_instance_id)
    assert again.client_instance_id == found.client_instance_id


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"subscription_id": 5}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression_type": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"metrics": bytes((1 << 20) + 1)}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({}, ErrorCode.NONE),
    ],
)
def test_pushes_are_checked(broker: VirtualBroker, fields: dict[str, Any], code: ErrorCode) -> None:
    broker.state.metric_subscriptions.subscribe(["*"], 1000)
    assert push(broker, subscription(broker), **fields) == code
    assert len(broker.state.telemetry.pushed) == (not code)


def test_pushes_that_come_early_or_after_the_last_are_refused(broker: VirtualBroker) -> None:
    broker.state.metric_subscriptions.subscribe(["*"], 1000)
    found = subscription(broker)
    assert push(broker, found) == ErrorCode.NONE
    assert push(broker, found) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push(broker, found, terminating=True) == ErrorCode.NONE
    assert push(broker, found) == ErrorCode.INVALID_REQUEST
    assert [each.is_last for each in broker.state.telemetry.pushed] == [False, True]


def test_another_subscription_has_another_id(broker: VirtualBroker) -> None:
    broker.state.metric_subscriptions.subscribe(["org.apache.kafka.producer."], 1000)
    before = subscription(broker)
    broker.state.metric_subscriptions.subscribe(["*"], 1000)
    assert subscription(broker, before.client_instance_id).subscription_id != before.subscription_id
    assert push(broker, before) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
