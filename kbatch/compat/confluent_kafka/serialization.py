"""Serializers and deserializers of text and numbers, and the context that all get.

An object for the Schema Registry of confluent-kafka belongs to that package; kbatch.formats has its own.
"""

from __future__ import annotations

import struct
from enum import StrEnum
from typing import Any

from kbatch.compat.confluent_kafka.error import SerializationError

__all__ = [
    "Deserializer",
    "DoubleDeserializer",
    "DoubleSerializer",
    "IntegerDeserializer",
    "IntegerSerializer",
    "MessageField",
    "SerializationContext",
    "SerializationError",
    "Serializer",
    "StringDeserializer",
    "StringSerializer",
]


class MessageField(StrEnum):
    """The part of a message."""

    NONE = "none"
    KEY = "key"
    VALUE = "value"


class SerializationContext:
    """What a serializer knows of a message.

    Attributes
    ----------
    topic : str
    field : MessageField
    headers : list of pairs, mapping, or None
    """

    def __init__(self, topic: str | None, field: MessageField, headers: Any = None) -> None:
        self.topic = topic
        self.field = field
        self.headers = headers


class Serializer:
    """Base of serializers: called with an object and a SerializationContext, they return bytes."""

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> bytes | None:
        raise NotImplementedError


class Deserializer:
    """Base of deserializers: called with bytes and a SerializationContext, they return an object."""

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> Any:
        raise NotImplementedError


class StringSerializer(Serializer):
    """Text, in UTF-8 or another encoding."""

    def __init__(self, codec: str = "utf_8") -> None:
        self.codec = codec

    def __call__(self, obj: str | None, ctx: SerializationContext | None = None) -> bytes | None:
        try:
            return None if obj is None else obj.encode(self.codec)
        except UnicodeError as error:
            raise SerializationError(str(error)) from error


class StringDeserializer(Deserializer):
    """Text, in UTF-8 or another encoding."""

    def __init__(self, codec: str = "utf_8") -> None:
        self.codec = codec

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> str | None:
        try:
            return None if value is None else value.decode(self.codec)
        except UnicodeError as error:
            raise SerializationError(str(error)) from error


class _Packed(Serializer):
    """Numbers as the format of `struct` has them."""

    form: str

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> bytes | None:
        try:
            return None if obj is None else struct.pack(self.form, obj)
        except struct.error as error:
            raise SerializationError(str(error)) from error


class _Unpacked(Deserializer):
    """Numbers as the format of `struct` has them."""

    form: str

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> Any:
        try:
            return None if value is None else struct.unpack(self.form, value)[0]
        except struct.error as error:
            raise SerializationError(str(error)) from error


class IntegerSerializer(_Packed):
    """Whole numbers of 32 bits, big-endian."""

    form = ">i"


class IntegerDeserializer(_Unpacked):
    """Whole numbers of 32 bits, big-endian."""

    form = ">i"


class DoubleSerializer(_Packed):
    """Numbers of 64 bits, as IEEE 754 has them, big-endian."""

    form = ">d"


class DoubleDeserializer(_Unpacked):
    """Numbers of 64 bits, as IEEE 754 has them, big-endian."""

    form = ">d"
