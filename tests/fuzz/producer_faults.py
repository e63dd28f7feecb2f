"""The campaign of producer faults: brokers die, freeze and restart, and connections are cut, under load.

Theory of operation. A block is a broker, a proxy before it that cuts connections (cutting_proxy.py), and a
producer whose configuration is drawn from the block's number, as are the faults. It sends numbered records
from two threads, each to its own partitions, at full speed, while one fault follows the other. In the end the
outcome of each record is compared with the log as librdkafka reads it (ledger.py): acknowledged records are
there once and in order, definitely failed ones are not. If delivery.timeout.ms exceeds all faults together,
all are acknowledged, or possibly persisted if the broker may have forgotten them.

Every fourth block has a real Kafka, if there is one. Threads and the system decide what is in flight at a
fault: a block that failed may pass when it is replayed.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from kbatch import DeliveryError, Producer
from tests.fuzz import campaign
from tests.fuzz.broker_process import BrokerProcess
from tests.integration.cutting_proxy import CuttingProxy
from tests.integration.ledger import Ledger
from tests.oracle.java_programs import JavaMissingError, jars
from tests.oracle.kafka import RealKafka, create_topic, free_ports
from tests.oracle.plain import CODECS
from tests.support.patience import HANG_SECONDS, until

BLOCK_CASES = 10
PARTITIONS = 3
TIMEOUT_SECONDS = HANG_SECONDS
# The producer continues when this many more records are acknowledged.
PROGRESS_RECORDS = 200
# Quick to come back.
EAGER: dict[str, Any] = {
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 200,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 100,
}


class FaultyBroker:
    """A broker of one's own, real or embedded, and what can be done to it."""

    def __init__(self, broker: RealKafka | BrokerProcess) -> None:
        self._broker = broker
        self.bootstrap_servers = broker.bootstrap_servers

    def kill(self) -> None:
        """Kill the broker as kill -9 does, and start it again."""
        self._broker.kill()
        self._broker.start()

    def restart(self) -> None:
        """Restart the broker after a clean shutdown."""
        self._broker.stop()
        self._broker.start()

    def pause(self, seconds: float) -> None:
        """Stop the process (SIGSTOP); its connections stay open."""
        process = self._broker._process
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(process.pid, signal.SIGCONT)


@contextmanager
def embedded(directory: Path, *, keeps_all_batches: bool = False) -> Iterator[FaultyBroker]:
    process = BrokerProcess(directory, *free_ports(1), keeps_all_batches=keeps_all_batches)
    process.start()
    try:
        yield FaultyBroker(process)
    finally:
        process.close()


@contextmanager
def real() -> Iterator[FaultyBroker]:
    with RealKafka() as kafka:
        yield FaultyBroker(kafka)


def await_progress(ledgers: list[Ledger]) -> None:
    """Wait until more records of each producer are acknowledged."""
    wanted = [len(ledger.acknowledged) + PROGRESS_RECORDS for ledger in ledgers]
    until(
        lambda: all(len(ledger.acknowledged) >= count for ledger, count in zip(ledgers, wanted, strict=True)),
        "more acknowledged records",
        pause_seconds=0.01,
    )


# Blocks


def is_java_there() -> bool:
    try:
        jars()
    except JavaMissingError:
        return False
    return True


def _settings(rng: random.Random) -> dict[str, Any]:
    """Draw a producer's configuration, with a delivery.timeout.ms below or above the faults."""
    is_patient = rng.random() < 0.6
    return EAGER | {
        "compression_type": rng.choice(CODECS),
        "batch_size": rng.choice((300, 2000, 16_384)),
        "linger_ms": rng.choice((0, 1, 20)),
        "buffer_memory": rng.choice((60_000, 1 << 20, 32 << 20)),
        "max_in_flight_requests_per_connection": rng.choice((1, 2, 5, 5)),
        "request_timeout_ms": rng.choice((400, 2000)),
        "delivery_timeout_ms": 600_000 if is_patient else 2500,
        "max_block_ms": 600_000,
    }


def _fault(rng: random.Random) -> tuple[str, Callable[[FaultyBroker], None]]:
    pause_seconds = rng.uniform(0.1, 3.0)
    faults: list[tuple[str, Callable[[FaultyBroker], None]]] = [
        ("killed", FaultyBroker.kill),
        ("restarted", FaultyBroker.restart),
        ("paused", lambda broker: broker.pause(pause_seconds)),
    ]
    return rng.choice(faults)


def play(run: campaign.Run) -> None:
    """Check a block; an AssertionError has the reported outcomes and the records read."""
    rng = random.Random(f"producer faults {run.block}")
    settings = _settings(rng)
    allowed = {"acknowledged"}
    is_real = run.block % 4 == 3 and is_java_there()
    keeps_all = run.block % 2 == 1 and not is_real
    # After its restart, a broker knows only the last batch of a producer, and refuses repetitions of others.
    if not keeps_all and settings["max_in_flight_requests_per_connection"] > 1:
        allowed.add("possibly persisted")
    with ExitStack() as stack:
        if is_real:
            broker = stack.enter_context(real())
        else:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            broker = stack.enter_context(embedded(directory, keeps_all_batches=keeps_all))
        spacing = rng.choice((10, 100, 1000))
        proxy = stack.enter_context(
            CuttingProxy(broker.bootstrap_servers, run.block, cuts=10**6, spacing=spacing)
        )
        topics = [f"load-{number}" for number in range(2)]
        for topic in topics:
            create_topic(broker.bootstrap_servers, topic, PARTITIONS)
        producer = Producer(bootstrap_servers=proxy.bootstrap_servers, **settings)
        ledgers = [Ledger(producer, topic, PARTITIONS) for topic in topics]
        with campaign.at_work(ledger.send_until for ledger in ledgers):
            for number in range(run.cases):
                name, fault = _fault(rng)
                await_progress(ledgers)
                fault(broker)
                run.outcomes[name] += 1
                run.say(number, name, dict(proxy.done))
            await_progress(ledgers)
        _close(producer)
        for ledger in ledgers:
            tally = ledger.check(broker.bootstrap_servers)
            if settings["delivery_timeout_ms"] > 100_000:
                assert set(tally) <= allowed, (run.block, settings, tally)
        run.outcomes["cut"] = sum(proxy.done.values())


def _close(producer: Producer) -> None:
    try:
        producer.close(timeout=TIMEOUT_SECONDS)
    except DeliveryError as failed:
        raise AssertionError("on_delivery gets every failure") from failed
