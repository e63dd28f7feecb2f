"""The real Kafka as the tests use it: it survives their faults, and says why it died."""

import pytest

from kbatch.protocol import messages
from tests.integration.scenarios import Wire
from tests.integration.scenarios.requests import batch, log, produce
from tests.oracle.kafka import KafkaDiedError, RealKafka

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.usefixtures("java_jars")]


def test_killed_and_paused_broker_goes_on_where_it_was() -> None:
    with RealKafka(transaction_version=1) as broker:
        address = broker.bootstrap_servers
        with Wire(address, "killed") as wire:
            topic = wire.topic()
            produce(wire, topic, batch(b"a", b"b"))
            log(wire, topic)
            broker.kill()
            assert wire.is_closed
        broker.restart()
        assert broker.bootstrap_servers == address
        with Wire(address, "killed") as again:
            again.forge_topic_id(topic, wire.topic_id(topic))
            again.await_topic(topic, 1)
            log(again, topic)
            broker.pause()
            again.send(messages.ApiVersionsRequest(client_software_name="n", client_software_version="1"), 3)
            broker.resume()
            features = {row.name: row.max_version_level for row in again.receive().finalized_features}
        assert again.transcript[0] == wire.transcript[-1]
        assert features["transaction.version"] == 1


def test_failure_at_start_is_raised_with_its_reason() -> None:
    broker = RealKafka({"offsets.topic.num.partitions": "many"})
    with pytest.raises(KafkaDiedError, match=r"status 1(.|\n)*Invalid value many"):
        broker.start()
    broker.close()
