"""Questions: contenders in turn, medians, and ratios between neighbours of the same round.

pytest-benchmark runs one contender to the end before the next, so a machine whose speed drifts favours one of
them. It also cannot use timings that another process (a warm JVM) measured. So it compares kbatch only with
an older kbatch (benchmarks/test_local.py), and this module with other clients.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

# The first rounds include imports, allocator growth and branch prediction.
WARM_UP_ROUNDS = 3


@dataclass
class Contender:
    """A contender: `run` handles `records` records, or `timings`, nanoseconds a record of each round, come
    from elsewhere.
    """

    name: str
    records: int
    run: Callable[[], object] | None = None
    timings: list[float] = field(default_factory=list)
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.timings)


@dataclass
class Claim:
    """An aim: `candidate` takes at most `at_most` x the time (or memory, or CPU) of `reference`.

    `excuse` is shown if it is missed: evidence that something else is the bound.
    """

    candidate: str
    reference: str
    at_most: float
    text: str
    excuse: str = ""


@dataclass
class Question:
    """A question, its contenders, and its aims.

    `in_turns` is for contenders in other processes that took turns. `speaks_of_speed` words aims below 1 as
    speed: "2.5 x as fast as". `after_tables` is Markdown to follow the tables.
    """

    title: str
    limit: str
    contenders: list[Contender]
    claims: Sequence[Claim] = ()
    unit: str = "ns a record"
    in_turns: bool = False
    speaks_of_speed: bool = True
    after_tables: str = ""

    def contender(self, name: str) -> Contender | None:
        return next((contender for contender in self.contenders if contender.name == name), None)


def measure(question: Question, rounds: int) -> Question:
    """Run every contender once a round, in turn, and fill in their timings."""
    local = [contender for contender in question.contenders if contender.run is not None]
    for number in range(WARM_UP_ROUNDS + rounds if local else 0):
        for contender in local:
            assert contender.run is not None
            begun = time.perf_counter_ns()
            contender.run()
            elapsed = time.perf_counter_ns() - begun
            if number >= WARM_UP_ROUNDS:
                contender.timings.append(elapsed / contender.records)
    return question


def ratio(question: Question, claim: Claim) -> float | None:
    """Return the ratio by pairs if both took turns, else of the lowest times, which depend least on the
    machine's other load. Return None if one of them is missing.
    """
    candidate, reference = question.contender(claim.candidate), question.contender(claim.reference)
    if candidate is None or reference is None:
        return None
    if question.in_turns or (candidate.run is not None and reference.run is not None):
        pairs = zip(candidate.timings, reference.timings, strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)
    return min(candidate.timings) / min(reference.timings)


def report(question: Question) -> str:
    """Return the question as Markdown: a table of contenders and a table of claims."""
    lines = [f"## {question.title}", "", question.limit, ""]
    lines += [f"| | median, {question.unit} | lowest | highest | |", "|---|---:|---:|---:|---|"]
    for c in question.contenders:
        figures = (f"{value:,.1f}" for value in (c.median, min(c.timings), max(c.timings)))
        lines.append(f"| {c.name} | {' | '.join(figures)} | {c.note} |")
    if question.claims:
        lines += ["", "| aim | measured | |", "|---|---:|---|"]
    for claim in question.claims:
        measured = ratio(question, claim)
        if measured is None:
            lines.append(f"| {claim.text} | {claim.candidate} or {claim.reference} was missing | |")
            continue
        verdict = "reached" if measured <= claim.at_most else ("not reached. " + claim.excuse).strip(". ")
        lines.append(f"| {claim.text} | {_times(question, measured, claim)} | {verdict} |")
    if question.after_tables:
        lines += ["", question.after_tables]
    return "\n".join([*lines, ""])


def _times(question: Question, measured: float, claim: Claim) -> str:
    if claim.at_most >= 1 or not question.speaks_of_speed:
        return f"{measured:.2f} x {claim.reference}"
    return f"{1 / measured:.1f} x as fast as {claim.reference}"
