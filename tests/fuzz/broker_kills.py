"""The campaign of kills: the embedded broker is killed repeatedly and keeps everything it acknowledged.

Theory of operation. A block is a directory, a port, and clients that continue (killed_clients.py) while the
broker is killed and started again, for some rounds. After each kill the logs are read from the disk: every
acknowledged record must be there once, at its offset and in order, and earlier data must be unchanged. After
each start committed data and offsets are read. At the end of a block the clients stop, and the logs must
equal the answers that the clients got.

A block's number determines its actions and the moments of its kills, but threads and the system decide what
is in flight then. A block that failed may pass when it is replayed.
"""

from __future__ import annotations

import random
import resource
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, TopicPartition

from kbatch import Admin
from kbatch.admin import NewTopic
from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from tests.fuzz import campaign
from tests.fuzz.broker_process import BrokerProcess, Stored, stored
from tests.fuzz.killed_clients import SETTINGS, Client, Member, Transactor, Writer, record_of
from tests.oracle.kafka import free_ports

BLOCK_CASES = 10
PLAIN, TRANSACTIONAL = "plain", "transactional"
PARTITIONS = 2
# How long the broker serves before it is killed, and how long it starts where it is killed before it serves.
SERVES_SECONDS, STARTS_SECONDS = (0.02, 1.0), (0.05, 0.5)
READ_SECONDS, TIMEOUT_SECONDS = 0.05, 60.0
# A hundred records of one batch go into the smallest.
SEGMENT_BYTES = (5_000, 50_000, 1 << 30)
# Requested after each start, besides the clients' own.
NEW_PRODUCER_IDS = 3


class Block:
    """One broker, its clients, and what was on its disk when it was killed last."""

    def __init__(self, number: int, directory: Path) -> None:
        self.rng = random.Random(f"broker kills {number}")
        # A killed broker knows only the last batch of a producer, as Kafka does, unless it is configured
        # to keep all five; otherwise only one may be in flight.
        keeps_all_batches = number % 2 == 1
        self.broker = BrokerProcess(directory, *free_ports(1), keeps_all_batches=keeps_all_batches)
        self._servers = self.broker.bootstrap_servers
        self._number = number
        self._max_in_flight = 5 if keeps_all_batches else 1
        self._logs: dict[str, list[Stored]] = {}
        self._producer_ids: list[int] = []

    def __enter__(self) -> Block:
        self.broker.start()
        self._make_topics()
        where = (self._number, self._servers)
        how = (PARTITIONS, self._max_in_flight)
        self.writers = [
            Writer(f"writer-{index}", *where, PLAIN, *how) for index in range(self.rng.choice((1, 2)))
        ]
        self.transactors = [
            Transactor(f"transactor-{index}", *where, TRANSACTIONAL, *how)
            for index in range(self.rng.choice((1, 2)))
        ]
        self.member = Member("member", *where, PLAIN)
        self.clients: list[Client] = [*self.writers, *self.transactors, self.member]
        self._visible: set[str] = set()
        self._reader = committed_reader(self._servers)
        for client in self.clients:
            client.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.close()
        self._reader.close()

    def _make_topics(self) -> None:
        configs = {"internal.segment.bytes": self.rng.choice(SEGMENT_BYTES)}
        new = NewTopic(partitions=PARTITIONS, replication_factor=1, configs=configs)
        with Admin(bootstrap_servers=self._servers) as admin:
            admin.topics.create(dict.fromkeys((PLAIN, TRANSACTIONAL), new))

    # Rounds

    def round(self) -> str:
        """Let the broker serve and kill it. Return what the kill interrupted: "in a start", "ending a
        transaction", "in a transaction", "between".
        """
        time.sleep(self.rng.uniform(*SERVES_SECONDS))
        self.broker.kill()
        outcome = self._under_way()
        self._check_disk()
        if self.rng.random() < 0.2:
            self.broker.launch()
            time.sleep(self.rng.uniform(*STARTS_SECONDS))
            self.broker.kill()
            self._check_disk()
            outcome = "in a start"
        self.broker.start()
        self._check_served()
        return outcome

    def _under_way(self) -> str:
        states = {transactor.states[-1] for transactor in self.transactors if transactor.states}
        if states & {"committing", "aborting"}:
            return "ending a transaction"
        return "in a transaction" if "open" in states else "between"

    def end(self) -> None:
        """Stop the clients and check that the logs equal their answers, also after a clean shutdown."""
        for client in self.clients:
            client.finish()
        for writer in self.writers:
            assert len(writer.acknowledged) == sum(writer.sent.values()), writer.name
        self._check_all_committed()
        self.broker.stop()
        self._check_disk()
        self._check_all_written()
        self.broker.start()
        self._check_offsets()
        self._check_all_committed()
        self.broker.kill()

    # The disk of a dead broker

    def _check_disk(self) -> None:
        for client in self.clients:
            client.check()
        for topic in (PLAIN, TRANSACTIONAL):
            for partition in range(PARTITIONS):
                place = f"{topic}-{partition}"
                log = list(stored(self.broker.directory, topic, partition))
                before = self._logs.get(place, [])
                assert log[: len(before)] == before, f"{place} is no longer what it was"
                assert [record.offset for record in log] == list(range(len(log))), place
                check_order(log, place, is_gapless=topic == PLAIN)
                self._logs[place] = log
        for writer in self.writers:
            for partition, offset, value in list(writer.acknowledged):
                log = self._logs[f"{PLAIN}-{partition}"]
                found = log[offset].value if offset < len(log) else None
                assert found == value, (
                    f"{value!r} was acknowledged at {partition}:{offset}, where {found!r} is"
                )
        self._check_producer_ids()

    def _check_producer_ids(self) -> None:
        """Check that each id was given once, to one client, over all restarts."""
        owners: dict[int, set[str]] = defaultdict(set)
        for log in self._logs.values():
            for record in log:
                if record.value is not None:
                    owners[record.producer_id].add(record.value.split()[0])
        assert all(len(names) == 1 for names in owners.values()), owners
        assert len(set(self._producer_ids)) == len(self._producer_ids), self._producer_ids
        assert not owners.keys() & set(self._producer_ids), (owners, self._producer_ids)

    def _check_all_written(self) -> None:
        for partition in range(PARTITIONS):
            log = self._logs[f"{PLAIN}-{partition}"]
            assert len(log) == sum(writer.sent[partition] for writer in self.writers), partition
            for (seen_partition, offset), value in self.member.seen.items():
                assert seen_partition != partition or log[offset].value == value, (partition, offset)

    # Answers of a running broker

    def _check_served(self) -> None:
        self._producer_ids += [self.broker.new_producer_id() for _ in range(NEW_PRODUCER_IDS)]
        for message in self._reader.consume(10_000, timeout=READ_SECONDS):
            if message.error() is None:
                self._check_visible(record_of(message).value)
        self._check_offsets()

    def _check_visible(self, value: str) -> None:
        """Check a visible value: its transaction is committed, or about to be, and it comes once."""
        name, number, _ = value.split()
        (transactor,) = (each for each in self.transactors if each.name == name)
        assert transactor.states[int(number)] in ("committing", "committed"), (value, transactor.states)
        assert value not in self._visible, f"{value!r} is read twice"
        self._visible.add(value)

    def _check_offsets(self) -> None:
        """Check that offsets lie between the last confirmed and the last requested commit."""
        least = self.member.committed
        found = self._committed_offset(self.member.group, PLAIN)
        assert least <= max(found, 0) <= self.member.tried, (least, found, self.member.tried)
        for transactor in self.transactors:
            least = transactor.committed_offset
            found = self._committed_offset(transactor.group, TRANSACTIONAL)
            assert found >= least, (transactor.name, found, least)
            if found >= 0:
                assert transactor.states[found - 1] in ("committing", "committed"), (found, transactor.states)

    def _committed_offset(self, group: str, topic: str) -> int:
        """-1 is none."""
        answer = self.broker.ask(messages.OffsetFetchRequest(group_id=group, topics=None), 7)
        assert answer.error_code == ErrorCode.NONE, answer
        found = [each.partitions[0].committed_offset for each in answer.topics if each.name == topic]
        return found[0] if found else -1

    def _check_all_committed(self) -> None:
        """Check that a new reader sees each value of the committed transactions, and no other."""
        expected = [
            f"{each.name} {number} {index}"
            for each in self.transactors
            for number, state in enumerate(each.states)
            for index in range(each.sizes[number] if state == "committed" else 0)
        ]
        assert all(each.states[-1] in ("committed", "aborted") for each in self.transactors)
        with closing(committed_reader(self._servers)) as reader:
            found = to_the_end(reader)
        missing, surplus = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
        states = {each.name: each.states for each in self.transactors}
        assert not missing and not surplus, f"missing {missing}, surplus {surplus} of {states}"


