"""What `process()` can be told, and what it returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from kbatch.consumer.process.forwarding import RecordForwarder
from kbatch.core.process.retry import Retry
from kbatch.core.process.scheduler import Limits, Order
from kbatch.records import INT64_MAX, check_integer
from kbatch.timeouts import checked_seconds

if TYPE_CHECKING:
    from kbatch._native.codec.record import ConsumerRecord

ORDERS = ("key", "partition", "none")
# What becomes of a record after its last attempt.
OnFailure = Literal["stop", "skip"] | Callable[["ConsumerRecord", Exception], Awaitable[object] | object]
# The most workers: each is a thread or a process.
MOST_WORKERS = 10_000


class ProcessOptions(TypedDict, total=False):
    """The options of `process()`; docs/process.md explains them."""

    order: Order
    batch: int
    max_in_flight: int
    max_ahead: int
    max_bytes: int
    retry: Retry
    on_failure: OnFailure
    commit_interval: float
    revoke_timeout: float
    stall_timeout: float | None


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """The same, with their defaults, after they are checked."""

    order: Order = "key"
    batch: int = 1
    max_in_flight: int = 1000
    max_ahead: int = 100_000
    max_bytes: int = 64 << 20
    retry: Retry = field(default_factory=Retry)
    on_failure: OnFailure = "stop"
    commit_interval: float = 1.0
    revoke_timeout: float = 10.0
    stall_timeout: float | None = None

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ValueError(f'order must be "key", "partition" or "none", got {self.order!r}')
        for name in ("batch", "max_in_flight", "max_ahead", "max_bytes"):
            check_integer(name, getattr(self, name), 1, INT64_MAX)
        if not isinstance(self.retry, Retry):
            raise TypeError(f"retry must be a kbatch.Retry, got {self.retry!r}; write Retry(attempts=3)")
        is_named = isinstance(self.on_failure, str) and self.on_failure in ("stop", "skip")
        if not is_named and not callable(self.on_failure):
            raise TypeError(
                'on_failure must be "stop", "skip", a DeadLetter, RetryTopics or another callable, got '
                f"{self.on_failure!r}"
            )
        if isinstance(self.on_failure, RecordForwarder):
            self.on_failure.check_no_transactions()
        for name in ("commit_interval", "revoke_timeout"):
            checked_seconds(getattr(self, name), name, "pass a number of seconds")
        if self.stall_timeout is not None:
            checked_seconds(self.stall_timeout, "stall_timeout", "pass None for no warnings")

    def check_kind(self, client: str, *, is_async: bool) -> None:
        """Raise TypeError if `on_failure` has a producer that is not of the kind of a consumer."""
        if isinstance(self.on_failure, RecordForwarder):
            self.on_failure.check_kind(client, is_async=is_async)

    def limits(self, workers: int) -> Limits:
        return Limits(workers, self.batch, self.max_in_flight, self.max_bytes, self.max_ahead)


def settings_of(name: str, workers: int, given: Any) -> ProcessSettings:
    """Return the settings that options make. `name` is the argument with the number of workers. Raise
    TypeError or ValueError for unsuitable ones.
    """
    check_integer(name, workers, 1, MOST_WORKERS)
    known = [each.name for each in fields(ProcessSettings)]
    for each in given:
        if each not in known:
            raise TypeError(f"process() has no option {each!r}; it has {name}, {', '.join(known)}")
    return ProcessSettings(**given)


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """What a `process()` has done, in records.

    Attributes
    ----------
    finished : int
        The function has returned.
    failed, retried : int
        Failed attempts, and those of them that were followed by another.
    skipped, handled : int
        What became of records after their last attempt: skipped, or given to `on_failure`.
    repeated : int
        Not processed, since an earlier owner of the partition had finished them.
    dropped : int
        Outcomes that came too late: the partition had been given up. Its next owner processes the records.
    """

    finished: int
    failed: int
    retried: int
    skipped: int
    handled: int
    repeated: int
    dropped: int
