"""The flights from Parquet files into Kafka exactly once, although a task and a whole query are killed.

`python flights_pipeline.py PARQUET CHECKPOINT BROKERS TOPIC SCRATCH` is the query to be killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from kafka_target import Target
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

FILES = 6
TASK_TO_KILL = 1
KILLED_AFTER_BATCHES = 2
PATIENCE_SECONDS = 600.0
POLL_SECONDS = 0.05
COLUMNS = "key binary, value binary, headers array<struct<key: string, value: binary>>, timestamp timestamp"


def write_parquet(frame: DataFrame, folder: Path) -> None:
    """Write FILES files, the tasks of the batch write and the micro-batches of the query."""
    frame.repartition(FILES).write.parquet(str(folder))


def batch_write(spark: SparkSession, folder: Path, target: Target) -> None:
    """Run one job; the first time, the Python worker of one of its tasks dies by kill -9 within its rows."""

    def die_once(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        dies = context.attemptNumber() == 0 and context.partitionId() == TASK_TO_KILL
        for number, batch in enumerate(batches):
            if dies and number == KILLED_AFTER_BATCHES:
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    frame = spark.read.schema(COLUMNS).parquet(str(folder))
    dying = frame.mapInArrow(die_once, frame.schema)
    once = {"delivery": "exactly_once", "txnappid": target.topic, "txnversion": "0"}
    for written in (dying, dying):  # and the whole job again, which writes nothing more
        written.write.format("kbatch").options(**_options(target), **once).mode("append").save()


def _options(target: Target) -> dict[str, str]:
    return {"kafka.bootstrap.servers": target.bootstrap_servers, "topic": target.topic}


def stream(spark: SparkSession, folder: Path, checkpoint: Path, brokers: str, topic: str) -> None:
    """Stream a file a micro-batch until all are done."""
    source = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(folder))
    sink = source.writeStream.format("kbatch").option("kafka.bootstrap.servers", brokers)
    sink = sink.option("topic", topic).option("delivery", "exactly_once")
    sink = sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    sink.start().awaitTermination()


def killed_stream(spark: SparkSession, folder: Path, checkpoint: Path, target: Target, scratch: Path) -> int:
    """Run the query in another process, which is killed with all of Spark after its first micro-batch, then
    here from its checkpoint. Return the number of micro-batches begun before the kill.
    """
    arguments = [folder, checkpoint, target.bootstrap_servers, target.topic, scratch]
    command = [sys.executable, __file__, *map(str, arguments)]
    log = scratch / "killed.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, start_new_session=True, stdout=output, stderr=output)
    try:
        end = time.monotonic() + PATIENCE_SECONDS
        while not (checkpoint / "commits" / "0").exists():
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(
                    f"the query did not reach its first micro-batch: {log.read_text()[-2000:]}"
                )
            time.sleep(POLL_SECONDS)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    begun = len([each for each in (checkpoint / "offsets").iterdir() if each.name.isdigit()])
    stream(spark, folder, checkpoint, target.bootstrap_servers, target.topic)
    return begun


def main() -> None:
    import flights

    import kbatch.spark

    folder, checkpoint, brokers, topic, scratch = sys.argv[1:]
    spark = flights.session(Path(scratch))
    kbatch.spark.register(spark)
    stream(spark, Path(folder), Path(checkpoint), brokers, topic)


if __name__ == "__main__":
    main()
