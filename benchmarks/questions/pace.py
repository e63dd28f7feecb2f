"""What does a consumer cost, and how late is a record, at the pace of a service: without records, with few,
with many partitions? The second half counts instructions, which do not depend on the machine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.clients.contest import drivers_of
from benchmarks.clients.contestants import JAVA
from benchmarks.clients.counted import CountedDriver, why_uncounted
from benchmarks.clients.followers import FOLLOWERS
from benchmarks.clients.pacing import LEAD_RECORDS, VALUE_BYTES, Pace, PacedTopic, able_to_follow
from benchmarks.pages.harness import Claim, Contender, Question
from benchmarks.pages.plan import Plan
from benchmarks.questions.consumer import AIOKAFKA, ASYNC, FETCH_SETTINGS, ITERATED, POLLED, TABLES
from benchmarks.questions.latency import PERCENTILES, percentile
from benchmarks.questions.read import CONFLUENT
from benchmarks.questions.security import PLAINTEXT, SECURED, ways
from kbatch.bench.cluster import Address
from kbatch.bench.contest import Answer
from kbatch.bench.settings import listed

KBATCH = (ITERATED, POLLED, TABLES, ASYNC)
CLIENTS = (*KBATCH, CONFLUENT, AIOKAFKA, JAVA)
IN_THREADS = (ITERATED, POLLED, TABLES, CONFLUENT)  # beside Python that computes
ROUNDS, SECONDS, QUICK_SECONDS = 5, 5.0, 1.0
MOST_LATENCY, MOST_CPU = 1.05, 1.0  # of confluent-kafka's
MOST_ASYNC_LATENCY, MOST_ASYNC_CPU = 0.9, 0.6  # of aiokafka's
LEAST_FETCHES = 0.95  # beside a computing thread, of those without
# A lone record, counted: each comes in an answer of its own.
COUNTED = (ITERATED, POLLED, TABLES, ASYNC, CONFLUENT, AIOKAFKA)
LONE_PER_SECOND, LONE_RECORDS, QUICK_LONE_RECORDS, COUNTED_IDLE_SECONDS = 8, 80, 16, 10.0
MOST_INSTRUCTIONS, AIM = 30_000, "the aim"


@dataclass(frozen=True)
class Scenario:
    """What consumers have to follow."""

    per_second: int
    partitions: int = 4
    way: str = PLAINTEXT
    computing: bool = False
    clients: Sequence[str] = CLIENTS
    is_quick: bool = False  # part of a quick run

    @property
    def title(self) -> str:
        what = f"at {self.per_second:,} records a second" if self.per_second else "without records"
        where = f", {self.partitions:,} partitions"
        beside = ", beside Python that computes" if self.computing else ""
        return what + where + (f", {self.way}" if self.way != PLAINTEXT else "") + beside


# aiokafka's follower knows no TLS.
SECURED_CLIENTS = (*KBATCH, CONFLUENT, JAVA)
SCENARIOS = (
    Scenario(0, is_quick=True),
    Scenario(10),
    Scenario(100),
    Scenario(1_000, is_quick=True),
    Scenario(10_000),
    *(Scenario(per_second, partitions) for partitions in (200, 2_000) for per_second in (0, 100)),
    Scenario(1_000, way=SECURED, clients=SECURED_CLIENTS),
    Scenario(1_000, computing=True, clients=IN_THREADS, is_quick=True),
)


def questions(plan: Plan) -> Iterator[Question]:
    with ways() as addresses:
        found = {}
        for scenario in SCENARIOS:
            if scenario.is_quick or not plan.quick:
                found[scenario] = _answers(plan, addresses, scenario)
                yield from _questions(scenario, found[scenario])
        yield from _fetches(found)
        reason = why_uncounted()
        if reason is None:
            yield from _instructions(plan, addresses[PLAINTEXT].bootstrap_servers)
        else:
            print(f"instructions are not counted: {reason}", file=sys.stderr)


# Times


def _answers(plan: Plan, addresses: Mapping[str, Address], scenario: Scenario) -> dict[str, list[Answer]]:
    """Return each client's answers, in turns; a first round warms up, the broker too."""
    found: dict[str, list[Answer]] = {}
    address = addresses[scenario.way]
    access = {"bootstrap.servers": address.bootstrap_servers, **address.security}
    pace = Pace(scenario.per_second, QUICK_SECONDS if plan.quick else SECONDS)
    with ExitStack() as stack:
        topic = stack.enter_context(PacedTopic(addresses[PLAINTEXT].bootstrap_servers, scenario.partitions))
        drivers = stack.enter_context(drivers_of(able_to_follow(scenario.clients)))
        for number in range(-1, (plan.rounds or 1) if plan.quick else plan.rounds_of(ROUNDS)):
            for driver in drivers:
                answer = topic.follow(driver, pace, access, computing=scenario.computing)
                if number >= 0:
                    found.setdefault(driver.name, []).append(answer)
    return found


