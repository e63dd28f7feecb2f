"""How fast is CRC-32C over 128 KiB? The limit is the CPU's CRC instruction, eight bytes a cycle."""

from __future__ import annotations

from benchmarks.clients.java_codec import Peers
from benchmarks.pages.harness import Claim, Contender, Question

SIZE = 128 * 1024
CALLS = 100


def question(peers: Peers) -> Question:
    import crc32c as crc32c_package
    import google_crc32c

    import kbatch

    data = bytes(range(256)) * (SIZE // 256)

    def kbatch_crc() -> None:
        for _ in range(CALLS):
            kbatch.crc32c(data)

    def package() -> None:
        for _ in range(CALLS):
            crc32c_package.crc32c(data)

    def google() -> None:
        for _ in range(CALLS):
            google_crc32c.value(data)

    assert kbatch.crc32c(data) == crc32c_package.crc32c(data) == google_crc32c.value(data)
    kib = CALLS * SIZE // 1024
    return Question(
        "CRC-32C of 128 KiB",
        f"kbatch uses {kbatch.crc32c_implementation} here.",
        [
            Contender("kbatch.crc32c", kib, kbatch_crc),
            Contender("crc32c", kib, package),
            Contender("google-crc32c", kib, google),
        ],
        [
            Claim("kbatch.crc32c", "crc32c", 1.0, "as fast as crc32c"),
            Claim("kbatch.crc32c", "google-crc32c", 1.0, "as fast as google-crc32c"),
        ],
        unit="ns a KiB",
    )
