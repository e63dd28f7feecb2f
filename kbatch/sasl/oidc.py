"""Tokens for OAUTHBEARER from an OAuth 2.0 token endpoint or a file, by configuration alone.

After org.apache.kafka.common.security.oauthbearer: ClientCredentialsJwtRetriever, JwtBearerJwtRetriever and
FileJwtRetriever (KIP-768, KIP-1139, KIP-1258).
"""

import json
import ssl
import time
import urllib.request
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

from kbatch.config import ClientConfig
from kbatch.errors import AuthenticationError, ConfigError, NetworkError
from kbatch.errors.words import shown, shown_without, without_login
from kbatch.http_client import MAX_ANSWER_BYTES, HttpAnswer, HttpClient, credentials_in, is_https
from kbatch.sasl.assertions import Assertion, ReadAgain, assertion_source
from kbatch.sasl.tokens import Token
from kbatch.version import VERSION

URL_KEY = "sasl.oauthbearer.token.endpoint.url"
DEFAULT_TIMEOUT_MS = 10_000
HEADERS = {"Accept": "application/json", "Cache-Control": "no-cache", "User-Agent": f"kbatch/{VERSION}"}
SUCCESS = (200, 201)
# HttpJwtRetriever.UNRETRYABLE_HTTP_CODES, and redirects, which are not followed: they could take the secret
# to another host.
REFUSALS = frozenset((*range(300, 400), *range(400, 408), *range(409, 416), 501, 505))
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
CLIENT_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


def endpoint_source(config: ClientConfig) -> "FileTokens | TokenEndpoint":
    """Return what fetches tokens for sasl.oauthbearer.token.endpoint.url.

    Raises
    ------
    ConfigError
        If a file cannot be used, or the URL has a user name.
    """
    path = _path_of(config.sasl_oauthbearer_token_endpoint_url or "")
    return TokenEndpoint(config) if path is None else FileTokens(path)


def _path_of(url: str) -> str | None:
    """Return the path of a file URL; None for another."""
    parts = urlsplit(url)
    return urllib.request.url2pathname(parts.path) if parts.scheme.lower() == "file" else None


class FileTokens:
    """A token in a file, read again when the file changes."""

    def __init__(self, path: str) -> None:
        self._read = ReadAgain(URL_KEY, path, lambda data: Token(data.decode(errors="replace").strip()))

    def __call__(self) -> Token:
        return self._read()

    def close(self) -> None: ...


class TokenRequest:
    """Headers and body of a request. It has no representation, as both have secrets."""

    def __init__(self, headers: dict[str, str], form: dict[str, str], secret: str) -> None:
        self.headers = {**HEADERS, **headers}
        self.body = urlencode(form).encode()
        self._secret = secret

    def shown(self, words: str | None) -> str:
        """Return a server's words for an error: without the request's credentials, which may be an echo."""
        return shown_without([self._secret, *credentials_in(self.headers)], words)


def request_source(config: ClientConfig) -> Callable[[], TokenRequest]:
    """Return a function that makes the next request: for the grant, and with the proof, of the configuration.

    The client proves itself by an assertion if a key for one is set, else by its secret in the Authorization
    header (RFC 6749, section 2.3.1).
    """
    scope = (config.sasl_oauthbearer_scope or "").strip()
    client_id = (config.sasl_oauthbearer_client_credentials_client_id or "").strip()
    scoped = {"scope": scope} if scope else {}
    assertion = assertion_source(config)
    if assertion is None:
        return lambda: _with_secret(config, client_id, scoped)
    if config.sasl_oauthbearer_jwt_retriever_class.endswith("JwtBearerJwtRetriever"):
        return lambda: _with_assertion({"grant_type": JWT_BEARER}, "assertion", assertion(), scoped)
    form = {"grant_type": "client_credentials", "client_assertion_type": CLIENT_ASSERTION}
    if client_id:
        form["client_id"] = client_id
    return lambda: _with_assertion(form, "client_assertion", assertion(), scoped)


def _with_assertion(
    form: dict[str, str], name: str, assertion: Assertion, scoped: dict[str, str]
) -> TokenRequest:
    return TokenRequest({}, {**form, name: assertion.value, **scoped}, assertion.value)


def _with_secret(config: ClientConfig, client_id: str, scoped: dict[str, str]) -> TokenRequest:
    secret = config.sasl_oauthbearer_client_credentials_client_secret
    value = "" if secret is None else secret.value.strip()
    pair = [client_id, value]
    if config.sasl_oauthbearer_header_urlencode:
        pair = [quote_plus(part) for part in pair]
    headers = {"Authorization": f"Basic {b64encode(':'.join(pair).encode()).decode()}"}
    return TokenRequest(headers, {"grant_type": "client_credentials", **scoped}, value)


