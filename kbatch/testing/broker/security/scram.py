"""The server's half of SCRAM (RFC 5802, RFC 7677), and the credentials that it compares with.

User names and passwords are UTF-8 as they come, without SASLprep, as in Kafka (ScramFormatter). A credential
is two keys from which the password cannot be found. Those of `users` are derived when they are first needed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.security.listeners import SCRAM_HASHES

MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16_384  # ScramMechanism, ScramControlManager
SALT_BYTES = NONCE_BYTES = 24
_NAME = r"(?:[^\x00=,]|=2C|=3D)+"
_EXTENSIONS = r"(?:,[A-Za-z]+=[^\x00,]+)*"
CLIENT_FIRST = re.compile(
    rf"(?P<gs2>n,(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<user>{_NAME}),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?P<extensions>{_EXTENSIONS}))"
)
CLIENT_FINAL = re.compile(
    rf"(?P<unsigned>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+){_EXTENSIONS})"
    r",p=(?P<proof>[A-Za-z0-9+/=]+)"
)


class InvalidCredentialsError(Exception):
    """A login is wrong in a way about which Kafka's answer says nothing (its SaslException)."""


class Token(Protocol):
    """The facts of a delegation token that a login needs."""

    owner: str
    expires_ms: int


class ScramCredential(NamedTuple):
    """A password as the broker stores it."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    @classmethod
    def of_salted_password(
        cls, mechanism: str, salted_password: bytes, salt: bytes, iterations: int
    ) -> ScramCredential:
        digest = SCRAM_HASHES[mechanism]
        client_key = hmac.digest(salted_password, b"Client Key", digest)
        stored_key = hashlib.new(digest, client_key).digest()
        return cls(salt, stored_key, hmac.digest(salted_password, b"Server Key", digest), iterations)

    @classmethod
    def of_password(cls, mechanism: str, password: str, salt: bytes, iterations: int) -> ScramCredential:
        salted = hashlib.pbkdf2_hmac(SCRAM_HASHES[mechanism], password.encode(), salt, iterations)
        return cls.of_salted_password(mechanism, salted, salt, iterations)


class ScramUsers:
    """The SCRAM credentials of users, by user and mechanism.

    Parameters
    ----------
    passwords : mapping of str to str
        Users that have a credential of each mechanism from the start.
    random_bytes : callable
        (count) -> bytes, for salts.
    """

    def __init__(self, passwords: Mapping[str, str], random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        # a password until its credential is first needed
        self._credentials: dict[tuple[str, str], ScramCredential | str] = {
            (user, mechanism): password for user, password in passwords.items() for mechanism in SCRAM_HASHES
        }

    def credential(self, user: str, mechanism: str) -> ScramCredential | None:
        found = self._credentials.get((user, mechanism))
        if isinstance(found, str):
            salt = self._random_bytes(SALT_BYTES)
            found = ScramCredential.of_password(mechanism, found, salt, MIN_ITERATIONS)
            self._credentials[user, mechanism] = found
        return found

    def set(self, user: str, mechanism: str, credential: ScramCredential) -> None:
        self._credentials[user, mechanism] = credential

    def remove(self, user: str, mechanism: str) -> None:
        self._credentials.pop((user, mechanism), None)

    def users(self) -> list[str]:
        return list(dict.fromkeys(user for user, _ in self._credentials))

    def iterations(self, user: str) -> dict[str, int]:
        """Return the iterations of each mechanism that the user has."""
        return {
            mechanism: MIN_ITERATIONS if isinstance(found, str) else found.iterations
            for mechanism in SCRAM_HASHES
            if (found := self._credentials.get((user, mechanism))) is not None
        }


class ScramExchange:
    """One login. `user` is set when the client has proved that it knows the password.

    `server_nonce` is printable ASCII without commas; `token_credential` finds delegation tokens by their ids.
    """

    def __init__(
        self,
        mechanism: str,
        users: ScramUsers,
        server_nonce: str,
        token_credential: Callable[[str], tuple[ScramCredential, Token] | None],
    ) -> None:
        self.user: str | None = None
        self.expires_ms: int | None = None
        self.is_by_token = False
        self._token_credential = token_credential
        self._mechanism = mechanism
        self._users = users
        self._server_nonce = server_nonce
        self._credential: ScramCredential | None = None
        self._claimed_user = self._nonce = self._first = ""
        self._binding = b""

    def step(self, token: bytes) -> bytes:
        """Return the answer to the client's first or final message.

        Raises InvalidCredentialsError, or BrokerError if Kafka has a text for it.
        """
        try:
            text = token.decode()
        except UnicodeDecodeError as error:
            raise InvalidCredentialsError("not UTF-8") from error
        if self._credential is None:
            return self._answer_first(text)
        return self._answer_final(text, self._credential)

    def _answer_first(self, text: str) -> bytes:
        message = CLIENT_FIRST.fullmatch(text)
        if message is None:
            raise InvalidCredentialsError("invalid client-first-message")
        user = _unescaped(message["user"])
        if message["authzid"] is not None and _unescaped(message["authzid"]) != user:
            raise BrokerError(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                "Authentication failed: Client requested an authorization id that is different from username",
            )
        credential: ScramCredential | None
        if ",tokenauth=true" in message["extensions"]:
            credential, user = self._token_of(user)
        else:
            credential = self._users.credential(user, self._mechanism)
        if credential is None:
            raise InvalidCredentialsError("unknown user")
        self._credential, self._claimed_user = credential, user
        self._nonce = message["nonce"] + self._server_nonce
        self._binding = base64.b64encode(message["gs2"].encode())
        salt = base64.b64encode(credential.salt).decode()
        server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._first = f"{message['bare']},{server_first}"
        return server_first.encode()

    def _token_of(self, token_id: str) -> tuple[ScramCredential, str]:
        """Return the credential of a delegation token, and its owner."""
        found = self._token_credential(token_id)
        if found is None:
            raise InvalidCredentialsError("unknown or expired token")
        credential, token = found
        self.is_by_token, self.expires_ms = True, token.expires_ms
        return credential, token.owner.removeprefix("User:")

    def _answer_final(self, text: str, credential: ScramCredential) -> bytes:
        message = CLIENT_FINAL.fullmatch(text)
        if message is None:
            raise InvalidCredentialsError("invalid client-final-message")
        if message["nonce"] != self._nonce:
            raise InvalidCredentialsError("another nonce")
        if message["binding"].encode() != self._binding:
            raise InvalidCredentialsError("another channel binding than in the first message")
        digest = SCRAM_HASHES[self._mechanism]
        signed = f"{self._first},{message['unsigned']}".encode()
        try:
            proof = base64.b64decode(message["proof"], validate=True)
        except binascii.Error as error:
            raise InvalidCredentialsError("the proof is not Base64") from error
        signature = hmac.digest(credential.stored_key, signed, digest)
        if len(proof) != len(signature):
            raise InvalidCredentialsError("the proof has another length")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(digest, client_key).digest(), credential.stored_key):
            raise InvalidCredentialsError("wrong password")
        self.user = self._claimed_user
        return b"v=" + base64.b64encode(hmac.digest(credential.server_key, signed, digest))


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
