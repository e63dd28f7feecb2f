"""Logins, sessions, ACLs and the users of SCRAM.

`SCENARIOS` has those for a broker without security. Those of `SECURED` are functions of a Wire, whose client
may do everything, and of the Doors of a broker with an authorizer.
"""

import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from tests.integration.scenarios.produced_batches import GOOD
from tests.integration.scenarios.requests import produce_request
from tests.integration.scenarios.wire import Wire, scenario
from tests.oracle.scram import ScramClient
from tests.support.broker_wire import ConnectionClosed
from tests.support.patience import until

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 2, 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12
DENY, ALLOW = 2, 3
SHA_256, SHA_512 = 1, 2
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
API_VERSIONS = messages.ApiVersionsRequest(client_software_name="n", client_software_version="1")


class Doors(NamedTuple):
    """The listeners of a broker, and its users.

    Listeners are SASL_PLAINTEXT, SHORT with TLS and sessions of 3 s, and TLS. `passwords` has alice and bob.
    """

    addresses: Mapping[str, str]
    context: ssl.SSLContext
    passwords: Mapping[str, str]

    @contextmanager
    def open(self, wire: Wire, listener: str) -> Iterator["Client"]:
        context = None if listener == "SASL_PLAINTEXT" else self.context
        with wire.through(self.addresses[listener], context) as opened:
            yield Client(opened, self.passwords)

    @contextmanager
    def user(self, wire: Wire, name: str) -> Iterator[Wire]:
        """Yield a client of a user's."""
        with self.open(wire, "SASL_PLAINTEXT") as client:
            client.log_in(name)
            yield client.wire


class Client(NamedTuple):
    """A connection to a listener that wants a login."""

    wire: Wire
    passwords: Mapping[str, str]

    def handshake(self, mechanism: str, note: str = "") -> None:
        """Written down, but for the order of the mechanisms, and for those that only one broker has."""
        try:
            answer = self.wire.ask(messages.SaslHandshakeRequest(mechanism=mechanism))
        except ConnectionClosed:
            self.wire.note(f"handshake {mechanism} {note}", "closed")
            return
        known = sorted(set(answer.mechanisms) & {"PLAIN", *HASHES})
        self.wire.note(f"handshake {mechanism} {note}", ({"error_code": answer.error_code}, known))

    def token(self, token: bytes, note: str = "") -> Any:
        """Written down with the text, which is Kafka's, and with a session's whole seconds."""
        try:
            answer = self.wire.ask(messages.SaslAuthenticateRequest(auth_bytes=token))
        except ConnectionClosed:
            self.wire.note(f"token {note}", "closed")
            return None
        self.wire.note(
            f"token {note}",
            ({"error_code": answer.error_code}, answer.error_message, answer.session_lifetime_ms),
        )
        return answer

    def log_in(self, user: str, note: str = "", *, password: str | None = None) -> Any:
        self.handshake("PLAIN", note)
        secret = self.passwords[user] if password is None else password
        return self.token(f"\0{user}\0{secret}".encode(), note)

    def log_in_by_scram(self, mechanism: str, user: str, password: str, note: str = "") -> None:
        self.handshake(mechanism, note)
        scram = ScramClient(HASHES[mechanism], user, password)
        first = self.token(scram.first(), f"first {note}")
        if first is not None and first.error_code == 0:
            final = self.token(scram.final(bytes(first.auth_bytes)), f"final {note}")
            proven = final is not None and bytes(final.auth_bytes) == scram.expected
            self.wire.note("the server proves itself", proven)

    def is_served(self) -> None:
        self.wire.note("served", not self.wire_is_closed())

    def wire_is_closed(self) -> bool:
        try:
            self.wire.ask(API_VERSIONS)
        except ConnectionClosed:
            return True
        return False

    def expect_closed(self, note: str) -> None:
        self.wire.note(note, self.wire.is_closed)


Secured = Callable[[Wire, Doors], None]
SECURED: dict[str, Secured] = {}


