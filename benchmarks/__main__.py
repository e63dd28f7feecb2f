"""`python -m benchmarks [GROUP ...]`: measures, prints, and writes docs/benchmarks.md, in which groups that
were not asked for stay as they are. The groups of `kbatch bench` run against a real Kafka here.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import (
    broker,
    checksum,
    column_json,
    costs,
    decode,
    encode_objects,
    encode_table,
    pressure,
    protocol,
    scaling,
    send,
    send_table,
    spark_encode,
    spark_sink,
    threads,
)
from benchmarks.contest import described, fetch_jars, kafka
from benchmarks.peers import Peers
from kbatch.bench.contest import JAVA_OPTIONS, SETTINGS
from kbatch.bench.groups import GROUPS as CONTESTS
from kbatch.bench.groups import Group
from kbatch.bench.harness import Question, measure
from kbatch.bench.plan import Plan
from kbatch.bench.runner import run
from kbatch.bench.settings import told

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
ROUNDS = 40
COSTS = "costs"  # a page of its own
# Questions whose contenders run in this process, or measure themselves.
LOCAL: Mapping[str, Sequence[Callable[[Peers], Question]]] = {
    "encode-objects": [encode_objects.question],
    "encode-table": encode_table.QUESTIONS,
    "decode": [decode.question],
    "send": [send.question],
    "send-table": send_table.QUESTIONS,
    "column-json": [column_json.question],
    "checksum": [checksum.question],
    "protocol": [protocol.question],
    "broker": [broker.question],
}
HEAD = """# Benchmarks

Made by `make bench` (`.venv/bin/python -m benchmarks`; with names of groups, as `throughput` or
`encode-table`, of those alone). `kbatch bench` measures the contests against a Kafka of yours. What it costs
to send a record, stage by stage, and how that grows, is in [costs.md](costs.md).

Contenders take turns round by round, so that a change of the machine's speed meets all of them; a ratio is
the median of the rounds' own, and for what another process measured by itself, as the Java codec, of the
lowest. Clients live in a process each and send to one real Kafka that shares the cores, its log in memory;
what they sent is counted and compared, byte by byte, by another client. Keys have 16 bytes, values are JSON
of 100. Settings, where a question names no others:

{settings}
"""


def local(questions: Sequence[Callable[[Peers], Question]], peers: Peers) -> Group:
    def group(plan: Plan) -> Iterator[Question]:
        for ask in questions:
            yield measure(ask(peers), plan.rounds_of(ROUNDS))

    return group


def commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, cwd=PAGE.parent).stdout.strip()


def main() -> None:
    peers = Peers()
    groups = {
        **CONTESTS,
        **{name: local(questions, peers) for name, questions in LOCAL.items()},
        "pressure": pressure.questions,
        "scaling": scaling.questions,
        "threads": threads.questions,
        "spark": spark_sink.questions,
        "spark-encode": spark_encode.questions,
    }
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = [*groups, COSTS]
    parser.add_argument(
        "groups", nargs="*", metavar="GROUP", help=f"{', '.join(names)}; all when none is named"
    )
    parser.add_argument("--quick", action="store_true", help="a twentieth of the records, two rounds")
    parser.add_argument("--rounds", type=int, help="instead of what each group has of its own")
    parser.add_argument("--print", action="store_true", dest="prints", help="print, and leave the page alone")
    arguments = parser.parse_args()
    if unknown := set(arguments.groups) - set(names):
        parser.error(f"no group {', '.join(sorted(unknown))}: they are {', '.join(names)}")
    asked = arguments.groups or names
    fetch_jars()
    plan = Plan(kafka, arguments.quick, arguments.rounds)
    page = None if arguments.prints else PAGE
    now = commit()
    settings = [f"- The broker: {described()}.", *told(SETTINGS, JAVA_OPTIONS)]
    head = HEAD.format(settings="\n".join(settings))
    run([name for name in asked if name in groups], plan, page, head, groups=groups, commit=now)
    if COSTS in asked:
        costs.write(plan, None if arguments.prints else PAGE.with_name("costs.md"), now)


if __name__ == "__main__":
    main()
