"""Tests with a separate Spark: Spark's own sink beside ours, Spark Connect, a cluster of two hosts."""

from __future__ import annotations

import importlib.util
import os
from collections import Counter
from pathlib import Path

import pytest

from tests.oracle.java_programs import JavaMissingError, spark_kafka_jars
from tests.spark import spark_programs
from tests.spark.sinks import new_sink

pytestmark = pytest.mark.spark
LONG = pytest.mark.skipif(
    os.environ.get("KBATCH_LONG") != "1", reason="starts five JVMs: make soak, or KBATCH_LONG=1"
)
ALL = list(range(spark_programs.ROWS))


def _sparks_jars() -> Path:
    """Return the folder of the JVM connector; skip without it."""
    try:
        return spark_kafka_jars()
    except JavaMissingError as missing:
        if os.environ.get("KBATCH_REQUIRE_JAVA") == "1":
            raise
        pytest.skip(f"Spark's own connector is not available: {missing}")


@pytest.mark.java
def test_sparks_own_sink_writes_the_same(embedded_bootstrap_servers: str) -> None:
    """Each row with its topic, partition, key, value and headers."""
    jars = _sparks_jars()
    theirs, ours = (new_sink(embedded_bootstrap_servers) for _ in range(2))
    topics = theirs.topic, ours.topic
    spark_programs.run("beside_sparks_sink", jars, embedded_bootstrap_servers, *topics)
    found = [
        Counter((each.partition, each.key, each.value, each.headers) for each in sink.read())
        for sink in (theirs, ours)
    ]
    assert found[0].total() == spark_programs.ROWS
    assert found[0] == found[1]


@pytest.mark.java
def test_R101_sparks_own_source_reads_the_same(embedded_bootstrap_servers: str, tmp_path: Path) -> None:
    """Each row, and the offsets of a checkpoint, in both directions."""
    sink = new_sink(embedded_bootstrap_servers)
    jars = _sparks_jars()
    spark_programs.run("beside_sparks_source", jars, sink.brokers, sink.topic, tmp_path)


@LONG
@pytest.mark.skipif(importlib.util.find_spec("grpc") is None, reason="Spark Connect needs grpcio")
def test_over_spark_connect(embedded_bootstrap_servers: str) -> None:
    sink = new_sink(embedded_bootstrap_servers)
    spark_programs.run("connect", sink.brokers, sink.topic)
    assert sink.values() == ALL


@LONG
@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_two_attempts_on_two_hosts(brokers: str, delivery: str, tmp_path: Path) -> None:
    sink = new_sink(brokers)
    with spark_programs.StandaloneCluster(tmp_path) as cluster:
        spark_programs.run("speculation", cluster.master, tmp_path, brokers, sink.topic, delivery)
    assert (tmp_path / "attempt-1").exists(), "Spark did not speculate"
    found = sink.values()
    assert (found == ALL) if delivery == "exactly_once" else (sorted(set(found)) == ALL)
