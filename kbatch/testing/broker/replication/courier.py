"""Courier: how long it takes what nodes and the controller send to each other."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbatch.testing.broker.replication.network import Network
    from kbatch.testing.broker.timers import Timers


class Courier:
    """Carries messages between parties, those of a pair in their order; what is cut off on the way is lost.

    Attributes
    ----------
    latency_ms : callable or None
        (source, target) -> the milliseconds of a message; None if messages take no time, so that who sends
        them may as well call.
    """

    def __init__(self, network: Network, timers: Timers) -> None:
        self.latency_ms: Callable[[Hashable, Hashable], int] | None = None
        self._network = network
        self._timers = timers
        self._last_ms: dict[tuple[Hashable, Hashable], int] = {}  # when the last message of a pair arrives

    @property
    def is_prompt(self) -> bool:
        return self.latency_ms is None

    def post(
        self,
        source: Hashable,
        target: Hashable,
        deliver: Callable[[int], None],
        lost: Callable[[int], None],
        now_ms: int,
        *,
        delay_ms: int = 0,
    ) -> None:
        """Call `deliver(now_ms)` when a message arrives, or `lost(now_ms)` if it cannot then."""
        latency_ms = 0 if self.latency_ms is None else self.latency_ms(source, target)
        pair = source, target
        arrival_ms = max(now_ms + delay_ms + latency_ms, self._last_ms.get(pair, 0))
        self._last_ms[pair] = arrival_ms

        def arrive(now_ms: int) -> None:
            (deliver if self._network.reaches(source, target) else lost)(now_ms)

        self._timers.call_at(arrival_ms, arrive)