def check_order(log: list[Stored], place: str, *, is_gapless: bool) -> None:
    """Check that the numbers of each client's values rise; if gapless, by one from 0."""
    last: dict[str, tuple[int, ...]] = {}
    for record in log:
        if record.value is None:
            continue
        name, *texts = record.value.split()
        numbers = tuple(map(int, texts))
        before = last.get(name, (-1,))
        assert numbers > before, f"{place}: {record} comes after {name} {before}"
        assert not is_gapless or numbers[0] == before[0] + 1, f"{place}: {record} comes after {name} {before}"
        last[name] = numbers


# Readers


def committed_reader(servers: str) -> Consumer:
    """Read the transactional topic from its start."""
    reader = Consumer(
        SETTINGS
        | {
            "bootstrap.servers": servers,
            "group.id": "readers",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 20,
        }
    )
    reader.assign([TopicPartition(TRANSACTIONAL, partition, 0) for partition in range(PARTITIONS)])
    return reader


def to_the_end(reader: Consumer) -> list[str]:
    """Return the records of a new reader, up to the end of the log."""
    values: list[str] = []
    ended: set[int] = set()
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, f"the reader has come to the end of {ended} only"
        for message in reader.consume(10_000, timeout=READ_SECONDS):
            error = message.error()
            if error is None:
                values.append(record_of(message).value)
            elif error.code() == KafkaError._PARTITION_EOF and (partition := message.partition()) is not None:
                ended.add(partition)
    return values


# Blocks


def play(run: campaign.Run) -> None:
    """Play a block's rounds; an AssertionError names the round and the fault."""
    with tempfile.TemporaryDirectory() as folder, Block(run.block, Path(folder)) as world:
        for number in range(run.cases):
            try:
                outcome = world.round()
            except Exception as error:
                raise AssertionError(f"block {run.block}, round {number}: {error!r}") from error
            run.outcomes[outcome] += 1
            run.say(number, outcome)
        world.end()
    run.peak_bytes = max(campaign.peak_bytes(), campaign.peak_bytes(resource.RUSAGE_CHILDREN))
