"""Any configuration and any calls: every record is delivered, without a flush.

A world is drawn from its seed. Nothing else happens in it: metadata stay unchanged for longer than the test
waits. So no other round of the sender hides that it sleeps while there is something to send.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import kbatch
from kbatch import Producer
from kbatch.testing import Broker
from tests.simulation.world.options import CODECS
from tests.support.effort import EXAMPLES
from tests.support.producing import SECONDS, SECONDS_MS, producing

pytestmark = pytest.mark.usefixtures("shell")

TOPICS = ("t", "u")


def drawn(choices: random.Random) -> dict[str, Any]:
    """Return keys of a producer; the smallest sizes are below that of any batch."""
    memory = choices.choice((8000, 40_000, 300_000, 33_554_432))
    settings = {
        "linger_ms": choices.choice((0, 0, 1, 5, 30)),
        "batch_size": min(memory, choices.choice((0, 1, 200, 1000, 4096, 16_384, 65_536))),
        "max_request_size": choices.choice((600, 1500, 4096, 20_000, 1_048_576)),
        "buffer_memory": memory,
        "compression_type": choices.choice(CODECS),
        "max_in_flight_requests_per_connection": choices.choice((1, 2, 5)),
        "max_block_ms": SECONDS_MS,
        "socket_connection_setup_timeout_ms": 2 * SECONDS_MS,
        "socket_connection_setup_timeout_max_ms": 2 * SECONDS_MS,
    }
    if choices.random() < 0.2:
        settings |= {"enable_idempotence": False, "acks": choices.choice(("0", "1", "all"))}
    return settings


class Application:
    """Send `count` records by the given call."""

    def __init__(self, producer: Producer, choices: random.Random, partitions: int) -> None:
        self.producer = producer
        self.choices = choices
        self.partitions = partitions
        self.limit = min(producer.config.max_request_size, producer.config.buffer_memory // 2)
        self.largest_value = min(choices.choice((0, 10, 200, 500)), self.limit - 200)

    def records(self, count: int) -> Iterator[tuple[bytes | None, bytes]]:
        for number in range(count):
            key = self.choices.choice((None, b"%d" % number))
            yield key, self.choices.randbytes(self.choices.randrange(self.largest_value + 1))

    def one_by_one(self, count: int) -> list[Any]:
        send, topic = self.producer.send, self.choices.choice
        return [send(topic(TOPICS), value, key) for key, value in self.records(count)]

    def many(self, count: int) -> list[Any]:
        return list(self.producer.send_many("t", list(self.records(count))))

    def table(self, count: int) -> list[Any]:
        keys, values = zip(*self.records(count), strict=True)
        topics = [self.choices.choice(TOPICS) for _ in range(count)]
        columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
        if self.choices.random() < 0.5:
            return [self.producer.send_table("t", pa.table(columns))]
        return [self.producer.send_table(None, pa.table(columns | {"topic": topics}), topic_column="topic")]

    def encoded(self, count: int) -> list[Any]:
        batches = [kbatch.encode([(key, value, (), 1000)]) for key, value in self.records(min(count, 50))]
        partition = self.choices.randrange
        return [
            self.producer.send_batch("t", partition(self.partitions), batch)
            for batch in batches
            if len(batch) <= self.limit
        ]


CALLS: tuple[Callable[[Application, int], list[Any]], ...] = (
    Application.one_by_one,
    Application.many,
    Application.table,
    Application.encoded,
)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_everything_is_delivered_by_itself(seed: int) -> None:
    choices = random.Random(seed)
    partitions, nodes = choices.choice((1, 2, 4, 7, 16)), choices.choice((1, 1, 3))
    settings = drawn(choices)
    with (
        Broker(dict.fromkeys(TOPICS, partitions), nodes=nodes) as broker,
        producing(broker, **settings) as producer,
    ):
        application = Application(producer, choices, partitions)
        count = choices.choice((1, 5, 50, 500, 2000))
        deliveries = []
        for call in choices.choices(CALLS, k=choices.choice((1, 2, 4))):
            deliveries += call(application, count)
        for delivery in deliveries:
            delivery.result(SECONDS)
