"""The names of confluent-kafka that services use, over the clients of kbatch.

`import kbatch.compat.confluent_kafka as confluent_kafka` in a program, or `install()` before others import
confluent_kafka. docs/from-confluent-kafka.md says what differs.
"""

from __future__ import annotations

import sys
from importlib import import_module

from kbatch.compat.confluent_kafka.consumer import Consumer, DeserializingConsumer
from kbatch.compat.confluent_kafka.error import KafkaError, KafkaException
from kbatch.compat.confluent_kafka.producer import Producer, SerializingProducer
from kbatch.compat.confluent_kafka.values import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    Message,
    TopicPartition,
)
from kbatch.version import VERSION

__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "Consumer",
    "ConsumerGroupState",
    "ConsumerGroupTopicPartitions",
    "ConsumerGroupType",
    "DeserializingConsumer",
    "KafkaError",
    "KafkaException",
    "Message",
    "Producer",
    "SerializingProducer",
    "TopicPartition",
    "install",
    "version",
]

__version__ = VERSION
# The modules that programs import.
_MODULES = ("", ".admin", ".error", ".serialization")


def version() -> tuple[str, int]:
    """Return the version of kbatch, as text and as a number."""
    major, minor, micro = (int("".join(filter(str.isdigit, part)) or 0) for part in VERSION.split(".")[:3])
    return VERSION, major << 24 | minor << 16 | micro << 8


def install() -> None:
    """Let `import confluent_kafka` give this package from now on, in the whole process. A second call has no
    effect.

    Raises
    ------
    RuntimeError
        confluent_kafka itself was imported before: its classes may be in use.
    """
    found = sys.modules.get("confluent_kafka")
    if found is not None and found.__name__ != __name__:
        raise RuntimeError(
            "confluent_kafka was imported before; call install() first, at the beginning of the program"
        )
    for name in _MODULES:
        sys.modules[f"confluent_kafka{name}"] = import_module(f"{__name__}{name}")
