"""Names of topics and groups that a call chooses: one by one, or by patterns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import click

PATTERNS = "A name that begins with ^ is a regular expression of Python, which matches whole names."
HELP = "A name, or a pattern: ^ and a regular expression of Python that matches whole names"


class NameChoice:
    """Names, and patterns that begin with ^ and match whole names, as those of Consumer.subscribe.

    Parameters
    ----------
    given : sequence of str
        Nothing chooses everything.

    Attributes
    ----------
    names : tuple of str
        Those that are no patterns.
    """

    def __init__(self, given: Sequence[str]) -> None:
        self.names = tuple(dict.fromkeys(each for each in given if not each.startswith("^")))
        self._patterns = [each for each in given if each.startswith("^")]
        self._given = tuple(given)
        try:
            self._compiled = [re.compile(each) for each in self._patterns]
        except (re.error, RecursionError, OverflowError) as error:
            raise click.UsageError(
                f"{' '.join(self._patterns)}: not a regular expression: {error}"
            ) from error

    @property
    def has_patterns(self) -> bool:
        """True if the names that there are decide."""
        return bool(self._patterns)

    @property
    def subscription(self) -> tuple[str, ...] | str:
        """What Consumer.subscribe takes: the names, or one pattern for all."""
        if not self._patterns:
            return self.names
        return f"^(?:{'|'.join([*map(re.escape, self.names), *self._patterns])})"

    def matches(self, name: str) -> bool:
        """True for a name that is chosen."""
        if not self._given:
            return True
        return name in self.names or any(each.fullmatch(name) for each in self._compiled)

    def among(self, there: Iterable[str]) -> list[str]:
        """Return the names, whether they are there or not, and those there that patterns match.

        Raises
        ------
        ClickException
            A pattern matches none.
        """
        there = sorted(there)
        for each in self._compiled:
            if not any(map(each.fullmatch, there)):
                raise click.ClickException(
                    f"no name matches {each.pattern}, which must match whole names; add .* for what follows"
                )
        if self._given and not self._compiled:
            return list(self.names)
        return sorted({*self.names, *filter(self.matches, there)})
