"""Properties of every batch: Hypothesis draws them, always the same ones, and the plain oracle judges."""

import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kbatch
from tests import ROOT
from tests.oracle import ours, plain, strategies
from tests.property import crc_laws
from tests.support.effort import EXAMPLES

deterministic = settings(derandomize=True, deadline=None, database=None, max_examples=EXAMPLES)
# Where an example is large, or is tried for each of many types.
few = settings(deterministic, max_examples=1 + EXAMPLES // 6)
INT32_MAX = plain.INT32_MAX
LAST_TIMESTAMP_MS = 2**63 - 2  # of what a producer may send


# There and back


@deterministic
@given(strategies.row_lists, strategies.compressions, strategies.producer_states, strategies.base_offsets)
def test_what_is_encoded_is_decoded_by_both(
    rows: list[plain.Row], compression: str, state: dict[str, Any], base_offset: int
) -> None:
    data = kbatch.encode(rows, compression=compression, base_offset=base_offset, **state)
    (batch,) = plain.decode(data)
    plain.check_produced(batch)
    assert [
        (record.key, record.value, record.headers, record.timestamp_ms) for record in batch.records
    ] == rows
    assert batch.header == batch.header | {name: state[name] for name in state.keys() - {"transactional"}}
    assert batch.header["is_transactional"] == state.get("transactional", False)
    assert (batch.header["compression"], batch.header["base_offset"]) == (compression, base_offset)
    assert ours.read(data) == [batch]


@deterministic
@given(strategies.row_lists, strategies.producer_states, strategies.base_offsets)
def test_without_compression_every_byte_is_the_oracles(
    rows: list[plain.Row], state: dict[str, Any], base_offset: int
) -> None:
    assert kbatch.encode(rows, base_offset=base_offset, **state) == plain.encode(
        rows, base_offset=base_offset, **state
    )


@deterministic
@given(st.integers(0, 10**6), strategies.compressions)
def test_what_a_broker_keeps_is_read_and_written(seed: int, compression: str) -> None:
    """Gaps, log append time and delete horizons, and the writer's own way to them."""
    rows, state = strategies.random_case(seed, log=True)
    data = plain.encode(rows, compression=compression, **state)
    assert ours.read(data) == plain.decode(data)
    offsets = state.pop("offsets", range(state["base_offset"], state["base_offset"] + len(rows)))
    last_offset = state.pop("last_offset", offsets[-1])
    stamp = {
        name: state.pop(name) for name in ("producer_id", "producer_epoch", "base_sequence") if name in state
    }
    writer = kbatch.RecordBatchWriter(**state)
    for row, offset in zip(rows, offsets, strict=True):
        writer.append(*row, offset=offset)
    writer.seal(last_offset_delta=last_offset - state["base_offset"])
    writer.stamp(**stamp)
    expected = plain.encode(rows, offsets=offsets, last_offset=last_offset, **state, **stamp)
    assert writer.getvalue() == expected


# Batches one after another, and cut


@deterministic
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=4), strategies.compressions, st.data())
def test_any_cut_of_concatenated_batches(seeds: list[int], compression: str, data: st.DataObject) -> None:
    cases = [strategies.random_case(seed, log=True) for seed in seeds]
    encoded = [plain.encode(rows, compression=compression, **state) for rows, state in cases]
    whole = b"".join(encoded)
    cut = data.draw(st.integers(0, len(whole)))
    ends = [sum(map(len, encoded[: number + 1])) for number in range(len(encoded))]
    complete = [batch for batch, end in zip(plain.decode(whole), ends, strict=True) if end <= cut]

    batches = kbatch.decode(whole[:cut])
    assert [batch.header for batch in complete] == [ours.read(bytes(batch))[0].header for batch in batches]
    assert batches.position == max([0, *(end for end in ends if end <= cut)])
    assert kbatch.decode_arrow(whole[:cut]).num_rows == sum(len(batch.records) for batch in complete)
    if cut in (0, *ends):
        assert ours.read(whole[:cut]) == complete
    else:
        for read in (ours.read, lambda part: kbatch.decode_arrow(part, partial="raise")):
            with pytest.raises(kbatch.CorruptRecordError, match="is cut off"):
                read(whole[:cut])


@deterministic
@given(strategies.row_lists, strategies.compressions, strategies.base_offsets)
def test_a_rebased_batch_is_the_same_elsewhere(
    rows: list[plain.Row], compression: str, base_offset: int
) -> None:
    data = kbatch.encode(rows, compression=compression)
    assert kbatch.rebase(data, base_offset) == kbatch.encode(
        rows, compression=compression, base_offset=base_offset
    )
    assert kbatch.rebase(kbatch.rebase(data, base_offset), 0) == data


# Varints, by way of records


def _both_write(rows: list[plain.Row]) -> None:
    expected = plain.encode(rows)
    assert kbatch.encode(rows) == expected
    assert ours.read(expected) == plain.decode(expected)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 8191, 8192, 8193, 2**20 - 1, 2**20])
