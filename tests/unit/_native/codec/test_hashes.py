"""CRC-32C and murmur2: vectors, laws and arguments."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

import kbatch
from tests.oracle import plain
from tests.property import crc_laws
from tests.unit.test_oracle import MURMUR2

# iSCSI's vectors (RFC 3720, B.4), and Kafka's check value.
CRC_VECTORS = {
    b"": 0,
    b"123456789": 0xE3069283,
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(range(31, -1, -1)): 0x113FDB5C,
}


@pytest.mark.parametrize(("data", "crc"), CRC_VECTORS.items(), ids=lambda value: repr(value)[:20])
def test_crc32c_vectors(data: bytes, crc: int) -> None:
    assert kbatch.crc32c(data) == crc
    assert kbatch.crc32c(memoryview(bytearray(data))) == crc
    assert kbatch.crc32c(data[4:], kbatch.crc32c(data[:4])) == crc


def chosen_by(choice: str) -> str:
    """Return the implementation that a new interpreter uses, and check that it computes."""
    code = "import kbatch; print(kbatch.crc32c_implementation, kbatch.crc32c(b'123456789'))"
    environment = os.environ | {"KBATCH_CRC32C": choice}
    printed = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    implementation, crc = printed.split()
    assert crc == str(0xE3069283)
    return implementation


def test_crc32c_names_its_implementation() -> None:
    assert kbatch.crc32c_implementation in crc_laws.IMPLEMENTATIONS


@pytest.mark.slow
def test_the_environment_chooses_the_implementation() -> None:
    assert chosen_by("table") == "table"
    fastest = chosen_by("")
    assert fastest in crc_laws.IMPLEMENTATIONS
    for none in ("anything else", "tabl\xe9", "TABLE"):
        assert chosen_by(none) == fastest


def test_crc32c_runs_beside_itself() -> None:
    """Above 16 KiB the GIL is released; no other thread may change the bytes."""
    data = bytes(range(256)) * 4096
    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(kbatch.crc32c(data))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(results) == {kbatch.crc32c(data[1:], kbatch.crc32c(data[:1]))}


@pytest.mark.parametrize(("key", "hashed"), MURMUR2.items())
def test_murmur2_vectors(key: bytes, hashed: int) -> None:
    assert kbatch.murmur2(key) == kbatch.murmur2(bytearray(key)) == hashed
    for partitions in (1, 2, 7, plain.INT32_MAX):
        assert kbatch.partition_for_key(key, partitions) == (hashed & plain.INT32_MAX) % partitions


@pytest.mark.parametrize(
    "call", [kbatch.crc32c, kbatch.murmur2, lambda key: kbatch.partition_for_key(key, 5)]
)
@pytest.mark.parametrize("data", [None, "text", 5, [1]])
def test_what_is_no_bytes_is_refused(call: Callable[[object], int], data: object) -> None:
    with pytest.raises(TypeError, match="bytes-like"):
        call(data)


def test_arguments_out_of_range_are_refused() -> None:
    for value in (-1, 2**32):
        with pytest.raises(OverflowError):
            kbatch.crc32c(b"", value)
    with pytest.raises(OverflowError):
        kbatch.crc32c_combine(0, 0, -1)
    for partitions in (0, -1):
        with pytest.raises(ValueError, match=f"partitions must be 1 or more, .* got {partitions}"):
            kbatch.partition_for_key(b"k", partitions)
