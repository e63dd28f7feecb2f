"""The campaign of hostile SASL servers: a login succeeds rightly or fails with a clear error.

A case is one conversation. Its server is honest, but for one message that is bent: of a broker in SCRAM,
OAUTHBEARER or PLAIN, or of a token endpoint.
"""

from __future__ import annotations

import copy
import json
import random
from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import partial

from kbatch.config import Password
from kbatch.errors import AuthenticationError, KafkaError
from kbatch.sasl.exchange import MAX_CHALLENGE_BYTES, Exchange
from kbatch.sasl.oauthbearer import OAuthBearer
from kbatch.sasl.oidc import Answer
from kbatch.sasl.plain import Plain
from kbatch.sasl.scram import HASHES, Scram
from kbatch.sasl.token_login import LoginPolicy, TokenLogin
from kbatch.sasl.tokens import Token
from tests.fuzz import campaign
from tests.oracle.scram import ScramServer
from tests.support.secrets import report_of

BLOCK_CASES = 20_000
WARMING_CASES = 500
GROWTH_BYTES = 32 << 20
MAX_TEXT = 1200
# The frames of an error are read in one case of these.
REPORTED_EVERY = 50
USER, SECRET = "alice,=", "s3cret of alice"
NOW = 1_800_000_000.0

PIECES = (
    *(b",", b"=", b"\0", b"\x01", b"\n", b"\xff", b"\xed\xa0\x80", b"\xe2\x80\xae", b"\x1b[2J", b"%s{0}"),
    *(b"r=", b"s=", b"v=", b"e=other-error", b"m=x,", b"i=4096", b",ext=1", b"====", b"AAAA", b"[" * 5000),
    *(b"1000000000", b"4095", b"1000001", b"-1", b"0", b"0x1000", "٤٠٩٦".encode(), b"9" * 5000),
    *(b'"access_token":', b'"exp":1e999', b"null", b"true", b"{}", b'"\\u0000"', b'"\\ud800"'),
)


def bent(message: bytes, rng: random.Random) -> bytes:
    """Return a message with one to three faults, or another altogether."""
    choice = rng.random()
    if choice < 0.02:
        return rng.randbytes(rng.choice((0, 1, 30, 1000, MAX_CHALLENGE_BYTES, MAX_CHALLENGE_BYTES + 1)))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        start, end = sorted(rng.choices(range(len(message) + 1), k=2))
        end = min(end, start + rng.choice((0, 1, 2, 20, len(message))))
        faults = (
            rng.choice(PIECES),
            b"",
            rng.randbytes(rng.choice((1, 2, 8))),
            message[start:end] * rng.choice((2, 3, 50)),
            message[start:end].swapcase(),
        )
        message = message[:start] + rng.choice(faults) + message[end:]
    return message


def with_other_value(message: bytes, rng: random.Random) -> bytes:
    """Return a message of SCRAM with the value of an attribute replaced."""
    fields = message.split(b",")
    at = rng.randrange(len(fields))
    fields[at] = fields[at][:2] + rng.choice(PIECES)
    return b",".join(fields)


