"""Where the time of a record goes, and how it grows: `python -m benchmarks costs` writes docs/costs.md.

There are three instruments. perf samples a producer with a real Kafka, by function. The sender's thread,
which is Python, is timed function by function. callgrind counts instructions, which other load on the machine
does not change. The bound of each path comes from rounds without any of them, and growth
(`benchmarks.questions.growth`) is measured without a network.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from benchmarks.clients.contest import Contest, Driver, able, records_for
from benchmarks.pages.page import Page, stamp
from benchmarks.pages.plan import Plan
from benchmarks.questions import costs_job
from benchmarks.questions.growth import growth
from benchmarks.questions.profiles import has_perf, instructions, sampled
from benchmarks.questions.throughput import PARTITIONS
from kbatch.bench.contest import SETTINGS, Answer
from kbatch.bench.settings import listed

RECORDS, BOUND_RECORDS, BOUND_ROUNDS = 2_000_000, 1_000_000, 3
PATHS = {
    "send": "kbatch",
    "send_table": "kbatch send_table",
    "send_batch": "kbatch send_batch",
    "AsyncProducer": "kbatch AsyncProducer",
}
BOUND_PATHS = {**PATHS, "send_many": "kbatch send_many"}
CODECS = ("lz4", "none")
# From this utilization on, a part is the bound.
BUSY = 0.9
FEW, MANY = 2_000, 22_000  # records that callgrind sees
HEAD = """# Costs of a record

Where does the time of a record go? The tables below split it into stages. Nanoseconds are processor time a
record, for 16-byte keys and, unless stated otherwise, 100-byte JSON values, in batches of 128 KiB, compressed
by lz4.

The stages of a table add up to the time of the client's process *under the profiler*. Profiling adds to it:
perf stops each thread some 2,000 times in a second of its time, and timing the sender's stages wraps each of
its calls in Python. The line above each table has the time of the same process just before, without either.
So a stage's share says more than its nanoseconds. Work per batch (a seal, a stamp) or per request (encoding,
sendmsg, the response) is divided by its records. So its share grows as batches get smaller; work per record
does not.

