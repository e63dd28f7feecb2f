"""`kbatch produce --value-format`: typed values of CSV, JSON lines, text and Parquet, judged by
confluent-kafka's deserializers and by `kbatch consume`.
"""

from __future__ import annotations

import datetime
import json
import uuid
import warnings
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from kbatch.cli.commands import kbatch
from kbatch.testing import Broker
from tests.support.registry import Registry
from tests.support.shop import ORDER, SHOP

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what confluent_kafka imports
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext

TOPIC = "orders"
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "ref", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "raw", "type": ["null", "bytes"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "size", "type": ["null", "double", "string"], "default": None},
        {"name": "paid", "type": "boolean", "default": False},
    ],
}
VALUE = {
    "id": 2**53 + 1,
    "price": Decimal("1.10"),
    "at": datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, datetime.UTC),
    "day": datetime.date(2026, 1, 2),
    "ref": str(uuid.UUID(int=7)),
    "raw": b"\xff",
    "tags": ["a", "00123"],
    "size": 2.5,
    "paid": True,
}
LINE = (
    '{"id": 9007199254740993, "price": 1.10, "at": "2026-01-02T03:04:05.678901Z", "day": "2026-01-02", '
    '"ref": "00000000-0000-0000-0000-000000000007", "raw": {"base64": "/w=="}, "tags": ["a", "00123"], '
    '"size": 2.5, "paid": true}'
)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(topics={TOPIC: 1}, auto_create_topics=False) as running:
        yield running


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as running:
        yield running


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(AVRO))
    return path


def run(*arguments: object, given: bytes | str = b"") -> tuple[int, str]:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(kbatch, list(map(str, arguments)), given)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def produced(broker: Broker, *arguments: object, given: bytes | str = b"") -> list[Any]:
    status, output = run("produce", *arguments, "-t", TOPIC, "-b", broker.bootstrap_servers, given=given)
    assert status == 0, output
    return broker.records(TOPIC)


def refused(broker: Broker, *arguments: object, given: bytes | str = b"", status: int = 1) -> str:
    found, output = run("produce", *arguments, "-t", TOPIC, "-b", broker.bootstrap_servers, given=given)
    assert found == status, output
    return output


def read_by_confluent(registry: Registry, data: bytes | None) -> Any:
    read = AvroDeserializer(SchemaRegistryClient({"url": registry.url}))
    found: Any = read(data, SerializationContext(TOPIC, MessageField.VALUE))
    return {**found, "ref": str(found["ref"])}


def test_json_lines_become_avro(broker: Broker, registry: Registry, schema: Path) -> None:
    options = ("--value-format", "avro", "--schema-registry", registry.url)
    others = {"price": "2.5", "at": "1970-01-01T00:00:00Z", "day": "1970-01-01", "ref": VALUE["ref"]}
    lines = f"{LINE}\n{json.dumps({'id': 1, **others})}\n"
    first, second = produced(
        broker, "-", "-f", "jsonl", *options, "--value-schema", schema, "--register", given=lines
    )
    assert first.value[:5] == b"\0\0\0\0\1"
    assert read_by_confluent(registry, first.value) == VALUE
    found = read_by_confluent(registry, second.value)
    assert (found["price"], found["tags"], found["raw"], found["paid"]) == (Decimal("2.50"), [], None, False)


def test_what_consume_writes_can_be_sent_again(broker: Broker, registry: Registry, schema: Path) -> None:
    options = ("--schema-registry", registry.url)
    avro = ("--value-format", "avro", "--value-schema", schema)
    produced(broker, "-", "-f", "jsonl", *options, *avro, "--register", given=LINE)
    _, text = run("consume", TOPIC, "-b", broker.bootstrap_servers, "--value", "avro", *options)
    value = json.dumps(json.loads(text)["value"])
    assert json.loads(value)["size"] == {"member0": 2.5, "member1": None}
    first, second = produced(broker, "-", "-f", "jsonl", *options, "--value-format", "avro", given=value)
    assert second.value == first.value


def test_cells_of_csv_become_avro(broker: Broker, registry: Registry, tmp_path: Path) -> None:
    registry.add(f"{TOPIC}-value", AVRO)
    path = tmp_path / "orders.csv"
    path.write_text(
        "customer,id,price,at,day,ref,raw,tags,size,paid\n"
        f'7,9007199254740993,1.10,2026-01-02T03:04:05.678901Z,2026-01-02,{VALUE["ref"]},text,"[""a"",""00123""]",2.5,true\n'
        f"8,1,1,1970-01-01T00:00:00Z,1970-01-01,{VALUE['ref']},,[],large,false\n"
    )
    options = ("--value-format", "avro", "--schema-registry", registry.url, "--key", "customer")
    first, second = produced(broker, path, *options, "--key-format", "int32")
    assert first.key == b"\0\0\0\7"
    found = read_by_confluent(registry, first.value)
    assert found == {**VALUE, "raw": b"text"}
    assert read_by_confluent(registry, second.value)["size"] == "large"