class Block:
    """The cases of a block, the same for the same number."""

    def __init__(self, block: object) -> None:
        self._rng = random.Random(f"hostile sasl {block}")
        salt = self._rng.randbytes(16)
        self._servers = {name: ScramServer(HASHES[name], USER, SECRET, salt=salt) for name in sorted(HASHES)}
        self._clients = {name: Scram(name, USER, Password(SECRET)) for name in self._servers}
        token = Token(SECRET, NOW)
        login = TokenLogin(lambda: token, "the source", LoginPolicy())
        self._others: dict[str, OAuthBearer | Plain] = {
            "OAUTHBEARER": OAuthBearer(login, {}),
            "PLAIN": Plain(USER, Password(SECRET)),
        }

    def next_case(self) -> tuple[str, bytes, Callable[[], str]]:
        """Return the kind of a case, the bent message, and the case, which returns its outcome."""
        kind = self._rng.choice(
            (*self._servers, *self._servers, "OAUTHBEARER", "OAUTHBEARER", "PLAIN", "OIDC")
        )
        if kind in self._servers:
            return self._scram(kind)
        if kind == "OIDC":
            return self._endpoint()
        message = bent(b'{"status":"invalid_token","scope":"produce"}', self._rng)
        exchange = self._others[kind].exchange("host")
        exchange.step(None)
        return kind, message, lambda: self._refused(exchange, message)

    def _refused(self, exchange: Exchange, message: bytes) -> str:
        """PLAIN ignores words; OAUTHBEARER answers a refusal with one byte, and fails after it."""
        answer = exchange.step(message)
        assert answer in (None, b"\x01")
        if answer is None:
            return "accepted"
        exchange.step(b"")
        raise AssertionError("a refusal was followed by success")

    def _scram(self, name: str) -> tuple[str, bytes, Callable[[], str]]:
        server = copy.copy(self._servers[name])
        exchange = self._clients[name].exchange("host")
        bend = self._rng.choice((bent, with_other_value))
        first = server.answer(exchange.step(None) or b"")
        if self._rng.random() < 0.7:
            message = bend(first, self._rng)
            return f"{name}, first", message, lambda: self._continued(exchange, first, message)
        final = server.answer(exchange.step(first) or b"")
        message = bend(final, self._rng)
        return f"{name}, final", message, lambda: self._judged(exchange, final, message)

    @staticmethod
    def _continued(exchange: Exchange, first: bytes, message: bytes) -> str:
        """Return a proof for this message, which no server can verify."""
        answer = exchange.step(message)
        assert answer is not None
        assert answer.startswith(b"c=biws,r=" + first[2:34])
        exchange.step(b"v=" + b64encode(bytes(32)))
        raise AssertionError("a broker without the password was believed")

    @staticmethod
    def _judged(exchange: Exchange, final: bytes, message: bytes) -> str:
        assert exchange.step(message) is None
        assert message == final or message.startswith(final + b","), "a wrong signature was believed"
        return "accepted"

    def _endpoint(self) -> tuple[str, bytes, Callable[[], str]]:
        payload = b64encode(bent(b'{"exp":1900000000,"sub":"alice"}', self._rng)).decode()
        fields = {"access_token": f"e30.{payload}.{SECRET}", "expires_in": 3600, "token_type": "Bearer"}
        message = bent(json.dumps(fields).encode(), self._rng)
        return "OIDC", message, lambda: self._answered(message)

    @staticmethod
    def _answered(message: bytes) -> str:
        answer = Answer(200, message)
        assert len(answer.reason()) < 5 * MAX_TEXT
        token = answer.token(NOW, "sub")
        if isinstance(token, str):
            raise AuthenticationError(token)
        assert token.value
        return "accepted"


def try_case(case: Callable[[], str], *, is_reported: bool) -> str:
    """Return the outcome of a case; AssertionError if its error is not clear, or shows a secret."""
    try:
        return case()
    except KafkaError as error:
        text = str(error)
        assert type(error) in (AuthenticationError, *AuthenticationError.__subclasses__()), repr(error)
        assert text.isprintable(), text
        assert 0 < len(text) < MAX_TEXT, text
        assert SECRET not in text
        if is_reported:
            assert SECRET not in report_of(error)
        return "refused"


def play(run: campaign.Run) -> None:
    """Check a block's cases."""
    campaign.play_bounded(run, lambda run: run.judge(_cases(run)), WARMING_CASES, GROWTH_BYTES)


def _cases(run: campaign.Run) -> Iterator[campaign.Case]:
    world = Block(run.block)
    for number in range(run.cases):
        kind, message, case = world.next_case()
        yield kind, message, partial(try_case, case, is_reported=number % REPORTED_EVERY == 0)
