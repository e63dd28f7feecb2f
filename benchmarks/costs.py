"""Where the time of a record goes, and how that grows: `python -m benchmarks costs` writes docs/costs.md.

Three instruments: perf samples a producer at work against a real Kafka, by function; the sender's thread,
which is Python, is timed function by function; callgrind counts instructions, which no other load on the
machine changes. What bounds each path is said from their figures; growth is measured without a network.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.costs_job import job, job_over_topics
from benchmarks.profiles import has_perf, instructions, sampled
from kbatch.bench.contest import SETTINGS, Answer, Contest, Driver, listed, records_for
from kbatch.bench.page import Page, stamp
from kbatch.bench.plan import Plan
from kbatch.bench.throughput import PARTITIONS

RECORDS = 2_000_000
PATHS = {"send": "kbatch", "send_table": "kbatch send_table"}
FEW, MANY = 2_000, 22_000  # records that callgrind sees
SIZES = (10, 100, 1_000, 10_000, 100_000)
GROWTH_RECORDS, GROWTH_BYTES, GROWTH_ROUNDS = 100_000, 100_000_000, 3
PARTITION_COUNTS = (1, 10, 100, 1_000, 10_000)
TOPIC_COUNTS = (1, 10, 100, 1_000)
PRODUCER_COUNTS = (1, 2, 4)
HEAD = """# What a record costs

Made by `make bench` (`.venv/bin/python -m benchmarks costs` for this page alone). Nanoseconds are processor
time a record, for 16-byte keys and, where nothing else is said, 100-byte JSON values, in batches of 128 KiB,
compressed by lz4.

Read it so: the stages of a table add up to what the client's process takes for a record. What is done once a
batch (a seal, a stamp) or once a request (its encoding, sendmsg, its answer) is divided by the records in it,
so it grows as batches get smaller; what is done once a record does not.

What bounds each path:

- `send`: the caller's thread, with Python's call, appending, and lz4, which that thread does as well with the
  GIL released. More threads send little more, since the call holds the GIL; more processes do, up to what the
  broker takes.
- `send_many`: the same, without a call a record.
- `send_table`: lz4, on the caller's thread and on the sealers' where cores are free; without compression the
  copy of the bytes; and then the broker, which takes fewer bytes a second than are made.
- `AsyncProducer`: the event loop, for each awaited call is Python.
- Latency: the broker's answer, and how soon the sender's thread wakes up. That is one eventfd and one
  selector; where Python computes beside it, it is the GIL.
