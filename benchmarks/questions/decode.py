"""How fast are batches read? For `decode_arrow` the limit is the copy and CRC of the same bytes; for
`decode`, which makes three Python objects a record, it is their cost. All contenders check the CRC, as their
consumers do by default.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.clients.java_codec import Peers
from benchmarks.clients.work import TABLE_ROWS, batch_size, table
from benchmarks.pages.harness import Claim, Contender, Question
from benchmarks.questions.limit import CopyAndChecksum
from kbatch.bench.workload import RECORDS_PER_BATCH, batch_records


def question(peers: Peers) -> Question:
    from aiokafka.record.default_records import DefaultRecordBatch
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

    import kbatch

    batch = kbatch.encode(batch_records())
    log = b"".join(
        piece.as_py()
        for piece in kbatch.encode_arrow(table(), partitions=1, batch_size=batch_size())["batch"]
    )

    def peer(reader: type) -> Callable[[], None]:
        def read() -> None:
            records = reader(batch)
            assert records.validate_crc()
            for record in records:
                record.key  # noqa: B018 - reading is what is measured
                record.value  # noqa: B018

        return read

    def ours() -> None:
        for records in kbatch.decode(batch):
            for record in records:
                record.key  # noqa: B018
                record.value  # noqa: B018

    contenders = [
        Contender("limit", TABLE_ROWS, CopyAndChecksum(log, len(batch)), note="memcpy + CRC-32C"),
        Contender(
            "decode_arrow",
            TABLE_ROWS,
            lambda: kbatch.decode_arrow(log),
            note=f"{TABLE_ROWS:,} records a call",
        ),
        Contender("decode", RECORDS_PER_BATCH, ours, note="key and value read"),
        Contender("aiokafka", RECORDS_PER_BATCH, peer(DefaultRecordBatch), note="key and value read"),
        Contender("kafka-python", RECORDS_PER_BATCH, peer(KafkaPythonBatch), note="key and value read"),
    ]
    java = peers.java_decode(batch)
    if java:
        contenders.append(java)
    return Question(
        "Batches into records and columns, no compression",
        "Batches of 1,000 records, CRC checked.",
        contenders,
        [
            Claim("decode", "aiokafka", 1 / 2, "decode, none: 2 x aiokafka"),
            Claim("decode_arrow", "aiokafka", 1 / 10, "decode_arrow, none: 10 x aiokafka"),
        ],
    )
