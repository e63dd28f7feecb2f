"""Outputs of `kbatch consume`: each format read back by its usual reader."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kbatch.cli.outputs import OUTPUTS, ParquetOutput
from kbatch.cli.templates import Template

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]))
BATCH = pa.record_batch(
    {
        "partition": pa.array([0, 1, 1], pa.int32()),
        "timestamp": pa.array([datetime(2026, 11, 1, 12, tzinfo=UTC)] * 3, pa.timestamp("ms", "UTC")),
        "key": pa.array([b"k", None, b"\xff\x00"]),
        "value": pa.array([b"plain", b'with "quotes",\nand a line', None]),
        "headers": pa.array([[{"key": "h", "value": b"1"}], [], []], HEADERS),
    }
)


def written(form: str, *batches: pa.RecordBatch) -> bytes:
    file = io.BytesIO()
    output = OUTPUTS[form](file, BATCH.schema)
    for batch in batches or (BATCH,):
        output.write(batch)
    output.close()
    return file.getvalue()


def test_json_has_a_record_a_line() -> None:
    first, second, third = map(json.loads, written("json").decode().splitlines())
    assert first == {
        "partition": 0,
        "timestamp": "2026-11-01T12:00:00.000Z",
        "key": "k",
        "value": "plain",
        "headers": [{"key": "h", "value": "1"}],
    }
    assert second["value"] == 'with "quotes",\nand a line'
    assert (third["key"], third["value"]) == ({"base64": "/wA="}, None)


def test_raw_has_values_only() -> None:
    assert written("raw") == b'plain\nwith "quotes",\nand a line\n\n'


def test_csv_is_read_back() -> None:
    text = written("csv").decode("utf-8", "surrogateescape")
    names, *rows = csv.reader(io.StringIO(text, newline=""))
    assert names == BATCH.schema.names
    assert [row[3] for row in rows] == ["plain", 'with "quotes",\nand a line', ""]
    assert json.loads(rows[0][4]) == [{"key": "h", "value": "1"}]


def test_table_has_a_line_a_record() -> None:
    lines = written("table").decode().splitlines()
    assert lines[0].split() == BATCH.schema.names
    assert len(lines) == 4
    assert "\\n" in lines[2]


@pytest.mark.parametrize("pieces", [1, 3])
def test_parquet_and_arrow_keep_all(pieces: int) -> None:
    batches = [BATCH] * pieces
    expected = pa.Table.from_batches(batches)
    assert pq.read_table(io.BytesIO(written("parquet", *batches))).equals(expected)
    assert pa.ipc.open_stream(written("arrow", *batches)).read_all().equals(expected)


def test_row_groups_do_not_follow_batches() -> None:
    file = pq.ParquetFile(io.BytesIO(written("parquet", *[BATCH] * 50)))
    assert (file.num_row_groups, file.metadata.num_rows) == (1, 150)
    assert ParquetOutput.ROWS > 150


def test_times_beyond_pythons_are_shown_as_numbers() -> None:
    far = 1_700_000_000_000_000  # microseconds for milliseconds
    times = pa.array([0, far, None], pa.timestamp("ms", "UTC"))
    nested = pa.StructArray.from_arrays([times], ["at"])
    listed = pa.array([[far], [], None], pa.list_(pa.timestamp("s")))
    mapped = pa.array([[("a", far)], None, []], pa.map_(pa.string(), pa.timestamp("ms")))
    batch = pa.record_batch({"timestamp": times, "nested": nested, "listed": listed, "mapped": mapped})
    for form in ("json", "csv", "table"):
        file = io.BytesIO()
        output = OUTPUTS[form](file, batch.schema)
        output.write(batch)
        output.close()
        assert str(far) in file.getvalue().decode()
    file = io.BytesIO()
    OUTPUTS["json"](file, batch.schema).write(batch)
    first, second, third = map(json.loads, file.getvalue().decode().splitlines())
    assert first["timestamp"] == "1970-01-01T00:00:00.000Z"
    assert (first["listed"], first["mapped"]) == ([far], {"a": far})
    assert (second["timestamp"], second["nested"]) == (far, {"at": far})
    assert third == {"timestamp": None, "nested": {"at": None}, "listed": None, "mapped": {}}


TEMPLATES = {
    r"%t %p %o %T %k %K\n": b"orders 3 7 1700000000123 k 1\n",
    r"[%s] %S %h %%\t.\\n": b"[v\xff] 2 a=1,b= %\t.\\n",
    "no sign": b"no sign",
}


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_is_filled_from_a_record(template: str) -> None:
    row = {
        "topic": "orders",
        "partition": 3,
        "offset": 7,
        "timestamp": datetime.fromtimestamp(1_700_000_000.123, UTC),
        "key": b"k",
        "value": b"v\xff",
        "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
    }
    made = Template(template)
    assert made.written({name: row[name] for name in made.columns}) == TEMPLATES[template]


def test_a_tombstone_without_a_key_has_no_bytes_in_a_template() -> None:
    assert Template("%k|%K|%s|%S").written({"key": None, "value": None}) == b"|-1||-1"


@pytest.mark.parametrize("template", ["%x", "%", "100 %."])
def test_a_template_refuses_an_unknown_sign(template: str) -> None:
    with pytest.raises(click.UsageError, match="its signs are %t topic"):
        Template(template)
