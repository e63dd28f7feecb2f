"""How fast does `encode_arrow` turn columns into batches? Without compression the limit is the copy and CRC
of the same bytes. With it, the limit is the codec's own time for the same record bytes and settings, batch by
batch.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.clients.java_codec import Peers
from benchmarks.clients.work import TABLE_ROWS, batch_size, table
from benchmarks.pages.harness import Claim, Contender, Question
from benchmarks.questions.encode_objects import built_by
from benchmarks.questions.limit import CopyAndChecksum
from kbatch.bench.workload import RECORDS_PER_BATCH, batch_records


def plain_question(peers: Peers) -> Question:
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    import kbatch

    data = table()
    rows = batch_records()
    size = batch_size()
    batches = [
        bytes(batch.as_buffer())
        for batch in kbatch.encode_arrow(data, partitions=1, batch_size=size)["batch"]
    ]

    def aiokafka() -> None:
        built_by(DefaultRecordBatchBuilder, rows)

    contenders = [
        Contender(
            "limit", TABLE_ROWS, CopyAndChecksum(b"".join(batches), len(batches[0])), note="memcpy + CRC-32C"
        ),
        Contender(
            "encode_arrow",
            TABLE_ROWS,
            lambda: kbatch.encode_arrow(data, partitions=1, batch_size=size),
            note="1 partition",
        ),
        Contender(
            "encode_arrow, 12 partitions",
            TABLE_ROWS,
            lambda: kbatch.encode_arrow(data, partitions=12, batch_size=size),
            note="by murmur2 of the key",
        ),
        Contender("aiokafka", RECORDS_PER_BATCH, aiokafka, note="from Python objects: it takes no columns"),
    ]
    claims = [
        Claim("encode_arrow", "aiokafka", 1 / 10, "encode_arrow, none: 10 x aiokafka"),
        Claim("encode_arrow", "limit", 2, "encode_arrow, none: at most 2 x the limit"),
    ]
    java = peers.java_encode("none")
    if java:
        contenders.append(java)
        claims.append(Claim("encode_arrow", java.name, 1 / 4, "encode_arrow, none: 4 x Java"))
    return Question(
        "A table into batches, no compression",
        f"{TABLE_ROWS:,} rows of key, value and timestamp.",
        contenders,
        claims,
    )


def codec_question(peers: Peers, name: str) -> Question:
    import kbatch
    from kbatch._native.codec.compression import compress

    data = table()
    size = batch_size()
    encoded = kbatch.encode_arrow(data, partitions=1, compression=name, batch_size=size)
    # exactly the record bytes that encode_arrow compressed, batch by batch
    plain = [record_bytes(batch.as_py()) for batch in encoded["batch"]]

    def codec_alone() -> None:
        for records in plain:
            compress(records, name)

    def encode() -> None:
        kbatch.encode_arrow(data, partitions=1, compression=name, batch_size=size)

    contenders = [
        Contender(f"{name} alone", TABLE_ROWS, codec_alone, note="the codec's calls and nothing else"),
        Contender(f"encode_arrow, {name}", TABLE_ROWS, encode),
    ]
    claims = [
        Claim(
            f"encode_arrow, {name}", f"{name} alone", 1.15, f"encode_arrow, {name}: the codec's time + 15 %"
        )
    ]
    java = peers.java_encode(name)
    if java:
        contenders.append(java)
        if name == "gzip":
            claims = [
                Claim(f"encode_arrow, {name}", java.name, 1 / 10, "encode_arrow, gzip at defaults: 10 x Java")
            ]
    return Question(
        f"A table into batches, {name}", f"{TABLE_ROWS:,} rows, one partition.", contenders, claims
    )


def sizes_question(peers: Peers) -> Question:
    """Return the size of the same batch in kbatch and in Java."""
    import kbatch

    contenders, claims = [], []
    for name in ("lz4", "zstd", "snappy", "gzip"):
        size = len(kbatch.encode(batch_records(), compression=name)) / RECORDS_PER_BATCH
        contenders.append(Contender(f"kbatch, {name}", RECORDS_PER_BATCH, timings=[size]))
        java_size = peers.java_size(name)
        if java_size is not None:
            contenders.append(Contender(f"Java, {name}", RECORDS_PER_BATCH, timings=[java_size]))
            if name == "gzip":
                claims.append(
                    Claim("kbatch, gzip", "Java, gzip", 1.15, "gzip at defaults: at most 15 % more bytes")
                )
    return Question(
        "Bytes of a batch",
        "The same 1,000 records, default levels.",
        contenders,
        claims,
        unit="bytes a record",
    )


def record_bytes(batch: bytes) -> bytes:
    """Return the uncompressed records of a batch."""
    import kbatch
    from kbatch._native.codec.compression import decompress

    (header,) = kbatch.decode(batch)
    return decompress(batch[61:], header.compression)


QUESTIONS: list[Callable[[Peers], Question]] = [
    plain_question,
    *(lambda peers, name=name: codec_question(peers, name) for name in ("lz4", "zstd", "snappy", "gzip")),
    sizes_question,
]
