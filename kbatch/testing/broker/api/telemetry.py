"""Client telemetry (KIP-714): which metrics clients are to push, and those that they push."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbatch.protocol import messages
from kbatch.testing.broker.pushed_metrics import ACCEPTED, MOST_BYTES

if TYPE_CHECKING:
    from kbatch.testing.broker.broker_state import BrokerState, Context

NO_ID = bytes(16)


def get_telemetry_subscriptions(
    state: BrokerState, request: messages.GetTelemetrySubscriptionsRequest, context: Context
) -> messages.GetTelemetrySubscriptionsResponse:
    context.check_forced_error()
    instance_id = bytes(request.client_instance_id)
    wanted = state.telemetry
    return messages.GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id if instance_id != NO_ID else state.random_uuid(),
        subscription_id=wanted.subscription_id,
        accepted_compression_types=ACCEPTED,
        push_interval_ms=wanted.interval_ms,
        telemetry_max_bytes=MOST_BYTES,
        delta_temporality=True,
        requested_metrics=list(wanted.prefixes),
    )


def push_telemetry(
    state: BrokerState, request: messages.PushTelemetryRequest, context: Context
) -> messages.PushTelemetryResponse:
    context.check_forced_error()
    state.telemetry.push(request, context.client_id, context.now_ms)
    return messages.PushTelemetryResponse()


HANDLERS = {
    messages.GetTelemetrySubscriptionsRequest: get_telemetry_subscriptions,
    messages.PushTelemetryRequest: push_telemetry,
}
