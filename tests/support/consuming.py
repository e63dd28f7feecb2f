"""A member of a consumer group: librdkafka's, for tests of what others see of a group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer

from tests.support.patience import until


@contextmanager
def consumer_of(
    bootstrap_servers: str, group_id: str, topic: str, protocol: str = "classic"
) -> Iterator[Consumer]:
    """Let a consumer with the client.id "other" read a topic, once it has its partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group_id,
            "client.id": "other",
            "group.protocol": protocol,
        }
    )
    assigned: list[object] = []
    try:
        consumer.subscribe([topic], on_assign=lambda _, partitions: assigned.extend(partitions))

        def has_partitions() -> bool:
            consumer.poll(0.01)
            return bool(assigned)

        until(has_partitions)
        yield consumer
    finally:
        consumer.close()
