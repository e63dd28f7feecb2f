"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): both sides prove that they know the password.

Passwords are used as they are, in UTF-8. Java's ScramFormatter.normalize does the same: SASLprep would change
some of them, and the proof with them.
"""

import hashlib
import hmac
import re
import secrets
from base64 import b64decode, b64encode

from kbatch.config import Password
from kbatch.errors import AuthenticationError, SaslAuthenticationError
from kbatch.errors.words import shown
from kbatch.sasl.exchange import Unrefreshed, check_size

# The hash of each mechanism, by hashlib's name.
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
# Java's client has the minimum (ScramMechanism). A million rounds take about a second.
MIN_ITERATIONS, MAX_ITERATIONS = 4096, 1_000_000
# Brokers share users, so a client normally sees one salt; a change of the password brings another.
MAX_SALTED_PASSWORDS = 16
NONCE_BYTES = 24
# No channel binding, no authorization id; and its base64 in the final message.
GS2_HEADER, CHANNEL_BINDING = "n,,", "biws"

_BASE64 = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)?"
_EXTENSIONS = r"(?:,[A-Za-z]+=[\x01-\x2b\x2d-\x7f]*)*"
SERVER_FIRST = re.compile(
    rf"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>{_BASE64}),i=(?P<iterations>[1-9][0-9]*){_EXTENSIONS}"
)
SERVER_FINAL = re.compile(rf"(?:e=(?P<error>[\x01-\x2b\x2d-\x7f]+)|v=(?P<signature>{_BASE64})){_EXTENSIONS}")


class Scram(Unrefreshed):
    """A SCRAM mechanism with a user's password, or with a delegation token.

    It keeps the salted passwords, because PBKDF2 takes milliseconds and all brokers share a user's salt.

    Parameters
    ----------
    name : str
        SCRAM-SHA-256 or SCRAM-SHA-512.
    username : str
        The user, or the id of a delegation token.
    password : Password
        The password, or the HMAC of a delegation token.
    tokenauth : bool
        True for a delegation token (KIP-48).
    """

    def __init__(self, name: str, username: str, password: Password, *, tokenauth: bool = False) -> None:
        self.name = name
        self._keys = SaltedPasswords(HASHES[name], password)
        self._username = username
        self._tokenauth = tokenauth

    def exchange(self, host: str) -> "ScramExchange":
        nonce = b64encode(secrets.token_bytes(NONCE_BYTES)).decode()
        return ScramExchange(self._username, self._keys, nonce, tokenauth=self._tokenauth)


class SaltedPasswords:
    """A password, salted as servers ask for it, and the proofs made with it.

    Parameters
    ----------
    hash_name : str
        Of the mechanism's hash, as hashlib names it.
    password : Password
    """

    def __init__(self, hash_name: str, password: Password) -> None:
        self._hash = hash_name
        self._password = password
        self._salted: dict[tuple[bytes, int], bytes] = {}

    def proofs(self, salt: bytes, iterations: int, messages: bytes) -> tuple[bytes, bytes]:
        """Return the client's proof and the server's signature over the messages of an exchange."""
        salted = self._salted_with(salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = hmac.digest(stored_key, messages, self._hash)
        proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        return proof, hmac.digest(server_key, messages, self._hash)

    def _salted_with(self, salt: bytes, iterations: int) -> bytes:
        """Return the salted password; the least recently used one beyond the bound is forgotten."""
        salted = self._salted.pop((salt, iterations), None)
        if salted is None:
            salted = hashlib.pbkdf2_hmac(self._hash, self._password.value.encode(), salt, iterations)
        self._salted[salt, iterations] = salted
        if len(self._salted) > MAX_SALTED_PASSWORDS:
            del self._salted[next(iter(self._salted))]
        return salted


class ScramExchange:
    """The client's half of the exchange: nonce, proof, and the check of the server's signature."""

    def __init__(self, username: str, keys: SaltedPasswords, nonce: str, *, tokenauth: bool = False) -> None:
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first = f"n={name},r={nonce}" + (",tokenauth=true" if tokenauth else "")
        self._nonce = nonce
        self._keys = keys
        self._server_signature: bytes | None = None

    def step(self, challenge: bytes | None) -> bytes | None:
        if challenge is None:
            return f"{GS2_HEADER}{self._first}".encode()
        check_size(challenge)
        if self._server_signature is None:
            return self._prove(challenge)
        self._check_proof(challenge)
        return None

    def _prove(self, challenge: bytes) -> bytes:
        """Return the final message, which proves the password for the server's nonce and salt."""
        match = _matched(SERVER_FIRST, challenge, "r=NONCE,s=SALT,i=ITERATIONS")
        nonce, digits = match["nonce"], match["iterations"]
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise AuthenticationError(
                "the broker has not proved that it knows the password: its nonce does not continue the "
                "client's; check that bootstrap.servers names the right cluster"
            )
        if len(digits) > len(str(MAX_ITERATIONS)) or not MIN_ITERATIONS <= int(digits) <= MAX_ITERATIONS:
            raise AuthenticationError(
                f"the broker asks for {shown(digits)} iterations of SCRAM, which must be {MIN_ITERATIONS} to "
                f"{MAX_ITERATIONS}; alter the user's credentials on the broker"
            )
        final = f"c={CHANNEL_BINDING},r={nonce}"
        messages = f"{self._first},{match[0]},{final}".encode()
        proof, self._server_signature = self._keys.proofs(b64decode(match["salt"]), int(digits), messages)
        return f"{final},p={b64encode(proof).decode()}".encode()

    def _check_proof(self, challenge: bytes) -> None:
        match = _matched(SERVER_FINAL, challenge, "v=SIGNATURE")
        if match["error"] is not None:
            raise SaslAuthenticationError(
                f"the broker refused the SCRAM proof: {shown(match['error'])}; check sasl.username and "
                "sasl.password"
            )
        if not hmac.compare_digest(b64decode(match["signature"]), self._server_signature or b""):
            raise AuthenticationError(
                "the broker has not proved that it knows the password: its signature is wrong; check that "
                "bootstrap.servers names the right cluster"
            )


def _matched(form: re.Pattern[str], challenge: bytes, expected: str) -> re.Match[str]:
    """Return the parts of a message. Raise AuthenticationError if it does not have the form."""
    match = form.fullmatch(challenge.decode(errors="replace"))
    if match is None:
        raise AuthenticationError(
            f"the broker's SCRAM message must be {expected}, got {shown(challenge)!r}; check that "
            "bootstrap.servers names a Kafka broker"
        )
    return match
