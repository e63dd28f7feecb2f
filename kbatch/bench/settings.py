"""Translate the contestants' common settings from Kafka's names to each client's own, and describe them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any

Settings = Mapping[str, Any]

# Only bytes bound its queue, like buffer.memory; keys go to the partitions of Java's client.
LIBRDKAFKA: dict[str, Any] = {
    "queue.buffering.max.messages": 10_000_000,
    "partitioner": "murmur2_random",
    "socket.nagle.disable": True,
    "log_level": 2,
}


def listed(settings: Mapping[str, object]) -> str:
    """Return the settings as key=value, in Kafka's notation."""
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
    if "buffer_memory" not in KafkaProducer.DEFAULT_CONFIG:  # since 3.0 nothing bounds its memory
        del theirs["buffer_memory"]
    if theirs["send_buffer_bytes"] < 0:
        theirs["send_buffer_bytes"] = None
    return theirs


def for_aiokafka(settings: Settings) -> dict[str, Any]:
    """Translate the settings; aiokafka has neither buffer.memory nor the others that are missing here."""
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


# By package and module.
_OWN: Mapping[tuple[str, str], Callable[[Settings], dict[str, Any]]] = {
    ("confluent-kafka", "confluent_kafka"): for_librdkafka,
    ("aiokafka", "aiokafka"): for_aiokafka,
    ("kafka-python", "kafka"): for_kafka_python,
}


def describe_settings(settings: Settings, java_options: tuple[str, ...]) -> Iterator[str]:
    """Yield the settings of each client and the client that reads back, as items of a list."""
    from importlib.metadata import version  # clients do not need its memory

    yield f"- kbatch and Java, unless a group says otherwise: {listed(settings)}."
    yield f"- Java's process: `java {' '.join(java_options)}`."
    for (package, module), translated in _OWN.items():
        if find_spec(module) is not None:
            yield f"- {package}, the same under its own names: {listed(translated(settings))}."
    yield (
        f"- The client that reads back: librdkafka's consumer (confluent-kafka "
        f"{version('confluent-kafka')}), in the measuring process."
    )
