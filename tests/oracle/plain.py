"""Record batch v2 in plain Python: slow, short and obviously right. It judges the native codec.

It follows Kafka's message format page (KIP-98, KIP-82, KIP-534) and imports nothing of kbatch. Codecs and the
checksum are those of packages, in their simplest use.
"""

import gzip
import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import cramjam
import lz4.frame
import zstandard
from crc32c import crc32c

Headers = Sequence[tuple[str, bytes | None]]
Row = tuple[bytes | None, bytes | None, Headers, int]  # key, value, headers, timestamp_ms

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# base offset, length, leader epoch, magic, crc, attributes, last offset delta, base timestamp, max timestamp,
# producer id, producer epoch, base sequence, count
HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = 61
LOG_OVERHEAD = 12  # what the length field does not count: base offset and itself
CRC_START = 21  # the CRC covers everything from the attributes on
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 1 << 3, 1 << 4, 1 << 5, 1 << 6
MAX_RECORD_OVERHEAD = 21  # org.apache.kafka.common.record.internal.DefaultRecord
INT32_MAX = 2**31 - 1
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_BLOCK_BYTES = 32 * 1024
# The attributes of kbatch's batches, in wire order; its length is the `count` of `Batch.header`.
HEADER_FIELDS = (
    *("magic", "attributes", "base_offset", "last_offset", "partition_leader_epoch", "crc", "compression"),
    *("timestamp_type", "is_transactional", "is_control", "base_timestamp_ms", "max_timestamp_ms"),
    *("delete_horizon_ms", "producer_id", "producer_epoch", "base_sequence", "last_sequence"),
)


class CorruptBatch(ValueError):
    """Bytes that are no record batch."""


class Record(NamedTuple):
    """A record as a reader sees it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Batch(NamedTuple):
    """HEADER_FIELDS and `count`; and the records."""

    header: dict[str, Any]
    records: list[Record]


# Key hash


def murmur2(key: bytes) -> int:
    """Return org.apache.kafka.common.utils.Utils.murmur2: a signed 32-bit int."""
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    hashed = (0x9747B28C ^ len(key)) & mask
    whole = len(key) - len(key) % 4
    for start in range(0, whole, 4):
        block = int.from_bytes(key[start : start + 4], "little") * multiplier & mask
        block = (block ^ block >> 24) * multiplier & mask
        hashed = (hashed * multiplier & mask) ^ block
    if tail := key[whole:]:
        hashed = (hashed ^ int.from_bytes(tail, "little")) * multiplier & mask
    hashed = (hashed ^ hashed >> 13) * multiplier & mask
    hashed ^= hashed >> 15
    return hashed - 2**32 if hashed > INT32_MAX else hashed


def partition_for_key(key: bytes, partitions: int) -> int:
    return (murmur2(key) & INT32_MAX) % partitions


# Sequence numbers: 0 follows 2^31-1 (DefaultRecordBatch.incrementSequence)


def increment_sequence(sequence: int, increment: int) -> int:
    return (sequence + increment) % 2**31


def decrement_sequence(sequence: int, decrement: int) -> int:
    return (sequence - decrement) % 2**31


# Varints


def encode_varint(value: int, bits: int = 32) -> bytes:
    """Zigzag, seven bits a byte, the lowest first; `bits` is 32 for a varint and 64 for a varlong."""
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise OverflowError(f"{value} does not fit {bits} bits")
    rest = value * 2 if value >= 0 else -value * 2 - 1
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


class _Cursor:
    """Read a record region; `strict` also refuses what no writer emits but a reader may accept."""

    def __init__(self, data: bytes, strict: bool) -> None:
        self.data = data
        self.strict = strict
        self.position = 0

    def take(self, count: int) -> bytes:
        end = self.position + count
        if count < 0 or end > len(self.data):
            raise CorruptBatch(f"{count} bytes at {self.position}, {len(self.data) - self.position} are left")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def varint(self, bits: int = 32) -> int:
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if value >> bits:
                raise CorruptBatch(f"varint of more than {bits} bits")
            if byte < 0x80:
                break
            shift += 7
            if shift >= bits:
                raise CorruptBatch(f"varint too long for {bits} bits")
        if self.strict and byte == 0 and shift:
            raise CorruptBatch("varint longer than it needs to be")
        return -(value // 2) - 1 if value & 1 else value // 2

    def sized(self) -> bytes | None:
        """Return bytes with a length before them; -1 is null."""
        length = self.varint()
        if length < -1:
            raise CorruptBatch(f"length {length}")
        return None if length == -1 else self.take(length)


def decode_varint(data: bytes, bits: int = 32, *, strict: bool = True) -> int:
    """Return the varint that `data` starts with."""
    return _Cursor(data, strict).varint(bits)


# Records


def _sized(data: bytes | None) -> bytes:
    return encode_varint(-1) if data is None else encode_varint(len(data)) + data


def _content(key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    encoded = _sized(key) + _sized(value) + encode_varint(len(headers))
    for name, content in headers:
        encoded += _sized(name.encode()) + _sized(content)
    return encoded


def encode_record(row: Row, offset_delta: int, base_timestamp_ms: int) -> bytes:
    key, value, headers, timestamp_ms = row
    body = b"\0" + encode_varint(timestamp_ms - base_timestamp_ms, 64) + encode_varint(offset_delta)
    body += _content(key, value, headers)
    return encode_varint(len(body)) + body


def size_upper_bound(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return AbstractRecords.estimateSizeInBytesUpperBound, to which limits on a record's size apply."""
    return HEADER_BYTES + MAX_RECORD_OVERHEAD + len(_content(key, value, headers))


