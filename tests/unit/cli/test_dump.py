"""The command line: the output of `kbatch dump`, its exit status, and one line for a mistake."""

import json
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch import SegmentWriter
from kbatch.cli.commands import kbatch as command_line
from tests.oracle import plain

some_bytes = st.none() | st.binary(max_size=20) | st.text(max_size=10).map(str.encode)
headers = st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=3).map(tuple)
rows_strategy = st.lists(
    st.tuples(some_bytes, some_bytes, headers, st.integers(-1, 2**60)), min_size=1, max_size=5
)


def dump(*arguments: object) -> Result:
    return CliRunner().invoke(command_line, ["dump", *map(str, arguments)])


def segment(directory: Path, *batches: bytes) -> Path:
    with SegmentWriter(directory, "t", 0) as writer:
        for batch in batches:
            writer.append(batch)
    return writer.log_paths[0]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    rows: list[plain.Row] = [
        (b"k1", b"text", (("h", b"1"), ("h", None)), 1000),
        (None, b"\xff\x00", (), 2000),
    ]
    return segment(
        tmp_path,
        plain.encode(rows, compression="zstd"),
        plain.encode(rows[:1], producer_id=7, producer_epoch=1, base_sequence=5, transactional=True),
    )


def original(value: object) -> object:
    """Convert back from JSON: text was UTF-8, other bytes are marked."""
    if isinstance(value, dict):
        return b64decode(value["base64"])
    return value.encode() if isinstance(value, str) else value


@pytest.mark.slow
@settings(deadline=None)
@given(rows=rows_strategy)
def test_json_lines_of_records_lose_nothing(rows: list[plain.Row]) -> None:
    with TemporaryDirectory() as directory:
        path = segment(Path(directory), plain.encode(rows))
        result = dump(path, "--records", "--format", "jsonl")
    assert result.exit_code == 0
    assert result.stderr == ""
    shown = [json.loads(line) for line in result.stdout.splitlines()]
    assert [
        (
            original(row["key"]),
            original(row["value"]),
            tuple((header["key"], original(header["value"])) for header in row["headers"]),
            row["timestamp_ms"],
        )
        for row in shown
    ] == rows
    assert [row["offset"] for row in shown] == list(range(len(rows)))


@pytest.mark.slow
@settings(deadline=None)
@given(rows=rows_strategy)
def test_table_in_a_pipe_has_a_line_a_record(rows: list[plain.Row]) -> None:
    with TemporaryDirectory() as directory:
        path = segment(Path(directory), plain.encode(rows))
        result = dump(path, "--records")
    assert result.exit_code == 0
    lines = result.stdout.split("\n")
    assert lines[0] == "offset\ttimestamp\tkey\tvalue\theaders"
    assert [line.split("\t")[0] for line in lines[1:-1]] == [str(number) for number in range(len(rows))]
    assert {line.count("\t") for line in lines[:-1]} == {4}
    assert result.stdout.replace("\n", "").replace("\t", "").isprintable()


def test_json_lines_of_batches(log: Path) -> None:
    first, second = map(json.loads, dump(log, "--format", "jsonl").stdout.splitlines())
    assert first["position"] == 0
    assert first["compression"] == "zstd"
    assert (first["base_offset"], first["last_offset"], first["records"]) == (0, 1, 2)
    assert (first["base_timestamp_ms"], first["max_timestamp_ms"]) == (1000, 2000)
    assert second["position"] == first["size_bytes"]
    assert second["position"] + second["size_bytes"] == log.stat().st_size
    assert (second["producer_id"], second["producer_epoch"], second["base_sequence"]) == (7, 1, 5)
    assert second["is_transactional"] is True
    assert second["is_control"] is False
    assert second["delete_horizon_ms"] is None


def test_table_of_batches_in_a_pipe(log: Path) -> None:
    header, first, second = (line.split("\t") for line in dump(log).stdout.splitlines())
    assert header[:4] == ["position", "base_offset", "records", "size_bytes"]
    assert first[1:3] == ["0", "2"]
    assert first[4:] == ["zstd", "1970-01-01T00:00:02.000Z", "", ""]
    assert second[5:] == ["1970-01-01T00:00:01.000Z", "7/1 from 5", "transactional"]


