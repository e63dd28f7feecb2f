"""Timers: deadlines in order, with timers set and cancelled meanwhile."""

from hypothesis import given
from hypothesis import strategies as st

from kbatch.testing.broker.timers import Timers


@given(
    deadlines=st.lists(st.integers(0, 20), max_size=12),
    cancelled=st.sets(st.integers(0, 11)),
    calls=st.lists(st.integers(0, 25), max_size=8).map(sorted),
)
def test_due_timers_run_once_in_order_unless_cancelled(
    deadlines: list[int], cancelled: set[int], calls: list[int]
) -> None:
    timers = Timers()
    ran: list[tuple[int, int, int]] = []

    def note(number: int, deadline_ms: int) -> None:
        timer = timers.call_at(deadline_ms, lambda now_ms: ran.append((deadline_ms, number, now_ms)))
        if number in cancelled:
            timer.cancel()

    for number, deadline_ms in enumerate(deadlines):
        note(number, deadline_ms)
    left = {(deadline, number) for number, deadline in enumerate(deadlines) if number not in cancelled}
    for now_ms in calls:
        assert timers.next_deadline_ms() == (min(left)[0] if left else None)
        ran.clear()
        timers.run(now_ms)
        due = sorted(each for each in left if each[0] <= now_ms)
        assert ran == [(*each, now_ms) for each in due]
        left -= set(due)


def test_action_may_set_and_cancel_timers() -> None:
    timers = Timers()
    ran = []
    doomed = timers.call_at(2, lambda now_ms: ran.append("doomed"))

    def first(now_ms: int) -> None:
        ran.append("first")
        doomed.cancel()
        timers.call_at(now_ms, lambda now_ms: ran.append("at once"))
        timers.call_at(now_ms + 1, lambda now_ms: ran.append("later"))

    timers.call_at(1, first)
    timers.run(5)
    assert ran == ["first", "at once"]
    assert timers.next_deadline_ms() == 6
