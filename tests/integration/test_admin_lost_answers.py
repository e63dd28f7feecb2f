"""Calls whose first answer is lost are done, and say so: the embedded broker and a real Kafka behind a proxy
that cuts the connection at the answer to one request.
"""

from __future__ import annotations

import itertools

import pytest

import kbatch
from kbatch import Admin, TopicPartition
from kbatch.admin import QuotaEntity
from kbatch.errors import (
    PartialFailure,
    ProducerFencedError,
    TopicExistsError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from kbatch.protocol import messages
from tests.integration.cutting_proxy import losing
from tests.support.patience import repeat_until, repeat_while, until

_numbers = itertools.count()


@pytest.fixture
def topic(target: str) -> str:
    name = f"lost-{next(_numbers)}"
    with Admin(bootstrap_servers=target) as admin:
        admin.topics.create(name, partitions=2, replication_factor=1)
    return name


def test_AS10_create_is_done(target: str) -> None:
    name = f"lost-{next(_numbers)}"
    with losing(target, messages.CreateTopicsRequest) as admin:
        created = admin.topics.create(
            name, partitions=3, replication_factor=1, configs={"retention.ms": 5000}
        )
        assert (created.partitions, created.existed) == (3, False)
        assert admin.topics.describe(name).topic_id == created.topic_id


def test_AS11_create_of_a_topic_of_another_shape_fails(target: str, topic: str) -> None:
    with losing(target, messages.CreateTopicsRequest) as admin, pytest.raises(TopicExistsError):
        admin.topics.create(topic, partitions=3, replication_factor=1)


def test_AS12_added_partitions_are_there(target: str, topic: str) -> None:
    with losing(target, messages.CreatePartitionsRequest) as admin:
        assert admin.topics.add_partitions(topic, 4) == 4


def test_AS13_deleted_topic_is_gone(target: str, topic: str) -> None:
    with losing(target, messages.DeleteTopicsRequest) as admin:
        admin.topics.delete(topic)
        assert topic not in {each.name for each in admin.topics.list()}


def test_AS13_deleted_group_is_gone(target: str, topic: str) -> None:
    with losing(target, messages.DeleteGroupsRequest) as admin:
        admin.groups.commit_offsets(f"{topic}-group", {TopicPartition(topic, 0): 1})
        assert admin.groups.delete([f"{topic}-group"]) == {f"{topic}-group": None}


def test_AS13_deleted_password_is_gone(target: str, topic: str) -> None:
    with losing(target, messages.AlterUserScramCredentialsRequest) as admin:
        with Admin(bootstrap_servers=target) as other:
            other.users.set(topic, "secret", iterations=4096)
            until(lambda: topic in other.users.describe())
        admin.users.delete(topic, "SCRAM-SHA-512")
        until(lambda: topic not in admin.users.describe())


def test_altered_settings_are_set_again(target: str, topic: str) -> None:
    with losing(target, messages.IncrementalAlterConfigsRequest) as admin:
        admin.configs.alter(topic=topic, set={"retention.ms": 7000})
        until(lambda: admin.configs.describe(topic=topic)["retention.ms"].value == "7000")


def test_deleted_records_are_deleted_again(target: str, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with kbatch.Producer(bootstrap_servers=target) as producer:
        for _ in range(5):
            producer.send(topic, b"", partition=0)
    with losing(target, messages.DeleteRecordsRequest) as admin:
        assert admin.topics.delete_records({partition: 3}) == {partition: 3}


def test_elected_and_assigned_replicas_are_so(target: str, topic: str) -> None:
    """The first attempt moves nothing here; `test_admin_nodes` has moves."""
    partition = TopicPartition(topic, 0)
    with losing(target, messages.AlterPartitionReassignmentsRequest) as admin:
        assert admin.partitions.reassign({partition: [0]}) == {}
    with losing(target, messages.ElectLeadersRequest) as admin:
        assert set(admin.partitions.elect([partition])) == {partition}


def test_moves_between_directories_begin_again(target: str, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with losing(target, messages.AlterReplicaLogDirsRequest) as admin:
        ((directory, *_),) = admin.partitions.log_dirs().values()
        assert admin.partitions.move_log_dirs({(partition, 0): directory.path}) == {(partition, 0): None}


def test_committed_offsets_are_committed_again_and_deleted(target: str, topic: str) -> None:
    group, first, second = f"{topic}-group", TopicPartition(topic, 0), TopicPartition(topic, 1)
    with losing(target, messages.OffsetCommitRequest) as admin:
        admin.groups.commit_offsets(group, {first: 3, second: 4})
        assert {at: each.committed.offset for at, each in admin.groups.offsets(group).items()} == {
            first: 3,
            second: 4,
        }
    with losing(target, messages.OffsetDeleteRequest) as admin:
        admin.groups.delete_offsets(group, [first])
        assert set(admin.groups.offsets(group)) == {second}


def test_AS13_offsets_of_share_groups_are_set_again_and_gone(target: str, topic: str) -> None:
    group, partition = f"{topic}-share", TopicPartition(topic, 0)
    with Admin(bootstrap_servers=target) as admin:
        repeat_while(  # coordinators learn of a topic a moment after brokers
            UnknownTopicOrPartitionError,
            lambda: admin.groups.set_share_offsets(group, {partition: 0}, create=True),
        )
    with losing(target, messages.AlterShareGroupOffsetsRequest) as admin:
        admin.groups.set_share_offsets(group, {partition: 0}, create=True)
        assert admin.groups.share_offsets(group)[partition].start == 0
    with losing(target, messages.DeleteShareGroupOffsetsRequest) as admin:
        admin.groups.delete_share_offsets(group, [topic])
        assert admin.groups.share_offsets(group) == {}
    with losing(target, messages.DeleteGroupsRequest) as admin:
        admin.groups.delete(group, kind="share")


def test_AS13_removed_member_is_gone(target: str, topic: str) -> None:
    """A removal that no attempt has done is refused all the same."""
    group = f"{topic}-static"
    keys = {"bootstrap.servers": target, "group.id": group, "group.protocol": "classic"}
    with kbatch.Consumer({**keys, "group.instance.id": "one"}) as consumer:
        consumer.subscribe([topic])
        repeat_until(lambda: consumer.poll(0.01), consumer.assignment)
    with losing(target, messages.LeaveGroupRequest) as admin:
        assert [each.group_instance_id for each in admin.groups.describe(group).members] == ["one"]
        assert admin.groups.remove_members(group, ["one"]) == {"one": None}
        assert admin.groups.describe(group).members == ()
        with pytest.raises(PartialFailure) as raised:
            admin.groups.remove_members(group, ["one"])
        assert isinstance(raised.value.errors["one"], UnknownMemberIdError)


def test_quotas_are_set_again(target: str, topic: str) -> None:
    entity = QuotaEntity(user=topic)
    with losing(target, messages.AlterClientQuotasRequest) as admin:
        admin.quotas.alter(entity, {"producer_byte_rate": 5})
        until(lambda: admin.quotas.describe(user=topic) == {entity: {"producer_byte_rate": 5.0}})
        admin.quotas.alter(entity, reset=["producer_byte_rate"])


def test_a_password_is_set_again(target: str, topic: str) -> None:
    with losing(target, messages.AlterUserScramCredentialsRequest) as admin:
        admin.users.set(topic, "secret", iterations=4096)
        until(lambda: topic in admin.users.describe())
        admin.users.delete(topic, "SCRAM-SHA-512")


def test_levels_of_features_are_set_again(target: str) -> None:
    with losing(target, messages.UpdateFeaturesRequest) as admin:
        level = admin.cluster.features().finalized["transaction.version"]
        admin.cluster.update_features({"transaction.version": level})


def test_a_fenced_producer_is_fenced_again(target: str, topic: str) -> None:
    """The second attempt uses up another epoch."""
    with kbatch.Producer(bootstrap_servers=target, transactional_id=topic) as producer:
        producer.init_transactions()
    with losing(target, messages.InitProducerIdRequest) as admin:
        before = admin.transactions.describe(topic)
        (fenced,) = admin.transactions.fence([topic]).values()
        assert fenced.producer_id == before.producer_id
        assert fenced.epoch == admin.transactions.describe(topic).epoch > before.epoch + 1


def test_an_open_transaction_is_terminated(target: str, topic: str) -> None:
    producer = kbatch.Producer(bootstrap_servers=target, transactional_id=topic)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"x", partition=0).result()
    with losing(target, messages.InitProducerIdRequest) as admin:
        assert admin.transactions.describe(topic).state == "Ongoing"
        admin.transactions.terminate(topic)
        until(lambda: admin.transactions.describe(topic).state in ("CompleteAbort", "Empty"))
    with pytest.raises(ProducerFencedError):
        producer.commit_transaction()
    producer.close(timeout=1)
