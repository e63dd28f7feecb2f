"""Fixtures that the tests of security share, besides the site."""

from __future__ import annotations

import logging
import re
from collections.abc import Generator
from typing import Any

import pytest

from kbatch.errors import KafkaTimeoutError
from tests.integration.security.cells import Cell
from tests.integration.security.site import TOPIC, Site, resolved
from tests.support.patience import until


@pytest.fixture(autouse=True)
def logged_in_full(caplog: pytest.LogCaptureFixture) -> None:
    """Log everything, so that a secret in any message is found."""
    caplog.set_level(logging.DEBUG, "kbatch")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Show what the broker printed beside a failure."""
    report = yield
    site = getattr(item, "funcargs", {}).get("site")
    if report.failed and isinstance(site, Site):
        report.sections.append(("the broker's output", site.broker.output()))
    return report


def settings_of(cell: Cell, column: str, site: Site) -> dict[str, Any]:
    """Return a column's settings; skips where the cell's service is missing."""
    if cell.needs_kdc and site.kdc is None:
        pytest.skip(site.kdc_missing)
    return resolved(getattr(cell, column), site)


def raises_in_time(producer: Any, match: str) -> None:
    """Sends raise KafkaTimeoutError after max.block.ms, which soon names the cause: a busy machine may need
    more than one of them for the first attempt.
    """

    def cause() -> str:
        with pytest.raises(KafkaTimeoutError) as raised:
            producer.send(TOPIC, b"never")
        return str(raised.value)

    until(lambda: re.search(match, cause()), match)
