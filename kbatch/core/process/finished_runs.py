"""The offsets that are finished after a committed one, as text in the commit's metadata.

Theory of operation. A commit says "everything before this offset is finished". Workers finish records out of
order, so more is finished than that: runs of offsets, `(first, end)` without the end. They go into the text
that Kafka keeps with an offset, and whoever reads the partition next skips them.

The text is `kb1`, the kind of the payload, six characters of the topic's id, and the payload in base 85, as
brokers count characters (offset.metadata.max.bytes). A topic that is made again has another id, so nothing of
it is skipped. The kinds are in `_KINDS`; the shortest is taken.

What cannot be understood says nothing: records are repeated then, and none is lost.
"""

from __future__ import annotations

import zlib
from base64 import b64encode, b85decode, b85encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from kbatch.records import NO_TOPIC_ID

# Offsets from the first one to the one before the second one.
Run = tuple[int, int]

VERSION = "kb1"
ID_CHARACTERS = 6
HEAD_CHARACTERS = len(VERSION) + 1 + ID_CHARACTERS
# Kafka takes 4096 characters by default (offset.metadata.max.bytes).
MOST_CHARACTERS = 4000
# A payload that unpacks to more is nonsense: the longest that is written takes 1 MiB at most.
MOST_BYTES = 1 << 20
# Bitmaps of more offsets are longer than what a commit takes.
MOST_BITS = 8 * MOST_CHARACTERS
_LONGEST_VARINT = 9
# Payloads of fewer bytes do not become shorter.
_LEAST_DEFLATED = 64


class MetadataError(ValueError):
    """The text is not what this module writes, or not about this offset, topic and log."""


class _Kind(NamedTuple):
    """How runs become bytes, and bytes runs. The runs are relative to the committed offset.

    Attributes
    ----------
    pack : callable
        Returns None for runs that another kind is better for.
    unpack : callable
        Raises ValueError or zlib.error for other bytes.
    """

    pack: Callable[[Sequence[Run]], bytes | None]
    unpack: Callable[[bytes], list[Run]]


def encode_runs(offset: int, runs: Sequence[Run], topic_id: bytes, most: int) -> tuple[str, bool]:
    """Return the text for the runs after a committed offset, in at most so many characters, and True if it
    has all of them. What does not fit is left out, from the last run on. Without runs it is empty.
    """
    relative = [(first - offset, end - offset) for first, end in runs]
    text = _shortest(relative, topic_id)
    if len(text) <= most:
        return text, True
    low, high = 0, len(relative) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if len(_shortest(relative[:middle], topic_id)) <= most:
            low = middle
        else:
            high = middle - 1
    return _shortest(relative[:low], topic_id), False


def _shortest(relative: Sequence[Run], topic_id: bytes) -> str:
    if not relative:
        return ""
    packed = ((kind, each.pack(relative)) for kind, each in _KINDS.items())
    texts = [
        f"{VERSION}{kind}{id_text(topic_id)}{b85encode(payload).decode()}"
        for kind, payload in packed
        if payload is not None
    ]
    return min(texts, key=len)


def id_text(topic_id: bytes) -> str:
    """Return the characters that stand for a topic's id."""
    return "-" * ID_CHARACTERS if topic_id == NO_TOPIC_ID else b64encode(topic_id)[:ID_CHARACTERS].decode()


def decode_runs(offset: int, text: str, topic_id: bytes, log_end: int) -> list[Run]:
    """Return the runs that a commit's metadata has, which lie between its offset and the end of the log.

    Raises
    ------
    MetadataError
        It has none that count; an empty text has none either, without an error.
    """
    if not text:
        return []
    kind = _KINDS.get(text[len(VERSION) : len(VERSION) + 1])
    if not text.startswith(VERSION) or kind is None:
        raise MetadataError("it was written by another program")
    if text[HEAD_CHARACTERS - ID_CHARACTERS : HEAD_CHARACTERS] != id_text(topic_id):
        raise MetadataError("it is of another topic of the same name")
    try:
        relative = kind.unpack(b85decode(text[HEAD_CHARACTERS:]))
    except (ValueError, zlib.error) as error:
        raise MetadataError(f"it is damaged: {error}") from error
    return [(offset + first, offset + end) for first, end in _checked(relative, log_end - offset)]


def _checked(relative: list[Run], end: int) -> list[Run]:
    """Raise MetadataError unless runs are in order, with gaps before each, and within a log."""
    if any(before[1] >= after[0] for before, after in pairwise([(0, 0), *relative])):
        raise MetadataError("it says that the committed offset is finished")
    if any(last <= first for first, last in relative):
        raise MetadataError("it is damaged: a run is empty")
    if relative and relative[-1][1] > end:
        raise MetadataError("it has offsets after the end of the log")
    return relative


# Kinds of payloads


def _pack_lengths(runs: Sequence[Run]) -> bytes:
    """Return the numbers of unfinished and finished offsets, in turns, as varints."""
    ends = [0, *(each for run in runs for each in run)]
    return b"".join(_varint(after - before) for before, after in pairwise(ends))


def _unpack_lengths(payload: bytes) -> list[Run]:
    lengths, runs, at = list(_varints(payload)), [], 0
    for gap, size in zip(lengths[::2], lengths[1::2], strict=True):
        runs.append((at + gap, at + gap + size))
        at += gap + size
    return runs


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def _varints(data: bytes) -> Iterator[int]:
    number = count = 0
    for each in data:
        number |= (each & 0x7F) << 7 * count
        count += 1
        if count > _LONGEST_VARINT:
            raise ValueError("a number is too large")
        if each < 0x80:
            yield number
            number = count = 0
    if count:
        raise ValueError("it ends within a number")


def _pack_bits(runs: Sequence[Run]) -> bytes | None:
    """Return a bit for each offset, the lowest bit of a byte first; 1 is finished."""
    span = runs[-1][1]
    if span > MOST_BITS:
        return None
    bits = 0
    for first, end in runs:
        bits |= (1 << end) - (1 << first)
    return bits.to_bytes((span + 7) // 8, "little")


def _unpack_bits(payload: bytes) -> list[Run]:
    runs, bits, at = [], int.from_bytes(payload, "little"), 0
    while bits:
        gap = (bits & -bits).bit_length() - 1
        bits >>= gap
        size = (~bits & bits + 1).bit_length() - 1
        bits >>= size
        runs.append((at + gap, at + gap + size))
        at += gap + size
    return runs


def _deflate_lengths(runs: Sequence[Run]) -> bytes | None:
    plain = _pack_lengths(runs)
    return zlib.compress(plain, 9) if len(plain) >= _LEAST_DEFLATED else None


def _inflate_lengths(payload: bytes) -> list[Run]:
    inflating = zlib.decompressobj()
    plain = inflating.decompress(payload, MOST_BYTES)
    if not inflating.eof:
        raise ValueError("it is cut off, or too large")
    return _unpack_lengths(plain)


_KINDS: Mapping[str, _Kind] = {
    "r": _Kind(_pack_lengths, _unpack_lengths),
    "b": _Kind(_pack_bits, _unpack_bits),
    "z": _Kind(_deflate_lengths, _inflate_lengths),
}


# Runs


def merged(runs: Iterable[Run]) -> list[Run]:
    """Return runs, which are in order, with those that touch each other as one."""
    found: list[Run] = []
    for first, end in runs:
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((first, end))
    return found
