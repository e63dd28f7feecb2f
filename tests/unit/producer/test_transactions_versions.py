"""What happens to a producer when the cluster's transaction.version changes, on the embedded broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kbatch import Producer
from kbatch.testing import Broker
from tests.support.patience import HANG_SECONDS
from tests.support.producing import TOPIC, committed, requests_seen, sent, transactional

pytestmark = pytest.mark.usefixtures("shell")

# The highest version of Produce and EndTxn in a transaction, by its version.
PRODUCE = {1: 11, 2: 13}
END_TXN = {1: 4, 2: 5}


@pytest.fixture(params=[(1, 2), (2, 1)], ids=["upgraded", "downgraded"])
def change(request: pytest.FixtureRequest) -> tuple[int, int]:
    levels: tuple[int, int] = request.param
    return levels


@pytest.fixture
def broker(change: tuple[int, int]) -> Iterator[Broker]:
    with Broker({TOPIC: 1}, transaction_version=change[0]) as running:
        yield running


def test_T07_a_version_that_changes_while_idle_counts_for_the_next_transaction(
    broker: Broker, change: tuple[int, int]
) -> None:
    with transactional(broker, metadata_max_age_ms=10) as producer:
        producer.init_transactions()
        in_one(producer, "a")
        broker._call(lambda core: core.state.set_transaction_version(change[1]))
        learn(broker)
        since = len(broker.requests())
        in_one(producer, "b")
        in_one(producer, "c")
        asked = [each for each in broker.requests()[since:] if each.api not in ("Metadata", "ApiVersions")]
    versions = {api: {each.version for each in asked if each.api == api} for api in ("Produce", "EndTxn")}
    assert versions == {"Produce": {PRODUCE[change[1]]}, "EndTxn": {END_TXN[change[1]]}}
    assert [each.api for each in asked].count("InitProducerId") == (change[1] == 2)
    assert ("AddPartitionsToTxn" in [each.api for each in asked]) == (change[1] == 1)
    assert committed(broker) == [b"a", b"b", b"c"]


def in_one(producer: Producer, name: str) -> None:
    with producer.transaction():
        sent(producer, name)


def learn(broker: Broker) -> None:
    """Until the producer has asked twice, and so been answered once."""
    seen = requests_seen(broker, "ApiVersions")
    for _ in range(2):
        seen.get(timeout=HANG_SECONDS)
