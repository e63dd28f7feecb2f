"""The stress campaign: a producer used in all ways at once, on an embedded broker with faults.

Theory of operation. A block is a broker and a producer, both drawn from the block's number: by turns a
Producer that threads share, an AsyncProducer whose tasks are cancelled at random, and a transactional
Producer with which three threads send in each transaction. Values are numbered by their sender. In the end
the log is compared with the outcome of each record. Delivered records are there once, at the offset of their
delivery, and in the order in which their thread sent them. Records that failed for certain, or were never
accepted, are not there. Committed transactions are whole, aborted ones invisible. All memory is released.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

import pyarrow as pa

import kbatch
from kbatch.errors import KafkaError, KafkaTimeoutError, PartialSendError
from kbatch.testing import Broker
from tests.fuzz import campaign
from tests.oracle.plain import CODECS

BLOCK_CASES = 1
ROUND_SECONDS = 3.0
SECONDS = 60.0
TOPIC = "stress"
PARTITIONS = 3
RETRIABLE = ("NOT_ENOUGH_REPLICAS", "NOT_LEADER_OR_FOLLOWER", "CORRUPT_MESSAGE")
CALLS_OF_TRANSACTIONS = ("EndTxn", "InitProducerId", "FindCoordinator")


class Sent(NamedTuple):
    """The reported outcome of an accepted record."""

    partition: int
    offset: int  # -1 where the broker did not say
    error: Exception | None


def settings_of(rng: random.Random) -> dict[str, Any]:
    return {
        "batch_size": rng.choice((0, 200, 3000, 16_384)),
        "buffer_memory": rng.choice((60_000, 1_000_000)),
        "compression_type": rng.choice(CODECS),
        "linger_ms": rng.choice((0, 1, 5)),
        "max_in_flight_requests_per_connection": rng.choice((1, 2, 5)),
        "retry_backoff_ms": 1,
        "retry_backoff_max_ms": 5,
        "reconnect_backoff_ms": 1,
        "reconnect_backoff_max_ms": 5,
        "request_timeout_ms": rng.choice((500, 2000)),
        "delivery_timeout_ms": rng.choice((3000, 20_000)),
        "max_block_ms": 20_000,
    }


class Records:
    """Values that name who sends them, and what was said of them."""

    def __init__(self) -> None:
        self.said: dict[str, Callable[[], Sent]] = {}
        self._numbers: Counter[str] = Counter()
        self._lock = threading.Lock()

    def names(self, sender: str, count: int) -> list[str]:
        first = self._numbers[sender]
        self._numbers[sender] += count
        return [f"{sender}:{number}" for number in range(first, first + count)]

    def keep(self, names: list[str], deliveries: list[kbatch.Delivery]) -> None:
        with self._lock:
            for name, delivery in zip(names, deliveries, strict=False):
                self.said[name] = lambda delivery=delivery: _said_of(delivery)  # type: ignore[misc]

    def keep_rows(self, names: list[str], delivery: Any) -> None:
        def said(row: int) -> Sent:
            report = delivery.result(0)
            return Sent(int(report.partitions[row]), int(report.offsets[row]), report.errors.get(row))

        with self._lock:
            for row, name in enumerate(names):
                self.said[name] = lambda row=row: said(row)  # type: ignore[misc]

    def check(self, broker: Broker, outcomes: Counter[str]) -> None:
        log: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for partition in range(PARTITIONS):
            last: dict[str, int] = {}
            for record in broker.records(TOPIC, partition):
                name = name_of(record.value)
                log[name].append((partition, record.offset))
                sender, number = name.split(":")
                assert last.get(sender, -1) < int(number), f"{name} stands after {last[sender]}"
                last[sender] = int(number)
        assert not set(log) - set(self.said), "records that were not accepted are in the log"
        for name, found in log.items():
            assert len(found) == 1, f"{name} is in the log twice: {found}"
        for name, said in self.said.items():
            _judge(name, said(), log.get(name, []))
            outcomes["delivered" if said().error is None else "failed"] += 1


def _said_of(delivery: kbatch.Delivery) -> Sent:
    error = delivery.exception(0)
    offset = -1 if error is not None else delivery.result(0).offset
    return Sent(delivery.partition, offset, error)


def _judge(name: str, said: Sent, found: list[tuple[int, int]]) -> None:
    if said.error is None:
        assert found, f"{name} was delivered, and is lost"
        assert said.offset < 0 or found == [(said.partition, said.offset)], (name, said, found)
    elif found:
        assert getattr(said.error, "possibly_persisted", False), f"{name} failed for certain, and is there"


def value_of(name: str, rng: random.Random) -> bytes:
    return name.encode() + b"|" + bytes(rng.randrange(200))


def name_of(value: bytes | None) -> str:
    assert value is not None
    return bytes(value).split(b"|")[0].decode()


def table_of(names: list[str], rng: random.Random) -> pa.Table:
    return pa.table({"value": pa.array([value_of(name, rng) for name in names], pa.binary())})


def fault(broker: Broker, rng: random.Random, calls: tuple[str, ...] = ()) -> None:
    api = rng.choice(("Produce", "Produce", *calls))
    faults: tuple[Callable[[], None], ...] = (
        lambda: broker.fail_next("Produce", rng.choice(RETRIABLE), times=rng.randrange(1, 4)),
        lambda: broker.fail_next("Produce", "MESSAGE_TOO_LARGE", times=3),
        lambda: broker.drop_connection(api, when=rng.choice(("before", "after"))),
        lambda: broker.delay("Produce", rng.choice((0, 0, 0.02))),
    )
    rng.choice(faults)()


# Threads


def run_threads(rng: random.Random, seconds: float, outcomes: Counter[str]) -> None:
    records = Records()
    stop = time.monotonic() + seconds
    with Broker({TOPIC: PARTITIONS}) as broker:
        producer = kbatch.Producer(bootstrap_servers=broker.bootstrap_servers, **settings_of(rng))

        def send(sender: str, rng: random.Random) -> None:
            (name,) = records.names(sender, 1)
            partition = rng.choice((None, 0, 1, 2))
            records.keep([name], [producer.send(TOPIC, value_of(name, rng), partition=partition)])

        def send_many(sender: str, rng: random.Random) -> None:
            names = records.names(sender, rng.randrange(1, 40))
            try:
                deliveries = producer.send_many(TOPIC, [(None, value_of(name, rng)) for name in names])
            except PartialSendError as error:
                deliveries = list(error.deliveries)
            records.keep(names, deliveries)

        def send_table(sender: str, rng: random.Random) -> None:
            names = records.names(sender, rng.choice((1, 50, 700)))
            records.keep_rows(names, producer.send_table(TOPIC, table_of(names, rng)))

        def flush(sender: str, rng: random.Random) -> None:
            producer.flush(rng.choice((0.01, 5)))
            producer.metrics()

        def break_it(sender: str, rng: random.Random) -> None:
            time.sleep(rng.random() * 0.08)
            fault(broker, rng)

        _at_once((send, send, send, send_many, send_many, send_table, flush, break_it), rng, stop)
        broker.clear_faults()
        with suppress(kbatch.DeliveryError):
            producer.flush(SECONDS)
        campaign.check_memory(producer)
        with suppress(kbatch.DeliveryError):
            producer.close(SECONDS)
        records.check(broker, outcomes)


def _at_once(
    works: tuple[Callable[[str, random.Random], None], ...], rng: random.Random, stop: float
) -> None:
    """Call each on a separate thread, repeatedly; records refused by Kafka's errors are not accepted."""
    failed: list[BaseException] = []

    def run(number: int, work: Callable[[str, random.Random], None], rng: random.Random) -> None:
        try:
            while time.monotonic() < stop:
                with suppress(KafkaError):
                    work(f"{work.__name__}-{number}", rng)
        except BaseException as error:
            failed.append(error)

    threads = [
        threading.Thread(target=run, args=(number, work, random.Random(rng.random())))
        for number, work in enumerate(works)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(stop - time.monotonic() + SECONDS)
        assert not thread.is_alive(), f"{thread.name} hangs"
    if failed:
        raise failed[0]


# An event loop


def run_loop(rng: random.Random, seconds: float, outcomes: Counter[str]) -> None:
    with Broker({TOPIC: PARTITIONS}) as broker:
        records = Records()
        asyncio.run(_run_tasks(broker, records, rng, time.monotonic() + seconds, outcomes))
        records.check(broker, outcomes)


async def _run_tasks(
    broker: Broker, records: Records, rng: random.Random, stop: float, outcomes: Counter[str]
) -> None:
    producer = kbatch.AsyncProducer(bootstrap_servers=broker.bootstrap_servers, **settings_of(rng))
    loop = asyncio.get_running_loop()

    async def send(sender: str) -> None:
        """A send that was cancelled has accepted nothing."""
        (name,) = records.names(sender, 1)
        sending = asyncio.ensure_future(producer.send(TOPIC, value_of(name, rng)))
        if rng.random() < 0.4:
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)
            sending.cancel()
        try:
            records.keep([name], [await sending])
        except asyncio.CancelledError:
            outcomes["cancelled"] += 1

    async def send_table(sender: str) -> None:
        names = records.names(sender, rng.choice((1, 50, 700)))
        records.keep_rows(names, await producer.send_table(TOPIC, table_of(names, rng)))
        await asyncio.sleep(0)

    async def flush(sender: str) -> None:
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(producer.flush(rng.choice((0.01, 5))), rng.choice((0.005, 10)))
        await asyncio.sleep(rng.random() * 0.05)

    async def break_it(sender: str) -> None:
        await asyncio.sleep(rng.random() * 0.08)
        await loop.run_in_executor(None, fault, broker, rng)

    async def again(number: int, work: Callable[[str], Awaitable[None]]) -> None:
        while time.monotonic() < stop:
            with suppress(KafkaError):
                await work(f"{work.__name__}-{number}")

    works = (send, send, send, send_table, flush, break_it)
    await asyncio.wait_for(asyncio.gather(*map(again, range(len(works)), works)), SECONDS)
    await loop.run_in_executor(None, broker.clear_faults)
    with suppress(kbatch.DeliveryError):
        await producer.flush(SECONDS)
    with suppress(kbatch.DeliveryError):
        await producer.close(SECONDS)
    campaign.check_memory(producer)


