"""What must be true of the reports of tables when a world has ended. What they say of each row is compared
with the logs where that of records is (checkers.py): here is what the rows have to do with each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbatch.testing.simulation.trace import Violation

if TYPE_CHECKING:
    from kbatch.testing.simulation.checkers import Logs
    from kbatch.testing.simulation.table_application import SentTable
    from kbatch.testing.simulation.world import World


def check_tables(world: World, logs: Logs) -> None:
    """Every row has one outcome, was accepted or has an error that says why not, and all was told once."""
    for table in world.tables.sent if world.tables is not None else ():
        if table.was_refused:
            continue
        report = table.report
        if not table.is_ended or not table.is_done:
            raise Violation(f"{table} is not done: {report}")
        if not len(table.rows) == report.row_count == report.done_rows:
            raise Violation(f"{table} has {len(table.rows)} rows, and {report}")
        if table.told_count != 1:
            raise Violation(f"{table} is done, and was told so {table.told_count} times")
        _check_rows(table)


def _check_rows(table: SentTable) -> None:
    report = table.report
    columns = (report.partitions.tolist(), report.offsets.tolist(), report.error_codes.tolist())
    errors = dict(report.errors)
    if not sum(map(bool, columns[2])) == report.failed_rows == len(errors):
        raise Violation(f"{table}: {report}, {len(errors)} errors, and of the codes {columns[2]}")
    for row, (record, partition, offset, code) in enumerate(zip(table.rows, *columns, strict=True)):
        if record.delivery is None and not code:
            raise Violation(f"{table}: row {row} was neither accepted nor refused")
        if record.delivery is not None and record.place[1] != partition:
            raise Violation(f"{table}: row {row} went to {record.place}, and not to partition {partition}")
        if code and offset != -1:
            raise Violation(f"{table}: row {row} has failed with code {code}, and has offset {offset}")
        told = errors[row].code if code else 0
        if code != (-1 if told is None else told):
            raise Violation(f"{table}: row {row} has code {code}, and {errors.get(row)!r}")
