"""Cluster: which metadata is requested and when, and which responses are believed."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable
from typing import Any

import pytest

from kbatch._native.codec.hashes import MAX_PARTITIONS
from kbatch.config import ClientConfig, ProducerConfig
from kbatch.core.client.backoff import NEVER_NS, ExponentialBackoff
from kbatch.core.client.cluster import GIVING_UP, Cluster, Node, TopicUse
from kbatch.errors import ErrorCode, InvalidTopicError, KafkaError, NetworkError, UnknownTopicOrPartitionError
from kbatch.protocol import codec, messages

MS = 1_000_000
SECOND = 1000 * MS
ID = bytes(range(16))
OTHER_ID = bytes(range(16, 32))
NODES = {node_id: Node(node_id, f"host{node_id}", 9092, None) for node_id in (1, 2)}
_Response = messages.MetadataResponse


def cluster(now_ns: int = 0, **settings: Any) -> Cluster:
    config = ProducerConfig(bootstrap_servers="a:9092", **settings)
    topic_use = TopicUse(config.metadata_max_idle_ms, config.max_block_ms, "DESCRIBE and WRITE", creates=True)
    return Cluster(config, _backoff(config), now_ns, topic_use)


def _backoff(config: ClientConfig) -> ExponentialBackoff:
    return ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random.Random(1))


def topic(
    name: str,
    partitions: Iterable[tuple[int, int] | tuple[int, int, int]] = (),
    *,
    topic_id: bytes = ID,
    error: int = 0,
) -> Any:
    """Return a topic of a broker's response: for each partition its leader, epoch, and error code if any."""
    return _Response.MetadataResponseTopic(
        error_code=error,
        name=name,
        topic_id=topic_id,
        partitions=[
            _Response.MetadataResponsePartition(
                partition_index=index, leader_id=leader, leader_epoch=epoch, error_code=sum(code)
            )
            for index, (leader, epoch, *code) in enumerate(partitions)
        ],
    )


def answer(
    *topics: Any, nodes: Iterable[Node] = NODES.values(), error: int = 0, cluster_id: str = "c"
) -> Any:
    """Return a response as it comes off the wire."""
    message = _Response(
        brokers=[
            _Response.MetadataResponseBroker(node_id=node.node_id, host=node.host, port=node.port)
            for node in nodes
        ],
        cluster_id=cluster_id,
        controller_id=1,
        topics=list(topics),
        error_code=error,
    )
    return codec.decode(_Response, 13, b"".join(codec.encode(message, 13)))


def names(request: Any) -> list[str]:
    return sorted(each.name for each in request.topics)


def update(known: Cluster, now_ns: int, *topics: Any, **rest: Any) -> list[str]:
    """Answer a request that must be due; return the requested topics."""
    assert known.update_delay_ns(now_ns) == 0
    asked = names(known.make_request())
    known.handle_response(answer(*topics, **rest), now_ns)
    return asked


def knowing(*topics: Any, **settings: Any) -> Cluster:
    """Make a cluster that requested these topics at 0, and knows them."""
    known = cluster(**settings)
    for each in topics:
        known.want(each.name, 0)
    update(known, 0, *topics)
    return known


def leaders(known: Cluster, name: str = "t") -> list[tuple[int, int]]:
    return [(each.leader, each.leader_epoch) for each in known.snapshot.topics[name].partitions]


# When


def test_N05_nodes_are_requested_from_the_start() -> None:
    known = cluster(now_ns=5)
    assert known.update_delay_ns(5) == 0
    request = known.make_request()
    assert request.topics == []
    assert request.allow_auto_topic_creation
    assert known.update_delay_ns(5) == NEVER_NS  # one at a time
    known.handle_response(answer(), 7)
    assert known.snapshot.nodes == NODES
    assert known.snapshot.cluster_id == "c"
    assert known.snapshot.controller_id == 1
    assert known.snapshot.updated_ns == 7


def test_N05_new_topic_is_requested_at_once_and_alone() -> None:
    known = knowing(topic("t", [(1, 0)]))
    assert known.update_delay_ns(1) > 50 * MS
    known.want("u", 1)
    assert update(known, 1, topic("u", [(2, 0), (1, 4)])) == ["u"]
    assert leaders(known, "t") == [(1, 0)]  # a partial answer leaves the others alone
    assert leaders(known, "u") == [(2, 0), (1, 4)]
    assert known.snapshot.leader("u", 1) == (1, 4)
    assert known.snapshot.leader("u", 2) == known.snapshot.leader("v", 0) == (-1, -1)


