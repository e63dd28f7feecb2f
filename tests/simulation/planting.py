"""Planting of bugs: each temporarily replaces a function of the client by a worse one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from kbatch.core.producer.idempotence import Idempotence, WithoutIdempotence
from kbatch.core.producer.sender import Sender
from kbatch.testing.simulation.transactional_options import is_transactional


class Bug(NamedTuple):
    """A replacement of `owner.name` by `make(the original)`, in worlds of readers, in those of producers with
    transactions, or in any of producers.
    """

    owner: Any
    name: str
    make: Callable[[Any], Any]
    doc: str
    is_of_transactions: bool
    is_of_readers: bool = False

    def may_be_seen(self, seed: int) -> bool:
        return is_transactional(seed) or not self.is_of_transactions


BUGS: dict[str, Bug] = {}


def plants(
    owner: Any, name: str, *, of_transactions: bool = False, of_readers: bool = False
) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Add a bug: the decorated function gets the original and returns its replacement."""

    def add(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        doc = " ".join((make.__doc__ or "").split())
        BUGS[make.__name__] = Bug(owner, name, make, doc, of_transactions, of_readers)
        return make

    return add


# What each native step replaces for a whole request, besides the rules of sequences.h. A bug in one of them
# turns the step off; all other bugs are planted beside it, in the producer as users run it.
STEPS = {"admit_new": (Sender, "_admit"), "acknowledge_all": (Sender, "_succeed")}
_INHERITED = object()


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    place = (bug.owner, bug.name)
    changes: dict[tuple[Any, str], Any] = {
        (owner, name): lambda *_: False
        for name, replaced in STEPS.items()
        if place == replaced
        for owner in (Idempotence, WithoutIdempotence)
    }
    originals = {place: vars(place[0]).get(place[1], _INHERITED) for place in (*changes, place)}
    changes[place] = bug.make(getattr(*place) if originals[place] is _INHERITED else originals[place])
    try:
        _put(changes)
        yield
    finally:
        _put(originals)


def _put(functions: dict[tuple[Any, str], Any]) -> None:
    for (owner, name), function in functions.items():
        if function is _INHERITED:
            delattr(owner, name)
        else:
            setattr(owner, name, function)
