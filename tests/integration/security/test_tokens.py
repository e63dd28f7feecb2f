"""OAUTHBEARER beyond the matrix: endpoints and callbacks that fail, keys that change, tokens that end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kbatch.errors import AuthenticationError, SaslAuthenticationError
from tests.integration.security.cells import OIDC_LIBRDKAFKA
from tests.integration.security.conftest import raises_in_time
from tests.integration.security.site import OAUTHBEARER, TOPIC, Site, resolved
from tests.oracle.kafka import free_ports
from tests.support.patience import HANG_MS, HANG_SECONDS, repeat_while
from tests.support.shells import new_producer

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.usefixtures("shell")]
QUICKLY = {"sasl.login.retry.backoff.ms": 10, "sasl.login.retry.backoff.max.ms": 50}


@pytest.fixture(autouse=True)
def without_faults(site: Site) -> Iterator[None]:
    yield
    site.tokens.faults.clear()


def oauth_settings(site: Site, **settings: Any) -> dict[str, Any]:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return {
        "bootstrap.servers": site.address("SASL_SSL"),
        "security.protocol": "SASL_SSL",
        **site.trust("SASL_SSL"),
        "sasl.mechanism": OAUTHBEARER,
        "max.block.ms": HANG_MS,
        **given,
    }


def oidc_settings(site: Site, **settings: Any) -> dict[str, Any]:
    return oauth_settings(site) | resolved(OIDC_LIBRDKAFKA, site) | QUICKLY | settings


def deliver(settings: dict[str, Any]) -> None:
    with new_producer(settings) as producer:
        producer.send(TOPIC, b"by a token").result(HANG_SECONDS)


# Callbacks


async def _awaited(token: str) -> tuple[str, float]:
    return token, time.time() + 60


CALLBACKS: dict[str, Callable[[str], Callable[[], object]]] = {
    "string": lambda token: lambda: token,
    "pair": lambda token: lambda: (token, time.time() + 60),
    "coroutine": lambda token: lambda: _awaited(token),
}


@pytest.mark.parametrize("form", CALLBACKS)
def test_callback_lets_in(site: Site, form: str) -> None:
    callback = CALLBACKS[form](site.tokens.token("alice"))
    deliver(oauth_settings(site, sasl_oauthbearer_token=callback))


def test_callback_that_raises_is_called_again(site: Site) -> None:
    calls: list[int] = []

    def callback() -> str:
        calls.append(len(calls))
        if len(calls) < 3:
            raise OSError("no identity service yet")
        return site.tokens.token("alice")

    deliver(oauth_settings(site, sasl_oauthbearer_token=callback) | QUICKLY)
    assert len(calls) == 3


def test_callback_that_always_raises_is_named_in_time(site: Site) -> None:
    def callback() -> str:
        raise OSError("no identity service")

    settings = oauth_settings(site, sasl_oauthbearer_token=callback, max_block_ms=1000) | QUICKLY
    with new_producer(settings) as producer:
        raises_in_time(producer, "no identity service")


BAD_TOKENS: dict[str, Callable[[Site], str]] = {
    "expired": lambda site: site.tokens.token("alice", -60),
    "for others": lambda site: site.tokens.token("alice", aud="payments"),
    "of another issuer": lambda site: site.tokens.token("alice", iss="http://elsewhere"),
    "no JWT": lambda site: "opaque",
}


@pytest.mark.parametrize("what", BAD_TOKENS)
def test_token_that_the_broker_refuses(site: Site, what: str) -> None:
    token = BAD_TOKENS[what](site)
    settings = oauth_settings(site, sasl_oauthbearer_token=lambda: token)
    with new_producer(settings) as producer, pytest.raises(SaslAuthenticationError) as raised:
        producer.send(TOPIC, b"refused")
    assert "invalid_token" in str(raised.value)
    assert token not in str(raised.value) or token == "opaque"


# The endpoint


@pytest.mark.parametrize("status", [500, 503, 429])
def test_endpoint_that_fails_for_a_moment_is_tried_again(site: Site, status: int) -> None:
    asked = len(site.tokens.calls)
    site.tokens.fail(status, times=3)
    deliver(oidc_settings(site))
    assert len(site.tokens.calls) == asked + 1


@pytest.mark.parametrize("status", [400, 403, 501])
def test_endpoint_that_refuses_is_named(site: Site, status: int) -> None:
    site.tokens.fail(status, times=1000)
    with new_producer(oidc_settings(site)) as producer:
        with pytest.raises(AuthenticationError, match=f"{status}"):
            producer.send(TOPIC, b"refused")
        site.tokens.faults.clear()
        repeat_while(
            AuthenticationError,
            lambda: producer.send(TOPIC, b"a later login succeeds").result(HANG_SECONDS),
        )


def test_endpoint_out_of_reach_is_named_in_time(site: Site) -> None:
    (port,) = free_ports(1)
    url = {"sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{port}/token", "max.block.ms": 1000}
    with new_producer(oidc_settings(site, **url)) as producer:
        raises_in_time(producer, f"127.0.0.1:{port}")


def test_endpoint_of_an_unknown_authority_gets_no_secret(site: Site) -> None:
    asked = len(site.tokens.calls)
    url = {"sasl.oauthbearer.token.endpoint.url": f"{site.tokens.secure_url}/token"}
    with (
        new_producer(oidc_settings(site, **url)) as producer,
        pytest.raises(AuthenticationError, match="certificate"),
    ):
        producer.send(TOPIC, b"never")
    assert len(site.tokens.calls) == asked


def test_new_signing_keys_are_taken(site: Site) -> None:
    """Test that a login succeeds once the broker has fetched the keys, which it does after a refusal."""
    site.tokens.rotate()
    repeat_while(SaslAuthenticationError, lambda: deliver(oidc_settings(site)))
