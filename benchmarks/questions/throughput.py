"""How fast is each client, and how much CPU does a record cost, from call to acknowledgement?"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.clients.contest import Contest, able, drivers_of, records_for
from benchmarks.clients.contestants import CONTESTANTS, JAVA
from benchmarks.clients.work import table_of
from benchmarks.pages.harness import Claim, Contender, Question, ratio
from benchmarks.pages.plan import Plan
from benchmarks.questions.limit import CopyAndChecksum
from kbatch.bench.contest import KIB, SETTINGS, Answer
from kbatch.bench.settings import listed
from kbatch.bench.workload import batch_records

PARTITIONS = 4
RECORDS, ROUNDS = 1_000_000, 5
# Rounds that do not count: Java's compiler needs two, and the others connect and warm up the broker.
WARM_UP_ROUNDS, JAVA_WARM_UP_ROUNDS = 1, 2
CONFLUENT, BATCHED = "confluent-kafka", "confluent-kafka produce_batch"
TABLE, ASYNC = "kbatch send_table", "kbatch AsyncProducer"
READY = "kbatch send_batch"
LIMIT, LIMIT_ROWS, LIMIT_PIECE = "memcpy + CRC-32C", 100_000, 128 * KIB
ASYNC_BUDGET, ASYNC_BUDGET_NS = "1.5 us", 1500.0
WHAT = (
    "{records:,} records a round and contestant ({shares}). 16-byte keys, 100-byte JSON values, 1,000 of "
    "them repeated, {partitions} partitions by murmur2. A round ends with the last acknowledgement. "
    "Another client then reads all records back and compares them. In a round that does not count, it also "
    "compares the partition and offset that send_table reports of each row. {settings}. librdkafka "
    "counts batch.size before compression; Java and kbatch estimate the size after it."
)


@dataclass(frozen=True)
class Scenario:
    """A scenario: differences from SETTINGS, contestants, and aims."""

    title: str
    settings: Mapping[str, object] = field(default_factory=dict)
    contestants: Sequence[str] = tuple(CONTESTANTS)
    cpu_aims: Sequence[Claim] = ()
    user_aims: Sequence[Claim] = ()
    time_aims: Sequence[Claim] = ()


EVERYBODY = Scenario(
    "all contestants, lz4, batches of 128 KiB",
    cpu_aims=(
        Claim(TABLE, JAVA, 0.27, "send_table: 0.27 x Java's, or less"),
        Claim(TABLE, CONFLUENT, 0.12, "send_table: 0.12 x confluent-kafka's, or less"),
        Claim(TABLE, BATCHED, 0.17, "send_table: 0.17 x that of produce_batch, or less"),
        Claim("kbatch", JAVA, 0.5, "send with callbacks: 0.5 x Java's, or less"),
        Claim("kbatch", CONFLUENT, 0.35, "send with callbacks: 0.35 x confluent-kafka's, or less"),
        Claim(ASYNC, "kbatch", 3.0, "AsyncProducer: 3 x send, or less"),
        Claim(ASYNC, ASYNC_BUDGET, 1.0, "AsyncProducer: 1.5 us, or less"),
    ),
    time_aims=(
        Claim(TABLE, JAVA, 1 / 2.5, "send_table: 2.5 x Java's records/s, or the broker is the bound"),
        Claim("kbatch", JAVA, 1 / 1.5, "send with callbacks: 1.5 x Java's records/s"),
        Claim("kbatch", CONFLUENT, 1 / 2.5, "send: 2.5 x confluent-kafka's records/s"),
    ),
)
SMALL = Scenario(
    "lz4, batches of 16 KiB",
    {"batch.size": 16 * KIB},
    ("kbatch", TABLE, CONFLUENT, JAVA),
    cpu_aims=(Claim("kbatch", CONFLUENT, 0.3, "send: 0.3 x confluent-kafka's, or less"),),
    time_aims=(Claim("kbatch", CONFLUENT, 1 / 3, "send: 3 x as fast as confluent-kafka"),),
)
PLAIN = Scenario(
    "no compression, batches of 128 KiB",
    {"compression.type": "none"},
    ("kbatch", TABLE, READY, CONFLUENT, JAVA),
    user_aims=(
        Claim(TABLE, LIMIT, 5.0, f"send_table, without the kernel: 5 x {LIMIT} of the same bytes, or less"),
    ),
)


class Rounds:
    """Return the answers of each contestant, in turns."""

    def __init__(self, scenario: Scenario, plan: Plan) -> None:
        self.scenario = scenario
        self.settings = {**SETTINGS, **scenario.settings}
        self.records = plan.records_of(RECORDS)
        self.answers: dict[str, list[Answer]] = {name: [] for name in able(scenario.contestants)}
        self.limit_ns: list[float] = []
        limit = Limit() if scenario.user_aims else None
        with (
            plan.cluster() as cluster,
            Contest(cluster, "throughput", PARTITIONS) as contest,
            drivers_of(self.answers) as drivers,
        ):
            for number in range(-JAVA_WARM_UP_ROUNDS, plan.rounds_of(ROUNDS)):
                for driver in drivers:
                    if driver.name != JAVA and number < -WARM_UP_ROUNDS:
                        continue
                    records = records_for(driver.name, self.records)
                    first = number == -WARM_UP_ROUNDS
                    answer = contest.ask(driver, "load", records, self.settings, reported=first)
                    if number >= 0:
                        self.answers[driver.name].append(answer)
                if limit is not None and number >= 0:
                    self.limit_ns.append(limit.ns_a_record())

    def contenders(self, figure: str) -> list[Contender]:
        """Return nanoseconds a record."""
        return [
            Contender(
                name,
                records_for(name, self.records),
                timings=[answer[figure] / records_for(name, self.records) for answer in answers],
                note=CONTESTANTS[name].note,
            )
            for name, answers in self.answers.items()
        ]

    def median(self, name: str, figure: str, *, per_record: bool = True) -> float | None:
        """Return the figure, or None if it was not measured."""
        values = [answer[figure] for answer in self.answers[name] if answer.get(figure) is not None]
        divisor = records_for(name, self.records) if per_record else 1
        return statistics.median(values) / divisor if values else None


class Limit:
    """Return the processor time to copy and checksum the bytes of a table's batches without compression."""

    def __init__(self) -> None:
        from kbatch.codec.columns import encode_arrow

        rows = batch_records() * (LIMIT_ROWS // len(batch_records()))
        encoded = encode_arrow(table_of(rows), partitions=PARTITIONS, batch_size=LIMIT_PIECE)
        data = b"".join(bytes(batch.as_buffer()) for batch in encoded["batch"])
        self._run = CopyAndChecksum(data, LIMIT_PIECE)

    def ns_a_record(self) -> float:
        self._run()
        start_ns = time.process_time_ns()
        for _ in range(10):
            self._run()
        return (time.process_time_ns() - start_ns) / 10 / LIMIT_ROWS


def questions(scenario: Scenario, plan: Plan) -> Iterator[Question]:
    rounds = Rounds(scenario, plan)
    yield _cpu(rounds)
    if scenario.user_aims:
        yield _user(rounds)
    yield _time(rounds)


def _cpu(rounds: Rounds) -> Question:
    contenders = rounds.contenders("cpu_ns")
    if ASYNC in rounds.answers:
        budget = [ASYNC_BUDGET_NS] * len(rounds.answers[ASYNC])
        contenders.append(Contender(ASYNC_BUDGET, 1, timings=budget, note="an aim"))
    return Question(
        f"Processor time of a record: {rounds.scenario.title}",
        WHAT.format(
            records=rounds.records,
            shares=_shares(rounds),
            partitions=PARTITIONS,
            settings=listed(rounds.settings),
        )
        + " The client's process, user and kernel.",
        contenders,
        rounds.scenario.cpu_aims,
        "ns of CPU a record",
        in_turns=True,
        speaks_of_speed=False,
        after_tables=_table(rounds),
    )


def _shares(rounds: Rounds) -> str:
    """Name the contestants with another number of records."""
    found = [(name, CONTESTANTS[name].share) for name in rounds.answers if CONTESTANTS[name].share != 1]
    return ", ".join(f"{name} {share:g} x as many" for name, share in found) or "the same for all"


def _user(rounds: Rounds) -> Question:
    limit = Contender(LIMIT, LIMIT_ROWS, timings=rounds.limit_ns, note="of the same batches, the limit")
    return Question(
        f"Without the kernel: {rounds.scenario.title}",
        "The same rounds, the time in user mode: the client's own share, without sending.",
        [limit, *rounds.contenders("user_ns")],
        rounds.scenario.user_aims,
        "ns of CPU a record",
        in_turns=True,
        speaks_of_speed=False,
    )


def _time(rounds: Rounds) -> Question:
    contenders = rounds.contenders("elapsed_ns")
    for contender in contenders:
        contender.note = f"{1e9 / contender.median:,.0f} records/s"
    question = Question(
        f"Records delivered: {rounds.scenario.title}",
        "The same rounds, from the first call to the last acknowledgement.",
        contenders,
        in_turns=True,
    )
    excuse = _bound(question, rounds)
    question.claims = [
        Claim(aim.candidate, aim.reference, aim.at_most, aim.text, excuse if aim.candidate == TABLE else "")
        for aim in rounds.scenario.time_aims
    ]
    return question


def _bound(question: Question, rounds: Rounds) -> str:
    """Show that the broker limits send_table: ready-made batches go no faster."""
    beside = ratio(question, Claim(TABLE, READY, 1.0, ""))
    if beside is None:
        return ""
    return (
        f"Batches that were encoded before (send_batch) go {beside:.2f} x as fast as send_table; with it "
        f"client and broker keep {_cores(rounds, TABLE)} of {os.cpu_count()} cores busy"
    )


COLUMNS = (
    "contestant", "records/s", "CPU, ns", "of it kernel", "broker's CPU, ns", "bytes on the wire", "peak MiB",
    "before", "cores, client + broker",
)  # fmt: skip


def _table(rounds: Rounds) -> str:
    """Return all measured medians, a record."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|---|" + "---:|" * (len(COLUMNS) - 1)]
    for name in rounds.answers:
        elapsed_ns = rounds.median(name, "elapsed_ns")
        cells = [name, "" if elapsed_ns is None else f"{1e9 / elapsed_ns:,.0f}"]
        cells += [_shown(rounds.median(name, figure)) for figure in ("cpu_ns", "system_ns", "broker_ns")]
        cells.append(_shown(rounds.median(name, "wire_bytes"), 1))
        for figure in ("peak_kib", "before_kib"):
            kib = rounds.median(name, figure, per_record=False)
            cells.append(_shown(None if kib is None else kib / 1024))
        lines.append(f"| {' | '.join([*cells, _cores(rounds, name)])} |")
    head = "Medians of all that was measured; bytes with the headers of TCP and what the broker answers:"
    return "\n".join([head, "", *lines])


def _cores(rounds: Rounds, name: str) -> str:
    shares = [
        statistics.median(answer[figure] / answer["elapsed_ns"] for answer in rounds.answers[name])
        for figure in ("cpu_ns", "broker_ns")
        if rounds.median(name, figure) is not None
    ]
    return " + ".join(f"{share:.1f}" for share in shares)


def _shown(value: float | None, digits: int = 0) -> str:
    return "?" if value is None else f"{value:,.{digits}f}"


def everybody(plan: Plan) -> Iterable[Question]:
    return questions(EVERYBODY, plan)


def small_batches(plan: Plan) -> Iterable[Question]:
    return questions(SMALL, plan)


def uncompressed(plan: Plan) -> Iterable[Question]:
    return questions(PLAIN, plan)
