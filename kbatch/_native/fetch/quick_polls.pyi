from collections.abc import Awaitable, Callable
from typing import Any, final

from kbatch._native.fetch.fetch_buffer import FetchBuffer
from kbatch._native.fetch.read_cursor import FetchIterator
from kbatch._native.io.sensor import Sensor
from kbatch._native.io.sole_user import SoleUser
from kbatch._native.io.waiters import Waiters

@final
class PollTimes:
    began_ns: int
    def __init__(self, between: Sensor, idle: Sensor) -> None: ...
    def begin(self, now_ns: int) -> None: ...
    def end(self, now_ns: int) -> None: ...

@final
class QuickPolls:
    def __init__(
        self,
        buffer: FetchBuffer,
        user: SoleUser,
        times: PollTimes,
        waiters: Waiters,
        *,
        engine: Any,
        new_polled: Callable[..., Any],
        most_records: int,
        longest_wait_ns: int,
        new_waiter: Callable[[], Any] | None = None,
        deadline: Callable[[float], Any] | None = None,
        give_way: Callable[[], Awaitable[object]] | None = None,
        turn_records: int = 0,
    ) -> None: ...
    # what new_polled returns, or None
    def poll(self, timeout: float | None, max_records: int | None) -> Any: ...
    async def poll_in_task(self, timeout: float | None, max_records: int | None) -> Any: ...
    def left_of(self, timeout: float | None) -> float | None: ...
    def next_iterator(self) -> FetchIterator | None: ...
    async def next_iterator_in_task(self) -> FetchIterator | None: ...
