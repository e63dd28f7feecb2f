"""The error of a row of a table."""

from __future__ import annotations


class InvalidRowError(ValueError):
    """A row of a table cannot become a record.

    Attributes
    ----------
    row : int
        Its number in the table, from 0.
    """

    def __init__(self, text: str, row: int) -> None:
        super().__init__(text, row)
        self.row = row

    def __str__(self) -> str:
        return str(self.args[0])
