"""Subscription: what a consumer wants to read, and how its partitions are found."""

from __future__ import annotations

from typing import NamedTuple


class Subscription(NamedTuple):
    """The topics of a group's member: their names, or a pattern of names.

    Attributes
    ----------
    topics : frozenset[str]
        Empty with a pattern.
    pattern : str | None
        A regular expression that matches whole names. The group's coordinator matches it if the member has
        KIP-848's protocol (RE2/J); by the classic protocol the member does.
    """

    topics: frozenset[str] = frozenset()
    pattern: str | None = None

    def __str__(self) -> str:
        return f"pattern {self.pattern!r}" if self.pattern is not None else ", ".join(sorted(self.topics))
