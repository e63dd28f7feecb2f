"""Where the time of a record goes, and how that grows: `python -m benchmarks costs` writes docs/costs.md.

Three instruments: perf samples a producer at work against a real Kafka, by function; the sender's thread,
which is Python, is timed function by function; callgrind counts instructions, which no other load on the
machine changes. What bounds each path is said from rounds without any of them; growth (`benchmarks.growth`)
is measured without a network.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from benchmarks import costs_job
from benchmarks.growth import growth
from benchmarks.profiles import has_perf, instructions, sampled
from kbatch.bench.contest import SETTINGS, Answer, Contest, Driver, able, records_for
from kbatch.bench.page import Page, stamp
from kbatch.bench.plan import Plan
from kbatch.bench.settings import listed
from kbatch.bench.throughput import PARTITIONS

RECORDS, BOUND_RECORDS, BOUND_ROUNDS = 2_000_000, 1_000_000, 3
PATHS = {
    "send": "kbatch",
    "send_table": "kbatch send_table",
    "send_batch": "kbatch send_batch",
    "AsyncProducer": "kbatch AsyncProducer",
}
BOUND_PATHS = {**PATHS, "send_many": "kbatch send_many"}
CODECS = ("lz4", "none")
# What is busy this share of the time holds up what waits for it.
BUSY = 0.9
FEW, MANY = 2_000, 22_000  # records that callgrind sees
HEAD = """# What a record costs

Made by `make bench` (`.venv/bin/python -m benchmarks costs` for this page alone). Nanoseconds are processor
time a record, for 16-byte keys and, where nothing else is said, 100-byte JSON values, in batches of 128 KiB,
compressed by lz4.

Read it so: the stages of a table add up to what the client's process takes for a record *while it is
profiled*. That adds to what it takes otherwise: perf stops each thread some 2,000 times in a second of its
time, and the timing of the sender's stages is Python around each of its calls. What the same process took
just before, with neither, stands above each table, so a stage's share says more than its nanoseconds. What is
done once a batch (a seal, a stamp) or once a request (its encoding, sendmsg, its answer) is divided by the
records in it, so it grows as batches get smaller; what is done once a record does not.

Latency, memory and peers are in [benchmarks.md](benchmarks.md).
"""


def write(plan: Plan, path: Path | None, commit: str = "") -> None:
    """Measures, prints, and writes the page where there is to be one."""
    sections = {"bounds": bounds, "stages": stages, "instructions": counted, "growth": growth}
    page = None if path is None else Page(path, HEAD, sections)
    for name, section in sections.items():
        told = f"*{stamp('a quick run' if plan.quick else 'a full run', commit=commit)}*\n"
        text = "\n".join([told, *section(plan), ""])
        print(text, flush=True)
        if page is not None:
            page.put_text(name, text)


# What bounds each path, against a broker


def bounds(plan: Plan) -> Iterator[str]:
    yield "## What bounds each path\n"
    yield (
        f"Against a real Kafka that shares the {os.cpu_count()} cores, without any profiler; each in a "
        f"process of its own, the last of {BOUND_ROUNDS} rounds. {PARTITIONS} partitions. "
        f"{listed(SETTINGS)}, but for the compression that a row names. Busy is processor time divided by "
        "time, in cores: of the thread that calls, of the client's process, that thread with it, and of the "
        "broker, there from when the client is made to when it is closed.\n"
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
        f"\nThe caller: its thread is busy for {BUSY:.0%} of the time, or more. The cores: so are all of "
        "them, with client and broker. Neither: the client waits, for answers or for memory that they free.\n"
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
    """`caller` and `both`, client and broker: how many cores they keep busy."""
    found = []
    if caller >= BUSY:
        found.append("the caller")
    if both >= BUSY * cores:
        found.append("the cores")
    return ", ".join(found) or "neither"


def _rate(records: int, answer: Answer) -> str:
    return f"{records / answer['elapsed_ns'] * 1e9:,.0f}"


# Stages, against a broker


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
    """What a profiler adds to a round."""
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
        "Counted by callgrind from the call to the answered batch, without a network, in one process: what "
        f"sending {MANY:,} records takes more than sending the first {FEW:,} of them, divided. All are made "
        "before, in either process, so that making them cancels.\n"
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
