"""What the attributes of clients, and the locals of a traceback, show."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest

import kbatch
from kbatch import AsyncProducer, Consumer, Producer
from kbatch.errors import ConfigError

LOGIN = {
    "bootstrap.servers": "127.0.0.1:1",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "u",
    "sasl.password": "s3cret",
}


@pytest.mark.parametrize("make", [Producer, Consumer])
def test_no_attribute_shows_the_password(make: Callable[[Any], Any]) -> None:
    with make(LOGIN) as client:
        assert "s3cret" not in repr(vars(client))


def test_recreated_producer_has_the_password() -> None:
    with Producer(LOGIN).recreate() as producer:
        assert producer.config.sasl_password == kbatch.config.Password("s3cret")


@pytest.mark.parametrize("make", [Producer, AsyncProducer, Consumer])
def test_traceback_with_locals_shows_a_client_that_was_refused(make: Callable[[Any], Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        make({**LOGIN, "bootstrap.servers": ""})
    text = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    assert "never opened" in text
