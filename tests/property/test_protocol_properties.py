"""Properties of every message: kio judges the bytes, both ways, and hostile bytes are refused.

All values come from seeds: the message's name, the version and a number.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import random
import re
import tracemalloc
import uuid
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

import pytest
from kio.index import load_entity_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from kbatch.errors import ErrorCode, ProtocolError, UnsupportedVersionError
from kbatch.protocol import codec, messages
from kbatch.protocol.schema import Field
from kbatch.protocol.structs import Message
from tests.oracle.messages import random_message
from tests.support.effort import EXAMPLES

# Messages of each version, there and back; and mutants of each version.
SEEDS = range(max(2, EXAMPLES // 6))
MUTANTS = EXAMPLES
ALL_KINDS = pytest.mark.parametrize("kind", messages.MESSAGES.values(), ids=lambda kind: kind.__name__)

# kio has no schemas of what Kafka's coordinators and its storage write for themselves; Java judges those.
NOT_IN_KIO = {
    *("OffsetCommitKey", "OffsetCommitValue", "GroupMetadataKey", "GroupMetadataValue"),
    *("TransactionLogKey", "TransactionLogValue", "ProducerSnapshot"),
    *(
        name
        for name in messages.MESSAGES
        if name.startswith(("ConsumerGroup", "Share")) and name.endswith(("Key", "Value"))
    ),
}
# kio has objects for these where Kafka has integers: codes it knows, times that are none before 1970 and that
# it reads by way of floats, which are a microsecond off in later centuries.
KIO_LIMITS = {
    "error_code": (min(ErrorCode), max(ErrorCode)),
    "partition_error_code": (min(ErrorCode), max(ErrorCode)),
    "log_append_time_ms": (0, 2 * 10**12),
    "transaction_start_time_ms": (0, 2 * 10**12),
    "retention_time_ms": (-(10**12), 10**12),
    "session_lifetime_ms": (-(10**12), 10**12),
    **dict.fromkeys(("max_lifetime_ms", "renew_period_ms", "expiry_time_period_ms"), (-(10**12), 10**12)),
    **dict.fromkeys(
        ("issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms", "max_timestamp"), (0, 2 * 10**12)
    ),
}


def encoded(message: Message, version: int) -> bytes:
    return b"".join(codec.encode(message, version))


# Arrays that are passed over


@pytest.mark.parametrize(
    ("kind", "unread"),
    [
        (messages.CreateTopicsResponse, "configs"),
        (messages.DescribeConfigsResponse, "synonyms"),
        (messages.MetadataResponse, "partitions"),
    ],
)
def test_unread_arrays_are_passed_over(kind: type[Message], unread: str) -> None:
    for version in kind.versions:
        for seed in SEEDS:
            message = random_message(kind, version, seed)
            (frame,) = codec.encode_response(message, version, 7)
            _, found = codec.decode_response(kind, version, frame[4:], frozenset({unread}))
            assert found == without(message, unread)
            for end in range(4, len(frame) - 4, max(7, len(frame) // 20)):
                with pytest.raises(ProtocolError):
                    codec.decode_response(kind, version, frame[4:][:end], frozenset({unread}))


def without(struct: Any, unread: str) -> Any:
    """Return a message whose arrays of that name are empty, at any depth."""
    for field in struct._spec.fields:
        value = getattr(struct, field.name)
        if field.name == unread:
            setattr(struct, field.name, [])
        elif field.is_array and field.struct:
            for each in value or ():
                without(each, unread)
    return struct


# Arrays whose elements repeat


@pytest.mark.parametrize("version", messages.DescribeConfigsResponse.versions)
def test_repeated_elements_are_read_as_others(version: int) -> None:
    """Whole, cut short and with a wrong byte: the same message, or the same error."""
    for seed in SEEDS:
        rng = random.Random(seed)
        frame = repeating(version, rng)
        frames = [frame, *(frame[:end] for end in range(4, len(frame), len(frame) // 20))]
        for _ in range(MUTANTS // 4):
            mutant = bytearray(frame)
            mutant[rng.randrange(4, len(frame))] = rng.randrange(256)
            frames.append(bytes(mutant))
        for each in frames:
            assert configs_in(each, version, frozenset({"configs"})) == configs_in(each, version, frozenset())


def test_repeated_elements_are_one_object() -> None:
    kind = messages.DescribeConfigsResponse
    settings = [kind.DescribeConfigsResourceResult(name="a"), kind.DescribeConfigsResourceResult(name="b")]
    results = [kind.DescribeConfigsResult(configs=configs) for configs in (settings[:1], settings, settings)]
    (frame,) = codec.encode_response(kind(results=results), 4, 7)
    _, found = codec.decode_response(kind, 4, frame[4:], repeated=frozenset({"configs"}))
    first, second, third = (each.configs for each in found.results)
    assert first[0] is second[0] is third[0]
    assert second[1] is third[1]


def repeating(version: int, rng: random.Random) -> bytes:
    """Return the frame of an answer in which resources have settings of each other."""
    kind = messages.DescribeConfigsResponse
    drawn = [random_message(kind, version, rng.random()) for _ in range(20)]
    pool = [each for message in drawn for result in message.results for each in result.configs]
    spans = [slice(rng.randrange(2), rng.randrange(12)) for _ in range(6)]
    results = [kind.DescribeConfigsResult(configs=pool[span]) for span in spans]
    (frame,) = codec.encode_response(kind(results=results), version, 7)
    return bytes(frame[4:])


def configs_in(frame: bytes, version: int, repeated: frozenset[str]) -> tuple[Any, str]:
    """Return the answer in a frame, or the error."""
    try:
        return codec.decode_response(messages.DescribeConfigsResponse, version, frame, repeated=repeated), ""
    except ProtocolError as error:
        return None, str(error)


# kio


def kio_class(kind: type[Message], version: int) -> type[Any]:
    name, suffix = kind.__name__, "data"
    for ending in ("Request", "Response"):
        if name.endswith(ending):
            name, suffix = name.removesuffix(ending), ending.lower()
    if name.endswith("Header"):
        suffix = "header"
    entity: Any = EntityType[suffix]
    return load_entity_schema(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower(), version, entity)


def to_kio(value: Any, struct: Any, version: int) -> Any:
    """Return kio's twin of one of our structs: the same fields in the same order."""
    fields = [field for field in value._spec.fields if version in field.versions]
    twins = dataclasses.fields(struct)
    assert [twin.name.rstrip("_") for twin in twins] == [
        field.name if field.name == twin.name.rstrip("_") else field.name.removesuffix("_ms")
        for field, twin in zip(fields, twins, strict=True)
    ]
    return struct(
        **{
            twin.name: to_kio_value(getattr(value, field.name), field, twin, version)
            for field, twin in zip(fields, twins, strict=True)
        }
    )


