"""Measure groups, print the results and write their pages in docs/: `python -m benchmarks [GROUP ...]`.

Contests of clients run against a real Kafka. Pages of other groups stay as they are.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence

from benchmarks.clients.contest import JAVA_OPTIONS
from benchmarks.clients.described import describe_settings
from benchmarks.clients.java_codec import Peers
from benchmarks.clients.kafka import described, fetch_jars, kafka
from benchmarks.pages import summary
from benchmarks.pages.harness import Question, measure
from benchmarks.pages.page import GroupPages
from benchmarks.pages.plan import Plan
from benchmarks.pages.runner import run
from benchmarks.questions import (
    admin,
    broker,
    checksum,
    column_json,
    consumer,
    costs,
    decode,
    encode_objects,
    encode_table,
    formats,
    pace,
    pressure,
    protocol,
    read,
    scaling,
    security,
    send,
    send_table,
    spark_encode,
    spark_sink,
    spark_source,
    threads,
)
from benchmarks.questions.groups import GROUPS as CONTESTS
from benchmarks.questions.groups import Group
from kbatch.bench.contest import SETTINGS

ROUNDS = 40
COSTS = "costs"  # a page of its own
# Questions whose contenders run in this process or measure themselves.
LOCAL: Mapping[str, Sequence[Callable[[Peers], Question]]] = {
    "encode-objects": [encode_objects.question],
    "encode-table": encode_table.QUESTIONS,
    "decode": [decode.question],
    "send": [send.question],
    "send-table": send_table.QUESTIONS,
    "column-json": [column_json.question],
    "checksum": [checksum.question],
    "protocol": [protocol.question],
}


def local(questions: Sequence[Callable[[Peers], Question]], peers: Peers) -> Group:
    def group(plan: Plan) -> Iterator[Question]:
        for ask in questions:
            yield measure(ask(peers), plan.rounds_of(ROUNDS))

    return group


def commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, cwd=summary.SUMMARY.parent).stdout.strip()


def benchmark_pages() -> GroupPages:
    settings = [f"- The broker: {described()}.", *describe_settings(SETTINGS, JAVA_OPTIONS)]
    foot = summary.FOOT.format(settings="\n".join(settings))
    return GroupPages(summary.SUMMARY, summary.HEAD, foot, summary.QUESTIONS, summary.FIGURES)


def main() -> None:
    peers = Peers()
    groups = {
        **CONTESTS,
        **{name: local(questions, peers) for name, questions in LOCAL.items()},
        "admin": admin.questions,
        "broker": broker.questions,
        "consumer": consumer.questions,
        "formats": formats.questions,
        "pace": pace.questions,
        "pressure": pressure.questions,
        "read": read.questions,
        "scaling": scaling.questions,
        "security": security.questions,
        "threads": threads.questions,
        "spark": spark_sink.questions,
        "spark-source": spark_source.questions,
        "spark-encode": spark_encode.questions,
    }
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = [*groups, COSTS]
    parser.add_argument(
        "groups", nargs="*", metavar="GROUP", help=f"{', '.join(names)}; the default is all of them"
    )
    parser.add_argument("--quick", action="store_true", help="a twentieth of the records in two rounds")
    parser.add_argument("--rounds", type=int, help="number of rounds, instead of each group's own")
    parser.add_argument("--print", action="store_true", dest="prints", help="only print, and write no page")
    arguments = parser.parse_args()
    if unknown := set(arguments.groups) - set(names):
        parser.error(f"there is no group {', '.join(sorted(unknown))}; the groups are {', '.join(names)}")
    chosen = arguments.groups or names
    fetch_jars()
    plan = Plan(kafka, arguments.quick, arguments.rounds)
    now = commit()
    page = None if arguments.prints else benchmark_pages()
    run([name for name in chosen if name in groups], plan, page, groups=groups, commit=now)
    if COSTS in chosen:
        costs.write(plan, None if arguments.prints else summary.SUMMARY.with_name("costs.md"), now)


if __name__ == "__main__":
    main()
