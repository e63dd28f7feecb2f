from typing import Generic, NamedTuple, TypeVar

_R = TypeVar("_R", bound=LentRequest)

class LentRequest:
    is_counted: bool
    @property
    def version(self) -> int: ...
    @property
    def expects_answer(self) -> bool: ...
    @property
    def correlation_id(self) -> int: ...
    @property
    def created_ns(self) -> int: ...
    @property
    def written_ns(self) -> int: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...

class Lent(NamedTuple, Generic[_R]):
    node_id: int
    connection_id: int
    next_correlation_id: int
    queued_bytes: int
    written_bytes: int
    active_ns: int
    requests: list[_R]
    received: bytes
    unsent: bytes
    needs_engine: bool = ...
