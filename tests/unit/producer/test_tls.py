"""Producers over TLS, by the embedded broker."""

from __future__ import annotations

import pytest

from kbatch.testing import Broker
from tests.support.patience import HANG_SECONDS
from tests.support.shells import new_producer

pytestmark = pytest.mark.usefixtures("shell")


def test_batch_is_sent_again_after_a_broken_tls_record() -> None:
    """The record is in the log already, and stays there once."""
    with Broker(topics={"t": 1}, tls=True) as broker:
        settings = broker.client_settings() | {"linger.ms": 0}
        with new_producer(settings) as producer:
            producer.send("t", b"before").result(HANG_SECONDS)
            broker.tls_break("Produce")
            assert producer.send("t", b"broken").result(HANG_SECONDS).offset == 1
            assert producer.send("t", b"after").result(HANG_SECONDS).offset == 2
        assert [record.value for record in broker.records("t")] == [b"before", b"broken", b"after"]
