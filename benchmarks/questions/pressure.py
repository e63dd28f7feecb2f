"""How much memory does a producer need with many partitions open, and while brokers accept less than it
sends?
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from benchmarks.clients.contest import Contest, Driver
from benchmarks.clients.kafka import kafka
from benchmarks.pages.harness import Claim, Contender, Question
from benchmarks.pages.plan import Plan
from kbatch.bench.contest import BUFFER_MEMORY, MIB, SETTINGS, Answer
from kbatch.bench.settings import listed
from tests.oracle.kafka import RealKafka

BUDGET = "budget"
BUDGET_MIB = BUFFER_MEMORY / MIB + 40
MANY_PARTITIONS, MANY_RECORDS, MANY_ROUNDS = 10_000, 200_000, 3
# Long enough for all partitions to be open at once.
MANY_SETTINGS = {**SETTINGS, "linger.ms": 1000}
PARTITIONS = 4
# The slower client needs fewer records to show its memory.
RECORDS: Mapping[str, int] = {"kbatch": 10_000_000, "confluent-kafka": 2_000_000}
# Waiting records take the memory that buffer.memory counts.
PRESSURE_SETTINGS = {**SETTINGS, "compression.type": "none"}
STANDSTILL_SECONDS = 1.0
MOST_GROWTH = 1.05
HIGHEST, BEGINNING, REST = "kbatch, highest peak", "kbatch, first tenth", "kbatch, from there on"


def questions(plan: Plan) -> Iterator[Question]:
    yield partitions_question(plan)
    yield pressure_question(plan)


def partitions_question(plan: Plan) -> Question:
    records, answers = plan.records_of(MANY_RECORDS), []
    with kafka() as broker, Contest(broker, "many", MANY_PARTITIONS) as contest:
        for _ in range(plan.rounds_of(MANY_ROUNDS)):
            with Driver("kbatch") as driver:
                answers.append(contest.ask(driver, "load", records, MANY_SETTINGS, different_keys=True))
    peak = peaks("kbatch", answers, records)
    return Question(
        f"Memory of a producer with {MANY_PARTITIONS:,} partitions open",
        f"{records:,} records under different keys, {len(answers)} times, in a new process each; peak "
        f"resident memory of the process, Python included. {listed(MANY_SETTINGS)}.",
        [peak, Contender(HIGHEST, records, timings=[max(peak.timings)]), budget()],
        [Claim(HIGHEST, BUDGET, 1.0, "the highest peak: buffer.memory + 40 MiB, or less")],
        "MiB",
        speaks_of_speed=False,
    )


def pressure_question(plan: Plan) -> Question:
    counts = {name: plan.records_of(records) for name, records in RECORDS.items()}
    answers = {}
    with kafka() as broker, Contest(broker, "pressure", PARTITIONS) as contest:
        for name, records in counts.items():
            with Driver(name) as driver, standing_still(broker):
                answers[name] = contest.ask(driver, "load", records, PRESSURE_SETTINGS, watched=True)
    said = " and ".join(f"{records:,} of {name}" for name, records in counts.items())
    return Question(
        "Memory of a producer under back-pressure",
        f"Records ({said}) to a real Kafka that stands still every other {STANDSTILL_SECONDS:.0f} s. Peak "
        "resident memory of the process, Python included; its maximum while the first tenth of "
        f"kbatch's records was sent, and while the others were. {listed(PRESSURE_SETTINGS)}.",
        [
            *(peaks(name, [answer], counts[name]) for name, answer in answers.items()),
            *tenth_and_rest(answers["kbatch"]["samples_kib"], counts["kbatch"]),
            budget(),
        ],
        [
            Claim("kbatch, peak", BUDGET, 1.0, "buffer.memory + 40 MiB, or less"),
            Claim(
                REST,
                BEGINNING,
                MOST_GROWTH,
                f"flat over {counts['kbatch']:,} records: grows by 5 % at most after the first tenth",
            ),
        ],
        "MiB",
        speaks_of_speed=False,
    )


def tenth_and_rest(samples_kib: Sequence[int], records: int) -> list[Contender]:
    samples = [kib / 1024 for kib in samples_kib]
    tenth = len(samples) // 10
    return [
        Contender(name, records, timings=[max(seen)], note=f"{seen[-1]:.1f} at {when} records")
        for name, seen, when in (
            (BEGINNING, samples[:tenth], f"{records // 10:,}"),
            (REST, samples[tenth:], f"{records:,}"),
        )
    ]


def budget() -> Contender:
    return Contender(BUDGET, 1, timings=[BUDGET_MIB], note="buffer.memory + 40 MiB")


def peaks(name: str, answers: Sequence[Answer], records: int) -> Contender:
    """Build a contender from the answers, with a note about the last one."""
    answer = answers[-1]
    idle, ready = answer["idle_kib"] / 1024, answer["ready_kib"] / 1024
    note = f"{idle:.1f} for Python, {ready:.1f} when connected; {answer['elapsed_ns'] / 1e9:.1f} s"
    if "waited_ns" in answer:
        note += f", {answer['waited_ns'] / 1e9:.1f} s of them waiting for memory"
    timings = [answer["peak_kib"] / 1024 for answer in answers]
    return Contender(f"{name}, peak", records, timings=timings, note=note)


@contextmanager
def standing_still(broker: RealKafka) -> Iterator[None]:
    """Pause and resume the broker in turn until the block ends."""
    is_over = threading.Event()

    def alternate() -> None:
        while not is_over.wait(STANDSTILL_SECONDS):
            broker.pause()
            is_over.wait(STANDSTILL_SECONDS)
            broker.resume()

    thread = threading.Thread(target=alternate)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
