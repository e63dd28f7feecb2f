"""Fixtures that tests of the embedded broker share."""

import pytest

from tests.support.broker_core import VirtualBroker


@pytest.fixture
def broker() -> VirtualBroker:
    """Make a broker without sockets, in virtual time."""
    return VirtualBroker()
