"""Purgatory: requests that wait for a change, by what they wait for (Kafka's DelayedOperationPurgatory)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from kbatch.testing.broker.timers import Timer, Timers


class _Operation:
    """`attempt(now_ms)` returns True if the operation is done; `number` is its turn among others."""

    __slots__ = ("attempt", "keys", "number", "timer")

    def __init__(self, number: int, keys: frozenset[Hashable], attempt: Callable[[int], bool]) -> None:
        self.number = number
        self.keys = keys
        self.attempt = attempt
        self.timer: Timer | None = None


class Purgatory:
    """Operations that are tried again after one of their keys was touched, in the order of their arrival."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._watchers: dict[Hashable, dict[int, _Operation]] = {}
        self._touched: set[Hashable] = set()
        self._count = 0

    def touch(self, key: Hashable) -> None:
        """Have the operations that watch `key` tried by the next `run`."""
        if key in self._watchers:
            self._touched.add(key)

    def touch_all(self) -> None:
        self._touched.update(self._watchers)

    def watch(
        self,
        keys: Iterable[Hashable],
        attempt: Callable[[int], bool],
        deadline_ms: int,
        give_up: Callable[[int], None],
    ) -> None:
        """Call `attempt(now_ms)` after one of `keys` was touched, until it returns True.

        At the deadline, call `give_up(now_ms)` instead.
        """
        operation = self.follow(keys, attempt)

        def expire(now_ms: int) -> None:
            self._forget(operation)
            give_up(now_ms)

        operation.timer = self._timers.call_at(deadline_ms, expire)

    def follow(self, keys: Iterable[Hashable], attempt: Callable[[int], bool]) -> _Operation:
        """Call `attempt(now_ms)` after one of `keys` was touched, until it returns True."""
        self._count += 1
        operation = _Operation(self._count, frozenset(keys), attempt)
        for key in operation.keys:
            self._watchers.setdefault(key, {})[operation.number] = operation
        return operation

    def run(self, now_ms: int) -> None:
        """Try the operations whose keys were touched, and those that they touch."""
        while self._touched:
            touched, self._touched = self._touched, set()
            found = {
                number: operation
                for key in touched
                for number, operation in self._watchers.get(key, {}).items()
            }
            for number in sorted(found):
                operation = found[number]
                if operation.attempt(now_ms):
                    if operation.timer is not None:
                        operation.timer.cancel()
                    self._forget(operation)

    def _forget(self, operation: _Operation) -> None:
        for key in operation.keys:
            watchers = self._watchers[key]
            del watchers[operation.number]
            if not watchers:
                del self._watchers[key]
