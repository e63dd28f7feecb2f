"""Kafka's own command line tools for share groups work on the embedded broker."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

import kbatch
from kbatch.testing import Broker
from tests.oracle.java_programs import Program
from tests.support.patience import HANG_SECONDS

pytestmark = pytest.mark.java
TOPIC, GROUP = "events", "workers"
SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
CONSOLE_SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
CONFIGS = "kafka.admin.ConfigCommand"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with (
        Broker({TOPIC: 2}) as broker,
        kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        for number in range(10):
            producer.send(TOPIC, b"value %d" % number, partition=number % 2)
        producer.flush()
        yield broker


def run(broker: Broker, tool: str, *arguments: str) -> list[list[str]]:
    """Run a tool, which must succeed, and return the words of the lines that it prints."""
    program = Program(tool, ["--bootstrap-server", broker.bootstrap_servers, *arguments])
    done = subprocess.run(program.command, capture_output=True, text=True, timeout=HANG_SECONDS, check=True)
    return [line.split() for line in done.stdout.splitlines() if line.split()]


def test_tools_configure_read_describe_reset_and_delete_a_share_group(broker: Broker) -> None:
    entity = ("--entity-type", "groups", "--entity-name", GROUP)
    run(broker, CONFIGS, "--alter", *entity, "--add-config", "share.auto.offset.reset=earliest")
    assert any(
        "share.auto.offset.reset=earliest" in line for line in run(broker, CONFIGS, "--describe", *entity)
    )

    read = run(
        broker,
        CONSOLE_SHARE_CONSUMER,
        *("--topic", TOPIC, "--group", GROUP, "--max-messages", "10", "--timeout-ms", "60000"),
    )
    assert sorted(read) == [["value", str(number)] for number in range(10)]
    assert run(broker, SHARE_GROUPS, "--list", "--state")[1:] == [[GROUP, "Empty"]]
    with kbatch.ShareConsumer(bootstrap_servers=broker.bootstrap_servers, group_id=GROUP) as consumer:
        consumer.subscribe([TOPIC])
        consumer.poll(1)
        (member,) = run(broker, SHARE_GROUPS, "--describe", "--group", GROUP, "--members", "--verbose")[1:]
        assert member[0] == GROUP and member[-1] == f"{TOPIC}:0,1"

    of_topic = ("--group", GROUP, "--topic", TOPIC)
    reset = run(broker, SHARE_GROUPS, "--reset-offsets", *of_topic, "--to-earliest", "--execute")
    assert reset[1:] == [[GROUP, TOPIC, "0", "0"], [GROUP, TOPIC, "1", "0"]]
    described = run(broker, SHARE_GROUPS, "--describe", "--group", GROUP)
    assert described[1:] == [[GROUP, TOPIC, "0", "0", "5"], [GROUP, TOPIC, "1", "0", "5"]]
    assert run(broker, SHARE_GROUPS, "--delete-offsets", *of_topic)[1:] == [[TOPIC, "Successful"]]
    run(broker, SHARE_GROUPS, "--delete", "--group", GROUP)
    assert run(broker, SHARE_GROUPS, "--list") == []
