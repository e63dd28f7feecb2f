"""What does a row take from a topic into Spark, by Spark's own Kafka source and by `kbatch`?

One session reads the same topics in all ways, in turn, into Spark's format noop, which drops the rows. The
session has its own process, whose end ends the JVM.
"""

from __future__ import annotations

import multiprocessing
import sys
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession

import kbatch
from benchmarks.clients.kafka import IN_MEMORY
from benchmarks.clients.probes import cpu_ns_of
from benchmarks.clients.work import table_of
from benchmarks.pages import summary
from benchmarks.pages.harness import Claim, Contender, Question
from benchmarks.pages.plan import Plan
from benchmarks.questions.spark_sink import (
    CORES,
    PARTITIONS,
    Measured,
    WrongRowsError,
    digest,
    session,
    time_and_cpu_ns,
)
from kbatch.bench.workload import RECORDS_PER_BATCH, batch_records
from tests.oracle.java_programs import JavaMissingError, spark_kafka_jars
from tests.oracle.kafka import create_topic

RECORDS, ROUNDS, WARM_UP_ROUNDS = 2_000_000, 5, 3  # Java's compiler needs some
CODECS = ("none", "lz4")
BATCH_BYTES = 128 << 10
VALUE, ALL = "value", "all columns"
SPARK, TUNED, KBATCH = "Spark's source", "Spark's source, tuned", "kbatch"
# Large fetches, so that a poll of Java's consumer has many records.
TUNED_OPTIONS: Mapping[str, object] = {
    "kafka.max.poll.records": 10_000,
    "kafka.fetch.min.bytes": 1 << 20,
    "kafka.max.partition.fetch.bytes": 8 << 20,
}


@dataclass(frozen=True)
class Reading:
    """A way to read: a format, its options, and the columns that Spark keeps of it."""

    format: str
    columns: str
    options: Mapping[str, object] = field(default_factory=dict)
    note: str = ""


def named(name: str, columns: str) -> str:
    return f"{name}, {columns}"


READINGS: Mapping[str, Reading] = {
    named(SPARK, VALUE): Reading("kafka", VALUE, note="its defaults"),
    named(TUNED, VALUE): Reading("kafka", VALUE, TUNED_OPTIONS, "fetches of 1 to 8 MiB"),
    named(KBATCH, VALUE): Reading("kbatch", VALUE, {"columns": "value"}, "its defaults, columns=value"),
    named(SPARK, ALL): Reading("kafka", ALL, note="its defaults"),
    named(TUNED, ALL): Reading("kafka", ALL, TUNED_OPTIONS, "fetches of 1 to 8 MiB"),
    named(KBATCH, ALL): Reading("kbatch", ALL, note="its defaults"),
}


def frame_of(spark: SparkSession, brokers: str, topic: str, reading: Reading) -> DataFrame:
    """Return the topic as a frame."""
    given = {**reading.options, "kafka.bootstrap.servers": brokers, "subscribe": topic}
    options = {name: str(value) for name, value in given.items()}
    frame = spark.read.format(reading.format).options(**options).load()
    return frame.select("value") if reading.columns == VALUE else frame


