"""Run groups of questions, print the results, and write them to pages."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.pages.harness import report
from benchmarks.pages.page import GroupPages, Page, stamp
from benchmarks.pages.plan import Plan
from benchmarks.questions.groups import GROUPS, Group


def run(
    names: Iterable[str],
    plan: Plan,
    page: Page | GroupPages | None,
    *,
    groups: dict[str, Group] | None = None,
    commit: str = "",
) -> None:
    """Run the groups, and write each as soon as it is done: an interrupted run loses only the rest."""
    known = dict(GROUPS) if groups is None else groups
    for name in names:
        conditions = stamp(_rounds(plan), commit=commit)
        questions = []
        for question in known[name](plan):
            questions.append(question)
            print(report(question), flush=True)
        if page is not None:
            page.put(name, conditions, questions)


def _rounds(plan: Plan) -> str:
    if plan.rounds is not None:
        return f"{plan.rounds} rounds"
    return "a quick run of few records" if plan.quick else "a full run"
