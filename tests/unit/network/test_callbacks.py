"""The thread that runs callbacks: all of them, in order, even if they raise."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kbatch._native.batch.delivery import Completion, Delivery
from kbatch._native.send.accumulator import RecordAccumulator
from kbatch.errors import KafkaError
from kbatch.metrics import MetricsRegistry
from kbatch.network import DeliveryThread
from tests.support.accumulating import accumulator, is_whole, one, put
from tests.support.running_threads import threads_named
from tests.unit.network.networking import SECONDS, config


@pytest.fixture
def deliveries() -> Iterator[DeliveryThread]:
    thread = DeliveryThread(config(client_id="test"))
    yield thread
    assert thread.close(SECONDS)


def settled(*callbacks: Callable[..., Any] | None, records: RecordAccumulator | None = None) -> Completion:
    """Make a completion of a delivered batch, with a record for each of the callbacks."""
    records = records or accumulator(batch_size=1 << 20)
    for callback in callbacks:
        put(records, on_delivery=callback)
    batch = one(records)
    batch.complete(100)
    return batch.completion


def is_running() -> bool:
    return bool(threads_named("kbatch-delivery-test"))


def test_callbacks_run_in_order_on_a_thread_of_their_own(deliveries: DeliveryThread) -> None:
    seen: list[Any] = []

    def noted(metadata: Any, error: Any) -> None:
        seen.append((threading.current_thread().name, metadata.offset, error))

    deliveries.deliver([settled(noted, None, noted), settled(noted)])
    deliveries.deliver([settled(noted)])
    assert deliveries.close(SECONDS)
    name = "kbatch-delivery-test"
    assert seen == [(name, offset, None) for offset in (100, 102, 100, 100)]


def test_a_failed_batch_gives_its_error(deliveries: DeliveryThread) -> None:
    seen: list[Any] = []
    records = accumulator()
    put(records, on_delivery=lambda metadata, error: seen.append((metadata.offset, error)))
    batch = one(records)
    batch.fail(error := KafkaError("expired"))
    deliveries.deliver([batch.completion])
    assert deliveries.close(SECONDS)
    assert seen == [(-1, error)]


def test_there_is_no_thread_without_callbacks(deliveries: DeliveryThread) -> None:
    records = accumulator()
    deliveries.deliver([settled(None, records=records)])
    deliveries.deliver([])
    assert not is_running()
    assert is_whole(records)
    assert deliveries.close(0)


def test_the_records_charge_and_a_flush_end_with_the_callbacks(deliveries: DeliveryThread) -> None:
    records = accumulator()
    put(records, on_delivery=lambda metadata, error: None)
    flush = records.begin_flush()
    batch = one(records)
    batch.complete(0)
    assert not flush.done()
    deliveries.deliver([batch.completion])
    assert flush.wait(SECONDS)
    assert is_whole(records)


def test_delivery_result_is_available_in_its_callback(deliveries: DeliveryThread) -> None:
    seen: list[Any] = []
    records = accumulator()
    made: list[Delivery] = []
    made.append(put(records, on_delivery=lambda *_: seen.append(made[0].result(0).offset)))
    batch = one(records)
    batch.complete(7)
    deliveries.deliver([batch.completion])
    assert deliveries.close(SECONDS)
    assert seen == [7]


def test_callback_thread_is_reported() -> None:
    seen: list[Any] = []
    deliveries = DeliveryThread(config(), None, lambda ident: seen.append(("started", ident)))
    for _ in range(2):
        deliveries.deliver([settled(lambda *_: seen.append(("called", threading.get_ident())))])
        assert deliveries.close(SECONDS)
    assert [kind for kind, _ in seen] == ["started", "called"] * 2
    assert seen[0][1] == seen[1][1]
    assert seen[2][1] == seen[3][1]


# Exceptions of callbacks


def test_what_a_callback_raises_is_logged_and_the_next_follow(
    deliveries: DeliveryThread, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    def broken(metadata: Any, error: Any) -> None:
        raise ZeroDivisionError("in a callback")

    with caplog.at_level(logging.ERROR, "kbatch"):
        deliveries.deliver([settled(broken, lambda *_: seen.append("same batch"), broken)])
        deliveries.deliver([settled(lambda *_: seen.append("next batch"))])
        assert deliveries.close(SECONDS)
    assert seen == ["same batch", "next batch"]
    first, rest = caplog.records
    assert first.levelname == "ERROR"
    assert "broken" in first.getMessage()
    assert first.exc_info is not None
    assert isinstance(first.exc_info[1], ZeroDivisionError)
    assert rest.getMessage() == "callbacks raised 1 more error(s)"


class Recorder:
    def called(self, metadata: Any, error: Any) -> None:
        raise ValueError("of a method")

    def __call__(self, metadata: Any, error: Any) -> None:
        raise ValueError("of an object")


def closures(count: int) -> list[Callable[..., Any]]:
    return [lambda metadata, error, number=number: 1 / 0 for number in range(count)]


@pytest.mark.parametrize(
    "callbacks",
    [
        closures(10),
        [Recorder().called for _ in range(10)],
        [Recorder() for _ in range(10)],
        [int] * 10,  # which has no source
    ],
    ids=["closures", "methods", "objects", "types"],
)
def test_one_traceback_for_each_function(
    callbacks: list[Any], deliveries: DeliveryThread, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "kbatch"):
        deliveries.deliver([settled(*callbacks)])
        assert deliveries.close(SECONDS)
    assert len([record for record in caplog.records if record.exc_info]) == 1
    assert caplog.records[-1].getMessage() == "callbacks raised 9 more error(s)"
    assert len(caplog.records) == 2


def test_different_functions_have_their_tracebacks_up_to_a_limit(
    deliveries: DeliveryThread, caplog: pytest.LogCaptureFixture
) -> None:
    functions: list[Any] = []
    for number in range(150):
        names: dict[str, Any] = {}
        exec(f"def failing_{number}(metadata, error):\n    raise ValueError({number})", names)
        functions.append(names[f"failing_{number}"])
    with caplog.at_level(logging.ERROR, "kbatch"):
        deliveries.deliver([settled(*functions)])
        assert deliveries.close(SECONDS)
    assert len([record for record in caplog.records if record.exc_info]) == 100
    assert caplog.records[-1].getMessage() == "callbacks raised 50 more error(s)"


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
def test_nothing_that_a_callback_raises_ends_the_thread(
    error: BaseException, deliveries: DeliveryThread, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    def leaving(*_: Any) -> None:
        raise error

    deliveries.deliver([settled(leaving, lambda *_: seen.append("next"), leaving)])
    deliveries.deliver([settled(lambda *_: seen.append("later"))])
    assert deliveries.close(SECONDS)
    assert seen == ["next", "later"]
    assert type(error).__name__ in caplog.text
    assert f"the callback {leaving!r} raised" in caplog.text


def test_a_log_that_cannot_be_written_changes_nothing(
    deliveries: DeliveryThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def full(*_: Any, **__: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("kbatch.network.callbacks.logger.error", full)
    deliveries.deliver([settled(lambda *_: 1 / 0, lambda *_: seen.append("next"))])
    assert deliveries.close(SECONDS)
    assert seen == ["next"]


# Closing


def test_calls_from_a_callback_are_recognized(deliveries: DeliveryThread) -> None:
    seen: list[bool] = []
    assert not deliveries.in_callback()
    deliveries.deliver([settled(lambda *_: seen.append(deliveries.in_callback()))])
    assert deliveries.close(SECONDS)
    assert seen == [True]
    assert not deliveries.in_callback()


def test_close_waits_no_longer_than_it_was_given(deliveries: DeliveryThread) -> None:
    go_on = threading.Event()
    seen: list[str] = []

    def slow(*_: Any) -> None:
        assert go_on.wait(SECONDS)
        seen.append("slow")

    deliveries.deliver([settled(slow, lambda *_: seen.append("behind"))])
    assert not deliveries.close(0)
    assert not deliveries.close(0.001)
    deliveries.deliver([settled(lambda *_: seen.append("after close"))])
    go_on.set()
    assert deliveries.close(SECONDS)
    assert seen == ["slow", "behind", "after close"]
    assert not is_running()


def test_callbacks_added_after_close_still_run(deliveries: DeliveryThread) -> None:
    seen: list[int] = []
    for number in range(3):
        deliveries.deliver([settled(lambda *_, number=number: seen.append(number))])
        assert deliveries.close(SECONDS)
        assert not is_running()
    assert seen == [0, 1, 2]


def test_close_within_a_callback_does_not_wait(deliveries: DeliveryThread) -> None:
    seen: list[Any] = []
    deliveries.deliver([settled(lambda *_: seen.append(deliveries.close()), lambda *_: seen.append("next"))])
    assert deliveries.close(SECONDS)
    assert seen == [False, "next"]


def test_a_callback_may_have_more_delivered(deliveries: DeliveryThread) -> None:
    seen: list[str] = []
    inner = settled(lambda *_: seen.append("inner"))
    deliveries.deliver([settled(lambda *_: deliveries.deliver([inner]), lambda *_: seen.append("outer"))])
    assert deliveries.close(SECONDS)
    assert seen == ["outer", "inner"]


def test_many_threads_deliver_and_close(deliveries: DeliveryThread) -> None:
    seen: list[int] = []

    def deliver() -> None:
        for number in range(100):
            deliveries.deliver([settled(lambda *_, number=number: seen.append(number))])
            if number % 10 == 0:
                deliveries.close(0)

    threads = [threading.Thread(target=deliver) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert deliveries.close(SECONDS)
    assert sorted(seen) == sorted([*range(100)] * 4)


# Metrics


def values_of(metrics: MetricsRegistry) -> dict[str, float]:
    return {name.name: value for name, value in metrics.snapshot(1).items()}


def test_how_many_wait_is_a_metric() -> None:
    metrics = MetricsRegistry("test")
    deliveries = DeliveryThread(config(), metrics)
    arrived, go_on = threading.Event(), threading.Event()

    def slow(*_: Any) -> None:
        arrived.set()
        assert go_on.wait(SECONDS)

    deliveries.deliver([settled(slow, slow, slow), settled(lambda *_: None)])
    assert arrived.wait(SECONDS)
    assert values_of(metrics)["callback-queue-size"] == 4
    go_on.set()
    assert deliveries.close(SECONDS)
    assert values_of(metrics)["callback-queue-size"] == 0


@pytest.mark.parametrize(("level", "is_recorded"), [("INFO", False), ("DEBUG", True), ("TRACE", True)])
def test_time_of_callbacks_is_recorded_if_requested(level: str, is_recorded: bool) -> None:
    metrics = MetricsRegistry("test", recording_level=level)
    deliveries = DeliveryThread(config(metrics_recording_level=level), metrics)
    deliveries.deliver([settled(lambda *_: None)])
    assert deliveries.close(SECONDS)
    value = values_of(metrics).get("callback-time-ns-avg")
    assert (value is not None and value > 0) == is_recorded
