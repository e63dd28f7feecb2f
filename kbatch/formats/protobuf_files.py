"""Files of Protobuf messages: from classes, sets of descriptors and registries, and to registries."""

from __future__ import annotations

import pickle
from base64 import b64decode, b64encode
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kbatch.distribution import pip_install
from kbatch.formats.framing import Written
from kbatch.formats.schemas import NotOffered, registered_id

if TYPE_CHECKING:
    from kbatch.schema_registry import Schema, SchemaReference, SchemaRegistry

REPEATED = 3
WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
# Its options need not be known to read messages.
_OPTIONS_ONLY = "confluent/meta.proto"
# Imports that every registry knows.
_BUILT_IN = ("google/protobuf/", "google/type/", "confluent/")


def need_protobuf() -> None:
    """Raise ImportError, with the remedy, unless protobuf is installed."""
    try:
        from google.protobuf import message_factory  # noqa: F401
    except ImportError as error:
        raise ImportError(f"Protobuf needs protobuf; {pip_install('protobuf')}") from error


def is_repeated(field: Any) -> bool:
    # from protobuf 7 on there is no label
    return bool(field.is_repeated) if hasattr(field, "is_repeated") else field.label == REPEATED


def descriptor_of(message: Any) -> Any:
    """Return the descriptor of a message's class, or the descriptor itself. Raise TypeError for others."""
    descriptor = (
        message.DESCRIPTOR if isinstance(message, type) and hasattr(message, "DESCRIPTOR") else message
    )
    if not hasattr(descriptor, "fields_by_name"):
        raise TypeError(f"message must be a class made by protoc, or its descriptor, got {message!r}")
    return descriptor


def class_of(message: Any) -> Any:
    """Return a message's class, or the one of its descriptor."""
    from google.protobuf.message_factory import GetMessageClass

    return message if isinstance(message, type) else GetMessageClass(message)


# What a pickle has of a class: pickle's own bytes, or the files of its descriptor and the message's name.
PackedClass = bytes | tuple[list[bytes], str]


def packed_class(message: Any) -> PackedClass:
    """Return what a pickle has of a message's class: its name if it can be imported, else the files of its
    descriptor, which belongs to its process.
    """
    try:
        return pickle.dumps(message)
    except (pickle.PicklingError, AttributeError, ImportError):
        return files_of(message.DESCRIPTOR.file), message.DESCRIPTOR.full_name


def unpacked_class(packed: PackedClass) -> Any:
    """Return the class again."""
    if isinstance(packed, bytes):
        return pickle.loads(packed)
    files, name = packed
    return class_of(pool_of(files).FindMessageTypeByName(name))


def path_of(descriptor: Any) -> tuple[int, ...]:
    """Return the position of a message: the path through the messages of its file (MessageIndexes of
    Confluent's schema registry).
    """
    path: list[int] = []
    while descriptor is not None:
        parent = descriptor.containing_type
        siblings = parent.nested_types if parent else descriptor.file.message_types_by_name.values()
        path.insert(0, [each.full_name for each in siblings].index(descriptor.full_name))
        descriptor = parent
    return tuple(path)


# Schemas of a registry


def registered_file(schema: Schema, registry: SchemaRegistry) -> Any:
    """Return the descriptor of the file of a schema in the format serialized. Raise ValueError if it is not
    valid.
    """
    if schema.schema_type != "PROTOBUF":
        raise ValueError(f"its type is {schema.schema_type}, not PROTOBUF")
    names = {(each.subject, each.version): each.name for each in schema.references}
    listed = registry.with_references(schema, format="serialized")
    for each in listed:
        names.update({(other.subject, other.version): other.name for other in each.references})
    files = []
    for each in listed[:-1]:
        assert each.subject is not None and each.version is not None
        files.append(_file_proto(each, names[each.subject, each.version]))
    own = _file_proto(schema, "schema.proto")
    files.append(own)
    return pool_of([file.SerializeToString() for file in files]).FindFileByName(own.name)


def _file_proto(schema: Schema, name: str) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        file = FileDescriptorProto.FromString(b64decode(schema.text, validate=True))
    except (ValueError, DecodeError) as error:
        raise ValueError(
            f"the registry gave it in another format than serialized ({error}); give Protobuf a message class"
        ) from error
    file.name = name
    return file


