"""Roads of readers, without an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from kbatch._native.fetch.budget import Budget
from kbatch._native.fetch.fetched import Fetched
from kbatch._native.fetch.frames import FramePool
from kbatch._native.fetch.road import FetchRoad
from kbatch.core.consumer.fetch_session import FetchSession
from kbatch.core.consumer.partition_state import NO_END, PartitionState, Start
from kbatch.metrics import CONSUMER_METRICS, MetricsRegistry
from kbatch.records import TopicPartition

TOPIC, TOPIC_ID = "orders", bytes(range(16))
VERSION, CONNECTION, CORRELATION_ID = 17, 5, 77
RESERVED_BYTES = 1 << 20
_REQUEST_BYTES = 80


def new_road(
    budget: Budget | None = None, frames: FramePool | None = None, **options: Any
) -> tuple[FetchRoad, FetchSession]:
    """Return a road, and its session with node 0."""
    registry = MetricsRegistry("road", metrics=CONSUMER_METRICS)
    road = FetchRoad(
        Budget(1 << 30) if budget is None else budget,
        FramePool() if frames is None else frames,
        latency=registry.sensor("fetch-latency"),
        throttle=registry.sensor("fetch-throttle-time"),
        byte_count=registry.sensor("bytes-fetched"),
        **options,
    )
    return road, FetchSession(road, 0, registry.sensor("request-latency", node=0))


class Reader:
    """A road with one node, which has asked for all partitions, each at an offset of its log."""

    def __init__(
        self,
        offsets: Sequence[int],
        *,
        committed: bool,
        is_open: bool,
        version: int = VERSION,
        **options: Any,
    ) -> None:
        self.road, self.session = new_road(client_id="client", reads_committed=committed, **options)
        sensor = MetricsRegistry("reader", metrics=CONSUMER_METRICS).sensor("bytes-fetched", topic=TOPIC)
        self.states = []
        self.version = version
        for number in range(len(offsets)):
            state = PartitionState(TopicPartition(TOPIC, number), 1, Start(0), NO_END, None, 0)
            state.topic_id, state.leader_epoch, state.byte_count = TOPIC_ID, 4, sensor
            self.road.add(state)
            state.place(self.road, self.session)
            self.states.append(state)
        self.ask(offsets, is_open=is_open)

    def ask(self, offsets: Sequence[int], *, is_open: bool) -> None:
        """Ask for all partitions at these offsets; `is_open` says that there is a session before."""
        self.session.is_in_flight = False
        self.session.epoch = int(is_open)
        for state, offset in zip(self.states, offsets, strict=True):
            if state.is_fetching:
                state.fetch_offset, state.last_epoch = offset, -1
            else:
                state.move_to(offset, -1)
        self.road.scan(1 << 40, 0)
        self.session.ask(self.version, RESERVED_BYTES, 0)

    def seen(self) -> list[tuple[Any, ...]]:
        """Return what answers change."""
        return [
            (
                *(each.fetch_offset, each.last_epoch, each.high_watermark, each.last_stable_offset),
                *(each.log_start_offset, each.checked_epoch, each.is_topic_sure, each.is_in_flight),
            )
            for each in self.states
        ]


class Judge:
    """The engine, in answers that leave it nothing to judge."""

    def judge_part(self, *_: Any) -> NoReturn:
        raise AssertionError("a part that the road took was to be judged")

    handle_no_progress = complete = judge_part


def receive(reader: Reader, sent: bytes, cuts: Sequence[int]) -> tuple[list[Fetched], bytes]:
    """Let the road receive an answer in pieces. Return what it took of it, and the bytes that it refused."""
    found: list[Fetched] = []
    road, session = reader.road, reader.session
    road.begin(found.extend)
    session.note_sent(CORRELATION_ID, 0, 0, _REQUEST_BYTES)
    road.lend(
        session,
        CONNECTION,
        -1,
        reader.version,
        next_correlation_id=CORRELATION_ID + 1,
        queued_bytes=_REQUEST_BYTES,
        usable_until_ns=NO_END,
    )
    at, left = 0, sent
    while left:
        size = cuts[at % len(cuts)]
        if not road.received(CONNECTION, left[:size], 0):
            break
        left, at = left[size:], at + 1
    return found, left


def rows_of(found: list[Fetched]) -> list[tuple[Any, ...]]:
    """Return what results say, and the offsets of their records."""
    return [
        (
            *(each.partition, each.from_offset, each.next_offset, each.last_epoch, each.size_bytes),
            None if each.records is None else [record.offset for record in each.records.peek_records(10**6)],
        )
        for each in found
    ]
