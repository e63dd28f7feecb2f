"""How long do calls of administration about 1,000 items take, and how much processor time?"""

from __future__ import annotations

import itertools
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

from benchmarks.clients.administrators import CONFLUENT, KBATCH, STEPS, AdminDriver
from benchmarks.clients.contest import JAVA_OPTIONS, able
from benchmarks.clients.contestants import JAVA, kafka_jars
from benchmarks.pages.harness import Claim, Contender, Question
from benchmarks.pages.plan import Plan
from kbatch import Admin, TopicPartition
from kbatch.bench.cluster import Cluster
from kbatch.bench.contest import Answer
from kbatch.errors import PartialFailure
from tests.support.patience import repeat_while

NAMES = (KBATCH, CONFLUENT, JAVA)
COUNT, QUICK_COUNT, ROUNDS = 1000, 20, 5
# Java's compiler needs two, and so does a broker that has just started.
WARM_UP_ROUNDS = 2
# By step the most processor time, as a multiple of confluent-kafka's.
MOST_CPU: Mapping[str, float] = {
    "create": 2.2,
    "describe": 0.8,
    "settings": 0.7,
    "alter": 1.0,
    "ends": 2.0,
    "commit": 1.1,
    "list_groups": 1.7,
    "describe_groups": 0.6,
    "delete_groups": 0.7,
    "delete": 2.0,
}
GROUPS_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
SHELL_ROUNDS = 7

Answers = dict[tuple[str, str], list[Answer]]


def cpu(name: str) -> str:
    """Return what a contender is called for its processor time."""
    return f"{name}, CPU"


_FIGURES: Sequence[tuple[Callable[[str], str], str]] = ((str, "elapsed_ns"), (cpu, "cpu_ns"))


def questions(plan: Plan) -> Iterator[Question]:
    count = QUICK_COUNT if plan.quick else COUNT
    with plan.cluster() as cluster:
        answers = _answers(cluster, able(NAMES), count, plan.rounds_of(ROUNDS))
        for step, text in STEPS.items():
            yield _question(step, text.format(count=count), answers, count)
        yield from _shell(cluster, count, plan.rounds_of(SHELL_ROUNDS))


def _answers(cluster: Cluster, names: Sequence[str], count: int, rounds: int) -> Answers:
    """Let clients do all steps, in turns."""
    answers: Answers = {}
    with ExitStack() as stack:
        drivers = [stack.enter_context(AdminDriver(each, cluster.bootstrap_servers)) for each in names]
        admin = stack.enter_context(Admin(bootstrap_servers=cluster.bootstrap_servers))
        for number, driver in itertools.product(range(-WARM_UP_ROUNDS, rounds), drivers):
            prefix = f"kbatch-bench-{uuid4().hex[:8]}"
            for step in STEPS:
                answer = driver.ask({"step": step, "prefix": prefix, "count": count})
                if step == "create":
                    _await_leaders(admin, prefix, count)
                if number >= 0:
                    answers.setdefault((step, driver.name), []).append(answer)
    return answers


def _await_leaders(admin: Admin, prefix: str, count: int) -> None:
    """Return once the broker knows the new topics, and leads them, which is a moment later."""
    ends = {TopicPartition(f"{prefix}-{number}", 0): "latest" for number in range(count)}
    repeat_while(PartialFailure, lambda: admin.topics.offsets(ends))


def _question(step: str, title: str, answers: Answers, count: int) -> Question:
    names = [name for name in NAMES if (step, name) in answers]
    return Question(
        title[0].upper() + title[1:],
        "One call, or for commits one a group, all at once. The client is warm, and runs in a process of its "
        f"own; the first {WARM_UP_ROUNDS} rounds do not count. CPU is that of its process.",
        [
            Contender(
                label(name),
                count,
                timings=[answer[figure] / 1e6 for answer in answers[step, name]],
                note=_shortfall(answers[step, name], count),
            )
            for label, figure in _FIGURES
            for name in names
        ],
        [
            Claim(KBATCH, JAVA, 1.0, "at most Java's time"),
            Claim(
                cpu(KBATCH),
                cpu(CONFLUENT),
                MOST_CPU[step],
                f"{MOST_CPU[step]:g} x the processor time of confluent-kafka, or less",
            ),
        ],
        "ms",
        in_turns=True,
        speaks_of_speed=False,
    )


def _shortfall(answers: Sequence[Answer], count: int) -> str:
    """Say how many items failed, if any did."""
    failed = [count - answer["done"] for answer in answers]
    return f"up to {max(failed):,} failed" if any(failed) else ""


# From a shell


def _shell(cluster: Cluster, count: int, rounds: int) -> Iterator[Question]:
    servers = ["--bootstrap-server", cluster.bootstrap_servers]
    commands = {"kbatch groups list": [sys.executable, "-m", "kbatch.cli", "groups", "list", *servers]}
    if (jars := kafka_jars()) is not None:
        java = ["java", *JAVA_OPTIONS, "-cp", f"{jars}/*", GROUPS_TOOL, "--list", *servers]
        commands["kafka-consumer-groups --list"] = java
    offset: Any = {TopicPartition("kbatch-bench-shell", 0): 0}
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.topics.create("kbatch-bench-shell", partitions=1, replication_factor=1)
        for number in range(count):
            admin.groups.commit_offsets(f"kbatch-bench-shell-{number}", offset)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(rounds):
            for name, command in commands.items():
                found[name].append(_run(command, count))
        admin.groups.delete([f"kbatch-bench-shell-{number}" for number in range(count)])
        admin.topics.delete("kbatch-bench-shell")
    ours, *others = commands
    yield Question(
        f"List {count:,} groups from a shell",
        "A process from its start to its end; CPU is its own.",
        [
            Contender(
                name,
                1,
                timings=[elapsed for elapsed, _ in runs],
                note=f"{statistics.median(cpu for _, cpu in runs):,.0f} ms of CPU",
            )
            for name, runs in found.items()
        ],
        [Claim(ours, other, 1 / 3, "a third of the time of Kafka's tool, or less") for other in others],
        "ms",
        in_turns=True,
        speaks_of_speed=False,
    )


def _run(command: Sequence[str], count: int) -> tuple[float, float]:
    """Return the time and the processor time of a process that prints so many groups, in milliseconds."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    elapsed, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    listed = sum("kbatch-bench-shell-" in line for line in done.stdout.splitlines())
    if listed != count:
        raise RuntimeError(f"{command[0]} listed {listed} groups of {count}")
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return elapsed * 1e3, used * 1e3
