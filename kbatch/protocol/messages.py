"""All messages as classes, by Kafka's names; the structs in them are attributes: `FetchRequest.FetchTopic`.

Their fields and types stand in the tables, and in the stub beside this file, which `python -m
kbatch.protocol.stubs` writes. A decoded string is a str, bytes are bytes, a UUID is 16 bytes, records are a
memoryview of what was decoded, an array is a list, and what Kafka calls null is None.
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
