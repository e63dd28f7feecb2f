"""Helpers of accumulator tests: an accumulator filled, drained and read as the sender does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any, cast

import kbatch
from kbatch._native.batch.delivery import Delivery
from kbatch._native.batch.producer_batch import ProducerBatch
from kbatch._native.codec import libraries, packages
from kbatch._native.send.accumulator import RecordAccumulator
from kbatch._native.send.cluster_view import ClusterView
from kbatch._native.send.sealing import SealPolicy
from kbatch.codecs import CODEC_NAMES
from kbatch.errors import KafkaError

MS = 1_000_000
NEVER = 2**63 - 1
MEGABYTE = 1 << 20
# By the packages that compress.
CODEC_OF = {"isal.igzip_lib": "gzip", "cramjam": "snappy", "lz4.frame": "lz4", "zstandard": "zstd"}
# Batches that close are left to `take_unsealed`.
BY_OTHERS = SealPolicy(by_appender=False)


def accumulator(partitions: int | list[int] = 1, **settings: Any) -> RecordAccumulator:
    """Return a view with topic "t", whose partitions node 1 leads, or the nodes given (-1: none)."""
    leaders = [1] * partitions if isinstance(partitions, int) else partitions
    made = RecordAccumulator(**{"poison": True, "linger_ns": 0} | settings)
    made.publish(ClusterView({"t": [(leader, 0) for leader in leaders]}))
    return made


def put(
    records: RecordAccumulator, value: Any = b"value", partition: int = 0, now_ns: int = 0, **rest: Any
) -> Delivery:
    """Append a record that must be accepted."""
    rest = {"key": None, "headers": None, "timestamp_ms": 1000} | rest
    delivery = records.append(
        "t",
        partition,
        rest.pop("key"),
        value,
        rest.pop("headers"),
        rest.pop("timestamp_ms"),
        now_ns,
        rest.pop("on_delivery", None),
        **rest,
    )
    assert isinstance(delivery, Delivery), delivery
    return delivery


def partition_of(delivery: Delivery) -> int:
    return delivery.partition


def drained(
    records: RecordAccumulator, now_ns: int = 0, size: int = MEGABYTE, node: int = 1
) -> list[ProducerBatch]:
    """Return the batches of one request to the node."""
    records.ready(now_ns)
    batches = records.drain([node], size, now_ns)[node]
    for batch in records.take_unsealed():
        batch.seal()
    return batches or records.drain([node], size, now_ns)[node]


def one(records: RecordAccumulator, now_ns: int = 0) -> ProducerBatch:
    (batch,) = drained(records, now_ns)
    return batch


def all_drained(records: RecordAccumulator, now_ns: int = 0, node: int = 1) -> list[ProducerBatch]:
    """Return all batches, in the order of sending."""
    batches: list[ProducerBatch] = []
    while taken := drained(records, now_ns, node=node):
        batches += taken
    return batches


def fail_all(records: RecordAccumulator, error: KafkaError) -> list[ProducerBatch]:
    """Fail all that is not done, in flight or not, and return it."""
    return [batch for batch in records.incomplete_batches() if batch.fail(error)]


def data_of(batch: ProducerBatch) -> bytes:
    return b"".join(batch.buffers())


def records_of(batch: ProducerBatch) -> list[kbatch.Record]:
    (read,) = kbatch.decode(data_of(batch), partial="raise")
    return list(read)


def values_of(batch: ProducerBatch) -> list[Any]:
    return [record.value for record in records_of(batch)]


def is_whole(records: RecordAccumulator) -> bool:
    memory = records.memory
    charged = memory.total_memory - memory.available
    return (charged, memory.callback_bytes, records.incomplete_count) == (0, 0, 0)


@contextlib.contextmanager
def codec_replaced(name: str, **functions: Any) -> Iterator[None]:
    """Replace functions of a codec's package, and have it do the codec's work."""
    codec = CODEC_NAMES.index(CODEC_OF[name])
    real = packages.package(name)
    fake = type("Package", (), {**vars(real), **{key: staticmethod(f) for key, f in functions.items()}})
    packages.packages[name] = cast(ModuleType, fake)
    libraries.leave_to_package(codec)
    try:
        yield
    finally:
        packages.packages[name] = real
        libraries.reload_library(codec)
