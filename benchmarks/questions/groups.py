"""The groups of questions in which clients take turns, in the order of the pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from benchmarks.pages.harness import Question
from benchmarks.pages.plan import Plan
from benchmarks.questions import large_table, latency, throughput, transactions

Group = Callable[[Plan], Iterable[Question]]

GROUPS: Mapping[str, Group] = {
    "throughput": throughput.everybody,
    "small-batches": throughput.small_batches,
    "uncompressed": throughput.uncompressed,
    "latency": latency.quiet,
    "latency-busy": latency.busy,
    "transactions": transactions.question,
    "large-table": large_table.question,
}
