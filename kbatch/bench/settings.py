"""The settings that are equal for all contestants, under Kafka's names, in each client's own; and all of them
as text, for a page.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any

Settings = Mapping[str, Any]

# Its queue is bounded by bytes alone, as buffer.memory does it; keys go where Java's client puts them.
LIBRDKAFKA: dict[str, Any] = {
    "queue.buffering.max.messages": 10_000_000,
    "partitioner": "murmur2_random",
    "socket.nagle.disable": True,
    "log_level": 2,
}


def listed(settings: Mapping[str, object]) -> str:
    """As key=value, the way Kafka writes them."""
    return ", ".join(f"{name}={json.dumps(value).strip(chr(34))}" for name, value in settings.items())


def for_librdkafka(settings: Settings) -> dict[str, Any]:
    theirs = dict(settings)
    theirs["queue.buffering.max.kbytes"] = theirs.pop("buffer.memory") // 1024
    theirs["message.max.bytes"] = theirs.pop("max.request.size")
    theirs["socket.send.buffer.bytes"] = max(theirs.pop("send.buffer.bytes"), 0)
    return theirs | LIBRDKAFKA


def for_kafka_python(settings: Settings) -> dict[str, Any]:
    from kafka import KafkaProducer

    theirs = {name.replace(".", "_"): value for name, value in settings.items()}
    if theirs["compression_type"] == "none":
        theirs["compression_type"] = None
    if "buffer_memory" not in KafkaProducer.DEFAULT_CONFIG:  # since 3.0 it bounds no memory
        del theirs["buffer_memory"]
    if theirs["send_buffer_bytes"] < 0:
        theirs["send_buffer_bytes"] = None
    return theirs


def for_aiokafka(settings: Settings) -> dict[str, Any]:
    """It has neither buffer.memory nor the others that are missing here."""
    compression = settings["compression.type"]
    theirs = {
        "acks": settings["acks"],
        "enable_idempotence": settings["enable.idempotence"],
        "compression_type": None if compression == "none" else compression,
        "linger_ms": settings["linger.ms"],
        "max_batch_size": settings["batch.size"],
        "max_request_size": settings["max.request.size"],
    }
    return theirs | {
        name.replace(".", "_"): settings[name]
        for name in ("bootstrap.servers", "transactional.id")
        if name in settings
    }


# By the package and its module.
_OWN: Mapping[tuple[str, str], Callable[[Settings], dict[str, Any]]] = {
    ("confluent-kafka", "confluent_kafka"): for_librdkafka,
    ("aiokafka", "aiokafka"): for_aiokafka,
    ("kafka-python", "kafka"): for_kafka_python,
}


def told(settings: Settings, java_options: tuple[str, ...]) -> Iterator[str]:
    """What clients are set to, and who reads back: items of a list."""
    from importlib.metadata import version  # memory that a client need not have

    yield f"- kbatch and Java, where a group says nothing else: {listed(settings)}."
    yield f"- Java's process: `java {' '.join(java_options)}`."
    for (package, module), translated in _OWN.items():
        if find_spec(module) is not None:
            yield f"- {package}, the same in its own words: {listed(translated(settings))}."
    yield (
        f"- Another client, which reads back: the consumer of librdkafka (confluent-kafka "
        f"{version('confluent-kafka')}), in the process that measures."
    )
