"""ExponentialBackoff: waits that double up to a limit, with jitter."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch.core.client.backoff import NS_PER_MS, ExponentialBackoff


class Fixed(random.Random):
    """Chance that always says the same: how far between the ends, 0 to 1."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def random(self) -> float:
        return self.share


def delays_ms(initial_ms: int, max_ms: int, share: float = 0.5) -> list[float]:
    backoff = ExponentialBackoff(initial_ms, max_ms, Fixed(share))
    return [backoff.delay_ns(attempts) / NS_PER_MS for attempts in range(5)]


def test_D10_waits_double_up_to_the_limit() -> None:
    assert delays_ms(100, 400) == pytest.approx([100, 200, 400, 400, 400])


def test_D10_waits_vary_by_a_fifth_within_the_limit() -> None:
    assert delays_ms(50, 1000, 0.0) == pytest.approx([40, 80, 160, 320, 640])
    assert delays_ms(50, 1000, 1.0) == pytest.approx([60, 120, 240, 480, 960])
    assert delays_ms(100, 150, 1.0) == pytest.approx([120, 150, 150, 150, 150])


@pytest.mark.parametrize(("initial_ms", "max_ms", "wait_ms"), [(100, 100, 100), (500, 100, 100), (0, 0, 0)])
def test_a_wait_that_cannot_grow_is_constant(initial_ms: int, max_ms: int, wait_ms: int) -> None:
    assert delays_ms(initial_ms, max_ms, 1.0) == [wait_ms] * 5


@given(st.integers(0, 10**6), st.integers(0, 10**7), st.integers(0, 2**40), st.integers())
def test_waits_are_whole_and_within_the_limit(initial_ms: int, max_ms: int, attempts: int, seed: int) -> None:
    delay_ns = ExponentialBackoff(initial_ms, max_ms, random.Random(seed)).delay_ns(attempts)
    assert isinstance(delay_ns, int)
    assert 0 <= delay_ns <= max_ms * NS_PER_MS
