"""Readers that a worker process keeps: lent to task after task, closed after an error and when idle."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from kbatch.errors import UnknownTopicOrPartitionError
from kbatch.spark.kept_readers import KeptReaders
from kbatch.testing import Broker
from tests.support.patience import until

LONG = 3600.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"t": 1}, auto_create_topics=False) as running:
        yield running


def settings_for(broker: Broker, **more: str) -> dict[str, str]:
    return {"bootstrap.servers": broker.bootstrap_servers, **more}


def timers() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if isinstance(each, threading.Timer)]


def test_R104_reader_is_lent_again(broker: Broker) -> None:
    kept = KeptReaders(LONG)
    with kept.reader(settings_for(broker)) as first:
        assert first.partitions("t") == [0]
    with kept.reader(settings_for(broker)) as second:
        assert second is first
        with kept.reader(settings_for(broker)) as other:  # a task beside it
            assert other is not first
    assert first.is_open and not other.is_open  # one is kept
    with kept.reader(settings_for(broker, **{"fetch.min.bytes": "2"})) as another:
        assert another is not first
    kept.close()
    assert not first.is_open and not another.is_open
    until(lambda: not timers())


@pytest.mark.usefixtures("impatient")
def test_reader_is_closed_after_an_error(broker: Broker) -> None:
    kept = KeptReaders(LONG)
    with pytest.raises(UnknownTopicOrPartitionError), kept.reader(settings_for(broker)) as reader:
        reader.partitions("nowhere")
    assert not reader.is_open
    with pytest.raises(ZeroDivisionError), kept.reader(settings_for(broker)) as reader:
        1 / 0  # no fault of the reader  # noqa: B018
    assert reader.is_open
    kept.close()


def test_idle_reader_is_closed(broker: Broker) -> None:
    kept = KeptReaders(0.001)
    with kept.reader(settings_for(broker)) as reader:
        assert reader.partitions("t") == [0]
        assert not timers()  # a lent one is not idle
    until(lambda: not reader.is_open)
    with kept.reader(settings_for(broker)) as again:
        assert again is not reader and again.partitions("t") == [0]
    until(lambda: not again.is_open)
    until(lambda: not timers())
