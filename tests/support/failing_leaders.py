"""Ways in which the leader of an embedded cluster fails, and the cluster is whole again afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kbatch.testing import Broker
from tests.support.patience import HANG_SECONDS

NODES = 3
SESSION_SECONDS = 9  # broker.session.timeout.ms
Failure: TypeAlias = Callable[[Broker, int], None]


def kill(broker: Broker, leader: int) -> None:
    """It comes back at once, as a follower."""
    broker.kill_node(leader)
    broker.start_node(leader)


def pause(broker: Broker, leader: int) -> None:
    """It first answers as the leader that it was."""
    broker.pause_node(leader)
    broker.advance(SESSION_SECONDS)
    broker.resume_node(leader)


def split(broker: Broker, leader: int) -> None:
    """Clients reach it, and it leads until it hears of the election."""
    others: set[int | str] = {*range(NODES)} - {leader}
    broker.partition_network([{leader}, {*others, "controller"}])
    broker.advance(SESSION_SECONDS)
    broker.heal()


def restart(broker: Broker, leader: int) -> None:
    """All nodes restart, one after the other."""
    for _ in broker.rolling_restart(HANG_SECONDS):
        pass


FAILURES: tuple[Failure, ...] = (kill, pause, split, restart)
