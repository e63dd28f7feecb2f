"""Producer: how it ends, with close() or without, when it is interrupted, forked, dropped or forgotten."""

from __future__ import annotations

import copy
import gc
import operator
import pickle
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kbatch
from kbatch import (
    AsyncProducer,
    DeliveryError,
    IllegalStateError,
    KafkaTimeoutError,
    Producer,
    RecordMetadata,
)
from kbatch.config import KEYS
from kbatch.config.keys import LONGEST_IDLE_MS
from kbatch.config.values import LONG
from kbatch.errors import ConfigError, ProducerClosedError
from kbatch.interceptors import Interceptor
from kbatch.producer import base
from kbatch.testing import Broker
from tests.support.patience import repeat_until, until
from tests.support.producing import (
    SECONDS,
    SECONDS_MS,
    TOPIC,
    CallbackLog,
    producing,
    requests_seen,
    values,
    within,
)
from tests.support.running_threads import threads_named
from tests.support.shells import new_producer

pytestmark = pytest.mark.usefixtures("shell")


THREADS = "kbatch-sender", "kbatch-delivery", "kbatch-closer"


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    until(lambda: not threads_named(*THREADS))


# close


def test_close_sends_what_is_left(broker: Broker) -> None:
    with producing(broker, linger_ms=600_000, delivery_timeout_ms=2**31 - 1) as producer:
        noted = CallbackLog()
        delivery = producer.send(TOPIC, b"value", on_delivery=noted)
        producer.close()
        assert (delivery.done(), len(noted.noted)) == (True, 1)
        assert values(broker) == [b"value"]
        producer.close()
        producer.close(timeout=0)
        producer.flush()
        producer.flush(timeout=0)
        assert "closed" in repr(producer)
        for call in (
            lambda: producer.send(TOPIC, b""),
            lambda: producer.try_send(TOPIC, b""),
            lambda: producer.partitions_for(TOPIC),
            producer.purge,
            producer.resume,
        ):
            with pytest.raises(ProducerClosedError, match="is closed"):
                call()
        with pytest.raises(kbatch.PartialSendError):
            producer.send_many(TOPIC, [(None, b"")])
        assert producer.metrics()


@pytest.mark.parametrize("timeout", [0, 0.05])
def test_N03_close_gives_up_what_takes_longer(broker: Broker, timeout: float) -> None:
    with producing(broker) as producer:
        producer.send(TOPIC, b"").result(SECONDS)
        broker.hold_high_watermark(TOPIC, 0)
        seen = requests_seen(broker)
        held = producer.send(TOPIC, b"")
        seen.get(timeout=SECONDS)
        noted = CallbackLog()
        queued = producer.send(TOPIC, b"", on_delivery=noted)
        with pytest.raises(DeliveryError):
            producer.close(timeout)
        error = held.exception(0)
        assert isinstance(error, ProducerClosedError) and error.possibly_persisted
        assert isinstance(queued.exception(0), ProducerClosedError)
        assert isinstance(noted.next()[1], ProducerClosedError)


def test_close_0_sends_nothing_more(broker: Broker) -> None:
    keys: dict[str, Any] = {"linger_ms": 600_000, "delivery_timeout_ms": 2**31 - 1}
    for _ in range(30):
        with producing(broker, **keys) as producer:
            delivery = producer.send(TOPIC, b"", on_delivery=(noted := CallbackLog()))
            producer.close(timeout=0)
            error = delivery.exception(0)
            assert isinstance(error, ProducerClosedError) and not error.possibly_persisted
            assert isinstance(noted.next()[1], ProducerClosedError)
    assert values(broker) == []


@pytest.mark.threads
def test_N03_close_in_a_callback_waits_for_nothing(broker: Broker) -> None:
    with producing(broker, max_in_flight_requests_per_connection=1) as producer:
        closed = threading.Event()
        later = CallbackLog()
        may_close = threading.Event()

        def on_delivery(metadata: RecordMetadata, error: BaseException | None) -> None:
            assert may_close.wait(SECONDS)
            producer.close(timeout=SECONDS)
            closed.set()

        producer.send(TOPIC, b"first", on_delivery=on_delivery).result(SECONDS)
        broker.hold_high_watermark(TOPIC, 0)
        producer.send(TOPIC, b"held", on_delivery=later)
        producer.send(TOPIC, b"queued", on_delivery=later)
        may_close.set()
        assert closed.wait(SECONDS)
        errors = [later.next()[1], later.next()[1]]
        assert all(isinstance(error, ProducerClosedError) for error in errors)
        producer.close()


