from collections.abc import Callable, Iterable
from typing import Any, Generic, Literal

from typing_extensions import Buffer, TypeVar

from kbatch.errors import RecordDeserializationError

# The bytes of keys, values and headers: `bytes` of a record that was read, any buffer of one that was made.
_Bytes = TypeVar("_Bytes", bound=Buffer, covariant=True, default=bytes)
Header = tuple[str, Buffer | None]

class Record(Generic[_Bytes]):
    def __init__(
        self,
        key: _Bytes | None = None,
        value: _Bytes | None = None,
        headers: Iterable[Header] = (),
        timestamp_ms: int | None = None,
        offset: int = -1,
    ) -> None: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int | None: ...
    @property
    def key(self) -> _Bytes | None: ...
    @property
    def value(self) -> _Bytes | None: ...
    @property
    def headers(self) -> tuple[tuple[str, _Bytes | None], ...]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

# What deserializers make of keys and values; without them, their bytes.
_Key = TypeVar("_Key", covariant=True, default=Any)
_Value = TypeVar("_Value", covariant=True, default=Any)

class ConsumerRecord(Record[bytes], Generic[_Key, _Value]):
    def __init__(
        self,
        topic: str,
        partition: int,
        key: Buffer | None = None,
        value: Buffer | None = None,
        headers: Iterable[Header] = (),
        timestamp_ms: int | None = None,
        offset: int = -1,
        leader_epoch: int = -1,
        timestamp_type: Literal["create_time", "log_append_time"] = "create_time",
        topic_id: bytes = ...,
    ) -> None: ...
    @property
    def key(self) -> _Key: ...  # type: ignore[override]
    @property
    def value(self) -> _Value: ...  # type: ignore[override]
    @property
    def raw_key(self) -> bytes | None: ...
    @property
    def raw_value(self) -> bytes | None: ...
    @property
    def deserialization_error(self) -> RecordDeserializationError | None: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def topic_id(self) -> bytes: ...
    @property
    def timestamp_type(self) -> Literal["create_time", "log_append_time"]: ...

class RecordDecoder:
    def __init__(
        self,
        key: tuple[Callable[..., Any], bool] | None,
        value: tuple[Callable[..., Any], bool] | None,
        failed: Callable[
            [Literal["key", "value"], ConsumerRecord, Exception],
            tuple[Any, RecordDeserializationError | None],
        ],
        *,
        keeps_errors: bool,
    ) -> None: ...
    def typed(self, record: ConsumerRecord) -> ConsumerRecord: ...