def secured(function: Secured) -> Secured:
    SECURED[function.__name__] = function
    return function


# Without security


@scenario
def login_where_there_is_none(wire: Wire) -> None:
    wire.call(messages.SaslHandshakeRequest(mechanism="PLAIN"), 1)
    wire.call(messages.SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2)
    wire.note("goes on", {"error_code": wire.ask(API_VERSIONS, 0).error_code})


def _creation(principal: str = "User:alice", **fields: Any) -> Any:
    wanted: dict[str, Any] = {"resource_type": TOPIC, "resource_name": "t", "resource_pattern_type": LITERAL}
    wanted |= {"host": "*", "operation": READ, "permission_type": ALLOW} | fields
    return messages.CreateAclsRequest.AclCreation(principal=principal, **wanted)


def _filter(kind: Any = messages.DeleteAclsRequest.DeleteAclsFilter, **fields: Any) -> Any:
    wanted: dict[str, Any] = {"resource_type_filter": ANY, "resource_name_filter": None}
    wanted |= {"pattern_type_filter": ANY, "principal_filter": None, "host_filter": None}
    return kind(**(wanted | {"operation": ANY, "permission_type": ANY} | fields))


@scenario
def delegation_tokens_where_there_is_no_login(wire: Wire) -> None:
    wire.call(messages.CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
    wire.call(messages.DescribeDelegationTokenRequest(owners=None), 3)


@scenario
def acls_without_authorizer(wire: Wire) -> None:
    for version in range(1, 4):
        wire.call(messages.CreateAclsRequest(creations=[_creation(), _creation("User:bob")]), version)
        wire.call(messages.DeleteAclsRequest(filters=[_filter(), _filter()]), version)
        wire.call(_filter(messages.DescribeAclsRequest), version)
    wire.call(messages.CreateAclsRequest(creations=[]))


@scenario
def operations_without_authorizer(wire: Wire) -> None:
    wire.call(messages.DescribeClusterRequest(include_cluster_authorized_operations=True))
    group = messages.DescribeGroupsRequest(groups=[wire.name], include_authorized_operations=True)
    for version in (3, 5, 6):
        wire.call(group, version)


# The users of SCRAM


def _upsertion(name: str, mechanism: int = SHA_256, iterations: int = 4096) -> Any:
    kind = messages.AlterUserScramCredentialsRequest.ScramCredentialUpsertion
    return kind(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"x" * 32
    )


def _deletion(name: str, mechanism: int = SHA_256) -> Any:
    kind = messages.AlterUserScramCredentialsRequest.ScramCredentialDeletion
    return kind(name=name, mechanism=mechanism)


def _alter(wire: Wire, note: str, *, deletions: Any = (), upsertions: Any = ()) -> None:
    kind = messages.AlterUserScramCredentialsRequest
    answer = wire.ask(kind(deletions=[*deletions], upsertions=[*upsertions]))
    rows = [(row.user, {"error_code": row.error_code}, _text(row)) for row in answer.results]
    wire.note(f"alter {note}", sorted(rows, key=lambda row: row[0]))


def _text(row: Any) -> str | None:
    """Return a row's text, or None for one that shows addresses of Kafka's objects."""
    is_refusal = row.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return None if is_refusal else str(row.error_message)


def _await_users(wire: Wire, names: list[str], credentials: int) -> None:
    """Wait until each user has so many credentials: Kafka's broker learns it from its controller."""
    kind = messages.DescribeUserScramCredentialsRequest
    request = kind(users=[kind.UserName(name=name) for name in names])
    until(lambda: all(len(result.credential_infos) == credentials for result in wire.ask(request).results))


def _describe(wire: Wire, note: str, names: list[str]) -> None:
    kind = messages.DescribeUserScramCredentialsRequest
    answer = wire.ask(kind(users=[kind.UserName(name=name) for name in names]))
    rows = [
        (row.user, {"error_code": row.error_code}, row.error_message, row.credential_infos)
        for row in sorted(answer.results, key=lambda row: row.user)
    ]
    for row in rows:
        row[3].sort(key=lambda info: info.mechanism)
    wire.note(f"describe {note}", ({"error_code": answer.error_code}, rows))


@scenario
def scram_users_are_made_described_and_deleted(wire: Wire) -> None:
    one, two = (wire.topic_name(suffix) for suffix in ("one", "two"))
    _describe(wire, "unknown", [one])
    _alter(wire, "new", upsertions=[_upsertion(one), _upsertion(two, SHA_512, 16_384)])
    _await_users(wire, [one, two], 1)
    _alter(wire, "another mechanism", upsertions=[_upsertion(one, SHA_512, 8192)])
    _await_users(wire, [one], 2)
    _describe(wire, "known", [one, two, f"{one}.unknown"])
    _describe(wire, "twice", [one, one])
    _alter(wire, "deleted", deletions=[_deletion(one)])
    _await_users(wire, [one], 1)
    _describe(wire, "afterwards", [one, two])


@scenario
def scram_users_refusals(wire: Wire) -> None:
    one, two = (wire.topic_name(suffix) for suffix in ("one", "two"))
    _alter(wire, "few iterations", upsertions=[_upsertion(one, SHA_256, 4095), _upsertion(two)])
    _alter(wire, "many iterations", upsertions=[_upsertion(one, SHA_512, 16_385)])
    _alter(wire, "no name", upsertions=[_upsertion("")])
    _alter(wire, "unknown mechanism", upsertions=[_upsertion(one, 0)])
    _alter(wire, "mechanism of the future", deletions=[_deletion(one, 9)])
    _alter(wire, "not there", deletions=[_deletion(f"{one}.unknown")])
    _alter(wire, "twice", upsertions=[_upsertion(one), _upsertion(one, SHA_512)])
    _alter(wire, "deleted and set", deletions=[_deletion(two)], upsertions=[_upsertion(two)])
    _alter(wire, "none")


# Logins


@secured
def logins(wire: Wire, doors: Doors) -> None:
    with doors.open(wire, "SASL_PLAINTEXT") as client:
        client.wire.note("versions", {"error_code": client.wire.ask(API_VERSIONS).error_code})
        client.log_in("alice")
        client.is_served()
        client.handshake("PLAIN", "again")
        client.token(b"\0alice\0x", "again")
        client.is_served()
    for mechanism in HASHES:
        with doors.open(wire, "SASL_PLAINTEXT") as client:
            client.log_in_by_scram(mechanism, "bob", doors.passwords["bob"])
            client.is_served()


@secured
def refused_logins(wire: Wire, doors: Doors) -> None:
    tokens = [b"\0alice\0wrong", b"\0nobody\0x", b"\0alice\0", b"\0\0x", b"x", b"a\0b\0c\0d", b"\xff"]
    tokens.append(f"bob\0alice\0{doors.passwords['alice']}".encode())
    for token in tokens:
        with doors.open(wire, "SASL_PLAINTEXT") as client:
            client.handshake("PLAIN")
            client.token(token, repr(token) if b"password" not in token else "another id")
            client.expect_closed("closed")
    for mechanism in ("SCRAM-SHA-1", "", "plain"):
        with doors.open(wire, "SASL_PLAINTEXT") as client:
            client.handshake(mechanism)
            client.expect_closed("closed")


@secured
def refused_logins_by_scram(wire: Wire, doors: Doors) -> None:
    for token in (b"", b"n,,n=nobody,r=x", b"y,,n=bob,r=x", b"n,a=alice,n=bob,r=x", b"n,,n=b=ob,r=x"):
        with doors.open(wire, "SASL_PLAINTEXT") as client:
            client.handshake("SCRAM-SHA-256")
            client.token(token, repr(token))
            client.expect_closed("closed")
    for note, password in (("wrong password", "x"), ("right", doors.passwords["bob"])):
        with doors.open(wire, "SASL_PLAINTEXT") as client:
            client.log_in_by_scram("SCRAM-SHA-512", "bob", password, note)
            client.wire.note("then", "closed" if client.wire_is_closed() else "served")
    with doors.open(wire, "SASL_PLAINTEXT") as client:
        client.handshake("SCRAM-SHA-256")
        scram = ScramClient("sha256", "bob", doors.passwords["bob"])
        first = client.token(scram.first(), "first")
        client.token(scram.final(bytes(first.auth_bytes), nonce="clientnonceX"), "another nonce")
        client.expect_closed("closed")


@secured
def requests_around_a_login(wire: Wire, doors: Doors) -> None:
    metadata = messages.MetadataRequest(topics=[])
    with doors.open(wire, "SASL_PLAINTEXT") as client:
        client.wire.call(metadata, 12, note="first of all")
    with doors.open(wire, "SASL_PLAINTEXT") as client:
        client.wire.ask(API_VERSIONS)
        client.wire.call(API_VERSIONS, 0, note="a second time")
    with doors.open(wire, "SASL_PLAINTEXT") as client:
        invalid = messages.ApiVersionsRequest(client_software_name="", client_software_version="1")
        client.wire.note("invalid versions", {"error_code": client.wire.ask(invalid, 3).error_code})
        client.log_in("alice", "after it")
    with doors.open(wire, "SASL_PLAINTEXT") as client:
        client.wire.call(messages.SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), 2, note="no handshake")
    for request, version in ((messages.SaslHandshakeRequest(mechanism="PLAIN"), 1), (metadata, 13)):
        with doors.open(wire, "SASL_PLAINTEXT") as client:
            client.handshake("PLAIN")
            client.wire.call(request, version, note="between handshake and token")
            client.expect_closed("closed")
    with doors.open(wire, "TLS") as client:
        client.handshake("PLAIN", "on SSL")
        client.is_served()


