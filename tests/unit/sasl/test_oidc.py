"""Tokens from an endpoint, by configuration alone: requests, answers, and an endpoint that fails or lies."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

import pytest

from kbatch.errors import AuthenticationError, ConfigError, KafkaError, NetworkError
from kbatch.http_client import MAX_ANSWER_BYTES
from kbatch.sasl import mechanism_of
from kbatch.sasl.oidc import endpoint_source
from kbatch.sasl.tokens import Token
from tests.oracle.authority import Authority
from tests.oracle.token_server import TokenServer
from tests.support.patience import HANG_SECONDS
from tests.unit.sasl.endpoints import (
    CLIENT_ID,
    SECRET,
    Request,
    answer,
    answering,
    by_secret,
    config,
    endpoint,
)
from tests.unit.sasl.secrecy import failing
from tests.unit.sasl.test_tokens import jwt

VALUE = "s3cret-token"
BASIC = base64.b64encode(f"{CLIENT_ID}:{SECRET}".encode()).decode()
HIDDEN = (SECRET, BASIC, VALUE)


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def fetched(respond: Any, **settings: Any) -> Token:
    with endpoint(respond) as url:
        token = endpoint_source(by_secret(url, **settings))()
    assert isinstance(token, Token)
    return token


def refused(respond: Any, kind: type[KafkaError], **settings: Any) -> str:
    """Return the text of the error for an answer. It names the endpoint, and shows no secret."""
    with endpoint(respond) as url:
        source = endpoint_source(by_secret(f"{url}?sig=s3cret-query", **settings))
        text = failing(source, kind, *HIDDEN, "s3cret-query")
    assert text.startswith(f"sasl.oauthbearer.token.endpoint.url '{url}' ")
    return text


def asked(**settings: Any) -> tuple[dict[str, list[str]], Request]:
    """Return the form and the request that an endpoint gets."""
    requests: list[Request] = []

    def respond(request: Request, out: Any) -> None:
        requests.append(request)
        out.write(answer(200, body(access_token=VALUE)))

    fetched(respond, **settings)
    return parse_qs(requests[0].body, strict_parsing=True), requests[0]


# Requests


def test_the_secret_travels_in_the_header_as_it_is() -> None:
    form, request = asked()
    assert request.line == "POST /token HTTP/1.1"
    assert request.headers["authorization"] == f"Basic {BASIC}"
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    assert request.headers["accept"] == "application/json"
    assert request.headers["user-agent"].startswith("kbatch/")
    assert form == {"grant_type": ["client_credentials"]}


def test_header_urlencode_encodes_both_parts_of_the_header() -> None:
    _, request = asked(sasl_oauthbearer_header_urlencode=True)
    basic = base64.b64decode(request.headers["authorization"].removeprefix("Basic ")).decode()
    assert basic == "the+client:s3cret%2Bof%2Fthe+client%3D"


def test_a_scope_is_part_of_the_form() -> None:
    form, _ = asked(sasl_oauthbearer_scope="api://kafka/.default read&write")
    assert form["scope"] == ["api://kafka/.default read&write"]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    found = Authority(tmp_path, "password")
    found.issue("server")
    return found


@pytest.fixture
def server_context(authority: Authority) -> ssl.SSLContext:
    """Return what a token server by https uses."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.path("server.pem"))
    return context


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
@pytest.mark.parametrize("grant", ["ClientCredentialsJwtRetriever", "JwtBearerJwtRetriever"])
def test_verifying_endpoint_grants_tokens_for_signed_assertions(
    tmp_path: Path, server_context: ssl.SSLContext, algorithm: str, grant: str
) -> None:
    from cryptography.hazmat.primitives import serialization

    with TokenServer({}, server_context) as server:
        keys: dict[str, Any] = {"RS256": server.assertion_key, "ES256": server.assertion_ec_key}
        key = keys[algorithm]
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (tmp_path / "key.pem").write_bytes(pem)
        settings = {
            "sasl_oauthbearer_jwt_retriever_class": f"org.apache.kafka.common.security.oauthbearer.{grant}",
            "sasl_oauthbearer_assertion_algorithm": algorithm,
            "sasl_oauthbearer_assertion_private_key_file": str(tmp_path / "key.pem"),
            "sasl_oauthbearer_assertion_claim_sub": "alice",
            "sasl_oauthbearer_scope": "produce",
        }
        token = endpoint_source(config(f"{server.url}/token", **settings))()
        call = server.calls[0]
    assert token.principal == "alice"
    assert token.expires_at == pytest.approx(time.time() + server.lifetime_seconds, abs=HANG_SECONDS)
    assert (call.scope, call.way) == ("produce", "assertion")
    expected = {
        "ClientCredentialsJwtRetriever": "client_credentials",
        "JwtBearerJwtRetriever": "urn:ietf:params:oauth:grant-type:jwt-bearer",
    }
    assert call.grant_type == expected[grant]