def to_kio_value(value: Any, field: Field, twin: Any, version: int) -> Any:
    if value is None:
        return None
    if field.is_array:
        return tuple(to_kio_value(item, field.element, twin, version) for item in value)
    if field.struct:
        return to_kio(value, struct_of(twin.type), version)
    return KIO_VALUES.get(twin.metadata["kafka_type"], lambda same: same)(value)


def struct_of(annotation: Any) -> Any:
    """Return the dataclass within `tuple[X, ...]` and `X | None`."""
    if dataclasses.is_dataclass(annotation):
        return annotation
    return next(filter(None, map(struct_of, getattr(annotation, "__args__", ()))), None)


EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
KIO_VALUES: dict[str, Callable[[Any], Any]] = {
    "error_code": KioErrorCode,
    "timedelta_i32": lambda ms: datetime.timedelta(milliseconds=ms),
    "timedelta_i64": lambda ms: datetime.timedelta(milliseconds=ms),
    "datetime_i64": lambda ms: None if ms == -1 else EPOCH + datetime.timedelta(milliseconds=ms),
    "uuid": lambda data: uuid.UUID(bytes=data) if any(data) else None,
}


@pytest.mark.parametrize(
    "kind",
    [kind for name, kind in messages.MESSAGES.items() if name not in NOT_IN_KIO],
    ids=lambda kind: kind.__name__,
)
def test_kio_writes_and_reads_the_same_bytes(kind: type[Message]) -> None:
    for version in kind.versions:
        struct = kio_class(kind, version)
        write, read = entity_writer(struct), entity_reader(struct)
        for seed in SEEDS:
            message = random_message(kind, version, seed, KIO_LIMITS)
            twin = to_kio(message, struct, version)
            data = BytesIO()
            write(data, twin)
            assert encoded(message, version) == data.getvalue(), (version, seed)
            assert read(data.getvalue(), 0) == (twin, len(data.getvalue())), (version, seed)
            assert codec.decode(kind, version, data.getvalue()) == message, (version, seed)


@ALL_KINDS
def test_what_is_encoded_is_decoded(kind: type[Message]) -> None:
    for version in kind.versions:
        for seed in SEEDS:
            message = random_message(kind, version, seed)
            assert codec.decode(kind, version, encoded(message, version)) == message, (version, seed)