[benchmarks.md](benchmarks.md) has latency, memory and peers. `make bench` writes this page (`.venv/bin/python
-m benchmarks costs` writes only this one).
"""


def write(plan: Plan, path: Path | None, commit: str = "") -> None:
    """Measure, print, and write the page if there is a path."""
    sections = {"bounds": bounds, "stages": stages, "instructions": counted, "growth": growth}
    page = None if path is None else Page(path, HEAD, sections)
    for name, section in sections.items():
        conditions = f"*{stamp('a quick run' if plan.quick else 'a full run', commit=commit)}*\n"
        text = "\n".join([conditions, *section(plan), ""])
        print(text, flush=True)
        if page is not None:
            page.put_text(name, text)


# The bound of each path, with a broker


def bounds(plan: Plan) -> Iterator[str]:
    yield "## Bounds of each path\n"
    yield (
        f"Against a real Kafka that shares the {os.cpu_count()} cores, without a profiler; each in "
        f"its own process, the last of {BOUND_ROUNDS} rounds. {PARTITIONS} partitions. "
        f"{listed(SETTINGS)}, except for the compression in a row. Busy is processor time divided by "
        "time, in cores, from the creation of the client to its close. It is given for the calling "
        "thread, for the client's process including that thread, and for the broker.\n"
    )
    yield "| path | compression | records/s | CPU, ns | caller busy | client busy | broker busy | bound by |"
    yield "|---|---|---:|---:|---:|---:|---:|---|"
    with plan.cluster() as cluster, Contest(cluster, "bounds", PARTITIONS) as contest:
        for path, name in _able(BOUND_PATHS):
            count = records_for(name, plan.records_of(BOUND_RECORDS))
            for codec in CODECS:
                settings = {**SETTINGS, "compression.type": codec}
                with Driver(name) as driver:
                    answers = [contest.ask(driver, "load", count, settings) for _ in range(BOUND_ROUNDS)]
                yield _bound_row(path, codec, count, answers[-1])
    yield (
        f"\nThe caller: its thread is busy for at least {BUSY:.0%} of the time. The cores: all of "
        "them are, with client and broker. Neither: the client waits for answers or for memory.\n"
    )


def _able(paths: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    there = able(paths.values())
    return [(path, name) for path, name in paths.items() if name in there]


def _bound_row(path: str, codec: str, records: int, answer: Answer) -> str:
    figures = ("caller_ns", "cpu_ns", "broker_ns")
    caller, client, broker = ((answer[figure] or 0) / answer["elapsed_ns"] for figure in figures)
    cells = [path, codec, _rate(records, answer), f"{answer['cpu_ns'] / records:,.0f}"]
    cells += [f"{busy:.2f}" for busy in (caller, client, broker)]
    return f"| {' | '.join([*cells, bound_by(caller, client + broker, os.cpu_count() or 1)])} |"


def bound_by(caller: float, both: float, cores: int) -> str:
    """Name the bound, from the cores that the caller, and client and broker together, keep busy."""
    found = []
    if caller >= BUSY:
        found.append("the caller")
    if both >= BUSY * cores:
        found.append("the cores")
    return ", ".join(found) or "neither"


def _rate(records: int, answer: Answer) -> str:
    return f"{records / answer['elapsed_ns'] * 1e9:,.0f}"


# Stages, with a broker


def stages(plan: Plan) -> Iterator[str]:
    records = plan.records_of(RECORDS)
    yield "## Stages, against a real Kafka\n"
    yield f"{records:,} records a path, or its share of them, {PARTITIONS} partitions. {listed(SETTINGS)}.\n"
    with plan.cluster() as cluster, Contest(cluster, "costs", PARTITIONS) as contest:
        for path, name in _able(PATHS):
            count = records_for(name, records)
            with Driver(name) as driver:
                contest.ask(driver, "load", count, SETTINGS)
                plain = contest.ask(driver, "load", count, SETTINGS)
                yield from _samples(contest, driver, path, count, plain)
                answer = contest.ask(driver, "load", count, SETTINGS, profile=True)
                if "profile" in answer:
                    yield from _threads(path, count, answer, plain)


def _added(records: int, plain: Answer, profiled: Answer, what: str) -> str:
    """Describe what the profiler adds to a round."""
    cost_ns, more_ns = (answer["cpu_ns"] / records for answer in (plain, profiled))
    return (
        f"Without a profiler {cost_ns:,.0f} ns a record and {_rate(records, plain)} records/s; {what} "
        f"{more_ns:,.0f} ns ({more_ns / cost_ns:.2f} x) and {_rate(records, profiled)} records/s."
    )


def _samples(contest: Contest, driver: Driver, path: str, records: int, plain: Answer) -> Iterator[str]:
    yield f"### {path}: by function\n"
    if not has_perf():
        yield "Not measured: this machine has no `perf` that may sample.\n"
        return
    with sampled(driver.process_id) as samples:
        answer = contest.ask(driver, "load", records, SETTINGS)
    yield _added(records, plain, answer, "while perf samples,") + "\n"
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


def _threads(path: str, records: int, answer: Answer, plain: Answer) -> Iterator[str]:
    taken = answer["profile"]
    requests, batches = taken["totals"]["request-total"], taken["totals"]["batches"]
    yield f"### {path}: threads, and what the sender's does\n"
    yield (
        f"{_added(records, plain, answer, 'while the sender is timed,')} "
        f"{requests:.0f} requests of {records / max(requests, 1):,.0f} records, {batches} batches of "
        f"{records / max(batches, 1):,.0f}; {taken['totals']['rounds']} rounds of the loop; "
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
        "Counted by callgrind from the call to the answered batch, without a network, in one process: the "
        f"difference of sending {MANY:,} records and the first {FEW:,} of them, divided. All are created "
        "beforehand in both processes, so their creation cancels.\n"
    )
    found = {path: instructions(path, FEW, MANY) for path in costs_job.PATHS}
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
