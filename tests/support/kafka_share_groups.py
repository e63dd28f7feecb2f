"""Share groups of a broker: their configuration, and topics with numbered records."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import kbatch
from kbatch import Admin, ShareConsumer, ShareRecord
from tests.oracle.kafka import create_topic
from tests.support.patience import HANG_SECONDS

# The group's default is 30 s, which a test would have to wait for.
LOCK_MS = 1000


def new_group(servers: str, **configs: object) -> str:
    """Return the id of a share group that reads topics from their beginning."""
    group = f"share-{uuid.uuid4()}"
    with Admin(bootstrap_servers=servers) as admin:
        admin.configs.alter(group=group, set={"share.auto.offset.reset": "earliest", **configs})
    return group


def new_topic(servers: str, record_count: int, partitions: int = 1) -> str:
    """Return a topic that has the records b"0", b"1" and so on, each in a batch of its own."""
    topic = f"topic-{uuid.uuid4()}"
    create_topic(servers, topic, partitions)
    send(servers, topic, record_count, partitions)
    return topic


def send(servers: str, topic: str, record_count: int, partitions: int = 1) -> None:
    with kbatch.Producer(bootstrap_servers=servers) as producer:
        for number in range(record_count):
            producer.send(topic, b"%d" % number, partition=number % partitions)
            producer.flush()


def polled(
    consumer: ShareConsumer,
    count: int,
    then: Callable[[ShareRecord], object] = lambda record: None,
    **arguments: int,
) -> list[ShareRecord]:
    """Poll until so many records came. `then` is called with each."""
    found: list[ShareRecord] = []
    while len(found) < count:
        records = consumer.poll(HANG_SECONDS, **arguments)
        assert records, f"{count - len(found)} records did not come"
        for each in records:
            then(each)
        found += records
    return found


def offsets(records: list[ShareRecord]) -> list[tuple[int, int]]:
    """Return offsets with delivery counts."""
    return [(each.offset, each.delivery_count) for each in records]
