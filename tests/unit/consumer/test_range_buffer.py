"""RangeBuffer: what was fetched of ranges comes out once, in order, decoded a few fetches ahead; what is
outdated goes back.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from kbatch import TopicPartition
from kbatch.config import ConsumerConfig
from kbatch.consumer import range_buffer
from kbatch.consumer.projection import Projection
from kbatch.consumer.range_buffer import BatchSource, RangeBuffer, RecordSource
from kbatch.consumer.typed_records import Prepared, TypedRecords
from kbatch.core.consumer.partition_state import EARLIEST, Start
from kbatch.core.consumer.results import Fetched, Moved
from kbatch.errors import OffsetOutOfRangeError, SchemaRegistryError
from kbatch.network.decoding import FETCHES_AHEAD
from kbatch.waiting.conditions import Condition
from kbatch.waiting.threads import ThreadWaiter
from tests.support.patience import HANG_SECONDS, until
from tests.support.reading import FIRST, TOPIC, Reading
from tests.support.running_threads import threads_named

NAME = "kbatch-decoder-test"
SECOND = TopicPartition(TOPIC, 1)


class RangeReading(Reading):
    """An engine with its brokers, whose results arrive in a RangeBuffer."""

    def __init__(self, **options: Any) -> None:
        self.wake_count = 0
        super().__init__(**options)
        self.changed = Condition(ThreadWaiter)
        self.buffer = RangeBuffer(self.engine.release, self._wake, self.changed)
        self.generation = 0

    def _wake(self) -> None:
        self.wake_count += 1

    def _take_results(self) -> None:
        if results := self.engine.poll_completed():
            self.buffer.arrivals(results)

    def begin(
        self, *partitions: TopicPartition, ends: Mapping[TopicPartition, int] | None = None, **rest: Any
    ) -> None:
        """Begin a read from offset 0 on."""
        self.generation = self.engine.new_generation()
        starts = dict.fromkeys(partitions or (FIRST,), Start(rest.pop("offset", 0)))
        self.buffer.begin(self.generation, starts)
        self.engine.assign(starts, ends, reset=rest.pop("reset", None), generation=self.generation)
        self.run()

    def records(self, typed: TypedRecords | None = None) -> RecordSource:
        return RecordSource(self.buffer, typed, self.generation)

    @contextmanager
    def batches(self, projection: Any = None, threads: int = 0, **options: Any) -> Iterator[BatchSource]:
        chosen = Projection(("offset", "value"), "copy", {}) if projection is None else projection
        source = BatchSource(
            self.buffer,
            chosen,
            self.changed,
            generation=self.generation,
            batch_rows=options.pop("batch_rows", None),
            name=NAME,
            threads=threads,
        )
        source.start()
        try:
            yield source
        finally:
            source.stop()
            until(lambda: not threads_named(NAME))

    @property
    def used_bytes(self) -> int:
        return self.engine._budget.unread


class Watched:
    """A projection that tells what it decodes, and makes batches with the first offset."""

    def __init__(self, may_go_on: Callable[[int], object] = lambda offset: None) -> None:
        self.begun: SimpleQueue[int] = SimpleQueue()
        self._may_go_on = may_go_on

    def batches(self, records: Any) -> tuple[list[pa.RecordBatch], Exception | None]:
        self.begun.put(records.from_offset)
        self._may_go_on(records.from_offset)
        return [pa.record_batch({"offset": [records.from_offset]})], None


def taken(source: BatchSource | RecordSource) -> list[Any]:
    """Return the offsets of what comes next."""
    until(source.is_ready)
    found: Any = source.take()
    assert found is not None
    return [
        offset
        for each in found[1]
        for offset in (each["offset"].to_pylist() if isinstance(each, pa.RecordBatch) else [each.offset])
    ]


def fetched_one_by_one(count: int, **options: Any) -> RangeReading:
    """Return a read of so many records, each in an answer of its own."""
    r = RangeReading(max_partition_fetch_bytes=1, **options)
    for number in range(count):
        r.put(b"%d" % number)
    r.begin()
    return r


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_batches_come_in_the_order_of_offsets(threads: int) -> None:
    first_may_end = threading.Event()
    r = fetched_one_by_one(20)

    def go_on(offset: int) -> None:
        if offset == 0 and threads > 1:  # while others overtake it
            assert first_may_end.wait(HANG_SECONDS)

    with r.batches(Watched(go_on), threads) as source:
        if threads > 1:
            until(lambda: source._buffer.assigned[FIRST].queue[1].columns.decoded is not None)
            assert not source.is_ready()
        first_may_end.set()
        assert [taken(source) for _ in range(20)] == [[number] for number in range(20)]
        assert not source.is_ready() and source.take() is None
    assert r.used_bytes == 0


@pytest.mark.parametrize("threads", [1, 3])
def test_R29_few_fetches_are_decoded_ahead_of_the_program(threads: int) -> None:
    watched = Watched()
    r = fetched_one_by_one(30)
    with r.batches(watched, threads) as source:
        ahead = FETCHES_AHEAD * threads
        assert sorted(watched.begun.get(timeout=HANG_SECONDS) for _ in range(ahead)) == list(range(ahead))
        for number in range(30 - ahead):
            assert watched.begun.empty()
            taken(source)
            assert watched.begun.get(timeout=HANG_SECONDS) == ahead + number


def test_fetch_lets_go_of_its_bytes_once_decoded() -> None:
    r = fetched_one_by_one(1)
    with r.batches(Watched(), 1) as source:
        until(source.is_ready)
        fetch = r.buffer.assigned[FIRST].first
        assert fetch is not None
        until(lambda: fetch.records is None)
        assert not fetch.is_used_up and r.used_bytes > 0
        assert taken(source) == [0]
        assert r.used_bytes == 0 and not r.buffer.assigned[FIRST].queue


def test_workers_wait_for_arrivals_while_the_program_computes() -> None:
    watched = Watched()
    r = RangeReading(max_partition_fetch_bytes=1)
    r.begin()
    with r.batches(watched, 2) as source:
        for number in range(10):
            r.put(b"x")
            r.run()
            assert watched.begun.get(timeout=HANG_SECONDS) == number
            assert taken(source) == [number]


def test_taken_batches_are_kept_by_no_worker() -> None:
    class Columns:
        num_rows = 1

    made: list[weakref.ref[Any]] = []

    class Making:
        def batches(self, records: Any) -> tuple[list[Any], None]:
            columns = Columns()
            made.append(weakref.ref(columns))
            return [columns], None

    r = fetched_one_by_one(1)
    with r.batches(Making(), 2) as source:
        until(source.is_ready)
        source.take()
        until(lambda: gc.collect() is not None and made[0]() is None)


def test_stopping_waits_for_no_worker() -> None:
    may_end = threading.Event()
    watched = Watched(lambda offset: may_end.wait(HANG_SECONDS))
    r = fetched_one_by_one(3)
    with r.batches(watched, 1) as source:
        watched.begun.get(timeout=HANG_SECONDS)
        source.stop()
        r.buffer.end_read(r.generation)
        assert r.used_bytes == 0 and source.take() is None
        assert threads_named(NAME)
        may_end.set()


def test_error_of_a_worker_ends_the_read(monkeypatch: pytest.MonkeyPatch) -> None:
    r = RangeReading()
    r.begin(offset=7, reset=EARLIEST)

    def fail(*of: object) -> None:
        raise MemoryError("of a worker")

    monkeypatch.setattr(RangeBuffer, "_put_unusual", fail)
    r.run()
    with r.batches(threads=2) as source:
        until(source.is_ready)
        with pytest.raises(MemoryError, match="of a worker"):
            source.take()


def test_error_of_decoding_comes_in_its_turn() -> None:
    def go_on(offset: int) -> None:
        if offset == 1:
            raise ZeroDivisionError

    for threads in (0, 2):
        r = fetched_one_by_one(3)
        with r.batches(Watched(go_on), threads) as source:
            assert taken(source) == [0]
            until(source.is_ready)
            with pytest.raises(ZeroDivisionError):
                source.take()


def test_without_new_threads_the_program_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    r = fetched_one_by_one(2)
    with r.batches(threads=4) as source:
        assert [taken(source), taken(source)] == [[0], [1]]


def test_batches_have_no_more_rows_than_wanted() -> None:
    r = RangeReading()
    r.put(*[b"x"] * 7)
    r.begin()
    with r.batches(batch_rows=3) as source:
        assert source.is_ready()
        found = source.take()
    assert found is not None
    assert [each["offset"].to_pylist() for each in found[1]] == [[0, 1, 2], [3, 4, 5], [6]]


def test_records_come_as_objects_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_buffer, "RECORDS_AT_A_TIME", 3)
    r = RangeReading()
    r.put(*[b"x"] * 7)
    r.begin()
    source = r.records()
    assert [taken(source), taken(source)] == [[0, 1, 2], [3, 4, 5]]
    assert r.used_bytes > 0 and not r.buffer.passed
    assert taken(source) == [6]
    assert r.used_bytes == 0
    ((result, row_count),) = r.buffer.passed
    assert isinstance(result, Fetched) and (result.next_offset, row_count) == (7, 7)


def test_records_that_could_not_be_made_are_taken_by_the_next_call() -> None:
    class Registry:
        is_away = True

        def taken(self, records: list[Any]) -> Prepared:
            if self.is_away:
                raise SchemaRegistryError("it is away")
            return Prepared(records, [])

    registry = Registry()
    r = RangeReading()
    r.put(b"a", b"b")
    r.begin()
    source = r.records(cast(TypedRecords, registry))
    for _ in range(2):
        assert source.is_ready()
        with pytest.raises(SchemaRegistryError):
            source.take()
        assert source.is_kept and r.used_bytes > 0
    registry.is_away = False
    assert taken(source) == [0, 1]
    assert not source.is_kept and r.used_bytes == 0


@pytest.mark.parametrize("threads", [0, 2])
def test_moved_position_and_end_are_passed_in_their_turn(threads: int) -> None:
    r = RangeReading(partitions=2)
    r.put(b"a", b"b", b"c")
    r.log().delete_records_before(2)
    r.begin(FIRST, SECOND, ends={FIRST: 3, SECOND: 0}, reset=EARLIEST)
    with r.batches(threads=threads) as source:
        offsets: list[int] = []
        while len(r.buffer.passed) < 3:
            until(source.is_ready)
            found = source.take()
            if found is not None:
                offsets += [each for batch in found[1] for each in batch["offset"].to_pylist()]
    assert offsets == [2]
    kinds = [(type(each), each.partition, count) for each, count in r.buffer.passed]
    assert [each for each in kinds if each[1] == FIRST] == [(Moved, FIRST, 0), (Fetched, FIRST, 1)]
    assert [each for each in kinds if each[1] == SECOND] == [(Fetched, SECOND, 0)]


@pytest.mark.parametrize("threads", [0, 2])
def test_failed_partition_raises_after_its_records(threads: int) -> None:
    r = RangeReading()
    r.put(b"a")
    r.begin()
    led = r.cluster.partition(*FIRST)
    led.log.append_records([(b"", b"gone")], now_ms=r.broker.now_ms, leader_epoch=led.leader_epoch)
    led.log.delete_records_before(2)
    r.put(b"b")
    r.advance(1000)
    with r.batches(threads=threads) as source:
        assert taken(source) == [0]
        until(source.is_ready)
        with pytest.raises(OffsetOutOfRangeError) as failed:
            source.take()
    assert failed.value.partitions == {FIRST: 1}


# What is outdated


def test_results_of_an_ended_read_go_back() -> None:
    r = RangeReading()
    r.put(b"a", b"b")
    r.begin()
    assert r.used_bytes > 0
    r.buffer.end_read(r.generation)
    r.buffer.clear_arrivals(r.now_ns)
    assert r.used_bytes == 0


def test_next_read_gets_nothing_of_the_one_before() -> None:
    r = fetched_one_by_one(3)
    r.buffer.end_read(r.generation)
    r.put(b"later")
    r.begin(offset=3)
    source = r.records()
    assert taken(source) == [3]
    assert not source.is_ready() and r.used_bytes == 0


def test_ending_gives_back_what_is_sorted_and_what_a_worker_decodes() -> None:
    may_end = threading.Event()
    watched = Watched(lambda offset: may_end.wait(HANG_SECONDS))
    r = fetched_one_by_one(5)
    with r.batches(watched, 2) as source:
        until(lambda: watched.begun.qsize() == 2)
        source.stop()
        r.buffer.end_read(r.generation)
        assert r.used_bytes == 0 and not source.is_ready()
        may_end.set()


def test_read_that_ends_while_its_results_are_sorted_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    r = RangeReading()
    r.put(b"a")
    r.log().delete_records_before(1)

    def end(buffer: RangeBuffer, cursor: Any, result: Any) -> None:
        buffer.end_read(r.generation)  # by another thread, or a finalizer
        put(buffer, cursor, result)

    put = RangeBuffer._put_unusual
    monkeypatch.setattr(RangeBuffer, "_put_unusual", end)
    r.begin(reset=EARLIEST)
    cursor = r.buffer.assigned[FIRST]
    r.put(b"b")
    r.run()
    r.buffer.sort()
    assert not cursor.queue and not r.buffer.assigned and r.used_bytes == 0


def begin_next(r: RangeReading) -> None:
    """End the read, and begin one with the next record, which another thread may do at any time."""
    r.buffer.end_read(r.generation)
    r.put(b"later")
    r.begin(offset=1, ends={FIRST: 2})
    r.buffer.sort()


@pytest.mark.parametrize("kind", ["records", "typed", "batches"])
def test_ended_read_takes_nothing_of_the_next(kind: str) -> None:
    r = RangeReading()
    r.put(b"a")
    r.begin()
    with r.batches() if kind == "batches" else nullcontext() as batches:
        typed = TypedRecords.of(ConsumerConfig(bootstrap_servers="a:9092", value_deserializer="utf8"))
        before: Any = batches or r.records(typed if kind == "typed" else None)
        assert before.is_ready()
        begin_next(r)
        assert before.take() is None
        assert not r.buffer.passed
        assert taken(r.records()) == [1]
        ((result, _),) = r.buffer.passed
        assert isinstance(result, Fetched) and result.is_last


def test_read_that_ends_while_its_records_are_made_takes_nothing_of_the_next() -> None:
    class Registry:
        """One that takes long to answer."""

        def taken(self, records: list[Any]) -> Prepared:
            begin_next(r)
            return Prepared(records, [])

    r = RangeReading()
    r.put(b"a")
    r.begin()
    assert taken(r.records(cast(TypedRecords, Registry()))) == [0]
    assert taken(r.records()) == [1]


def test_read_that_ends_while_a_fetch_is_discarded_has_passed_nothing() -> None:
    class Columns:
        """Those of a read that another thread ends while they are looked at."""

        is_busy = False

        @property
        def decoded(self) -> Any:
            if r.generation == first:
                begin_next(r)
            return SimpleNamespace(row_count=0, error=None)

    r = RangeReading()
    r.put(b"a")
    r.begin(ends={FIRST: 1})
    first = r.generation
    source = r.records()
    assert source.is_ready()
    cursor = r.buffer.assigned[FIRST]
    cursor.first.columns = Columns()
    assert r.buffer.discard_head(cursor) is None
    assert not r.buffer.passed and taken(r.records()) == [1]


def test_threads_that_sort_at_the_same_time_lose_and_double_nothing() -> None:
    r = RangeReading(max_partition_fetch_bytes=1)
    r.begin()
    has_ended = threading.Event()

    def sort() -> None:
        while not has_ended.is_set():
            r.buffer.sort()

    threads = [threading.Thread(target=sort) for _ in range(3)]
    for each in threads:
        each.start()
    offsets: list[int] = []
    try:
        source = r.records()
        for number in range(90):
            r.put(b"x")
            if number % 3 == 0:
                r.run()
                while source.is_ready():
                    offsets += taken(source)
        r.run()
        while len(offsets) < 90:
            offsets += taken(source)
    finally:
        has_ended.set()
        for each in threads:
            each.join()
    assert offsets == list(range(90))
    assert r.used_bytes == 0
