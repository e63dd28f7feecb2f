"""The commands of administration on a real Kafka with an authorizer and SASL: what they print, and do."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import kbatch
from kbatch import Admin
from kbatch.cli.commands import kbatch as command
from kbatch.errors import UnknownTopicOrPartitionError
from tests.conftest import require_jars
from tests.oracle.java_programs import Program
from tests.oracle.kafka import RealKafka
from tests.support.patience import HANG_SECONDS, repeat_while, until

pytestmark = [pytest.mark.java, pytest.mark.slow]

GROUPS_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:alice",
    "delegation.token.secret.key": "secret",
    "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl.plain.sasl.jaas.config": f'{LOGIN} user_alice="wonder" user_eve="apple";',
}
TOPIC = "orders"


@pytest.fixture(scope="module")
def kafka() -> Iterator[RealKafka]:
    require_jars()
    with RealKafka(PROPERTIES, listeners={"SASL": "SASL_PLAINTEXT"}) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.topics.create(TOPIC, partitions=2, replication_factor=1)
        yield broker


def run(kafka: RealKafka, *arguments: str, servers: str | None = None, text: str | None = None) -> Result:
    return CliRunner().invoke(command, [*arguments, "-b", servers or kafka.bootstrap_servers], input=text)


def rows(kafka: RealKafka, *arguments: str, **how: Any) -> list[dict[str, Any]]:
    result = run(kafka, *arguments, **how)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_partitions(kafka: RealKafka, tmp_path: Path) -> None:
    assert rows(kafka, "partitions", "elect", f"{TOPIC}:0") == [{"partition": f"{TOPIC}-0", "elected": False}]
    assert rows(kafka, "partitions", "plan", TOPIC) == []
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": TOPIC, "partition": 0, "replicas": [0]}]}))
    refused = run(kafka, "partitions", "reassign", str(plan))
    assert (refused.exit_code, "--yes" in refused.stderr) == (2, True)
    assert run(kafka, "partitions", "reassign", str(plan), "--yes").exit_code == 0
    assert rows(kafka, "partitions", "status", "--wait") == []
    none = run(kafka, "partitions", "cancel", f"{TOPIC}:0")
    assert (none.exit_code, f"partition {TOPIC}-0" in none.stderr) == (1, True)
    (directory,) = rows(kafka, "partitions", "log-dirs")
    assert directory["path"] == str(kafka.log_directory) and directory["replicas"] >= 2
    (would,) = rows(kafka, "partitions", "reassign", str(plan), "--dry-run")
    assert would == {"partition": f"{TOPIC}-0", "before": [0], "after": [0]}
    assert rows(kafka, "partitions", "elect", "--dry-run") == []
    none = run(kafka, "partitions", "cancel", f"{TOPIC}:0", "--dry-run")
    assert (none.exit_code, f"partition {TOPIC}-0: " in none.stderr) == (1, True)
    (would,) = rows(kafka, "partitions", "move", f"{TOPIC}:0:0", directory["path"], "--dry-run")
    assert would["before"] == would["after"] == directory["path"]
    refused = run(kafka, "partitions", "move", f"{TOPIC}:0:0", "/nowhere", "--dry-run")
    assert (refused.exit_code, f"broker 0 has {directory['path']}" in refused.stderr) == (1, True)
    moved = run(kafka, "partitions", "move", f"{TOPIC}:0:0", "/nowhere")
    assert (moved.exit_code, "/nowhere" in moved.stderr) == (1, True)


def test_acls(kafka: RealKafka) -> None:
    rule = ("--principal", "User:bob", "--resource", "topic", "--name", TOPIC, "--operation", "Read")
    assert run(kafka, "acls", "grant", *rule).exit_code == 0
    assert run(kafka, "acls", "deny", *rule, "--host", "10.0.0.1").exit_code == 0
    until(lambda: len(rows(kafka, "acls", "list", "--principal", "User:bob")) == 2)
    assert {each["allow"] for each in rows(kafka, "acls", "list", "--principal", "User:bob")} == {True, False}
    refused = run(kafka, "acls", "revoke", "--principal", "User:bob")
    assert (refused.exit_code, "--yes" in refused.stderr) == (2, True)
    assert run(kafka, "acls", "revoke", "--principal", "User:bob", "--yes").exit_code == 0
    until(lambda: rows(kafka, "acls", "list", "--principal", "User:bob") == [])
    wrong = run(kafka, "acls", "grant", *rule[:-1], "CreateTokens")
    assert (wrong.exit_code, "does not have CreateTokens" in wrong.stderr) == (2, True)


def test_acls_of_clients(kafka: RealKafka) -> None:
    """What a client needs is granted, is enough, and is taken away."""
    eve = ("--principal", "User:eve")
    needs = ("--producer", TOPIC, "--consumer", TOPIC, "--group", "audit", "--transactional-id", "shop")
    assert len(rows(kafka, "acls", "grant", *eve, *needs, "--dry-run")) == 7
    assert rows(kafka, "acls", "list", *eve) == []
    assert len(rows(kafka, "acls", "grant", *eve, *needs)) == 7
    until(lambda: len(rows(kafka, "acls", "list", *eve)) == 7)
    login = ["-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN"]
    login += ["-X", f'sasl.jaas.config={LOGIN} username="eve" password="apple";']
    servers = kafka.address("SASL")
    sent = run(kafka, "produce", "-", "-t", TOPIC, *login, servers=servers, text="x\n")
    assert sent.exit_code == 0, sent.output
    read = run(kafka, "consume", TOPIC, "-g", "audit", *login, "-f", "raw", servers=servers)
    assert (read.exit_code, read.stdout) == (0, "x\n")
    other = run(kafka, "consume", TOPIC, "-g", "other", *login, servers=servers)
    assert (other.exit_code, "other" in other.stderr) == (1, True)
    assert len(rows(kafka, "acls", "revoke", *eve, "--producer", TOPIC, "--dry-run")) == 3
    assert len(rows(kafka, "acls", "revoke", *eve, "--producer", TOPIC, "--yes")) == 3
    until(lambda: len(rows(kafka, "acls", "list", *eve)) == 4)
    assert len(rows(kafka, "acls", "revoke", *eve, "--yes")) == 4


def test_share_groups_are_reset(kafka: RealKafka) -> None:
    name, first = "sharers", {"topic": "shared", "partition": 0}
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.topics.create("shared", partitions=1)
        offsets = {kafka_partition("shared"): 0}
        repeat_while(  # coordinators learn of a topic a moment after brokers
            UnknownTopicOrPartitionError, lambda: admin.groups.set_share_offsets(name, offsets, create=True)
        )
    run(kafka, "produce", "-", "-t", "shared", text="1\n2\n3\n")
    assert rows(kafka, "groups", "reset", name, "--all-topics", "--to", "2") == [
        {**first, "committed": 0, "new": 2}
    ]
    assert rows(kafka, "groups", "describe", name)[0]["partitions"][0]["start"] == 0
    rows(kafka, "groups", "reset", name, "--all-topics", "--to", "2", "--execute")
    (described,) = rows(kafka, "groups", "describe", name)
    assert (described["protocol"], described["partitions"][0]["start"], described["lag"]) == ("share", 2, 1)
    rows(kafka, "groups", "reset", name, "-t", "shared", "--to", "none", "--execute")
    assert rows(kafka, "groups", "describe", name)[0]["partitions"] == []


def kafka_partition(topic: str) -> kbatch.TopicPartition:
    return kbatch.TopicPartition(topic, 0)


def test_files_of_offsets_are_those_of_kafkas_tool(kafka: RealKafka, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours.csv", tmp_path / "theirs.csv"
    reset = ("groups", "reset", "billing")
    rows(kafka, *reset, "-t", TOPIC, "--to", "0", "--execute")
    ours.write_text(run(kafka, *reset, "--all-topics", "--to", "current", "--export").stdout)
    tool = ("--reset-offsets", "--group", "billing")
    theirs.write_text(groups_tool(kafka, *tool, "--all-topics", "--to-current", "--export", "--dry-run"))
    assert theirs.read_text().split() == ours.read_text().split() == [f"{TOPIC},0,0", f"{TOPIC},1,0"]
    assert len(rows(kafka, *reset, "--from-file", str(theirs), "--execute")) == 2
    shown = groups_tool(kafka, *tool, "--from-file", str(ours), "--execute")
    assert len([line for line in shown.splitlines() if line.startswith("billing")]) == 2


def groups_tool(kafka: RealKafka, *arguments: str) -> str:
    """Run kafka-consumer-groups; return what it prints."""
    program = Program(GROUPS_TOOL, ["--bootstrap-server", kafka.bootstrap_servers, *arguments])
    done = subprocess.run(program.command, capture_output=True, text=True, timeout=HANG_SECONDS, check=True)
    return done.stdout


def test_quotas_and_users(kafka: RealKafka, tmp_path: Path) -> None:
    assert run(kafka, "quotas", "set", "--user", "bob", "producer_byte_rate=1000").exit_code == 0
    expected = {"user": "bob", "client_id": None, "ip": None, "quota": "producer_byte_rate", "value": 1000.0}
    until(lambda: rows(kafka, "quotas", "list", "--user", "bob") == [expected])
    assert run(kafka, "quotas", "reset", "--user", "bob", "producer_byte_rate").exit_code == 0
    until(lambda: rows(kafka, "quotas", "list") == [])
    password = tmp_path / "password"
    password.write_text("builder\n")
    assert run(kafka, "users", "set", "bob", "--password-file", str(password)).exit_code == 0
    asked = run(kafka, "users", "set", "eve", "--iterations", "4096", text="apple\napple\n")
    assert asked.exit_code == 0 and "apple" not in asked.output
    until(lambda: [each["user"] for each in rows(kafka, "users", "list")] == ["bob", "eve"])
    assert run(kafka, "users", "delete", "bob").exit_code == 2
    (would,) = rows(kafka, "users", "delete", "bob", "--dry-run")
    assert (would["user"], would["mechanism"]) == ("bob", "SCRAM-SHA-512")
    assert rows(kafka, "users", "set", "nobody", "--dry-run") == []
    assert run(kafka, "quotas", "set", "--user", "bob", "producer_byte_rate=7", "--dry-run").exit_code == 0
    assert run(kafka, "quotas", "set", "--user", "bob", "nonsense=7", "--dry-run").exit_code == 1
    assert rows(kafka, "quotas", "list") == []
    assert run(kafka, "users", "delete", "bob", "--yes").exit_code == 0
    until(lambda: [each["user"] for each in rows(kafka, "users", "list")] == ["eve"])


def test_transactions(kafka: RealKafka) -> None:
    with kbatch.Producer(bootstrap_servers=kafka.bootstrap_servers, transactional_id="billing") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(TOPIC, b"x", partition=0).result()
        (listed,) = rows(kafka, "transactions", "list", "--state", "Ongoing")
        (described,) = rows(kafka, "transactions", "describe", "billing")
        assert (listed["transactional_id"], described["partitions"]) == ("billing", [f"{TOPIC}-0"])
        assert rows(kafka, "transactions", "find-hanging", TOPIC, "--minutes", "0") == []
        assert run(kafka, "transactions", "terminate", "billing").exit_code == 2
        for end in ("terminate", "fence"):
            (would,) = rows(kafka, "transactions", end, "billing", "--dry-run")
            assert (would["state"], would["partitions"]) == ("Ongoing", [f"{TOPIC}-0"])
        assert run(kafka, "transactions", "terminate", "billing", "--yes").exit_code == 0
        with pytest.raises(kbatch.errors.ProducerFencedError):
            producer.commit_transaction()
    (fenced,) = rows(kafka, "transactions", "fence", "billing", "--yes")
    assert fenced["producer_id"] == listed["producer_id"]


def test_cluster(kafka: RealKafka) -> None:
    (node,) = rows(kafka, "cluster", "describe", "--fenced")
    assert (node["node"], node["fenced"]) == (0, False)
    (voter,) = rows(kafka, "cluster", "quorum")
    assert (voter["node"], voter["role"], voter["leader"]) == (0, "voter", True)
    levels = {each["feature"]: each["level"] for each in rows(kafka, "cluster", "features")}
    same = f"transaction.version={levels['transaction.version']}"
    assert run(kafka, "cluster", "upgrade", same).exit_code == 0
    lower = run(kafka, "cluster", "upgrade", "transaction.version=1", "--downgrade", "safe")
    assert (lower.exit_code, "--yes" in lower.stderr) == (2, True)
    assert run(kafka, "cluster", "unregister", "0").exit_code == 2
    assert rows(kafka, "cluster", "unregister", "0", "--force", "--dry-run") == [node]
    would = run(kafka, "cluster", "unregister", "0", "--dry-run")
    assert (would.exit_code, "is alive" in would.stderr) == (1, True)
    alive = run(kafka, "cluster", "unregister", "0", "--yes")
    assert (alive.exit_code, "is alive" in alive.stderr) == (1, True)
    identity = "00000000-0000-0000-0000-000000000005"
    added = run(kafka, "cluster", "add-voter", "5", identity, "CONTROLLER://localhost:1234")
    assert (added.exit_code, "kraft.version" in added.stderr) == (1, True)
    assert run(kafka, "cluster", "add-voter", "5", identity, "localhost:1234").exit_code == 2
    assert run(kafka, "cluster", "remove-voter", "5", identity).exit_code == 2
    for change in (
        ("remove-voter", "5", identity),
        ("add-voter", "5", identity, "CONTROLLER://localhost:1234"),
    ):
        refused = run(kafka, "cluster", *change, "--dry-run")
        assert json.loads(refused.stdout.splitlines()[0])["node"] == 0
        assert (refused.exit_code, "kraft.version is 0" in refused.stderr) == (1, True)


def test_controllers_answer_commands(kafka: RealKafka) -> None:
    def ask(*call: str) -> Result:
        return CliRunner().invoke(command, [*call, "--bootstrap-controller", kafka.controllers[0]])

    for answered in ("describe", "quorum", "features"):
        result = ask("cluster", answered)
        assert result.exit_code == 0 and json.loads(result.stdout.splitlines()[0]), result.output
    refused = ask("topics", "describe", TOPIC)
    assert (refused.exit_code, "controllers do not answer" in refused.stderr) == (1, True)


def test_AS68_a_token_works_at_once(kafka: RealKafka, tmp_path: Path) -> None:
    login = ["-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN"]
    login += ["-X", f'sasl.jaas.config={LOGIN} username="alice" password="wonder";']
    secret, servers = tmp_path / "token", kafka.address("SASL")
    create = ("tokens", "create", "--hmac-file", str(secret))
    tried = run(kafka, *create, "--hours", "2", "--dry-run", *login, servers=servers)
    assert (tried.exit_code, tried.stdout, secret.exists()) == (0, "", False)
    assert "one of this client would be made, to live 2 hours" in tried.stderr
    assert run(kafka, *create, "--dry-run").exit_code == 1  # without a login
    (made,) = rows(kafka, *create, *login, servers=servers)
    assert made["owner"] == "User:alice" and secret.read_text() not in json.dumps(made)
    assert secret.stat().st_mode & 0o077 == 0
    (would,) = rows(kafka, "tokens", "renew", str(secret), "--dry-run", *login, servers=servers)
    assert would["token_id"] == made["token_id"]
    (renewed,) = rows(kafka, "tokens", "renew", str(secret), *login, servers=servers)
    assert renewed["expires"] >= made["issued"]
    (listed,) = rows(kafka, "tokens", "list", *login, servers=servers)
    assert listed["token_id"] == made["token_id"]
    rows(kafka, "tokens", "expire", str(secret), *login, servers=servers)
    until(lambda: rows(kafka, "tokens", "list", *login, servers=servers) == [])
    gone = run(kafka, "tokens", "expire", str(secret), "--dry-run", *login, servers=servers)
    assert (gone.exit_code, "token of the file: " in gone.stderr) == (1, True)
    assert run(kafka, "tokens", "list").exit_code == 1  # without a login
