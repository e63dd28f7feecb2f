"""The campaign of hostile answers: what a broker may send for an answer to Fetch, read as a client reads it.

Theory of operation. A block is made of rounds. A round takes a valid answer, or the batches of one, copies it
ROUND_CASES times and bends the copies in one way, each at another place: numpy bends all of them together,
because a Python function for each would take longer than reading it. A round of many takes its batches from
mutator.py instead, which builds them record by record.

`read_fetch_answer` reads each copy or leaves it to the codec; FetchedRecords reads the records of each
partition, as columns or as objects, up to a fault that says where it is. A case of many is read in every way,
by the codec, too: all must agree.
"""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import crc32c
import numpy as np
import numpy.typing as npt

from kbatch._native.arrow.record_chunks import RecordChunk
from kbatch._native.fetch.fetch_answer import read_fetch_answer
from kbatch._native.fetch.fetched_batches import FetchedRecords
from kbatch.codec.columns import FETCHED_COLUMNS, fetched_batch
from kbatch.errors import CorruptRecordError, ProtocolError
from kbatch.protocol import codec, features
from kbatch.protocol.messages import FetchResponse
from tests.fuzz import campaign, mutator
from tests.oracle import plain
from tests.oracle.fetch_answers import expected_fields, fields_of
from tests.oracle.messages import random_message
from tests.oracle.partition_log import PartitionLog, random_log
from tests.support.roads import CORRELATION_ID, TOPIC, TOPIC_ID

BLOCK_CASES = 2_000_000
ROUND_CASES = 500
# Of the memory that is kept for next calls, and of what a batch takes that claims 2**31 records.
GROWTH_BYTES = 128 << 20
WARMING_CASES = 5_000
MAX_DECOMPRESSED_BYTES = 1 << 20
# One case of so many is read in every way.
COMPARED_EVERY = 200
# One round of so many is the mutator's; another takes a large original.
BUILT_EVERY, LARGE_EVERY = 400, 100
ORIGINALS = 300
SMALL_BYTES, LARGE_BYTES = 1_500, 20_000
FOREVER = mutator.INT64_MAX
DECODED = tuple(name for name in FETCHED_COLUMNS if name not in ("topic", "partition"))
# Columns for which the headers of batches can suffice.
IN_HEADERS = ("offset", "timestamp_type", "leader_epoch")
COMPARED = ("offset", "key", "value", "headers", "leader_epoch")

Bytes = npt.NDArray[np.uint8]
Span = tuple[int, int]  # where something begins, and its bytes


class Original(NamedTuple):
    """A valid answer without its size; or the batches of a partition, if `version` is None."""

    version: int | None
    data: bytes
    batches: tuple[Span, ...]
    offsets: tuple[int, int]  # where the log of the first partition begins and ends


class Bent(NamedTuple):
    """The copies, bent, and where their batches are."""

    copies: Bytes
    batches: tuple[Span, ...]


class How(NamedTuple):
    """How a round is read; `layout` is None for objects, so many at a time."""

    committed: bool
    from_offset: int
    to_offset: int
    check_crcs: bool
    columns: tuple[str, ...]
    layout: str | None
    lot: int = 1000


# Valid answers


def _answer(version: int, logs: Sequence[PartitionLog], *, committed: bool) -> Original:
    partitions, records = [], []
    for number, log in enumerate(logs):
        first = log.batches[0].base_offset
        aborted = [
            FetchResponse.AbortedTransaction(producer_id=producer_id, first_offset=offset)
            for producer_id, offset in log.aborted(first)
        ]
        records.append(log.fetched(first))
        partitions.append(
            FetchResponse.PartitionData(
                partition_index=number,
                high_watermark=log.end_offset,
                last_stable_offset=log.last_stable_offset,
                aborted_transactions=aborted if committed else None,
                records=records[-1],
            )
        )
    by_name = version < features.FETCH_TOPIC_IDS
    topic = FetchResponse.FetchableTopicResponse(
        **({"topic": TOPIC} if by_name else {"topic_id": TOPIC_ID}), partitions=partitions
    )
    frame = _frame(FetchResponse(responses=[topic]), version)
    spans, at = list[Span](), 0
    for log, data in zip(logs, records, strict=True):
        at = frame.index(data, at)
        spans += _spans(log, at)
    return Original(version, frame, tuple(spans), (logs[0].batches[0].base_offset, logs[0].end_offset))


