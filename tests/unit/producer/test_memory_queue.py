"""The queue for memory, in virtual time."""

from __future__ import annotations

from functools import partial

from kbatch._native.send.accumulator import RecordAccumulator, Refusal
from kbatch.producer.memory_queue import TaskQueue
from kbatch.waiting.deadline import Deadline
from tests.simulation.world.schedule import MS, Schedule
from tests.simulation.world.tasks import VirtualTask, VirtualWaiter


class Memory:
    """An accumulator with memory for nothing until `free`, and tasks that wait for some."""

    def __init__(self) -> None:
        self.schedule = Schedule(0)
        self.free_count = 0
        self.served: list[int] = []
        self.queue = TaskQueue(partial(VirtualWaiter, self.schedule), lambda: None)
        self.accumulator = RecordAccumulator(memory_freed=lambda: self.schedule.after(0, self.queue.look))

    def start(self, number: int, seconds: float | None = None, **turn: bool) -> VirtualTask:
        async def script() -> None:
            deadline = Deadline(seconds, lambda: self.schedule.now_ns / 1e9)
            if await self.queue.wait(self.accumulator, self._take, deadline, **turn) is not Refusal.MEMORY:
                self.served.append(number)

        task = VirtualTask(script())
        task.go()
        return task

    def _take(self) -> bool | Refusal:
        if not self.free_count:
            return Refusal.MEMORY
        self.free_count -= 1
        return True

    def free(self, count: int) -> None:
        self.free_count += count
        self.queue.wake_first(self.accumulator)
        while self.schedule.step(self.schedule.now_ns + MS):
            """Things happen."""


def test_callers_get_memory_in_the_order_in_which_they_came() -> None:
    memory = Memory()
    for number in range(4):
        memory.start(number)
    memory.start(4, goes_first=True)
    memory.free(3)
    assert memory.served == [4, 0, 1]
    memory.free(2)
    assert memory.served == [4, 0, 1, 2, 3]
    assert memory.accumulator.memory.queued == 0


def test_caller_that_gives_up_leaves_the_queue_to_the_next() -> None:
    memory = Memory()
    impatient = memory.start(0, 0.001)
    memory.start(1)
    memory.free_count = 1
    impatient.kill()
    while memory.schedule.step(memory.schedule.now_ns + MS):
        """Things happen."""
    memory.free(0)
    assert memory.served == [1]


def test_caller_whose_time_is_over_looks_once_more() -> None:
    memory = Memory()
    waiting = memory.start(0, 0.001)
    memory.free_count = 1
    while memory.schedule.step(2 * MS):
        """Time goes by."""
    assert waiting.is_over
    assert memory.served == [0]
