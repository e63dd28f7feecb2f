"""Calls of transactions whose wait is cancelled or interrupted: made again they give the same outcome."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

from kbatch import AsyncProducer
from kbatch.core.producer.transaction_states import TransactionState
from kbatch.errors import (
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    PartialSendError,
    ProducerFencedError,
    SerializationError,
)
from kbatch.interceptors import Interceptor
from kbatch.testing import Broker
from tests.support.producing import (
    EITHER_VERSION,
    SECONDS,
    SECONDS_MS,
    TOPIC,
    TRANSACTIONAL_ID,
    transactional,
    values,
    within,
)
from tests.support.shells import Runner

pytestmark = EITHER_VERSION

ENDS = pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
MANY = 100  # partitions
TOPICS = {TOPIC: 1, "wide": MANY}
# Files whose lines are interrupted.
CALLED = (
    "kbatch/core/client/engine.py",
    "kbatch/core/producer/engine.py",
    "kbatch/network/runtime.py",
    "kbatch/producer/base.py",
    "kbatch/producer/memory_queue.py",
    "kbatch/producer/runtime.py",
    "kbatch/producer/transactions.py",
    "kbatch/waiting/conditions.py",
    "kbatch/waiting/deadline.py",
    "kbatch/waiting/event_loop.py",
    "kbatch/waiting/methods.py",
    "kbatch/waiting/threads.py",
)


def made(broker: Broker, **keys: Any) -> AsyncProducer:
    defaults: dict[str, Any] = {
        "transactional_id": TRANSACTIONAL_ID,
        "linger_ms": 0,
        "retry_backoff_ms": 1,
    }
    return AsyncProducer(bootstrap_servers=broker.bootstrap_servers, **(defaults | keys))


def state_of(producer: AsyncProducer) -> TransactionState:
    assert producer._runtime.engine.transactions is not None
    return producer._runtime.engine.transactions.state


def is_waited_for_memory(producer: AsyncProducer) -> bool:
    return any(value for name, value in producer.metrics().items() if name.name == "waiting-threads")


def expected(end: str, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)] if end == "commit_transaction" else []


# Tasks


@ENDS
def test_T12_end_cancelled_at_any_step_can_be_repeated(broker: Broker, run: Runner, end: str) -> None:
    async def cancelled(producer: AsyncProducer, step: int) -> bool:
        """True if the call had returned before."""
        ending = asyncio.create_task(getattr(producer, end)())
        for _ in range(step):
            await asyncio.sleep(0)
        is_over = ending.done()
        ending.cancel()
        with suppress(asyncio.CancelledError):
            await ending
        return is_over

    async def program() -> None:
        async with made(broker) as producer:
            await producer.init_transactions()
            is_over, step = False, 0
            while not is_over:
                await producer.begin_transaction()
                await producer.send(TOPIC, b"%d" % step, on_delivery=lambda metadata, error: None)
                is_over = await cancelled(producer, step)
                if not is_over:
                    await getattr(producer, end)()
                with pytest.raises(IllegalStateError, match="no open transaction"):
                    await getattr(producer, end)()
                step += 1
            assert values(broker) == expected(end, step)

    run(program())


@ENDS
def test_T12_end_cancelled_during_callbacks_can_be_repeated(broker: Broker, run: Runner, end: str) -> None:
    noted: list[Any] = []

    def slow(metadata: Any, error: BaseException | None) -> None:
        noted.append(metadata)
        time.sleep(0.002)  # so that the loop has a turn for each

    async def program() -> None:
        async with made(broker, linger_ms=600_000, delivery_timeout_ms=1_000_000) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            for partition in range(MANY):
                await producer.send("wide", b"value", partition=partition, on_delivery=slow)
            ending = asyncio.create_task(getattr(producer, end)())
            await asyncio.sleep(0)
            while state_of(producer) is not TransactionState.READY:
                await asyncio.sleep(0)
            for _ in range(5):  # the task knows of it too
                await asyncio.sleep(0)
            assert len(noted) < MANY
            ending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await ending
            with pytest.raises(IllegalStateError, match=rf"{end}\(\) has an unknown outcome"):
                await producer.begin_transaction()
            await getattr(producer, end)()
            assert len(noted) == MANY
            async with producer.transaction():
                await producer.send(TOPIC, b"next")

    run(program())
    assert values(broker) == [b"next"]
    assert len(values(broker, topic="wide")) == (MANY if end == "commit_transaction" else 0)


def test_T12_cancelled_commit_that_fails_raises_when_repeated(broker: Broker, run: Runner) -> None:
    async def program() -> None:
        async with made(broker) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send(TOPIC, b"value")
            await producer.flush()
            broker.fail_next("EndTxn", "PRODUCER_FENCED")
            ending = asyncio.create_task(producer.commit_transaction())
            await asyncio.sleep(0)
            ending.cancel()
            while state_of(producer) is not TransactionState.FATAL_ERROR:
                await asyncio.sleep(0)
            with pytest.raises(ProducerFencedError):
                await producer.commit_transaction()

    run(program())


def test_T26_cancelled_table_forces_abort_and_commit_says_why(broker: Broker, run: Runner) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"value": [bytes(1000)] * 100})

    async def program() -> None:
        keys = {"batch_size": 1000, "buffer_memory": 24_000, "max_block_ms": SECONDS_MS}
        async with made(broker, **keys) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            broker.hold_high_watermark(TOPIC, 0)
            sending = asyncio.create_task(producer.send_table(TOPIC, table))
            while not is_waited_for_memory(producer):
                await asyncio.sleep(0)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            broker.hold_high_watermark(TOPIC, 0, False)
            with pytest.raises(KafkaError, match="sending the table was cancelled") as raised:
                await producer.commit_transaction()
            assert raised.value.abortable
            assert not isinstance(raised.value, SerializationError)
            await producer.abort_transaction()

    run(program())
    assert values(broker) == []


# Threads


def test_a_commit_waits_for_callbacks_up_to_its_time(broker: Broker) -> None:
    may_run = threading.Event()
    noted: list[Any] = []

    def on_delivery(metadata: Any, error: BaseException | None) -> None:
        may_run.wait(SECONDS)
        noted.append(error)

    with transactional(broker) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(TOPIC, b"value", on_delivery=on_delivery)
        is_known = False
        while not is_known:
            with suppress(KafkaTimeoutError):  # of the commit itself
                producer.commit_transaction(timeout=0.2)
                is_known = True
        assert values(broker) == [b"value"]
        assert noted == []
        may_run.set()
        producer.flush()
        assert noted == [None]


@ENDS
def test_T12_end_interrupted_at_any_line_can_be_repeated(broker: Broker, end: str) -> None:
    with transactional(broker) as producer:
        producer.init_transactions()
        is_over, line = False, 0
        while not is_over:
            producer.begin_transaction()
            producer.send(TOPIC, b"%d" % line, on_delivery=lambda metadata, error: None)
            is_over = not interrupted(getattr(producer, end), line)
            if not is_over:
                getattr(producer, end)()
            with pytest.raises(IllegalStateError, match="no open transaction"):
                getattr(producer, end)()
            line += 1
        assert line > 20
        assert values(broker) == expected(end, line)


def test_T12_begin_interrupted_at_any_line_can_be_repeated(broker: Broker) -> None:
    with transactional(broker) as producer:
        producer.init_transactions()
        is_over, line = False, 0
        while not is_over:
            is_over = not interrupted(producer.begin_transaction, line)
            if not is_over:
                producer.begin_transaction()
            producer.send(TOPIC, b"%d" % line)
            producer.commit_transaction()
            line += 1
        assert line > 20
        assert values(broker) == expected("commit_transaction", line)


def interrupted(call: Callable[[], object], line: int) -> bool:
    """Call it, and raise KeyboardInterrupt before its line of this number; True if it came so far."""
    left = line

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(CALLED):
            return None
        if event == "line":
            left -= 1
            if left < 0:
                sys.settrace(outer)
                raise KeyboardInterrupt
        return trace

    outer = sys.gettrace()  # of coverage
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(outer)
    return False


# What is sent while another thread ends the transaction


class Meanwhile(Interceptor):
    """The user's code inside send(): during the call that is next, another thread ends the transaction."""

    def __init__(self) -> None:
        self.end: Callable[[], object] | None = None

    def happens(self, *_: Any) -> None:
        end, self.end = self.end, None
        if end is not None:
            within(end).result(SECONDS)

    def serialize(self, topic: str, headers: Any, data: Any) -> bytes:
        self.happens()
        return bytes(data)

    def partition(self, *_: Any) -> int:
        self.happens()
        return 0

    # of an interceptor

    def on_send(self, record: Any) -> Any:
        self.happens()

    def on_send_table(self, topic: str | None, table: Any) -> Any:
        self.happens()
        return table

    # of headers, and of a table's data

    def __iter__(self) -> Iterator[Any]:
        self.happens()
        return iter([("h", b"")])

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        self.happens()
        return [("h", b"")][index]

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        pa = pytest.importorskip("pyarrow")
        self.happens()
        return pa.table({"value": [b"late"]}).__arrow_c_stream__(requested_schema)


