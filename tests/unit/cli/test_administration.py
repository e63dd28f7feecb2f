"""`kbatch topics` and `kbatch configs`: what they print, ask and return."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kbatch import Producer
from kbatch.cli.commands import COMMANDS, kbatch
from kbatch.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"orders": 2}, auto_create_topics=False) as started:
        yield started


def run(broker: Broker, *arguments: str) -> Result:
    return CliRunner().invoke(kbatch, [*arguments, "-b", broker.bootstrap_servers])


def rows(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_topics_are_created_altered_and_deleted(broker: Broker) -> None:
    (created,) = rows(run(broker, "topics", "create", "made", "-p", "2", "-r", "1", "--json"))
    assert (created["topic"], created["partitions"], created["existed"]) == ("made", 2, False)
    again = run(broker, "topics", "create", "made", "other", "--json")
    assert again.exit_code == 1
    assert "TOPIC_ALREADY_EXISTS" in again.stdout and "topic made: " in again.stderr
    assert rows(run(broker, "topics", "create", "made", "--if-not-exists", "--json"))[0]["existed"]
    assert rows(run(broker, "topics", "alter", "made", "-p", "3", "--json")) == [
        {"topic": "made", "partitions": 3}
    ]
    described = rows(run(broker, "topics", "describe", "made", "--json"))
    assert [each["partition"] for each in described] == [0, 1, 2]
    assert {each["topic"] for each in rows(run(broker, "topics", "--json"))} == {"orders", "made", "other"}
    assert run(broker, "topics", "delete", "made", "other", "--yes").exit_code == 0
    assert [each["topic"] for each in rows(run(broker, "topics", "list", "--json"))] == ["orders"]


def test_AS88_nothing_is_destroyed_without_a_question(broker: Broker) -> None:
    refused = run(broker, "topics", "delete", "orders")
    assert (refused.exit_code, "--yes" in refused.stderr) == (2, True)
    refused = run(broker, "configs", "set", "--broker", "0", "log.retention.ms=1")
    assert (refused.exit_code, "--yes" in refused.stderr) == (2, True)
    assert rows(run(broker, "topics", "--json"))[0]["topic"] == "orders"


def test_settings_are_changed(broker: Broker) -> None:
    topic = ("-t", "orders")
    assert run(broker, "configs", "set", *topic, "retention.ms=5000").exit_code == 0
    assert run(broker, "configs", "append", *topic, "cleanup.policy=compact").exit_code == 0
    found = {
        each["name"]: each["value"] for each in rows(run(broker, "configs", "describe", *topic, "--json"))
    }
    assert found == {"retention.ms": "5000", "cleanup.policy": "delete,compact"}
    table = run(broker, "configs", "describe", *topic, "--table").stdout.splitlines()
    assert table[0].split() == ["name", "value", "source", "type"]
    assert run(broker, "configs", "reset", *topic, "retention.ms", "cleanup.policy").exit_code == 0
    assert rows(run(broker, "configs", "describe", *topic, "--json")) == []
    wrong = run(broker, "configs", "set", *topic, "retention.ms=often")
    assert (wrong.exit_code, "retention.ms" in wrong.stderr) == (1, True)
    assert run(broker, "configs", "describe").exit_code == 2


def test_a_pipe_gets_json_and_a_table_if_it_asks(broker: Broker) -> None:
    (row,) = rows(run(broker, "topics"))
    assert row["topic"] == "orders"
    names, line = run(broker, "topics", "--table").stdout.splitlines()
    assert names.split() == ["topic", "topic_id", "partitions"]
    assert line.split()[::2] == ["orders", "2"]


def test_records_are_deleted(broker: Broker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for _ in range(5):
            producer.send("orders", b"", partition=0)
    refused = run(broker, "records", "delete", "orders:0=3")
    assert (refused.exit_code, "--yes" in refused.stderr) == (2, True)
    assert rows(run(broker, "records", "delete", "orders:0=3", "orders:1=end", "--yes")) == [
        {"topic": "orders", "partition": 0, "earliest": 3},
        {"topic": "orders", "partition": 1, "earliest": 0},
    ]
    beyond = run(broker, "records", "delete", "orders:0=99", "--yes")
    assert (beyond.exit_code, "partition orders-0" in beyond.stderr) == (1, True)
    assert run(broker, "records", "delete", "orders:0", "--yes").exit_code == 2


def test_dry_runs_show_and_change_nothing(broker: Broker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        last = producer.send("orders", b"", partition=1).result(10).offset
    before = rows(run(broker, "topics", "--offsets"))
    (deleted,) = rows(run(broker, "topics", "delete", "orders", "--dry-run"))
    assert deleted == before[0] and deleted["offsets"] > 0
    missing = run(broker, "topics", "delete", "nowhere", "--dry-run")
    assert (missing.exit_code, "topic nowhere" in missing.stderr) == (1, True)
    assert run(broker, "topics", "delete", "nowhere", "--dry-run", "--if-exists").exit_code == 0
    (shorter,) = rows(run(broker, "records", "delete", "orders:1=end", "--dry-run"))
    assert shorter == {"topic": "orders", "partition": 1, "earliest": 0, "latest": last + 1, "new": last + 1}
    created = run(broker, "topics", "create", "made", "--dry-run")
    assert "nothing has changed" in created.stderr
    assert rows(run(broker, "topics", "--offsets")) == before


def test_partitions_without_a_leader_or_replicas_are_found() -> None:
    with Broker({"orders": 2}, nodes=2) as cluster:
        assert len(rows(run(cluster, "topics", "describe"))) == 2
        assert rows(run(cluster, "topics", "describe", "--unavailable")) == []
        cluster.stop_node(1)
        lost = rows(run(cluster, "topics", "describe", "--under-replicated"))
        assert lost and all(len(each["isr"]) < len(each["replicas"]) for each in lost)


def test_brokers_of_partitions_are_assigned() -> None:
    with Broker({}, nodes=3) as cluster:
        assert run(cluster, "topics", "create", "made", "--assignment", "0:1,2:0").exit_code == 0
        altered = run(cluster, "topics", "alter", "made", "-p", "3", "--assignment", "1:2")
        assert altered.exit_code == 0, altered.output
        described = rows(run(cluster, "topics", "describe", "made"))
        assert [each["replicas"] for each in described] == [[0, 1], [2, 0], [1, 2]]
        wrong = run(cluster, "topics", "create", "other", "--assignment", "0:x")
        assert (wrong.exit_code, "0:1,1:2" in wrong.stderr) == (2, True)


def test_synonyms_of_settings_are_shown(broker: Broker) -> None:
    assert run(broker, "configs", "set", "-t", "orders", "retention.ms=5000").exit_code == 0
    (row,) = rows(run(broker, "configs", "describe", "-t", "orders", "--synonyms"))
    assert row["synonyms"][0] == "DYNAMIC_TOPIC_CONFIG retention.ms=5000"
    assert run(broker, "configs", "reset", "-t", "orders", "retention.ms").exit_code == 0


RULE = {"principal": "User:bob", "host": "*", "pattern": "literal", "allow": True}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            ["--producer", "orders", "--transactional-id", "shop"],
            {("topic", "orders", each) for each in ("Write", "Describe", "Create")}
            | {("transactional_id", "shop", each) for each in ("Write", "Describe")},
        ),
        (
            ["--consumer", "orders", "--consumer", "returns", "--group", "audit"],
            {("topic", topic, each) for topic in ("orders", "returns") for each in ("Read", "Describe")}
            | {("group", "audit", "Read")},
        ),
        (["--resource", "topic", "--name", "*", "--operation", "Read"], {("topic", "*", "Read")}),
    ],
)
def test_acls_for_what_clients_need(options: list[str], expected: set[tuple[str, str, str]]) -> None:
    """As kafka-acls has them; a dry run needs no broker."""
    call = ["acls", "grant", "--principal", "User:bob", *options, "--dry-run", "-b", "127.0.0.1:1"]
    found = rows(CliRunner().invoke(kbatch, call))
    assert all(RULE.items() <= each.items() for each in found)
    assert {(each["resource"], each["name"], each["operation"]) for each in found} == expected
    assert len(found) == len(expected)


@pytest.mark.parametrize("options", [[], ["--resource", "topic"], ["--producer", "a", "--operation", "Read"]])
def test_acls_without_a_resource_are_refused(options: list[str]) -> None:
    call = ["acls", "grant", "--principal", "User:bob", *options, "-b", "127.0.0.1:1"]
    result = CliRunner().invoke(kbatch, call)
    assert (result.exit_code, "--producer" in result.stderr) == (2, True)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help(command: str) -> None:
    result = CliRunner().invoke(kbatch, [command, "--help"])
    assert result.exit_code == 0, result.output
