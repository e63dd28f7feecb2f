"""LoanDriver: drives the borrower of connections by hand, for an owner whose sockets it cannot wait for.

Theory of operation. After a round of the engine the owner lends the ready connections (`begin`): to a
producer's lane, or to a reader's road. From then on `work` sends what is usual, and `received` and `written`
give the borrower the events of its connections. The loan ends (`end`) before the engine hears of anything, or
runs. Bytes go both ways through the owner's channels: under TLS, and on event loops.

ThreadNetwork does not drive it by hand if the borrower can wait for its sockets itself (`Borrower.wait`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, final

if TYPE_CHECKING:
    from kbatch._native.batch.delivery_queue import DeliveryQueue
    from kbatch._native.io.waker import Waker
    from kbatch.core.producer.actions import Seal

# The maximum number of requests to a node between two looks at the sockets, which must be read in time.
_REQUESTS = 8


class Borrower(Protocol):
    """What connections are lent to: a producer's Lane, or a reader's FetchRoad."""

    def wait(
        self, poller: int, waker: Waker, deadline_ns: int, on_idle: Callable[[], None], /
    ) -> list[tuple[int, int]]: ...
    def step(self, now_ns: int, /, *, was_rung: bool) -> int: ...
    def late_work_ns(self) -> int: ...
    def late_work_done(self) -> None: ...
    def unsent(self, connection_id: int, /) -> bytes: ...
    def handed(self, connection_id: int, size: int, /) -> None: ...
    def written(self, connection_id: int, size: int, now_ns: int, /) -> bool: ...
    def received(self, connection_id: int, data: bytes | memoryview, now_ns: int, /) -> bool: ...


class LendingEngine(Protocol):
    """The part of an engine that lends its connections: ProducerEngine, and ReadingEngine."""

    def open_loans(
        self, deliver: Callable[[list[Any]], object], queue: DeliveryQueue | None = None, /
    ) -> None: ...
    def close_loans(self) -> None: ...
    def lend(self, descriptor_of: Callable[[int], int], now_ns: int, /) -> Borrower | None: ...
    def take_back(self, now_ns: int, /) -> None: ...
    def seal(self) -> list[Seal]: ...
    def observe(self, now_ns: int, /) -> None: ...


@final
class LoanDriver:
    """Drives a borrower by hand.

    Parameters
    ----------
    lending : LendingEngine
        It has opened its loans.
    write : Callable[[int, bytes], tuple[int, int]]
        `write(connection_id, data)` takes bytes to write, from the beginning on. It returns how many, and how
        many are newly written; `written` gets the rest later.
    seal : Callable[[Seal], object]
        Lets another thread seal a batch.
    clock_ns : Callable[[], int]

    Attributes
    ----------
    deadline_ns : int
        When the engine must run at the latest; 0 without a loan.
    """

    def __init__(
        self,
        lending: LendingEngine,
        write: Callable[[int, bytes], tuple[int, int]],
        seal: Callable[[Seal], object],
        clock_ns: Callable[[], int],
    ) -> None:
        self._lending = lending
        self._write = write
        self._seal = seal
        self._clock_ns = clock_ns
        self._borrower: Borrower | None = None  # while it has connections
        self._lent: list[int] = []
        self.deadline_ns = 0
        self._was_rung = False

    def ring(self) -> None:
        """Record that there may be new batches."""
        self._was_rung = True

    def begin(self, deadline_ns: int) -> None:
        """Begin a loan, after which the engine runs at `deadline_ns` at the latest."""
        self._lent.clear()
        self.deadline_ns = deadline_ns
        self._borrower = self._lending.lend(self._lend, self._clock_ns())

    def _lend(self, connection_id: int) -> int:
        self._lent.append(connection_id)
        return -1  # its descriptor is not the borrower's

    def work(self) -> int | None:
        """Advance the borrower, and return when there is more to do; None if the engine must run, or there is
        no loan.
        """
        borrower = self._borrower
        now_ns = self._clock_ns()
        if borrower is None or now_ns >= self.deadline_ns:
            return None
        for action in self._lending.seal():
            self._seal(action)
        for _ in range(_REQUESTS):
            look_ns = borrower.step(now_ns, was_rung=self._was_rung)
            self._was_rung = False
            self._hand_over(borrower)
            if not look_ns:
                return None
            if look_ns > now_ns:
                break
        if now_ns >= borrower.late_work_ns():
            borrower.late_work_done()
            self._lending.observe(now_ns)
        return min(look_ns, borrower.late_work_ns(), self.deadline_ns)

    def _hand_over(self, borrower: Borrower) -> None:
        for connection_id in self._lent:
            if data := borrower.unsent(connection_id):
                taken_bytes, written_bytes = self._write(connection_id, data)
                borrower.handed(connection_id, taken_bytes)
                if written_bytes:
                    borrower.written(connection_id, written_bytes, self._clock_ns())

    def written(self, connection_id: int, written_bytes: int) -> bool:
        """Count written bytes of a connection. Return False if they are not the borrower's."""
        borrower = self._borrower
        return borrower is not None and borrower.written(connection_id, written_bytes, self._clock_ns())

    def received(self, connection_id: int, data: bytes | memoryview) -> bool:
        """Handle received bytes of a connection, and complete what they accept. Return False if they are
        the engine's.
        """
        borrower = self._borrower
        return borrower is not None and borrower.received(connection_id, data, self._clock_ns())

    def end(self) -> bool:
        """End the loan, so that the engine has everything. False if there is none."""
        borrower, self._borrower = self._borrower, None
        self.deadline_ns = 0
        if borrower is None:
            return False
        self._lending.take_back(self._clock_ns())
        return True
