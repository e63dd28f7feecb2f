"""Which types keys and values have, for type checkers: what deserializers say of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

Part = Literal["key", "value"]
Headers = Sequence[tuple[str, bytes | None]]
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
    # What a client makes of keys, and of values.
    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
    _T_co = TypeVar("_T_co", covariant=True, default=Any)
else:  # the library knows defaults from Python 3.13 on
    from typing import TypeVar

    T, K, V = TypeVar("T"), TypeVar("K"), TypeVar("V")
    _T_co = TypeVar("_T_co", covariant=True)


class HasDecode(Protocol[_T_co]):
    """A kbatch.formats.Codec."""

    def decode(self, topic: str, headers: Headers, data: bytes) -> _T_co: ...


class HasBind(Protocol[_T_co]):
    """A kbatch.formats.Format."""

    def bind(self, part: Part) -> HasDecode[_T_co]: ...


class HasDeserialize(Protocol[_T_co]):
    """An object of another client's: `deserialize` takes (data), (topic, data) or (topic, headers, data)."""

    @property
    def deserialize(self) -> Callable[..., _T_co]: ...


# What makes a T of bytes; a name does not say which.
AnyDeserializer = (
    HasBind[T]
    | type[HasBind[T]]
    | Callable[[bytes], T]
    | Callable[[str, bytes], T]
    | Callable[[str, Headers, bytes], T]
    | HasDeserialize[T]
    | str
)
