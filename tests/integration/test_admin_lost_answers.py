"""Calls whose first answer is lost are done, and say so: the embedded broker and a real Kafka behind a proxy
that cuts the connection at the answer to one request.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kbatch import Admin, TopicPartition
from kbatch.errors import TopicExistsError
from kbatch.protocol import messages
from kbatch.protocol.structs import Message
from tests.integration.cutting_proxy import CuttingProxy
from tests.support.patience import until

_numbers = itertools.count()


@contextmanager
def losing(target: str, kind: type[Message]) -> Iterator[Admin]:
    """Yield an Admin that does not get the first answer to requests of this kind."""
    proxy = CuttingProxy(target, kind, cuts=1, spacing=1, api_key=kind.api_key, kinds=("answer",))
    with proxy:
        with Admin(bootstrap_servers=proxy.bootstrap_servers, retry_backoff_ms=10) as admin:
            yield admin
        assert sum(proxy.done.values()) == 1


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
