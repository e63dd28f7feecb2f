"""Questions: contenders in turn, medians, and ratios between neighbours of the same round.

pytest-benchmark runs one contender to the end before the next, so a machine whose speed drifts favours one
of them, and it cannot take timings that another process (a warm JVM) measured itself. So it has the same
questions to compare kbatch with what it was before (benchmarks/test_local.py); this compares it with others.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

# The first rounds pay for imports, allocator growth and branch prediction.
WARM_UP_ROUNDS = 3


@dataclass
class Contender:
    """`run` handles `records` records; or `timings`, nanoseconds a record of each round, were measured
    elsewhere.
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
    """`candidate` should take at most `at_most` x the time (or memory, or CPU) of `reference`.

    `excuse` is said where it does not: what shows that something else is the bound.
    """

    candidate: str
    reference: str
    at_most: float
    text: str
    excuse: str = ""


@dataclass
class Question:
    """What is asked, of whom, and what is aimed at.

    `in_turns` is for contenders of other processes that took turns as if they ran here. `speaks_of_speed`
    has aims below 1 said the other way round: "2.5 x as fast as". `behind` is Markdown to follow the tables.
    """

    title: str
    limit: str
    contenders: list[Contender]
    claims: Sequence[Claim] = ()
    unit: str = "ns a record"
    in_turns: bool = False
    speaks_of_speed: bool = True
    behind: str = ""

    def contender(self, name: str) -> Contender | None:
        return next((contender for contender in self.contenders if contender.name == name), None)


def measure(question: Question, rounds: int) -> Question:
    """Runs every contender once a round, in turn, and fills in their timings."""
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
    """Pair by pair where both took turns; else of the lowest, which depend least on what the machine did
    meanwhile. None where one of them was not there.
    """
    candidate, reference = question.contender(claim.candidate), question.contender(claim.reference)
    if candidate is None or reference is None:
        return None
    if question.in_turns or (candidate.run is not None and reference.run is not None):
        pairs = zip(candidate.timings, reference.timings, strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)
    return min(candidate.timings) / min(reference.timings)


def report(question: Question) -> str:
    """The question as Markdown: a table of contenders and a table of claims."""
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
            lines.append(f"| {claim.text} | {claim.candidate} or {claim.reference} was not there | |")
            continue
        verdict = "reached" if measured <= claim.at_most else ("not reached. " + claim.excuse).strip(". ")
        lines.append(f"| {claim.text} | {_times(question, measured, claim)} | {verdict} |")
    if question.behind:
        lines += ["", question.behind]
    return "\n".join([*lines, ""])


def _times(question: Question, measured: float, claim: Claim) -> str:
    if claim.at_most >= 1 or not question.speaks_of_speed:
        return f"{measured:.2f} x {claim.reference}"
    return f"{1 / measured:.1f} x as fast as {claim.reference}"
