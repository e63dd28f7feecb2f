"""What does a record cost on an event loop, and how long does it take to be acknowledged?"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from contextlib import ExitStack

from benchmarks.contest import KIB, SETTINGS, Answer, Contest, Driver, kafka, listed
from benchmarks.harness import Claim, Contender, Question, report
from benchmarks.latency import LATENCY_SETTINGS, QUIET_PER_SECOND, contenders
from benchmarks.peers import Peers

PARTITIONS = 4
OURS, UVLOOP, THEIRS, THREADS = "kbatch, asyncio", "kbatch, uvloop", "aiokafka", "kbatch"
RECORDS, ROUNDS = 200_000, 5
PACED_RECORDS = 5_000
LOAD_SETTINGS = {**SETTINGS, "batch.size": 128 * KIB}
AIM_NS = 1500


def new_driver(name: str) -> Driver:
    return Driver(name, "benchmarks.driver" if name == THREADS else "benchmarks.async_driver")


def load(peers: Peers, records: int = RECORDS, rounds: int = ROUNDS) -> Question:
    answers: dict[str, list[Answer]] = {name: [] for name in (OURS, UVLOOP, THREADS, THEIRS)}
    with kafka() as broker, ExitStack() as stack:
        contest = Contest(broker, "asyncio", PARTITIONS)
        drivers = [stack.enter_context(new_driver(name)) for name in answers]
        for number in range(1 + rounds):
            for driver in drivers:
                answer = contest.ask(driver, "load", records, LOAD_SETTINGS)
                if number:  # the first warms all of them up
                    answers[driver.name].append(answer)
    found = [
        Contender(
            name,
            records,
            timings=[answer["cpu_ns"] / records for answer in taken],
            note=f"{max(records / answer['elapsed_ns'] * 1e9 for answer in taken):,.0f} records/s at best",
        )
        for name, taken in answers.items()
    ]
    return Question(
        "CPU of a record from `await send()` to its callback, on an event loop",
        f"{records:,} records a round, {PARTITIONS} partitions, one task that awaits one send() after the "
        f"other, a callback a record; a real Kafka shares the cores. {listed(LOAD_SETTINGS)}. The aim is "
        f"{AIM_NS} ns.",
        found,
        [
            Claim(OURS, THREADS, 3.0, "3 x that of Producer's `send`, or less"),
            Claim(OURS, THEIRS, 1.5 / 10, "0.15 x aiokafka's, or less"),
        ],
        "ns of CPU a record",
    )


def latency(peers: Peers, records: int = PACED_RECORDS, rounds: int = ROUNDS) -> Question:
    answers: dict[str, list[Answer]] = {name: [] for name in (OURS, UVLOOP, THREADS, THEIRS)}
    settings: Mapping[str, object] = LATENCY_SETTINGS
    with kafka() as broker:
        contest = Contest(broker, "asyncio-latency", PARTITIONS)
        for number in range(1 + rounds):
            for name in answers:
                with new_driver(name) as driver:
                    answer = contest.ask(
                        driver,
                        "pace",
                        records,
                        settings,
                        interval_ns=10**9 // QUIET_PER_SECOND,
                        computing=False,
                    )
                if number:  # the first warms the broker up
                    answers[name].append(answer)
    return Question(
        "Latency of a paced sender on an event loop",
        f"{records:,} records a round at {QUIET_PER_SECOND:,} a second, the percentiles of each round; time "
        f"from the call of send() to the callback. A real Kafka shares the cores. {listed(settings)}.",
        contenders(answers, "from_sent_ns"),
        [Claim(f"{OURS}, p99", f"{THEIRS}, p99", 1.0, "p99: not above aiokafka's")],
        "us",
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.asyncio_producers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--paced-records", type=int, default=PACED_RECORDS)
    arguments = parser.parse_args()
    for ask, records in ((load, arguments.records), (latency, arguments.paced_records)):
        print(report(ask(Peers(), records, arguments.rounds)), flush=True)


QUESTIONS: list[Callable[[Peers], Question]] = [load, latency]

if __name__ == "__main__":
    main()
