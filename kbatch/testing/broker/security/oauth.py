"""OAUTHBEARER (RFC 7628, KIP-255): the broker's half, and the authorization server whose tokens it takes.

`TokenIssuer` has one key. It signs the tokens of `Broker.token` and of the token endpoint with RS256, and
publishes the key as a JWKS. Tokens are validated as Kafka's OAuthBearerValidatorCallbackHandler does, with
its clock skew of 30 s; tokens without a signature as its OAuthBearerUnsecuredValidatorCallbackHandler does.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import secrets
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.security.certificates import import_cryptography
from kbatch.testing.broker.security.scram import InvalidCredentialsError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

AUDIENCE = "kafka"
ISSUER = "https://issuer.kbatch.test"
CLOCK_SKEW_MS = 30_000  # sasl.oauthbearer.clock.skew.seconds
KEY_BITS = 2048
MAX_SECONDS = 1 << 40
_SASL_NAME = r"(?:[^\x00=,]|=2C|=3D)+"
CLIENT_RESPONSE = re.compile(
    rf"n,(?:a=(?P<authzid>{_SASL_NAME}))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
BEARER = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +(?P<token>[-_~+/.A-Za-z0-9]+=*)")
INVALID_TOKEN = '{"status":"invalid_token"}'  # all that Kafka tells the client


class InvalidTokenError(Exception):
    """A token is not accepted; the text says why, in the broker's log only."""