# Transactions


def run_transactions(rng: random.Random, seconds: float, outcomes: Counter[str]) -> None:
    fates: dict[int, tuple[str, list[str]]] = {}
    stop = time.monotonic() + seconds
    settings = settings_of(rng) | {"transactional_id": "stress"}
    with Broker({TOPIC: PARTITIONS}) as broker:
        producer = kbatch.Producer(bootstrap_servers=broker.bootstrap_servers, **settings)
        producer.init_transactions()
        over = threading.Event()

        def break_it(rng: random.Random) -> None:
            while not over.wait(rng.random() * 0.05):
                fault(broker, rng, CALLS_OF_TRANSACTIONS)

        breaking = threading.Thread(target=break_it, args=(random.Random(rng.random()),))
        breaking.start()
        try:
            while time.monotonic() < stop:
                number = len(fates)
                names: list[str] = []
                fates[number] = (_run_transaction(producer, number, names, rng), names)
                if fates[number][0] == "unknown":
                    producer = producer.recreate()
                    producer.init_transactions()
        finally:
            over.set()
            breaking.join()
            broker.clear_faults()
        producer.begin_transaction()  # ends what a producer before it has left
        producer.commit_transaction()
        campaign.check_memory(producer)
        producer.close(SECONDS)
        _check_fates(broker, fates)
    outcomes.update(fate for fate, _ in fates.values())


