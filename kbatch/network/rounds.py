"""EngineRounds: how an owner's rounds drive an engine, whatever the owner's clock and its connections are.

Theory of operation. The owner reports events to the engine and lets it run. A round performs the engine's
actions (`kbatch.core.client.actions`), and hands over its results. An engine that returned actions runs again
at once, before the next look at the sockets, since an action may have made more work possible. A quiet engine
does not run: with a lone record it is quiet after sending, and after the answer. Actions of one kind of
client, such as sealing batches, are registered (`register`).

An exception of the engine is a defect. The engine fails everything with it, so that no caller waits for ever,
and the owner ends.

Threads and event loops own sockets (EngineDriver); the simulator's owner has virtual time and its own wire.
"""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from kbatch.core.client.actions import Address, Close, Connect, Resolve, Write, release
from kbatch.errors import KafkaError
from kbatch.metrics import MetricsRegistry

logger = logging.getLogger(__name__)

# The maximum number of runs between two looks at the sockets, which must be read in time.
_RUNS = 8
# The longest wait: a selector takes no number of milliseconds above 2**31.
_LONGEST_NS = 3_600_000_000_000


class DrivenEngine(Protocol):
    """The part of an engine that its owner uses: a ClientEngine with results (`poll_completed`)."""

    def handle_resolved(
        self, host: str, port: int, addresses: list[Address] | OSError, now_ns: int, /
    ) -> None: ...
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

    def register(
        self, kind: type, perform: Callable[[Any], None], stop: Callable[[], object] | None = None
    ) -> None:
        """Let `perform(action)` perform actions of this kind on the owner's thread; `stop()` is called when
        the owner ends. Call this before it starts.
        """
        self._perform[kind] = perform
        if stop is not None:
            self._stops.append(stop)

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
                self._perform[type(action)](action)
            self._io_ns += clock_ns() - start_ns
        self._deliver_completed()
        return bool(actions)

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
            self._engine.fail(error)
            self._deliver_completed()
        except BaseException:
            logger.critical("some records remain without an outcome", exc_info=True)

    def _resolved(self, action: Resolve, addresses: list[Address] | OSError) -> None:
        self._engine.handle_resolved(action.host, action.port, addresses, self._clock_ns())

    def _give_up_actions(self) -> None:
        """Release the memory of writes that were not performed."""
        for action in self._actions:
            if type(action) is Write:
                release(action.buffers)

    def _stop_registered(self) -> None:
        for stop in self._stops:
            stop()

    @abstractmethod
    def post(self, function: Callable[[], object]) -> None:
        """Let the owner call `function()`. Any thread may call this."""

    @abstractmethod
    def _resolve(self, action: Resolve) -> None: ...

    @abstractmethod
    def _connect(self, action: Connect) -> None: ...

    @abstractmethod
    def _write(self, action: Write) -> None: ...

    @abstractmethod
    def _close(self, action: Close) -> None: ...