def test_bytes_and_nulls_differ_from_text(log: Path) -> None:
    _, first, second, _ = dump(log, "--records").stdout.splitlines()
    assert first.split("\t")[2:] == ["k1", "text", "h=1 h=null"]
    assert second.split("\t")[2:] == ["null", r"b'\xff\x00'", ""]


def test_folder_stands_for_its_segments(log: Path, tmp_path: Path) -> None:
    with SegmentWriter(tmp_path, "u", 0, segment_bytes=100) as writer:
        for _ in range(3):
            writer.append(plain.encode([(b"k", b"v", (), 0)]))
    assert dump(log.parent).stdout == dump(log).stdout
    lines = dump(log.parent, tmp_path / "u-0").stdout.splitlines()
    assert lines[0].startswith("file\tposition")
    assert [line.split("\t")[0] for line in lines[1:]] == [str(log)] * 2 + list(map(str, writer.log_paths))


def test_limit(log: Path) -> None:
    assert len(dump(log, "--records", "-n", 2).stdout.splitlines()) == 1 + 2
    assert dump(log, "-n", 0, "--format", "jsonl").stdout == ""


def test_torn_tail_is_reported_without_error(log: Path) -> None:
    whole = dump(log).stdout
    size = log.stat().st_size
    with log.open("ab") as file:
        file.write(bytes(9))
    result = dump(log)
    assert (result.exit_code, result.stdout) == (0, whole)
    assert f"the last 9 bytes, from byte {size}, are not a whole batch" in result.stderr


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("To be or not to be, that is the question.\n" * 10)
    result = dump(other)
    assert (result.exit_code, "does not begin with a whole batch" in result.stderr) == (1, True)
    assert result.stdout.count("\n") <= 1
    for content in (b"", bytes(4096)):  # a segment without records, and one that is only reserved
        other.write_bytes(content)
        assert dump(other).exit_code == 0


@pytest.mark.parametrize("shown", ["--batches", "--records"])
def test_corrupt_batch(log: Path, shown: str) -> None:
    second = json.loads(dump(log, "--format", "jsonl").stdout.splitlines()[1])["position"]
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    result = dump(log, shown)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {log}: batch at byte {second}: CRC")
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout.count("\n") >= 2, "what stands before it is shown"
    assert dump(log, "--batches", "--no-check-crc").exit_code == 0


def test_corrupt_body(tmp_path: Path) -> None:
    good = plain.encode([(b"k", b"v", (), 0)])
    log = segment(tmp_path, good, plain.with_crc(good[:61] + b"\x7f" + good[62:]))
    result = dump(log, "--records")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {log}: batch at byte {len(good)}: ")
    assert dump(log, "--batches").exit_code == 0


def test_wrong_calls(log: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for arguments, noted in (
        ([], "Missing argument"),
        ([tmp_path / "none.log"], "does not exist"),
        ([tmp_path / "empty"], "has no .log files"),
        ([log.with_suffix(".index")], f"name the segment, {log.name}"),
        ([log, "--format", "xml"], "xml"),
    ):
        result = dump(*arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert noted in result.stderr


def test_every_command_has_help() -> None:
    assert "dump" in CliRunner().invoke(command_line, ["--help"]).stdout
    assert "--records" in dump("--help").stdout
    assert CliRunner().invoke(command_line, ["dmp"]).exit_code == 2


def test_entry_point_without_click(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise ImportError(name='click')")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from kbatch.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "kbatch: no module 'click'; pip install 'kbatch-kafka[cli]'\n"


@pytest.mark.slow
def test_reader_of_the_pipe_that_goes_away(log: Path) -> None:
    command = [sys.executable, "-m", "kbatch.cli", "dump", *[str(log)] * 5000, "--format", "jsonl"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""


def test_table_on_a_terminal(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("kbatch.cli.dump._on_a_terminal", lambda: True)
    result = dump(log, "--records")
    assert result.exit_code == 0
    title, _, *lines = (line for line in result.stdout.splitlines() if line.strip())
    assert title.split() == ["offset", "timestamp", "key", "value", "headers"]
    assert [line.split()[0] for line in lines] == ["0", "1", "2"]
    assert {len(line) for line in lines} == {100}
