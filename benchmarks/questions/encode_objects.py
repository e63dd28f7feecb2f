"""How fast is `kbatch.encode` from Python objects? The limit is the copy and CRC of the same bytes
(benchmarks/limit.py). The difference is reading Python objects, about 15 ns a record for the loop alone.
"""

from __future__ import annotations

from benchmarks.clients.java_codec import Peers
from benchmarks.pages.harness import Claim, Contender, Question
from benchmarks.questions.limit import CopyAndChecksum
from kbatch.bench.workload import RECORDS_PER_BATCH, Record, batch_records


def built_by(builder: type, rows: list[Record]) -> bytes:
    """Return the batch of rows without headers from aiokafka's or kafka-python's builder."""
    no_headers: list[tuple[str, bytes]] = []
    batch = builder(2, 0, 0, -1, -1, -1, 1 << 20)
    for offset, (key, value, _, timestamp) in enumerate(rows):
        batch.append(offset, timestamp, key, value, no_headers)
    return bytes(batch.build())


def question(peers: Peers) -> Question:
    from aiokafka.record.default_records import DefaultRecordBatchBuilder
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

    import kbatch

    rows = batch_records()
    encoded = kbatch.encode(rows)
    assert built_by(DefaultRecordBatchBuilder, rows)[61:] == encoded[61:], "aiokafka writes the same records"
    assert built_by(KafkaPythonBuilder, rows)[61:] == encoded[61:], "kafka-python writes the same records"
    contenders = [
        Contender(
            "limit", RECORDS_PER_BATCH, CopyAndChecksum(encoded, len(encoded)), note="memcpy + CRC-32C"
        ),
        Contender("kbatch.encode", RECORDS_PER_BATCH, lambda: kbatch.encode(rows)),
        Contender(
            "aiokafka",
            RECORDS_PER_BATCH,
            lambda: built_by(DefaultRecordBatchBuilder, rows),
            note="Cython builder",
        ),
        Contender("kafka-python", RECORDS_PER_BATCH, lambda: built_by(KafkaPythonBuilder, rows)),
    ]
    claims = [Claim("kbatch.encode", "aiokafka", 1 / 3, "encode, none: 3 x aiokafka")]
    java = peers.java_encode("none")
    if java:
        contenders.append(java)
        claims.append(Claim("kbatch.encode", java.name, 0.999, "encode, none: faster than Java"))
    return Question(
        "Python objects into a batch, no compression",
        "One batch of 1,000 tuples (key, value, headers, timestamp).",
        contenders,
        claims,
    )
