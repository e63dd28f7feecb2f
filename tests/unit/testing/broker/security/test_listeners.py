"""Listeners of a running broker: ports, certificates, tokens, and what they do to a client's connection."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

import kbatch
from kbatch.protocol import messages
from kbatch.testing import Broker, Listener, TlsFiles
from kbatch.testing.broker.security.certificates import Authority, principal_of
from kbatch.testing.broker.security.oauth import TokenIssuer
from tests.support.broker_wire import Wire
from tests.support.patience import HANG_SECONDS

TOPIC = "events"
USERS = {"ada": "lovelace-s3cret", "bob": "bob-s3cret"}
LISTENERS = (
    Listener("PLAINTEXT"),
    Listener("SSL", client_auth="required"),
    Listener("SASL_SSL", ("SCRAM-SHA-256", "OAUTHBEARER")),
)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker([TOPIC], nodes=2, users=USERS, listeners=LISTENERS) as running:
        yield running


def deliver(settings: dict[str, str], **more: Any) -> Any:
    """What a producer with these settings gets for one record."""
    with kbatch.Producer(settings, **more) as producer:
        return producer.send(TOPIC, b"value").result(HANG_SECONDS)


# What may be wrong


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"listeners": []}, ValueError, "listeners must name at least one"),
        ({"listeners": ["TLS"]}, ValueError, "security_protocol must be one of PLAINTEXT, SSL.*got 'TLS'"),
        ({"listeners": [("SASL_SSL", ["GSSAPI"])]}, ValueError, "got 'GSSAPI'; it needs a KDC"),
        ({"listeners": [("SSL", ["PLAIN"])]}, ValueError, "SSL has no SASL mechanisms"),
        ({"listeners": [7]}, TypeError, "a listener must be a security protocol"),
        ({"listeners": [{"client_auth": "maybe"}]}, ValueError, "client_auth must be one of none, requested"),
        ({"listeners": [{"client_auth": "required"}]}, ValueError, "client_auth needs SSL or SASL_SSL"),
        ({"listeners": ["PLAINTEXT"], "tls": True}, ValueError, "tls was given, but no listener has SSL"),
        ({"listeners": ["PLAINTEXT"] * 2, "port": 65_535}, ValueError, "1 nodes below 65536, 2 listeners"),
        ({"connections_max_reauth_ms": -1}, ValueError, "connections_max_reauth_ms must be 0 to"),
        ({"authorizer": [("TOPIC", "a")]}, ValueError, "an ACL must be an AclBinding"),
        ({"authorizer": True, "acls": {"topic_write": []}}, ValueError, "give acls, .* or authorizer"),
    ],
)
def test_wrong_settings_are_refused_by_name(arguments: dict[str, Any], error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        Broker(**arguments)


def test_unsecured_tokens_need_oauthbearer() -> None:
    with pytest.raises(ValueError, match="unsecured_tokens needs the mechanism OAUTHBEARER"):
        Listener("SASL_SSL", ("PLAIN",), unsecured_tokens=True)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, "PLAINTEXT"),
        ({"users": USERS}, "SASL_PLAINTEXT"),
        ({"tls": True}, "SSL"),
        ({"tls": True, "users": USERS}, "SASL_SSL"),
    ],
)
def test_only_listener_follows_from_tls_and_users(arguments: dict[str, Any], expected: str) -> None:
    with Broker(**arguments) as running:
        assert running.client_settings()["security.protocol"] == expected


def test_client_settings_name_what_there_is(broker: Broker) -> None:
    with pytest.raises(
        ValueError, match=r"no listener has SSL with PLAIN; there are: PLAINTEXT ; SSL ; SASL"
    ):
        broker.client_settings("SSL", "PLAIN")
    with pytest.raises(ValueError, match="unknown user 'eve': give its password; users are ada, bob"):
        broker.client_settings("SASL_SSL", user="eve")
    with pytest.raises(ValueError, match="dialect must be one of java, librdkafka, got 'go'"):
        broker.client_settings(dialect="go")
    with Broker() as plaintext, pytest.raises(ValueError, match="no listener has OAUTHBEARER"):
        _ = plaintext.token_endpoint_url


def test_client_settings_quote_what_jaas_would_take_for_its_own() -> None:
    with Broker(users={'a"b\\': "c"}) as running:
        line = running.client_settings()["sasl.jaas.config"]
    assert re.search(r'username="a\\"b\\\\" password="c";$', line)


# Ports


def test_clients_get_the_ports_of_their_own_listener(broker: Broker) -> None:
    addresses = set()
    for protocol in ("PLAINTEXT", "SSL", "SASL_SSL"):
        servers = broker.client_settings(protocol)["bootstrap.servers"].split(",")
        assert len(servers) == 2
        addresses.update(servers)
    assert len(addresses) == 6
    with Wire(broker.bootstrap_servers.split(",")[0]) as wire:
        answer = wire.ask(messages.MetadataRequest(topics=None))
    assert ",".join(f"{node.host}:{node.port}" for node in answer.brokers) == broker.bootstrap_servers


def test_restart_keeps_ports_certificates_and_keys() -> None:
    listeners: list[str | tuple[str, list[str]]] = ["PLAINTEXT", ("SASL_SSL", ["OAUTHBEARER"])]
    running = Broker([TOPIC], users=USERS, listeners=listeners)
    with running:
        before = running.client_settings("SASL_SSL"), running.jwks_url
        value = running.token("ada")
    with running:
        assert (running.client_settings("SASL_SSL"), running.jwks_url) == before
        assert deliver(before[0]).offset == 0
        settings: dict[str, Any] = {**before[0], "sasl.oauthbearer.token": lambda: value}
        for key in ("sasl.oauthbearer.token.endpoint.url", "sasl.login.callback.handler.class"):
            settings.pop(key)
        settings.pop("sasl.jaas.config")
        assert deliver(settings).offset == 1


# Certificates


def test_client_with_another_authority_is_not_let_in(broker: Broker) -> None:
    host, port = broker.client_settings("SASL_SSL")["bootstrap.servers"].split(",")[0].split(":")
    context = ssl.create_default_context(cadata=Authority().pem)
    with (
        socket.create_connection((host, int(port)), HANG_SECONDS) as raw,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        context.wrap_socket(raw, server_hostname=host)


def test_certificate_is_the_principal_and_wanted_where_required() -> None:
    rules = [("TOPIC", TOPIC, "User:CN=carol", "WRITE")]
    listeners = [Listener("SSL", client_auth="required")]
    with Broker([TOPIC], listeners=listeners, authorizer=rules) as running:
        assert deliver(running.client_settings(user="carol")).offset == 0
        with pytest.raises(kbatch.errors.TopicAuthorizationError):
            deliver(running.client_settings(user="dave"))
        stripped = {key: value for key, value in running.client_settings().items() if "keystore" not in key}
        with pytest.raises(kbatch.errors.KafkaError, match="certificate"):
            deliver(stripped, max_block_ms=3000)


def test_own_files_are_served(tmp_path: Path) -> None:
    authority = Authority()
    pair = authority.issue("own", ["localhost", "127.0.0.1"])
    paths = [tmp_path / name for name in ("broker.pem", "broker.key", "ca.pem")]
    for path, text in zip(paths, (pair.certificate, pair.key, authority.pem), strict=True):
        path.write_text(text)
    with Broker([TOPIC], tls=TlsFiles(*paths)) as running:
        settings = running.client_settings()
        assert settings["ssl.truststore.certificates"] == authority.pem
        assert deliver(settings).offset == 0
        with pytest.raises(ValueError, match="TlsFiles has no key of the authority"):
            running.client_certificate("carol")


def test_certificates_have_the_names_of_their_hosts() -> None:
    (certificate, *_) = x509.load_pem_x509_certificates(
        Authority().issue("carol", ["kafka1", "10.1.2.3"]).certificate.encode()
    )
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["kafka1"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["10.1.2.3"]
    assert certificate.subject.rfc4514_string() == "CN=carol"


def test_principal_is_the_subject_as_java_writes_it() -> None:
    subject = ((("countryName", "DE"),), (("organizationName", "A, B"),), (("commonName", "carol"),))
    assert principal_of({"subject": subject}) == "CN=carol,O=A\\, B,C=DE"
    assert principal_of({}) is None
    assert principal_of(None) is None


# Faults


def test_broken_tls_record_loses_the_answer_and_not_the_record() -> None:
    with Broker([TOPIC], tls=True) as running:
        running.tls_break("Produce", times=2)
        assert deliver(running.client_settings()).offset == 0
        assert len(running.requests("Produce")) == 3
        assert [record.value for record in running.records(TOPIC)] == [b"value"]


def test_failed_logins_are_repeated_until_one_is_let_in() -> None:
    with Broker([TOPIC], users=USERS) as running, kbatch.Producer(running.client_settings()) as producer:
        assert producer.send(TOPIC, b"a").result(HANG_SECONDS).offset == 0
        before = len(running.requests("SaslAuthenticate"))
        running.fail_authentication(times=2)
        running.expire_sessions()
        assert producer.send(TOPIC, b"b").result(HANG_SECONDS).offset == 1
        assert len(running.requests("SaslAuthenticate")) >= before + 3


def test_failed_login_is_raised_to_the_caller() -> None:
    with Broker([TOPIC], users=USERS) as running:
        running.fail_authentication(times=1000)
        with pytest.raises(kbatch.errors.SaslAuthenticationError, match="invalid credentials with SASL"):
            deliver(running.client_settings())


def test_expired_sessions_are_left_by_a_new_connection() -> None:
    with Broker([TOPIC], users=USERS) as running, kbatch.Producer(running.client_settings()) as producer:
        assert producer.send(TOPIC, b"a").result(HANG_SECONDS).offset == 0
        running.expire_sessions()
        assert producer.send(TOPIC, b"b").result(HANG_SECONDS).offset == 1
        assert len(running.requests("SaslHandshake")) >= 2


def test_refusal_comes_before_the_end_of_the_connection() -> None:
    with Broker(users=USERS) as running, Wire(running.bootstrap_servers) as wire:
        assert wire.ask(messages.SaslHandshakeRequest(mechanism="PLAIN")).error_code == 0
        refused = wire.ask(messages.SaslAuthenticateRequest(auth_bytes=b"\0ada\0wrong"))
        assert refused.error_message == "Authentication failed: Invalid username or password"
        assert wire.is_closed


# The token endpoint


def http(url: str, form: dict[str, str] | None = None, **headers: str) -> tuple[int, dict[str, Any]]:
    data = None if form is None else urllib.parse.urlencode(form).encode()
    request = urllib.request.Request(url, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=HANG_SECONDS) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


CREDENTIALS = {"grant_type": "client_credentials"}


def test_token_endpoint_gives_tokens_to_users(broker: Broker) -> None:
    basic = base64.b64encode(f"ada:{USERS['ada']}".encode()).decode()
    for form, headers in (
        ({**CREDENTIALS, "scope": "produce"}, {"Authorization": f"Basic {basic}"}),
        ({**CREDENTIALS, "client_id": "ada", "client_secret": USERS["ada"]}, {}),
    ):
        status, answer = http(broker.token_endpoint_url, form, **headers)
        assert (status, answer["token_type"], answer["expires_in"]) == (200, "Bearer", 3600)
        claims = json.loads(base64.urlsafe_b64decode(answer["access_token"].split(".")[1] + "=="))
        assert (claims["sub"], claims["aud"]) == ("ada", "kafka")
        assert claims["exp"] - claims["iat"] == 3600


@pytest.mark.parametrize(
    ("path", "form", "expected"),
    [
        ("token", {**CREDENTIALS, "client_id": "ada", "client_secret": "x"}, (401, "invalid_client")),
        ("token", CREDENTIALS, (401, "invalid_client")),
        ("token", {"grant_type": "password"}, (400, "unsupported_grant_type")),
        ("token", None, (405, "invalid_request")),
        ("jwks", {"a": "b"}, (405, "invalid_request")),
        ("other", None, (404, "invalid_request")),
    ],
)
def test_token_endpoint_refuses(
    broker: Broker, path: str, form: dict[str, str] | None, expected: tuple[int, str]
) -> None:
    url = broker.token_endpoint_url.removesuffix("token") + path
    status, answer = http(url, form)
    assert (status, answer["error"]) == expected


def test_token_endpoint_survives_what_is_no_http(broker: Broker) -> None:
    address = urllib.parse.urlsplit(broker.token_endpoint_url)
    for data in (
        b"\0\1\2\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST /token HTTP/1.1\r\ncontent-length: x\r\n\r\n",
        b"G",
    ):
        with socket.create_connection((address.hostname, address.port), HANG_SECONDS) as raw:
            raw.sendall(data)
            raw.shutdown(socket.SHUT_WR)
            assert raw.recv(1000) == b""
    assert http(broker.jwks_url)[0] == 200


def test_jwks_has_the_key_that_signs(broker: Broker) -> None:
    _, published = http(broker.jwks_url)
    (key,) = published["keys"]
    assert (key["kty"], key["alg"], key["use"]) == ("RSA", "RS256", "sig")
    numbers = [int.from_bytes(base64.urlsafe_b64decode(key[name] + "==")) for name in ("n", "e")]
    head, body, signature = broker.token("ada").split(".")
    opened = pow(int.from_bytes(base64.urlsafe_b64decode(signature + "==")), numbers[1], numbers[0])
    assert opened.to_bytes(256)[-32:] == hashlib.sha256(f"{head}.{body}".encode()).digest()
    assert json.loads(base64.urlsafe_b64decode(head + "=="))["kid"] == key["kid"]


def test_every_issuer_has_its_own_key() -> None:
    one, two = TokenIssuer(), TokenIssuer()
    assert one.jwks() != two.jwks()
