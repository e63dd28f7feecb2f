"""The registry of bugs that are planted on purpose (planted_bugs.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple


class Bug(NamedTuple):
    """`owner.name` is replaced by `make(the original)`."""

    owner: Any
    name: str
    make: Callable[[Any], Any]
    doc: str


BUGS: dict[str, Bug] = {}


def plants(owner: Any, name: str) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Adds a bug: the function gets the original, and gives what takes its place."""

    def add(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        BUGS[make.__name__] = Bug(owner, name, make, " ".join((make.__doc__ or "").split()))
        return make

    return add


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    original = bug.owner.__dict__[bug.name]
    setattr(bug.owner, bug.name, bug.make(original))
    try:
        yield
    finally:
        setattr(bug.owner, bug.name, original)
