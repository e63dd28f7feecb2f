"""Make methods of a client: plain ones out of coroutines, for callers that block; and those of its parts."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from operator import attrgetter
from typing import Any, Concatenate, ParamSpec, TypeVar

from kbatch._native.io.interrupts import at_once

T = TypeVar("T")
P = ParamSpec("P")
Method = Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]


def blocking(method: Method[P, T], part: str | None = None) -> Callable[Concatenate[Any, P], T]:
    """Return the coroutine method as a plain one; `part` is the attribute that has it, None the client."""
    owner = _owner_of(part)

    @wraps(method)
    def call(client: Any, /, *arguments: P.args, **keywords: P.kwargs) -> T:
        return at_once(method, owner(client), *arguments, **keywords)

    return call


def awaited(method: Method[P, T], part: str) -> Method[P, T]:
    """Return the coroutine method of the attribute `part`."""
    owner = _owner_of(part)

    @wraps(method)
    async def call(client: Any, /, *arguments: P.args, **keywords: P.kwargs) -> T:
        return await method(owner(client), *arguments, **keywords)

    return call


def plain(method: Callable[Concatenate[Any, P], T], part: str) -> Callable[Concatenate[Any, P], T]:
    """Return the plain method of the attribute `part`."""
    owner = _owner_of(part)

    @wraps(method)
    def call(client: Any, /, *arguments: P.args, **keywords: P.kwargs) -> T:
        return method(owner(client), *arguments, **keywords)

    return call


def _owner_of(part: str | None) -> Callable[[Any], Any]:
    return (lambda client: client) if part is None else attrgetter(part)
