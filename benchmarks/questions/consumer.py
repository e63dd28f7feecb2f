"""What does a record cost in a Consumer, beside those of other clients, how late does it come, and how long
does a rebalance take?
"""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from uuid import uuid4

from benchmarks.clients.contest import Driver, able, drivers_of
from benchmarks.clients.contestants import JAVA
from benchmarks.clients.followers import FOLLOWERS
from benchmarks.clients.kafka import kafka
from benchmarks.clients.pacing import LEAD_RECORDS, VALUE_BYTES, Pace, PacedTopic, able_to_follow
from benchmarks.pages import summary
from benchmarks.pages.harness import Claim, Contender, Question
from benchmarks.pages.plan import Plan
from benchmarks.questions import read
from benchmarks.questions.latency import PERCENTILES, percentile
from benchmarks.questions.read import CONFLUENT, OBJECTS_CPU, OBJECTS_CPU_OF_CONFLUENT, TABLE_CPU, TUNED
from kbatch import Admin
from kbatch.bench.contest import Answer
from kbatch.bench.settings import listed
from tests.integration.cutting_proxy import CuttingProxy

ITERATED, POLLED, TABLES = "kbatch Consumer", "kbatch Consumer, poll", "kbatch Consumer, poll_table"
ASYNC, AIOKAFKA = "kbatch AsyncConsumer", "aiokafka"
CLIENTS = (ITERATED, POLLED, TABLES, CONFLUENT, TUNED)
ROUNDS, LATENCY_ROUNDS = 5, 3
FOLLOWED_RECORDS, PER_SECOND = 5_000, 1_000
FOLLOWED_BY = (ITERATED, ASYNC, CONFLUENT, AIOKAFKA, JAVA)
# The defaults of all: an answer comes with the first byte.
FETCH_SETTINGS = {"fetch.min.bytes": 1, "fetch.max.wait.ms": 500}
MEMBERS, MEMBERS_PARTITIONS, REBALANCE_ROUNDS = 10, 30, 5
SESSION_MS, HEARTBEAT_MS = 3_000, 1_000
# Between a member's coming and another's death: heartbeats are regular, and at any point of their interval.
REST_SECONDS = (3.0, 4.0)
# With these the sessions of both protocols are as long.
SESSIONS = {
    "group.min.session.timeout.ms": SESSION_MS,
    "group.consumer.min.session.timeout.ms": SESSION_MS,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.consumer.heartbeat.interval.ms": HEARTBEAT_MS,
}
PROTOCOLS: Mapping[str, Mapping[str, object]] = {
    "consumer": {},
    "classic": {
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "partition.assignment.strategy": "cooperative-sticky",
    },
}
# Java wants the class.
JAVA_STRATEGY = {
    "partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
}


def questions(plan: Plan) -> Iterator[Question]:
    yield from _costs(plan)
    yield _lateness(plan)
    yield from _rebalances(plan)


