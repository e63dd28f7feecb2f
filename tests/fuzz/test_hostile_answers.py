"""A slice of the campaign of hostile answers; `make soak` runs it a thousand times as long."""

from __future__ import annotations

import itertools

import pytest

from tests.fuzz import campaign, hostile_answers, hostile_roads
from tests.fuzz.hostile_answers import Bent, Original
from tests.support.effort import MUTANTS

pytestmark = pytest.mark.slow


def test_no_answer_is_anything_but_read_or_refused() -> None:
    """KBATCH_FUZZ_MUTANTS says how many."""
    outcomes = campaign.run_block_apart(hostile_answers.__name__, 0, MUTANTS).outcomes
    assert sum(outcomes.values()) >= MUTANTS // hostile_answers.ROUND_CASES * hostile_answers.ROUND_CASES
    # it must reach all of them: what no reader looks at proves little
    for outcome in ("left to the codec", "corrupt", "records", "no records"):
        assert outcomes[outcome] > MUTANTS // 100, outcomes


def test_road_takes_an_answer_or_leaves_it_as_it_came() -> None:
    outcomes = campaign.run_block_apart(hostile_roads.__name__, 0, max(MUTANTS // 4, 5_000)).outcomes
    assert {"left to the engine", "records"} <= outcomes.keys()


def test_cases_depend_on_the_block_alone() -> None:
    first = list(hostile_answers.rounds(1, 2))
    assert list(hostile_answers.rounds(1, 2)) == first
    assert list(hostile_answers.rounds(2, 2)) != first


@pytest.mark.parametrize("way", hostile_answers.WAYS, ids=lambda way: way.__name__)
def test_each_way_bends_most_copies(way: object) -> None:
    import numpy as np

    rng = np.random.default_rng(1)
    small, _ = hostile_answers.originals()
    different = total = 0
    for original in itertools.islice(small, 0, None, 10):
        copies, _ = way(original, rng)  # type: ignore[operator]
        different += sum(copy.tobytes() != original.data for copy in copies)
        total += len(copies)
    assert different > total // 2


def test_repaired_batches_have_right_checksums() -> None:
    small, _ = hostile_answers.originals()
    original = next(each for each in small if each.version is None and len(each.batches) > 1)
    bent = _spoiled(original)
    how = hostile_answers.How(False, original.offsets[0], hostile_answers.FOREVER, True, ("value",), "copy")
    assert hostile_answers.outcome(bent.copies[0].tobytes(), None, how) == "corrupt"
    hostile_answers._repair(bent.copies, bent.batches)
    assert bent.copies[0].tobytes() == original.data


def _spoiled(original: Original) -> Bent:
    copies = hostile_answers._copies(original)
    for start, _ in original.batches:
        copies[:, start + 17 : start + 21] ^= 1
    return Bent(copies, original.batches)