def fill(brokers: str, topic: str, codec: str, records: int) -> None:
    """Send the rows of the other benchmarks, again and again."""
    create_topic(brokers, topic, PARTITIONS)
    table = table_of(batch_records()).select(["key", "value"])
    keys = {"compression.type": codec, "batch.size": BATCH_BYTES, "linger.ms": 100}
    with kbatch.Producer({"bootstrap.servers": brokers, **keys}) as producer:
        for _ in range(records // table.num_rows):
            producer.send_table(topic, table)


def check(spark: SparkSession, brokers: str, topic: str, records: int) -> None:
    """Raise WrongRowsError unless both formats have the same rows, and as many as were sent."""
    found = [
        tuple(frame_of(spark, brokers, topic, READINGS[named(name, ALL)]).agg(*digest()).collect()[0])
        for name in (SPARK, KBATCH)
    ]
    if found[0] != found[1] or found[0][0] != records:
        raise WrongRowsError(f"counts and digests are {found}, of {records} rows")


def measured(
    brokers: str, broker_id: int | None, records: int, rounds: int, warm_up: int
) -> dict[str, dict[str, list[Measured]]]:
    """Run everything in this process. Raise RuntimeError with the text of a failure, which may not be
    picklable.
    """
    memory = IN_MEMORY if IN_MEMORY.is_dir() else None
    found: dict[str, dict[str, list[Measured]]] = {codec: {name: [] for name in READINGS} for codec in CODECS}
    with TemporaryDirectory(prefix="kbatch-spark-", dir=memory) as scratch:
        try:
            with session(Path(scratch), spark_kafka_jars().glob("*.jar")) as spark:
                for codec in CODECS:
                    fill(brokers, f"read-{codec}", codec, records)
                    check(spark, brokers, f"read-{codec}", records)
                for number in range(-warm_up, rounds):
                    for codec in CODECS:
                        for name, reading in READINGS.items():
                            frame = frame_of(spark, brokers, f"read-{codec}", reading)
                            writer = frame.write.format("noop").mode("overwrite")
                            broker_ns = cpu_ns_of(broker_id) or 0
                            elapsed_ns, used_ns = time_and_cpu_ns(spark, writer.save)
                            broker_ns = (cpu_ns_of(broker_id) or 0) - broker_ns
                            if number >= 0:
                                per_row = (each / records for each in (elapsed_ns, used_ns, broker_ns))
                                found[codec][name].append(Measured(*per_row))
                return found
        except Exception:
            raise RuntimeError(traceback.format_exc()) from None


def questions(plan: Plan) -> Iterator[Question]:
    try:
        spark_kafka_jars()
    except JavaMissingError as reason:
        print(f"Spark's sources are not measured: {reason}", file=sys.stderr)
        return
    records = plan.records_of(RECORDS) // RECORDS_PER_BATCH * RECORDS_PER_BATCH
    spawn = multiprocessing.get_context("spawn")
    with plan.cluster() as cluster, ProcessPoolExecutor(1, mp_context=spawn) as process:
        asked = (cluster.bootstrap_servers, cluster.process_id, records)
        rounds = plan.rounds_of(ROUNDS), plan.rounds_of(WARM_UP_ROUNDS)
        found = process.submit(measured, *asked, *rounds).result()
    for codec, answers in found.items():
        yield Question(
            summary.SPARK_READING.format(codec),
            f"{records:,} records of 16-byte keys and 100-byte JSON values in batches of up to 128 KiB, "
            f"{PARTITIONS} partitions and tasks on local[{CORES}], a real Kafka on the same machine. Rows "
            "go to the format noop. Both formats' rows are compared before, by count and digest. The JVM and "
            "all its Python processes, user and kernel.",
            _contenders(answers, "cpu_ns", records),
            [
                Claim(
                    named(KBATCH, VALUE), named(TUNED, VALUE), 0.7, "value: 0.7 x the tuned one's, or less"
                ),
                Claim(named(KBATCH, ALL), named(TUNED, ALL), 1.0, "all columns: the tuned one's, or less"),
            ],
            "ns of CPU a row",
            in_turns=True,
            speaks_of_speed=False,
        )
        yield Question(
            f"Rows into Spark, {codec}",
            "The same reads, from save() to its return.",
            _contenders(answers, "elapsed_ns", 1),
            [
                Claim(
                    named(KBATCH, VALUE), named(TUNED, VALUE), 1 / 1.8, "value: 1.8 x the tuned one's rows/s"
                ),
                Claim(
                    named(KBATCH, ALL), named(TUNED, ALL), 1.0, "all columns: the tuned one's rows/s, or more"
                ),
            ],
            "ns a row",
            in_turns=True,
        )


def _contenders(found: Mapping[str, list[Measured]], figure: str, records: int) -> list[Contender]:
    return [
        Contender(name, records, timings=[getattr(each, figure) for each in rounds], note=READINGS[name].note)
        for name, rounds in found.items()
    ]
