"""The Java client as a peer: its MemoryRecordsBuilder and its iterator, warm, timed inside its own JVM.

Each codec gets a fresh JVM: otherwise the just-in-time compiler's knowledge of another codec makes Java up to
twice as slow.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from benchmarks.pages.harness import Contender
from kbatch.bench.workload import RECORDS_PER_BATCH, batch_records
from tests.oracle.java import OPTIMIZING, JavaOracle, Timing
from tests.oracle.java_programs import JavaMissingError

WARM_UP_SECONDS = 4.0
ROUNDS = 15


class Peers:
    """The peers; None for each that this machine cannot run, with a printed reason."""

    def __init__(self) -> None:
        self._encoding: dict[str, Timing | None] = {}

    def java_encode(self, compression: str) -> Contender | None:
        timing = self._java_encoding(compression)
        if timing is None:
            return None
        size = f"{timing.size_bytes / RECORDS_PER_BATCH:.1f} bytes a record"
        return Contender(f"Java, {compression}", RECORDS_PER_BATCH, timings=timing.ns_per_record, note=size)

    def java_size(self, compression: str) -> float | None:
        """Return the bytes a record of Java's batch of `batch_records`."""
        timing = self._java_encoding(compression)
        return None if timing is None else timing.size_bytes / RECORDS_PER_BATCH

    def java_decode(self, batch: bytes) -> Contender | None:
        timing = self._ask(
            lambda java: java.bench_decode(batch, warm_up_seconds=WARM_UP_SECONDS, rounds=ROUNDS)
        )
        if timing is None:
            return None
        return Contender(
            "Java", RECORDS_PER_BATCH, timings=timing.ns_per_record, note="keys and values not copied"
        )

    def _java_encoding(self, compression: str) -> Timing | None:
        if compression not in self._encoding:
            self._encoding[compression] = self._ask(
                lambda java: java.bench_encode(
                    batch_records(), compression=compression, warm_up_seconds=WARM_UP_SECONDS, rounds=ROUNDS
                )
            )
        return self._encoding[compression]

    def _ask(self, question: Callable[[JavaOracle], Timing]) -> Timing | None:
        try:
            with JavaOracle(OPTIMIZING) as java:
                return question(java)
        except JavaMissingError as reason:
            print(f"Java is not measured: {reason}", file=sys.stderr)
            return None
