"""Properties of the accumulator under any calls, against a plain model of each record's outcome, and
properties of every batch that it seals and splits.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from kbatch import KafkaError
from kbatch._native.batch.delivery import Delivery, Flush, RecordMetadata
from kbatch._native.batch.producer_batch import ProducerBatch
from kbatch._native.send.accumulator import Refusal
from kbatch._native.send.cluster_view import ClusterView
from kbatch._native.send.sealing import SealPolicy
from tests.oracle import plain, strategies
from tests.support.accumulating import (
    NEVER,
    accumulator,
    all_drained,
    data_of,
    is_whole,
    one,
    put,
    records_of,
    values_of,
)
from tests.support.effort import EXAMPLES

deterministic = settings(derandomize=True, deadline=None, database=None, max_examples=EXAMPLES)
PARTITIONS = 3
BATCH_SIZE = 700
REQUEST_BYTES = 2500
DELIVERY_TIMEOUT_NS = 1000
FAILURE = KafkaError("failed in a test")


class Accumulator(RuleBasedStateMachine):
    """Every record that was taken ends once: answered with its own place, or failed."""

    in_flight: Bundle[ProducerBatch] = Bundle("in_flight")
    views: Bundle[list[memoryview]] = Bundle("views")
    unsealed: Bundle[ProducerBatch] = Bundle("unsealed")

    @initialize(
        codec=strategies.compressions,
        by_appender=st.booleans(),
        buffer_memory=st.sampled_from([8_000, 40_000]),
        linger_ns=st.sampled_from([0, 50]),
        seed=st.integers(0, 99),
    )
    def begin(self, codec: str, by_appender: bool, buffer_memory: int, linger_ns: int, seed: int) -> None:
        self.now_ns = 0
        self.records = accumulator(
            PARTITIONS,
            compression=codec,
            seal_policy=SealPolicy(by_appender=by_appender),
            buffer_memory=buffer_memory,
            batch_size=BATCH_SIZE,
            linger_ns=linger_ns,
            seed=seed,
            retry_backoff_ns=20,
            retry_backoff_max_ns=80,
            delivery_timeout_ns=DELIVERY_TIMEOUT_NS,
        )
        self.codec = codec
        self.sent: list[list[tuple[bytes, Delivery]]] = [[] for _ in range(PARTITIONS)]
        self.ends: list[dict[int, int | BaseException]] = [{} for _ in range(PARTITIONS)]  # offset or error
        self.called: dict[bytes, list[tuple[RecordMetadata, BaseException | None]]] = {}
        self.with_callback: set[bytes] = set()
        self.flushes: list[tuple[Flush, set[tuple[int, int]]]] = []
        self.claimed: list[ProducerBatch] = []
        self.held: list[memoryview] = []

    # Calls of a user

    @rule(
        partition=st.sampled_from([-1, 0, 0, 1, 2]),
        size=st.sampled_from([0, 1, 50, 200, 600, 900, 3000]),
        key=st.sampled_from([None, b"", b"key"]),
        headers=st.sampled_from([None, [("h", b"x" * 30), ("n", None)]]),
        callback=st.booleans(),
        count=st.integers(1, 4),
    )
    def append(
        self, partition: int, size: int, key: bytes | None, headers: Any, callback: bool, count: int
    ) -> None:
        for _ in range(count):
            value = b"%d." % sum(map(len, self.sent)) + bytes(size)

            def called(metadata: RecordMetadata, error: BaseException | None, value: bytes = value) -> None:
                self.called.setdefault(value, []).append((metadata, error))

            outcome = self.records.append(
                "t", partition, key, value, headers, 1000, self.now_ns, called if callback else None
            )
            if isinstance(outcome, Delivery):
                self.sent[outcome.partition].append((value, outcome))
                if callback:
                    self.with_callback.add(value)
            else:
                assert outcome is Refusal.MEMORY
                assert self.records.memory.available < 6000

    @rule()
    def flush(self) -> None:
        open_numbers = {number for batch in self.records.incomplete_batches() for number in numbers_of(batch)}
        self.flushes.append((self.records.begin_flush(), open_numbers))
        self.records.end_flush()

    # Steps of the sender

    @rule(ns=st.integers(1, 200))
    def wait(self, ns: int) -> None:
        self.now_ns += ns

    @rule(target=in_flight, size=st.sampled_from([100, REQUEST_BYTES, NEVER]))
    def drain(self, size: int) -> Any:
        nodes, _, leaderless = self.records.ready(self.now_ns)
        assert not leaderless
        batches = self.records.drain(nodes, size, self.now_ns).get(1, [])
        assert len({batch.partition for batch in batches}) == len(batches)
        assert sum(batch.size_bytes for batch in batches) <= size or len(batches) == 1
        for batch in batches:
            assert batch.state == "in_flight"
            later = self.records.batches("t", batch.partition)
            assert not later or batch.first_number < later[0].first_number
            if not batch.has_sequence:
                batch.stamp(7, 0, batch.first_number % 2**31)
        return multiple(*batches)

    @rule(target=unsealed)
    def take_unsealed(self) -> Any:
        batches = self.records.take_unsealed()
        self.claimed += batches
        return multiple(*batches)

    @rule(batch=consumes(unsealed))
    def seal(self, batch: ProducerBatch) -> None:
        ended = batch.is_done
        assert batch.seal() is not ended

    @rule(target=views, batch=in_flight)
    def write(self, batch: ProducerBatch) -> Any:
        if batch.is_done or batch.state != "in_flight":
            return multiple()
        batch.was_sent = True
        views = batch.buffers()
        self.held += views
        return views

    @rule(views=consumes(views))
    def written(self, views: list[memoryview]) -> None:
        for view in views:
            view.release()

    def end(self, batch: ProducerBatch, end: int | BaseException) -> None:
        """Note the expected outcome of the records of a batch."""
        for index in range(batch.record_count):
            number = batch.first_number + index
            assert number not in self.ends[batch.partition]
            self.ends[batch.partition][number] = end + index if isinstance(end, int) else end

    @rule(batch=consumes(in_flight), offset=st.integers(0, 10**6))
    def complete(self, batch: ProducerBatch, offset: int) -> None:
        if batch.is_done:
            assert batch.completion.outcome == "split" or batch.complete(offset) is False
            return
        first = batch.first_number
        expected = [value for value, _ in self.sent[batch.partition]][first : first + batch.record_count]
        assert values_of(batch) == expected
        assert batch.complete(offset)
        self.end(batch, offset)
        batch.completion.run_callbacks(print)

    @rule(batch=consumes(in_flight))
    def fail(self, batch: ProducerBatch) -> None:
        if not batch.is_done:
            assert batch.fail(FAILURE)
            self.end(batch, FAILURE)
            batch.completion.run_callbacks(print)

    @rule(batch=consumes(in_flight), attempted=st.booleans())
    def reenqueue(self, batch: ProducerBatch, attempted: bool) -> None:
        before = [] if batch.is_done else data_of(batch)
        if self.records.reenqueue(batch, self.now_ns, attempted=attempted):
            assert data_of(batch) == before

    @rule(batch=consumes(in_flight))
    def split(self, batch: ProducerBatch) -> None:
        if batch.is_done or batch.record_count < 2:
            self.fail(batch)
            return
        values = values_of(batch)
        parts = self.records.split(batch)
        assert len(parts) > 1 and sum(part.record_count for part in parts) == len(values)
        assert [value for part in parts for value in values_of(part)] == values
        assert [part.base_sequence for part in parts] == [part.first_number for part in parts]

    @rule()
    def expire(self) -> None:
        for batch in self.records.expire(self.now_ns):
            assert batch.created_ns + DELIVERY_TIMEOUT_NS <= self.now_ns
            self.fail(batch)
        assert self.records.next_expiry_ns > self.now_ns

    @rule(unsent=st.booleans())
    def give_up(self, unsent: bool) -> None:
        for batch in self.records.incomplete_batches():
            if not (unsent and batch.has_sequence):
                self.fail(batch)

    @rule(epochs=st.lists(st.integers(-1, 3), min_size=PARTITIONS, max_size=PARTITIONS))
    def publish(self, epochs: list[int]) -> None:
        self.records.publish(ClusterView({"t": [(1, epoch) for epoch in epochs]}))

    # Invariants

    @invariant()
    @precondition(lambda self: hasattr(self, "records"))
    def every_record_is_somewhere_once(self) -> None:
        left = [
            (batch.partition, batch.first_number + index)
            for batch in self.records.incomplete_batches()
            for index in range(batch.record_count)
        ]
        ended = [(partition, number) for partition in range(PARTITIONS) for number in self.ends[partition]]
        everything = [
            (partition, number)
            for partition in range(PARTITIONS)
            for number in range(len(self.sent[partition]))
        ]
        assert sorted(left + ended) == everything

    @invariant()
    @precondition(lambda self: hasattr(self, "records"))
    def queues_are_in_order_and_batches_within_limits(self) -> None:
        # the parts of a batch that was split are there beside what is still being written of it
        assert self.records.memory.available >= -sum(map(len_while_held, self.held))
        for partition in range(PARTITIONS):
            queue = self.records.batches("t", partition)
            assert [batch.first_number for batch in queue] == sorted(batch.first_number for batch in queue)
            assert [batch.state for batch in queue[:-1]].count("open") == 0
            for batch in queue:
                fits = 61 + batch.records_bytes <= BATCH_SIZE or self.codec != "none"
                assert fits or batch.record_count == 1

    @invariant()
    @precondition(lambda self: hasattr(self, "records"))
    def deliveries_say_what_happened(self) -> None:
        for partition in range(PARTITIONS):
            for number, (value, delivery) in enumerate(self.sent[partition]):
                end = self.ends[partition].get(number)
                assert delivery.done() == (end is not None)
                if isinstance(end, BaseException):
                    assert delivery.exception(0) is end
                elif end is not None:
                    assert delivery.result(0).offset == end
                if value in self.with_callback:
                    assert len(self.called.get(value, ())) == (end is not None)

    @invariant()
    @precondition(lambda self: hasattr(self, "records"))
    def flushes_are_over_when_their_records_are(self) -> None:
        for flush, numbers in self.flushes:
            for batch in self.records.incomplete_batches():
                if not numbers.isdisjoint(numbers_of(batch)):
                    numbers |= numbers_of(batch)  # who joins a batch is waited for with it
            left = [number for partition, number in numbers if number not in self.ends[partition]]
            assert flush.done() == (not left)

    def teardown(self) -> None:
        """Answer all remaining batches, and check that all memory is released."""
        if not hasattr(self, "records"):
            return
        for batch in [*self.claimed, *self.records.take_unsealed()]:
            if batch.state == "sealing":
                batch.seal()
        for batch in self.records.incomplete_batches():
            if batch.state == "in_flight":
                self.records.reenqueue(batch, self.now_ns, attempted=False)
        self.records.publish(ClusterView({"t": [(1, 9)] * PARTITIONS}))
        self.records.close()
        for batch in all_drained(self.records, self.now_ns + 10**9):
            self.complete(batch, 5)
        self.every_record_is_somewhere_once()
        self.deliveries_say_what_happened()
        self.flushes_are_over_when_their_records_are()
        for view in self.held:
            view.release()
        assert is_whole(self.records)
        assert self.records.counters()["records"] == sum(map(len, self.sent))


def numbers_of(batch: ProducerBatch) -> set[tuple[int, int]]:
    return {(batch.partition, batch.first_number + index) for index in range(batch.record_count)}


def len_while_held(view: memoryview) -> int:
    try:
        return len(view)
    except ValueError:  # it was released
        return 0


TestAccumulator = Accumulator.TestCase
TestAccumulator.settings = settings(deterministic, stateful_step_count=60)


@deterministic
@given(strategies.row_lists, strategies.compressions, strategies.producer_states, st.integers(62, 5000))
def test_what_is_accumulated_is_decoded_by_the_oracle(
    rows: list[plain.Row], compression: str, state: dict[str, Any], batch_size: int
) -> None:
    transactional = state.pop("transactional", False)
    records = accumulator(compression=compression, batch_size=batch_size, transactional=transactional)
    for key, value, headers, timestamp_ms in rows:
        put(records, value, key=key, headers=headers, timestamp_ms=timestamp_ms)
    found: list[Any] = []
    for batch in all_drained(records):
        if state:
            batch.stamp(state["producer_id"], state["producer_epoch"], state["base_sequence"])
        (read,) = plain.decode(data_of(batch))
        plain.check_produced(read)
        assert read.header == read.header | state
        found += [(r.key, r.value, r.headers, r.timestamp_ms) for r in read.records]
        batch.complete(0)
    assert found == rows
    assert is_whole(records)


@deterministic
@given(strategies.row_lists, strategies.compressions, st.integers(1, 6))
def test_splitting_ends_and_keeps_every_record(rows: list[plain.Row], compression: str, largest: int) -> None:
    """A broker that takes batches of at most `largest` records."""
    records = accumulator(compression=compression, batch_size=1 << 20)
    for key, value, headers, timestamp_ms in rows:
        put(records, value, key=key, headers=headers, timestamp_ms=timestamp_ms)
    batch = one(records)
    batch.stamp(1, 0, 2**31 - 2)
    waiting, accepted = [batch], []
    for _ in range(2 * len(rows) + 1):
        if not waiting:
            break
        batch = waiting.pop(0)
        if batch.record_count <= largest:
            accepted.append(batch)
        else:
            before = batch.record_count
            parts = records.split(batch)
            assert len(parts) > 1 and all(part.record_count < before for part in parts)
            waiting[:0] = all_drained(records)
    assert not waiting
    found = [(r.key, r.value, r.headers, r.timestamp_ms) for part in accepted for r in records_of(part)]
    assert found == rows
    number = 0
    for part in accepted:
        assert part.base_sequence == (2**31 - 2 + number) % 2**31
        number += part.record_count
        part.complete(0)
    assert is_whole(records)
