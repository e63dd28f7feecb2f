"""The login of a connection: how far it is, who logged in, and when the session ends (KIP-368)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

MIN_REAUTHENTICATION_INTERVAL_MS = 1000  # KafkaChannel.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS
ANONYMOUS = "ANONYMOUS"


class Exchange(Protocol):
    """The server's half of a mechanism, for one login.

    Attributes
    ----------
    user : str or None
        The user who logged in; None until the login is complete.
    expires_ms : int or None
        The time at which the credential expires.
    is_by_token : bool
        True if a delegation token takes the place of the user's password.
    """

    user: str | None
    expires_ms: int | None
    is_by_token: bool

    def step(self, token: bytes) -> bytes:
        """Return the answer to the client's next token; raises InvalidCredentialsError or BrokerError."""
        ...


class SaslState(Enum):
    """How far the login of a connection is (SaslServerAuthenticator.SaslState)."""

    NEW = auto()
    KNOWS_VERSIONS = auto()
    BEGINS_AGAIN = auto()  # a handshake that renews the session
    EXCHANGES_TOKENS = auto()
    HAS_CHANGED_MECHANISM = auto()
    COMPLETE = auto()


@dataclass(slots=True)
class Session:
    """The authentication of one connection.

    Attributes
    ----------
    user : str or None
        The user that logged in, by SASL or by a certificate.
    expires_ms : int or None
        The end of the session, None if it has none.
    renewed_ms : int or None
        The time at which the last renewal began.
    generation : int
        The `BrokerState.session_generation` at the login; sessions of earlier ones are expired.
    is_by_token : bool
        True if the user logged in by a delegation token.
    """

    state: SaslState = SaslState.NEW
    mechanism: str = ""
    exchange: Exchange | None = None
    user: str | None = None
    expires_ms: int | None = None
    renewed_ms: int | None = None
    generation: int = 0
    is_by_token: bool = False

    def is_expired(self, now_ms: int, generation: int) -> bool:
        return self.generation < generation or (self.expires_ms is not None and now_ms > self.expires_ms)

    def versions_are_known(self) -> None:
        """Expect the handshake next: a valid ApiVersions was answered."""
        if self.state is SaslState.NEW:
            self.state = SaslState.KNOWS_VERSIONS

    def begin_renewal(self, now_ms: int) -> bool:
        """Begin to log in again, unless the session has no end or was renewed within the last second."""
        if self.expires_ms is None:
            return False
        if self.renewed_ms is not None and now_ms - self.renewed_ms < MIN_REAUTHENTICATION_INTERVAL_MS:
            return False
        self.renewed_ms = now_ms
        self.state = SaslState.BEGINS_AGAIN
        return True
