"""The metrics of polls, under Java's names (KafkaConsumerMetrics)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbatch._native.fetch.quick_polls import PollTimes

if TYPE_CHECKING:
    from kbatch.metrics import MetricsRegistry


def poll_times(registry: MetricsRegistry) -> PollTimes:
    """Return what records the times of polls, in the metrics of a client."""
    times = PollTimes(registry.sensor("time-between-poll"), registry.sensor("poll-idle-ratio"))

    def seconds_since_poll(now_ms: int) -> float:
        return -1.0 if times.began_ns < 0 else now_ms // 1000 - times.began_ns // 1_000_000_000

    registry.gauge("last-poll-seconds-ago", seconds_since_poll)
    return times
