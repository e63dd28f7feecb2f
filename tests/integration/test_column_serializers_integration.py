"""Tables by column serializers, and `kbatch produce`, read back by librdkafka's consumer; on a real Kafka and
on the embedded broker.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import polars as pl
from click.testing import CliRunner

import kbatch
from kbatch.cli.commands import kbatch as command
from kbatch.formats import Avro
from kbatch.formats.writing import Int64, JsonLines
from tests.oracle.kafka import create_topic
from tests.support.patience import HANG_SECONDS

SECONDS = HANG_SECONDS
_numbers = itertools.count()


def new_topic(target: str, partitions: int) -> str:
    name = f"columns-{next(_numbers)}"
    create_topic(target, name, partitions, {})
    return name


def consumed(target: str, topic: str, count: int, partitions: int) -> Iterator[confluent_kafka.Message]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": target, "group.id": f"group-{topic}"})
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)])
        messages = consumer.consume(count, SECONDS)
        assert len(messages) == count and not [each.error() for each in messages if each.error()]
        yield from messages
    finally:
        consumer.close()


def test_frames_are_read_by_another_client(target: str) -> None:
    topic = new_topic(target, 3)
    frame = pl.DataFrame(
        {
            "id": range(1000),
            "name": [f'"{n}"' for n in range(1000)],
            "odd": [[n % 2 == 1] for n in range(1000)],
        }
    )
    with kbatch.Producer(bootstrap_servers=target, compression_type="zstd") as producer:
        report = producer.send_table(topic, frame, key=Int64("id"), value=JsonLines()).result(SECONDS)
    assert not report.errors
    read = {}
    for message in consumed(target, topic, 1000, 3):
        number = int.from_bytes(message.key() or b"", "big")
        read[number] = json.loads(message.value() or b"")
        assert (message.partition(), message.offset()) == (report.partitions[number], report.offsets[number])
    assert read == {n: {"name": f'"{n}"', "odd": [n % 2 == 1]} for n in range(1000)}


def test_avro_is_read_by_another_client(target: str) -> None:
    topic = new_topic(target, 1)
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
    with kbatch.Producer(bootstrap_servers=target) as producer:
        producer.send_table(topic, pl.DataFrame({"id": [1, 2]}), value=Avro(schema, id=9))
    assert [message.value() for message in consumed(target, topic, 2, 1)] == [
        b"\0\0\0\0\x09\2",
        b"\0\0\0\0\x09\4",
    ]


def test_produce_is_read_by_another_client(target: str, tmp_path: Path) -> None:
    topic = new_topic(target, 2)
    path = tmp_path / "a.csv"
    path.write_text("id,at,n\n" + "".join(f"k{n},{n * 1000},{n}.50\n" for n in range(500)))
    arguments = [
        "produce",
        str(path),
        "-b",
        target,
        "-t",
        topic,
        "-k",
        "id",
        "--timestamp",
        "at",
        "-H",
        "h=1",
    ]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.stderr
    assert "500 rows acknowledged" in result.stderr
    for message in consumed(target, topic, 500, 2):
        number = int((message.key() or b"")[1:])
        assert message.value() == b'{"n":%d.50}' % number
        assert message.timestamp()[1] == number * 1000 and message.headers() == [("h", b"1")]
        assert message.partition() == kbatch.partition_for_key(b"k%d" % number, 2)
