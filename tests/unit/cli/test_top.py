"""`kbatch top`: what it counts, and what it prints into a pipe and on a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from kbatch import Admin, Producer, TopicPartition
from kbatch.cli import top
from kbatch.cli.commands import kbatch
from kbatch.cli.name_choice import NameChoice
from kbatch.cli.top import Chosen, Sample, _drawn, tables_of, take_sample
from kbatch.errors import KafkaTimeoutError
from kbatch.testing import Broker
from tests.support.consuming import consumer_of

TOPICS = {"orders": 2, "returns": 1}


@pytest.fixture
def admin() -> Iterator[Admin]:
    with Broker(TOPICS) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as opened:
        yield opened


def send(admin: Admin, topic: str, count: int) -> None:
    with Producer(bootstrap_servers=admin.config.bootstrap_servers) as producer:
        for _ in range(count):
            producer.send(topic, b"", partition=0)


def sample(admin: Admin) -> Sample:
    return take_sample(admin, Chosen(NameChoice([]), NameChoice([])))


def test_rates_are_those_between_samples(admin: Admin) -> None:
    admin.groups.commit_offsets("billing", {TopicPartition("orders", 0): 0})
    before = sample(admin)._replace(seconds=10.0)
    send(admin, "orders", 6)
    admin.groups.commit_offsets("billing", {TopicPartition("orders", 0): 4})
    now = sample(admin)._replace(seconds=12.0)
    tables = {about: rows for about, (_, rows) in tables_of(now, before).items()}
    assert tables["topics"] == [("orders", 2, 6, 3.0), ("returns", 1, 0, 0.0)]
    assert tables["groups"] == [("billing", "Empty", 2, 2.0)]
    ((broker, address, rack, *figures),) = tables["brokers"]
    assert (broker, f"{address}", rack, figures) == (0, address, None, [3, 3, 0, 3.0])
    first = {about: rows for about, (_, rows) in tables_of(now, None).items()}
    assert first["topics"][0] == ("orders", 2, 6, None)


def test_topic_that_was_made_again_has_no_negative_rate(admin: Admin) -> None:
    send(admin, "returns", 5)
    before = sample(admin)._replace(seconds=0.0)
    admin.topics.delete("returns")
    admin.topics.create("returns", partitions=1)
    now = sample(admin)._replace(seconds=1.0)
    rates = {row[0]: row[3] for row in tables_of(now, before)["topics"][1]}
    assert rates == {"orders": 0.0, "returns": 0.0}


def test_a_pipe_gets_a_line_a_row(admin: Admin) -> None:
    servers = ",".join(admin.config.bootstrap_servers)
    arguments = ["top", "-b", servers, "-n", "2", "--interval", "0.01"]
    result = CliRunner().invoke(kbatch, arguments)
    assert result.exit_code == 0, result.output
    lines: list[dict[str, Any]] = [json.loads(line) for line in result.stdout.splitlines()]
    topics = [each for each in lines if "topic" in each]
    assert [each["topic"] for each in topics] == [*TOPICS, *TOPICS]
    assert [each["records_per_s"] for each in topics] == [None, None, 0.0, 0.0]
    assert len([each for each in lines if "broker" in each]) == 2
    table = CliRunner().invoke(kbatch, [*arguments, "--table"])
    assert table.stdout.splitlines()[0].split() == [
        *("time", "topic", "partitions", "offsets", "records_per_s")
    ]


def test_a_terminal_shows_all_tables(admin: Admin) -> None:
    screen = Console(file=StringIO(), width=100, force_terminal=False)
    screen.print(_drawn(tables_of(sample(admin), None)))
    assert isinstance(screen.file, StringIO)
    shown = screen.file.getvalue()
    assert "orders" in shown and "lag" in shown and "out_of_sync" in shown


def test_topics_and_groups_are_chosen(admin: Admin) -> None:
    for group in ("audit", "billing"):
        admin.groups.commit_offsets(group, {TopicPartition("orders", 0): 0})
    chosen = Chosen(NameChoice(["^ret.*"]), NameChoice(["audit"]))
    tables = {about: rows for about, (_, rows) in tables_of(take_sample(admin, chosen), None).items()}
    assert [row[0] for row in tables["topics"]] == ["returns"]
    assert [row[0] for row in tables["groups"]] == ["audit"]
    assert tables["brokers"][0][3] == 1  # leaders


def test_topics_are_described_once_in_a_while(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = Chosen(NameChoice([]), NameChoice([]))
    before = take_sample(admin, chosen)
    admin.topics.create("later", partitions=1)
    soon = take_sample(admin, chosen, before)
    assert soon.layout is before.layout
    monkeypatch.setattr(top, "LAYOUT_SECONDS", 0)
    assert TopicPartition("later", 0) in take_sample(admin, chosen, soon).ends


def test_a_group_without_commits_has_no_lag(admin: Admin) -> None:
    with consumer_of(",".join(admin.config.bootstrap_servers), "new", "orders", "classic"):
        ((name, _, lag, _),) = tables_of(sample(admin), None)["groups"][1]
    assert (name, lag) == ("new", None)


def test_a_dead_broker_does_not_stop_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Admin would wait a minute for the partitions that it has led."""
    with Broker({}, nodes=2) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.topics.create("single", assignment={0: [0], 1: [1]})
        chosen = Chosen(NameChoice([]), NameChoice([]))
        before = take_sample(admin, chosen)
        assert len(before.ends) == 2
        broker.kill_node(1)
        monkeypatch.setattr(top, "ANSWER_SECONDS", 3)
        soon = take_sample(admin, chosen, before)
        assert TopicPartition("single", 1) not in soon.ends
        monkeypatch.setattr(top, "ANSWER_SECONDS", 60)
        later = take_sample(admin, chosen, soon)
        assert later.layout.partitions[TopicPartition("single", 1)].leader is None


def test_a_round_without_an_answer_is_passed_over(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Sample | KafkaTimeoutError] = [sample(admin), KafkaTimeoutError("none"), sample(admin)]
    rounds = iter(answers)

    def take(*arguments: object) -> Sample:
        found = next(rounds)
        if isinstance(found, KafkaTimeoutError):
            raise found
        return found

    monkeypatch.setattr(top, "take_sample", take)
    chosen = Chosen(NameChoice([]), NameChoice([]))
    assert len(list(top._samples(admin, chosen, 2, 0.001))) == 2
