"""The roles of a file's columns in records, for `kbatch produce`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MAX_PARTITION = 2**31 - 1


@dataclass(frozen=True)
class ColumnRoles:
    """The names of the columns that records are made of.

    Attributes
    ----------
    value : str or None
        Its text is the value; None means a JSON object.
    columns : tuple of str or None
        The members of that object; None means all without another role.
    partition : int, str or None
        The same for all rows, or a column.
    header_columns : tuple of str
        Each becomes a header of its name.
    headers : tuple of (str, bytes)
        The same for all rows.
    """

    key: str | None = None
    value: str | None = None
    columns: tuple[str, ...] | None = None
    timestamp: str | None = None
    partition: int | str | None = None
    header_columns: tuple[str, ...] = ()
    headers: tuple[tuple[str, bytes], ...] = ()

    @property
    def beside_value(self) -> tuple[str, ...]:
        """Return the columns for everything but the value."""
        partition = self.partition if isinstance(self.partition, str) else None
        return tuple(filter(None, (self.key, self.timestamp, partition, *self.header_columns)))

    def in_value(self, names: Sequence[str]) -> list[str]:
        """Return the columns of the value, from the existing ones."""
        if self.value is not None:
            return [self.value]
        if self.columns is not None:
            return list(self.columns)
        return [name for name in names if name not in self.beside_value]

    def missing(self, names: Iterable[str]) -> list[str]:
        """Return the named columns that do not exist."""
        there = set(names)
        wanted = (*self.beside_value, *filter(None, [self.value]), *(self.columns or ()))
        return [name for name in dict.fromkeys(wanted) if name not in there]
