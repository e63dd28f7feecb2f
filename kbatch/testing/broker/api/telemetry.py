"""Client telemetry (KIP-714): which metrics clients are to push, and those that they push."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING

from kbatch.protocol import messages
from kbatch.testing.broker.pushed_metrics import ACCEPTED, MOST_BYTES

if TYPE_CHECKING:
    from kbatch.testing.broker.broker_state import BrokerState, Context
    from kbatch.testing.broker.metric_subscriptions import Wanted

NO_ID = bytes(16)


def get_telemetry_subscriptions(
    state: BrokerState, request: messages.GetTelemetrySubscriptionsRequest, context: Context
) -> messages.GetTelemetrySubscriptionsResponse:
    context.check_forced_error()
    instance_id = bytes(request.client_instance_id)
    if instance_id == NO_ID:
        instance_id = state.random_uuid()
    wanted = _wanted_of(state, instance_id, context)
    return messages.GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
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
    wanted = _wanted_of(state, bytes(request.client_instance_id), context)
    state.telemetry.push(request, wanted, context.client_id, context.now_ms)
    return messages.PushTelemetryResponse()


def _wanted_of(state: BrokerState, instance_id: bytes, context: Context) -> Wanted:
    """Return what the client is to push."""
    connection = context.connection
    name, version = connection.software
    return state.metric_subscriptions.wanted_of(
        {
            "client_instance_id": urlsafe_b64encode(instance_id).decode().rstrip("="),
            "client_id": context.client_id,
            "client_software_name": name,
            "client_software_version": version,
            "client_source_address": connection.client_host,
            "client_source_port": str(connection.client_port),
        }
    )


HANDLERS = {
    messages.GetTelemetrySubscriptionsRequest: get_telemetry_subscriptions,
    messages.PushTelemetryRequest: push_telemetry,
}
