"""Subscriptions to metrics: which clients are to push which ones, as configs of client_metrics say (KIP-714).

After org.apache.kafka.server.metrics.ClientMetricsConfigs and ClientMetricsManager.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.stored_overrides import StoredOverrides

FILE = "client_metrics.json"
METRICS, INTERVAL_MS, MATCH = "metrics", "interval.ms", "match"
ALL = "*"
OWN = "subscribe_to_metrics"
DEFAULT_INTERVAL_MS, LEAST_INTERVAL_MS, MOST_INTERVAL_MS = 300_000, 100, 3_600_000
# The configs of a subscription: kinds and defaults.
KEYS: Mapping[str, tuple[str, str]] = {
    METRICS: ("list", ""),
    INTERVAL_MS: ("int", str(DEFAULT_INTERVAL_MS)),
    MATCH: ("list", ""),
}
# What a client is asked for by `match`.
FEATURES = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)


class Wanted(NamedTuple):
    """What a client is to push.

    Attributes
    ----------
    prefixes : tuple of str
        What the names of wanted metrics begin with; none if there is no subscription.
    interval_ms : int
    """

    prefixes: tuple[str, ...]
    interval_ms: int

    @property
    def subscription_id(self) -> int:
        """The checksum of what is wanted: it changes with that."""
        return crc32(repr(tuple(self)).encode()) & 0x7FFF_FFFF


class MetricSubscriptions:
    """All subscriptions, by their names.

    Parameters
    ----------
    directory : Path or None
        Where they are kept.
    """

    def __init__(self, directory: Path | None) -> None:
        self.stored = StoredOverrides(directory / FILE if directory is not None else None)

    def checked(self, name: str, overrides: Mapping[str, str | None]) -> dict[str, str]:
        """Return configs that a subscription may have. Raise BrokerError."""
        if not name:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
        values = {key: str(value).strip() for key, value in overrides.items()}
        for key in values:
            if key not in KEYS:
                raise BrokerError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key}")
        _check_interval(values.get(INTERVAL_MS, str(DEFAULT_INTERVAL_MS)))
        _patterns(values.get(MATCH, ""))
        return values

    def subscribe(self, prefixes: Iterable[str], interval_ms: int) -> None:
        """Set the subscription that the broker's owner makes; without prefixes there is none."""
        wanted = ",".join(prefixes)
        self.stored.change(OWN, {METRICS: wanted, INTERVAL_MS: str(interval_ms)} if wanted else {})

    def wanted_of(self, client: Mapping[str, str]) -> Wanted:
        """Return what a client with these FEATURES is to push: what any subscription that it matches wants,
        as often as the most frequent of these.
        """
        found = [
            configs
            for name in self.stored.names
            if _matches(client, _patterns((configs := self.stored.of(name)).get(MATCH, "")))
        ]
        prefixes = sorted({each for configs in found for each in _items(configs.get(METRICS, ""))})
        intervals = [int(configs.get(INTERVAL_MS, DEFAULT_INTERVAL_MS)) for configs in found]
        return Wanted(
            (ALL,) if ALL in prefixes else tuple(prefixes), min(intervals, default=DEFAULT_INTERVAL_MS)
        )


def _items(value: str) -> list[str]:
    return [item.strip() for item in value.split(",") if item.strip()]


def _matches(client: Mapping[str, str], patterns: Mapping[str, re.Pattern[str]]) -> bool:
    return all(pattern.fullmatch(client.get(name, "")) for name, pattern in patterns.items())


def _check_interval(value: str) -> None:
    if not re.fullmatch(r"[+-]?\d{1,10}", value, re.ASCII) or abs(int(value)) >= 1 << 31:
        text = f"Invalid value {value} for configuration {INTERVAL_MS}: Not a number of type INT"
        raise BrokerError(ErrorCode.INVALID_CONFIG, text)
    if not LEAST_INTERVAL_MS <= int(value) <= MOST_INTERVAL_MS:
        text = f"Invalid value {value} for {INTERVAL_MS}, interval must be between 100 and 3600000 (1 hour)"
        raise BrokerError(ErrorCode.INVALID_REQUEST, text)


def _patterns(value: str) -> dict[str, re.Pattern[str]]:
    """Return the patterns of `match` by what they match. Raise BrokerError."""
    found = {}
    for item in _items(value):
        name, _, pattern = (each.strip() for each in item.partition("="))
        try:
            if name not in FEATURES or not pattern or "=" in pattern:
                raise ValueError(item)
            found[name] = re.compile(pattern)
        except (ValueError, re.error):
            text = f"Illegal client matching pattern: {item}"
            raise BrokerError(ErrorCode.INVALID_CONFIG, text) from None
    return found