@pytest.mark.threads
def test_close_in_a_callback_ends_a_close_that_waits(broker: Broker) -> None:
    closed = Closed()
    with producing(broker, interceptor_classes=[closed]) as producer:
        entered, may_close = threading.Event(), threading.Event()

        def on_delivery(metadata: RecordMetadata, error: BaseException | None) -> None:
            entered.set()
            assert may_close.wait(SECONDS)
            producer.close()

        producer.send(TOPIC, b"", on_delivery=on_delivery).result(SECONDS)
        broker.hold_high_watermark(TOPIC, 0)
        held = producer.send(TOPIC, b"", on_delivery=CallbackLog())
        assert entered.wait(SECONDS)
        closing = within(producer.close)
        until(lambda: "closed" in repr(producer))
        may_close.set()
        assert closing.exception(SECONDS) is None
        assert isinstance(held.exception(0), ProducerClosedError)
    assert closed.count == 1


class Closed(Interceptor):
    def __init__(self) -> None:
        self.count = 0

    def close(self) -> None:
        self.count += 1


def test_several_threads_may_close(broker: Broker) -> None:
    closed = Closed()
    with producing(broker, interceptor_classes=[closed]) as producer:
        broker.hold_high_watermark(TOPIC, 0)
        seen = requests_seen(broker)
        delivery = producer.send(TOPIC, b"", on_delivery=CallbackLog())
        seen.get(timeout=SECONDS)
        closings = [within(producer.close) for _ in range(4)]
        until(lambda: "closed" in repr(producer))
        broker.hold_high_watermark(TOPIC, 0, False)
        assert [closing.exception(SECONDS) for closing in closings] == [None] * 4
        assert delivery.result(0).offset == 0
    assert closed.count == 1


def test_close_0_ends_a_close_and_a_flush_that_wait(broker: Broker) -> None:
    with producing(broker) as producer:
        broker.hold_high_watermark(TOPIC, 0)
        delivery = producer.send(TOPIC, b"", on_delivery=CallbackLog())
        waiting = [within(producer.flush), within(producer.close)]
        until(lambda: "closed" in repr(producer))
        producer.close(timeout=0)
        for each in waiting:
            each.exception(SECONDS)
        assert isinstance(delivery.exception(0), ProducerClosedError)


@pytest.mark.threads
def test_close_waits_for_callbacks_no_longer_than_its_timeout(broker: Broker) -> None:
    with producing(broker) as producer:
        may_end, ended = threading.Event(), threading.Event()

        def on_delivery(metadata: RecordMetadata, error: BaseException | None) -> None:
            may_end.wait(SECONDS)
            ended.set()

        producer.send(TOPIC, b"", on_delivery=on_delivery).result(SECONDS)
        producer.close(timeout=0.05)
        with pytest.raises(KafkaTimeoutError, match="callbacks have not run"):
            producer.flush(0.05)
        may_end.set()
        producer.flush(SECONDS)
        assert ended.is_set()


def test_senders_that_race_with_close_lose_nothing(broker: Broker) -> None:
    for _ in range(4):
        with producing(broker) as producer:
            producer.partitions_for(TOPIC)

            def send_on(producer: Producer = producer) -> list[kbatch.Delivery]:
                deliveries = []
                try:
                    while True:
                        deliveries.append(producer.send(TOPIC, b""))
                except ProducerClosedError:
                    return deliveries

            sending = [within(send_on) for _ in range(4)]
            producer.send(TOPIC, b"").result(SECONDS)
            producer.close()
            for each in sending:
                assert all(delivery.exception(0) is None for delivery in each.result(SECONDS))


# with


def test_block_sends_all_before_it_ends(broker: Broker) -> None:
    keys: dict[str, Any] = {"linger_ms": 600_000, "delivery_timeout_ms": 2**31 - 1}
    with new_producer(bootstrap_servers=broker.bootstrap_servers, **keys) as producer:
        producer.send(TOPIC, b"value")
    assert values(broker) == [b"value"]


