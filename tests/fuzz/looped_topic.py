"""A topic of any size in little memory: a broker sends the same batches under ever higher offsets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import kbatch
from kbatch.testing import Broker
from kbatch.testing.broker.logs.partition_log import PartitionLog
from tests.oracle import plain

TOPIC = "looped"
PARTITIONS = 4
# What is really in the logs.
STORED_BYTES = 64 << 20
BATCH_BYTES = 500_000


class LoopedLog:
    """A partition's log, many times over. The base offset of a batch is not under its checksum."""

    def __init__(self, log: PartitionLog, times: int) -> None:
        self._log = log
        self._span = log.end_offset
        self.end_offset = self._span * times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def read(
        self, offset: int, max_bytes: int, limit_offset: int, *, at_least_one: bool = True
    ) -> list[memoryview]:
        """Return whole batches, as PartitionLog does."""
        found: list[memoryview] = []
        while offset < limit_offset:
            turn, at = divmod(offset, self._span)
            views = self._log.read(at, max_bytes, self._span, at_least_one=at_least_one and not found)
            if not views:
                break
            for view in views:
                batch = bytearray(view)
                header = plain.HEADER.unpack_from(batch)
                base_offset = header[0] + turn * self._span
                batch[:8] = base_offset.to_bytes(8, "big")
                offset = base_offset + header[6] + 1
                max_bytes -= len(batch)
                found.append(memoryview(batch))
        return found


class Looped(NamedTuple):
    """A running broker with the topic, and the rows that it has."""

    bootstrap_servers: str
    rows: int


@contextmanager
def looped_topic(total_bytes: int, value_bytes: int, compression: str) -> Iterator[Looped]:
    """Yield a topic with about `total_bytes` of values, half of each of which is random."""
    rows = STORED_BYTES // value_bytes // PARTITIONS * PARTITIONS
    times = -(-total_bytes // (rows * value_bytes))
    with Broker({TOPIC: PARTITIONS}, auto_create_topics=False) as broker:
        _fill(broker, rows, value_bytes, compression)
        broker._call(lambda core: _loop(core, times))
        yield Looped(broker.bootstrap_servers, rows * times)


def _fill(broker: Broker, rows: int, value_bytes: int, compression: str) -> None:
    values = np.zeros((rows, value_bytes), np.uint8)
    half = value_bytes // 2
    values[:, :half] = np.frombuffer(os.urandom(rows * half), np.uint8).reshape(rows, half)
    table = pa.table(
        {
            "value": pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(value_bytes), rows, [None, pa.py_buffer(values)]
            ).cast(pa.binary()),
            "partition": pa.array(np.arange(rows, dtype=np.int32) % PARTITIONS),
        }
    )
    keys: dict[str, Any] = {"compression_type": compression, "batch_size": BATCH_BYTES}
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers, **keys) as producer:
        producer.send_table(TOPIC, table, key=None).result()


def _loop(core: Any, times: int) -> None:
    for partition in core.state.cluster.topics[TOPIC].partitions:
        partition.log._log = LoopedLog(partition.log._log, times)