def _questions(scenario: Scenario, answers: Mapping[str, Sequence[Answer]]) -> Iterator[Question]:
    setting = (
        f"{VALUE_BYTES} bytes each, to the partitions in turn, for {SECONDS:g} s a round (--quick: "
        f"{QUICK_SECONDS:g} s); the first {LEAD_RECORDS} of a round do not count. One producer for all: "
        "confluent-kafka's with linger.ms=0. Partitions are assigned, without a group. The broker shares the "
        f"cores. Each client has its own defaults, among them {listed(FETCH_SETTINGS)}."
    )
    if scenario.per_second:
        yield Question(
            f"Latency {scenario.title}",
            f"From the call of produce() to when the program has the record; the percentiles of each round. "
            f"Records have {setting}",
            [
                _contender(f"{name}, p{p}", name, [percentile(each["delays_ns"], p) / 1e3 for each in rounds])
                for name, rounds in answers.items()
                for p in PERCENTILES
            ],
            list(_latency_claims(scenario)),
            "us",
            in_turns=True,
            speaks_of_speed=False,
        )
    unit, scale = ("us of CPU a record", 1e-3) if scenario.per_second else ("ms of CPU a second", 1e3)
    divisor = "delays_ns" if scenario.per_second else "elapsed_ns"
    yield Question(
        f"Processor time {scenario.title}",
        f"The client's process, user and kernel, without its start. Records have {setting}",
        [
            _contender(name, name, [scale * each["cpu_ns"] / _size(each[divisor]) for each in rounds])
            for name, rounds in answers.items()
        ],
        list(_cpu_claims(scenario)),
        unit,
        in_turns=True,
        speaks_of_speed=False,
    )


def _size(figure: object) -> float:
    return len(figure) if isinstance(figure, list) else float(str(figure))


def _contender(name: str, client: str, timings: list[float]) -> Contender:
    note = FOLLOWERS[client].note if client in FOLLOWERS else "poll(), one round before"
    return Contender(name, 1, timings=timings, note=note)


def _latency_claims(scenario: Scenario) -> Iterator[Claim]:
    for name in IN_THREADS[:-1] if scenario.per_second in (100, 1_000) else ():
        for p in PERCENTILES:
            text = f"{name}, p{p}: {MOST_LATENCY} x confluent-kafka's, or less"
            yield Claim(f"{name}, p{p}", f"{CONFLUENT}, p{p}", MOST_LATENCY, text)
    if AIOKAFKA in scenario.clients:
        for p in PERCENTILES:
            text = f"{ASYNC}, p{p}: {MOST_ASYNC_LATENCY} x aiokafka's, or less"
            yield Claim(f"{ASYNC}, p{p}", f"{AIOKAFKA}, p{p}", MOST_ASYNC_LATENCY, text)


