"""Authentication by SASL: the handshake, the exchange, sessions and their renewal (KIP-152, KIP-368).

Theory of operation. Each connection has a `Session`. `admit` decides about every request before its handler
runs, as Kafka's SaslServerAuthenticator and SocketServer do. On a SASL listener the login comes first. A
request in the middle of one is error 34, and a request after the session's end closes the connection. A login
that fails is answered after connection.failed.authentication.delay.ms, and then the connection is closed. On
a listener without SASL both requests are error 34.
"""

from __future__ import annotations

import base64
from enum import Enum, auto
from typing import TYPE_CHECKING

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.protocol.structs import Message
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.security.listeners import SCRAM_HASHES
from kbatch.testing.broker.security.oauth import OauthExchange, validate_unsecured
from kbatch.testing.broker.security.scram import NONCE_BYTES, InvalidCredentialsError, ScramExchange
from kbatch.testing.broker.security.sessions import Exchange, SaslState, Session

if TYPE_CHECKING:
    from kbatch.testing.broker.broker_state import BrokerState, Connection, Context


class Admission(Enum):
    """The decision about a request before its handler runs."""

    HANDLE = auto()
    REFUSE = auto()  # with ILLEGAL_SASL_STATE; the connection is closed after it
    CLOSE = auto()  # without an answer, at once
    CLOSE_LATE = auto()  # without an answer, after the delay of failed logins


def admit(state: BrokerState, connection: Connection, kind: type[Message]) -> Admission:
    """Decide about a request by the state of its connection's login."""
    session = connection.session
    if not state.listener(connection).has_sasl:
        return Admission.HANDLE
    if session.state is SaslState.COMPLETE:
        if kind is messages.SaslHandshakeRequest and session.begin_renewal(state.now_ms):
            return Admission.HANDLE
        expired = session.is_expired(state.now_ms, state.session_generation)
        return Admission.CLOSE if expired else Admission.HANDLE
    if session.state is SaslState.EXCHANGES_TOKENS:
        is_token = kind is messages.SaslAuthenticateRequest
        return Admission.HANDLE if is_token else Admission.REFUSE
    if session.state is SaslState.HAS_CHANGED_MECHANISM:
        return Admission.CLOSE_LATE
    if kind is messages.SaslHandshakeRequest:
        return Admission.HANDLE
    if kind is messages.ApiVersionsRequest and session.state is SaslState.NEW:
        return Admission.HANDLE
    return Admission.CLOSE_LATE


def sasl_handshake(
    state: BrokerState, request: messages.SaslHandshakeRequest, context: Context
) -> messages.SaslHandshakeResponse:
    session, listener = context.connection.session, state.listener(context.connection)
    logs_in = listener.has_sasl and session.state is not SaslState.COMPLETE
    if context.forced_error is not None:
        context.fails_login = logs_in
        context.check_forced_error()
    if not logs_in:
        return messages.SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    mechanism, mechanisms = request.mechanism, list(listener.mechanisms)
    if mechanism not in mechanisms:
        context.fails_login = True
        # Kafka's SocketServer drops the answer to a handshake that was to renew a session
        context.closes_connection = session.user is not None
        return messages.SaslHandshakeResponse(
            error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=mechanisms
        )
    if session.user is not None and session.mechanism != mechanism:
        session.state = SaslState.HAS_CHANGED_MECHANISM
    else:
        session.state, session.mechanism = SaslState.EXCHANGES_TOKENS, mechanism
        session.exchange = _exchange(state, context, mechanism)
    return messages.SaslHandshakeResponse(mechanisms=mechanisms)


def sasl_authenticate(
    state: BrokerState, request: messages.SaslAuthenticateRequest, context: Context
) -> messages.SaslAuthenticateResponse:
    session = context.connection.session
    if session.state is not SaslState.EXCHANGES_TOKENS:
        context.check_forced_error()
        raise BrokerError(
            ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate request received after successful authentication"
        )
    assert session.exchange is not None
    try:
        token = _next_token(session, session.exchange, bytes(request.auth_bytes), context)
    except BrokerError:
        context.fails_login = True
        raise
    lifetime_ms = 0
    if session.exchange.user is not None:
        lifetime_ms = _complete(state, session, session.exchange, context)
    return messages.SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=lifetime_ms)


