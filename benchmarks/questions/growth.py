"""How does the cost of a record grow with its size, partitions, topics, producers and cores? Measured without
a network: a thread drains and answers at once. A part of docs/costs.md.

`python -m benchmarks.questions.growth send|send_table RECORDS CORES` measures on this many cores, in its own
process, because running threads stay on their cores.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks.pages.plan import Plan
from benchmarks.questions.costs_job import PATHS, job, job_on_cores, job_over_topics

SIZES = (10, 100, 1_000, 10_000, 100_000)
RECORDS, BYTES, ROUNDS = 100_000, 100_000_000, 3
CORES_RECORDS = 500_000
PARTITION_COUNTS = (1, 10, 100, 1_000, 10_000)
TOPIC_COUNTS = (1, 10, 100, 1_000, 10_000)
PRODUCER_COUNTS = (1, 2, 4)


def growth(plan: Plan) -> Iterator[str]:
    yield "## How the cost grows\n"
    yield (
        "Processor time of the process, in ns a record, from the call to the answered batch, without a "
        f"network: a thread drains and answers at once. The lowest of {ROUNDS} rounds; lz4, 128 KiB.\n"
    )
    records = plan.records_of(RECORDS)
    yield from _sizes(records)
    yield from _partitions(records)
    yield from _topics(records)
    yield from _producers(records)
    yield from _cores(plan.records_of(CORES_RECORDS))


def _sizes(records: int) -> Iterator[str]:
    yield "### With the size of a value\n"
    costs = {
        path: [cost_ns(job(path, _count(records, size), size), _count(records, size)) for size in SIZES]
        for path in PATHS
    }
    yield from _table("value, bytes", SIZES, costs)
    for path, values in costs.items():
        fixed, per_byte = line_through(SIZES, values)
        yield f"`{path}`: {fixed:.0f} ns a record and {per_byte:.2f} ns a byte of the value.\n"


def _count(records: int, size: int) -> int:
    return max(100, min(records, BYTES // size // 10))


def _partitions(records: int) -> Iterator[str]:
    yield "### With the number of partitions\n"
    costs = {
        path: [cost_ns(job(path, records, partitions=count), records) for count in PARTITION_COUNTS]
        for path in PATHS
    }
    yield from _table("partitions", PARTITION_COUNTS, costs)
    yield (
        f"{records:,} records under different keys, and then a flush. With many partitions, batches go out "
        "before they are full, so that fewer records share the cost of a batch.\n"
    )
    most = PARTITION_COUNTS[-1]
    with no_collector():
        found = {path: cost_ns(job(path, records, partitions=most), records) for path in PATHS}
    said = " and ".join(f"`{path}` {cost:,.0f}" for path, cost in found.items())
    yield (
        f"With Python's garbage collector off, {most:,} partitions cost {said} ns. A table has a part for "
        "each partition of its rows, and a note of the rows in each batch. `send` lacks these "
        "objects, which the collector scans repeatedly while there are many. Sorting a "
        "block's rows by partition takes under 1 % of perf's samples there.\n"
    )


@contextmanager
def no_collector() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()


def _topics(records: int) -> Iterator[str]:
    yield "### With the number of topics, one partition each\n"
    costs = {
        path: [cost_ns(job_over_topics(path, records, count), records) for count in TOPIC_COUNTS]
        for path in PATHS
    }
    yield from _table("topics", TOPIC_COUNTS, costs)
    yield "Each record goes to another topic than the one before it; `send_table` has a column of names.\n"


def _producers(records: int) -> Iterator[str]:
    """Measure producers of one process, a thread each: `send` shares the GIL, `send_table` the cores."""
    yield "### With the number of producers in a process, a thread each\n"
    columns: dict[str, list[float]] = {}
    for path in PATHS:
        for count in PRODUCER_COUNTS:
            jobs = [job(path, records) for _ in range(count)]
            cpu_ns, elapsed_ns = measured(lambda jobs=jobs: together(jobs))  # type: ignore[misc]
            _note(columns, path, records * count, cpu_ns, elapsed_ns)
    yield from _table("producers", PRODUCER_COUNTS, _ordered(columns))


def _cores(records: int) -> Iterator[str]:
    """Measure one producer that may run on some of the cores."""
    yield "### With the number of cores\n"
    if not hasattr(os, "sched_setaffinity"):
        yield "Not measured: on this system a process cannot be held to some of the cores.\n"
        return
    counts = range(1, len(os.sched_getaffinity(0)) + 1)
    columns: dict[str, list[float]] = {}
    for path in PATHS:
        for count in counts:
            command = [sys.executable, "-m", "benchmarks.questions.growth", path, str(records), str(count)]
            found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
            _note(columns, path, records, *found)
    yield from _table("cores", counts, _ordered(columns))
    yield (
        f"{records:,} records of one producer, in a process that may run on this many cores. `send` is "
        "called by as many threads, which share the GIL; `send_table` by one, with as many sealers as "
        "there are other cores.\n"
    )


def _note(columns: dict[str, list[float]], path: str, records: int, cpu_ns: int, elapsed_ns: int) -> None:
    columns.setdefault(f"{path}, ns", []).append(cpu_ns / records)
    columns.setdefault(f"{path}, records/s", []).append(records / elapsed_ns * 1e9)


def _ordered(columns: dict[str, list[float]]) -> dict[str, list[float]]:
    """Return costs before rates."""
    return dict(sorted(columns.items(), key=lambda item: item[0].endswith("/s")))


def _table(what: str, steps: Sequence[int], columns: dict[str, list[float]]) -> Iterator[str]:
    yield f"| {what} | {' | '.join(columns)} |\n|---:|{'---:|' * len(columns)}"
    for step, *values in zip(steps, *columns.values(), strict=True):
        yield f"| {step:,} | {' | '.join(f'{value:,.0f}' for value in values)} |"
    yield ""


def measured(run: Callable[[], Any]) -> tuple[int, int]:
    """Return processor time and time, each the least of the rounds."""
    found = []
    for _ in range(1 + ROUNDS):
        start_ns, start_cpu_ns = time.perf_counter_ns(), time.process_time_ns()
        run()
        found.append((time.process_time_ns() - start_cpu_ns, time.perf_counter_ns() - start_ns))
    cpu_ns, elapsed_ns = zip(*found[1:], strict=True)
    return min(cpu_ns), min(elapsed_ns)


def cost_ns(run: Callable[[], Any], records: int) -> float:
    return measured(run)[0] / records


def together(jobs: Sequence[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=each) for each in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def line_through(sizes: Sequence[int], costs: Sequence[float]) -> tuple[float, float]:
    """Return the fixed cost and the cost per byte: the slope between the largest sizes, and the rest of the
    smallest.
    """
    per_byte = (costs[-1] - costs[-2]) / (sizes[-1] - sizes[-2])
    return statistics.median(costs[:2]) - per_byte * statistics.median(sizes[:2]), per_byte


def main(path: str, records: str, cores: str) -> None:
    """Print the processor time and the time, each the least of some rounds, on this many cores."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(cores)])
    print(json.dumps(measured(job_on_cores(path, int(records), int(cores)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
