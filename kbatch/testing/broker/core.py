"""The embedded broker without sockets: a request's bytes in, an answer's buffers out, now or later.

Theory of operation. `handle(connection, frame, now_ms)` decodes a request, applies faults, and calls the
handler of the request. The answer is a `Reply`, filled at once or by a later call: another request may let a
fetch or a group continue, or `handle_timeout(now_ms)` does when time is up. `next_deadline_ms()` returns when
to call that. As in Kafka, the caller passes a connection's next request only after the answer to the last
one. Nothing here reads a clock, opens a socket or starts a thread, so the same code serves sockets and
simulations.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kbatch.errors import ErrorCode, ProtocolError, UnsupportedVersionError
from kbatch.protocol import codec, messages
from kbatch.protocol.structs import Message
from kbatch.testing.broker.api import (
    access,
    brokers,
    configs,
    feature_levels,
    fetch,
    groups,
    log_dirs,
    metadata,
    offsets,
    produce,
    quorum,
    quotas,
    replicas,
    sasl,
    share_fetch,
    share_groups,
    telemetry,
    topics,
    transactions,
)
from kbatch.testing.broker.api.sasl import Admission
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.broker_state import BrokerState, Connection, Context, Delayed
from kbatch.testing.broker.faults import Faults
from kbatch.testing.broker.replication.network import CONTROLLER
from kbatch.testing.broker.throttles import Stopwatch

logger = logging.getLogger(__name__)

Handler = Callable[[BrokerState, Any, Context], Any]

HANDLERS: dict[type, Handler] = {
    kind: handler
    for family in (
        access,
        brokers,
        configs,
        feature_levels,
        fetch,
        groups,
        log_dirs,
        metadata,
        offsets,
        produce,
        quorum,
        quotas,
        replicas,
        sasl,
        share_fetch,
        share_groups,
        telemetry,
        topics,
        transactions,
    )
    for kind, handler in family.HANDLERS.items()
}
REMEMBERED_REQUESTS = 10_000
REQUEST_TIMEOUT_MS = 30_000  # of requests without a time-out of their own
# What a node passes on to the controller, and cannot answer without it.
FORWARDED = frozenset(
    {
        messages.AlterClientQuotasRequest,
        messages.AlterConfigsRequest,
        messages.AlterPartitionReassignmentsRequest,
        messages.AlterPartitionRequest,
        messages.AlterUserScramCredentialsRequest,
        messages.BrokerHeartbeatRequest,
        messages.BrokerRegistrationRequest,
        messages.CreateAclsRequest,
        messages.CreateDelegationTokenRequest,
        messages.CreatePartitionsRequest,
        messages.CreateTopicsRequest,
        messages.DeleteAclsRequest,
        messages.DeleteTopicsRequest,
        messages.DescribeQuorumRequest,
        messages.ElectLeadersRequest,
        messages.ExpireDelegationTokenRequest,
        messages.IncrementalAlterConfigsRequest,
        messages.ListPartitionReassignmentsRequest,
        messages.RenewDelegationTokenRequest,
        messages.UpdateFeaturesRequest,
    }
)


@dataclass(slots=True, frozen=True)
class ReceivedRequest:
    """A request as the broker received it; record data is left out.

    Attributes
    ----------
    node_id : int
        The node that received it.
    api : str
        "Produce", "Fetch", ...
    version : int
    client_id : str
    message
        The request of `kbatch.protocol.messages`.
    """

    node_id: int
    api: str
    version: int
    client_id: str
    message: Any


class Reply:
    """An answer that is there, or will come.

    Attributes
    ----------
    buffers : list of bytes-like or None
        Framed bytes to send: empty if the request wants no answer; None until the answer is there.
    closes_connection : bool
        True if the connection is closed, after the buffers if there are any.
    breaks_tls : bool
        True if a TLS connection gets a broken record instead of the buffers.
    mute_ms : int
        Time for which the connection must not be read afterwards (KIP-219).
    """

    __slots__ = ("_on_ready", "breaks_tls", "buffers", "closes_connection", "mute_ms")

    def __init__(self) -> None:
        self.buffers: list[bytes | memoryview] | None = None
        self.closes_connection = False
        self.breaks_tls = False
        self.mute_ms = 0
        self._on_ready: Callable[[], None] | None = None

    def then(self, on_ready: Callable[[], None]) -> None:
        """Call `on_ready()` after the answer is there, at once if it already is."""
        if self.buffers is not None:
            on_ready()
        else:
            self._on_ready = on_ready

    def send(self, buffers: list[bytes | memoryview]) -> None:
        self.buffers = buffers
        if self._on_ready is not None:
            self._on_ready()

    def close(self, buffers: Sequence[bytes | memoryview] = ()) -> None:
        """Close the connection, after sending `buffers`."""
        self.closes_connection = True
        self.send([*buffers])


class BrokerCore:
    """The request handling of one cluster, for all of its nodes."""

    def __init__(self, state: BrokerState) -> None:
        self.state = state
        clients = HANDLERS.keys() - brokers.HANDLERS.keys()
        state.answered_requests = sorted(clients, key=lambda kind: kind.api_key)
        self.faults = Faults()
        self.requests: deque[ReceivedRequest] = deque(maxlen=REMEMBERED_REQUESTS)

    def handle(self, connection: Connection, frame: bytes | memoryview, now_ms: int) -> Reply:
        """Return the reply to one request; `frame` is the bytes after the four bytes of size.

        Raises nothing: a request without a possible answer closes the connection.
        """
        self.state.now_ms = now_ms
        reply = Reply()
        try:
            request = codec.decode_request(frame)
        except UnsupportedVersionError as error:
            self._answer_unsupported(reply, error)
        except ProtocolError:
            reply.close()
        else:
            self._remember(request, connection)
            self._handle(request, connection, reply, len(frame))
        self.state.run_waiters(now_ms)
        return reply

    def connection_made(self, connection: Connection, now_ms: int) -> int:
        """Return after how many milliseconds to close a new connection, without an answer; 0 to keep it."""
        self.state.now_ms = now_ms
        return self.state.refusal_ms(connection)

    def connection_lost(self, connection: Connection, now_ms: int) -> None:
        """End what lasts as long as a connection."""
        self.state.now_ms = now_ms
        share_fetch.connection_lost(self.state, connection, now_ms)
        self.state.run_waiters(now_ms)

    def next_deadline_ms(self) -> int | None:
        timers_ms = self.state.timers.next_deadline_ms()
        coordinators_ms = self.state.coordinators.next_deadline_ms()
        if timers_ms is None or coordinators_ms is None:
            return coordinators_ms if timers_ms is None else timers_ms
        return min(timers_ms, coordinators_ms)

    def handle_timeout(self, now_ms: int) -> None:
        self.state.now_ms = now_ms
        self.state.timers.run(now_ms)
        self.state.coordinators.handle_timeout(now_ms)
        self.state.run_waiters(now_ms)

    def _handle(self, request: codec.Request, connection: Connection, reply: Reply, size_bytes: int) -> None:
        kind = type(request.message)
        admission = sasl.admit(self.state, connection, kind)
        if self.faults.drops("before", kind, connection.node_id) or admission is Admission.CLOSE:
            reply.close()
            return
        if admission is Admission.CLOSE_LATE:
            self._after(self._login_delay_ms, reply.close)
            return
        context = Context(
            connection, request.version, request.client_id or "", self.state.now_ms, size_bytes=size_bytes
        )
        if self.state.cluster.quotas.limits:
            context.stopwatch = Stopwatch(self.state.clock_ns)
        if admission is Admission.REFUSE:
            context.forced_error, context.fails_login = ErrorCode.ILLEGAL_SASL_STATE, True
        try:
            response = self._response(request.message, context)
        except Exception:
            logger.exception("request failed; closing its connection: %s", request)
            reply.close()
            return
        if context.stopwatch is not None:
            context.stopwatch.stop()
        if self.faults.drops("after", kind, connection.node_id) or context.closes_connection:
            reply.close()
        elif response is None:  # acks=0
            reply.mute_ms = context.throttle_ms
            reply.send([])
        else:
            reply.breaks_tls = self.faults.breaks_tls(kind, connection.node_id)
            self._answer(reply, response, request, context)

    def _response(self, message: Any, context: Context) -> Any:
        kind = type(message)
        if not context.fails_login:
            context.forced_error = self.faults.next_error(kind, context.node_id)
            if self.faults.has_errors(kind):
                context.next_partition_error = partial(self.faults.next_error, kind, context.node_id)
            answer = self.faults.intercepted(message)
            if isinstance(answer, Message):
                return answer
            if answer is not None:
                context.forced_error = answer
        if kind in FORWARDED and context.node_id in self.state.cluster.deaf:
            return self._after_controller(message, context)
        return self._handled(message, context)

    def _handled(self, message: Any, context: Context) -> Any:
        try:
            response = HANDLERS[type(message)](self.state, message, context)
        except BrokerError as error:
            return error_response(message, error)
        if not context.waits:
            return response
        delayed = Delayed()

        def answer(now_ms: int) -> None:
            refused = BrokerError(context.refused) if context.refused else None
            delayed.complete(response if refused is None else error_response(message, refused))

        context.when_replicated(answer)
        return delayed

    def _after_controller(self, message: Any, context: Context) -> Delayed:
        """Handle a request after the node reaches the controller, or refuse it when its time is up.

        Kafka never answers then.
        """
        delayed = Delayed()

        def attempt(now_ms: int) -> bool:
            if context.node_id in self.state.cluster.deaf:
                return False
            context.now_ms = now_ms
            answered = self._handled(message, context)
            if isinstance(answered, Delayed):
                answered.then(delayed.complete)
            else:
                delayed.complete(answered)
            return True

        def give_up(now_ms: int) -> None:
            context.forced_error = ErrorCode.REQUEST_TIMED_OUT
            delayed.complete(self._handled(message, context))

        timeout_ms = getattr(message, "timeout_ms", REQUEST_TIMEOUT_MS)
        self.state.purgatory.watch([CONTROLLER], attempt, context.now_ms + timeout_ms, give_up)
        return delayed

    @property
    def _login_delay_ms(self) -> int:
        return self.state.options.connection_failed_authentication_delay_ms

    def _after(self, delay_ms: int, action: Callable[[], None]) -> None:
        if delay_ms:
            self.state.timers.call_at(self.state.now_ms + delay_ms, lambda _now_ms: action())
        else:
            action()

    def _answer(self, reply: Reply, response: Any, request: codec.Request, context: Context) -> None:
        """Send `response` after it is there and its delay is over."""

        def send(response: Any) -> None:
            self.state.throttle_time(context)
            throttle_ms = self.faults.throttle_ms or context.throttle_ms
            if throttle_ms and hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = reply.mute_ms = throttle_ms
            try:
                buffers = codec.encode_response(response, request.version, request.correlation_id)
            except ProtocolError:
                logger.exception("cannot write answer; closing its connection: %s", response)
                reply.close()
            else:
                (reply.close if context.fails_login else reply.send)(buffers)

        def ready(response: Any) -> None:
            delay_ms = self.faults.delay_ms(type(request.message), context.node_id)
            if context.fails_login:
                delay_ms += self._login_delay_ms
            self._after(delay_ms, lambda: send(response))

        if isinstance(response, Delayed):
            response.then(ready)
        else:
            ready(response)

    def _answer_unsupported(self, reply: Reply, error: UnsupportedVersionError) -> None:
        """Answer an unsupported version: only of ApiVersions, in the form that every client reads."""
        if error.api_key != messages.ApiVersionsRequest.api_key:
            reply.close()
            return
        response = metadata.unsupported_api_versions()
        reply.send(codec.encode_response(response, 0, error.correlation_id))

    def _remember(self, request: codec.Request, connection: Connection) -> None:
        message = request.message
        if isinstance(message, messages.ProduceRequest):
            message = _without_records(message)
        api = type(message).__name__.removesuffix("Request")
        self.requests.append(
            ReceivedRequest(connection.node_id, api, request.version, request.client_id or "", message)
        )


def _without_records(request: messages.ProduceRequest) -> messages.ProduceRequest:
    """Return a copy without records, which would keep the whole frame in memory."""
    kind = messages.ProduceRequest
    return kind(
        transactional_id=request.transactional_id,
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        topic_data=[
            kind.TopicProduceData(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_data=[kind.PartitionProduceData(index=each.index) for each in topic.partition_data],
            )
            for topic in request.topic_data
        ],
    )


def error_response(message: Any, error: BrokerError) -> Any:
    """Return the response that carries only the error."""
    response = message.response()
    response.error_code = error.code
    if error.message is not None and hasattr(response, "error_message"):
        response.error_message = error.message
    return response
