"""When heartbeats are due."""

from __future__ import annotations

import pytest

from kbatch.core.consumer.heartbeats import HeartbeatClock
from tests.support.reading import MS


def test_R57_members_that_changed_together_keep_no_step() -> None:
    clock = HeartbeatClock(1_000 * MS)
    clock.note_change(0)
    assert clock.after(1_000 * MS, "a") == 1_200 * MS, "early, until 2,000"
    dues = {clock.after(1_900 * MS, f"member {number}") for number in range(1_000)}
    assert 2_100 * MS <= min(dues) < 2_120 * MS and 2_880 * MS < max(dues) <= 2_900 * MS
    assert clock.after(2_100 * MS, "a") == 3_100 * MS


@pytest.mark.parametrize("interval_ms", [-(2**31), -1, 0, 1, 99])
def test_coordinator_cannot_make_heartbeats_frequent(interval_ms: int) -> None:
    clock = HeartbeatClock()
    clock.set_interval(interval_ms)
    clock.note_change(0)
    assert clock.after(0, "a") == clock.after(1_000 * MS, "a") - 1_000 * MS == 100 * MS
