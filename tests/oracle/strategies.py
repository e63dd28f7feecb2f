"""Records of every shape, as plain tuples: Hypothesis strategies, and a seeded generator for use in bulk.

A row is (key, value, headers, timestamp_ms); producer state is a dict of keyword arguments of `encode`.
"""

import random
import struct
from typing import Any

from hypothesis import strategies as st

from tests.oracle.plain import CODECS, INT32_MAX, Headers, Row

LAST_TIMESTAMP_MS = 2**62
EDGE_TIMESTAMPS_MS = (0, 1, 999, INT32_MAX, 1_700_000_000_000, LAST_TIMESTAMP_MS)
# One, two and three bytes of length prefix, and beyond one block of lz4 (64 KiB) and of snappy (32 KiB).
EDGE_SIZES = (0, 1, 63, 64, 8191, 8192, 32_769, 70_000)
EDGE_SEQUENCES = (0, 1, INT32_MAX - 2, INT32_MAX - 1, INT32_MAX)
UNICODE_NAMES = ("", "trace-id", "größe", "ключ", "鍵", "🔑", "\0", "e\u0301")

# Hypothesis

contents = st.none() | st.binary(max_size=80) | st.sampled_from(EDGE_SIZES).map(lambda size: b"\xab" * size)
header_keys = st.text(max_size=12) | st.sampled_from(UNICODE_NAMES)
headers = st.lists(st.tuples(header_keys, st.none() | st.binary(max_size=20)), max_size=5).map(tuple)
timestamps_ms = st.sampled_from(EDGE_TIMESTAMPS_MS) | st.integers(0, LAST_TIMESTAMP_MS)
rows = st.tuples(contents, contents, headers, timestamps_ms)
row_lists = st.lists(rows, min_size=1, max_size=20)
compressions = st.sampled_from(CODECS)
no_producer: dict[str, Any] = {}
producer_states = st.just(no_producer) | st.fixed_dictionaries(
    {
        "producer_id": st.integers(0, 2**63 - 1),
        "producer_epoch": st.integers(0, 32767),
        "base_sequence": st.sampled_from(EDGE_SEQUENCES) | st.integers(0, INT32_MAX),
        "transactional": st.booleans(),
    }
)
base_offsets = st.sampled_from((0, 1, 2**31, 2**62)) | st.integers(0, 2**62)


# A seed and bulk


def random_rows(rng: random.Random) -> list[Row]:
    """Return one to sixty rows; mostly small and alike, as real topics are, now and then at an edge."""
    count = rng.choice((1, 2, 3, 10, 60))
    return [
        (_random_content(rng), _random_content(rng), _random_headers(rng), _random_timestamp(rng))
        for _ in range(count)
    ]


def random_producer_state(rng: random.Random) -> dict[str, Any]:
    if rng.random() < 0.3:
        return {}
    return {
        "producer_id": rng.choice((0, 4242, 2**63 - 1)),
        "producer_epoch": rng.choice((0, 7, 32767)),
        "base_sequence": rng.choice((*EDGE_SEQUENCES, rng.randrange(2**31))),
        "transactional": rng.random() < 0.5,
    }


def random_log_state(rng: random.Random, count: int) -> dict[str, Any]:
    """Draw what only a broker's log puts into a batch of `count` rows: gaps of compaction, times, epoch."""
    base_offset = rng.choice((0, 1, 10**6, 2**62))
    state: dict[str, Any] = {"base_offset": base_offset, "partition_leader_epoch": rng.choice((-1, 0, 12))}
    if rng.random() < 0.5:
        offsets = sorted(rng.sample(range(base_offset, base_offset + 3 * count), count))
        state |= {"offsets": offsets, "last_offset": offsets[-1] + rng.choice((0, 1, 500))}
    if rng.random() < 0.3:
        state["log_append_time_ms"] = rng.choice(EDGE_TIMESTAMPS_MS)
    if rng.random() < 0.3:
        state["delete_horizon_ms"] = rng.choice(EDGE_TIMESTAMPS_MS)
    return state


def random_case(seed: int, *, log: bool) -> tuple[list[Row], dict[str, Any]]:
    """Rows, and keyword arguments of `encode`; with `log` also those of batches that a broker's log holds."""
    rng = random.Random(seed)
    rows = random_rows(rng)
    state = random_producer_state(rng)
    return rows, state | (random_log_state(rng, len(rows)) if log else {})


def end_transaction_marker(commit: bool, timestamp_ms: int) -> Row:
    """EndTransactionMarker: the one record of a control batch that every log has."""
    return struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 3), (), timestamp_ms


# The letter of each byte: six of them, so that texts compress.
_LETTERS = bytes(ord("a") + byte % 6 for byte in range(256))


def _random_content(rng: random.Random) -> bytes | None:
    shape = rng.random()
    if shape < 0.15:
        return None
    if shape < 0.2:
        return b"\x5a" * rng.choice(EDGE_SIZES)
    if shape < 0.5:
        return rng.randbytes(rng.randrange(40))
    return rng.randbytes(rng.randrange(120)).translate(_LETTERS)


def _random_headers(rng: random.Random) -> Headers:
    count = rng.choice((0, 0, 0, 1, 3)) if rng.random() < 0.98 else 200
    return tuple((rng.choice(UNICODE_NAMES), _random_content(rng)) for _ in range(count))


def _random_timestamp(rng: random.Random) -> int:
    if rng.random() < 0.2:
        return rng.choice(EDGE_TIMESTAMPS_MS)
    return 1_700_000_000_000 + rng.randrange(-(10**6), 10**6)
