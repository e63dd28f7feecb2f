"""Java's Admin judges kbatch's (admin_judge): on the embedded broker, and on Kafkas of two versions, all with
an authorizer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbatch.testing import Broker
from tests.conftest import require_jars
from tests.oracle.java_programs import KAFKA_VERSION
from tests.oracle.kafka import RealKafka
from tests.support.admin_calls import Call
from tests.support.admin_judge import GROUP, PARTITIONS, SEEN_BY, TOPICS, USER, Judge
from tests.support.effort import few

pytestmark = pytest.mark.java


@pytest.fixture(scope="module", params=few(["embedded", KAFKA_VERSION, "3.9.1"], 1))
def judge(request: pytest.FixtureRequest) -> Iterator[Judge]:
    """Yield both clients."""
    require_jars()
    with contextlib.ExitStack() as stack:
        broker: RealKafka | Broker = (
            stack.enter_context(guarded_broker())
            if request.param == "embedded"
            else stack.enter_context(kafka_of(request.param))
        )
        yield stack.enter_context(Judge(broker.bootstrap_servers))


def guarded_broker() -> Broker:
    return Broker(auto_create_topics=False, authorizer=True, super_users=["User:ANONYMOUS"])


def kafka_of(version: str) -> RealKafka:
    require_jars(version)
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "delegation.token.secret.key": "secret",
    }
    return RealKafka(properties, transaction_version=2 if version == KAFKA_VERSION else None, version=version)


def topic(name: str = "@", **given: Any) -> Call:
    return {"call": "createTopics", "topics": [{"name": name, "replication_factor": 1, **given}]}


def configs(*changes: list[str], of: str = "topic:@") -> Call:
    return {"call": "incrementalAlterConfigs", "changes": {of: list(changes)}}


def commit(offsets: Mapping[str, Any]) -> Call:
    return {"call": "alterConsumerGroupOffsets", "group": GROUP, "offsets": offsets}


def quota(values: Mapping[str, float | None], **entity: str | None) -> Call:
    return {"call": "alterClientQuotas", "changes": [{"entity": entity or {"user": USER}, "values": values}]}


def scram(**given: Any) -> Call:
    return {"call": "alterUserScramCredentials", "changes": [{"user": USER, **given}]}


def acls(*given: tuple[str, str, str]) -> Call:
    return {"call": "createAcls", "acls": [[*each, f"User:{USER}"] for each in given]}


def features(levels: Mapping[str, int], **given: Any) -> Call:
    return {"call": "updateFeatures", "levels": levels, **given}


# By scenario: what calls are about, and the calls.
PROGRAMS: Mapping[str, tuple[str, list[Call]]] = {
    "AS01 AS02": (
        "topic",
        [topic(partitions=3), topic(partitions=3), topic("@-a"), topic("@-a", partitions=2)],
    ),
    "AS03": (
        "topic",
        [
            topic("@-a"),
            {
                "call": "createTopics",
                "topics": [
                    {"name": "@", "partitions": 1, "replication_factor": 1},
                    {"name": "@-a", "partitions": 1, "replication_factor": 1},
                    {"name": "@ b", "partitions": 1, "replication_factor": 1},
                    {"name": "@-b", "partitions": 1, "replication_factor": 9},
                    {"name": "@-c", "partitions": 0, "replication_factor": 1},
                    {"name": "@-d", "partitions": 1, "replication_factor": 0},
                    {"name": "@-e", "assignment": {"0": [7]}},
                    {"name": "@-f", "assignment": {"1": [0]}},
                    {"name": "@-g", "assignment": {"0": [0, 0]}},
                    {"name": "@-h", "configs": {"retention.ms": "long"}},
                    {"name": "@-i", "configs": {"no.such.setting": "1"}},
                    {"name": "@" + 250 * "x", "partitions": 1},
                ],
            },
        ],
    ),
    "AS04": ("topic", [topic("@-a", partitions=10_001), topic(partitions=2, validate_only=True)]),
    "AS07 AS09": (
        "topic",
        [
            topic(partitions=2),
            {"call": "deleteTopics", "topics": ["@", "@-a"]},
            topic(partitions=1),
            {"call": "deleteTopics", "topics": ["@"]},
        ],
    ),
    "AS12": (
        "topic",
        [
            topic(partitions=2),
            *(
                {"call": "createPartitions", "topics": {"@": to, "@-a": 3}}
                for to in (1, 2, 4, 4, [5, [[0]]], [6, [[9]]], [7, [[0], [0]]])
            ),
        ],
    ),
    "AS22 AS24": (
        "topic",
        [
            topic(),
            *({"call": "deleteRecords", "offsets": {"@-0": offset}} for offset in (0, -1, 1, 5)),
            {"call": "listOffsets", "specs": {"@-0": "latest"}},
            {"call": "listOffsets", "specs": {"@-0": "max_timestamp"}},
            {"call": "listOffsets", "specs": {"@-0": 1000}},
            {"call": "describeProducers", "partitions": ["@-0"]},
            configs(["set", "cleanup.policy", "compact"]),
            {"call": "deleteRecords", "offsets": {"@-0": 0}},
        ],
    ),
    "AS26 AS27 AS28": (
        "topic",
        [
            topic(),
            configs(["set", "retention.ms", "3600000"]),
            configs(["append", "cleanup.policy", "compact"]),
            configs(["append", "cleanup.policy", "compact"], ["delete", "retention.ms"]),
            configs(["subtract", "cleanup.policy", "delete"]),
            configs(["set", "retention.ms", "1000"], ["set", "segment.bytes", "many"]),
            configs(["set", "no.such.setting", "1"]),
            configs(["delete", "no.such.setting"]),
            configs(["append", "retention.ms", "1"]),
            configs(["set", "retention.ms", "5"], of="topic:@-b"),
        ],
    ),
    "AS73": (
        "group",
        [
            topic(partitions=2),
            commit({"@-0": 4, "@-1": [7, "note"]}),
            commit({"@-0": 1_000_000}),
            commit({"@-a-0": 1}),
            commit({"@-0": [1, 5000 * "m"]}),
            {"call": "deleteConsumerGroupOffsets", "group": GROUP, "partitions": ["@-0"]},
            {"call": "removeMembersFromConsumerGroup", "group": GROUP, "instances": ["nobody"]},
            {"call": "deleteConsumerGroups", "groups": [GROUP, "@-nobody"]},
            {"call": "deleteConsumerGroupOffsets", "group": GROUP, "partitions": ["@-0"]},
        ],
    ),
}
FENCE: Call = {"call": "fenceProducers", "ids": ["@-tx"]}
OPEN: Call = {"call": "openTransaction", "id": "@-tx", "topic": "@"}
REAL_PROGRAMS: Mapping[str, tuple[str, list[Call]]] = {
    "AS37": (
        "topic",
        [
            topic(partitions=2),
            {"call": "electLeaders", "partitions": ["@-0", "@-a-0"]},
            {"call": "electLeaders", "partitions": ["@-0", "@-1"], "unclean": True},
        ],
    ),
    "AS39": (
        "topic",
        [
            topic(),
            {"call": "alterPartitionReassignments", "replicas": {"@-0": [0]}},
            {"call": "alterPartitionReassignments", "replicas": {"@-0": None}},
            {"call": "alterPartitionReassignments", "replicas": {"@-a-0": [0]}},
            {"call": "listPartitionReassignments", "partitions": ["@-0"]},
        ],
    ),
    "AS57 AS58": (
        "access",
        [
            quota({"producer_byte_rate": 1000, "request_percentage": 12.5}),
            quota({"producer_byte_rate": None}),
            quota({"producer_byte_rate": 1.5}),
            quota({"producer_byte_rate": 0}),
            quota({"consumer_byte_rate": -1}),
            quota({"no_such_quota": 1}),
            quota({"consumer_byte_rate": 5}, **{"user": USER, "client-id": "c"}),
            quota({"consumer_byte_rate": 6}, **{"user": USER, "client-id": None}),
            quota({"consumer_byte_rate": 5}, user=USER, ip="127.0.0.1"),
            quota({"consumer_byte_rate": None, "request_percentage": None}),
        ],
    ),
    "AS60": (
        "access",
        [
            scram(iterations=4096),
            scram(iterations=4095),
            scram(iterations=16_385),
            scram(iterations=8192),
            scram(mechanism="SCRAM-SHA-256"),
            scram(mechanism="SCRAM-SHA-256", iterations=4096),
            scram(),
            scram(),
        ],
    ),
    "AS65": (
        "access",
        [
            *2 * [acls(("topic", "@", "Read"), ("topic", "@", "DescribeConfigs"), ("group", GROUP, "Read"))],
            acls(("cluster", "kafka-cluster", "Alter"), ("cluster", "another", "Alter")),
            {"call": "deleteAcls", "filter": f"User:{USER}"},
            {"call": "deleteAcls", "filter": f"User:{USER}"},
        ],
    ),
    "AS47 AS55 AS56 AS69": (
        "cluster",
        [
            {"call": "unregisterBroker", "broker": 9},
            {"call": "addRaftVoter", "voter": 5},
            {"call": "removeRaftVoter", "voter": 5},
            {"call": "createDelegationToken"},
            {"call": "describeLogDirs", "brokers": [0]},
        ],
    ),
    "AS82": ("cluster", [FENCE, FENCE]),
    "AS82 open": ("cluster", [topic(partitions=1), OPEN, FENCE]),
    "AS83": (
        "cluster",
        [
            topic(partitions=1),
            OPEN,
            {"call": "forceTerminateTransaction", "id": "@-tx"},
            {"call": "forceTerminateTransaction", "id": "@-tx"},
        ],
    ),
}
# Of Kafka only: the embedded broker has no streams groups.
STREAMS_PROGRAMS: Mapping[str, tuple[str, list[Call]]] = {
    "AS71 AS73 AS75 members": (
        "group",
        [
            topic(partitions=2),
            {"call": "joinStreams", "group": GROUP, "topic": "@"},
            {"call": "describeStreamsGroups", "groups": [GROUP, "@-nobody"]},
            {"call": "describeShareGroups", "groups": [GROUP]},
            commit({"@-0": 1}),
            {"call": "alterStreamsGroupOffsets", "group": GROUP, "offsets": {"@-0": 1}},
            {"call": "deleteConsumerGroupOffsets", "group": GROUP, "partitions": ["@-0"]},
            {"call": "deleteStreamsGroups", "groups": [GROUP, "@-nobody"]},
            {"call": "leaveStreams", "group": GROUP},
            {"call": "describeStreamsGroups", "groups": [GROUP]},
            {"call": "alterStreamsGroupOffsets", "group": GROUP, "offsets": {"@-0": 1, "@-1": 2}},
            {"call": "deleteConsumerGroupOffsets", "group": GROUP, "partitions": ["@-0"]},
            {"call": "deleteStreamsGroups", "groups": [GROUP]},
        ],
    ),
}
SHARE = "@-share"
NEW_PROGRAMS: Mapping[str, tuple[str, list[Call]]] = {
    "AS71 AS74": (
        "share",
        [
            topic(partitions=2),
            {"call": "describeShareGroups", "groups": [SHARE]},
            {"call": "alterShareGroupOffsets", "group": SHARE, "offsets": {"@-0": 3, "@-1": 0}},
            {"call": "describeShareGroups", "groups": [SHARE, "@-nobody"]},
            {"call": "alterShareGroupOffsets", "group": SHARE, "offsets": {"@-0": 1, "@-a-0": 1}},
            {"call": "deleteShareGroupOffsets", "group": SHARE, "topics": ["@", "@-a"]},
            {"call": "deleteShareGroupOffsets", "group": "@-nobody", "topics": ["@"]},
            commit({"@-0": 1}),
            {"call": "describeShareGroups", "groups": [GROUP]},
            {"call": "deleteShareGroups", "groups": [SHARE, "@-nobody"]},
        ],
    ),
    "AS71 AS75 streams": (
        "group",
        [
            topic(),
            {"call": "describeStreamsGroups", "groups": ["@-nobody"]},
            {"call": "alterStreamsGroupOffsets", "group": GROUP, "offsets": {"@-0": 1, "@-a-0": 1}},
            {"call": "describeStreamsGroups", "groups": [GROUP]},
            {"call": "deleteStreamsGroups", "groups": ["@-nobody"]},
        ],
    ),
    "AS53 AS54": (
        "cluster",
        [
            features({"transaction.version": 2}),
            features({"transaction.version": 9}),
            features({"metadata.version": 99}),
            features({"transaction.version": 2, "nothing.version": 1}),
            features({"transaction.version": 1}, kind="SAFE_DOWNGRADE", validate_only=True),
            features({"metadata.version": 7}, kind="UNSAFE_DOWNGRADE", validate_only=True),
        ],
    ),
}


def _topic_calls() -> st.SearchStrategy[Call]:
    names = st.sampled_from(TOPICS)
    counts = st.integers(0, 4)
    new = st.fixed_dictionaries(
        {"name": names, "replication_factor": st.sampled_from([1, 1, 1, 0, 2])},
        optional={
            "partitions": counts,
            "configs": st.dictionaries(
                st.sampled_from(["retention.ms", "max.message.bytes", "cleanup.policy"]),
                st.sampled_from(["1", "delete", "compact", "-2", ""]),
                max_size=2,
            ),
        },
    )
    change = st.one_of(
        st.tuples(
            st.sampled_from(["set", "append", "subtract"]),
            st.sampled_from(["retention.ms", "cleanup.policy", "no.such"]),
            st.sampled_from(["5", "delete", "compact", "x"]),
        ),
        st.tuples(st.just("delete"), st.sampled_from(["retention.ms", "cleanup.policy"])),
    )
    return st.one_of(
        st.lists(new, min_size=1, max_size=2, unique_by=lambda each: each["name"]).map(
            lambda topics: {"call": "createTopics", "topics": topics}
        ),
        st.lists(names, min_size=1, max_size=3, unique=True).map(
            lambda topics: {"call": "deleteTopics", "topics": topics}
        ),
        st.dictionaries(names, counts.map(lambda count: count + 1), min_size=1).map(
            lambda topics: {"call": "createPartitions", "topics": topics}
        ),
        st.dictionaries(
            names.map(lambda name: f"topic:{name}"),
            st.lists(change, min_size=1, max_size=2, unique_by=lambda each: each[1]),
            min_size=1,
            max_size=2,
        ).map(lambda changes: {"call": "incrementalAlterConfigs", "changes": changes}),
    )


def _group_calls() -> st.SearchStrategy[Call]:
    partitions = st.sampled_from([*PARTITIONS, "@-1"])
    return st.one_of(
        st.just(topic(partitions=2)),
        st.dictionaries(partitions, st.integers(0, 3), min_size=1).map(commit),
        st.lists(partitions, min_size=1, unique=True).map(
            lambda chosen: {"call": "deleteConsumerGroupOffsets", "group": GROUP, "partitions": chosen}
        ),
        st.just({"call": "deleteConsumerGroups", "groups": [GROUP]}),
    )


@pytest.mark.slow
@pytest.mark.parametrize("about", ["topic", "group"])
def test_drawn_calls_end_as_those_of_java(judge: Judge, about: str) -> None:
    calls = {"topic": _topic_calls(), "group": _group_calls()}[about]

    @settings(max_examples=15, suppress_health_check=list(HealthCheck))
    @given(st.lists(calls, min_size=2, max_size=6), st.sampled_from(["java", "kbatch"]))
    def compare(program: list[Call], first: str) -> None:
        judge.compare(program, SEEN_BY[about], first)

    compare()


@pytest.mark.parametrize("first", few(["java", "kbatch"], 1))
@pytest.mark.parametrize("name", [*PROGRAMS, *REAL_PROGRAMS, *NEW_PROGRAMS, *STREAMS_PROGRAMS])
def test_calls_end_as_those_of_java(
    judge: Judge, request: pytest.FixtureRequest, name: str, first: str
) -> None:
    version = request.node.callspec.params["judge"]
    if name in STREAMS_PROGRAMS and version == "embedded":
        pytest.skip("the embedded broker has no streams groups")
    if name in (*NEW_PROGRAMS, *STREAMS_PROGRAMS) and version == "3.9.1":
        pytest.skip(f"it is about features of Kafka {KAFKA_VERSION}")
    about, program = {**PROGRAMS, **REAL_PROGRAMS, **NEW_PROGRAMS, **STREAMS_PROGRAMS}[name]
    judge.compare(program, SEEN_BY[about], first)
