"""Fixtures of tests that read."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.support.patience import until
from tests.support.running_threads import threads_named


def own_threads() -> list[threading.Thread]:
    """Return the threads of readers."""
    return threads_named("kbatch-reader", "kbatch-decoder", "kbatch-closer")


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    until(lambda: not own_threads())
