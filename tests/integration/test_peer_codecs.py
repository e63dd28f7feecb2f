"""kbatch's codec beside aiokafka's and kafka-python's, and against the framings that other writers use."""

import gzip
import io
import random
import struct
from collections.abc import Callable
from typing import Any

import aiokafka.codec
import aiokafka.record.default_records as aiokafka_records
import cramjam
import kafka.codec
import kafka.record.default_records as kafka_python_records
import lz4.frame
import pytest
import zstandard

import kbatch
from tests.oracle import ours, plain, strategies
from tests.oracle.java import JavaOracle

PEERS = {"aiokafka": aiokafka_records, "kafka-python": kafka_python_records}
HAS_CODEC = {"aiokafka": aiokafka.codec, "kafka-python": kafka.codec}
SEEDS = range(25)
SUPPORTED = [
    (peer, compression)
    for peer, codec in HAS_CODEC.items()
    for compression in plain.CODECS
    if compression == "none" or getattr(codec, f"has_{compression}")()
]


def _peer_batch(peer: str, rows: list[plain.Row], compression: str, state: dict[str, Any]) -> bytes:
    builder = PEERS[peer].DefaultRecordBatchBuilder(
        magic=2,
        compression_type=plain.CODECS.index(compression),
        is_transactional=state.get("transactional", False),
        producer_id=state.get("producer_id", -1),
        producer_epoch=state.get("producer_epoch", -1),
        base_sequence=state.get("base_sequence", -1),
        batch_size=2**30,
    )
    for offset, (key, value, headers, timestamp_ms) in enumerate(rows):
        assert builder.append(offset, timestamp_ms, key, value, list(headers)) is not None
    return bytes(builder.build())


# Other clients


@pytest.mark.parametrize(("peer", "compression"), SUPPORTED)
def test_kbatch_reads_what_the_peer_writes(peer: str, compression: str) -> None:
    for seed in SEEDS:
        rows, state = strategies.random_case(seed, log=False)
        data = _peer_batch(peer, rows, compression, state)
        (batch,) = ours.read(data)
        assert batch.records == plain.decode(plain.encode(rows))[0].records
        assert batch.header == plain.decode(data)[0].header
        # where compression does not pay, both peers send the batch without it
        assert batch.header["compression"] in (compression, "none")
        assert batch.header["is_transactional"] == state.get("transactional", False)


@pytest.mark.parametrize(("peer", "compression"), SUPPORTED)
def test_the_peer_reads_what_kbatch_writes(peer: str, compression: str) -> None:
    for seed in SEEDS:
        rows, state = strategies.random_case(seed, log=False)
        data = kbatch.encode(rows, compression=compression, base_offset=seed, **state)
        batch = PEERS[peer].DefaultRecordBatch(data)
        assert batch.validate_crc()
        (expected,) = plain.decode(data)
        assert [
            (record.offset, record.timestamp, record.key, record.value, tuple(map(tuple, record.headers)))
            for record in batch
        ] == expected.records
        assert batch.max_timestamp == expected.header["max_timestamp_ms"]
        assert batch.next_offset == expected.header["last_offset"] + 1


@pytest.mark.parametrize("peer", PEERS)
def test_uncompressed_bytes_equal_the_peers(peer: str) -> None:
    for seed in SEEDS:
        rows, state = strategies.random_case(seed, log=False)
        # Both write a leader epoch of 0 where a producer does not know it; KIP-101's value for that is -1.
        theirs = bytearray(_peer_batch(peer, rows, "none", state))
        theirs[12:16] = b"\xff" * 4
        assert kbatch.encode(rows, **state) == bytes(theirs)


# Framings of other writers


def _lz4_flushed(data: bytes) -> bytes:
    compressor = lz4.frame.LZ4FrameCompressor(block_linked=False, auto_flush=True)
    parts = [compressor.begin()]
    parts += (compressor.compress(data[start : start + 1000]) for start in range(0, len(data), 1000))
    return b"".join([*parts, compressor.flush()])


def _lz4_framing(**parameters: Any) -> Callable[[bytes], bytes]:
    return lambda data: lz4.frame.compress(data, **({"block_linked": False} | parameters))


def _lz4_frames(data: bytes) -> bytes:
    half = len(data) // 2
    return b"".join(lz4.frame.compress(part, block_linked=False) for part in (data[:half], data[half:]))


def _xerial(block_bytes: int, byte_order: str = ">") -> Callable[[bytes], bytes]:
    """Return a writer of streams whose version fields may be little endian, as Redpanda's were."""

    def framed(data: bytes) -> bytes:
        parts = [plain.XERIAL_MAGIC, struct.pack(f"{byte_order}ii", 1, 1)]
        for start in range(0, len(data), block_bytes):
            block = bytes(cramjam.snappy.compress_raw(data[start : start + block_bytes]))
            parts += struct.pack(">i", len(block)), block
        return b"".join(parts)

    return framed


def _raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def _zstd_flushed(data: bytes) -> bytes:
    compressor = zstandard.ZstdCompressor().compressobj()
    parts: list[bytes] = []
    for start in range(0, len(data), 1000):
        parts += (
            compressor.compress(data[start : start + 1000]),
            compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK),
        )
    return b"".join([*parts, compressor.flush()])


def _zstd_framing(**parameters: Any) -> Callable[[bytes], bytes]:
    return lambda data: zstandard.ZstdCompressor(**parameters).compress(data)


def _zstd_frames(data: bytes) -> bytes:
    half = len(data) // 2
    return b"".join(zstandard.ZstdCompressor().compress(part) for part in (data[:half], data[half:]))


