"""Faults that a test sets: errors, lost connections, delays, throttling, and an interceptor."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

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


class _Countdown:
    """A value for a number of uses."""

    __slots__ = ("left", "value")

    def __init__(self, value: Any, times: int) -> None:
        if times < 1:
            raise ValueError(f"times must be 1 or more, got {times}")
        self.value = value
        self.left = times


class Faults:
    """The faults by request class; those of one kind apply in the order in which they were set."""

    def __init__(self) -> None:
        self._countdowns: dict[tuple[str, type], list[_Countdown]] = {}
        self._interceptors: dict[type, Interceptor] = {}
        self._delays_ms: dict[type, int] = {}
        self.throttle_ms = 0

    def fail_next(self, api: str, error: str | int | ErrorCode, times: int) -> None:
        self._add("error", api, error_code_of(error), times)

    def drop_connection(self, api: str, when: str, times: int) -> None:
        if when not in ("before", "after"):
            raise ValueError(f"when must be 'before' or 'after' the request is done, got {when!r}")
        self._add(f"drop {when}", api, True, times)

    def tls_break(self, api: str, times: int) -> None:
        self._add("tls break", api, True, times)

    def delay(self, api: str, seconds: float) -> None:
        """Delay every answer from now on; 0 ends it."""
        self._delays_ms[request_class(api)] = milliseconds(seconds)

    def throttle(self, seconds: float) -> None:
        """Throttle every answer, and do not read its connection for that long; 0 ends it."""
        self.throttle_ms = milliseconds(seconds)

    def intercept(self, api: str, function: Interceptor | None) -> None:
        """Call `function(request)` for each request of `api`; None ends it."""
        if function is None:
            self._interceptors.pop(request_class(api), None)
        else:
            self._interceptors[request_class(api)] = function

    def next_error(self, kind: type) -> ErrorCode | None:
        code: ErrorCode | None = self._next("error", kind)
        return code

    def drops(self, when: str, kind: type) -> bool:
        return bool(self._next(f"drop {when}", kind))

    def breaks_tls(self, kind: type) -> bool:
        return bool(self._next("tls break", kind))

    def delay_ms(self, kind: type) -> int:
        return self._delays_ms.get(kind, 0)

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

    def _add(self, what: str, api: str, value: Any, times: int) -> None:
        self._countdowns.setdefault((what, request_class(api)), []).append(_Countdown(value, times))

    def _next(self, what: str, kind: type) -> Any:
        queue = self._countdowns.get((what, kind))
        if not queue:
            return None
        queue[0].left -= 1
        value = queue[0].value
        if queue[0].left == 0:
            del queue[0]
        return value


def milliseconds(seconds: float) -> int:
    if seconds < 0:
        raise ValueError(f"seconds must be 0 or more, got {seconds}")
    return round(seconds * 1000)
