"""Fixtures that tests of several subjects share."""

from collections.abc import Iterator
from typing import Any

import pytest

from kbatch.testing import Broker
from tests.support.producing import TOPIC


@pytest.fixture
def version(request: pytest.FixtureRequest) -> int | None:
    """Return the transaction version of the broker if EITHER_VERSION sets one."""
    level: int | None = getattr(request, "param", None)
    return level


@pytest.fixture
def broker(request: pytest.FixtureRequest, version: int | None) -> Iterator[Broker]:
    """Start a broker with the TOPICS and NODES that the module names; by default one topic on one node."""
    topics = getattr(request.module, "TOPICS", {TOPIC: 1})
    options: dict[str, Any] = {} if version is None else {"transaction_version": version}
    nodes = getattr(request.module, "NODES", 1)
    with Broker(topics, nodes=nodes, auto_create_topics=False, **options) as running:
        yield running
