"""Make methods of a client: plain ones out of coroutines, for callers that block; and those of its parts."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from operator import attrgetter
from types import FunctionType
from typing import Any, Concatenate, ParamSpec, TypeVar

from kbatch._native.io.interrupts import at_once

T = TypeVar("T")
Client = TypeVar("Client")
P = ParamSpec("P")
Method = Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]


def blocking(method: Method[P, T], part: str | None = None) -> Callable[Concatenate[Any, P], T]:
    """Return the coroutine method as a plain one; `part` is the attribute that has it, None the client."""
    owner = _owner_of(part)

    @wraps(method)
    def call(client: Any, /, *arguments: P.args, **keywords: P.kwargs) -> T:
        return at_once(method, owner(client), *arguments, **keywords)

    return call


def awaited(
    method: Method[P, T],
    part: str | None = None,
    *,
    before: Callable[[Any], Coroutine[Any, Any, object]] | None = None,
) -> Method[P, T]:
    """Return the coroutine method of `part`, as in `blocking`. It awaits `before(client)` first."""
    owner = _owner_of(part)

    @wraps(method)
    async def call(client: Any, /, *arguments: P.args, **keywords: P.kwargs) -> T:
        if before is not None:
            await before(client)
        return await method(owner(client), *arguments, **keywords)

    return call


def plain(method: Callable[Concatenate[Any, P], T], part: str) -> Callable[Concatenate[Any, P], T]:
    """Return the plain method of the attribute `part`."""
    owner = _owner_of(part)

    @wraps(method)
    def call(client: Any, /, *arguments: P.args, **keywords: P.kwargs) -> T:
        return method(owner(client), *arguments, **keywords)

    return call


def named_for_users(cls: type[Client]) -> type[Client]:
    """Name the methods that a class of clients shares with others as its users call them. Python's errors of
    arguments, and its warnings of coroutines never awaited, would name classes that users do not know.
    """
    for base in cls.__mro__[:-1]:
        for name, member in vars(base).items():
            while isinstance(member, FunctionType) and not name.startswith("_"):
                member.__name__ = member.__qualname__ = name
                member = getattr(member, "__wrapped__", None)
    return cls


def _owner_of(part: str | None) -> Callable[[Any], Any]:
    return (lambda client: client) if part is None else attrgetter(part)
