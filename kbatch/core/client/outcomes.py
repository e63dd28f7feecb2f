"""OutcomeTable: what follows from each error code in a broker's answer.

`core/producer/outcomes` and `core/consumer/outcomes` have the tables: one enum, and its table, a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from kbatch.errors import ROWS, ErrorCode

Outcome = TypeVar("Outcome", bound=Enum)


class OutcomeTable(dict[int, Outcome]):
    """A row for each error code; codes that Kafka does not have yet count as UNKNOWN_SERVER_ERROR.

    Parameters
    ----------
    retriable, otherwise : Outcome
        What follows from codes that are retriable, and from the others.
    special : Mapping[ErrorCode, Outcome]
        The codes of which that is not so, and those that are no errors.
    """

    def __init__(
        self, *, retriable: Outcome, otherwise: Outcome, special: Mapping[ErrorCode, Outcome]
    ) -> None:
        super().__init__({code: retriable if row.retriable else otherwise for code, row in ROWS.items()})
        self.update(special.items())

    def __missing__(self, code: int) -> Outcome:
        return self[ErrorCode.UNKNOWN_SERVER_ERROR]
