"""What clients have pushed of their metrics (KIP-714).

After org.apache.kafka.server.ClientMetricsManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from kbatch._native.codec.compression import decompress
from kbatch.codecs import CODECS
from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError

if TYPE_CHECKING:
    from kbatch.protocol import messages
    from kbatch.testing.broker.metric_subscriptions import Wanted

MOST_BYTES = 1 << 20
# What Kafka accepts, the best first.
ACCEPTED = [4, 3, 1, 2]


class PushedMetrics(NamedTuple):
    """What a client has pushed.

    Attributes
    ----------
    client_id : str
    client_instance_id : UUID
    is_last : bool
        True if the client has closed.
    metrics : bytes
        `MetricsData` of the OpenTelemetry protocol.
    """

    client_id: str
    client_instance_id: UUID
    is_last: bool
    metrics: bytes


class TelemetryState:
    """The pushes of all clients.

    Attributes
    ----------
    pushed : list of PushedMetrics
    """

    def __init__(self) -> None:
        self.pushed: list[PushedMetrics] = []
        self._ended: set[bytes] = set()
        self._pushed_ms: dict[bytes, int] = {}

    def push(
        self, request: messages.PushTelemetryRequest, wanted: Wanted, client_id: str, now_ms: int
    ) -> None:
        """Keep what a client pushes, of which that is wanted. Raise BrokerError."""
        instance_id = bytes(request.client_instance_id)
        self._check(request, wanted, instance_id, now_ms)
        self._pushed_ms[instance_id] = now_ms
        if request.terminating:
            self._ended.add(instance_id)
        codec = CODECS[request.compression_type].name
        metrics = bytes(request.metrics)
        self.pushed.append(
            PushedMetrics(
                client_id,
                UUID(bytes=instance_id),
                request.terminating,
                metrics if codec == "none" else decompress(metrics, codec),
            )
        )

    def _check(
        self, request: messages.PushTelemetryRequest, wanted: Wanted, instance_id: bytes, now_ms: int
    ) -> None:
        if instance_id in self._ended:
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        last_ms = self._pushed_ms.get(instance_id)
        if not request.terminating and last_ms is not None and now_ms < last_ms + wanted.interval_ms:
            raise BrokerError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if request.subscription_id != wanted.subscription_id:
            raise BrokerError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if request.compression_type not in (0, *ACCEPTED):
            raise BrokerError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if len(request.metrics) > MOST_BYTES:
            raise BrokerError(ErrorCode.TELEMETRY_TOO_LARGE)
