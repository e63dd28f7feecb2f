"""How long does a record take to its callback when there is no load, and when the sender shares its process
with a thread that computes in Python?
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from benchmarks.contest import SETTINGS, Answer, Contest, Driver, kafka, listed
from benchmarks.harness import Claim, Contender, Question, report
from benchmarks.peers import Peers

PARTITIONS = 4
CLIENTS = ("kbatch", "confluent-kafka")
PERCENTILES = (50, 99)
ROUNDS = 4
LATENCY_SETTINGS = {**SETTINGS, "linger.ms": 0}
QUIET_RECORDS, QUIET_PER_SECOND = 5_000, 1_000
# A thread that wants the GIL gets it after 5 ms (sys.getswitchinterval()): more records a second than this,
# and any sender falls behind.
BUSY_RECORDS, BUSY_PER_SECOND = 500, 100
LIMIT = (
    "{records:,} records a round at {per_second:,} a second, the percentiles of each round; {what}. A real "
    "Kafka shares the cores; confluent-kafka has a thread that polls. {settings}."
)


def quiet(peers: Peers, records: int = QUIET_RECORDS, rounds: int = ROUNDS) -> Question:
    answers = measured(records, QUIET_PER_SECOND, rounds, computing=False)
    what = "time from the call of send() to the callback"
    return Question(
        "Latency of a paced sender",
        LIMIT.format(
            records=records, per_second=QUIET_PER_SECOND, what=what, settings=listed(LATENCY_SETTINGS)
        ),
        contenders(answers, "from_sent_ns"),
        [
            Claim("kbatch, p99", "confluent-kafka, p99", 1.0, "p99: not above confluent-kafka's"),
            Claim("kbatch, p50", "confluent-kafka, p50", 1.5, "p50: 1.5 x confluent-kafka's, or less"),
        ],
        "us",
    )


def busy(peers: Peers, records: int = BUSY_RECORDS, rounds: int = ROUNDS) -> Question:
    answers = measured(records, BUSY_PER_SECOND, rounds, computing=True)
    what = "time from when a record was due to its callback, while another thread computes in Python"
    found = contenders(answers, "from_due_ns")
    found[0].note = waits_of(answers["kbatch"], records * rounds)
    return Question(
        "Latency of a paced sender beside Python that computes",
        LIMIT.format(
            records=records, per_second=BUSY_PER_SECOND, what=what, settings=listed(LATENCY_SETTINGS)
        ),
        found,
        unit="us",
    )


def measured(records: int, per_second: int, rounds: int, *, computing: bool) -> dict[str, list[Answer]]:
    """A process a round and client."""
    answers: dict[str, list[Answer]] = {name: [] for name in CLIENTS}
    with kafka() as broker:
        contest = Contest(broker, "latency", PARTITIONS)
        for number in range(1 + rounds):
            for name in CLIENTS:
                with Driver(name) as driver:
                    answer = contest.ask(
                        driver,
                        "pace",
                        records,
                        LATENCY_SETTINGS,
                        interval_ns=10**9 // per_second,
                        computing=computing,
                    )
                if number:  # the first warms the broker up
                    answers[name].append(answer)
    return answers


def contenders(answers: dict[str, list[Answer]], field: str) -> list[Contender]:
    return [
        Contender(
            f"{name}, p{percent}",
            1,
            timings=[percentile(answer[field], percent) / 1e3 for answer in answers[name]],
        )
        for name in answers
        for percent in PERCENTILES
    ]


def waits_of(answers: Sequence[Answer], records: int) -> str:
    """benchmarks.probes.GilWaits of all rounds, as a sentence."""
    total = {
        name: sum(answer["waits"][name] for answer in answers)
        for name in ("rounds", "sleeps", "waits", "waited_ns")
    }
    average_ms = total["waited_ns"] / 1e6 / max(total["waits"], 1)
    return (
        f"for each record the sender has {total['rounds'] / records:.1f} rounds, sleeps "
        f"{total['sleeps'] / records:.1f} times, and waits for the GIL {total['waits'] / records:.2f} times "
        f"behind calls that do not sleep, {average_ms:.1f} ms each"
    )


def percentile(delays: Sequence[int], percent: int) -> int:
    return sorted(delays)[len(delays) * percent // 100]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    for name, default in (("quiet", QUIET_RECORDS), ("busy", BUSY_RECORDS)):
        parser.add_argument(f"--{name}-records", type=int, default=default)
    arguments = parser.parse_args()
    for ask, records in ((quiet, arguments.quiet_records), (busy, arguments.busy_records)):
        print(report(ask(Peers(), records, arguments.rounds)), flush=True)


QUESTIONS: list[Callable[[Peers], Question]] = [quiet, busy]

if __name__ == "__main__":
    main()
