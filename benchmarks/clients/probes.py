"""Measurements of this process, other processes and the machine: memory, processor time, bytes sent, threads,
waits. Only Linux has /proc; elsewhere its figures are unknown.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from kbatch.producer.threads import Producer

STATUS = Path("/proc/self/status")
CLEAR_REFS = Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # for resident memory; see proc(5)
NETWORK_DEVICES = Path("/proc/net/dev")
# Positions of fields in a line of /proc/net/dev, after its name, and in /proc/PID/stat, after its comm.
TRANSMITTED_BYTES, PARENT, USER_TICKS, SYSTEM_TICKS, START_TICKS = 8, 1, 11, 12, 19
TASKS = Path("/proc/self/task")

Item = TypeVar("Item")


def cpu_ns_of(process_id: int | None) -> int | None:
    """Return the processor time of another process, in clock ticks; None if it is not on this machine."""
    fields = _stat(Path(f"/proc/{process_id}"))
    return None if fields is None else _cpu_ns(fields)


def tree_cpu_ns(process_id: int) -> dict[tuple[int, int], int]:
    """Return the processor time of a process and each living descendant, by process id and start.

    Ended ones are unknown: Spark's daemon ignores SIGCHLD, and the kernel then adds a child's time to no
    process.
    """
    found = {int(path.name): _stat(path) for path in Path("/proc").iterdir() if path.name.isdecimal()}
    below: dict[int, list[int]] = {}
    for number, fields in found.items():
        if fields is not None:
            below.setdefault(int(fields[PARENT]), []).append(number)
    tree, left = {}, [process_id]
    while left:
        number = left.pop()
        if (fields := found.get(number)) is not None:
            tree[number, int(fields[START_TICKS])] = _cpu_ns(fields)
            left += below.get(number, [])
    return tree


def _stat(process: Path) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the name, or None if there is no such process."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _cpu_ns(fields: list[str]) -> int:
    return (int(fields[USER_TICKS]) + int(fields[SYSTEM_TICKS])) * 10**9 // os.sysconf("SC_CLK_TCK")


def wire_bytes() -> int | None:
    """Return the bytes sent over all interfaces of this machine, loopback and headers included."""
    try:
        lines = NETWORK_DEVICES.read_text().splitlines()[2:]
    except FileNotFoundError:
        return None
    return sum(int(line.partition(":")[2].split()[TRANSMITTED_BYTES]) for line in lines)


def resident_kib(field: str) -> int:
    """Return VmRSS or its peak VmHWM. Without /proc return ru_maxrss, which starts at the parent's peak."""
    if not STATUS.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == "darwin" else 1)
    for line in STATUS.read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise ValueError(f"{STATUS} has no {field}")


def forget_peak() -> None:
    """Reset VmHWM, so that it is the peak from now on."""
    if CLEAR_REFS.exists():
        CLEAR_REFS.write_text(RESET_PEAK)


def watched(items: Iterable[Item], every: int, samples_kib: list[int]) -> Iterator[Item]:
    """Yield the items; every n-th time append the resident memory to `samples_kib`."""
    for number, item in enumerate(items, 1):
        if number % every == 0:
            samples_kib.append(resident_kib("VmRSS"))
        yield item


def metric(producer: Producer, name: str) -> float:
    """Return the producer's metric of that name, summed over topics and nodes."""
    metrics = producer.metrics().items()
    return next(
        value
        for key, value in metrics
        if (key.name, len(key.tags), key.group) == (name, 1, "producer-metrics")
    )


def threads() -> dict[str, dict[str, int]]:
    """Return CPU time, and the number of voluntary and involuntary context switches, by thread name."""
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
    """Measure each thread of a producer from now to `taken`."""

    _TOTALS = ("request-total", "outgoing-byte-total")

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        network: Any = producer._runtime.network
        self._network = network
        self._batch_count = 0
        deliver = network._deliver

        def counted(completions: list[Any]) -> None:
            self._batch_count += len(completions)
            deliver(completions)

        network._deliver = counted
        self._threads = threads()
        self._totals = self._counted()
        self._stages = SenderStages()

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
        return {"totals": totals, "threads": measured, "stages": self._stages.own_ns}


class SenderStages:
    """Measure the processor time of the sender's thread by activity: each function's own, without callees
    that are in the list too. Once a process.
    """

    def __init__(self) -> None:
        from kbatch.core.client.connections import Connections
        from kbatch.core.producer.sender import Sender
        from kbatch.network.channels import PlainChannel
        from kbatch.network.threads import ThreadNetwork

        self.own_ns: dict[str, int] = {}
        self._below_ns = [0]
        stages: tuple[tuple[str, type, str], ...] = (
            ("loop, selector and engine", ThreadNetwork, "_round"),
            ("ready, drain, expire", Sender, "run"),
            ("sequences, stamp, request", Sender, "_send"),
            ("request encode", Connections, "send"),
            ("sendmsg", PlainChannel, "flush"),
            ("recv", PlainChannel, "receive"),
            ("response decode", Connections, "handle_bytes"),
            ("outcome of batches", Sender, "handle_response"),
        )
        for stage, owner, method in stages:
            self.own_ns[stage] = 0
            setattr(owner, method, self._timed(stage, getattr(owner, method)))

    def _timed(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            self._below_ns.append(0)
            start_ns = time.thread_time_ns()
            try:
                return function(*arguments, **keywords)
            finally:
                took_ns = time.thread_time_ns() - start_ns
                self.own_ns[stage] += took_ns - self._below_ns.pop()
                self._below_ns[-1] += took_ns

        return call


class GilWaits:
    """Count how often a producer's sender waits for the GIL around a system call that never blocks.

    The call releases the GIL, or the GIL is taken away; either way it takes longer than half a switch
    interval. Waits for sockets (sleeps) may end in such a wait too, which cannot be separated from the sleep;
    they are counted apart. Once a process.
    """

    def __init__(self, producer: Producer) -> None:
        from kbatch.network.channels import PlainChannel

        network: Any = producer._runtime.network
        self._network = network
        self._long_ns = int(sys.getswitchinterval() / 2 * 1e9)
        self._call_count = self._wait_count = self._waited_ns = self._sleep_count = 0
        self._rounds = network.round_count
        owners: tuple[tuple[object, str], ...] = (
            (PlainChannel, "flush"),
            (PlainChannel, "receive"),
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

        setattr(network._selector, "select", select)  # noqa: B010

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
