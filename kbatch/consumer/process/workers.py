"""Workers of `process()`: threads, processes, the program's own executor, and tasks of an event loop.

Theory of operation. Workers get attempts one by one, as many at a time as there are workers, and report each
with what the function returned or raised. They know nothing of partitions. An attempt that is still running
when `process()` ends is left to itself: its thread is a daemon, its process or task is ended.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from inspect import isawaitable
from multiprocessing.reduction import ForkingPickler
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, final

from kbatch.errors import WorkerDiedError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from kbatch.core.process.scheduler import Attempt

START_METHOD = "spawn" if sys.platform == "win32" else "forkserver"
# The time for the exit code of a process that has closed its connection.
DEATH_SECONDS = 5.0
UNPICKLED = "what the function returned cannot be pickled; let it return None"


class Outcome(NamedTuple):
    """The end of an attempt: what its function has returned, or raised."""

    attempt: Attempt
    result: Any
    error: BaseException | None


Report = Callable[[Outcome], object]
# Where the worker that runs here reports; threads that a function starts are none.
_report_here: ContextVar[Report | None] = ContextVar("_report_here", default=None)


def is_worker_of(report: Report) -> bool:
    """True on a thread or in a task that reports there."""
    return _report_here.get() == report


class Job(NamedTuple):
    """What workers call.

    Attributes
    ----------
    function : callable
        Gets a record, or a list of records if `gets_lists`.
    on_failure : callable or None
        Gets a record and its error.
    gets_lists : bool
    context : callable
        Returns the context of a call of the function, from what that gets: interceptors'.
    """

    function: Callable[[Any], Any]
    on_failure: Callable[[Any, Exception], Any] | None
    gets_lists: bool
    context: Callable[[Any], AbstractContextManager[object]]

    def argument(self, attempt: Attempt) -> Any:
        """Return what the function gets."""
        return attempt.records if self.gets_lists else attempt.taken[0].record

    def context_of(self, attempt: Attempt) -> AbstractContextManager[object]:
        """Return the context in which the function processes the records of an attempt."""
        return self.context(self.argument(attempt)) if attempt.failure is None else nullcontext()

    def call(self, attempt: Attempt) -> Any:
        """Let the function process the records of an attempt, or `on_failure` deal with a failed one."""
        if attempt.failure is None:
            return self.function(self.argument(attempt))
        assert self.on_failure is not None
        return self.on_failure(attempt.taken[0].record, attempt.failure)

    def call_in_context(self, attempt: Attempt) -> Any:
        """Do so on a thread."""
        with self.context_of(attempt):
            return self.call(attempt)


class ProcessWorkers(ABC):
    """What runs attempts."""

    @abstractmethod
    def start(self, attempt: Attempt, running_count: int) -> None:
        """Begin an attempt, which is reported later. `running_count` is the number of those that run then."""

    def abandon(self, attempt: Attempt) -> None:  # noqa: B027 threads cannot be ended
        """End an attempt whose outcome does not count any more, if that is possible."""

    @abstractmethod
    def stop(self) -> None:
        """Release the workers, without waiting for what still runs."""


@final
class ThreadWorkers(ProcessWorkers):
    """Up to `limit` daemon threads of a name, which start when needed. Each calls `on_end()` at its end."""

    def __init__(
        self,
        call: Callable[[Attempt], Any],
        report: Report,
        limit: int,
        name: str,
        on_end: Callable[[], object] = lambda: None,
    ) -> None:
        self._call = call
        self._report = report
        self._limit = limit
        self._name = name
        self._on_end = on_end
        self._attempts: SimpleQueue[Attempt | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def start(self, attempt: Attempt, running_count: int) -> None:
        if len(self._threads) < min(running_count, self._limit):
            name = f"{self._name}-{len(self._threads)}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)
        self._attempts.put(attempt)

    def stop(self) -> None:
        for _ in self._threads:
            self._attempts.put(None)

    def _run(self) -> None:
        _report_here.set(self._report)
        while (attempt := self._attempts.get()) is not None:
            self._report(self._outcome(attempt))
            del attempt  # or its records would live until the next ones come
        self._on_end()

    def _outcome(self, attempt: Attempt) -> Outcome:
        try:
            return Outcome(attempt, self._call(attempt), None)
        except BaseException as error:
            return Outcome(attempt, None, error)


class ChildProcess:
    """A process that calls the function, for a thread that waits for it."""

    def __init__(self, function: Callable[[Any], Any], name: str) -> None:
        context: Any = multiprocessing.get_context(START_METHOD)
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, function), name=name, daemon=True)
        self._process.start()
        theirs.close()

    def call(self, argument: Any) -> Any:
        """Return what the function returns, or raise what it raises; WorkerDiedError if it never does."""
        try:
            self._connection.send(argument)
            result, error = self._connection.recv()
        except (EOFError, OSError) as ended:
            self._process.join(DEATH_SECONDS)
            raise WorkerDiedError(
                f"the worker process {self._process.name} ended with {self._process.exitcode} while it had a "
                "record; another one is started"
            ) from ended
        if error is not None:
            raise error
        return result

    def close(self) -> None:
        """Let the process end, which waits for an argument."""
        self._connection.close()

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.terminate()


def _serve(connection: Connection, function: Callable[[Any], Any]) -> None:
    """Be a worker process until the other end of the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that polls
    with suppress(EOFError, OSError):
        while True:
            argument = connection.recv()
            try:
                answer: tuple[Any, BaseException | None] = (function(argument), None)
            except BaseException as error:
                answer = (None, error)
            try:
                connection.send(answer)
            except (EOFError, OSError):
                raise
            except Exception:  # it cannot be pickled
                text = UNPICKLED if answer[1] is None else repr(answer[1])
                connection.send((None, RuntimeError(text)))


