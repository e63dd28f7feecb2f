"""`kbatch consume`, `topics` and `offsets`: output, exit status, and ends that are quiet."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from kbatch import Producer, formats
from kbatch.cli import members, selection
from kbatch.cli.commands import kbatch
from kbatch.testing import Broker
from tests import ROOT
from tests.support.registry import Registry
from tests.support.shop import ORDER, SHOP

TOPIC = "events"
VALUES = [b'{"id": %d, "name": "n%d"}' % (number, number % 3) for number in range(30)]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({TOPIC: 3, "empty": 2, "messages": 1}) as running:
        with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
            for number, value in enumerate(VALUES):
                key = None if number % 5 == 0 else b"key-%d" % number
                producer.send(TOPIC, value, key=key, partition=number % 3, timestamp_ms=1000 * number)
        yield running


def run(broker: Broker, command: str, *arguments: object) -> Result:
    runner = CliRunner(env={"COLUMNS": "200"})
    return runner.invoke(kbatch, [command, *map(str, arguments), "-b", broker.bootstrap_servers])


def consumed(broker: Broker, *arguments: object, topic: str = TOPIC) -> list[dict[str, Any]]:
    result = run(broker, "consume", topic, *arguments)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def start(broker: Broker, *arguments: str, ignores: bool = False) -> subprocess.Popen[bytes]:
    """Start a separate process, which Ctrl-C ends even if these tests run in the background; or one that
    `ignores` it.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "kbatch.cli", *arguments, "-b", broker.bootstrap_servers],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN if ignores else signal.SIG_DFL),
    )


def test_all_records_come_in_the_order_of_each_partition(broker: Broker) -> None:
    rows = consumed(broker)
    for partition in range(3):
        found = [row for row in rows if row["partition"] == partition]
        assert [row["offset"] for row in found] == list(range(10))
        assert [row["value"].encode() for row in found] == VALUES[partition::3]
    assert rows[0].keys() == {"topic", "partition", "offset", "timestamp", "key", "value", "headers"}
    assert (rows[0]["topic"], rows[0]["timestamp"]) == (
        TOPIC,
        f"1970-01-01T00:00:{rows[0]['partition']:02}.000Z",
    )


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (["--from", "8"], 6),
        (["--from", "latest"], 0),
        (["--from", "-1"], 3),
        (["--to", "4"], 12),
        (["--from", "1970-01-01T00:00:24Z"], 6),
        (["-p", "1"], 10),
        (["-p", "0,2", "--from", "0:9,2:8"], 3),
        (["-n", "7"], 7),
        (["--where", "partition == 2 and offset < 3"], 3),
        (["--where", "key is None"], 6),
        (["--value", "json", "--where", "value.name == 'n1' or value.id in (0, 3)"], 12),
    ],
)
def test_options_choose_records(broker: Broker, arguments: list[str], count: int) -> None:
    assert len(consumed(broker, *arguments)) == count
    assert run(broker, "consume", TOPIC, *arguments, "--count").stdout == f"{count}\n"


def test_columns_and_types_shape_the_output(broker: Broker) -> None:
    rows = consumed(broker, "--value", "json", "--columns", "value,offset", "-p", "0", "-n", "1")
    assert rows == [{"value": {"id": 0, "name": "n0"}, "offset": 0}]


def test_raw_has_values_only(broker: Broker) -> None:
    output = run(broker, "consume", TOPIC, "-f", "raw", "-p", "1").stdout
    assert output.encode() == b"".join(value + b"\n" for value in VALUES[1::3])