def _next_token(session: Session, exchange: Exchange, token: bytes, context: Context) -> bytes:
    """Return the next token to the client; raise BrokerError if the login fails."""
    verb = "authentication" if session.user is None else "re-authentication"
    refusal = BrokerError(
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        f"Authentication failed during {verb} due to invalid credentials with SASL mechanism "
        f"{session.mechanism}",
    )
    if context.forced_error is not None:
        is_refusal = context.forced_error is ErrorCode.SASL_AUTHENTICATION_FAILED
        raise refusal if is_refusal else BrokerError(context.forced_error)
    try:
        answer = exchange.step(token)
    except InvalidCredentialsError as error:
        raise refusal from error
    if exchange.user is not None and session.user not in (None, exchange.user):
        raise BrokerError(
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            f"Cannot change principals during re-authentication from User.{session.user}: "
            f"User.{exchange.user}",
        )
    return answer


def _complete(state: BrokerState, session: Session, exchange: Exchange, context: Context) -> int:
    """Begin the session, and return its length in ms for the client; 0 if it has no end.

    SaslServerAuthenticator.ReauthInfo.calcCompletionTimesAndReturnSessionLifetimeMs
    """
    limits = []
    longest_ms = state.listener(context.connection).connections_max_reauth_ms
    if longest_ms is None:
        longest_ms = state.options.connections_max_reauth_ms
    if longest_ms > 0:
        limits.append(longest_ms)
    if exchange.expires_ms is not None:
        limits.append(exchange.expires_ms - context.now_ms)
    lifetime_ms = max(min(limits), 0) if limits else 0
    session.expires_ms = context.now_ms + lifetime_ms if limits else None
    session.state, session.exchange = SaslState.COMPLETE, None
    session.user, session.generation = exchange.user, state.session_generation
    session.is_by_token = exchange.is_by_token
    return lifetime_ms


# Mechanisms


def _exchange(state: BrokerState, context: Context, mechanism: str) -> Exchange:
    if mechanism == "PLAIN":
        return PlainExchange(state)
    if mechanism in SCRAM_HASHES:
        nonce = base64.b64encode(state.rng.randbytes(NONCE_BYTES)).decode()
        return ScramExchange(
            mechanism,
            state.scram_users,
            nonce,
            lambda token_id: state.delegation_tokens.credential(token_id, mechanism, context.now_ms),
        )
    unsecured = state.listener(context.connection).unsecured_tokens
    return OauthExchange(validate_unsecured if unsecured else state.tokens.validate, context.now_ms)


class PlainExchange:
    """SASL/PLAIN (RFC 4616): authorization identity, NUL, user, NUL, password."""

    expires_ms: int | None = None
    is_by_token = False

    def __init__(self, state: BrokerState) -> None:
        self.user: str | None = None
        self._users = state.options.users or {}

    def step(self, token: bytes) -> bytes:
        parts = token.decode(errors="replace").split("\0")
        if len(parts) != 3:
            raise _plain_refusal(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, user, password = parts
        for name, value in (("username", user), ("password", password)):
            if not value:
                raise _plain_refusal(f"Authentication failed: {name} not specified")
        if self._users.get(user) != password:
            raise _plain_refusal("Authentication failed: Invalid username or password")
        if authorization_id not in ("", user):
            raise _plain_refusal(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.user = user
        return b""


def _plain_refusal(text: str) -> BrokerError:
    return BrokerError(ErrorCode.SASL_AUTHENTICATION_FAILED, text)


HANDLERS = {
    messages.SaslHandshakeRequest: sasl_handshake,
    messages.SaslAuthenticateRequest: sasl_authenticate,
}
