"""Access tokens for OAUTHBEARER, and the SASL extensions that travel with them."""

import json
import math
import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, final

from kbatch.config.values import EXTENSION_NAME, EXTENSION_VALUE
from kbatch.errors import AuthenticationError
from kbatch.errors.words import shown

# Seconds since 1970 have eleven digits until the year 5138; milliseconds have had twelve since 1973.
MAX_EXPIRES_AT = 1e11
CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@final
class Token:
    """An access token for OAUTHBEARER, which no representation shows.

    Parameters
    ----------
    value : str
        The token as the broker gets it. Its form is not checked: not every provider's is a JWT.
    expires_at : float or datetime, optional
        The end of its life: seconds since 1970 (UTC), or a datetime with a time zone. The default is the
        claim `exp` of a JWT. A token without an end is requested again for each authentication.
    extensions : Mapping[str, str], optional
        SASL extensions (KIP-342), for example logicalCluster and identityPoolId.
    principal : str, optional
        The name of the principal, for logs.

    Attributes
    ----------
    expires_at : float | None
        The end of its life, in seconds since 1970 (UTC).

    Raises
    ------
    AuthenticationError
        If the value is empty or has a control character, `expires_at` is not a time in seconds, or RFC 7628
        does not allow an extension.
    """

    __slots__ = ("_value", "expires_at", "extensions", "principal")

    def __init__(
        self,
        value: str,
        expires_at: float | datetime | None = None,
        extensions: Mapping[str, str] | None = None,
        principal: str | None = None,
    ) -> None:
        self._value = value
        del value  # reports of errors show the locals of frames
        self.principal = principal
        self.expires_at: float | None = None
        self._check()
        self.extensions = MappingProxyType(_checked(extensions))
        self.expires_at = self._claimed_expiry() if expires_at is None else _seconds(expires_at)

    @property
    def value(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return f"Token([hidden], expires_at={self.expires_at!r}, principal={self.principal!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Token, (self._value, self.expires_at, dict(self.extensions), self.principal)

    def _check(self) -> None:
        if not isinstance(self.principal, str | None):
            raise AuthenticationError(f"a principal must be a str, got {type(self.principal).__name__}")
        if not isinstance(self._value, str):
            raise AuthenticationError(f"a token must be a str, got {type(self._value).__name__}")
        if not self._value:
            raise AuthenticationError("the token is empty; return the value of an access token")
        if (control := CONTROL.search(self._value)) is not None:
            raise AuthenticationError(
                f"the token has a control character at index {control.start()} of {len(self._value)}; strip "
                "line ends and other control characters"
            )
        if any("\ud800" <= letter <= "\udfff" for letter in self._value):
            raise AuthenticationError("the token has a lone surrogate, which UTF-8 cannot encode; remove it")

    def _claimed_expiry(self) -> float | None:
        """Return the claim `exp`, if the token is a JWT with one."""
        expiry = self.claims().get("exp")
        if isinstance(expiry, bool) or not isinstance(expiry, int | float):
            return None
        return float(expiry) if 0 < expiry < MAX_EXPIRES_AT else None

    def claims(self) -> Mapping[str, Any]:
        """Return the claims of a JWT, which nothing has verified; none if the token is not a JWT."""
        parts = self._value.split(".")
        if len(parts) != 3:
            return {}
        try:
            claims = json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        except (ValueError, RecursionError):
            return {}
        return claims if isinstance(claims, dict) else {}


def _checked(extensions: Mapping[Any, Any] | None) -> dict[str, str]:
    """Return extensions that RFC 7628 allows. Raise AuthenticationError for others."""
    if extensions is None:
        return {}
    if not isinstance(extensions, Mapping):
        raise AuthenticationError(
            f"extensions of a token must be a mapping of str to str, got {type(extensions).__name__}"
        )
    for key, value in extensions.items():
        if not isinstance(key, str) or not EXTENSION_NAME.fullmatch(key):
            raise AuthenticationError(
                f"extensions of a token must have keys of letters only, but not auth, got {shown(repr(key))}"
            )
        if not isinstance(value, str) or not EXTENSION_VALUE.fullmatch(value):
            raise AuthenticationError(
                f"extensions of a token must have values of printable ASCII characters; that of {key} has not"
            )
    return dict(extensions)


def _seconds(expires_at: object) -> float:
    """Return an expiry in seconds since 1970."""
    if isinstance(expires_at, datetime):
        if expires_at.tzinfo is None:
            raise AuthenticationError(
                f"expires_at must have a time zone, got {expires_at.isoformat()}; call "
                "replace(tzinfo=timezone.utc) if it is UTC"
            )
        return expires_at.timestamp()
    if isinstance(expires_at, bool) or not isinstance(expires_at, int | float):
        raise AuthenticationError(
            f"expires_at must be seconds since 1970 or a datetime, got {type(expires_at).__name__}"
        )
    if not math.isfinite(expires_at) or expires_at >= MAX_EXPIRES_AT:
        raise AuthenticationError(
            f"expires_at must be seconds since 1970, got {expires_at}; divide milliseconds by 1000"
        )
    return float(expires_at)
