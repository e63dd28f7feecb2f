"""Hostile record batches, from a seed: valid ones of every codec and shape, bent where a decoder might trust.

Most mutants have their length and CRC made right again, so that what was bent is reached. The checksum comes
from the package crc32c and everything else from the plain oracle: what is judged has no part in its judge.
"""

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import crc32c

from tests.fuzz import streams
from tests.oracle import plain, strategies

INT32_MAX = plain.INT32_MAX
INT64_MAX = 2**63 - 1
# In plain.HEADER's order.
LENGTH, MAGIC, CRC, ATTRIBUTES, LAST_OFFSET_DELTA, COUNT = 1, 3, 4, 5, 6, 12
EVIL_BY_WIDTH = {
    "b": (-128, -1, 0, 1, 2, 3, 127),
    "h": (-32768, -1, 0, 1, 5, 6, 7, 8, 0x7F, 32767),
    "i": (-(2**31), -2, -1, 0, 1, 2, 48, 49, 50, 2**20, INT32_MAX - 12, INT32_MAX - 1, INT32_MAX),
    "I": (0, 1, 2**32 - 1),
    "q": (-(2**63), -(2**31), -2, -1, 0, 1, 2**31, 2**62, INT64_MAX - INT32_MAX, INT64_MAX - 1, INT64_MAX),
}
WIDTHS = plain.HEADER.format[1:]
# Sizes and counts that a varint may claim, and varints that are none.
EVIL_INTS = (
    *(-(2**31), -64, -2, -1, 0, 1, 2, 63, 64, 8191, 8192, 65536, 2**20, 2**24, 2**30),
    *(INT32_MAX - 1, INT32_MAX),
)
EVIL_LONGS = (*EVIL_INTS, -(2**63), -(2**62), 2**62, INT64_MAX)
BROKEN_VARINTS = (
    *(b"\x80\x00", b"\x81\x80\x00", b"\x80" * 4 + b"\x00", b"\xff" * 4 + b"\x0f", b"\xff" * 4 + b"\x10"),
    *(b"\xff\xff\xff\xff\x1f", b"\xff\xff\xff\xff\xff\x01", b"\xff" * 9 + b"\x01", b"\xff" * 9 + b"\x02"),
    *(b"\xff" * 10, b"\xff" * 10 + b"\x01", b"\x80" * 20, b"\x80", b"\xff", b""),
)
EVIL_NAMES = (
    *(b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"a\x80", b"\xf0\x9f\x94"),
    b"\0",
)


class Field(NamedTuple):
    """A piece of a record as encoded in the batch; "int" and "long" are varints, "name" a header's key."""

    kind: str
    encoded: bytes


class Original(NamedTuple):
    """A valid batch, taken apart."""

    compression: str
    header: tuple[Any, ...]
    records: list[list[Field]]  # without their sizes
    stream: bytes  # what follows the header


class Mutant(NamedTuple):
    mutation: str
    data: bytes


# Valid batches


def _fields(row: plain.Row, offset_delta: int, base_timestamp_ms: int) -> list[Field]:
    key, value, headers, timestamp_ms = row
    fields = [
        Field("raw", b"\0"),
        Field("long", plain.encode_varint(timestamp_ms - base_timestamp_ms, 64)),
        Field("int", plain.encode_varint(offset_delta)),
        *_sized("raw", key),
        *_sized("raw", value),
        Field("int", plain.encode_varint(len(headers))),
    ]
    for name, content in headers:
        fields += [*_sized("name", name.encode()), *_sized("raw", content)]
    return fields


def _sized(kind: str, content: bytes | None) -> list[Field]:
    if content is None:
        return [Field("int", plain.encode_varint(-1))]
    return [Field("int", plain.encode_varint(len(content))), Field(kind, content)]


def record_bytes(fields: Sequence[Field]) -> bytes:
    body = b"".join(field.encoded for field in fields)
    return plain.encode_varint(len(body)) + body


def taken_apart(rows: list[plain.Row], compression: str, **state: Any) -> Original:
    batch = plain.encode(rows, compression=compression, **state)
    header = plain.HEADER.unpack_from(batch)
    base_timestamp_ms = state.get("delete_horizon_ms", rows[0][3])
    offsets = state.get("offsets", range(header[0], header[0] + len(rows)))
    records = [
        _fields(row, offset - header[0], base_timestamp_ms) for row, offset in zip(rows, offsets, strict=True)
    ]
    return Original(compression, header, records, batch[plain.HEADER_BYTES :])


