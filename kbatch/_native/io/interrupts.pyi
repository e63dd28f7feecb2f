from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar, final

T = TypeVar("T")
P = ParamSpec("P")

def at_once(
    method: Callable[P, Coroutine[Any, Any, T]], /, *arguments: P.args, **keywords: P.kwargs
) -> T: ...

@final
class NativeEvent:
    def set(self) -> None: ...
    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool: ...
