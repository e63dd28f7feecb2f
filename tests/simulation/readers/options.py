"""The options of a world of readers: those of its seed, and those of its group and its writers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from tests.simulation.world.options import ClusterFaults, Draw, RequestFaults, WorldOptions

STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky", "range,cooperative-sticky")
# The least session.timeout.ms that brokers accept by the classic protocol.
SESSION_MS = 6_000
# How many worlds have a buffer that is soon full. The salt leaves alone those that detect planted bugs.
TIGHTNESS, TIGHT = 0.1, "tight buffer 28"


@dataclass(frozen=True, slots=True)
class Readers:
    """The options of the group.

    Attributes
    ----------
    members : int
        The number of members at first; `most`, the largest number.
    protocols : tuple of str
        group.protocol of the members, in turn; both protocols at once make a group that converts.
    strategy : str
        partition.assignment.strategy of members with the classic protocol.
    statics : bool
        Members have a group.instance.id.
    reset : str
        auto.offset.reset.
    isolation : str
        isolation.level.
    commit : str
        "each": after each poll. "async": the same, without waiting. "auto": what earlier polls gave.
        "seldom": after some polls. "last": only when partitions are revoked, and after the faults.
    poll_records : int
        The largest number of records of a poll.
    poll_ms, work_ms : float
        The longest wait in a poll, and the longest time between two polls.
    callback_ms : float
        The longest time of the callbacks of a rebalance.
    seek, pause : float
        The probability that a poll is followed by a seek; by a pause of some partitions.
    crash, close, freeze, stall, fence, join : float
        How often per second a member dies; leaves; is stopped as by SIGSTOP; does not poll for longer than
        max.poll.interval.ms; is removed by the coordinator; is added.
    away_ms : int
        The longest time until a dead member comes back.
    frozen_ms : int
        The longest time of a stopped process.
    move_coordinator, end_sessions, trim, remake : float
        How often per second the coordinator moves; a node forgets its fetch sessions; the beginning of a log
        is deleted; a topic is deleted, and made anew.
    refused : float
        The probability that a coordinator refuses a request, or a leader a Fetch.
    """

    members: int
    most: int
    protocols: tuple[str, ...]
    strategy: str
    statics: bool
    reset: str
    isolation: str
    commit: str
    poll_records: int
    poll_ms: float
    work_ms: float
    callback_ms: float
    seek: float
    pause: float
    crash: float
    close: float
    freeze: float
    stall: float
    fence: float
    join: float
    away_ms: int
    frozen_ms: int
    move_coordinator: float
    end_sessions: float
    trim: float
    refused: float
    remake: float = 0.0

    @classmethod
    def draw(cls, draw: Draw) -> Readers:
        members = draw.of(1, 2, 2, 3, 3)
        return cls(
            members=members,
            most=members + draw.of(0, 1, 2),
            protocols=draw.of(*[("consumer",)] * 5, *[("classic",)] * 4, ("auto",), ("classic", "consumer")),
            strategy=draw.of(*STRATEGIES),
            statics=draw.chance(0.2, True, False),
            reset=draw.of(*["earliest"] * 5, "latest", "none"),
            isolation=draw.of("read_committed", "read_committed", "read_uncommitted"),
            commit=draw.of("each", "each", "async", "auto", "seldom", "last"),
            poll_records=draw.of(1, 5, 500),
            poll_ms=draw.of(300, 1000, 3000),
            work_ms=draw.of(0, 5, 100),
            callback_ms=draw.of(0, 0, 0, 200, 2000),
            seek=draw.rate(0.1, 0.2),
            pause=draw.rate(0.2, 0.2),
            crash=draw.rate(1, 0.3),
            close=draw.rate(1, 0.3),
            freeze=draw.rate(0.7, 0.25),
            stall=draw.rate(0.7, 0.25),
            fence=draw.rate(1, 0.25),
            join=draw.rate(1, 0.3),
            away_ms=draw.of(10, 1000, 8000),
            frozen_ms=draw.of(300, 4000, 12_000),
            move_coordinator=draw.rate(5, 0.3),
            end_sessions=draw.rate(5, 0.3),
            trim=draw.rate(1, 0.2),
            refused=draw.of(0, 0, 0, 0.05, 0.2),
        )


@dataclass(frozen=True, slots=True)
class Writing:
    """The options of the writers.

    Attributes
    ----------
    writers, transactions : int
        The number of writers; the number of transactions of each.
    batches, records : int
        The largest number of batches in a transaction, and of records in a batch.
    value_bytes : int
        The size of the longest value, without the record's number.
    pause_ms : float
        The longest pause between two batches.
    plain, abort, leave : float
        The probability that a batch is not transactional; that a transaction is aborted; that its producer
        dies, so that it is open until its time-out.
    timeout_ms : int
        transaction.timeout.ms.
    """

    writers: int
    transactions: int
    batches: int
    records: int
    value_bytes: int
    pause_ms: float
    plain: float
    abort: float
    leave: float
    timeout_ms: int

    @classmethod
    def draw(cls, draw: Draw) -> Writing:
        value_bytes = draw.of(10, 100, 100, 100_000)
        return cls(
            writers=draw.of(1, 1, 2),
            transactions=draw.of(4, 8, 15),
            batches=draw.of(1, 2, 4),
            records=draw.of(1, 3, 10) if value_bytes < 1000 else 2,
            value_bytes=value_bytes,
            pause_ms=draw.of(20, 200, 1000),
            plain=draw.of(0, 0.3, 1),
            abort=draw.of(0, 0.2, 0.5),
            leave=draw.of(0, 0, 0.1),
            timeout_ms=draw.of(500, 3000),
        )


@dataclass(frozen=True, slots=True)
class GroupOptions(WorldOptions):
    """A world of readers; `settings` is their configuration."""

    readers: Readers | None = None
    writing: Writing | None = None

    @classmethod
    def draw(cls, seed: int) -> GroupOptions:
        """Return the options of a seed's world."""
        options = WorldOptions.draw(seed)
        draw = Draw(random.Random(f"readers {seed}"))
        readers = Readers.draw(draw)
        # a classic member of a group that converts does not know which topic of a name it has
        if _may_change_topics(readers) and len(readers.protocols) == 1:
            apart = Draw(random.Random(f"topics of readers {seed}"))  # the other options stay what they were
            readers = replace(readers, remake=apart.rate(1, 0.2))
        # by names alone, what is read and committed after a deletion may be of either topic
        apart = Draw(random.Random(f"old brokers of readers 7 {seed}"))
        is_old = readers.protocols == ("classic",) and not readers.remake
        shared: dict[str, Any] = {each.name: getattr(options, each.name) for each in fields(WorldOptions)}
        shared |= {
            "cluster": replace(
                options.cluster,
                node_count=draw.of(1, 2, 3),
                partition_counts={"events": draw.of(1, 2, 3, 4), "orders": draw.of(1, 2)},
                chunk_bytes=draw.of(1 << 20, 1 << 20, 1 << 20, 200),
                broken_addresses=0,
                metadata_version=apart.of(None, None, None, 9, 8) if is_old else None,
                broker=_of_brokers(draw),
            ),
            "request_faults": _request_faults(draw),
            "cluster_faults": _cluster_faults(draw, readers),
            "settings": _settings(draw, readers),
            "fault_ms": draw.of(500, 2000, 5000, 8000),
            "round_us": draw.of(20, 500),
            "theme": "",
            "login": None,
            "replicas": None,
            "tables": None,
        }
        if draw.random.random() < 0.1:
            shared["cluster"] = replace(shared["cluster"], partition_counts={"events": draw.of(1, 2, 3)})
        drawn = cls(**shared, readers=readers, writing=Writing.draw(draw))
        return _tight(drawn) if random.Random(f"{TIGHT} {seed}").random() < TIGHTNESS else drawn

    def parts(self) -> Sequence[Any]:
        replicas = () if self.replicas is None else (self.replicas,)
        return (self.cluster, *replicas, self.readers, self.writing, self.request_faults, self.cluster_faults)


