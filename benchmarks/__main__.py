"""`python -m benchmarks [QUESTION ...]`: measures, prints, and writes docs/benchmarks.md when all questions
were asked.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import (
    broker,
    checksum,
    column_json,
    decode,
    encode_objects,
    encode_table,
    latency,
    pressure,
    producer,
    protocol,
    send,
    send_table,
)
from benchmarks.harness import Question, measure, report
from benchmarks.peers import Peers

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
QUESTIONS: Mapping[str, Sequence[Callable[[Peers], Question]]] = {
    "encode_objects": [encode_objects.question],
    "encode_table": encode_table.QUESTIONS,
    "decode": [decode.question],
    "send": [send.question],
    "send_table": send_table.QUESTIONS,
    "column_json": [column_json.question],
    "checksum": [checksum.question],
    "protocol": [protocol.question],
    "broker": [broker.question],
    "producer": producer.QUESTIONS,
    "latency": latency.QUESTIONS,
    "pressure": pressure.QUESTIONS,
}
PACKAGES = (
    "kbatch", "aiokafka", "kafka-python", "confluent-kafka", "kio", "lz4", "zstandard", "cramjam", "isal",
    "pyarrow", "crc32c", "google-crc32c",
)  # fmt: skip


def machine() -> str:
    """CPU, cores, Python and packages, as a sentence each."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":")[1].strip()
            for line in info.read_text().splitlines()
            if line.startswith("model name")
        ]
        cpu = names[0] if names else cpu
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=PAGE.parent
    )
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    return (
        f"{datetime.date.today()}, commit {commit.stdout.strip() or '?'}. {cpu}, {os.cpu_count()} cores, "
        f"{platform.system()}, Python {platform.python_version()}. {versions}; kafka-clients 4.3.1."
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "questions", nargs="*", metavar="QUESTION", help=f"{', '.join(QUESTIONS)}; all when none is named"
    )
    parser.add_argument("--rounds", type=int, default=40)
    arguments = parser.parse_args()
    peers = Peers()
    sections = []
    for name in arguments.questions or QUESTIONS:
        for ask in QUESTIONS[name]:
            sections.append(report(measure(ask(peers), arguments.rounds)))
            print(sections[-1], flush=True)
    if not arguments.questions:
        PAGE.write_text("\n".join([HEAD.format(machine=machine()), *sections]))


HEAD = """# Benchmarks

Made by `make bench`: contenders take turns round by round, so that a change of the machine's speed meets
all of them; ratios are medians of the rounds' own, and for what another process measured, as Java's, of
the lowest. Records have 16-byte keys and 100-byte JSON values.

{machine}
"""

if __name__ == "__main__":
    main()
