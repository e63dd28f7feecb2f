"""Properties of the sender for any records that wait to be sent."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.errors import ErrorCode, KafkaError, PrecedingRecordFailedError
from tests.support.effort import EXAMPLES
from tests.support.links import Link
from tests.support.sending import MS, NEVER, OK, Sending

PARTITIONS = 6
THROTTLED_MS = 700

records = st.lists(
    st.tuples(st.integers(0, PARTITIONS - 1), st.sampled_from([10, 400, 900, 20_000])),
    min_size=4,
    max_size=20,
)


@settings(max_examples=4 * EXAMPLES, deadline=None)
@given(
    records=records,
    later=st.just([]) | records,
    request_bytes=st.sampled_from([1000, 2500, 50_000]),
    seals_at_once=st.booleans(),
)
def test_A04_responses_alone_drain_open_batches_of_any_size(
    records: list[tuple[int, int]], later: list[tuple[int, int]], request_bytes: int, seals_at_once: bool
) -> None:
    """No time passes, and nothing else wakes the sender: it must not leave anything for later."""
    s = Sending(PARTITIONS, batch_size=60_000, max_request_size=request_bytes)
    s.seals_at_once = seals_at_once
    for prefix, each in (("r", records), ("l", later)):
        for number, (partition, size) in enumerate(each):
            s.put(f"{prefix}{number}", partition=partition, size=size)
        s.run()
    while s.waiting_requests or s.unsealed:
        if s.unsealed:
            s.seal()
            s.run()
        else:
            s.answer(**{batch.name: OK for batch in s.waiting_requests[0].batches})
    assert all(s.is_done(name) for name in s.deliveries)


class Woken(Sending):
    """Run the sender only when it was woken, after an answer, after the end of a connection, or at the
    deadline of its sleep.
    """

    sleeps_until_ns = NEVER

    def run(self) -> None:
        if self.was_woken or not self.engine.is_quiet(self.now_ns):
            super().run()
        self.sleeps_until_ns = self.engine.deadline_ns(self.now_ns)

    def happens(self, what: Callable[[], object]) -> None:
        """Change something that the engine sees only if it is woken."""
        what()
        if self.was_woken:
            self.run()

    def await_deadline(self, longest_ms: int) -> bool:
        """True if there was one before."""
        if self.sleeps_until_ns > self.now_ns + longest_ms * MS:
            self.now_ns += longest_ms * MS
            return False
        self.now_ns = max(self.now_ns, self.sleeps_until_ns)
        self.run()
        return True

    @property
    def owing(self) -> list[Link]:
        """Return the connections with an unanswered request."""
        return [link for link in self.links.values() if link.unanswered]

    def answer_oldest(self, of: int = 0, throttle_ms: int = 0) -> None:
        """Return the first request to a node."""
        asked = self.owing[of % len(self.owing)].unanswered[0]
        if asked.batches:
            self.answer(throttle_ms=throttle_ms, **{batch.name: OK for batch in asked.batches})
        else:
            self.answer_metadata()

    def look(self) -> None:
        """Check that a sender that was not woken has missed nothing."""
        if not self.was_woken:
            self.engine.run(self.now_ns)
            assert not self.engine.poll_actions()


steps = st.lists(
    st.tuples(st.just("send"), st.integers(0, 1), st.sampled_from([10, 20_000, 40_000]))
    | st.tuples(st.just("move"), st.integers(0, 1), st.integers(1, 2))
    | st.tuples(st.sampled_from(["answer", "answer", "answer", "answer and throttle"]), st.integers(0, 2))
    | st.tuples(st.sampled_from(["seal", "drop", "wait", "refresh", "look", "look"])),
    max_size=30,
)


@settings(max_examples=4 * EXAMPLES, deadline=None)
@given(
    steps=steps,
    max_in_flight=st.integers(1, 5),
    linger_ms=st.sampled_from([0, 5]),
    timeouts=st.sampled_from([{}, {"request_timeout_ms": 500, "delivery_timeout_ms": 700}]),
)
def test_sender_not_woken_has_nothing_to_do(
    steps: list[tuple[Any, ...]], max_in_flight: int, linger_ms: int, timeouts: dict[str, Any]
) -> None:
    """The sender is not woken for an unavailable node; waiting batches are sent when that changes."""
    s = Woken(
        2,
        batch_size=60_000,
        linger_ms=linger_ms,
        max_in_flight_requests_per_connection=max_in_flight,
        **timeouts,
    )
    s.send("warm0", partition=0)
    s.send("warm1", partition=1)
    s.seals_at_once = False
    for number, (what, *where) in enumerate(steps):
        if what == "send":
            partition, size = where
            s.happens(partial(s.put, f"r{number}", partition=partition, size=size))
        elif what == "move":
            partition, node_id = where
            s.move(node_id, partition)
        elif what == "refresh":
            s.refresh()
        elif what.startswith("answer") and s.owing:
            (of,) = where
            s.answer_oldest(of, THROTTLED_MS if what.endswith("throttle") else 0)
        elif what == "look":
            s.look()
        elif what == "seal":
            s.happens(s.seal)
        elif what == "drop" and any(link.node_id == 1 for link in s.links.values()):
            s.drop()
        elif what == "wait":
            s.await_deadline(300)
    while s.owing or s.unsealed or s.await_deadline(2000):
        if s.unsealed:
            s.happens(s.seal)
        elif s.owing:
            s.answer_oldest()
    assert all(s.is_done(name) for name in s.deliveries)


def test_partition_moved_to_available_node_is_sent_at_once() -> None:
    s = Woken(3, batch_size=60_000, max_in_flight_requests_per_connection=1)
    for partition in range(3):
        s.send(f"warm{partition}", partition=partition)
        s.answer_oldest()
    s.send("b0", partition=0)
    s.send("b1", partition=1)  # so that node 1 is known to take nothing
    assert s.waiting == ["b0"]
    s.move(2, partition=1)
    s.refresh()
    s.answer(b1=OK)  # and has nothing to get any more
    s.metadata_waits = True
    s.move(2, partition=2)
    s.advance(200)
    s.refresh()
    s.answer_metadata()
    s.happens(partial(s.put, "b2", partition=2))
    assert s.waiting == ["b0", "b2"]


def test_records_accepted_after_fatal_failure_fail_too() -> None:
    s = Woken(max_in_flight_requests_per_connection=1)
    s.send("b0")
    s.send("b1")
    s.engine.fail(KafkaError("for good"))
    s.run()
    for name in ("b2", "b3"):
        s.happens(partial(s.put, name))
        assert s.is_done(name)


def test_fatal_failure_fails_records_of_unavailable_node_at_once() -> None:
    s = Woken(
        3, batch_size=60_000, max_in_flight_requests_per_connection=1, kbatch_on_delivery_failure="stop"
    )
    s.move(2, partition=2)
    s.refresh()
    for partition in range(3):  # the second waits for the first: node 1 is known to take nothing
        s.send(f"b{partition}", partition=partition)
    s.answer(b2=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    s.happens(partial(s.put, "b3", partition=1))
    assert isinstance(s.error("b3"), PrecedingRecordFailedError)


def test_D06_batch_for_unavailable_node_expires_in_time() -> None:
    s = Woken(batch_size=60_000, request_timeout_ms=500, delivery_timeout_ms=700)
    s.resolves = False  # and so is silent for some seconds
    for name in ("b0", "b1"):  # the second when there is no older one
        start_ns = s.now_ns
        s.happens(partial(s.put, name))
        while not s.is_done(name):
            assert s.await_deadline(700)
        assert s.now_ns == start_ns + 700 * MS


class SealedMeanwhile:
    """An accumulator whose batch is sealed by another thread just after the sender's look."""

    def __init__(self, sending: Sending) -> None:
        self.__dict__.update(accumulator=sending.accumulator, seal=sending.seal)

    def ready(self, now_ns: int) -> Any:
        found = self.accumulator.ready(now_ns)
        self.seal()
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["accumulator"], name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.__dict__["accumulator"], name, value)


def test_what_is_sealed_while_the_sender_looks_wakes_it() -> None:
    s = Woken(batch_size=60_000, max_in_flight_requests_per_connection=1)
    s.send("b0")
    s.seals_at_once = False
    s.happens(partial(s.put, "b1", "b2", size=40_000))
    assert s.waiting == ["b0"] and [batch.record_count for batch in s.unsealed] == [1]
    s.engine._sender._accumulator = SealedMeanwhile(s)  # type: ignore[assignment]
    s.answer(b0=OK)
    assert s.was_woken
    s.run()
    assert s.waiting == ["b1"]
