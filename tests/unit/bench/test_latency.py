"""Latency of a paced sender: its percentiles, and rounds with real clients and the embedded broker."""

from __future__ import annotations

import pytest

from benchmarks.pages.plan import Plan
from benchmarks.questions import latency
from benchmarks.questions.latency import contenders, measured, percentile, waits_of
from kbatch.bench.cluster import embedded

pytestmark = pytest.mark.slow

RECORDS = 20


@pytest.mark.parametrize(("percent", "expected"), [(0, 1), (50, 51), (99, 100)])
def test_percentiles_are_those_of_sorted_delays(percent: int, expected: int) -> None:
    assert percentile([*range(100, 0, -1)], percent) == expected


def test_contenders_have_microseconds_of_every_round() -> None:
    answers = {"a": [{"from_due_ns": [1000, 3000]}, {"from_due_ns": [5000]}], "b": [{"from_due_ns": [2000]}]}
    found = contenders(answers, "from_due_ns")
    assert [(each.name, each.timings) for each in found] == [
        ("a, p50", [3.0, 5.0]),
        ("a, p99", [3.0, 5.0]),
        ("b, p50", [2.0]),
        ("b, p99", [2.0]),
    ]


def test_waits_are_those_of_a_record_over_all_rounds() -> None:
    round_ = {"waits": {"rounds": 30, "sleeps": 20, "waits": 5, "waited_ns": 10_000_000}}
    text = waits_of([round_, round_], 20)
    assert "3.0 rounds, sleeps 2.0 times, and waits for the GIL 0.50 times" in text
    assert text.endswith("2.0 ms each")


def test_measured_rounds_have_the_delay_of_every_record() -> None:
    """The first round, which warms up, is not among them."""
    answers = measured(Plan(embedded, rounds=2), ["kbatch"], RECORDS, 1000, computing=False)
    assert {name: len(rounds) for name, rounds in answers.items()} == {"kbatch": 2}
    for answer in answers["kbatch"]:
        assert len(answer["from_sent_ns"]) == len(answer["from_due_ns"]) == RECORDS
        assert min(answer["from_sent_ns"]) > 0


def test_groups_ask_their_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "QUIET_CONTESTANTS", ("kbatch",))
    monkeypatch.setattr(latency, "BUSY_CONTESTANTS", ("kbatch",))
    monkeypatch.setattr(latency, "QUIET_RECORDS", RECORDS)
    monkeypatch.setattr(latency, "BUSY_RECORDS", RECORDS)
    plan = Plan(embedded, rounds=1)
    (quiet,), (busy,) = latency.quiet(plan), latency.busy(plan)
    for question in (quiet, busy):
        assert [each.name for each in question.contenders] == ["kbatch, p50", "kbatch, p99"]
        assert f"{RECORDS} records a round at " in question.limit
    assert busy.contenders[0].note.startswith("for each record the sender has ")
