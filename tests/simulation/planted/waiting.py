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
def a_waiter_leaves_without_waking_the_next(original: Any, self: TaskQueue, mine: Any) -> None:
    """A caller that got memory, or gave up, leaves the queue, and the next one is not woken."""
    self._waiting.remove(mine)
    mine.waiter.withdraw()


@plants(TaskQueue, "wait")
async def a_refusal_for_memory_is_final(
    original: Any, self: TaskQueue, accumulator: Any, append: Any, deadline: Deadline, **rest: bool
) -> Any:
    """A caller that finds no memory when its turn comes gives up, though max.block.ms is not over."""
    return await original(self, accumulator, append, deadline.within(0), **rest)


@plants(Condition, "wait_until")
async def a_change_between_look_and_wait_is_missed(
    original: Any, self: Condition, is_so: Any, deadline: Deadline
) -> Any:
    """A caller looks before its waiter can be notified, and misses a change in between."""
    found = is_so()
    await self._new_waiter().wait(deadline.within(1e-6))  # others run
    looks = chain([found], iter(is_so, object()))
    return await original(self, partial(next, looks), deadline)
