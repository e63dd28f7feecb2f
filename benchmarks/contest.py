"""The broker of the contests: a real Kafka on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.oracle.kafka import RealKafka

# Tests start faster without the second compiler, and need less memory.
BROKER_OPTIONS = ("-XX:TieredStopAtLevel=4", "-Xmx2g")
BROKER_PROPERTIES: Mapping[str, object] = {"broker.session.timeout.ms": 9000}  # it is made to stand still
IN_MEMORY = Path("/dev/shm")


@contextmanager
def kafka() -> Iterator[RealKafka]:
    """Its logs are in memory where there is such a folder: no disk is to be measured."""
    folder = IN_MEMORY if IN_MEMORY.is_dir() else None
    with TemporaryDirectory(prefix="kbatch-logs-", dir=folder) as logs:
        properties = {**BROKER_PROPERTIES, "log.dirs": logs}
        with RealKafka(properties, java_options=BROKER_OPTIONS) as broker:
            yield broker