def _gzip_members(data: bytes) -> bytes:
    return b"".join(gzip.compress(data[start : start + 5000]) for start in range(0, len(data), 5000))


def _gzip_named(data: bytes) -> bytes:
    target = io.BytesIO()
    with gzip.GzipFile("records.bin", "wb", fileobj=target) as stream:
        stream.write(data)
    return target.getvalue()


Framing = tuple[str, Callable[[bytes], bytes]]
FRAMINGS: dict[str, Framing] = {
    "lz4 linked blocks": ("lz4", _lz4_framing(block_linked=True)),
    "lz4 content checksum": ("lz4", _lz4_framing(content_checksum=True)),
    "lz4 block checksums": ("lz4", _lz4_framing(block_checksum=True)),
    "lz4 without content size": ("lz4", _lz4_framing(store_size=False)),
    "lz4 blocks of 4 MB": ("lz4", _lz4_framing(block_size=lz4.frame.BLOCKSIZE_MAX4MB)),
    "lz4 flushed often": ("lz4", _lz4_flushed),
    "lz4 two frames": ("lz4", _lz4_frames),
    "snappy raw": ("snappy", _raw_snappy),
    "snappy blocks of 1 KiB": ("snappy", _xerial(1024)),
    "snappy one block": ("snappy", _xerial(2**24)),
    "snappy little-endian versions": ("snappy", _xerial(32768, "<")),
    "zstd without content size": ("zstd", _zstd_framing(write_content_size=False)),
    "zstd checksum": ("zstd", _zstd_framing(write_checksum=True)),
    "zstd flushed often": ("zstd", _zstd_flushed),
    "zstd two frames": ("zstd", _zstd_frames),
    "gzip members": ("gzip", _gzip_members),
    "gzip with a file name": ("gzip", _gzip_named),
    "gzip stored": ("gzip", lambda data: gzip.compress(data, 0)),
}
# Lz4BlockInputStream knows neither linked blocks nor a second frame.
NOT_FOR_JAVA = {"lz4 linked blocks", "lz4 two frames"}
WITH_CHECKSUM = ("lz4 content checksum", "zstd checksum", "gzip members")
FRAMED_ROWS: list[plain.Row] = [
    (
        b"key-%d" % number,
        random.Random(number).randbytes(20) + b"padding" * 20,
        (("h", None),),
        10**12 - number,
    )
    for number in range(1500)
]
FRAMED_RECORDS = plain.decode(plain.encode(FRAMED_ROWS))[0].records


@pytest.mark.parametrize("name", FRAMINGS)
def test_foreign_framing_is_read(name: str) -> None:
    compression, compressor = FRAMINGS[name]
    data = plain.encode(FRAMED_ROWS, compression=compression, compressor=compressor)
    (batch,) = ours.read(data)
    assert batch.records == FRAMED_RECORDS
    assert batch.header["compression"] == compression


@pytest.mark.java
@pytest.mark.parametrize("name", sorted(FRAMINGS.keys() - NOT_FOR_JAVA))
def test_java_reads_the_framing_too(java_oracle: JavaOracle, name: str) -> None:
    compression, compressor = FRAMINGS[name]
    data = plain.encode(FRAMED_ROWS, compression=compression, compressor=compressor)
    assert java_oracle.read_valid(data)[0].records == FRAMED_RECORDS


@pytest.mark.parametrize("name", FRAMINGS)
@pytest.mark.parametrize("cut", [1, 5, 1000])
def test_C02_a_stream_that_ends_early_is_corrupt(name: str, cut: int) -> None:
    compression, compressor = FRAMINGS[name]
    data = plain.encode(
        FRAMED_ROWS, compression=compression, compressor=lambda content: compressor(content)[:-cut]
    )
    with pytest.raises(kbatch.CorruptRecordError):
        ours.read(data)


@pytest.mark.parametrize("name", WITH_CHECKSUM)
def test_C02_a_wrong_checksum_of_the_stream_is_corrupt(name: str) -> None:
    compression, compressor = FRAMINGS[name]

    def spoiled(content: bytes) -> bytes:
        framed = bytearray(compressor(content))
        framed[-1] ^= 1
        return bytes(framed)

    data = plain.encode(FRAMED_ROWS, compression=compression, compressor=spoiled)
    with pytest.raises(kbatch.CorruptRecordError):
        ours.read(data)


@pytest.mark.parametrize("name", FRAMINGS)
def test_the_limit_on_decompressed_bytes_is_exact(name: str) -> None:
    compression, compressor = FRAMINGS[name]
    data = plain.encode(FRAMED_ROWS, compression=compression, compressor=compressor)
    size = len(plain.encode(FRAMED_ROWS)) - plain.HEADER_BYTES
    (batch,) = kbatch.decode(data, max_decompressed_bytes=size)
    assert len(list(batch)) == len(FRAMED_ROWS)
    (batch,) = kbatch.decode(data, max_decompressed_bytes=size - 1)
    with pytest.raises(kbatch.CorruptRecordError):
        list(batch)


@pytest.mark.parametrize("compression", plain.CODECS[1:])
def test_C03_bytes_after_the_last_record_are_corrupt(compression: str) -> None:
    data = plain.encode(
        FRAMED_ROWS,
        compression=compression,
        compressor=lambda content: plain.compress(content + b"\0", compression),
    )
    with pytest.raises(kbatch.CorruptRecordError):
        ours.read(data)


@pytest.mark.parametrize("compression", plain.CODECS[1:])
def test_C03_a_stream_of_no_bytes_is_corrupt(compression: str) -> None:
    data = plain.encode(FRAMED_ROWS[:1], compression=compression, compressor=lambda _: b"")
    with pytest.raises(kbatch.CorruptRecordError):
        ours.read(data)
