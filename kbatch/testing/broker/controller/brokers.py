"""Brokers of the cluster: their processes, and what the controller takes them for."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbatch.protocol.structs import Message


# In the folder of a replica that is not whole, and is to take the place of one in another directory. (Kafka
# gives such folders other names.)
FUTURE_MARK = "future"


class BrokerControlState(Enum):
    """A broker as the controller sees it, named after Kafka's enum."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"


NEXT_STATES = {
    BrokerControlState.FENCED: {BrokerControlState.UNFENCED},
    BrokerControlState.UNFENCED: {BrokerControlState.CONTROLLED_SHUTDOWN, BrokerControlState.FENCED},
    BrokerControlState.CONTROLLED_SHUTDOWN: {BrokerControlState.FENCED},
}


class LogDir:
    """A log directory of a broker; if its disk has failed, the replicas in it are offline.

    Attributes
    ----------
    path : str
    folder : Path or None
        Where its files are; None if they are in memory.
    has_failed : bool
    replica_count : int
        Replicas in it.
    """

    __slots__ = ("folder", "has_failed", "path", "replica_count")

    def __init__(self, path: str, folder: Path | None = None) -> None:
        self.path = path
        self.folder = folder
        self.has_failed = False
        self.replica_count = 0

    def has(self, name: str) -> bool:
        """True if the files of a whole replica are there."""
        return self.folder is not None and (self.folder / name).exists() and not self._mark(name).exists()

    def begin_future(self, name: str) -> None:
        """Mark a replica whose files are to be written there as not whole."""
        if self.folder is not None:
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir(parents=True)
            self._mark(name).touch()

    def end_future(self, name: str) -> None:
        """Note that a replica is whole."""
        if self.folder is not None:
            self._mark(name).unlink()

    def take_futures(self) -> list[str]:
        """Return the replicas there that are not whole; their files are deleted."""
        marks = [] if self.folder is None else [*self.folder.glob(f"*/{FUTURE_MARK}")]
        for mark in marks:
            shutil.rmtree(mark.parent, ignore_errors=True)
        return [mark.parent.name for mark in marks]

    def _mark(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / name / FUTURE_MARK


class Node:
    """A broker of the cluster.

    Attributes
    ----------
    host, ports : str, list of int
        Its address, with a port for each listener.
    is_running, is_paused : bool
        False if its process ended; True if its process is stopped (SIGSTOP).
    state : BrokerControlState
        What the controller takes it for.
    broker_epoch : int
        The number of its present start.
    ended_cleanly : bool
        True if it has not been killed since it was last started.
    last_heard : (int, int) or None
        The controller's offset, and the time, when it was cut off from it; None if it hears the controller.
    known_brokers : list of int or None
        The brokers that it knew when it was cut off from the controller; None if it hears the controller.
    lead_delay_ms : int
        Time after which it answers for a partition that it begins to lead.
    hidden : frozenset
        Requests that its answers to ApiVersions leave out.
    rack : str or None
    log_dirs : list of LogDir
        At least one.
    """

    __slots__ = (
        "broker_epoch",
        "ended_cleanly",
        "hidden",
        "host",
        "is_paused",
        "is_running",
        "known_brokers",
        "last_heard",
        "lead_delay_ms",
        "log_dirs",
        "node_id",
        "ports",
        "rack",
        "state",
    )

    def __init__(self, node_id: int, rack: str | None = None, log_dirs: Sequence[LogDir] = ()) -> None:
        self.node_id = node_id
        self.rack = rack
        self.host = ""
        self.ports: list[int] = []
        self.is_running = True
        self.is_paused = False
        self.state = BrokerControlState.UNFENCED
        self.broker_epoch = 0
        self.ended_cleanly = True
        self.known_brokers: list[int] | None = None
        self.last_heard: tuple[int, int] | None = None
        self.lead_delay_ms = 0
        self.hidden: frozenset[type[Message]] = frozenset()
        self.log_dirs = list(log_dirs)

    def log_dir_for_replica(self) -> LogDir:
        """Return the directory for a new replica: one that works, with the fewest."""
        return min(self.log_dirs, key=lambda each: (each.has_failed, each.replica_count))

    def move_to(self, state: BrokerControlState) -> None:
        assert state in NEXT_STATES[self.state], f"{self.state} > {state}"
        self.state = state
