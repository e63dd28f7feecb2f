"""Rows from Spark into Kafka, by Spark's own sink, by `kbatch`, and by librdkafka in an Arrow writer; and the
cost of Spark when a Python sink does nothing.

One session writes the same frame in all ways, in turn; then micro-batches of a few rows. The session has its
own process, whose end ends the JVM.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

import kbatch.spark
from benchmarks.clients.kafka import IN_MEMORY
from benchmarks.clients.probes import cpu_ns_of, tree_cpu_ns
from benchmarks.pages.harness import Claim, Contender, Question
from benchmarks.pages.plan import Plan
from benchmarks.questions.spark_writers import ConfluentSource, NoOpSource
from kbatch import Admin
from kbatch.bench.settings import listed
from kbatch.spark.sink_options import BULK_SETTINGS
from tests.oracle.java_programs import JavaMissingError, spark_kafka_jars
from tests.oracle.kafka import create_topic

PARTITIONS, TASKS, CORES = 4, 4, 2
# Rows a write, by the bytes of a value.
SIZES = {100: 2_000_000, 1000: 400_000}
ROUNDS, WARM_UP_ROUNDS = 5, 3  # Java's compiler needs some
MICRO_ROWS, MICRO_TASKS, MICRO_BATCHES, MICRO_WARM_UP, MICRO_ROUNDS = 100, 2, 30, 10, 4
SEEN_SECONDS, POLL_SECONDS = 20.0, 0.1
MARKERS = "markers"
SESSION: Mapping[str, object] = {
    "spark.driver.memory": "1g",
    "spark.sql.files.minPartitionNum": TASKS,
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

# Equal for all.
SETTINGS: Mapping[str, object] = {"kafka.acks": "all", "kafka.compression.type": "lz4"}
TUNED: Mapping[str, object] = {"kafka.linger.ms": 20, "kafka.batch.size": 128 << 10}
RDKAFKA: Mapping[str, object] = {
    "kafka.enable.idempotence": "true",
    "kafka.partitioner": "murmur2_random",
    **{f"kafka.{name}": BULK_SETTINGS[name] for name in ("linger.ms", "batch.size")},
}
ONCE: Mapping[str, object] = {"delivery": "exactly_once", "marker.topic": MARKERS, "sink": "rows"}

SPARK, SPARK_TUNED = "Spark's sink", "Spark's sink, tuned"
KBATCH, KBATCH_ONCE = "kbatch", "kbatch, exactly_once"
CONFLUENT, NO_OP = "confluent-kafka in an Arrow writer", "no-op Python sink"


@dataclass(frozen=True)
class Variant:
    """A way to write: a format, and its options in addition to SETTINGS."""

    format: str
    options: Mapping[str, object] = field(default_factory=dict)
    note: str = ""


VARIANTS: Mapping[str, Variant] = {
    SPARK: Variant("kafka", note="its defaults: linger.ms=0, batch.size=16384"),
    SPARK_TUNED: Variant("kafka", TUNED, "linger.ms=20, batch.size=131072"),
    KBATCH: Variant("kbatch", note="its defaults: linger.ms=20, batch.size=262144"),
    KBATCH_ONCE: Variant("kbatch", ONCE, "the same, a transaction a task"),
    CONFLUENT: Variant(ConfluentSource.name(), RDKAFKA, "a produce a row; linger.ms=20, batch.size=262144"),
    NO_OP: Variant(NoOpSource.name(), note="drops the rows: what Spark and its workers cost"),
}
STREAMED = (NO_OP, KBATCH, KBATCH_ONCE)


@dataclass
class Measured:
    """The time of a row in one write."""

    elapsed_ns: float
    cpu_ns: float
    broker_ns: float


class WrongRowsError(RuntimeError):
    """The topic does not have the written rows."""


@contextmanager
def session(folder: Path, jars: Iterable[Path] = ()) -> Iterator[SparkSession]:
    """Let workers import what this process imports."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("kbatch benchmark")
    settings = {**SESSION, "spark.jars": ",".join(map(str, jars)), "spark.local.dir": folder}
    for name, value in settings.items():
        builder = builder.config(name, str(value))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    kbatch.spark.register(spark)
    for source in (NoOpSource, ConfluentSource):
        spark.dataSource.register(source)
    yield spark
    spark.stop()


def time_and_cpu_ns(spark: SparkSession, work: Callable[[], object]) -> tuple[int, int]:
    """Return the time of the work, and the processor time of the JVM and all its Python processes."""
    jvm_id = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    before = tree_cpu_ns(jvm_id)
    start_ns = time.perf_counter_ns()
    work()
    elapsed_ns = time.perf_counter_ns() - start_ns
    after = tree_cpu_ns(jvm_id)
    return elapsed_ns, sum(cpu_ns - before.get(process, 0) for process, cpu_ns in after.items())