def test_block_that_ends_badly_sends_what_was_accepted(broker: Broker) -> None:
    keys: dict[str, Any] = {"retries": 0, "enable_idempotence": False, "linger_ms": 0}
    with (
        pytest.raises(ZeroDivisionError) as raised,
        new_producer(bootstrap_servers=broker.bootstrap_servers, **keys) as producer,
    ):
        producer.send(TOPIC, b"value").result(SECONDS)
        broker.fail_next("Produce", "NOT_ENOUGH_REPLICAS")
        producer.send(TOPIC, b"lost")
        raise ZeroDivisionError
    assert "in addition, a record failed with NotEnoughReplicasError" in raised.value.__notes__[0]
    assert values(broker) == [b"value"]


def test_block_may_be_left_by_close(broker: Broker) -> None:
    with new_producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(TOPIC, b"value")
        producer.close()
    assert values(broker) == [b"value"]


def test_invalid_configuration_leaves_nothing_open() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for keys in ({}, {"nonsense": 1}, {"security_protocol": "SASL_SSL"}, {"interceptor_classes": [5]}):
            with pytest.raises(ConfigError):
                new_producer(**({"bootstrap_servers": "127.0.0.1:1"} if keys else {}), **keys)
        gc.collect()


# Dropped


def defect(now_ns: int) -> None:
    raise ZeroDivisionError


def drop(broker: Broker, *, in_cycle: bool, is_broken: bool = False) -> CallbackLog:
    noted = CallbackLog()
    producer = new_producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=600_000)
    if is_broken:  # its thread has ended, and holds nothing of it any more
        producer._runtime.engine.submit(defect)
        producer._runtime.network.wake()
        until(lambda: not producer._runtime.network.is_alive)
    else:
        producer.send(TOPIC, b"", on_delivery=noted)
    if in_cycle:
        cycle: list[Any] = [producer]
        cycle.append(cycle)
    return noted


@pytest.mark.filterwarnings("always::ResourceWarning")
@pytest.mark.parametrize("in_cycle", [False, True])
def test_dropped_producer_says_so_sends_what_is_left_and_ends(broker: Broker, in_cycle: bool) -> None:
    with pytest.warns(
        ResourceWarning, match=r"<(?:Async)?Producer kbatch-producer-\d+, open> was dropped without close"
    ):
        noted = drop(broker, in_cycle=in_cycle)
        gc.collect()
        assert noted.next()[1] is None
    assert values(broker) == [b""]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_dropped_producer_whose_time_is_over_fails_its_records(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "EXIT_SECONDS", 0.01)
    broker.hold_high_watermark(TOPIC, 0)
    noted = drop(broker, in_cycle=False)
    gc.collect()
    error = noted.next()[1]
    assert isinstance(error, ProducerClosedError)
    assert "close() it, or use a with block" in str(error)


