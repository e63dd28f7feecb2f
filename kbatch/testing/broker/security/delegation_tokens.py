"""Delegation tokens (KIP-48): a name and a password for SCRAM, which stand for the user that asked for them.

The password is the Base64 of the token's HMAC, as in Kafka.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable
from dataclasses import dataclass

from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.security.scram import MIN_ITERATIONS, SALT_BYTES, ScramCredential

MAX_LIFETIME_MS = 7 * 86_400_000  # delegation.token.max.lifetime.ms
RENEW_LIFETIME_MS = 86_400_000  # delegation.token.expiry.time.ms


@dataclass
class DelegationToken:
    """A token; its principals are "User:name"."""

    token_id: str
    hmac: bytes
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int

    def is_expired(self, now_ms: int) -> bool:
        return min(self.expires_ms, self.max_ms) < now_ms

    def may_be_renewed_by(self, principal: str) -> bool:
        return principal in (self.owner, self.requester, *self.renewers)


class DelegationTokens:
    """The tokens of a cluster, by id; `random_bytes(count)` gives the secret, ids and salts."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        self._secret = random_bytes(32)
        self._tokens: dict[str, DelegationToken] = {}

    def create(
        self, owner: str, requester: str, renewers: tuple[str, ...], lifetime_ms: int, now_ms: int
    ) -> DelegationToken:
        token_id = base64.urlsafe_b64encode(self._random_bytes(16)).decode().rstrip("=")
        max_ms = now_ms + (min(lifetime_ms, MAX_LIFETIME_MS) if lifetime_ms > 0 else MAX_LIFETIME_MS)
        expires_ms = min(max_ms, now_ms + RENEW_LIFETIME_MS)
        secret = hmac.digest(self._secret, token_id.encode(), "sha512")
        token = DelegationToken(token_id, secret, owner, requester, renewers, now_ms, expires_ms, max_ms)
        self._tokens[token_id] = token
        return token

    def all(self, now_ms: int) -> list[DelegationToken]:
        """Return the tokens that have not expired."""
        return [token for token in self._tokens.values() if not token.is_expired(now_ms)]

    def by_hmac(self, secret: bytes) -> DelegationToken:
        """Return the token; raise BrokerError DELEGATION_TOKEN_NOT_FOUND."""
        for token in self._tokens.values():
            if hmac.compare_digest(token.hmac, secret):
                return token
        raise BrokerError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)

    def remove(self, token: DelegationToken) -> None:
        self._tokens.pop(token.token_id, None)

    def credential(
        self, token_id: str, mechanism: str, now_ms: int
    ) -> tuple[ScramCredential, DelegationToken] | None:
        """Return what SCRAM compares with, and the token; None for an unknown or expired one."""
        token = self._tokens.get(token_id)
        if token is None or token.is_expired(now_ms):
            return None
        password, salt = base64.b64encode(token.hmac).decode(), self._random_bytes(SALT_BYTES)
        return ScramCredential.of_password(mechanism, password, salt, MIN_ITERATIONS), token
