"""How fast is the producer, and what does a record cost the processor, from `send` to its callback?

`python -m benchmarks.producer --profile` says where kbatch's time goes, thread by thread.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property

from benchmarks.contest import JAVA, KIB, SETTINGS, Answer, Contest, Driver, kafka, listed
from benchmarks.driver import POLL_EVERY_RECORDS
from benchmarks.harness import Claim, Contender, Question, report
from benchmarks.peers import Peers

PARTITIONS = 4
RECORDS, ROUNDS = 500_000, 5
# Rounds that do not count: Java's compiler needs two, the others connect, and warm the broker up.
WARM_UP_ROUNDS = {"kbatch": 1, "confluent-kafka": 1, JAVA: 2}
CPU_AIMS = {
    128 * KIB: [
        Claim("kbatch", "confluent-kafka", 0.4, "0.4 x confluent-kafka's, or less"),
        Claim("kbatch", JAVA, 1.0, "not above Java's"),
    ],
    16 * KIB: [Claim("kbatch", "confluent-kafka", 0.45, "0.45 x confluent-kafka's, or less")],
}
TIME_AIMS = {
    128 * KIB: [
        Claim("kbatch", "confluent-kafka", 1 / 2.5, "2.5 x as fast as confluent-kafka"),
        Claim("kbatch", JAVA, 1.0, "as fast as Java"),
    ],
    16 * KIB: [Claim("kbatch", "confluent-kafka", 1 / 2, "2 x as fast as confluent-kafka")],
}
LIMIT = (
    "{records:,} records a round, {partitions} partitions; a real Kafka shares the cores. A round ends when "
    "every callback has told of success; all records are in the log then. {settings}. librdkafka counts "
    "batch.size before compression; Java and kbatch estimate it behind, from batch to batch better."
)
NOTES = {"confluent-kafka": f"poll(0) every {POLL_EVERY_RECORDS} records"}


class Throughput:
    """The rounds for one batch.size, run when the first question is asked."""

    def __init__(self, batch_size: int, records: int, rounds: int) -> None:
        self._batch_size = batch_size
        self._records = records
        self._rounds = rounds
        self._settings = {**SETTINGS, "batch.size": batch_size}

    @cached_property
    def _answers(self) -> dict[str, list[Answer]]:
        answers: dict[str, list[Answer]] = {name: [] for name in WARM_UP_ROUNDS}
        with kafka() as broker, ExitStack() as stack:
            contest = Contest(broker, "throughput", PARTITIONS)
            drivers = [stack.enter_context(Driver(name)) for name in WARM_UP_ROUNDS]
            for driver in drivers:
                for _ in range(WARM_UP_ROUNDS[driver.name]):
                    contest.ask(driver, "load", self._records, self._settings)
            for _ in range(self._rounds):
                for driver in drivers:
                    answer = contest.ask(driver, "load", self._records, self._settings)
                    answers[driver.name].append(answer)
        return answers

    def cpu(self, peers: Peers) -> Question:
        """Processor time of the client's process."""
        settings = listed(self._settings)
        return Question(
            f"CPU of a record from send() to its callback, batches of {self._batch_size // KIB} KiB",
            LIMIT.format(records=self._records, partitions=PARTITIONS, settings=settings),
            self._contenders("cpu_ns"),
            CPU_AIMS[self._batch_size],
            "ns of CPU a record",
        )

    def time(self, peers: Peers) -> Question:
        contenders = self._contenders("elapsed_ns")
        for contender in contenders:
            contender.note = f"{1e9 / contender.median:,.0f} records/s"
        return Question(
            f"Records delivered, batches of {self._batch_size // KIB} KiB",
            "The same rounds.",
            contenders,
            TIME_AIMS[self._batch_size],
        )

    def _contenders(self, field: str) -> list[Contender]:
        return [
            Contender(
                name,
                self._records,
                timings=[answer[field] / self._records for answer in answers],
                note=NOTES.get(name, ""),
            )
            for name, answers in self._answers.items()
        ]


def questions(records: int = RECORDS, rounds: int = ROUNDS) -> list[Callable[[Peers], Question]]:
    runs = [Throughput(batch_size, records, rounds) for batch_size in CPU_AIMS]
    return [ask for run in runs for ask in (run.cpu, run.time)]


def profile(records: int) -> None:
    with kafka() as broker, Driver("kbatch") as driver:
        contest = Contest(broker, "profile", PARTITIONS)
        for batch_size in CPU_AIMS:
            settings = {**SETTINGS, "batch.size": batch_size}
            contest.ask(driver, "load", records, settings)
            print_profile(batch_size, records, contest.ask(driver, "load", records, settings, profile=True))


def print_profile(batch_size: int, records: int, answer: Answer) -> None:
    taken = answer["profile"]
    totals, cpu_ns = taken["totals"], answer["cpu_ns"]
    requests = totals["request-total"]
    print(f"\nbatch.size={batch_size}: {records / answer['elapsed_ns'] * 1e9:,.0f} records/s")
    print(f"{'thread':32} {'ns CPU a record':>16} {'waits':>8} {'preempted':>10}")
    for name, values in sorted(taken["threads"].items(), key=lambda item: -item[1]["cpu_ns"]):
        waits, preempted = values["voluntary_ctxt_switches"], values["nonvoluntary_ctxt_switches"]
        print(f"{name:32} {values['cpu_ns'] / records:16.0f} {waits:8} {preempted:10}")
    print(f"{'all of the process':32} {cpu_ns / records:16.0f}")
    print(
        f"{totals['rounds']} rounds of the network loop, {requests:.0f} requests, {totals['batches']} "
        f"batches of {records / totals['batches']:.0f} records, "
        f"{totals['outgoing-byte-total'] / requests:,.0f} bytes a request; "
        f"{answer['waited_ns'] / 1e6:.0f} ms waited for memory"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.producer", description=__doc__)
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--profile", action="store_true", help="kbatch alone, thread by thread")
    arguments = parser.parse_args()
    if arguments.profile:
        profile(arguments.records)
        return
    for ask in questions(arguments.records, arguments.rounds):
        print(report(ask(Peers())), flush=True)


QUESTIONS = questions()

if __name__ == "__main__":
    main()
