"""Mutated values for every format, a record at a time: a value or a ValueError with a text, nothing else."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

from kbatch import formats
from kbatch.formats.base import Codec
from tests.fuzz import campaign
from tests.unit.formats.reading.test_confluent_values import CLASSES, order
from tests.unit.formats.test_formats import ORDER, ROW
from tests.unit.formats.test_json_schema import ORDER as JSON_ORDER

BLOCK_CASES = 20_000
WARMING_CASES = 2_000
GROWTH_BYTES = 64 << 20


@cache
def originals() -> list[tuple[str, Codec[Any], bytes]]:
    """Return codecs by names, each with the bytes of a value."""
    message = CLASSES["Order"]
    made: list[tuple[str, formats.Format[Any], Any]] = [
        ("Avro", formats.Avro(ORDER), ROW),
        ("Avro with an id", formats.Avro(ORDER, id=7), ROW),
        ("Protobuf", formats.Protobuf(message), order()),
        ("Protobuf with an id", formats.Protobuf(message, id=7), order()),
        ("Protobuf as dict", formats.Protobuf(message, model=dict), order()),
        ("JsonSchema", formats.JsonSchema(JSON_ORDER, id=7), {"id": 1, "price": 9.5, "tags": ["x"]}),
        ("Json", formats.Json(), {"a": [1, 2.5, {"b": None}], "c": "\u00e9"}),
        ("Utf8", formats.Utf8(), "text"),
        ("Uuid", formats.Uuid(), uuid.UUID(int=5)),
    ]
    codecs = [(name, format.bind("value"), value) for name, format, value in made]
    return [(name, codec, codec.encode("t", [], value)) for name, codec, value in codecs]


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Return the bytes with one to four faults: bits and bytes changed, added, left out, an early end."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(changed) + 1)
        match rng.randrange(4):
            case 0:
                changed[place:place] = rng.randbytes(rng.randint(1, 8))
            case 1:
                del changed[place : place + rng.randint(1, 8)]
            case 2:
                del changed[place:]
            case _ if place < len(changed):
                changed[place] ^= 1 << rng.randrange(8)
    return bytes(changed)


def outcome(codec: Codec[Any], data: bytes) -> str:
    """Read a value, and return what became of it."""
    try:
        codec.decode("t", (), data)
    except ValueError as error:
        assert str(error)
        return "refused"
    return "read"


def play(run: campaign.Run) -> None:
    """Check a block's cases."""
    campaign.play_bounded(run, lambda run: run.judge(_cases(run)), WARMING_CASES, GROWTH_BYTES)


def _cases(run: campaign.Run) -> Iterator[campaign.Case]:
    rng = random.Random(f"hostile values {run.block}")
    for number in range(run.cases):
        name, codec, data = originals()[number % len(originals())]
        case = mutated(data, rng)
        yield name, case, partial(outcome, codec, case)
