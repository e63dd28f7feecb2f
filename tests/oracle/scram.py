"""Both halves of SCRAM (RFC 5802, section 3), written from the RFC, to judge the other half of each."""

from __future__ import annotations

import base64
import hashlib
import hmac


class ScramServer:
    """A server that knows the stored keys of one user; `answer` plays both of its messages."""

    def __init__(
        self, hash_name: str, username: str, password: str, *, salt: bytes = b"salt", iterations: int = 4096
    ) -> None:
        self.hash_name = hash_name
        self.username = username
        self.iterations = iterations
        self.salt = salt
        self.extensions: list[str] = []
        salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
        self._stored_key = hashlib.new(hash_name, self._keyed(salted, "Client Key")).digest()
        self._server_key = self._keyed(salted, "Server Key")
        self._messages: list[str] = []

    def answer(self, token: bytes) -> bytes:
        """Return the next message to the client; ValueError if the client has not proved itself."""
        if not self._messages:
            return self._first(token.decode())
        return self._final(token.decode())

    def _first(self, message: str) -> bytes:
        flag, authorization_id, name, nonce, *self.extensions = message.split(",")
        if flag != "n" or authorization_id:
            raise ValueError("neither channel bindings nor authorization ids are spoken here")
        if not name.startswith("n=") or not nonce.startswith("r="):
            raise ValueError(f"not a first message: {message!r}")
        spelled = name[2:].replace("=2C", ",").replace("=3D", "=")
        if spelled != self.username:
            raise ValueError(f"unknown user {spelled!r}")
        self._nonce = f"{nonce[2:]}of the server".replace(" ", "_")
        salt = base64.b64encode(self.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self.iterations}"
        self._messages = [message.removeprefix("n,,"), answer]
        return answer.encode()

    def _final(self, message: str) -> bytes:
        unproven, _, proof = message.rpartition(",p=")
        if unproven != f"c=biws,r={self._nonce}":
            raise ValueError(f"not a final message: {message!r}")
        signed = ",".join([*self._messages, unproven])
        signature = self._keyed(self._stored_key, signed)
        bits = int.from_bytes(base64.b64decode(proof)) ^ int.from_bytes(signature)
        client_key = bits.to_bytes(len(signature))
        if hashlib.new(self.hash_name, client_key).digest() != self._stored_key:
            raise ValueError("wrong proof")
        return b"v=" + base64.b64encode(self._keyed(self._server_key, signed))

    def _keyed(self, key: bytes, text: str) -> bytes:
        return hmac.new(key, text.encode(), self.hash_name).digest()


class ScramClient:
    """A client that knows the user's password; `expected` is what the server then has to prove."""

    def __init__(self, hash_name: str, username: str, password: str, *, extensions: str = "") -> None:
        self.hash_name = hash_name
        self.password = password.encode()
        self.bare = f"n={username.replace('=', '=3D').replace(',', '=2C')},r=clientnonce{extensions}"
        self.iterations = 0
        self.expected = b""

    def first(self) -> bytes:
        return f"n,,{self.bare}".encode()

    def final(self, server_first: bytes, *, binding: str = "biws", nonce: str | None = None) -> bytes:
        """Return the answer to the server's first message; another binding or nonce than the right ones is
        wrong.
        """
        fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
        if not fields["r"].startswith("clientnonce") or fields["r"] == "clientnonce":
            raise ValueError(f"not a nonce of both: {fields['r']!r}")
        self.iterations = int(fields["i"])
        salt = base64.b64decode(fields["s"])
        salted = hashlib.pbkdf2_hmac(self.hash_name, self.password, salt, self.iterations)
        unproven = f"c={binding},r={nonce or fields['r']}"
        signed = ",".join([self.bare, server_first.decode(), unproven])
        client_key = self._keyed(salted, "Client Key")
        signature = self._keyed(hashlib.new(self.hash_name, client_key).digest(), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_signature = self._keyed(self._keyed(salted, "Server Key"), signed)
        self.expected = b"v=" + base64.b64encode(server_signature)
        return f"{unproven},p={base64.b64encode(proof).decode()}".encode()

    def _keyed(self, key: bytes, text: str) -> bytes:
        return hmac.new(key, text.encode(), self.hash_name).digest()
