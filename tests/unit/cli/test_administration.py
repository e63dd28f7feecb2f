"""`kbatch topics` and `kbatch configs`: what they print, ask and return."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
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
    """As kafka-acls has them. A dry run shows those that are not there yet."""
    with Broker(authorizer=True, super_users=["User:ANONYMOUS"]) as guarded:
        grant = ("acls", "grant", "--principal", "User:bob", *options)
        found = rows(run(guarded, *grant, "--dry-run"))
        assert rows(run(guarded, "acls", "list")) == []
        assert rows(run(guarded, *grant)) == found
        assert rows(run(guarded, *grant, "--dry-run")) == []
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


# Patterns


def test_patterns_choose_topics() -> None:
    with Broker({"made-1": 1, "made-2": 2, "kept": 1}, auto_create_topics=False) as cluster:
        described = rows(run(cluster, "topics", "describe", "^made-.*"))
        assert [(each["topic"], each["partition"]) for each in described] == [
            ("made-1", 0),
            ("made-2", 0),
            ("made-2", 1),
        ]
        altered = rows(run(cluster, "topics", "alter", "^made.*", "kept", "-p", "3"))
        assert [each["topic"] for each in altered] == ["kept", "made-1", "made-2"]
        none = run(cluster, "topics", "delete", "^nothing", "--yes")
        assert (none.exit_code, "no name matches ^nothing" in none.stderr) == (1, True)
        refused = run(cluster, "topics", "delete", "^made-.*")
        assert (refused.exit_code, "delete made-1 made-2: pass --yes" in refused.stderr) == (2, True)
        would = rows(run(cluster, "topics", "delete", "^made-.*", "--dry-run"))
        assert [each["topic"] for each in would] == ["made-1", "made-2"]
        assert rows(run(cluster, "topics", "delete", "^made-.*", "--yes")) == [
            {"topic": "made-1"},
            {"topic": "made-2"},
        ]
        assert [each["topic"] for each in rows(run(cluster, "topics"))] == ["kept"]


# Dry runs that judge


@pytest.fixture(scope="module")
def pair() -> Iterator[Broker]:
    """Two nodes, which an authorizer guards."""
    topics = {"orders": 2, "compacted": 1}
    with Broker(
        topics, nodes=2, auto_create_topics=False, authorizer=True, super_users=["User:ANONYMOUS"]
    ) as cluster:
        assert run(cluster, "configs", "set", "-t", "compacted", "cleanup.policy=compact").exit_code == 0
        yield cluster


REFUSED = [
    (["records", "delete", "orders:0=99"], "partition orders-0: it ends at 0"),
    (["records", "delete", "compacted:0=end"], "only compacted"),
    (["partitions", "elect", "orders:9"], "partition orders-9: "),
    (["partitions", "cancel", "orders:0"], "partition orders-0: "),
    (["partitions", "move", "orders:0:0", "/nowhere"], "replica orders-0:0: broker 0 has "),
    (["cluster", "unregister", "0"], "broker 0: it is alive"),
    (["cluster", "unregister", "7"], "broker 7: "),
    (["users", "set", "ada", "--iterations", "7"], "iterations must be 4,096 to 16,384, got 7"),
    (["users", "delete", "ada"], "user ada: it has no password for SCRAM-SHA-512"),
    (["groups", "delete", "nobody"], "group nobody: "),
]


@pytest.mark.parametrize(("arguments", "text"), REFUSED, ids=[" ".join(each) for each, _ in REFUSED])
def test_a_dry_run_fails_where_the_call_would(pair: Broker, arguments: list[str], text: str) -> None:
    result = run(pair, *arguments, "--dry-run")
    assert (result.exit_code, text in " ".join(result.stderr.split())) == (1, True), result.output
    assert "nothing has changed" in result.stderr
    (failed,) = [json.loads(line) for line in result.stdout.splitlines()]
    assert failed["error"]["message"]


@pytest.mark.parametrize(
    ("replicas", "text"),
    [
        ([0, 9], "broker 9 is not alive"),
        ([1, 1], "must be different, got 1,1"),
        ([0], "it has 2 replicas and would have 1: `kbatch partitions plan -r 1`"),
    ],
)
def test_a_dry_run_judges_moves(pair: Broker, tmp_path: Path, replicas: list[int], text: str) -> None:
    plan = tmp_path / "plan.json"
    moves = [
        {"topic": "orders", "partition": at, "replicas": brokers}
        for at, brokers in ((0, replicas), (1, [1, 0]))
    ]
    plan.write_text(
        json.dumps({"partitions": [*moves, {"topic": "orders", "partition": 9, "replicas": [0]}]})
    )
    result = run(pair, "partitions", "reassign", str(plan), "--dry-run")
    would, *failed = [json.loads(line) for line in result.stdout.splitlines()]
    assert (would["partition"], would["after"]) == ("orders-1", [1, 0])
    assert [each["partition"] for each in failed] == ["orders-0", "orders-9"]
    assert (result.exit_code, text in result.stderr) == (1, True)


def test_a_plan_says_what_it_takes(pair: Broker) -> None:
    with Producer(bootstrap_servers=pair.bootstrap_servers) as producer:
        for partition in range(2):
            producer.send("orders", bytes(1000), partition=partition)
    result = run(pair, "partitions", "plan", "orders", "--drain", "1", "-r", "1")
    moves = rows(result)
    assert [(each["after"], each["new_leader"], each["copied_bytes"]) for each in moves] == [([0], 0, 0)] * 2
    assert "2 partitions, 0 B to copy, leaders that move: 1" in result.stderr
    assert "nothing to move" in run(pair, "partitions", "plan", "orders").stderr
