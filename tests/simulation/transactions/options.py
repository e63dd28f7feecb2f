"""The options of a world of transactions: those of its seed, and those of its applications."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from tests.simulation.world.options import Draw, WorldOptions

SHARE = 3  # one of so many seeds is a world of transactions
MAX_EPOCH = 32_767


def is_transactional(seed: int) -> bool:
    return seed % SHARE == SHARE - 1


@dataclass(frozen=True, slots=True)
class Programs:
    """The options of the applications.

    Attributes
    ----------
    ids : int
        The number of transactional.ids, one for each application.
    transactions : int
        The number of transactions of each.
    records : int
        The largest number of records in a transaction.
    pause_ms : float
        The longest pause between two records, and two transactions.
    batches : float
        The probability that an encoded batch is sent instead of a record.
    offsets, flush, abort : float
        The probability that a transaction has offsets; is flushed before its end; is aborted.
    offset_calls : int
        The largest number of calls that send the offsets of a transaction.
    unawaited : float
        The probability that the application continues before such a call is done.
    crash, close, haunt : float
        The probability that the producer crashes within a transaction or a call; is closed; is declared dead
        and replaced, but continues.
    hasty : float
        The probability that a call has a time-out of up to `hasty_ms`, after which it is repeated.
    change_version, move_coordinator : float
        How often per second transaction.version changes between 1 and 2; a coordinator moves.
    refused, unheard, unanswered : float
        The probability that a request to a coordinator is answered with an error; is lost; is executed and
        its answer lost.
    first_epoch : int
        The epoch that every transactional.id had before; -1 if it is new.
    """

    ids: int
    transactions: int
    records: int
    pause_ms: float
    offsets: float
    flush: float
    abort: float
    crash: float
    close: float
    haunt: float
    hasty: float
    hasty_ms: float
    change_version: float
    refused: float
    unheard: float
    unanswered: float
    move_coordinator: float
    first_epoch: int
    batches: float
    offset_calls: int
    unawaited: float

    @classmethod
    def draw(cls, draw: Draw) -> Programs:
        return cls(
            ids=draw.of(1, 1, 1, 2),
            transactions=draw.of(4, 8, 12),
            records=draw.of(2, 6, 15),
            pause_ms=draw.of(0.1, 2, 10, 50),
            offsets=draw.of(0, 0.3, 0.8),
            flush=draw.of(0, 0, 0.3),
            abort=draw.of(0, 0.2, 0.5),
            crash=draw.of(0, 0, 0.1, 0.3),
            close=draw.of(0, 0, 0, 0.1),
            haunt=draw.of(0, 0.1, 0.4),
            hasty=draw.of(0, 0.2, 0.8),
            hasty_ms=draw.of(0.5, 10, 100),
            change_version=draw.rate(20),
            refused=draw.of(0, 0, 0.1, 0.3),
            unheard=draw.of(0, 0, 0.1),
            unanswered=draw.of(0, 0, 0.1, 0.3),
            move_coordinator=draw.rate(40, 0.4),
            first_epoch=draw.chance(0.25, MAX_EPOCH - draw.random.randrange(2, 12), -1),
            batches=draw.of(0, 0, 0.3),
            offset_calls=draw.of(1, 2, 5),
            unawaited=draw.of(0, 0.7, 1),
        )


@dataclass(frozen=True, slots=True)
class TransactionalOptions(WorldOptions):
    """A world of transactions; `programs` has the options of its applications."""

    programs: Programs | None = None

    @classmethod
    def of(cls, options: WorldOptions) -> TransactionalOptions:
        """Return the options of a seed's world, with transactions."""
        draw = Draw(random.Random(f"transactions {options.seed}"))
        cluster = replace(
            options.cluster,
            partition_counts={"events": draw.of(1, 2, 3), "orders": draw.of(1, 2)},
            transaction_version=draw.of(1, 2),
            first_epoch=0,
        )
        request_faults = replace(
            options.request_faults,
            drop_before=draw.rate(0.2),
            drop_after=draw.rate(0.4, 0.5),
            error_before=draw.rate(0.3, 0.5),
            late=draw.of(0.0, 0.0, 1.0),
        )
        faults = replace(
            options.cluster_faults,
            recreate=0.0,  # which takes half a transaction along
            # what still arrives from before must find what it repeats
            forget=0.0 if request_faults.late else options.cluster_faults.forget,
            move_leader=draw.rate(20, 0.4),
            stop_node=draw.rate(4),
        )
        settings = options.settings | {
            "acks": "all",
            "enable.idempotence": True,
            "retries": 2**31 - 1,
            "batch.size": draw.of(0, 100, 16_384),
            "buffer.memory": 4_000_000,
            "max.block.ms": draw.of(1000, 10_000),
            "transaction.timeout.ms": draw.of(300, 10_000),
            "kbatch.on.delivery.failure": draw.of("continue", "continue", "stop_partition", "stop"),
        }
        settings.pop("kbatch.sequence.gap", None)
        shared = {each.name: getattr(options, each.name) for each in fields(WorldOptions)}
        shared |= {"cluster": cluster, "cluster_faults": faults, "settings": settings, "first_counter": 0}
        shared["request_faults"] = request_faults
        return cls(**shared, programs=Programs.draw(draw))

    def parts(self) -> Sequence[Any]:
        return (*WorldOptions.parts(self), self.programs)
