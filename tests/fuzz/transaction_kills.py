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

import json
import random
import sys
import time
from collections import Counter
from contextlib import ExitStack, closing
from typing import Any

from tests import ROOT
from tests.fuzz import campaign
from tests.fuzz.campaign import Tally
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


def run_block(block: int, rounds: int = BLOCK_CASES, *, verbose: bool = False) -> Tally:
    """Check a block of `rounds` kills."""
    rng = random.Random(f"transaction kills {block}")
    outcomes: Counter[str] = Counter()
    started = time.monotonic()
    while (left := rounds - outcomes["broker killed"] - outcomes["client killed"]) > 0:
        with RealKafka(**KAFKAS[block % len(KAFKAS)], java_options=JAVA_OPTIONS) as broker:
            found: Counter[str] = Counter()
            try:
                judge(broker, block, left, rng, found, verbose=verbose)
            except AssertionError:
                if not broker.has_printed(SKIPPING):
                    raise
                found = Counter({"begun anew, for Kafka had skipped markers": 1})
            outcomes += found
    return Tally(dict(outcomes), time.monotonic() - started, campaign.peak_bytes())


def judge(
    broker: RealKafka, block: int, rounds: int, rng: random.Random, outcomes: Counter[str], *, verbose: bool
) -> None:
    """Check everything; AssertionError on any fault."""
    with ExitStack() as stack:
        servers = broker.bootstrap_servers
        task = stack.enter_context(closing(Task(servers, PARTITIONS)))
        workers = [
            stack.enter_context(closing(Worker(servers, f"worker-{block}-{number}", PROGRAM)))
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
            if verbose:
                print(number, dict(outcomes), task.left_count, flush=True)
        task.audit(*workers)
        for worker in workers:
            worker.stop()
        task.audit()
        check_nothing_is_open(servers)


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


if __name__ == "__main__":
    print(json.dumps(run_block(int(sys.argv[1]), int(sys.argv[2]))))
