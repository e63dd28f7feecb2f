"""How much the tests try: the one place. `make soak` tries the same properties harder."""

import os
from collections.abc import Iterable
from typing import Any

import pytest

# By this the number of examples of every property is multiplied: 30 in CI, 1,000 in `make soak`.
EXAMPLES = int(os.environ.get("KBATCH_EXAMPLES", 10))
# Hostile batches and answers: one block of the campaigns, of which `make soak` runs fifty and more.
MUTANTS = int(os.environ.get("KBATCH_FUZZ_MUTANTS", 20_000))
# Worlds of the simulator, of producers and of readers each, from:to. `make test-slow` simulates more.
WORLDS = range(*map(int, os.environ.get("KBATCH_WORLDS", "0:40").split(":")))

# What takes too long for CI, or fetches what it does not need, runs in `make soak` and where this is set.
LONG = os.environ.get("KBATCH_LONG") == "1"


def only_if_long(why: str) -> pytest.MarkDecorator:
    """Return the mark of a test that is skipped but in `make soak`, with the reason."""
    return pytest.mark.skipif(not LONG, reason=f"{why}: make soak, or KBATCH_LONG=1")


def few(cases: Iterable[Any], count: int) -> list[Any]:
    """Return cases of which all but the first are slow: what differs only in a seed, a loop or a version."""
    return [
        case if number < count else pytest.param(case, marks=pytest.mark.slow)
        for number, case in enumerate(cases)
    ]


# A real Kafka where the embedded broker runs the same tests; slow ones judge that it answers alike.
REAL = pytest.param("real", marks=[pytest.mark.java, pytest.mark.slow])
