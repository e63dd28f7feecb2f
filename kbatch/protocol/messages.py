"""All messages as classes, with Kafka's names; their structs are attributes: `FetchRequest.FetchTopic`.

The tables have their fields and types, and so does the stub beside this file, which `python -m
kbatch.protocol.stubs` writes. A decoded string is a str, bytes are bytes, a UUID is 16 bytes, records are a
memoryview of the input, an array is a list, and Kafka's null is None.
"""

from kbatch.protocol.schema import parse
from kbatch.protocol.structs import Message, build
from kbatch.protocol.tables import TABLES

MESSAGES: dict[str, type[Message]] = {
    spec.body.name: build(spec, __name__) for table in TABLES for spec in parse(table)
}
REQUESTS: dict[int, type[Message]] = {}
for _name, _kind in MESSAGES.items():
    if _name.endswith("Request"):
        REQUESTS[_kind.api_key] = _kind
        _kind.response = MESSAGES[_name.removesuffix("Request") + "Response"]
globals().update(MESSAGES)
