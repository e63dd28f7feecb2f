"""The SASL login of a connection: its requests, the meaning of their answers, and the session after it.

Theory of operation. SaslHandshake names the mechanism; SaslAuthenticate carries its tokens, one in each
direction. The client's tokens come from the owner (`actions.Authenticate`), since they may take long: keys
are derived, tickets and bearer tokens are fetched. The mechanism says when the broker's last token is
verified; then the login is complete.

A broker may limit the session (KIP-368). The client then logs in again on the same connection, before the
session ends, between other requests. Requests in flight are answered first. Nothing else is sent from the
SaslHandshake until the last answer, which brokers refuse. To keep that time short, the first token is there
before the SaslHandshake is sent.

After org.apache.kafka.common.security.authenticator.SaslClientAuthenticator; KIP-43, KIP-152, KIP-368.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kbatch.core.client.backoff import NEVER_NS, NS_PER_MS
from kbatch.errors import (
    AuthenticationError,
    ErrorCode,
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
    error_of,
)
from kbatch.errors.words import shown, shown_without
from kbatch.protocol import features, messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from kbatch.protocol.structs import Message

_Error = TypeVar("_Error", bound=KafkaError)

# Mechanisms that speak under another name.
_WIRE_NAMES = {"AWS_MSK_IAM": "OAUTHBEARER"}
# The maximum number of tokens of one login. SCRAM sends two, Kerberos some three; only a broker that sends
# challenges without end asks for more.
MAX_ROUNDS = 64
# Brokers refuse to authenticate a connection twice within a second.
SHORTEST_PAUSE_NS = 1_000 * NS_PER_MS
_LONGEST_LIFETIME_NS = 365 * 24 * 3_600_000 * NS_PER_MS
# The beginning of the token in a message of OAUTHBEARER (RFC 7628).
_BEARER = "auth=Bearer "
# The part of the session after which the client logs in again, as in Java: network and clocks take the rest.
_EARLIEST, _SPREAD = 0.85, 0.10


class Login:
    """A login in progress.

    Attributes
    ----------
    began_ns : int
    token : bytes | None
        The token to send next, once the broker has accepted the mechanism.
    credentials : list[str]
        The secrets in the last token that was sent, for as long as its answer is awaited.
    awaits_token : bool
        True while the owner makes a token, or verifies the broker's last one.
    round_count : int
        The number of tokens that were sent.
    was_offered, is_accepted : bool
        True if the SaslHandshake was sent; if the broker has accepted its mechanism.
    session_lifetime_ms : int
        The last positive one that the broker has sent; 0 means no limit.
    asked_ns : int
        When the last SaslAuthenticate was made: the session is no older.
    """

    __slots__ = (
        "asked_ns",
        "awaits_token",
        "began_ns",
        "credentials",
        "is_accepted",
        "round_count",
        "session_lifetime_ms",
        "token",
        "was_offered",
    )

    def __init__(self, now_ns: int) -> None:
        self.began_ns = now_ns
        self.credentials: list[str] = []
        self.token: bytes | None = None
        self.awaits_token = False
        self.round_count = 0
        self.was_offered = False
        self.is_accepted = False
        self.session_lifetime_ms = 0
        self.asked_ns = now_ns


class Session(NamedTuple):
    """The time for which a connection is authenticated.

    Attributes
    ----------
    renew_ns : int
        When to log in again.
    end_ns : int
        The time from which the broker may close the connection at the next request.
    """

    renew_ns: int
    end_ns: int


UNLIMITED = Session(NEVER_NS, NEVER_NS)


def session_after(login: Login, random: Random, now_ns: int) -> Session:
    """Return the session that a login has begun. Half of the time between `renew_ns` and its true end is left
    for the way to the broker.
    """
    lifetime_ns = min(login.session_lifetime_ms * NS_PER_MS, _LONGEST_LIFETIME_NS)
    if lifetime_ns <= 0:
        return UNLIMITED
    end_ns = login.asked_ns + lifetime_ns
    renew_ns = login.asked_ns + int(lifetime_ns * (_EARLIEST + _SPREAD * random.random()))
    end_ns = min(renew_ns + (end_ns - renew_ns) // 2, end_ns)
    return Session(max(renew_ns, now_ns + SHORTEST_PAUSE_NS), end_ns)


def wire_name(mechanism: str) -> str:
    """Return the name of a sasl.mechanism in SaslHandshake."""
    return _WIRE_NAMES.get(mechanism, mechanism)


def check_versions(version_of: Callable[[type[Message]], int]) -> None:
    """Raise AuthenticationError if the node has no requests for a login. `version_of(kind)` is the version of
    a request to it.
    """
    try:
        version_of(messages.SaslAuthenticateRequest)
        is_able = version_of(messages.SaslHandshakeRequest) >= features.SASL_HANDSHAKE_REQUESTS
    except UnsupportedVersionError:
        is_able = False
    if not is_able:
        raise AuthenticationError(
            "the broker has no SaslAuthenticate request (KIP-152), so this client cannot log in; upgrade it "
            "to Kafka 1.0 or newer"
        )


def refusal_of_mechanism(answer: Any, mechanism: str) -> KafkaError | None:
    """Return the error of an answer to SaslHandshake, or None."""
    code = ErrorCode(answer.error_code)
    if code is ErrorCode.NONE:
        return None
    if code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        enabled = shown(", ".join(answer.mechanisms)) or "none"
        return UnsupportedSaslMechanismError(
            f"the broker has not enabled sasl.mechanism={mechanism}; it has enabled: {enabled}"
        )
    if code is ErrorCode.ILLEGAL_SASL_STATE:
        return IllegalSaslStateError(
            "the broker did not expect a login: if its listener has no SASL, set "
            "security.protocol=PLAINTEXT or SSL"
        )
    return _refusal(code, f"the broker refused sasl.mechanism={mechanism}: {code}")


def refusal_of_token(answer: Any, mechanism: str, credentials: Iterable[str]) -> KafkaError | None:
    """Return the error of an answer to SaslAuthenticate, with the broker's text, or None. What the text
    repeats of the `credentials` that were sent is not shown.
    """
    code = ErrorCode(answer.error_code)
    if code is ErrorCode.NONE:
        return None
    said = shown_without(credentials, answer.error_message)
    said = said or f"{code}, without a reason; the broker's log may have one"
    return _refusal(code, f"the broker refused the login with {mechanism}: {said}")


def credentials_in(token: bytes) -> list[str]:
    """Return the password or the bearer token in a message of PLAIN or OAUTHBEARER; others have no secret."""
    parts = token.decode(errors="replace").split("\0")
    if len(parts) == 3:
        return parts[2:]
    fields = parts[0].split("\1")
    return [field.removeprefix(_BEARER) for field in fields if field.startswith(_BEARER)]


def endless_login(mechanism: str) -> SaslAuthenticationError:
    """Return the error of a login that did not end within MAX_ROUNDS tokens."""
    return SaslAuthenticationError(
        f"the broker wanted more than {MAX_ROUNDS} tokens of sasl.mechanism={mechanism}, which needs a few: "
        "check that bootstrap.servers names Kafka brokers, and see the broker's log"
    )


def with_text(error: _Error, text: str) -> _Error:
    """Return a copy of the error with another text."""
    copied = error.marked()
    copied.args = (text,)
    return copied


def _refusal(code: ErrorCode, text: str) -> KafkaError:
    """Return an error that is retried with back-off if the code's is, and else says that the broker refused
    the client.
    """
    error = error_of(code, text)
    is_apt = error.retriable or isinstance(error, AuthenticationError)
    return error if is_apt else SaslAuthenticationError(text)