@pytest.mark.filterwarnings("always::ResourceWarning")
def test_dropped_producer_that_had_failed_ends_in_silence(
    broker: Broker, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.warns(ResourceWarning, match="was dropped"):
        drop(broker, in_cycle=True, is_broken=True)
        repeat_until(gc.collect, lambda: not threads_named(*THREADS))
    assert "Exception" not in capfd.readouterr().err


@pytest.mark.filterwarnings("always::ResourceWarning")
def test_producer_that_the_sender_collects_ends_too(broker: Broker) -> None:
    producer = new_producer(bootstrap_servers=broker.bootstrap_servers)
    noted = CallbackLog()
    producer.send(TOPIC, b"", on_delivery=noted)
    noted.next()
    cycle: list[Any] = [producer]
    cycle.append(cycle)
    network, engine = producer._runtime.network, producer._runtime.engine
    gc.disable()
    try:
        with pytest.warns(ResourceWarning, match="was dropped"):
            del producer, cycle
            engine.submit(lambda now_ns: gc.collect())
            network.wake()
            until(lambda: not network.is_alive)
    finally:
        gc.enable()


def test_defect_ends_the_producer_and_every_wait(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with producing(broker, linger_ms=600_000) as producer:
        delivery = producer.send(TOPIC, b"")
        producer._runtime.engine.submit(defect)
        producer._runtime.network.wake()
        error = delivery.exception(SECONDS)
        assert "a defect of kbatch ended the client: ZeroDivisionError" in str(error)
        for call in (producer.flush, lambda: producer.send(TOPIC, b"")):
            with pytest.raises(kbatch.KafkaError, match="a defect"):
                call()
        with producer.recreate() as another:
            another.send(TOPIC, b"value")
    assert values(broker) == [b"value"]


# Threads that cannot be started any more


@pytest.mark.threads
def test_callbacks_run_where_there_are_no_new_threads(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    with producing(broker, linger_ms=600_000, delivery_timeout_ms=2**31 - 1) as producer:
        producer.partitions_for(TOPIC)
        noted = CallbackLog()
        producer.send(TOPIC, b"", on_delivery=noted)
        monkeypatch.setattr(threading.Thread, "start", refuse)
        producer.flush(SECONDS)
        assert [error for _, error in noted.noted] == [None]
        producer.close()


@pytest.mark.slow
def test_five_hundred_producers_leave_no_trace(broker: Broker) -> None:
    from pathlib import Path

    process = Path("/proc/self")
    if not process.exists():
        pytest.skip("there is no /proc")

    def left() -> tuple[int, int]:
        """Return the number of descriptors and of threads, without those in which asyncio looks up addresses,
        which stay.
        """
        gc.collect()
        of_asyncio = len(threads_named("asyncio_"))
        threads = len(list((process / "task").iterdir()))
        return len(list((process / "fd").iterdir())), threads - of_asyncio

    def resident_pages() -> int:
        gc.collect()
        return int((process / "statm").read_text().split()[1])

    def use(count: int) -> None:
        for _ in range(count):
            with new_producer(bootstrap_servers=broker.bootstrap_servers) as producer:
                producer.send(TOPIC, b"").result(SECONDS)
                producer.send(TOPIC, b"", on_delivery=lambda *_: None)
            del producer

    use(1)
    before = left()
    use(100)
    pages = resident_pages()
    use(400)
    until(lambda: all(map(operator.le, left(), before)))
    assert resident_pages() - pages < 4000, "each keeps 40 KiB"


def test_closed_producer_is_collected(broker: Broker) -> None:
    import weakref

    producer = new_producer(bootstrap_servers=broker.bootstrap_servers, max_block_ms=SECONDS_MS)
    producer.send(TOPIC, b"", on_delivery=lambda *_: None).result(SECONDS)
    producer.close()
    found = weakref.ref(producer)
    network = weakref.ref(producer._runtime.network)
    del producer
    gc.collect()
    assert found() is None
    assert network() is None


@pytest.mark.parametrize("kind", [Producer, AsyncProducer])
@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_producer_is_not_copied(kind: Any, how: Callable[[Any], Any]) -> None:
    producer = kind(bootstrap_servers="localhost:1")
    try:
        with pytest.raises(TypeError, match=r"cannot be copied or pickled.*create another"):
            how(producer)
    finally:
        producer._close_now()


LONGEST = {
    key: next(time for time in (2**63 - 1, LONGEST_IDLE_MS) if row.check.holds(time))
    for key, row in KEYS.items()
    if row.type is LONG and not row.refused
}


@pytest.mark.parametrize("key", LONGEST)
def test_the_longest_time_is_a_time(broker: Broker, key: str) -> None:
    settings = {key: LONGEST[key], "security.protocol": "PLAINTEXT"}  # without which keys of SASL are refused
    with new_producer(settings, bootstrap_servers=broker.bootstrap_servers) as producer:
        delivery = producer.send(TOPIC, b"")
        producer.flush(SECONDS)
        assert delivery.result(SECONDS).offset == 0


@pytest.mark.parametrize("call", ["flush", "close", "group_ids"])
def test_what_is_no_time_is_refused(broker: Broker, call: str) -> None:
    with new_producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        with pytest.raises(TypeError, match="timeout must be a number of seconds, or None, got '5'"):
            getattr(producer, call)(timeout="5")
        producer.send(TOPIC, b"").result(SECONDS)


def test_illegal_states_are_one_family() -> None:
    assert issubclass(ProducerClosedError, IllegalStateError)
    assert issubclass(IllegalStateError, RuntimeError)
