"""The metrics of polls, under Java's names (KafkaConsumerMetrics)."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from kbatch.metrics import MetricsRegistry


@final
class PollMetrics:
    """The sensors of polls. Times are in nanoseconds."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._between = registry.sensor("time-between-poll")
        self._idle = registry.sensor("poll-idle-ratio")
        self._began_ns = -1
        self._away_ns = 0  # between the beginnings of the last two polls
        registry.gauge("last-poll-seconds-ago", self._seconds_since_poll)

    def begin(self, now_ns: int) -> None:
        """Record the beginning of a poll."""
        self._away_ns = 0 if self._began_ns < 0 else now_ns - self._began_ns
        self._between.record(self._away_ns / 1e6, now_ns // 1_000_000)
        self._began_ns = now_ns

    def end(self, now_ns: int) -> None:
        """Record its end."""
        polled_ns = now_ns - self._began_ns
        idle = polled_ns / (polled_ns + self._away_ns) if polled_ns else 0.0
        self._idle.record(idle, now_ns // 1_000_000)

    def _seconds_since_poll(self, now_ms: int) -> float:
        return -1.0 if self._began_ns < 0 else now_ms // 1000 - self._began_ns // 1_000_000_000