def _a_record(producer: Any, meanwhile: Meanwhile) -> Any:
    return producer.send(TOPIC, b"late", b"k")


def _headers(producer: Any, meanwhile: Meanwhile) -> Any:
    return producer.send(TOPIC, b"late", headers=meanwhile)


def _many(producer: Any, meanwhile: Meanwhile) -> Any:
    return producer.send_many(TOPIC, [(None, b"late")])


def _a_table(producer: Any, meanwhile: Meanwhile) -> Any:
    return producer.send_table(TOPIC, pytest.importorskip("pyarrow").table({"value": [b"late"]}))


def _data(producer: Any, meanwhile: Meanwhile) -> Any:
    return producer.send_table(TOPIC, meanwhile)


PLACES: dict[str, tuple[Callable[[Meanwhile], dict[str, Any]], Callable[[Any, Meanwhile], Any]]] = {
    "value serializer": (lambda m: {"value_serializer": m.serialize}, _a_record),
    "key serializer": (lambda m: {"key_serializer": m.serialize}, _a_record),
    "partitioner": (lambda m: {"partitioner_class": m.partition}, _a_record),
    "headers": (lambda m: {}, _headers),
    "interceptor": (lambda m: {"interceptor_classes": [m]}, _a_record),
    "send_many": (lambda m: {"value_serializer": m.serialize}, _many),
    "table's interceptor": (lambda m: {"interceptor_classes": [m]}, _a_table),
    "table's data": (lambda m: {}, _data),
}


@ENDS
@pytest.mark.parametrize("begins", [True, False], ids=["next", "none"])
@pytest.mark.parametrize("place", PLACES)
def test_what_is_sent_while_its_transaction_ends_is_part_of_none(
    broker: Broker, end: str, begins: bool, place: str
) -> None:
    """The record was accepted: in no transaction, or in the next one."""
    meanwhile = Meanwhile()
    keys, send = PLACES[place]
    with transactional(broker, **keys(meanwhile)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(TOPIC, b"first", partition=0).result(SECONDS)

        def ends() -> None:
            getattr(producer, end)()
            if begins:
                producer.begin_transaction()

        meanwhile.end = ends
        with pytest.raises((IllegalStateError, PartialSendError)) as refused:
            send(producer, meanwhile)
        assert isinstance(getattr(refused.value, "cause", refused.value), IllegalStateError)
        assert meanwhile.end is None
        if not begins:
            producer.begin_transaction()
        producer.send(TOPIC, b"second", partition=0)
        producer.commit_transaction()
        kept = [b"first"] if end == "commit_transaction" else []
        assert values(broker) == [*kept, b"second"]
        assert b"late" not in [record.value for record in broker.records(TOPIC, 0, committed=False)]
