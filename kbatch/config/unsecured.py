"""Unsecured tokens of OAUTHBEARER, for tests: JSON Web Tokens without a signature (KIP-255, RFC 7515, A.5).

After Kafka's OAuthBearerUnsecuredLoginCallbackHandler and librdkafka's rd_kafka_oauthbearer_unsecured_token0.
"""

import json
import logging
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import NamedTuple

from kbatch.errors import ConfigError

logger = logging.getLogger(__name__)

HEADER = {"alg": "none"}
RESERVED = ("iat", "exp")
LIFETIME_SECONDS = "3600"


class UnsecuredToken(NamedTuple):
    """A source of tokens: called without arguments, it returns a new one.

    Attributes
    ----------
    claims : tuple of (str, object)
        All claims but iat and exp, with JSON values; lists are tuples.
    lifetime_seconds : int
        The time from iat to exp.
    """

    claims: tuple[tuple[str, object], ...]
    lifetime_seconds: int

    def __call__(self) -> str:
        now = int(time.time())
        claims = dict(self.claims) | {"iat": now, "exp": now + self.lifetime_seconds}
        parts = (json.dumps(part).encode() for part in (HEADER, claims))
        return ".".join([urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts]) + "."

    @staticmethod
    def of_jaas(options: Mapping[str, str]) -> tuple["UnsecuredToken", dict[str, str]]:
        """Return the source, and the extensions, of JAAS options without their prefix unsecuredLogin.

        Raises
        ------
        ConfigError
            For unknown options, reserved claims, numbers that are none, and a missing principal.
        """
        claims: dict[str, object] = {}
        extensions: dict[str, str] = {}
        principal_claim = options.get("PrincipalClaimName", "sub")
        lifetime = options.get("LifetimeSeconds", LIFETIME_SECONDS)
        for name, text in options.items():
            kind, _, claim = name.partition("_")
            if kind == "Extension":
                extensions[claim] = text
            elif kind == "StringClaim":
                claims[claim] = text
            elif kind == "NumberClaim":
                claims[claim] = _number(name, text)
            elif kind == "ListClaim":  # the first character is the separator
                claims[claim] = tuple(text[1:].split(text[:1])) if text else ()
            elif name not in ("PrincipalClaimName", "LifetimeSeconds", "ScopeClaimName"):
                raise ConfigError(
                    "sasl.jaas.config has an unknown option of unsecured tokens; they are unsecuredLogin and "
                    "StringClaim_, NumberClaim_, ListClaim_, Extension_, PrincipalClaimName, ScopeClaimName "
                    "or LifetimeSeconds"
                )
        needed = f"unsecuredLoginStringClaim_{principal_claim} in sasl.jaas.config"
        return _token(claims, principal_claim, lifetime, needed), extensions

    @staticmethod
    def of_text(text: str) -> tuple["UnsecuredToken", dict[str, str]]:
        """Return the source, and the extensions, of librdkafka's sasl.oauthbearer.config.

        Raises
        ------
        ConfigError
            For a text that is not name=value, with blanks between, of the names that librdkafka has.
        """
        pairs = {name: value for name, _, value in (word.partition("=") for word in text.split())}
        extensions = {
            name.removeprefix("extension_"): pairs.pop(name)
            for name in list(pairs)
            if name.startswith("extension_")
        }
        principal_claim = pairs.pop("principalClaimName", "sub")
        scope_claim = pairs.pop("scopeClaimName", "scope")
        lifetime = pairs.pop("lifeSeconds", LIFETIME_SECONDS)
        claims: dict[str, object] = {}
        if principal := pairs.pop("principal", ""):
            claims[principal_claim] = principal
        if scope := pairs.pop("scope", ""):
            claims[scope_claim] = tuple(scope.split(","))
        if pairs:
            raise ConfigError(
                "sasl.oauthbearer.config has an unknown name; an unsecured token has principal, "
                "principalClaimName, scope, scopeClaimName, lifeSeconds and extension_NAME, each with =value"
            )
        return _token(claims, principal_claim, lifetime, "principal in sasl.oauthbearer.config"), extensions


def _token(claims: Mapping[str, object], principal_claim: str, lifetime: str, needed: str) -> UnsecuredToken:
    if not claims.get(principal_claim):
        raise ConfigError(f"an unsecured token needs {needed}; set it to the user's name")
    if any(name in claims for name in RESERVED):
        raise ConfigError("an unsecured token sets iat and exp itself; leave these claims out")
    if not lifetime.isdecimal() or int(lifetime) == 0:
        raise ConfigError("an unsecured token's life must be a whole number of seconds above 0")
    logger.warning("OAUTHBEARER uses an unsecured token, which anyone can make: for tests only")
    return UnsecuredToken(tuple(claims.items()), int(lifetime))


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"unsecuredLogin{name} in sasl.jaas.config must be a number") from None