def _costs(plan: Plan) -> Iterator[Question]:
    records = plan.records_of(read.RECORDS) // 1000 * 1000
    answers = read.answers(plan, records, CLIENTS, ROUNDS)
    for codec in read.CODECS:
        yield Question(
            summary.CONSUMING.format(codec),
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


def _delays(plan: Plan, pace: Pace) -> dict[str, list[Sequence[int]]]:
    """Return each client's delays of each round, in turns; all rounds use one topic."""
    found: dict[str, list[Sequence[int]]] = {}
    with ExitStack() as stack:
        brokers = stack.enter_context(plan.cluster()).bootstrap_servers
        topic = stack.enter_context(PacedTopic(brokers, read.PARTITIONS))
        drivers = stack.enter_context(drivers_of(able_to_follow(FOLLOWED_BY)))
        for number in range(-1, plan.rounds_of(LATENCY_ROUNDS)):  # the first round warms up
            for driver in drivers:
                answer = topic.follow(driver, pace)
                if number >= 0:
                    found.setdefault(driver.name, []).append(answer["delays_ns"])
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
    pace = Pace(PER_SECOND, plan.records_of(FOLLOWED_RECORDS) / PER_SECOND)
    return Question(
        summary.FOLLOWED,
        f"{pace.records:,} records of {VALUE_BYTES} bytes a round at {PER_SECOND:,} a second, to "
        f"{read.PARTITIONS} partitions in turn; the percentiles of each round. One producer for all: "
        "confluent-kafka's with linger.ms=0, in its own process. The time is from the call of produce() to "
        "when the program has the record. Each record must come once; the first "
        f"{LEAD_RECORDS:,} of a round do not count. The broker shares the cores. "
        f"Each client has its own defaults, among them {listed(FETCH_SETTINGS)}.",
        _late(_delays(plan, pace)),
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


@contextmanager
def _mortal(bootstrap_servers: str) -> Iterator[dict[str, object]]:
    """Give servers that a connection to a port ends: the fields of a job."""
    with socket.create_server(("127.0.0.1", 0)) as death:

        def await_death() -> None:
            death.accept()[0].close()
            ending.close()

        with ExitStack() as ending:
            proxy = ending.enter_context(CuttingProxy(bootstrap_servers, "none", cuts=0))
            thread = threading.Thread(target=await_death, daemon=True)
            thread.start()
            host, port = death.getsockname()
            yield {"mortal_servers": proxy.bootstrap_servers, "death_host": host, "death_port": port}
            thread.join()


def _settle(driver: Driver, bootstrap_servers: str, topic: str, protocol: str, rest_seconds: float) -> Answer:
    """Let the driver open a group, and have a member join and one die."""
    settings = {**PROTOCOLS[protocol], "group.protocol": protocol, "bootstrap.servers": bootstrap_servers}
    if driver.name == JAVA and protocol == "classic":
        settings |= JAVA_STRATEGY
    job = {
        "job": "settle",
        "topic": topic,
        "partitions": MEMBERS_PARTITIONS,
        "members": MEMBERS,
        "rest_seconds": rest_seconds,
        "records": 0,
        "rows": [],
        "settings": {**settings, "group.id": f"kbatch-bench-{uuid4().hex[:8]}", "enable.auto.commit": False},
    }
    with _mortal(bootstrap_servers) as servers:
        return driver.ask({**job, **servers})


def _rebalances(plan: Plan) -> Iterator[Question]:
    found: dict[tuple[str, str, str], list[float]] = {}
    events = {"one joins": "joined_ns", "one dies": "died_ns"}
    with kafka(SESSIONS) as broker, drivers_of([ITERATED, *able([JAVA])]) as drivers:
        topic = "kbatch-bench-members"
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.topics.create(topic, partitions=MEMBERS_PARTITIONS)
        for number in range(-1, plan.rounds_of(REBALANCE_ROUNDS)):  # the first round warms up
            rest_seconds = random.uniform(*REST_SECONDS)
            for protocol in PROTOCOLS:
                for driver in drivers:
                    answer = _settle(driver, broker.bootstrap_servers, topic, protocol, rest_seconds)
                    for event, key in events.items():
                        if number >= 0:
                            found.setdefault((protocol, driver.name, event), []).append(answer[key] / 1e6)
    for protocol, settings in PROTOCOLS.items():
        yield Question(
            summary.SETTLED.format(protocol),
            f"{MEMBERS} members of a group poll a topic of {MEMBERS_PARTITIONS} partitions, each on its own "
            "thread of one process. Then one more joins, and later one dies: a proxy before it ends. The "
            "time is until all partitions are owned, each by one member, and every member has some. After a "
            f"death it contains the session, session.timeout.ms={SESSION_MS}. Heartbeats come every "
            f"{HEARTBEAT_MS:,} ms"
            + (f": {listed(settings)}." if settings else ", by the broker's settings."),
            [
                Contender(f"{name}, {event}", 1, timings=timings)
                for (of, name, event), timings in found.items()
                if of == protocol
            ],
            [
                Claim(f"{ITERATED}, {event}", f"{JAVA}, {event}", 1.0, f"{event}: not above Java's")
                for event in events
            ],
            "ms",
            in_turns=True,
            speaks_of_speed=False,
        )
