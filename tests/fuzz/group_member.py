"""A member of the group of `group_churn`: it writes what it has read in transactions, until SIGTERM.

Each transaction has the records of a poll and the group's offsets after them. If one took longer than it may,
the coordinator has aborted it, and refuses the producer: the program then ends with status FENCED.

At SIGUSR1 it prints what it is doing: its stacks, the end of its log, its membership and its requests.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any

import kbatch
from kbatch.consumer.polled import Polled
from kbatch.core.client.backoff import NEVER_NS
from kbatch.core.consumer.membership import Rebalance
from kbatch.errors import InvalidProducerEpochError, InvalidTxnStateError, ProducerFencedError

logger = logging.getLogger(__name__)

SOURCE, TARGET, GROUP = "source", "target", "members"
SESSION_MS = 6_000  # the shortest that Kafka allows
TRANSACTION_MS = 8_000
POLL_SECONDS = 0.2
FENCED = 3
RECENT_LINES = 100
PLAIN = (int, str, tuple, frozenset, Enum)
ALIKE = ("_assignors", "_context", "_topic_use")  # fields that are the same for all members
# Quick to come back, and to find that an answer does not come.
EAGER: dict[str, object] = {
    "request.timeout.ms": 3_000,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 100,
}


class Member:
    """A consumer and a producer that commit together."""

    def __init__(self, bootstrap_servers: str, name: str, protocol: str, most_records: int) -> None:
        group: dict[str, object] = {
            "bootstrap.servers": bootstrap_servers,
            "client.id": name,
            "group.id": GROUP,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "max.poll.records": most_records,
            "fetch.max.wait.ms": 100,
        }
        if protocol == "classic":
            group |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": SESSION_MS // 6}
            group |= {"partition.assignment.strategy": "cooperative-sticky"}
        self.consumer = kbatch.Consumer(EAGER | group)
        self.producer = kbatch.Producer(
            EAGER
            | {
                "bootstrap.servers": bootstrap_servers,
                "client.id": name,
                "transactional.id": name,
                "transaction.timeout.ms": TRANSACTION_MS,
                "delivery.timeout.ms": TRANSACTION_MS - 1_000,
            }
        )

    def run(self, is_over: Callable[[], bool]) -> None:
        with self.producer, self.consumer:
            until_known(self.producer.init_transactions)
            self.consumer.subscribe([SOURCE])
            while not is_over():
                if polled := self.consumer.poll(timeout=POLL_SECONDS):
                    self.process(polled)

    def process(self, polled: Polled) -> None:
        """Write the records in a transaction; if it can only be aborted, read them again."""
        try:
            self.producer.begin_transaction()
            for record in polled:
                self.producer.send(TARGET, record.value, partition=record.partition)
            self.producer.send_offsets_to_transaction(polled.offsets, self.consumer)
            until_known(self.producer.commit_transaction)
        except kbatch.KafkaError as error:
            if error.fatal:
                raise
            logger.info("aborting, at %s: %s", polled.offsets, error)
            until_known(self.producer.abort_transaction)
            self.rewind(polled)

    def describe(self, recent: Iterable[str]) -> None:
        """Print the membership, what is read and what is in flight, which may change meanwhile."""
        engine: Any = self.consumer._engine
        print(*recent, sep="\n", file=sys.stderr)
        for each in filter(None, (engine._membership, engine._cluster, engine.rebalance)):
            print(type(each).__name__, plain_fields(each), file=sys.stderr)
        print(*engine._fetcher.partitions.values(), sep="\n", file=sys.stderr)
        for name, client in (("consumer", engine), ("producer", self.producer._runtime.engine)):
            print(name, *in_flight(client._connections), sep="\n", file=sys.stderr, flush=True)

    def rewind(self, polled: Polled) -> None:
        """Seek to the first of the records, on partitions that are still ours."""
        for partition in self.consumer.assignment() & set(polled.partitions()):
            self.consumer.seek(partition, polled.records(partition)[0].offset)


class Recent(logging.Handler):
    """The last lines of kbatch's log, with the time of each."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s.%(msecs)03d %(message)s", "%H:%M:%S"))
        self.lines: deque[str] = deque(maxlen=RECENT_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def plain_fields(thing: object) -> dict[str, object]:
    """Return the fields of a thing that say something when they are printed."""
    fields = thing._asdict() if isinstance(thing, Rebalance) else vars(thing)
    known = {name: each for name, each in fields.items() if name not in ALIKE and each != NEVER_NS}
    return {name: each for name, each in known.items() if isinstance(each, PLAIN)}


def in_flight(connections: Any) -> Iterator[str]:
    """Return each connection, with its requests and how long they have been there."""
    now_ns = time.monotonic_ns()
    for purpose, states in enumerate(connections._by_purpose):
        for state in states.values():
            sent = state.connection.in_flight if state.connection is not None else ()
            ages = [f"{each} for {(now_ns - each.created_ns) / 1e9:.3f} s" for each in list(sent)]
            yield f"purpose {purpose}, {state}, {state.state.value}: {', '.join(ages)}"


def until_known(call: Callable[[], None]) -> None:
    """Call it again after a time-out: only that tells the transaction's outcome."""
    while True:
        try:
            return call()
        except kbatch.KafkaTimeoutError as error:
            print(error, file=sys.stderr)  # read if the member does not end


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap-servers", "name", "protocol"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--most-records", type=int, required=True)
    member = Member(**vars(parser.parse_args()))
    recent = Recent()
    for each in (logger, *map(logging.getLogger, ("kbatch.core.client", "kbatch.core.consumer"))):
        each.addHandler(recent)
        each.setLevel(logging.DEBUG)
    signal.signal(signal.SIGUSR1, lambda number, frame: member.describe(recent.lines))
    faulthandler.register(signal.SIGUSR1, chain=True)
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    try:
        member.run(lambda: bool(stopped))
    except (ProducerFencedError, InvalidProducerEpochError, InvalidTxnStateError) as error:
        sys.exit(FENCED if error.fatal else str(error))


if __name__ == "__main__":
    main()
