"""The mechanism that a configuration names, to its first message."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kbatch.config import ProducerConfig
from kbatch.sasl import NEVER, mechanism_of
from kbatch.sasl.exchange import Mechanism

SECRET = "s3cret-of-alice"


def mechanism(name: str, **settings: Any) -> Mechanism:
    config = ProducerConfig(
        bootstrap_servers="localhost:9092", security_protocol="SASL_SSL", sasl_mechanism=name, **settings
    )
    return mechanism_of(config, asyncio.run)


def first_message(name: str, **settings: Any) -> bytes:
    token = mechanism(name, **settings).exchange("localhost").step(None)
    assert token is not None
    return token


def test_plain() -> None:
    message = first_message("PLAIN", sasl_username="alice", sasl_password=SECRET)
    assert message == b"\0alice\0" + SECRET.encode()


@pytest.mark.parametrize("name", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram(name: str) -> None:
    found = mechanism(name, sasl_username="alice", sasl_password=SECRET)
    assert found.name == name
    assert found.refresh_deadline_ns() == NEVER
    assert (found.exchange("localhost").step(None) or b"").startswith(b"n,,n=alice,r=")


def test_oauthbearer_by_callback() -> None:
    async def token() -> str:
        return SECRET

    assert first_message("OAUTHBEARER", sasl_oauthbearer_token=token) == (
        b"n,,\x01auth=Bearer %s\x01\x01" % SECRET.encode()
    )
