"""The pages of the benchmarks: what each group answers, the figures of the summary, and its text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.pages.page import Figure

SUMMARY = Path(__file__).parents[2] / "docs" / "benchmarks.md"

# In the order of the summary.
QUESTIONS: Mapping[str, str] = {
    "throughput": "How much CPU and time does a record take, from the call to the acknowledgement?",
    "small-batches": "What does a record take in batches of 16 KiB?",
    "uncompressed": "What does a record take without compression?",
    "read": "What does a record take to read, as a row of a table and as an object?",
    "consumer": "What does a record cost in a Consumer, how late does it come, and how long is a rebalance?",
    "pace": "What does a consumer cost at the pace of a service, and how late is a record?",
    "latency": "How long does a record wait for its acknowledgement, at 1,000 records a second?",
    "latency-busy": "How long does it wait if another thread computes in Python?",
    "transactions": "How long does a transaction of 1,000 records take?",
    "large-table": "How much memory does one call of send_table need for a large table?",
    "encode-objects": "What does a record take in `encode`?",
    "encode-table": "What does a row take in `encode_arrow`, by codec?",
    "decode": "What does a record take in `decode` and `decode_arrow`?",
    "send": "What does a record take until `send` accepts it?",
    "send-table": "What does a row take in `send_table`, without a network?",
    "column-json": "What does a row take in `JsonLines`?",
    "formats": "What does a value cost in Avro, JSON Schema, Protobuf and JSON?",
    "checksum": "How fast is CRC-32C?",
    "protocol": "What does a Produce request take to encode and decode?",
    "broker": "How fast is the embedded broker?",
    "pressure": "How much memory does a producer need under back-pressure, and with 10,000 partitions?",
    "scaling": "What does a batch of one record take, by partitions, size and producers?",
    "security": "What do TLS and SCRAM cost, and the first connections to a cluster?",
    "admin": "How long do calls of administration about 1,000 topics and groups take?",
    "threads": "What do several threads or tasks cost that share a producer, and is each served fairly?",
    "spark": "What does a row take from Spark to the acknowledgement?",
    "spark-source": "What does a row take from a topic into Spark?",
    "spark-encode": "What does a row take in Spark's functions for record batches?",
}

PRODUCED = "Processor time of a record: all contestants, lz4, batches of 128 KiB"
DELIVERED = "Records delivered: all contestants, lz4, batches of 128 KiB"
SMALL = "Processor time of a record: lz4, batches of 16 KiB"
PACED, BUSY = "Latency of a paced sender", "Latency of a paced sender beside Python that computes"
SECURED = "Processor time of a record: TLS + SCRAM-SHA-256 beside plaintext, lz4, batches of 128 KiB"
READING = "Processor time to read a record, {}"
CONSUMING = "Processor time of a record in a consumer, {}"
SETTLED = "Rebalance of 10 members, {} protocol"
FOLLOWED = "Latency from producer to consumer, at 1,000 records a second"
SPARK_READING = "Processor time of a row into Spark, {}"
TRANSACTIONS = "Transactions of 1,000 records, one after the other"
SPARK = "Processor time of a row from Spark, values of 100 B"
CONSUMERS = ("Java, warm", "confluent-kafka, tuned", "confluent-kafka", "aiokafka", "kafka-python")
PRODUCERS = ("Java, warm", "confluent-kafka", "aiokafka", "kafka-python")
SINKS = ("Spark's sink, tuned", "Spark's sink", "confluent-kafka in an Arrow writer", "no-op Python sink")

FIGURES = (
    Figure("throughput", PRODUCED, "send with a callback, lz4, 128 KiB", "kbatch", PRODUCERS),
    Figure("throughput", DELIVERED, "the same, call to acknowledgement", "kbatch", PRODUCERS),
    Figure(
        "throughput",
        PRODUCED,
        "send_table, lz4, 128 KiB",
        "kbatch send_table",
        ("Java, warm", "confluent-kafka produce_batch"),
    ),
    Figure("small-batches", SMALL, "send with a callback, lz4, 16 KiB", "kbatch", PRODUCERS),
    *(
        Figure("latency", PACED, f"latency, {p}", f"kbatch, {p}", tuple(f"{name}, {p}" for name in PRODUCERS))
        for p in ("p50", "p99")
    ),
    *(
        Figure("latency-busy", BUSY, f"beside busy Python, {p}", f"kbatch, {p}", (f"confluent-kafka, {p}",))
        for p in ("p50", "p99")
    ),
    Figure(
        "security",
        SECURED,
        "send with a callback, TLS + SCRAM, lz4, 128 KiB",
        "kbatch, TLS + SCRAM",
        tuple(f"{name}, TLS + SCRAM" for name in ("Java, warm", "confluent-kafka")),
    ),
    Figure("read", READING.format("lz4"), "read_table, key and value, lz4", "kbatch read_table", CONSUMERS),
    Figure("read", READING.format("lz4"), "Record objects, lz4", "kbatch records", CONSUMERS),
    Figure(
        "spark-source",
        SPARK_READING.format("lz4"),
        "Spark's read of values, lz4",
        "kbatch, value",
        ("Spark's source, tuned, value", "Spark's source, value"),
    ),
    Figure("transactions", TRANSACTIONS, "a transaction of 1,000 records", "kbatch", PRODUCERS),
    Figure(
        "encode-objects",
        "Python objects into a batch, no compression",
        "encode, no compression",
        "kbatch.encode",
        ("Java, none", "aiokafka", "kafka-python", "limit"),
    ),
    *(
        Figure(
            "encode-table",
            f"A table into batches, {'no compression' if codec == 'none' else codec}",
            f"encode_arrow, {codec}",
            "encode_arrow" if codec == "none" else f"encode_arrow, {codec}",
            (f"Java, {codec}", "aiokafka", "limit", f"{codec} alone"),
        )
        for codec in ("none", "lz4", "zstd", "snappy", "gzip")
    ),
    *(
        Figure(
            "decode",
            "Batches into records and columns, no compression",
            f"{name}, no compression",
            name,
            ("Java", "aiokafka", "kafka-python", "limit"),
        )
        for name in ("decode", "decode_arrow")
    ),
    Figure("spark", SPARK, 'format("kbatch"), values of 100 B', "kbatch", SINKS),
    Figure("spark", SPARK, "the same, exactly once", "kbatch, exactly_once", SINKS),
)

HEAD = """# Benchmarks

How fast is kbatch beside other clients? The table has the medians that matter, kbatch's in bold. Each group's
page has all figures, their spread and plots. The machines are shared, so compare only within a row.

Contenders take turns round by round, so a change of the machine's speed affects all of them. A ratio is the
median of the rounds' ratios; for a process that measures itself, such as the Java codec, it is the ratio of
the lowest times. Each client runs in its own process and sends to one real Kafka on the same cores, with its
log in memory. Another client counts and compares the records byte by byte. Keys have 16 bytes, values are
JSON of 100.

`make bench` (`.venv/bin/python -m benchmarks`) measures everything again. Names of groups, such as
`throughput`, measure only those. `kbatch bench` compares clients on your Kafka. [costs.md](costs.md) shows
where the time of a record goes, stage by stage.

## Figures
"""

FOOT = """## Settings

Unless a group says otherwise:

{settings}
"""
