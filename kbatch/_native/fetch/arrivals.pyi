from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar, final

from kbatch._native.fetch.budget import Budget
from kbatch._native.fetch.frames import FramePool
from kbatch._native.io.sensor import Sensor
from kbatch._native.io.waiters import Waiters

_R = TypeVar("_R")

@final
class AnswerReader:
    def __init__(
        self,
        budget: Budget,
        frames: FramePool,
        byte_count: Sensor,
        *,
        check_crcs: bool,
        max_decompressed_bytes: int,
    ) -> None: ...
    @property
    def check_crcs(self) -> bool: ...

@final
class Arrivals(Generic[_R]):
    def __init__(self, notify: Callable[[], bool], waiters: Waiters | None = None) -> None: ...
    def __call__(self, results: list[_R]) -> bool: ...
    def __bool__(self) -> bool: ...
    def collect(self) -> deque[_R]: ...
