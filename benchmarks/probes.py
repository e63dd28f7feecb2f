"""What a process that drives a producer can see of itself: memory, processor time, threads, waits."""

from __future__ import annotations

import resource
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from kbatch import Producer

STATUS = Path("/proc/self/status")
TASKS = Path("/proc/self/task")

Item = TypeVar("Item")


def process_cpu_ns() -> int:
    """Of all threads, in user and kernel mode."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return int((used.ru_utime + used.ru_stime) * 1e9)


def resident_kib(field: str) -> int:
    """VmRSS or VmHWM, its peak: ru_maxrss would begin with what the parent process had."""
    for line in STATUS.read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise ValueError(f"{STATUS} has no {field}")


def watched(items: Iterable[Item], every: int, samples_kib: list[int]) -> Iterator[Item]:
    """The items; with each so many-th the resident memory of that moment goes into `samples_kib`."""
    for number, item in enumerate(items, 1):
        if number % every == 0:
            samples_kib.append(resident_kib("VmRSS"))
        yield item


def metric(producer: Producer, name: str) -> float:
    """The producer's metric of that name, over all topics and nodes."""
    metrics = producer.metrics().items()
    return next(
        value
        for key, value in metrics
        if (key.name, len(key.tags), key.group) == (name, 1, "producer-metrics")
    )


def threads() -> dict[str, dict[str, int]]:
    """By name: CPU time, and how often the thread gave its core up, to wait or by force."""
    found = {}
    for thread in threading.enumerate():
        assert thread.ident is not None
        values = {"cpu_ns": time.clock_gettime_ns(time.pthread_getcpuclockid(thread.ident))}
        for line in (TASKS / str(thread.native_id) / "status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.endswith("ctxt_switches"):
                values[name] = int(value)
        found[thread.name] = values
    return found


class Profile:
    """What each thread of a producer does from now to `taken`, and what comes of it."""

    _TOTALS = ("request-total", "outgoing-byte-total")

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._network = network = producer._network
        self._batch_count = 0
        deliver = network._deliver

        def counted(completions: list[Any]) -> None:
            self._batch_count += len(completions)
            deliver(completions)

        network._deliver = counted
        self._threads = threads()
        self._totals = self._counted()

    def _counted(self) -> dict[str, float]:
        return {"rounds": self._network.round_count, "batches": self._batch_count} | {
            name: metric(self._producer, name) for name in self._TOTALS
        }

    def taken(self) -> dict[str, Any]:
        measured = {}
        for name, values in threads().items():
            before = self._threads.get(name, {})
            measured[name] = {key: value - before.get(key, 0) for key, value in values.items()}
        totals = {name: value - self._totals[name] for name, value in self._counted().items()}
        return {"totals": totals, "threads": measured}


class GilWaits:
    """How often a producer's sender waits for the GIL behind a system call that itself never blocks: when it
    took longer than half a switch interval. Waits for sockets (sleeps) end in such a wait, too, that nobody
    can tell from the sleep; they are counted apart. Once a process.
    """

    def __init__(self, producer: Producer) -> None:
        from kbatch.network.channels import PlainChannel

        self._network = network = producer._network
        self._long_ns = int(sys.getswitchinterval() / 2 * 1e9)
        self._call_count = self._wait_count = self._waited_ns = self._sleep_count = 0
        self._rounds = network.round_count
        owners: tuple[tuple[object, str], ...] = (
            (PlainChannel, "flush"),
            (PlainChannel, "receive"),
            (network._waker, "clear"),
        )
        for owner, method in owners:
            setattr(owner, method, self._timed(getattr(owner, method)))
        sleep = network._selector.select
        look = self._timed(sleep)

        def select(timeout: float | None = None) -> Any:
            if timeout == 0:
                return look(timeout)
            self._sleep_count += 1
            return sleep(timeout)

        network._selector.select = select  # type: ignore[method-assign]

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            start_ns = time.perf_counter_ns()
            try:
                return function(*arguments)
            finally:
                took_ns = time.perf_counter_ns() - start_ns
                self._call_count += 1
                if took_ns > self._long_ns:
                    self._wait_count += 1
                    self._waited_ns += took_ns

        return call

    def taken(self) -> dict[str, int]:
        return {
            "rounds": self._network.round_count - self._rounds,
            "sleeps": self._sleep_count,
            "calls": self._call_count,
            "waits": self._wait_count,
            "waited_ns": self._waited_ns,
        }
