"""`kbatch produce`: the topic afterwards, the output, and the exit status."""

from __future__ import annotations

import gc
import gzip
import json
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from click.testing import CliRunner

from kbatch import Admin
from kbatch.cli import sources
from kbatch.cli.column_roles import ColumnRoles
from kbatch.cli.commands import kbatch
from kbatch.cli.sources import BrokenRowError, open_source
from kbatch.testing import Broker
from tests import ROOT
from tests.support.patience import until
from tests.support.producing import SECONDS, TOPIC, values

CSV = 'id,name,price,zip\n1,"a ""q""",1.10,00123\n2,,true,\n3,"x\ny",-2e5,""\n'
CSV_VALUES = [
    b'{"name":"a \\"q\\"","price":1.10,"zip":"00123"}',
    b'{"name":null,"price":true,"zip":null}',
    b'{"name":"x\\ny","price":-2e5,"zip":""}',
]


TOPICS = {TOPIC: 1, "four": 4}


def produce(*arguments: object, given: bytes = b"") -> tuple[int, str]:
    """Run `kbatch produce`; return exit status and standard error (all output, for a dry run)."""
    runner = CliRunner(env={"COLUMNS": "200"})
    result = runner.invoke(kbatch, ["produce", *map(str, arguments)], given)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output if "--dry-run" in arguments else result.stderr


