"""The groups of questions of `kbatch bench`, in the order of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kbatch.bench import large_table, latency, throughput, transactions
from kbatch.bench.harness import Question
from kbatch.bench.plan import Plan

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
