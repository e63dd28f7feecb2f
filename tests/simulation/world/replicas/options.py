"""Which worlds are replicated: a third of all, and what happens to their nodes."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from tests.simulation.world.options import Draw, ReplicaOptions, WorldOptions

LIKELIHOOD = 1 / 3
# Faults that play, on one log, what replicas do themselves.
PLAYED = (
    "move_leader",
    "leave_leaderless",
    "stop_node",
    "pause_node",
    "restart",
    "forget",
    "hold",
    "fail_over",
    "elect_unclean",
)
THEMED = 0.3  # of all replicated worlds
RACKED = 0.3  # of all replicated worlds of readers


class Theme(NamedTuple):
    """Faults, in a virtual second, that matter together, and the brokers' options."""

    faults: dict[str, Any]
    broker: dict[str, Any]


THEMES = (
    # leaders write what no follower has, one after the other
    Theme({"hold": 8, "lead": 30}, {"replica_lag_ms": 30_000, "min_insync_replicas": 1}),
    Theme({"delay": 8, "lead": 30}, {"replica_lag_ms": 30_000}),
    # leaders go on that are none any more
    Theme({"isolate": 8, "pause": 4}, {"session_timeout_ms": 50, "replica_lag_ms": 100}),
    # replicas leave, and come back
    Theme({"kill": 10, "stop": 3}, {"session_timeout_ms": 50, "min_insync_replicas": 2}),
    Theme({"lose": 3, "stop": 5}, {"session_timeout_ms": 20, "min_insync_replicas": 2}),
    Theme({"reassign": 10, "kill": 3}, {"session_timeout_ms": 50}),
)
RARE = 0.07  # of all replicated worlds, instead of these
RARE_THEMES = (
    # nodes lose their logs between a Fetch and what the controller makes of it
    Theme(
        {"lose": 5, "kill": 10, "messages_ms": (1, 50)},
        {"session_timeout_ms": 20, "min_insync_replicas": 2},
    ),
    # answers of leaders arrive in the next term
    Theme({"lead": 30, "pause": 4, "messages_ms": (1, 50)}, {"replica_lag_ms": 30_000}),
)
# A node has fetched, is proposed as in sync, and loses its log before the controller hears so. The number
# leaves worlds as they were in which planted bugs are seen.
JOINING, JOINING_THEME = (
    "joining 9",
    Theme(
        {"lose_joining": 20, "kill": 10, "messages_ms": (1, 50)},
        {"session_timeout_ms": 20, "min_insync_replicas": 2},
    ),
)
# A coordinator is deposed as it stores a commit: what it refuses was done.
DEPOSED, DEPOSED_THEME = (
    "deposed 65",
    Theme({"lead_undecided": 20, "messages_ms": (1, 50)}, {"replica_lag_ms": 30_000}),
)
AnyOptions = TypeVar("AnyOptions", bound=WorldOptions)


# The numbers leave worlds as they were in which planted bugs are seldom seen (docs/simulation.md).
OF_PRODUCERS, OF_READERS = "replicated 2064703", "replicated readers 3622"


def is_replicated(seed: int, kind: str = OF_PRODUCERS) -> bool:
    return random.Random(f"{kind} {seed}").random() < LIKELIHOOD


def with_replicas(options: AnyOptions, kind: str = OF_PRODUCERS, *, may_lose: bool = True) -> AnyOptions:
    """Return the same world, or one whose replicas have logs of their own.

    Without `may_lose` nothing that was replicated is ever lost: no election is unclean, and no machine dies.
    """
    if not is_replicated(options.seed, kind):
        return options
    draw = Draw(random.Random(f"replicas {options.seed}"))
    is_unclean = may_lose and draw.random.random() < 0.25
    cluster = replace(
        options.cluster,
        node_count=draw.of(2, 3, 3, 3, 4, 5),
        broker=options.cluster.broker | _of_brokers(draw, is_unclean=is_unclean),
    )
    cluster_faults = replace(options.cluster_faults, **dict.fromkeys(PLAYED, 0.0))
    faults = _faults(draw, is_unclean=is_unclean, loses=may_lose and draw.random.random() < 0.15)
    faults, disks = _with_new_controllers(faults, options.seed, may_lose=may_lose)
    cluster = replace(cluster, broker=cluster.broker | disks)
    changed = replace(options, cluster=cluster, cluster_faults=cluster_faults, replicas=faults)
    changed = replace(changed, fault_ms=draw.of(300, 1000, 3000, 5000))
    themed = _themed(changed, may_lose=may_lose)
    if may_lose and random.Random(f"{JOINING} {options.seed}").random() < RARE:
        themed = _of_theme(changed, draw, JOINING_THEME)
    is_deposed = random.Random(f"{DEPOSED} {options.seed}").random() < RARE
    if "transaction.timeout.ms" in options.settings and is_deposed:
        themed = _of_theme(changed, draw, DEPOSED_THEME)
    return _patient(_with_racks(themed, kind))


