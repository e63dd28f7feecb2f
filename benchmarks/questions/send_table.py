"""What does `send_table` cost a row, from Arrow memory to a batch that is sealed, drained and answered?
Without compression the limit is the copy and CRC of the same bytes. Peers: `encode_arrow`, which makes the
same batches and keeps them, and `send_many`, which gets the same rows as Python objects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.clients.java_codec import Peers
from benchmarks.clients.work import TABLE_ROWS, table
from benchmarks.pages.harness import Claim, Contender, Question
from benchmarks.questions.limit import CopyAndChecksum
from benchmarks.questions.send import PARTITIONS, Direct, Drained
from kbatch._native.send.table_sender import TableSender
from kbatch.bench.workload import record

ROLES = ("key", "value", "headers", "timestamp", "partition")
NAMES = {role: (role, role == "value") for role in ROLES}


def question(peers: Peers, codec: str, batch_size: int) -> Question:
    import kbatch

    data = table()
    rows: list[tuple[Any, ...]] = [record(number) for number in range(TABLE_ROWS)]
    drained = Drained(compression=codec, batch_size=batch_size)
    sender = Direct(drained.records)
    sender._accumulator.accepts_directly = True

    def encode(threads: int = 1) -> Any:
        return kbatch.encode_arrow(
            data, partitions=PARTITIONS, compression=codec, batch_size=batch_size, threads=threads
        )

    def send_table() -> None:
        sending = TableSender(sender, "t", data, NAMES)
        assert sending.accept() is True
        sending.end()
        drained.flush()
        assert sending.outcome.is_done and not sending.outcome.failed_count

    def send_many() -> None:
        sender.send_many("t", rows)
        drained.flush()

    batches = [bytes(batch.as_buffer()) for batch in encode()["batch"]]
    contenders = [
        Contender("encode_arrow", TABLE_ROWS, encode, note="into memory"),
        Contender("send_table", TABLE_ROWS, send_table, note="all answered"),
        Contender("send_many", TABLE_ROWS, send_many, note="all answered"),
    ]
    claims = [Claim("send_table", "send_many", 1 / 3, "send_table: 3 x as fast as send_many")]
    if codec == "none":
        limit = CopyAndChecksum(b"".join(batches), len(batches[0]))
        contenders.insert(0, Contender("limit", TABLE_ROWS, limit, note="memcpy + CRC-32C"))
        claims.append(Claim("send_table", "limit", 3, "send_table, none: at most 3 x the limit"))
    return Question(
        f"A table accepted and answered, {codec}, batches of {batch_size >> 10} KiB",
        f"{TABLE_ROWS:,} rows of key, value and timestamp, {PARTITIONS} partitions by murmur2 of the key; "
        "the calling thread seals.",
        contenders,
        claims,
    )


QUESTIONS: list[Callable[[Peers], Question]] = [
    lambda peers, codec=codec, size=size: question(peers, codec, size)  # type: ignore[misc]
    for codec in ("none", "lz4")
    for size in (16 << 10, 128 << 10)
]
