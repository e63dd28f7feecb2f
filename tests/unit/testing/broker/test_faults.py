"""Faults of the embedded broker: the requested fault happens where Kafka has it, and nothing else."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.protocol.structs import Message
from kbatch.testing.broker.core import HANDLERS
from kbatch.testing.broker.faults import Scope
from tests.support.broker_core import (
    LEADER,
    NONE,
    SAMPLES,
    TOPIC,
    VirtualBroker,
    batch,
    error_places,
    fetch_request,
    fetched,
    produce_request,
    produced,
    sample,
)

# One that the broker gives for none of the samples by itself.
CODE = ErrorCode.KAFKA_STORAGE_ERROR
# The place of the error code, by the first version that has it there; others have it at the top.
PLACES = {
    "Produce": {0: "responses.partition_responses.error_code"},
    "Fetch": {0: "responses.partitions.error_code"},
    "ListOffsets": {0: "topics.partitions.error_code"},
    "Metadata": {0: "topics.error_code"},
    "OffsetCommit": {0: "topics.partitions.error_code"},
    "OffsetFetch": {0: "topics.partitions.error_code", 2: "error_code", 8: "groups.error_code"},
    "FindCoordinator": {0: "error_code", 4: "coordinators.error_code"},
    "DescribeGroups": {0: "groups.error_code"},
    "CreateTopics": {0: "topics.error_code"},
    "DeleteTopics": {0: "responses.error_code"},
    "DeleteRecords": {0: "topics.partitions.error_code"},
    "OffsetForLeaderEpoch": {0: "topics.partitions.error_code"},
    "AddPartitionsToTxn": {
        0: "results_by_topic_v3_and_below.results_by_partition.partition_error_code",
        4: "results_by_transaction.topic_results.results_by_partition.partition_error_code",
    },
    "WriteTxnMarkers": {0: "markers.topics.partitions.error_code"},
    "TxnOffsetCommit": {0: "topics.partitions.error_code"},
    "DescribeConfigs": {0: "results.error_code"},
    "AlterConfigs": {0: "responses.error_code"},
    "IncrementalAlterConfigs": {0: "responses.error_code"},
    "CreatePartitions": {0: "results.error_code"},
    "DeleteGroups": {0: "results.error_code"},
    "ElectLeaders": {0: "replica_election_results.partition_result.error_code"},
    "AlterPartitionReassignments": {0: "responses.partitions.error_code"},
    "DescribeLogDirs": {0: "results.error_code"},
    "AlterPartition": {0: "topics.partitions.error_code"},
    "AlterReplicaLogDirs": {0: "results.partitions.error_code"},
    "AlterClientQuotas": {0: "entries.error_code"},
    "DescribeProducers": {0: "topics.partitions.error_code"},
    "CreateAcls": {0: "results.error_code"},
    "DeleteAcls": {0: "filter_results.error_code"},
    "AlterUserScramCredentials": {0: "results.error_code"},
    "ConsumerGroupDescribe": {0: "groups.error_code"},
    "ShareGroupDescribe": {0: "groups.error_code"},
    "ShareFetch": {0: "responses.partitions.error_code"},
    "ShareAcknowledge": {0: "responses.partitions.error_code"},
    "DescribeShareGroupOffsets": {0: "groups.error_code"},
    "DescribeTopicPartitions": {0: "topics.error_code"},
    "DescribeTransactions": {0: "transaction_states.error_code"},
}
REQUESTS: dict[str, type[Any]] = {kind.__name__.removesuffix("Request"): kind for kind in HANDLERS}
VERSIONS = {api: kind.versions for api, kind in sorted(REQUESTS.items())}
every_version = pytest.mark.parametrize(
    ("api", "version"),
    [
        pytest.param(api, version, id=f"{api}-{version}")
        for api, versions in VERSIONS.items()
        for version in versions
    ],
)
each_api = pytest.mark.parametrize("api", VERSIONS)


@pytest.fixture
def no_failures(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check that the broker logged no failure of its own."""
    with caplog.at_level(logging.ERROR, "kbatch.testing"):
        yield
    assert not caplog.records


def place_of(api: str, version: int) -> str:
    places = PLACES.get(api, {0: "error_code"})
    return places[max(start for start in places if start <= version)]


def all_that_is_stored(broker: VirtualBroker) -> dict[str, list[int]]:
    """Whatever a request does is in a log, groups and transactions too."""
    return {
        name: [partition.log.log_end_offset for partition in topic.partitions]
        for name, topic in broker.state.cluster.topics.items()
    }


def test_samples_are_of_all_apis_that_the_broker_answers() -> None:
    assert set(SAMPLES) == set(REQUESTS)
    assert set(HANDLERS) <= set(messages.REQUESTS.values())


# fail_next


