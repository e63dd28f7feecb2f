"""Members of one group, each on a thread of its own: the job `settle` of driver.py.

Each polls and shows which partitions it has. The group has settled when all partitions are shown, each by
one member, and every member has some. One member reaches the brokers by servers of its own, which are gone
after a connection to a port ("death_port"): it is dead to the group.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

from kbatch.bench.settings import Settings

POLL_SECONDS = 0.05
LOOK_SECONDS = 0.001
PATIENCE_SECONDS = 120.0


class Member:
    """A kbatch consumer that polls until `end`.

    Attributes
    ----------
    shown : frozenset
        Its partitions after the last poll.
    error : BaseException or None
        What has ended it.
    """

    def __init__(self, settings: Settings, topic: str) -> None:
        self.shown: frozenset[Any] = frozenset()
        self.error: BaseException | None = None
        self._settings = settings
        self._topic = topic
        self._leaves = True
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self, *, leaves: bool = True) -> None:
        self._leaves = leaves
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        from kbatch.consumer.threads import Consumer

        try:
            consumer = Consumer(dict(self._settings))
            consumer.subscribe([self._topic])
            while not self._is_over.is_set():
                consumer.poll(POLL_SECONDS)
                self.shown = frozenset(consumer.assignment())
            consumer.close(leave=self._leaves)
        except BaseException as error:
            self.error = error


def _await_settled(members: list[Member], partitions: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        shown = [member.shown for member in members]
        if all(shown) and sum(map(len, shown)) == partitions == len(frozenset().union(*shown)):
            return
        for member in members:
            if member.error is not None:
                raise member.error
        if time.monotonic() > deadline:
            raise TimeoutError(f"the group has not settled: {[len(each) for each in shown]} of {partitions}")
        time.sleep(LOOK_SECONDS)


def settle(name: str, job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the time until the group has settled after one member more has come (`joined_ns`), and after one
    has died (`died_ns`), "rest_seconds" later.
    """
    settings, topic, partitions = job["settings"], job["topic"], job["partitions"]
    mortal = Member({**settings, "bootstrap.servers": job["mortal_servers"]}, topic)
    members = [Member(settings, topic) for _ in range(job["members"] - 1)]
    _await_settled([mortal, *members], partitions)
    begun_ns = time.perf_counter_ns()
    members.append(Member(settings, topic))
    _await_settled([mortal, *members], partitions)
    joined_ns = time.perf_counter_ns() - begun_ns
    time.sleep(job["rest_seconds"])
    begun_ns = time.perf_counter_ns()
    socket.create_connection((job["death_host"], job["death_port"])).close()
    _await_settled(members, partitions)
    died_ns = time.perf_counter_ns() - begun_ns
    mortal.end(leaves=False)
    for member in members:
        member.end()
    return {"joined_ns": joined_ns, "died_ns": died_ns}
