"""Rows as Arrow tables of every column type that the codec takes, and their expected batches."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tests.oracle import plain

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TIMESTAMP = pa.timestamp("ms", "UTC")


def array_of(values: Sequence[bytes | None], kind: pa.DataType) -> pa.Array:
    """Return bytes as an array of any binary-like type, dictionaries of any index included."""
    if pa.types.is_dictionary(kind):
        encoded = array_of(values, kind.value_type).dictionary_encode()
        return pa.DictionaryArray.from_arrays(encoded.indices.cast(kind.index_type), encoded.dictionary)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.array([value if value is None else value.decode() for value in values], kind)
    return pa.array(values, kind)


def headers_array(rows: Sequence[plain.Headers], kind: pa.DataType) -> pa.Array:
    if pa.types.is_map(kind):
        return pa.array([list(row) for row in rows], kind)
    return pa.array([[{"key": name, "value": content} for name, content in row] for row in rows], kind)


def table_of(
    rows: Sequence[plain.Row],
    *,
    key: pa.DataType | None = None,
    value: pa.DataType | None = None,
    headers: pa.DataType = HEADERS,
    timestamp: pa.DataType = TIMESTAMP,
) -> pa.Table:
    keys, values, headers_of_rows, timestamps = zip(*rows, strict=True) if rows else ((),) * 4
    return pa.table(
        {
            "key": array_of(keys, key or pa.binary()),
            "value": array_of(values, value or pa.binary()),
            "headers": headers_array(headers_of_rows, headers),
            "timestamp": pa.array(timestamps, pa.int64()).cast(timestamp),
        }
    )


def expected_partitions(
    rows: Sequence[plain.Row], named: Sequence[int | None], partitions: int, batch_size: int
) -> list[int]:
    """Return the partition of each row: as named, else by key, else in turns of `batch_size` bytes of
    records.
    """
    chosen, turn, turn_bytes = [], 0, 0
    for row, partition in zip(rows, named, strict=True):
        if partition is not None:
            chosen.append(partition)
        elif row[0] is not None:
            chosen.append(plain.partition_for_key(row[0], partitions))
        else:
            chosen.append(turn)
            turn_bytes += len(plain.encode_record(row, 0, row[3]))
            if turn_bytes >= batch_size:
                turn, turn_bytes = (turn + 1) % partitions, 0
    return chosen


def records_region(batch: bytes) -> bytes:
    """Return the records as they stand in the batch before compression."""
    return plain.decompress(batch[plain.HEADER_BYTES :], plain.CODECS[batch[22] & 7])


def check_encoded(
    encoded: pa.Table, rows: Sequence[plain.Row], partitions: Sequence[int], compression: str, batch_size: int
) -> None:
    """Check that `encoded` has `rows`, each in its partition, in batches as Kafka closes them, described
    truly.
    """
    described: list[dict[str, Any]] = encoded.to_pylist()
    regions = [records_region(batch["batch"]) for batch in described]
    sizes = {
        region: len(batch["batch"]) - plain.HEADER_BYTES
        for region, batch in zip(regions, described, strict=True)
    }
    counts: dict[int, list[int]] = {}
    written: dict[int, list[plain.Row]] = {}
    for batch, region in zip(described, regions, strict=True):
        (read,) = plain.decode(batch["batch"])
        plain.check_produced(read)
        assert read.header["compression"] == compression
        assert read.header["base_offset"] == 0
        assert (batch["record_count"], batch["max_timestamp_ms"], batch["uncompressed_bytes"]) == (
            len(read.records),
            read.header["max_timestamp_ms"],
            plain.HEADER_BYTES + len(region),
        )
        counts.setdefault(batch["partition"], []).append(batch["record_count"])
        written.setdefault(batch["partition"], []).extend(
            (record.key, record.value, record.headers, record.timestamp_ms) for record in read.records
        )
    expected: dict[int, list[plain.Row]] = {}
    for row, partition in zip(rows, partitions, strict=True):
        expected.setdefault(partition, []).append(row)
    assert list(written) == sorted(written)
    assert written == expected
    compressed_size = None if compression == "none" else sizes.__getitem__
    assert counts == plain.expected_batches(rows, partitions, batch_size, compressed_size)
