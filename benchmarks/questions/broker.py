"""How fast does the embedded broker accept records, and how soon is a cluster of it whole again?

Kafka's own ProducerPerformance (idempotent, acks=all) sends to it, to three nodes of it, and to a real Kafka
of the same version on the same machine, in turn. The producer is the limit: all brokers share the machine's
cores with it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product

from benchmarks.clients.kafka import kafka
from benchmarks.pages.harness import Claim, Contender, Question
from benchmarks.pages.plan import Plan
from kbatch import Producer
from kbatch.testing import Broker
from tests.oracle import java_clients
from tests.oracle.kafka import create_topic

TOPIC, PARTITIONS, NODES = "performance", 4, 3
RECORDS, RECORD_BYTES = 2_000_000, 100
ROUNDS = 5
SETTINGS = {"acks": "all", "batch.size": "16384", "linger.ms": "5"}
JAVA_OPTIONS = ("-Xmx1g", "-XX:TieredStopAtLevel=4")  # tests start faster without the second compiler
REAL, ALONE, REPLICATED = "real Kafka", "embedded broker", "embedded, three nodes"
FAILURES, REPLICATED_RECORDS, SESSION_SECONDS, MOST_MS = 40, 1_000, 9, 50


def questions(plan: Plan) -> Iterator[Question]:
    yield _throughput(plan.records_of(RECORDS), plan.rounds_of(ROUNDS))
    yield _failures(plan.rounds_of(FAILURES))


def _throughput(records: int, rounds: int) -> Question:
    with ExitStack() as stack:
        real = stack.enter_context(kafka())
        create_topic(real.bootstrap_servers, TOPIC, PARTITIONS)
        addresses = {
            REAL: real.bootstrap_servers,
            ALONE: stack.enter_context(_embedded(1)),
            REPLICATED: stack.enter_context(_embedded(NODES)),
        }
        contenders = {name: Contender(name, records) for name in addresses}
        for number, (name, address) in product(range(1 + rounds), addresses.items()):
            done = java_clients.perf(
                address,
                TOPIC,
                records=records,
                record_bytes=RECORD_BYTES,
                properties=SETTINGS,
                java_options=JAVA_OPTIONS,
            )
            if number:  # the first round warms up the brokers
                contenders[name].timings.append(1e9 / done.records_per_second)
    settings = ", ".join(f"{name}={value}" for name, value in SETTINGS.items())
    return Question(
        "ProducerPerformance into the embedded broker",
        f"{records:,} records of {RECORD_BYTES} bytes, {PARTITIONS} partitions, {settings}; a new JVM each, "
        f"`java {' '.join(JAVA_OPTIONS)}`. Each of the three nodes has all partitions. Nothing is read back.",
        list(contenders.values()),
        [
            Claim(ALONE, REAL, 2.0, "half the speed of a real Kafka, or more"),
            Claim(REPLICATED, ALONE, 2.0, "three replicas at half the speed of one, or more"),
        ],
        in_turns=True,
    )


@contextmanager
def _embedded(nodes: int) -> Iterator[str]:
    """Run an embedded broker in a process of its own, and yield its address."""
    options = ["--port", "0", "--topic", f"{TOPIC}:{PARTITIONS}", "--nodes", str(nodes)]
    command = [sys.executable, "-m", "kbatch.cli", "broker", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        yield broker.stdout.readline().strip()
        broker.terminate()


def _failures(rounds: int) -> Question:
    """Kill the leader, let the session pass, and start the node again, until all replicas are in sync."""
    failing = Contender("leader killed, all in sync again", 1)
    with Broker({TOPIC: {"partitions": PARTITIONS}}, nodes=NODES) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers, acks="all") as producer:
            for number in range(REPLICATED_RECORDS):
                producer.send(TOPIC, bytes(RECORD_BYTES), partition=number % PARTITIONS)
        broker.wait_in_sync()  # the last high watermark comes with the next Fetch
        for _ in range(rounds):
            begun, leader = time.perf_counter_ns(), broker.leader(TOPIC, 0)
            broker.kill_node(leader, at_once=False)
            broker.advance(SESSION_SECONDS)
            broker.start_node(leader)
            broker.wait_in_sync()
            failing.timings.append((time.perf_counter_ns() - begun) / 1e6)
    verdict = "reached" if failing.median <= MOST_MS else "not reached"
    return Question(
        "A leader that dies",
        f"{NODES} nodes in this process; {PARTITIONS} partitions, {REPLICATED_RECORDS:,} records in all: "
        f"`kill_node`, `advance({SESSION_SECONDS})` until its session is over, `start_node`, `wait_in_sync`.",
        [failing],
        unit="ms",
        after_tables=f"Aim: {MOST_MS} ms, or less: {verdict}.",
    )