def test_N05_topic_wanted_during_a_request_is_requested_next() -> None:
    known = cluster()
    known.make_request()
    known.want("t", 1)
    known.handle_response(answer(), 2)
    assert update(known, 2, topic("t", [(1, 0)])) == ["t"]
    assert known.update_delay_ns(3) > 0


def test_N05_metadata_are_refreshed_at_their_maximum_age() -> None:
    known = knowing(topic("t", [(1, 0)]), metadata_max_age_ms=10_000)
    assert known.update_delay_ns(SECOND) == 9 * SECOND
    known.want("u", SECOND)
    update(known, SECOND, topic("u", [(1, 0)]))  # a partial answer does not make the rest younger
    assert known.update_delay_ns(2 * SECOND) == 8 * SECOND
    assert update(known, 10 * SECOND, topic("t", [(1, 0)]), topic("u", [(1, 0)])) == ["t", "u"]
    assert known.update_delay_ns(11 * SECOND) == 9 * SECOND


def test_N05_equivalent_answers_back_off_and_news_start_anew() -> None:
    known = knowing(topic("t", [(1, 0)]))
    now_ns, pauses = 0, []
    for _ in range(6):
        known.request_update(now_ns)
        pause_ns = known.update_delay_ns(now_ns)
        pauses.append(pause_ns / MS)
        now_ns += pause_ns
        update(known, now_ns, topic("t", [(1, 0)]))
    for pause, expected in zip(pauses, (100, 100, 200, 400, 800, 1000), strict=True):
        assert 0.8 * expected <= pause <= min(1.2 * expected, 1000)
    known.request_update(now_ns)
    now_ns += known.update_delay_ns(now_ns)
    update(known, now_ns, topic("t", [(2, 1)]))
    known.request_update(now_ns)
    assert known.update_delay_ns(now_ns) <= 120 * MS


def test_N05_overdue_updates_do_not_count_as_equivalent() -> None:
    known = knowing(metadata_max_age_ms=10_000)
    for number in range(1, 6):
        update(known, 10 * number * SECOND)
    known.request_update(50 * SECOND)
    assert known.update_delay_ns(50 * SECOND) <= 120 * MS


def test_N05_failures_back_off_and_are_retried() -> None:
    known = cluster()
    known.want("t", 0)
    now_ns = 0
    for expected in (100, 200, 400, 800, 1000, 1000):
        assert known.update_delay_ns(now_ns) == 0
        known.make_request()
        error = NetworkError()
        known.handle_failure(error, now_ns)
        assert known.last_error is error
        pause_ns = known.update_delay_ns(now_ns)
        assert 0.8 * expected * MS <= pause_ns <= min(1.2 * expected, 1000) * MS
        now_ns += pause_ns
    assert update(known, now_ns, topic("t", [(1, 0)])) == ["t"]
    assert known.last_error is None
    assert known.update_delay_ns(now_ns) > 100 * SECOND


