"""Sessions of 3 s (KIP-368): producers log in again while they send, and no record notices."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.integration.security.cells import CELLS
from tests.integration.security.conftest import settings_of
from tests.integration.security.site import OAUTHBEARER, TOPIC, Site
from tests.support.patience import HANG_SECONDS
from tests.support.shells import new_producer

pytestmark = [pytest.mark.java, pytest.mark.usefixtures("shell")]
CONNECTIONS = 2  # to bootstrap, and to the broker
# The first way in for each mechanism; here over the listener with short sessions.
OF_MECHANISM = {
    cell.java["sasl.mechanism"]: cell
    for cell in reversed(CELLS)
    if cell.java and "sasl.mechanism" in cell.java
}


def short_settings(site: Site, mechanism: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": site.address("SHORT"),
        "security.protocol": "SASL_SSL",
        **site.trust("SASL_SSL"),
        **settings_of(OF_MECHANISM[mechanism], "java", site),
    }


def total(producer: Any, name: str) -> float:
    """Return one of the producer's own metrics."""
    (value,) = (
        value
        for metric, value in producer.metrics().items()
        if (metric.name, metric.group) == (f"{name}-total", "producer-metrics")
    )
    return float(value)


@pytest.mark.parametrize("mechanism", sorted(OF_MECHANISM))
def test_every_mechanism_logs_in_again(site: Site, mechanism: str) -> None:
    topic = f"{TOPIC}.{mechanism}.{time.monotonic_ns()}"
    site.broker.create_topic(topic)
    deadline = time.monotonic() + HANG_SECONDS
    asked = len(site.tokens.calls)
    with new_producer(short_settings(site, mechanism)) as producer:
        while total(producer, "successful-reauthentication") < 1:
            producer.send(topic, b"within a session").result(HANG_SECONDS)
            assert time.monotonic() < deadline
        assert total(producer, "failed-reauthentication") == 0
        assert total(producer, "connection-creation") <= CONNECTIONS
    if mechanism == OAUTHBEARER:  # one login serves all connections, and sessions that are shorter than it
        assert len(site.tokens.calls) == asked + 1
