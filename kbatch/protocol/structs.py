"""The classes of messages and of their structs, made from the tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, dataclass_transform

from kbatch.errors import UnsupportedVersionError
from kbatch.protocol.schema import MessageSpec, StructSpec


@dataclass_transform(kw_only_default=True)
class Struct:
    """A struct of a message. Its fields are mutable attributes, and keyword arguments with Kafka's defaults.

    Values are checked when the message is encoded. An argument that is not a field raises TypeError.
    """

    __slots__ = ()
    _spec: ClassVar[StructSpec]
    # The structs of the whole message by name.
    _structs: ClassVar[dict[str, type[Struct]]]

    def __init__(self, **values: Any) -> None:
        # Compiling 180 constructors would dominate the import: each is compiled when first called.
        constructor = _constructor(type(self))
        type(self).__init__ = constructor  # type: ignore[method-assign]
        constructor(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self._spec.fields)

    def __repr__(self) -> str:
        values = ", ".join(
            f"{field.name}={field.shown(getattr(self, field.name))}" for field in self._spec.fields
        )
        return f"{type(self).__qualname__}({values})"


class Message(Struct):
    """A message. The classes of its structs are attributes of its class.

    Attributes
    ----------
    api_key, record_type : int
        Those of a request or response, and of a coordinator's key or value; else -1.
    versions : range
        The supported versions.
    flexible_from : int
        The first version with tagged fields; after the last version if there is none.
    response : type of Message
        The class of the answer; only requests have it.
    """

    __slots__ = ()
    api_key: ClassVar[int]
    record_type: ClassVar[int]
    versions: ClassVar[range]
    flexible_from: ClassVar[int]
    response: ClassVar[type[Message]]


def _constructor(struct: type[Struct]) -> Callable[..., None]:
    parameters, lines = [], []
    for field in struct._spec.fields:
        value = field.name
        if field.default is ...:
            fresh = "[]" if field.is_array else f"{field.type}()"
            value = f"{fresh} if {value} is ... else {value}"
        parameters.append(f"{field.name}={'...' if field.default is ... else repr(field.default)}")
        lines.append(f"    self.{field.name} = {value}")
    source = "\n".join([f"def __init__(self, *, {', '.join(parameters)}):", *lines])
    names: dict[str, Any] = dict(struct._structs)
    # Compiled first: exec() of text resets the flag by which CPython ends an interrupted process by SIGINT,
    # and a client that is closed at exit makes some classes only then.
    exec(compile(source, f"<{struct.__qualname__}>", "exec"), names)
    constructor: Callable[..., None] = names["__init__"]
    constructor.__qualname__ = f"{struct.__qualname__}.__init__"
    return constructor


def build(spec: MessageSpec, module: str) -> type[Message]:
    """Return the class of a message, as if defined in `module`."""
    name = spec.body.name
    structs: dict[str, type[Struct]] = {}
    for struct in _nested(spec.body):
        if struct.name not in structs:
            structs[struct.name] = type(
                struct.name, (Struct,), _members(struct, structs, f"{name}.{struct.name}", module)
            )
    facts = {
        "__doc__": f"{name}, versions {spec.versions.start} to {spec.versions.stop - 1}.",
        "api_key": spec.api_key,
        "record_type": spec.record_type,
        "versions": spec.versions,
        "flexible_from": spec.flexible_from,
    }
    return type(name, (Message,), {**facts, **structs, **_members(spec.body, structs, name, module)})


def _nested(struct: StructSpec) -> list[StructSpec]:
    below = [field.struct for field in struct.fields if field.struct]
    return [inner for outer in below for inner in (outer, *_nested(outer))]


def _members(
    spec: StructSpec, structs: dict[str, type[Struct]], qualified_name: str, module: str
) -> dict[str, Any]:
    return {
        "__slots__": tuple(field.name for field in spec.fields),
        "__module__": module,
        "__qualname__": qualified_name,
        "_spec": spec,
        "_structs": structs,
    }


def check_version(kind: type[Message], version: int, correlation_id: int = -1) -> None:
    """Raise UnsupportedVersionError if the class lacks the version."""
    if version not in kind.versions:
        raise UnsupportedVersionError(
            f"{kind.__name__} v{version}: versions are {kind.versions.start} to {kind.versions.stop - 1}",
            api_key=kind.api_key,
            version=version,
            correlation_id=correlation_id,
        )