# Delegation tokens


@secured
def delegation_tokens(wire: Wire, doors: Doors) -> None:
    create, renewer = messages.CreateDelegationTokenRequest, messages.CreateDelegationTokenRequest
    with doors.user(wire, "alice") as alice, doors.user(wire, "bob") as bob:
        tokens: dict[str, dict[str, Any]] = {
            "week": {"max_lifetime_ms": -1},
            "minute": {"max_lifetime_ms": 60_000},
            "group as renewer": {
                "renewers": [renewer.CreatableRenewers(principal_type="Group", principal_name="g")]
            },
            "of another": {"owner_principal_type": "User", "owner_principal_name": "bob"},
        }
        for note, fields in tokens.items():
            answer = alice.ask(create(**fields))
            times = [answer.expiry_timestamp_ms, answer.max_timestamp_ms]
            names = [answer.principal_name, answer.token_requester_principal_name]
            left = [time - answer.issue_timestamp_ms for time in times]
            wire.note(note, ({"error_code": answer.error_code}, names, left))
        secret = bytes(alice.ask(create(max_lifetime_ms=60_000)).hmac)
        renew, expire = messages.RenewDelegationTokenRequest, messages.ExpireDelegationTokenRequest
        until(lambda: alice.ask(renew(hmac=secret, renew_period_ms=-1)).error_code == 0)
        for client, name in ((alice, "alice"), (bob, "bob")):
            for hmac in (b"unknown", secret):
                # not at once: Kafka's controller and broker learn of an end one after the other
                for request in (renew(hmac=hmac), expire(hmac=hmac, expiry_time_period_ms=30_000)):
                    code = client.ask(request).error_code
                    wire.note(f"{name} {type(request).__name__} {hmac == secret}", {"error_code": code})
        found = bob.ask(messages.DescribeDelegationTokenRequest(owners=None))
        wire.note("bob sees", ({"error_code": found.error_code}, found.tokens))
    with doors.open(wire, "TLS") as without_login:
        wire.note("on TLS", {"error_code": without_login.wire.ask(create()).error_code})


