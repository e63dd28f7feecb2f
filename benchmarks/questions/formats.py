"""What does a value cost in each format, beside confluent-kafka's serializers and deserializers, and beside
the libraries alone?

callgrind counts the instructions in one process, which has made values of each kind before. So they depend
neither on other load nor on the machine's speed, and neither the start nor the collector's look at what was
imported counts. Neither side asks a registry: kbatch is given the schema's id, and confluent-kafka's mock of
a registry has it at hand.
"""

from __future__ import annotations

import gc
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

from benchmarks.clients.counted import why_uncounted
from benchmarks.pages.harness import Claim, Contender, Question
from benchmarks.pages.plan import Plan

WARM_CALLS, CALLS = 100, 1_000
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


# What calling something costs, and counting it.
NOTHING = "nothing"
KBATCH, CONFLUENT, FASTAVRO, JSON_LOADS = "kbatch", "confluent-kafka", "fastavro", "json.loads"
PROTOBUF, JSON_LIBRARIES = "protobuf", "json, jsonschema-rs"
COLUMN_ROWS = 1_000


class Case(NamedTuple):
    """Something that makes bytes of a value, or the other way round.

    Attributes
    ----------
    what : str
        The format and the direction: the same for those that are compared.
    who : str
    call : Callable
        Does it once.
    values : int
        The number of values that it then makes.
    """

    what: str
    who: str
    call: Callable[[], object]
    values: int = 1


# The aims: what, beside whom, and the most instructions of one in those of the other.
AIMS = (
    ("Avro, written", CONFLUENT, 0.75),
    ("Avro, written", FASTAVRO, 1.15),
    ("Avro, read", CONFLUENT, 0.3),
    ("Avro, read", FASTAVRO, 1.15),
    ("Avro, columns read", CONFLUENT, 0.2),
    ("JSON Schema, written", CONFLUENT, 0.05),
    ("JSON Schema, read", CONFLUENT, 0.05),
    ("Protobuf, written", CONFLUENT, 0.15),
    ("Protobuf, written", PROTOBUF, 1.5),
    ("Protobuf, read", CONFLUENT, 0.15),
    ("Protobuf, read", PROTOBUF, 1.5),
    ("JSON, read by a consumer", JSON_LOADS, 1.05),
)


def cases() -> Iterator[Case]:
    yield Case(NOTHING, KBATCH, lambda: None)
    yield from _lazy_json()
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
    yield Case(f"{name}, written", KBATCH, lambda: codec.encode(TOPIC, (), value))
    yield Case(f"{name}, written", CONFLUENT, out)
    yield Case(f"{name}, read", KBATCH, lambda: codec.decode(TOPIC, (), data))
    theirs = out()
    yield Case(f"{name}, read", CONFLUENT, lambda: back(theirs))


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
    yield Case("Avro, written", FASTAVRO, lambda: fastavro.schemaless_writer(BytesIO(), parsed, ORDER))
    yield Case("Avro, read", FASTAVRO, lambda: fastavro.schemaless_reader(BytesIO(data), parsed, None))
    yield from _avro_columns(ours, lambda data: read(data, context), write(ORDER, context))


def _avro_columns(ours: Any, read: Callable[[bytes], Any], theirs: bytes) -> Iterator[Case]:
    import pyarrow as pa

    deserializer = ours.column_deserializer(TOPIC, "value")
    column = pa.array([ours.bind("value").encode(TOPIC, (), ORDER)] * COLUMN_ROWS)
    values, kind = [theirs] * COLUMN_ROWS, deserializer.data_type
    what = "Avro, columns read"
    yield Case(what, KBATCH, lambda: deserializer(column), COLUMN_ROWS)
    yield Case(what, CONFLUENT, lambda: pa.array(list(map(read, values)), kind), COLUMN_ROWS)


