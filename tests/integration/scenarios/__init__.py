"""Scenarios: what a client can provoke in a broker, each a function of a `Wire` in `SCENARIOS`."""

from tests.integration.scenarios import (  # noqa: F401 - they register themselves
    admin,
    cluster,
    consumer_groups,
    groups,
    produced_batches,
    producer_state,
    quotas,
    reading,
    security,
    share_groups,
    transactions,
)
from tests.integration.scenarios.security import SECURED as SECURED
from tests.integration.scenarios.security import Doors as Doors
from tests.integration.scenarios.wire import SCENARIOS as SCENARIOS
from tests.integration.scenarios.wire import Wire as Wire
from tests.integration.scenarios.wire import differences as differences
