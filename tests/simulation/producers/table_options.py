"""The options of worlds that send tables and encoded batches.

They are drawn from a separate source, so that the other worlds stay unchanged.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.world.options import TableOptions, WorldOptions

LIKELIHOOD = 0.3


def with_tables(options: WorldOptions) -> WorldOptions:
    """Return the same world, or one that sends tables and encoded batches as well."""
    source = random.Random(f"tables {options.seed}")
    if source.random() >= LIKELIHOOD:
        return options
    of = source.choice
    kinds = of(((0.3, 0.0), (0.1, 0.1), (0.3, 0.2), (0.0, 0.3), (0.6, 0.0)))
    tables = TableOptions(
        tables=kinds[0],
        batches=kinds[1],
        rows=of((1, 10, 40, 40, 100)),
        chunk_rows=of((1, 3, 20, 100, 100)),
        batch_records=of((1, 5, 20)),
        keyed=of((0, 0.5, 0.5, 1)),
        explicit=of((0, 0, 0.5, 1)),
        tombstones=of((0, 0, 0.2)),
        headers=of((0, 0, 0.5)),
        huge=of((0, 0, 0.05)),
        wrong=of((0, 0, 0.1)),
    )
    settings = options.settings
    if source.random() < 0.5:  # tables for which there is no memory at once
        memory_bytes = of((12_000, 12_000, 24_000))
        batch_bytes = min(settings["batch.size"], memory_bytes // 2)
        settings = settings | {"buffer.memory": memory_bytes, "batch.size": batch_bytes}
    # a table is many records at once
    tables = replace(tables, topics=of((0, 0.5, 1)))
    cluster = options.cluster
    if tables.topics and len(cluster.partition_counts) == 1:
        cluster = replace(cluster, partition_counts=cluster.partition_counts | {"others": of((1, 2, 3))})
    workload = replace(options.workload, records=min(options.workload.records, of((5, 10, 15))))
    return replace(options, cluster=cluster, tables=tables, settings=settings, workload=workload)
