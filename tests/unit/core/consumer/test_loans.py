"""What the engine does after a loan of its connections to the road."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch.core.consumer.fetcher import FETCH_PURPOSE
from kbatch.core.consumer.results import Fetched
from kbatch.protocol import messages
from tests.support.reading import FIRST, MS, Reading

MIB = 1 << 20


class Loan:
    """A loan of all connections of a reader, which is driven by hand."""

    def __init__(self, reading: Reading, **options: Any) -> None:
        self.reading = reading
        self.results: list[Any] = []
        reading.engine.open_loans(self.results.extend)
        self.connections: list[int] = []
        self.road = reading.engine.lend(self._lend, reading.now_ns)

    def _lend(self, connection_id: int) -> int:
        self.connections.append(connection_id)
        return -1

    def receive(self) -> None:
        """Give the road what brokers have answered."""
        reading, sent = self.reading, dict[int, bytes]()
        handle = reading.engine.handle_bytes
        reading.engine.handle_bytes = lambda connection_id, data, now_ns: sent.update(  # type: ignore[method-assign]
            {connection_id: sent.get(connection_id, b"") + bytes(data)}
        )
        try:
            while reading._due:
                reading._due.popleft()()
        finally:
            reading.engine.handle_bytes = handle  # type: ignore[method-assign]
        for connection_id, data in sent.items():
            assert self.road is not None and self.road.received(connection_id, data, reading.now_ns)

    def end(self) -> None:
        self.reading.engine.take_back(self.reading.now_ns)
        self.reading.engine.run(self.reading.now_ns)


def is_asking(reading: Reading) -> bool:
    return any(session.is_in_flight for session in reading.engine._fetcher._sessions.values())


def waiting_reader(**options: Any) -> Reading:
    """Return a reader whose Fetch waits at the broker."""
    reading = Reading(**options)
    reading.put(b"a")
    reading.read()
    reading.advance(10)
    assert is_asking(reading)
    return reading


def test_answer_at_the_end_of_a_loan_is_followed_by_a_request() -> None:
    reading = waiting_reader()
    loan = Loan(reading)
    reading.put(b"b")
    loan.receive()
    assert len(loan.results) == 1 and not is_asking(reading)
    loan.end()  # before the road has made another step
    assert is_asking(reading)


def test_login_that_must_be_renewed_ends_the_loan() -> None:
    reading = waiting_reader()
    (state,) = reading.engine._connections._by_purpose[FETCH_PURPOSE].values()
    assert state.connection is not None
    state.connection.session = state.connection.session._replace(renew_ns=reading.now_ns + 5 * MS)
    loan = Loan(reading)
    reading.put(b"b")
    reading.now_ns += 6 * MS
    loan.receive()
    assert loan.road is not None and loan.road.step(reading.now_ns, was_rung=False) == 0
    loan.end()
    assert is_asking(reading)


def test_memory_that_the_road_awaits_is_awaited_after_the_loan() -> None:
    reading = waiting_reader(keeps=True, kbatch_fetch_buffer_memory=MIB, max_partition_fetch_bytes=MIB)
    loan = Loan(reading)
    assert loan.road is not None
    reading.put(bytes(50_000))
    reading.engine._budget.charge(MIB)  # of other answers
    loan.receive()
    loan.road.step(reading.now_ns, was_rung=False)
    assert not is_asking(reading) and loan.road.awaits_memory
    reading.engine.take_back(reading.now_ns)
    reading.engine.run(reading.now_ns)
    assert reading.engine._fetcher.awaits_memory
    reading.engine._budget.release(MIB)
    assert reading.engine.release(loan.results[0])
    reading.engine.run(reading.now_ns)
    assert is_asking(reading)


def test_session_that_backs_off_is_not_lent() -> None:
    reading = waiting_reader()
    (session,) = reading.engine._fetcher._sessions.values()
    session.not_before_ns = reading.now_ns + MS
    assert Loan(reading).road is None
    reading.now_ns += MS
    assert Loan(reading).road is not None


@pytest.mark.parametrize("versions", [{3: (0, 9), 1: (4, 12)}, {1: (4, 12)}])
def test_road_asks_for_topics_without_ids(versions: dict[int, tuple[int, int]]) -> None:
    reading = waiting_reader(versions=versions)
    loan = Loan(reading)
    assert loan.road is not None
    reading.put(b"b")
    loan.receive()
    loan.road.step(reading.now_ns, was_rung=False)
    assert is_asking(reading)


def test_range_is_lent_until_its_end_comes() -> None:
    reading = Reading()
    reading.put(b"a")
    reading.read(ends={FIRST: 3})
    reading.advance(10)
    assert reading.offsets() == [0] and is_asking(reading)
    loan = Loan(reading)
    assert loan.road is not None
    reading.put(b"b")
    loan.receive()
    assert [(each.from_offset, each.next_offset) for each in loan.results] == [(1, 2)]
    loan.road.step(reading.now_ns, was_rung=False)
    reading.put(b"c", b"d")
    reading.engine.take_back(reading.now_ns)
    reading.advance(10)
    assert reading.offsets() == [0, 2]
    last = reading.results[-1]
    assert isinstance(last, Fetched) and last.is_last
    assert not is_asking(reading)


def test_replica_is_lent_for_its_time_only() -> None:
    reading = waiting_reader(nodes=2, client_rack="east", metadata_max_age_ms=3000)

    def answer_late(request: Any) -> Any:
        if reading.broker.core.requests[-1].node_id == 0:
            return None
        reading.faults.delay("Fetch", 10.0)
        return messages.FetchResponse()

    reading.faults.intercept("Fetch", answer_late)
    (state,) = reading.engine._fetcher.partitions.values()
    state.replica_id, state.replica_until_ns = 1, reading.now_ns + 3000 * MS
    assert Loan(reading).road is None, "its node must be looked up"
    reading.put(b"b")
    reading.advance(10)
    loan = Loan(reading)
    assert loan.road is not None
    assert [each for each, session in reading.engine._fetcher._sessions.items() if session.is_in_flight] == [
        1
    ]
    look_ns = loan.road.step(reading.now_ns, was_rung=False)
    assert look_ns <= state.replica_until_ns
    reading.now_ns = state.replica_until_ns
    loan.road.step(reading.now_ns, was_rung=False)
    assert loan.road.must_look
    loan.end()
    assert state.replica_id == -1
