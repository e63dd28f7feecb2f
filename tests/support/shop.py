"""A Protobuf message for tests, as its class and as a FileDescriptorSet: no compiler is needed."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory, timestamp_pb2

_Field = descriptor_pb2.FieldDescriptorProto
GOOGLES = (timestamp_pb2, duration_pb2)


def _field(name: str, number: int, kind: int, type_name: str = "", *, is_list: bool = False) -> Any:
    label = _Field.LABEL_REPEATED if is_list else _Field.LABEL_OPTIONAL
    return _Field(name=name, number=number, type=kind, type_name=type_name or None, label=label)


def _order_file() -> Any:
    """Return the file shop.proto: a message Order with a number, a map, a time and a duration."""
    entry = descriptor_pb2.DescriptorProto(
        name="LabelsEntry",
        field=[_field("key", 1, _Field.TYPE_STRING), _field("value", 2, _Field.TYPE_UINT32)],
        options=descriptor_pb2.MessageOptions(map_entry=True),
    )
    order = descriptor_pb2.DescriptorProto(
        name="Order",
        field=[
            _field("id", 1, _Field.TYPE_UINT64),
            _field("labels", 2, _Field.TYPE_MESSAGE, ".shop.Order.LabelsEntry", is_list=True),
            _field("at", 3, _Field.TYPE_MESSAGE, ".google.protobuf.Timestamp"),
            _field("took", 4, _Field.TYPE_MESSAGE, ".google.protobuf.Duration"),
        ],
        nested_type=[entry],
    )
    return descriptor_pb2.FileDescriptorProto(
        name="shop.proto",
        package="shop",
        syntax="proto3",
        dependency=[each.DESCRIPTOR.name for each in GOOGLES],
        message_type=[order],
    )


FILE = _order_file()
_pool = descriptor_pool.DescriptorPool()
for _module in GOOGLES:
    _pool.AddSerializedFile(_module.DESCRIPTOR.serialized_pb)
_pool.Add(FILE)
# The class of the message; a FileDescriptorSet as `protoc --include_imports` writes it.
ORDER: Any = message_factory.GetMessageClass(_pool.FindMessageTypeByName("shop.Order"))
SHOP = descriptor_pb2.FileDescriptorSet(
    file=[
        *(descriptor_pb2.FileDescriptorProto.FromString(each.DESCRIPTOR.serialized_pb) for each in GOOGLES),
        FILE,
    ]
).SerializeToString()
