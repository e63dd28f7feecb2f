"""Hostile requests: valid ones in pieces, bent where a broker might trust a length, a count, a tag, a value.

The pieces are made here from the schema, and put together they must be what the codec writes.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kbatch.protocol import messages
from kbatch.protocol.schema import Field
from kbatch.protocol.structs import Message, Struct
from tests.fuzz import streams
from tests.fuzz.mutator import EVIL_BY_WIDTH

UVARINT = "uvarint"
WIDTHS = frozenset("bhiqHI")
CODES = {
    "bool": "b",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
}
EVIL_UVARINTS = (0, 1, 2, 3, 0x7F, 0x80, 0x3FFF, 0x4000, 2**20, 2**24, 2**28, 2**31 - 1, 2**31, 2**32 - 1)
BROKEN_UVARINTS = (
    *(b"\x80\x00", b"\x81\x80\x00", b"\x80" * 4 + b"\x00", b"\xff" * 4 + b"\x0f", b"\xff" * 4 + b"\x10"),
    *(b"\xff" * 5 + b"\x01", b"\x80" * 10, b"\xff", b""),
)


class Piece(NamedTuple):
    """A part of a message that is read at once. `kind` is UVARINT, a code of the struct module, "tags" (a
    struct's tagged fields, all of them), or "content".
    """

    kind: str
    encoded: bytes
    is_length: bool = False


class Request(NamedTuple):
    """A valid request, taken apart: without its size, header first."""

    header_pieces: int
    pieces: list[Piece]

    @property
    def frame(self) -> bytes:
        return joined(self.pieces)


def joined(pieces: list[Piece]) -> bytes:
    return b"".join(piece.encoded for piece in pieces)


# Taking apart


def taken_apart(message: Message, version: int, correlation_id: int, client_id: str | None) -> Request:
    is_flexible = version >= message.flexible_from
    header = messages.RequestHeader(
        request_api_key=message.api_key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    head = list(_struct(header, 2 if is_flexible else 1, is_flexible))
    return Request(len(head), [*head, *_struct(message, version, is_flexible)])


def _struct(value: Struct, version: int, is_flexible: bool) -> Iterator[Piece]:
    layout = value._spec.layout(version)
    for field in layout.regular:
        yield from _value(field, getattr(value, field.name), version, is_flexible)
    if is_flexible:
        tagged = [
            (field.tag, joined(list(_value(field, getattr(value, field.name), version, True))))
            for field in layout.tagged
            if getattr(value, field.name) != _default(field, value)
        ]
        yield Piece("tags", tag_section([(tag, data) for tag, data in tagged if tag is not None]))


def _default(field: Field, value: Struct) -> object:
    if field.default is not ...:
        return field.default
    return [] if field.is_array else value._structs[field.type]()


def _value(field: Field, value: object, version: int, is_flexible: bool) -> Iterator[Piece]:
    is_compact = is_flexible and field.may_be_compact
    if isinstance(value, list):
        yield _length(len(value), "i", is_compact)
        for element in value:
            yield from _value(field.element, element, version, is_flexible)
    elif isinstance(value, Struct):
        if version in field.nullable:
            yield Piece("b", b"\1", is_length=True)  # the marker of a struct that may be null
        yield from _struct(value, version, is_flexible)
    elif value is None and field.struct and not field.is_array:
        yield Piece("b", b"\xff", is_length=True)
    elif value is None or isinstance(value, str | bytes):
        content = value.encode() if isinstance(value, str) else value
        if field.type == "uuid":
            yield Piece("content", content or b"")
        else:
            code = "h" if field.type == "string" and not field.is_array else "i"
            yield _length(-1 if content is None else len(content), code, is_compact)
            yield Piece("content", content or b"")
    else:
        code = CODES[field.type]
        yield Piece(code, struct.pack(f">{code}", value))


def _length(length: int, code: str, is_compact: bool) -> Piece:
    if is_compact:
        return Piece(UVARINT, uvarint(length + 1), is_length=True)
    return Piece(code, struct.pack(f">{code}", length), is_length=True)


def uvarint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def tag_section(fields: list[tuple[int, bytes]]) -> bytes:
    """KIP-482: their number, and of each its tag, its size and itself."""
    parts = [uvarint(tag) + uvarint(len(data)) + data for tag, data in fields]
    return uvarint(len(parts)) + b"".join(parts)


# Mutations: of a request, with another at hand, to a frame


def nothing(request: Request, other: Request, rng: random.Random) -> bytes:
    return request.frame


def flip(request: Request, other: Request, rng: random.Random) -> bytes:
    return streams.scrambled(request.frame, rng)


def truncate(request: Request, other: Request, rng: random.Random) -> bytes:
    return request.frame[: rng.randrange(len(request.frame))]


def splice(request: Request, other: Request, rng: random.Random) -> bytes:
    """Return the start of one, the end of the other; sometimes both are cut between pieces."""
    if rng.random() < 0.5:
        at, start = (rng.randrange(len(each.pieces) + 1) for each in (request, other))
        return joined(request.pieces[:at] + other.pieces[start:])
    at, start = (rng.randrange(len(each.frame) + 1) for each in (request, other))
    return request.frame[:at] + other.frame[start:]


def transplant(request: Request, other: Request, rng: random.Random) -> bytes:
    """Put the body under the header of another API or version."""
    return joined(other.pieces[: other.header_pieces] + request.pieces[request.header_pieces :])


def bend_length(request: Request, other: Request, rng: random.Random) -> bytes:
    return _bent(request, [at for at, piece in enumerate(request.pieces) if piece.is_length], rng)


def bend_value(request: Request, other: Request, rng: random.Random) -> bytes:
    """Change a value, but no header and no length: the request can still be read."""
    body = range(request.header_pieces, len(request.pieces))
    values = [at for at in body if not request.pieces[at].is_length and request.pieces[at].kind in WIDTHS]
    return _bent(request, values, rng)


def bend_header(request: Request, other: Request, rng: random.Random) -> bytes:
    """API key, version and correlation id are in front."""
    at = rng.randrange(3)
    piece = request.pieces[at]
    return joined([*request.pieces[:at], _bent_piece(piece, rng), *request.pieces[at + 1 :]])


def bend_tags(request: Request, other: Request, rng: random.Random) -> bytes:
    """Add tags that are unknown, repeated or descending, with wrong sizes and counts."""
    places = [at for at, piece in enumerate(request.pieces) if piece.kind == "tags"]
    if not places:
        return bend_length(request, other, rng)
    content = rng.randbytes(rng.choice((0, 1, 4, 16)))
    tag = rng.choice((0, 1, 2, 3, 10_000, 2**31 - 1, 2**32 - 1))
    fields = rng.choice(
        (
            [(tag, content)],
            [(tag, content), (tag, content)],
            [(tag + 1, content), (tag, content)],
            [(number, content) for number in range(rng.choice((5, 200)))],
        )
    )
    section = tag_section(fields)
    match rng.randrange(4):
        case 0:
            section = rng.choice((*map(uvarint, EVIL_UVARINTS), *BROKEN_UVARINTS)) + section[1:]
        case 1:
            section = uvarint(1) + uvarint(tag) + uvarint(rng.choice(EVIL_UVARINTS)) + content
        case _:
            pass
    at = rng.choice(places)
    return joined([*request.pieces[:at], Piece("tags", section), *request.pieces[at + 1 :]])


def garbage(request: Request, other: Request, rng: random.Random) -> bytes:
    """Return random bytes, half of the time after a correct header."""
    content = rng.randbytes(rng.choice((0, 1, 4, 7, 8, 16, 100, 1000)))
    if rng.random() < 0.5:
        return content
    return joined(request.pieces[: request.header_pieces]) + content


def append(request: Request, other: Request, rng: random.Random) -> bytes:
    return request.frame + rng.choice((b"\0", rng.randbytes(8), other.frame))


def _bent(request: Request, places: list[int], rng: random.Random) -> bytes:
    pieces = list(request.pieces)
    for at in rng.sample(places, min(len(places), rng.choice((1, 1, 2)))):
        pieces[at] = _bent_piece(pieces[at], rng)
    return joined(pieces)


def _bent_piece(piece: Piece, rng: random.Random) -> Piece:
    if piece.kind == UVARINT:
        near = piece.encoded[:-1] + bytes([piece.encoded[-1] ^ rng.choice((1, 2, 3))])
        return piece._replace(
            encoded=rng.choice((near, uvarint(rng.choice(EVIL_UVARINTS)), rng.choice(BROKEN_UVARINTS)))
        )
    (value,) = struct.unpack(f">{piece.kind}", piece.encoded)
    width = 8 * len(piece.encoded)
    is_signed = piece.kind.islower()
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if is_signed else (0, (1 << width) - 1)
    evil = EVIL_BY_WIDTH.get(piece.kind, (low, high))
    bent = rng.choice((*evil, value - 1, value + 1))
    return piece._replace(encoded=struct.pack(f">{piece.kind}", min(max(bent, low), high)))


Mutation = Callable[[Request, Request, random.Random], bytes]
MUTATIONS: dict[Mutation, int] = {
    nothing: 50,
    bend_value: 14,
    bend_length: 8,
    flip: 7,
    bend_tags: 5,
    splice: 4,
    truncate: 3,
    transplant: 3,
    bend_header: 2,
    append: 2,
    garbage: 2,
}


def mutated(request: Request, other: Request, rng: random.Random) -> tuple[str, bytes]:
    """Draw (name of the mutation, frame)."""
    mutations, weights = list(MUTATIONS), list(MUTATIONS.values())
    (mutation,) = rng.choices(mutations, weights)
    return mutation.__name__, mutation(request, other, rng)