def _patient(options: AnyOptions) -> AnyOptions:
    """Return the same world; transactions get time-outs long enough for coordinators to replicate."""
    faults, settings = options.replicas, options.settings
    if faults is None or "transaction.timeout.ms" not in settings:
        return options
    longest_ms = faults.messages_ms[1]
    request_ms, least_ms = settings["request.timeout.ms"], options.cluster.round_trip_ms + 6 * longest_ms
    if not longest_ms or request_ms >= least_ms:
        return options
    longer = {
        "request.timeout.ms": least_ms,
        "delivery.timeout.ms": settings["delivery.timeout.ms"] + least_ms - request_ms,
        "transaction.timeout.ms": max(settings["transaction.timeout.ms"], 30 * least_ms),
    }
    return replace(options, settings=settings | longer)


def _with_new_controllers(
    faults: ReplicaOptions, seed: int, *, may_lose: bool
) -> tuple[ReplicaOptions, dict[str, Any]]:
    """Return the same faults, or more, and options of brokers: other controllers, and disks that fail."""
    draw = Draw(random.Random(f"controllers and disks {seed}"))
    faults = replace(faults, fail_over_controller=draw.rate(5, 0.2))
    fail_dir = draw.rate(2, 0.15)
    if not may_lose or not fail_dir:
        return faults, {}
    return replace(faults, fail_dir=fail_dir), {"log_dirs": draw.of(1, 2, 3)}


def _with_racks(options: AnyOptions, kind: str) -> AnyOptions:
    """Return the same world, or one whose nodes are in racks, of which readers prefer one (KIP-392)."""
    draw = Draw(random.Random(f"racks {options.seed}"))
    if kind != OF_READERS or draw.random.random() >= RACKED:
        return options
    racks = tuple(draw.of("near", "near", "far", None) for _ in range(options.cluster.node_count))
    cluster = replace(options.cluster, broker=options.cluster.broker | {"racks": racks})
    return replace(options, cluster=cluster, settings=options.settings | {"client.rack": "near"})


def _themed(options: AnyOptions, *, may_lose: bool) -> AnyOptions:
    """Return the same world, or one with one partition that meets the faults of a theme often."""
    is_rare = random.Random(f"rare theme of replicas {options.seed}").random() < RARE
    draw = Draw(random.Random(f"theme of replicas {options.seed}"))
    if options.replicas is None or (draw.random.random() >= THEMED and not is_rare):
        return options
    themes = RARE_THEMES if is_rare else THEMES
    theme = draw.of(*(each for each in themes if may_lose or "lose" not in each.faults))
    return _of_theme(options, draw, theme)


def _of_theme(options: AnyOptions, draw: Draw, theme: Theme) -> AnyOptions:
    assert options.replicas is not None
    quiet = {each: 0.0 for each in ReplicaOptions.__slots__ if not each.endswith("_ms")}
    faults = replace(options.replicas, longest_ms=draw.of(100, 300), **quiet | theme.faults)
    broker = {"unclean_leader_election": False, **theme.broker}
    cluster = replace(
        options.cluster,
        node_count=draw.of(3, 3, 4),
        partition_counts=dict.fromkeys(options.cluster.partition_counts, 1),
        broker=options.cluster.broker | broker,
    )
    return replace(options, cluster=cluster, replicas=faults)


def _of_brokers(draw: Draw, *, is_unclean: bool) -> dict[str, Any]:
    return {
        "min_insync_replicas": draw.of(1, 1, 2, 2, 3),
        "unclean_leader_election": is_unclean and draw.of(True, False),
        "eligible_leader_replicas": draw.of(True, True, True, False),
        "replica_lag_ms": draw.of(20, 100, 500, 30_000),
        "session_timeout_ms": draw.of(20, 100, 500, 2000),
    }


def _faults(draw: Draw, *, is_unclean: bool, loses: bool) -> ReplicaOptions:
    return ReplicaOptions(
        kill=draw.rate(5, 0.4),
        stop=draw.rate(3),
        pause=draw.rate(4, 0.4),
        isolate=draw.rate(5, 0.4),
        divide=draw.rate(2),
        delay=draw.rate(5),
        hold=draw.rate(10, 0.4),
        lead=draw.rate(20, 0.4),
        prefer=draw.rate(5),
        elect=draw.rate(10, 1.0) if is_unclean else 0.0,
        roll=draw.rate(1, 0.2),
        reassign=draw.rate(3),
        lose=draw.rate(1, 1.0) if loses else 0.0,
        change_min_isr=draw.rate(2, 0.2),
        fail_over_controller=0.0,
        fail_dir=0.0,
        longest_ms=draw.of(50, 300, 1000),
        deaf_ms=draw.of(1, 50, 500),
        messages_ms=draw.of((0, 0), (0, 2), (0, 10), (1, 50)),
    )
