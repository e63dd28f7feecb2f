"""Times of administrators' calls, as Kafka's timestamps and back."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from kbatch.core.admin.results import EPOCH, time_of, timestamp_of

TIMESTAMPS = st.integers(0, 4_102_444_800_000)


@given(TIMESTAMPS)
def test_a_timestamp_is_its_own_time(timestamp_ms: int) -> None:
    time = time_of(timestamp_ms)
    assert time is not None
    assert timestamp_of(time) == timestamp_ms


@given(TIMESTAMPS, st.integers(1, 999))
def test_fractions_of_a_millisecond_are_rounded_up(timestamp_ms: int, microseconds: int) -> None:
    time = EPOCH + timedelta(milliseconds=timestamp_ms, microseconds=microseconds)
    assert timestamp_of(time) == timestamp_ms + 1


def test_times_before_the_epoch_are_its_beginning() -> None:
    assert timestamp_of(EPOCH - timedelta(days=1)) == 0
