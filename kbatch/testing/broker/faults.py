"""Faults that a test sets: errors, lost connections, delays, throttling, and an interceptor."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any, NamedTuple

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.protocol.structs import Message

# An interceptor gets the request, and returns None (continue), an error, or the response.
Interceptor = Callable[[Any], Message | ErrorCode | str | int | None]


def request_class(api: str) -> type[Message]:
    """Return an API's request by name, "Produce" for ProduceRequest; ValueError names the nearest."""
    classes = {kind.__name__.removesuffix("Request"): kind for kind in messages.REQUESTS.values()}
    if api not in classes:
        near = difflib.get_close_matches(api, classes, 1)
        hint = f": did you mean {near[0]!r}?" if near else f": one of {', '.join(sorted(classes))}"
        raise ValueError(f"there is no API {api!r}{hint}")
    return classes[api]


def error_code_of(error: str | int | ErrorCode) -> ErrorCode:
    """Return a code by its name or number; ValueError names the nearest."""
    if not isinstance(error, int) and error not in ErrorCode.__members__:
        near = difflib.get_close_matches(str(error), ErrorCode.__members__, 1)
        hint = f": did you mean {near[0]}?" if near else ""
        raise ValueError(f"there is no error {error!r}{hint}")
    code = ErrorCode(error) if isinstance(error, int) else ErrorCode[error]
    if code == ErrorCode.NONE:
        raise ValueError("error must not be NONE, because the request has no effect; name an error")
    return code


class Scope(NamedTuple):
    """Where a fault happens: at a node, or at any; for a partition, or for whole requests."""

    node: int | None = None
    topic: str | None = None
    partition: int | None = None

    def has(self, node: int, topic: str | None = None, partition: int | None = None) -> bool:
        return self.node in (None, node) and (self.topic, self.partition) == (topic, partition)


ANYWHERE = Scope()
# The requests whose single partitions can fail by a fault.
OF_PARTITIONS = (
    "DeleteRecords",
    "DescribeProducers",
    "Fetch",
    "ListOffsets",
    "OffsetForLeaderEpoch",
    "Produce",
)


class _Countdown:
    """A value for a number of uses, in a scope."""

    __slots__ = ("left", "scope", "value")

    def __init__(self, value: Any, times: int, scope: Scope) -> None:
        if times < 1:
            raise ValueError(f"times must be 1 or more, got {times}")
        self.value = value
        self.left = times
        self.scope = scope


class Faults:
    """The faults by request class; those of one kind apply in the order in which they were set."""

    def __init__(self) -> None:
        self._countdowns: dict[tuple[str, type], list[_Countdown]] = {}
        self._interceptors: dict[type, Interceptor] = {}
        self._delays_ms: dict[tuple[type, int | None], int] = {}
        self.throttle_ms = 0

    def fail_next(self, api: str, error: str | int | ErrorCode, times: int, scope: Scope = ANYWHERE) -> None:
        if (scope.topic is None) != (scope.partition is None):
            raise ValueError("give topic and partition, or none of them")
        if scope.topic is not None and request_class(api) and api not in OF_PARTITIONS:
            names = ", ".join(OF_PARTITIONS)
            raise ValueError(f"api must be one of {names} to fail for one partition, got {api!r}")
        self._add("error", api, error_code_of(error), times, scope)

    def drop_connection(self, api: str, when: str, times: int, scope: Scope = ANYWHERE) -> None:
        if when not in ("before", "after"):
            raise ValueError(f"when must be 'before' or 'after' the request is done, got {when!r}")
        self._add(f"drop {when}", api, True, times, scope)

    def tls_break(self, api: str, times: int) -> None:
        self._add("tls break", api, True, times)

    def delay(self, api: str, seconds: float, node: int | None = None) -> None:
        """Delay every answer from now on, of a node or of all; 0 ends it."""
        self._delays_ms[request_class(api), node] = milliseconds(seconds)

    def throttle(self, seconds: float) -> None:
        """Throttle every answer, and do not read its connection for that long; 0 ends it."""
        self.throttle_ms = milliseconds(seconds)

    def intercept(self, api: str, function: Interceptor | None) -> None:
        """Call `function(request)` for each request of `api`; None ends it."""
        if function is None:
            self._interceptors.pop(request_class(api), None)
        else:
            self._interceptors[request_class(api)] = function

    def has_errors(self, kind: type) -> bool:
        return bool(self._countdowns.get(("error", kind)))

    def next_error(
        self, kind: type, node: int, topic: str | None = None, partition: int | None = None
    ) -> ErrorCode | None:
        """Return the error of a request, or of one of its partitions, if a fault is left for it."""
        code: ErrorCode | None = self._next("error", kind, node, topic, partition)
        return code

    def drops(self, when: str, kind: type, node: int) -> bool:
        return bool(self._countdowns) and bool(self._next(f"drop {when}", kind, node))

    def breaks_tls(self, kind: type, node: int) -> bool:
        return bool(self._countdowns) and bool(self._next("tls break", kind, node))

    def delay_ms(self, kind: type, node: int) -> int:
        """Return the delay of the node's answers; one for the node itself goes before one for all."""
        return self._delays_ms.get((kind, node), 0) or self._delays_ms.get((kind, None), 0)

    def intercepted(self, request: Message) -> Message | ErrorCode | None:
        """Return what the interceptor of the request's API returns, None without one."""
        kind = type(request)
        interceptor = self._interceptors.get(kind)
        answer = interceptor(request) if interceptor is not None else None
        if answer is None or type(answer) is kind.response:
            return answer
        if isinstance(answer, Message):
            raise TypeError(
                f"the interceptor must return None, an error or the response to {kind.__name__}, "
                f"got {type(answer).__name__}"
            )
        return error_code_of(answer)

    def _add(self, what: str, api: str, value: Any, times: int, scope: Scope = ANYWHERE) -> None:
        self._countdowns.setdefault((what, request_class(api)), []).append(_Countdown(value, times, scope))

    def _next(
        self, what: str, kind: type, node: int, topic: str | None = None, partition: int | None = None
    ) -> Any:
        queue = self._countdowns.get((what, kind))
        for countdown in queue or ():
            if countdown.scope.has(node, topic, partition):
                countdown.left -= 1
                if countdown.left == 0 and queue is not None:
                    queue.remove(countdown)
                return countdown.value
        return None


def milliseconds(seconds: float) -> int:
    if seconds < 0:
        raise ValueError(f"seconds must be 0 or more, got {seconds}")
    return round(seconds * 1000)
