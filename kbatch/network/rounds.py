"""EngineRounds: how an owner's rounds drive an engine, whatever the owner's clock and its connections are.

Theory of operation. The owner reports events to the engine and lets it run. A round performs the engine's
actions (`kbatch.core.client.actions`), and hands over its results. An engine that returned actions runs again
at once, before the next look at the sockets, since an action may have made more work possible. A quiet engine
does not run: with a lone record it is quiet after sending, and after the answer. Actions of one kind of
client, such as sealing batches, are registered (`register`).

An owner may lend connections (`_drive_loans`): then a round in which nothing happens for the engine is a step
of the borrower, and every event of the engine ends the loan first (`_engine_alone`).

An exception of the engine is a defect. The engine fails everything with it, so that no caller waits for ever,
and the owner ends.

Threads and event loops own sockets (EngineDriver); the simulator's owner has virtual time and its own wire.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from kbatch.core.client.actions import Address, Close, Connect, Resolve, Write, release
from kbatch.errors import KafkaError
from kbatch.logs import ClientLogger
from kbatch.metrics import MetricsRegistry
from kbatch.network.loan_driver import LendingEngine, LoanDriver

logger = ClientLogger(__name__)

# The maximum number of runs between two looks at the sockets, which must be read in time.
_RUNS = 8
# How long the end of a network is waited for if the caller has no limit. Rounds are short, and wait for
# nothing of the program's: only a defect takes longer.
STOP_SECONDS = 30.0
# The longest wait: a selector takes no number of milliseconds above 2**31.
_LONGEST_NS = 3_600_000_000_000


class DrivenEngine(Protocol):
    """The part of an engine that its owner uses: a ClientEngine with results (`poll_completed`)."""

    def handle_resolved(
        self, host: str, port: int, addresses: list[Address] | OSError, now_ns: int, /
    ) -> None: ...
    def handle_preparing(self, connection_id: int, awaited: str, now_ns: int, /) -> None: ...
    def handle_connected(self, connection_id: int, now_ns: int, /) -> None: ...
    def handle_bytes(
        self, connection_id: int, data: bytes | memoryview, now_ns: int, /
    ) -> memoryview | None: ...
    def handle_written(self, connection_id: int, written_bytes: int, now_ns: int, /) -> None: ...
    def handle_closed(self, connection_id: int, error: KafkaError, now_ns: int, /) -> None: ...
    def handle_token(self, connection_id: int, token: bytes | KafkaError | None, now_ns: int, /) -> None: ...
    def run(self, now_ns: int, /) -> None: ...
    def is_quiet(self, now_ns: int, /) -> bool: ...
    def observe(self, now_ns: int, /) -> None: ...
    def poll_actions(self) -> list[Any]: ...
    def poll_completed(self) -> list[Any]: ...
    def deadline_ns(self, now_ns: int, /) -> int: ...
    def fail(self, error: KafkaError, /) -> None: ...


class EngineRounds(ABC):
    """Drives an engine in rounds.

    Parameters
    ----------
    engine : DrivenEngine
    deliver : callable
        Gets the engine's results on the owner's thread; it must not wait or raise.
    metrics : MetricsRegistry or None
        Gets select and io of every round.
    clock_ns : callable
        Returns the monotonic time in nanoseconds.

    Attributes
    ----------
    round_count : int
        The number of the owner's rounds; it stops growing if there is nothing to do.
    """

    def __init__(
        self,
        engine: DrivenEngine,
        *,
        deliver: Callable[[list[Any]], object],
        metrics: MetricsRegistry | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._engine = engine
        self._deliver = deliver
        self._clock_ns = clock_ns
        self.round_count = 0
        self._actions: list[Any] = []
        self._perform: dict[type, Callable[[Any], None]] = {
            Resolve: self._resolve,
            Connect: self._connect,
            Write: self._write,
            Close: self._close,
        }
        self._stops: list[Callable[[], object]] = []  # of what was registered
        self._select_time = None if metrics is None else metrics.sensor("select")
        self._io_time = None if metrics is None else metrics.sensor("io")
        self._io_ns = 0  # of this round
        self._loan_driver: LoanDriver | None = None
        self._must_run = False  # the engine, after a loan to the lane

    def register(
        self, kind: type, perform: Callable[[Any], None], stop: Callable[[], object] | None = None
    ) -> None:
        """Register `perform(action)` for actions of this kind, on the owner's thread; `stop()` is called when
        the owner ends. Call this before it starts.
        """
        self._perform[kind] = perform
        if stop is not None:
            self._stops.append(stop)

    # Loans

    def _drive_loans(self, lending: LendingEngine, write: Callable[[int, bytes], tuple[int, int]]) -> None:
        """Lend the engine's connections between its runs, and write by `write` (LoanDriver)."""
        lending.open_loans(self._deliver)
        self._loan_driver = LoanDriver(lending, write, self._perform_action, self._clock_ns)
        self._stops += [self._loan_driver.end, lending.close_loans]

    def _engine_alone(self) -> DrivenEngine:
        """End the loan, and return the engine, for an event or a call."""
        if self._loan_driver is not None and self._loan_driver.end():
            self._must_run = True
        return self._engine

    def _take_bytes(self, connection_id: int, data: bytes | memoryview) -> memoryview | None:
        """Hand over received bytes, and return where the next ones should be received."""
        if self._loan_driver is not None and self._loan_driver.received(connection_id, data):
            return None
        return self._engine_alone().handle_bytes(connection_id, data, self._clock_ns())

    def _take_written(self, connection_id: int, written_bytes: int) -> None:
        """Report written bytes."""
        if self._loan_driver is None or not self._loan_driver.written(connection_id, written_bytes):
            self._engine_alone().handle_written(connection_id, written_bytes, self._clock_ns())

    def _take_token(self, connection_id: int, token: bytes | KafkaError | None, now_ns: int) -> None:
        """Report a token of the login, or its failure."""
        self._engine_alone().handle_token(connection_id, token, now_ns)

    def _is_for_engine(self, *, was_called: bool) -> bool:
        """True if a wake-up is for the engine; `was_called` says that `wake` was the reason. Otherwise there
        may be new batches, which the lane sends if there is one.
        """
        if self._loan_driver is None:
            return True
        self._loan_driver.ring()
        return was_called

    # Rounds

    def _do_round(self, waited_ns: int, woken_ns: int, *, was_called: bool) -> int:
        """Run a round, with the engine if that has to run, and return how long the owner may wait. The owner
        waited `waited_ns` until `woken_ns`; `was_called` says that the engine has to run.
        """
        driver = self._loan_driver
        if driver is None:
            return self._run_engine_on(waited_ns, woken_ns, was_called=was_called)
        if not was_called and not self._must_run:
            look_ns = driver.work()
            if look_ns is not None:
                return max(look_ns - self._clock_ns(), 0)
        was_called |= driver.end() or self._must_run
        self._must_run = False
        wait_ns = self._run_engine_on(waited_ns, woken_ns, was_called=was_called)
        if not wait_ns:
            return 0
        driver.begin(self._clock_ns() + wait_ns)
        look_ns = driver.work()
        if look_ns is not None:
            return max(look_ns - self._clock_ns(), 0)
        self._must_run = driver.end()
        return 0 if self._must_run else wait_ns

    def _run_engine_on(self, waited_ns: int, woken_ns: int, *, was_called: bool) -> int:
        """Run the engine while it has work, up to a limit, and return how long the owner may wait. The owner
        waited `waited_ns` until `woken_ns`. If `wake` woke it (`was_called`), even a quiet engine runs.
        """
        clock_ns = self._clock_ns
        now_ns = clock_ns()
        self._io_ns = now_ns - woken_ns
        self._deliver_completed()  # at once: the receiver wakes up while the engine runs
        is_busy = was_called or not self._engine.is_quiet(now_ns)
        for _ in range(_RUNS):
            if not is_busy:
                break
            is_busy = self._run_engine() and not self._engine.is_quiet(clock_ns())
        self.round_count += 1
        now_ns = clock_ns()
        self._engine.observe(now_ns)
        if self._select_time is not None and self._io_time is not None:
            self._select_time.record(waited_ns, now_ns // 1_000_000)
            self._io_time.record(self._io_ns, now_ns // 1_000_000)
        if is_busy:
            return 0
        return min(max(self._engine.deadline_ns(now_ns) - now_ns, 0), _LONGEST_NS)

    def _run_engine(self) -> bool:
        """Run the engine once and perform its actions. True if there were any."""
        engine, clock_ns = self._engine, self._clock_ns
        engine.run(clock_ns())
        self._actions = actions = engine.poll_actions()
        if actions:
            start_ns = clock_ns()
            for action in actions:
                self._perform_action(action)
            self._io_ns += clock_ns() - start_ns
        self._deliver_completed()
        return bool(actions)

    def _perform_action(self, action: Any) -> None:
        self._perform[type(action)](action)

    def _deliver_completed(self) -> None:
        if completed := self._engine.poll_completed():
            self._deliver(completed)

    def _fail(self, error: BaseException) -> None:
        """Fail the engine, so that no caller waits for ever."""
        if not isinstance(error, KafkaError):
            cause = error
            error = KafkaError(f"a defect of kbatch ended the client: {type(cause).__name__}: {cause}")
            error.fatal = True
            error.__cause__ = cause
        try:
            self._engine_alone().fail(error)
            self._deliver_completed()
        except BaseException as failed:
            logger.critical("some records remain without an outcome", exc_info=failed)

    def _resolved(self, action: Resolve, addresses: list[Address] | OSError) -> None:
        self._engine_alone().handle_resolved(action.host, action.port, addresses, self._clock_ns())

    def _give_up_actions(self) -> None:
        """Release the memory of writes that were not performed."""
        for action in self._actions:
            if type(action) is Write:
                release(action.buffers)

    def _stop_registered(self) -> None:
        for stop in self._stops:
            stop()

    def when_over(self, function: Callable[[], object]) -> None:
        """Call `function()` after `stop`, when nothing else uses the engine: here, at once."""
        function()

    @abstractmethod
    def post(self, function: Callable[[], object]) -> None:
        """Schedule `function()` on the owner's thread. Any thread may call this."""

    @abstractmethod
    def _resolve(self, action: Resolve) -> None: ...

    @abstractmethod
    def _connect(self, action: Connect) -> None: ...

    @abstractmethod
    def _write(self, action: Write) -> None: ...

    @abstractmethod
    def _close(self, action: Close) -> None: ...
