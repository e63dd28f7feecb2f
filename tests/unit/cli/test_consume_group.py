"""`kbatch consume --group`: it goes on where the group is, and commits what it has written."""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kbatch import Consumer, Producer, TopicPartition, TopicReader
from kbatch.cli.members import TopicMember
from kbatch.cli.name_choice import NameChoice
from kbatch.cli.outputs import ParquetOutput
from kbatch.testing import Broker
from tests.support.patience import until
from tests.unit.cli.test_consume import consumed, run, start

TOPIC, GROUP = "events", "audit"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({TOPIC: 3}, group_initial_rebalance_delay_ms=0) as running:
        send(running, range(30))
        yield running


def send(broker: Broker, numbers: range) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in numbers:
            producer.send(TOPIC, b'{"id": %d}' % number, partition=number % 3)


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(json.loads(row["value"])["id"] for row in rows)


def committed(broker: Broker) -> int:
    with TopicReader(bootstrap_servers=broker.bootstrap_servers) as reader:
        return sum(each.committed.offset for each in reader.groups.offsets(GROUP).values())


def test_each_call_goes_on_where_the_last_has_ended(broker: Broker) -> None:
    assert ids(consumed(broker, "--group", GROUP)) == list(range(30))
    assert committed(broker) == 30
    assert consumed(broker, "-g", GROUP) == []
    send(broker, range(30, 36))
    assert ids(consumed(broker, "-g", GROUP)) == list(range(30, 36))


def test_a_number_of_records_commits_no_more(broker: Broker) -> None:
    first = ids(consumed(broker, "-g", GROUP, "-n", "7"))
    assert (len(first), committed(broker)) == (7, 7)
    rest = ids(consumed(broker, "-g", GROUP))
    assert sorted(first + rest) == list(range(30))


def test_what_conditions_leave_out_counts_as_read(broker: Broker) -> None:
    options = ("-g", GROUP, "--value", "json", "--where", "value.id >= 27")
    assert len(consumed(broker, *options)) == 3
    assert committed(broker) == 30
    assert run(broker, "consume", TOPIC, "-g", GROUP, "--count").stdout == "0\n"


def test_a_file_is_committed_when_it_is_complete(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    result = run(broker, "consume", TOPIC, "-g", GROUP, "-o", path)
    assert (result.exit_code, result.stdout) == (0, "")
    assert pq.read_table(path).num_rows == committed(broker) == 30


@pytest.mark.slow
def test_following_ends_by_ctrl_c_with_what_was_written_committed(broker: Broker) -> None:
    process = start(broker, "consume", TOPIC, "-g", GROUP, "--follow", "--from", "earliest", "-f", "raw")
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(30)]
    assert sorted(json.loads(line)["id"] for line in lines) == list(range(30))
    until(lambda: committed(broker) == 30)
    process.send_signal(signal.SIGINT)
    _, text = process.communicate()
    assert (process.returncode, text) == (130, b"")


