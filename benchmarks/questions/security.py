"""What does security cost? TLS with SCRAM-SHA-256 beside plaintext, and first connections to a cluster."""

from __future__ import annotations

import itertools
import multiprocessing
import statistics
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.clients.contest import Contest, able, drivers_of, records_for
from benchmarks.clients.contestants import JAVA
from benchmarks.clients.kafka import kafka
from benchmarks.pages import summary
from benchmarks.pages.harness import Claim, Contender, Question
from benchmarks.pages.plan import Plan
from kbatch import Admin
from kbatch.bench.cluster import Address
from kbatch.bench.contest import SETTINGS, Answer
from kbatch.bench.settings import listed
from tests.oracle.authority import Authority

PARTITIONS = 4
RECORDS, ROUNDS = 1_000_000, 5
# Rounds that do not count, as for throughput: Java's compiler needs two.
WARM_UP_ROUNDS, JAVA_WARM_UP_ROUNDS = 1, 2
KBATCH, ASYNC, CONFLUENT = "kbatch", "kbatch AsyncProducer", "confluent-kafka"
NAMES = (KBATCH, "kbatch send_table", ASYNC, CONFLUENT, JAVA)
USER, PASSWORD, STORE_PASSWORD = "benchmark", "password of a benchmark", "password of a store"
LISTENER, MECHANISM, ITERATIONS = "SECURED", "SCRAM-SHA-256", 4096
PLAINTEXT, SECURED = "plaintext", "TLS + SCRAM"
SLOWEST, MOST_CPU = 1 / 0.85, 0.4
BROKERS, CONNECTING_ROUNDS = 30, 15
CLIENT_ID = "connecting"
SENDER = f"kbatch-sender-{CLIENT_ID}"  # the thread
HANDSHAKER = f"{SENDER}-handshaker"  # the threads
BUDGET, BUDGET_MS = "40 ms", 40.0


def labelled(name: str, way: str) -> str:
    return f"{name}, {way}"


# Throughput


@contextmanager
def ways() -> Iterator[Mapping[str, Address]]:
    """Run one Kafka, and yield the address of its listener without security and of that with it."""
    with TemporaryDirectory(prefix="kbatch-authority-") as folder:
        authority = Authority(Path(folder), STORE_PASSWORD)
        authority.issue("broker", subject="localhost")
        with kafka(_broker_properties(authority), {LISTENER: "SASL_SSL"}) as broker:
            _add_user(broker.bootstrap_servers)
            login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
            security = {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": MECHANISM,
                "sasl.jaas.config": f'{login} username="{USER}" password="{PASSWORD}";',
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(authority.path("ca.pem")),
            }
            yield {
                PLAINTEXT: Address(broker.bootstrap_servers, broker.process_id),
                SECURED: Address(broker.address(LISTENER), broker.process_id, security),
            }


def _broker_properties(authority: Authority) -> dict[str, object]:
    prefix = f"listener.name.{LISTENER.lower()}"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.path("broker.pem"),
        f"{prefix}.sasl.enabled.mechanisms": MECHANISM,
        f"{prefix}.{MECHANISM.lower()}.sasl.jaas.config": module,
    }


def _add_user(bootstrap_servers: str) -> None:
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        admin.users.set(USER, PASSWORD, MECHANISM, ITERATIONS)


def _answers(plan: Plan, records: int) -> dict[str, list[Answer]]:
    """Return the answers of each contestant each way, in turns."""
    names = able(NAMES)
    answers: dict[str, list[Answer]] = {}
    with ExitStack() as stack:
        addresses = stack.enter_context(ways())
        contests = {
            way: stack.enter_context(Contest(address, "security", PARTITIONS))
            for way, address in addresses.items()
        }
        drivers = stack.enter_context(drivers_of(names))
        for number in range(-JAVA_WARM_UP_ROUNDS, plan.rounds_of(ROUNDS)):
            for driver, way in itertools.product(drivers, contests):
                if driver.name != JAVA and number < -WARM_UP_ROUNDS:
                    continue
                share = records_for(driver.name, records)
                answer = contests[way].ask(driver, "load", share, SETTINGS)
                if number >= 0:
                    answers.setdefault(labelled(driver.name, way), []).append(answer | {"records": share})
    return answers


def _contenders(answers: Mapping[str, Sequence[Answer]], figure: str) -> list[Contender]:
    return [
        Contender(
            name,
            found[0]["records"],
            timings=[answer[figure] / answer["records"] for answer in found],
            note=f"broker: {statistics.median(a['broker_ns'] / a['records'] for a in found):,.0f} ns of CPU",
        )
        for name, found in answers.items()
    ]


def _brokers_part(answers: Mapping[str, Sequence[Answer]]) -> str:
    """Say how much TLS costs the broker, which shares the machine's cores."""
    plain, secured = (
        statistics.median(
            answer["broker_ns"] / answer["records"] for answer in answers[labelled(KBATCH, way)]
        )
        for way in (PLAINTEXT, SECURED)
    )
    return f"The broker's CPU on the same cores is {secured:,.0f} ns a record instead of {plain:,.0f}"


