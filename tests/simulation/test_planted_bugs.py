"""The simulation detects every planted bug, in the world that docs/simulation.md names."""

import logging
import operator
from collections.abc import Iterator

import pytest

from tests.simulation.planted import BUGS
from tests.simulation.planted.planting import planted
from tests.simulation.planted.rule_table import RULES
from tests.simulation.planted_bugs import BUDGET, hunt, known_seeds

WRITE_PAGE = "python -m tests.simulation.planted_bugs"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_page_has_every_bug_with_its_seed() -> None:
    assert sorted(known_seeds()) == sorted(BUGS)


def test_right_rules_are_back_after_a_wrong_one() -> None:
    right = RULES.table
    with planted(BUGS["a_gap_is_not_seen"]):
        assert sum(map(operator.ne, RULES.table, right)) == 1
    assert RULES.table == right


@pytest.mark.slow
@pytest.mark.parametrize("name", BUGS)
def test_planted_bug_is_detected(name: str) -> None:
    seed = known_seeds()[name]
    if hunt(BUGS[name], range(seed, seed + 1)).seed == seed:
        return
    found = hunt(BUGS[name], range(BUDGET)).seed
    now = f"seed {found} is now the first that does" if found >= 0 else "nor does any other"
    pytest.fail(f"seed {seed} of docs/simulation.md no longer detects it, {now}; run {WRITE_PAGE}")


def test_world_that_fails_anyhow_detects_nothing() -> None:
    """Each of the two bugs is seen there; planted, one is a world's own fault for the hunt of the other."""
    bug, other = BUGS["completions_come_twice"], BUGS["a_completion_is_lost"]
    seed = known_seeds()["completions_come_twice"]
    assert hunt(bug, range(seed, seed + 1)).seed == seed
    with planted(bug):
        assert hunt(other, range(seed, seed + 1)).seed == -1
