"""DeliveryThread: the thread that calls on_delivery, so that callbacks do not delay the sender as in Java.

Theory of operation. Completions wait in a queue. The thread starts with the first that has callbacks, or
before them (`start`), and again if one comes after `close`. An exception of a callback is logged: the first
time for each function with its traceback, later in a count that is logged now and then. No callback ends the
thread.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from types import CodeType
from typing import Any, final

from kbatch._native.batch.delivery import Completion
from kbatch._native.batch.delivery_queue import DeliveryQueue
from kbatch._native.io.interrupts import thread_ident
from kbatch._native.io.threads import ClientThread
from kbatch.config import ClientConfig
from kbatch.logs import ClientLogger, flush
from kbatch.metrics import MetricsRegistry
from kbatch.unpatched import real_threading

logger = ClientLogger(__name__)

# The number of functions with a traceback in the log; the shortest time between two counts.
_KNOWN_FUNCTIONS = 100
_REPORT_NS = 60_000_000_000


class CallbackRunner:
    """Runs callbacks, counts them and measures their time. Exceptions of `ends_program` are raised; others
    are logged.

    Parameters
    ----------
    config : ClientConfig
        Its client.id is in the thread's name; its metrics.recording.level decides about callback-time.
    metrics : MetricsRegistry or None
        Gets callback-queue-size and callback-time.
    """

    ends_program: tuple[type[BaseException], ...] = ()

    def __init__(self, config: ClientConfig, metrics: MetricsRegistry | None = None) -> None:
        self._counting = real_threading().Lock()
        self._waiting_count = 0
        self._failures = _Failures()
        # two reads of the clock for each batch have a cost
        self._timer = None
        if metrics is not None:
            metrics.gauge("callback-queue-size", lambda now_ms: self._waiting_count)
            if config.metrics_recording_level != "INFO":
                self._timer = metrics.sensor("callback-time")

    def _add(self, completions: Iterable[Completion]) -> list[Completion]:
        """Return the completions with callbacks, after counting their records."""
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
        """Run all callbacks of a batch. What comes out of run_callbacks ends the program, or is of an
        interceptor; its next call continues after it.
        """
        while True:
            try:
                return batch.run_callbacks(self._threw)
            except BaseException as error:
                if isinstance(error, self.ends_program):
                    raise
                self._threw(None, error)

    def _threw(self, function: Callable[..., object] | None, error: BaseException) -> None:
        if isinstance(error, self.ends_program):
            raise error
        with suppress(BaseException):  # a failing log
            self._failures.add(function, error)


@final
class DeliveryThread(CallbackRunner):
    """Runs the callbacks of completions, in the order of their delivery.

    Parameters
    ----------
    config, metrics
        Parameters of CallbackRunner.
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
        self.queue = DeliveryQueue()  # of lists of Completion; None lets the thread look whether to end
        self._lock = real_threading().Lock()  # guards the attributes below, and puts into the queue
        self._thread: ClientThread | None = None
        self._is_closing = False

    def deliver(self, completions: Iterable[Completion]) -> None:
        """Schedule the callbacks of completed batches. Any thread may call this."""
        batches = self._add(completions)
        if not batches:
            return
        with self._lock:
            self.queue.put(batches)
            here = self._start()
        if here is not None:
            here.run()

    def start(self) -> None:
        """Start the thread before there are callbacks."""
        with self._lock:
            self._start()

    def _start(self) -> ClientThread | None:
        """Start the thread if there is none. If it cannot be, return the one that the caller must run."""
        if self._thread is not None:
            return None
        self._thread = ClientThread(self._run, self._name, runs_callbacks=True)
        try:
            self._thread.start()
            return None
        except RuntimeError:  # there are no new threads while the interpreter ends (Python 3.12)
            self._thread = ClientThread(self._run_here, self._name)
            return self._thread

    def in_callback(self) -> bool:
        """True if the caller is a callback, which must not wait for other deliveries."""
        thread = self._thread
        return thread is not None and thread.is_current

    def close(self, timeout: float | None = None) -> bool:
        """Wait up to `timeout` seconds, or without limit if it is None, for all callbacks.

        Returns
        -------
        bool
            True if all ran. The others still run while the process lives. A call from a callback does not
            wait.
        """
        with self._lock:
            thread = self._thread
            if thread is None:
                return True
            self._is_closing = True
            self.queue.put(None)  # wakes the thread
        if self.in_callback():
            return False
        has_ended = thread.join(timeout)
        flush()
        return has_ended

    def _run_here(self) -> None:
        """Run the queue's callbacks on the calling thread."""
        self._started(thread_ident())
        while (batches := self._next_here()) is not None:
            self._run_callbacks(batches)
        self._started(0)

    def _next_here(self) -> list[Completion] | None:
        with self._lock:
            while not self.queue.empty():
                batches: list[Completion] | None = self.queue.get()
                if batches is not None:
                    return batches
            self._thread = None
            return None

    def _run(self) -> None:
        self._started(thread_ident())
        while not self._is_over():
            if (batches := self.queue.get()) is not None:
                self._run_callbacks(batches)
            del batches  # or they would live until the next ones come
        self._failures.report()

    def _is_over(self) -> bool:
        """True if the thread must end; a later delivery starts another."""
        with self._lock:
            if self._is_closing and self.queue.empty():
                self._is_closing = False
                self._thread = None
            return self._thread is None


class _Failures:
    """The exceptions of callbacks, for the log."""

    def __init__(self) -> None:
        self._known: set[object] = set()
        self._uncounted = 0
        self._reported_ns = time.monotonic_ns()

    def add(self, function: Callable[..., object] | None, error: BaseException) -> None:
        key = _code_of(function)
        if key not in self._known and len(self._known) < _KNOWN_FUNCTIONS:
            self._known.add(key)
            logger.error(
                "%s raised; its delivery is unaffected, and further errors are only counted",
                "an interceptor" if function is None else f"the callback {function!r}",
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
    """Return the code, which all closures and bound methods of one function share."""
    while isinstance(function, partial):
        function = function.func
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return code or type(function)
