"""What the lane does without Python (src_c/lane.h) equals what the engine does, batch by batch."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.core.producer.sender import Sender
from kbatch.errors import ErrorCode
from tests.support.effort import EXAMPLES
from tests.support.sending import OK, InTurns, Reply, Sending

PARTITIONS = 3
REFUSALS = [
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.INVALID_RECORD,
]

sizes = st.sampled_from([10, 10, 6_000, 12_000])
replies = st.sampled_from([*[Reply(OK)] * 12, *map(Reply, REFUSALS), Reply(is_silent=True)])
# With several partitions, a batch that the engine sends could be in another request than with the lane.
usual_steps = st.lists(
    st.tuples(st.just("put"), st.integers(0, PARTITIONS - 1), sizes)
    | st.tuples(st.just("answer"), st.just(Reply(OK)))
    | st.tuples(st.sampled_from(["run", "wait"])),
    max_size=40,
)
steps_of_one_partition = st.lists(
    st.tuples(st.just("put"), st.just(0), sizes)
    | st.tuples(st.just("answer"), replies)
    | st.tuples(st.sampled_from(["run", "run", "run", "drop", "wait", "wait long"])),
    max_size=40,
)


def observed(s: Sending) -> tuple[Any, ...]:
    """Return all observable state: batches to brokers, outcomes of records, and the sender's knowledge."""
    states = [
        (
            (state.key, state.gate, state.identity, state.next_counter, state.acked_counter),
            (state.hole_end, state.known_ns, state.is_broken),
            [
                (each.counter, each.node_id, each.is_in_flight, each.is_ambiguous, each.is_proved)
                for each in state.in_flight
            ],
        )
        for state in s.engine._sender._states.values()
    ]
    outcomes = {name: repr(each.exception(0)) for name, each in s.deliveries.items() if each.done()}
    return s.sent, s.waiting, states, outcomes, s.engine._sequences.identity, s.accumulator.incomplete_count


def take(s: Sending, step: tuple[Any, ...], number: int) -> None:
    what, *where = step
    if what == "put":
        partition, size = where
        s.put(f"r{number}", partition=partition, size=size)
        return
    s.run()  # so that lane and engine send the same before something else happens
    if what == "drop" and any(link.node_id == 1 for link in s.links.values()):
        s.drop()
    elif what.startswith("wait"):
        s.advance(700 if what == "wait long" else 150)
    elif what == "answer" and s.waiting_requests:
        s.answer(**dict.fromkeys((batch.name for batch in s.waiting_requests[0].batches), where[0]))


def check_that_both_do_the_same(
    partitions: int, steps: list[tuple[Any, ...]], limit: int, sequence: int
) -> None:
    with_lane, alone = (
        kind(
            partitions,
            batch_size=16_000,
            request_timeout_ms=500,
            delivery_timeout_ms=700,
            max_in_flight_requests_per_connection=limit,
            first_sequence=sequence,
        ).warmed()
        for kind in (InTurns, Sending)
    )
    for number, step in enumerate(steps):
        take(with_lane, step, number)
        take(alone, step, number)
        assert observed(with_lane) == observed(alone), step


limits = st.integers(1, 5)
sequences = st.sampled_from([0, 2**31 - 3])


@settings(max_examples=4 * EXAMPLES, deadline=None)
@given(steps=steps_of_one_partition, limit=limits, sequence=sequences)
def test_the_lane_leaves_to_the_engine_what_is_unusual(
    steps: list[tuple[Any, ...]], limit: int, sequence: int
) -> None:
    check_that_both_do_the_same(1, steps, limit, sequence)


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(steps=usual_steps, limit=limits, sequence=sequences)
def test_the_lane_does_what_the_engine_does(steps: list[tuple[Any, ...]], limit: int, sequence: int) -> None:
    check_that_both_do_the_same(PARTITIONS, steps, limit, sequence)


def test_what_is_usual_is_done_by_the_lane(monkeypatch: Any) -> None:
    """Or the test above would compare a thing with itself."""
    s = InTurns(PARTITIONS, batch_size=16_000).warmed()
    for step in ("_send", "handle_response"):
        monkeypatch.delattr(Sender, step)
    for number in range(4):
        for partition in range(PARTITIONS):
            s.put(f"b{number}{partition}", partition=partition, size=15_000)
        s.run()
    names = list(s.waiting)
    assert len(names) == 4 * PARTITIONS
    while s.waiting:
        s.answer(**dict.fromkeys(s.waiting[:PARTITIONS], OK))
    assert all(map(s.is_done, names))
