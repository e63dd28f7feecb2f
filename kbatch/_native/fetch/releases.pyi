from collections import deque
from collections.abc import Callable
from typing import Any, final

from kbatch._native.fetch.fetched import Fetched
from kbatch._native.fetch.reading import RoadState

@final
class Releases:
    def __init__(
        self, road: RoadState, consumed: deque[tuple[Any, int]], look_again: Callable[[], object]
    ) -> None: ...
    def __call__(self, fetched: Fetched, row_count: int = 0) -> bool: ...
