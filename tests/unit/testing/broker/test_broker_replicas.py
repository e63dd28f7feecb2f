"""Replicas, nodes and networks that fail, as users of `Broker` and their clients see it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

import pytest

from kbatch import Producer
from kbatch.errors import KafkaError
from kbatch.testing import Broker
from tests import ROOT
from tests.support.patience import HANG_SECONDS, until

TOPIC = "events"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({TOPIC: 1}, nodes=3, session_timeout_ms=3000) as running:
        yield running


def producer_of(broker: Broker, **settings: object) -> Producer:
    return Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "retry.backoff.ms": 10, "linger.ms": 0, **settings}
    )


def values(broker: Broker) -> list[bytes]:
    return [bytes(record.value or b"") for record in broker.records(TOPIC)]


def test_KB07_killed_leader_loses_nothing_with_acks_all(broker: Broker) -> None:
    with producer_of(broker) as producer:
        deliveries = []
        for number in range(300):
            deliveries.append(producer.send(TOPIC, b"%d" % number))
            if number % 100 == 50:
                leader = broker.leader(TOPIC, 0)
                broker.kill_node(leader)
                broker.start_node(leader)
        producer.flush(30)
        assert all(each.exception(0) is None for each in deliveries)
    assert values(broker) == [b"%d" % number for number in range(300)]


PAGE = (ROOT / "docs" / "broker.md").read_text()
FAILURES = PAGE[PAGE.index("## Six failures to play") : PAGE.index("## Inspection")]
EXAMPLES = re.findall(r"\*\*(.*?)\.\*\*.*?```python\n(.*?)```", FAILURES, re.DOTALL)


@pytest.mark.parametrize("code", [pytest.param(code, id=title) for title, code in EXAMPLES])
def test_failure_of_the_page_can_be_played(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code, "docs/broker.md", "exec"), {})
    assert ("LogTruncationError" in code) == bool(capsys.readouterr().out)


def test_page_has_six_failures() -> None:
    assert len(EXAMPLES) == 6


def test_too_few_in_sync_replicas_are_refused_until_they_are_back() -> None:
    with Broker({TOPIC: 1}, nodes=3, min_insync_replicas=2) as broker:
        broker.stop_node(1)
        broker.stop_node(2)
        assert broker.isr(TOPIC, 0) == [0]
        assert broker.elr(TOPIC, 0) == [2]
        with producer_of(broker, **{"delivery.timeout.ms": 30_000}) as producer:
            delivery = producer.send(TOPIC, b"a")
            broker.start_node(1)
            assert delivery.result(30).offset == 0


def test_KA02_KP06_paused_leader_is_a_zombie(broker: Broker) -> None:
    with producer_of(broker, acks="1", **{"enable.idempotence": False, "retries": 0}) as producer:
        producer.send(TOPIC, b"a").result(10)
        broker.wait_in_sync(timeout=HANG_SECONDS)
        broker.pause_node(0)
        delivery = producer.send(TOPIC, b"zombie")
        broker.advance(3)
        assert (broker.leader(TOPIC, 0), broker.isr(TOPIC, 0)) == (1, [1, 2])
        broker.resume_node(0)
        with suppress(KafkaError):  # the node had learned when it read the request
            assert delivery.result(10).offset == 1
        broker.wait_in_sync(timeout=HANG_SECONDS)
    assert values(broker) in ([b"a"], [b"a", b"zombie"])
    assert broker.lag(TOPIC, 0) == {0: 0, 1: 0, 2: 0}


def test_KA03_clients_of_an_isolated_node_wait(broker: Broker) -> None:
    broker.isolate(0, from_=["clients"])
    with producer_of(broker, **{"request.timeout.ms": 1000}) as producer:  # what was cut off gets no answer
        delivery = producer.send(TOPIC, b"a")
        assert broker.requests("Produce") == []
        broker.heal()
        assert delivery.result(30).offset == 0


def test_KA05_nodes_say_what_they_know_themselves(broker: Broker) -> None:
    with producer_of(broker, acks="1", **{"enable.idempotence": False}) as producer:
        broker.hold_high_watermark(TOPIC, 0)
        producer.send(TOPIC, b"a").result(10)
        assert [broker.log_end_offset(TOPIC, 0, node=node) for node in range(3)] == [1, 0, 0]
        assert broker.lag(TOPIC, 0) == {0: 0, 1: 1, 2: 1}
        assert (broker.high_watermark(TOPIC, 0), len(broker.batches(TOPIC, 0, node=1))) == (0, 0)
        with pytest.raises(TimeoutError, match=r"after 0.01 s, 1 partition\(s\) are not in sync: events-0"):
            broker.wait_in_sync(timeout=0.01)
        broker.hold_high_watermark(TOPIC, 0, hold=False)
        broker.wait_in_sync(TOPIC, HANG_SECONDS)
    assert [broker.high_watermark(TOPIC, 0, node=node) for node in range(3)] == [1, 1, 1]
    assert len(broker.batches(TOPIC, 0, node=2)) == 1
    assert broker.producer_state(TOPIC, 0, node=1) == broker.producer_state(TOPIC, 0)


def test_rolling_restart_keeps_every_record(broker: Broker) -> None:
    with producer_of(broker) as producer:
        for node in broker.rolling_restart(HANG_SECONDS):
            producer.send(TOPIC, b"%d" % node).result(30)
    assert values(broker) == [b"0", b"1", b"2"]
    broker.wait_in_sync(timeout=HANG_SECONDS)
    assert set(broker.isr(TOPIC, 0)) == {0, 1, 2}


def test_delayed_followers_delay_acknowledgements(broker: Broker) -> None:
    broker.delay_replication(3600, TOPIC, 0, node=2)
    with producer_of(broker) as producer:
        delivery = producer.send(TOPIC, b"a")
        producer.send(TOPIC, b"b", partition=0)
        until(lambda: broker.log_end_offset(TOPIC, 0, node=1) == 2)
        assert not delivery.done()
        broker.advance(3600)
        delivery.result(30)
        broker.delay_replication(0, TOPIC, 0, node=2)


def test_elections_by_request(broker: Broker) -> None:
    with pytest.raises(ValueError, match="Leader election not needed"):
        broker.elect_leader(TOPIC, 0)
    broker.move_leader(TOPIC, 0, 2)
    epoch = broker.leader_epoch(TOPIC, 0)
    broker.elect_leader(TOPIC, 0)
    assert (broker.leader(TOPIC, 0), broker.leader_epoch(TOPIC, 0)) == (0, epoch + 1)
    broker.stop_node(2)
    with pytest.raises(ValueError, match="node 2 does not run"):
        broker.move_leader(TOPIC, 0, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"replication_factor": 4}, "replication_factor must be 1 to 3, the number of nodes, got 4"),
        ({"racks": ["a"]}, "racks must name one for each of 3 nodes, or None, got 1"),
        ({"session_timeout_ms": 0}, "session_timeout_ms must be 1 to"),
    ],
)
def test_arguments_that_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Broker(nodes=3, **arguments)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="racks must be a name for each node"):
        Broker(nodes=3, racks="abc")


def test_calls_that_are_refused(broker: Broker) -> None:
    with pytest.raises(ValueError, match="a party must be one of 0, 1, 2, 'controller', 'clients', got 'x'"):
        broker.isolate(0, from_=["x"])
    with pytest.raises(ValueError, match="node must be 0 to 2, got 3"):
        broker.isolate(3)
    with pytest.raises(ValueError, match="give topic and partition, or none of them"):
        broker.delay_replication(1, TOPIC)
    with pytest.raises(ValueError, match="node 7 has no replica of events-0; choose one of 0, 1, 2"):
        broker.lag(TOPIC, 0)
        broker.log_end_offset(TOPIC, 0, node=7)
    with pytest.raises(ValueError, match="seconds must be 0 or more, got -1"):
        broker.advance(-1)
