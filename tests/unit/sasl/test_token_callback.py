"""Token callbacks: the forms of every client, and their possible results."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections import namedtuple
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import aiokafka.abc
import kafka.net.sasl.oauth
import pytest

from kbatch.errors import AuthenticationError, ConfigError
from kbatch.sasl.token_callback import token_source
from kbatch.sasl.tokens import Token
from tests.unit.sasl.secrecy import failing

SECRET = "s3cret-token"
END = 1_900_000_000.0


def asked(given: object, argument: str = "") -> tuple[str, float | None, dict[str, str], str | None]:
    """Return the token of the callback, with its coroutines run on a loop of this thread."""
    token = token_source(given, argument, asyncio.run)()
    return token.value, token.expires_at, dict(token.extensions), token.principal


def imported() -> tuple[str, float]:
    """Named as a string below."""
    return SECRET, END


class Named:
    @staticmethod
    async def token() -> str:
        return SECRET


AzureToken = namedtuple("AzureToken", ["token", "expires_on"])


async def in_a_coroutine() -> tuple[str, float]:
    await asyncio.sleep(0)
    return SECRET, END


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (lambda: SECRET, (SECRET, None, {}, None)),
        (lambda: (SECRET, END), (SECRET, END, {}, None)),
        (lambda: [SECRET, int(END)], (SECRET, END, {}, None)),
        (lambda: AzureToken(SECRET, int(END)), (SECRET, END, {}, None)),
        (lambda: (SECRET, END, "alice"), (SECRET, END, {}, "alice")),
        (lambda: (SECRET, END, "alice", {"cluster": "c"}), (SECRET, END, {"cluster": "c"}, "alice")),
        (lambda: (SECRET, END, None, None), (SECRET, END, {}, None)),
        (lambda: Token(SECRET, END, {"a": "b"}, "alice"), (SECRET, END, {"a": "b"}, "alice")),
        (in_a_coroutine, (SECRET, END, {}, None)),
        (functools.partial(in_a_coroutine), (SECRET, END, {}, None)),
        (lambda: in_a_coroutine(), (SECRET, END, {}, None)),
        (lambda config=None: (SECRET, END), (SECRET, END, {}, None)),
        (f"{__name__}:imported", (SECRET, END, {}, None)),
        (f"{__name__}:Named.token", (SECRET, None, {}, None)),
    ],
)
def test_every_form_of_callback_and_answer(given: object, expected: object) -> None:
    assert asked(given) == expected


def test_confluents_callback_gets_the_configuration_string() -> None:
    def oauth_cb(config: str) -> tuple[str, float]:
        return f"{SECRET}-{config}", END

    assert asked(oauth_cb, "principal=alice") == (f"{SECRET}-principal=alice", END, {}, None)


def test_aiokafkas_provider_is_awaited() -> None:
    class Provider(aiokafka.abc.AbstractTokenProvider):
        async def token(self) -> str:
            await asyncio.sleep(0)
            return SECRET

        def extensions(self) -> dict[str, str]:
            return {"logicalCluster": "lkc-1"}

    assert asked(Provider()) == (SECRET, None, {"logicalCluster": "lkc-1"}, None)


def test_kafka_pythons_provider_is_called_anew_for_each_token() -> None:
    class Provider(kafka.net.sasl.oauth.AbstractTokenProvider):
        calls = 0

        def token(self) -> str:
            self.calls += 1
            return f"{SECRET}-{self.calls}"

    source = token_source(Provider(), "", asyncio.run)
    assert [source().value, source().value] == [f"{SECRET}-1", f"{SECRET}-2"]


def test_plain_callback_runs_in_caller_and_coroutine_on_loop() -> None:
    threads = {}

    def run_elsewhere(coroutine: Coroutine[Any, Any, Any]) -> Any:
        found = []
        loop = threading.Thread(target=lambda: found.append(asyncio.run(coroutine)), name="the loop")
        loop.start()
        loop.join()
        return found[0]

    def plain() -> str:
        threads["plain"] = threading.current_thread()
        return SECRET

    async def async_() -> str:
        threads["async"] = threading.current_thread()
        return SECRET

    token_source(plain, "", run_elsewhere)()
    token_source(async_, "", run_elsewhere)()
    assert threads["plain"] is threading.current_thread()
    assert threads["async"].name == "the loop"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (None, "returned a token of type NoneType; return a token as str"),
        (SECRET.encode(), "returned a token of type bytes"),
        ({"access_token": SECRET}, "returned a token of type dict"),
        ((), "returned 0 values"),
        ((SECRET,), "returned 1 values"),
        ((SECRET, END, "alice", {}, SECRET), "returned 5 values"),
        ((None, END), "returned a token of type NoneType"),
        (f"{SECRET}\n", "returned what cannot be sent: the token has a control character at index 12"),
        ((SECRET, END * 1000), "divide milliseconds by 1000"),
        ((SECRET, END, "alice", {"auth": "x"}), "letters only, but not auth, got 'auth'"),
    ],
)
def test_an_answer_that_is_no_token_is_named_and_not_shown(answer: object, text: str) -> None:
    source = token_source(lambda: answer, "", asyncio.run)
    found = failing(source, AuthenticationError, SECRET)
    assert found.startswith("sasl.oauthbearer.token returned")
    assert text in found


def test_extensions_that_are_no_mapping_are_refused() -> None:
    provider = SimpleNamespace(token=lambda: SECRET, extensions=lambda: "a=b")
    text = failing(token_source(provider, "", asyncio.run), AuthenticationError, SECRET)
    assert "extensions of a token must be a mapping" in text


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (5, "must be a callable that returns a token, an object with token(), or a string"),
        ("no colon", "must have the form package.module:function, got 'no colon'"),
        (":f", "must have the form package.module:function"),
        ("kbatch:", "must have the form package.module:function"),
        ("kbatch.no_such_module:f", "cannot be imported: ModuleNotFoundError"),
        ("kbatch:no_such_function", "cannot be imported: AttributeError"),
        (f"{__name__}:END", "must be a callable that returns a token, an object with token()"),
        (Named, "must be an object, got the class Named; create an instance"),
        (lambda a, b: SECRET, "must be callable without arguments or with one, its signature is (a, b)"),
    ],
)
def test_what_can_be_no_callback_is_a_config_error(given: object, text: str) -> None:
    assert text in failing(lambda: token_source(given, "", asyncio.run), ConfigError)
