"""OAUTHBEARER (RFC 7628, KIP-255, KIP-342): a bearer token, and extensions beside it."""

from collections.abc import Callable, Mapping

from kbatch.errors import SaslAuthenticationError
from kbatch.errors.words import shown_without
from kbatch.logs import ClientLogger
from kbatch.sasl.exchange import check_size
from kbatch.sasl.token_login import TokenLogin
from kbatch.sasl.tokens import Token

logger = ClientLogger(__name__)

SEPARATOR = "\x01"


class OAuthBearer:
    """The mechanism OAUTHBEARER: each exchange sends the login's token of that moment.

    Parameters
    ----------
    login : TokenLogin
    extensions : Mapping[str, str]
        SASL extensions for every token; those of a token itself come first.
    close : callable
        Releases what the login's source holds, and ends its waits.
    """

    name = "OAUTHBEARER"

    def __init__(
        self, login: TokenLogin, extensions: Mapping[str, str], close: Callable[[], None] = lambda: None
    ) -> None:
        self._extensions = extensions
        self.refresh_deadline_ns = login.refresh_deadline_ns
        self.refresh = login.refresh
        self.close = close
        self._login = login

    def exchange(self, host: str) -> "OAuthBearerExchange":
        return OAuthBearerExchange(self._login, self._extensions)


class OAuthBearerExchange:
    """One message; if the server refuses the token, its reasons, and the answer that ends the exchange."""

    def __init__(self, login: TokenLogin, extensions: Mapping[str, str]) -> None:
        self._login = login
        self._extensions = extensions
        self._token: Token | None = None
        self._refusal: str | None = None

    def step(self, challenge: bytes | None) -> bytes | None:
        if challenge is None:
            self._token = self._login.token()
            return initial_response(self._token, self._extensions)
        check_size(challenge)
        if self._refusal is not None:
            raise SaslAuthenticationError(f"the broker refused the token: {self._refusal}")
        if not challenge:
            return None
        # RFC 7628, section 3.2.3: the server fails the exchange only after this answer.
        sent = [] if self._token is None else [self._token.value]
        self._refusal = shown_without(sent, challenge)
        logger.info("the broker refused the token: %s", self._refusal)
        if self._token is not None:
            self._login.forget(self._token)
        return SEPARATOR.encode()


def initial_response(token: Token, extensions: Mapping[str, str]) -> bytes:
    """Return the client's message (RFC 7628, section 3.1)."""
    pairs = {"auth": f"Bearer {token.value}", **extensions, **token.extensions}
    fields = [f"{key}={value}" for key, value in pairs.items()]
    return SEPARATOR.join(["n,,", *fields, "", ""]).encode()
