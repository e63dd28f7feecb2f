"""Rounds in turn, medians, and ratios between neighbours of the same round.

Why not pytest-benchmark: it runs one contender to the end before the next, so a machine whose speed drifts
favours one of them, and it cannot take timings that another process (a warm JVM) measured itself.
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
    """`candidate` should take at most `at_most` x the time of `reference`."""

    candidate: str
    reference: str
    at_most: float
    text: str


@dataclass
class Question:
    title: str
    limit: str
    contenders: list[Contender]
    claims: Sequence[Claim] = ()
    unit: str = "ns a record"

    def contender(self, name: str) -> Contender:
        return next(contender for contender in self.contenders if contender.name == name)


def measure(question: Question, rounds: int) -> Question:
    """Runs every contender once a round, in turn, and fills in their timings."""
    local = [contender for contender in question.contenders if contender.run is not None]
    for number in range(WARM_UP_ROUNDS + rounds):
        for contender in local:
            assert contender.run is not None
            begun = time.perf_counter_ns()
            contender.run()
            elapsed = time.perf_counter_ns() - begun
            if number >= WARM_UP_ROUNDS:
                contender.timings.append(elapsed / contender.records)
    return question


def ratio(question: Question, claim: Claim) -> float:
    """Pair by pair within a round where both ran here; else of the lowest, which depend least on what the
    machine did meanwhile."""
    candidate, reference = question.contender(claim.candidate), question.contender(claim.reference)
    if candidate.run is None or reference.run is None:
        return min(candidate.timings) / min(reference.timings)
    return statistics.median(a / b for a, b in zip(candidate.timings, reference.timings, strict=True))


def report(question: Question) -> str:
    """The question as Markdown: a table of contenders and a table of claims."""
    lines = [f"## {question.title}", "", question.limit, ""]
    lines += [f"| | median, {question.unit} | lowest | |", "|---|---:|---:|---|"]
    for c in question.contenders:
        lines.append(f"| {c.name} | {c.median:.1f} | {min(c.timings):.1f} | {c.note} |")
    if question.claims:
        lines += ["", "| aim | measured | |", "|---|---:|---|"]
    for claim in question.claims:
        measured = ratio(question, claim)
        verdict = "reached" if measured <= claim.at_most else "not reached"
        lines.append(f"| {claim.text} | {_times(measured, claim)} | {verdict} |")
    return "\n".join([*lines, ""])


def _times(measured: float, claim: Claim) -> str:
    if claim.at_most >= 1:
        return f"{measured:.2f} x {claim.reference}"
    return f"{1 / measured:.1f} x as fast as {claim.reference}"
