"""GSSAPI beyond the matrix: a KDC that cannot be reached, and one that comes back."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.security.conftest import raises_in_time
from tests.integration.security.site import GSSAPI, TOPIC, Site
from tests.oracle.kafka import free_ports
from tests.oracle.kdc import REALM
from tests.support.patience import HANG_MS, HANG_SECONDS
from tests.support.shells import new_producer

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.usefixtures("shell")]


@pytest.fixture(autouse=True)
def needs_kdc(site: Site) -> None:
    if site.kdc is None:
        pytest.skip(site.kdc_missing)


@pytest.fixture
def unreachable(site: Site, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point this process's Kerberos at a KDC that does not run."""
    assert site.kdc is not None
    path = site.kdc.write_configuration("unreachable.conf", free_ports(1)[0])
    monkeypatch.setenv("KRB5_CONFIG", str(path))
    monkeypatch.setenv("KRB5CCNAME", f"MEMORY:{time.monotonic_ns()}")
    return path


def kerberos_settings(site: Site, **settings: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": site.address("SASL_SSL"),
        "security.protocol": "SASL_SSL",
        **site.trust("SASL_SSL"),
        "sasl.mechanism": GSSAPI,
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.keytab": site.keytab("alice"),
        "sasl.kerberos.principal": f"alice@{REALM}",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }


def test_unreachable_kdc_is_named_in_time(site: Site, unreachable: Path) -> None:
    with new_producer(kerberos_settings(site, max_block_ms=1000)) as producer:
        raises_in_time(producer, "KDC")


def test_kdc_that_comes_back_lets_in(site: Site, unreachable: Path) -> None:
    assert site.kdc is not None
    with new_producer(kerberos_settings(site, max_block_ms=HANG_MS)) as producer:
        sent: list[Any] = []
        sender = threading.Thread(target=lambda: sent.append(producer.send(TOPIC, b"late")))
        sender.start()
        unreachable.write_text(site.kdc.configuration.read_text())
        sender.join(HANG_SECONDS)
        sent[0].result(HANG_SECONDS)