def test_file_has_the_format_of_its_suffix(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    result = run(broker, "consume", TOPIC, "--value", "json", "-o", path)
    assert (result.exit_code, result.stdout) == (0, "")
    table = pq.read_table(path)
    assert sorted(each["id"] for each in table["value"].to_pylist()) == list(range(30))


def test_empty_topic_has_no_records(broker: Broker, tmp_path: Path) -> None:
    assert consumed(broker, topic="empty") == []
    assert run(broker, "consume", "empty", "--count").stdout == "0\n"
    path = tmp_path / "empty.parquet"
    assert run(broker, "consume", "empty", "--value", "json", "-o", path).exit_code == 0
    assert pq.read_table(path).num_rows == 0
    assert run(broker, "consume", "empty", "-f", "csv", "--columns", "key,offset").stdout == "key,offset\n"


def test_file_is_whole_although_the_read_fails(tmp_path: Path) -> None:
    path = tmp_path / "values.parquet"
    options = ["--value", "json", "--columns", "value,offset"]
    with Broker({"values": 1}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for value in (b'{"a": 1}', b'{"a": 2}', b"no json", b'{"a": 4}'):
                producer.send("values", value)
        failed = run(broker, "consume", "values", *options, "-o", path)
        rows = consumed(broker, *options, "--malformed", "null", topic="values")
    assert failed.exit_code == 1
    assert re.search(r"offset 2 cannot be deserialized.*; --malformed null goes on", failed.stderr)
    assert pq.read_table(path)["offset"].to_pylist() == [0, 1]
    assert [row["value"] for row in rows] == [{"a": 1}, {"a": 2}, None, {"a": 4}]


WRONG = [
    (["no-such-topic"], 1, "no-such-topic"),
    ([TOPIC, "-p", "3"], 2, "'3' is no partition of events, which has 0 to 2"),
    ([TOPIC, "--from", "yesterday"], 2, "'yesterday' is no position"),
    ([TOPIC, "--from", "7:0"], 2, "a position names 7"),
    ([TOPIC, "--where", "offset ="], 2, "is not a condition"),
    ([TOPIC, "--columns", "values"], 2, "there is no column 'values'"),
    ([TOPIC, "--follow", "--to", "5"], 2, "exclude each other"),
    ([TOPIC, "-f", "raw", "--columns", "key"], 2, "omit --columns"),
    ([TOPIC, "-X", "value.deserializer=json"], 2, "value.deserializer: --key and --value say"),
    ([TOPIC, "-o", "events.xml"], 2, "has no suffix of"),
    ([TOPIC, "--value", "avro"], 2, "avro needs --schema-registry URL, or --value-schema FILE"),
    ([TOPIC, "--value-subject", "a"], 2, "--value-subject needs --value avro or protobuf"),
    ([TOPIC, "--malformed", "column", "-f", "raw"], 2, "--malformed column needs a --format with columns"),
    ([TOPIC, "--value", "protobuf"], 2, "protobuf needs --descriptor-set FILE and --value-message NAME"),
    ([TOPIC, "--key", "protobuf", "--key-message", "a.B"], 2, "belong together"),
    ([TOPIC, "--value-message", "a.B"], 2, "--value-message needs --value protobuf"),
    ([TOPIC, "--value", "avro", "--schema-registry", "ftp://a"], 2, "url must be http://"),
    ([TOPIC, "-X", "fetch.min.byte=1"], 2, "fetch.min.bytes"),
]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("arguments", "status", "text"), WRONG, ids=[text for _, _, text in WRONG])
def test_wrong_call_is_explained(broker: Broker, arguments: list[str], status: int, text: str) -> None:
    result = run(broker, "consume", *arguments)
    assert result.exit_code == status
    assert text in " ".join(result.stderr.split())


@pytest.fixture
def descriptors(tmp_path: Path) -> Path:
    path = tmp_path / "shop.pb"
    path.write_bytes(SHOP)
    return path


def test_messages_are_read_by_their_descriptors(broker: Broker, descriptors: Path) -> None:
    took = {"seconds": 1, "nanos": 5 * 10**8}
    message = ORDER(id=2**63, labels={"a": 1}, at={"seconds": 5, "nanos": 1}, took=took)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("messages", message.SerializeToString(), partition=0)
    options = ["--value", "protobuf", "--descriptor-set", descriptors, "--value-message"]
    expected = {"id": 2**63, "labels": {"a": 1}, "at": "1970-01-01T00:00:05.000Z", "took": "1.5s"}
    assert consumed(broker, *options, "shop.Order", "--columns", "value", topic="messages") == [
        {"value": expected}
    ]
    raw = run(broker, "consume", "messages", "-f", "raw", *options, "shop.Order").stdout
    assert json.loads(raw) == expected
    wrong = run(broker, "consume", "messages", *options, "shop.Parcel")
    assert (wrong.exit_code, "shop.Order" in wrong.stderr) == (2, True)


def test_reasons_are_columns(broker: Broker, tmp_path: Path) -> None:
    rows = consumed(broker, "--value", "int64", "--malformed", "column", "-n", "1")
    assert list(rows[0])[-3:] == ["value", "value_error", "headers"] and rows[0]["value"] is None
    assert rows[0]["value_error"].startswith("Int64 has 8 bytes")
    path = tmp_path / "x.parquet"
    where = "value_error > '' and partition == 1"
    run(broker, "consume", TOPIC, "--value", "int64", "--malformed", "column", "--where", where, "-o", path)
    assert (
        len(
            consumed(
                broker, "--value", "int64", "--malformed", "column", "--where", where, "--columns", "key"
            )
        )
        == 10
    )
    table = pq.read_table(path)
    assert table.num_rows == 10 and table["value_error"].null_count == 0
    rows = consumed(broker, "--value", "json", "--malformed", "column", "--columns", "value", "-n", "1")
    assert rows[0].keys() == {"value", "value_error"} and rows[0]["value_error"] is None


def test_avro_is_read_by_a_file_or_by_the_subject(broker: Broker, tmp_path: Path) -> None:
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    more = {**schema, "fields": [*schema["fields"], {"name": "n", "type": "int", "default": 5}]}
    topic = "orders"
    with Registry() as registry:
        order = formats.Avro[Any](schema, registry=registry.client(), register=True)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for format in (order, formats.Avro[Any](schema)):
                producer.send(topic, format.bind("value").encode(topic, (), {"id": 7}))
        registry.add(f"{topic}-value", more)
        registry.add("other", {**more, "fields": more["fields"][:1]})
        base = ["--value", "avro", "--schema-registry", registry.url, "--columns", "value", "-n", "1"]
        assert consumed(broker, *base, topic=topic) == [{"value": {"id": 7, "n": 5}}]
        assert consumed(broker, *base, "--value-subject", "other", topic=topic) == [{"value": {"id": 7}}]
        result = run(broker, "consume", topic, *base, "--value-subject", "none")
        assert result.exit_code == 1 and "40401" in result.stderr
        result = run(broker, "consume", topic, *base[:-2])
        assert result.exit_code == 1 and "offset 1" in result.stderr and "--malformed null" in result.stderr
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(schema))
    found = consumed(
        broker, "--value", "avro", "--value-schema", path, "--from", "0:1", "-n", "1", topic=topic
    )
    assert found[0]["value"] == {"id": 7}
    path.write_text("{")
    result = run(broker, "consume", topic, "--value", "avro", "--value-schema", path)
    assert result.exit_code == 2 and "order.avsc" in result.stderr