def test_N05_update_requested_during_a_request_is_kept() -> None:
    known = knowing()
    known.request_update(SECOND)
    known.make_request()
    known.request_update(SECOND + 1)  # the request may have been answered before what hints at a change
    known.handle_response(answer(), SECOND + 2)
    assert known.update_delay_ns(SECOND + 2) <= 120 * MS


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (answer(nodes=()), ErrorCode.BROKER_NOT_AVAILABLE),
        (answer(error=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
def test_an_answer_without_brokers_or_with_an_error_is_a_failure(response: Any, expected: ErrorCode) -> None:
    known = knowing(topic("t", [(1, 0)]))
    before = known.snapshot
    known.request_update(SECOND)
    known.make_request()
    known.handle_response(response, SECOND)
    assert known.snapshot is before
    assert known.last_error is not None
    assert known.last_error.code == expected
    assert 0 < known.update_delay_ns(SECOND) <= 120 * MS


@pytest.mark.parametrize("index", [-1, MAX_PARTITIONS, 2**31 - 1])
def test_response_with_impossible_partition_fails_cheaply(index: int) -> None:
    known = cluster()
    known.want("t", 0)
    known.make_request()
    bad = topic("t", [(1, 0)])
    bad.partitions[0].partition_index = index
    known.handle_response(answer(bad), 0)
    assert known.last_error is not None
    assert "t" not in known.snapshot.topics


# Which topics


def test_D18_an_idle_topic_leaves_and_comes_back_when_it_is_used() -> None:
    known = knowing(topic("t", [(1, 0)]), topic("u", [(1, 0)]), metadata_max_idle_ms=5000)
    known.want("u", 4 * SECOND)
    known.request_update(5 * SECOND)
    update(known, 5 * SECOND, topic("t", [(1, 0)]), topic("u", [(1, 0)]))
    assert set(known.snapshot.topics) == {"u"}
    assert known.snapshot.partition_count("t") == 0
    known.want("t", 6 * SECOND)
    assert update(known, 6 * SECOND, topic("t", [(2, 7)])) == ["t"]
    assert leaders(known) == [(2, 7)]


def test_unwanted_topics_of_a_response_are_ignored() -> None:
    known = knowing(topic("t", [(1, 0)]))
    known.request_update(SECOND)
    update(known, SECOND, topic("t", [(1, 0)]), topic("x", [(1, 0)]))
    assert set(known.snapshot.topics) == {"t"}


def test_a_snapshot_says_which_topics_have_changed_since_an_earlier_one() -> None:
    known = knowing(topic("t", [(1, 0)]), topic("u", [(1, 0)]), metadata_max_idle_ms=5000)
    first = known.snapshot
    assert set(first.changed_since(first)) == set()
    known.want("v", 1)
    update(known, 1, topic("v", [(2, 0)]))
    second = known.snapshot
    assert set(second.changed_since(first)) == {"v"}
    assert known.update_leader("t", 0, 2, 1, [])
    assert set(known.snapshot.changed_since(second)) == {"t"}
    assert set(known.snapshot.changed_since(first)) == {"t", "v"}
    known.want("t", 4 * SECOND)
    known.want("v", 4 * SECOND)
    known.request_update(5 * SECOND)
    fourth = known.snapshot
    update(known, 5 * SECOND, topic("t", [(2, 1)]), topic("u", [(1, 0)]), topic("v", [(2, 0)]))
    assert "u" in known.snapshot.changed_since(fourth)  # it is not used any more
    before = known.snapshot
    known.rebootstrap(6 * SECOND)  # no node leads anything
    assert set(known.snapshot.changed_since(before)) == {"t", "v"}


# Errors of topics


@pytest.mark.parametrize("code", [17, 29])
def test_N01_refused_topic_fails_at_once_and_is_retried_later(code: int) -> None:
    known = cluster()
    known.want("t", 0)
    update(known, 0, topic("t", error=code))
    error = known.topic_error("t")
    assert error is not None
    assert error.code == code
    assert "'t'" in str(error)
    assert "t" not in known.snapshot.topics
    assert known.update_delay_ns(0) == 5 * SECOND
    assert update(known, 5 * SECOND, topic("t", [(1, 0)])) == ["t"]
    assert known.topic_error("t") is None


def test_each_caller_gets_its_own_invalid_topic_exception() -> None:
    known = cluster()
    known.want("t t", 0)
    update(known, 0, topic("t t", error=17))
    first, second = known.topic_error("t t"), known.topic_error("t t")
    assert isinstance(first, InvalidTopicError)
    assert first is not second


def test_unknown_topic_is_awaited_then_remembered_briefly() -> None:
    known = cluster(max_block_ms=10_000)
    known.want("t", 0)
    now_ns = 0
    while known.topic_error("t") is None:
        assert update(known, now_ns, topic("t", error=3)) == ["t"]
        pause_ns = known.update_delay_ns(now_ns)
        if known.topic_error("t") is None:
            assert 0 < pause_ns <= SECOND
        now_ns += pause_ns
    assert 10 * SECOND <= now_ns - 5 * SECOND <= 12 * SECOND
    assert isinstance(known.topic_error("t"), UnknownTopicOrPartitionError)
    assert pause_ns == 5 * SECOND
    update(known, now_ns, topic("t", [(1, 0)]))
    assert known.topic_error("t") is None
    assert leaders(known) == [(1, 0)]


def test_error_of_a_topic_that_a_broker_names_is_forgotten() -> None:
    """A group's coordinator assigns it by an id, whose name a broker knows."""
    known = cluster(max_block_ms=0)
    known.want("t", 0)
    update(known, 0, topic("t", error=3))
    assert known.topic_error("t") is not None and known.update_delay_ns(SECOND) > SECOND
    known.note_named("t", SECOND)
    assert known.topic_error("t") is None and known.update_delay_ns(SECOND) == 0
    assert update(known, SECOND, topic("t", [(1, 0)])) == ["t"]
    assert leaders(known) == [(1, 0)]


def test_vanished_topic_keeps_leaderless_partitions_for_a_while() -> None:
    known = knowing(topic("t", [(1, 3), (2, 4)]), max_block_ms=10_000)
    known.request_update(SECOND)
    update(known, SECOND, topic("t", error=3))
    assert leaders(known) == [(-1, 3), (-1, 4)]
    assert known.snapshot.topics["t"].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert known.topic_error("t") is None
    now_ns = SECOND + known.update_delay_ns(SECOND)
    assert update(known, now_ns, topic("t", [(1, 2), (2, 4)])) == ["t"]
    assert leaders(known) == [(-1, 3), (2, 4)]  # the epoch that was known still counts
    known.request_update(12 * SECOND)
    update(known, 12 * SECOND, topic("t", error=3))
    assert known.topic_error("t") is None  # the time starts again
    now_ns = 22 * SECOND + known.update_delay_ns(22 * SECOND)
    update(known, now_ns, topic("t", error=3))
    assert "t" not in known.snapshot.topics
    assert isinstance(known.topic_error("t"), UnknownTopicOrPartitionError)


def test_leaderless_partition_refreshes_its_topic_alone() -> None:
    known = cluster()
    known.want("t", 0)
    known.want("u", 0)
    update(known, 0, topic("t", [(1, 0), (-1, 2, 5)]), topic("u", [(1, 0)]))
    assert leaders(known) == [(1, 0), (-1, 2)]
    assert known.snapshot.topics["t"].partitions[1].error == ErrorCode.LEADER_NOT_AVAILABLE
    now_ns = known.update_delay_ns(0)
    assert now_ns <= 120 * MS
    assert update(known, now_ns, topic("t", [(1, 0), (2, 3)])) == ["t"]
    assert leaders(known) == [(1, 0), (2, 3)]
    assert known.update_delay_ns(now_ns) > 100 * SECOND


def test_a_leader_that_is_no_known_node_is_none() -> None:
    known = knowing(topic("t", [(1, 0), (9, 0)]))
    assert leaders(known) == [(1, 0), (-1, 0)]


# Epochs and ids


@pytest.mark.parametrize("topic_id", [ID, bytes(16)])
def test_N05_an_older_leader_epoch_is_not_believed(topic_id: bytes) -> None:
    known = knowing(topic("t", [(1, 5), (1, 5), (1, 5)]))
    known.request_update(SECOND)
    update(known, SECOND, topic("t", [(2, 4), (2, 5), (2, 6)], topic_id=topic_id))
    assert leaders(known) == [(1, 5), (2, 5), (2, 6)]


def lower(known: Cluster, count: int, topic_id: bytes = ID, **rest: Any) -> list[tuple[int, int]]:
    """Take so many answers that name node 2 with epoch 0, and return the leaders."""
    for _ in range(count):
        now_ns = known.snapshot.updated_ns + 2 * SECOND
        known.request_update(now_ns)
        update(known, now_ns, topic("t", [(2, 0)], topic_id=topic_id), **rest)
    return leaders(known)


@pytest.mark.parametrize("topic_id", [ID, bytes(16)])
@pytest.mark.parametrize("epoch", [1, 5, 2**31 - 1])
def test_an_epoch_is_given_up_if_its_leader_refuses(epoch: int, topic_id: bytes) -> None:
    """As franz-go does; a broker that lags is not believed before."""
    known = knowing(topic("t", [(1, epoch)], topic_id=topic_id))
    assert lower(known, 20, topic_id) == [(1, epoch)]
    known.doubt_leader("t", 0, known.snapshot.updated_ns)
    assert lower(known, GIVING_UP - 1, topic_id) == [(1, epoch)]
    assert lower(known, 1, topic_id) == [(2, 0)]
    assert known.given_up == 1


def test_an_epoch_is_given_up_if_its_leader_has_left() -> None:
    known = knowing(topic("t", [(1, 5)]))
    assert lower(known, GIVING_UP - 1, nodes=[NODES[2]]) == [(-1, 5)]
    assert lower(known, 1, nodes=[NODES[2]]) == [(2, 0)]


@pytest.mark.parametrize("way", ["metadata", "produce"])
def test_a_confirmed_leader_is_not_doubted_any_more(way: str) -> None:
    known = knowing(topic("t", [(1, 5)]))
    known.doubt_leader("t", 0, SECOND)
    lower(known, GIVING_UP - 1)
    if way == "metadata":
        known.request_update(50 * SECOND)
        update(known, 50 * SECOND, topic("t", [(1, 6)]))
    else:
        assert known.update_leader("t", 0, 1, 6, [])
    assert lower(known, 20) == [(1, 6)]


def test_leader_epochs_below_version_9_are_not_believed() -> None:
    """Java, librdkafka: they were not reliable (Kafka 2.1 to 2.3, Redpanda before 25.3)."""
    known = cluster()
    known.want("t", 0)
    for now_ns, led in enumerate([(1, 20), (2, 0), (1, 3)]):
        known.request_update(now_ns * SECOND)
        known.make_request()
        known.handle_response(answer(topic("t", [led])), now_ns * SECOND, has_epochs=False)
        assert leaders(known) == [(led[0], -1)]


def test_topic_without_id_that_was_unknown_resets_epochs() -> None:
    known = knowing(topic("t", [(1, 5), (1, 5)], topic_id=bytes(16)))
    known.request_update(SECOND)
    update(known, SECOND, topic("t", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    update(known, 2 * SECOND, topic("t", [(2, 0)], topic_id=bytes(16)))
    assert leaders(known) == [(2, 0)]


def test_topic_with_id_that_was_unknown_keeps_epochs() -> None:
    """A broker that lags does not know it yet, and another sends what is older."""
    known = knowing(topic("t", [(1, 5)]))
    known.request_update(SECOND)
    update(known, SECOND, topic("t", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    update(known, 2 * SECOND, topic("t", [(2, 4)]))
    assert leaders(known) == [(-1, 5)]


@pytest.mark.parametrize("topic_id", [ID, OTHER_ID, bytes(16)])
def test_another_cluster_resets_epochs(topic_id: bytes) -> None:
    known = knowing(topic("t", [(1, 5)]), topic("u", [(1, 5)]))
    known.request_update(SECOND)
    update(known, SECOND, topic("t", [(2, 0)], topic_id=topic_id), cluster_id="other")
    assert leaders(known) == [(2, 0)]
    assert leaders(known, "u") == [(-1, -1)]
    assert known.update_delay_ns(2 * SECOND) == 0  # for the others


def shrunk(topic_id: bytes) -> Cluster:
    known = knowing(topic("t", [(1, 5), (1, 5)], topic_id=ID if any(topic_id) else topic_id))
    known.request_update(SECOND)
    update(known, SECOND, topic("t", [(1, 0)], topic_id=topic_id))
    return known


@pytest.mark.parametrize("topic_id", [OTHER_ID, bytes(16)])
def test_partitions_are_lost_when_two_answers_say_so(topic_id: bytes) -> None:
    known = shrunk(topic_id)
    assert not known.lacks("t", 1, 100 * SECOND)  # one answer
    known.request_update(SECOND + MS)
    known.make_request()
    known.handle_response(answer(topic("t", [(1, 0)], topic_id=topic_id)), SECOND + MS)
    assert not known.lacks("t", 1, SECOND + MS)  # at once
    assert known.lacks("t", 1, 2 * SECOND)
    assert not known.lacks("t", 0, 2 * SECOND)


def test_a_broker_that_lags_takes_no_partitions_away() -> None:
    known = shrunk(OTHER_ID)
    for now_ns, topic_id, count in ((3, ID, 2), (4, OTHER_ID, 1), (5, ID, 2), (6, OTHER_ID, 1)):
        known.request_update(now_ns * SECOND)
        update(known, now_ns * SECOND, topic("t", [(1, 5)] * count, topic_id=topic_id))
        assert not known.lacks("t", 1, now_ns * SECOND)


def test_an_id_that_was_replaced_is_believed_again_after_some_answers() -> None:
    """A broker with old metadata names the topic of before for a while; or it was the first to be asked."""
    known = knowing(topic("t", [(1, 5)]))
    ids = []
    for second, topic_id in enumerate((OTHER_ID, ID, ID, OTHER_ID, *[ID] * 6), start=1):
        now_ns = 2 * second * SECOND
        known.request_update(now_ns)
        update(known, now_ns, topic("t", [(2, 0)], topic_id=topic_id))
        ids.append(known.snapshot.topics["t"].topic_id)
    assert ids == [OTHER_ID] * 8 + [ID] * 2


def test_a_stale_answer_with_fewer_partitions_takes_none_away() -> None:
    known = knowing(topic("t", [(1, 5), (1, 5)]))
    for now_ns in (2, 4, 6):
        known.request_update(now_ns * SECOND)
        update(known, now_ns * SECOND, topic("t", [(1, 5)]))
        assert not known.lacks("t", 1, now_ns * SECOND)


def test_N05_recreated_topic_resets_epochs_and_partitions() -> None:
    known = knowing(topic("t", [(1, 5), (1, 5)]))
    known.request_update(SECOND)
    update(known, SECOND, topic("t", [(2, 0)], topic_id=OTHER_ID))
    assert leaders(known) == [(2, 0)]
    assert known.snapshot.topics["t"].topic_id == OTHER_ID


def test_response_with_fewer_partitions_is_stale() -> None:
    known = knowing(topic("t", [(1, 0), (2, 0)]))
    known.request_update(SECOND)
    update(known, SECOND, topic("t", [(1, 1)]))
    assert leaders(known) == [(1, 1), (2, 0)]


def test_partitions_are_indexed_by_number_in_any_order() -> None:
    shuffled = topic("t", [(1, 0), (2, 1), (1, 2)])
    shuffled.partitions.reverse()
    shuffled.partitions.pop(1)
    known = knowing(shuffled)
    assert leaders(known) == [(1, 0), (-1, -1), (1, 2)]
    assert known.snapshot.topics["t"].partitions[1].error == ErrorCode.LEADER_NOT_AVAILABLE


def test_an_old_broker_that_knows_no_epochs_is_believed() -> None:
    known = knowing(topic("t", [(1, -1)], topic_id=bytes(16)))
    known.request_update(SECOND)
    update(known, SECOND, topic("t", [(2, -1)], topic_id=bytes(16)))
    assert leaders(known) == [(2, -1)]


def test_leader_kept_for_its_epoch_is_none_without_its_node() -> None:
    known = knowing(topic("t", [(1, 5)]))
    known.request_update(SECOND)
    update(known, SECOND, topic("t", [(2, 4)]), nodes=[NODES[2]])
    assert leaders(known) == [(-1, 5)]


def test_node_missing_in_other_topics_response_leads_nothing() -> None:
    known = knowing(topic("t", [(1, 0), (2, 0)]))
    known.want("u", SECOND)
    assert update(known, SECOND, topic("u", [(2, 0)]), nodes=[NODES[2]]) == ["u"]
    assert [known.snapshot.leader("t", partition)[0] for partition in (0, 1)] == [-1, 2]
    known.request_update(2 * SECOND)
    update(known, 2 * SECOND, topic("t", [(1, 0), (2, 0)]), topic("u", [(2, 0)]))
    assert [known.snapshot.leader("t", partition)[0] for partition in (0, 1)] == [1, 2]


def test_client_says_how_it_uses_topics() -> None:
    config = ProducerConfig(bootstrap_servers="a:9092")
    known = Cluster(config, _backoff(config), 0, TopicUse(1000, 0, "DESCRIBE and READ", creates=False))
    known.want("t", 0)
    assert not known.make_request().allow_auto_topic_creation
    known.handle_response(answer(topic("t", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)), 0)
    assert "add the ACLs DESCRIBE and READ" in str(known.topic_error("t"))


# Snapshots


def test_snapshots_do_not_change_and_share_what_stays() -> None:
    known = knowing(topic("t", [(1, 0)]))
    before, version = known.snapshot, known.version
    assert before.leader("t", 0)[0] == 1
    known.request_update(SECOND)
    update(known, SECOND, topic("t", [(1, 0)]))
    same = known.snapshot
    assert known.version > version
    assert same.updated_ns == SECOND
    assert same.topics is before.topics
    assert same.nodes is before.nodes
    known.request_update(3 * SECOND)
    update(known, 3 * SECOND, topic("t", [(2, 1)]))
    assert before.topics["t"].partitions[0].leader == 1
    assert before.leader("t", 0)[0] == 1
    assert known.snapshot.leader("t", 0)[0] == 2
    with pytest.raises(TypeError):
        before.topics["t"] = before.topics["t"]  # type: ignore[index]


# KIP-951


def test_D12_newer_leader_of_produce_response_is_adopted() -> None:
    known = knowing(topic("t", [(1, 5), (1, 5)]))
    before, version = known.snapshot, known.version
    assert known.update_leader("t", 1, 3, 6, [Node(3, "host3", 9092, "r")])
    assert leaders(known) == [(1, 5), (3, 6)]
    assert known.snapshot.nodes[3].host == "host3"
    assert known.snapshot.leader("t", 1)[0] == 3
    assert known.version == version + 1
    assert before.topics["t"].partitions[1].leader == 1
    known.request_update(SECOND)
    update(known, SECOND, topic("t", [(1, 5), (1, 5)]))  # a broker that has not heard of it
    assert leaders(known) == [(1, 5), (-1, 6)]  # node 3 is not among that broker's


@pytest.mark.parametrize(
    ("name", "partition", "leader", "epoch"),
    [
        ("t", 0, 2, 5),
        ("t", 0, 2, 4),
        ("t", 0, 2, -1),
        ("t", 0, 9, 6),
        ("t", 1, 2, 6),
        ("t", -1, 2, 6),
        ("x", 0, 2, 6),
    ],
)
def test_D12_older_or_unknown_leader_changes_nothing(
    name: str, partition: int, leader: int, epoch: int
) -> None:
    known = knowing(topic("t", [(1, 5)]))
    before, version = known.snapshot, known.version
    assert not known.update_leader(name, partition, leader, epoch, [])
    assert known.snapshot is before
    assert known.version == version


# Starting over


def failing(known: Cluster, start_ns: int, end_ns: int) -> int:
    """Fail all requests from `start_ns` on; return when the next is due, at `end_ns` or later."""
    now_ns = start_ns
    while now_ns < end_ns:
        now_ns += known.update_delay_ns(now_ns)
        known.make_request()
        known.handle_failure(NetworkError(), now_ns)
    return now_ns


def test_N12_client_rebootstraps_after_the_trigger_time() -> None:
    known = knowing(topic("t", [(1, 5)]), metadata_recovery_rebootstrap_trigger_ms=10_000)
    start_ns = 20 * SECOND
    known.request_update(start_ns)
    assert not known.must_rebootstrap(start_ns, is_hopeful=lambda: False)
    failing(known, start_ns, start_ns + 9 * SECOND)
    assert not known.must_rebootstrap(start_ns + 10 * SECOND, is_hopeful=lambda: False)
    assert known.must_rebootstrap(start_ns + 10 * SECOND + 1, is_hopeful=lambda: False)
    known.rebootstrap(start_ns + 11 * SECOND)
    # the bootstrap servers have their own way
    assert not known.must_rebootstrap(start_ns + 30 * SECOND, is_hopeful=lambda: False)
    assert known.snapshot.nodes == {}
    assert leaders(known) == [(-1, 5)]
    assert update(known, start_ns + 11 * SECOND, topic("t", [(2, 5)])) == ["t"]
    assert leaders(known) == [(2, 5)]


def test_N12_response_restarts_the_rebootstrap_trigger() -> None:
    known = knowing(metadata_recovery_rebootstrap_trigger_ms=10_000)
    assert not known.must_rebootstrap(299 * SECOND, is_hopeful=lambda: False)
    now_ns = failing(known, 300 * SECOND, 306 * SECOND)
    now_ns += known.update_delay_ns(now_ns)
    update(known, now_ns)
    known.request_update(now_ns + SECOND)
    assert not known.must_rebootstrap(now_ns + 10 * SECOND, is_hopeful=lambda: False)
    assert known.must_rebootstrap(now_ns + 12 * SECOND, is_hopeful=lambda: False)


def test_N12_a_request_that_hangs_counts_too() -> None:
    known = knowing(metadata_recovery_rebootstrap_trigger_ms=10_000)
    known.request_update(SECOND)
    known.make_request()
    assert not known.must_rebootstrap(11 * SECOND, is_hopeful=lambda: False)
    assert known.must_rebootstrap(12 * SECOND, is_hopeful=lambda: False)


def test_N12_a_broker_may_say_so_itself() -> None:
    known = knowing(topic("t", [(1, 0)]))
    known.request_update(SECOND)
    known.make_request()
    known.handle_response(answer(error=129), SECOND)
    assert known.must_rebootstrap(SECOND, is_hopeful=lambda: False)
    assert leaders(known) == [(1, 0)]
    known.rebootstrap(SECOND)
    assert not known.must_rebootstrap(SECOND, is_hopeful=lambda: False)
    delay_ns = known.update_delay_ns(SECOND)  # as after any error: the next broker may say so again
    assert 80 * MS <= delay_ns <= 120 * MS
    assert known.update_delay_ns(SECOND + delay_ns) == 0


def test_N12_with_strategy_none_the_client_never_starts_over() -> None:
    known = knowing(metadata_recovery_strategy="none", metadata_recovery_rebootstrap_trigger_ms=1000)
    known.request_update(SECOND)
    known.make_request()
    known.handle_response(answer(error=129), SECOND)
    assert not known.must_rebootstrap(SECOND, is_hopeful=lambda: False)
    assert not known.must_rebootstrap(100 * SECOND, is_hopeful=lambda: False)
    assert isinstance(known.last_error, KafkaError)


@pytest.mark.parametrize(
    ("host", "known_as"),
    [
        ("a\r\nWARNING b", "a  WARNING b"),
        ("h" * 30_000, "h" * 255 + "..."),
        ("b-1.kafka", "b-1.kafka"),
        ("[::1]", "::1"),
        ("::1", "::1"),
    ],
)
def test_names_of_hosts_are_printable_and_bounded(host: str, known_as: str) -> None:
    known = knowing()
    known.request_update(SECOND)
    known.make_request()
    given = answer()
    given.brokers[0].host = host
    known.handle_response(given, SECOND)
    assert known_as in {node.host for node in known.snapshot.nodes.values()}


def test_partitions_without_leader_for_long_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    known = knowing(topic("t", [(1, 0), (2, 0)]))
    for second in range(100):
        known.request_update(second * SECOND)
        if known.is_due(second * SECOND):
            known.make_request()
            leaderless = topic("t", [(1, 0), (-1, 1, 5)]) if second < 60 else topic("t", [(1, 0), (2, 2)])
            known.handle_response(answer(leaderless), second * SECOND)
    assert [(each.levelname, each.message) for each in caplog.records] == [
        (
            "WARNING",
            "topic t: 1 of 2 partitions (1) have no leader, so they take and give no records; check that the "
            "brokers with their replicas run",
        ),
        ("INFO", "topic t: all partitions have leaders, after 49 s"),
    ]


def test_elections_are_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    known = knowing(topic("t", [(1, 0)]))
    for second in range(1, 20):
        known.request_update(second * SECOND)
        known.make_request()
        known.handle_response(answer(topic("t", [(1 if second % 2 else -1, second)])), second * SECOND)
    assert not caplog.records


@pytest.mark.parametrize("code", [0, 31, 77])
def test_unusable_metadata_are_a_warning_once(code: int, caplog: pytest.LogCaptureFixture) -> None:
    """A broker that knows no brokers, refuses, or answers with an unknown code."""
    caplog.set_level(logging.INFO)
    known = cluster()
    for second in range(60):
        known.request_update(second * SECOND)
        if known.is_due(second * SECOND):
            known.make_request()
            known.handle_response(
                answer(nodes=() if code == 0 else NODES.values(), error=code), second * SECOND
            )
    known.request_update(61 * SECOND)
    update(known, 62 * SECOND)
    first, last = caplog.records
    assert first.levelname == "WARNING"
    assert first.message.startswith("brokers send no usable metadata: ")
    assert (last.levelname, last.message) == ("INFO", "brokers send usable metadata again, after 62 s")


def test_replicas_are_known_and_outlive_a_new_leader() -> None:
    given = topic("t", [(1, 3), (2, 3)])
    given.partitions[0].replica_nodes = [1, 2]
    known = knowing(given)
    assert [each.replicas for each in known.snapshot.topics["t"].partitions] == [(1, 2), ()]
    known.update_leader("t", 0, 2, 4, NODES.values())
    assert known.snapshot.topics["t"].partitions[0] == (2, 4, ErrorCode.NONE, (1, 2), 0)


def test_topic_is_answered_although_it_may_still_appear() -> None:
    known = cluster()
    assert not known.is_answered("t")
    known.want("t", 0)
    assert not known.is_answered("t")
    update(known, 0, topic("t", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert known.is_answered("t")
    assert known.topic_error("t") is None
    assert knowing(topic("t", [(1, 3)])).is_answered("t")
