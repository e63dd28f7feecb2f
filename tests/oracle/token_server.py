"""A token endpoint with its JWKS, on loopback: an OIDC provider for a Kafka client and its broker.

`POST /token` takes client_credentials by Basic or in the body (RFC 6749), by a client assertion (RFC 7523,
KIP-1258), and the jwt-bearer grant (KIP-1139). `GET /jwks` has the keys by `kid` (RFC 7517).
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import ssl
import threading
import time
import uuid
from collections import deque
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs, unquote_plus, urlsplit

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from tests.support.secrets import register, register_pem

HOST = "127.0.0.1"
ISSUER, AUDIENCE = "http://127.0.0.1/issuer", "kafka"
LIFETIME_SECONDS = 3600


class Fault(NamedTuple):
    """A replaced response: its status and its delay."""

    status: int
    delay_seconds: float


class TokenCall(NamedTuple):
    """A request for a token; `way` is how the client proved itself: basic, body or assertion."""

    grant_type: str
    scope: str | None
    way: str


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def signed_jwt(claims: Mapping[str, object], key: rsa.RSAPrivateKey, key_id: str = "client") -> str:
    header = {"alg": "RS256", "typ": "JWT", "kid": key_id}
    text = ".".join(encoded(json.dumps(part).encode()) for part in (header, claims))
    signature = encoded(key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))
    register(signature)
    return f"{text}.{signature}"


def unsecured_jwt(subject: str, lifetime_seconds: float = LIFETIME_SECONDS) -> str:
    """Return a token without a signature, which KIP-255's default validator takes."""
    now = time.time()
    claims = {"sub": subject, "iat": now - 5, "exp": now + lifetime_seconds}
    parts = ({"alg": "none"}, claims)
    return "".join(encoded(json.dumps(part).encode()) + "." for part in parts)