def _cpu_claims(scenario: Scenario) -> Iterator[Claim]:
    if scenario.computing:  # its time is that of the other thread
        return
    for name in IN_THREADS[:-1]:
        yield Claim(name, CONFLUENT, MOST_CPU, f"{name}: {MOST_CPU:g} x confluent-kafka's, or less")
    if AIOKAFKA in scenario.clients:
        yield Claim(ASYNC, AIOKAFKA, MOST_ASYNC_CPU, f"{ASYNC}: {MOST_ASYNC_CPU} x aiokafka's, or less")


def _fetches(found: Mapping[Scenario, Mapping[str, Sequence[Answer]]]) -> Iterator[Question]:
    """Compare the answers to Fetch requests beside Python that computes with those without."""
    for busy, answers in found.items():
        if not busy.computing:
            continue
        quiet = next(each for each in found if each.per_second == busy.per_second and not each.computing)
        labels = {name: (f"{name}, alone", f"{name}, beside Python") for name in IN_THREADS[:-1]}
        yield Question(
            f"Fetches answered {busy.title}",
            "The time from one answer to the next, from the consumer's start to its end, in the rounds "
            "before: the reciprocal of its answers a second.",
            [
                Contender(label, 1, timings=[_fetch_interval_us(each) for each in rounds[name]])
                for name, pair in labels.items()
                for label, rounds in zip(pair, (found[quiet], answers), strict=True)
            ],
            [
                Claim(beside, alone, 1 / LEAST_FETCHES, f"{name}: {LEAST_FETCHES} x as many, or more")
                for name, (alone, beside) in labels.items()
            ],
            "us",
            in_turns=True,
            speaks_of_speed=False,
        )


def _fetch_interval_us(answer: Answer) -> float:
    return float(answer["elapsed_ns"] / 1e3 / answer["fetches"])


# Instructions


def _instructions(plan: Plan, bootstrap_servers: str) -> Iterator[Question]:
    records = QUICK_LONE_RECORDS if plan.quick else LONE_RECORDS
    lone = Pace(LONE_PER_SECOND, records / LONE_PER_SECOND)
    for partitions in (4,) if plan.quick else (4, 200, 2_000):
        found = _counted(
            bootstrap_servers, partitions, lone, (ITERATED, CONFLUENT) if plan.quick else COUNTED
        )
        yield Question(
            f"Instructions of a lone record, {partitions:,} partitions",
            f"callgrind counts all threads of the client in user mode, while {records} records come, "
            f"{LONE_PER_SECOND} a second, each in an answer of its own. All clients read the same records at "
            "the same time.",
            [
                *(_contender(name, name, [count / records]) for name, count in found.items()),
                Contender(AIM, 1, timings=[MOST_INSTRUCTIONS]),
            ],
            [
                Claim(name, AIM, 1.0, f"{name}: {MOST_INSTRUCTIONS:,}, or less")
                for name in KBATCH
                if name in found
            ],
            "instructions a record",
            in_turns=True,
            speaks_of_speed=False,
        )
        if plan.quick:
            return
        idle = Pace(0, COUNTED_IDLE_SECONDS)
        counts = _counted(bootstrap_servers, partitions, idle, COUNTED)
        yield Question(
            f"Instructions of an idle consumer, {partitions:,} partitions",
            f"The same, while one record comes after {COUNTED_IDLE_SECONDS:g} s without any.",
            [_contender(name, name, [count / COUNTED_IDLE_SECONDS / 1e3]) for name, count in counts.items()],
            [Claim(name, CONFLUENT, 1.0, f"{name}: not above confluent-kafka's") for name in IN_THREADS[:-1]],
            "1,000 instructions a second",
            in_turns=True,
            speaks_of_speed=False,
        )


def _counted(bootstrap_servers: str, partitions: int, pace: Pace, clients: Sequence[str]) -> dict[str, int]:
    """Return the instructions of each client while the records come that count."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="kbatch-counted-")))
        topic = stack.enter_context(PacedTopic(bootstrap_servers, partitions))
        drivers = [
            stack.enter_context(CountedDriver(name, _made(folder / str(number))))
            for number, name in enumerate(able_to_follow(clients))
        ]
        return topic.count(drivers, pace)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
