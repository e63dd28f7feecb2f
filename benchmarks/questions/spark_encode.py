"""Rows in Spark into record batches: by `encode`, by the aggregate `kbatch_encode`, and by a Python UDF that
encodes row by row; and the cost of Spark when its workers drop the rows.

One session encodes the same frame in all ways, in turn, and drops the batches. Before that, the batches of
each way are decoded and compared. The session has its own process, whose end ends the JVM.
"""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType

import kbatch
import kbatch.spark
from benchmarks.clients.kafka import IN_MEMORY
from benchmarks.pages.harness import Claim, Contender, Question
from benchmarks.pages.plan import Plan
from benchmarks.questions.spark_sink import CORES, TASKS, digest, frame_of, session, time_and_cpu_ns

ROWS, VALUE_BYTES, PARTITIONS = 1_000_000, 100, 12
COMPRESSION, BATCH_SIZE = "lz4", 131072
ROUNDS, WARM_UP_ROUNDS = 5, 3  # Java's compiler needs some
NO_OP, ENCODE, AGGREGATE, ROW_BY_ROW = "no-op", "encode", "kbatch_encode", "a Python UDF a row"


def dropped(frame: DataFrame) -> DataFrame:
    def drop(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        yield from ()

    return frame.mapInArrow(drop, kbatch.spark.ENCODED_SCHEMA)


def encoded(frame: DataFrame) -> DataFrame:
    return kbatch.spark.encode(frame, PARTITIONS, compression=COMPRESSION, batch_size=BATCH_SIZE)


def aggregated(frame: DataFrame) -> DataFrame:
    batches = kbatch.spark.kbatch_encode("key", "value", compression=COMPRESSION, batch_size=BATCH_SIZE)
    groups = frame.groupBy(kbatch.spark.kafka_partition("key", PARTITIONS).alias("partition"))
    return groups.agg(batches.alias("batches")).select("partition", f.inline("batches"))


def row_by_row(frame: DataFrame) -> DataFrame:
    encode = f.udf(lambda *record: kbatch.encode([record], compression=COMPRESSION), BinaryType())
    partition = kbatch.spark.kafka_partition("key", PARTITIONS).alias("partition")
    return frame.select(partition, encode("key", "value").alias("batch"))


WAYS: Mapping[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    NO_OP: (dropped, "rows to the workers, which drop them"),
    ENCODE: (encoded, "`mapInArrow`, batches of a task"),
    AGGREGATE: (aggregated, "a shuffle by `kafka_partition`, batches of a group"),
    ROW_BY_ROW: (row_by_row, "`kbatch.encode` of a record, a batch a row"),
}


@dataclass
class Way:
    """The time of a row, a figure a round, and the resulting batches."""

    elapsed_ns: list[float]
    cpu_ns: list[float]
    batch_count: int = 0
    batch_bytes: int = 0


class WrongRecordsError(RuntimeError):
    """The batches do not have the encoded records."""


def checked(frame: DataFrame, name: str) -> tuple[int, int]:
    """Return number and bytes of the batches, after checking that they have all rows, on the partitions of
    Kafka's producers.
    """
    made = WAYS[name][0](frame)
    records = kbatch.spark.decode(made.select("partition", "batch"))
    wanted, found = (tuple(each.agg(*digest()).collect()[0]) for each in (frame, records))
    misplaced = records.where(f.col("partition") != kbatch.spark.kafka_partition("key", PARTITIONS)).count()
    if found != wanted or misplaced:
        raise WrongRecordsError(f"{name}: count and digest {found}, not {wanted}; {misplaced} misplaced")
    count, size = made.agg(f.count("*"), f.sum(f.length("batch"))).collect()[0]
    return count, size


def measured(rows: int, rounds: int, warm_up: int) -> dict[str, Way]:
    """Run everything in this process. Raise RuntimeError with the text of a failure, which may not be
    picklable.
    """
    memory = IN_MEMORY if IN_MEMORY.is_dir() else None
    with TemporaryDirectory(prefix="kbatch-spark-", dir=memory) as scratch:
        folder = Path(scratch)
        try:
            with session(folder) as spark:
                frame = frame_of(spark, folder, rows, VALUE_BYTES)
                found = {name: Way([], []) for name in WAYS}
                for name, way in found.items():
                    if name != NO_OP:
                        way.batch_count, way.batch_bytes = checked(frame, name)
                for number in range(-warm_up, rounds):
                    one_round(spark, frame, rows, found if number >= 0 else {})
                return found
        except Exception:
            raise RuntimeError(traceback.format_exc()) from None


def one_round(spark: SparkSession, frame: DataFrame, rows: int, found: Mapping[str, Way]) -> None:
    for name, (way, _) in WAYS.items():
        elapsed_ns, cpu_ns = time_and_cpu_ns(spark, way(frame).write.format("noop").mode("overwrite").save)
        if name in found:
            found[name].elapsed_ns.append(elapsed_ns / rows)
            found[name].cpu_ns.append(cpu_ns / rows)


def questions(plan: Plan) -> Iterator[Question]:
    rows = plan.records_of(ROWS)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as process:
        asked = rows, plan.rounds_of(ROUNDS), plan.rounds_of(WARM_UP_ROUNDS)
        found = process.submit(measured, *asked).result()
    yield Question(
        "Processor time of a row encoded in Spark",
        f"{rows:,} rows, 16-byte keys, {VALUE_BYTES}-byte values, from uncompressed Parquet in memory, "
        f"{TASKS} tasks on local[{CORES}], into batches of {PARTITIONS} partitions: {COMPRESSION}, "
        f"batch_size={BATCH_SIZE}. "
        "The batches are dropped (format noop); those of each way are decoded once and compared by count, "
        "digest and partition. The JVM and all its Python processes, user and kernel.",
        [Contender(name, rows, timings=way.cpu_ns, note=WAYS[name][1]) for name, way in found.items()],
        [
            Claim(ENCODE, ROW_BY_ROW, 1 / 4, "encode: 4 x less CPU than a Python UDF a row"),
            Claim(AGGREGATE, ROW_BY_ROW, 1 / 2, "kbatch_encode: half the CPU of a Python UDF a row"),
        ],
        "ns of CPU a row",
        in_turns=True,
        speaks_of_speed=False,
        after_tables=_table(found, rows),
    )
    yield Question(
        "Rows encoded in Spark",
        "The same, from save() to its return.",
        [
            Contender(name, 1, timings=way.elapsed_ns, note=f"{1e9 / _median(way.elapsed_ns):,.0f} rows/s")
            for name, way in found.items()
        ],
        [Claim(ENCODE, ROW_BY_ROW, 1 / 4, "encode: 4 x the rows/s of a Python UDF a row")],
        "ns a row",
        in_turns=True,
    )


def _median(timings: list[float]) -> float:
    return Contender("", 1, timings=timings).median


def _table(found: Mapping[str, Way], rows: int) -> str:
    lines = ["| | batches | bytes of a batch | bytes a row |", "|---|---:|---:|---:|"]
    for name, way in found.items():
        if way.batch_count:
            mean = way.batch_bytes / way.batch_count
            lines.append(f"| {name} | {way.batch_count:,} | {mean:,.0f} | {way.batch_bytes / rows:,.1f} |")
    return "\n".join(["What they make:", "", *lines])
