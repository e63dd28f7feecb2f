"""Handling a whole request at once (kbatch._native.send.produce_wire) equals handling batch by batch."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.core.producer.idempotence import Idempotence
from kbatch.errors import ErrorCode
from tests.support.effort import EXAMPLES
from tests.support.sending import OK, Reply, Sending

PARTITIONS = 3
REFUSALS = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.INVALID_RECORD,
]

partitions = st.integers(0, PARTITIONS - 1)
replies = st.sampled_from([*[Reply(OK)] * 12, *map(Reply, REFUSALS), Reply(is_silent=True)])
answers = st.lists(replies, min_size=PARTITIONS, max_size=PARTITIONS)
steps = st.lists(
    st.tuples(st.just("put"), partitions, st.sampled_from([10, 10, 20_000, 40_000]))
    | st.tuples(st.just("move"), partitions, st.integers(1, 2))
    | st.tuples(st.just("answer"), st.integers(0, 3), answers)
    | st.tuples(st.sampled_from(["run", "run", "run", "refresh", "drop", "wait", "wait long"])),
    max_size=40,
)


def observed(s: Sending) -> tuple[Any, ...]:
    """Return all observable state: requests to brokers, outcomes of records, and the sender's knowledge."""
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


def one_by_one(s: Sending) -> None:
    """Handle each batch separately from now on."""
    order: Any = s.engine._sequences
    order.admit_new = lambda *_: False
    order.acknowledge_all = lambda *_: False


def take(s: Sending, step: tuple[Any, ...], number: int) -> None:
    what, *where = step
    if what == "put":
        partition, size = where
        s.put(f"r{number}", partition=partition, size=size)
    elif what == "run":
        s.run()
    elif what == "move":
        partition, node_id = where
        s.move(node_id, partition)
    elif what == "refresh":
        s.refresh()
    elif what == "drop" and any(link.node_id == 1 for link in s.links.values()):
        s.drop()
    elif what.startswith("wait"):
        s.advance(700 if what == "wait long" else 150)
    elif what == "answer" and s.waiting_requests:
        links = {asked.link.connection_id: asked for asked in reversed(s.waiting_requests)}
        asked = list(links.values())[where[0] % len(links)]
        s.answer(**{batch.name: where[1][batch.partition] for batch in asked.batches})


@settings(max_examples=4 * EXAMPLES, deadline=None)
@given(steps=steps, max_in_flight=st.integers(1, 5), first_sequence=st.sampled_from([0, 2**31 - 3]))
def test_a_whole_request_is_what_its_batches_are(
    steps: list[tuple[Any, ...]], max_in_flight: int, first_sequence: int
) -> None:
    whole, single = (
        Sending(
            PARTITIONS,
            first_sequence=first_sequence,
            batch_size=60_000,
            max_in_flight_requests_per_connection=max_in_flight,
            request_timeout_ms=500,
            delivery_timeout_ms=700,
        ).warmed()
        for _ in range(2)
    )
    one_by_one(single)
    for number, step in enumerate(steps):
        take(whole, step, number)
        take(single, step, number)
        assert observed(whole) == observed(single), step


def test_what_is_usual_is_done_as_a_whole(monkeypatch: Any) -> None:
    """Or the test above would compare a thing with itself."""
    done: list[str] = []
    for name in ("admit_new", "acknowledge_all"):
        step = getattr(Idempotence, name)

        def counted(self: Any, *rest: Any, step: Any = step, name: str = name) -> Any:
            result = step(self, *rest)
            done.append(name if result else f"not {name}")
            return result

        monkeypatch.setattr(Idempotence, name, counted)
    s = Sending(PARTITIONS, batch_size=60_000).warmed()
    assert done == ["not admit_new", "acknowledge_all"] * PARTITIONS  # there were no numbers before
    done.clear()
    for number in range(4):
        for partition in range(PARTITIONS):
            s.put(f"b{number}{partition}", partition=partition, size=50_000)
        s.run()
    while s.waiting:
        s.answer(**dict.fromkeys(s.waiting[:PARTITIONS], OK))
    assert done == ["admit_new"] * 4 + ["acknowledge_all"] * 4
