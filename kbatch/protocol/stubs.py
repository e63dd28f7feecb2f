"""Write the stub of kbatch/protocol/messages.py from the tables: `python -m kbatch.protocol.stubs`."""

from collections.abc import Iterator
from pathlib import Path

from kbatch.protocol import messages
from kbatch.protocol.schema import Field, StructSpec
from kbatch.protocol.structs import Message

STUB = Path(__file__).with_name("messages.pyi")
_HEAD = '''"""Made from the tables by `python -m kbatch.protocol.stubs`."""

from typing import ClassVar

from kbatch.protocol.structs import Message, Struct
from kbatch.protocol.wire import Records

MESSAGES: dict[str, type[Message]]
REQUESTS: dict[int, type[Message]]
'''
_TYPES = {
    "bool": "bool",
    "float64": "float",
    "uuid": "bytes",
    "string": "str",
    "bytes": "bytes",
    "records": "Records",
}


def stub() -> str:
    """Return the text of messages.pyi."""
    classes = ("\n".join(_message(kind)) for kind in messages.MESSAGES.values())
    return "\n".join([_HEAD, "\n\n".join(classes), ""])


def _message(kind: type[Message]) -> Iterator[str]:
    yield f"class {kind.__name__}(Message):"
    if kind.__name__.endswith("Request"):
        yield f"    response: ClassVar[type[{kind.response.__name__}]]"
    for struct in kind._structs.values():
        yield f"    class {struct.__name__}(Struct):"
        yield from _fields(struct._spec, kind, "        ")
        yield ""
    yield from _fields(kind._spec, kind, "    ")


def _fields(spec: StructSpec, kind: type[Message], indent: str) -> Iterator[str]:
    for field in spec.fields:
        is_missing = field.default is None and not field.nullable  # it has to be given
        has_none = field.default is ... or field.type == "uuid" or is_missing
        default = "..." if has_none else repr(field.default)
        yield f"{indent}{field.name}: {_type(field, kind)} = {default}"


def _type(field: Field, kind: type[Message]) -> str:
    name = f"{kind.__name__}.{field.type}" if field.struct else _TYPES.get(field.type, "int")
    if field.is_array:
        name = f"list[{name}]"
    return f"{name} | None" if field.nullable else name


if __name__ == "__main__":
    STUB.write_text(stub())
