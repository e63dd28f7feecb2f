"""Conditions and events, over the waiters of threads, event loops and virtual time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

from kbatch._native.io.interrupts import at_once
from kbatch.waiting.conditions import AwaitableEvent, Condition
from kbatch.waiting.deadline import Deadline
from kbatch.waiting.event_loop import TaskWaiter
from kbatch.waiting.threads import ThreadWaiter
from tests.simulation.world.schedule import MS, Schedule
from tests.simulation.world.tasks import VirtualTask, VirtualWaiter, sleep
from tests.support.patience import HANG_SECONDS

Script = Callable[[Any], Coroutine[Any, Any, Any]]


def by_thread(script: Script, meanwhile: Callable[[], object]) -> Any:
    done: Future[Any] = Future()
    thread = threading.Thread(target=lambda: done.set_result(at_once(script, Deadline(HANG_SECONDS))))
    thread.start()
    meanwhile()
    thread.join()
    return done.result(0)


def by_loop(script: Script, meanwhile: Callable[[], object]) -> Any:
    async def run() -> Any:
        task = asyncio.create_task(script(Deadline(HANG_SECONDS)))
        await asyncio.get_running_loop().run_in_executor(None, meanwhile)
        return await task

    return asyncio.run(run())


def by_virtual_time(schedule: Schedule, script: Script, meanwhile: Callable[[], object]) -> Any:
    found: list[Any] = []

    async def run() -> None:
        found.append(await script(Deadline(1, lambda: schedule.now_ns / 1e9)))

    task = VirtualTask(run())
    task.go()
    meanwhile()
    while not task.is_over:
        assert schedule.step(2_000 * MS)
    return found[0]


SCHEDULE = Schedule(0)
SHELLS = pytest.mark.parametrize(
    ("new_waiter", "run"),
    [
        (ThreadWaiter, by_thread),
        (TaskWaiter, by_loop),
        (partial(VirtualWaiter, SCHEDULE), partial(by_virtual_time, SCHEDULE)),
    ],
    ids=["threads", "event loop", "virtual time"],
)


@SHELLS
def test_event_set_elsewhere_ends_the_wait(new_waiter: Any, run: Any) -> None:
    event = AwaitableEvent(new_waiter)
    assert run(partial(event.wait_until, event.is_set), event.set) is True
    assert event.is_set()


@SHELLS
def test_event_set_before_is_not_waited_for(new_waiter: Any, run: Any) -> None:
    event = AwaitableEvent(new_waiter)
    event.set()
    assert run(lambda deadline: event.wait_until(event.is_set, deadline.within(0)), lambda: None) is True


@SHELLS
@pytest.mark.parametrize("is_within", [True, False])
def test_condition_within_another_changes_with_it(new_waiter: Any, run: Any, is_within: bool) -> None:
    wider = Condition(new_waiter)
    own, other = Condition(new_waiter, wider), Condition(new_waiter, wider)
    is_so: list[bool] = []

    def change() -> None:
        other.notify()
        is_so.append(True)
        (wider if is_within else own).notify()

    assert run(lambda deadline: own.wait_until(lambda: bool(is_so), deadline), change) is True
    assert not (own.waiting or wider.waiting)


@SHELLS
def test_condition_that_never_holds_ends_at_the_deadline(new_waiter: Any, run: Any) -> None:
    condition = Condition(new_waiter)
    asked: list[None] = []

    def never() -> bool:
        asked.append(None)
        return False

    assert run(lambda deadline: condition.wait_until(never, deadline.within(0.01)), lambda: None) is False
    assert len(asked) == 2  # at first, and when the time was over
    assert not condition.waiting


@SHELLS
def test_condition_looks_again_after_every_change(new_waiter: Any, run: Any) -> None:
    condition, changes = Condition(new_waiter), iter([False, False, True])

    def is_so() -> bool:
        found = next(changes)
        if not found:
            condition.notify()
        return found

    assert run(lambda deadline: condition.wait_until(is_so, deadline), lambda: None) is True


@SHELLS
def test_what_a_condition_raises_comes_out_and_nothing_is_left(new_waiter: Any, run: Any) -> None:
    condition = Condition(new_waiter)

    async def wait(deadline: Deadline) -> str:
        try:
            await condition.wait_until(lambda: bool(1 // 0), deadline)
        except ZeroDivisionError:
            return "raised"
        return ""

    assert run(wait, lambda: None) == "raised"
    assert not condition.waiting


def test_cancelled_task_leaves_a_condition() -> None:
    async def program() -> None:
        condition = Condition(TaskWaiter)
        task = asyncio.create_task(condition.wait_until(lambda: False, Deadline(None)))
        await asyncio.sleep(0)
        assert condition.waiting
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert not condition.waiting

    asyncio.run(program())


def test_condition_wakes_its_callers_in_order() -> None:
    schedule, seen = Schedule(0), []
    condition = Condition(partial(VirtualWaiter, schedule))
    is_so: list[None] = []

    async def script(number: int) -> None:
        await condition.wait_until(lambda: bool(is_so), Deadline(None))
        seen.append(number)

    for number in range(5):
        VirtualTask(script(number)).go()
    is_so.append(None)
    condition.notify()
    while schedule.step(1):
        """Things happen."""
    assert seen == [0, 1, 2, 3, 4]


# Virtual time


def test_virtual_task_runs_on_demand_and_ends_when_killed() -> None:
    schedule, seen = Schedule(0), []

    async def script() -> None:
        seen.append(schedule.now_ns)
        await sleep(schedule, 5)
        seen.append(schedule.now_ns)
        try:
            await sleep(schedule, 1000)
        finally:
            seen.append(-1)

    task = VirtualTask(script())
    assert not seen
    task.go()
    assert seen == [0]
    while schedule.step(10):
        """Time goes by."""
    assert seen == [0, 5]
    task.kill()
    assert seen == [0, 5, -1]
    assert not task.is_over
    while schedule.step(2000):
        """Nothing of it is left."""
    assert seen == [0, 5, -1]


def test_virtual_task_error_is_raised_where_it_was_run() -> None:
    async def script() -> None:
        raise ValueError("in the task")

    with pytest.raises(ValueError, match="in the task"):
        VirtualTask(script()).go()
