"""LastingFaults: a fault is logged once, again after minutes, and when it is over."""

from __future__ import annotations

import logging

import pytest

from kbatch.core.client.lasting_faults import MAX_LINES, MAX_SUBJECTS, REMINDER_NS, LastingFaults
from kbatch.logs import ClientLogger

SECOND = 1_000_000_000
logger = logging.getLogger("kbatch.tests.faults")


@pytest.fixture
def faults(caplog: pytest.LogCaptureFixture) -> LastingFaults:
    caplog.set_level(logging.INFO, logger.name)
    return LastingFaults(ClientLogger(logger.name))


def test_fault_is_logged_once_again_after_minutes_and_at_its_end(
    faults: LastingFaults, caplog: pytest.LogCaptureFixture
) -> None:
    for second in range(400):
        faults.note("a", "a is broken", second * SECOND)
    assert faults.is_lasting("a")
    faults.end("a", "a works again", 400 * SECOND)
    faults.end("a", "a works again", 401 * SECOND)
    assert not faults.is_lasting("a")
    assert [(each.levelname, each.message) for each in caplog.records] == [
        ("WARNING", "a is broken"),
        ("WARNING", "a is broken (301 times in 5 min)"),
        ("INFO", "a works again, after 6 min"),
    ]


def test_end_of_a_fault_that_lasted_no_time_is_not_logged(
    faults: LastingFaults, caplog: pytest.LogCaptureFixture
) -> None:
    for lasted_ns in (SECOND - 1, SECOND):
        faults.note("a", "a is broken", 0)
        faults.end("a", "a works again", lasted_ns, least_ns=SECOND)
    assert [each.message for each in caplog.records] == [
        "a is broken",
        "a is broken",
        "a works again, after 1 s",
    ]


def test_another_text_is_logged_and_another_number_is_not(
    faults: LastingFaults, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(10):
        faults.note("a", f"a: answer {number} is wrong", number)
        faults.note("a", "a: refused", number, logging.ERROR)
        faults.note("b", "a: refused", number)
    assert [each.message for each in caplog.records] == ["a: answer 0 is wrong", "a: refused", "a: refused"]
    assert [each.levelname for each in caplog.records] == ["WARNING", "ERROR", "WARNING"]


def test_faults_that_come_and_go_are_bounded(faults: LastingFaults, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(100):
        faults.note("a", "a is broken", number)
        faults.end("a", "a works again", number)
    assert len(caplog.records) == 2 * MAX_LINES
    faults.note("a", "a is broken", REMINDER_NS)
    assert len(caplog.records) == 2 * MAX_LINES + 1


def test_texts_and_subjects_without_end_are_bounded(
    faults: LastingFaults, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(100):
        faults.note("a", "x" * number, number)
    assert len(caplog.records) == MAX_LINES
    for number in range(MAX_SUBJECTS):
        faults.note(number, "broken", number)
    assert not faults.is_lasting("a")
    assert faults.is_lasting(0)
