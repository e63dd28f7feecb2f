"""Bugs of tables that the simulation must see (planted_bugs.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from kbatch._native.send.accumulator import Refusal
from kbatch._native.send.in_flight import InFlight
from kbatch.core.producer.sender import Sender
from kbatch.producer import tables
from kbatch.producer.tables import TableReport, TableSending
from tests.simulation.planted.planting import plants


@plants(TableReport, "error_codes")
def rows_of_a_failed_batch_have_succeeded(original: Any, self: TableReport) -> Any:
    """The report has an error of the first failed row only."""
    codes = original(self).copy()
    codes[(codes != 0).argmax() + 1 :] = 0
    return codes


@plants(TableReport, "offsets")
def offsets_of_a_report_are_sorted(original: Any, self: TableReport) -> Any:
    """The offsets of a table ascend over its rows, whichever partitions the rows went to."""
    offsets = original(self).copy()
    offsets[offsets >= 0] = sorted(offsets[offsets >= 0])
    return offsets


@plants(TableReport, "topic_codes")
def topics_of_a_report_are_sorted(original: Any, self: TableReport) -> Any:
    """The topics of a table are in order of first appearance, whichever rows they belong to."""
    return sorted(original(self))


@plants(tables, "TableSender")
def chunks_of_a_table_change_places(
    original: Any, owner: Any, topic: str, data: Any, names: Any, **rest: Any
) -> Any:
    """The rows of every second record batch come before those of the previous one."""
    batches = data.to_batches()
    for at in range(0, len(batches) - 1, 2):
        batches[at], batches[at + 1] = batches[at + 1], batches[at]
    return original(owner, topic, pa.Table.from_batches(batches, data.schema), names, **rest)


class Paused:
    """A TableSender that forgets its position when it has to wait."""

    def __init__(self, make: Callable[..., Any], data: Any, *rest: Any, **keywords: Any) -> None:
        self._has_paused = False
        reader = pa.RecordBatchReader.from_batches(data.schema, self._pulled(data.to_batches()))
        self._sender = make(*rest[:2], reader, *rest[2:], **keywords)

    def _pulled(self, batches: list[Any]) -> Iterator[Any]:
        for batch in batches:
            first_row, self._has_paused = int(self._has_paused), False
            yield batch.slice(first_row)

    def accept(self, **turn: Any) -> Any:
        answer = self._sender.accept(**turn)
        self._has_paused = self._has_paused or answer is Refusal.MEMORY
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sender, name)


@plants(tables, "TableSender")
def a_paused_pull_loses_a_row(
    original: Any, owner: Any, topic: Any, data: Any, names: Any, **rest: Any
) -> Any:
    """After a wait for memory, the first row of the next pull is not sent."""
    return Paused(original, data, owner, topic, names, **rest)


@plants(TableSending, "_stop")
def the_rest_of_a_table_that_stops_is_forgotten(
    original: Any, self: TableSending, table: Any, stopped: BaseException
) -> None:
    """Rows that are no longer accepted get no outcome."""
    if not table.has_begun:
        raise stopped
    self._finish(table, None)


@plants(TableSending, "_finish")
def a_table_that_is_done_early_is_not_reported(
    original: Any, self: TableSending, table: Any, error: Any
) -> None:
    """An answer before the last row is accepted counts as the last one, and no callback runs."""
    if table.end(error):
        table.release_callback()


@plants(Sender, "_succeed")
def offsets_of_parts_are_one_off(
    original: Any, self: Sender, entry: InFlight, base_offset: int, *rest: Any
) -> None:
    """The offsets of a split batch's later parts are one too high."""
    is_later = entry.batch.is_split and base_offset > 0
    original(self, entry, base_offset + is_later, *rest)
