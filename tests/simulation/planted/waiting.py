"""Bugs in how callers wait that the simulation must see (planted_bugs.py)."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import Any

from kbatch.producer.memory_queue import TaskQueue
from kbatch.waiting.conditions import Condition
from kbatch.waiting.deadline import Deadline
from tests.simulation.planted.planting import plants


@plants(TaskQueue, "_withdraw")
def a_waiter_leaves_without_waking_the_next(original: Any) -> Any:
    """A caller that got memory, or gave up, leaves the queue, and the next one is not woken."""

    def leave(self: TaskQueue, mine: Any) -> None:
        self._waiting.remove(mine)
        mine.waiter.withdraw()

    return leave


@plants(TaskQueue, "wait")
def a_refusal_for_memory_is_final(original: Any) -> Any:
    """A caller that finds no memory when its turn comes gives up, though max.block.ms is not over."""

    async def wait(self: TaskQueue, accumulator: Any, append: Any, deadline: Deadline, **rest: bool) -> Any:
        return await original(self, accumulator, append, deadline.within(0), **rest)

    return wait


@plants(Condition, "wait_until")
def a_change_between_look_and_wait_is_missed(original: Any) -> Any:
    """A caller looks before its waiter can be notified, and misses a change in between."""

    async def wait_until(self: Condition, is_so: Any, deadline: Deadline) -> bool:
        found = is_so()
        await self._new_waiter().wait(deadline.within(1e-6))  # others run
        looks = chain([found], iter(is_so, object()))
        return await original(self, partial(next, looks), deadline)  # type: ignore[no-any-return]

    return wait_until
