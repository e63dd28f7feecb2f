"""Subscription: what a consumer wants to read, and how its partitions are found."""

from __future__ import annotations

import re
import warnings
from functools import lru_cache
from typing import NamedTuple


class Subscription(NamedTuple):
    """The topics of a group's member: their names, or a pattern of names.

    Attributes
    ----------
    topics : frozenset[str]
        Empty with a pattern.
    pattern : str | None
        A valid regular expression of Python's `re` that matches whole names (PatternTopics).
    """

    topics: frozenset[str] = frozenset()
    pattern: str | None = None

    def excludes(self, topic: str) -> bool:
        """True if the topic is certainly not in it, as far as Python can read a pattern."""
        if self.pattern is None:
            return topic not in self.topics
        compiled = _compiled(self.pattern)
        return compiled is not None and compiled.fullmatch(topic) is None

    def __str__(self) -> str:
        return f"pattern {self.pattern!r}" if self.pattern is not None else ", ".join(sorted(self.topics))


@lru_cache(maxsize=16)
def _compiled(pattern: str) -> re.Pattern[str] | None:
    """Return a pattern that RE2 and Python understand alike; None for others."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # such as RE2's [[:alpha:]]
            return re.compile(pattern)
    except (re.error, FutureWarning):
        return None
