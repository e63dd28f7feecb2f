"""The road of a reader, without an engine."""

from __future__ import annotations

from typing import Any

from kbatch._native.fetch.budget import Budget
from kbatch._native.fetch.frames import FramePool
from kbatch._native.fetch.road import FetchRoad
from kbatch.core.consumer.fetch_session import FetchSession
from kbatch.metrics import CONSUMER_METRICS, MetricsRegistry


def new_road(**options: Any) -> tuple[FetchRoad, FetchSession]:
    """Return a road, and its session with node 0."""
    registry = MetricsRegistry("road", metrics=CONSUMER_METRICS)
    road = FetchRoad(
        Budget(1 << 30),
        FramePool(),
        latency=registry.sensor("fetch-latency"),
        throttle=registry.sensor("fetch-throttle-time"),
        byte_count=registry.sensor("bytes-fetched"),
        **options,
    )
    return road, FetchSession(road, 0, registry.sensor("request-latency", node=0))