@cache
def originals(codecs: Sequence[str] = plain.CODECS) -> tuple[list[Original], list[Original]]:
    """Return batches of each codec: small ones, for speed, and others of several of their codec's blocks."""
    small: list[Original] = []
    large: list[Original] = []
    for compression in codecs:
        for seed in range(40):
            rows, state = strategies.random_case(seed, log=True)
            original = taken_apart(rows, compression, **state)
            size = sum(len(field.encoded) for fields in original.records for field in fields)
            (small if size < 1500 else large).append(original)
    return small, large


# Putting a batch together


def sealed(header: Sequence[Any], stream: bytes, rng: random.Random, repair: float = 0.95) -> bytes:
    """Return the batch, its length and CRC made right with a probability of `repair`."""
    fields = list(header)
    if rng.random() < repair:
        fields[LENGTH] = plain.HEADER_BYTES - plain.LOG_OVERHEAD + len(stream)
    batch = plain.HEADER.pack(*fields) + stream
    if rng.random() < repair:
        checksum = crc32c.crc32c(batch[plain.CRC_START :])
        batch = batch[:17] + struct.pack(">I", checksum) + batch[plain.CRC_START :]
    return batch


def _recompressed(original: Original, records: bytes, rng: random.Random) -> bytes:
    return sealed(original.header, plain.compress(records, original.compression), rng)


# Mutations: each takes a valid batch apart and puts it together wrongly


def bend_header(original: Original, rng: random.Random) -> bytes:
    header = list(original.header)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        field = rng.randrange(len(header))
        evil = EVIL_BY_WIDTH[WIDTHS[field]]
        near = original.header[field] + rng.choice((-1, 1))
        header[field] = rng.choice((*evil, near) if field in (LENGTH, LAST_OFFSET_DELTA, COUNT) else evil)
    return sealed(header, original.stream, rng, repair=0.8)


def claim_count(original: Original, rng: random.Random) -> bytes:
    """Return a record count that the body does not bear out."""
    header = list(original.header)
    header[COUNT] = rng.choice((header[COUNT] - 1, header[COUNT] + 1, *EVIL_BY_WIDTH["i"]))
    return sealed(header, original.stream, rng, repair=1)


def bend_record(original: Original, rng: random.Random) -> bytes:
    """Replace one to three fields of one record; its size, and all around it, is right."""
    records = [list(fields) for fields in original.records]
    fields = rng.choice(records)
    for at in rng.sample(range(len(fields)), rng.choice((1, 1, 2, 3))):
        fields[at] = _bent_field(fields[at], rng)
    return _recompressed(original, b"".join(map(record_bytes, records)), rng)


def _bent_field(field: Field, rng: random.Random) -> Field:
    if field.kind == "name" and rng.random() < 0.5:
        return field._replace(encoded=rng.choice(EVIL_NAMES))
    if field.kind in ("raw", "name"):
        return field._replace(encoded=field.encoded[:-1] if rng.random() < 0.5 else field.encoded + b"\0")
    if rng.random() < 0.3:
        return field._replace(encoded=rng.choice(BROKEN_VARINTS))
    if field.kind == "long":
        return field._replace(encoded=plain.encode_varint(rng.choice(EVIL_LONGS), 64))
    value = (
        plain.decode_varint(field.encoded) + rng.choice((-1, 1))
        if rng.random() < 0.5
        else rng.choice(EVIL_INTS)
    )
    return field._replace(encoded=plain.encode_varint(value))


def bend_record_size(original: Original, rng: random.Random) -> bytes:
    records = [record_bytes(fields) for fields in original.records]
    at = rng.randrange(len(records))
    body = b"".join(field.encoded for field in original.records[at])
    wrong = rng.choice((*EVIL_INTS, len(body) - 1, len(body) + 1, 5, 6, 7))
    size = rng.choice(BROKEN_VARINTS) if rng.random() < 0.3 else plain.encode_varint(wrong)
    records[at] = size + body
    return _recompressed(original, b"".join(records), rng)


