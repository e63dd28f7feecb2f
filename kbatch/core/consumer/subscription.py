"""Subscription: what a consumer wants to read, and how its partitions are found."""

from __future__ import annotations

import re
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
        """True if the topic is not in it."""
        if self.pattern is None:
            return topic not in self.topics
        return re.fullmatch(self.pattern, topic) is None

    def __str__(self) -> str:
        return f"pattern {self.pattern!r}" if self.pattern is not None else ", ".join(sorted(self.topics))