def _decode_record(cursor: _Cursor, base_offset: int, base_timestamp_ms: int) -> Record:
    size = cursor.varint()
    body = _Cursor(cursor.take(size), cursor.strict)
    (attributes,) = body.take(1)
    if cursor.strict and attributes:
        raise CorruptBatch(f"record attributes {attributes}")
    timestamp_ms = base_timestamp_ms + body.varint(64)
    offset = base_offset + body.varint()
    key, value = body.sized(), body.sized()
    header_count = body.varint()
    if header_count < 0:
        raise CorruptBatch(f"{header_count} headers")
    headers = tuple(_decode_header(body) for _ in range(header_count))
    if body.position != size:
        raise CorruptBatch(f"record of {size} bytes, {body.position} used")
    return Record(offset, timestamp_ms, key, value, headers)


def _decode_header(body: _Cursor) -> tuple[str, bytes | None]:
    name = body.sized()
    if name is None:
        raise CorruptBatch("header without a key")
    try:
        return name.decode(), body.sized()
    except UnicodeDecodeError as error:
        raise CorruptBatch("header key is not UTF-8") from error


# Compression


def compress(data: bytes, codec: str, level: int | None = None) -> bytes:
    if codec == "gzip":
        # without the time of day: what is encoded from a seed is the same each time
        return gzip.compress(data, 6 if level is None else level, mtime=0)
    if codec == "snappy":
        return _snappy_compress(data)
    if codec == "lz4":
        # Java's Lz4BlockInputStream refuses linked blocks.
        return bytes(lz4.frame.compress(data, compression_level=level or 0, block_linked=False))
    if codec == "zstd":
        return zstandard.ZstdCompressor(3 if level is None else level).compress(data)
    return data


def decompress(data: bytes, codec: str) -> bytes:
    decompressors: dict[str, Callable[[bytes], bytes]] = {
        "none": bytes,
        "gzip": gzip.decompress,
        "snappy": _snappy_decompress,
        "lz4": _lz4_decompress,
        "zstd": _zstd_decompress,
    }
    return decompressors[codec](data)


def _snappy_compress(data: bytes) -> bytes:
    framed = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
    for start in range(0, len(data), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + XERIAL_BLOCK_BYTES]))
        framed += struct.pack(">i", len(block)) + block
    return framed


def _snappy_decompress(data: bytes) -> bytes:
    if not data.startswith(XERIAL_MAGIC):
        return bytes(cramjam.snappy.decompress_raw(data))
    cursor = _Cursor(data, strict=True)
    cursor.take(16)
    blocks = []
    while cursor.position < len(data):
        (length,) = struct.unpack(">i", cursor.take(4))
        blocks.append(bytes(cramjam.snappy.decompress_raw(cursor.take(length))))
    return b"".join(blocks)


