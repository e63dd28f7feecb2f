"""Apicurio Registry, a real one: what the played registry of other tests answers is what it answers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from kbatch import SchemaRegistry, formats
from kbatch.errors import SchemaRegistryError
from kbatch.schema_registry import SchemaReference
from tests.oracle import apicurio
from tests.oracle.java_programs import JavaMissingError
from tests.support.registry import Registry

pytestmark = [pytest.mark.java, pytest.mark.slow]

ID = {"name": "id", "type": "long"}
ORDER = {"type": "record", "name": "Order", "namespace": "shop", "fields": [ID]}
NOTED = {**ORDER, "fields": [ID, {"name": "note", "type": ["null", "string"], "default": None}]}
# The played registry knows by the name of the field that it cannot follow.
UNFIT = {**ORDER, "fields": [ID, {"name": "never", "type": "string"}]}
ADDRESS = {
    "type": "record",
    "name": "Address",
    "namespace": "shop",
    "fields": [{"name": "city", "type": "string"}],
}
SENT = {**ORDER, "fields": [ID, {"name": "to", "type": "shop.Address"}]}
JSON = {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}}
UNKNOWN_ID = 10**6
Outcomes = dict[str, Any]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """With `KBATCH_REQUIRE_JAVA=1` missing Java is an error."""
    try:
        apicurio.program()
    except JavaMissingError as missing:
        if os.environ.get("KBATCH_REQUIRE_JAVA") == "1":
            raise
        pytest.skip(str(missing))
    with apicurio.running() as found:
        yield found


def client_of(url: str) -> SchemaRegistry:
    return SchemaRegistry(url, unknown_id_seconds=0)  # it repeats calls whose answer is lost


def outcomes(url: str) -> Outcomes:
    """Return what comes of the calls that formats and programs make of a registry, one after the other."""
    found: Outcomes = {}
    client = client_of(url)

    def ask(what: str, call: Callable[[], Any]) -> None:
        try:
            found[what] = call()
        except SchemaRegistryError as error:
            found[what] = error.status, error.error_code, error.retriable

    def contents(schema: Any) -> Any:
        return json.loads(schema.text), schema.schema_type, schema.subject, schema.version

    first = client.register("orders-value", json.dumps(ORDER))
    second = client.register("orders-value", json.dumps(NOTED))
    ask("registered again", lambda: client_of(url).register("orders-value", json.dumps(ORDER)) == first)
    ask("by id", lambda: contents(client_of(url).get(second)))
    ask("by id, of a subject", lambda: contents(client_of(url).get(first, subject="orders-value")))
    ask("latest", lambda: contents(client.get_version("orders-value")))
    ask("id of the latest", lambda: client.get_version("orders-value").id == second)
    ask("version", lambda: contents(client.get_version("orders-value", 1)))
    ask("versions", lambda: client.versions("orders-value"))
    ask("versions of an id", lambda: client.versions_of_id(second))
    ask("looked up", lambda: contents(client.lookup("orders-value", json.dumps(ORDER))))
    ask("unknown id", lambda: client.get(UNKNOWN_ID))
    ask("versions of an unknown id", lambda: client.versions_of_id(UNKNOWN_ID))
    ask("unknown subject", lambda: client.get_version("none"))
    ask("unknown version", lambda: client.get_version("orders-value", 77))
    ask("looked up, unknown", lambda: client.lookup("orders-value", json.dumps(UNFIT)))
    client.set_config("orders-value", compatibility="BACKWARD")
    ask("compatible", lambda: client.incompatibilities("orders-value", json.dumps(NOTED)))
    ask("not compatible", lambda: bool(client.incompatibilities("orders-value", json.dumps(UNFIT))))
    ask("compatible with nothing", lambda: client.incompatibilities("none", json.dumps(ORDER)))
    ask("refused", lambda: client.register("orders-value", json.dumps(UNFIT)))
    ask("level", lambda: client.config("orders-value")["compatibilityLevel"])
    ask("mode", client.mode)
    client.register("addresses", json.dumps(ADDRESS))
    refers = SchemaReference("shop.Address", "addresses", 1)
    sent = client.register("sent-value", json.dumps(SENT), "AVRO", [refers])
    ask("references", lambda: client_of(url).get(sent).references)
    ask(
        "with references",
        lambda: [json.loads(each.text)["name"] for each in client.with_references(client_of(url).get(sent))],
    )
    ask("subjects", lambda: client.subjects())
    ask("deleted version", lambda: client.delete_version("orders-value", 2))
    ask("versions left", lambda: client.versions("orders-value"))
    ask("deleted, by id", lambda: contents(client_of(url).get(second)))
    return found


def test_F_REG_13_played_registry_answers_as_a_real_one(url: str) -> None:
    with Registry() as played:
        expected = outcomes(played.url)
    found = outcomes(url)
    # where Confluent's knows no such subject
    assert (found.pop("compatible with nothing"), expected.pop("compatible with nothing")[0]) == ([], 404)
    assert found == expected
    assert found["unknown id"] == (404, 40403, False)
    assert found["unknown subject"] == (404, 40401, False)
    assert found["refused"][0] == 409


def test_F_REG_13_guids_are_what_it_lacks(url: str) -> None:
    client = client_of(url)
    number = client.register("plain-value", json.dumps(ORDER))
    assert client.get(number).guid is None
    with pytest.raises(SchemaRegistryError) as caught:
        client.get_by_guid("00000000-0000-0000-0000-000000000000")
    assert caught.value.status == 404
    headers: list[Any] = []
    codec = formats.Avro[Any](ORDER, registry=client, id_in="header", register=True).bind("value")
    data = codec.encode("plain", headers, {"id": 1})
    assert headers == [("__value_schema_id", b"\0" + number.to_bytes(4, "big"))] and data == b"\2"
    assert formats.Avro[Any](registry=client_of(url)).bind("value").decode("plain", headers, data) == {
        "id": 1
    }


def pair(url: str, name: str) -> tuple[Any, Any, Any, Any, Any]:
    """Return our format, one that knows the registry alone, their serializer and deserializer, a value."""
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

    theirs = SchemaRegistryClient({"url": url, "timeout": 20})  # else it waits for ever, if an answer is lost
    conf = {"subject.name.strategy.type": "TOPIC"}
    options: dict[str, Any] = {"registry": client_of(url), "register": True}
    if name == "avro":
        text = json.dumps(NOTED)
        return (
            formats.Avro[Any](NOTED, **options),
            formats.Avro[Any](registry=client_of(url)),
            AvroSerializer(theirs, text, conf=conf),
            AvroDeserializer(theirs),
            {"id": 7, "note": "new"},
        )
    text = json.dumps(JSON)
    return (
        formats.JsonSchema[Any](JSON, **options),
        formats.JsonSchema[Any](registry=client_of(url)),
        JSONSerializer(text, theirs, conf=conf),
        JSONDeserializer(text, schema_registry_client=theirs),
        {"id": 7},
    )


@pytest.mark.parametrize("name", ["avro", "json"])
@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_F_REG_13_values_go_both_ways_with_confluent(url: str, name: str, first: str) -> None:
    from confluent_kafka.serialization import MessageField, SerializationContext

    topic = f"both-{name}-{first}"
    ours, reader, write, read, value = pair(url, name)
    context = SerializationContext(topic, MessageField.VALUE)
    codec = ours.bind("value")
    if first == "ours":
        written, other = codec.encode(topic, (), value), write(value, context)
    else:
        other, written = write(value, context), codec.encode(topic, (), value)
    assert written[:5] == other[:5]  # one id, whoever has registered the schema
    assert read(written, context) == value
    assert reader.bind("value").decode(topic, (), other) == value
    column = reader.column_deserializer(topic, "value")(pa.array([written, other, None]))
    assert column.to_pylist() == [value, value, None]


def test_F_REG_13_columns_are_read_by_the_latest_schema(url: str) -> None:
    registry = client_of(url)
    data = [
        formats.Avro[Any](schema, registry=registry, register=True).bind("value").encode("grows", (), row)
        for schema, row in ((ORDER, {"id": 1}), (NOTED, {"id": 2, "note": "b"}))
    ]
    read = formats.Avro[Any](registry=client_of(url)).column_deserializer("grows", "value")
    assert read(pa.array(data)).to_pylist() == [{"id": 1, "note": None}, {"id": 2, "note": "b"}]
    codec = formats.Avro[Any](registry=registry, subject="none").bind("value")
    with pytest.raises(SchemaRegistryError, match="40401"):
        codec.encode("grows", (), {"id": 1})