def _spans(log: PartitionLog, at: int) -> Iterator[Span]:
    for batch in log.batches:
        yield at, len(batch.data)
        at += len(batch.data)


def _frame(message: FetchResponse, version: int) -> bytes:
    return b"".join(codec.encode_response(message, version, CORRELATION_ID))[4:]


@cache
def originals() -> tuple[list[Original], list[Original]]:
    """Return small and large ones: answers of every version with logs of every kind, the batches of these
    logs, and answers with every field.
    """
    made: list[Original] = []
    for seed in range(ORIGINALS):
        rng = random.Random(f"answer {seed}")
        version = FetchResponse.versions[seed % len(FetchResponse.versions)]
        logs = [
            random_log(f"answer {seed} {number}", batches=rng.randint(1, 4), most_rows=3)
            for number in range(rng.choice((1, 1, 2)))
        ]
        made.append(_answer(version, logs, committed=rng.random() < 0.5))
        log = logs[0]
        offsets = log.batches[0].base_offset, log.end_offset
        made.append(Original(None, log.fetched(0), tuple(_spans(log, 0)), offsets))
        if seed % 3 == 0:
            frame = _frame(random_message(FetchResponse, version, seed), version)
            made.append(Original(version, frame, (), (0, FOREVER)))
    small = [each for each in made if len(each.data) <= SMALL_BYTES]
    return small, [each for each in made if SMALL_BYTES < len(each.data) <= LARGE_BYTES]


# Ways to bend copies


def _be(values: Sequence[int], code: str) -> Bytes:
    return np.array([list(struct.pack(f">{code}", value)) for value in values], np.uint8)


def _alike(pieces: Sequence[bytes]) -> list[Bytes]:
    """Return the pieces as arrays, one for each length."""
    lengths = sorted({len(piece) for piece in pieces} - {0})
    return [np.array([list(each) for each in pieces if len(each) == length], np.uint8) for length in lengths]


EVIL = {code: _be(values, code) for code, values in mutator.EVIL_BY_WIDTH.items()}
EVIL_VARINTS = _alike(
    [
        *map(plain.encode_varint, mutator.EVIL_INTS),
        *(plain.encode_varint(each, 64) for each in mutator.EVIL_LONGS),
        *mutator.BROKEN_VARINTS,
    ]
)
ROWS = np.arange(ROUND_CASES)[:, None]


def _copies(original: Original) -> Bytes:
    return np.tile(np.frombuffer(original.data, np.uint8), (ROUND_CASES, 1))