- Memory: `buffer.memory`. Whoever sends faster than brokers take waits for it.
"""


def write(plan: Plan, path: Path | None) -> None:
    """Measures, prints, and writes the page where there is to be one."""
    names = ("stages", "instructions", "growth")
    page = None if path is None else Page(path, HEAD, names)
    told = f"*{stamp('a quick run' if plan.quick else 'a full run')}*\n"
    for name, section in (("stages", stages), ("instructions", counted), ("growth", growth)):
        text = "\n".join([told, *section(plan), ""])
        print(text, flush=True)
        if page is not None:
            page.put_text(name, text)


# Stages, against a broker


def stages(plan: Plan) -> Iterator[str]:
    records = plan.records_of(RECORDS)
    yield "## Stages, against a real Kafka\n"
    yield f"{records:,} records, {PARTITIONS} partitions. {listed(SETTINGS)}.\n"
    with plan.cluster() as cluster:
        contest = Contest(cluster, "costs", PARTITIONS)
        for path, name in PATHS.items():
            count = records_for(name, records)
            with Driver(name) as driver:
                contest.ask(driver, "load", count, SETTINGS)
                yield from _samples(contest, driver, path, count)
                answer = contest.ask(driver, "load", count, SETTINGS, profile=True)
                yield from _threads(path, count, answer)


def _samples(contest: Contest, driver: Driver, path: str, records: int) -> Iterator[str]:
    yield f"### {path}: by function\n"
    if not has_perf():
        yield "Not measured: this machine has no `perf` that may sample.\n"
        return
    with sampled(driver.process_id) as samples:
        answer = contest.ask(driver, "load", records, SETTINGS)
    found = samples.shares(answer["start_ns"], answer["elapsed_ns"])
    cost_ns = answer["cpu_ns"] / records
    totals: dict[str, list[float]] = {}
    for (is_main, stage), share in found.items():
        totals.setdefault(stage, [0.0, 0.0])[0 if is_main else 1] += share * cost_ns
    yield "| stage | the caller's thread, ns | other threads, ns |\n|---|---:|---:|"
    for stage, (ours, others) in sorted(totals.items(), key=lambda item: -sum(item[1])):
        yield f"| {stage} | {ours:.1f} | {others:.1f} |"
    sums = [sum(values) for values in zip(*totals.values(), strict=True)]
    yield f"| all | {sums[0]:.1f} | {sums[1]:.1f} |\n"


def _threads(path: str, records: int, answer: Answer) -> Iterator[str]:
    taken = answer["profile"]
    requests, batches = taken["totals"]["request-total"], taken["totals"]["batches"]
    yield f"### {path}: threads, and what the sender's does\n"
    yield (
        f"{records / answer['elapsed_ns'] * 1e9:,.0f} records/s; {requests:.0f} requests of "
        f"{records / max(requests, 1):,.0f} records, {batches} batches of {records / max(batches, 1):,.0f}; "
        f"{taken['totals']['rounds']} rounds of the loop; "
        f"{answer['waited_ns'] / 1e6:.0f} ms waited for memory.\n"
    )
    yield "| thread, and below it the sender's stages | ns a record | us a request |\n|---|---:|---:|"
    for name, values in sorted(taken["threads"].items(), key=lambda item: -item[1]["cpu_ns"]):
        yield _row(name, values["cpu_ns"], records, requests)
    for name, own_ns in taken["stages"].items():
        yield _row(f"- {name}", own_ns, records, requests)
    yield ""


def _row(name: str, cost_ns: float, records: int, requests: float) -> str:
    return f"| {name} | {cost_ns / records:.1f} | {cost_ns / max(requests, 1) / 1e3:.1f} |"


# Instructions, without a broker


def counted(plan: Plan) -> Iterator[str]:
    yield "## Instructions a record\n"
    yield (
        "Counted by callgrind from the call to the answered batch, without a network, in one process: what "
        f"sending {MANY:,} records takes more than sending the first {FEW:,} of them, divided. All are made "
        "before, in either process, so that making them cancels.\n"
    )
    found = {path: instructions(path, FEW, MANY) for path in PATHS}
    counts = {path: count for path, count in found.items() if count is not None}
    if not counts:
        yield "Not measured: this machine has no valgrind.\n"
        return
    yield f"| stage | {' | '.join(counts)} |\n|---|{'---:|' * len(counts)}"
    known = {stage for count in counts.values() for stage in count}
    for stage in sorted(known, key=lambda stage: -max(count.get(stage, 0) for count in counts.values())):
        cells = [counts[path].get(stage, 0) for path in counts]
        if any(cells):
            yield f"| {stage} | {' | '.join(map(str, cells))} |"
    yield f"| all | {' | '.join(str(sum(count.values())) for count in counts.values())} |"


# Growth, without a broker


def growth(plan: Plan) -> Iterator[str]:
    yield "## How the cost grows\n"
    yield (
        "Processor time of the process from the call to the answered batch, without a network: a thread "
        "drains and answers at once. The lowest of three rounds; lz4, 128 KiB.\n"
    )
    records = plan.records_of(GROWTH_RECORDS)
    yield "### With the size of a value\n"
    costs = {
        path: [cost_ns(job(path, _count(records, size), size), _count(records, size)) for size in SIZES]
        for path in PATHS
    }
    yield from _table("value, bytes", SIZES, costs)
    for path, values in costs.items():
        fixed, per_byte = line_through(SIZES, values)
        yield f"`{path}`: {fixed:.0f} ns a record and {per_byte:.2f} ns a byte of the value.\n"
    yield "### With the number of partitions\n"
    costs = {
        path: [cost_ns(job(path, records, partitions=count), records) for count in PARTITION_COUNTS]
        for path in PATHS
    }
    yield from _table("partitions", PARTITION_COUNTS, costs)
    yield (
        f"{records:,} records under different keys, and then a flush: where partitions are many, batches go "
        "before they are full, and what a batch costs is divided by fewer records.\n"
    )
    yield "### With the number of topics, one partition each\n"
    topics = {"send": [cost_ns(job_over_topics(records, count), records) for count in TOPIC_COUNTS]}
    yield from _table("topics", TOPIC_COUNTS, topics)
    yield from _producers(records)


def _count(records: int, size: int) -> int:
    return max(100, min(records, GROWTH_BYTES // size // 10))


def _producers(records: int) -> Iterator[str]:
    """Producers of one process, a thread each: `send` shares the GIL, `send_table` shares the cores."""
    yield "### With the number of producers in a process, a thread each\n"
    costs, rates = {}, {}
    for path in PATHS:
        costs[f"{path}, ns"], rates[f"{path}, records/s"] = [], []
        for count in PRODUCER_COUNTS:
            jobs = [job(path, records) for _ in range(count)]
            cpu_ns, elapsed_ns = measured(lambda jobs=jobs: together(jobs))  # type: ignore[misc]
            costs[f"{path}, ns"].append(cpu_ns / records / count)
            rates[f"{path}, records/s"].append(records * count / elapsed_ns * 1e9)
    yield from _table("producers", PRODUCER_COUNTS, costs | rates)


def _table(what: str, steps: Sequence[int], columns: dict[str, list[float]]) -> Iterator[str]:
    yield f"| {what} | {' | '.join(columns)} |\n|---:|{'---:|' * len(columns)}"
    for step, *values in zip(steps, *columns.values(), strict=True):
        yield f"| {step:,} | {' | '.join(f'{value:,.0f}' for value in values)} |"
    yield ""


def measured(run: Callable[[], Any]) -> tuple[int, int]:
    """Processor time and time, each the least of some rounds."""
    found = []
    for _ in range(1 + GROWTH_ROUNDS):
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
    """What is fixed, and what a byte costs: the slope between the largest sizes, and the smallest's rest."""
    per_byte = (costs[-1] - costs[-2]) / (sizes[-1] - sizes[-2])
    return statistics.median(costs[:2]) - per_byte * statistics.median(sizes[:2]), per_byte
