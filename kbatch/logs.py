"""ClientLogger: how clients log. Their own threads hand lines to a thread that may wait, and go on.

Theory of operation. Whoever logs waits for the locks of handlers and runs their code, which may take long,
and may wait for the client: a handler that sends to Kafka, or that closes its producer under its lock, as
logging.config.dictConfig does. So no thread of a client logs by itself. It decides whether the line is
wanted, which takes no lock, and puts it into a queue, with its time and place. One daemon thread of the
process, which starts with the first line, hands the lines to `logging` in their order. A program's own
threads log directly.

The queue is bounded. Lines that find it full are counted, and the count is logged when there is room again.
`flush` waits for the lines so far, and not for long if a handler is stuck.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import time
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, final

from kbatch._native.io.interrupts import NativeEvent, own_thread
from kbatch._native.io.threads import ClientThread
from kbatch.unpatched import real_threading

# Lines that may wait for a handler.
MOST_LINES = 10_000
# How long `flush` waits for a stuck handler: at the end of a client, and of the interpreter.
CLOSE_SECONDS, EXIT_SECONDS = 0.2, 5.0

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


class _Line(NamedTuple):
    """A line of the log, with what its place and time give to its record."""

    logger: logging.Logger
    level: int
    message: str
    arguments: tuple[object, ...]
    exc_info: ExcInfo | None
    path: str
    number: int
    function: str
    created: float
    thread: int
    thread_name: str

    def hand_over(self) -> None:
        """Let the handlers have it."""
        record = self.logger.makeRecord(
            self.logger.name,
            self.level,
            self.path,
            self.number,
            self.message,
            self.arguments,
            self.exc_info,
            self.function,
        )
        late_ms = (record.created - self.created) * 1000
        record.created = self.created
        record.msecs = (self.created - int(self.created)) * 1000
        record.relativeCreated -= late_ms
        record.thread, record.threadName = self.thread, self.thread_name
        self.logger.handle(record)


@final
class _Lines:
    """The lines that wait, and the thread that hands them over."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget the lines of a parent process, whose thread hands them over."""
        self._waiting: deque[_Line | NativeEvent] = deque()
        self._dropped_count = 0
        self._rung = real_threading().Semaphore(0)
        self._starting = real_threading().Lock()
        self._thread: ClientThread | None = None

    def put(self, line: _Line) -> None:
        if len(self._waiting) >= MOST_LINES:
            self._dropped_count += 1
            return
        self._waiting.append(line)
        self._rung.release()
        if self._thread is None:
            self._start()

    def _start(self) -> None:
        with self._starting, suppress(RuntimeError):  # no new threads: `flush` at exit hands them over
            if self._thread is None:
                thread = ClientThread(self._run, "kbatch-log")
                thread.start()
                self._thread = thread

    def flush(self, seconds: float) -> bool:
        """True if all lines so far were handed over within the time. A client's thread does not wait."""
        if own_thread() is not None:
            return not self._waiting
        if self._thread is None:
            while self._waiting:
                self._hand_over_next()
            return True
        reached = NativeEvent()
        self._waiting.append(reached)
        self._rung.release()
        return reached.wait(seconds)

    def _run(self) -> None:
        while True:
            self._rung.acquire()
            self._hand_over_next()

    def _hand_over_next(self) -> None:
        with suppress(IndexError):  # another thread was faster
            line = self._waiting.popleft()
            if isinstance(line, NativeEvent):
                line.set()
                return
            with suppress(BaseException):  # a handler's
                line.hand_over()
            dropped_count, self._dropped_count = self._dropped_count, 0
            if dropped_count:
                with suppress(BaseException):
                    line.logger.warning(
                        "%d lines of clients are missing here: handlers were too slow", dropped_count
                    )


_lines = _Lines()


def flush(seconds: float = CLOSE_SECONDS) -> bool:
    """Wait until the lines so far were handed to the handlers; False if that takes longer."""
    return _lines.flush(seconds)


@final
class ClientLogger:
    """A logging.Logger for modules whose code also runs on threads of clients."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, message: str, *arguments: object) -> None:
        self._log(logging.DEBUG, message, arguments)

    def info(self, message: str, *arguments: object) -> None:
        self._log(logging.INFO, message, arguments)

    def warning(self, message: str, *arguments: object) -> None:
        self._log(logging.WARNING, message, arguments)

    def error(self, message: str, *arguments: object, exc_info: BaseException | None = None) -> None:
        self._log(logging.ERROR, message, arguments, exc_info)

    def exception(self, message: str, *arguments: object) -> None:
        """Log an error with the exception that is being handled."""
        self._log(logging.ERROR, message, arguments, sys.exc_info()[1])

    def critical(self, message: str, *arguments: object, exc_info: BaseException | None = None) -> None:
        self._log(logging.CRITICAL, message, arguments, exc_info)

    def log(self, level: int, message: str, *arguments: object) -> None:
        self._log(level, message, arguments)

    def _log(
        self, level: int, message: str, arguments: tuple[object, ...], error: BaseException | None = None
    ) -> None:
        logger = self._logger
        thread = own_thread()
        if thread is None:
            logger.log(level, message, *arguments, exc_info=error, stacklevel=3)
            return
        # isEnabledFor would wait for a lock, which dictConfig holds
        if logger.disabled or logger.manager.disable >= level or logger.getEffectiveLevel() > level:
            return
        frame = sys._getframe(2)
        _lines.put(
            _Line(
                logger,
                level,
                *_rendered(message, arguments),
                None if error is None else (type(error), error, error.__traceback__),
                frame.f_code.co_filename,
                frame.f_lineno,
                frame.f_code.co_name,
                time.time(),
                thread.ident,
                thread.name,
            )
        )


def _rendered(message: str, arguments: tuple[object, ...]) -> tuple[str, tuple[object, ...]]:
    """Return what is formatted later, with texts of what may have changed by then."""
    if "%r" in message:
        return message % arguments, ()
    fixed = (str, int, float, BaseException)
    return message, tuple(each if isinstance(each, fixed) else str(each) for each in arguments)


def _flush_at_exit() -> None:
    flush(EXIT_SECONDS)


atexit.register(_flush_at_exit)  # it runs after those of clients, whose modules come later
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_lines.begin_anew)
