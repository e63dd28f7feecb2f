"""DeliveryThread: where on_delivery is called, for no callback to hold up the sender (in Java they do).

Theory of operation. Completions wait in a queue; the thread is started when the first with callbacks comes,
and again should one come behind `close`. What a callback raises is logged: with its traceback the first time
for each function, then counted, and the count is logged once in a while. Nothing that a callback does ends
the thread.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from types import CodeType
from typing import Any, final

from kbatch._native.batch.delivery import Completion
from kbatch.config import ClientConfig
from kbatch.metrics import MetricsRegistry

logger = logging.getLogger(__name__)

# A traceback for each of so many functions; at most one count in so many seconds.
_KNOWN_FUNCTIONS = 100
_REPORT_NS = 60_000_000_000


class CallbackThread(threading.Thread):
    """One that runs callbacks, of whichever producer, and must not wait for other callbacks."""

    runs_callbacks = True


class CallbackRunner:
    """Runs callbacks, counts them and keeps the time. What ends the thread's program (`ends_program`) goes
    through; anything else that a callback raises is logged.

    Parameters
    ----------
    config : ClientConfig
        Of it client.id, for the thread's name, and metrics.recording.level.
    metrics : MetricsRegistry or None
        Gets callback-queue-size and callback-time.
    """

    ends_program: tuple[type[BaseException], ...] = ()

    def __init__(self, config: ClientConfig, metrics: MetricsRegistry | None = None) -> None:
        self._counting = threading.Lock()
        self._waiting_count = 0
        self._failures = _Failures()
        # a clock read twice a batch is not for nothing
        self._timer = None
        if metrics is not None:
            metrics.gauge("callback-queue-size", lambda now_ms: self._waiting_count)
            if config.metrics_recording_level != "INFO":
                self._timer = metrics.sensor("callback-time")

    def _add(self, completions: Iterable[Completion]) -> list[Completion]:
        """Those that have callbacks to be run, whose records are counted now."""
        batches, record_count = [], 0
        for completion in completions:
            if completion.has_callbacks:
                batches.append(completion)
                record_count += completion.record_count
        with self._counting:
            self._waiting_count += record_count
        return batches

    def _run_callbacks(self, batches: Iterable[Completion]) -> None:
        for batch in batches:
            start_ns = time.monotonic_ns() if self._timer is not None else 0
            called_count = self._run_all(batch)
            if self._timer is not None and called_count:
                end_ns = time.monotonic_ns()
                self._timer.record((end_ns - start_ns) / called_count, end_ns // 1_000_000)
            with self._counting:
                self._waiting_count -= batch.record_count

    def _run_all(self, batch: Completion) -> int:
        """What is no Exception, such as that of sys.exit(), comes out of run_callbacks, and the next call of
        it goes on behind."""
        while True:
            try:
                return batch.run_callbacks(self._failures.add)
            except BaseException as error:
                if isinstance(error, self.ends_program):
                    raise
                with suppress(BaseException):  # a log that cannot be written
                    self._failures.add(None, error)


@final
class DeliveryThread(CallbackRunner):
    """Runs the callbacks of completions, in the order in which those were delivered.

    Parameters
    ----------
    config, metrics
        As CallbackRunner.
    started : callable
        Called with the thread's ident, on the thread, before any callback.
    """

    def __init__(
        self,
        config: ClientConfig,
        metrics: MetricsRegistry | None = None,
        started: Callable[[int], object] = lambda ident: None,
    ) -> None:
        super().__init__(config, metrics)
        self._started = started
        self._name = f"kbatch-delivery-{config.client_id}"
        self._queue: SimpleQueue[list[Completion] | None] = SimpleQueue()
        self._lock = threading.Lock()  # of all that follows
        self._thread: threading.Thread | None = None
        self._is_closing = False

    def deliver(self, completions: Iterable[Completion]) -> None:
        """Has the callbacks of settled batches called; any thread."""
        batches = self._add(completions)
        if not batches:
            return
        with self._lock:
            self._queue.put(batches)
            if self._thread is not None:
                return
            self._thread = CallbackThread(target=self._run, name=self._name, daemon=True)
            try:
                self._thread.start()
                return
            except RuntimeError:  # there are no new threads while the interpreter ends (Python 3.12)
                self._thread = threading.current_thread()
        self._run_here()

    def in_callback(self) -> bool:
        """Whether a callback is what asks: it must not wait for other deliveries."""
        return threading.current_thread() is self._thread

    def close(self, timeout: float | None = None) -> bool:
        """Waits up to `timeout` seconds (None: as long as it takes) for all callbacks.

        Returns
        -------
        bool
            Whether they all ran. Those that did not are still to run, as long as the process lives; a call
            from within a callback does not wait for them.
        """
        with self._lock:
            thread = self._thread
            if thread is None:
                return True
            self._is_closing = True
            self._queue.put(None)  # for it to look
        if self.in_callback():
            return False
        thread.join(timeout)
        return not thread.is_alive()

    def _run_here(self) -> None:
        """What is in the queue, on the thread that delivers."""
        self._started(threading.get_ident())
        while (batches := self._next_here()) is not None:
            self._run_callbacks(batches)
        self._started(0)

    def _next_here(self) -> list[Completion] | None:
        with self._lock:
            while not self._queue.empty():
                if (batches := self._queue.get()) is not None:
                    return batches
            self._thread = None
            return None

    def _run(self) -> None:
        self._started(threading.get_ident())
        while not self._is_over():
            if (batches := self._queue.get()) is not None:
                self._run_callbacks(batches)
            del batches  # or they would live until the next ones come
        self._failures.report()

    def _is_over(self) -> bool:
        """Whether the thread has to end; whoever comes later starts another."""
        with self._lock:
            if self._is_closing and self._queue.empty():
                self._is_closing = False
                self._thread = None
            return self._thread is None


class _Failures:
    """What callbacks raised, for the log."""

    def __init__(self) -> None:
        self._known: set[object] = set()
        self._uncounted = 0
        self._reported_ns = time.monotonic_ns()

    def add(self, function: Callable[..., object] | None, error: BaseException) -> None:
        key = _code_of(function)
        if key not in self._known and len(self._known) < _KNOWN_FUNCTIONS:
            self._known.add(key)
            logger.error(
                "the callback %r raised, which changes nothing for the record; more of it is only counted",
                function,
                exc_info=error,
            )
            return
        self._uncounted += 1
        if time.monotonic_ns() - self._reported_ns >= _REPORT_NS:
            self.report()

    def report(self) -> None:
        if self._uncounted:
            logger.error("callbacks raised %d more error(s)", self._uncounted)
        self._uncounted = 0
        self._reported_ns = time.monotonic_ns()


def _code_of(function: Any) -> CodeType | type | None:
    """What all closures and bound methods of one function in the source have in common."""
    while isinstance(function, partial):
        function = function.func
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return code or type(function)
