"""Records of Kafka's internal topics, and the partition of a group or a transactional id.

A key is two bytes of kind, and the key; a value is two bytes of version, and the value
(CoordinatorRecordSerde).
"""

from __future__ import annotations

from typing import TypeVar

from kbatch.errors import ProtocolError
from kbatch.protocol import codec
from kbatch.protocol.structs import Message

# key and value; a value of None, the tombstone, deletes the value that was stored under the key
Record = tuple[bytes, bytes | None]

Key = TypeVar("Key", bound=Message)
Value = TypeVar("Value", bound=Message)


def coordinator_partition(name: str, partition_count: int) -> int:
    """Return the partition of __transaction_state for a transactional id, or __consumer_offsets for a group
    id.

    It is Utils.abs(String.hashCode) of Java, whose strings are UTF-16.
    """
    units = name.encode("utf-16-be", "surrogatepass")
    code = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    distance = code if code < 2**31 else 2**32 - code
    # the one number without a positive twin; Utils.abs makes it 0
    return 0 if distance == 2**31 else distance % partition_count


def key_partition(key: bytes, partition_count: int) -> int:
    """Return the partition of a stored key: each kind of key begins with the transactional id or group id."""
    length = int.from_bytes(key[2:4], "big")
    return coordinator_partition(key[4 : 4 + length].decode(), partition_count)


def encode_record(key: Message, value: Message | None, value_version: int) -> Record:
    encoded_key = _prefixed(key.record_type, key, 0)
    return encoded_key, None if value is None else _prefixed(value_version, value, value_version)


def decode_record(
    key_kind: type[Key], value_kind: type[Value], key: bytes, value: bytes | None
) -> tuple[Key, Value | None] | None:
    """Return key and value, None for a key of another kind; raise ProtocolError for an invalid record."""
    if len(key) < 2 or (value is not None and len(value) < 2):
        raise ProtocolError(f"a {key_kind.__name__} record of {len(key)} bytes, too short for its first two")
    if int.from_bytes(key[:2], "big") != key_kind.record_type:
        return None
    decoded_key = codec.decode(key_kind, 0, key[2:])
    if value is None:
        return decoded_key, None
    return decoded_key, codec.decode(value_kind, int.from_bytes(value[:2], "big"), value[2:])


def _prefixed(prefix: int, message: Message, version: int) -> bytes:
    return prefix.to_bytes(2, "big") + b"".join(codec.encode(message, version))
