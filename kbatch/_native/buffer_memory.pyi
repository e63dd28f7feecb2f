from collections.abc import Callable
from typing import final

@final
class BufferMemory:
    total_bytes: int
    poison: bool
    loop_thread_ident: int
    is_forked: bool
    def __init__(
        self, total_bytes: int, *, poison: bool = False, freed: Callable[[], object] | None = None
    ) -> None: ...
    def check_may_wait(self) -> None: ...
    @property
    def available_bytes(self) -> int: ...
    @property
    def callback_bytes(self) -> int: ...
    @property
    def waiting_count(self) -> int: ...
    @property
    def exhausted_count(self) -> int: ...