def _places(original: Original, width: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return a place for `width` bytes in each copy: anywhere, before the batches, or in the header or the
    records of one.
    """
    areas = [(0, len(original.data))]
    if original.batches:
        start, size = original.batches[rng.integers(len(original.batches))]
        areas += [(0, original.batches[0][0]), (start, plain.HEADER_BYTES)]
        areas += [(start + plain.HEADER_BYTES, size - plain.HEADER_BYTES)] * 2
    fitting = [area for area in areas if area[1] >= width] or [(0, len(original.data))]
    start, size = fitting[rng.integers(len(fitting))]
    return start + rng.integers(0, max(size - width, 0) + 1, ROUND_CASES)


def _lay(copies: Bytes, places: npt.NDArray[np.int64], pieces: Bytes) -> None:
    """Write a piece over each copy; what would go beyond its end is left out."""
    width = min(pieces.shape[1], copies.shape[1])
    places = np.minimum(places, copies.shape[1] - width)
    copies[ROWS, places[:, None] + np.arange(width)] = pieces[:, :width]


def flip_bits(original: Original, rng: np.random.Generator) -> Bent:
    copies = _copies(original)
    for _ in range(rng.choice((1, 1, 2, 6))):
        bits = np.uint8(1) << rng.integers(0, 8, ROUND_CASES, np.uint8)
        copies[ROWS[:, 0], _places(original, 1, rng)] ^= bits
    return Bent(copies, original.batches)


def lay_noise(original: Original, rng: np.random.Generator) -> Bent:
    copies = _copies(original)
    width = int(rng.choice((1, 2, 4, 20)))
    _lay(copies, _places(original, width, rng), rng.integers(0, 256, (ROUND_CASES, width), np.uint8))
    return Bent(copies, original.batches)


def lay_integers(original: Original, rng: np.random.Generator) -> Bent:
    """Write integers that a length, a count or an offset must not be."""
    copies = _copies(original)
    for _ in range(rng.choice((1, 1, 2))):
        evil = EVIL[rng.choice(sorted(EVIL))]
        _lay(copies, _places(original, evil.shape[1], rng), evil[rng.integers(len(evil), size=ROUND_CASES)])
    return Bent(copies, original.batches)


def lay_varints(original: Original, rng: np.random.Generator) -> Bent:
    copies = _copies(original)
    for _ in range(rng.choice((1, 1, 2))):
        evil = EVIL_VARINTS[rng.integers(len(EVIL_VARINTS))]
        _lay(copies, _places(original, evil.shape[1], rng), evil[rng.integers(len(evil), size=ROUND_CASES)])
    return Bent(copies, original.batches)


def bend_headers(original: Original, rng: np.random.Generator) -> Bent:
    """Write such integers into one or two fields of the header of a batch."""
    copies = _copies(original)
    for _ in range(rng.choice((1, 2)) if original.batches else 0):
        start, _ = original.batches[rng.integers(len(original.batches))]
        field = int(rng.integers(len(mutator.WIDTHS)))
        evil = EVIL[mutator.WIDTHS[field]]
        at = start + struct.calcsize(f">{mutator.WIDTHS[:field]}")
        _lay(copies, np.full(ROUND_CASES, at), evil[rng.integers(len(evil), size=ROUND_CASES)])
    return Bent(copies, original.batches)


def claim_counts(original: Original, rng: np.random.Generator) -> Bent:
    """Let a batch claim records that it cannot have, in a header without a contradiction."""
    copies = _copies(original)
    if original.batches:
        start, _ = original.batches[rng.integers(len(original.batches))]
        counts = [int(count) for count in rng.integers(1, 2 ** rng.integers(1, 32, ROUND_CASES))]
        _lay(copies, np.full(ROUND_CASES, start + 23), _be([count - 1 for count in counts], "i"))
        _lay(copies, np.full(ROUND_CASES, start + 57), _be(counts, "i"))
    return Bent(copies, original.batches)


def move_pieces(original: Original, rng: np.random.Generator) -> Bent:
    """Write bytes from elsewhere in the copy over others."""
    copies = _copies(original)
    width = min(int(rng.choice((2, 8, 61))), copies.shape[1])
    taken = copies[ROWS, rng.integers(0, copies.shape[1] - width + 1, (ROUND_CASES, 1)) + np.arange(width)]
    _lay(copies, _places(original, width, rng), taken)
    return Bent(copies, original.batches)


def drop_pieces(original: Original, rng: np.random.Generator) -> Bent:
    return _resized(original, rng, -int(rng.choice((1, 1, 2, 10))))


def double_pieces(original: Original, rng: np.random.Generator) -> Bent:
    return _resized(original, rng, int(rng.choice((1, 1, 2, 10))))


def _resized(original: Original, rng: np.random.Generator, change: int) -> Bent:
    """Leave bytes out, or write them twice. The length of the batch in which they are is right."""
    data = original.data
    change = max(change, -(len(data) // 2))
    if not original.batches:
        places, spans = rng.integers(0, len(data), ROUND_CASES), original.batches
    else:
        chosen = int(rng.integers(len(original.batches)))
        start, size = original.batches[chosen]
        first = start + plain.HEADER_BYTES
        places = first + rng.integers(0, max(size - plain.HEADER_BYTES, 1), ROUND_CASES)
        spans = (
            *original.batches[:chosen],
            (start, size + change),
            *((later + change, each) for later, each in original.batches[chosen + 1 :]),
        )
    length = len(data) + change
    pieces = [
        (data[:place] + data[max(place - change, 0) :])[:length].ljust(length, b"\0")
        for place in places.tolist()
    ]
    copies = np.frombuffer(b"".join(pieces), np.uint8).reshape(ROUND_CASES, length).copy()
    for (start, size), (_, before) in zip(spans, original.batches, strict=True):
        if size != before:
            copies[:, start + 8 : start + 12] = _be([size - plain.LOG_OVERHEAD], "i")
    return Bent(copies, spans)


def cut_off(original: Original, rng: np.random.Generator) -> Bent:
    """Cut all copies off at one place, and flip bits before it."""
    end = int(rng.integers(1, len(original.data) + 1))
    bent, _ = flip_bits(original, rng)
    return Bent(np.ascontiguousarray(bent[:, :end]), ())


WAYS: dict[Callable[[Original, np.random.Generator], Bent], int] = {
    flip_bits: 20,
    lay_noise: 10,
    lay_integers: 15,
    lay_varints: 15,
    bend_headers: 15,
    claim_counts: 8,
    move_pieces: 8,
    drop_pieces: 6,
    double_pieces: 6,
    cut_off: 5,
}


def _repair(copies: Bytes, batches: tuple[Span, ...]) -> None:
    """Make the checksums of the batches right again."""
    for copy, (start, size) in itertools.product(copies, batches):
        checksum = crc32c.crc32c(copy[start + plain.CRC_START : start + size].data)
        copy[start + 17 : start + plain.CRC_START] = np.frombuffer(checksum.to_bytes(4, "big"), np.uint8)


# Rounds


class Round(NamedTuple):
    """Cases that are read alike."""

    name: str
    version: int | None
    how: How
    cases: list[bytes]


def rounds(block: object, count: int) -> Iterator[Round]:
    """Yield the rounds of a block, the same for the same number."""
    rng = np.random.default_rng(list(f"hostile answers {block}".encode()))
    small, large = originals()
    ways, weights = list(WAYS), np.array(list(WAYS.values())) / sum(WAYS.values())
    for number in range(count):
        pool = large if number % LARGE_EVERY == 1 else small
        original = pool[rng.integers(len(pool))]
        how = _how(original, rng)
        if number % BUILT_EVERY == 2:
            built = mutator.mutants(f"answers {block} {number}", ROUND_CASES)
            yield Round("built", None, how._replace(from_offset=0), [each.data for each in built])
            continue
        way = ways[rng.choice(len(ways), p=weights)]
        copies, batches = way(original, rng)
        if how.check_crcs and rng.random() < 0.7:
            _repair(copies, batches)
        # objects of their own, so that a sanitizer sees a read beyond the end
        yield Round(way.__name__, original.version, how, [copy.tobytes() for copy in copies])


def _how(original: Original, rng: np.random.Generator) -> How:
    first, end = original.offsets
    middle = first + (end - first) // 2
    names = (DECODED, IN_HEADERS)[rng.integers(2)]
    chosen = tuple(name for name in names if rng.random() < 0.5)
    return How(
        committed=rng.random() < 0.5,
        from_offset=int(rng.choice([first, first, first, middle, 0])),
        to_offset=(FOREVER, end, middle)[rng.choice((0, 0, 1, 2))],
        check_crcs=rng.random() < 0.4,
        columns=chosen if rng.random() < 0.7 else DECODED,
        layout=("copy", "view", None)[rng.integers(3)],
        lot=int(rng.choice((1, 2, 1000))),
    )


# Reading


class Part(NamedTuple):
    """The records of a partition as an answer has them."""

    records: memoryview | bytes
    partition: int
    aborted: tuple[tuple[int, int], ...] | None
    last_stable_offset: int


def parts(case: bytes, version: int | None) -> list[Part] | None:
    """Return the records in a case; None if it is left to the codec."""
    if version is None:
        return [Part(case, 0, ((1, 0), (2, 0)), -1)]
    answer = read_fetch_answer(case, version)
    if answer is None:
        return None
    return [
        Part(each.records, each.partition, each.aborted, each.last_stable_offset)
        for each in answer.partitions
        if each.records is not None
    ]


def fetched(part: Part, how: How) -> FetchedRecords:
    """Return the records as `Fetcher` takes them from an answer."""
    is_limited = how.committed and part.last_stable_offset >= 0
    return FetchedRecords(
        part.records,
        topic=TOPIC,
        partition=part.partition,
        from_offset=how.from_offset,
        to_offset=how.to_offset,
        aborted=(part.aborted or ()) if how.committed else None,
        check_crcs=how.check_crcs,
        max_decompressed_bytes=MAX_DECOMPRESSED_BYTES,
        visible_end=part.last_stable_offset if is_limited else FOREVER,
    )


def outcome(case: bytes, version: int | None, how: How) -> str:
    """Read a case, and return what became of it."""
    found = parts(case, version)
    if found is None:
        return "left to the codec"
    row_count, is_faulty = 0, False
    for part in found:
        records = fetched(part, how)
        if how.layout is None:
            while taken := records.take_records(how.lot):
                row_count += len(taken)
            assert records.is_used_up
        else:
            for chunk in records.decode(how.columns, how.layout):  # type: ignore[arg-type]
                row_count += chunk.row_count
        if records.fault is not None:
            _check_fault(records.fault, part)
            is_faulty = True
    if is_faulty:
        return "corrupt after records" if row_count else "corrupt"
    return "records" if row_count else "no records"


def _check_fault(fault: object, part: Part) -> None:
    assert type(fault) is CorruptRecordError, repr(fault)
    assert f"{TOPIC}-{part.partition} at offset " in str(fault), fault


def compare(case: bytes, version: int | None, how: How) -> None:
    """Check that all ways of reading a case agree."""
    if version is not None:
        answer = read_fetch_answer(case, version)
        try:
            correlation_id, message = codec.decode_response(FetchResponse, version, case)
        except ProtocolError as error:
            assert answer is None and str(error)
        else:
            assert answer is None or fields_of(answer) == expected_fields(correlation_id, message, version)
    for part in parts(case, version) or ():
        records = fetched(part, how)
        rows = _rows(records.decode(DECODED), part)
        ended = records.position, str(records.fault)
        assert _rows(records.decode(DECODED, "view"), part) == rows
        assert (records.position, str(records.fault)) == ended
        assert list(_objects(records, how.lot)) == rows
        assert (records.position, str(records.fault)) == ended


def _objects(records: FetchedRecords, lot: int) -> Iterator[tuple[Any, ...]]:
    while taken := records.take_records(lot):
        for each in taken:
            yield each.offset, each.key, each.value, list(each.headers), each.leader_epoch


def _rows(chunks: list[RecordChunk], part: Part) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for chunk in chunks:
        batch = fetched_batch(chunk, TOPIC, part.partition, FETCHED_COLUMNS)
        batch.validate(full=True)
        assert batch.num_rows == chunk.row_count > 0
        offsets, keys, values, headers, epochs = (batch[name].to_pylist() for name in COMPARED)
        pairs = [[(each["key"], each["value"]) for each in row] for row in headers]
        rows += zip(offsets, keys, values, pairs, epochs, strict=True)
    return rows


# Blocks


def play(run: campaign.Run) -> None:
    """Check a block's cases."""
    campaign.play_bounded(run, lambda run: run.judge(_cases(run)), WARMING_CASES, GROWTH_BYTES)


def _cases(run: campaign.Run) -> Iterator[campaign.Case]:
    for name, version, how, cases in rounds(run.block, max(run.cases // ROUND_CASES, 1)):
        described = f"{name}, version {version}, {how}"
        for place, case in enumerate(cases):
            judged = partial(_judge, case, version, how, is_compared=place % COMPARED_EVERY == 0)
            yield described, case, judged


def _judge(case: bytes, version: int | None, how: How, *, is_compared: bool) -> str:
    found = outcome(case, version, how)
    if is_compared:
        compare(case, version, how)
    return found
