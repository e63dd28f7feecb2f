"""AdminRequests: calls about items such as topics, groups or brokers, whose answers have a result for each.

Theory of operation. An AdminRequest is a call with items. Its route says which node gets each; all that go to
one node travel together, and requests to several nodes do not wait for each other. The answer has a value or
a refusal for each item. What a refusal calls for is in one place, `_is_repeated`: a back-off and another
attempt, or the item's error. At the deadline, what has no answer fails.

Items that have shared all attempts are a parcel: when it is tried next, and what came of the last attempt, is
known of the parcel, so a call about thousands of items costs little for each. A parcel is divided if its
items go to several nodes, or if some of them are refused.

An attempt that was written, and whose answer did not come, may have been done: the item is `doubtful`. The
repetition may then be refused because of the first attempt, as a topic that is created twice; whoever made
the call looks at the cluster before it believes such a refusal. A broker repeats by itself what it has passed
on to a controller that died: an answer that took that long is doubtful, too.

After org.apache.kafka.clients.admin.internals.AdminApiDriver.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from kbatch.core.client.any_node_request import AnyNodeRequest
from kbatch.core.client.api_versions import read_response
from kbatch.core.client.backoff import NEVER_NS, NS_PER_MS, ExponentialBackoff
from kbatch.core.client.calls import Call
from kbatch.core.client.routes import ANY, Paths, Route
from kbatch.errors import (
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    UnsupportedEndpointTypeError,
    error_of,
    row_of,
)
from kbatch.errors.words import shown

if TYPE_CHECKING:
    from kbatch.core.client.cluster import Cluster
    from kbatch.core.client.connection import Request, Response
    from kbatch.core.client.connections import Connections
    from kbatch.core.client.coordinators import Coordinators
    from kbatch.protocol.structs import Message

# Refusals that another attempt may overcome. PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE
# and ELECTION_NOT_NEEDED are retriable in Kafka's table, and final answers here.
REPEATED = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
# Refusals after which other nodes are asked: a broker passes requests on to the controller that it knows,
# which may be an old one.
ELSEWHERE = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER})
# Refusals that another attempt overcomes if the node, or the client, does not know a new topic yet.
UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
# What a new controller says before brokers have reported to it, which they do every 2 s
# (broker.heartbeat.interval.ms). It also says so if all log directories are cordoned, which does not pass.
_ALL_FENCED, FENCED_ATTEMPTS = "All brokers are currently fenced", 10
# What a broker says of its own inside when it has passed a request on.
_INTERNALS = "Request(processor="
_NO_ERRORS: Mapping[Any, KafkaError] = MappingProxyType({})


class Refusal(NamedTuple):
    """An error code of an answer, and the broker's text."""

    code: int
    message: str | None = None


class _Parcel:
    """Items without a result that have shared all attempts so far.

    Attributes
    ----------
    items : dict
        By key what the message has to say of each.
    pending : AnyNodeRequest
        When and where they are tried.
    sent : Request or None
        The last attempt.
    is_doubtful : bool
        True if an earlier attempt may have been done.
    errors : dict[Any, KafkaError]
        Those of the last attempt.
    """

    __slots__ = ("errors", "is_doubtful", "items", "pending", "sent")

    def __init__(self, items: dict[Any, Any], pending: AnyNodeRequest | None = None) -> None:
        self.items = items
        self.pending = AnyNodeRequest(joins=True) if pending is None else pending
        self.sent: Request | None = None
        self.is_doubtful = False
        self.errors: Mapping[Any, KafkaError] = _NO_ERRORS

    def part(self, items: dict[Any, Any]) -> _Parcel:
        """Return some of the items, as a parcel of their own."""
        part = _Parcel(items, self.pending.copy())
        part.sent = self.sent
        part.is_doubtful = self.is_doubtful
        part.errors = self.errors
        return part

    def is_due(self, now_ns: int) -> bool:
        return not self.pending.is_in_flight and now_ns >= self.pending.not_before_ns

    @property
    def was_written(self) -> bool:
        """True if a broker may have seen the attempt that is in flight."""
        return self.pending.is_in_flight and self.sent is not None and self.sent.was_written


