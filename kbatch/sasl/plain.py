"""PLAIN (RFC 4616): user name and password in the clear, protected by TLS alone."""

from kbatch.config import Password
from kbatch.errors import ConfigError
from kbatch.sasl.exchange import Unrefreshed, check_password, check_user_name


class Plain(Unrefreshed):
    """The mechanism PLAIN with an empty authorization id, as Java's client and librdkafka send it.

    Raises
    ------
    ConfigError
        If user name or password is empty, has a NUL, or is not encodable as UTF-8.
    """

    name = "PLAIN"

    def __init__(self, username: str, password: Password) -> None:
        check_user_name(username)
        _check_secret(password)
        if "\0" in username:
            raise ConfigError(f"sasl.username must have no NUL with PLAIN, got {username!r}; remove it")
        self._username = username
        self._password = password

    def exchange(self, host: str) -> "PlainExchange":
        return PlainExchange(self._username, self._password)


def _check_secret(password: Password) -> None:
    if not password.value:
        raise ConfigError("sasl.password must not be empty with PLAIN; set the password")
    check_password(password)
    if "\0" in password.value:
        raise ConfigError("sasl.password must have no NUL with PLAIN; remove it")


class PlainExchange:
    """One token; the broker's answer to it is the outcome. Its bytes are ignored, as in Java."""

    def __init__(self, username: str, password: Password) -> None:
        self._username = username
        self._password = password

    def step(self, challenge: bytes | None) -> bytes | None:
        if challenge is None:
            return f"\0{self._username}\0{self._password.value}".encode()
        return None
