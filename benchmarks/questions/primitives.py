"""What do the small steps of every record cost: varints, a partition, an estimate?"""

from __future__ import annotations

from benchmarks.clients.java_codec import Peers
from benchmarks.pages.harness import Contender, Question
from benchmarks.questions.encode_objects import built_by
from kbatch.bench.workload import RECORDS_PER_BATCH, TIMESTAMP_MS, Record, batch_records

PARTITIONS = 12


def varint_question(peers: Peers) -> Question:
    from aiokafka.record.default_records import DefaultRecordBatchBuilder
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

    import kbatch

    rows: list[Record] = [(b"", b"", (), TIMESTAMP_MS + number) for number in range(RECORDS_PER_BATCH)]
    encoded = kbatch.encode(rows)
    assert built_by(DefaultRecordBatchBuilder, rows)[61:] == encoded[61:]

    def decode() -> None:
        for records in kbatch.decode(encoded):
            for _ in records:
                pass

    return Question(
        "Records of varints only",
        "One batch of 1,000 records with an empty key and an empty value.",
        [
            Contender("kbatch.encode", RECORDS_PER_BATCH, lambda: kbatch.encode(rows)),
            Contender("kbatch.decode", RECORDS_PER_BATCH, decode),
            Contender("aiokafka", RECORDS_PER_BATCH, lambda: built_by(DefaultRecordBatchBuilder, rows)),
            Contender("kafka-python", RECORDS_PER_BATCH, lambda: built_by(KafkaPythonBuilder, rows)),
        ],
    )


def partition_question(peers: Peers) -> Question:
    from aiokafka.partitioner import murmur2 as aiokafka_murmur2
    from kafka.partitioner import murmur2 as kafka_python_murmur2

    import kbatch

    keys = [key for key, *_ in batch_records()]

    def ours() -> list[int]:
        return [kbatch.partition_for_key(key, PARTITIONS) for key in keys]

    def aiokafka() -> list[int]:
        return [(aiokafka_murmur2(key) & 0x7FFFFFFF) % PARTITIONS for key in keys]

    def kafka_python() -> list[int]:
        return [(kafka_python_murmur2(key) & 0x7FFFFFFF) % PARTITIONS for key in keys]

    assert ours() == aiokafka() == kafka_python()
    return Question(
        "The partition of a key",
        f"1,000 keys of 16 bytes, {PARTITIONS} partitions.",
        [
            Contender("kbatch.partition_for_key", len(keys), ours),
            Contender("aiokafka", len(keys), aiokafka),
            Contender("kafka-python", len(keys), kafka_python),
        ],
    )


def ratio_question(peers: Peers) -> Question:
    import kbatch

    estimator = kbatch.CompressionRatioEstimator()

    def estimate() -> None:
        for _ in range(RECORDS_PER_BATCH):
            estimator.update("topic", "lz4", 0.4)
            estimator.estimate("topic", "lz4")

    return Question(
        "The compression ratio, learnt and read",
        "Once a batch.",
        [Contender("CompressionRatioEstimator", RECORDS_PER_BATCH, estimate)],
    )