class TokenEndpoint:
    """A token endpoint, asked over HTTP by the thread that calls it.

    Redirects are not followed, answers are bounded, and the environment's proxies serve https. Certificates
    are checked against https.ca.location or https.ca.pem, or else the system's authorities.
    """

    def __init__(self, config: ClientConfig, now: Callable[[], float] = time.time) -> None:
        self._url = config.sasl_oauthbearer_token_endpoint_url or ""
        if urlsplit(self._url).username is not None:
            raise ConfigError(
                f"{URL_KEY} must not have a user name, got one before {without_login(self._url)}; set "
                "sasl.oauthbearer.client.credentials.client.id and .client.secret"
            )
        self._named = f"{URL_KEY} {without_login(self._url)}"
        self._subject_claim = config.sasl_oauthbearer_sub_claim_name
        self._next_request = request_source(config)
        if is_https(self._url):
            trusted_by(config)  # raises now rather than at the first login
        self._request = HttpClient(
            connect_seconds=(config.sasl_login_connect_timeout_ms or DEFAULT_TIMEOUT_MS) / 1000,
            read_seconds=(config.sasl_login_read_timeout_ms or DEFAULT_TIMEOUT_MS) / 1000,
            context=lambda: trusted_by(config),
        )
        self._now = now
        self.close = self._request.close

    def __call__(self) -> Token:
        """Return a new token.

        Raises
        ------
        AuthenticationError
            If the endpoint refuses, is not trusted, or answers with something else.
        NetworkError
            If it cannot be reached, is too slow, or has a fault of its own.
        """
        request = self._next_request()
        asked_at = self._now()
        came = self._request("POST", self._url, request.headers, request.body)
        answer = Answer(came.status, came.body, came.failure, came.distrust)
        if answer.failure is not None:
            raise NetworkError(f"{self._named} cannot be reached: {answer.failure}")
        if answer.distrust is not None:
            raise AuthenticationError(
                f"{self._named} has a certificate that was refused: {answer.distrust}; set https.ca.location "
                "to the certificates of its authority"
            )
        if answer.status not in SUCCESS:
            text = f"{self._named} answered {answer.status}{answer.reason(request.shown)}"
            raise (AuthenticationError if answer.status in REFUSALS else NetworkError)(text)
        token = answer.token(asked_at, self._subject_claim)
        if isinstance(token, str):
            raise AuthenticationError(f"{self._named} {token}")
        return token


class Answer(HttpAnswer):
    """A token endpoint's answer, or what came instead."""

    def reason(self, shown: Callable[[str], str] = shown) -> str:
        """Return the words for a refusal (RFC 6749, section 5.2), if there are any, each as `shown`."""
        if 300 <= self.status < 400:
            return ", a redirect, which is not followed; set the final URL"
        fields = self._fields()
        words = [fields.get(name) for name in ("error", "error_description", "errorCode", "errorSummary")]
        return "".join(f": {shown(word)}" for word in words if isinstance(word, str))

    def token(self, asked_at: float, subject_claim: str) -> Token | str:
        """Return the token, or what is wrong with the answer. Not raised: this frame has the token."""
        if len(self.body) > MAX_ANSWER_BYTES:
            return f"answered with more than {MAX_ANSWER_BYTES} bytes"
        fields = self._fields()
        value = fields.get("access_token") or fields.get("id_token")
        if not isinstance(value, str):
            return "answered without access_token or id_token; it must be a token endpoint (RFC 6749)"
        life = _seconds(fields.get("expires_in")) if fields.get("access_token") else None
        try:
            token = Token(value, None if life is None else asked_at + life)
            subject = token.claims().get(subject_claim)
            if isinstance(subject, str):
                token = Token(value, token.expires_at, principal=subject)
        except AuthenticationError as error:
            return f"answered with a token that cannot be sent: {error}"
        return token

    def _fields(self) -> dict[str, Any]:
        try:
            fields = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return fields if isinstance(fields, dict) else {}


def _seconds(expires_in: object) -> float | None:
    """Return a life in seconds; some endpoints write it as a string."""
    if isinstance(expires_in, str) and expires_in.isascii() and expires_in.isdecimal():
        expires_in = int(expires_in[:12])
    if isinstance(expires_in, bool) or not isinstance(expires_in, int | float) or not 0 < expires_in < 1e10:
        return None
    return float(expires_in)


def trusted_by(config: ClientConfig) -> ssl.SSLContext:
    """Return a context for https, with the authorities of the moment.

    Raises
    ------
    ConfigError
        If https.ca.location or https.ca.pem cannot be used.
    """
    location, pem = config.https_ca_location, config.https_ca_pem
    named = "https.ca.pem" if location is None else f"https.ca.location={location!r}"
    try:
        if location is None:
            return ssl.create_default_context(cadata=None if pem is None else pem.value)
        if Path(location).is_dir():
            return ssl.create_default_context(capath=location)
        return ssl.create_default_context(cafile=location)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{named} cannot be used: {error}; it must have certificates in PEM") from None
