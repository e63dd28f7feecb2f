"""A slice of the campaign of mutated values; `make soak` plays a million."""

from __future__ import annotations

import pytest

from tests.fuzz import campaign, hostile_values
from tests.support.effort import MUTANTS

pytestmark = pytest.mark.slow


def test_mutated_values_are_read_or_refused() -> None:
    """KBATCH_FUZZ_MUTANTS says how many."""
    outcomes = campaign.run_block_apart(hostile_values.__name__, 0, MUTANTS).outcomes
    assert sum(outcomes.values()) == MUTANTS
    for outcome in ("read", "refused"):
        assert outcomes[outcome] > MUTANTS // 50, outcomes
