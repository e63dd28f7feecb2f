"""Java's choice of a partition for a key in plain Python, independent of kbatch, whose choice it checks.

The algorithm is Austin Appleby's MurmurHash2 with Kafka's seed (org.apache.kafka.common.utils.Utils.murmur2).
"""

SEED, MULTIPLIER, SHIFT = 0x9747B28C, 0x5BD1E995, 24
MASK = 0xFFFFFFFF

# Made with kafka-clients, as the signed 32-bit numbers that Java shows.
GOLDEN = {
    b"": 275646681,
    b"21": -973932308,
    b"foobar": -790332482,
    b"abc": 479470107,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
}


def murmur2(key: bytes) -> int:
    """Return the hash as an unsigned 32-bit number."""
    hashed = (SEED ^ len(key)) & MASK
    whole = len(key) - len(key) % 4
    for start in range(0, whole, 4):
        word = int.from_bytes(key[start : start + 4], "little") * MULTIPLIER & MASK
        word = (word ^ word >> SHIFT) * MULTIPLIER & MASK
        hashed = hashed * MULTIPLIER & MASK ^ word
    if rest := key[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * MULTIPLIER & MASK
    hashed = (hashed ^ hashed >> 13) * MULTIPLIER & MASK
    return hashed ^ hashed >> 15


def java_partition(key: bytes, partitions: int) -> int:
    """Return the partition that Kafka's Java producer chooses for a key that is not null."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def check() -> None:
    """Raise AssertionError unless `murmur2` gives Java's hashes for the golden keys."""
    for key, expected in GOLDEN.items():
        if murmur2(key) != expected & MASK:
            raise AssertionError(f"murmur2({key!r}) is {murmur2(key)}, Java says {expected & MASK}")