def start(*arguments: object) -> subprocess.Popen[bytes]:
    """Start a separate process, which Ctrl-C ends even if these tests run in the background."""
    return subprocess.Popen(
        [sys.executable, "-m", "kbatch.cli", "produce", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def produced(broker: Broker, *arguments: object, given: bytes = b"", topic: str = TOPIC) -> str:
    status, text = produce("-b", broker.bootstrap_servers, "-t", topic, *arguments, given=given)
    assert status == 0, text
    return text


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# Sends


def test_csv(broker: Broker, tmp_path: Path) -> None:
    text = produced(broker, written(tmp_path / "orders.csv", CSV), "--key", "id")
    assert text.startswith("3 rows acknowledged by events (1 partition) in ")
    assert values(broker) == CSV_VALUES
    assert [record.key for record in broker.records(TOPIC)] == [b"1", b"2", b"3"]


@pytest.mark.slow
def test_as_a_command(broker: Broker, tmp_path: Path) -> None:
    path = written(tmp_path / "orders.csv", CSV)
    for column, status, text in (("id", 0, "3 rows acknowledged"), ("x", 2, "has no column 'x'")):
        process = start(path, "-b", broker.bootstrap_servers, "-t", TOPIC, "-k", column)
        output, errors = process.communicate(timeout=SECONDS)
        assert (process.returncode, output) == (status, b"") and text in errors.decode()
    assert values(broker) == CSV_VALUES


def test_every_part_of_a_record(broker: Broker, tmp_path: Path) -> None:
    path = written(
        tmp_path / "a.csv",
        "k,at,to,h,v\nx,2026-01-02T03:04:05+02:00,3,one,text\n,1234,0,,\n,2026-01-01,1,b,w",
    )
    parts = ("-k", "k", "--timestamp", "at", "-p", "to", "--headers", "h", "-H", "all=same", "--value", "v")
    produced(broker, path, *parts, topic="four")
    (first,) = broker.records("four", 3)
    assert (first.key, first.value, first.timestamp_ms) == (b"x", b"text", 1_767_315_845_000)
    assert first.headers == (("all", b"same"), ("h", b"one"))
    (second,) = broker.records("four", 0)
    assert (second.key, second.value, second.timestamp_ms) == (None, None, 1234)
    assert second.headers == (("all", b"same"), ("h", None))
    produced(broker, path, "-p", 2, "--columns", "v,k", "--strings", topic="four")
    assert [record.value for record in broker.records("four", 2)] == [
        b'{"v":"text","k":"x"}',
        b'{"v":null,"k":null}',
        b'{"v":"w","k":null}',
    ]


def test_csv_by_its_options(broker: Broker, tmp_path: Path) -> None:
    produced(broker, written(tmp_path / "a.tsv", "\ufeffa\tb\r\n1\t2,5\r\n"))
    produced(broker, written(tmp_path / "a.dat", "a;b\n1;2"), "-f", "csv", "--delimiter", ";", "--strings")
    produced(broker, written(tmp_path / "none.csv", "a,b\n"))
    assert values(broker) == [b'{"a":1,"b":"2,5"}', b'{"a":"1","b":"2"}']


def test_lines_of_json_are_sent_as_they_are(broker: Broker, tmp_path: Path) -> None:
    lines = b'{"id": 1.50, "b": null}\n\n  {"id": "x"}\r\n{"id": null}\n{"id": {"a": [1]}}'
    produced(broker, written(tmp_path / "a.jsonl", lines), "--key", "id")
    assert values(broker) == [
        b'{"id": 1.50, "b": null}',
        b'{"id": "x"}',
        b'{"id": null}',
        b'{"id": {"a": [1]}}',
    ]
    assert [record.key for record in broker.records(TOPIC)] == [b"1.5", b"x", None, b'{"a":[1]}']


def test_members_of_lines_of_json(broker: Broker, tmp_path: Path) -> None:
    path = written(tmp_path / "a.ndjson", '{"p": 2, "v": "\u00e9", "w": [1]}\n{"p": 0, "v": null}\n')
    produced(broker, path, "-p", "p", "--value", "v", topic="four")
    assert values(broker, 2, "four") == ["\u00e9".encode()] and values(broker, 0, "four") == [None]
    produced(broker, path, "--columns", "v,w")
    assert values(broker) == ['{"v":"\u00e9","w":[1]}'.encode(), b'{"v":null}']
    produced(broker, "-", "-f", "jsonl", given=b"5\n[1]", topic="four")
    assert {b"5", b"[1]"} < set(values(broker, topic="four"))


def test_parquet(broker: Broker, tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": [7, 8],
            "at": pa.array([1, None], pa.timestamp("ms")),
            "tags": [["a"], None],
            "b": [b"\xff", b"x"],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    produced(broker, tmp_path / "a.parquet", "--key", "id", "--timestamp", "at")
    first, second = broker.records(TOPIC)
    assert (first.key, first.timestamp_ms, first.value) == (b"7", 1, b'{"tags":["a"],"b":"/w=="}')
    assert (second.timestamp_ms or 0) > 10**12 and second.value == b'{"tags":null,"b":"eA=="}'
    produced(broker, tmp_path / "a.parquet", "--value", "b")
    assert values(broker)[2:] == [b"\xff", b"x"]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_packed_files_and_pipes(broker: Broker, tmp_path: Path, pack: Any) -> None:
    packed = pack(CSV.encode())
    produced(broker, written(tmp_path / "orders.csv.gz", packed), "--key", "id")
    produced(broker, "-", "--format", "csv", "--key", "id", given=packed)
    produced(broker, "-", "--format", "csv", "--key", "id", given=CSV.encode())
    assert values(broker) == CSV_VALUES * 3


@pytest.mark.slow
def test_files_of_many_blocks(broker: Broker, tmp_path: Path) -> None:
    """Cells with line ends, and characters of several bytes, at every offset of a block."""
    rows = [{"n": number, "text": "\u00e4\n" * (number % 40)} for number in range(20_000)]
    csv = "n,text\n" + "".join(f'{row["n"]},"{row["text"]}"\n' for row in rows)
    produced(broker, written(tmp_path / "a.csv", csv), "--progress", "-X", "compression.type=lz4")
    assert [json.loads(value or b"") for value in values(broker)] == rows
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    text = produced(broker, "-", "-f", "jsonl", given=lines.encode(), topic="four")
    assert "20,000 rows acknowledged by four (4 partitions)" in text
    assert sorted(json.loads(value or b"")["n"] for value in values(broker, topic="four")) == list(
        range(20_000)
    )


def test_progress_bar_is_for_terminals_unless_requested(broker: Broker, tmp_path: Path) -> None:
    path = written(tmp_path / "orders.csv", CSV)
    assert "%" not in produced(broker, path)
    assert "100% 3 rows" in produced(broker, path, "--progress")


def test_configuration_of_a_file_and_of_options(broker: Broker, tmp_path: Path) -> None:
    config = written(
        tmp_path / "client.properties",
        f"# servers\nbootstrap.servers = {broker.bootstrap_servers}\n\ncompression.type=zstd\nclient.id=x\n",
    )
    arguments = (written(tmp_path / "a.csv", CSV), "-t", TOPIC, "--config", config)
    assert produce(*arguments, "-X", "client.id=y")[0] == 0
    assert len(values(broker)) == 3
    status, text = produce(*arguments, "-X", "compression.type=brotli")
    assert status == 2 and "compression.type must be one of none" in text


@pytest.mark.parametrize("rest", ["", "4,too many,cells,in,it\n"])
def test_arrow_has_dropped_a_csv_file_when_its_rows_were_read(tmp_path: Path, rest: str) -> None:
    """Else a thread of it may do so when Python has ended, which aborts the process."""
    for _ in range(20):
        source = open_source(written(tmp_path / "a.csv", CSV + rest), "csv", None, infers=True)
        with nullcontext() if not rest else pytest.raises(BrokenRowError):
            assert sum(block.fields.num_rows for block in source.blocks(ColumnRoles())) == 3
        assert not [each for each in gc.get_objects() if isinstance(each, sources._UnreadFile)]


def test_a_dry_run_sends_nothing(broker: Broker, tmp_path: Path) -> None:
    status, text = produce(written(tmp_path / "a.csv", CSV), "-t", TOPIC, "-k", "id", "--dry-run")
    assert status == 0 and "key=1" in text and "3 rows would be sent" in text
    path = written(tmp_path / "a.jsonl", "{}\n{\n")
    status, text = produce(path, "-t", TOPIC, "--dry-run")
    assert status == 1 and "line 2: Expecting property name" in text and "valid before it: 1 row" in text


# Invalid calls


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nothing.csv"], "File 'nothing.csv' does not exist"),
        (["a.csv", "--key", "x"], "a.csv has no column 'x'; its columns are id, name, price, zip"),
        (["a.csv", "--columns", "id,x,y"], "a.csv has no column 'x', 'y'; its columns are id, name"),
        (["a.csv", "--value", "id", "--columns", "id"], "--value and --columns exclude each other"),
        (["a.dat"], "a.dat has no suffix of .csv"),
        (["-", "-f", "parquet"], "Parquet cannot be read from standard input"),
        (["a.csv", "-H", "x"], "'x' is not NAME=VALUE"),
        (["a.csv", "-X", "linger=5"], "linger is not a configuration key"),
        (["a.csv", "-X", "acks"], "'acks' is not NAME=VALUE"),
        (["a.csv", "--config", "a.dat"], "text is not a configuration key"),
        (["a.csv", "-F", "u.txt"], "u.txt, line 2: \\u must have four hexadecimal digits"),
        (["a.csv", "--delimiter", "ab"], "it must be one character"),
        (["a.csv", "-p", "99999999999"], "99999999999 is no partition"),
    ],
)
def test_wrong_calls(tmp_path: Path, arguments: list[str], text: str) -> None:
    written(tmp_path / "a.csv", CSV)
    written(tmp_path / "a.dat", "text")
    written(tmp_path / "u.txt", "\na=\\u12")
    given = [str(tmp_path / each) if each in ("a.csv", "a.dat", "u.txt") else each for each in arguments]
    status, noted = produce(*given, "-t", TOPIC, "-b", "localhost:1")
    assert status == 2 and text in noted.replace(f"{tmp_path}/", ""), noted


def test_the_servers_have_to_be_named(tmp_path: Path) -> None:
    status, text = produce(written(tmp_path / "a.csv", CSV), "-t", TOPIC)
    assert status == 2 and "--bootstrap-server HOST:PORT" in text


# Invalid files

BRIEF = ("-X", "max.block.ms=300")


@pytest.mark.parametrize(
    ("name", "content", "options", "sent", "text"),
    [
        ("a.csv", "a,b\n1,2\n\n3,4,5\n6,7\n", [], 1, "row 2: it has 3 cells, not 2: '3,4,5'; that row and"),
        ("a.csv", "a,b\n1,2\n3,4,5\n6\n", [], 1, "row 2: it has 3 cells, not 2"),
        ("a.csv", "a,t\n1,5\n2,noon\n", ["--timestamp", "t"], 1, "row 2: t: the time must be"),
        ("a.csv", "a,t\n1,0\n2,-1\n", ["-p", "t"], 1, "row 2: t: the partition must be 0 or more, got '-1'"),
        (
            "a.csv",
            "a,p\n1,0\n2,9\n",
            ["-p", "p", *BRIEF],
            1,
            "row 2: partition 9 is out of range 0..0",
        ),
        ("a.txt", "a\n", ["-p", "9", *BRIEF], 0, "line 1: partition 9 is out of range"),
        ("a.csv", "", [], 0, "it is empty, but CSV starts with a line of column names"),
        ("a.csv", "a,a\n1,2", [], 0, "column 'a' exists twice"),
        ("a.csv", b"a\n\xff\n", [], 0, "row 1: a is not UTF-8: b'\\xff'; that row and later"),
        ("a.csv", b"a,b\n1,2\n3,\xff\n5\n", [], 1, "row 2: b is not UTF-8"),
        ("a.csv", b"a,b\n1,2\n3\n5,\xff\n", [], 1, "row 2: it has 1 cells, not 2"),
        ("a.csv.gz", gzip.compress(b"a,b\n1,2\n", mtime=0)[:-9], [], 0, "cannot be read"),
        ("a.jsonl", '{"a":1}\n\n{"a":\n{}\n', [], 1, """line 3: Expecting value at character 6: '{"a":'"""),
        (
            "a.jsonl",
            '{"a":1}\n{"b":2,"c":3}\n',
            ["-k", "a"],
            1,
            "line 2: there is no 'a'; the members are b, c",
        ),
        ("a.jsonl", "{}\n5\n", ["-k", "a"], 0, "line 1: there is no 'a'; the members are none"),
        ("a.jsonl", "5\n", ["-k", "a"], 0, "line 1: it is not an object, so it has no a"),
        ("a.jsonl", '{"a": NaN}\n', [], 0, "line 1: NaN is not JSON"),
        ("a.jsonl", b'{}\n{"a": "\xff"}\n', [], 1, "line 2: byte 8 is not UTF-8"),
        ("a.jsonl.gz", gzip.compress(b"{}\n" * 9, mtime=0)[:-9], [], 0, "reading the file failed"),
        ("a.parquet", "text", [], 0, "it is not a Parquet file"),
    ],
)
def test_broken_files(
    broker: Broker, tmp_path: Path, name: str, content: str | bytes, options: list[str], sent: int, text: str
) -> None:
    path = written(tmp_path / name, content)
    status, noted = produce("-b", broker.bootstrap_servers, "-t", TOPIC, path, *options)
    assert status == 1 and text in noted, noted
    assert len(values(broker)) == sent or "gz" in name


def test_what_parquet_has_no_json_for(broker: Broker, tmp_path: Path) -> None:
    times = pa.array([0, 2**62], pa.timestamp("ms"))
    pq.write_table(pa.table({"n": [1, 2], "at": times}), tmp_path / "a.parquet")
    status, text = produce("-b", broker.bootstrap_servers, "-t", TOPIC, tmp_path / "a.parquet")
    assert status == 1 and "column 'at', row 2: a time or date is out of range" in text
    assert len(values(broker)) == 1


# Failures of the broker


def test_unknown_topic(broker: Broker, tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", CSV)
    status, text = produce("-b", broker.bootstrap_servers, "-t", "nothing", path, "-X", "max.block.ms=500")
    assert status == 1 and "brokers answer, but know no such topic" in text


def test_a_topic_that_is_made_later_is_waited_for(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command says so, and the topic is made when it does."""
    echo = click.echo

    def make(message: str, **options: Any) -> None:
        if message.startswith("waiting for topic later: brokers answer"):
            with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
                admin.topics.create("later", partitions=1)
        echo(message, **options)

    monkeypatch.setattr(click, "echo", make)
    monkeypatch.setattr("kbatch.cli.produce.NOTICE_MS", 300)
    text = produced(broker, written(tmp_path / "a.csv", CSV), topic="later")
    assert text.startswith("waiting for topic later") and "3 rows acknowledged" in text


def test_unreachable_broker(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", CSV)
    status, text = produce("-b", "localhost:1", "-t", TOPIC, path, "-X", "max.block.ms=500")
    assert status == 1 and "none of localhost:1 has sent any" in text
    assert "0 rows acknowledged" in text


def test_refused_rows_do_not_stop_the_others(broker: Broker, tmp_path: Path) -> None:
    rows = [b"x" * (2000 if number % 3 == 1 else 5) for number in range(30)]
    path = written(tmp_path / "a.csv", b"v\n" + b"\n".join(rows))
    limit = ("-X", "max.request.size=500")
    status, text = produce("-b", broker.bootstrap_servers, "-t", TOPIC, path, "--value", "v", *limit)
    assert status == 1 and values(broker) == [b"xxxxx"] * 20
    assert [line.split(":")[0] for line in text.splitlines()[:5]] == [f"row {n}" for n in (2, 5, 8, 11, 14)]
    assert "row 2: RecordTooLargeError: " in text and "... and 5 more" in text
    assert "20 rows acknowledged" in text and text.endswith("10 rows failed\n")


def test_rows_that_may_be_there_are_said_to_be(broker: Broker, tmp_path: Path) -> None:
    broker.drop_connection("Produce", when="after", times=100)
    path = written(tmp_path / "a.csv", CSV)
    limits = ("-X", "delivery.timeout.ms=1500", "-X", "request.timeout.ms=1000", "-X", "linger.ms=400")
    status, text = produce("-b", broker.bootstrap_servers, "-t", TOPIC, path, *limits)
    assert status == 1 and "row 1: KafkaTimeoutError: " in text
    assert "3 rows failed, of which 3 may be in the topic all the same" in text


@pytest.mark.slow
def test_ctrl_c_says_what_was_acknowledged(broker: Broker) -> None:
    process = start("-", "-f", "jsonl", "-b", broker.bootstrap_servers, "-t", TOPIC)
    assert process.stdin is not None and process.stderr is not None
    process.stdin.write(b"{}\n{}\n{}\n")
    process.stdin.flush()
    until(lambda: len(values(broker)) == 3)  # a pipe that is open still: lines go out as they come
    process.send_signal(signal.SIGINT)
    assert process.wait(SECONDS) == 130
    text = process.stderr.read().decode()
    assert "Error: interrupted" in text and "3 rows acknowledged by events" in text
    assert "Traceback" not in text
    process.communicate()


def test_lines_of_standard_input_are_values(broker: Broker) -> None:
    produced(broker, "-", given=b"hello\r\n\n{not json\n\xff end")
    assert values(broker) == [b"hello", b"", b"{not json", b"\xff end"]


def test_what_is_before_the_separator_of_a_line_is_its_key(broker: Broker) -> None:
    produced(broker, "-", "-K", "::", given="k::v::w\nno key\n::empty\nü::ö\n".encode())
    found = [(record.key, record.value) for record in broker.records(TOPIC)]
    assert found == [(b"k", b"v::w"), (None, b"no key"), (b"", b"empty"), ("ü".encode(), "ö".encode())]


def test_lines_of_a_packed_log_are_sent_in_order(broker: Broker, tmp_path: Path) -> None:
    """More of them than a block has."""
    lines = [b"line %d" % number for number in range(40_000)]
    path = tmp_path / "service.log.gz"
    path.write_bytes(gzip.compress(b"\n".join(lines)))
    produced(broker, path)
    assert values(broker) == lines


@pytest.mark.parametrize(
    "arguments", [("-K", ""), ("-K", ":", "--format", "jsonl"), ("-K", ":", "--key", "id")]
)
def test_a_separator_is_for_lines_of_text(broker: Broker, arguments: tuple[str, ...]) -> None:
    status, text = produce("-b", broker.bootstrap_servers, "-t", TOPIC, "-", *arguments)
    assert (status, values(broker)) == (2, []) and "--key-separator is for lines of text" in text