def _tight(options: GroupOptions) -> GroupOptions:
    """Return the same world; a few records fill the memory for what was fetched, and programs are slow."""
    assert options.readers is not None and options.writing is not None
    fetch_bytes = dict.fromkeys(("fetch.max.bytes", "max.partition.fetch.bytes"), 1 << 20)
    return replace(
        options,
        settings=options.settings | fetch_bytes,
        readers=replace(options.readers, poll_records=1, work_ms=100),
        writing=replace(options.writing, value_bytes=300_000, records=2),
    )


def _of_brokers(draw: Draw) -> dict[str, Any]:
    """Draw the options of brokers that concern groups."""
    session_ms = draw.of(1500, 3000, 3000)
    return {
        "group_consumer_session_timeout_ms": session_ms,
        "group_consumer_heartbeat_interval_ms": session_ms // 3,
        "group_consumer_assignment_interval_ms": draw.of(0, 0, 500),
        "group_initial_rebalance_delay_ms": draw.of(0, 0, 300),
    }


def _request_faults(draw: Draw) -> RequestFaults:
    drawn = RequestFaults.draw(draw)
    return replace(
        drawn,
        drop_before=draw.rate(0.1),
        drop_after=draw.rate(0.1),
        error_before=0.0,  # `Readers.refused` instead
        error_after=0.0,
        silence=draw.rate(0.03),
        delay_ms=draw.of(10, 100, 1000),
        throttle=draw.rate(0.1, 0.2),
    )


