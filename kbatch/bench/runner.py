"""Runs groups, prints what they found, and keeps it on a page where there is one to be."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kbatch.bench.groups import GROUPS, Group
from kbatch.bench.harness import report
from kbatch.bench.page import Page, stamp
from kbatch.bench.plan import Plan


def run(
    names: Iterable[str],
    plan: Plan,
    path: Path | None,
    head: str,
    *,
    groups: dict[str, Group] | None = None,
    commit: str = "",
) -> None:
    """Each group is written as soon as it is known: what ends a run loses only what was not measured yet."""
    known = dict(GROUPS) if groups is None else groups
    page = None if path is None else Page(path, head, known)
    for name in names:
        told = stamp(_rounds(plan), commit=commit)
        questions = []
        for question in known[name](plan):
            questions.append(question)
            print(report(question), flush=True)
        if page is not None:
            page.put(name, told, questions)


def _rounds(plan: Plan) -> str:
    if plan.rounds is not None:
        return f"{plan.rounds} rounds"
    return "a quick run of few records" if plan.quick else "a full run"
