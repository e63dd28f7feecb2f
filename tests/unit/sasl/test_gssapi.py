"""GSSAPI against a real KDC and the server's half of RFC 4752, and the error of each failure."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbatch.config import ProducerConfig
from kbatch.errors import AuthenticationError, ConfigError, KafkaError, NetworkError
from kbatch.sasl.exchange import Exchange
from kbatch.sasl.gssapi import MAX_STEPS, Gssapi, explained
from tests.fuzz.hostile_sasl import bent
from tests.oracle.kdc import REALM, Kdc, KdcMissingError
from tests.unit.sasl.secrecy import failing

gssapi = pytest.importorskip("gssapi", reason="no package gssapi: .ci/install-kdc installs it")
SERVICE = "kafka/localhost"


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    try:
        realm = Kdc(tmp_path_factory.mktemp("kdc"))
    except KdcMissingError as error:
        pytest.skip(str(error))
    with realm:
        for principal in (SERVICE, "alice"):
            realm.add(principal)
        yield realm


@pytest.fixture(autouse=True)
def _realm(kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in kdc.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KRB5CCNAME", f"MEMORY:none of {kdc.folder}")


class Server:
    """The server's half: accepts a context, offers layers, and reads the answer."""

    def __init__(self, kdc: Kdc, offer: bytes = b"\x01\0\0\0") -> None:
        store = {"keytab": f"FILE:{kdc.keytab(SERVICE)}"}
        self._context = gssapi.SecurityContext(
            creds=gssapi.Credentials(usage="accept", store=store), usage="accept"
        )
        self._offer = offer
        self.chosen: bytes | None = None
        self._has_offered = False

    @property
    def client(self) -> str:
        return str(self._context.initiator_name)

    def answer(self, token: bytes) -> bytes:
        if not self._context.complete:
            return self._context.step(token) or b""
        if not self._has_offered:
            assert token == b""
            self._has_offered = True
            return bytes(self._context.wrap(self._offer, False).message)
        self.chosen = bytes(self._context.unwrap(token).message)
        return b""


def mechanism(kdc: Kdc, **settings: Any) -> Gssapi:
    given: dict[str, Any] = {
        "sasl_kerberos_service_name": "kafka",
        "sasl_kerberos_keytab": str(kdc.keytab("alice")),
        "sasl_kerberos_principal": f"alice@{REALM}",
    }
    config = ProducerConfig(
        bootstrap_servers="localhost:9092",
        security_protocol="SASL_SSL",
        sasl_mechanism="GSSAPI",
        **(given | settings),
    )
    return Gssapi(config)


def log_in(exchange: Exchange, server: Server) -> None:
    challenge = None
    while (token := exchange.step(challenge)) is not None:
        challenge = server.answer(token)


def test_a_keytab_logs_in_again_and_again_without_a_ticket_file(kdc: Kdc) -> None:
    found = mechanism(kdc)
    for _ in range(3):
        server = Server(kdc)
        log_in(found.exchange("localhost."), server)
        assert server.client == f"alice@{REALM}"
        assert server.chosen == b"\x01\0\0\0"  # no layer, no size, no authorization id


def test_a_keytab_without_a_principal_is_enough(kdc: Kdc) -> None:
    server = Server(kdc)
    log_in(mechanism(kdc, sasl_kerberos_principal=None).exchange("localhost"), server)
    assert server.client == f"alice@{REALM}"


@pytest.mark.parametrize("principal", [None, f"alice@{REALM}"])
def test_a_ticket_of_kinit_is_used(kdc: Kdc, monkeypatch: pytest.MonkeyPatch, principal: str | None) -> None:
    kdc.log_in("alice")
    monkeypatch.setenv("KRB5CCNAME", kdc.environment["KRB5CCNAME"])
    server = Server(kdc)
    found = mechanism(kdc, sasl_kerberos_keytab=None, sasl_kerberos_principal=principal)
    log_in(found.exchange("localhost"), server)
    assert server.client == f"alice@{REALM}"


