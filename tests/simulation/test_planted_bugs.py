"""The simulation sees every planted bug: in the world that saw it last, or in one of the first 2,000."""

import logging
from collections.abc import Iterator

import pytest

from tests.simulation.planted_bugs import BUDGET, BUGS, hunt, known_seeds


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_the_page_has_every_bug_and_the_seed_that_sees_it() -> None:
    assert list(known_seeds()) == list(BUGS)


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_seen(name: str) -> None:
    seed = known_seeds().get(name, 0)
    if hunt(BUGS[name], range(seed, seed + 1)).seed < 0:
        assert hunt(BUGS[name], range(BUDGET)).seed >= 0
