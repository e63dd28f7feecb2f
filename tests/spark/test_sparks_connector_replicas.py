"""Spark's own Kafka connector on a replicated embedded cluster whose leaders fail meanwhile."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from kbatch.testing import Broker
from tests.support.failing_leaders import FAILURES, NODES, Failure
from tests.support.patience import HANG_SECONDS, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.java,
    pytest.mark.spark,
    pytest.mark.usefixtures("sparks_connector"),
]
WRITTEN, COPIED, PARTITIONS, TASKS = "written", "copied", 2, 2
ROWS_OF_A_TASK = 600
ROWS = TASKS * ROWS_OF_A_TASK
POLL_SECONDS = 0.01


@pytest.mark.parametrize("how", FAILURES)
def test_KB07_sparks_connector_loses_nothing_when_leaders_fail(
    spark: SparkSession, tmp_path: Path, how: Failure
) -> None:
    """A batch writes to one topic, a streaming query copies it to another."""
    options = {"partitions": PARTITIONS, "min_insync_replicas": 2}
    with Broker({WRITTEN: options, COPIED: options}, nodes=NODES) as broker, ThreadPoolExecutor(2) as threads:
        broker.delay("Produce", 0.01)  # the writers are not done before leaders fail
        settings = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "kafka.acks": "all",
            "kafka.batch.size": "100",
            "kafka.retry.backoff.ms": "10",
        }
        rows = spark.range(0, ROWS, 1, TASKS).select(
            f.col("id").cast("string").alias("value"),
            (f.col("id") % PARTITIONS).cast("int").alias("partition"),
        )
        writer = rows.write.format("kafka").options(**settings, topic=WRITTEN).mode("append")
        query = (
            spark.readStream.format("kafka")
            .options(**settings, subscribe=WRITTEN, startingOffsets="earliest", maxOffsetsPerTrigger="300")
            .load()
            .select("value", "partition")
            .writeStream.format("kafka")
            .options(**settings, topic=COPIED, checkpointLocation=str(tmp_path))
            .start()
        )
        try:
            writing = threads.submit(writer.save)
            for topic, offset in (
                (WRITTEN, 100),
                (WRITTEN, 300),
                (COPIED, 100),
                (COPIED, 300),
                (COPIED, 500),
            ):

                def is_there(topic: str = topic, offset: int = offset) -> bool:
                    if (error := query.exception()) is not None:
                        raise error
                    return broker.high_watermark(topic, 0) >= offset

                until(is_there, pause_seconds=POLL_SECONDS)
                how(broker, broker.leader(topic, 0))
            writing.result(HANG_SECONDS)
            threads.submit(query.processAllAvailable).result(HANG_SECONDS)
        finally:
            query.stop()
        for partition in range(PARTITIONS):
            written, copied = (
                [int(record.value or b"") for record in broker.records(topic, partition)]
                for topic in (WRITTEN, COPIED)
            )
            for task in range(TASKS):
                first, end = task * ROWS_OF_A_TASK, (task + 1) * ROWS_OF_A_TASK
                of_task = [value for value in written if first <= value < end]
                assert of_task == [value for value in range(first, end) if value % PARTITIONS == partition]
            assert copied == written
        for topic in (WRITTEN, COPIED):
            broker.wait_in_sync(topic, timeout=HANG_SECONDS)
