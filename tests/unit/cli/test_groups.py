"""`kbatch groups`: what is listed and described, and offsets that are reset, or would be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kbatch import Consumer, Producer, TopicPartition, TopicReader
from kbatch.cli.commands import kbatch
from kbatch.core.process.finished_runs import encode_runs
from kbatch.protocol import messages
from kbatch.records import OffsetAndMetadata
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


def test_all_groups_are_described(broker: Broker, reader: TopicReader) -> None:
    reader.groups.commit_offsets("another", {FIRST: 1})
    assert [(each["group"], each["lag"]) for each in lines(broker, "describe")] == [
        ("another", 9),
        (GROUP, 10),
    ]


def test_groups_are_chosen_by_protocol_and_state(broker: Broker, reader: TopicReader) -> None:
    with consumer_of(broker.bootstrap_servers, "reading", "returns", "consumer"):
        assert [each["group"] for each in lines(broker, "list", "--protocol", "consumer")] == ["reading"]
        assert [each["group"] for each in lines(broker, "list", "--state", "Empty")] == [GROUP]
    wrong = run(broker, "list", "--state", "Asleep")
    assert (wrong.exit_code, "Asleep" in wrong.stderr) == (2, True)


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
        "done": 0,
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
        _, names, row = run(broker, "describe", GROUP, "--members").stdout.splitlines()
        assert names.split() == ["member", "instance", "client", "host", "epoch", "partitions"]
        assert row.split()[0] == member["member"] and row.split()[-1] == "returns-0"
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
    call = ("reset", "newcomer", "-t", "orders", "--to", "5")
    assert "group newcomer is new: --execute makes it" in run(broker, *call).stderr
    assert reader.groups.offsets("newcomer") == {}
    assert "it has these offsets" in run(broker, *call, "--execute").stderr
    assert "is new" not in run(broker, *call).stderr
    assert {each.committed.offset for each in reader.groups.offsets("newcomer").values()} == {5}


WRONG = [
    (["describe", "nobody"], 1, "describe of group nobody"),
    (["describe", ""], 2, "group_id must not be empty"),
    (["reset", GROUP, "--to", "earliest"], 2, "name topics with --topic"),
    (["reset", GROUP, "-t", "orders", "--all-topics", "--to", "0"], 2, "name topics with --topic"),
    (["reset", GROUP, "-t", "orders"], 2, "say where with --to POSITION, --shift-by N or"),
    (["reset", GROUP, "-t", "orders", "--to", "0", "--shift-by", "1"], 2, "one of them"),
    (["reset", GROUP, "-t", "orders:x", "--to", "0"], 2, "as in orders:0,1"),
    (["reset", GROUP, "-t", "orders:7", "--to", "0"], 2, "topic orders has no partition 7; it has 0 to 1"),
    (["reset", GROUP, "-t", "returns", "--shift-by", "1"], 2, "no offset of returns-0 to shift"),
    (["reset", "nobody", "--all-topics", "--to", "0"], 1, "there is no group nobody"),
    (["reset", GROUP, "-t", "nowhere", "--to", "0"], 1, "nowhere"),
]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("arguments", "status", "text"), WRONG, ids=[text for _, _, text in WRONG])
def test_wrong_call_is_explained(
    broker: Broker, reader: TopicReader, arguments: list[str], status: int, text: str
) -> None:
    result = run(broker, *arguments)
    assert result.exit_code == status, result.output
    assert text in " ".join(result.stderr.split())


def test_a_group_without_commits_has_no_lag(broker: Broker) -> None:
    with consumer_of(broker.bootstrap_servers, GROUP, "returns", "classic"):
        (found,) = lines(broker, "describe", GROUP)
        assert found["lag"] is None and found["partitions"][0]["lag"] is None
        assert "lag unknown: it has no offsets" in run(broker, "describe", GROUP).stdout


def test_what_process_has_finished_is_counted(broker: Broker, reader: TopicReader) -> None:
    """Of another topic of the same name, and by another program, nothing is."""
    topic_id = reader.describe(["orders"])["orders"].topic_id
    text, _ = encode_runs(4, [(5, 7), (9, 10)], topic_id, 4000)
    stale, _ = encode_runs(6, [(7, 8)], b"another-topic-id", 4000)
    committed = {FIRST: OffsetAndMetadata(4, text), SECOND: OffsetAndMetadata(6, stale)}
    reader.groups.commit_offsets(GROUP, committed)
    (found,) = lines(broker, "describe", GROUP)
    assert [each["done"] for each in found["partitions"]] == [3, 0]
    head, names, *_ = run(broker, "describe", GROUP).stdout.splitlines()
    assert head.endswith("lag 10 of which 3 are done")
    assert names.split() == ["topic", "partition", "committed", "end", "lag", "done", "client", "host"]


# CSV


def test_offsets_go_into_a_file_and_come_back(broker: Broker, reader: TopicReader, tmp_path: Path) -> None:
    export = ("reset", GROUP, "--all-topics", "--to", "current", "--export")
    text = run(broker, *export).stdout
    assert text == "orders,0,4\norders,1,6\n"
    path = tmp_path / "offsets.csv"
    path.write_text(text)
    assert run(broker, "reset", GROUP, "--all-topics", "--to", "latest", "--execute").exit_code == 0
    assert committed(reader) == {FIRST: 10, SECOND: 10}
    assert run(broker, "reset", GROUP, "--from-file", str(path)).exit_code == 0
    assert committed(reader) == {FIRST: 10, SECOND: 10}
    assert run(broker, "reset", GROUP, "--from-file", str(path), "--execute").exit_code == 0
    assert committed(reader) == {FIRST: 4, SECOND: 6}
    assert run(broker, *export).stdout == text


def test_a_file_of_several_groups_is_read_for_one(
    broker: Broker, reader: TopicReader, tmp_path: Path
) -> None:
    """Kafka's tool writes the group first if it exports several."""
    path = tmp_path / "offsets.csv"
    path.write_text(f"other,orders,0,9\n{GROUP},orders,0,2\n{GROUP},orders,1,99\n\n")
    assert lines(broker, "reset", GROUP, "--from-file", str(path), "--execute") == [
        {"topic": "orders", "partition": 0, "committed": 4, "new": 2},
        {"topic": "orders", "partition": 1, "committed": 6, "new": 10},
    ]
    assert committed(reader) == {FIRST: 2, SECOND: 10}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("orders,0\n", "line 1 must be topic, partition, offset"),
        ("orders,0,1\norders,x,1\n", "line 2 must be"),
        ("other,orders,0,1\n", "no line for group billing"),
        ("", "no line for group"),
    ],
)
def test_a_file_of_something_else_is_refused(broker: Broker, tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "offsets.csv"
    path.write_text(text)
    result = run(broker, "reset", GROUP, "--from-file", str(path), "--execute")
    assert (result.exit_code, words in " ".join(result.stderr.split())) == (2, True), result.output


# Dry runs


def test_dry_runs_show_and_change_nothing(broker: Broker, reader: TopicReader) -> None:
    before = committed(reader)
    assert lines(broker, "delete", GROUP, "--dry-run") == [
        {"group": GROUP, "protocol": "classic", "state": "Empty", "members": 0}
    ]
    assert lines(broker, "delete-offsets", GROUP, "orders:0", "returns:0", "--dry-run") == [
        {"topic": "orders", "partition": 0, "committed": 4}
    ]
    missing = run(broker, "delete", "nobody", "--dry-run")
    assert (missing.exit_code, "group nobody" in missing.stderr) == (1, True)
    assert "nothing has changed" in missing.stderr
    assert committed(reader) == before
    with consumer_of(broker.bootstrap_servers, "reading", "returns", "classic") as consumer:
        (member,) = lines(broker, "remove-members", "reading", "--all", "--dry-run")
        assert member["client"] == "other"
        assert len(lines(broker, "describe", "reading")[0]["members"]) == 1
        assert consumer.assignment()


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
