"""What is drawn for a world of `process()`."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields

from kbatch.core.process.scheduler import LastResort, Order


@dataclass(frozen=True, slots=True)
class ProcessWorldOptions:
    """A world of a seed. Times are in milliseconds, rates between 0 and 1.

    Attributes
    ----------
    fault_ms : int
        How long there are faults.
    most_characters : int
        What the coordinator takes as metadata.
    failing : float
        The part of the records whose function fails, some of them always.
    kept : int
        Records that stay in memory behind one that has failed.
    read_fails : float
        How often parked records cannot be read again.
    handler_fails : float
        How often `on_failure` fails.
    """

    seed: int
    partitions: int
    records: int
    keys: int
    members: int
    order: Order
    last_resort: LastResort
    workers: int
    batch: int
    max_in_flight: int
    max_ahead: int
    kept: int
    read_fails: float
    attempts: int | None
    function_ms: float
    failing: float
    handler_fails: float
    commit_ms: int
    commit_takes_ms: float
    commit_fails: float
    most_characters: int
    revoke_ms: int
    move_ms: float
    crash_ms: float
    fault_ms: int

    @classmethod
    def draw(cls, seed: int) -> ProcessWorldOptions:
        """Draw the options of a seed."""
        rng = random.Random(f"process {seed}")
        attempts = rng.choice((1, 2, 4, 4, None))
        return cls(
            seed=seed,
            partitions=rng.randrange(1, 4),
            records=rng.randrange(20, 150),
            keys=rng.choice((1, 3, 20, 200)),
            members=rng.randrange(1, 4),
            order=rng.choice(("key", "key", "partition", "none")),
            last_resort=rng.choice(("skip", "handle")),
            workers=rng.choice((1, 4, 16)),
            batch=rng.choice((1, 1, 5)),
            max_in_flight=rng.choice((4, 30, 1000)),
            max_ahead=rng.choice((10, 50, 100_000)),
            attempts=attempts,
            function_ms=rng.choice((1.0, 20.0, 200.0)),
            failing=rng.choice((0.0, 0.05, 0.3)),
            handler_fails=rng.choice((0.0, 0.3)) if attempts != 1 else 0.0,
            commit_ms=rng.choice((20, 200)),
            commit_takes_ms=rng.choice((2.0, 100.0)),
            commit_fails=rng.choice((0.0, 0.2)),
            most_characters=rng.choice((4096, 4096, 40, 14)),
            revoke_ms=rng.choice((0, 50, 500)),
            move_ms=rng.choice((200.0, 1000.0)),
            crash_ms=rng.choice((500.0, 3000.0, 1e9)),
            fault_ms=3000,
            kept=rng.choice((1, 3, 100)),
            read_fails=rng.choice((0.0, 0.3)),
        )

    def described(self) -> list[str]:
        return [f"{each.name}={getattr(self, each.name)!r}" for each in fields(self)]
