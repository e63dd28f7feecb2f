"""Wrong rules of sequences.h that the simulation must see (planted_bugs.py).

The functions are in rules.c. Some replace the rules of all: lane, native steps and engine. Others
replace them only while the lane works, so that nothing but its way can show them.
"""

from __future__ import annotations

from typing import Any

from kbatch.network.loan_driver import LoanDriver
from tests.simulation.planted.planting import BUGS, Bug
from tests.simulation.planted.rule_table import RULES, with_wrong

WRONG = {
    "sequences_are_compared_wrapped": "Java: comparisons use sequences, which wrap after 2^31 - 1.",
    "ten_batches_of_a_partition": "Java: five batches a connection, so ten are unanswered after a change of"
    " leader.",
    "any_retry_may_go_first": "Batches to retry are sent in any order.",
    "new_batches_pass_an_epoch": "New batches are sent while batches of the old epoch are unanswered.",
    "a_new_leader_does_not_wait_for_the_old_one": "New batches go to a new leader before the old one has"
    " answered.",
    "a_partition_is_never_muted": "With max.in.flight=1 and a change of leader, two batches are in flight.",
    "acknowledged_numbers_go_back": "An answer makes the partition forget what was acknowledged.",
    "a_leader_never_forgets": "A leader that has answered knows the producer, however long it is idle.",
    "a_gap_is_not_seen": "Sending continues as if no batch were missing.",
    "a_batch_follows_to_a_forgetful_leader": "A second batch goes to a leader that may have forgotten the"
    " producer since the first was sent.",
}
# Only while the lane works.
WRONG_IN_LANE = {
    "numbers_are_used_again": "The lane gives a new batch the sequences of the one before it.",
    "a_new_epoch_of_the_lane_goes_on": "The lane's first sequence of an epoch follows the last one of the"
    " previous epoch.",
    "a_new_batch_is_put_first": "The lane keeps batches in flight in the wrong order.",
    "an_answer_removes_the_next_batch_too": "The lane takes an unanswered batch for answered.",
    "a_former_leaders_answer_counts": "After a fail-over, an answer of the former leader that the lane reads"
    " makes the new one known.",
}


class _WithWrongRules:
    """A lane whose steps and answers meet wrong rules."""

    def __init__(self, lane: Any, bug: str) -> None:
        self._lane = lane
        self._bug = bug

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lane, name)

    def step(self, *given: Any, **named: Any) -> Any:
        return self._call(self._lane.step, *given, **named)

    def written(self, *given: Any) -> Any:
        return self._call(self._lane.written, *given)

    def received(self, *given: Any) -> Any:
        return self._call(self._lane.received, *given)

    def _call(self, function: Any, *given: Any, **named: Any) -> Any:
        before = RULES.table
        RULES.table = with_wrong(before, self._bug)
        try:
            return function(*given, **named)
        finally:
            RULES.table = before


def _in_lane(bug: str, doc: str) -> Bug:
    def make(original: Any) -> Any:
        def begin(self: LoanDriver, *rest: Any) -> None:
            original(self, *rest)
            if self._borrower is not None:
                self._borrower = _WithWrongRules(self._borrower, bug)

        return begin

    return Bug(LoanDriver, "begin", make, doc, is_of_transactions=False)


def _everywhere(bug: str, doc: str) -> Bug:
    return Bug(RULES, "table", lambda table: with_wrong(table, bug), doc, is_of_transactions=False)


BUGS.update({bug: _everywhere(bug, doc) for bug, doc in WRONG.items()})
BUGS.update({bug: _in_lane(bug, doc) for bug, doc in WRONG_IN_LANE.items()})
