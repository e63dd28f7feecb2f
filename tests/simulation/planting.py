"""How bugs are planted: each replaces a function of the producer by a worse one, for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from kbatch.core.idempotence import Idempotence
from kbatch.testing.simulation.transactional_options import is_transactional


class Bug(NamedTuple):
    """`owner.name` is replaced by `make(the original)`; in worlds of transactions only, or in any."""

    owner: Any
    name: str
    make: Callable[[Any], Any]
    doc: str
    is_of_transactions: bool

    def may_be_seen(self, seed: int) -> bool:
        return is_transactional(seed) or not self.is_of_transactions


BUGS: dict[str, Bug] = {}


def plants(
    owner: Any, name: str, *, of_transactions: bool = False
) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Adds a bug: the function gets the original, and gives what takes its place."""

    def add(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        doc = " ".join((make.__doc__ or "").split())
        BUGS[make.__name__] = Bug(owner, name, make, doc, of_transactions)
        return make

    return add


# Most bugs are in what is done batch by batch, which these do natively, for a whole request. So they are told
# to do nothing while a bug is planted, unless it is in them.
_WHOLE: dict[str, Any] = {"admit_new": lambda *_: None, "acknowledge_all": lambda *_: False}


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    changes = {} if bug.name in _WHOLE else {(Idempotence, name): step for name, step in _WHOLE.items()}
    originals = {place: place[0].__dict__[place[1]] for place in (*changes, (bug.owner, bug.name))}
    changes[bug.owner, bug.name] = bug.make(originals[bug.owner, bug.name])
    try:
        _put(changes)
        yield
    finally:
        _put(originals)


def _put(functions: dict[tuple[Any, str], Any]) -> None:
    for (owner, name), function in functions.items():
        setattr(owner, name, function)
