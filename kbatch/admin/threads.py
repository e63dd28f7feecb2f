"""The parts of an Admin as threads use them: plain methods, with the names and documentation of coroutines.

`threads.pyi` has their types; `python -m kbatch.admin.stubs` writes it from the classes of coroutines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isfunction
from typing import Any

from kbatch._native.io.interrupts import at_once
from kbatch.admin.cluster import AsyncCluster
from kbatch.admin.configs import AsyncConfigs
from kbatch.admin.groups import AsyncGroups
from kbatch.admin.partitions import AsyncPartitions
from kbatch.admin.security import AsyncAcls, AsyncQuotas, AsyncTokens, AsyncUsers
from kbatch.admin.topics import AsyncTopics
from kbatch.admin.transactions import AsyncTransactions
from kbatch.waiting.methods import blocking

_OWNER = "_part"


class ThreadPart:
    """A part of an Admin; `_part` has its coroutines."""

    def __init__(self, part: Any) -> None:
        self._part = part


def in_threads(part: type) -> type[ThreadPart]:
    """Return the class with the plain methods of a part."""
    members: dict[str, Any] = {"__doc__": part.__doc__, "__module__": part.__module__}
    for name, member in vars(part).items():
        if name.startswith("_"):
            continue
        if isfunction(member):  # as Python's errors of arguments name it, for users who do not know the class
            member.__qualname__ = f"{part.__name__.removeprefix('Async').lower()}.{name}"
        if isasyncgenfunction(member):
            members[name] = _iterating(member)
        elif iscoroutinefunction(member):
            members[name] = blocking(member, _OWNER)
    return type(part.__name__.removeprefix("Async"), (ThreadPart,), members)


def _iterating(method: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    """Return the method of an asynchronous iterator as that of a plain one."""

    @wraps(method)
    def iterate(part: ThreadPart, /, *arguments: Any, **keywords: Any) -> Iterator[Any]:
        items = method(part._part, *arguments, **keywords)
        while True:
            try:
                item = at_once(items.__anext__)
            except StopAsyncIteration:
                return
            yield item

    return iterate


Topics = in_threads(AsyncTopics)
Configs = in_threads(AsyncConfigs)
Groups = in_threads(AsyncGroups)
Partitions = in_threads(AsyncPartitions)
Acls = in_threads(AsyncAcls)
Quotas = in_threads(AsyncQuotas)
Users = in_threads(AsyncUsers)
Tokens = in_threads(AsyncTokens)
Transactions = in_threads(AsyncTransactions)
Cluster = in_threads(AsyncCluster)