class AdminRequest(Call):
    """A call about items.

    Parameters
    ----------
    name : str
        The user's method.
    items : Mapping
        By key what the message has to say of each.

    Attributes
    ----------
    parcels : dict of _Parcel to None
        The items without a result.
    results : dict
        By key the results; in the order of `items` once the request is done.
    errors : dict[Any, KafkaError]
        By key the errors of the others, once the request is done.
    doubtful : set
        The keys of items that may have been done by an earlier attempt than the one with the answer.
    deadline_ns : int
        When the call ends; NEVER_NS.
    on_end : callable
        Called at the end of the call, by the engine's owner.
    awaited : Hashable
        What all its items wait for that another request may take first: a node for a kind of route, or any
        for a kind of message; None if that is not so.
    kind : type of Message
    route : Route
    highest_version : int
        The highest version that `message` knows.
    max_items : int
        The most items of a message.
    repeats : bool
        False if what was written once must not be sent again.
    final : frozenset of ErrorCode
        Refusals that others overcome by another attempt, and this request does not.
    noun : str
        What errors call an item, before its key.
    unread : frozenset of str
        The names of arrays of the answer that `read` has no use for.
    repeated : frozenset of str
        The names of arrays of structs, most of which are those of the array before.
    """

    kind: ClassVar[type[Message]]
    route: Route = ANY
    highest_version: ClassVar[int] = 2**15 - 1
    max_items: ClassVar[int] = 1000
    repeats: ClassVar[bool] = True
    noun: ClassVar[str] = ""
    unread: ClassVar[frozenset[str]] = frozenset()
    repeated: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, name: str, items: Mapping[Any, Any]) -> None:
        super().__init__(name)
        given = dict(items)
        self.parcels: dict[_Parcel, None] = {_Parcel(given): None} if given else {}
        self._order = tuple(given)
        self.results: dict[Any, Any] = {}
        self.errors: dict[Any, KafkaError] = {}
        self.doubtful: set[Any] = set()
        self.deadline_ns = NEVER_NS
        self.since_ns = NEVER_NS
        self.on_end: Callable[[], object] = _nothing
        self.awaited: Hashable = None
        self.final: frozenset[ErrorCode] = frozenset()

    # What a subclass says

    def message(self, items: Mapping[Any, Any], version: int, timeout_ms: int) -> Message:
        """Return the request for items. Raise UnsupportedVersionError if the version cannot express it."""
        raise NotImplementedError

    def read(self, answer: Any, items: Mapping[Any, Any]) -> Iterable[tuple[Any, Any]]:
        """Yield the key and the result of each item of an answer; a result is a value or a Refusal."""
        raise NotImplementedError

    def chunks(self, items: Mapping[Any, Any], version: int) -> Iterator[dict[Any, Any]]:
        """Yield items that travel in one message."""
        rest = iter(items.items())
        while chunk := dict(islice(rest, self.max_items)):
            yield chunk

    def subject(self, key: Any) -> str:
        """Return what an error says the call was about."""
        return f"{self.name} of {self.noun} {key}" if self.noun else self.name

    # What callers read

    @property
    def answer(self) -> Any:
        """The result of the only item, None without one."""
        return next(iter(self.results.values()), None)

    def finish(self, error: KafkaError | None = None) -> None:
        """End the call: what has no result gets the error, and is not repeated any more."""
        if self.is_done:
            return
        if error is not None:
            for parcel in self.parcels:
                self.errors.update(dict.fromkeys(parcel.items, error))
        self.parcels.clear()
        self.results = {key: self.results[key] for key in self._order if key in self.results}
        self.errors = {key: self.errors[key] for key in self._order if key in self.errors}
        super().finish(error or next(iter(self.errors.values()), None))
        self.on_end()

    def withdraw(self) -> None:
        """End the call from any thread: its caller has stopped waiting."""
        super().finish()

    # What AdminRequests does

    def divide(self, parcel: _Parcel, parts: list[_Parcel]) -> None:
        """Put parts of a parcel in its place."""
        del self.parcels[parcel]
        self.parcels.update(dict.fromkeys(parts))

    def end(self, parcel: _Parcel, errors: Mapping[Any, KafkaError]) -> None:
        """Keep the errors of all items of a parcel."""
        self.parcels.pop(parcel, None)
        self.errors.update(errors)
        if parcel.is_doubtful:
            self.doubtful.update(errors)

    def error_of(self, key: Any, refusal: Refusal) -> KafkaError:
        """Return the error of a refusal, with the broker's own words."""
        return error_about(self.subject(key), refusal)


