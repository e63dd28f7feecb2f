"""The simulation sees every planted bug, in the world that docs/simulation.md names."""

import logging
from collections.abc import Iterator

import pytest

from tests.simulation.planted_bugs import BUDGET, BUGS, hunt, known_seeds

WRITE_PAGE = "python -m tests.simulation.planted_bugs"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_the_page_has_every_bug_and_the_seed_that_sees_it() -> None:
    assert list(known_seeds()) == list(BUGS)


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_seen(name: str) -> None:
    seed = known_seeds()[name]
    if hunt(BUGS[name], range(seed, seed + 1)).seed == seed:
        return
    found = hunt(BUGS[name], range(BUDGET)).seed
    now = f"seed {found} is now the first that does" if found >= 0 else "no other does any more"
    pytest.fail(f"seed {seed} of docs/simulation.md no longer sees it, {now}: {WRITE_PAGE} writes the page")