# Sessions


@secured
def session_ends(wire: Wire, doors: Doors) -> None:
    with doors.open(wire, "SHORT") as client:
        client.log_in("alice")
        until(client.wire_is_closed)
        wire.note("the session is over", True)


@secured
def session_is_renewed(wire: Wire, doors: Doors) -> None:
    with doors.open(wire, "SHORT") as client:
        client.log_in("alice")
        client.log_in("alice", "within a second of the first")
        client.handshake("PLAIN", "within a second of that")
        client.is_served()
    with doors.open(wire, "SHORT") as client:
        client.log_in("alice")
        client.wire.send(API_VERSIONS, 0)
        client.wire.send(messages.SaslHandshakeRequest(mechanism="PLAIN"), 1)
        codes = [client.wire.receive().error_code for _ in range(2)]
        client.wire.note("a request, and the handshake right behind it", codes)
        client.token(f"\0alice\0{doors.passwords['alice']}".encode(), "renewal")
        client.is_served()


@secured
def renewals_that_fail(wire: Wire, doors: Doors) -> None:
    with doors.open(wire, "SHORT") as client:
        client.log_in("alice")
        client.log_in("bob", "another principal")
        client.expect_closed("closed")
    with doors.open(wire, "SHORT") as client:
        client.log_in("alice")
        client.log_in("alice", "wrong password", password="x")
        client.expect_closed("closed")
    with doors.open(wire, "SHORT") as client:
        client.log_in("alice")
        client.log_in_by_scram("SCRAM-SHA-256", "alice", doors.passwords["alice"], "another mechanism")
    with doors.open(wire, "SHORT") as client:
        client.log_in("alice")
        client.handshake("SCRAM-SHA-1", "not enabled")
        client.expect_closed("closed")
    with doors.open(wire, "SHORT") as client:
        client.log_in("alice")
        client.handshake("PLAIN")
        kind = messages.MetadataRequest
        request = kind(topics=[kind.MetadataRequestTopic(name=wire.name)])
        client.wire.call(request, 12, note="in between")
        client.expect_closed("closed")


