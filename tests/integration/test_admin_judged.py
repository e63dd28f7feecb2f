"""Java's Admin as the judge: the same calls by it and by kbatch's end in the same answers and the same state.

A program is a list of calls about names that begin with "@". Each client does it with names of its own, one
after the other, in both orders; after each call both clients look at what both have left.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbatch import Admin
from tests.conftest import require_jars
from tests.oracle import java_clients
from tests.oracle.java_programs import KAFKA_VERSION
from tests.oracle.kafka import RealKafka
from tests.support.admin_calls import Answer, Call, answer
from tests.support.patience import until

pytestmark = pytest.mark.java

Ask = Callable[[Mapping[str, Any]], Answer]

_numbers = itertools.count()
# What both look at, after each call. The names are those of all programs below.
TOPICS = ["@", "@-a", "@-b"]
GROUP = "@-group"
USER = "@-user"
PARTITIONS = [f"{topic}-0" for topic in TOPICS]
LOOKS: Mapping[str, Call] = {
    "topics": {"call": "describeTopics", "topics": TOPICS},
    "configs": {"call": "describeConfigs", "resources": [f"topic:{topic}" for topic in TOPICS]},
    "group": {"call": "listConsumerGroupOffsets", "group": GROUP},
    "users": {"call": "describeUserScramCredentials", "users": [USER]},
    "acls": {"call": "describeAcls", "filter": f"User:{USER}"},
    "quotas": {"call": "describeClientQuotas", "user": USER},
    "features": {"call": "describeFeatures"},
    "quorum": {"call": "describeMetadataQuorum"},
    "transactions": {"call": "describeTransactions", "ids": ["@-tx"]},
    "log dirs": {"call": "describeLogDirs", "brokers": [0]},
    "tokens": {"call": "describeDelegationToken"},
}
# What calls of a name may change.
SEEN_BY: Mapping[str, tuple[str, ...]] = {
    "topic": ("topics", "configs"),
    "group": ("topics", "group"),
    "access": ("users", "acls", "quotas"),
    "cluster": ("features", "quorum", "transactions", "log dirs", "tokens"),
}


class Judge:
    """Both clients of one cluster."""

    def __init__(self, java: Ask, ours: Admin) -> None:
        self._clients: Mapping[str, Ask] = {"java": java, "kbatch": lambda call: answer(ours, call)}

    def compare(self, program: list[Call], looks: tuple[str, ...], first: str) -> None:
        """Let both do a program, and compare each answer, and what both see after each call."""
        prefixes = {client: f"judged-{next(_numbers)}" for client in sorted(self._clients)}
        order = sorted(self._clients, key=lambda client: client != first)
        for call in program:
            answers = {
                client: _anonymous(self._ask(client, prefixes[client], call), prefixes[client])
                for client in order
            }
            assert answers["kbatch"] == answers["java"], call
            for look in looks:
                self._await_alike(LOOKS[look], prefixes, call)

    def _await_alike(self, look: Call, prefixes: Mapping[str, str], after: Call) -> None:
        """Wait until both see both alike: brokers follow the controller a moment later."""
        views: list[tuple[str, str, Answer]] = []

        def are_alike() -> bool:
            views[:] = [
                (client, prefix, _anonymous(self._ask(client, prefix, look), prefix))
                for client in self._clients
                for prefix in prefixes.values()
            ]
            return all(view == views[0][2] for _, _, view in views)

        until(are_alike, lambda: f"equal answers to {look} after {after}: {views}", seconds=30)

    def _ask(self, client: str, prefix: str, call: Call) -> Answer:
        return self._clients[client](json.loads(json.dumps(call).replace("@", prefix)))


def _anonymous(answer: Answer, prefix: str) -> Any:
    """Return an answer as if names began with "@"; lists that have no order are sorted."""
    return json.loads(json.dumps(answer, sort_keys=True).replace(prefix, "@"))


@pytest.fixture(scope="module", params=["embedded", KAFKA_VERSION, "3.9.1"])
def judge(request: pytest.FixtureRequest) -> Iterator[Judge]:
    """Yield both clients: of an embedded broker, and of Kafkas with an authorizer."""
    require_jars()
    with contextlib.ExitStack() as stack:
        if request.param == "embedded":
            servers = str(request.getfixturevalue("embedded_bootstrap_servers"))
        else:
            servers = stack.enter_context(kafka_of(request.param)).bootstrap_servers
        java = stack.enter_context(java_clients.judging_admin(servers))
        yield Judge(java, stack.enter_context(Admin(bootstrap_servers=servers)))


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
}
NEW_PROGRAMS: Mapping[str, tuple[str, list[Call]]] = {
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


@pytest.mark.parametrize("about", ["topic", "group"])
def test_drawn_calls_end_as_those_of_java(judge: Judge, about: str) -> None:
    calls = {"topic": _topic_calls(), "group": _group_calls()}[about]

    @settings(max_examples=15, suppress_health_check=list(HealthCheck))
    @given(st.lists(calls, min_size=2, max_size=6), st.sampled_from(["java", "kbatch"]))
    def compare(program: list[Call], first: str) -> None:
        judge.compare(program, SEEN_BY[about], first)

    compare()


@pytest.mark.parametrize("first", ["java", "kbatch"])
@pytest.mark.parametrize("name", [*PROGRAMS, *REAL_PROGRAMS, *NEW_PROGRAMS])
def test_calls_end_as_those_of_java(
    judge: Judge, request: pytest.FixtureRequest, name: str, first: str
) -> None:
    version = request.node.callspec.params["judge"]
    if name in REAL_PROGRAMS and version == "embedded":
        pytest.skip("the embedded broker does not know all of these requests")
    if name in NEW_PROGRAMS and version != KAFKA_VERSION:
        pytest.skip(f"it is about features of Kafka {KAFKA_VERSION}")
    about, program = {**PROGRAMS, **REAL_PROGRAMS, **NEW_PROGRAMS}[name]
    judge.compare(program, SEEN_BY[about], first)
