"""The server's half of SCRAM (RFC 5802, section 3), written from the RFC beside the client's."""

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
        """The next message to the client; ValueError where the client has not proved itself."""
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
