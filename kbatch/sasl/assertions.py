"""JWTs by which a client proves itself to a token endpoint (RFC 7523): from a file, or signed by PyJWT.

After org.apache.kafka.common.security.oauthbearer.internals.secured.assertion (KIP-1139, KIP-1258).
"""

import binascii
import json
import time
import uuid
from base64 import b64decode
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kbatch.config import ClientConfig, Password
from kbatch.distribution import pip_install
from kbatch.errors import AuthenticationError, ConfigError, KafkaError, NetworkError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

T = TypeVar("T")

ASSERTION = "sasl.oauthbearer.assertion"
PEM_BEGIN = b"-----BEGIN"


class ReadAgain(Generic[T]):
    """What a file has, read again when the file changes.

    Parameters
    ----------
    key : str
        The configuration key of the file, for errors.
    path : str
    parse : callable
        Makes the value of the bytes; raises AuthenticationError.
    """

    def __init__(self, key: str, path: str, parse: Callable[[bytes], T]) -> None:
        self._named = f"{key}={path!r}"
        self._path = Path(path)
        self._parse = parse
        self._seen: tuple[int, int, int] | None = None
        self._value: T

    def __call__(self) -> T:
        """Return the value. Raise NetworkError if the file cannot be read, as in the middle of a rotation."""
        fault: KafkaError | None = None
        try:
            state = self._path.stat()
            seen = (state.st_mtime_ns, state.st_size, state.st_ino)
            if seen != self._seen:
                self._value = self._parse(self._path.read_bytes())
                self._seen = seen
        except OSError as error:
            fault = NetworkError(f"{self._named} cannot be read: {error.strerror or error}")
        except AuthenticationError as error:
            fault = AuthenticationError(f"{self._named}: {error}")
        if fault is not None:
            raise fault  # from here, without the frames that have the bytes
        return self._value


