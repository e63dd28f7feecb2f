"""The HTTP side of the authorization server: a token endpoint (RFC 6749) and a JWKS, on the broker's loop.

    POST /token   grant_type=client_credentials; the client by HTTP Basic or in the body; scope is passed on
    GET  /jwks    the key that signs

Clients are the broker's `users`. A request is answered, and its connection closed.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlsplit

from kbatch.testing.broker.security.oauth import TokenIssuer

LIFETIME_SECONDS = 3600
MAX_BODY_BYTES = 1 << 20
REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed"}
Answer = tuple[int, dict[str, Any]]


class TokenEndpoint:
    """The two addresses, for clients that log in by OAUTHBEARER with an id and a secret."""

    def __init__(
        self, issuer: TokenIssuer, users: Mapping[str, str], now_ms: Callable[[], int], port: int
    ) -> None:
        self.port = port
        self._issuer = issuer
        self._users = users
        self._now_ms = now_ms
        self._server: asyncio.Server | None = None

    async def start(self, host: str) -> None:
        """Listen on the port, a free one if it is 0; raises OSError."""
        self._server = await asyncio.start_server(self._serve, host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            status, answer = await self._answer(reader)
            data = json.dumps(answer).encode()
            head = f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: application/json\r\n"
            head += f"Content-Length: {len(data)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
            writer.write(head.encode() + data)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass  # the client has gone, or does not speak HTTP
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> Answer:
        request_line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
        method, target, _ = request_line.split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        path = urlsplit(target).path
        if path == "/jwks":
            return (200, self._issuer.jwks()) if method == "GET" else _refusal(405, "invalid_request")
        if path != "/token":
            return _refusal(404, "invalid_request")
        if method != "POST":
            return _refusal(405, "invalid_request")
        size = int(headers.get("content-length", 0))
        if not 0 <= size <= MAX_BODY_BYTES:
            return _refusal(400, "invalid_request")
        form = {
            name: values[0] for name, values in parse_qs((await reader.readexactly(size)).decode()).items()
        }
        return self._token(form, headers.get("authorization", ""))

    def _token(self, form: Mapping[str, str], authorization: str) -> Answer:
        if form.get("grant_type") != "client_credentials":
            return _refusal(400, "unsupported_grant_type")
        user, secret = _basic(authorization) or (form.get("client_id", ""), form.get("client_secret", ""))
        if not user or self._users.get(user) != secret:
            return _refusal(401, "invalid_client")
        claims = {"scope": form["scope"]} if "scope" in form else {}
        token = self._issuer.token(user, LIFETIME_SECONDS * 1000, self._now_ms(), claims=claims)
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": LIFETIME_SECONDS, **claims}


def _basic(authorization: str) -> tuple[str, str] | None:
    """Return (client id, secret) of HTTP Basic; they are URL-encoded in RFC 6749, but not by all clients."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, _, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return unquote_plus(user), unquote_plus(secret)


def _refusal(status: int, error: str) -> Answer:
    return status, {"error": error, "error_description": "refused by the embedded broker"}
