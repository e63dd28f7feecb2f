from collections.abc import Callable
from typing import Any, final

@final
class DeliveryQueue:
    source: Callable[[], object] | None
    has_finished: Callable[[], bool] | None
    def put(self, item: Any) -> None: ...
    def empty(self) -> bool: ...
    def get(self) -> Any: ...
