"""Log lines about faults that may last: once, again after minutes, and when they are over.

A client repeats what fails, so the same fault would be logged with each attempt. Here a fault has a
*subject*, such as a node or a partition, and it lasts until `end`. A line is logged at its given level

- if the fault has not been logged with this text yet; numbers in it make no difference;
- if REMINDER_NS have passed since this text was logged last. The line then says how long the fault lasts.

The end of a fault that was logged is a line of level INFO. All other lines are of level DEBUG. A subject
whose faults come and go, or whose texts change, gets at most MAX_LINES lines in REMINDER_NS, and their ends.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Hashable

from kbatch.logs import ClientLogger

REMINDER_NS = 300_000_000_000
MAX_LINES = 6
# The subjects that are remembered; the oldest makes room.
MAX_SUBJECTS = 1000
NS_PER_SECOND = 1_000_000_000
_number = re.compile(r"\d+")


class _Fault:
    """The faults of one subject.

    `logged_ns` has the time of the last line by text; it is empty unless the present fault was logged.
    `count` counts the present fault's occurrences; 0 means that there is none.
    """

    __slots__ = ("began_ns", "count", "line_count", "logged_ns", "window_ns")

    def __init__(self, now_ns: int) -> None:
        self.began_ns = now_ns
        self.count = 0
        self.logged_ns: dict[str, int] = {}
        self.window_ns = now_ns
        self.line_count = 0

    def may_log(self, text: str, now_ns: int) -> bool:
        """True if a line is due. It is counted then."""
        kind = _number.sub("#", text)
        if now_ns - self.logged_ns.get(kind, now_ns - REMINDER_NS) < REMINDER_NS:
            return False
        if now_ns - self.window_ns >= REMINDER_NS:
            self.window_ns, self.line_count = now_ns, 0
        if self.line_count == MAX_LINES:
            return False
        self.line_count += 1
        self.logged_ns[kind] = now_ns
        return True


class LastingFaults:
    """What a part of a client logs about faults that may last.

    Parameters
    ----------
    logger : ClientLogger
    """

    __slots__ = ("_faults", "_lasting", "_logger")

    def __init__(self, logger: ClientLogger) -> None:
        self._logger = logger
        self._faults: dict[Hashable, _Fault] = {}
        self._lasting: set[Hashable] = set()

    def note(self, subject: Hashable, text: str, now_ns: int, level: int = logging.WARNING) -> None:
        """Record that a fault began, or lasts. The text names its subject, and what to do."""
        fault = self._faults.get(subject)
        if fault is None:
            if len(self._faults) == MAX_SUBJECTS:
                oldest = next(iter(self._faults))
                del self._faults[oldest]
                self._lasting.discard(oldest)
            fault = self._faults[subject] = _Fault(now_ns)
        if not fault.count:
            fault.began_ns = now_ns
            self._lasting.add(subject)
        fault.count += 1
        is_reminder = bool(fault.logged_ns)
        if not fault.may_log(text, now_ns):
            level = logging.DEBUG
        elif is_reminder and now_ns - fault.began_ns >= REMINDER_NS:
            text = f"{text} ({fault.count} times in {_duration(now_ns - fault.began_ns)})"
        self._logger.log(level, "%s", text)

    def end(self, subject: Hashable, text: str, now_ns: int, *, least_ns: int = 0) -> None:
        """Record that there is no fault, or no more; the text says so. This is cheap if there was none.

        The end of a fault that lasted less than `least_ns` is a line of level DEBUG.
        """
        if subject not in self._lasting:
            return
        self._lasting.discard(subject)
        fault = self._faults[subject]
        lasted_ns = now_ns - fault.began_ns
        level = logging.INFO if fault.logged_ns and lasted_ns >= least_ns else logging.DEBUG
        self._logger.log(level, "%s, after %s", text, _duration(lasted_ns))
        fault.count = 0
        fault.logged_ns.clear()

    def is_lasting(self, subject: Hashable) -> bool:
        """True from the first `note` of a subject to its `end`."""
        return subject in self._lasting


def _duration(ns: int) -> str:
    seconds = ns // NS_PER_SECOND
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"