@pytest.mark.parametrize("prefix", ["FILE:", ""])
def test_a_ticket_cache_by_key_is_used(kdc: Kdc, prefix: str) -> None:
    kdc.log_in("alice")
    server = Server(kdc)
    found = mechanism(
        kdc,
        sasl_kerberos_keytab=None,
        sasl_kerberos_principal=None,
        sasl_kerberos_ticket_cache=f"{prefix}{kdc.folder / 'ccache'}",
    )
    log_in(found.exchange("localhost"), server)
    assert server.client == f"alice@{REALM}"


def test_a_domain_name_stands_for_the_brokers_host(kdc: Kdc) -> None:
    server = Server(kdc)
    log_in(mechanism(kdc, sasl_kerberos_domain_name="localhost").exchange("broker-7.internal"), server)
    assert server.client == f"alice@{REALM}"


@pytest.mark.parametrize("offer", [b"\x06\0\0\0", b"\0\0\0\0", b"\x01\0\0", b"", b"\x01" * 5])
def test_an_offer_without_the_plain_layer_is_refused(kdc: Kdc, offer: bytes) -> None:
    exchange, server = mechanism(kdc).exchange("localhost"), Server(kdc, offer)
    text = failing(lambda: log_in(exchange, server), AuthenticationError)
    assert "the broker's offer of security layers must be 4 bytes and have none" in text


def begun(kdc: Kdc) -> Exchange:
    exchange = mechanism(kdc).exchange("localhost")
    exchange.step(None)
    return exchange


@pytest.mark.parametrize("challenge", [b"", b"\0", b"garbage" * 100, b"\x60\x82\xff\xff", bytes(60_000)])
def test_a_hostile_challenge_is_refused(kdc: Kdc, challenge: bytes) -> None:
    text = failing(lambda: begun(kdc).step(challenge), AuthenticationError)
    assert text.startswith("GSSAPI failed with localhost: ")


def test_a_hostile_offer_is_refused(kdc: Kdc) -> None:
    exchange, server = mechanism(kdc).exchange("localhost"), Server(kdc)
    assert exchange.step(server.answer(exchange.step(None) or b"")) == b""
    assert "GSSAPI failed" in failing(lambda: exchange.step(b"garbage"), AuthenticationError)


def test_bent_messages_of_a_broker_are_refused(kdc: Kdc) -> None:
    """Run hundreds of each kind; a step contacts the KDC only once, as the ticket is in the cache."""
    rng = random.Random("bent GSSAPI")
    found = mechanism(kdc)
    outcomes: Counter[str] = Counter()
    for number in range(400):
        exchange, server = found.exchange("localhost"), Server(kdc)
        honest = server.answer(exchange.step(None) or b"")
        if number % 2:
            honest = server.answer(exchange.step(honest) or b"")
        message = bent(honest, rng)
        is_honest = message in (honest, b"")  # evaluated now: the library unwraps in place
        try:
            outcomes["accepted" if exchange.step(message) is not None else "ended"] += 1
        except AuthenticationError as error:
            outcomes["refused"] += 1
            assert str(error).isprintable()
            assert len(str(error)) < 1500
        else:
            assert is_honest
    assert outcomes["refused"] > 300
    assert outcomes["ended"] == 0


def test_exchange_ends_with_an_error_after_too_many_steps(kdc: Kdc) -> None:
    exchange, server = mechanism(kdc).exchange("localhost"), Server(kdc)
    exchange.step(server.answer(exchange.step(None) or b""))

    def forever() -> None:
        while exchange.step(b"") is not None:
            pass

    assert f"in {MAX_STEPS} steps" in failing(forever, AuthenticationError)


# Failures


