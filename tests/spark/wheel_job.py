"""A job for an environment that has kbatch from a wheel: `spark-submit wheel_job.py BROKERS TOPIC FOLDER`.

It does not call kbatch.spark.register. It prints where the driver and the tasks found kbatch, as JSON.
"""

import json
import sys
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import kbatch.spark

ROWS = 5000


def where(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.RecordBatch.from_arrays([pa.array([kbatch.__file__])], ["path"])


def main(brokers: str, topic: str, folder: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    frame = spark.range(0, ROWS, 1, 4).select(f.col("id").cast("string").alias("value"))
    options = {"kafka.bootstrap.servers": brokers, "topic": topic, "delivery": "exactly_once"}
    once = {**options, "txnappid": topic, "txnversion": "0"}
    for _ in range(2):
        frame.write.format("kbatch").options(**once).mode("append").save()
    encoded = kbatch.spark.encode(frame, partitions=4).repartitionById(4, "partition")
    encoded.write.format("kbatch-segments").option("topic", topic).mode("append").save(folder)
    assert spark.read.format("kbatch-segments").load(folder).count() == ROWS
    tasks = [row.path for row in frame.mapInArrow(where, "path string").distinct().collect()]
    print(json.dumps({"driver": kbatch.__file__, "tasks": tasks}))


if __name__ == "__main__":
    main(*sys.argv[1:])
