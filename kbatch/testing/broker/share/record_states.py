"""The states of a record that a share group delivers, as a table (KIP-932, org.apache.kafka.server.share).

A record is AVAILABLE until a member acquires it. Then it is ACQUIRED, until the member acknowledges it, its
lock ends, or the member's session does. ACKNOWLEDGED and ARCHIVED are final: it is never delivered again.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class RecordState(IntEnum):
    """The states, by Kafka's numbers, which are stored."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def is_final(self) -> bool:
        return self in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


# Types of acknowledgements. A gap is an offset without a record.
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
AFTER_ACKNOWLEDGEMENT = {
    GAP: RecordState.ARCHIVED,
    ACCEPT: RecordState.ACKNOWLEDGED,
    RELEASE: RecordState.AVAILABLE,
    REJECT: RecordState.ARCHIVED,
    RENEW: RecordState.ACQUIRED,
}


class StateBatch(NamedTuple):
    """Offsets with the same state and delivery count, both ends included."""

    first_offset: int
    last_offset: int
    state: RecordState
    delivery_count: int


class Acknowledged(NamedTuple):
    """A batch of acknowledgements: a type for each offset, or one for all."""

    first_offset: int
    last_offset: int
    types: list[int]

    def type_of(self, offset: int) -> int:
        return self.types[0] if len(self.types) == 1 else self.types[offset - self.first_offset]


def state_batches(states: dict[int, tuple[RecordState, int]]) -> list[StateBatch]:
    """Return offsets, each with its state and delivery count, as batches, in the order of offsets."""
    batches: list[StateBatch] = []
    for offset, (state, count) in sorted(states.items()):
        last = batches[-1] if batches else None
        if last is not None and last[1:] == (offset - 1, state, count):
            batches[-1] = last._replace(last_offset=offset)
        else:
            batches.append(StateBatch(offset, offset, state, count))
    return batches
