"""Who completes an accepted batch: every order of the steps of the lane, of threads that wait, and of the
thread of callbacks.

The lane puts an accepted request into a list, and sets the events of the threads that wait for its batches
(kb_lane_finish). Without such a thread it rings the thread of callbacks (DeliveryQueue). Whoever comes first
takes the whole list and completes it (Lane.complete_without_callbacks,
Lane.complete); a thread that waits looks at the list
itself (Completion.wait). The model has their steps, one for what a lock makes one.

A thread may give up, and then nothing completes what the lane has left to it, until the lane loses patience
and rings all the same. Patience would hide a lost event, so the search runs with both, and with neither.

Each wrong step below must be found, so the search can fail.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import pytest

BATCHES = 3
WAITERS = (0, 1)  # a thread waits for each of these batches, and none for the last
CALLBACKS = "callbacks"
WRONG = {
    "the event is set before the request is in the list": "before its batch is complete",
    "the event is set after others may take the request": "reads a batch that is complete",
    "the bell is forgotten after the list is taken": "is never completed",
    "the bell is not heard between look and sleep": "is never completed",
    "completes without the lock of completion": "before its batch is complete",
}


class Model(NamedTuple):
    """A state. Steps are those of the methods named above."""

    answered: tuple[int, ...] = ()  # the list
    is_unwaited: bool = False
    coming: int = 0  # the lane's next request
    half: int = -1  # a request whose event and place in the list are not one step, in a wrong model
    events: tuple[int, ...] = (0,) * BATCHES  # 1 is set
    registered: tuple[int, ...] = (0,) * BATCHES
    complete: tuple[int, ...] = (0,) * BATCHES
    holder: str = ""  # of the lock of completion
    taken: tuple[tuple[str, tuple[int, ...]], ...] = ()
    steps: tuple[str, ...] = ("register",) * len(WAITERS)  # of each thread that waits
    callbacks: str = "complete"  # the step of that thread
    bell: str = "busy"  # or "waits", "rung"


def put(values: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    return (*values[:index], value, *values[index + 1 :])


class Search:
    """All states that can be reached, with a wrong step or none; threads may give up if `has_patience`."""

    def __init__(self, wrong: str = "", *, has_patience: bool = False) -> None:
        self.wrong = wrong
        self.has_patience = has_patience

    def run(self) -> int:
        """Return the number of states; raise AssertionError for a bad one."""
        seen = {Model()}
        left = deque(seen)
        while left:
            state = left.popleft()
            following = list(self.steps(state))
            if not following:
                self.check_end(state)
            for each in following:
                assert max(each.complete) <= 1, f"a batch is completed twice: {each}"
                if each not in seen:
                    seen.add(each)
                    left.append(each)
        return len(seen)

    def check_end(self, state: Model) -> None:
        waiting = [batch for batch, step in zip(WAITERS, state.steps, strict=True) if step != "left"]
        assert not waiting, f"a thread waits for ever for {waiting}: {state}"
        assert state.complete == (1,) * BATCHES, f"a batch is never completed: {state}"

    def steps(self, state: Model) -> Iterator[Model]:
        yield from self.lane(state)
        for number in range(len(WAITERS)):
            yield from self.waiter(state, number)
        yield from self.callbacks(state)

    # The lane

    def lane(self, state: Model) -> Iterator[Model]:
        if state.half >= 0:
            yield self.end_of_request(state._replace(half=-1), state.half)
        elif state.coming < BATCHES:
            request = state.coming
            begun = state._replace(coming=request + 1)
            if self.wrong == "the event is set before the request is in the list":
                yield self.set_event(begun._replace(half=request), request)
            elif self.wrong == "the event is set after others may take the request":
                yield self.listed(begun._replace(half=request), request)
            else:
                yield self.set_event(self.listed(begun, request), request)
        is_due = state.is_unwaited or self.has_patience
        if state.half < 0 and state.answered and is_due and state.bell == "waits":
            yield state._replace(bell="rung")

    def end_of_request(self, state: Model, request: int) -> Model:
        if self.wrong == "the event is set before the request is in the list":
            return self.listed(state, request)
        return self.set_event(state, request)

    def listed(self, state: Model, request: int) -> Model:
        is_unwaited = state.is_unwaited or not state.registered[request]
        return state._replace(answered=(*state.answered, request), is_unwaited=is_unwaited)

    def set_event(self, state: Model, request: int) -> Model:
        assert not state.complete[request], f"the lane reads a batch that is complete: {state}"
        if state.registered[request]:
            return state._replace(events=put(state.events, request, 1))
        return state

    # Completion, by any thread

    def take(self, state: Model, who: str) -> Iterator[Model]:
        if state.holder and self.wrong != "completes without the lock of completion":
            return
        is_unwaited = state.is_unwaited and self.wrong == "the bell is forgotten after the list is taken"
        taken = (*state.taken, (who, state.answered))
        yield state._replace(holder=who, answered=(), is_unwaited=is_unwaited, taken=taken)

    def finish(self, state: Model, who: str) -> Model:
        own = next(batches for each, batches in state.taken if each == who)
        complete, events = state.complete, state.events
        for batch in own:
            complete = put(complete, batch, complete[batch] + 1)
            events = put(events, batch, 1)  # who waits now learns of it (Completion.announce)
        taken = tuple(each for each in state.taken if each[0] != who)
        if self.wrong == "the bell is forgotten after the list is taken":
            state = state._replace(is_unwaited=False)
        return state._replace(holder="", complete=complete, events=events, taken=taken)

    # A thread that waits: Completion.wait

    def waiter(self, state: Model, number: int) -> Iterator[Model]:
        batch, step, who = WAITERS[number], state.steps[number], str(number)

        def at(state: Model, step: str) -> Model:
            return state._replace(steps=(*state.steps[:number], step, *state.steps[number + 1 :]))

        if step == "register":
            yield at(state._replace(registered=put(state.registered, batch, 1)), "take")
        elif step in ("take", "take again"):
            for each in self.take(state, who):
                yield at(each, "finish" if step == "take" else "finish again")
        elif step == "finish":
            yield at(self.finish(state, who), "look")
        elif step == "look":
            yield at(state, "leave" if state.complete[batch] else "sleep")
        elif step == "sleep":
            if state.events[batch]:
                yield at(state, "take again")
            if self.has_patience:
                yield at(state._replace(registered=put(state.registered, batch, 0)), "left")
        elif step == "finish again":
            yield at(self.finish(state, who), "leave")
        elif step == "leave":
            assert state.complete[batch], f"a thread returns before its batch is complete: {state}"
            yield at(state._replace(registered=put(state.registered, batch, 0)), "left")

    # The thread of callbacks: DeliveryQueue.get

    def callbacks(self, state: Model) -> Iterator[Model]:
        step, has_more = state.callbacks, bool(state.answered)
        if step == "complete":
            for each in self.take(state, CALLBACKS):
                yield each._replace(callbacks="finish")
        elif step == "finish":
            yield self.finish(state, CALLBACKS)._replace(callbacks="wait")
        elif step == "wait":
            if self.wrong != "the bell is not heard between look and sleep":
                yield state._replace(bell="waits", callbacks="look")
            elif not has_more:
                yield state._replace(callbacks="sleep late")
            else:
                yield state._replace(callbacks="complete")
        elif step == "sleep late":  # the lane has rung since its look
            yield state._replace(bell="waits", callbacks="sleep", is_unwaited=False)
        elif step == "look":
            if has_more and state.bell == "waits":
                yield state._replace(bell="busy", callbacks="complete")
            else:
                yield state._replace(callbacks="sleep")
        elif step == "sleep" and state.bell == "rung":
            yield state._replace(bell="busy", callbacks="complete")


@pytest.mark.parametrize("has_patience", [False, True])
def test_batches_are_completed_once_and_threads_return(has_patience: bool) -> None:
    assert Search(has_patience=has_patience).run() > 1000


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_step_is_found(wrong: str) -> None:
    with pytest.raises(AssertionError, match=WRONG[wrong]):
        Search(wrong).run()
