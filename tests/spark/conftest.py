"""One real SparkSession for the tests of this folder."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kbatch.spark
from tests.oracle.java_programs import SHORT_LIVED, JavaMissingError, spark_kafka_jars
from tests.spark.sinks import Sink, new_sink
from tests.spark.spark_programs import PYTHON_PATH
from tests.support.effort import REAL

# Without an appender Spark takes its own defaults, and PySpark's gateway gives its level to the root logger.
QUIET_LOG4J = """
rootLogger.level = off
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = off
"""


def _jars_of_sparks_connector() -> list[Path]:
    """Return the jars of Spark's own Kafka connector; none if they cannot be had."""
    try:
        return sorted(spark_kafka_jars().glob("*.jar"))
    except JavaMissingError:
        if os.environ.get("KBATCH_REQUIRE_JAVA") == "1":
            raise
        return []


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Call what needs a session slow: to start one, and to warm it up, takes a minute of a processor."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def sparks_connector() -> None:
    """Skip the test if the session has no Kafka connector but ours."""
    if not _jars_of_sparks_connector():
        pytest.skip("Maven is missing or could not fetch Spark's own connector")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """local[2]; a task may fail three times, as on a cluster: a killed one may overtake the next attempt
    before it ends. With `KBATCH_REQUIRE_JAVA=1` missing Java is an error.
    """
    if shutil.which("java") is None and os.environ.get("KBATCH_REQUIRE_JAVA") != "1":
        pytest.skip("Spark needs Java")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    scratch = tmp_path_factory.mktemp("spark")
    log4j = scratch / "log4j2.properties"
    log4j.write_text(QUIET_LOG4J)
    java_options = (*SHORT_LIVED, f"-Dlog4j2.configurationFile={log4j.as_uri()}")
    builder = (
        SparkSession.builder.master("local[2,4]")
        .appName("kbatch tests")
        .config("spark.jars", ",".join(map(str, _jars_of_sparks_connector())))
        .config("spark.driver.extraJavaOptions", " ".join(java_options))
        .config("spark.local.dir", str(scratch))
        .config("spark.kafka.producer.cache.timeout", "10s")  # or it asks for its topics at a broker that
        .config("spark.kafka.producer.cache.evictorThreadRunInterval", "1s")  # has the port of one that ended
        .config("spark.network.timeout", "3600s")  # a machine that slept or is busy has lost no executor
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", PYTHON_PATH)  # of Spark's workers
        session = builder.getOrCreate()
    kbatch.spark.register(session)
    yield session
    session.stop()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a folder to write to that is not there yet."""
    return tmp_path / "segments"


@pytest.fixture(params=["embedded", REAL])
def brokers(request: pytest.FixtureRequest) -> str:
    """Return bootstrap servers of the embedded broker, then of a real Kafka."""
    if request.param == "real":
        return str(request.getfixturevalue("real_kafka").bootstrap_servers)
    return str(request.getfixturevalue("embedded_bootstrap_servers"))


@pytest.fixture
def sink(spark: SparkSession, brokers: str) -> Sink:
    """Return a new topic with four partitions."""
    return new_sink(brokers)
