"""What do several threads or tasks cost that send through one producer with a full buffer, compared with one?
And does each get its share?
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.clients import free_threads
from benchmarks.clients.contest import Contest, able, drivers_of
from benchmarks.clients.contestants import CONTESTANTS, JAVA
from benchmarks.clients.kafka import kafka
from benchmarks.pages.harness import Claim, Contender, Question
from benchmarks.pages.plan import Plan
from kbatch.bench.contest import MIB, SETTINGS, Answer
from kbatch.bench.settings import listed

PARTITIONS = 4
ROUNDS, SECONDS, QUICK_SECONDS = 3, 5.0, 0.5
BUFFERS_MIB = (32, 4)
KBATCH, ASYNC, CONFLUENT = "kbatch", "kbatch AsyncProducer", "confluent-kafka"
NO_GIL, WITH_GIL = free_threads.both(KBATCH)
# Calls that accept many rows.
BULK = ("kbatch send_many", "kbatch send_table", "kbatch send_batch")
OURS = (KBATCH, ASYNC, NO_GIL, WITH_GIL, *BULK)
# Rows between two checks of the clock.
CHUNK, BULK_CHUNK = 1_000, 10_000
MOST_CPU, LEAST_RATE, MOST_UNEVEN = 1.3, 0.9, 2.0
EVEN = "an even share"


@dataclass(frozen=True)
class Crowd:
    """A crowd of one contestant: the numbers of senders and producers."""

    contestant: str
    senders: int
    producers: int = 1

    @property
    def name(self) -> str:
        what = "task" if self.contestant == ASYNC else "thread"
        said = f"{self.contestant}, {self.senders} {what}{'s' if self.senders > 1 else ''}"
        return said if self.producers == 1 else f"{said}, {self.producers} producers"

    @property
    def alone(self) -> str:
        """The crowd to compare with."""
        return Crowd(self.contestant, 1).name


@dataclass(frozen=True)
class Scenario:
    title: str
    crowds: Sequence[Crowd]
    buffer_mib: int


def scenarios() -> Iterator[Scenario]:
    for mib in BUFFERS_MIB:
        threads = [Crowd(name, n) for name in (KBATCH, CONFLUENT, JAVA) for n in (1, 2, 4, 16, 64)]
        yield Scenario(f"threads of one producer, buffer.memory {mib} MiB", threads, mib)
        tasks = [Crowd(ASYNC, n) for n in (1, 16, 1000)]
        yield Scenario(f"tasks of one producer, buffer.memory {mib} MiB", tasks, mib)
    free = [Crowd(name, n) for name in (NO_GIL, WITH_GIL) for n in (1, 2, 4, 16)]
    yield Scenario("threads of one producer on CPython 3.13t, buffer.memory 32 MiB", free, 32)
    several = [Crowd(name, n, n) for name in (KBATCH, CONFLUENT, JAVA) for n in (1, 2, 4)]
    several += [Crowd(name, 16, 4) for name in (KBATCH, CONFLUENT, JAVA)]
    yield Scenario("several producers in one process, buffer.memory 4 MiB each", several, 4)
    bulk = [Crowd(name, n) for name in BULK for n in (1, 4, 16)]
    yield Scenario("threads that send many rows a call, buffer.memory 32 MiB", bulk, 32)


def questions(plan: Plan) -> Iterator[Question]:
    with kafka() as broker:
        for scenario in scenarios():
            with Contest(broker, "threads", PARTITIONS) as contest:
                answers = asked(scenario, contest, plan)
            if not answers:  # `able` has said why
                continue
            yield cost(scenario, answers)
            yield time_taken(scenario, answers)
            yield shares(scenario, answers)


def asked(scenario: Scenario, contest: Contest, plan: Plan) -> Mapping[Crowd, list[Answer]]:
    """Return the answers, in turns; a first round with one thread of each contestant does not count, and two
    for Java.
    """
    names = able(dict.fromkeys(crowd.contestant for crowd in scenario.crowds))
    answers: dict[Crowd, list[Answer]] = {c: [] for c in scenario.crowds if c.contestant in names}
    settings = {**SETTINGS, "buffer.memory": scenario.buffer_mib * MIB}
    seconds = QUICK_SECONDS if plan.quick else SECONDS
    with drivers_of(names) as opened:
        drivers = {driver.name: driver for driver in opened}

        def ask(crowd: Crowd) -> Answer:
            return contest.ask_crowd(
                drivers[crowd.contestant],
                settings,
                producers=crowd.producers,
                senders=crowd.senders,
                chunk=BULK_CHUNK if crowd.contestant in BULK else CHUNK,
                seconds=seconds,
            )

        for name in names:
            for _ in range(2 if name == JAVA else 1):
                ask(Crowd(name, 1))
        for _ in range(plan.rounds_of(ROUNDS)):
            for crowd, found in answers.items():
                found.append(ask(crowd))
    return answers


def cost(scenario: Scenario, answers: Mapping[Crowd, list[Answer]]) -> Question:
    return Question(
        f"Processor time of a record: {scenario.title}",
        "Each thread or task sends 16-byte keys and 100-byte JSON values, 1,000 of them repeated, "
        f"with a callback a record, for {SECONDS:.0f} s (--quick: {QUICK_SECONDS:g} s). A call that "
        f"accepts many rows gets {BULK_CHUNK:,} at a time, without callbacks. {PARTITIONS} partitions, "
        "a real Kafka. Another client reads every record back and compares it, in any order. The "
        "client's process, user and kernel, up to the last acknowledgement. "
        f"{listed({**SETTINGS, 'buffer.memory': scenario.buffer_mib * MIB})}.",
        contenders(answers, "cpu_ns"),
        claims(answers, MOST_CPU, f"CPU a record at most {MOST_CPU} x that of one"),
        "ns of CPU a record",
        in_turns=True,
        speaks_of_speed=False,
    )


def time_taken(scenario: Scenario, answers: Mapping[Crowd, list[Answer]]) -> Question:
    made = contenders(answers, "elapsed_ns")
    for contender in made:
        contender.note = f"{1e9 / contender.median:,.0f} records/s"
    return Question(
        f"Records delivered: {scenario.title}",
        "The same rounds, from the first call to the last acknowledgement.",
        made,
        claims(answers, 1 / LEAST_RATE, f"records/s at least {LEAST_RATE} x those of one", bound_of),
        in_turns=True,
        speaks_of_speed=False,
    )


def shares(scenario: Scenario, answers: Mapping[Crowd, list[Answer]]) -> Question:
    """Return the inverse share of the slowest, because a claim is an upper bound."""
    several = {crowd: found for crowd, found in answers.items() if crowd.senders > 1}
    made = [
        Contender(crowd.name, 1, timings=[unevenness(answer["sent"]) for answer in found])
        for crowd, found in several.items()
    ]
    rounds = len(next(iter(answers.values())))
    return Question(
        f"The share of the slowest: {scenario.title}",
        "The same rounds: an even share of the records, divided by those of the slowest thread or task.",
        [*made, Contender(EVEN, 1, timings=[1.0] * rounds)],
        [
            Claim(crowd.name, EVEN, MOST_UNEVEN, f"{crowd.name}: each gets at least half an even share")
            for crowd in several
            if crowd.contestant in OURS
        ],
        "x",
        in_turns=True,
        speaks_of_speed=False,
    )


def unevenness(sent: Sequence[int]) -> float:
    return sum(sent) / len(sent) / max(min(sent), 1)


def contenders(answers: Mapping[Crowd, list[Answer]], figure: str) -> list[Contender]:
    """Return nanoseconds a record."""
    return [
        Contender(
            crowd.name,
            1,
            timings=[answer[figure] / sum(answer["sent"]) for answer in found],
            note=CONTESTANTS[crowd.contestant].note,
        )
        for crowd, found in answers.items()
    ]


def claims(
    answers: Mapping[Crowd, list[Answer]],
    at_most: float,
    text: str,
    excuse: Callable[[Mapping[Crowd, list[Answer]], Crowd], str] = lambda answers, crowd: "",
) -> list[Claim]:
    return [
        Claim(crowd.name, crowd.alone, at_most, f"{crowd.name}: {text}", excuse(answers, crowd))
        for crowd in answers
        if crowd.senders > 1 and crowd.contestant in OURS
    ]


def bound_of(answers: Mapping[Crowd, list[Answer]], crowd: Crowd) -> str:
    """Say what bounds the rate of a crowd: the processor time of a record, or waiting."""
    alone = answers[Crowd(crowd.contestant, 1)]
    ratio = cpu_of_a_record(answers[crowd]) / cpu_of_a_record(alone)
    gil = "" if crowd.contestant == NO_GIL else ": the GIL lets one thread at a time run Python"
    return (
        f"CPU a record is {ratio:.2f} x that of one. The process kept {cores_of(answers[crowd]):.2f} cores "
        f"busy, and with one {cores_of(alone):.2f}{gil}"
    )


def cpu_of_a_record(found: Sequence[Answer]) -> float:
    return float(statistics.median(answer["cpu_ns"] / sum(answer["sent"]) for answer in found))


def cores_of(found: Sequence[Answer]) -> float:
    return float(statistics.median(answer["cpu_ns"] / answer["elapsed_ns"] for answer in found))
