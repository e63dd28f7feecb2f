"""The brokers that the integration tests talk to, one after the other."""

import pytest

from tests.support.effort import REAL


@pytest.fixture(scope="session", params=["embedded", REAL])
def target(request: pytest.FixtureRequest) -> str:
    """Return bootstrap servers of both brokers, one after the other."""
    if request.param == "embedded":
        return str(request.getfixturevalue("embedded_bootstrap_servers"))
    return str(request.getfixturevalue("real_kafka").bootstrap_servers)
