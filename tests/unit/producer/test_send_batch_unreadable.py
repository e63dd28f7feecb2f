"""A batch that came encoded, whose records nobody has looked into before it has to be split."""

from __future__ import annotations

import pytest

from kbatch import CorruptRecordError
from kbatch.testing import Broker
from tests.support.producing import SECONDS, TOPIC, producing, values
from tests.unit._native.send.test_encoded_batch import altered, encoded


@pytest.mark.parametrize("codec", range(1, 5))
def test_it_fails_alone_when_it_is_too_large(codec: int) -> None:
    data = altered(encoded(b"a" * 2000, b"b"), attributes=codec)  # which they are not
    with Broker({TOPIC: {"max.message.bytes": 1000}}) as broker, producing(broker) as producer:
        producer.send(TOPIC, b"before", partition=0)
        delivery = producer.send_batch(TOPIC, 0, data)
        behind = producer.send(TOPIC, b"behind", partition=0)
        error = delivery.exception(SECONDS)
        assert isinstance(error, CorruptRecordError) and not error.possibly_persisted
        assert behind.result(SECONDS).offset == 1
        producer.flush(SECONDS)
        assert values(broker) == [b"before", b"behind"]
