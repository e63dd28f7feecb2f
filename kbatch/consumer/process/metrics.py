"""The metrics of `process()`: what is in memory and at work, and what has become of records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, final

from kbatch.core.client.backoff import NS_PER_MS
from kbatch.core.process.scheduler import Counts

if TYPE_CHECKING:
    from kbatch.core.process.scheduler import ProcessScheduler
    from kbatch.metrics import MetricsRegistry
    from kbatch.records import TopicPartition


@final
class ProcessMetrics:
    """The metrics of one `process()`; totals go on from those before.

    Parameters
    ----------
    registry : MetricsRegistry
        It must not refer to the consumer, and the scheduler does not.
    scheduler : ProcessScheduler
    waiting : mapping of TopicPartition to int
        The partitions whose next record may not be taken yet.
    now_ns : int
    """

    def __init__(
        self,
        registry: MetricsRegistry,
        scheduler: ProcessScheduler,
        waiting: Mapping[TopicPartition, int],
        now_ns: int,
    ) -> None:
        self._registry = registry
        self._scheduler = scheduler
        self._function_time = registry.sensor("process-time")
        registry.observe(now_ns // NS_PER_MS)  # what an earlier one has counted
        for each in fields(Counts):
            registry.counter(f"process-{each.name}", partial(attrgetter(each.name), scheduler.counts))
        gauges = {
            "records-running": self._running,
            "records-waiting": self._waiting,
            "records-parked": lambda now_ms: scheduler.parked_count,
            "keys-backing-off": lambda now_ms: scheduler.backing_off_count,
            "bytes-in-flight": lambda now_ms: scheduler.byte_count,
            "ahead-max": self._ahead,
            "metadata-characters-max": self._characters,
            "partitions-cut": lambda now_ms: sum(each.progress.is_cut for each in scheduler.partitions()),
            "partitions-blocked": lambda now_ms: sum(each.is_blocked for each in scheduler.partitions()),
            "partitions-waiting": lambda now_ms: len(waiting),
            "longest-running-time": self._longest_ms,
            "oldest-unfinished-time": self._oldest_ms,
        }
        for name, read in gauges.items():
            registry.gauge(name, read)

    def ran(self, started_ns: int, now_ns: int) -> None:
        """Record the end of an attempt."""
        self._function_time.record((now_ns - started_ns) / NS_PER_MS, now_ns // NS_PER_MS)

    def end(self, now_ns: int) -> None:
        """Record what was counted last."""
        self._registry.observe(now_ns // NS_PER_MS)

    def _running(self, now_ms: int) -> float:
        return sum(len(each.taken) for each in list(self._scheduler.running))

    def _waiting(self, now_ms: int) -> float:
        return max(self._scheduler.record_count - self._running(now_ms), 0)

    def _ahead(self, now_ms: int) -> float:
        return max((each.progress.span for each in self._scheduler.partitions()), default=0)

    def _characters(self, now_ms: int) -> float:
        offsets = [each.committed for each in self._scheduler.partitions()]
        return max((len(each.metadata) for each in offsets if each is not None), default=0)

    def _longest_ms(self, now_ms: int) -> float:
        return _age_ms([each.started_ns for each in list(self._scheduler.running)], now_ms)

    def _oldest_ms(self, now_ms: int) -> float:
        taken = [each.progress.taken_ns[:1] for each in self._scheduler.partitions()]
        return _age_ms([at for first in taken for at in first], now_ms)


def _age_ms(times_ns: list[int], now_ms: int) -> float:
    """Return how long ago the earliest of these times was; 0 if there are none."""
    return max(now_ms - min(times_ns) // NS_PER_MS, 0) if times_ns else 0.0
