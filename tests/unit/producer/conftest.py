"""Fixtures that tests of producers share."""

from collections.abc import Iterator

import pytest

from kbatch import Producer
from kbatch.testing import Broker
from tests.support.producing import SECONDS_MS, producing


@pytest.fixture
def producer(broker: Broker) -> Iterator[Producer]:
    """Make a producer that waits for what is slow, and fails only if it hangs."""
    with producing(broker, max_block_ms=SECONDS_MS) as running:
        yield running
