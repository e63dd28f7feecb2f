"""`kbatch groups`: what is listed and described, and offsets that are reset, or would be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kbatch import Consumer, Producer, TopicPartition, TopicReader
from kbatch.cli.commands import kbatch
from kbatch.protocol import messages
from kbatch.testing import Broker
from tests.support.consuming import consumer_of
from tests.support.patience import repeat_until

TOPICS = {"orders": 2, "returns": 1}
GROUP = "billing"
FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
RETURNS = TopicPartition("returns", 0)


@pytest.fixture
def reader(broker: Broker) -> Iterator[TopicReader]:
    """Return a client of the broker, whose log has 10 records and a group that has read 4 and 6 of them."""
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(20):
            producer.send("orders", b"", partition=number % 2, timestamp_ms=1000 * (number // 2))
    with TopicReader(bootstrap_servers=broker.bootstrap_servers) as opened:
        opened.groups.commit_offsets(GROUP, {FIRST: 4, SECOND: 6})
        yield opened


def run(broker: Broker, *arguments: str) -> Result:
    shape = () if "--json" in arguments else ("--table",)
    return CliRunner().invoke(kbatch, ["groups", *arguments, *shape, "-b", broker.bootstrap_servers])


def lines(broker: Broker, *arguments: str) -> list[dict[str, Any]]:
    result = run(broker, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def committed(reader: TopicReader) -> dict[TopicPartition, int]:
    return {partition: each.committed.offset for partition, each in reader.groups.offsets(GROUP).items()}


def test_groups_are_listed(broker: Broker, reader: TopicReader) -> None:
    reader.groups.commit_offsets("another", {FIRST: 1})
    assert lines(broker, "list") == [
        {"group": name, "protocol": "classic", "state": "Empty"} for name in ("another", GROUP)
    ]
    assert [line.split() for line in run(broker, "list").stdout.splitlines()] == [
        ["group", "protocol", "state"],
        ["another", "classic", "Empty"],
        [GROUP, "classic", "Empty"],
    ]


def test_lag_is_described(broker: Broker, reader: TopicReader) -> None:
    (found,) = lines(broker, "describe", GROUP)
    assert {name: found[name] for name in ("group", "protocol", "state", "lag", "members")} == {
        "group": GROUP,
        "protocol": "classic",
        "state": "Empty",
        "lag": 10,
        "members": [],
    }
    assert found["partitions"][1] == {
        "topic": "orders",
        "partition": 1,
        "committed": 6,
        "end": 10,
        "lag": 4,
        "member": None,
    }
    head, names, first, second = run(broker, "describe", GROUP).stdout.splitlines()
    assert head == f"{GROUP}: Empty, classic, 0 members, lag 10"
    assert names.split() == ["topic", "partition", "committed", "end", "lag", "client", "host"]
    assert first.split() == ["orders", "0", "4", "10", "6", "-", "-"]
    assert second.split() == ["orders", "1", "6", "10", "4", "-", "-"]


def test_committed_offset_below_0_is_none(broker: Broker, reader: TopicReader) -> None:
    """Real brokers keep any number that a program commits."""

    def answer(request: Any) -> Any:
        kind = messages.OffsetFetchResponse
        partitions = [
            kind.OffsetFetchResponsePartitions(partition_index=index, committed_offset=offset, metadata="")
            for index, offset in enumerate((-2, 6))
        ]
        topic = kind.OffsetFetchResponseTopics(name="orders", partitions=partitions)
        group = kind.OffsetFetchResponseGroup(group_id=GROUP, topics=[topic])
        return kind(groups=[group])

    broker.intercept("OffsetFetch", answer)
    (found,) = lines(broker, "describe", GROUP)
    assert [(row["partition"], row["committed"]) for row in found["partitions"]] == [(1, 6)]
    assert "-2" not in run(broker, "describe", GROUP).stdout


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_are_described(broker: Broker, protocol: str) -> None:
    with consumer_of(broker.bootstrap_servers, GROUP, "returns", protocol):
        (found,) = lines(broker, "describe", GROUP)
        assert found["protocol"] == protocol
        (member,) = found["members"]
        (partition,) = found["partitions"]
        assert member["client"] == "other"
        assert partition["member"] == member["member"] and partition["committed"] is None
        assert " -  " in run(broker, "describe", GROUP).stdout
        refused = run(broker, "reset", GROUP, "-t", "returns", "--to", "earliest", "--execute")
        assert refused.exit_code == 1
        assert "is Stable and has members" in refused.stderr and "other at" in refused.stderr


def test_client_id_forges_no_row(broker: Broker) -> None:
    keys: dict[str, Any] = {"client_id": "one\norders  9\x1b[2J", "group_id": GROUP}
    with Consumer(bootstrap_servers=broker.bootstrap_servers, **keys) as consumer:
        consumer.subscribe(["returns"])
        repeat_until(lambda: consumer.poll(0.01), consumer.assignment)
        described = run(broker, "describe", GROUP).stdout
    assert "one orders  9 [2J" in described
    assert [row for row in described.splitlines() if row.startswith("orders")] == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--all-topics", "--to", "earliest"], {FIRST: 0, SECOND: 0}),
        (["--all-topics", "--to", "1970-01-01T00:00:03Z"], {FIRST: 3, SECOND: 3}),
        (["--all-topics", "--shift-by", "-5"], {FIRST: 0, SECOND: 1}),
        (["--all-topics", "--shift-by", "5"], {FIRST: 9, SECOND: 10}),
        (["-t", "orders:1", "--to", "-2"], {FIRST: 4, SECOND: 8}),
        (["-t", "orders", "--to", "0:2,1:99"], {FIRST: 2, SECOND: 10}),
        (["-t", "orders:0", "-t", "returns", "--to", "latest"], {FIRST: 10, SECOND: 6, RETURNS: 0}),
        (["-t", "orders:1", "-t", "returns", "--to", "none"], {FIRST: 4}),
    ],
)
def test_reset_changes_offsets_only_with_execute(
    broker: Broker, reader: TopicReader, arguments: list[str], expected: dict[TopicPartition, int]
) -> None:
    before = committed(reader)
    shown = lines(broker, "reset", GROUP, *arguments)
    assert committed(reader) == before
    assert "nothing has changed" in run(broker, "reset", GROUP, *arguments, "--dry-run").stderr
    assert lines(broker, "reset", GROUP, *arguments, "--execute") == shown
    assert committed(reader) == expected
    for row in shown:
        partition = TopicPartition(row["topic"], row["partition"])
        assert (row["committed"], row["new"]) == (before.get(partition), expected.get(partition))


def test_reset_makes_a_group(broker: Broker, reader: TopicReader) -> None:
    assert run(broker, "reset", "newcomer", "-t", "orders", "--to", "5", "--execute").exit_code == 0
    assert {each.committed.offset for each in reader.groups.offsets("newcomer").values()} == {5}


WRONG = [
    (["describe", "nobody"], 1, "describe of group nobody"),
    (["describe"], 2, "Missing argument"),
    (["describe", ""], 2, "group_id must not be empty"),
    (["reset", GROUP, "--to", "earliest"], 2, "name topics with --topic"),
    (["reset", GROUP, "-t", "orders", "--all-topics", "--to", "0"], 2, "name topics with --topic"),
    (["reset", GROUP, "-t", "orders"], 2, "say where with --to POSITION or --shift-by N"),
    (["reset", GROUP, "-t", "orders", "--to", "0", "--shift-by", "1"], 2, "one of them"),
    (["reset", GROUP, "-t", "orders:x", "--to", "0"], 2, "as in orders:0,1"),
    (["reset", GROUP, "-t", "orders:7", "--to", "0"], 2, "topic orders has no partition 7; it has 0 to 1"),
    (["reset", GROUP, "-t", "returns", "--shift-by", "1"], 2, "no offset of returns-0 to shift"),
    (["reset", "nobody", "--all-topics", "--to", "0"], 1, "has committed no offsets"),
    (["reset", GROUP, "-t", "nowhere", "--to", "0"], 1, "nowhere"),
]


@pytest.mark.parametrize(("arguments", "status", "text"), WRONG, ids=[text for _, _, text in WRONG])
def test_wrong_call_is_explained(
    broker: Broker, reader: TopicReader, arguments: list[str], status: int, text: str
) -> None:
    result = run(broker, *arguments)
    assert result.exit_code == status, result.output
    assert text in " ".join(result.stderr.split())


def test_groups_and_their_offsets_are_deleted(broker: Broker, reader: TopicReader) -> None:
    reader.groups.commit_offsets("another", {FIRST: 1})
    deleted = lines(broker, "delete-offsets", GROUP, "orders:1", "--yes")
    assert deleted == [{"topic": "orders", "partition": 1}]
    assert committed(reader) == {FIRST: 4}
    partly = run(broker, "delete", "another", "nobody", "--yes", "--json")
    assert (partly.exit_code, json.loads(partly.stdout.splitlines()[0])) == (1, {"group": "another"})
    assert "group nobody" in partly.stderr
    assert lines(broker, "delete", GROUP, "nobody", "--if-exists", "--yes") == [
        {"group": GROUP},
        {"group": "nobody"},
    ]
    assert lines(broker, "list") == []


def test_AS77_members_are_removed(broker: Broker, reader: TopicReader) -> None:
    keys: dict[str, Any] = {"group_id": "static", "group_instance_id": "one", "group_protocol": "classic"}
    with Consumer(bootstrap_servers=broker.bootstrap_servers, **keys) as consumer:
        consumer.subscribe(["orders"])
        repeat_until(lambda: consumer.poll(0.01), consumer.assignment)
        unknown = run(broker, "remove-members", "static", "two", "--yes")
        assert (unknown.exit_code, "member two" in unknown.stderr) == (1, True)
        assert lines(broker, "remove-members", "static", "one", "--yes") == [{"member": "one"}]
    assert run(broker, "remove-members", "static", "--yes").exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [("delete", GROUP), ("delete-offsets", GROUP, "orders:0"), ("remove-members", GROUP, "--all")],
)
def test_AS88_nothing_of_a_group_is_destroyed_without_a_question(
    broker: Broker, reader: TopicReader, arguments: tuple[str, ...]
) -> None:
    refused = run(broker, *arguments)
    assert (refused.exit_code, "--yes" in refused.stderr) == (2, True)
    assert committed(reader) == {FIRST: 4, SECOND: 6}
