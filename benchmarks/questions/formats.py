"""What does a key or a value cost in each format? `python -m benchmarks.questions.formats` prints the
instructions of one, beside confluent-kafka's serializers and deserializers, and the libraries alone.

callgrind counts them in one process, which has made values of each kind before. So they depend neither on
other load nor on the machine's speed, and the start does not count. Neither side asks a registry: kbatch is
given the schema's id, and confluent-kafka's mock of a registry has it at hand.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

WARM_VALUES, VALUES = 100, 300
TOPIC = "orders"
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "price", "type": "double"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
JSON = {
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "price": {"type": "number"},
        "note": {"type": ["string", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["id", "name"],
}
ORDER: dict[str, Any] = {"id": 12345, "name": "a name", "price": 9.75, "note": None, "tags": ["new", "paid"]}
_TOTALS = re.compile(r"^totals: (\d+)$", re.MULTILINE)


class Case(NamedTuple):
    """Something that makes bytes of a value, or the other way round.

    Attributes
    ----------
    what : str
        The format and the direction: the same for those that are compared.
    who : str
    call : Callable
        Does it once.
    """

    what: str
    who: str
    call: Callable[[], object]


def cases() -> Iterator[Case]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what confluent_kafka imports
        from confluent_kafka.schema_registry import SchemaRegistryClient
        from confluent_kafka.serialization import MessageField, SerializationContext

        client = SchemaRegistryClient.new_client({"url": "mock://"})
        context = SerializationContext(TOPIC, MessageField.VALUE)
        yield from _avro(client, context)
        yield from _json_schema(client, context)
        yield from _protobuf(client, context)


def _both_ways(
    name: str, ours: Any, out: Callable[[], bytes], back: Callable[[bytes], object], value: Any
) -> Iterator[Case]:
    codec = ours.bind("value")
    data = codec.encode(TOPIC, (), value)
    yield Case(f"{name}, written", "kbatch", lambda: codec.encode(TOPIC, (), value))
    yield Case(f"{name}, written", "confluent-kafka", out)
    yield Case(f"{name}, read", "kbatch", lambda: codec.decode(TOPIC, (), data))
    theirs = out()
    yield Case(f"{name}, read", "confluent-kafka", lambda: back(theirs))


def _avro(client: Any, context: Any) -> Iterator[Case]:
    import fastavro
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

    from kbatch import formats

    write, read = AvroSerializer(client, json.dumps(AVRO)), AvroDeserializer(client)
    ours = formats.Avro[Any](AVRO, id=1)
    yield from _both_ways(
        "Avro", ours, lambda: write(ORDER, context), lambda data: read(data, context), ORDER
    )
    parsed = fastavro.parse_schema(AVRO)
    stream = BytesIO()
    fastavro.schemaless_writer(stream, parsed, ORDER)
    data = stream.getvalue()
    yield Case("Avro, written", "fastavro", lambda: fastavro.schemaless_writer(BytesIO(), parsed, ORDER))
    yield Case("Avro, read", "fastavro", lambda: fastavro.schemaless_reader(BytesIO(data), parsed, None))


def _json_schema(client: Any, context: Any) -> Iterator[Case]:
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

    from kbatch import formats

    text = json.dumps(JSON)
    write, read = JSONSerializer(text, client), JSONDeserializer(text, schema_registry_client=client)
    ours = formats.JsonSchema[Any](JSON, id=1)
    yield from _both_ways(
        "JSON Schema", ours, lambda: write(ORDER, context), lambda data: read(data, context), ORDER
    )


def _protobuf(client: Any, context: Any) -> Iterator[Case]:
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer

    from kbatch import formats

    message = _message()
    write = ProtobufSerializer(message, client, {"use.deprecated.format": False})
    read = ProtobufDeserializer(message, {"use.deprecated.format": False})
    value = message(**{name: each for name, each in ORDER.items() if each is not None})
    ours = formats.Protobuf[Any](message, id=1)
    yield from _both_ways(
        "Protobuf", ours, lambda: write(value, context), lambda data: read(data, context), value
    )


def _message() -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    kinds = {"id": 3, "name": 9, "price": 1, "note": 9, "tags": 9}
    fields = [
        field(name=name, number=number, type=kind, label=3 if name == "tags" else 1)
        for number, (name, kind) in enumerate(kinds.items(), 1)
    ]
    order = descriptor_pb2.DescriptorProto(name="Order", field=fields)
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3", message_type=[order])
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Order"))


# In the process that is counted


def _control(*arguments: str) -> None:
    subprocess.run(["callgrind_control", *arguments, str(os.getpid())], check=True, capture_output=True)


def job() -> None:
    """Do each case, let callgrind write a file for each, and print what they are."""
    for case in cases():
        call = case.call
        for _ in range(WARM_VALUES):
            call()
        _control("-i", "on")
        for _ in range(VALUES):
            call()
        _control("-d")
        _control("-i", "off")
        print(case.what, case.who, sep="\t")


# In the process that counts


def counted() -> dict[str, dict[str, int]]:
    """Return the instructions of a value, by what is done and who does it."""
    found: dict[str, dict[str, int]] = {}
    with TemporaryDirectory() as folder:
        output = Path(folder) / "callgrind.out"
        command = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no"]
        command += [f"--callgrind-out-file={output}", sys.executable, "-m", __spec__.name, "job"]
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        ran = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True)
        for number, line in enumerate(ran.stdout.splitlines(), 1):
            what, who = line.split("\t")
            total = _TOTALS.search(Path(f"{output}.{number}").read_text())
            assert total is not None  # callgrind has written it
            found.setdefault(what, {})[who] = int(total[1]) // VALUES
    return found


def lines(found: dict[str, dict[str, int]]) -> Iterator[str]:
    """Yield the table."""
    yield "| a value | kbatch | confluent-kafka | kbatch / confluent-kafka | the library alone |"
    yield "|---|---:|---:|---:|---:|"
    for what, by in found.items():
        ours, theirs, alone = by["kbatch"], by["confluent-kafka"], by.get("fastavro")
        yield (
            f"| {what} | {ours:,} | {theirs:,} | {ours / theirs:.2f} | "
            f"{'' if alone is None else f'{alone:,} (fastavro)'} |"
        )


if __name__ == "__main__":
    if sys.argv[1:] == ["job"]:
        job()
    else:
        print("\n".join(lines(counted())))