# Rows


def frame_of(spark: SparkSession, folder: Path, records: int, value_bytes: int) -> DataFrame:
    """Return keys and JSON values as in the other benchmarks, all different; half of a large value is hex
    that does not repeat. They are in a Parquet file for each task, without compression and dictionaries.
    """
    number = f.col("id")
    hexes = [f.sha2((number * 31 + index).cast("string"), 256) for index in range(value_bytes // 128)]
    end = f.concat(*hexes, f.lit('"}'))
    head = f.format_string(
        '{"id":%d,"user":"u%05d","amount":%d,"note":"%s',
        number,
        number * 7919 % 100_000,
        number * 31 % 9973,
        f.repeat(f.lower(f.hex(f.xxhash64("id"))), value_bytes // 16),
    )
    value = f.concat(f.substring(head, 1, value_bytes - 64 * len(hexes) - 2), end)
    key = f.format_string("key-%012d", number * 7919 % 1_000_000)
    path = str(folder / f"rows-{value_bytes}")
    made = spark.range(0, records, 1, TASKS).select(
        key.cast("binary").alias("key"), value.cast("binary").alias("value")
    )
    made.write.options(compression="none", **{"parquet.enable.dictionary": "false"}).parquet(path)
    return spark.read.parquet(path)


def digest() -> tuple[Column, Column]:
    """Return the count, and a sum that does not depend on the order."""
    return f.count("*"), f.sum(f.xxhash64("key", "value").bitwiseAND(f.lit(0xFFFFFFFF)))


# Writes


class Writes:
    """The rounds of one frame. Each write goes to its own topic, which Spark's Kafka source reads back as a
    read_committed consumer and compares: all rows are there, and each partition has what Spark's sink wrote
    to it.
    """

    def __init__(self, spark: SparkSession, brokers: str, broker_id: int | None, frame: DataFrame) -> None:
        self._spark = spark
        self._brokers = brokers
        self._admin = Admin(bootstrap_servers=brokers)
        self._broker_id = broker_id
        self._frame = frame
        self._wanted = tuple(frame.agg(*digest()).collect()[0])
        self._by_partition: dict[int, tuple[int, int]] | None = None  # from Spark's sink, the first writer
        self._app_id = f"bench-{time.time_ns()}"
        self._versions = itertools.count()
        self.measured: dict[str, list[Measured]] = {name: [] for name in VARIANTS}

    def round(self, *, counts: bool) -> None:
        """Run each variant once; the first rounds do not count."""
        for name in VARIANTS:
            topic = f"{self._app_id}-{next(self._versions)}"
            create_topic(self._brokers, topic, PARTITIONS, {"file.delete.delay.ms": "100"})
            found = self._write(name, topic)
            if name != NO_OP:
                self._check(name, topic)
            self._admin.topics.delete(topic)
            if counts:
                self.measured[name].append(found)

    def _write(self, name: str, topic: str) -> Measured:
        variant = VARIANTS[name]
        options = options_of(variant, self._brokers, topic)
        if "delivery" in options:
            options |= {"txnappid": self._app_id, "txnversion": str(next(self._versions))}
        writer = self._frame.write.format(variant.format).options(**options).mode("append")
        broker_ns = cpu_ns_of(self._broker_id) or 0
        elapsed_ns, used_ns = time_and_cpu_ns(self._spark, writer.save)
        broker_ns = (cpu_ns_of(self._broker_id) or 0) - broker_ns
        records = self._wanted[0]
        return Measured(elapsed_ns / records, used_ns / records, broker_ns / records)

    def _check(self, name: str, topic: str) -> None:
        """Look again for a while: commit markers come after the answer to a commit."""
        deadline = time.monotonic() + SEEN_SECONDS
        while True:
            found = self._read(topic)
            total = tuple(map(sum, zip(*found.values(), strict=True)))
            if total == self._wanted and found == (self._by_partition or found):
                self._by_partition = found
                return
            if time.monotonic() > deadline:
                raise WrongRowsError(
                    f"{name}: counts and digests by partition are {found}, not {self._by_partition}; "
                    f"{self._wanted} in all"
                )
            time.sleep(POLL_SECONDS)

    def _read(self, topic: str) -> dict[int, tuple[int, int]]:
        rows = self._spark.read.format("kafka").option("subscribe", topic)
        rows = rows.option("kafka.bootstrap.servers", self._brokers)
        rows = rows.option("kafka.isolation.level", "read_committed")
        found = rows.load().groupBy("partition").agg(*digest()).collect()
        return {partition: (count, total) for partition, count, total in found}


def options_of(variant: Variant, brokers: str, topic: str) -> dict[str, str]:
    given = {**SETTINGS, **variant.options, "kafka.bootstrap.servers": brokers, "topic": topic}
    return {name: str(value) for name, value in given.items()} if variant.format != NoOpSource.name() else {}


# Micro-batches


def micro_batch_ms(spark: SparkSession, brokers: str, name: str, folder: Path, topic: str) -> float:
    """Return the median time of a micro-batch's addBatch, from Spark, which includes the sink."""
    variant = VARIANTS[name]
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", MICRO_ROWS)
    number = f.col("value").cast("string").cast("binary")
    rows = source.option("numPartitions", MICRO_TASKS).load()
    frame = rows.select(number.alias("key"), number.alias("value"))
    query = (
        frame.writeStream.format(variant.format)
        .options(**options_of(variant, brokers, topic))
        .option("checkpointLocation", str(folder))
        .start()
    )
    while query.exception() is None and len(query.recentProgress) < MICRO_WARM_UP + MICRO_BATCHES:
        time.sleep(POLL_SECONDS)
    query.stop()
    if (error := query.exception()) is not None:
        raise error
    progress = query.recentProgress[MICRO_WARM_UP:]
    assert all(each["numInputRows"] == MICRO_ROWS for each in progress)
    return statistics.median(float(each["durationMs"]["addBatch"]) for each in progress)


def micro_batches(spark: SparkSession, brokers: str, folder: Path, rounds: int) -> dict[str, list[float]]:
    create_topic(brokers, "micro", PARTITIONS)
    found: dict[str, list[float]] = {name: [] for name in STREAMED}
    for number in range(-1, rounds):
        for name in STREAMED:
            checkpoint = folder / f"checkpoint-{STREAMED.index(name)}-{number}"
            took_ms = micro_batch_ms(spark, brokers, name, checkpoint, "micro")
            if number >= 0:
                found[name].append(took_ms)
    return found


# Questions


@dataclass
class Answers:
    writes: dict[int, dict[str, list[Measured]]]
    micro: dict[str, list[float]]


def measured(
    brokers: str, broker_id: int | None, sizes: Mapping[int, int], rounds: int, warm_up: int, micro: int
) -> Answers:
    """Run everything in this process. Raise RuntimeError with the text of a failure, which may not be
    picklable.
    """
    memory = IN_MEMORY if IN_MEMORY.is_dir() else None
    with TemporaryDirectory(prefix="kbatch-spark-", dir=memory) as scratch:
        folder = Path(scratch)
        try:
            with session(folder, spark_kafka_jars().glob("*.jar")) as spark:
                create_topic(brokers, MARKERS)
                found = {}
                for value_bytes, records in sizes.items():
                    frame = frame_of(spark, folder, records, value_bytes)
                    writes = Writes(spark, brokers, broker_id, frame)
                    for number in range(-warm_up, rounds):
                        writes.round(counts=number >= 0)
                    found[value_bytes] = writes.measured
                return Answers(found, micro_batches(spark, brokers, folder, micro))
        except Exception:
            raise RuntimeError(traceback.format_exc()) from None


def questions(plan: Plan) -> Iterator[Question]:
    try:
        spark_kafka_jars()
    except JavaMissingError as reason:
        print(f"Spark's sinks are not measured: {reason}", file=sys.stderr)
        return
    sizes = {value_bytes: plan.records_of(records) for value_bytes, records in SIZES.items()}
    spawn = multiprocessing.get_context("spawn")
    with plan.cluster() as cluster, ProcessPoolExecutor(1, mp_context=spawn) as process:
        asked = (cluster.bootstrap_servers, cluster.process_id, sizes, plan.rounds_of(ROUNDS))
        warm_up, micro = plan.rounds_of(WARM_UP_ROUNDS), plan.rounds_of(MICRO_ROUNDS)
        answers = process.submit(measured, *asked, warm_up, micro).result()
    for value_bytes, found in answers.writes.items():
        yield _cpu(value_bytes, sizes[value_bytes], found)
        yield _time(value_bytes, found)
    yield _micro(answers.micro)


WHAT = (
    "{records:,} rows a write, 16-byte keys, {value_bytes:,}-byte values, from uncompressed Parquet in "
    f"memory, {TASKS} tasks on local[{CORES}] into {PARTITIONS} partitions of a real Kafka on the same "
    f"machine. For all: {listed(SETTINGS)}, idempotence; the rest is as the table says. Each write is read "
    "back by Spark's Kafka source and compared by count and digest. "
)
CPU_AIMS = {
    100: [
        Claim(KBATCH, SPARK, 1 / 1.5, "1.5 x less CPU than Spark's sink at its defaults"),
        Claim(KBATCH, SPARK_TUNED, 1 / 1.2, "1.2 x less CPU than Spark's sink tuned"),
        Claim(KBATCH_ONCE, KBATCH, 1.1, "exactly_once: 10 % more CPU than at_least_once, or less"),
        Claim(KBATCH, CONFLUENT, 1 / 2.5, "2.5 x less CPU than confluent-kafka in the same kind of writer"),
    ],
    1000: [
        Claim(KBATCH, SPARK, 1.0, "no more CPU than Spark's sink at its defaults"),
        Claim(KBATCH, SPARK_TUNED, 1.0, "no more CPU than Spark's sink tuned"),
        Claim(KBATCH_ONCE, KBATCH, 1.1, "exactly_once: 10 % more CPU than at_least_once, or less"),
    ],
}
TIME_AIMS = {
    100: [Claim(KBATCH, SPARK, 1 / 1.4, "1.4 x the rows/s of Spark's sink at its defaults")],
    1000: [Claim(KBATCH, SPARK, 1.0, "as many rows/s as Spark's sink at its defaults")],
}


def _cpu(value_bytes: int, records: int, found: Mapping[str, list[Measured]]) -> Question:
    return Question(
        f"Processor time of a row from Spark, values of {value_bytes:,} B",
        WHAT.format(records=records, value_bytes=value_bytes)
        + "The JVM and all its Python processes, user and kernel.",
        _contenders(found, "cpu_ns", records),
        CPU_AIMS[value_bytes],
        "ns of CPU a row",
        in_turns=True,
        speaks_of_speed=False,
        after_tables=_table(found),
    )


def _time(value_bytes: int, found: Mapping[str, list[Measured]]) -> Question:
    contenders = _contenders(found, "elapsed_ns", 1)
    for contender in contenders:
        contender.note = f"{1e9 / contender.median:,.0f} rows/s"
    return Question(
        f"Rows from Spark, values of {value_bytes:,} B",
        "The same writes, from save() to its return.",
        contenders,
        TIME_AIMS[value_bytes],
        "ns a row",
        in_turns=True,
    )


def _contenders(found: Mapping[str, list[Measured]], figure: str, records: int) -> list[Contender]:
    return [
        Contender(name, records, timings=[getattr(each, figure) for each in rounds], note=VARIANTS[name].note)
        for name, rounds in found.items()
    ]


def _table(found: Mapping[str, list[Measured]]) -> str:
    """Return medians, the difference of each to Spark's own share, and the broker's share."""

    def median(name: str, figure: str) -> float:
        return statistics.median(float(getattr(each, figure)) for each in found[name])

    floor = median(NO_OP, "cpu_ns")
    lines = ["| | CPU above the no-op sink, ns | rows/s | broker's CPU, ns a row |", "|---|---:|---:|---:|"]
    for name in found:
        above, broker = median(name, "cpu_ns") - floor, median(name, "broker_ns")
        lines.append(f"| {name} | {above:,.0f} | {1e9 / median(name, 'elapsed_ns'):,.0f} | {broker:,.0f} |")
    return "\n".join(["Medians:", "", *lines])


def _micro(found: Mapping[str, list[float]]) -> Question:
    claims = []
    contenders = [Contender(name, MICRO_ROWS, timings=list(took)) for name, took in found.items()]
    for name, most_ms in {KBATCH: 40.0, KBATCH_ONCE: 80.0}.items():
        text = f"{name}: {most_ms:g} ms above no-op, or less"
        claims.append(Claim(f"{name}, above no-op", f"{most_ms:g} ms", 1.0, text))
        above = [ours - floor for ours, floor in zip(found[name], found[NO_OP], strict=True)]
        contenders.append(Contender(f"{name}, above no-op", MICRO_ROWS, timings=above))
        contenders.append(Contender(f"{most_ms:g} ms", 1, timings=[most_ms] * len(above), note="an aim"))
    return Question(
        f"A micro-batch of {MICRO_ROWS} rows",
        f"Spark's time of addBatch, the median of {MICRO_BATCHES} micro-batches a round, {MICRO_TASKS} "
        "tasks each: planning, tasks and commit, of a streaming query.",
        contenders,
        claims,
        "ms",
        in_turns=True,
        speaks_of_speed=False,
    )
