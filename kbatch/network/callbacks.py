"""DeliveryThread: the thread that calls on_delivery, so that callbacks do not delay the sender as in Java.

Theory of operation. Completions wait in a queue. The thread starts with the first that has callbacks, or
before them (`start`), and again if one comes after `close`. An exception of a callback is logged: the first
time for each function with its traceback, later in a count that is logged now and then. No callback ends the
thread.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from types import CodeType
from typing import Any, final

from kbatch._native.batch.delivery import Completion
from kbatch._native.batch.delivery_queue import DeliveryQueue
from kbatch.config import ClientConfig
from kbatch.metrics import MetricsRegistry

logger = logging.getLogger(__name__)

# The number of functions with a traceback in the log; the shortest time between two counts.
_KNOWN_FUNCTIONS = 100
_REPORT_NS = 60_000_000_000


class CallbackThread(threading.Thread):
    """A thread that runs callbacks of a producer, and must not wait for other callbacks."""

    runs_callbacks = True


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
        self._counting = threading.Lock()
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
        """Run all callbacks of a batch. A BaseException such as SystemExit comes out of run_callbacks, whose
        next call continues after it.
        """
        while True:
            try:
                return batch.run_callbacks(self._failures.add)
            except BaseException as error:
                if isinstance(error, self.ends_program):
                    raise
                with suppress(BaseException):  # a failing log
                    self._failures.add(None, error)


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
        self._lock = threading.Lock()  # guards the attributes below, and puts into the queue
        self._thread: threading.Thread | None = None
        self._is_closing = False

    def deliver(self, completions: Iterable[Completion]) -> None:
        """Let the callbacks of settled batches be called. Any thread may call this."""
        batches = self._add(completions)
        if not batches:
            return
        with self._lock:
            self.queue.put(batches)
            if not self._start():
                return
        self._run_here()

    def start(self) -> None:
        """Start the thread before there are callbacks."""
        with self._lock:
            self._start()

    def _start(self) -> bool:
        """Start the thread if there is none. True if the caller must run the callbacks instead."""
        if self._thread is not None:
            return False
        self._thread = CallbackThread(target=self._run, name=self._name, daemon=True)
        try:
            self._thread.start()
            return False
        except RuntimeError:  # there are no new threads while the interpreter ends (Python 3.12)
            self._thread = threading.current_thread()
            return True

    def in_callback(self) -> bool:
        """True if the caller is a callback, which must not wait for other deliveries."""
        return threading.current_thread() is self._thread

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
        thread.join(timeout)
        return not thread.is_alive()

    def _run_here(self) -> None:
        """Run the queue's callbacks on the calling thread."""
        self._started(threading.get_ident())
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
        self._started(threading.get_ident())
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
                "the callback %r raised; its delivery is unaffected, and further errors are only counted",
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
    """Return the code, which all closures and bound methods of one function share."""
    while isinstance(function, partial):
        function = function.func
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return code or type(function)
