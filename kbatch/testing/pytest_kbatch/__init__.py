"""The pytest fixture `kafka_broker`, which comes with the package (entry point pytest11).

Every run of pytest in an environment with kbatch imports this module, so it is a top-level one: importing a
module of the package `kbatch` imports a client.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kbatch.testing import Broker


@pytest.fixture
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """An embedded Kafka broker (`kbatch.testing.Broker`), new for each test.

    The marker `kafka_broker(...)` takes the arguments of `Broker`:
    `@pytest.mark.kafka_broker(topics={"events": 4}, nodes=3)`.
    """
    from kbatch.testing import Broker

    marker = request.node.get_closest_marker("kafka_broker")
    with Broker(*marker.args, **marker.kwargs) if marker else Broker() as broker:
        yield broker


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "kafka_broker(...): arguments of the Broker of fixture kafka_broker")
