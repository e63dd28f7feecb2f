"""Retry: how often, and after which waits, a record is tried again whose function has failed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from kbatch._native.io.backoff import backoff_ns
from kbatch.errors import RecordDeserializationError
from kbatch.records import INT32_MAX, check_integer
from kbatch.timeouts import checked_seconds

if TYPE_CHECKING:
    from kbatch._native.codec.record import ConsumerRecord

NS_PER_SECOND = 1_000_000_000
# In the middle of the shortest and the longest wait that `backoff_ns` returns.
WITHOUT_JITTER = 0.5


class RetryAfter(Exception):
    """Raise it in the function of `process()` to have the record tried again after so many seconds. It counts
    as a failed attempt.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = checked_seconds(seconds, "seconds", "0 tries again at once")
        super().__init__(seconds)  # with which it is made again after it was pickled

    def __str__(self) -> str:
        return f"try again after {self.seconds} s"


class RecordFailed(Exception):
    """Raise it, from the exception that is the cause, in a function that gets several records (`batch`): the
    records before this one are finished, this one has failed, and those after it are to be tried again.
    """

    def __init__(self, record: ConsumerRecord) -> None:
        self.record = record
        super().__init__(record)

    def __str__(self) -> str:
        return f"the record at offset {self.record.offset} failed"


@dataclass(frozen=True, slots=True)
class Retry:
    """When `process()` tries a record again whose function has raised an exception.

    Attributes
    ----------
    attempts : int or None
        How often the function is called for a record before `on_failure` has it; None is for ever. A restart
        of the program begins anew.
    backoff : float
        Seconds before the second attempt. They double with each further one.
    most : float
        Maximum seconds between attempts.
    jitter : float
        The part of a wait, 0 to 1, by which it differs at random.
    on : tuple of exception types
        Other exceptions are not tried again, nor a record that cannot be read (RecordDeserializationError).
    delay : callable or None
        `delay(record, attempt, error)` returns the seconds to wait instead, after the attempt of this number,
        which begins at 1.
    """

    attempts: int | None = 5
    backoff: float = 0.1
    most: float = 30.0
    jitter: float = 0.2
    on: tuple[type[Exception], ...] = (Exception,)
    delay: Callable[[ConsumerRecord, int, Exception], float] | None = None

    def __post_init__(self) -> None:
        if self.attempts is not None:
            check_integer("attempts", self.attempts, 1, INT32_MAX)
        for name in ("backoff", "most"):
            checked_seconds(getattr(self, name), name, "0 tries again at once")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter must be 0 to 1, got {self.jitter!r}")
        kinds = self.on if isinstance(self.on, tuple) else ()
        if not kinds or not all(isinstance(each, type) and issubclass(each, Exception) for each in kinds):
            raise TypeError(f"on must be a tuple of exception types, got {self.on!r}")
        if self.delay is not None and not callable(self.delay):
            raise TypeError(f"delay must be callable or None, got {self.delay!r}")

    def is_last(self, attempt: int, error: Exception) -> bool:
        """True if the attempt of this number, which has failed by `error`, is the last one."""
        is_retried = isinstance(error, (*self.on, RetryAfter))
        is_unreadable = isinstance(error, RecordDeserializationError)
        return is_unreadable or not is_retried or self.has_used_up(attempt)

    def has_used_up(self, attempt: int) -> bool:
        """True if no attempt follows the one of this number, whatever the error."""
        return self.attempts is not None and attempt >= self.attempts

    def wait_ns(self, record: ConsumerRecord, attempt: int, error: Exception, random: Random) -> int:
        """Return the time to wait after a failed attempt."""
        if isinstance(error, RetryAfter):
            seconds = error.seconds
        elif self.delay is not None:
            seconds = checked_seconds(self.delay(record, attempt, error), "delay()", "0 tries again at once")
        else:
            first_ns, most_ns = (int(each * NS_PER_SECOND) for each in (self.backoff, self.most))
            seconds = backoff_ns(first_ns, most_ns, attempt - 1, WITHOUT_JITTER) / NS_PER_SECOND
            seconds = min(seconds * (1 + self.jitter * (2 * random.random() - 1)), self.most)
        return int(seconds * NS_PER_SECOND)
