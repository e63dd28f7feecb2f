"""PLAIN (RFC 4616): user name and password in the clear, protected by TLS alone."""

from kbatch.config import Password
from kbatch.sasl.exchange import Unrefreshed


class Plain(Unrefreshed):
    """The mechanism PLAIN, whose name and password the rules of the configuration have checked."""

    name = "PLAIN"

    def __init__(self, username: str, password: Password) -> None:
        self._username = username
        self._password = password

    def exchange(self, host: str) -> "PlainExchange":
        return PlainExchange(self._username, self._password)


class PlainExchange:
    """One token, with an empty authorization id as Java's client and librdkafka send it.

    The broker's answer is the outcome; its bytes are ignored, as in Java.
    """

    def __init__(self, username: str, password: Password) -> None:
        self._username = username
        self._password = password

    def step(self, challenge: bytes | None) -> bytes | None:
        if challenge is None:
            return f"\0{self._username}\0{self._password.value}".encode()
        return None
