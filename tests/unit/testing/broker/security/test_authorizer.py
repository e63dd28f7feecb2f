"""The ACL model beside a plain oracle: sets of all that each ACL speaks of, in a small world."""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing.broker.security.acls import Acls
from kbatch.testing.broker.security.authorizer import (
    AclBinding,
    AclFilter,
    Authorizer,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from tests.support.broker_core import TOPIC, VirtualBroker, produce_request, produced

PRINCIPALS = ("User:alice", "User:bob", "User:ANONYMOUS")
HOSTS = ("10.0.0.1", "10.0.0.2")
NAMES = tuple("".join(letters) for size in (1, 2, 3) for letters in product("abc", repeat=size))
IN_ACLS = ("a", "b", "aa", "ab", "ba", "bb")
OTHERS = ("zz", "*c")  # a name of which ACLs speak only as "*", one that begins with it
OPERATIONS = tuple(operation for operation in Operation if operation is not Operation.ALL)
# Which permissions give others: KIP-11, "Operation implications".
IMPLIES = {
    "READ": "DESCRIBE",
    "WRITE": "DESCRIBE",
    "DELETE": "DESCRIBE",
    "ALTER": "DESCRIBE",
    "ALTER_CONFIGS": "DESCRIBE_CONFIGS",
}
TYPES = (ResourceType.TOPIC, ResourceType.GROUP)

acls = st.builds(
    AclBinding,
    resource_type=st.sampled_from(TYPES),
    resource_name=st.sampled_from((*IN_ACLS, "*")),
    principal=st.sampled_from((*PRINCIPALS, "User:*")),
    operation=st.sampled_from([Operation.ALL, Operation.READ, Operation.WRITE, Operation.DESCRIBE,
                               Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS]),
    permission=st.sampled_from(Permission),
    host=st.sampled_from((*HOSTS, "*")),
    pattern_type=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
)  # fmt: skip
# Of one operation and nearly one client, so that they concern each other
near_acls = st.builds(
    AclBinding,
    resource_type=st.just(ResourceType.TOPIC),
    resource_name=st.sampled_from((*IN_ACLS, "*")),
    principal=st.sampled_from(("User:alice", "User:*")),
    operation=st.sampled_from([Operation.ALL, Operation.READ]),
    permission=st.sampled_from(Permission),
    host=st.sampled_from((HOSTS[0], "*")),
    pattern_type=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
)
acl_lists = st.lists(acls, max_size=6)


def authorizer_of(rules: Any, *, default: bool = False, super_users: Any = ()) -> Authorizer:
    return Authorizer(rules, super_users, default, Acls)


def names_of(acl: AclBinding) -> set[str]:
    if acl.pattern_type is PatternType.PREFIXED:
        return {name for name in (*NAMES, *OTHERS) if name.startswith(acl.resource_name)}
    return {*NAMES, *OTHERS} if acl.resource_name == "*" else {acl.resource_name}


def spoken_of(acl: AclBinding, *, implied: bool = True) -> set[tuple[Any, ...]]:
    """Every (principal, host, operation, name) that the ACL allows or denies."""
    named = {acl.operation.name} if acl.operation is not Operation.ALL else {o.name for o in OPERATIONS}
    if implied and acl.permission is Permission.ALLOW:
        named |= {IMPLIES[name] for name in named if name in IMPLIES}
    principals = PRINCIPALS if acl.principal == "User:*" else (acl.principal,)
    hosts = HOSTS if acl.host == "*" else (acl.host,)
    return set(product(principals, hosts, named, names_of(acl)))


def world(rules: list[AclBinding], kind: ResourceType, permission: Permission, **how: bool) -> set[Any]:
    relevant = [acl for acl in rules if acl.resource_type is kind and acl.permission is permission]
    return set().union(*(spoken_of(acl, **how) for acl in relevant))


@given(rules=acl_lists, default=st.booleans(), kind=st.sampled_from(TYPES))
def test_decisions_are_the_oracles(rules: list[AclBinding], default: bool, kind: ResourceType) -> None:
    judged = authorizer_of(rules, default=default)
    allowed, denied = (world(rules, kind, permission) for permission in (Permission.ALLOW, Permission.DENY))
    with_acls = set().union(*(names_of(acl) for acl in rules if acl.resource_type is kind))
    for principal, host, operation, name in product(PRINCIPALS[:2], HOSTS, OPERATIONS, (*NAMES, *OTHERS)):
        asked = (principal, host, operation.name, name)
        expected = asked in allowed - denied if name in with_acls else default
        assert judged.allows(principal, host, operation, kind, name) is expected, asked


@given(rules=st.lists(near_acls, max_size=5))
def test_some_resource_is_allowed_where_the_oracle_finds_one(rules: list[AclBinding]) -> None:
    """Names with a letter that no ACL has stand for all that denied prefixes leave of an allowed one."""
    judged = authorizer_of(rules)
    allowed = world(rules, ResourceType.TOPIC, Permission.ALLOW, implied=False)
    denied = world(rules, ResourceType.TOPIC, Permission.DENY, implied=False)
    for principal, host in product(PRINCIPALS, HOSTS):
        asked = [(principal, host, "READ", name) for name in (*NAMES, *OTHERS)]
        expected = any(each in allowed - denied for each in asked)
        found = judged.allows_some(principal, host, Operation.READ, ResourceType.TOPIC)
        assert found is expected, (rules, principal, host)


@given(rules=acl_lists, kind=st.sampled_from(TYPES), name=st.sampled_from(NAMES))
def test_authorized_operations_are_what_is_allowed(
    rules: list[AclBinding], kind: ResourceType, name: str
) -> None:
    judged = authorizer_of(rules)
    bits = judged.authorized_operations("User:alice", HOSTS[0], kind, name)
    reported = {operation for operation in OPERATIONS if bits >> operation & 1}
    allowed = {o for o in OPERATIONS if judged.allows("User:alice", HOSTS[0], o, kind, name)}
    assert reported <= allowed
    never_reported = {"CREATE", "CLUSTER_ACTION", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS"}
    groups_lack = {"WRITE", "ALTER"} if kind is ResourceType.GROUP else set()
    if kind is ResourceType.TOPIC:
        never_reported.remove("CREATE")
    missing = {operation.name for operation in allowed - reported}
    assert missing <= never_reported | groups_lack


@given(rules=acl_lists)
def test_super_users_are_beyond_denials(rules: list[AclBinding]) -> None:
    judged = authorizer_of(rules, super_users=["User:alice"])
    assert judged.allows("User:alice", HOSTS[0], Operation.WRITE, ResourceType.TOPIC, "a")
    assert judged.allows_some("User:alice", HOSTS[0], Operation.WRITE, ResourceType.TOPIC)


def test_without_authorizer_everything_is_allowed() -> None:
    judged = authorizer_of(None)
    assert not judged.is_there
    assert judged.allows("User:alice", HOSTS[0], Operation.ALTER, ResourceType.CLUSTER, "kafka-cluster")
    assert authorizer_of([]).is_there


@given(
    rules=acl_lists, name=st.sampled_from((*IN_ACLS, "*", None)), pattern_type=st.sampled_from(range(1, 5))
)
def test_match_filter_finds_what_covers_the_resource(
    rules: list[AclBinding], name: str | None, pattern_type: int
) -> None:
    wanted = AclFilter(1, name, pattern_type, None, None, 1, 1)
    for acl in rules:
        same_pattern = pattern_type in (1, 2, acl.pattern_type)
        covers = name is None or name == acl.resource_name
        if pattern_type == PatternType.MATCH and name is not None and name != "*":
            covers = name in names_of(acl)
        if pattern_type == PatternType.MATCH and name == "*":
            continue
        assert wanted.matches(acl) is (same_pattern and covers)


# The short form

patterns = st.one_of(st.none(), st.lists(st.sampled_from(["a", "a*", "ab", "b*", "*"]), max_size=3))


@given(topics=patterns, groups=patterns, ids=patterns, name=st.sampled_from(NAMES))
def test_short_form_means_what_its_patterns_say(topics: Any, groups: Any, ids: Any, name: str) -> None:
    short = Acls(topic_write=topics, group_read=groups, transactional_id_write=ids)
    judged = Authorizer(None, (), False, lambda: short)

    def allows(operation: Operation, kind: ResourceType) -> bool:
        return judged.allows("User:anyone", HOSTS[0], operation, kind, name)

    def matches(wanted: Any) -> bool:
        return wanted is None or any(fnmatchcase(name, pattern) for pattern in wanted)

    assert allows(Operation.WRITE, ResourceType.TOPIC) is matches(topics)
    assert allows(Operation.READ, ResourceType.TOPIC)
    assert allows(Operation.READ, ResourceType.GROUP) is matches(groups)
    assert allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID) is matches(ids)
    assert judged.is_there is ((topics, groups, ids) != (None, None, None))


def test_acl_of_names_says_which_are_wrong() -> None:
    binding = AclBinding.of(("TOPIC", "events", "User:alice", "WRITE", "DENY"))
    assert (binding.permission, binding.host, binding.pattern_type) == (Permission.DENY, "*", 3)
    for values, message in (
        (("TOPICS", "a", "User:a", "READ"), "ResourceType must be one of TOPIC, GROUP.*got 'TOPICS'"),
        (("TOPIC", "a", "User:a", "read"), "Operation must be one of ALL, READ.*got 'read'"),
        (("TOPIC", "a"), "an ACL must be an AclBinding or a tuple"),
    ):
        with pytest.raises(ValueError, match=message):
            AclBinding.of(values)


# A broker with an authorizer


def test_clients_are_distinguished_by_their_principals() -> None:
    rules = [AclBinding.of(("TOPIC", TOPIC, "User:alice", "WRITE"))]
    broker = VirtualBroker(access=rules)
    anonymous, alice = broker.client(), broker.client()
    alice.connection.session.user = "alice"
    refused = produced(anonymous.ask(produce_request(broker)))
    assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert produced(alice.ask(produce_request(broker))).error_code == 0
    kind = messages.MetadataRequest
    named = kind(topics=[kind.MetadataRequestTopic(name=TOPIC)], include_topic_authorized_operations=True)
    (seen,) = alice.ask(named).topics
    assert seen.topic_authorized_operations == 1 << Operation.WRITE | 1 << Operation.DESCRIBE
    assert anonymous.ask(kind(topics=None)).topics == []
    assert alice.ask(messages.InitProducerIdRequest(transactional_id=None)).error_code == 0
    refused = anonymous.ask(messages.InitProducerIdRequest(transactional_id=None))
    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_acls_are_created_while_the_broker_runs() -> None:
    broker = VirtualBroker(access=[], super_users=("User:ANONYMOUS",))
    bob, root = broker.client(), broker.client()
    bob.connection.session.user = "bob"
    assert produced(bob.ask(produce_request(broker))).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    creation = messages.CreateAclsRequest.AclCreation(
        resource_type=2,
        resource_name="ev",
        resource_pattern_type=4,
        principal="User:bob",
        host="*",
        operation=4,
        permission_type=3,
    )
    assert root.ask(messages.CreateAclsRequest(creations=[creation])).results[0].error_code == 0
    assert produced(bob.ask(produce_request(broker))).error_code == 0
    refused = bob.ask(messages.CreateAclsRequest(creations=[creation]))
    assert refused.results[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
