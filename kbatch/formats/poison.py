"""What becomes of a record whose key or value cannot be read (on.deserialization.error)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from kbatch.errors import ConfigError, RecordDeserializationError

# A record's value that stands for the whole record, which is not delivered.
SKIP: Any = type("Skip", (), {"__repr__": lambda self: "SKIP", "__reduce__": lambda self: "SKIP"})()
# Returns the value to use instead, or SKIP.
Handler = Callable[[RecordDeserializationError], Any]
POLICIES = ("raise", "null", "skip")


def checked_policy(given: object) -> object:
    """Return on.deserialization.error. Raise ConfigError for an unsuitable one."""
    if callable(given) or given in POLICIES:
        if inspect.iscoroutinefunction(given):
            raise ConfigError("on.deserialization.error must not be a coroutine function")
        return given
    raise ConfigError(
        f"on.deserialization.error must be {', '.join(POLICIES)}, a DeadLetter, or a function of the "
        f"error that returns the value, got {given!r}"
    )