def _may_change_topics(readers: Readers) -> bool:
    """True if topics may get other partitions. Not if a static member may lead a classic group: one that
    comes back does not assign (KIP-814), and cannot know what has changed meanwhile.
    """
    return not readers.statics or readers.protocols == ("consumer",)


def _cluster_faults(draw: Draw, readers: Readers) -> ClusterFaults:
    """Draw faults of the cluster."""
    quiet = dict.fromkeys(ClusterFaults.__slots__, 0.0)
    drawn = {
        "move_leader": draw.rate(3, 0.4),
        "leave_leaderless": draw.rate(1),
        "stop_node": draw.rate(1),
        "pause_node": draw.rate(1),
        "grow": draw.rate(0.5) * _may_change_topics(readers),
        "hide": draw.rate(0.5),
        "break_connections": draw.rate(3, 0.4),
        "hold": draw.rate(1),
        "fail_over": draw.rate(1, 0.2),
        "elect_unclean": draw.rate(1, 0.12),
    }
    return ClusterFaults(**quiet | drawn)


def _settings(draw: Draw, readers: Readers) -> dict[str, Any]:
    """Draw the readers' configuration, except bootstrap.servers and what members differ in."""
    wait_ms = draw.of(500, 1500, 5000)
    fetch_bytes = draw.of(300, 100_000, 1 << 20)
    return {
        "auto.offset.reset": readers.reset,
        "isolation.level": readers.isolation,
        "fetch.max.wait.ms": wait_ms,
        "fetch.min.bytes": draw.of(1, 1, 100) if wait_ms == 500 else 1,
        "fetch.max.bytes": fetch_bytes,
        "max.partition.fetch.bytes": draw.of(100, 1000, 100_000, 1 << 20),
        "kbatch.fetch.buffer.memory": 1 << 20,
        "request.timeout.ms": wait_ms + draw.of(500, 2000),
        "default.api.timeout.ms": draw.of(3000, 20_000),
        "retry.backoff.ms": draw.of(10, 100),
        "retry.backoff.max.ms": draw.of(100, 1000),
        "reconnect.backoff.ms": draw.of(10, 50),
        "reconnect.backoff.max.ms": draw.of(50, 1000),
        "metadata.max.age.ms": draw.of(1000, 5000),
        "connections.max.idle.ms": draw.of(3000, 540_000),
        "socket.connection.setup.timeout.ms": draw.of(300, 1000),
        "socket.connection.setup.timeout.max.ms": draw.of(1000, 3000),
        "max.poll.interval.ms": draw.of(3000, 6000),
    }
