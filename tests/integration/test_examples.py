"""The main job of docs/examples, on a few of its rows: with the embedded broker, and with a real Kafka."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import kbatch
from tests import ROOT
from tests.oracle.java_programs import SHORT_LIVED
from tests.spark.spark_programs import PYTHON_PATH
from tests.support.effort import only_if_long

pytestmark = pytest.mark.slow

FOLDER = ROOT / "docs" / "examples"
ROWS = 2000
MINUTES = 10


@pytest.fixture
def kafka_target(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the example's module."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import kafka_target

    return kafka_target


def flights(*options: str, kafka: str | None = None) -> subprocess.CompletedProcess[str]:
    if shutil.which("java") is None and os.environ.get("KBATCH_REQUIRE_JAVA") != "1":
        pytest.skip("Spark needs Java")
    environment = {key: value for key, value in os.environ.items() if key != "KAFKA"}
    environment["PYTHONPATH"] = PYTHON_PATH  # the kbatch of this tree, whichever is installed
    environment["JDK_JAVA_OPTIONS"] = " ".join(SHORT_LIVED)  # of Spark's driver
    if kafka is not None:
        environment["KAFKA"] = kafka
    command = [sys.executable, str(FOLDER / "flights.py"), *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60 * MINUTES)


def check_flights(kafka: str | None, name: str) -> None:
    """Check that all steps succeeded, and that the last line names the destination of the records."""
    done = flights("--rows", str(ROWS), kafka=kafka)
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, last = done.stdout.splitlines()
    assert last.startswith(f"OK: {ROWS} records came back as they went out, ")
    assert f" from the segments and from {name}, " in last
    steps = [match for line in lines if (match := re.match(r"\[(\d+)/(\d+)\] .*: [\d.]+ s$", line))]
    assert [int(step[1]) for step in steps] == list(range(1, int(steps[0][2]) + 1))
    (sums,) = (line for line in lines if re.match(r"\W*all\b", line))
    assert f"{ROWS:,}" in sums


def test_the_flights_go_through_spark_and_the_embedded_broker() -> None:
    check_flights(None, "the embedded broker")


@pytest.mark.java
@only_if_long("starts two JVMs again")
def test_the_flights_go_through_spark_and_a_real_kafka(real_kafka: Any) -> None:
    check_flights(real_kafka.bootstrap_servers, f"Kafka at {real_kafka.bootstrap_servers}")


@pytest.mark.parametrize("rows", ["0", "336777"])
def test_more_flights_than_there_are_is_a_mistake_of_the_user(rows: str) -> None:
    done = flights("--rows", rows)
    assert done.returncode == 2
    assert "there are 1 to 336776" in done.stderr
    assert "Traceback" not in done.stderr


@contextmanager
def opened(kafka_target: Any, kafka: str | None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    if kafka is None:
        monkeypatch.delenv("KAFKA", raising=False)
    else:
        monkeypatch.setenv("KAFKA", kafka)
    kafka_target.check()
    with kafka_target.target("rows", 3) as target:
        yield target


def check_target(target: Any) -> None:
    """The topic is empty; produced records are read, each partition in order."""
    assert list(target.read()) == []
    headers = (("carrier", b"UA"), ("none", None))
    with kbatch.Producer(bootstrap_servers=target.bootstrap_servers) as producer:
        for number in range(9):
            key = None if number % 2 else b"key"
            producer.send(
                target.topic, b"%d" % number, key, headers=headers, partition=number % 3, timestamp_ms=number
            )
    assert sorted(target.read()) == sorted(
        (number % 3, number // 3, None if number % 2 else b"key", b"%d" % number, headers, number)
        for number in range(9)
    )


def test_the_embedded_broker_is_a_target(kafka_target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(kafka_target, None, monkeypatch) as target:
        assert target.name == "the embedded broker"
        check_target(target)


def test_the_kafka_of_the_environment_is_a_target(
    kafka_target: Any, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Return the fixture's broker, or another embedded broker, which that client takes for Kafka."""
    with opened(kafka_target, target, monkeypatch) as found:
        assert (found.name, found.bootstrap_servers) == (f"Kafka at {target}", target)
        check_target(found)