def _lazy_json() -> Iterator[Case]:
    from kbatch import ConsumerRecord
    from kbatch.config import ConsumerConfig
    from kbatch.consumer.typed_records import TypedRecords

    record = ConsumerRecord(TOPIC, 0, value=json.dumps(ORDER).encode())
    typed = TypedRecords.of(ConsumerConfig({"bootstrap.servers": "x:1", "value.deserializer": "json"}))
    assert typed is not None
    make = typed.typed
    what = "JSON, read by a consumer"
    yield Case(what, KBATCH, lambda: make(record).value)
    yield Case(what, JSON_LOADS, lambda: json.loads(record.value))


def _json_schema(client: Any, context: Any) -> Iterator[Case]:
    import jsonschema_rs
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

    from kbatch import formats

    text = json.dumps(JSON)
    write, read = JSONSerializer(text, client), JSONDeserializer(text, schema_registry_client=client)
    ours = formats.JsonSchema[Any](JSON, id=1)
    yield from _both_ways(
        "JSON Schema", ours, lambda: write(ORDER, context), lambda data: read(data, context), ORDER
    )
    is_valid, data = jsonschema_rs.validator_for(JSON).is_valid, json.dumps(ORDER).encode()
    encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode

    def read_by_libraries() -> Any:
        value = json.loads(data)
        assert is_valid(value)
        return value

    yield Case("JSON Schema, written", JSON_LIBRARIES, lambda: (is_valid(ORDER), encode(ORDER).encode()))
    yield Case("JSON Schema, read", JSON_LIBRARIES, read_by_libraries)


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
    data = value.SerializeToString()
    yield Case("Protobuf, written", PROTOBUF, lambda: value.SerializeToString())
    yield Case("Protobuf, read", PROTOBUF, lambda: message.FromString(data))


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


def job(calls: int) -> None:
    """Do each case so often, let callgrind write a file for each, and print what they are."""
    made = list(cases())
    gc.collect()
    gc.freeze()  # what was imported is looked at by no collection
    for case in made:
        call, count = case.call, max(1, calls // case.values)
        for _ in range(min(WARM_CALLS, count)):
            call()
        _control("-i", "on")
        for _ in range(count):
            call()
        _control("-d")
        _control("-i", "off")
        print(case.what, case.who, count, case.values, sep="\t")


# In the process that counts


def counted(calls: int) -> dict[str, dict[str, float]]:
    """Return the instructions of a value, by what is done and who does it."""
    found: dict[str, dict[str, float]] = {}
    with TemporaryDirectory() as folder:
        output = Path(folder) / "callgrind.out"
        command = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no"]
        command += [f"--callgrind-out-file={output}", sys.executable, "-m", __name__, "job", str(calls)]
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        ran = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True)
        nothing: int | None = None  # of counting itself, however often something is called
        for number, line in enumerate(ran.stdout.splitlines(), 1):
            what, who, count, values = line.split("\t")
            total = _TOTALS.search(Path(f"{output}.{number}").read_text())
            assert total is not None  # callgrind has written it
            if what == NOTHING:
                nothing = int(total[1])
                continue
            assert nothing is not None  # the first one
            found.setdefault(what, {})[who] = (int(total[1]) - nothing) / (int(count) * int(values))
    return found


def questions(plan: Plan) -> Iterator[Question]:
    """Yield a question for each format and direction."""
    reason = why_uncounted()
    for what, by in {} if reason else counted(plan.records_of(CALLS)).items():
        contenders = [Contender(who, 1, timings=[count]) for who, count in by.items()]
        claims = [
            Claim(KBATCH, other, most, f"at most {most:g} x the instructions of {other}")
            for named, other, most in AIMS
            if named == what
        ]
        yield Question(what, _LIMIT, contenders, claims, "instructions a value", speaks_of_speed=False)
    if reason:
        yield Question("Values in each format", f"Nothing was counted: {reason}.", [])


_LIMIT = "One value of five fields: an integer, a double, a text, one that is null, and a list of two texts."


if __name__ == "__main__":
    job(int(sys.argv[2]))
