"""What every mechanism of SASL is to a client: it makes exchanges of tokens, one for each authentication.

A client performs all exchanges of a producer on one thread, the login thread, because a step may block: for
PBKDF2, a token callback, an HTTP request or a KDC.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from kbatch.errors import AuthenticationError

# A deadline that never comes, on the scale of time.monotonic_ns().
NEVER = 2**63 - 1
# A broker's message is some hundred bytes; a Kerberos token with a large authorization field has 48,000.
MAX_CHALLENGE_BYTES = 65_536

# Blocks the calling thread until a coroutine has its result, and returns it.
RunCoroutine = Callable[[Coroutine[Any, Any, Any]], Any]


class Exchange(Protocol):
    """One authentication of one connection."""

    def step(self, challenge: bytes | None) -> bytes | None:
        """Return the next token to send, or None: the exchange is complete, and the broker is verified.

        Parameters
        ----------
        challenge : bytes or None
            The broker's answer to the last token; None begins the exchange.

        Raises
        ------
        AuthenticationError
            If the broker's answer is not what the mechanism allows, or credentials cannot be used.
        NetworkError
            If a provider of credentials cannot be reached: a later exchange may succeed.
        """


class Mechanism(Protocol):
    """A mechanism with its credentials, shared by all connections of a client.

    The login thread calls all methods except `close`, which any thread may call.

    Attributes
    ----------
    name : str
        The name that the SaslHandshake request sends.
    """

    name: str

    def exchange(self, host: str) -> Exchange:
        """Return a new exchange with the broker of that host name."""

    def refresh_deadline_ns(self) -> int:
        """Return when `refresh` is due, by time.monotonic_ns(); NEVER if it is not."""

    def refresh(self) -> None:
        """Renew credentials before they expire. Log a failure; the old ones stay in use."""

    def close(self) -> None:
        """Release what the mechanism holds; waits for retries end early."""


class Unrefreshed:
    """The part of a mechanism whose credentials do not expire."""

    def refresh_deadline_ns(self) -> int:
        return NEVER

    def refresh(self) -> None: ...

    def close(self) -> None: ...


def check_size(challenge: bytes) -> None:
    """Raise AuthenticationError if a broker's message is too long for any mechanism."""
    if len(challenge) > MAX_CHALLENGE_BYTES:
        raise AuthenticationError(
            f"the broker's SASL message has {len(challenge)} bytes, {MAX_CHALLENGE_BYTES} are allowed; check "
            "that bootstrap.servers names a Kafka broker"
        )