class TokenIssuer:
    """An authorization server without sockets."""

    key_id = "kbatch"

    @cached_property
    def _key(self) -> RSAPrivateKey:
        """Return the key that signs, made when it is first needed."""
        import_cryptography("OAUTHBEARER")
        from cryptography.hazmat.primitives.asymmetric import rsa

        return rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)

    def prepare(self) -> None:
        """Make the key, which takes some 50 ms."""
        assert self._key

    def token(
        self, user: str, lifetime_ms: int, now_ms: int, *, unsecured: bool = False, claims: Mapping[str, Any]
    ) -> str:
        """Return a token of `user`; `claims` are added, or replace the usual ones of the same names."""
        issued = now_ms // 1000
        usual = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": user,
            "iat": issued,
            "exp": issued + lifetime_ms // 1000 if lifetime_ms % 1000 == 0 else (now_ms + lifetime_ms) / 1000,
            "jti": secrets.token_hex(16),
        }
        body = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        if unsecured:
            return f"{_encoded({'alg': 'none'})}.{_encoded(body)}."
        head = {"alg": "RS256", "typ": "JWT", "kid": self.key_id}
        signed = f"{_encoded(head)}.{_encoded(body)}"
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import padding

        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_base64(signature)}"

    def jwks(self) -> dict[str, Any]:
        """Return the public key as a JSON Web Key Set (RFC 7517)."""
        numbers = self._key.public_key().public_numbers()
        return {
            "keys": [
                {
                    "kty": "RSA",
                    "use": "sig",
                    "alg": "RS256",
                    "kid": self.key_id,
                    "n": _base64(numbers.n.to_bytes(KEY_BITS // 8, "big")),
                    "e": _base64(numbers.e.to_bytes(3, "big")),
                }
            ]
        }

    def validate(self, token: str, now_ms: int) -> tuple[str, int]:
        """Return a signed token's (user, time of expiry in ms); raises InvalidTokenError."""
        head, claims, signed, signature = _parts(token)
        if head.get("alg") != "RS256" or head.get("kid", self.key_id) != self.key_id:
            raise InvalidTokenError(f"not signed with RS256 by the key {self.key_id!r}")
        self._verify(signed, signature)
        if claims.get("iss") != ISSUER:
            raise InvalidTokenError(f"iss must be {ISSUER!r}, got {claims.get('iss')!r}")
        audience = claims.get("aud")
        if AUDIENCE not in (audience if isinstance(audience, list) else [audience]):
            raise InvalidTokenError(f"aud must have {AUDIENCE!r}, got {audience!r}")
        issued, expiry = _time(claims, "iat"), _time(claims, "exp")
        if issued is None or expiry is None:
            raise InvalidTokenError("iat and exp are needed")
        if now_ms - CLOCK_SKEW_MS >= expiry:
            raise InvalidTokenError("expired")
        not_before = _time(claims, "nbf")
        if not_before is not None and now_ms + CLOCK_SKEW_MS < not_before:
            raise InvalidTokenError("not valid yet")
        return _subject(claims), expiry

    def _verify(self, signed: bytes, signature: bytes) -> None:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import padding

        try:
            self._key.public_key().verify(signature, signed, padding.PKCS1v15(), hashes.SHA256())
        except InvalidSignature as error:
            raise InvalidTokenError("the signature is wrong") from error


def validate_unsecured(token: str, now_ms: int) -> tuple[str, int]:
    """Return an unsigned token's (user, time of expiry in ms); raises InvalidTokenError."""
    head, claims, _, signature = _parts(token)
    if head.get("alg") != "none" or signature:
        raise InvalidTokenError("an unsecured token has the algorithm none and no signature")
    user, issued, expiry = _subject(claims), _time(claims, "iat"), _time(claims, "exp")
    if expiry is None or now_ms >= expiry:
        raise InvalidTokenError("expired, or without exp")
    if issued is not None and (issued > now_ms or issued >= expiry):
        raise InvalidTokenError("iat is after now or exp")
    return user, expiry


class OauthExchange:
    """One login. `user` is set when the token was valid, `expires_ms` to its expiry."""

    is_by_token = False

    def __init__(self, validate: Callable[[str, int], tuple[str, int]], now_ms: int) -> None:
        self.user: str | None = None
        self.expires_ms: int | None = None
        self._validate = validate
        self._now_ms = now_ms
        self._is_refused = False

    def step(self, token: bytes) -> bytes:
        """Return nothing, or the error as JSON, which the client answers with one byte 1."""
        if self._is_refused and token == b"\x01":
            raise BrokerError(ErrorCode.SASL_AUTHENTICATION_FAILED, INVALID_TOKEN)
        self._is_refused = False
        message = CLIENT_RESPONSE.fullmatch(token.decode(errors="replace"))
        pairs = dict(pair.split("=", 1) for pair in message["pairs"].split("\x01")[:-1]) if message else {}
        bearer = BEARER.fullmatch(pairs.pop("auth", ""))
        if message is None or bearer is None:
            raise InvalidCredentialsError("invalid OAUTHBEARER client response")
        try:
            user, expires_ms = self._validate(bearer["token"], self._now_ms)
        except InvalidTokenError:
            self._is_refused = True
            return INVALID_TOKEN.encode()
        if message["authzid"] not in (None, user):
            raise BrokerError(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                f"Authentication failed: Client requested an authorization id ({message['authzid']}) that is "
                f"different from the token's principal name ({user})",
            )
        self.user, self.expires_ms = user, expires_ms
        return b""


def _parts(token: str) -> tuple[dict[str, Any], dict[str, Any], bytes, bytes]:
    """Return (header, claims, what is signed, signature)."""
    pieces = token.split(".")
    if len(pieces) != 3:
        raise InvalidTokenError("a JWT has three parts")
    try:
        head, claims = (json.loads(_decoded(piece)) for piece in pieces[:2])
        signature = _decoded(pieces[2])
    except (ValueError, binascii.Error, RecursionError) as error:
        raise InvalidTokenError("a JWT's parts are Base64 of JSON") from error
    if not isinstance(head, dict) or not isinstance(claims, dict):
        raise InvalidTokenError("a JWT's header and claims are JSON objects")
    return head, claims, f"{pieces[0]}.{pieces[1]}".encode(), signature


def _time(claims: Mapping[str, Any], name: str) -> int | None:
    seconds = claims.get(name)
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or abs(seconds) > MAX_SECONDS:
        raise InvalidTokenError(f"{name} must be a number of seconds")
    return int(seconds * 1000)


def _subject(claims: Mapping[str, Any]) -> str:
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject.strip():
        raise InvalidTokenError("sub must be a text")
    return subject


def _encoded(value: object) -> str:
    return _base64(json.dumps(value).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