def test_sizes_at_the_edges_of_varints(size: int) -> None:
    content = b"\xab" * size
    _both_write([(content, None, (), 0), (None, content, (), 0), (None, None, (("h", content),), 0)])
    _both_write([(None, None, (("k" * min(size, 10_000), None),), 0)])


@pytest.mark.parametrize("body", [63, 64, 8191, 8192])
def test_a_records_size_at_the_edges_of_varints(body: int) -> None:
    for missing in range(5):
        _both_write([(None, b"v" * (body - 6 - missing), (), 0)])


@pytest.mark.parametrize("count", [0, 1, 63, 64, 8191, 8192])
def test_header_counts_at_the_edges_of_varints(count: int) -> None:
    _both_write([(b"k", b"v", (("h", b""),) * count, 0)])


@deterministic
@given(st.lists(st.integers(-1, LAST_TIMESTAMP_MS) | st.sampled_from([-1, 0, LAST_TIMESTAMP_MS]), min_size=1))
def test_timestamp_deltas_of_any_size_and_sign(timestamps: list[int]) -> None:
    _both_write([(None, None, (), timestamp) for timestamp in timestamps])


@pytest.mark.parametrize("bits", range(7, 63))
def test_timestamp_deltas_at_the_edges_of_varlongs(bits: int) -> None:
    deltas = (sign * 2**bits + near for sign in (-1, 1) for near in (-1, 0, 1))
    timestamps = (2**62 - 1 + delta for delta in deltas)
    _both_write([(None, None, (), max(-1, min(at, LAST_TIMESTAMP_MS))) for at in (2**62 - 1, *timestamps)])


@pytest.mark.parametrize("delta", [63, 64, 8191, 8192, 2**20 - 1, 2**20, 2**27, INT32_MAX])
def test_offset_deltas_at_the_edges_of_varints(delta: int) -> None:
    writer = kbatch.RecordBatchWriter()
    for offset in (0, delta):
        writer.append(b"k", b"v", timestamp_ms=0, offset=offset)
    writer.seal()
    assert writer.getvalue() == plain.encode([(b"k", b"v", (), 0)] * 2, offsets=[0, delta])


# Hashes


@pytest.mark.parametrize(
    "law", [crc_laws.check_lengths_and_alignments, crc_laws.check_going_on, crc_laws.check_combining]
)
def test_crc32c_obeys(law: Any) -> None:
    law()


@pytest.mark.parametrize("implementation", crc_laws.IMPLEMENTATIONS)
def test_all_implementations_of_crc32c_obey_the_same_laws(implementation: str) -> None:
    printed = subprocess.check_output(
        [sys.executable, "-m", "tests.property.crc_laws"],
        env=os.environ | {"KBATCH_CRC32C": implementation},
        cwd=ROOT,
        text=True,
    )
    if printed.strip() != implementation:
        assert implementation != "table"
        pytest.skip(f"this CPU does not support {implementation}")


@deterministic
@given(st.binary(max_size=100), st.integers(1, INT32_MAX))
def test_keys_hash_and_place_as_the_oracle_says(key: bytes, partitions: int) -> None:
    assert kbatch.murmur2(key) == plain.murmur2(key)
    assert kbatch.partition_for_key(memoryview(b"xyz" + key)[3:], partitions) == plain.partition_for_key(
        key, partitions
    )


# Columns read


BATCH_COLUMNS = ("base_offset", "compression", "timestamp_type", "producer_id", "producer_epoch")


@few
@given(st.lists(st.integers(0, 10**6), max_size=5), strategies.compressions, st.booleans())
def test_columns_are_the_records_of_decode(seeds: list[int], compression: str, in_pieces: bool) -> None:
    cases = [strategies.random_case(seed, log=True) for seed in seeds]
    pieces = [plain.encode(rows, compression=compression, **state) for rows, state in cases]
    table = kbatch.decode_arrow(pieces if in_pieces else b"".join(pieces), batch_columns=True)
    table.validate(full=True)
    pairs = [
        (batch.header, record)
        for piece in pieces
        for batch in plain.decode(piece)
        for record in batch.records
    ]
    columns = table.drop_columns("timestamp").to_pydict()
    headers = [tuple((pair["key"], pair["value"]) for pair in row) for row in columns.pop("headers")]
    assert headers == [record.headers for _, record in pairs]
    assert table["timestamp"].cast("int64").to_pylist() == [record.timestamp_ms for _, record in pairs]
    for name in ("offset", "key", "value"):
        assert columns.pop(name) == [getattr(record, name) for _, record in pairs]
    for name in (*BATCH_COLUMNS, "is_transactional", "is_control"):
        assert columns.pop(name) == [header[name] for header, _ in pairs]
    assert columns.pop("sequence") == [
        -1
        if header["base_sequence"] < 0
        else plain.increment_sequence(header["base_sequence"], record.offset - header["base_offset"])
        for header, record in pairs
    ]
    assert columns == {}
