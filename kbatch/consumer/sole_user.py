"""SoleUser: lets one thread, or one task, use a consumer at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from kbatch.errors import ConcurrentUseError, IllegalStateError


@final
class SoleUser:
    """A context that refuses a second user while the first is in it. A callback of the program, which runs
    inside it, may enter it again.

    Parameters
    ----------
    current : callable
        Returns the thread or task that calls.
    name_of : callable
        Returns its name.
    check : callable
        Called before a user enters; it raises if the consumer cannot be used. Callbacks enter unchecked, so
        that those of close() can still commit.
    left : callable
        Called after a user has left.

    Attributes
    ----------
    caller_back : Any
        The thread or task that runs a callback; None.
    """

    def __init__(
        self,
        current: Callable[[], Any],
        name_of: Callable[[Any], str],
        *,
        check: Callable[[], object] = lambda: None,
        left: Callable[[], object] = lambda: None,
    ) -> None:
        self._current = current
        self._name_of = name_of
        self._check = check
        self._left = left
        self._user: dict[str, Any] = {}
        self.caller_back: Any = None

    def __enter__(self) -> None:
        if self.is_in_callback:
            return
        self._check()
        me = self._current()
        user = self._user.setdefault("it", me)  # one step, so that one of two threads is first
        if user is not me:
            raise ConcurrentUseError(
                f"{self._name_of(user)} is using the consumer, so {self._name_of(me)} must not; give each "
                f"its own consumer, or pass the records on"
            )

    def __exit__(self, *of: object) -> None:
        if not self.is_in_callback:
            self._user.clear()
            self._left()

    @property
    def is_free(self) -> bool:
        """True if no other user is in it."""
        return self._user.get("it") in (None, self._current())

    @property
    def is_in_callback(self) -> bool:
        """True if a callback of the program calls."""
        return self.caller_back is not None and self.caller_back is self._current()

    def refuse_callbacks(self, name: str) -> None:
        """Raise IllegalStateError if a callback calls the method, which would wait for that callback."""
        if self.is_in_callback:
            raise IllegalStateError(
                f"{name}() must not be called in a callback of the consumer; call it later"
            )

    def call_back(self, callback: Callable[..., Any], *arguments: object) -> Any:
        """Return the result of a callback, which runs on this thread or task."""
        before = self.caller_back
        try:
            self.caller_back = self._current()
            return callback(*arguments)
        finally:  # no signal handler runs between the call and this
            self.caller_back = before

    @property
    def current(self) -> Any:
        """The thread or task that calls."""
        return self._current()
