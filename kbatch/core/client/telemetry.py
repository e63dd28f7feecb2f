"""Telemetry: a client's metrics, pushed to brokers that collect them (KIP-714).

Theory of operation. A broker that has a receiver of metrics says which it wants, how often, and how they may
be compressed; the first push comes after half to one and a half of that interval, so that many clients that
start together do not push together. Each push names the subscription: if that has changed, the broker refuses
the push, and the client asks for the new one. A client that ends pushes a last time.

Everything else that may go wrong costs the client nothing but a wait: telemetry never fails a client.

After org.apache.kafka.common.telemetry.internals.ClientTelemetryReporter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, final
from uuid import UUID

from kbatch._native.codec.compression import compress
from kbatch.codecs import CODECS
from kbatch.core.client.any_node_request import AnyNodeRequest
from kbatch.core.client.backoff import NEVER_NS, NS_PER_MS, ExponentialBackoff
from kbatch.errors import ErrorCode, KafkaError, UnsupportedVersionError, error_of
from kbatch.protocol import messages

if TYPE_CHECKING:
    from kbatch.core.client.connections import Connections, Response

logger = logging.getLogger(__name__)

# How long to wait if no broker collects metrics, or one wants to be left alone before there is an interval.
DEFAULT_INTERVAL_MS = 300_000
FIRST_PUSH = 0.5, 1.5
NO_ID = bytes(16)
_TOO_OLD = "the brokers collect no metrics of clients; upgrade them to Kafka 3.7 or newer"
# What an error means for the next request: to wait for the interval, or not at all, before a new subscription
# is asked for. All others end telemetry: they come again whatever is done.
_WAITS = frozenset((ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.THROTTLING_QUOTA_EXCEEDED))
_AT_ONCE = frozenset((ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE))


class Subscription(NamedTuple):
    """What brokers want.

    Attributes
    ----------
    client_instance_id : UUID
        What the cluster calls the client.
    subscription_id : int
    interval_ms : int
        Between two pushes.
    compression : str
    most_bytes : int
        The largest push.
    is_delta : bool
        True if totals are to be what came since the last push.
    prefixes : tuple of str
        What the names of wanted metrics begin with; "" and "*" are all.
    """

    client_instance_id: UUID
    subscription_id: int
    interval_ms: int
    compression: str
    most_bytes: int
    is_delta: bool
    prefixes: tuple[str, ...]


class Payload(Protocol):
    """Writes metrics."""

    def __call__(self, prefixes: tuple[str, ...], now_ms: int, *, is_delta: bool) -> bytes: ...


@final
class Telemetry:
    """The pushes of one client.

    Parameters
    ----------
    connections : Connections
    backoff : ExponentialBackoff
    random : Random
    payload : Payload
        Returns the metrics as OTLP.
    on_change : callable
        Called when there is a subscription, and after the last push.

    Attributes
    ----------
    subscription : Subscription or None
    refusal : KafkaError or None
        Why brokers give no subscription; None if they may, or have.
    is_over : bool
        True if nothing more will be pushed.
    """

    def __init__(
        self,
        connections: Connections,
        backoff: ExponentialBackoff,
        random: Random,
        payload: Payload,
        on_change: Callable[[], object],
    ) -> None:
        self._connections = connections
        self._backoff = backoff
        self._random = random
        self._payload = payload
        self._on_change = on_change
        self._request = AnyNodeRequest()
        self._due_ns = 0
        self._is_current = False  # True while brokers want metrics, as far as is known
        self._is_ending = self._is_last = False  # of the client, and of the request in flight
        self.subscription: Subscription | None = None
        self.refusal: KafkaError | None = None
        self.is_over = False

    def deadline_ns(self) -> int:
        """Return the time of the next `run`, if nothing happens before."""
        return NEVER_NS if self.is_over else max(self._due_ns, self._request.deadline_ns)

    def is_due(self, now_ns: int) -> bool:
        """True if `run` has a request to send, as soon as a node takes it."""
        if self.is_over or self._request.is_in_flight:
            return False
        return now_ns >= max(self._due_ns, self._request.not_before_ns)

    def run(self, now_ns: int) -> None:
        """Send the request that is due."""
        if not self.is_due(now_ns):
            return
        kind = messages.GetTelemetrySubscriptionsRequest
        node_id = self._request.find_node(self._connections, self._backoff, now_ns, kind)
        if node_id is None:
            return
        if self._connections.lacks(node_id, kind):
            self._refused(UnsupportedVersionError(_TOO_OLD))
            self._wait(DEFAULT_INTERVAL_MS, now_ns)
        elif self._is_current:
            self._push(node_id, now_ns)
        elif self._is_ending:
            self._end()
        else:
            known = NO_ID if self.subscription is None else self.subscription.client_instance_id.bytes
            self._send(node_id, kind(client_instance_id=known), self._handle_subscription, now_ns)

    def end(self, now_ns: int) -> None:
        """Push a last time, if brokers want metrics; `is_over` says when that is done."""
        self._is_ending = True
        if self._is_current:
            self._due_ns = now_ns
        elif not self._request.is_in_flight:
            self._end()

    # Subscriptions

    def _handle_subscription(self, response: Response) -> None:
        answer, now_ns = response.message, response.now_ns
        if not self._is_answered(response):
            return
        wanted = self.subscription = _subscription_of(answer)
        self.refusal = None
        self._is_current = bool(wanted.prefixes)
        share = self._random.uniform(*FIRST_PUSH) if self._is_current else 1
        self._wait(int(wanted.interval_ms * share), now_ns)
        self._on_change()

    # Pushes

    def _push(self, node_id: int, now_ns: int) -> None:
        wanted = self.subscription
        assert wanted is not None
        metrics = self._payload(wanted.prefixes, now_ns // NS_PER_MS, is_delta=wanted.is_delta)
        data = metrics if wanted.compression == "none" else compress(metrics, wanted.compression)
        if len(data) > wanted.most_bytes:
            logger.warning(
                "metrics of %d bytes are not pushed: brokers take %d; subscribe to fewer",
                len(data),
                wanted.most_bytes,
            )
            self._wait(wanted.interval_ms, now_ns)
            return
        names = [codec.name for codec in CODECS]
        message = messages.PushTelemetryRequest(
            client_instance_id=wanted.client_instance_id.bytes,
            subscription_id=wanted.subscription_id,
            terminating=self._is_ending,
            compression_type=names.index(wanted.compression),
            metrics=data,
        )
        self._send(node_id, message, self._handle_push, now_ns)

    def _handle_push(self, response: Response) -> None:
        if self._is_answered(response) and not self._is_ending:
            assert self.subscription is not None
            self._wait(self.subscription.interval_ms, response.now_ns)

    # Both

    def _send(self, node_id: int, message: Any, handle: Callable[[Response], None], now_ns: int) -> None:
        self._request.is_in_flight = True
        self._is_last = self._is_ending
        self._connections.send(node_id, message, handle, now_ns)

    def _is_answered(self, response: Response) -> bool:
        """True if a request has its answer. If it has failed, decide when to go on."""
        self._request.is_in_flight = False
        now_ns = response.now_ns
        if self._is_last:
            self._end()
            return False
        if self._is_ending:
            self.end(now_ns)
        if response.message is None:
            self._is_current = False
            self._request.back_off(self._backoff, now_ns)
            return False
        self._request.attempts = 0
        code = response.message.error_code
        if not code:
            return True
        self._is_current = False
        if code in _AT_ONCE:
            self._request.back_off(self._backoff, now_ns)
        elif code in _WAITS:
            interval_ms = self.subscription.interval_ms if self.subscription else DEFAULT_INTERVAL_MS
            self._wait(interval_ms, now_ns)
        else:
            logger.warning("brokers refuse metrics (%s): no more are pushed", _name_of(code))
            self._refused(error_of(code))
            self._end()
        return False

    def _wait(self, interval_ms: int, now_ns: int) -> None:
        if self._is_ending:
            self._end()
        else:
            self._due_ns = now_ns + interval_ms * NS_PER_MS

    def _refused(self, error: KafkaError) -> None:
        self.refusal = error
        self._on_change()

    def _end(self) -> None:
        self.is_over = True
        self._on_change()


def _subscription_of(answer: Any) -> Subscription:
    """Return what an answer asks for. A compression that this client does not have is none."""
    known = [CODECS[each].name for each in answer.accepted_compression_types if 0 <= each < len(CODECS)]
    return Subscription(
        UUID(bytes=bytes(answer.client_instance_id)),
        answer.subscription_id,
        answer.push_interval_ms if answer.push_interval_ms > 0 else DEFAULT_INTERVAL_MS,
        known[0] if known else "none",
        answer.telemetry_max_bytes,
        answer.delta_temporality,
        tuple(answer.requested_metrics),
    )


def _name_of(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