class Assertion:
    """A JWT that proves the client. It has no representation."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value


def assertion_source(config: ClientConfig) -> Callable[[], Assertion] | None:
    """Return a function that returns an assertion for a request, or None if no key asks for assertions.

    Raises
    ------
    ConfigError
        If a file cannot be used, or `cryptography` or PyJWT is not installed.
    """
    if config.sasl_oauthbearer_assertion_file is not None:
        source: Callable[[], Assertion] = ReadAgain(
            f"{ASSERTION}.file", config.sasl_oauthbearer_assertion_file, _assertion_of
        )
    else:
        key = _key_source(config)
        if key is None:
            return None
        source = SignedAssertions(key, config)
    try:
        source()
    except (AuthenticationError, NetworkError) as error:
        raise ConfigError(str(error)) from None
    return source


def _assertion_of(data: bytes) -> Assertion:
    text = data.decode(errors="replace").strip()
    if not text.isascii() or len(text.split()) != 1:
        raise AuthenticationError("it must have one JWT and nothing else")
    return Assertion(text)


class SignedAssertions:
    """Assertions with a private key's signature.

    Claims of the keys sasl.oauthbearer.assertion.claim.* come first, then those of the template file, which
    replace them, then the times and the algorithm, as in Java's LayeredAssertionJwtTemplate.
    """

    def __init__(
        self,
        key: "Callable[[], PrivateKeyTypes]",
        config: ClientConfig,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._key = key
        self._algorithm = config.sasl_oauthbearer_assertion_algorithm
        self._life_seconds = config.sasl_oauthbearer_assertion_claim_exp_seconds
        self._age_seconds = config.sasl_oauthbearer_assertion_claim_nbf_seconds
        self._has_id = config.sasl_oauthbearer_assertion_claim_jti_include
        self._now = now
        claims = {
            "aud": config.sasl_oauthbearer_assertion_claim_aud,
            "iss": config.sasl_oauthbearer_assertion_claim_iss,
            "sub": config.sasl_oauthbearer_assertion_claim_sub,
        }
        self._claims = {name: value for name, value in claims.items() if value is not None}
        template = config.sasl_oauthbearer_assertion_template_file
        self._template: Callable[[], Mapping[str, Any]] = (
            dict if template is None else ReadAgain(f"{ASSERTION}.template.file", template, _template_of)
        )

    def __call__(self) -> Assertion:
        template = self._template()
        now = int(self._now())
        header = {**template.get("header", {}), "alg": self._algorithm, "typ": "JWT"}
        claims = {**self._claims, **template.get("payload", {})}
        claims |= {"iat": now, "exp": now + self._life_seconds, "nbf": now - self._age_seconds}
        if self._has_id:
            claims["jti"] = str(uuid.uuid4())
        return self._signed(header, claims)

    def _signed(self, header: dict[str, Any], claims: dict[str, Any]) -> Assertion:
        from jwt import PyJWTError, encode

        key = _fitting(self._algorithm, self._key())
        try:
            return Assertion(encode(claims, key, self._algorithm, header))
        except (PyJWTError, TypeError) as error:  # the template has an "iss" or "kid" that is no string
            text = f"{ASSERTION}.template.file: {error}"
        raise AuthenticationError(text)  # from here, without the frames that have the key


def _template_of(data: bytes) -> Mapping[str, Any]:
    try:
        template = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise AuthenticationError(f"it must be JSON: {error}") from None
    is_object = isinstance(template, dict)
    if not is_object or not all(isinstance(template.get(part, {}), dict) for part in ("header", "payload")):
        raise AuthenticationError('it must be a JSON object with the objects "header" and "payload"')
    return dict(template)


# Keys, by `cryptography`


def _fitting(algorithm: str, key: "PrivateKeyTypes") -> "RSAPrivateKey | EllipticCurvePrivateKey":
    """Return the key. Raise AuthenticationError if it is not of the algorithm, RS256 or ES256 (RFC 7518)."""
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    if algorithm == "RS256" and isinstance(key, RSAPrivateKey):
        return key
    if algorithm == "ES256" and isinstance(key, EllipticCurvePrivateKey) and isinstance(key.curve, SECP256R1):
        return key
    needed = {"RS256": "an RSA key", "ES256": "an elliptic curve key on P-256"}[algorithm]
    raise AuthenticationError(
        f"{ASSERTION}.algorithm={algorithm} needs {needed}, got {type(key).__name__}; set the key or the "
        "algorithm that fits"
    )


def _key_source(config: ClientConfig) -> "Callable[[], PrivateKeyTypes] | None":
    """Return a function that returns the private key, read again when its file changes."""
    path = config.sasl_oauthbearer_assertion_private_key_file
    pem = config.sasl_oauthbearer_assertion_private_key_pem
    if path is None and pem is None:
        return None
    try:
        import cryptography  # noqa: F401
        import jwt  # noqa: F401
    except ImportError:
        raise ConfigError(
            f"{ASSERTION}.private.key needs the packages cryptography and PyJWT; {pip_install('oauth')}"
        ) from None
    passphrase = config.sasl_oauthbearer_assertion_private_key_passphrase
    if path is not None:
        return ReadAgain(f"{ASSERTION}.private.key.file", path, lambda data: _private_key(data, passphrase))
    if pem is not None:
        try:
            key = _private_key(pem.value.encode(), passphrase)
        except AuthenticationError as error:
            raise ConfigError(f"{ASSERTION}.private.key.pem: {error}") from None
    return lambda: key


def _private_key(data: bytes, passphrase: Password | None) -> "PrivateKeyTypes":
    """Return a key from PEM or DER, or from the base64 of DER without PEM's lines, which Java reads."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_der_private_key, load_pem_private_key

    load = load_pem_private_key
    if PEM_BEGIN not in data:
        load = load_der_private_key
        with suppress(binascii.Error):  # if it is DER itself
            data = b64decode(b"".join(data.split()), validate=True)
    try:
        return load(data, None if passphrase is None else passphrase.value.encode())
    except (TypeError, ValueError, UnsupportedAlgorithm):
        pass  # the error is raised without the library's frames, which have the key
    del data
    raise AuthenticationError(
        "it is not a private key in PEM, or the passphrase does not fit; "
        f"{ASSERTION}.private.key.passphrase must be set if, and only if, the key is encrypted"
    )
