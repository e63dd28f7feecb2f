"""Fixtures of tests that read."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.support.patience import until


def own_threads() -> list[str]:
    """Return the names of the threads of readers."""
    names = [thread.name for thread in threading.enumerate()]
    return [each for each in names if each.startswith(("kbatch-reader", "kbatch-decoder", "kbatch-closer"))]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    until(lambda: not own_threads())
