"""Which time limits the calls of users accept: seconds, 0 or more, or None."""

from typing import SupportsFloat

# Locks take no more than some centuries; sockets, less.
LONGEST_SECONDS = 1e8
NO_LIMIT = "pass None to wait without a limit"


def checked_seconds(given: object, name: str = "timeout", remedy: str = NO_LIMIT) -> float:
    """Return a limit of time in seconds, at most LONGEST_SECONDS. Raise TypeError or ValueError for others.

    -1 is no limit to some clients and an error to others, and NaN would be over at once: neither is guessed.
    `remedy` says what to pass instead.
    """
    # numbers are known at once: to look for the methods of a protocol takes some microseconds
    is_number = type(given) in (int, float)
    if not is_number and (isinstance(given, bool) or not isinstance(given, SupportsFloat)):
        total = "; pass its total_seconds()" if hasattr(given, "total_seconds") else ""
        raise TypeError(f"{name} must be a number of seconds, or None, got {given!r}{total}")
    if not given >= 0:  # type: ignore[operator]
        raise ValueError(f"{name} must be at least 0 seconds, got {given!r}; {remedy}")
    return float(min(given, LONGEST_SECONDS))  # type: ignore[call-overload]
