"""Describe the settings that each contestant gets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from kbatch.bench.settings import Settings, for_aiokafka, for_kafka_python, for_librdkafka, listed

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