# Parcels, each with what decides its node.
_Due = list[tuple[Hashable, _Parcel]]


class AdminRequests:
    """The requests of a client without a result so far.

    A run looks at as few as possible, since there may be thousands: not at those in flight, and of those that
    await the same node at one more than it takes.

    Attributes
    ----------
    open : dict of AdminRequest to None
        Those that are not done.
    """

    def __init__(
        self,
        connections: Connections,
        cluster: Cluster,
        coordinators: Coordinators,
        backoff: ExponentialBackoff,
        *,
        request_timeout_ms: int,
        on_answer: Callable[[Response], object],
    ) -> None:
        self._paths = Paths(cluster, connections, coordinators, backoff)
        self._connections = connections
        self._on_answer = on_answer
        self._request_timeout_ms = request_timeout_ms
        self.open: dict[AdminRequest, None] = {}
        # of these: those that each run looks at; and those that await what another request may take first
        self._active: dict[AdminRequest, None] = {}
        self._awaiting: dict[Hashable, dict[AdminRequest, None]] = {}
        self._cluster_version = cluster.version
        self._expires_ns = NEVER_NS  # the first deadline, or an earlier time

    def submit(self, request: AdminRequest, now_ns: int) -> None:
        request.since_ns = now_ns
        self.open[request] = self._active[request] = None
        self._expires_ns = min(self._expires_ns, request.deadline_ns)

    def drop(self, request: AdminRequest, now_ns: int) -> None:
        """Forget a request whose caller has stopped waiting."""
        self.open.pop(request, None)
        self._active.pop(request, None)
        self._awaiting.get(request.awaited, {}).pop(request, None)

    def run(self, now_ns: int) -> None:
        """Send what can be sent now."""
        if now_ns >= self._expires_ns:
            self._expire_all(now_ns)
        if self._cluster_version != self._paths.cluster.version:
            self._cluster_version = self._paths.cluster.version
            self._look_at_all()
        for awaited in list(self._awaiting):
            self._send_awaiting(awaited, now_ns)
        self._send_active(now_ns)

    def deadline_ns(self) -> int:
        """Return the time of the next `run`, if nothing happens before."""
        heads = (next(iter(queue)) for queue in self._awaiting.values() if queue)
        looked_at = chain(self._active, heads)
        times = (parcel.pending.deadline_ns for request in looked_at for parcel in request.parcels)
        return min(self._expires_ns, min(times, default=NEVER_NS))

    def fail(self, error: KafkaError) -> None:
        requests = list(self.open)
        for each in (self.open, self._active, self._awaiting):
            each.clear()
        for request in requests:
            request.finish(error)

    def _file(self, request: AdminRequest, now_ns: int) -> None:
        """Put a request where the next event looks for it. One whose items are all in flight is left to their
        answers.
        """
        if not request.parcels:
            request.finish()
        if request.is_done:
            self.drop(request, now_ns)
        elif request.awaited is not None:
            self._active.pop(request, None)
            self._awaiting.setdefault(request.awaited, {})[request] = None
        elif all(parcel.pending.is_in_flight for parcel in request.parcels):
            self._active.pop(request, None)
        else:
            self._active[request] = None

    # Sending

    def _look_at_all(self) -> None:
        """Let the next run look at all requests: by new metadata, others than the first may be sent."""
        queues, self._awaiting = self._awaiting, {}
        self._active = {request: None for queue in (*queues.values(), self._active) for request in queue}

    def _send_awaiting(self, awaited: Hashable, now_ns: int) -> None:
        """Send requests that await something, until one still does: of thousands of calls, one looks for
        all.
        """
        queue = self._awaiting[awaited]
        while queue:
            request = next(iter(queue))
            if not request.is_done:
                self._send_due(request, self._due(request, now_ns), now_ns)
                if request.awaited == awaited:
                    return
            del queue[request]
            self._file(request, now_ns)
        del self._awaiting[awaited]

    def _send_active(self, now_ns: int) -> None:
        """Send the due items of requests whose nodes are looked for together."""
        due: list[tuple[AdminRequest, _Due]] = []
        together: dict[Hashable, tuple[Route, list[Hashable]]] = {}
        for request in self._active:
            route = request.route
            if route.is_to_brokers and self._paths.cluster.is_of_controllers:
                for parcel in list(request.parcels):
                    self._fail_parcel(request, parcel, _for_brokers(request))
            found = [] if request.is_done else self._due(request, now_ns)
            due.append((request, found))
            if route.looked_for_with is not None:
                sought = together.setdefault(route.looked_for_with, (route, []))[1]
                sought.extend(destination for destination, _ in found)
        for route, sought in together.values():
            route.prepare(sought, self._paths, now_ns)
        for request, found in due:
            self._send_due(request, found, now_ns)
            self._file(request, now_ns)

    def _send_due(self, request: AdminRequest, due: _Due, now_ns: int) -> None:
        """Send the parcels of a request that are due, by their nodes."""
        request.awaited = None
        by_node: dict[int, list[_Parcel]] = {}
        for destination, parcel in due:
            pending = parcel.pending
            pending.awaited_node = None
            try:
                node_id = request.route.node_of(
                    destination, pending, self._paths, now_ns, kind=request.kind, since_ns=request.since_ns
                )
            except KafkaError as error:
                self._fail_parcel(request, parcel, error)
                continue
            if node_id is not None:
                by_node.setdefault(node_id, []).append(parcel)
            elif len(request.parcels) == 1 and pending.awaited_node is not None:
                # what would be refused, too, where the first is
                request.awaited = (
                    (request.kind, pending.avoided_nodes)
                    if destination is None
                    else (type(request.route), pending.awaited_node)
                )
        for node_id, parcels in by_node.items():
            self._send_to(request, node_id, parcels, now_ns)

    def _due(self, request: AdminRequest, now_ns: int) -> _Due:
        """Return the parcels of a request that are neither in flight nor backed off, with their destinations.
        Divide those whose items have several.
        """
        found: _Due = []
        for parcel in [each for each in request.parcels if each.is_due(now_ns)]:
            by_destination = request.route.destinations(parcel.items, self._paths, now_ns)
            if len(by_destination) == 1:
                found.append((next(iter(by_destination)), parcel))
                continue
            parts = [(destination, parcel.part(items)) for destination, items in by_destination.items()]
            request.divide(parcel, [part for _, part in parts])
            found += parts
        return found

    def _send_to(self, request: AdminRequest, node_id: int, parcels: list[_Parcel], now_ns: int) -> None:
        left_ms = (request.deadline_ns - now_ns) // NS_PER_MS
        timeout_ms = max(1, min(self._request_timeout_ms, left_ms))
        items = parcels[0].items
        if len(parcels) > 1:
            items = {key: payload for parcel in parcels for key, payload in parcel.items.items()}
        try:
            version = self._connections.version_of(node_id, request.kind, highest=request.highest_version)
            messages = [
                (chunk, request.message(chunk, version, timeout_ms))
                for chunk in request.chunks(items, version)
            ]
        except KafkaError as error:
            is_for_brokers = self._paths.cluster.is_of_controllers and self._connections.lacks(
                node_id, request.kind
            )
            for parcel in parcels:
                self._fail_parcel(request, parcel, _for_brokers(request) if is_for_brokers else error)
            return
        for chunk, message in messages:
            parts = parcels if len(messages) == 1 else _divide(request, parcels, chunk)
            ready_ns = self._connections.ready_at(node_id, now_ns, joins=True)
            for part in parts:
                part.pending.retry_ns = 0 if ready_ns <= now_ns else ready_ns
            if ready_ns <= now_ns:
                handle = partial(self._handle_response, request, parts, chunk)
                read = partial(read_response, unread=request.unread, repeated=request.repeated)
                sent = self._connections.send(
                    node_id, message, handle, now_ns, version=version, joins=True, read=read
                )
                for part in parts:
                    part.sent = sent
                    part.pending.is_in_flight = True

    # Answers

    def _handle_response(
        self, request: AdminRequest, parcels: list[_Parcel], chunk: Mapping[Any, Any], response: Response
    ) -> None:
        self._on_answer(response)
        if request.is_done:
            return
        found = {} if response.message is None else dict(request.read(response.message, chunk))
        left_out = response.error or Refusal(
            ErrorCode.UNKNOWN_SERVER_ERROR, "the broker's answer leaves it out"
        )
        for parcel in parcels:
            del request.parcels[parcel]
            refused = {}
            for key in parcel.items:
                result = found.get(key, left_out)
                if isinstance(result, Refusal) and result.code:
                    refused[key] = request.error_of(key, result)
                elif isinstance(result, KafkaError):
                    refused[key] = result
                else:
                    request.results[key] = result
            if parcel.is_doubtful:
                request.doubtful.update(parcel.items.keys() - refused.keys())
            if refused:
                self._handle_refused(request, parcel, refused, response)
        self._file(request, response.now_ns)

    def _handle_refused(
        self, request: AdminRequest, parcel: _Parcel, errors: dict[Any, KafkaError], response: Response
    ) -> None:
        """Keep the errors of items, or try again after a back-off; those of one error stay together."""
        by_fate: dict[tuple[int | None, bool], dict[Any, KafkaError]] = {}
        for key, error in errors.items():
            by_fate.setdefault((error.code, self._is_repeated(request, parcel, error)), {})[key] = error
        took_ns = response.now_ns - response.request.sent_ns
        may_be_done = response.request.was_written and request.route.may_repeat(took_ns)
        for (code, is_repeated), same in by_fate.items():
            part = parcel.part({key: parcel.items[key] for key in same})
            is_lost = response.message is None or code == ErrorCode.REQUEST_TIMED_OUT
            part.is_doubtful |= may_be_done or (is_lost and response.request.was_written)
            if part.is_doubtful and is_lost and not request.repeats:
                request.end(part, {key: _unknown_outcome(request, key, error) for key, error in same.items()})
            elif is_repeated:
                self._back_off(request, part, same, response)
            else:
                request.end(part, same)

    def _is_repeated(self, request: AdminRequest, parcel: _Parcel, error: KafkaError) -> bool:
        """True if another attempt may overcome the error."""
        if error.code in UNKNOWN:
            return not request.route.is_final(error.code, parcel.pending.attempts)
        if error.code == ErrorCode.INVALID_REPLICATION_FACTOR and _ALL_FENCED in str(error):
            return parcel.pending.attempts < FENCED_ATTEMPTS
        return error.code in REPEATED and error.code not in request.final

    def _back_off(
        self, request: AdminRequest, parcel: _Parcel, errors: dict[Any, KafkaError], response: Response
    ) -> None:
        now_ns, pending, code = response.now_ns, parcel.pending, next(iter(errors.values())).code
        parcel.errors = errors
        if code in ELSEWHERE:
            avoided = pending.avoided_nodes | {response.request.node_id}
            is_left = not avoided.issuperset(self._paths.cluster.snapshot.nodes)
            pending.avoided_nodes = avoided if is_left else frozenset()
        for key in errors:
            request.route.forget(key, self._paths, now_ns)
        pending.back_off(self._paths.backoff, now_ns)
        request.parcels[parcel] = None
        if code == ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            told_ns = getattr(response.message, "throttle_time_ms", 0) * NS_PER_MS
            pending.not_before_ns = max(pending.not_before_ns, now_ns + told_ns)
            if pending.not_before_ns >= request.deadline_ns:
                request.end(
                    parcel, {key: _too_slow(request, key, error, told_ns) for key, error in errors.items()}
                )

    # Ends

    def _expire_all(self, now_ns: int) -> None:
        """End the requests whose deadline is over."""
        for request in list(self.open):
            if now_ns >= request.deadline_ns:
                self._expire(request, now_ns)
                self._file(request, now_ns)
        self._expires_ns = min((each.deadline_ns for each in self.open), default=NEVER_NS)

    def _expire(self, request: AdminRequest, now_ns: int) -> None:
        """Fail what has no result at the deadline."""
        seconds = round(max(request.deadline_ns - request.since_ns, 0) / 1e9, 3)
        hindrance = self._connections.hindrance(now_ns) or self._paths.cluster.last_error
        for parcel in list(request.parcels):
            doubt = "; it may have been done" if parcel.was_written or parcel.is_doubtful else ""
            errors: dict[Any, KafkaError] = {}
            for key in parcel.items:
                cause = self._connections.authentication_error or parcel.errors.get(key) or hindrance
                why = f"the last error was: {cause}" if cause is not None else "brokers are slow"
                error = KafkaTimeoutError(
                    f"{request.subject(key)} timed out after {seconds:g} s: {why}{doubt}"
                )
                error.__cause__ = cause
                errors[key] = error.marked(possibly_persisted=bool(doubt))
            request.end(parcel, errors)

    def _fail_parcel(self, request: AdminRequest, parcel: _Parcel, error: KafkaError) -> None:
        request.end(parcel, {key: error.marked() for key in parcel.items})


