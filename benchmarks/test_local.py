"""The rows of the questions that pytest-benchmark measures in this process: `make bench-compare`.

The questions are those of docs/benchmarks.md (`python -m benchmarks`) without Java. Each row comes with the
time of zlib's CRC-32 at that moment, which makes runs of different speed comparable.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from benchmarks.clients.java_codec import Peers
from benchmarks.compare import GROUP, REFERENCE
from benchmarks.pages.harness import Contender, Question
from benchmarks.questions import checksum, decode, encode_objects, encode_table, primitives, send

QUESTIONS: dict[str, Callable[[Peers], Question]] = {
    "varint": primitives.varint_question,
    "crc": checksum.question,
    "encode": encode_objects.question,
    "encode table": encode_table.plain_question,
    "decode": decode.question,
    "append": send.question,
    "partition": primitives.partition_question,
    "ratio": primitives.ratio_question,
}
DATA = bytes(range(256)) * 256


class NoJava(Peers):
    def _ask(self, question: Callable[..., Any]) -> None:
        return None


@cache
def contenders(group: str) -> dict[str, Contender]:
    return {contender.name: contender for contender in QUESTIONS[group](NoJava()).contenders}


def reference_ns() -> int:
    """Return the shortest of a few turns of zlib's CRC-32 over 64 KiB."""
    taken = []
    for _ in range(200):
        begun = time.process_time_ns()
        zlib.crc32(DATA)
        taken.append(time.process_time_ns() - begun)
    return min(taken)


@pytest.mark.parametrize(
    ("group", "name"), [(group, name) for group in QUESTIONS for name in contenders(group)]
)
@pytest.mark.benchmark(timer=time.process_time)  # of all threads: other processes hardly matter
def test_row(benchmark: Any, group: str, name: str) -> None:
    contender = contenders(group)[name]
    assert contender.run is not None
    benchmark.group = group
    before = reference_ns()
    benchmark(contender.run)
    benchmark.extra_info |= {GROUP: f"{group}: {name}", REFERENCE: min(before, reference_ns())}
