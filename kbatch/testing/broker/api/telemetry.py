"""Client telemetry (KIP-714): no metrics are requested, so clients send none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbatch.protocol import messages

if TYPE_CHECKING:
    from kbatch.testing.broker.broker_state import BrokerState, Context

PUSH_INTERVAL_MS = 300_000
TELEMETRY_MAX_BYTES = 1 << 20
NO_ID = bytes(16)


def get_telemetry_subscriptions(
    state: BrokerState, request: messages.GetTelemetrySubscriptionsRequest, context: Context
) -> messages.GetTelemetrySubscriptionsResponse:
    context.check_forced_error()
    instance_id = bytes(request.client_instance_id)
    return messages.GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id if instance_id != NO_ID else state.random_uuid(),
        accepted_compression_types=[0],
        push_interval_ms=PUSH_INTERVAL_MS,
        telemetry_max_bytes=TELEMETRY_MAX_BYTES,
        delta_temporality=True,
        requested_metrics=[],
    )


def push_telemetry(
    state: BrokerState, request: messages.PushTelemetryRequest, context: Context
) -> messages.PushTelemetryResponse:
    context.check_forced_error()
    return messages.PushTelemetryResponse()


HANDLERS = {
    messages.GetTelemetrySubscriptionsRequest: get_telemetry_subscriptions,
    messages.PushTelemetryRequest: push_telemetry,
}
