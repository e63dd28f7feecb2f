"""Admins over TLS, with a login, a certificate or neither: each may do and may not what Java's may."""

from __future__ import annotations

import pytest

from tests.integration.security.secrets_used import PASSWORDS
from tests.integration.security.site import LISTENERS, PLAIN, TOPIC, Site, jaas
from tests.support.admin_calls import Call
from tests.support.admin_judge import GROUP, USER, Judge

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


# What the super user does, who is whoever shows no certificate.
WRITES: list[Call] = [
    {"call": "createTopics", "topics": [{"name": "@", "partitions": 1, "replication_factor": 1}]},
    {"call": "createPartitions", "topics": {"@": 2}},
    {"call": "incrementalAlterConfigs", "changes": {"topic:@": [["set", "retention.ms", "3600000"]]}},
    {"call": "listOffsets", "specs": {"@-0": "latest"}},
    {"call": "deleteRecords", "offsets": {"@-0": 0}},
    {"call": "alterConsumerGroupOffsets", "group": GROUP, "offsets": {"@-0": 1}},
    {"call": "deleteConsumerGroupOffsets", "group": GROUP, "partitions": ["@-0"]},
    {"call": "deleteConsumerGroups", "groups": [GROUP]},
    {
        "call": "alterClientQuotas",
        "changes": [{"entity": {"user": USER}, "values": {"producer_byte_rate": 1}}],
    },
    {
        "call": "alterClientQuotas",
        "changes": [{"entity": {"user": USER}, "values": {"producer_byte_rate": None}}],
    },
    {"call": "alterUserScramCredentials", "changes": [{"user": USER, "iterations": 4096}]},
    {"call": "alterUserScramCredentials", "changes": [{"user": USER}]},
    {"call": "createAcls", "acls": [["topic", "@", "Read", f"User:{USER}"]]},
    {"call": "deleteAcls", "filter": f"User:{USER}"},
    {"call": "fenceProducers", "ids": ["@"]},
    {"call": "createDelegationToken"},
    {"call": "deleteTopics", "topics": ["@"]},
]
LOOKS = ("topics", "configs", "group", "users", "acls", "quotas")


def way_in(site: Site, listener: str) -> dict[str, str]:
    """Return the settings of both clients for a listener."""
    if listener == "SASL_SSL":
        login = jaas("plain.PlainLoginModule", username="alice", password=PASSWORDS["alice"])
        own = {"sasl.mechanism": PLAIN, "sasl.jaas.config": login}
    elif listener == "MUTUAL":
        own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": site.path("client.pem")}
    else:
        own = {}
    protocol = LISTENERS[listener]
    return {"security.protocol": protocol, **site.trust(protocol), **own}


@pytest.mark.parametrize("listener", ["SASL_SSL", "MUTUAL"])
def test_users_are_told_what_java_tells_them(site: Site, listener: str) -> None:
    with Judge(site.address(listener), way_in(site, listener)) as judge:
        judge.compare(CALLS, (), "java")


@pytest.mark.parametrize("first", ["java", "kbatch"])
def test_calls_over_tls_end_as_those_of_java(site: Site, first: str) -> None:
    with Judge(site.address("TLS"), way_in(site, "TLS")) as judge:
        judge.compare([CALLS[0], *WRITES], LOOKS, first)