def pool_of(files: list[bytes]) -> Any:
    """Return a pool with files of descriptors, each after those that it imports, and Google's own."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    known: set[str] = set()

    def add(file: Any) -> None:
        for name in list(file.dependency):
            if name in known:
                continue
            if name.startswith("google/protobuf/"):
                with suppress(ImportError):
                    module = import_module(f"{name.removesuffix('.proto').replace('/', '.')}_pb2")
                    add(FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb))
            elif name == _OPTIONS_ONLY:
                file.dependency.remove(name)
        try:
            pool.Add(file)
        except TypeError as error:
            raise ValueError(f"{file.name} is not valid: {error}") from error
        known.add(file.name)

    for data in files:
        file = FileDescriptorProto.FromString(data)
        if file.name not in known:
            add(file)
    return pool


def descriptor_in(data: bytes, message: str) -> Any:
    """Return the descriptor of a message in a FileDescriptorSet, or raise as `from_descriptor_set` does."""
    need_protobuf()
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        files = FileDescriptorSet.FromString(data).file
    except DecodeError as error:
        raise ValueError(f"the bytes are not a FileDescriptorSet: {error}") from None
    if not files:
        raise ValueError("the FileDescriptorSet is empty")
    pool = pool_of([file.SerializeToString() for file in files])
    try:
        return pool.FindMessageTypeByName(message)
    except KeyError:
        there = [f"{file.package}.{each.name}".lstrip(".") for file in files for each in file.message_type]
        raise ValueError(
            f"the FileDescriptorSet has no message {message!r}; it has {', '.join(there) or 'none'}"
        ) from None


def descriptor_set(file: Any) -> bytes:
    """Return the FileDescriptorSet of a file's descriptor and of all that it imports."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    files = [FileDescriptorProto.FromString(each) for each in files_of(file)]
    return bytes(FileDescriptorSet(file=files).SerializeToString())


def files_of(file: Any) -> list[bytes]:
    """Return a file after all that it imports."""
    found: dict[str, bytes] = {}

    def add(each: Any) -> None:
        if each.name not in found:
            for other in each.dependencies:
                add(other)
            found[each.name] = each.serialized_pb

    add(file)
    return list(found.values())


def message_at(file: Any, path: tuple[int, ...]) -> Any:
    """Return the message at a position, or that there is none."""
    messages, found = list(file.message_types_by_name.values()), None
    for index in path:
        if index >= len(messages):
            return f"no message at the position {list(path)}"
        found = messages[index]
        messages = list(found.nested_types)
    return found


def refusal(file: Any, written: Written, message: Any) -> str | None:
    """Return why values of a schema cannot be read as a message; None if they can.

    Parameters
    ----------
    file : descriptor or str
        That of the schema, or why it cannot be used.
    written : Written
        The schema, and the position of the values' message in it.
    message : descriptor
    """
    number, path = written
    if isinstance(file, NotOffered):
        own = path_of(message)
        return None if path == own else f"it is the message at the position {list(path)}, not at {list(own)}"
    if isinstance(file, str):
        return file
    found = message_at(file, path)
    if isinstance(found, str):
        return f"its schema {number} has {found}"
    same = found.full_name == message.full_name
    return None if same else f"it is a message {found.full_name}, not {message.full_name}"


# What a registry gets


def registered_references(registry: SchemaRegistry, file: Any, registers: bool) -> list[SchemaReference]:
    """Return the files that a file imports as references, registered under their names. Those that come with
    Protobuf need none.
    """
    from kbatch.schema_registry import SchemaReference

    found = []
    for other in file.dependencies:
        if not other.name.startswith(_BUILT_IN):
            references = registered_references(registry, other, registers)
            text = file_text(other)
            registered_id(registry, other.name, text, "PROTOBUF", references, registers=registers)
            version = registry.lookup(other.name, text, "PROTOBUF", references).version
            assert version is not None  # an answer about a subject has it
            found.append(SchemaReference(other.name, other.name, version))
    return found


def file_text(file: Any) -> str:
    """Return a file of messages as a registry takes it beside its source: serialized, in base64."""
    return b64encode(file.serialized_pb).decode()
