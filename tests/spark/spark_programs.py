"""Programs that need a Spark of their own, each a process: `python -m tests.spark.spark_programs NAME ...`.

Each is a function here. What it prints is shown when it fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import kbatch.spark
from tests import ROOT
from tests.oracle.java_programs import SHORT_LIVED
from tests.oracle.kafka import free_ports

# This tree's packages, and what daemons of workers import (sitecustomize.py).
PYTHON_PATH = os.pathsep.join((str(ROOT / "tests" / "spark" / "preload"), str(ROOT)))
SECONDS = 900.0
ROWS = 5000
POLL_SECONDS = 0.05


def run(name: str, *arguments: object, environment: dict[str, str] | None = None) -> None:
    """Run a program to its end; AssertionError with its output."""
    command = [sys.executable, "-m", "tests.spark.spark_programs", name, *map(str, arguments)]
    variables = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": PYTHON_PATH,
        **(environment or {}),
    }
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-8000:]}"


def session(master: str, **configuration: object) -> SparkSession:
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.driver.extraJavaOptions", " ".join(SHORT_LIVED))
    builder = builder.config("spark.network.timeout", "3600s")
    for name, value in configuration.items():
        builder = builder.config(name.replace("_", "."), str(value))
    made = builder.getOrCreate()
    kbatch.spark.register(made)
    return made


def speculation(master: str, folder: str, brokers: str, topic: str, delivery: str) -> None:
    """Stop the last task's first attempt within its rows until another on another host is done."""
    spark = session(
        master,
        spark_speculation="true",
        spark_speculation_interval="100ms",
        spark_speculation_multiplier="1.1",
        spark_speculation_quantile="0.5",
        spark_executor_memory="512m",
        spark_driver_host="127.0.0.1",
    )
    notes = Path(folder)

    def stand_still(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        is_last = context.partitionId() == 3
        if is_last:
            (notes / f"attempt-{context.attemptNumber()}").write_text(str(os.getpid()))
        for batch in batches:
            yield batch
            if is_last and context.attemptNumber() == 0:
                while not (notes / "over").exists():
                    time.sleep(POLL_SECONDS)

    frame = spark.range(0, ROWS, 1, 4).select(f.col("id").cast("string").alias("value"))
    frame = frame.mapInArrow(stand_still, frame.schema)
    options = {"kafka.bootstrap.servers": brokers, "topic": topic, "delivery": delivery}
    if delivery == "exactly_once":
        options |= {"txnappid": topic, "txnversion": "0"}
    frame.write.format("kbatch").options(**options).mode("append").save()
    (notes / "over").touch()


def connect(brokers: str, topic: str) -> None:
    """Run everything over Spark Connect, whose client has no SparkContext."""
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    kbatch.spark.register(spark)
    frame: DataFrame = spark.range(ROWS).select(f.col("id").cast("string").alias("value"))
    options = {"kafka.bootstrap.servers": brokers, "topic": topic, "delivery": "exactly_once"}
    once = {**options, "txnappid": topic, "txnversion": "0"}
    for _ in range(2):
        frame.write.format("kbatch").options(**once).mode("append").save()
    keys = frame.select(f.col("value").alias("key"), "value")
    places = keys.select("key", kbatch.spark.kafka_partition("key", 4).alias("place")).collect()
    assert all(row.place == kbatch.partition_for_key(row.key.encode(), 4) for row in places)
    encoded = kbatch.spark.encode(keys, 4)
    assert encoded.select(f.explode(kbatch.spark.decode_batches("batch"))).count() == ROWS
    assert kbatch.spark.decode(encoded).count() == ROWS
    keys.createOrReplaceTempView("keys")
    in_sql = spark.sql(
        "SELECT kbatch_encode(key, value) AS batches FROM keys GROUP BY kafka_partition(key, 4)"
    )
    by_place = keys.groupBy(kbatch.spark.kafka_partition("key", 4))
    for batches in (in_sql, by_place.agg(kbatch.spark.kbatch_encode("key", "value").alias("batches"))):
        assert kbatch.spark.decode(batches.select(f.inline("batches")).select("batch")).count() == ROWS


class StandaloneCluster:
    """A master and two workers, on 127.0.0.1 and 127.0.0.2: for Spark, two hosts. Executors import what is on
    `python_path`.
    """

    def __init__(self, folder: Path, python_path: str = str(ROOT)) -> None:
        self._folder = folder
        self._python_path = python_path
        self._processes: list[subprocess.Popen[bytes]] = []
        (self._port,) = free_ports(1)
        self.master = f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> StandaloneCluster:
        master = ("org.apache.spark.deploy.master.Master", "--port", self._port)
        self._start("master", *master, "--host", "127.0.0.1", "--webui-port", 0)
        for number in (1, 2):
            worker = ("org.apache.spark.deploy.worker.Worker", "--cores", 2, "--memory", "600m")
            place = (
                "--host",
                f"127.0.0.{number}",
                "--webui-port",
                0,
                "--work-dir",
                self._folder / str(number),
            )
            self._start(f"worker {number}", *worker, *place, self.master)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def _start(self, name: str, *arguments: object) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        command: Sequence[Any] = [home / "bin" / "spark-class", *arguments]
        variables = {
            **os.environ,
            "SPARK_HOME": str(home),
            "PYTHONPATH": self._python_path,
            "SPARK_NO_DAEMONIZE": "1",
        }
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(list(map(str, command)), env=variables, stdout=log, stderr=log)
            )


PROGRAMS = (speculation, connect)

if __name__ == "__main__":
    {program.__name__: program for program in PROGRAMS}[sys.argv[1]](*sys.argv[2:])
