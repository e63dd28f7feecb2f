"""A slice of the campaign of hostile answers to Produce; `make soak` runs it a thousand times as long."""

from __future__ import annotations

from tests.fuzz import campaign, hostile_produce_answers
from tests.support.effort import MUTANTS


def test_hostile_answers_are_read_as_the_codec_does() -> None:
    """KBATCH_FUZZ_MUTANTS says how many."""
    outcomes = campaign.run_block_apart(hostile_produce_answers.__name__, 0, MUTANTS).outcomes
    assert sum(outcomes.values()) >= MUTANTS // hostile_produce_answers.ROUND_CASES
    # it must reach all of them: what no reader looks at proves little
    for outcome in ("accepted", "left to the codec", "refused"):
        assert outcomes[outcome] > MUTANTS // 500, outcomes


def test_produce_cases_depend_on_the_block_alone() -> None:
    first = [cases for _, _, cases in hostile_produce_answers.rounds(1, 2)]
    assert [cases for _, _, cases in hostile_produce_answers.rounds(1, 2)] == first
    assert [cases for _, _, cases in hostile_produce_answers.rounds(2, 2)] != first