def test_columns_of_parquet_become_avro(broker: Broker, registry: Registry, tmp_path: Path) -> None:
    fields = [each for each in AVRO["fields"] if each["name"] not in ("size", "ref")]  # type: ignore[index]
    registry.add(f"{TOPIC}-value", {**AVRO, "fields": fields})
    path = tmp_path / "orders.parquet"
    columns = {name: [value] for name, value in VALUE.items() if name not in ("size", "ref")}
    pq.write_table(pa.table({"customer": pa.array([7], pa.int64()), **columns}), path)
    options = ("--value-format", "avro", "--schema-registry", registry.url, "--key", "customer")
    (record,) = produced(broker, path, *options, "--key-format", "int64")
    assert record.key == bytes(7) + b"\7"
    read = AvroDeserializer(SchemaRegistryClient({"url": registry.url}))
    found = read(record.value, SerializationContext(TOPIC, MessageField.VALUE))
    assert found == {name: value for name, (value,) in columns.items()}
    text = refused(broker, path, *options[:4])
    assert "has no field for 'customer'; drop these columns" in text


def test_messages_and_numbers(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "shop.pb"
    path.write_bytes(SHOP)
    protobuf = ("--value-format", "protobuf", "--descriptor-set", path, "--value-message", "shop.Order")
    line = '{"id": 18446744073709551615, "labels": {"a": 1}, "at": "1970-01-01T00:00:05Z", "took": "1.5s"}'
    (record,) = produced(broker, "-", "-f", "jsonl", *protobuf, given=line)
    expected = ORDER(
        id=2**64 - 1, labels={"a": 1}, at={"seconds": 5}, took={"seconds": 1, "nanos": 5 * 10**8}
    )
    assert ORDER.FromString(record.value) == expected
    *_, record = produced(broker, "-", "--value-format", "float64", given="1.5\n")
    assert record.value == b"\x3f\xf8" + bytes(6)
    *_, record = produced(
        broker, "-", "-f", "jsonl", "--value", "n", "--value-format", "int32", given='{"n": 5}'
    )
    assert record.value == b"\0\0\0\5"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('{"id": 1.5}', "line 1: value: field 'id': long does not take float 1.5"),
        ('{"id": 1, "color": "red"}', "line 1: value: Order has no field 'color'"),
        (LINE.replace("Z", ""), "line 1: value: at: the time needs a zone, as in"),
        (LINE.replace('"/w=="', '"/w"'), "line 1: value: raw: "),
        (
            LINE.replace("1.10", "1.105"),
            "line 1: value: field 'price': 1.105 does not fit a decimal of 9 dig",
        ),
        (LINE.replace("9007199254740993", "null"), "line 1: value: field 'id': long does not take NoneType"),
        ("5", "line 1: value: "),
    ],
)
def test_values_that_the_schema_does_not_have(broker: Broker, schema: Path, line: str, text: str) -> None:
    options = ("-f", "jsonl", "--value-format", "avro", "--value-schema", schema)
    output = refused(broker, "-", *options, given=f"{line}\n{LINE}\n")
    assert text in output
    assert broker.records(TOPIC) == []


def test_rows_before_a_broken_one_are_sent(broker: Broker) -> None:
    output = refused(broker, "-", "--value-format", "int32", given="1\n2\nx\n4\n")
    assert "line 3: value: invalid literal for int()" in output
    assert [record.value for record in broker.records(TOPIC)] == [b"\0\0\0\1", b"\0\0\0\2"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--value-format", "avro"), "avro needs --schema-registry URL, or --value-schema FILE"),
        (("--value-format", "protobuf"), "protobuf needs --descriptor-set FILE and --value-message NAME"),
        (("--value-subject", "s"), "--value-subject needs --value-format avro or protobuf"),
        (("--key-format", "int32"), "--key-format needs --key COLUMN"),
        (("--value-format", "int64"), "int64 has one value, not several columns: add --value COLUMN"),
    ],
)
def test_wrong_calls(broker: Broker, tmp_path: Path, options: tuple[str, ...], text: str) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("id\n1\n")
    assert text in refused(broker, path, *options, status=2)


def test_registry_that_lacks_the_schema(broker: Broker, registry: Registry) -> None:
    output = refused(broker, "-", "--value-format", "avro", "--schema-registry", registry.url, given="1\n")
    assert "40401 Subject 'orders-value' not found" in output


def test_dry_run_shows_bytes(broker: Broker) -> None:
    status, output = run("produce", "-", "-t", TOPIC, "--value-format", "int32", "--dry-run", given="65\n")
    assert status == 0, output
    assert output.startswith("value=\0\0\0A\n")
