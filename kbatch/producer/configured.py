"""Make what a producer is composed of from its configuration."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from kbatch._native.send.accumulator import RecordAccumulator
from kbatch._native.send.sealing import SealPolicy
from kbatch.codecs import LEVELS
from kbatch.config import ProducerConfig

# Native code counts time in 64 bits.
LONGEST_NS = 2**63 - 1


def accumulator_of(
    config: ProducerConfig,
    random: Random,
    wake: Callable[[], object],
    memory_freed: Callable[[], object] | None,
    *,
    on_loop: bool = False,
    **keys: Any,
) -> RecordAccumulator:
    """Return the accumulator of a producer; `wake`, `memory_freed` and `keys` are RecordAccumulator's."""
    codec, level = config.compression_type, config.compression_level
    if level is None and codec in LEVELS:
        level = getattr(config, f"compression_{codec}_level")
    return RecordAccumulator(
        batch_size=config.batch_size,
        buffer_memory=config.buffer_memory,
        compression=codec,
        compression_level=level,
        linger_ns=_nanoseconds(config.linger_ms),
        retry_backoff_ns=_nanoseconds(config.retry_backoff_ms),
        retry_backoff_max_ns=_nanoseconds(config.retry_backoff_max_ms),
        delivery_timeout_ns=config.delivery_timeout_ms * 1_000_000,
        transactional=config.transactional_id is not None,
        adaptive_partitioning=config.partitioner_adaptive_partitioning_enable,
        partition_availability_timeout_ns=_nanoseconds(config.partitioner_availability_timeout_ms),
        wake=wake,
        memory_freed=memory_freed,
        **{"seed": random.getrandbits(64), "seal_policy": SealPolicy.of(codec, on_loop=on_loop), **keys},
    )


def _nanoseconds(milliseconds: int) -> int:
    return min(milliseconds * 1_000_000, LONGEST_NS)