def test_an_unknown_server_names_the_usual_causes(kdc: Kdc) -> None:
    exchange = mechanism(kdc).exchange("another.host")
    text = failing(lambda: exchange.step(None), AuthenticationError)
    assert "GSSAPI failed with another.host: " in text
    for cause in ("fully qualified names", "rdns in krb5.conf", "sasl.kerberos.service.name"):
        assert cause in text
    exchange = mechanism(kdc, sasl_kerberos_service_name="other").exchange("localhost")
    assert "rdns in krb5.conf" in failing(lambda: exchange.step(None), AuthenticationError)


def test_a_kdc_that_is_not_there_may_come_back(kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
    path = kdc.write_configuration("unreachable.conf", 1)
    monkeypatch.setenv("KRB5_CONFIG", str(path))
    exchange = mechanism(kdc).exchange("localhost")
    text = failing(lambda: exchange.step(None), NetworkError)
    assert "check the network, and the KDCs in krb5.conf" in text


def test_no_ticket_and_no_keytab_name_the_remedy(kdc: Kdc) -> None:
    exchange = mechanism(kdc, sasl_kerberos_keytab=None).exchange("localhost")
    text = failing(lambda: exchange.step(None), AuthenticationError)
    assert "in cache collection; renew the ticket with kinit" in text


def test_a_principal_that_the_keytab_has_not_is_named(kdc: Kdc) -> None:
    exchange = mechanism(kdc, sasl_kerberos_principal=f"bob@{REALM}").exchange("localhost")
    text = failing(lambda: exchange.step(None), AuthenticationError)
    assert f"the keytab has no key of bob@{REALM}; see klist -k" in text


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (-1765328347, NetworkError, "set the clocks of this machine and of the KDC"),
        (-1765328352, NetworkError, "renew the ticket with kinit"),
        (-1765328351, NetworkError, "set the clocks"),
        (-1765328355, NetworkError, "the KDC is busy"),
        (-1765328230, NetworkError, "see krb5.conf and KRB5_CONFIG"),
        (-1765328164, NetworkError, "the KDC's name cannot be resolved"),
        (-1765328360, AuthenticationError, "export it again"),
        (-1765328243, AuthenticationError, "the remedy of the exchange"),
    ],
)
def test_kerberos_codes_that_are_retriable(code: int, kind: type[KafkaError], text: str) -> None:
    error = explained(gssapi.exceptions.GSSError(851968, code % 2**32), "host", "the remedy of the exchange")
    assert type(error) is kind
    assert text in str(error)


@pytest.mark.parametrize("major", [720896, 786432])
def test_expired_credentials_may_be_renewed(major: int) -> None:
    assert isinstance(explained(gssapi.exceptions.GSSError(major, 0), "host", ""), NetworkError)


def test_a_principal_that_the_kdc_has_not_is_named(kdc: Kdc) -> None:
    kdc.add("gone")
    keytab = str(kdc.keytab("gone"))
    kdc.run("kadmin.local", "-r", REALM, "-q", f"delprinc -force gone@{REALM}")
    settings = {"sasl_kerberos_keytab": keytab, "sasl_kerberos_principal": f"gone@{REALM}"}
    exchange = mechanism(kdc, **settings).exchange("localhost")
    text = failing(lambda: exchange.step(None), AuthenticationError)
    assert "add the client's principal to the KDC" in text


def test_a_library_without_credential_stores_is_named(kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise NotImplementedError("no credential stores")

    exchange = mechanism(kdc).exchange("localhost")
    monkeypatch.setattr(gssapi, "Credentials", refuse)
    assert "log in with kinit" in failing(lambda: exchange.step(None), AuthenticationError)


def test_a_keytab_that_cannot_be_read_is_a_config_error(kdc: Kdc, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.keytab")
    text = failing(lambda: mechanism(kdc, sasl_kerberos_keytab=missing), ConfigError)
    assert text == f"sasl.kerberos.keytab={missing!r} cannot be read: No such file or directory"
