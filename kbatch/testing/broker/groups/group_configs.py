"""Configs of groups: what IncrementalAlterConfigs sets for a group id, over the broker's own settings.

A group may have configs before it exists, and keeps them after it is deleted. Each key has a twin among the
broker's configs, which holds where the group has none. After GroupConfig.java and GroupConfigManager.java of
Kafka 4.3.1, without the keys of streams groups.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kbatch.testing.broker.logs.partition import EARLIEST, LATEST
from kbatch.testing.broker.share.share_partition import ShareSettings
from kbatch.testing.broker.stored_overrides import StoredOverrides

GROUP_CONFIGS_FILE = "group_configs.json"
BOUNDS = {"min": "greater", "max": "less"}
DURATION = re.compile(
    r"P(?=[\dT])(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?", re.IGNORECASE
)
BY_DURATION = "by_duration:"


class GroupKey(NamedTuple):
    """A config of groups.

    Attributes
    ----------
    kind : str
        "int", "boolean" or "string".
    default : str
        Kafka's.
    least : int
        The least number that the key takes wherever it is set.
    bounds : tuple of (int, int) or None
        The least and the largest number that this broker lets groups have.
    choices : tuple of str
    has_twin : bool
        True if the broker's configs have the key too, with "group." before it.
    """

    kind: str
    default: str
    least: int = 1
    bounds: tuple[int, int] | None = None
    choices: tuple[str, ...] = ()
    has_twin: bool = True


KEYS = {
    "consumer.heartbeat.interval.ms": GroupKey("int", "5000", bounds=(1, 15_000)),
    "consumer.session.timeout.ms": GroupKey("int", "45000", bounds=(1, 60_000)),
    "consumer.assignment.interval.ms": GroupKey("int", "1000", 0, bounds=(0, 15_000)),
    "share.heartbeat.interval.ms": GroupKey("int", "5000", bounds=(1, 15_000)),
    "share.session.timeout.ms": GroupKey("int", "45000", bounds=(1, 60_000)),
    "share.assignment.interval.ms": GroupKey("int", "1000", 0, bounds=(0, 15_000)),
    "share.record.lock.duration.ms": GroupKey("int", "30000", 1_000, bounds=(1_000, 60_000)),
    "share.delivery.count.limit": GroupKey("int", "5", 2, bounds=(2, 10)),
    "share.partition.max.record.locks": GroupKey("int", "2000", 100, bounds=(100, 4_000)),
    "share.auto.offset.reset": GroupKey("string", "latest", has_twin=False),
    "share.isolation.level": GroupKey(
        "string", "read_uncommitted", choices=("read_committed", "read_uncommitted"), has_twin=False
    ),
    "share.renew.acknowledge.enable": GroupKey("boolean", "true", has_twin=False),
}


class GroupConfigs:
    """The configs of all groups.

    Parameters
    ----------
    broker_configs : mapping of str to int or bool
        The broker's own settings.
    directory : Path or None
        Where the configs are kept.
    """

    def __init__(self, broker_configs: Mapping[str, int | bool], directory: Path | None) -> None:
        twins = {key: str(broker_configs.get(f"group.{key}", row.default)) for key, row in KEYS.items()}
        self._twins = {key: value for key, value in twins.items() if value != KEYS[key].default}
        self._stored = StoredOverrides(directory / GROUP_CONFIGS_FILE if directory is not None else None)

    # What requests see and change

    @property
    def group_ids(self) -> list[str]:
        """The groups that have configs."""
        return self._stored.names

    def overrides(self, group_id: str) -> Mapping[str, str]:
        return self._stored.of(group_id)

    def twin(self, key: str) -> str | None:
        """Return the broker's setting; None if it is Kafka's default, or if the broker has no such key."""
        return self._twins.get(key)

    def value(self, group_id: str, key: str) -> str:
        return self.overrides(group_id).get(key) or self._twins.get(key) or KEYS[key].default

    def checked(self, overrides: Mapping[str, str | None]) -> dict[str, str]:
        """Return configs that a group may have; raise ValueError, with Kafka's text, for others."""
        values: dict[str, str] = {}
        for key, value in overrides.items():
            if key not in KEYS:
                raise ValueError(f"Unknown group config name: {key}")
            values[key] = (value or "").strip()
            _check_value(key, values[key])
        for key, value in values.items():
            if KEYS[key].kind == "int":
                _check_bounds(key, int(value))
        for protocol in ("consumer", "share"):
            session, heartbeat = f"{protocol}.session.timeout.ms", f"{protocol}.heartbeat.interval.ms"
            least, most = (
                int(values.get(key) or self._twins.get(key) or KEYS[key].default)
                for key in (heartbeat, session)
            )
            if most <= least:
                raise ValueError(f"{session} must be greater than {heartbeat}")
        return values

    def change(self, group_id: str, overrides: Mapping[str, str]) -> None:
        """Set all configs of a group, which `checked` returned."""
        self._stored.change(group_id, overrides)

    # What the broker acts by

    def number(self, group_id: str, key: str) -> int:
        return int(self.value(group_id, key))

    def share_settings(self, group_id: str) -> ShareSettings:
        return ShareSettings(
            self.number(group_id, "share.record.lock.duration.ms"),
            self.number(group_id, "share.delivery.count.limit"),
            self.number(group_id, "share.partition.max.record.locks"),
        )

    def reads_committed(self, group_id: str) -> bool:
        return self.value(group_id, "share.isolation.level") == "read_committed"

    def may_renew(self, group_id: str) -> bool:
        return self.value(group_id, "share.renew.acknowledge.enable").lower() == "true"

    def offset_reset(self, group_id: str, now_ms: int) -> int:
        """Return the timestamp, or EARLIEST or LATEST, at which a share partition begins."""
        reset = self.value(group_id, "share.auto.offset.reset")
        if reset.startswith(BY_DURATION):
            return max(0, now_ms - (_duration_ms(reset) or 0))
        return EARLIEST if reset == "earliest" else LATEST


def _check_value(key: str, value: str) -> None:
    row = KEYS[key]
    text = f"Invalid value {value} for configuration {key}: "
    if row.kind == "int":
        if not re.fullmatch(r"[+-]?\d{1,10}", value, re.ASCII) or abs(int(value)) >= 1 << 31:
            raise ValueError(f"{text}Not a number of type INT")
        if int(value) < row.least:
            raise ValueError(f"{text}Value must be at least {row.least}")
    elif row.kind == "boolean" and value.lower() not in ("true", "false"):
        raise ValueError(f"{text}Expected value to be either true or false")
    elif row.choices and value not in row.choices:
        raise ValueError(f"{text}String must be one of: {', '.join(row.choices)}")
    elif key == "share.auto.offset.reset":
        is_duration = value.startswith(BY_DURATION) and _duration_ms(value) is not None
        if value not in ("earliest", "latest") and not is_duration:
            raise ValueError(
                f"{text}Invalid value `{value}` for configuration {key}. The value must be either "
                "'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
            )


def _check_bounds(key: str, value: int) -> None:
    least, largest = KEYS[key].bounds or (value, value)
    if not least <= value <= largest:
        protocol, name = key.split(".", 1)
        bound = "min" if value < least else "max"
        raise ValueError(f"{key} must be {BOUNDS[bound]} than or equal to group.{protocol}.{bound}.{name}")


def _duration_ms(reset: str) -> int | None:
    """Return the milliseconds of "by_duration:" and an ISO-8601 duration; None if it is none."""
    found = DURATION.fullmatch(reset.removeprefix(BY_DURATION))
    if found is None:
        return None
    days, hours, minutes, seconds = (float(each or 0) for each in found.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