def test_wrong_setting_ends_every_command_alike(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("fetch.min.bytes=many\n")
    for command in (["consume", TOPIC], ["topics"], ["offsets", TOPIC], ["groups", "list"]):
        for options in (["-X", "fetch.min.byte=1"], ["-F", str(path)]):
            result = run(broker, *command, *options)
            assert (result.exit_code, "fetch.min.byte" in result.stderr) == (2, True), (command, options)
        without = CliRunner().invoke(kbatch, command)
        assert (without.exit_code, "--bootstrap-server" in without.stderr) == (2, True)


@pytest.mark.slow
def test_ctrl_c_ends_the_command_quietly(broker: Broker) -> None:
    with start(broker, "consume", TOPIC, "--follow", "--from", "earliest") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["topic"] == TOPIC
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait() == 130


@pytest.mark.slow
@pytest.mark.parametrize("command", ["topics", "offsets events", "consume events", "groups list"])
def test_port_that_is_not_kafkas_is_named_before_the_command_gives_up(command: str) -> None:
    """default.api.timeout.ms is a minute."""
    with Broker({TOPIC: 1}, tls=True) as broker, start(broker, *command.split()) as process:
        assert process.stderr is not None
        assert b"is it a Kafka listener with security.protocol=PLAINTEXT?" in process.stderr.readline()
        assert process.poll() is None
        process.kill()


@pytest.mark.slow
def test_closed_pipe_ends_the_command_quietly() -> None:
    """As `| head` closes it, while records are still to come."""
    with Broker({"piped": 1}) as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("piped", b"first").result()
        with start(broker, "consume", "piped", "--follow", "--from", "earliest") as process:
            assert process.stdout is not None and process.stderr is not None
            assert b"first" in process.stdout.readline()
            process.stdout.close()
            producer.send("piped", b"second").result()
            assert process.stderr.read() == b""
            assert process.wait() == 1


@pytest.mark.slow
@pytest.mark.parametrize("ignores", [False, True])
@pytest.mark.parametrize("options", [(), ("--group", "g")])
def test_closed_pipe_ends_a_command_that_follows_also_without_a_record(
    options: tuple[str, ...], ignores: bool
) -> None:
    """A shell's background jobs ignore Ctrl-C."""
    call = ("consume", "piped", "--follow", "--from", "earliest", *options)
    with Broker({"piped": 1}) as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("piped", b"first").result()
        with start(broker, *call, ignores=ignores) as process:
            assert process.stdout is not None and process.stderr is not None
            assert b"first" in process.stdout.readline()
            process.stdout.close()
            assert process.stderr.read() == b""
            assert process.wait() == 1


def test_progress_bar_is_for_terminals_unless_requested(broker: Broker) -> None:
    shown = run(broker, "consume", TOPIC, "--count", "--progress")
    assert shown.stdout == "30\n" and "100% 30 records" in shown.stderr
    assert run(broker, "consume", TOPIC, "--count").stderr == ""


def test_ctrl_c_leaves_a_whole_file(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passing = selection._passing

    def interrupted(*arguments: Any) -> Iterator[Any]:
        rows = 0
        for batch in passing(*arguments):
            yield batch
            rows += batch.num_rows
            if rows == len(VALUES):
                raise KeyboardInterrupt

    monkeypatch.setattr(selection, "_passing", interrupted)
    path = tmp_path / "followed.parquet"
    assert run(broker, "consume", TOPIC, "--follow", "--from", "earliest", "-o", path).exit_code == 130
    assert pq.read_table(path).num_rows == len(VALUES)


# Several topics


@pytest.fixture(scope="module")
def several() -> Iterator[Broker]:
    with Broker({"orders": 1, "orders-eu": 2, "returns": 1}) as running:
        with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
            for topic in ("orders", "orders-eu", "returns"):
                for partition in range(2 if topic == "orders-eu" else 1):
                    producer.send(topic, topic.encode(), partition=partition)
        yield running


@pytest.mark.parametrize("options", [(), ("--group",)])
@pytest.mark.parametrize(
    ("topics", "values"),
    [
        (["orders", "returns"], ["orders", "returns"]),
        (["^orders-.*"], ["orders-eu", "orders-eu"]),
        (["^orders-.*", "returns"], ["orders-eu", "orders-eu", "returns"]),
    ],
)
def test_several_topics_and_patterns(
    several: Broker, topics: list[str], values: list[str], options: tuple[str, ...], tmp_path: Path
) -> None:
    for name in ("found.jsonl", "found.parquet", "found.arrow"):
        path, group = tmp_path / name, f"g-{topics}-{name}"
        result = run(
            several, "consume", *topics, *(each for option in options for each in (option, group)), "-o", path
        )
        assert result.exit_code == 0, result.output
        assert sorted(read_file(path)) == values


def test_member_waits_while_the_broker_looks_its_pattern_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first assignment of a pattern is empty; a later heartbeat brings the topics."""
    path = tmp_path / "found.jsonl"
    monkeypatch.setattr(members, "WAIT_SECONDS", 0)  # it looks for its end between the two
    with Broker({"orders-eu": 1}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("orders-eu", b"orders-eu")
        assert run(broker, "consume", "^orders-.*", "--group", "late", "-o", path).exit_code == 0
    assert read_file(path) == ["orders-eu"]


def read_file(path: Path) -> list[str]:
    if path.suffix == ".parquet":
        rows = pq.read_table(path).to_pylist()
    elif path.suffix == ".arrow":
        rows = pa.ipc.open_stream(path).read_all().to_pylist()
    else:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert all(row["topic"] == text_of(row["value"]) for row in rows)
    return [text_of(row["value"]) for row in rows]


def text_of(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


@pytest.mark.parametrize("options", [(), ("--group", "g", "--follow")])
@pytest.mark.parametrize("topic", ["^order", "nowhere"])
def test_topics_that_there_are_not_end_the_command(
    several: Broker, topic: str, options: tuple[str, ...]
) -> None:
    result = run(several, "consume", "orders", topic, *options, "-X", "default.api.timeout.ms=2000")
    assert result.exit_code == 1 and topic in result.stderr


def test_topics_and_offsets_are_listed(broker: Broker) -> None:
    found = [json.loads(line) for line in run(broker, "topics", "--offsets", "--json").stdout.splitlines()]
    assert all(each.pop("topic_id") for each in found)
    assert found[:2] == [
        {"topic": "empty", "partitions": 2, "offsets": 0},
        {"topic": TOPIC, "partitions": 3, "offsets": 30},
    ]
    lines = run(broker, "offsets", TOPIC, "--at", "1970-01-01T00:00:15Z", "--json").stdout.splitlines()
    assert [json.loads(line) for line in lines] == [
        {
            "topic": TOPIC,
            "partition": number,
            "earliest": 0,
            "latest": 10,
            "at": 5,
            "time": time_of(15 + number),
        }
        for number in range(3)
    ]
    assert run(broker, "offsets", TOPIC, "--table").stdout.splitlines()[0].split() == [
        "topic",
        "partition",
        "earliest",
        "latest",
    ]


def time_of(second: int) -> str:
    return f"1970-01-01T00:00:{second:02}.000Z"


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        ("max_timestamp", [(9, time_of(27 + number)) for number in range(3)]),
        ("3", [(3, None)] * 3),
        ("-4", [(6, None)] * 3),
        ("1:7", [(None, None), (7, None), (None, None)]),
        ("1970-01-01T00:10:00Z", [(10, None)] * 3),
        ("latest", [(10, None)] * 3),
    ],
)
def test_offsets_at_positions(
    broker: Broker, position: str, expected: list[tuple[int | None, str | None]]
) -> None:
    lines = run(broker, "offsets", TOPIC, "--at", position, "--json").stdout.splitlines()
    assert [(row["at"], row["time"]) for row in map(json.loads, lines)] == expected


def test_offsets_of_several_topics(broker: Broker) -> None:
    def topics(*names: str) -> list[str]:
        return [json.loads(line)["topic"] for line in run(broker, "offsets", *names).stdout.splitlines()]

    assert topics("^e.*") == ["empty", "empty", TOPIC, TOPIC, TOPIC]
    assert topics("messages", "empty") == ["messages", "empty", "empty"]
    assert {"empty", TOPIC, "messages"} <= set(topics())


def test_offsets_for_readers_of_committed_records() -> None:
    with Broker({TOPIC: 1}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="open") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(TOPIC, b"x").result()
            ends = [
                json.loads(run(broker, "offsets", TOPIC, *options).stdout)["latest"]
                for options in ((), ("--committed",))
            ]
            producer.abort_transaction()
        assert ends == [1, 0]
