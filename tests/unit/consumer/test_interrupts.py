"""Interrupts (Ctrl-C) of consumers: the program goes on, and nothing is lost or comes twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import kbatch
from kbatch._native.io.interrupts import at_once
from kbatch.consumer import threads
from kbatch.testing import Broker
from tests.support.interrupting import Interrupt, Interrupter
from tests.support.patience import until
from tests.support.polling import FIRST, TOPIC, consuming, fill
from tests.support.producing import SECONDS
from tests.support.running_threads import threads_named

TOPICS = {TOPIC: 3}
COUNT = 3000
pytestmark = [
    pytest.mark.threads,
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


# They note what the program got. Only kbatch's code is interrupted, not what is made of it later.


def taken_by_poll(consumer: Any, found: list[Any]) -> None:
    polled = consumer.poll(SECONDS, max_records=2)
    found.append(polled)


def taken_by_poll_table(consumer: Any, found: list[Any]) -> None:
    table = consumer.poll_table(SECONDS, max_rows=2, columns=["offset"])
    found.append(table)


def taken_by_iteration(consumer: Any, found: list[Any]) -> None:
    for record in consumer:
        found.append([record])
        if record.offset % 2:
            break


def taken_until_end(consumer: Any, found: list[Any]) -> None:
    for record in consumer.until_end():
        found.append([record])
        if record.offset % 2:
            break


def offsets_of(found: list[Any]) -> list[int]:
    lists = (
        [each.offset for each in of] if not isinstance(of, pa.Table) else of["offset"].to_pylist()
        for of in found
    )
    return [offset for offsets in lists for offset in offsets]


TAKERS = [taken_by_poll, taken_by_poll_table, taken_by_iteration, taken_until_end]


@pytest.mark.slow
@pytest.mark.parametrize("is_quick", [True, False], ids=["quick", "looks"])
@pytest.mark.parametrize("take", TAKERS)
def test_no_interrupt_loses_or_doubles_records(
    broker: Broker, shell: str, take: Callable[[Any, list[Any]], None], is_quick: bool
) -> None:
    """A poll that is quick is interrupted in the engine, too, which gets memory back."""
    fill(broker, COUNT, partitions=[0], batch_size=500)
    found: list[Any] = []
    interrupter = Interrupter("/kbatch/" if is_quick else "/kbatch/consumer/")
    with consuming(broker, FIRST, auto_commit_interval_ms=0) as consumer:
        take(consumer, found)
        while not interrupter.is_over:
            if not is_quick:
                consumer._backlog.note_change()
            with interrupter.interrupting():
                take(consumer, found)
        take(consumer, found)
    assert interrupter.number > (2 if is_quick else 50)
    offsets = offsets_of(found)
    assert offsets == list(range(len(offsets)))


@pytest.mark.slow
def test_an_interrupt_while_records_become_a_table_stops_no_poll(broker: Broker, shell: str) -> None:
    """The table and the next rows are of one fetch, and each has it decoded anew."""
    fill(broker, 500, partitions=[0])
    found: list[int] = []
    interrupter = Interrupter("/kbatch/consumer/")
    with consuming(broker, FIRST) as consumer:
        polled = consumer.poll(SECONDS, max_records=2)
        while not interrupter.is_over:
            with interrupter.interrupting():
                polled.table(["value"])
            found += consumer.poll_table(SECONDS, max_rows=1, columns=["offset"])["offset"].to_pylist()
    assert interrupter.number > 20
    assert found == list(range(2, 2 + len(found)))


@pytest.mark.parametrize("take", TAKERS[:2])
def test_interrupt_after_the_last_step_of_a_poll_takes_it_back(
    broker: Broker, shell: str, monkeypatch: pytest.MonkeyPatch, take: Callable[[Any, list[Any]], None]
) -> None:
    def interrupted(*arguments: Any, **keywords: Any) -> None:
        at_once(*arguments, **keywords)
        raise Interrupt

    fill(broker, COUNT, partitions=[0])
    found: list[Any] = []
    with consuming(broker, FIRST) as consumer:
        take(consumer, found)
        consumer._backlog.note_change()  # the poll is not quick
        with monkeypatch.context() as patch, pytest.raises(Interrupt):
            patch.setattr(threads, "at_once", interrupted)
            take(consumer, found)
        assert consumer.position(FIRST) == 2
        take(consumer, found)
    assert offsets_of(found) == [0, 1, 2, 3]


def test_interrupt_after_the_last_step_of_a_quick_poll_takes_it_back(broker: Broker, shell: str) -> None:
    fill(broker, COUNT, partitions=[0])
    with consuming(broker, FIRST) as consumer:
        quick = consumer._quick
        found = [consumer.poll(SECONDS, max_records=2)]

        def interrupted(timeout: float, max_records: int) -> None:
            if (polled := quick.poll(timeout, max_records)) is not None:
                found.append(polled)
                raise Interrupt

        consumer._quick = SimpleNamespace(poll=interrupted, left_of=quick.left_of)
        with pytest.raises(Interrupt):
            for _ in range(COUNT):  # until there are no changes any more
                found.append(consumer.poll(SECONDS, max_records=2))
        consumer._quick = quick
        taken_back = found.pop()
        assert consumer.position(FIRST) == taken_back[0].offset
        assert offsets_of([consumer.poll(SECONDS, max_records=2)]) == offsets_of([taken_back])


def test_poll_that_is_refused_takes_nothing_back(broker: Broker, shell: str) -> None:
    fill(broker, 10, partitions=[0])
    with consuming(broker, FIRST) as consumer:
        assert len(consumer.poll(SECONDS, max_records=2)) == 2
        with pytest.raises(ValueError, match="max_records"):
            consumer.poll(SECONDS, max_records=0)
        assert consumer.position(FIRST) == 2


def test_interrupted_seek_does_not_stop_the_partition(broker: Broker, shell: str) -> None:
    fill(broker, 10, partitions=[0])
    with consuming(broker, FIRST) as consumer:
        assert consumer.poll(SECONDS, max_records=2)[1].offset == 1
        interrupter = Interrupter("/kbatch/consumer/")
        while not interrupter.is_over:
            with interrupter.interrupting():
                consumer.seek(FIRST, 7)
            assert consumer.poll(SECONDS, max_records=1)[0].offset in (2, 7)
            consumer.seek(FIRST, 2)
        assert interrupter.number > 5


def test_interrupted_close_ends_with_the_second(broker: Broker, shell: str) -> None:
    interrupter = Interrupter("/kbatch/consumer/")
    while not interrupter.is_over:
        consumer = kbatch.Consumer(bootstrap_servers=broker.bootstrap_servers)
        consumer.assign([FIRST])
        with interrupter.interrupting():
            consumer.close(timeout=SECONDS)
        consumer.close(timeout=SECONDS)
        assert not consumer.is_open


@pytest.mark.slow
@pytest.mark.parametrize("way", ["batches", "records"])
def test_interrupted_read_ends_and_leaves_nothing_to_the_next(broker: Broker, way: str) -> None:
    fill(broker, COUNT, partitions=[0], batch_size=500)
    interrupter = Interrupter("/kbatch/consumer/")

    def offsets(start: int) -> Iterator[int]:
        ranges = {FIRST: (start, COUNT)}
        if way == "records":
            yield from (each.offset for each in reader.read_records(ranges))
        else:
            for batch in reader.read(ranges, columns=["offset"]):
                yield from batch["offset"].to_pylist()

    with kbatch.TopicReader(
        bootstrap_servers=broker.bootstrap_servers, max_partition_fetch_bytes=2000
    ) as reader:
        list(offsets(COUNT - 1))  # imports
        while not interrupter.is_over:
            start, found = COUNT - 40, list[int]()
            with interrupter.interrupting():
                for offset in offsets(start):
                    found.append(offset)
            assert found == list(range(start, start + len(found)))
            if (kept := reader.reading) is not None:  # by the traceback
                kept.close()
            assert list(offsets(COUNT - 2)) == [COUNT - 2, COUNT - 1]
            until(lambda: reader._runtime.engine._budget.unread == 0)
            until(lambda: not threads_named("kbatch-decoder"))
    assert interrupter.number > 50
