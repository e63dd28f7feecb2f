"""A capture of the log that has the lines of clients' threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kbatch import logs
from tests.support.patience import HANG_SECONDS


class WholeLog(pytest.LogCaptureFixture):  # type: ignore[misc]  # final, for types alone
    """pytest's `caplog`, which waits for lines that clients' threads have handed over."""

    @property
    def handler(self):  # type: ignore[no-untyped-def]
        """All that reads the log goes through it."""
        logs.flush(HANG_SECONDS)
        return super().handler

    @contextmanager
    def at_level(self, level: int | str, logger: str | None = None) -> Iterator[None]:
        with super().at_level(level, logger):
            try:
                yield
            finally:
                logs.flush(HANG_SECONDS)
