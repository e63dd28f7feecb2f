"""kbatch reads the settings of every client, in the client's own words."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from kafka import KafkaProducer

from kbatch.config import KEYS, Password, ProducerConfig
from kbatch.config.names import ALIASES, FOREIGN
from tests.integration.security.cells import CELLS, Cell
from tests.integration.security.site import resolved

# A site that need not run, as only its names are read.
SITE: Any = SimpleNamespace(
    path=lambda name: f"/site/{name}",
    folder=Path("/site"),
    keytab=lambda user: f"/site/{user}.keytab",
    tokens=SimpleNamespace(url="http://127.0.0.1:1", secure_url="https://127.0.0.1:1"),
    delegation_token=("token-id", "token-hmac"),
)
COLUMNS = ("java", "librdkafka", "kafka_python", "aiokafka")
SAID = [(cell, column) for cell in CELLS for column in COLUMNS if getattr(cell, column) is not None]

NAMES = {
    "kafka-python": KafkaProducer.DEFAULT_CONFIG,
    "aiokafka": inspect.signature(AIOKafkaProducer.__init__).parameters,
}
LOGINS = [cell for cell in CELLS if cell.listener not in ("TLS", "MUTUAL") and cell.java and cell.librdkafka]


def read(cell: Cell, column: str) -> ProducerConfig:
    is_tls = cell.listener in ("TLS", "MUTUAL")
    plain = "SASL_PLAINTEXT" if cell.listener == "SASL_PLAINTEXT" else "SASL_SSL"
    settings = resolved(getattr(cell, column), SITE)
    keywords = {key: settings.pop(key) for key in list(settings) if "_" in key and "." not in key}
    keywords |= {"bootstrap_servers": "localhost:1", "security_protocol": "SSL" if is_tls else plain}
    return ProducerConfig(settings, **keywords)


@pytest.mark.parametrize(("cell", "column"), SAID, ids=lambda each: getattr(each, "name", each))
def test_settings_of_every_client_are_read(cell: Cell, column: str) -> None:
    made = read(cell, column)
    if "delegation" in cell.name:
        login = ("token-id", Password("token-hmac"), True)
        assert (made.sasl_username, made.sasl_password, made.sasl_scram_tokenauth) == login
    if cell.name == "mTLS, PKCS12":
        assert (made.ssl_keystore_type, made.ssl_keystore_location) == ("PKCS12", "/site/client.p12")


@pytest.mark.parametrize("client", NAMES)
def test_every_key_of_security_is_known(client: str) -> None:
    known = {name.replace(".", "_") for name in (*KEYS, *ALIASES, *FOREIGN)}
    theirs = {name for name in NAMES[client] if name.startswith(("ssl_", "sasl_", "security_"))}
    assert theirs
    assert theirs - known == set()


@pytest.mark.parametrize("cell", LOGINS, ids=lambda cell: cell.name)
def test_java_and_librdkafka_say_the_same(cell: Cell) -> None:
    java, librdkafka = read(cell, "java"), read(cell, "librdkafka")
    same = ["sasl_mechanism", "sasl_username", "sasl_password", "sasl_scram_tokenauth"]
    same += ["sasl_kerberos_service_name", "sasl_kerberos_keytab", "sasl_kerberos_principal"]
    if "callback" not in cell.name and "unsecured" not in cell.name:
        same += [name for name in ProducerConfig.__dataclass_fields__ if name.startswith("sasl_oauthbearer")]
    for name in same:
        assert getattr(java, name) == getattr(librdkafka, name), name
