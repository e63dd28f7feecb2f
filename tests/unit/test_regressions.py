"""Mistakes that other clients made in the field, and that no line of the tables of behaviours is about."""

from __future__ import annotations

import pytest

from kbatch import errors
from kbatch.errors import ErrorCode
from kbatch.testing import Broker
from tests.support.producing import SECONDS, TOPIC, producing, values
from tests.support.sending import OK, OUT_OF_ORDER, PRODUCER_ID, Reply, Sending

TOO_FEW = ErrorCode.NOT_ENOUGH_REPLICAS
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_KAFKA_14034_new_leader_takes_a_later_batch_first() -> None:
    """Java's retry of the earlier one was refused until it expired."""
    s = Sending().warmed().send("b0", "b1")
    s.answer(b0=TOO_FEW, b1=OK)
    s.back_off()
    s.answer(b0=OUT_OF_ORDER)
    s.back_off()
    assert isinstance(s.error("b0"), errors.OutOfOrderSequenceError)
    assert not s.error("b0").possibly_persisted
    s.send("b2")
    s.answer(b2=OK)
    assert s.is_done("b2") and s.deliveries["b2"].exception(0) is None
    assert s.is_whole


@pytest.mark.parametrize("named", [False, True])
def test_librdkafka_4953_a_change_of_leader_needs_no_new_epoch(named: bool) -> None:
    s = Sending().warmed().send("b0", "b1", "b2")
    s.move(2)
    gone = Reply(NOT_LEADER, leader=2 if named else None)
    s.answer(b0=gone, b1=gone, b2=gone)
    for number, name in enumerate(("b0", "b1", "b2")):
        s.back_off()
        s.answer(**{name: OK})
        assert [sent.stamp for sent in s.attempts(name)] == [(PRODUCER_ID, 0, number + 1)] * 2
    s.send("b3")
    assert s.stamp("b3") == (PRODUCER_ID, 0, 4)
    assert s.asked["InitProducerId"] == 1


@pytest.mark.usefixtures("shell")
@pytest.mark.parametrize("batch_size", [0, 100, 16384])
def test_KAFKA_9965_round_robin_skips_no_partition(batch_size: int) -> None:
    """Java called the partitioner again when a record needed a new batch."""
    with Broker({TOPIC: 3}) as broker:
        with producing(broker, partitioner_class="round_robin", batch_size=batch_size) as producer:
            for number in range(30):
                producer.send(TOPIC, b"%d" % number)
            producer.flush(SECONDS)
        found = [values(broker, partition) for partition in range(3)]
    first = [int(records[0] or b"") for records in found]
    assert sorted(first) == [0, 1, 2]
    assert found == [[b"%d" % (start + 3 * turn) for turn in range(10)] for start in first]