def _lz4_decompress(data: bytes) -> bytes:
    stream = lz4.frame.LZ4FrameDecompressor()
    content: bytes = stream.decompress(data)
    if not stream.eof or stream.unused_data:
        raise CorruptBatch("not exactly one lz4 frame")
    return content


def _zstd_decompress(data: bytes) -> bytes:
    content = b""
    while data:
        stream = zstandard.ZstdDecompressor().decompressobj()
        content += stream.decompress(data)
        if not stream.eof:
            raise CorruptBatch("zstd frame ends early")
        data = stream.unused_data
    return content


# Batches


def encode(
    rows: Iterable[Row],
    *,
    compression: str = "none",
    compression_level: int | None = None,
    base_offset: int = 0,
    offsets: Sequence[int] | None = None,
    last_offset: int | None = None,
    partition_leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
    delete_horizon_ms: int | None = None,
    compressor: Callable[[bytes], bytes] | None = None,
) -> bytes:
    """Return one batch. `offsets` and `last_offset` leave the gaps that compaction leaves; `compressor`
    replaces the codec's simplest use by another framing of the same codec.
    """
    rows = list(rows)
    offsets = range(base_offset, base_offset + len(rows)) if offsets is None else offsets
    if last_offset is None:
        last_offset = offsets[-1] if rows else base_offset
    timestamps = [row[3] for row in rows] or [-1]
    # A batch with a delete horizon keeps it where the base timestamp was (KIP-534).
    base_timestamp_ms = timestamps[0] if delete_horizon_ms is None else delete_horizon_ms
    max_timestamp_ms = max(timestamps) if log_append_time_ms is None else log_append_time_ms
    attributes = (
        CODECS.index(compression)
        | LOG_APPEND_TIME * (log_append_time_ms is not None)
        | TRANSACTIONAL * transactional
        | CONTROL * control
        | DELETE_HORIZON * (delete_horizon_ms is not None)
    )
    pairs = zip(offsets, rows, strict=True)
    body = b"".join(encode_record(row, at - base_offset, base_timestamp_ms) for at, row in pairs)
    if rows:
        body = compressor(body) if compressor else compress(body, compression, compression_level)
    return with_crc(
        HEADER.pack(
            *(base_offset, HEADER_BYTES + len(body) - LOG_OVERHEAD, partition_leader_epoch, 2, 0, attributes),
            *(last_offset - base_offset, base_timestamp_ms, max_timestamp_ms),
            *(producer_id, producer_epoch, base_sequence, len(rows)),
        )
        + body
    )


def with_crc(batch: bytes) -> bytes:
    """Return the batch with its CRC made right, for tests that bend a field."""
    return batch[:17] + struct.pack(">I", crc32c(batch[CRC_START:])) + batch[CRC_START:]


def decode(data: bytes, *, strict: bool = True) -> list[Batch]:
    """Return all batches of `data`. `strict` refuses what no correct writer emits but Kafka's readers let
    pass: longer varints than needed, record attributes, unknown attribute bits, offsets that do not rise.
    """
    batches = []
    while data:
        size = LOG_OVERHEAD + struct.unpack_from(">i", data, 8)[0] if len(data) >= LOG_OVERHEAD else 0
        if not HEADER_BYTES <= size <= len(data):
            raise CorruptBatch(f"a batch of {size} bytes, {len(data)} are left")
        batches.append(_decode_batch(data[:size], strict))
        data = data[size:]
    return batches


def _decode_batch(data: bytes, strict: bool) -> Batch:
    base_offset, _, leader_epoch, magic, crc, attributes, last_offset_delta, *rest = HEADER.unpack_from(data)
    base_timestamp_ms, max_timestamp_ms, producer_id, producer_epoch, base_sequence, count = rest
    if magic != 2 or crc != crc32c(data[CRC_START:]):
        raise CorruptBatch(f"magic {magic}, CRC {crc}")
    if attributes & 7 >= len(CODECS) or (strict and attributes >> 7):
        raise CorruptBatch(f"attributes {attributes:#x}")
    if count < 0 or last_offset_delta < 0:
        raise CorruptBatch(f"{count} records, last offset delta {last_offset_delta}")
    header = {
        "magic": magic,
        "attributes": attributes,
        "base_offset": base_offset,
        "last_offset": base_offset + last_offset_delta,
        "partition_leader_epoch": leader_epoch,
        "crc": crc,
        "compression": CODECS[attributes & 7],
        "timestamp_type": "log_append_time" if attributes & LOG_APPEND_TIME else "create_time",
        "is_transactional": bool(attributes & TRANSACTIONAL),
        "is_control": bool(attributes & CONTROL),
        "base_timestamp_ms": base_timestamp_ms,
        "max_timestamp_ms": max_timestamp_ms,
        "delete_horizon_ms": base_timestamp_ms if attributes & DELETE_HORIZON else None,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "base_sequence": base_sequence,
        "last_sequence": -1 if base_sequence == -1 else increment_sequence(base_sequence, last_offset_delta),
        "count": count,
    }
    return Batch(header, _decode_records(data[HEADER_BYTES:], header, strict))