# ACLs


def _create_acls(wire: Wire, *creations: Any) -> None:
    """Not written down; returns when the broker knows them."""
    answer = wire.ask(messages.CreateAclsRequest(creations=list(creations)))
    assert not any(result.error_code for result in answer.results), answer
    for each in creations:
        wanted = _filter(
            messages.DescribeAclsRequest,
            resource_type_filter=each.resource_type,
            resource_name_filter=each.resource_name,
            pattern_type_filter=each.resource_pattern_type,
            principal_filter=each.principal,
            host_filter=each.host,
            operation=each.operation,
            permission_type=each.permission_type,
        )
        until(lambda wanted=wanted: bool(wire.ask(wanted).resources))  # type: ignore[misc]


def _delete_acls(wire: Wire, prefix: str) -> None:
    """Delete the ACLs of resources whose names begin so, and of the cluster; not written down."""

    def there() -> list[str]:
        found = wire.ask(_filter(messages.DescribeAclsRequest)).resources
        return [each.resource_name for each in found if each.resource_name.startswith((prefix, "kafka-"))]

    wire.ask(messages.DeleteAclsRequest(filters=[_filter(resource_name_filter=name) for name in there()]))
    until(lambda: not there())


def _operations(wire: Wire, topic: str, group: str) -> None:
    """Record what the client may do with a topic, a group and the cluster, in bits."""
    kind = messages.MetadataRequest
    request = kind(
        topics=[kind.MetadataRequestTopic(name=topic)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    (found,) = wire.ask(request, 12).topics
    wire.note("topic", ({"error_code": found.error_code}, found.topic_authorized_operations))
    groups = messages.DescribeGroupsRequest(groups=[group], include_authorized_operations=True)
    (described,) = wire.ask(groups, 5).groups
    wire.note("group", ({"error_code": described.error_code}, described.authorized_operations))
    cluster = wire.ask(messages.DescribeClusterRequest(include_cluster_authorized_operations=True))
    wire.note("cluster", cluster.cluster_authorized_operations)


@secured
def acls_allow_and_deny(wire: Wire, doors: Doors) -> None:
    topic, group = wire.topic("events"), wire.topic_name("group")
    prefix = wire.name
    cases: dict[str, list[Any]] = {
        "nothing": [],
        "read": [_creation(resource_name=topic)],
        "all": [_creation(resource_name=topic, operation=ALL)],
        "prefix": [_creation(resource_name=prefix, resource_pattern_type=PREFIXED, operation=WRITE)],
        "prefix of another": [_creation("User:bob", resource_name=topic, operation=ALL)],
        "everybody": [_creation("User:*", resource_name=topic, operation=ALTER)],
        "another host": [_creation(resource_name=topic, host="10.1.2.3", operation=ALL)],
        "this host": [_creation(resource_name=topic, host="127.0.0.1", operation=DELETE)],
        "denied within all": [
            _creation(resource_name=topic, operation=ALL),
            _creation(resource_name=prefix, resource_pattern_type=PREFIXED, permission_type=DENY),
        ],
        "denied to everybody": [
            _creation(resource_name=topic, operation=ALL),
            _creation("User:*", resource_name=topic, operation=DESCRIBE, permission_type=DENY),
        ],
        "alter configs implies": [_creation(resource_name=topic, operation=ALTER_CONFIGS)],
        "group": [_creation(resource_type=GROUP, resource_name=group, operation=READ)],
        "cluster": [
            _creation(resource_type=CLUSTER, resource_name="kafka-cluster", operation=operation)
            for operation in (ALTER, IDEMPOTENT_WRITE)
        ],
    }
    with doors.user(wire, "alice") as alice:
        for name, acls in cases.items():
            _create_acls(wire, *acls)
            wire.note("case", name)
            _operations(alice, topic, group)
            _delete_acls(wire, prefix)


@secured
def requests_without_permission(wire: Wire, doors: Doors) -> None:
    topic, group = wire.topic("events"), wire.topic_name("group")
    with doors.user(wire, "bob") as bob:
        _each_api(bob, topic, group)
        wire.note("with", "describe of the topic")
        _create_acls(wire, _creation("User:bob", resource_name=topic, operation=DESCRIBE))
        _each_api(bob, topic, group)
        _delete_acls(wire, wire.name)


def _each_api(wire: Wire, topic: str, group: str) -> None:
    """A request of most APIs, with the topic, the group and a transactional id of the group's name."""
    produce = produce_request(wire, {(topic, 0): GOOD, (f"{topic}-unknown", 0): GOOD})
    wire.call(produce, 12)
    wire.call(produce_request(wire, {(topic, 0): GOOD}), 13)
    fetch = messages.FetchRequest
    partition = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    for version in (12, 13):
        named = {"topic": topic} if version == 12 else {"topic_id": wire.topic_id(topic)}
        wanted = fetch.FetchTopic(partitions=[partition], **named)
        wire.call(fetch(max_wait_ms=0, max_bytes=1000, topics=[wanted], session_epoch=-1), version)
    offsets = messages.ListOffsetsRequest
    at_end = offsets.ListOffsetsPartition(timestamp=-1)
    wire.call(offsets(replica_id=-1, topics=[offsets.ListOffsetsTopic(name=topic, partitions=[at_end])]), 7)
    kind = messages.MetadataRequest
    by_name = kind.MetadataRequestTopic(name=topic)
    wire.call(kind(topics=[by_name], allow_auto_topic_creation=False), 12)
    by_id = kind.MetadataRequestTopic(name=None, topic_id=wire.topic_id(topic))
    wire.call(kind(topics=[by_id]), 12, note="by id")
    found = wire.ask(kind(topics=None), 12).topics
    wire.note("all topics", [each.name for each in found if each.name.startswith(wire.name)])
    wire.call(messages.InitProducerIdRequest(transactional_id=group), 4)
    anonymous = wire.ask(messages.InitProducerIdRequest(transactional_id=None), 4)
    wire.note("idempotent", {"error_code": anonymous.error_code})
    for key_type in (0, 1):
        wire.call(messages.FindCoordinatorRequest(key=group, key_type=key_type), 3)
    _each_api_of_groups(wire, topic, group)
    _each_api_of_admins(wire, topic)


def _each_api_of_groups(wire: Wire, topic: str, group: str) -> None:
    join = messages.JoinGroupRequest
    protocol = join.JoinGroupRequestProtocol(name="range", metadata=b"")
    wire.call(join(group_id=group, session_timeout_ms=6000, protocol_type="c", protocols=[protocol]), 5)
    wire.call(messages.SyncGroupRequest(group_id=group, member_id="m"), 3)
    wire.call(messages.HeartbeatRequest(group_id=group, member_id="m"), 3)
    wire.call(messages.LeaveGroupRequest(group_id=group, member_id="m"), 2)
    commit = messages.OffsetCommitRequest
    committed = commit.OffsetCommitRequestPartition(committed_offset=3)
    wanted = commit.OffsetCommitRequestTopic(name=topic, partitions=[committed])
    wire.call(commit(group_id=group, topics=[wanted]), 8)
    fetch = messages.OffsetFetchRequest
    wire.call(fetch(group_id=group, topics=[fetch.OffsetFetchRequestTopic(name=topic)]), 7)
    wire.call(messages.DeleteGroupsRequest(groups_names=[group]), 2)
    found = wire.ask(messages.ListGroupsRequest(), 4)
    wire.note("groups", [each.group_id for each in found.groups if each.group_id.startswith(wire.name)])
    add = messages.AddPartitionsToTxnRequest
    topics = [add.AddPartitionsToTxnTopic(name=topic, partitions=[0])]
    wire.call(add(v3_and_below_transactional_id=group, v3_and_below_topics=topics), 3)
    wire.call(messages.AddOffsetsToTxnRequest(transactional_id=group, group_id=group), 3)
    wire.call(messages.EndTxnRequest(transactional_id=group), 3)
    wire.call(messages.DescribeTransactionsRequest(transactional_ids=[group]), 0)


def _each_api_of_admins(wire: Wire, topic: str) -> None:
    create = messages.CreateTopicsRequest
    new = create.CreatableTopic(name=f"{topic}-new", num_partitions=1, replication_factor=1)
    wire.call(create(topics=[new]), 7)
    for name in (topic, f"{topic}-unknown"):
        wire.call(messages.DeleteTopicsRequest(topic_names=[name], timeout_ms=5000), 5)
    delete = messages.DeleteTopicsRequest
    by_id = delete.DeleteTopicState(name=None, topic_id=wire.topic_id(topic))
    wire.call(delete(topics=[by_id], timeout_ms=5000), 6)
    grow = messages.CreatePartitionsRequest
    wire.call(grow(topics=[grow.CreatePartitionsTopic(name=topic, count=2, assignments=None)]), 3)
    records = messages.DeleteRecordsRequest
    wanted = records.DeleteRecordsTopic(name=topic, partitions=[records.DeleteRecordsPartition(offset=-1)])
    wire.call(records(topics=[wanted], timeout_ms=5000), 2)
    configs = messages.DescribeConfigsRequest
    for resource_type, name in ((2, topic), (4, "0")):
        resource = configs.DescribeConfigsResource(
            resource_type=resource_type, resource_name=name, configuration_keys=["retention.ms"]
        )
        wire.call(configs(resources=[resource]), 4)
    producers = messages.DescribeProducersRequest
    wire.call(producers(topics=[producers.TopicRequest(name=topic, partition_indexes=[0])]), 0)
    wire.call(_filter(messages.DescribeAclsRequest), 3)
    wire.call(messages.CreateAclsRequest(creations=[_creation()]), 3)
    wire.call(messages.DeleteAclsRequest(filters=[_filter()]), 3)
    _describe(wire, "user", [topic])
    _alter(wire, "user", upsertions=[_upsertion(topic)])


@secured
def acls_are_described_and_deleted(wire: Wire, doors: Doors) -> None:
    name = wire.topic_name
    _create_acls(
        wire,
        _creation(resource_name=name("a")),
        _creation(resource_name=name("a"), operation=WRITE, permission_type=DENY),
        _creation("User:bob", resource_name=name(""), resource_pattern_type=PREFIXED),
        _creation(resource_type=GROUP, resource_name=name("a")),
        _creation(resource_type=GROUP, resource_name="*", principal="User:carol"),
        _creation(resource_type=TRANSACTIONAL_ID, resource_name=name("b"), host="10.0.0.1", operation=ALL),
    )
    filters: list[dict[str, Any]] = [
        {"resource_name_filter": name("a")},
        {"resource_name_filter": name("a"), "pattern_type_filter": LITERAL},
        {"resource_name_filter": name("a"), "pattern_type_filter": MATCH},
        {"resource_name_filter": name(""), "pattern_type_filter": PREFIXED},
        {"resource_type_filter": GROUP, "resource_name_filter": name("a"), "pattern_type_filter": MATCH},
        {"resource_name_filter": name("a"), "permission_type": DENY},
        {"resource_name_filter": name("b"), "host_filter": "10.0.0.1"},
        {"resource_name_filter": name("b"), "host_filter": "*"},
        {"principal_filter": "User:bob", "resource_name_filter": name("")},
        {"principal_filter": "User:carol", "operation": READ},
        {"principal_filter": "User:carol", "operation": ALL},
    ]
    for number, fields in enumerate(filters):
        _show_acls(wire, f"{number}", wire.ask(_filter(messages.DescribeAclsRequest, **fields)).resources)
    deleted = wire.ask(messages.DeleteAclsRequest(filters=[_filter(**fields) for fields in filters[:3]]))
    for number, result in enumerate(deleted.filter_results):
        rows = sorted(result.matching_acls, key=_acl_place)
        wire.note(f"deleted by {number}", ({"error_code": result.error_code}, rows))
    _delete_acls(wire, wire.name)
    wire.ask(messages.DeleteAclsRequest(filters=[_filter(principal_filter="User:carol")]))


def _acl_place(acl: Any) -> tuple[Any, ...]:
    return tuple(getattr(acl, field) for field in type(acl).__slots__ if not field.startswith("error"))


def _show_acls(wire: Wire, note: str, resources: list[Any]) -> None:
    for resource in resources:
        resource.acls.sort(key=_acl_place)
    key = ("resource_type", "resource_name", "pattern_type")
    resources.sort(key=lambda each: tuple(getattr(each, field) for field in key))
    wire.note(f"described by {note}", resources)


@secured
def acls_refusals(wire: Wire, doors: Doors) -> None:
    name = wire.topic_name("t")
    refused: dict[str, dict[str, Any]] = {
        "cluster of another name": {"resource_type": CLUSTER, "resource_name": name},
        "no name": {"resource_name": ""},
        "any operation": {"operation": ANY},
        "any type": {"resource_type": ANY},
        "match": {"resource_pattern_type": MATCH},
        "any pattern": {"resource_pattern_type": ANY},
        "any permission": {"permission_type": ANY},
        "principal without type": {"principal": "alice"},
        "principal without name": {"principal": "User:"},
        "twice": {"resource_name": name},
    }
    for note, fields in refused.items():
        creation = _creation(**{"resource_name": name, **fields})
        answer = wire.ask(messages.CreateAclsRequest(creations=[creation, creation]))
        wire.note(note, [{"error_code": each.error_code} for each in answer.results])
    for field in ("resource_type_filter", "pattern_type_filter", "operation", "permission_type"):
        wire.call(_filter(messages.DescribeAclsRequest, **{field: 0}), 3, note=f"unknown {field}")
        wire.call(messages.DeleteAclsRequest(filters=[_filter(**{field: 0})]), 3, note=f"unknown {field}")
        if not field.endswith("filter"):
            code: dict[str, Any] = {field: 0}
            unknown = _creation(resource_name=name, **code)
            wire.call(messages.CreateAclsRequest(creations=[unknown]), 3, note=f"unknown {field}")
    _delete_acls(wire, wire.name)
