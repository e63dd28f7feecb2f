"""How many transactions does a client complete, one after the other?"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.clients.contest import Contest, able, drivers_of
from benchmarks.clients.contestants import CONTESTANTS
from benchmarks.pages.harness import Claim, Contender, Question
from benchmarks.pages.plan import Plan
from kbatch.bench.contest import SETTINGS, Answer
from kbatch.bench.settings import listed

PARTITIONS = 4
RECORDS, TRANSACTIONS, QUICK_TRANSACTIONS, ROUNDS = 1_000, 50, 5, 7
# A broker that is not warm completes a transaction so late that the next one meets it, and waits for 20 ms.
WARM_UP_ROUNDS = 4


def question(plan: Plan) -> Iterator[Question]:
    count = QUICK_TRANSACTIONS if plan.quick else TRANSACTIONS
    able_names = able(name for name, row in CONTESTANTS.items() if row.transactional)
    answers: dict[str, list[Answer]] = {name: [] for name in able_names}
    with (
        plan.cluster() as cluster,
        Contest(cluster, "transactions", PARTITIONS) as contest,
        drivers_of(answers) as drivers,
    ):
        for number in range(-WARM_UP_ROUNDS, plan.rounds_of(ROUNDS)):
            for driver in drivers:
                own = {"transactional.id": f"bench {driver.name}"}
                answer = contest.ask(driver, "transact", RECORDS, {**SETTINGS, **own}, transactions=count)
                if number >= 0:
                    answers[driver.name].append(answer)
    contenders = [
        Contender(name, count, timings=[answer["elapsed_ns"] / count / 1e6 for answer in found])
        for name, found in answers.items()
    ]
    for contender in contenders:
        cpu_ns = sum(answer["cpu_ns"] for answer in answers[contender.name])
        cpu_ns //= RECORDS * count * len(contender.timings)
        contender.note = f"{1e3 / contender.median:.0f} transactions/s, {cpu_ns} ns of CPU a record"
    yield Question(
        f"Transactions of {RECORDS:,} records, one after the other",
        f"{count} a round, from begin to the end of commit; all records are read back, as committed. "
        f"The first {WARM_UP_ROUNDS} rounds warm up the broker, and do not count. "
        f"{listed(SETTINGS)}.",
        contenders,
        [Claim("kbatch", "confluent-kafka", 0.45, "0.45 x confluent-kafka's time, or less")],
        "ms a transaction",
        in_turns=True,
        speaks_of_speed=False,
    )
