"""How fast does the embedded broker accept records? Kafka's own ProducerPerformance (idempotent, acks=all)
sends to it, and to a real Kafka of the same version on the same machine, in turn. The producer is the limit:
both brokers share the machine's cores with it.
"""

from __future__ import annotations

import subprocess
import sys

from benchmarks.clients.java_codec import Peers
from benchmarks.clients.kafka import kafka
from benchmarks.pages.harness import Claim, Contender, Question
from tests.oracle import java_clients

TOPIC, PARTITIONS = "performance", 4
RECORDS, RECORD_BYTES = 2_000_000, 100
ROUNDS = 5
SETTINGS = {"acks": "all", "batch.size": "16384", "linger.ms": "5"}
JAVA_OPTIONS = ("-Xmx1g", "-XX:TieredStopAtLevel=4")  # tests start faster without the second compiler


def question(peers: Peers) -> Question:
    contenders = [Contender(name, RECORDS) for name in ("real Kafka", "embedded broker")]
    serve = [sys.executable, "-m", "kbatch.cli", "broker", "--port", "0", "--topic", f"{TOPIC}:{PARTITIONS}"]
    with kafka() as real, subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as embedded:
        real.create_topic(TOPIC, PARTITIONS)
        assert embedded.stdout is not None
        addresses = (real.bootstrap_servers, embedded.stdout.readline().strip())
        for number in range(1 + ROUNDS):
            for contender, address in zip(contenders, addresses, strict=True):
                done = java_clients.perf(
                    address,
                    TOPIC,
                    records=RECORDS,
                    record_bytes=RECORD_BYTES,
                    properties=SETTINGS,
                    java_options=JAVA_OPTIONS,
                )
                if number:  # the first round warms up the brokers
                    contender.timings.append(1e9 / done.records_per_second)
        embedded.terminate()
    settings = ", ".join(f"{name}={value}" for name, value in SETTINGS.items())
    return Question(
        "ProducerPerformance into the embedded broker",
        f"{RECORDS:,} records of {RECORD_BYTES} bytes, {PARTITIONS} partitions, {settings}; a new JVM each, "
        f"`java {' '.join(JAVA_OPTIONS)}`. Nothing is read back.",
        contenders,
        [Claim("embedded broker", "real Kafka", 2.0, "half the speed of a real Kafka, or more")],
    )
