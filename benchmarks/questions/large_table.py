"""How much memory does send_table need for a table that is much larger than buffer.memory?"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.clients.contest import Contest, able, drivers_of
from benchmarks.pages.harness import Claim, Contender, Question
from benchmarks.pages.plan import Plan
from kbatch.bench.contest import BUFFER_MEMORY, MIB, SETTINGS
from kbatch.bench.settings import listed

PARTITIONS = 4
NAME = "kbatch send_table"
ROW_BYTES = 16 + 100 + 2 * 4  # key, value and their offsets
REPORT_ROW_BYTES = 4  # the partition
DETAIL_ROW_BYTES = 8 + 2  # offset and error code, after their first use
TABLE_BYTES = 2 << 30
MARGIN_MIB = 64
PEAK, GROWTH = "peak", "growth while sending"
PEAK_AIM = "table + buffer.memory + 64 MiB"


def question(plan: Plan) -> Iterator[Question]:
    if not able([NAME]):
        return
    records = plan.records_of(TABLE_BYTES // ROW_BYTES)
    with (
        plan.cluster() as cluster,
        Contest(cluster, "large-table", PARTITIONS) as contest,
        drivers_of([NAME]) as (driver,),
    ):
        answer = contest.ask(driver, "load", records, SETTINGS)
    peak, before, idle = (answer[f"{name}_kib"] / 1024 for name in ("peak", "before", "idle"))
    table = answer["input_bytes"] / MIB
    allowed = BUFFER_MEMORY / MIB + MARGIN_MIB
    report = records * REPORT_ROW_BYTES / MIB
    rate = records / answer["elapsed_ns"] * 1e9
    figures = {
        PEAK: (peak, f"{idle:.0f} of them Python with the client, {before:.0f} when sending begins"),
        PEAK_AIM: (table + allowed, f"the table has {table:.0f}"),
        GROWTH: (peak - before, f"{report:.0f} of them the report; {rate:,.0f} records/s"),
    }
    yield Question(
        f"Memory for a table of {table:,.0f} MiB",
        f"One send_table call, {records:,} rows, {PARTITIONS} partitions; resident memory of the process, "
        f"Python and pyarrow included. The report takes {REPORT_ROW_BYTES} bytes a row, {report:,.0f} MiB, "
        "a part of the growth that no setting bounds. Reading offsets, or errors of rows, would take "
        f"{DETAIL_ROW_BYTES} bytes a row more. "
        f"{listed(SETTINGS)}.",
        [Contender(name, records, timings=[mib], note=note) for name, (mib, note) in figures.items()],
        [
            Claim(
                PEAK,
                PEAK_AIM,
                1.0,
                "at most the table, buffer.memory and 64 MiB, Python, pyarrow and the report included",
                f"{report:,.0f} MiB are the report, {before - table:,.0f} what is there beside the table "
                "before sending begins",
            ),
        ],
        "MiB",
        speaks_of_speed=False,
    )