class TokenServer:
    """The endpoint, from entering the context to its end.

    Parameters
    ----------
    clients : Mapping[str, str]
        Secrets by client id; the subject of a token is its client.
    context : ssl.SSLContext
        For the same by https, at `secure_url`.
    """

    def __init__(self, clients: Mapping[str, str], context: ssl.SSLContext) -> None:
        self.calls: list[TokenCall] = []
        self.assertion_key = new_key()
        self.assertion_ec_key = ec.generate_private_key(ec.SECP256R1())
        self.faults: deque[Fault] = deque()
        self.lifetime_seconds = LIFETIME_SECONDS
        self._clients = clients
        self._keys: list[tuple[str, rsa.RSAPrivateKey]] = []
        self.rotate()
        server = self

        class Handler(_Handler):
            token_server = server

        self._http, self._https = (ThreadingHTTPServer((HOST, 0), Handler) for _ in range(2))
        # Handshakes are for the threads of connections, so that a client that fails stops no others.
        self._https.socket = context.wrap_socket(
            self._https.socket, server_side=True, do_handshake_on_connect=False
        )

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._http.server_address[1]}"

    @property
    def secure_url(self) -> str:
        return f"https://localhost:{self._https.server_address[1]}"

    def __enter__(self) -> Self:
        for server in (self._http, self._https):
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, name="token server", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in (self._http, self._https):
            server.shutdown()
            server.server_close()

    def rotate(self) -> None:
        """Sign with a new key from now on; the old ones stay in the JWKS."""
        self._keys.append((uuid.uuid4().hex, new_key()))

    def fail(self, status: int, times: int = 1, *, delay_seconds: float = 0.0) -> None:
        """Answer the next requests for a token with a status, late; 200 is the token itself."""
        self.faults.extend([Fault(status, delay_seconds)] * times)

    def token(self, subject: str, lifetime_seconds: float | None = None, **claims: object) -> str:
        """Return a signed token."""
        now = time.time()
        life = self.lifetime_seconds if lifetime_seconds is None else lifetime_seconds
        given: dict[str, object] = {"iss": ISSUER, "aud": AUDIENCE, "sub": subject, "jti": uuid.uuid4().hex}
        given |= {"iat": int(now - max(0, -life)), "exp": math.ceil(now + life)}
        key_id, key = self._keys[-1]
        return signed_jwt(given | claims, key, key_id)

    def assertion(self, subject: str) -> str:
        """Return what `subject` proves itself with."""
        now = int(time.time())
        claims = {"sub": subject, "iss": subject, "aud": self.url, "iat": now, "exp": now + LIFETIME_SECONDS}
        return signed_jwt(claims, self.assertion_key)

    def assertion_key_pem(self) -> bytes:
        pem = self.assertion_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        register_pem(pem)
        return pem

    def jwks(self) -> dict[str, object]:
        return {"keys": [_jwk(key_id, key) for key_id, key in self._keys]}

    def granted(self, form: Mapping[str, str], authorization: str | None) -> tuple[int, dict[str, object]]:
        """Return the status and body for a request."""
        assertion = form.get("assertion") or form.get("client_assertion")
        way = "assertion" if assertion else "basic" if authorization else "body"
        self.calls.append(TokenCall(form.get("grant_type", ""), form.get("scope"), way))
        subject = self._asserted(assertion) if assertion else self._known(form, authorization)
        if subject is None:
            return 401, {"error": "invalid_client", "error_description": "unknown client, or a wrong secret"}
        token = self.token(subject, scope=form.get("scope", "produce"))
        life = int(self.lifetime_seconds)
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": life}

    def _known(self, form: Mapping[str, str], authorization: str | None) -> str | None:
        name, secret = form.get("client_id", ""), form.get("client_secret", "")
        if authorization:
            name, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        # RFC 6749 encodes the parts of Basic; clients differ, so that both forms are taken.
        is_known = self._clients.get(name) in (secret, unquote_plus(secret)) if secret else False
        return name if is_known else None

    def _asserted(self, assertion: str) -> str | None:
        head, body, signature = assertion.split(".")
        verify = {"RS256": self._verify_rs256, "ES256": self._verify_es256}[json.loads(decoded(head))["alg"]]
        try:
            verify(decoded(signature), f"{head}.{body}".encode())
        except InvalidSignature:
            return None
        claims = json.loads(decoded(body))
        return str(claims["sub"]) if claims["exp"] > time.time() else None

    def _verify_rs256(self, signature: bytes, signed: bytes) -> None:
        public = self.assertion_key.public_key()
        public.verify(signature, signed, padding.PKCS1v15(), hashes.SHA256())

    def _verify_es256(self, signature: bytes, signed: bytes) -> None:
        """RFC 7518, section 3.4: two numbers of 32 bytes."""
        if len(signature) != 64:
            raise InvalidSignature
        numbers = (int.from_bytes(half, "big") for half in (signature[:32], signature[32:]))
        public = self.assertion_ec_key.public_key()
        public.verify(encode_dss_signature(*numbers), signed, ec.ECDSA(hashes.SHA256()))


def _jwk(key_id: str, key: rsa.RSAPrivateKey) -> dict[str, str]:
    public = key.public_key().public_numbers()
    numbers = {
        name: encoded(number.to_bytes((number.bit_length() + 7) // 8, "big"))
        for name, number in (("n", public.n), ("e", public.e))
    }
    return {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": key_id, **numbers}


class _Handler(BaseHTTPRequestHandler):
    token_server: TokenServer
    protocol_version = "HTTP/1.1"

    def handle(self) -> None:
        with contextlib.suppress(ssl.SSLError, ConnectionError):  # of clients that do not trust it
            super().handle()

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        is_jwks = urlsplit(self.path).path == "/jwks"
        self._answer(200 if is_jwks else 404, self.token_server.jwks() if is_jwks else {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        if urlsplit(self.path).path != "/token":
            self._answer(404, {})
            return
        faults = self.token_server.faults
        fault = faults.popleft() if faults else Fault(200, 0.0)
        time.sleep(fault.delay_seconds)
        if fault.status != 200:
            self._answer(fault.status, {"error": "temporarily_unavailable", "error_description": "a fault"})
            return
        form = {name: values[0] for name, values in parse_qs(body).items()}
        self._answer(*self.token_server.granted(form, self.headers.get("Authorization")))

    def _answer(self, status: int, value: Mapping[str, object]) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