def _decode_records(body: bytes, header: dict[str, Any], strict: bool) -> list[Record]:
    cursor = _Cursor(decompress(body, header["compression"]) if body else b"", strict)
    records = []
    for _ in range(header["count"]):
        record = _decode_record(cursor, header["base_offset"], header["base_timestamp_ms"])
        if header["timestamp_type"] == "log_append_time":
            record = record._replace(timestamp_ms=header["max_timestamp_ms"])
        records.append(record)
    if cursor.position != len(cursor.data):
        raise CorruptBatch(f"{len(cursor.data) - cursor.position} bytes after the last record")
    offsets = [header["base_offset"] - 1, *(record.offset for record in records), header["last_offset"] + 1]
    if strict and any(before >= after for before, after in pairwise(offsets)):
        raise CorruptBatch("offsets do not rise within the batch")
    return records


def check_produced(batch: Batch) -> None:
    """Check what a producer must do but no broker checks (it rewrites the field or accepts it)."""
    header, records = batch
    timestamps = [record.timestamp_ms for record in records]
    owed = {
        "last_offset": header["base_offset"] + len(records) - 1,
        "count": len(records),
        "partition_leader_epoch": -1,
        "base_timestamp_ms": timestamps[0],
        "max_timestamp_ms": max(timestamps),
        "timestamp_type": "create_time",
        "is_control": False,
        "delete_horizon_ms": None,
    }
    wrong = {name: (header[name], value) for name, value in owed.items() if header[name] != value}
    if wrong:
        raise CorruptBatch(f"a producer's batch with (found, owed) {wrong}")


# When a batch is full


def updated_ratio(current: float, observed: float) -> float:
    """Return CompressionRatioEstimator.updateEstimation: quick to rise, slow to fall."""
    return max(current + 0.05, observed) if observed > current else max(current - 0.005, observed)


def expected_batches(
    rows: Sequence[Row],
    partitions: Sequence[int],
    batch_size: int,
    compressed_size: Callable[[bytes], int] | None = None,
) -> dict[int, list[int]]:
    """Record counts of the batches of each partition, in order. `partitions` names each row's partition;
    `compressed_size` says how large the records of a closed batch become (None: no codec, sizes are exact).
    """
    by_partition: dict[int, list[Row]] = {}
    for row, partition in zip(rows, partitions, strict=True):
        by_partition.setdefault(partition, []).append(row)
    return {
        partition: _batch_counts(mine, batch_size, compressed_size)
        for partition, mine in sorted(by_partition.items())
    }


def _batch_counts(
    rows: Sequence[Row], batch_size: int, compressed_size: Callable[[bytes], int] | None
) -> list[int]:
    """Replay MemoryRecordsBuilder.hasRoomFor for the rows of one partition."""
    estimate = ratio = 1.0
    counts, body, base_timestamp_ms = [0], b"", rows[0][3]
    for row in rows:
        record = encode_record(row, counts[-1], base_timestamp_ms)
        written = len(body) if compressed_size is None else int(len(body) * ratio * 1.05)
        if counts[-1] and HEADER_BYTES + written + len(record) > batch_size:
            # A batch below a quarter of batch_size says little of the ratio: not counted.
            if compressed_size is not None and 4 * len(body) >= batch_size:
                estimate = updated_ratio(estimate, compressed_size(body) / len(body))
            ratio = estimate  # for the whole life of the batch that opens now
            counts.append(0)
            body, base_timestamp_ms = b"", row[3]
            record = encode_record(row, 0, base_timestamp_ms)
        counts[-1] += 1
        body += record
    return counts
