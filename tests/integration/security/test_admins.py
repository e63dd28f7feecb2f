"""Admins over TLS with a login: what a user may do and may not, as Java's Admin is told."""

from __future__ import annotations

import pytest

from tests.integration.security.secrets_used import PASSWORDS
from tests.integration.security.site import PLAIN, TOPIC, Site, jaas
from tests.support.admin_calls import Call
from tests.support.admin_judge import Judge

pytestmark = [pytest.mark.java, pytest.mark.slow]

CALLS: list[Call] = [
    {"call": "describeTopics", "topics": [TOPIC, "nowhere"]},
    {"call": "createTopics", "topics": [{"name": "@", "partitions": 1, "replication_factor": 1}]},
    {"call": "createPartitions", "topics": {TOPIC: 5}},
    {"call": "deleteTopics", "topics": [TOPIC]},
    {"call": "incrementalAlterConfigs", "changes": {f"topic:{TOPIC}": [["set", "retention.ms", "1"]]}},
    {"call": "listOffsets", "specs": {f"{TOPIC}-0": "latest"}},
    {"call": "deleteRecords", "offsets": {f"{TOPIC}-0": 0}},
    {"call": "alterConsumerGroupOffsets", "group": "@", "offsets": {f"{TOPIC}-0": 1}},
    {"call": "deleteConsumerGroups", "groups": ["@"]},
    {
        "call": "alterClientQuotas",
        "changes": [{"entity": {"user": "@"}, "values": {"producer_byte_rate": 1}}],
    },
    {"call": "alterUserScramCredentials", "changes": [{"user": "@", "iterations": 4096}]},
    {"call": "createAcls", "acls": [["topic", "@", "Read", "User:@"]]},
    {"call": "fenceProducers", "ids": ["@"]},
    {"call": "unregisterBroker", "broker": 9},
    {"call": "updateFeatures", "levels": {"transaction.version": 2}},
    {"call": "createDelegationToken"},
]


@pytest.mark.parametrize(("listener", "protocol"), [("SASL_SSL", "SASL_SSL"), ("TLS", "SSL")])
def test_users_are_told_what_java_tells_them(site: Site, listener: str, protocol: str) -> None:
    login = jaas("plain.PlainLoginModule", username="alice", password=PASSWORDS["alice"])
    sasl = {"sasl.mechanism": PLAIN, "sasl.jaas.config": login} if protocol == "SASL_SSL" else {}
    settings = {"security.protocol": protocol, **site.trust(protocol), **sasl}
    with Judge(site.address(listener), settings) as judge:
        judge.compare(CALLS if sasl else CALLS[:1], (), "java")