def interrupt_at(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Let Ctrl-C be pressed in the first wait for records after so many."""
    poll_table, read = Consumer.poll_table, [0]

    def poll(consumer: Consumer, *arguments: Any, **keywords: Any) -> pa.Table:
        if read[0] >= count:
            raise KeyboardInterrupt
        table = poll_table(consumer, *arguments, **keywords)
        read[0] += table.num_rows
        return table

    monkeypatch.setattr(Consumer, "poll_table", poll)


def follow(broker: Broker, *options: object) -> int:
    result = run(broker, "consume", TOPIC, "-g", GROUP, "--follow", "--from", "earliest", *options)
    return result.exit_code


@pytest.mark.parametrize("value", ["text", "json"])
@pytest.mark.parametrize("name", ["events.jsonl", "events.parquet"])
def test_a_file_is_committed_when_ctrl_c_ends_following(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    interrupt_at(monkeypatch, 30)
    path = tmp_path / name
    assert (follow(broker, "--value", value, "-o", path), committed(broker)) == (130, 30)
    lines = pq.read_table(path).num_rows if name.endswith("parquet") else len(path.read_text().splitlines())
    assert lines == 30


def test_a_file_has_also_what_had_no_type_yet(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("removed", None, key=b"1")
    interrupt_at(monkeypatch, 1)
    path = tmp_path / "removed.parquet"
    options = ("--follow", "--from", "earliest", "--value", "json", "-o", path)
    result = run(broker, "consume", "removed", "-g", GROUP, *options)
    assert (result.exit_code, committed(broker)) == (130, 1)
    assert pq.read_table(path)["value"].to_pylist() == [None]


def test_ctrl_c_while_a_file_is_written_leaves_it_whole(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table = pq.ParquetWriter.write_table

    def interrupted(*arguments: Any) -> None:
        write_table(*arguments)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(pq.ParquetWriter, "write_table", interrupted)
    monkeypatch.setattr(ParquetOutput, "ROWS", 1)
    path = tmp_path / "events.parquet"
    assert follow(broker, "-o", path) == 130
    rows = pq.read_table(path, columns=["partition", "offset"]).to_pylist()
    assert len(rows) == len({tuple(row.values()) for row in rows}) == committed(broker) >= 1


def test_what_others_have_read_since_is_not_committed() -> None:
    partition = TopicPartition(TOPIC, 0)

    class Assigned:
        """A consumer that has read ten records, and loses its partition for a while."""

        committed: Any = None

        def subscribe(self, topics: Any, on_assigned: Any) -> None:
            self.on_assigned = on_assigned

        def end_offsets(self, partitions: Any) -> dict[TopicPartition, int]:
            return dict.fromkeys(partitions, 30)

        def poll_table(self, *arguments: Any, **keywords: Any) -> pa.Table:
            return pa.table({"offset": range(10)})

        def assignment(self) -> set[TopicPartition]:
            return {partition}

        def position(self, partition: TopicPartition, timeout: float) -> int:
            return 10

        def commit(self, offsets: Any) -> None:
            self.committed = offsets

    consumer: Any = Assigned()
    member = TopicMember(consumer, NameChoice([TOPIC]), follows=True, most=None)
    consumer.on_assigned([partition])
    batches = member.batches(commits=False, waits=nullcontext)
    next(batches), next(batches)
    member.commit_before()
    assert consumer.committed == {partition: 10}
    consumer.on_assigned([partition])
    member.commit_before()
    assert consumer.committed == {}


@pytest.mark.parametrize("form", ["parquet", "arrow", "json"])
def test_standard_output_is_committed_when_ctrl_c_ends_following(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    interrupt_at(monkeypatch, 30)
    assert (follow(broker, "-f", form), committed(broker)) == (130, 30)


@pytest.mark.parametrize("options", [("-f", "parquet"), ("--count",)])
def test_what_is_written_at_the_end_is_not_committed_before(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(ParquetOutput, "close", full)
    monkeypatch.setattr(click, "echo", full)
    run(broker, "consume", TOPIC, "-g", GROUP, *options)
    assert committed(broker) == 0


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_block_that_a_pipe_takes_in_part_is_not_committed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, unbuffered: str
) -> None:
    """Without Python's buffer, a write says only in its result that it took a part."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("large", bytes(900_000))
    process = start(broker, "consume", "large", "-g", GROUP, "-f", "raw")
    assert process.stdout is not None
    os.read(process.stdout.fileno(), 300)
    process.stdout.close()
    process.wait()
    assert committed(broker) == 0


@pytest.mark.parametrize("part", ["write", "close"])
def test_an_incomplete_file_is_not_committed(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    interrupt_at(monkeypatch, 30)
    monkeypatch.setattr(f"kbatch.cli.outputs.JsonOutput.{part}", interrupted)
    assert (follow(broker, "-o", tmp_path / "events.jsonl"), committed(broker)) == (130, 0)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--to", "latest"), "omit --to and --partition"),
        (("-p", "1"), "omit --to and --partition"),
        (("--from", "5"), "--from must be earliest or latest"),
        (("-X", "group.protocol=best"), "group.protocol must be"),
    ],
)
def test_what_a_group_decides_is_refused(broker: Broker, options: tuple[str, ...], text: str) -> None:
    result = run(broker, "consume", TOPIC, "-g", GROUP, *options)
    assert result.exit_code == 2
    assert text in result.output