def throughput(plan: Plan) -> Iterator[Question]:
    records = plan.records_of(RECORDS)
    answers = _answers(plan, records)
    secured, plain = labelled(KBATCH, SECURED), labelled(KBATCH, PLAINTEXT)
    confluent, java = labelled(CONFLUENT, SECURED), labelled(JAVA, SECURED)
    setting = (
        f"{records:,} records a round and contestant (AsyncProducer half, send_table twice as many); 16-byte "
        f"keys, 100-byte JSON values, {PARTITIONS} partitions. {listed(SETTINGS)}. One Kafka has a listener "
        f"without security and one with TLS 1.3 and {MECHANISM}; another client reads all records back."
    )
    yield Question(
        "Records delivered: TLS + SCRAM-SHA-256 beside plaintext, lz4, batches of 128 KiB",
        f"{setting} From the first call to the last acknowledgement; the login is before it.",
        _contenders(answers, "elapsed_ns"),
        [
            Claim(
                secured,
                plain,
                SLOWEST,
                "send: at least 0.85 x the records/s of plaintext",
                _brokers_part(answers),
            ),
            Claim(secured, java, 1.0, "send: at least Java's records/s"),
            Claim(secured, confluent, 1.0, "send: at least confluent-kafka's records/s"),
        ],
        in_turns=True,
        speaks_of_speed=False,
    )
    yield Question(
        summary.SECURED,
        "The same rounds. The client's process, user and kernel.",
        _contenders(answers, "cpu_ns"),
        [
            Claim(secured, confluent, MOST_CPU, "send: 0.4 x confluent-kafka's, or less"),
            Claim(secured, java, 1.0, "send: not above Java's"),
        ],
        "ns of CPU a record",
        in_turns=True,
        speaks_of_speed=False,
    )


# First connections


def _serve(pipe: Connection) -> None:
    """Run the brokers in a process of their own, until the pipe ends."""
    from kbatch.testing import Broker

    listeners: list[str | tuple[str, list[str]]] = [("SASL_SSL", [MECHANISM]), "PLAINTEXT"]
    brokers = Broker({"t": BROKERS}, nodes=BROKERS, listeners=listeners, users={USER: PASSWORD})
    with brokers:
        pipe.send(
            {
                SECURED: brokers.client_settings("SASL_SSL", MECHANISM),
                PLAINTEXT: brokers.client_settings("PLAINTEXT"),
            }
        )
        pipe.poll(None)


@contextmanager
def many_brokers() -> Iterator[Mapping[str, dict[str, str]]]:
    """Yield the settings of clients, with and without security, of a cluster of embedded brokers."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours.recv()
    finally:
        ours.close()
        process.join()


def connecting_cpu_ms(settings: Mapping[str, str]) -> tuple[float, float]:
    """Return the CPU of the sender's thread, and of those that take the steps of handshakes, from a new
    producer to an acknowledgement of every broker.
    """
    from kbatch import Producer

    with Producer(settings, linger_ms=0, client_id=CLIENT_ID) as producer:
        deliveries = [producer.send("t", b"first", partition=number) for number in range(BROKERS)]
        for delivery in deliveries:
            delivery.result()
        taken = {SENDER: 0.0, HANDSHAKER: 0.0}
        for thread in threading.enumerate():
            name = HANDSHAKER if thread.name.startswith(HANDSHAKER) else thread.name
            if name in taken and thread.ident is not None:
                clock = time.pthread_getcpuclockid(thread.ident)
                taken[name] += time.clock_gettime_ns(clock) / 1e6
        return taken[SENDER], taken[HANDSHAKER]


def connections(plan: Plan) -> Iterator[Question]:
    found: dict[str, list[float]] = {SECURED: [], PLAINTEXT: []}
    beside: dict[str, list[float]] = {SECURED: [], PLAINTEXT: []}
    with many_brokers() as clients:
        for number in range(-1, plan.rounds_of(CONNECTING_ROUNDS)):
            for way, settings in clients.items():
                sender_ms, handshakes_ms = connecting_cpu_ms(settings)
                if number >= 0:
                    found[way].append(sender_ms)
                    beside[way].append(handshakes_ms)
    rounds = len(found[SECURED])
    yield Question(
        f"First connections to {BROKERS} brokers",
        "A new producer, and a record to each broker, until all are acknowledged: the processor time of the "
        f"sender's thread. Embedded brokers in another process, with certificates of P-256; {ITERATIONS} "
        "iterations of SCRAM are computed once, on the login thread. Other threads take the steps of "
        "handshakes; their time is noted.",
        [
            Contender(BUDGET, 1, timings=[BUDGET_MS] * rounds, note="an aim"),
            *(
                Contender(
                    way,
                    1,
                    timings=timings,
                    note=f"{statistics.median(beside[way]):.1f} ms of handshakes beside",
                )
                for way, timings in found.items()
            ),
        ],
        [Claim(SECURED, BUDGET, 1.0, "the sender's thread: 40 ms, or less")],
        "ms of CPU",
        in_turns=True,
        speaks_of_speed=False,
    )


def questions(plan: Plan) -> Iterator[Question]:
    yield from throughput(plan)
    yield from connections(plan)
