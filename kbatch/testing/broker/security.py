"""The SASL requests: the minimum that real clients accept.

SASL/PLAIN is answered, on a connection without encryption. With `users` the password must be right, and a
request before the login closes the connection, as on a SASL listener. Without `users`, any login succeeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.protocol.structs import Message
from kbatch.testing.broker.broker_error import BrokerError

if TYPE_CHECKING:
    from kbatch.testing.broker.state import BrokerState, Connection, Context

MECHANISMS = ("PLAIN",)
BEFORE_LOGIN = (
    messages.ApiVersionsRequest,
    messages.SaslHandshakeRequest,
    messages.SaslAuthenticateRequest,
)


def must_log_in(state: BrokerState, connection: Connection, kind: type[Message]) -> bool:
    """True if a request comes before the login that it needs (SaslServerAuthenticator)."""
    return state.options.users is not None and connection.user is None and kind not in BEFORE_LOGIN


def sasl_handshake(
    state: BrokerState, request: messages.SaslHandshakeRequest, context: Context
) -> messages.SaslHandshakeResponse:
    context.check_forced_error()
    known = request.mechanism in MECHANISMS
    code = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
    return messages.SaslHandshakeResponse(error_code=code, mechanisms=list(MECHANISMS))


def sasl_authenticate(
    state: BrokerState, request: messages.SaslAuthenticateRequest, context: Context
) -> messages.SaslAuthenticateResponse:
    """Check the login of RFC 4616: authorization identity, NUL, user, NUL, password."""
    context.check_forced_error()
    parts = bytes(request.auth_bytes).decode(errors="replace").split("\0")
    users = state.options.users
    if len(parts) != 3 or (users is not None and users.get(parts[1]) != parts[2]):
        raise BrokerError(
            ErrorCode.SASL_AUTHENTICATION_FAILED, "Authentication failed: Invalid username or password"
        )
    context.connection.user = parts[1]
    return messages.SaslAuthenticateResponse()


HANDLERS = {
    messages.SaslHandshakeRequest: sasl_handshake,
    messages.SaslAuthenticateRequest: sasl_authenticate,
}
