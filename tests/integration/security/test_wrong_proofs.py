"""Brokers that do not prove that they know the password (RFC 5802): no record goes to them."""

from __future__ import annotations

import re

import pytest

from kbatch.errors import AuthenticationError
from tests.integration.security.altering_proxy import Alteration, AlteringProxy
from tests.integration.security.cells import password_cell
from tests.integration.security.site import SCRAM_512, TOPIC, Site
from tests.support.patience import HANG_MS
from tests.support.shells import new_producer

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.usefixtures("shell")]
CELL = password_cell("SCRAM-SHA-512", "SASL_PLAINTEXT", SCRAM_512, "alice")


def _other_letter(match: re.Match[bytes]) -> bytes:
    return match[1] + (b"A" if match[2] != b"A" else b"B")


def replacing(pattern: bytes) -> Alteration:
    """Change the letter of the second group."""
    return lambda data: re.sub(pattern, _other_letter, data, count=1)


ALTERATIONS: dict[str, tuple[Alteration, str]] = {
    "signature": (replacing(rb"(\bv=)([\w+/])"), "not proved that it knows the password"),
    # which the length of the answer stands before: any byte
    "nonce": (replacing(rb"(r=)([\w+/])"), "nonce"),
    "iterations": (lambda data: data.replace(b"i=8192", b"i=1024"), "iterations"),
}


@pytest.mark.parametrize("what", ALTERATIONS)
def test_broker_without_proof_gets_nothing(site: Site, what: str) -> None:
    alter, match = ALTERATIONS[what]
    with AlteringProxy(site.address(CELL.listener), alter) as proxy:
        settings = {
            "bootstrap.servers": proxy.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "max.block.ms": HANG_MS,
            **(CELL.java or {}),
        }
        with new_producer(settings) as producer, pytest.raises(AuthenticationError, match=match):
            producer.send(TOPIC, b"for nobody")
        assert proxy.sent_after == []
