"""A producer's requests about groups and committed offsets, on the embedded broker with both versions."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch import OffsetAndMetadata, Producer, TopicPartition
from kbatch.errors import (
    GroupAuthorizationError,
    IllegalStateError,
    KafkaTimeoutError,
    ProducerClosedError,
)
from kbatch.testing import Broker
from tests.support.patience import HANG_SECONDS, until
from tests.support.producing import EITHER_VERSION, TOPIC, producing, requests_seen, transactional, within

pytestmark = EITHER_VERSION

GROUP = "markers"
PLACE = TopicPartition(TOPIC, 0)
OTHER = TopicPartition(TOPIC, 1)
TOPICS, NODES = {TOPIC: 2}, 2


def asking(broker: Broker, **keys: Any) -> Any:
    return producing(broker, **({"enable_idempotence": False, "retry_backoff_ms": 1} | keys))


def commit(producer: Producer, offset: int, group: str = GROUP) -> None:
    with producer.transaction():
        producer.send_offsets_to_transaction({PLACE: OffsetAndMetadata(offset, f"text {offset}")}, group)


def test_offsets_come_back_with_their_metadata(broker: Broker) -> None:
    with transactional(broker) as writer, asking(broker) as client:
        assert client.committed_offsets(GROUP, [PLACE]) == {}
        writer.init_transactions()
        commit(writer, 7)
        for producer in (writer, client):
            found = producer.committed_offsets(GROUP, [PLACE, OTHER])
            assert found == {PLACE: OffsetAndMetadata(7, "text 7")}
        commit(writer, 8)
        assert client.committed_offsets(GROUP, [PLACE]) == {PLACE: OffsetAndMetadata(8, "text 8")}


def test_open_transactions_are_waited_for(broker: Broker) -> None:
    with transactional(broker) as writer, asking(broker) as client:
        writer.init_transactions()
        commit(writer, 1)
        writer.begin_transaction()
        writer.send_offsets_to_transaction({PLACE: OffsetAndMetadata(2, "open")}, GROUP)
        with pytest.raises(KafkaTimeoutError, match=r"committed_offsets of .* timed out .* transaction"):
            client.committed_offsets(GROUP, [PLACE], timeout=0.05)
        asked = requests_seen(broker, "OffsetFetch")
        answer = within(lambda: client.committed_offsets(GROUP, [PLACE]))
        for _ in range(2):
            asked.get(timeout=HANG_SECONDS)
        assert not answer.done()
        writer.commit_transaction()
        assert answer.result(HANG_SECONDS) == {PLACE: OffsetAndMetadata(2, "open")}


def test_groups_of_all_nodes_are_named(broker: Broker) -> None:
    names = [f"group-{number}" for number in range(20)]
    with transactional(broker) as writer, asking(broker) as client:
        writer.init_transactions()
        for name in names:
            commit(writer, 1, name)
        assert client.group_ids() == sorted(names)


def test_connecting_node_causes_no_back_off(broker: Broker) -> None:
    hour_ms = 3_600_000
    with asking(broker, retry_backoff_ms=hour_ms, retry_backoff_max_ms=hour_ms) as client:
        assert client.group_ids(timeout=HANG_SECONDS) == []
    with asking(broker, retry_backoff_ms=hour_ms, retry_backoff_max_ms=hour_ms) as client:
        for group in ("a", "b", "c"):  # their coordinators are not all the node that was used to find them
            assert client.committed_offsets(group, [PLACE], timeout=HANG_SECONDS) == {}


@pytest.mark.parametrize("api", ["FindCoordinator", "OffsetFetch", "ListGroups"])
@pytest.mark.parametrize("fault", ["COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "before", "after"])
def test_what_passes_is_tried_again(broker: Broker, api: str, fault: str) -> None:
    if fault in ("before", "after"):
        broker.drop_connection(api, when=fault, times=2)
    else:
        broker.fail_next(api, error=fault, times=2)
    with asking(broker, reconnect_backoff_ms=1) as client:
        assert client.committed_offsets(GROUP, [PLACE]) == {}
        assert client.group_ids() == []


def test_what_is_refused_is_raised(broker: Broker) -> None:
    broker.acls.group_read = frozenset()
    with asking(broker) as client:
        with pytest.raises(GroupAuthorizationError, match=f"FindCoordinator for group {GROUP}"):
            client.committed_offsets(GROUP, [PLACE])
        broker.acls.group_read = None
        assert client.committed_offsets(GROUP, [PLACE]) == {}


def test_wrong_arguments_and_a_closed_producer(broker: Broker) -> None:
    with asking(broker) as client, pytest.raises(ValueError, match="group_id must not be empty"):
        client.committed_offsets("", [PLACE])
    for wrong in (["topic"], [("topic", "0")], [("topic", 2**31)], [(None, 0)]):
        with asking(broker) as client, pytest.raises((TypeError, ValueError), match=r"partition|topic"):
            client.committed_offsets(GROUP, wrong)
    for call in (client.group_ids, lambda: client.committed_offsets(GROUP, [PLACE])):
        with pytest.raises((ProducerClosedError, IllegalStateError)):
            call()


def test_closing_ends_the_wait(broker: Broker) -> None:
    broker.delay("OffsetFetch", 3600)
    with asking(broker) as client:
        asked = requests_seen(broker, "OffsetFetch")
        answer = within(lambda: client.committed_offsets(GROUP, [PLACE], timeout=600))
        asked.get(timeout=HANG_SECONDS)
        client.close(timeout=0)
        until(answer.done)
        assert isinstance(answer.exception(), ProducerClosedError)
