"""Planting of bugs: each temporarily replaces a function of the client by a worse one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple

from tests.simulation.transactions.options import is_transactional
from tests.simulation.world.replicas.options import is_replicated


class Bug(NamedTuple):
    """A replacement of `owner.name` by `make(the original)`, in worlds of readers or of `process()`, in those
    of producers with transactions, with replicas, or in any of producers.
    """

    owner: Any
    name: str
    make: Callable[[Any], Any]
    doc: str
    is_of_transactions: bool
    is_of_readers: bool = False
    is_of_process: bool = False
    is_of_replicas: bool = False

    def may_be_seen(self, seed: int) -> bool:
        if self.is_of_replicas and not is_replicated(seed):
            return False
        return is_transactional(seed) or not self.is_of_transactions


BUGS: dict[str, Bug] = {}


def replaces(
    owner: Any,
    name: str,
    *,
    of_transactions: bool = False,
    of_readers: bool = False,
    of_process: bool = False,
    of_replicas: bool = False,
) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Add a bug: the decorated function gets the original and returns its replacement."""

    def add(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        doc = " ".join((make.__doc__ or "").split())
        kinds = (of_transactions, of_readers, of_process, of_replicas)
        BUGS[make.__name__] = Bug(owner, name, make, doc, *kinds)
        return make

    return add


def plants(owner: Any, name: str, **kinds: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add a bug: the decorated function replaces a function, or the getter of a property, and gets the
    original before its arguments.
    """

    def add(worse: Callable[..., Any]) -> Callable[..., Any]:
        @replaces(owner, name, **kinds)
        @wraps(worse)
        def make(original: Any) -> Any:
            if isinstance(original, property):
                return property(lambda self: worse(original.fget, self))
            return lambda *given, **named: worse(original, *given, **named)

        return worse

    return add


_INHERITED = object()


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    original = vars(bug.owner).get(bug.name, _INHERITED)
    worse = bug.make(getattr(bug.owner, bug.name) if original is _INHERITED else original)
    try:
        setattr(bug.owner, bug.name, worse)
        yield
    finally:
        if original is _INHERITED:
            delattr(bug.owner, bug.name)
        else:
            setattr(bug.owner, bug.name, original)
