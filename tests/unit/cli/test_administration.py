"""`kbatch topics` and `kbatch configs`: what they print, ask and return."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from kbatch import Producer
from kbatch.cli.commands import COMMANDS, kbatch
from kbatch.cli.completion import SHELLS
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


@pytest.mark.parametrize("interpreter", SHELLS)
def test_completion_knows_commands_and_options(interpreter: str) -> None:
    result = CliRunner().invoke(kbatch, ["completion", interpreter])
    assert result.exit_code == 0 and "_KBATCH_COMPLETE" in result.stdout
    words = ShellComplete(kbatch, {}, "kbatch", "_KBATCH_COMPLETE")
    assert "topics" in {each.value for each in words.get_completions([], "top")}
    assert {each.value for each in words.get_completions(["topics", "create"], "--part")} == {"--partitions"}


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help(command: str) -> None:
    result = CliRunner().invoke(kbatch, [command, "--help"])
    assert result.exit_code == 0, result.output
