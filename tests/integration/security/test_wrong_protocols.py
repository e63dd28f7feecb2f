"""A security.protocol that the listener does not have: what a real broker does, and what errors say."""

from __future__ import annotations

import pytest

from kbatch.errors import IllegalSaslStateError
from tests.integration.security.cells import password_cell
from tests.integration.security.conftest import raises_in_time
from tests.integration.security.site import PLAIN, TOPIC, Site
from tests.support.patience import HANG_MS
from tests.support.shells import new_producer

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.usefixtures("shell")]
LOGIN = password_cell("PLAIN", "SASL_SSL", PLAIN, "alice").java or {}
SPEAKS_TLS = "the listener speaks TLS: set security.protocol=SSL or SASL_SSL"
NO_TLS = "in the TLS handshake: is it an SSL listener's port"
HINTS = (
    ("PLAINTEXT", "TLS", SPEAKS_TLS),
    ("PLAINTEXT", "SASL_SSL", SPEAKS_TLS),
    ("PLAINTEXT", "SASL_PLAINTEXT", r"may want SASL \(security.protocol=SASL_PLAINTEXT\)"),
    ("SSL", "SASL_SSL", r"may want SASL \(security.protocol=SASL_SSL\)"),
    ("SSL", "SASL_PLAINTEXT", NO_TLS),
    ("SASL_PLAINTEXT", "SASL_SSL", SPEAKS_TLS),
    ("SASL_SSL", "SASL_PLAINTEXT", NO_TLS),
)


def settings_for(site: Site, protocol: str, listener: str, max_block_ms: int) -> dict[str, object]:
    login = LOGIN if protocol.startswith("SASL") else {}
    access = {"bootstrap.servers": site.address(listener), "security.protocol": protocol}
    return {**access, **site.trust(protocol), **login, "max.block.ms": max_block_ms}


@pytest.mark.parametrize(("protocol", "listener", "hint"), HINTS)
def test_error_says_what_the_listener_wants(site: Site, protocol: str, listener: str, hint: str) -> None:
    with new_producer(settings_for(site, protocol, listener, 500)) as producer:
        raises_in_time(producer, hint)


def test_login_to_a_listener_without_sasl_is_refused_at_once(site: Site) -> None:
    with (
        new_producer(settings_for(site, "SASL_SSL", "TLS", HANG_MS)) as producer,
        pytest.raises(IllegalSaslStateError, match="if its listener has no SASL"),
    ):
        producer.send(TOPIC, b"never")
