"""The campaign of interrupts: signal handlers that raise, as Ctrl-C does, at any moment of any call.

Theory of operation. A block is an embedded broker, and for each round a producer whose configuration is drawn
from the block's number. A timer's signal, whose handler raises, comes some microseconds to milliseconds after
a call has begun, whichever it is: of threads' Producer, of one that is transactional, of an AsyncProducer,
whose task asyncio then cancels, of a Consumer, alone or in a group, of an AsyncConsumer, or of a TopicReader.
(A handler that raises in the event loop's own code makes asyncio itself lose what it was about to call.)
After some interrupts all must be as if there had been none: flush() settles, a record gets through to each
partition, no batch is left and all memory has come back. What was accepted is in the log, unless its delivery
says why not. A member of a group gets all partitions, and reads on in them. A program that polls or iterates
gets each record once, in order. A read of ranges leaves nothing to the next one.

Python itself loses an interrupt that comes in a finalizer or in the callback of a weak reference; another one
follows. Its import system keeps its lock forever if an interrupt comes while it takes the lock. So each call
is made once before the first interrupt, which imports all that the calls need.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa

import kbatch
from kbatch.errors import KafkaError
from kbatch.testing import Broker
from tests.fuzz import campaign
from tests.oracle.plain import CODECS

BLOCK_CASES = 60
INTERRUPTS = 5
PARTITIONS = 3
SECONDS = 30.0
TOPIC = "interrupted"


class Interrupt(BaseException):
    """Raised by the signal handler."""


@contextmanager
def interrupted(rng: random.Random) -> Iterator[None]:
    """Send one Interrupt, or a few, at some time in the block, and none after it."""
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, rng.choice((1e-4, 1e-3, 2e-2)) * rng.uniform(0.1, 1), 2e-2)
            yield
        finally:
            _disarm()
    finally:
        _disarm()


def _disarm() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)


class Round:
    """A producer, what is called, and what was accepted."""

    def __init__(self, broker: Broker, rng: random.Random) -> None:
        self.rng = rng
        self.broker = broker
        self.accepted: list[tuple[bytes, kbatch.Delivery]] = []
        self.value_count = 0
        self.table = pa.table({"value": pa.array([rng.randbytes(90) for _ in range(3000)], pa.binary())})
        self.batch = kbatch.encode([(None, rng.randbytes(50))] * 30)
        self.settings: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap_servers,
            "compression_type": rng.choice(CODECS),
            "batch_size": rng.choice((300, 3000, 40_000)),
            "linger_ms": rng.choice((0, 2)),
            "buffer_memory": rng.choice((200_000, 5_000_000)),
            "value_serializer": rng.choice((None, lambda topic, headers, value: value)),
            "max_block_ms": 60_000,
        }

    def value(self) -> bytes:
        self.value_count += 1
        return b"%d of %d " % (self.value_count, id(self)) + self.rng.randbytes(60)

    def check_log(self) -> None:
        """Check that each accepted record is in the log, or that its delivery says why it is not."""
        log = Counter(record.value for record in self.broker.records(TOPIC))
        for value, delivery in self.accepted:
            assert delivery.done(), delivery
            if delivery.exception(0) is None:
                assert log[value] == 1, (value, log[value])


# Threads


def _calls(lap: Round, producer: kbatch.Producer) -> list[Callable[[], object]]:
    rng = lap.rng

    def send(**options: Any) -> None:
        for _ in range(50):
            value = lap.value()
            lap.accepted.append((value, producer.send(TOPIC, value, **options)))

    def try_send() -> None:
        for _ in range(50):
            value = lap.value()
            delivery = producer.try_send(TOPIC, value)
            if delivery is not None:
                lap.accepted.append((value, delivery))

    def wait_for(*arguments: Any) -> list[kbatch.Delivery]:
        return [producer.send(TOPIC, b"waited for") for _ in range(10)]

    return [
        send,
        send,
        lambda: send(on_delivery=lambda metadata, error: None),
        try_send,
        lambda: producer.send_many(TOPIC, [(None, b"many")] * 100),
        lambda: producer.send_batch(TOPIC, rng.randrange(PARTITIONS), lap.batch),
        lambda: producer.send_table(TOPIC, lap.table),
        lambda: producer.send_table(TOPIC, lap.table).result(SECONDS),
        lambda: producer.flush(SECONDS),
        lambda: producer.send(TOPIC, b"asked for").result(SECONDS),
        lambda: kbatch.wait(wait_for(), SECONDS),
        lambda: list(kbatch.as_completed(wait_for(), SECONDS)),
        lambda: producer.partitions_for(TOPIC),
        lambda: producer.committed_offsets("group", [kbatch.TopicPartition(TOPIC, 0)]),
        producer.group_ids,
        producer.metrics,
        producer.resume,
        producer.purge,
    ]


def run_threads(broker: Broker, rng: random.Random, outcomes: Counter[str]) -> None:
    lap = Round(broker, rng)
    producer = kbatch.Producer(**lap.settings)
    producer.partitions_for(TOPIC)
    calls = _calls(lap, producer)
    for _ in range(INTERRUPTS):
        with suppress(Interrupt), interrupted(rng):
            while True:
                with suppress(KafkaError):  # what was purged
                    rng.choice(calls)()
        outcomes["interrupts of threads"] += 1
    _flush(producer)
    for partition in range(PARTITIONS):
        producer.send(TOPIC, b"after it", partition=partition).result(SECONDS)
    campaign.check_memory(producer)
    for _ in range(3):
        with suppress(Interrupt, kbatch.DeliveryError), interrupted(rng):
            producer.close(SECONDS)
    producer.close(SECONDS)
    lap.check_log()


def _flush(producer: kbatch.Producer) -> None:
    with suppress(kbatch.DeliveryError):  # what was purged, and rows of a table that was interrupted
        producer.flush(SECONDS)


# Transactions


def run_transactions(broker: Broker, rng: random.Random, outcomes: Counter[str]) -> None:
    """Repeat interrupted calls, like those that timed out, and check that committed records are there.

    An interrupt may also come between the end of a call and its caller: then it cannot be made again.
    """
    name = f"interrupted-{rng.random()}"
    servers = broker.bootstrap_servers
    producer = kbatch.Producer(bootstrap_servers=servers, transactional_id=name, linger_ms=rng.choice((0, 5)))
    committed: set[bytes] = set()

    def again(call: Callable[[], object]) -> None:
        count = 0
        while True:
            try:
                with interrupted(rng):
                    call()
                return
            except Interrupt:
                count += 1
                outcomes["interrupts of transactions"] += 1
            except kbatch.IllegalStateError:
                assert count
                return

    again(producer.init_transactions)
    for number in range(INTERRUPTS):
        again(producer.begin_transaction)
        values = [b"%s %d %d" % (name.encode(), number, index) for index in range(20)]
        deliveries: list[kbatch.Delivery] = []
        with suppress(Interrupt), interrupted(rng):
            deliveries.extend(producer.send(TOPIC, value) for value in values)
        with suppress(Interrupt), interrupted(rng):
            offsets = {kbatch.TopicPartition(TOPIC, 0): kbatch.OffsetAndMetadata(number + 1)}
            producer.send_offsets_to_transaction(offsets, f"group of {name}")
        if rng.random() < 0.5 and len(deliveries) == len(values):
            again(producer.commit_transaction)
            committed.update(values)
        else:
            again(producer.abort_transaction)
    campaign.check_memory(producer)
    producer.close(SECONDS)
    log = Counter(record.value or b"" for record in broker.records(TOPIC))
    mine = {value: count for value, count in log.items() if value.startswith(name.encode())}
    assert mine == dict.fromkeys(committed, 1)


# An event loop


def _tasks(lap: Round, producer: kbatch.AsyncProducer) -> list[Callable[[], Awaitable[object]]]:
    async def send() -> None:
        for _ in range(50):
            value = lap.value()
            lap.accepted.append((value, await producer.send(TOPIC, value)))

    async def ask() -> None:
        await (await producer.send(TOPIC, b"asked for"))

    return [
        send,
        ask,
        lambda: producer.send_many(TOPIC, [(None, b"many")] * 100),
        lambda: producer.send_batch(TOPIC, lap.rng.randrange(PARTITIONS), lap.batch),
        lambda: producer.send_table(TOPIC, lap.table),
        lambda: producer.flush(SECONDS),
        lambda: producer.partitions_for(TOPIC),
        producer.group_ids,
        producer.resume,
        producer.purge,
    ]


def run_loop(broker: Broker, rng: random.Random, outcomes: Counter[str]) -> None:
    lap = Round(broker, rng)
    producer = kbatch.AsyncProducer(**lap.settings)
    tasks = _tasks(lap, producer)

    async def work() -> None:
        signal.setitimer(signal.ITIMER_REAL, rng.choice((1e-4, 1e-3, 2e-2)) * rng.uniform(0.1, 1))
        while True:
            with suppress(KafkaError):  # what was purged
                await rng.choice(tasks)()

    with _ctrl_c(), asyncio.Runner() as runner:
        runner.run(_started(producer))
        for _ in range(INTERRUPTS):
            with suppress(KeyboardInterrupt):
                runner.run(work())
            outcomes["interrupts of a loop"] += 1
        runner.run(_end(producer))
    campaign.check_memory(producer)
    lap.check_log()


@contextmanager
def _ctrl_c() -> Iterator[None]:
    """Turn the timer's signal into that of Ctrl-C, with Python's own handler, which asyncio replaces."""
    timer = signal.signal(signal.SIGALRM, lambda number, frame: signal.raise_signal(signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGALRM, timer)


async def _started(producer: kbatch.AsyncProducer) -> None:
    await producer.partitions_for(TOPIC)


async def _end(producer: kbatch.AsyncProducer) -> None:
    with suppress(kbatch.DeliveryError):
        await producer.flush(SECONDS)
    for partition in range(PARTITIONS):
        await (await producer.send(TOPIC, b"after it", partition=partition))
    await producer.close(SECONDS)


# A member of a group


def _settings_of_a_group(broker: Broker, rng: random.Random) -> dict[str, Any]:
    protocol = rng.choice(("consumer", "classic"))
    return {
        "bootstrap_servers": broker.bootstrap_servers,
        "group_id": f"group {rng.random()}",
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": rng.choice((0, 20)),
        "max_poll_records": rng.choice((50, 500)),
        "fetch_max_wait_ms": 10,
        "retry_backoff_ms": 5,
        **({"heartbeat_interval_ms": 30} if protocol == "classic" else {}),
    }


def _calls_of_a_member(rng: random.Random, member: kbatch.Consumer) -> list[Callable[[], object]]:
    partition = kbatch.TopicPartition(TOPIC, 0)

    def iterate() -> None:
        for _, record in zip(range(20), member.until_end(), strict=False):
            member.commit(record)

    return [
        lambda: member.poll(0.01),
        lambda: member.poll(0.01),
        lambda: member.poll_table(0.01, columns=["offset"]),
        iterate,
        member.commit,
        member.commit_async,
        lambda: member.committed([partition]),
        lambda: member.position(partition),
        lambda: member.seek(partition, rng.randrange(20)),
        lambda: member.pause() or member.resume(),  # type: ignore[func-returns-value]
        lambda: member.subscribe([TOPIC]),
        member.unsubscribe,
        member.alive,
    ]


def run_group(broker: Broker, rng: random.Random, outcomes: Counter[str]) -> None:
    """Interrupt a member while another comes and goes. Then it owns all partitions, and reads on in them."""
    settings = _settings_of_a_group(broker, rng)
    member, rival = kbatch.Consumer(**settings), None
    calls = _calls_of_a_member(rng, member)
    for _ in range(INTERRUPTS):
        if rival is None:
            rival = kbatch.Consumer(**settings)
            rival.subscribe([TOPIC])
            rival.poll(0.05)
        else:
            rival.close()
            rival = None
        member.subscribe([TOPIC])
        with suppress(Interrupt), interrupted(rng):
            while True:
                with suppress(KafkaError):  # what is not assigned
                    rng.choice(calls)()
        outcomes["interrupts of a group"] += 1
    if rival is not None:
        rival.close()
    member.subscribe([TOPIC])
    everything = {kbatch.TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)}
    end = time.monotonic() + SECONDS
    while member.assignment() != everything:
        assert time.monotonic() < end, (settings, member.assignment())
        member.poll(0.02)
    member.resume()
    member.seek_to_end()
    for each in everything:
        member.position(each)
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        deliveries = [producer.send(TOPIC, b"the last", partition=each.partition) for each in everything]
    left = {(each.result(0).partition, each.result(0).offset) for each in deliveries}
    while left:
        assert time.monotonic() < end, (settings, left)
        left -= {(each.partition, each.offset) for each in member.poll(0.02)}
    member.commit()
    for _ in range(3):
        with suppress(Interrupt), interrupted(rng):
            member.close(timeout=SECONDS)
    member.close(timeout=SECONDS)
    assert not member.is_open and time.monotonic() < end


# A program that goes on after each interrupt


def _filled_topic(broker: Broker, rng: random.Random, count: int) -> str:
    """Return a new topic, of whose one partition each record has its offset as the value."""
    topic = f"read-{rng.getrandbits(60)}"
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=0)
    return topic


def run_reader(broker: Broker, rng: random.Random, outcomes: Counter[str]) -> None:
    """Interrupt polls and iterations. The program gets each record once, in order."""
    count = 2000
    topic = _filled_topic(broker, rng, count)
    seen: list[int] = []
    got: Sequence[Any] = ()

    def note() -> None:
        """Process what the program got, unless it was interrupted just after that."""
        numbers = [int(bytes(each.value)) for each in got]
        if numbers and numbers[-1] >= len(seen):
            assert numbers[0] == len(seen), (numbers[0], len(seen))
            seen.extend(numbers)

    settings: dict[str, Any] = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 10}
    with kbatch.Consumer(bootstrap_servers=broker.bootstrap_servers, **settings) as consumer:
        consumer.assign([kbatch.TopicPartition(topic, 0)])
        end = time.monotonic() + SECONDS
        while len(seen) < count:
            assert time.monotonic() < end, len(seen)
            with suppress(Interrupt), interrupted(rng):
                if rng.random() < 0.5:
                    while len(seen) < count:
                        got = consumer.poll(0.01, max_records=rng.randint(1, 20))
                        note()
                for record in consumer:
                    got = (record,)
                    note()
                    if len(seen) == count:
                        break
            outcomes["interrupts of a reader"] += 1
            note()
    assert seen == list(range(count))


def run_polling_task(broker: Broker, rng: random.Random, outcomes: Counter[str]) -> None:
    """Cancel a task that polls and iterates. It gets each record once, in order."""
    count = 2000
    topic = _filled_topic(broker, rng, count)
    seen: list[int] = []

    async def read(consumer: kbatch.AsyncConsumer) -> None:
        signal.setitimer(signal.ITIMER_REAL, rng.choice((1e-4, 1e-3, 2e-2)) * rng.uniform(0.1, 1))
        if rng.random() < 0.5:
            while len(seen) < count:
                seen.extend(int(each.value) for each in await consumer.poll(0.01, rng.randint(1, 20)))
        elif len(seen) < count:
            async for record in consumer:
                seen.append(int(record.value))
                if len(seen) == count:
                    break
        await asyncio.Event().wait()  # for the interrupt, which must not come after the task

    async def begin() -> kbatch.AsyncConsumer:
        consumer = kbatch.AsyncConsumer(bootstrap_servers=broker.bootstrap_servers, fetch_max_wait_ms=10)
        consumer.assign({kbatch.TopicPartition(topic, 0): 0})
        return consumer

    end = time.monotonic() + SECONDS
    with _ctrl_c(), asyncio.Runner() as runner:
        consumer = runner.run(begin())
        while len(seen) < count:
            assert time.monotonic() < end, len(seen)
            with suppress(KeyboardInterrupt):
                runner.run(read(consumer))
            assert seen == list(range(len(seen)))
            outcomes["interrupts of a polling task"] += 1
        runner.run(consumer.close())


def _ways_to_read(reader: kbatch.TopicReader) -> list[Callable[[Any], Iterator[int]]]:
    """Return functions that yield the offsets of ranges."""

    def records(ranges: Any) -> Iterator[int]:
        return (each.offset for each in reader.read_records(ranges))

    def batches(ranges: Any) -> Iterator[int]:
        for batch in reader.read(ranges, columns=["offset"]):
            yield from batch["offset"].to_pylist()

    return [records, batches]


def run_ranges(broker: Broker, rng: random.Random, outcomes: Counter[str]) -> None:
    """Interrupt reads of ranges. Each gives records without a gap, the next one all; memory comes back."""
    count = 1000
    partition = kbatch.TopicPartition(_filled_topic(broker, rng, count), 0)
    settings: dict[str, Any] = {"max_partition_fetch_bytes": rng.choice((2000, 1 << 20))}
    with kbatch.TopicReader(bootstrap_servers=broker.bootstrap_servers, **settings) as reader:
        ways = _ways_to_read(reader)
        for _ in range(INTERRUPTS):
            start, found = rng.randrange(count), list[int]()
            with suppress(Interrupt), interrupted(rng):
                while True:
                    found.clear()
                    for offset in rng.choice(ways)({partition: (start, count)}):
                        found.append(offset)
            assert found == list(range(start, start + len(found)))
            gc.collect()  # what the traceback has kept, which ends the read
            for way in ways:
                assert list(way({partition: (start, count)})) == list(range(start, count))
            outcomes["interrupts of ranges"] += 1
        end = time.monotonic() + SECONDS
        while unread := reader._runtime.engine._budget.unread:
            assert time.monotonic() < end, unread
            time.sleep(0.001)


def import_everything(broker: Broker) -> None:
    """Make each call once, with each codec."""
    for codec in CODECS:
        lap = Round(broker, random.Random(codec))
        lap.settings["compression_type"] = codec
        with kbatch.Producer(**lap.settings) as producer, suppress(kbatch.DeliveryError):
            for call in _calls(lap, producer):
                with suppress(KafkaError):  # what was purged
                    call()
            producer.flush(SECONDS)
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="first") as producer:
        producer.init_transactions()
        for end in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            producer.send(TOPIC, b"imported")
            offsets = {kbatch.TopicPartition(TOPIC, 0): kbatch.OffsetAndMetadata(1)}
            producer.send_offsets_to_transaction(offsets, "group of imports")
            end()
    for seed in range(2):
        with kbatch.Consumer(**_settings_of_a_group(broker, random.Random(seed))) as member:
            member.subscribe([TOPIC])
            for call in _calls_of_a_member(random.Random(seed), member):
                with suppress(KafkaError):  # what is not assigned
                    call()
    asyncio.run(_import_for_a_loop(broker))
    partition = kbatch.TopicPartition(_filled_topic(broker, random.Random(0), 1), 0)
    with kbatch.TopicReader(bootstrap_servers=broker.bootstrap_servers) as reader:
        for way in _ways_to_read(reader):
            assert list(way({partition: (0, 1)})) == [0]


async def _import_for_a_loop(broker: Broker) -> None:
    lap = Round(broker, random.Random(0))
    producer = kbatch.AsyncProducer(**lap.settings)
    for task in _tasks(lap, producer):
        with suppress(KafkaError):  # what was purged
            await task()
    await _end(producer)


KINDS = (
    *(run_threads, run_threads, run_transactions, run_loop, run_group, run_reader),
    *(run_polling_task, run_ranges),
)


def _broker() -> Broker:
    return Broker(
        {TOPIC: PARTITIONS}, group_initial_rebalance_delay_ms=0, group_consumer_heartbeat_interval_ms=50
    )


def play(run: campaign.Run) -> None:
    """Check a block in the main thread of this process, and set its signal handler."""
    rng = random.Random(f"interrupts {run.block}")

    def interrupt(number: int, frame: object) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    logging.disable(logging.CRITICAL)
    sys.unraisablehook, hook = lambda unraisable: None, sys.unraisablehook
    try:
        with warnings.catch_warnings(), _broker() as broker:
            warnings.simplefilter("ignore")  # of coroutines that an interrupt kept from being started
            import_everything(broker)
            for number in range(run.cases):
                kind = KINDS[number % len(KINDS)]
                run.say(number, kind.__name__)
                kind(broker, rng, run.outcomes)
    finally:
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = hook
        logging.disable(logging.NOTSET)