def _divide(request: AdminRequest, parcels: list[_Parcel], chunk: Mapping[Any, Any]) -> list[_Parcel]:
    """Divide parcels so that some have exactly the items of a chunk, and return these. `parcels` become the
    others.
    """
    found: list[_Parcel] = []
    rest: list[_Parcel] = []
    for parcel in parcels:
        chosen = {key: payload for key, payload in parcel.items.items() if key in chunk}
        if len(chosen) in (0, len(parcel.items)):
            (found if chosen else rest).append(parcel)
            continue
        left = {key: payload for key, payload in parcel.items.items() if key not in chunk}
        parts = [parcel.part(chosen), parcel.part(left)]
        request.divide(parcel, parts)
        found.append(parts[0])
        rest.append(parts[1])
    parcels[:] = rest
    return found


def _nothing() -> None:
    """Do nothing at the end of a call that its caller looks at by itself."""


def _unknown_outcome(request: AdminRequest, key: Any, cause: KafkaError) -> KafkaError:
    """Return the error of a lost answer to what must not be sent twice."""
    error = KafkaTimeoutError(
        f"{request.subject(key)}: its answer was lost ({cause}); it may have been done, so it is not repeated"
    )
    error.__cause__ = cause
    return error.marked(possibly_persisted=True)


def error_about(subject: str, refusal: Refusal) -> KafkaError:
    """Return the error of a refusal of `subject`, with the broker's own words."""
    text = refusal.message or ""
    words = "" if _INTERNALS in text else shown(text)
    return error_of(refusal.code, f"{subject}: {words or row_of(refusal.code).doc}")


def _for_brokers(request: AdminRequest) -> KafkaError:
    """Return the error of what only brokers answer, and the client asks controllers."""
    name = request.kind.__name__.removesuffix("Request")
    return UnsupportedEndpointTypeError(
        f"{request.name}: controllers do not answer {name}; use an Admin with bootstrap.servers"
    )


def _too_slow(request: AdminRequest, key: Any, error: KafkaError, told_ns: int) -> KafkaError:
    """Return the error of a quota that allows an item only after the deadline."""
    seconds = (request.deadline_ns - request.since_ns) / 1e9
    return error_of(
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        f"{request.subject(key)}: the quota controller_mutation_rate allows it in {told_ns / 1e9:g} s; the "
        f"time-out of {seconds:g} s comes first",
    )


def refused(items: Iterable[Any], answer: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the error of a whole answer for each item."""
    refusal = Refusal(answer.error_code, getattr(answer, "error_message", None))
    return ((key, refusal) for key in items)


def done_or_refused(items: Iterable[Any], answer: Any) -> Iterable[tuple[Any, Any]]:
    """Return the error of a whole answer for each item, or None for each if there is no error."""
    return refused(items, answer) if answer.error_code else dict.fromkeys(items).items()
