"""The sink `kbatch` on a secured Kafka: all of it by string options, which go to the driver and the tasks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kbatch.config import KEYS
from tests.integration.security.secrets_used import PASSWORDS
from tests.integration.security.site import PLAIN, SCRAM_512, TOPIC, Site, jaas
from tests.oracle.kafka import create_topic
from tests.spark.sinks import PARTITIONS, Sink, numbers

COUNT = 400
PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def scram(site: Site) -> dict[str, str]:
    """Return Java's configuration of SCRAM over TLS, without a file."""
    login = jaas("scram.ScramLoginModule", username="alice", password=PASSWORDS["alice"])
    return {
        "kafka.bootstrap.servers": site.address("SASL_SSL"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": SCRAM_512,
        "kafka.sasl.jaas.config": login,
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": Path(site.path("ca.pem")).read_text(),
    }


def mutual_tls(site: Site) -> dict[str, str]:
    """Return a client certificate as PEM text: executors need no file."""
    return {
        "kafka.bootstrap.servers": site.address("MUTUAL"),
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.certificates": Path(site.path("ca.pem")).read_text(),
        "kafka.ssl.keystore.certificate.chain": Path(site.path("client.crt")).read_text(),
        "kafka.ssl.keystore.key": Path(site.path("client.key")).read_text(),
    }


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.java
@pytest.mark.parametrize("way", [scram, mutual_tls])
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_options_let_driver_and_tasks_in(
    spark: SparkSession, site: Site, way: Callable[[Site], dict[str, Any]], delivery: str
) -> None:
    topic = f"{TOPIC}.{way.__name__}.{delivery}"
    create_topic(site.broker.bootstrap_servers, topic, PARTITIONS)
    sink = Sink(site.broker.bootstrap_servers, topic)
    write = sink.write_once if delivery == "exactly_once" else sink.write
    write(numbers(spark, COUNT), **way(site))
    assert sink.values() == list(range(COUNT))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.java
def test_wrong_password_fails_the_write_without_being_shown(spark: SparkSession, site: Site) -> None:
    options = scram(site) | {
        "kafka.sasl.mechanism": PLAIN,
        "kafka.sasl.jaas.config": jaas("plain.PlainLoginModule", username="alice", password=PASSWORDS["bob"]),
    }
    topic = f"{TOPIC}.refused"
    create_topic(site.broker.bootstrap_servers, topic, PARTITIONS)
    sink = Sink(site.broker.bootstrap_servers, topic)
    with pytest.raises(Exception, match="Invalid username or password") as raised:
        sink.write(numbers(spark, COUNT), **options)
    assert PASSWORDS["bob"] not in str(raised.value)
    assert sink.values() == []


def shown(spark: SparkSession, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options as Spark shows them."""
    session: Any = spark
    jvm = session._jvm
    java = jvm.java.util.HashMap()
    for name, value in options.items():
        java.put(name, value)
    scala = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(java)
    found = session._jsparkSession.sessionState().conf().redactOptions(scala)
    return dict(jvm.scala.jdk.javaapi.CollectionConverters.asJava(found))


SECRETS = sorted(f"kafka.{name}" for name, row in KEYS.items() if row.type.name == "password")


def test_pattern_of_the_page_redacts_every_secret_option() -> None:
    found = re.search(r"spark\.redaction\.regex=([^\s']+)", PAGE.read_text())
    assert found is not None
    pattern = re.compile(found[1])
    assert [name for name in SECRETS if not pattern.search(name)] == []
    plain = ("topic", "kafka.bootstrap.servers", "kafka.security.protocol", "kafka.sasl.mechanism")
    assert [name for name in plain if pattern.search(name)] == []


@pytest.mark.spark
def test_page_names_what_spark_shows_by_default(spark: SparkSession) -> None:
    options = dict.fromkeys(SECRETS, "x") | {
        "kafka.sasl.jaas.config": jaas("plain.PlainLoginModule", username="u", password="p")
    }
    redacted = shown(spark, options)
    visible = [name.removeprefix("kafka.") for name, value in redacted.items() if value == options[name]]
    page = PAGE.read_text()
    assert "sasl.jaas.config" not in visible
    assert visible
    for name in visible:
        assert f"`{name}`" in page, name