@every_version
def test_fail_next_sets_the_error_where_kafka_has_it(
    broker: VirtualBroker, no_failures: None, api: str, version: int
) -> None:
    client, request = broker.client(), sample(broker, api, version)
    before = all_that_is_stored(broker)
    broker.core.faults.fail_next(api, CODE, times=1)
    answer = client.ask(request, version)
    assert list(error_places(answer)) == [(place_of(api, version), CODE)]
    assert all_that_is_stored(broker) == before
    assert CODE not in dict(error_places(client.ask(request, version))).values(), "it was for one request"


def test_fail_next_counts_requests_of_its_api_in_order(broker: VirtualBroker) -> None:
    client = broker.client()
    broker.core.faults.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=2)
    broker.core.faults.fail_next("Produce", 7, times=1)
    codes = []
    for _ in range(4):
        client.ask(fetch_request(broker))
        codes.append(produced(client.ask(produce_request(broker))).error_code)
    assert codes == [ErrorCode.NOT_ENOUGH_REPLICAS] * 2 + [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE]
    assert broker.values() == [b"value"]


@pytest.mark.parametrize("make", [produce_request, fetch_request])
def test_fail_next_with_leader_error_of_missing_partition(
    broker: VirtualBroker, no_failures: None, make: Any
) -> None:
    client = broker.client()
    for wanted in ({"topic": "missing"}, {"index": 7}, {"index": -1}):
        request = make(broker, **wanted)
        broker.core.faults.fail_next(type(request).__name__.removesuffix("Request"), 6, times=1)
        answer = client.ask(request)
        assert [code for _, code in error_places(answer)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert answer.node_endpoints == []


def test_fail_next_with_fetch_session_error_fails_the_request(broker: VirtualBroker) -> None:
    for code in (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ):
        broker.core.faults.fail_next("Fetch", code, times=1)
        answer = broker.client().ask(fetch_request(broker))
        assert (answer.error_code, answer.responses) == (code, [])


def test_fail_next_with_rebootstrap_is_about_the_whole_metadata(broker: VirtualBroker) -> None:
    request = sample(broker, "Metadata", 13)
    places = {}
    for version in (12, 13):
        broker.core.faults.fail_next("Metadata", "REBOOTSTRAP_REQUIRED", times=1)
        places[version] = [place for place, _ in error_places(broker.client().ask(request, version))]
    assert places == {12: ["topics.error_code"], 13: ["error_code"]}


@pytest.mark.parametrize(("version", "topics"), [(0, []), (1, None), (13, None)])
def test_fail_next_reaches_metadata_of_all_topics(
    broker: VirtualBroker, version: int, topics: list[Any] | None
) -> None:
    broker.core.faults.fail_next("Metadata", CODE, times=1)
    answer = broker.client().ask(messages.MetadataRequest(topics=topics), version)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [(TOPIC, CODE)]
    assert len(answer.brokers) == 1


def test_fail_next_beats_what_is_wrong_with_the_request(broker: VirtualBroker) -> None:
    client, request = broker.client(), sample(broker, "OffsetCommit", 10)
    request.topics[0].topic_id = bytes(15) + b"\7"
    broker.core.faults.fail_next("OffsetCommit", CODE, times=1)
    assert [code for _, code in error_places(client.ask(request))] == [CODE]
    assert [code for _, code in error_places(client.ask(request))] == [ErrorCode.UNKNOWN_TOPIC_ID]


@pytest.mark.parametrize("api", ["InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn"])
def test_fail_next_says_producer_fenced_as_old_clients_know_it(broker: VirtualBroker, api: str) -> None:
    codes = []
    for version in (1, REQUESTS[api].versions[-1]):
        broker.core.faults.fail_next(api, "PRODUCER_FENCED", times=1)
        answer = broker.client().ask(sample(broker, api, version), version)
        codes += [code for _, code in error_places(answer)]
    assert codes == [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED]


def test_fail_next_without_acks_closes_the_connection(broker: VirtualBroker) -> None:
    broker.core.faults.fail_next("Produce", CODE, times=1)
    assert broker.client().send(produce_request(broker, acks=NONE)).is_closed
    assert broker.values() == []


@pytest.mark.parametrize(
    ("api", "error", "times", "message"),
    [
        ("Produse", CODE, 1, "no API 'Produse': did you mean 'Produce'"),
        ("zzz", CODE, 1, "one of AddOffsetsToTxn, AddPartitionsToTxn, AddRaftVoter"),
        ("Produce", "NOT_ENOUGH_REPLICA", 1, "did you mean NOT_ENOUGH_REPLICAS"),
        ("Produce", "zzz", 1, "there is no error 'zzz'"),
        ("Produce", None, 1, "there is no error None"),
        ("Produce", "NONE", 1, "name an error"),
        ("Produce", 0, 1, "name an error"),
        ("Produce", CODE, 0, "times must be 1 or more, got 0"),
    ],
)
def test_fail_next_names_what_is_wrong(
    broker: VirtualBroker, api: str, error: Any, times: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        broker.core.faults.fail_next(api, error, times)


# drop_connection


@each_api
def test_dropped_connections(no_failures: None, api: str) -> None:
    for version in VERSIONS[api]:
        broker, twin = VirtualBroker(), VirtualBroker()
        request = sample(broker, api, version)
        twin.client().ask(request, version)
        untouched = all_that_is_stored(broker)
        broker.core.faults.drop_connection(api, "before", times=1)
        broker.core.faults.drop_connection(api, "after", times=1)
        assert broker.client().send(request, version).is_closed
        assert all_that_is_stored(broker) == untouched
        assert broker.client().send(request, version).is_closed
        assert all_that_is_stored(broker) == all_that_is_stored(twin)
        assert [received.api for received in broker.core.requests] == [api, api]
        assert not broker.client().send(request, version).is_closed, "each was for one request"


def test_connection_dropped_after_a_request_that_would_wait(broker: VirtualBroker) -> None:
    broker.act(lambda state: state.hold_high_watermark(TOPIC, 0, True))
    broker.core.faults.drop_connection("Produce", "after", times=1)
    assert broker.client().send(produce_request(broker)).is_closed
    assert broker.values() == [b"value"]


def test_drop_connection_names_what_is_wrong(broker: VirtualBroker) -> None:
    with pytest.raises(ValueError, match="'before' or 'after' the request is done, got 'while'"):
        broker.core.faults.drop_connection("Produce", "while", times=1)


# delay


@each_api
def test_delayed_answers(no_failures: None, api: str) -> None:
    for version in VERSIONS[api]:
        broker = VirtualBroker()
        broker.core.faults.delay(api, 0.25)
        answer = broker.client().send(sample(broker, api, version), version)
        broker.advance(249)
        assert not answer.is_there
        broker.advance(1)
        assert answer.message is not None


def test_delay_comes_on_top_of_a_wait_and_can_end(broker: VirtualBroker) -> None:
    broker.core.faults.delay("Fetch", 0.25)
    answer = broker.client().send(fetch_request(broker, max_wait_ms=500))
    assert produced(broker.client().ask(produce_request(broker))).error_code == ErrorCode.NONE
    assert not answer.is_there
    broker.core.faults.delay("Fetch", 0)
    broker.advance(249)
    assert not answer.is_there, "it was delayed already"
    broker.advance(1)
    assert fetched(answer.message).high_watermark == 1
    assert broker.client().ask(fetch_request(broker)) is not None


@pytest.mark.parametrize("fault", ["delay", "throttle"])
def test_times_of_faults_are_not_negative(broker: VirtualBroker, fault: str) -> None:
    arguments = ("Produce", -1.0) if fault == "delay" else (-1.0,)
    with pytest.raises(ValueError, match=r"seconds must be 0 or more, got -1\.0"):
        getattr(broker.core.faults, fault)(*arguments)


# throttle


@each_api
def test_throttled_answers_say_so_and_mute_the_connection(no_failures: None, api: str) -> None:
    for version in VERSIONS[api]:
        broker = VirtualBroker()
        broker.core.faults.throttle(0.25)
        answer = broker.client().send(sample(broker, api, version), version)
        fields = {field.name: field.versions for field in type(answer.message)._spec.fields}
        if version in fields.get("throttle_time_ms", ()):
            assert answer.message.throttle_time_ms == 250
        assert answer.reply.mute_ms == (250 if "throttle_time_ms" in fields else 0)
        broker.core.faults.throttle(0)
        again = broker.client().send(sample(VirtualBroker(), api, version), version)
        assert again.reply.mute_ms == 0


# intercept


def test_interceptor_sees_requests_whole_and_lets_them_go_on(broker: VirtualBroker) -> None:
    seen: list[Any] = []
    broker.core.faults.intercept("Produce", seen.append)
    data = batch(b"one")
    assert produced(broker.client().ask(produce_request(broker, data))).base_offset == 0
    ((partition,),) = ([*topic.partition_data] for topic in seen[0].topic_data)
    assert bytes(partition.records) == data
    ((remembered,),) = ([*topic.partition_data] for topic in broker.core.requests[0].message.topic_data)
    assert remembered.records is None
    broker.core.faults.intercept("Produce", None)
    broker.client().ask(produce_request(broker))
    assert len(seen) == 1


@pytest.mark.parametrize("error", [CODE, "KAFKA_STORAGE_ERROR", 56])
def test_interceptor_gives_an_error(broker: VirtualBroker, error: Any) -> None:
    broker.core.faults.fail_next("Produce", "REQUEST_TIMED_OUT", times=2)
    broker.core.faults.intercept("Produce", lambda request: error if request.acks == LEADER else None)
    client = broker.client()
    assert produced(client.ask(produce_request(broker, acks=LEADER))).error_code == CODE
    assert produced(client.ask(produce_request(broker))).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert broker.values() == []


def test_interceptor_gives_the_response(broker: VirtualBroker) -> None:
    kind = messages.MetadataResponse
    answer = kind(brokers=[kind.MetadataResponseBroker(node_id=9, host="elsewhere", port=1)])
    broker.core.faults.intercept("Metadata", lambda request: answer)
    assert broker.client().ask(messages.MetadataRequest(topics=None)) == answer


@pytest.mark.parametrize(
    "wrong",
    [
        lambda request: messages.FetchResponse(),
        lambda request: "NO_SUCH_ERROR",
        lambda request: ErrorCode.NONE,
        lambda request: 1 / 0,
        lambda request: messages.MetadataResponse(controller_id="one"),  # type: ignore[arg-type]
    ],
)
def test_failing_interceptor_only_closes_the_connection(
    broker: VirtualBroker, caplog: pytest.LogCaptureFixture, wrong: Any
) -> None:
    broker.core.faults.intercept("Metadata", wrong)
    waiting = broker.client().send(fetch_request(broker, max_wait_ms=500))
    assert broker.client().send(messages.MetadataRequest()).is_closed
    assert "closing its connection" in caplog.text
    broker.client().ask(produce_request(broker))
    assert fetched(waiting.message).high_watermark == 1


def test_interceptor_that_changes_the_cluster() -> None:
    """Waiting requests are woken, and see the new state."""
    broker = VirtualBroker(nodes=2)

    def move(request: Message) -> None:
        broker.state.move_leader(TOPIC, 0, 1)

    waiting = broker.client(0).send(fetch_request(broker, max_wait_ms=500, leader_epoch=0))
    broker.core.faults.intercept("Produce", move)
    refused = produced(broker.client(0).ask(produce_request(broker)))
    assert (refused.error_code, refused.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 1)
    assert fetched(waiting.message).error_code == ErrorCode.FENCED_LEADER_EPOCH


# At one node, for one partition


def test_KA06_fault_of_a_node_leaves_the_others_alone() -> None:
    broker = VirtualBroker(nodes=2)
    broker.core.faults.fail_next("Metadata", CODE, 1, Scope(node=1))
    broker.core.faults.drop_connection("Fetch", "before", 1, Scope(node=1))
    broker.core.faults.delay("Produce", 0.5, node=1)
    named = messages.MetadataRequest.MetadataRequestTopic(name=TOPIC)

    def code(node: int) -> int:
        answer = broker.client(node).ask(messages.MetadataRequest(topics=[named]))
        error: int = answer.topics[0].error_code
        return error

    assert [code(0), code(1), code(0), code(1)] == [0, CODE, 0, 0]
    assert broker.client(0).send(fetch_request(broker)).message is not None
    assert broker.client(1).send(fetch_request(broker)).is_closed
    assert broker.client(0).send(produce_request(broker)).is_there
    assert not broker.client(1).send(produce_request(broker)).is_there


def test_KA06_fault_of_a_partition_leaves_the_others_alone() -> None:
    broker = VirtualBroker()
    broker.state.cluster.create_partitions(TOPIC, 2)
    faults = broker.core.faults
    faults.fail_next("Produce", CODE, 1, Scope(topic=TOPIC, partition=1))
    answers = [broker.client().ask(produce_request(broker, index=index)) for index in (0, 1, 1)]
    assert [produced(each).error_code for each in answers] == [0, CODE, 0]
    assert (broker.values(index=0), broker.values(index=1)) == ([b"value"], [b"value"])
    faults.fail_next("Fetch", CODE, 2, Scope(0, TOPIC, 1))
    answers = [broker.client().ask(fetch_request(broker, index=index)) for index in (1, 0, 1, 1)]
    assert [fetched(each).error_code for each in answers] == [CODE, 0, CODE, 0]
    for api in ("ListOffsets", "OffsetForLeaderEpoch", "DeleteRecords", "DescribeProducers"):
        faults.fail_next(api, CODE, 1, Scope(topic=TOPIC, partition=0))
        version = getattr(messages, f"{api}Request").versions[-1]
        found = [
            [code for _, code in error_places(broker.client().ask(sample(broker, api, version), version))]
            for _ in range(2)
        ]
        assert found == [[CODE], []], api


def test_scopes_that_are_refused() -> None:
    faults = VirtualBroker().core.faults
    with pytest.raises(ValueError, match="give topic and partition, or none of them"):
        faults.fail_next("Produce", CODE, 1, Scope(topic=TOPIC))
    with pytest.raises(ValueError, match=r"api must be one of DeleteRecords, .* got 'Metadata'"):
        faults.fail_next("Metadata", CODE, 1, Scope(topic=TOPIC, partition=0))