def rearrange_records(original: Original, rng: random.Random) -> bytes:
    """Return records dropped, doubled, swapped, cut or followed by more; each may be right by itself."""
    records = [record_bytes(fields) for fields in original.records]
    at, other = rng.randrange(len(records)), rng.randrange(len(records))
    match rng.randrange(5):
        case 0:
            records.pop(at)
        case 1:
            records.insert(other, records[at])
        case 2:
            records[at], records[other] = records[other], records[at]
        case 3:
            records[at] = records[at][: rng.randrange(len(records[at]))]
        case _:
            records.append(rng.choice((b"\0", b"\x0c" + bytes(6), rng.randbytes(rng.randrange(1, 9)))))
    return _recompressed(original, b"".join(records), rng)


def flip_records(original: Original, rng: random.Random) -> bytes:
    records = b"".join(map(record_bytes, original.records))
    return _recompressed(original, streams.scrambled(records, rng), rng)


def flip_stream(original: Original, rng: random.Random) -> bytes:
    return sealed(original.header, streams.scrambled(original.stream, rng), rng)


def flip_batch(original: Original, rng: random.Random) -> bytes:
    """Damage bytes anywhere, as a disk or a network does, without corrections."""
    batch = plain.HEADER.pack(*original.header) + original.stream
    return streams.scrambled(batch, rng)


def relabel(original: Original, rng: random.Random) -> bytes:
    """Return the stream under another codec's name."""
    header = list(original.header)
    header[ATTRIBUTES] = header[ATTRIBUTES] & ~7 | rng.randrange(8)
    return sealed(header, original.stream, rng)


def reframe(original: Original, rng: random.Random) -> bytes:
    """Return the records in a stream of the same codec that is legal, or lies about sizes, blocks and
    checksums.
    """
    records = b"".join(map(record_bytes, original.records))
    stream = streams.hostile(original.compression, records, rng)
    return sealed(original.header, stream, rng, repair=1)


def blow_up(original: Original, rng: random.Random) -> bytes:
    """Return a bomb, or a stream just below the limit with a count to match."""
    header = list(original.header)
    if rng.random() < 0.5:
        header[COUNT] = rng.choice((1, INT32_MAX, 2**20))
    return sealed(header, streams.bomb(original.compression, rng), rng, repair=1)


def noise(_: Original, rng: random.Random) -> bytes:
    """Return random bytes; half of them begin as a batch does."""
    content = rng.randbytes(rng.choice((0, 1, 11, 12, 17, 60, 61, 62, 100, 300)))
    if rng.random() < 0.5 or len(content) < plain.HEADER_BYTES:
        return content
    header = list(plain.HEADER.unpack_from(content))
    header[MAGIC], header[ATTRIBUTES], header[COUNT] = 2, rng.randrange(8), rng.randrange(10)
    return sealed(header, content[plain.HEADER_BYTES :], rng, repair=0.9)


MUTATIONS: dict[Callable[[Original, random.Random], bytes], int] = {
    bend_header: 14,
    claim_count: 4,
    bend_record: 25,
    bend_record_size: 6,
    rearrange_records: 6,
    flip_records: 8,
    flip_stream: 10,
    flip_batch: 4,
    relabel: 3,
    reframe: 14,
    blow_up: 1,
    noise: 5,
}


def _with_neighbours(data: bytes, original: Original, rng: random.Random) -> bytes:
    """Add batches around some mutants, or cut off their ends."""
    chance = rng.random()
    if chance > 0.15:
        return data
    valid = plain.HEADER.pack(*original.header) + original.stream
    if chance < 0.04:
        return valid + data
    if chance < 0.08:
        return data + valid
    if chance < 0.11:
        return data + rng.randbytes(rng.randrange(1, 80))
    return data[: rng.randrange(len(data) + 1)]


def mutants(seed: object, count: int, codecs: Sequence[str] = plain.CODECS) -> Iterator[Mutant]:
    """Yield `count` mutants of batches of `codecs`; the same seed gives the same ones."""
    rng = random.Random(f"mutants of {seed}")
    small, large = originals(codecs)
    mutations, weights = list(MUTATIONS), list(MUTATIONS.values())
    for _ in range(count):
        original = rng.choice(large if rng.random() < 0.01 else small)
        (mutate,) = rng.choices(mutations, weights)
        data = _with_neighbours(mutate(original, rng), original, rng)
        yield Mutant(mutate.__name__, data)
