"""What does a record cost in a Consumer, beside the consumers of other clients, and how late does it come?"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from uuid import uuid4

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks import pages, read
from benchmarks.read import CONFLUENT, OBJECTS_CPU, OBJECTS_CPU_OF_CONFLUENT, TABLE_CPU, TUNED
from kbatch.bench.contest import Answer, ContestError, Driver, able, drivers_of
from kbatch.bench.contestants import JAVA
from kbatch.bench.followers import FOLLOWERS, STAMP
from kbatch.bench.harness import Claim, Contender, Question
from kbatch.bench.latency import PERCENTILES, percentile
from kbatch.bench.plan import Plan
from kbatch.bench.settings import listed

ITERATED, POLLED, TABLES = "kbatch Consumer", "kbatch Consumer, poll", "kbatch Consumer, poll_table"
ASYNC, AIOKAFKA = "kbatch AsyncConsumer", "aiokafka"
CLIENTS = (ITERATED, POLLED, TABLES, CONFLUENT, TUNED)
ROUNDS, LATENCY_ROUNDS = 5, 3
FOLLOWED_RECORDS, PER_SECOND = 5_000, 1_000
# A second of records before those that count: consumers open, and find their partitions, in it.
LEAD_RECORDS = 1_000
VALUE_BYTES = 100
# The defaults of all: an answer comes with the first byte.
FETCH_SETTINGS = {"fetch.min.bytes": 1, "fetch.max.wait.ms": 500}


def questions(plan: Plan) -> Iterator[Question]:
    yield from _costs(plan)
    yield _lateness(plan)


def _costs(plan: Plan) -> Iterator[Question]:
    records = plan.records_of(read.RECORDS) // 1000 * 1000
    answers = read.answers(plan, records, CLIENTS, ROUNDS)
    for codec in read.CODECS:
        yield Question(
            pages.CONSUMING.format(codec),
            f"{read.setting_of(records, CLIENTS)} Partitions are assigned, without a group. The client's "
            "process, user and kernel.",
            read.contenders(answers, codec, "cpu_ns"),
            [
                *(
                    claim
                    for name in (ITERATED, POLLED)
                    for claim in (
                        Claim(name, JAVA, OBJECTS_CPU, f"{name}: {OBJECTS_CPU} x Java's, or less"),
                        Claim(
                            name,
                            CONFLUENT,
                            OBJECTS_CPU_OF_CONFLUENT,
                            f"{name}: {OBJECTS_CPU_OF_CONFLUENT} x confluent-kafka's, or less",
                        ),
                    )
                ),
                Claim(TABLES, JAVA, TABLE_CPU[codec], f"poll_table: {TABLE_CPU[codec]} x Java's, or less"),
                Claim(
                    TABLES,
                    CONFLUENT,
                    read.TABLE_CPU_OF_CONFLUENT,
                    f"poll_table: {read.TABLE_CPU_OF_CONFLUENT} x confluent-kafka's, or less",
                ),
            ],
            "ns of CPU a record",
            in_turns=True,
            speaks_of_speed=False,
        )


def _followers() -> list[str]:
    """Return the followers that can run here; print the others to stderr."""
    for name, follower in FOLLOWERS.items():
        if find_spec(follower.needs) is None:
            print(f"{name} does not take part: no module {follower.needs!r}", file=sys.stderr)
    return [name for name, each in FOLLOWERS.items() if find_spec(each.needs)] + able([JAVA])


def _send_paced(bootstrap_servers: str, topic: str, records: int) -> None:
    """Send stamped records, one each 1/PER_SECOND of a second, to partitions in turn."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0, "log_level": 0})
    begun_ns = time.perf_counter_ns()
    for number in range(records):
        left_ns = begun_ns + number * 10**9 // PER_SECOND - time.perf_counter_ns()
        if left_ns > 0:
            time.sleep(left_ns / 1e9)
        value = STAMP.pack(number, time.perf_counter_ns()).ljust(VALUE_BYTES, b".")
        producer.produce(topic, value, partition=number % read.PARTITIONS)
        producer.poll(0)
    producer.flush()


def _follow(driver: Driver, bootstrap_servers: str, topic: str, start: int, records: int) -> Answer:
    """Let the driver follow the topic while records are sent; raise ContestError if one came twice."""
    job = {
        "job": "follow",
        "topic": topic,
        "starts": [start] * read.PARTITIONS,
        "records": records,
        "rows": [],
        "settings": {"bootstrap.servers": bootstrap_servers},
    }
    sender = threading.Thread(target=_send_paced, args=(bootstrap_servers, topic, records), daemon=True)
    sender.start()
    answer = driver.ask(job)
    sender.join()
    if answer["repeated"] or min(answer["delays_ns"]) <= 0:
        raise ContestError(f"{driver.name} received {answer['repeated']} records twice")
    return answer


def _delays(plan: Plan, records: int) -> dict[str, list[Sequence[int]]]:
    """Return each client's delays of each round, in turns; all rounds use one topic."""
    found: dict[str, list[Sequence[int]]] = {}
    total = records + LEAD_RECORDS
    with ExitStack() as stack:
        brokers = stack.enter_context(plan.cluster()).bootstrap_servers
        admin = AdminClient({"bootstrap.servers": brokers, "log_level": 0})
        topic = f"kbatch-bench-follow-{uuid4().hex[:8]}"
        admin.create_topics([NewTopic(topic, read.PARTITIONS)])[topic].result()
        stack.callback(lambda: admin.delete_topics([topic])[topic].result())
        drivers = stack.enter_context(drivers_of(_followers()))
        start = 0
        for number in range(-1, plan.rounds_of(LATENCY_ROUNDS)):  # the first round warms up
            for driver in drivers:
                answer = _follow(driver, brokers, topic, start, total)
                start += total // read.PARTITIONS
                if number >= 0:
                    found.setdefault(driver.name, []).append(answer["delays_ns"][LEAD_RECORDS:])
    return found


def _late(delays: Mapping[str, Sequence[Sequence[int]]]) -> list[Contender]:
    return [
        Contender(
            f"{name}, p{percent}",
            1,
            timings=[percentile(each, percent) / 1e3 for each in rounds],
            note=FOLLOWERS[name].note if name in FOLLOWERS else "poll(), one round before",
        )
        for name, rounds in delays.items()
        for percent in PERCENTILES
    ]


def _lateness(plan: Plan) -> Question:
    records = plan.records_of(FOLLOWED_RECORDS) // read.PARTITIONS * read.PARTITIONS
    return Question(
        pages.FOLLOWED,
        f"{records:,} records of {VALUE_BYTES} bytes a round at {PER_SECOND:,} a second, to "
        f"{read.PARTITIONS} partitions in turn; the percentiles of each round. One producer for all: "
        "confluent-kafka's with linger.ms=0, in its own process. The time is from the call of produce() to "
        "when the program has the record. Each record must come once; the first "
        f"{LEAD_RECORDS:,} of a round do not count. The broker shares the cores. "
        f"Each client has its own defaults, among them {listed(FETCH_SETTINGS)}.",
        _late(_delays(plan, records)),
        [
            *(
                Claim(f"{name}, p{p}", f"{peer}, p{p}", 1.0, f"{name}, p{p}: not above {peer}'s")
                for name, peer in ((ITERATED, CONFLUENT), (ASYNC, AIOKAFKA))
                for p in PERCENTILES
            ),
        ],
        "us",
        in_turns=True,
        speaks_of_speed=False,
    )
