"""What a producer's metrics say of what it did, over the embedded broker."""

from __future__ import annotations

import asyncio
from functools import partialmethod
from typing import Any

import pytest

from kbatch.errors import AuthenticationError
from kbatch.testing import Broker
from tests.unit.certificates import Files, needs_openssl
from tests.unit.producing import SECONDS, TOPIC, metric, producing

pytestmark = pytest.mark.usefixtures("shell")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("certificates"))


def authentications(producer: Any) -> dict[str, float]:
    names = ("successful-authentication", "successful-authentication-no-reauth", "failed-authentication")
    return {name: metric(producer, f"{name}-total") for name in names}


@pytest.fixture
def secured(files: Files, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A broker that speaks TLS, as the certificate's localhost."""
    plain = asyncio.BaseEventLoop.create_server
    monkeypatch.setattr(asyncio.BaseEventLoop, "create_server", partialmethod(plain, ssl=files.server()))
    with Broker([TOPIC]) as broker:
        yield broker


@needs_openssl
def test_a_tls_handshake_counts_as_an_authentication(secured: Broker, files: Files) -> None:
    keys = files.trusted() | {"ssl_endpoint_identification_algorithm": ""}
    with producing(secured, **keys) as producer:
        producer.send(TOPIC, b"x").result(SECONDS)
        connections = metric(producer, "connection-creation-total")
        assert connections >= 1
        assert authentications(producer) == {
            "successful-authentication": connections,
            "successful-authentication-no-reauth": connections,
            "failed-authentication": 0,
        }


@needs_openssl
def test_a_handshake_that_fails_counts_as_a_failed_authentication(secured: Broker, files: Files) -> None:
    keys = files.trusted() | {"ssl_truststore_location": files.path("stranger")}
    with producing(secured, **keys) as producer:
        with pytest.raises(AuthenticationError):
            producer.send(TOPIC, b"x")
        assert metric(producer, "failed-authentication-total") >= 1
        assert metric(producer, "successful-authentication-total") == 0


def test_a_plain_connection_authenticates_nothing() -> None:
    with Broker([TOPIC]) as broker, producing(broker) as producer:
        producer.send(TOPIC, b"x").result(SECONDS)
        assert metric(producer, "connection-creation-total") >= 1
        assert set(authentications(producer).values()) == {0}
