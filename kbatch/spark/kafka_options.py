"""The options kafka.* of a read or a write: settings of the client."""

from collections.abc import Mapping

KAFKA_PREFIX = "kafka."


def kafka_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options with the prefix, without it."""
    return {
        name.removeprefix(KAFKA_PREFIX): value
        for name, value in given.items()
        if name.startswith(KAFKA_PREFIX)
    }
