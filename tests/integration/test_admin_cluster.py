"""Admin against a real Kafka with an authorizer: replicas, access, transactions, the cluster itself."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

import pytest

import kbatch
from kbatch import Admin, TopicPartition
from kbatch.admin import (
    DEFAULT,
    Acl,
    AclFilter,
    ConfigResource,
    Hanging,
    PartitionDescription,
    QuotaEntity,
    ScramInfo,
)
from kbatch.errors import (
    BrokerIdNotRegisteredError,
    BrokerNotAvailableError,
    DuplicateVoterError,
    ErrorCode,
    GroupNotEmptyError,
    InvalidConfigurationError,
    InvalidRegularExpressionError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    KafkaError,
    NoReassignmentInProgressError,
    PartialFailure,
    ProducerFencedError,
    ResourceNotFoundError,
    TransactionalIdNotFoundError,
    UnacceptableCredentialError,
    UnsupportedByAuthenticationError,
    UnsupportedVersionError,
    VoterNotFoundError,
)
from tests.oracle.kafka import RealKafka
from tests.support.patience import until
from tests.support.streams_member import StreamsMember

pytestmark = [pytest.mark.java, pytest.mark.slow]

PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "secret",
}
TOPIC = "moved"
PARTITION = TopicPartition(TOPIC, 0)


@pytest.fixture(scope="module")
def kafka(java_jars: None) -> Iterator[RealKafka]:
    with RealKafka(PROPERTIES) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.topics.create(TOPIC, partitions=2, replication_factor=1)
        yield broker


@pytest.fixture
def admin(kafka: RealKafka) -> Iterator[Admin]:
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as opened:
        yield opened


# Partitions


def test_AS37_elections_that_are_not_needed_are_not_repeated(admin: Admin) -> None:
    assert admin.partitions.elect([PARTITION]) == {PARTITION: False}
    assert admin.partitions.elect([PARTITION], unclean=True) == {PARTITION: False}
    assert admin.partitions.elect() == {}
    with pytest.raises(PartialFailure) as raised:
        admin.partitions.elect([PARTITION, (TOPIC, 9)])
    assert raised.value.results == {PARTITION: False}
    (error,) = raised.value.errors.values()
    assert error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_AS39_AS41_reassignments(admin: Admin) -> None:
    assert admin.partitions.reassign({PARTITION: [0]}) == {}
    assert admin.partitions.reassignments() == {}
    with pytest.raises(PartialFailure) as raised:
        admin.partitions.cancel([PARTITION])
    assert isinstance(raised.value.errors[PARTITION], NoReassignmentInProgressError)
    with pytest.raises(BrokerNotAvailableError, match="broker 7 is not alive"):
        admin.partitions.reassign({PARTITION: [7]})
    with pytest.raises(ValueError, match="twice"):
        admin.partitions.reassign({PARTITION: [0, 0]})
    with pytest.raises(InvalidReplicationFactorError, match="there are 1"):
        admin.partitions.set_replication_factor(TOPIC, 2)
    assert admin.partitions.set_replication_factor(TOPIC, 1) == {}
    assert str(admin.partitions.plan([TOPIC])) == "nothing to move"


def test_AS45_log_dirs(admin: Admin, kafka: RealKafka) -> None:
    ((directory,),) = admin.partitions.log_dirs().values()
    assert directory.path == str(kafka.log_directory)
    assert directory.error is None and directory.replicas[PARTITION].is_future is False
    found = admin.partitions.replica_dirs([(PARTITION, 0)])
    assert found == {(PARTITION, 0): (directory.path, None, None)}
    with pytest.raises(PartialFailure) as raised:
        admin.partitions.move_log_dirs({(PARTITION, 0): "/nowhere"})
    (error,) = raised.value.errors.values()
    assert error.code == ErrorCode.LOG_DIR_NOT_FOUND


# Access


def test_AS65_rules_of_access(admin: Admin) -> None:
    rule = Acl("topic", "orders", "Read", "User:bob")
    for _ in range(2):
        admin.acls.create([rule, rule._replace(operation="write", name="ord", pattern="prefixed")])
    until(lambda: len(admin.acls.list(principal="User:bob")) == 2)
    assert len(admin.acls.list(resource="topic", name="orders", pattern="match")) == 2
    assert admin.acls.list(resource="topic", name="orders", pattern="literal") == (rule,)
    with pytest.raises(ValueError, match="a group does not have Write"):
        admin.acls.create([Acl("group", "g", "Write", "User:bob")])
    with pytest.raises(ValueError, match="User:alice"):
        admin.acls.create([rule._replace(principal="bob")])
    (deleted,) = admin.acls.delete([AclFilter(principal="User:bob")]).values()
    assert deleted is not None and rule in deleted
    until(lambda: admin.acls.list(principal="User:bob") == ())


def test_AS57_AS58_quotas(admin: Admin) -> None:
    bob, others = QuotaEntity(user="bob"), QuotaEntity(user=DEFAULT, client_id="c")
    admin.quotas.alter({bob: {"producer_byte_rate": 1000}, others: {"consumer_byte_rate": 5}})
    until(lambda: len(admin.quotas.describe()) == 2)
    assert admin.quotas.describe(user="bob") == {bob: {"producer_byte_rate": 1000.0}}
    assert set(admin.quotas.describe(user="<any>")) == {bob, others}
    assert admin.quotas.describe(user=DEFAULT, exact=True) == {}
    with pytest.raises(InvalidRequestError):
        admin.quotas.alter(bob, {"producer_byte_rate": 1.5})
    with pytest.raises(ValueError, match="finite"):
        admin.quotas.alter(bob, {"request_percentage": float("nan")})
    admin.quotas.alter(bob, reset=["producer_byte_rate"])
    admin.quotas.alter(others, reset=["consumer_byte_rate"])
    until(lambda: admin.quotas.describe() == {})


def test_AS60_AS62_users_of_scram(admin: Admin) -> None:
    admin.users.set("bob", "builder")
    until(lambda: admin.users.describe() == {"bob": (ScramInfo("SCRAM-SHA-512", 8192),)})
    with pytest.raises(UnacceptableCredentialError) as refused:
        admin.users.set("bob", "builder", iterations=4095)
    assert "builder" not in repr(refused.value)
    with pytest.raises(PartialFailure) as raised:
        admin.users.describe(["bob", "eve"])
    assert list(raised.value.results) == ["bob"]
    assert isinstance(raised.value.errors["eve"], ResourceNotFoundError)
    admin.users.delete("bob", "SCRAM-SHA-512")
    with pytest.raises(ResourceNotFoundError):
        admin.users.delete("bob", "SCRAM-SHA-512")


def test_AS69_tokens_need_a_login(admin: Admin) -> None:
    with pytest.raises(UnsupportedByAuthenticationError):
        admin.tokens.create()
    with pytest.raises(UnsupportedByAuthenticationError):
        admin.tokens.list()


# Transactions


def test_AS82_AS83_AS84_transactions(admin: Admin, kafka: RealKafka) -> None:
    with pytest.raises(InvalidRegularExpressionError):
        admin.transactions.list(pattern="(")
    with pytest.raises(ValueError, match="Ongoing"):
        admin.transactions.list(["foo"])
    producer = kbatch.Producer(bootstrap_servers=kafka.bootstrap_servers, transactional_id="tx")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(TOPIC, b"x", partition=0)
    producer.flush()
    (listed,) = admin.transactions.list(["ongoing"], pattern="t.")
    described = admin.transactions.describe("tx")
    assert (described.state, described.partitions) == ("Ongoing", (PARTITION,))
    assert listed.producer_id == described.producer_id
    (state,) = admin.topics.producers(PARTITION)
    assert state.transaction_start is not None
    assert admin.transactions.find_hanging([TOPIC], older_than=timedelta(0)) == ()
    wrong = Hanging(PARTITION, 99_999, 0, 0, 0, None)
    with pytest.raises(InvalidRequestError, match="99999"):
        admin.transactions.abort(wrong)
    for call in (admin.transactions.describe, admin.transactions.terminate):
        with pytest.raises(TransactionalIdNotFoundError):
            call("nobody")
    fenced = admin.transactions.terminate("tx")
    assert fenced.producer_id == described.producer_id and fenced.epoch > described.epoch
    with pytest.raises(ProducerFencedError):
        producer.commit_transaction()
    producer.close(timeout=1)
    with pytest.raises(TransactionalIdNotFoundError):
        admin.transactions.describe("nobody")


# Streams groups


def test_AS70_AS71_a_streams_group_with_a_member_is_described(admin: Admin, kafka: RealKafka) -> None:
    with StreamsMember(kafka.bootstrap_servers, "streaming", TOPIC) as member:
        found = admin.groups.describe("streaming")
        assert (found.kind, found.state) == ("streams", "Stable")
        (described,) = found.members
        assert (described.member_id, described.client_id) == (member.member_id, "streams")
        assert described.partitions == (TopicPartition("0", 0), TopicPartition("0", 1))  # of a subtopology
        assert [each.group_id for each in admin.groups.list(kinds=["streams"])] == ["streaming"]
        with pytest.raises(GroupNotEmptyError):
            admin.groups.reset("streaming", topics=[TOPIC], to="earliest")
        with pytest.raises(GroupNotEmptyError):
            admin.groups.delete("streaming", kind="streams")
    assert set(admin.groups.reset("streaming", topics=[TOPIC], to="earliest")) == {
        PARTITION,
        TopicPartition(TOPIC, 1),
    }
    admin.groups.delete("streaming", kind="streams")


# The cluster


def test_AS47_AS48_nodes_of_the_cluster(admin: Admin) -> None:
    found = admin.cluster.describe(fenced=True, operations=True)
    assert [(each.node_id, each.is_fenced) for each in found.nodes] == [(0, False)]
    assert found.operations is not None and "Alter" in found.operations
    with pytest.raises(InvalidRequestError, match="broker 0 is alive"):
        admin.cluster.unregister(0)
    with pytest.raises(BrokerIdNotRegisteredError):
        admin.cluster.unregister(9)


def test_AS53_AS54_features(admin: Admin) -> None:
    found = admin.cluster.features()
    level = found.finalized["transaction.version"]
    admin.cluster.update_features({"transaction.version": level})
    with pytest.raises(ValueError, match="downgrade"):
        admin.cluster.update_features({"transaction.version": level - 1})
    admin.cluster.update_features({"transaction.version": level - 1}, downgrade="safe", validate_only=True)
    with pytest.raises(InvalidUpdateVersionError):
        admin.cluster.update_features({"metadata.version": 99})
    with pytest.raises(InvalidUpdateVersionError):
        admin.cluster.update_features({"transaction.version": level, "nothing.version": 1})
    assert admin.cluster.features().finalized == found.finalized


def test_AS52_AS55_quorum(admin: Admin) -> None:
    found = admin.cluster.quorum()
    assert found.leader == 0
    assert [(each.node_id, each.lag) for each in found.voters] == [(0, 0)]
    with pytest.raises(UnsupportedVersionError, match=r"kraft\.version"):
        admin.cluster.add_voter(5, UUID(int=5), {"CONTROLLER": ("localhost", 1234)})
    with pytest.raises(KafkaError):
        admin.cluster.remove_voter(5, UUID(int=5))


def test_AS56_voters_of_a_dynamic_quorum(java_jars: None) -> None:
    with (
        RealKafka(dynamic_quorum=True) as kafka,
        Admin(bootstrap_servers=kafka.bootstrap_servers) as admin,
    ):
        (voter,) = admin.cluster.quorum().voters
        host, _, port = kafka.controllers[0].partition(":")
        for directory in (voter.directory_id, UUID(int=5)):
            with pytest.raises(DuplicateVoterError):
                admin.cluster.add_voter(voter.node_id, directory, {"CONTROLLER": (host, int(port))})
        for node_id, directory in ((5, voter.directory_id), (voter.node_id, UUID(int=5))):
            with pytest.raises(VoterNotFoundError):
                admin.cluster.remove_voter(node_id, directory)
        with pytest.raises(VoterNotFoundError):  # the last one
            admin.cluster.remove_voter(voter.node_id, voter.directory_id)
        assert [each.node_id for each in admin.cluster.quorum().voters] == [voter.node_id]


def test_AS31_AS33_AS35_AS36_configurations_of_all_kinds(admin: Admin) -> None:
    assert admin.configs.describe(logger=0)["root"].source == "DYNAMIC_BROKER_LOGGER_CONFIG"
    with pytest.raises(InvalidConfigurationError):
        admin.configs.alter(logger=0, set={"kafka.nowhere": "INFO"})
    assert admin.configs.describe(group="any")
    assert admin.configs.describe(client_metrics="any")
    admin.configs.alter(broker_defaults=True, set={"log.retention.ms": 123_456_789})
    until(lambda: admin.configs.describe(topic=TOPIC)["retention.ms"].value == "123456789")
    entry = admin.configs.describe(topic=TOPIC)["retention.ms"]
    assert entry.source == "DYNAMIC_DEFAULT_BROKER_CONFIG"
    admin.configs.alter(broker_defaults=True, reset=["log.retention.ms"])
    assert ConfigResource("topic", TOPIC) in admin.configs.list_resources(["topic"])
    with pytest.raises(ValueError, match="client_metrics"):
        admin.configs.list_resources(["topics"])


def test_AS32_secrets_are_not_told(admin: Admin) -> None:
    entry = admin.configs.describe(broker=0)["delegation.token.secret.key"]
    assert (entry.value, entry.is_sensitive, entry.type) == (None, True, "PASSWORD")


def test_partitions_are_described(admin: Admin) -> None:
    described = admin.topics.describe(TOPIC)
    assert described.partitions[0] == PartitionDescription(0, 0, 0, (0,), (0,))