def test_a_ready_assertion_travels_with_the_client_id(tmp_path: Path) -> None:
    (tmp_path / "assertion").write_text("a.b.c\n")
    form, request = asked(
        sasl_oauthbearer_client_credentials_client_secret=None,
        sasl_oauthbearer_assertion_file=str(tmp_path / "assertion"),
    )
    assert "authorization" not in request.headers
    assert form == {
        "grant_type": ["client_credentials"],
        "client_assertion_type": ["urn:ietf:params:oauth:client-assertion-type:jwt-bearer"],
        "client_assertion": ["a.b.c"],
        "client_id": [CLIENT_ID],
    }


@contextmanager
def threads_ended() -> Iterator[None]:
    """Wait for the threads that the block starts."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        if thread.name == "kbatch-token":
            thread.join()


def test_a_configuration_logs_in_by_itself(server_context: ssl.SSLContext) -> None:
    with TokenServer({CLIENT_ID: SECRET}, server_context) as server:
        settings = by_secret(f"{server.url}/token", sasl_oauthbearer_extensions="logicalCluster=lkc-1")
        mechanism = mechanism_of(settings, asyncio.run)
        message = mechanism.exchange("localhost").step(None) or b""
        mechanism.exchange("localhost").step(None)
        assert len(server.calls) == 1  # connections share the token
        assert mechanism.refresh_deadline_ns() > time.monotonic_ns()
        with threads_ended():
            mechanism.refresh()
        assert len(server.calls) == 2
        mechanism.close()
    assert message.startswith(b"n,,\x01auth=Bearer ey")
    assert message.endswith(b"\x01logicalCluster=lkc-1\x01\x01")


# Answers


@pytest.mark.parametrize("status", [200, 201])
def test_the_access_token_counts_before_the_id_token(status: int) -> None:
    fields = body(access_token=VALUE, id_token="another", expires_in=60)
    token = fetched(answering(status, fields))
    assert token.value == VALUE
    assert token.expires_at == pytest.approx(time.time() + 60, abs=HANG_SECONDS)


EXPIRING = "a JWT that expires 90 s after the test begins"


@pytest.mark.parametrize(
    ("fields", "life"),
    [
        ({"access_token": VALUE, "expires_in": "60"}, 60),  # as Azure's first version
        ({"access_token": jwt({"exp": 4_000_000_000}), "expires_in": 60.5}, 60.5),
        ({"access_token": EXPIRING}, 90),
        ({"id_token": EXPIRING, "expires_in": 60}, 90),
        ({"access_token": VALUE}, None),
        ({"access_token": VALUE, "expires_in": -1}, None),
        ({"access_token": VALUE, "expires_in": 1e300}, None),
        ({"access_token": VALUE, "expires_in": True}, None),
        ({"access_token": VALUE, "expires_in": "soon"}, None),
        ({"access_token": VALUE, "expires_in": "9" * 5000}, None),
    ],
    ids=lambda value: str(value)[:60],
)
def test_the_life_is_expires_in_or_what_a_jwt_says(fields: dict[str, Any], life: float | None) -> None:
    expiring = jwt({"exp": time.time() + 90})  # made here, since names of tests must not change
    answer = {name: expiring if value is EXPIRING else value for name, value in fields.items()}
    token = fetched(answering(200, body(**answer)))
    if life is None:
        assert token.expires_at is None
    else:
        assert token.expires_at == pytest.approx(time.time() + life, abs=HANG_SECONDS)


def test_the_subject_claim_is_the_principal() -> None:
    token = fetched(
        answering(200, body(access_token=jwt({"upn": "alice", "sub": "id"}))),
        sasl_oauthbearer_sub_claim_name="upn",
    )
    assert token.principal == "alice"


@pytest.mark.parametrize("status", [*range(400, 408), *range(409, 416), 501, 505])
def test_a_refusal_is_no_network_error(status: int) -> None:
    text = refused(
        answering(status, body(error="invalid_client", error_description=f"not {SECRET}")),
        AuthenticationError,
    )
    assert text.endswith(f"answered {status}: invalid_client: [left out, since it repeats credentials]")


@pytest.mark.parametrize(
    "echo",
    [
        SECRET,
        SECRET.upper(),
        SECRET[2:],
        quote(SECRET),
        f"Authorization: Basic {BASIC}",
        BASIC[-20:],
        "x" * 490 + BASIC,
    ],
    ids=["secret", "other case", "a part", "as in a URL", "header", "part of the header", "cut by the bound"],
)
@pytest.mark.parametrize("field", ["error", "error_description", "errorSummary"])
def test_endpoint_that_repeats_the_request_is_not_quoted(echo: str, field: str) -> None:
    text = refused(answering(400, body(**{field: f"bad request: {echo}"})), AuthenticationError)
    assert text.endswith("answered 400: [left out, since it repeats credentials]")
    assert not any(BASIC[start : start + 12] in text for start in range(len(BASIC) - 11))


def test_status_line_that_repeats_the_request_is_not_quoted() -> None:
    line = f"Authorization: Basic {BASIC}\r\n\r\n".encode()
    text = refused(lambda request, out: out.write(line), NetworkError)
    assert text.endswith("cannot be reached: [left out, since it repeats credentials]")


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_fault_of_the_endpoint_may_pass(status: int) -> None:
    assert refused(answering(status, b"<html>busy</html>"), NetworkError).endswith(f"answered {status}")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    text = refused(
        answering(status, b"", "Location: http://127.0.0.1:1/elsewhere?s3cret-query"), AuthenticationError
    )
    assert "a redirect, which is not followed" in text


def test_words_of_oktas_form_are_shown_bounded_and_printable() -> None:
    fields = body(errorCode="E01\x1b[31m", errorSummary="x" * 5000)
    text = refused(answering(403, fields), AuthenticationError)
    assert "answered 403: E01 [31m: xxx" in text
    assert len(text) < 1000


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "answered without access_token or id_token"),
        (b"<html>welcome</html>", "answered without access_token or id_token"),
        (b"[1]", "answered without access_token or id_token"),
        (b"[" * 100_000, "answered without access_token or id_token"),
        (b"\xff\xfe", "answered without access_token or id_token"),
        (body(access_token=5), "answered without access_token or id_token"),
        (
            body(access_token=f"{VALUE}\n"),
            "answered with a token that cannot be sent: the token has a control",
        ),
        (body(access_token="x" * (2 << 20)), f"answered with more than {MAX_ANSWER_BYTES} bytes"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_an_answer_without_a_token_is_named(data: bytes, text: str) -> None:
    assert text in refused(answering(200, data), AuthenticationError)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x15\x03\x01\x00\x02\x02\x28",
        b"HTTP/1.1 99999 x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n",
        b"HTTP/1.1 200 " + b"x" * 100_000,
    ],
)
def test_an_answer_that_is_no_http_is_a_network_error(raw: bytes) -> None:
    refused(lambda request, out: out.write(raw), NetworkError)


def test_an_endpoint_that_is_not_there_is_a_network_error() -> None:
    with endpoint(answering(200, b"")) as url:
        pass
    text = failing(endpoint_source(by_secret(url)), NetworkError, *HIDDEN)
    assert "cannot be reached: " in text
    assert "Connection refused" in text


def test_a_silent_endpoint_is_left_after_the_read_timeout() -> None:
    ended = threading.Event()
    text = refused(
        lambda request, out: ended.wait(HANG_SECONDS) and None,
        NetworkError,
        sasl_login_connect_timeout_ms=1000,
        sasl_login_read_timeout_ms=50,
    )
    ended.set()
    assert "cannot be reached: no answer in 1.05 s" in text


def test_an_endpoint_that_drips_is_left_after_both_timeouts() -> None:
    """Each read is in time, the whole answer is not."""
    ended = threading.Event()

    def respond(request: Request, out: Any) -> None:
        out.write(b"HTTP/1.1 200 OK\r\nx: ")
        while not ended.wait(0.02):
            out.write(b"y")
            out.flush()

    with endpoint(respond) as url:
        settings = {"sasl_login_connect_timeout_ms": 150, "sasl_login_read_timeout_ms": 150}
        text = failing(endpoint_source(by_secret(url, **settings)), NetworkError, *HIDDEN)
        ended.set()
    assert "no answer in 0.3 s" in text


def test_an_answer_without_end_is_read_to_the_bound() -> None:
    def respond(request: Request, out: Any) -> None:
        out.write(b"HTTP/1.1 200 OK\r\n\r\n")
        with suppress(OSError):  # the client hangs up
            while True:
                out.write(bytes(1 << 16))

    assert f"answered with more than {MAX_ANSWER_BYTES} bytes" in refused(respond, AuthenticationError)


def test_close_interrupts_a_request() -> None:
    begun, ended = threading.Event(), threading.Event()

    def respond(request: Request, out: Any) -> None:
        begun.set()
        ended.wait(HANG_SECONDS)

    with endpoint(respond) as url:
        source = endpoint_source(by_secret(url))
        closer = threading.Thread(target=lambda: (begun.wait(HANG_SECONDS), source.close()))
        closer.start()
        text = failing(source, NetworkError, *HIDDEN)
        closer.join()
        assert "the client is closed" in text
        assert "the client is closed" in failing(source, NetworkError, *HIDDEN)
        ended.set()


# Trust


def test_https_needs_the_endpoints_authority(authority: Authority) -> None:
    grant = answering(200, body(access_token=VALUE))
    with endpoint(grant, authority.path("server.pem")) as url:
        text = failing(endpoint_source(by_secret(url)), AuthenticationError, *HIDDEN)
        assert "has a certificate that was refused: " in text
        assert "set https.ca.location" in text
        trusted = str(authority.path("ca.pem"))
        assert endpoint_source(by_secret(url, https_ca_location=trusted))().value == VALUE
        pem = authority.path("ca.pem").read_text()
        assert endpoint_source(by_secret(url, https_ca_pem=pem))().value == VALUE


def test_a_renewed_authority_is_read_at_the_next_request(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other", "password", "other")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(other.path("ca.pem").read_bytes())
    with endpoint(answering(200, body(access_token=VALUE)), authority.path("server.pem")) as url:
        source = endpoint_source(by_secret(url, https_ca_location=str(trusted)))
        failing(source, AuthenticationError, *HIDDEN)
        trusted.write_bytes(authority.path("ca.pem").read_bytes())
        assert source().value == VALUE


@pytest.mark.parametrize(
    "settings", [{"https_ca_location": "/no/such/file"}, {"https_ca_pem": "no certificate"}]
)
def test_authorities_that_cannot_be_read_are_a_config_error(settings: dict[str, str]) -> None:
    text = failing(lambda: endpoint_source(by_secret("https://localhost/token", **settings)), ConfigError)
    assert "cannot be used" in text


def test_https_but_not_loopback_http_uses_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def proxy(request: Request, out: Any) -> None:
        seen.append(request.line)
        out.write(answer(403, b""))

    with endpoint(proxy) as url, endpoint(answering(200, body(access_token=VALUE))) as direct:
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, url.removesuffix("/token"))
        assert endpoint_source(by_secret(direct))().value == VALUE
        assert seen == []
        text = failing(endpoint_source(by_secret("https://login.test/token")), NetworkError, *HIDDEN)
    assert [line.rpartition(" ")[0] for line in seen] == ["CONNECT login.test:443"]
    assert "403" in text


# URLs and files


def test_a_user_name_in_the_url_is_a_config_error_that_hides_it() -> None:
    url = "https://alice:s3cret-of-alice@localhost/token?key=s3cret-query"
    text = failing(lambda: endpoint_source(by_secret(url)), ConfigError, "s3cret")
    assert "must not have a user name, got one before 'https://localhost/token'" in text


def test_a_file_with_a_token_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "token with blank"
    path.write_text(f"{jwt({'exp': 4_000_000_000})}\n")
    source = endpoint_source(config(path.as_uri()))
    assert source().expires_at == 4_000_000_000
    path.write_text("another")
    assert source().value == "another"
    path.write_text(f"{VALUE}\x01{VALUE}")
    assert "control character" in failing(source, AuthenticationError, VALUE)
    path.unlink()
    text = failing(source, NetworkError, VALUE)
    assert text.endswith(f"{str(path)!r} cannot be read: No such file or directory")


def test_no_representation_shows_a_secret() -> None:
    with endpoint(answering(200, body(access_token=VALUE))) as url:
        source = endpoint_source(by_secret(url))
        source()
    assert isinstance(source, object)
    shown = f"{source!r}{vars(source)}{vars(source)['_request'].__dict__}"
    assert not [secret for secret in HIDDEN if secret in shown]
