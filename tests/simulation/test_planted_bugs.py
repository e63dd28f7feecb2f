"""The simulation detects every planted bug, in the world that docs/simulation.md names."""

import logging
import operator
from collections.abc import Iterator

import pytest

from kbatch.core.producer.idempotence import Idempotence
from tests.simulation.planted_bugs import BUDGET, BUGS, hunt, known_seeds
from tests.simulation.planting import planted
from tests.simulation.rules import RULES

WRITE_PAGE = "python -m tests.simulation.planted_bugs"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_page_has_every_bug_with_its_seed() -> None:
    assert sorted(known_seeds()) == sorted(BUGS)


def test_native_steps_stay_on_except_for_bugs_in_them() -> None:
    steps = Idempotence.admit_new, Idempotence.acknowledge_all
    with planted(BUGS["acks_1_for_acks_all"]):
        assert (Idempotence.admit_new, Idempotence.acknowledge_all) == steps
    with planted(BUGS["a_request_keeps_its_batches"]):
        assert Idempotence.admit_new is not steps[0]
        assert Idempotence.acknowledge_all is steps[1]
    with planted(BUGS["the_offset_is_one_off"]):
        assert Idempotence.admit_new is steps[0]
        assert Idempotence.acknowledge_all is not steps[1]
    assert (Idempotence.admit_new, Idempotence.acknowledge_all) == steps


def test_right_rules_are_back_after_a_wrong_one() -> None:
    right = RULES.table
    with planted(BUGS["a_gap_is_not_seen"]):
        assert sum(map(operator.ne, RULES.table, right)) == 1
    assert RULES.table == right


@pytest.mark.parametrize("name", BUGS)
def test_planted_bug_is_detected(name: str) -> None:
    seed = known_seeds()[name]
    if hunt(BUGS[name], range(seed, seed + 1)).seed == seed:
        return
    found = hunt(BUGS[name], range(BUDGET)).seed
    now = f"seed {found} is now the first that does" if found >= 0 else "nor does any other"
    pytest.fail(f"seed {seed} of docs/simulation.md no longer detects it, {now}; run {WRITE_PAGE}")
