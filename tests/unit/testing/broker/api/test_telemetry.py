"""Client telemetry: no metrics are requested."""

from __future__ import annotations

from kbatch.protocol import messages
from tests.support.broker_core import VirtualBroker, error_places


def test_telemetry_is_taken_and_wants_nothing(broker: VirtualBroker) -> None:
    client = broker.client()
    subscription = client.ask(messages.GetTelemetrySubscriptionsRequest())
    assert (subscription.requested_metrics, subscription.push_interval_ms) == ([], 300_000)
    instance_id = subscription.client_instance_id
    assert instance_id != bytes(16)
    again = client.ask(messages.GetTelemetrySubscriptionsRequest(client_instance_id=instance_id))
    assert again.client_instance_id == instance_id
    pushed = client.ask(messages.PushTelemetryRequest(client_instance_id=instance_id, metrics=b"anything"))
    assert not list(error_places(pushed))