@final
class ChildWorkers(ProcessWorkers):
    """Processes, each with a thread that waits for it; `on_failure` runs on that thread.

    They are started by a fork server, or anew: a process with threads must not fork.
    """

    def __init__(self, job: Job, report: Report, limit: int, name: str) -> None:
        self._job = job
        self._name = name
        self._own = threading.local()
        self._busy: dict[Attempt, ChildProcess] = {}
        self._threads = ThreadWorkers(self._call, report, limit, name, self._close)

    def _close(self) -> None:
        """End the process of this thread."""
        if (child := getattr(self._own, "child", None)) is not None:
            child.close()

    def _call(self, attempt: Attempt) -> Any:
        """Call the function in the process of this thread."""
        if attempt.failure is not None:
            return self._job.call(attempt)
        child = getattr(self._own, "child", None)
        if child is None:
            child = self._own.child = ChildProcess(self._job.function, threading.current_thread().name)
        self._busy[attempt] = child
        try:
            with self._job.context_of(attempt):
                return child.call(self._job.argument(attempt))
        except WorkerDiedError:
            self._own.child = None
            raise
        finally:
            del self._busy[attempt]

    def start(self, attempt: Attempt, running_count: int) -> None:
        self._threads.start(attempt, running_count)

    def abandon(self, attempt: Attempt) -> None:
        if (child := self._busy.get(attempt)) is not None:
            child.end()

    def stop(self) -> None:
        for child in list(self._busy.values()):
            child.end()
        self._threads.stop()  # which end the other processes


@final
class ExecutorWorkers(ProcessWorkers):
    """The program's own executor. What `on_failure` has to do runs on threads of ours, as an executor of
    processes could not take it.
    """

    def __init__(self, executor: Executor, job: Job, report: Report, threads: ThreadWorkers) -> None:
        self._executor = executor
        self._job = job
        self._report = report
        self._threads = threads

    def start(self, attempt: Attempt, running_count: int) -> None:
        if attempt.failure is not None:
            self._threads.start(attempt, running_count)
            return
        future = self._executor.submit(self._job.function, self._job.argument(attempt))
        future.add_done_callback(partial(self._done, attempt))

    def _done(self, attempt: Attempt, future: Future[Any]) -> None:
        if future.cancelled():
            error: BaseException | None = RuntimeError("its future was cancelled")
        else:
            error = future.exception()
        self._report(Outcome(attempt, None if error is not None else future.result(), error))

    def stop(self) -> None:
        self._threads.stop()


@final
class TaskWorkers(ProcessWorkers):
    """Tasks of the running event loop, one an attempt."""

    def __init__(self, job: Job, report: Report) -> None:
        self._job = job
        self._report = report
        self._tasks: dict[Attempt, asyncio.Task[None]] = {}

    def start(self, attempt: Attempt, running_count: int) -> None:
        context = copy_context()
        context.run(_report_here.set, self._report)
        self._tasks[attempt] = asyncio.get_running_loop().create_task(self._run(attempt), context=context)

    async def _run(self, attempt: Attempt) -> None:
        try:
            with self._job.context_of(attempt):
                result = self._job.call(attempt)
                outcome = Outcome(attempt, await result if isawaitable(result) else result, None)
        except asyncio.CancelledError as cancelled:
            error = RuntimeError("its task was cancelled")
            error.__cause__ = cancelled
            outcome = Outcome(attempt, None, error)
        except BaseException as error:
            outcome = Outcome(attempt, None, error)
        del self._tasks[attempt]
        self._report(outcome)

    def abandon(self, attempt: Attempt) -> None:
        if attempt in self._tasks:
            self._tasks[attempt].cancel()

    def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()


def check_importable(function: Callable[[Any], Any]) -> None:
    """Raise TypeError unless another process can import the function."""
    try:
        ForkingPickler.dumps(function)
    except Exception as error:
        raise TypeError(
            f"processes import the function by its name, which {function!r} does not have; define it with "
            f"def at the top of a module: {error}"
        ) from error
