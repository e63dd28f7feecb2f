"""Fixtures that tests of several subjects share."""

from collections.abc import Iterator

import pytest

from kbatch.testing import Broker
from tests.support.producing import TOPIC


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker with the topics that the module names in TOPICS, or one."""
    topics = getattr(request.module, "TOPICS", {TOPIC: 1})
    with Broker(topics, auto_create_topics=False) as running:
        yield running
