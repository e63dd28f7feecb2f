"""Encoded batches among records: both keep order, numbers and sequences."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

import kbatch
from kbatch._native.batch.delivery import BatchDelivery, RecordMetadata
from kbatch._native.send.accumulator import Refusal
from kbatch.errors import ErrorCode, RecordTooLargeError
from tests.oracle import strategies
from tests.property.test_accumulator_properties import Accumulator, len_while_held
from tests.support.accumulating import is_whole
from tests.support.effort import EXAMPLES
from tests.support.sending import OK, OUT_OF_ORDER, Sending

BATCH_BYTES = 1280  # what a batch is charged beside its bytes


class WithBatches(Accumulator):
    """The accumulator's own rules, and batches that come encoded."""

    def __init__(self) -> None:
        super().__init__()
        self.first_numbers: dict[
            int, tuple[int, int, int]
        ] = {}  # by id of delivery: partition, first number, count

    @rule(
        partition=st.sampled_from([0, 0, 1]),
        sizes=st.lists(st.sampled_from([0, 1, 50, 600, 1500]), min_size=1, max_size=6),
        codec=strategies.compressions,
        callback=st.booleans(),
        copied=st.booleans(),
    )
    def append_batch(
        self, partition: int, sizes: list[int], codec: str, callback: bool, copied: bool
    ) -> None:
        first = sum(map(len, self.sent))
        payloads = [b"%d." % (first + at) + bytes(size) for at, size in enumerate(sizes)]
        data = kbatch.encode([(None, value) for value in payloads], compression=codec)

        def called(metadata: RecordMetadata, error: BaseException | None) -> None:
            self.called.setdefault(payloads[0], []).append((metadata, error))

        given = bytearray(data) if copied else data
        on_delivery = called if callback else None
        if len(data) + BATCH_BYTES > self.records.memory.total_memory:
            with pytest.raises(RecordTooLargeError):
                self.records.append_batch("t", partition, given, self.now_ns, on_delivery)
            return
        outcome = self.records.append_batch("t", partition, given, self.now_ns, on_delivery)
        if outcome is Refusal.MEMORY:
            assert self.records.memory.available < len(data) + BATCH_BYTES
            return
        assert isinstance(outcome, BatchDelivery)
        number = len(self.sent[partition])
        self.first_numbers[id(outcome)] = (partition, number, len(payloads))
        self.sent[partition] += [(value, outcome) for value in payloads]
        if callback:
            self.with_callback.add(payloads[0])

    @invariant()
    @precondition(lambda self: hasattr(self, "records"))
    def queues_are_in_order_and_batches_within_limits(self) -> None:
        assert self.records.memory.available >= -sum(map(len_while_held, self.held))
        for partition in range(3):
            queue = self.records.batches("t", partition)
            numbers = [batch.first_number for batch in queue]
            assert numbers == sorted(numbers)
            assert [batch.state for batch in queue[:-1]].count("open") == 0
            assert not any(batch.is_encoded and batch.state != "sealed" for batch in queue)

    @invariant()
    @precondition(lambda self: hasattr(self, "records"))
    def deliveries_say_what_happened(self) -> None:
        for partition in range(3):
            for number, (value, delivery) in enumerate(self.sent[partition]):
                if not isinstance(delivery, BatchDelivery):
                    end = self.ends[partition].get(number)
                    assert delivery.done() == (end is not None)
                    if isinstance(end, int):
                        assert delivery.result(0).offset == end
                elif self.first_numbers[id(delivery)][1] == number:
                    self.check(value, delivery)

    def check(self, value: bytes, delivery: BatchDelivery) -> None:
        partition, first, count = self.first_numbers[id(delivery)]
        ends = [self.ends[partition].get(number) for number in range(first, first + count)]
        assert delivery.record_count == count
        assert delivery.done() == (None not in ends)
        if value in self.with_callback:
            assert len(self.called.get(value, ())) == delivery.done()
        if None in ends:
            return
        failed = any(isinstance(each, BaseException) for each in ends)
        error: Any = delivery.exception(0)
        assert (error is not None) is failed
        if failed:
            assert error.possibly_persisted is any(isinstance(each, int) for each in ends)
        else:
            runs = delivery.offset_runs(0)
            assert [run.first_offset + at for run in runs for at in range(run.record_count)] == ends
            assert delivery.result(0).offset == ends[0]


TestWithBatches = WithBatches.TestCase
TestWithBatches.settings = settings(
    derandomize=True, deadline=None, database=None, max_examples=EXAMPLES, stateful_step_count=40
)


# With the sender

_acts = st.one_of(
    st.just("record"),
    st.tuples(st.integers(1, 5), strategies.compressions),
    st.sampled_from(["ok", "too few", "too large", "out of order", "back off", "all ok"]),
)


@settings(derandomize=True, deadline=None, database=None, max_examples=EXAMPLES)
@given(st.lists(_acts, min_size=5, max_size=40))
def test_brokers_append_records_in_the_order_of_acceptance(acts: list[Any]) -> None:
    """Brokers that append what is next in sequence, unless they refuse it for a reason of their own."""
    s = Sending(batch_size=16384, linger_ms=0).warmed()
    log: list[str] = []
    accepted: list[str] = []
    deliveries: list[Any] = []

    def answer(how: int) -> None:
        name = s.waiting[0]
        sent = s.attempts(name)[-1]
        if sent.stamp[2] != 1 + len(log):  # the first record was the warming one
            how = OUT_OF_ORDER
        elif how == OK:
            (batch,) = kbatch.decode(sent.data)
            log.extend(bytes(record.value or b"").decode() for record in batch)
        elif how == ErrorCode.MESSAGE_TOO_LARGE and sent.record_count == 1:
            how = ErrorCode.NOT_ENOUGH_REPLICAS
        s.answer(**{name: how})

    answers = {"ok": OK, "too few": ErrorCode.NOT_ENOUGH_REPLICAS, "too large": ErrorCode.MESSAGE_TOO_LARGE}
    for act in acts:
        names = [f"b{len(accepted) + at}" for at in range(act[0] if isinstance(act, tuple) else 1)]
        if act == "record":
            s.send(names[0])
            deliveries.append(s.deliveries[names[0]])
        elif isinstance(act, tuple):
            data = kbatch.encode([(None, name.encode()) for name in names], compression=act[1])
            delivery = s.accumulator.append_batch("t", 0, data, s.now_ns)
            assert isinstance(delivery, BatchDelivery)
            s.deliveries.update(dict.fromkeys(names, delivery))
            deliveries.append(delivery)
            s.run()
        elif s.waiting and act in answers:
            answer(answers[act])
        elif act == "back off":
            s.back_off()
        if act == "record" or isinstance(act, tuple):
            accepted += names
    for _ in range(20 * len(acts)):
        while s.waiting:
            answer(OK)
        if log == accepted:
            break
        s.back_off()
    assert log == accepted
    assert all(delivery.exception(0) is None for delivery in deliveries)
    assert is_whole(s.accumulator)
