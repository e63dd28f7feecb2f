"""Workers of `process()`: threads, the program's own executor, and tasks of an event loop.

Theory of operation. Workers get attempts one by one, as many at a time as there are workers, and report each
with what the function returned or raised. They know nothing of partitions. An attempt that is still running
when `process()` ends is left to itself: its thread is a daemon, its task is cancelled.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from inspect import isawaitable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, final

if TYPE_CHECKING:
    from kbatch.core.process.scheduler import Attempt


class Outcome(NamedTuple):
    """The end of an attempt: what its function has returned, or raised."""

    attempt: Attempt
    result: Any
    error: BaseException | None


Report = Callable[[Outcome], object]


class Job(NamedTuple):
    """What workers call.

    Attributes
    ----------
    function : callable
        Gets a record, or a list of records if `gets_lists`.
    on_failure : callable or None
        Gets a record and its error.
    gets_lists : bool
    """

    function: Callable[[Any], Any]
    on_failure: Callable[[Any, Exception], Any] | None
    gets_lists: bool

    def argument(self, attempt: Attempt) -> Any:
        """Return what the function gets."""
        return attempt.records if self.gets_lists else attempt.taken[0].record

    def call(self, attempt: Attempt) -> Any:
        """Let the function process the records of an attempt, or `on_failure` deal with a failed one."""
        if attempt.failure is None:
            return self.function(self.argument(attempt))
        assert self.on_failure is not None
        return self.on_failure(attempt.taken[0].record, attempt.failure)


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
    """Up to `limit` daemon threads of a name, which start when they are needed."""

    def __init__(self, job: Job, report: Report, limit: int, name: str) -> None:
        self._job = job
        self._report = report
        self._limit = limit
        self._name = name
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
        while (attempt := self._attempts.get()) is not None:
            self._report(called(self._job, attempt))
            del attempt  # or its records would live until the next ones come


def called(job: Job, attempt: Attempt) -> Outcome:
    """Return the outcome of an attempt, which runs on this thread."""
    try:
        return Outcome(attempt, job.call(attempt), None)
    except BaseException as error:
        return Outcome(attempt, None, error)


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
        self._tasks[attempt] = asyncio.get_running_loop().create_task(self._run(attempt))

    async def _run(self, attempt: Attempt) -> None:
        try:
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
