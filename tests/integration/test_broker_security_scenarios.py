"""The embedded broker lets clients in, and refuses them, as Apache Kafka 4.3.1 does."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from kbatch.testing import Broker, Listener
from tests.integration.scenarios import SECURED, Doors, Wire, differences
from tests.integration.security.secrets_used import PASSWORDS
from tests.integration.security.site import SESSION_MS

if TYPE_CHECKING:
    from tests.integration.security.site import Site

pytestmark = [pytest.mark.java, pytest.mark.slow]
LISTENERS = {
    "BROKER": Listener("PLAINTEXT"),
    "SASL_PLAINTEXT": Listener("SASL_PLAINTEXT"),
    "SHORT": Listener("SASL_SSL", connections_max_reauth_ms=SESSION_MS),
    "TLS": Listener("SSL"),
}


@pytest.fixture(scope="module")
def embedded() -> Iterator[tuple[str, Doors]]:
    """Yield the address of the client that may do everything, and the other listeners, of the embedded
    broker.
    """
    users = {name: PASSWORDS[name] for name in ("alice", "bob")}
    options: dict[str, Any] = {
        "authorizer": True,
        "super_users": ["User:ANONYMOUS"],
        "auto_create_topics": False,
    }
    with Broker(listeners=LISTENERS.values(), users=users, **options) as broker:
        servers = {
            name: broker.client_settings(each.security_protocol, user="alice")["bootstrap.servers"]
            for name, each in LISTENERS.items()
        }
        context = ssl.create_default_context(cadata=broker.authority_pem)
        yield servers["BROKER"], Doors(servers, context, users)


@pytest.fixture(scope="module")
def real(site: Site) -> tuple[str, Doors]:
    servers = {name: site.address(name) for name in LISTENERS if name != "BROKER"}
    context = ssl.create_default_context(cafile=site.path("ca.pem"))
    return site.broker.bootstrap_servers, Doors(servers, context, PASSWORDS)


@pytest.mark.parametrize("name", SECURED)
def test_embedded_broker_answers_as_kafka_does(
    embedded: tuple[str, Doors], real: tuple[str, Doors], name: str
) -> None:
    transcripts = []
    for address, doors in (embedded, real):
        with Wire(address, name) as wire:
            wire.await_coordinators()
            SECURED[name](wire, doors)
            transcripts.append(wire.transcript)
    wrong = differences(*transcripts)
    assert not wrong, "\n".join(["embedded != Kafka", *wrong])
