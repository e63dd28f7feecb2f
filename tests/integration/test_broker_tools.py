"""Kafka's own command line tools work on the embedded broker."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import kbatch
from kbatch.testing import Broker
from tests.oracle.java_programs import Program
from tests.support.patience import HANG_SECONDS

pytestmark = [pytest.mark.java, pytest.mark.slow]
TOPIC, GROUP = "events", "workers"
ACLS = "org.apache.kafka.tools.AclCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
CONSOLE_SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
CONFIGS = "kafka.admin.ConfigCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
LEADER_ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


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


@pytest.mark.slow
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


@pytest.fixture
def cluster() -> Iterator[Broker]:
    with (
        Broker({TOPIC: 2}, nodes=3, log_dirs=2) as broker,
        kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        producer.send(TOPIC, b"value", partition=0).result(HANG_SECONDS)
        yield broker


def test_tool_elects_preferred_leaders(cluster: Broker) -> None:
    cluster.move_leader(TOPIC, 0, 2)
    run(cluster, LEADER_ELECTION, "--election-type", "preferred", "--all-topic-partitions")
    assert cluster.leader(TOPIC, 0) == 0
    for node in range(3):
        cluster.kill_node(node)
    cluster.start_node(1)
    named = ("--topic", TOPIC, "--partition", "0")
    run(cluster, LEADER_ELECTION, "--election-type", "unclean", *named)
    assert cluster.leader(TOPIC, 0) == 1


def test_tool_moves_partitions(cluster: Broker, tmp_path: Path) -> None:
    cluster.create_topic("moved")
    plan = tmp_path / "plan.json"
    wanted = {"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [2, 1]}]}
    plan.write_text(json.dumps(wanted))
    run(cluster, REASSIGN, "--reassignment-json-file", str(plan), "--execute")
    cluster.wait_in_sync(timeout=HANG_SECONDS)
    verified = run(cluster, REASSIGN, "--reassignment-json-file", str(plan), "--verify")
    assert ["Reassignment", "of", "partition", "moved-0", "is", "completed."] in verified
    assert cluster.replicas("moved", 0) == [2, 1]


def test_tool_moves_a_replica_to_another_log_directory(cluster: Broker, tmp_path: Path) -> None:
    def directories_of_topic() -> list[str]:
        *_, last = run(cluster, LOG_DIRS, "--describe", "--broker-list", "1", "--topic-list", TOPIC)
        (broker,) = json.loads(" ".join(last))["brokers"]
        return [
            found["partition"] + found["logDir"]
            for found in (
                {**partition, "logDir": each["logDir"]}
                for each in broker["logDirs"]
                for partition in each["partitions"]
            )
        ]

    assert directories_of_topic() == [f"{TOPIC}-0/node-1/data-0", f"{TOPIC}-1/node-1/data-1"]
    plan = tmp_path / "plan.json"
    moved = {"topic": TOPIC, "partition": 0, "replicas": [0, 1, 2]}
    moved["log_dirs"] = ["any", "/node-1/data-1", "any"]
    plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    run(cluster, REASSIGN, "--reassignment-json-file", str(plan), "--execute")
    assert directories_of_topic() == [f"{TOPIC}-0/node-1/data-1", f"{TOPIC}-1/node-1/data-1"]


def test_tool_changes_levels_of_features(cluster: Broker) -> None:
    def level() -> str:
        rows = {row[1]: row[7] for row in run(cluster, FEATURES, "describe") if row[0] == "Feature:"}
        return rows["transaction.version"]

    assert level() == "2"
    run(cluster, FEATURES, "downgrade", "--feature", "transaction.version=1")
    assert level() == "1"
    run(cluster, FEATURES, "upgrade", "--feature", "transaction.version=2")
    assert level() == "2"


def test_tool_describes_the_quorum(cluster: Broker) -> None:
    rows = {row[0]: row[1:] for row in run(cluster, QUORUM, "describe", "--status")}
    assert rows["LeaderId:"] == ["3000"]
    assert rows["MaxFollowerLag:"] == ["0"]
    followers = run(cluster, QUORUM, "describe", "--replication")
    assert [(row[0], row[-1]) for row in followers[1:]] == [
        ("3000", "Leader"),
        *((str(each), "Follower") for each in (3001, 3002)),
        *((str(each), "Observer") for each in (0, 1, 2)),
    ]


def test_tool_sets_and_describes_quotas(broker: Broker) -> None:
    entity = (
        "--entity-type",
        "users",
        "--entity-name",
        "ada",
        "--entity-type",
        "clients",
        "--entity-default",
    )
    run(broker, CONFIGS, "--alter", *entity, "--add-config", "producer_byte_rate=1000")
    (line,) = run(broker, CONFIGS, "--describe", *entity)
    assert line[-1] == "producer_byte_rate=1000.0"


@pytest.mark.slow
def test_tool_creates_grows_describes_and_deletes_topics(cluster: Broker) -> None:
    made = ("--topic", "made")
    placed = ("--partitions", "2", "--replication-factor", "3")
    run(cluster, TOPICS, "--create", *made, *placed, "--config", "retention.ms=1000")
    run(cluster, TOPICS, "--alter", *made, "--partitions", "3")
    topic, *partitions = run(cluster, TOPICS, "--describe", *made)
    assert topic[4:] == ["PartitionCount:", "3", "ReplicationFactor:", "3", "Configs:", "retention.ms=1000"]
    assert [row[5] for row in partitions] == [str(cluster.leader("made", each)) for each in range(3)]
    assert {row[9] for row in partitions} == {"0,1,2", "1,2,0", "2,0,1"}
    run(cluster, TOPICS, "--delete", *made)
    left = run(cluster, TOPICS, "--list")
    assert [TOPIC] in left and ["made"] not in left


@pytest.mark.slow
def test_tool_configures_topics_and_brokers(cluster: Broker) -> None:
    of_topic = ("--entity-type", "topics", "--entity-name", TOPIC)
    run(cluster, CONFIGS, "--alter", *of_topic, "--add-config", "retention.ms=5000")
    assert run(cluster, CONFIGS, "--describe", *of_topic)[1][:1] == ["retention.ms=5000"]
    of_brokers = ("--entity-type", "brokers", "--entity-default")
    run(cluster, CONFIGS, "--alter", *of_brokers, "--add-config", "min.insync.replicas=2")
    assert run(cluster, CONFIGS, "--describe", *of_brokers)[1][:1] == ["min.insync.replicas=2"]


@pytest.mark.slow
def test_tool_describes_resets_and_deletes_a_group(broker: Broker) -> None:
    with kbatch.Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id=GROUP, auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe([TOPIC])
        read = 0
        while read < 10:
            read += len(consumer.poll(1))
        consumer.commit()
    assert run(broker, GROUPS, "--list") == [[GROUP]]
    named = ("--group", GROUP)
    described = run(broker, GROUPS, "--describe", *named)
    assert [row[:6] for row in described[1:]] == [[GROUP, TOPIC, each, "5", "5", "0"] for each in "01"]
    reset = run(broker, GROUPS, "--reset-offsets", *named, "--topic", TOPIC, "--to-earliest", "--execute")
    assert reset[1:] == [[GROUP, TOPIC, each, "0"] for each in "01"]
    run(broker, GROUPS, "--delete", *named)
    assert run(broker, GROUPS, "--list") == []


@pytest.mark.slow
def test_tool_describes_and_aborts_transactions(cluster: Broker) -> None:
    name = "transaction"
    producer = kbatch.Producer(
        bootstrap_servers=cluster.bootstrap_servers, transactional_id=name, transaction_timeout_ms=900_000
    )
    producer.init_transactions()
    producer.begin_transaction()
    opened = producer.send(TOPIC, b"open", partition=0).result(HANG_SECONDS)
    assert [(row[0], row[3]) for row in run(cluster, TRANSACTIONS, "list")[1:]] == [(name, "Ongoing")]
    (described,) = run(cluster, TRANSACTIONS, "describe", "--transactional-id", name)[1:]
    assert (described[1], described[4], described[-1]) == (name, "Ongoing", f"{TOPIC}-0")
    of_partition = ("--topic", TOPIC, "--partition", "0")
    follower = next(node for node in range(3) if node != cluster.leader(TOPIC, 0))
    for further in ((), ("--broker-id", str(follower))):
        known = run(cluster, TRANSACTIONS, "describe-producers", *of_partition, *further)[1:]
        assert str(opened.offset) in {row[-1] for row in known}
    run(cluster, TRANSACTIONS, "abort", *of_partition, "--start-offset", str(opened.offset))
    known = run(cluster, TRANSACTIONS, "describe-producers", *of_partition)[1:]
    assert {row[-1] for row in known} == {"None"}
    with suppress(kbatch.KafkaError):
        producer.close()


@pytest.mark.slow
def test_tool_adds_lists_and_removes_acls() -> None:
    with Broker(authorizer=True, super_users=["User:ANONYMOUS"]) as broker:
        rule = ("--allow-principal", "User:ada", "--operation", "Write", "--topic", TOPIC)
        run(broker, ACLS, "--add", *rule)
        listed = run(broker, ACLS, "--list", "--topic", TOPIC)
        assert listed[1] == ["(principal=User:ada,", "host=*,", "operation=WRITE,", "permissionType=ALLOW)"]
        run(broker, ACLS, "--remove", "--force", *rule)
        assert run(broker, ACLS, "--list") == []
