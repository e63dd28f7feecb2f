"""A broker's requests and log show no password of a client."""

from __future__ import annotations

import logging

import pytest

from kbatch import Producer
from kbatch.testing import Broker

LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "ada",
    "sasl.password": "s3cret",
}


def test_requests_and_log_show_no_password(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "kbatch")
    with Broker({"t": 1}, users={"ada": "s3cret"}) as broker:
        with Producer({"bootstrap.servers": broker.bootstrap_servers, **LOGIN}) as producer:
            producer.send("t", b"value").result()
        requests = broker.requests()
    assert "SaslAuthenticateRequest(auth_bytes=[hidden])" in repr(requests)
    assert "s3cret" not in repr(requests)
    assert "s3cret" not in caplog.text