def _run_transaction(producer: kbatch.Producer, number: int, names: list[str], rng: random.Random) -> str:
    """Note the outcome; `names` are those of the accepted records."""

    def send(sender: int, rng: random.Random) -> None:
        with suppress(KafkaError):
            for index in range(rng.randrange(1, 60)):
                name = f"{number}-{sender}:{index}"
                producer.send(TOPIC, value_of(name, rng))
                names.append(name)

    def send_table(sender: int, rng: random.Random) -> None:
        with suppress(KafkaError):
            rows = [f"{number}-{sender}:{index}" for index in range(40)]
            producer.send_table(TOPIC, table_of(rows, rng))
            names.extend(rows)

    try:
        producer.begin_transaction()
        threads = [
            threading.Thread(target=work, args=(sender, random.Random(rng.random())))
            for sender, work in enumerate((send, send, send_table))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if rng.random() < 0.7:
            _until_told(producer.commit_transaction)
            return "committed"
    except KafkaError as error:
        if error.fatal:
            return "unknown"
    try:
        _until_told(producer.abort_transaction)
    except KafkaError as error:
        assert error.fatal, error
        return "unknown"
    return "aborted"


def _until_told(end: Callable[[], None]) -> None:
    while True:
        with suppress(KafkaTimeoutError):
            end()
            return


def _check_fates(broker: Broker, fates: dict[int, tuple[str, list[str]]]) -> None:
    seen = Counter(name_of(record.value) for record in broker.records(TOPIC))
    assert not [name for name, count in seen.items() if count > 1], "records are doubled"
    for number, (fate, names) in fates.items():
        there = [name for name in names if name in seen]
        if fate == "committed":
            assert len(there) == len(names), f"transaction {number} was committed, and lacks records"
        elif fate == "aborted":
            assert not there, f"transaction {number} was aborted, and {there[:3]} can be seen"
        else:
            assert len(there) in (0, len(names)), f"of transaction {number} a part can be seen"


KINDS = (run_threads, run_loop, run_transactions)


def play(run: campaign.Run) -> None:
    """Check a block of producers, each for some seconds."""
    rng = random.Random(f"stress {run.block}")
    logging.disable(logging.CRITICAL)
    try:
        for number in range(run.cases):
            kind = KINDS[(run.block + number) % len(KINDS)]
            run.say(number, kind.__name__)
            kind(rng, ROUND_SECONDS, run.outcomes)
    finally:
        logging.disable(logging.NOTSET)