@ALL_KINDS
def test_fields_that_a_version_lacks_come_back_as_defaults(kind: type[Message]) -> None:
    """An older version holds part of the newest version's message, or refuses it."""
    newest = kind.versions[-1]
    for seed in SEEDS:
        message = random_message(kind, newest, seed)
        for version in kind.versions:
            try:
                data = encoded(message, version)
            except ProtocolError as error:
                assert f"version {version} lacks the field" in str(error) or "None, not" in str(error)
                continue
            assert encoded(codec.decode(kind, version, data), version) == data, (version, seed)


# Hostile bytes

EVIL_BYTES = (0, 1, 2, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
EVIL_PIECES = (
    *(b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xfe", b"\0\0\0\xff", b"\x7f\xff"),
    *(b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x10", b"\x80" * 5, b"\x80\x80\x80\x80\x01", b"\x80\0"),
    *(b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"),
)


def mutants(data: bytes, choices: random.Random) -> Iterator[bytes]:
    for _ in range(MUTANTS):
        mutant = bytearray(data)
        for _ in range(choices.choice((1, 1, 1, 2, 5))):
            place = choices.randrange(len(mutant) + 1)
            match choices.randrange(5):
                case 0 if place < len(mutant):
                    mutant[place] = choices.choice(EVIL_BYTES)
                case 1:
                    piece = choices.choice(EVIL_PIECES)
                    mutant[place : place + len(piece)] = piece
                case 2:
                    mutant[place:place] = choices.choice(EVIL_PIECES)
                case 3:
                    del mutant[place : place + choices.randrange(1, 9)]
                case _:
                    other = choices.randrange(len(mutant) + 1)
                    mutant[place:place] = mutant[other : other + 16]
        yield bytes(mutant)


def check_refused_or_valid(kind: type[Message], version: int, data: bytes) -> bool:
    """True if the message is the same after encoding and decoding it again."""
    try:
        message = codec.decode(kind, version, data)
    except ProtocolError as error:
        assert str(error).startswith(f"{kind.__name__} v{version}"), error
        return True
    assert codec.decode(kind, version, encoded(message, version)) == message
    return False


@pytest.mark.slow
@ALL_KINDS
def test_mutants_are_refused_or_valid(kind: type[Message]) -> None:
    refused = 0
    for version in kind.versions:
        for seed in range(2):
            data = encoded(random_message(kind, version, f"hostile {seed}"), version)
            choices = random.Random(f"{kind.__name__} {version} {seed} mutants")
            refused += sum(check_refused_or_valid(kind, version, mutant) for mutant in mutants(data, choices))
    assert refused


@pytest.mark.slow
@ALL_KINDS
def test_every_truncation_is_refused(kind: type[Message]) -> None:
    for version in kind.versions:
        data = encoded(random_message(kind, version, "cut"), version)
        cuts = range(len(data)) if len(data) < 200 else random.Random(version).sample(range(len(data)), 100)
        for cut in cuts:
            with pytest.raises(ProtocolError):
                codec.decode(kind, version, data[:cut])


def test_mutants_of_whole_requests_are_refused_or_valid() -> None:
    choices = random.Random("frames")
    for kind in messages.REQUESTS.values():
        version = choices.choice(kind.versions)
        message = random_message(kind, version, "frame")
        frame = b"".join(codec.encode_request(message, version, 7, "client"))[4:]
        for mutant in mutants(frame, choices):
            try:
                request = codec.decode_request(mutant)
            except (ProtocolError, UnsupportedVersionError):
                continue
            assert codec.encode_request(
                request.message, request.version, request.correlation_id, request.client_id
            )


@pytest.mark.parametrize(
    "filler", [b"\0", b"\x01", b"\x02", b"\x7f", b"\xff\xff\xff\xff\x07", b"\x7f\xff\xff\xff"]
)
def test_no_length_is_believed(filler: bytes) -> None:
    """Memory grows with the bytes that are there, whatever they claim."""
    data = (filler * 4096)[:4096]
    for kind in messages.MESSAGES.values():
        for version in kind.versions:
            with contextlib.suppress(ProtocolError):  # compiles the reader
                codec.decode(kind, version, b"")
    tracemalloc.start()
    try:
        for kind in messages.MESSAGES.values():
            for version in kind.versions:
                tracemalloc.reset_peak()
                before, _ = tracemalloc.get_traced_memory()
                with contextlib.suppress(ProtocolError):
                    codec.decode(kind, version, data)
                _, peak = tracemalloc.get_traced_memory()
                assert peak - before < 200 * len(data), (kind, version)
    finally:
        tracemalloc.stop()
