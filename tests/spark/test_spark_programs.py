"""Tests with a separate Spark: Spark Connect, a cluster of two hosts."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from tests.spark import spark_programs
from tests.spark.sinks import new_sink

pytestmark = [pytest.mark.slow, pytest.mark.spark]
LONG = pytest.mark.skipif(
    os.environ.get("KBATCH_LONG") != "1", reason="starts five JVMs: make soak, or KBATCH_LONG=1"
)
ALL = list(range(spark_programs.ROWS))


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
