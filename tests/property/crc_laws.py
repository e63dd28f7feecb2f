"""The laws of CRC-32C, for whichever implementation this process has; run as a module, it checks them all."""

import random

import crc32c
import google_crc32c

import kbatch

IMPLEMENTATIONS = ("avx512+vpclmulqdq", "sse4.2+pclmul", "armv8-crc", "table")
ALIGNMENTS = range(16)
# With vectors 256 bytes go at a time, then 64, then 8, then 1: up to two rounds of the first, with all rests.
VECTOR_LENGTHS = range(2 * 256 + 2 * 64)
# Around what the hardware's three lanes take at a time: 3 x 512 and 3 x 8192 bytes, and several of each.
LANE_EDGES = [
    lanes * size + edge for size in (1536, 24576) for lanes in (1, 2, 3) for edge in (-9, -8, -1, 0, 1, 8, 9)
]
NOISE = random.Random(32).randbytes(1 << 17)


def check_lengths_and_alignments() -> None:
    for length in [*VECTOR_LENGTHS, *LANE_EDGES]:
        for start in ALIGNMENTS:
            data = memoryview(NOISE)[start : start + length]
            expected = crc32c.crc32c(data)
            assert kbatch.crc32c(data) == expected == google_crc32c.value(bytes(data)), (length, start)


def check_going_on() -> None:
    """Check that the CRC of a whole is that of its second part, begun at the CRC of its first."""
    rng = random.Random(1)
    for length in [*range(40), 300, 5000, *LANE_EDGES]:
        data = NOISE[:length]
        whole = crc32c.crc32c(data)
        for cut in {0, length, *(rng.randrange(length + 1) for _ in range(8))}:
            first, second = kbatch.crc32c(data[:cut]), kbatch.crc32c(data[cut:])
            assert kbatch.crc32c(data[cut:], first) == whole, (length, cut)
            assert kbatch.crc32c_combine(first, second, length - cut) == whole, (length, cut)


def check_combining() -> None:
    """Check sizes too large to hash: joining is associative, and joining nothing changes nothing."""
    rng = random.Random(2)
    for _ in range(200):
        a, b, c = (rng.getrandbits(32) for _ in range(3))
        size_b, size_c = (rng.getrandbits(rng.randrange(1, 62)) for _ in range(2))
        left = kbatch.crc32c_combine(kbatch.crc32c_combine(a, b, size_b), c, size_c)
        right = kbatch.crc32c_combine(a, kbatch.crc32c_combine(b, c, size_c), size_b + size_c)
        assert left == right, (a, b, c, size_b, size_c)
        assert kbatch.crc32c_combine(a, 0, 0) == a
        assert kbatch.crc32c_combine(0, b, size_b) == b
    for size in (*range(70), 4096, 100_000):
        zeros = bytes(size)
        assert kbatch.crc32c_combine(0x12345678, kbatch.crc32c(zeros), size) == crc32c.crc32c(
            zeros, 0x12345678
        )


def check_all() -> None:
    check_lengths_and_alignments()
    check_going_on()
    check_combining()


if __name__ == "__main__":
    check_all()
    print(kbatch.crc32c_implementation)
