"""How long does the protocol need for a Produce request of 12 partitions, 16 KiB of records each?

The peer is kio, whose messages also come from Kafka's schemas; its reader is native code.
"""

from __future__ import annotations

from datetime import timedelta
from io import BytesIO

from benchmarks.clients.java_codec import Peers
from benchmarks.pages.harness import Claim, Contender, Question

VERSION = 12
PARTITIONS = 12
RECORDS = bytes(range(256)) * 64
CALLS = 100


def question(peers: Peers) -> Question:
    from kio.schema.produce.v12 import request as kio
    from kio.schema.types import TopicName
    from kio.serial import entity_reader, entity_writer
    from kio.static.primitive import Records, i16, i32, i32Timedelta

    from kbatch.protocol import codec
    from kbatch.protocol.messages import ProduceRequest

    partitions = [
        ProduceRequest.PartitionProduceData(index=index, records=RECORDS) for index in range(PARTITIONS)
    ]
    topic = ProduceRequest.TopicProduceData(name="topic", partition_data=partitions)
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
    kio_partitions = (
        kio.PartitionProduceData(index=i32(index), records=Records.parse(RECORDS))
        for index in range(PARTITIONS)
    )
    kio_topic = kio.TopicProduceData(name=TopicName.parse("topic"), partition_data=tuple(kio_partitions))
    kio_request = kio.ProduceRequest(
        acks=i16(-1), timeout=i32Timedelta.parse(timedelta(seconds=30)), topic_data=(kio_topic,)
    )
    write, read = entity_writer(kio.ProduceRequest), entity_reader(kio.ProduceRequest)
    data = b"".join(codec.encode(request, VERSION))

    def kbatch_encode() -> None:
        for _ in range(CALLS):
            codec.encode(request, VERSION)

    def kio_encode() -> bytes:
        for _ in range(CALLS):
            buffer = BytesIO()
            write(buffer, kio_request)
        return buffer.getvalue()

    def kbatch_decode() -> None:
        for _ in range(CALLS):
            codec.decode(ProduceRequest, VERSION, data)

    def kio_decode() -> None:
        for _ in range(CALLS):
            read(data, 0)

    assert kio_encode() == data
    calls = CALLS * PARTITIONS
    return Question(
        "A Produce request of 12 partitions, 16 KiB each",
        "Version 12, body alone. kbatch neither copies records nor joins them with the rest; "
        "kio's reader is native code.",
        [
            Contender("kbatch, encode", calls, kbatch_encode),
            Contender("kio, encode", calls, kio_encode),
            Contender("kbatch, decode", calls, kbatch_decode),
            Contender("kio, decode", calls, kio_decode),
        ],
        [
            Claim("kbatch, encode", "kio, encode", 0.1, "ten times as fast as kio's encoder"),
            Claim("kbatch, decode", "kio, decode", 2.0, "half as fast as kio's native decoder"),
        ],
        unit="ns a partition",
    )
