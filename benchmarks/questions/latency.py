"""How long does a record take to its acknowledgement without load, and beside a thread of the same process
that computes in Python?
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.clients.contest import Contest, able, drivers_of
from benchmarks.clients.contestants import JAVA
from benchmarks.pages.harness import Claim, Contender, Question
from benchmarks.pages.plan import Plan
from kbatch.bench.contest import SETTINGS, Answer
from kbatch.bench.settings import listed

PARTITIONS = 4
ASYNC = "kbatch AsyncProducer"
QUIET_CONTESTANTS = ("kbatch", ASYNC, "confluent-kafka", "aiokafka", "kafka-python", JAVA)
BUSY_CONTESTANTS = ("kbatch", "confluent-kafka")
PERCENTILES = (50, 99)
ROUNDS = 4
LATENCY_SETTINGS = {**SETTINGS, "linger.ms": 0}
QUIET_RECORDS, QUIET_PER_SECOND = 5_000, 1_000
# A thread that wants the GIL gets it after 5 ms (sys.getswitchinterval()): at more records a second than
# this, any sender is too slow.
BUSY_RECORDS, BUSY_PER_SECOND = 500, 100
LIMIT = (
    "{records:,} records a round at {per_second:,} a second, the percentiles of each round; {what}. The "
    "broker shares the cores; confluent-kafka has a thread that polls. {settings}."
)


def quiet(plan: Plan) -> Iterator[Question]:
    records = plan.records_of(QUIET_RECORDS)
    answers = measured(plan, QUIET_CONTESTANTS, records, QUIET_PER_SECOND, computing=False)
    what = "time from the call of send() to the acknowledgement"
    yield Question(
        "Latency of a paced sender",
        LIMIT.format(
            records=records, per_second=QUIET_PER_SECOND, what=what, settings=listed(LATENCY_SETTINGS)
        ),
        contenders(answers, "from_sent_ns"),
        [
            Claim("kbatch, p99", "confluent-kafka, p99", 1.0, "p99: not above confluent-kafka's"),
            Claim("kbatch, p50", "confluent-kafka, p50", 0.95, "p50: 0.95 x confluent-kafka's, or less"),
            Claim(f"{ASYNC}, p50", "aiokafka, p50", 0.9, "AsyncProducer, p50: 0.9 x aiokafka's, or less"),
            Claim(f"{ASYNC}, p99", "aiokafka, p99", 0.9, "AsyncProducer, p99: 0.9 x aiokafka's, or less"),
        ],
        "us",
        in_turns=True,
        speaks_of_speed=False,
    )


def busy(plan: Plan) -> Iterator[Question]:
    records = plan.records_of(BUSY_RECORDS)
    answers = measured(plan, BUSY_CONTESTANTS, records, BUSY_PER_SECOND, computing=True)
    what = "time from when a record was due to its callback, while another thread computes in Python"
    found = contenders(answers, "from_due_ns")
    found[0].note = waits_of(answers["kbatch"], records * len(answers["kbatch"]))
    yield Question(
        "Latency of a paced sender beside Python that computes",
        LIMIT.format(
            records=records, per_second=BUSY_PER_SECOND, what=what, settings=listed(LATENCY_SETTINGS)
        ),
        found,
        [
            Claim(f"kbatch, p{p}", f"confluent-kafka, p{p}", 1.0, f"p{p}: not above confluent-kafka's")
            for p in PERCENTILES
        ],
        "us",
        in_turns=True,
    )


def measured(
    plan: Plan, names: Sequence[str], records: int, per_second: int, *, computing: bool
) -> dict[str, list[Answer]]:
    """Return a process for each client: one for all rounds, or a new one each round beside Python that
    computes, because the probe that counts its waits stays in the process.
    """
    answers: dict[str, list[Answer]] = {name: [] for name in able(names)}
    job = {"interval_ns": 10**9 // per_second, "computing": computing}
    rounds = range(-1, plan.rounds_of(ROUNDS))  # the first round warms up the broker
    with plan.cluster() as cluster, Contest(cluster, "latency", PARTITIONS) as contest:
        sittings = [[number] for number in rounds] if computing else [list(rounds)]
        for sitting in sittings:
            with drivers_of(answers) as drivers:
                for number in sitting:
                    for driver in drivers:
                        answer = contest.ask(driver, "pace", records, LATENCY_SETTINGS, **job)
                        if number >= 0:
                            answers[driver.name].append(answer)
    return answers


def contenders(answers: dict[str, list[Answer]], figure: str) -> list[Contender]:
    return [
        Contender(
            f"{name}, p{percent}",
            1,
            timings=[percentile(answer[figure], percent) / 1e3 for answer in answers[name]],
        )
        for name in answers
        for percent in PERCENTILES
    ]


def waits_of(answers: Sequence[Answer], records: int) -> str:
    """Return benchmarks.clients.probes.GilWaits of all rounds as a sentence."""
    total = {
        name: sum(answer["waits"][name] for answer in answers)
        for name in ("rounds", "sleeps", "waits", "waited_ns")
    }
    average_ms = total["waited_ns"] / 1e6 / max(total["waits"], 1)
    return (
        f"for each record the sender has {total['rounds'] / records:.1f} rounds, sleeps "
        f"{total['sleeps'] / records:.1f} times, and waits for the GIL {total['waits'] / records:.2f} times "
        f"after calls that do not sleep, {average_ms:.1f} ms each"
    )


def percentile(delays: Sequence[int], percent: int) -> int:
    return sorted(delays)[len(delays) * percent // 100]
