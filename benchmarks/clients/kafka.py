"""The broker of the contests: a real Kafka on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from kbatch.bench.settings import listed
from tests.oracle.java_programs import JVM_OPTIONS, KAFKA_VERSION, JavaMissingError, jars
from tests.oracle.kafka import DEFAULTS, JAVA_OPTIONS, RealKafka

# Tests start faster without the second compiler, and need less memory.
BROKER_OPTIONS = ("-XX:TieredStopAtLevel=4", "-Xmx2g")
BROKER_PROPERTIES: Mapping[str, object] = {"broker.session.timeout.ms": 9000}  # benchmarks pause the broker
IN_MEMORY = Path("/dev/shm")


def fetch_jars() -> None:
    """Download Kafka's jars before contestants are looked up, because Java's client is one of them."""
    with suppress(JavaMissingError):
        jars()


@contextmanager
def kafka(
    properties: Mapping[str, object] | None = None, listeners: Mapping[str, str] | None = None
) -> Iterator[RealKafka]:
    """Run a Kafka with its logs in memory if there is such a folder, so that no disk is measured.

    `properties` are further ones, and `listeners` as RealKafka has them.
    """
    folder = IN_MEMORY if IN_MEMORY.is_dir() else None
    with TemporaryDirectory(prefix="kbatch-logs-", dir=folder) as logs:
        settings = {**BROKER_PROPERTIES, **(properties or {}), "log.dirs": logs}
        with RealKafka(settings, listeners=listeners, java_options=BROKER_OPTIONS) as broker:
            yield broker


def described() -> str:
    """Describe the broker's version, heap and properties."""
    options = " ".join((*JVM_OPTIONS, *JAVA_OPTIONS, *BROKER_OPTIONS))
    return (
        f"Apache Kafka {KAFKA_VERSION}, KRaft, broker and controller in one process, `java {options}` "
        "(if an option is repeated, the last one counts); its own defaults, and "
        f"{listed({**DEFAULTS, **BROKER_PROPERTIES})}, with its log in {IN_MEMORY} if that exists"
    )
