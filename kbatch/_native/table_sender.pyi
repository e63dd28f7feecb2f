from collections.abc import Callable
from typing import Any, final

from kbatch._native.delivery import RecordMetadata
from kbatch._native.producer_batch import ProducerBatch
from kbatch._native.record_appender import Refusal
from kbatch._native.send import RecordSender
from kbatch._native.table_outcome import TableOutcome

@final
class TableSender:
    def __init__(
        self,
        sender: RecordSender,
        topic: str | None,
        data: Any,
        names: dict[str, tuple[str, bool]],
        *,
        seal: Callable[[ProducerBatch], object] | None = None,
        on_acknowledgement: Callable[[RecordMetadata, BaseException | None], object] | None = None,
    ) -> None: ...
    @property
    def outcome(self) -> TableOutcome: ...
    @property
    def has_begun(self) -> bool: ...
    @property
    def unknown_topics(self) -> list[str]: ...
    def accept(
        self, *, first_in_line: bool = False, blocks: int = ..., now_ns: int | None = None
    ) -> bool | Refusal: ...
    def end(self, error: Exception | None = None) -> list[tuple[Any, Callable[[Any], object]]]: ...
    def tells(self) -> None: ...
    def told(self) -> None: ...
    def refuse_topic(self, topic: str, error: Exception) -> None: ...
    def give_up(self, error: Exception) -> None: ...
