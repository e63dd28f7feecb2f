"""Kafka's own classes read kbatch's messages, each in every version, and write the same bytes."""

from __future__ import annotations

import struct
import subprocess
from io import BytesIO

import pytest

from kbatch.errors import ErrorCode
from kbatch.protocol import codec, messages
from kbatch.protocol.structs import Message
from tests.oracle.java_programs import Program
from tests.oracle.messages import random_message
from tests.unit.protocol.test_schema import CONSUMER_GROUP_RECORDS, SHARE_GROUP_RECORDS, kafka_jars

pytestmark = pytest.mark.java

SEEDS = range(10)
PACKAGES = {
    **dict.fromkeys(
        (f"ConsumerGroup{what}" for what in CONSUMER_GROUP_RECORDS),
        "org.apache.kafka.coordinator.group.generated",
    ),
    **dict.fromkeys(
        (f"ShareGroup{what}" for what in SHARE_GROUP_RECORDS), "org.apache.kafka.coordinator.group.generated"
    ),
    "ShareSnapshot": "org.apache.kafka.coordinator.share.generated",
    "ShareUpdate": "org.apache.kafka.coordinator.share.generated",
    "OffsetCommit": "org.apache.kafka.coordinator.group.generated",
    "GroupMetadata": "org.apache.kafka.coordinator.group.generated",
    "TransactionLog": "org.apache.kafka.coordinator.transaction.generated",
}
CLASSES = {
    "ProducerSnapshot": "org.apache.kafka.server.log.remote.metadata.storage.generated.ProducerSnapshot"
}


def java_class(kind: type[Message]) -> str:
    name = kind.__name__
    if name in CLASSES:
        return CLASSES[name]
    for ending in ("Key", "Value"):
        if package := PACKAGES.get(name.removesuffix(ending)):
            return f"{package}.{name}"
    ending = "Data" if name.endswith(("Request", "Response", "Header")) else ""
    return f"org.apache.kafka.common.message.{name}{ending}"


Question = tuple[type[Message], int, bytes]


def ask(questions: list[Question]) -> tuple[list[bytes | str], dict[str, int]]:
    """Return the bytes that Java writes after reading, or its exception; and its error codes."""
    kafka_jars()
    parts = [struct.pack(">i", len(questions))]
    for kind, version, data in questions:
        name = java_class(kind).encode()
        parts.append(struct.pack(">H", len(name)) + name + struct.pack(">hi", version, len(data)) + data)
    done = subprocess.run(
        Program("MessageJudge").command, input=b"".join(parts), stdout=subprocess.PIPE, check=True
    )
    out = BytesIO(done.stdout)
    answers: list[bytes | str] = []
    for _ in questions:
        (length,) = struct.unpack(">i", out.read(4))
        answers.append(read_text(out) if length < 0 else out.read(length))
    codes = {}
    while code := read_text(out):
        (codes[code],) = struct.unpack(">h", out.read(2))
    return answers, codes


def read_text(source: BytesIO) -> str:
    return source.read(int.from_bytes(source.read(2), "big")).decode()


def test_java_reads_and_writes_the_same_bytes() -> None:
    questions: list[Question] = [
        (kind, version, b"".join(codec.encode(random_message(kind, version, f"java {seed}"), version)))
        for kind in messages.MESSAGES.values()
        for version in kind.versions
        for seed in SEEDS
    ]
    answers, codes = ask(questions)
    for (kind, version, data), answer in zip(questions, answers, strict=True):
        assert answer == data, (kind.__name__, version)
    assert codes == {code.name: int(code) for code in ErrorCode}
