"""The campaign of killed transactions: clients and a real Kafka are killed in turn; each record arrives once.

Theory of operation. A block is a Kafka with transaction version 2, 1, or none, and two workers that read
records and write each one transformed in transactions, some of which they abort first (aborting_worker.py).
After enough output one worker, or the broker, is killed with SIGKILL and started again. Meanwhile, and at the
end from the start, librdkafka reads at read_committed (exactly_once.py): nothing is lost, doubled, out of
order or aborted. Then Kafka's AdminClient must find no transaction open.

Kafka itself sometimes loses acknowledged records. From 4.0 on, a coordinator that starts before the
partitions of a prepared transaction have leaders treats them as deleted, and completes the transaction
without their markers (KRaftMetadataCache.getPartitionLeaderEndpoint reports "no such partition" for a
leaderless one; TransactionMarkerChannelManager logs it). Their records then share the fate of the next
transaction. If this was logged and a check fails, the block restarts with another Kafka; the outcomes count
it.

A block's number determines its actions; the system decides what a kill interrupts.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import ExitStack, closing
from typing import Any

from tests import ROOT
from tests.fuzz import campaign
from tests.fuzz.exactly_once import TARGET, Task, Worker
from tests.oracle import java_clients
from tests.oracle.kafka import RealKafka

BLOCK_CASES = 10
PARTITIONS = 4
WORKERS = 2
# Given at once to each partition; a kill comes when some of them have come out.
GIVEN_RECORDS = 150
KAFKAS: tuple[dict[str, Any], ...] = (
    {"transaction_version": 2},
    {"transaction_version": 1},
    {"transaction_version": None, "version": "3.9.1"},
)
SKIPPING = "these partitions are likely deleted already and hence can be skipped"
JAVA_OPTIONS = (
    "-Dorg.slf4j.simpleLogger.log.kafka.coordinator.transaction.TransactionMarkerChannelManager=info",
)
PROGRAM = (str(ROOT / "tests" / "fuzz" / "aborting_worker.py"),)


def play(run: campaign.Run) -> None:
    """Check a block of kills."""
    rng = random.Random(f"transaction kills {run.block}")
    while (left := run.cases - run.outcomes["broker killed"] - run.outcomes["client killed"]) > 0:
        with RealKafka(**KAFKAS[run.block % len(KAFKAS)], java_options=JAVA_OPTIONS) as broker:
            try:
                run.outcomes += judge(broker, run, left, rng)
            except AssertionError:
                if not broker.has_printed(SKIPPING):
                    raise
                run.outcomes["begun anew, for Kafka had skipped markers"] += 1


def judge(broker: RealKafka, run: campaign.Run, rounds: int, rng: random.Random) -> Counter[str]:
    """Return what happened; AssertionError on any fault."""
    outcomes: Counter[str] = Counter()
    with ExitStack() as stack:
        servers = broker.bootstrap_servers
        task = stack.enter_context(closing(Task(servers, PARTITIONS)))
        workers = [
            stack.enter_context(closing(Worker(servers, f"worker-{run.block}-{number}", PROGRAM)))
            for number in range(WORKERS)
        ]
        for worker in workers:
            worker.start()
        for number in range(rounds):
            task.give(GIVEN_RECORDS)
            task.await_progress(rng.randrange(1, task.left_count), *workers)
            if number % 2:
                broker.kill()
                broker.start()
                outcomes["broker killed"] += 1
            else:
                worker = rng.choice(workers)
                worker.kill()
                worker.start()
                outcomes["client killed"] += 1
            run.say(number, dict(outcomes), task.left_count)
        task.audit(*workers)
        for worker in workers:
            worker.stop()
        task.audit()
        check_nothing_is_open(servers)
    return outcomes


def check_nothing_is_open(servers: str) -> None:
    """Check by Kafka's AdminClient, for coordinators and for partitions."""
    calls: list[dict[str, Any]] = [{"call": "listTransactions"}]
    calls += [
        {"call": "describeProducers", "topic": TARGET, "partition": number} for number in range(PARTITIONS)
    ]
    transactions, *partitions = java_clients.admin(servers, *calls)
    states = {each["state"] for each in transactions}
    assert states <= {"Empty", "CompleteCommit", "CompleteAbort"}, transactions
    producers = [each for partition in partitions for each in partition]
    hanging = [each for each in producers if each["transaction_start_offset"] >= 0]
    assert not hanging, hanging
