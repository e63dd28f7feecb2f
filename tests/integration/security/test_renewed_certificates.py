"""Certificates that are renewed on disk, as cert-manager, Strimzi and Vault do it, while a producer runs."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest

from kbatch.errors import AuthenticationError, KafkaError, TopicAuthorizationError
from tests.integration.security.secrets_used import STORE_PASSWORD
from tests.integration.security.site import CLIENT, POLL_SECONDS, TOPIC, Site
from tests.integration.security.test_sessions import gauge, new_topic
from tests.support.patience import HANG_MS, HANG_SECONDS, until
from tests.support.shells import new_producer

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.usefixtures("shell")]
STORES: dict[str, dict[str, str]] = {
    "PEM": {"ssl.keystore.type": "PEM", "ssl.keystore.location": "renewed.pem"},
    "PEM, two files": {"ssl.certificate.location": "renewed.crt", "ssl.key.location": "renewed.key"},
    "PKCS12": {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": "renewed.p12",
        "ssl.keystore.password": STORE_PASSWORD,
    },
}


def renewed_settings(site: Site, store: str) -> dict[str, Any]:
    keys = {
        name: site.path(value) if name.endswith("location") else value
        for name, value in STORES[store].items()
    }
    return {
        "bootstrap.servers": site.address("MUTUAL"),
        "security.protocol": "SSL",
        **site.trust("SSL"),
        **keys,
        "connections.max.idle.ms": 100,
        "reconnect.backoff.ms": 10,
        "max.block.ms": HANG_MS,
    }


@pytest.mark.parametrize("store", STORES)
def test_producer_takes_a_renewed_certificate(site: Site, store: str) -> None:
    """The first certificate belongs to a principal without rights, so that only the second one lets it in."""
    site.authority.issue("renewed", subject="stranger")
    with new_producer(renewed_settings(site, store)) as producer:
        with pytest.raises(TopicAuthorizationError):
            producer.send(TOPIC, b"as a stranger")
        site.authority.issue("renewed", subject=CLIENT)
        delivered = None
        while delivered is None:
            # connections end that were idle for long enough, but one may just begin as the stranger's
            until(lambda: not gauge(producer, "connection-count"), pause_seconds=POLL_SECONDS)
            topic = new_topic(site)  # a refusal is remembered for some seconds, for its topic
            with contextlib.suppress(TopicAuthorizationError):
                delivered = producer.send(topic, b"with the renewed certificate").result(HANG_SECONDS)


def test_producer_survives_renewal_of_an_expired_certificate(site: Site) -> None:
    site.authority.issue("renewed", subject=CLIENT)
    expired = site.authority.path("expired.pem").read_bytes()
    site.authority.path("renewed.pem").write_bytes(expired)
    deadline = time.monotonic() + HANG_SECONDS
    with new_producer(renewed_settings(site, "PEM")) as producer:
        with pytest.raises(AuthenticationError):
            producer.send(TOPIC, b"with an expired certificate")
        site.authority.issue("renewed", subject=CLIENT)
        delivered = None
        while delivered is None:
            try:
                delivered = producer.send(TOPIC, b"renewed").result(HANG_SECONDS)
            except KafkaError as error:
                assert isinstance(error, AuthenticationError)
                assert time.monotonic() < deadline
