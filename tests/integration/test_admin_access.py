"""Admin, logins, ACLs that refuse, quotas and hanging transactions, on a real Kafka with an authorizer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from hashlib import pbkdf2_hmac
from typing import Any

import pytest

import kbatch
from kbatch import Admin, AsyncAdmin, TopicPartition
from kbatch._native.codec.batch_writer import encode
from kbatch.admin import Acl, AclFilter, Hanging, NewTopic, QuotaEntity, security
from kbatch.errors import (
    ErrorCode,
    InvalidProducerEpochError,
    InvalidRequestError,
    KafkaError,
    KafkaTimeoutError,
    PartialFailure,
    SaslAuthenticationError,
    ThrottlingQuotaExceededError,
)
from kbatch.protocol import messages
from tests.conftest import require_jars
from tests.integration.cutting_proxy import losing
from tests.oracle.kafka import RealKafka
from tests.support.broker_core import produced
from tests.support.broker_wire import NO_TOPIC_ID, Wire
from tests.support.patience import until
from tests.support.requests import produce_request

pytestmark = [pytest.mark.java, pytest.mark.slow]

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
TOPIC = "guarded"
PARTITION = TopicPartition(TOPIC, 0)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    require_jars()
    folders = [tmp_path_factory.mktemp("logs") for _ in range(2)]
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "listener.name.sasl.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl.scram-sha-512.sasl.jaas.config": f"{SCRAM};",
        "delegation.token.secret.key": "secret",
        "transaction.partition.verification.enable": "false",
        "log.dirs": ",".join(map(str, folders)),
        "controller.quota.window.num": "2",  # so that a quota is used up soon
    }
    with RealKafka(properties, listeners={"SASL": "SASL_PLAINTEXT"}) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.topics.create(TOPIC, partitions=1, replication_factor=1)
        yield broker


@pytest.fixture
def admin(kafka: RealKafka) -> Iterator[Admin]:
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as opened:
        yield opened


def login(kafka: RealKafka, user: str, password: str) -> Admin:
    return Admin(
        bootstrap_servers=kafka.address("SASL"), default_api_timeout_ms=20_000, **scram(user, password)
    )


def scram(user: str, password: str) -> dict[str, Any]:
    """Return the keys of a login."""
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": user,
        "sasl_password": password,
    }


def set_user(admin: Admin, name: str, password: str) -> None:
    admin.users.set(name, password, iterations=4096)
    until(lambda: name in admin.users.describe())


# Logins


def test_AS61_a_password_works_until_it_is_deleted(kafka: RealKafka, admin: Admin) -> None:
    set_user(admin, "ada", "lovelace")
    with login(kafka, "ada", "lovelace") as user:
        assert user.topics.list() == ()
    admin.users.delete("ada", "SCRAM-SHA-512")
    until(lambda: "ada" not in admin.users.describe())
    with login(kafka, "ada", "lovelace") as user, pytest.raises(SaslAuthenticationError):
        user.topics.list()


def test_passwords_are_hashed_beside_the_event_loop(
    kafka: RealKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashing: list[int] = []

    def noted(*arguments: Any) -> bytes:
        hashing.append(threading.get_ident())
        return pbkdf2_hmac(*arguments)

    async def main() -> None:
        async with AsyncAdmin(bootstrap_servers=kafka.bootstrap_servers) as admin:
            await admin.users.set("grace", "hopper", iterations=16_384)
            await admin.users.delete("grace", "SCRAM-SHA-512")

    monkeypatch.setattr(security, "pbkdf2_hmac", noted)
    asyncio.run(main())
    assert len(hashing) == 1 and hashing[0] != threading.get_ident()


# Access


def refusals(call: Callable[[], Any]) -> set[int | None]:
    """Return the codes of a call that must fail."""
    try:
        call()
    except PartialFailure as failure:
        errors = list(failure.errors.values())
    except KafkaError as error:
        errors = [error]
    else:
        raise AssertionError("it was allowed")
    assert not any("Request(processor=" in str(error) for error in errors)  # what a broker says of its inside
    return {error.code for error in errors}


def test_AS67_a_user_without_rules_is_refused(kafka: RealKafka, admin: Admin) -> None:
    set_user(admin, "eve", "dropper")
    topic, group, cluster, transaction = (
        {ErrorCode.TOPIC_AUTHORIZATION_FAILED},
        {ErrorCode.GROUP_AUTHORIZATION_FAILED},
        {ErrorCode.CLUSTER_AUTHORIZATION_FAILED},
        {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED},
    )
    with login(kafka, "eve", "dropper") as user:
        assert user.topics.list() == () and user.groups.list() == () and user.transactions.list() == ()
        expected: list[tuple[Callable[[], Any], Any]] = [
            (lambda: user.topics.create("new", partitions=1), topic),
            (lambda: user.topics.describe(TOPIC), topic),
            (lambda: user.topics.delete(TOPIC), topic),
            (lambda: user.topics.add_partitions(TOPIC, 2), topic),
            (lambda: user.topics.delete_records({PARTITION: 0}), topic),
            (lambda: user.topics.offsets({PARTITION: "latest"}), topic),
            (lambda: user.topics.producers(PARTITION), topic),
            (lambda: user.configs.describe(topic=TOPIC), topic),
            (lambda: user.configs.alter(topic=TOPIC, set={"retention.ms": 1}), topic),
            (lambda: user.configs.describe(broker=0), cluster),
            (lambda: user.configs.describe(group="g"), group),
            (lambda: user.configs.list_resources(), cluster),
            (lambda: user.partitions.elect([PARTITION]), cluster),
            (lambda: user.partitions.cancel([PARTITION]), cluster),
            (lambda: user.partitions.reassignments(), cluster),
            (lambda: user.partitions.log_dirs(), cluster),
            (lambda: user.groups.describe("g"), group),
            (lambda: user.groups.offsets("g"), group),
            (lambda: user.groups.commit_offsets("g", {PARTITION: 0}), group),
            (lambda: user.groups.delete("g"), group),
            (lambda: user.groups.delete_offsets("g", [PARTITION]), group),
            (lambda: user.acls.list(), cluster),
            (lambda: user.acls.create([Acl("topic", TOPIC, "Read", "User:eve")]), cluster),
            (lambda: user.quotas.describe(), cluster),
            (lambda: user.quotas.alter(QuotaEntity(user="eve"), {"request_percentage": 1}), cluster),
            (lambda: user.users.describe(), cluster),
            (lambda: user.users.set("eve", "again"), cluster),
            (lambda: user.transactions.describe("t"), transaction),
            (lambda: user.transactions.fence(["t"]), transaction),
            (lambda: user.cluster.quorum(), cluster),
            (lambda: user.cluster.update_features({"transaction.version": 2}), cluster),
            (lambda: user.cluster.unregister(9), cluster),
        ]
        found = [refusals(call) for call, _ in expected]
        assert found == [codes for _, codes in expected]


def test_rules_are_created_and_deleted_again(kafka: RealKafka, admin: Admin) -> None:
    """After a lost answer nothing says which rules were deleted."""
    rule, mine = Acl("topic", TOPIC, "Read", "User:lost"), AclFilter(principal="User:lost")
    with losing(kafka.bootstrap_servers, messages.CreateAclsRequest) as other:
        other.acls.create([rule])
        until(lambda: admin.acls.list(mine) == (rule,))
    with losing(kafka.bootstrap_servers, messages.DeleteAclsRequest) as other:
        assert other.acls.delete([mine]) == {mine: None}
        until(lambda: admin.acls.list(mine) == ())


# Delegation tokens


def test_AS13_AS15_tokens_after_lost_answers(kafka: RealKafka, admin: Admin) -> None:
    """One that is made is not made again; what ends or renews it is repeated."""
    set_user(admin, "token", "ring")
    servers, keys = kafka.address("SASL"), scram("token", "ring")
    with losing(servers, messages.CreateDelegationTokenRequest, **keys) as user:
        with pytest.raises(KafkaTimeoutError, match="not repeated") as raised:
            user.tokens.create()
        assert raised.value.possibly_persisted
        until(lambda: len(user.tokens.list()) == 1)
        (token,) = user.tokens.list()
    with losing(servers, messages.RenewDelegationTokenRequest, **keys) as user:
        assert user.tokens.renew(token.hmac, timedelta(hours=1)) > datetime.now(UTC)
    with losing(servers, messages.ExpireDelegationTokenRequest, **keys) as user:
        assert user.tokens.expire(token.hmac) <= datetime.now(UTC)
        until(lambda: user.tokens.list() == ())


# Quotas of mutations


@pytest.mark.slow
def test_AS63_AS64_mutations_beyond_the_quota_wait_or_say_how_long(kafka: RealKafka, admin: Admin) -> None:
    set_user(admin, "mut", "able")
    allowed = (("cluster", "kafka-cluster"), ("topic", "*"))
    admin.acls.create([Acl(kind, name, "All", "User:mut") for kind, name in allowed])
    entity = QuotaEntity(user="mut")
    admin.quotas.alter(entity, {"controller_mutation_rate": 1})
    until(lambda: entity in admin.quotas.describe())
    new = NewTopic(partitions=1, replication_factor=1)
    with login(kafka, "mut", "able") as user:
        user.topics.create("many", partitions=6, replication_factor=1)
        with pytest.raises(ThrottlingQuotaExceededError, match="controller_mutation_rate allows it in"):
            user.topics.create("one", partitions=1, replication_factor=1, timeout=1)
        created = user.topics.create({"later-a": new, "later-b": new}, timeout=120)
        assert set(created) == {"later-a", "later-b"}
    admin.quotas.alter(entity, reset=["controller_mutation_rate"])


# Transactions without a coordinator


def leave_open(kafka: RealKafka, producer_id: int, epoch: int) -> None:
    """Append a record of a transaction that no coordinator knows."""
    batch = encode(
        [(None, b"hanging")],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        transactional=True,
    )
    request = produce_request({(TOPIC, 0): batch}, lambda _: NO_TOPIC_ID, transactional_id="nobody")
    with Wire(kafka.bootstrap_servers) as wire:
        assert produced(wire.ask(request, 11)).error_code == ErrorCode.NONE


def stable_end(admin: Admin) -> int:
    return log_end(admin, isolation="read_committed")


def log_end(admin: Admin, isolation: str = "read_uncommitted") -> int:
    found = admin.topics.offsets({PARTITION: "latest"}, isolation=isolation)[PARTITION]
    assert found is not None
    return found.offset


def test_AS79_AS80_AS81_hanging_transactions_are_found_and_aborted(kafka: RealKafka, admin: Admin) -> None:
    before = stable_end(admin)
    leave_open(kafka, 4_000_000, epoch=3)
    hanging: list[Hanging] = []

    def is_found() -> bool:
        hanging[:] = admin.transactions.find_hanging([TOPIC], older_than=timedelta(0))
        return bool(hanging)

    until(is_found)
    (found,) = hanging
    assert (found.partition, found.producer_id, found.start_offset) == (PARTITION, 4_000_000, before)
    assert stable_end(admin) == before
    with pytest.raises(InvalidProducerEpochError):
        admin.transactions.abort(found._replace(epoch=2))
    end = log_end(admin)
    with pytest.raises(InvalidRequestError):
        admin.transactions.abort(found._replace(producer_id=4_000_001))
    assert log_end(admin) == end  # Kafka would write a marker, and say that it has
    admin.transactions.abort(found)
    until(lambda: stable_end(admin) > before)
    assert admin.transactions.find_hanging([TOPIC], older_than=timedelta(0)) == ()


def test_a_marker_is_written_again(kafka: RealKafka, admin: Admin) -> None:
    before = stable_end(admin)
    leave_open(kafka, 4_000_002, epoch=0)
    found: tuple[Hanging, ...] = ()

    def is_found() -> bool:
        nonlocal found
        found = admin.transactions.find_hanging([TOPIC], older_than=timedelta(0))
        return bool(found)

    until(is_found)
    with losing(kafka.bootstrap_servers, messages.WriteTxnMarkersRequest) as other:
        other.transactions.abort(found[0])
    until(lambda: stable_end(admin) > before)


def test_AS44_a_replica_moves_to_another_directory(kafka: RealKafka, admin: Admin) -> None:
    first, second = sorted(each.path for each in admin.partitions.log_dirs([0])[0])
    with kbatch.Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for _ in range(100):
            producer.send(TOPIC, bytes(1000), partition=0)
    ((_, now),) = admin.partitions.replica_dirs([(PARTITION, 0)]).items()
    target = second if now.current == first else first
    admin.partitions.move_log_dirs({(PARTITION, 0): target})
    until(lambda: admin.partitions.replica_dirs([(PARTITION, 0)])[PARTITION, 0] == (target, None, None))
