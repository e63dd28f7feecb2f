"""The embedded broker's token endpoint over HTTP: tokens for its users, its key, and refusals."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

import pytest

from kbatch.testing import Broker
from tests.support.broker_wire import TIMEOUT_SECONDS

USER, PASSWORD = "ada:the first", "love + lace"
GRANT = {"grant_type": "client_credentials"}
IN_BODY = {"client_id": USER, "client_secret": PASSWORD}


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    users = {USER: PASSWORD}
    with Broker(listeners=[("SASL_PLAINTEXT", ["OAUTHBEARER"])], users=users) as broker:
        url = urlsplit(broker.token_endpoint_url)
        assert url.hostname is not None and url.port is not None
        assert url.path == "/token"
        yield url.hostname, url.port


def basic(user: str, password: str) -> dict[str, str]:
    """Return the header of HTTP Basic, as RFC 6749 has it."""
    pair = f"{quote_plus(user)}:{quote_plus(password)}"
    return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


def ask(
    address: tuple[str, int],
    form: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    method: str = "POST",
    path: str = "/token",
) -> tuple[int, dict[str, Any]]:
    """Return the status and the JSON of an answer."""
    connection = HTTPConnection(*address, timeout=TIMEOUT_SECONDS)
    body = None if form is None else urlencode(form)
    try:
        connection.request(method, path, body, dict(headers or {}))
        answer = connection.getresponse()
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.headers["Cache-Control"] == "no-store"
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def claims_of(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return claims


@pytest.mark.parametrize(
    ("form", "headers"),
    [(GRANT | IN_BODY, {}), (GRANT, basic(USER, PASSWORD))],
    ids=["in the body", "HTTP Basic"],
)
def test_user_gets_a_token_with_its_scope(
    address: tuple[str, int], form: dict[str, str], headers: dict[str, str]
) -> None:
    status, answer = ask(address, {**form, "scope": "events audit"}, headers)
    assert (status, answer["token_type"], answer["scope"]) == (200, "Bearer", "events audit")
    claims = claims_of(answer["access_token"])
    assert (claims["sub"], claims["scope"]) == (USER, "events audit")
    assert claims["exp"] - claims["iat"] == answer["expires_in"] == 3600


def test_key_is_published_as_a_key_set(address: tuple[str, int]) -> None:
    status, answer = ask(address, method="GET", path="/jwks")
    assert status == 200
    (key,) = answer["keys"]
    assert (key["kty"], key["alg"], key["use"]) == ("RSA", "RS256", "sig")


@pytest.mark.parametrize(
    ("form", "headers"),
    [
        (GRANT, {}),
        (GRANT | {"client_id": USER}, {}),
        (GRANT | {"client_id": USER, "client_secret": "wrong"}, {}),
        (GRANT | {"client_id": "eve", "client_secret": PASSWORD}, {}),
        (GRANT, basic(USER, "wrong")),
        (GRANT | IN_BODY, basic(USER, "wrong")),
        (GRANT, {"Authorization": "Basic no-base64"}),
        (GRANT, {"Authorization": "Bearer x"}),
    ],
)
def test_wrong_client_is_refused(
    address: tuple[str, int], form: dict[str, str], headers: dict[str, str]
) -> None:
    status, answer = ask(address, form, headers)
    assert (status, answer["error"]) == (401, "invalid_client")
    assert "access_token" not in answer


@pytest.mark.parametrize(
    ("method", "path", "form", "headers", "expected"),
    [
        ("POST", "/token", IN_BODY, {}, (400, "unsupported_grant_type")),
        ("POST", "/token", IN_BODY | {"grant_type": "password"}, {}, (400, "unsupported_grant_type")),
        ("GET", "/token", None, {}, (405, "invalid_request")),
        ("POST", "/jwks", GRANT, {}, (405, "invalid_request")),
        ("POST", "/other", GRANT, {}, (404, "invalid_request")),
        ("POST", "/token", None, {"Content-Length": str(1 << 30)}, (400, "invalid_request")),
        ("POST", "/token", None, {"Content-Length": "-1"}, (400, "invalid_request")),
    ],
)
def test_wrong_request_is_refused(
    address: tuple[str, int],
    method: str,
    path: str,
    form: dict[str, str] | None,
    headers: dict[str, str],
    expected: tuple[int, str],
) -> None:
    status, answer = ask(address, form, headers, method=method, path=path)
    assert (status, answer["error"]) == expected


@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n\r\n",
        b"\x16\x03\x01\x00\xf8\x01\r\n\r\n",
        b"POST /token HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"x" * 200_000,
        b"POST /token HTTP/1.1\r\nContent-Length: 2\r\n\r\n\xff\xfe",
    ],
    ids=["nothing", "TLS", "no length", "no end", "no UTF-8"],
)
def test_what_is_no_request_closes_only_its_connection(address: tuple[str, int], sent: bytes) -> None:
    with socket.create_connection(address, TIMEOUT_SECONDS) as client:
        client.sendall(sent)
        with suppress(ConnectionError):  # what it had not read yet makes the close a reset
            assert client.recv(1) == b""
    assert ask(address, GRANT | IN_BODY)[0] == 200
