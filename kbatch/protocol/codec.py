"""Messages to bytes and back, in every version of Kafka 4.3.

An outgoing message is a sequence of buffers that refers to its records; incoming records are views of the
frame, which they keep alive. Neither copies them.

Functions that writers.py generates for each message and version write, and steps that readers.py makes for
each read. Records in large numbers, and what is usual in Produce and Fetch, have native steps of their own
(produce_wire, fetch_answer).
"""

import struct
from functools import lru_cache
from typing import NamedTuple, TypeVar

from kbatch.errors import ProtocolError, UnsupportedVersionError
from kbatch.protocol import messages
from kbatch.protocol.faults import WRITE_ERRORS, first_fault
from kbatch.protocol.readers import reader
from kbatch.protocol.structs import Message, check_version
from kbatch.protocol.wire import MAX_LENGTH, Buffer, BytesLike, as_plain_view, pack_int32
from kbatch.protocol.writers import writer

M = TypeVar("M", bound=Message)

# Both versions of the request header start alike.
_header_start = struct.Struct(">hhi")
_API_VERSIONS = messages.ApiVersionsRequest.api_key
# Copying frames this small is faster than passing them to a socket in pieces.
JOINED_BYTES = 8_192


class Request(NamedTuple):
    """The result of `decode_request`."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    message: Message


# Messages alone


def encode(message: Message, version: int) -> list[Buffer]:
    """Return the buffers of a message. Buffers of records are the caller's: they must not change until sent.
    Everything around records comes in small pieces, more than one a partition; the rest is one buffer.

    Raise ProtocolError for a value that cannot be written, or one other than the default in a field that the
    version lacks and Kafka does not ignore; UnsupportedVersionError.
    """
    out: list[Buffer] = []
    has_records = _write(message, version, out)
    return out if has_records else [b"".join(out)]


def decode(kind: type[M], version: int, data: BytesLike) -> M:
    """Return the message of class `kind` in `data`. Its records are views of `data`.

    Raise ProtocolError unless `data` is exactly such a message; UnsupportedVersionError.
    """
    view = as_plain_view(data)
    message, end = _read(kind, version, view, 0)
    _check_end(kind, version, view, end)
    return message


def decode_start(kind: type[M], version: int, data: BytesLike) -> M:
    """Return the message of class `kind` at the start of `data`; what follows is ignored. Raise the errors of
    `decode`.
    """
    message, _ = _read(kind, version, as_plain_view(data), 0)
    return message


# Frames, which have a size before them on the wire, and a header


def encode_request(
    message: Message, version: int, correlation_id: int, client_id: str | None = None
) -> list[Buffer]:
    """Return the buffers of a request, size and header first. Raise the errors of `encode`."""
    kind = type(message)
    client = _client(kind, version, client_id)  # type: ignore[arg-type]
    head = _header_start.pack(kind.api_key, version, correlation_id) + client
    return _encode_frame(head, message, version)


def decode_request(frame: BytesLike) -> Request:
    """Return the request of a frame without its size.

    Bytes after it are ignored, as in Kafka: librdkafka's Metadata requests for all topics have three.

    Raise UnsupportedVersionError for an API or version that is not in the tables, with the correlation id for
    the answer; ProtocolError.
    """
    view = as_plain_view(frame)
    if len(view) < 8:
        raise ProtocolError(f"RequestHeader: {len(view)} bytes, at least 8 are needed")
    api_key, version, correlation_id = _header_start.unpack_from(view)
    kind = messages.REQUESTS.get(api_key)
    if kind is None:
        raise UnsupportedVersionError(
            f"API key {api_key} is unknown", api_key=api_key, version=version, correlation_id=correlation_id
        )
    check_version(kind, version, correlation_id)
    header, pos = _read(messages.RequestHeader, _request_header_version(kind, version), view, 0)
    message, _ = _read(kind, version, view, pos)
    return Request(api_key, version, correlation_id, header.client_id, message)


def encode_response(message: Message, version: int, correlation_id: int) -> list[Buffer]:
    """Return the buffers of a response, size and header first. Raise the errors of `encode`."""
    head = pack_int32(correlation_id) + bytes(_response_header_version(type(message), version))
    return _encode_frame(head, message, version)


def decode_response(
    kind: type[M],
    version: int,
    frame: BytesLike,
    unread: frozenset[str] = frozenset(),
    repeated: frozenset[str] = frozenset(),
) -> tuple[int, M]:
    """Return correlation id and response of a frame without its size; arrays whose names are `unread` are
    left at their defaults, and equal structs of those that are `repeated` may be one object. Raise the errors
    of `decode`.
    """
    view = as_plain_view(frame)
    header, pos = _read(messages.ResponseHeader, _response_header_version(kind, version), view, 0)
    message, end = _read(kind, version, view, pos, unread, repeated)
    _check_end(kind, version, view, end)
    return header.correlation_id, message


def _encode_frame(head: bytes, message: Message, version: int) -> list[Buffer]:
    out: list[Buffer] = [head]
    has_records = _write(message, version, out)
    size = sum(map(len, out))
    if size > MAX_LENGTH:
        raise ProtocolError(f"{type(message).__name__} v{version}: a frame of {size} bytes")
    out[0] = pack_int32(size) + out[0]
    return _joined(out) if has_records and size > JOINED_BYTES else [b"".join(out)]


def _joined(pieces: list[Buffer]) -> list[Buffer]:
    """Join small pieces that follow each other, because a socket takes at most a thousand at a time
    (IOV_MAX).
    """
    out: list[Buffer] = []
    small: list[bytes] = []
    for piece in pieces:
        if type(piece) is bytes and len(piece) <= JOINED_BYTES:
            small.append(piece)
        else:
            if small:
                out.append(b"".join(small))
                small.clear()
            out.append(piece)
    if small:
        out.append(b"".join(small))
    return out


@lru_cache(maxsize=64)
def _client(kind: type[Message], version: int, client_id: str | None) -> bytes:
    """Return the header of such requests after the correlation id."""
    header = messages.RequestHeader(client_id=client_id)
    out = encode(header, _request_header_version(kind, version))
    return bytes(out[0][_header_start.size :])


def _request_header_version(kind: type[Message], version: int) -> int:
    return 2 if version >= kind.flexible_from else 1


def _response_header_version(kind: type[Message], version: int) -> int:
    # KIP-511: a client that requests an unsupported version must be able to read the answer.
    return 1 if version >= kind.flexible_from and kind.api_key != _API_VERSIONS else 0


# Both


def _write(message: Message, version: int, out: list[Buffer]) -> bool:
    """Append the pieces of the message to `out`. True if records are, or may be, among them."""
    kind = type(message)
    # Classes are hashable, their objects are not, and mypy confuses them.
    write, has_records = writer(kind, version)  # type: ignore[arg-type]
    try:
        write(message, out.append)
    except WRITE_ERRORS as error:
        fault = first_fault(message, version) or error
        raise ProtocolError(f"{kind.__name__} v{version}: {fault}") from error
    return has_records


def _read(
    kind: type[M],
    version: int,
    view: memoryview,
    pos: int,
    unread: frozenset[str] = frozenset(),
    repeated: frozenset[str] = frozenset(),
) -> tuple[M, int]:
    read = reader(kind, version, unread, repeated).read  # type: ignore[arg-type]
    return read(view, pos)


def _check_end(kind: type[Message], version: int, view: memoryview, end: int) -> None:
    if end != len(view):
        raise ProtocolError(f"{kind.__name__} v{version}: {len(view) - end} bytes after its end")
