"""The campaign of groups: twenty members come, go, die and stand still, and each record comes out once.

Theory of operation. A block is a real Kafka, a proxy before it that cuts connections at requests of any kind
(cutting_proxy.py), and a group of processes that read the source and write the target in transactions which
have the group's offsets (group_member.py). Every few moments one of them leaves, is killed, or is stopped for
longer than its session and continued, and others come. From time to time the broker is killed and started
again. The source fills meanwhile. At the end all stand still but those that remain, and the target, read at
read_committed, has each record once and in its order, and the group's lag is 0.

Odd blocks use the classic protocol, the others KIP-848. A Kafka that was killed sometimes has faults of its
own afterwards. It loses markers of a transaction (transaction_kills.py), its coordinator fails over the state
that it has loaded, it gives a partition to two members and others to none, or it does not watch the sessions
of members that it has loaded, and keeps those that are gone. If a check fails and Kafka has logged one of
them, or says so of the group, the block begins anew with another Kafka, and the outcomes count it.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, closing

import pyarrow as pa
import pyarrow.compute as pc

import kbatch
from kbatch import Admin, TopicPartition
from kbatch.records import GroupDescription
from tests import ROOT
from tests.fuzz import campaign
from tests.fuzz.group_member import EAGER, FENCED, GROUP, SESSION_MS, SOURCE, TARGET
from tests.fuzz.transaction_kills import JAVA_OPTIONS, SKIPPING
from tests.integration.cutting_proxy import CuttingProxy
from tests.oracle.kafka import RealKafka, create_topic
from tests.support.patience import until

BLOCK_CASES = 1_000_000
MEMBERS = 20
PARTITIONS = 24
# The source fills in so many steps, with a change of the members after each. A small block has fewer of both.
STEPS = 100
LEAST = 3
CASES_OF_A_STEP = BLOCK_CASES // STEPS
STEP_SECONDS = (1.0, 4.0)
BROKER_KILL_STEPS = 12
# What Kafka logs of a fault of its own, and what the outcomes call it.
FAULTS_OF_KAFKA = {
    SKIPPING: "begun anew, for Kafka had skipped markers",
    "hit an unexpected exception": "begun anew, for Kafka's coordinator had failed",
    "is out of sync with the underlying log": "begun anew, for Kafka's coordinator had begun without its log",
    "Failed to load metadata from __consumer_offsets": "begun anew, for Kafka could not load its groups",
}
FAULTY_TARGET = "begun anew, for Kafka's target assignment was faulty"
KEPT_MEMBERS = "begun anew, for Kafka had kept members without a session"
FAULTS_OF_GROUP = {FAULTY_TARGET, KEPT_MEMBERS}  # what Kafka says of the group proves them
# Longer than a session.
PAUSE_SECONDS = SESSION_MS / 1_000 * 1.5
SETTLE_SECONDS = 180.0
DESCRIBING_SECONDS = 3.0
WORDS = 20_000  # characters of a member's last words
# Kafka says how groups rebalance, and when.
KAFKA_BYTES = 150_000
GROUP_OPTIONS = (
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.coordinator.group=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)
SPACING = 400  # requests between two cuts, at most
PROPERTIES = {
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.session.timeout.ms": SESSION_MS,
    "group.consumer.heartbeat.interval.ms": SESSION_MS // 6,
    "group.consumer.min.heartbeat.interval.ms": SESSION_MS // 6,
    "group.min.session.timeout.ms": SESSION_MS,
}


class Members:
    """The processes of the group, `count` of them."""

    def __init__(self, servers: str, protocol: str, rng: random.Random, count: int) -> None:
        self._servers = servers
        self._protocol = protocol
        self._rng = rng
        self._count = count
        self._names: dict[int, str] = {}  # by process id
        self.gone: set[str] = set()  # names of those that had ended when all settled
        self._running: list[subprocess.Popen[bytes]] = []
        self._paused: list[tuple[float, subprocess.Popen[bytes]]] = []
        self.outcomes: Counter[str] = Counter()

    def start(self) -> None:
        """Start those that are missing."""
        while len(self._running) + len(self._paused) < self._count:
            self._start_one()

    def _start_one(self) -> None:
        name = f"member-{len(self._names) + 1}"
        options = {"bootstrap-servers": self._servers, "name": name}
        options |= {"protocol": self._protocol, "most-records": str(self._rng.choice((50, 500, 2_000)))}
        given = [text for key, value in options.items() for text in (f"--{key}", value)]
        self._running.append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.group_member", *given],
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                stderr=subprocess.PIPE,
            )
        )
        self._names[self._running[-1].pid] = name
        self.outcomes["came"] += 1

    def change(self) -> None:
        """Let one go by some way, and others come; continue who stood still for long enough."""
        self.check()
        now = time.monotonic()
        for due, member in [each for each in self._paused if each[0] <= now]:
            member.send_signal(signal.SIGCONT)
            self._paused.remove((due, member))
            self._running.append(member)
        if self._running:
            member = self._running.pop(self._rng.randrange(len(self._running)))
            self._rng.choice((self._leave, self._kill, self._pause))(member)
        self.start()

    def check(self) -> None:
        """Check that those run that should; replace those that were fenced."""
        for member in [each for each in self._running if each.poll() is not None]:
            self._running.remove(member)
            self._ended(member)
        self.start()

    def settle(self) -> None:
        """Continue those that stand still."""
        for _, member in self._paused:
            member.send_signal(signal.SIGCONT)
            self._running.append(member)
        self._paused.clear()
        self.gone = set(self._names.values()).difference(self._names[each.pid] for each in self._running)

    def end(self) -> None:
        """Let all leave."""
        while self._running:
            self._leave(self._running.pop())

    def close(self) -> None:
        """Kill what still runs."""
        self.last_words()

    def describe(self) -> None:
        """Let those that run print what they are doing, for `last_words`."""
        for member in self._running:
            member.send_signal(signal.SIGUSR1)
        time.sleep(DESCRIBING_SECONDS)

    def last_words(self) -> str:
        """Kill what still runs, and return what each has printed."""
        words = []
        for member in [*self._running, *(member for _, member in self._paused)]:
            member.kill()
            _, text = member.communicate()
            words.append(f"process {member.pid}: {text.decode()[-WORDS:]}")
        self._running.clear()
        self._paused.clear()
        return "\n".join(words)

    def _leave(self, member: subprocess.Popen[bytes]) -> None:
        member.terminate()
        self._ended(member)

    def _ended(self, member: subprocess.Popen[bytes]) -> None:
        """Check how a member has ended by itself."""
        try:
            _, text = member.communicate(timeout=SETTLE_SECONDS)
        except subprocess.TimeoutExpired:
            member.kill()
            _, text = member.communicate()
            raise AssertionError(f"a member does not end: {text.decode()[-8_000:]}") from None
        outcomes = {0: "left", FENCED: "fenced", -signal.SIGTERM: "left before they came"}
        assert member.returncode in outcomes, f"a member has failed: {text.decode()[-8_000:]}"
        self.outcomes[outcomes[member.returncode]] += 1

    def _kill(self, member: subprocess.Popen[bytes]) -> None:
        member.kill()
        member.communicate()
        self.outcomes["killed"] += 1

    def _pause(self, member: subprocess.Popen[bytes]) -> None:
        member.send_signal(signal.SIGSTOP)
        self._paused.append((time.monotonic() + PAUSE_SECONDS, member))
        self.outcomes["stood still"] += 1


def fill(producer: kbatch.Producer, first: int, count: int) -> None:
    """Send this many more numbers to the source, in turn to its partitions."""
    numbers = pa.array(range(first, first + count), pa.int64())
    partitions = pa.array([number % PARTITIONS for number in range(first, first + count)], pa.int32())
    rows = pa.table({"value": numbers.cast(pa.string()).cast(pa.binary()), "partition": partitions})
    producer.send_table(SOURCE, rows, key=None).result()


def await_lag_of_zero(servers: str, members: Members) -> None:
    """Wait until the group has committed the end of the source."""
    partitions = [TopicPartition(SOURCE, number) for number in range(PARTITIONS)]
    deadline = time.monotonic() + SETTLE_SECONDS
    with kbatch.Consumer(bootstrap_servers=servers, group_id=GROUP) as consumer:
        ends = consumer.end_offsets(partitions)
        while True:
            committed = consumer.committed(partitions)
            offsets = {each: offset.offset for each, offset in committed.items() if offset is not None}
            if offsets == ends:
                return
            members.check()
            lag = {each: end - offsets.get(each, 0) for each, end in ends.items()}
            assert time.monotonic() < deadline, f"the group has a lag of {lag}"
            time.sleep(0.1)


def await_ended_transactions(servers: str) -> None:
    """Wait until no transaction is open in the target: what a killed member left open hides what comes after.

    Kafka aborts it some time after TRANSACTION_MS, which can be later than the end of the group's lag.
    """
    partitions = [TopicPartition(TARGET, number) for number in range(PARTITIONS)]
    with ExitStack() as stack:
        every, committed = (
            stack.enter_context(kbatch.Consumer(bootstrap_servers=servers, isolation_level=level))
            for level in ("read_uncommitted", "read_committed")
        )
        until(
            lambda: every.end_offsets(partitions) == committed.end_offsets(partitions),
            lambda: f"transactions are open before {every.end_offsets(partitions)} in the target",
            seconds=SETTLE_SECONDS,
            pause_seconds=0.1,
        )


def described(servers: str) -> GroupDescription:
    """Return what Kafka says of the group."""
    with Admin(bootstrap_servers=servers) as admin:
        return admin.groups.describe(GROUP, timeout=SETTLE_SECONDS)


def words_of(group: GroupDescription) -> str:
    """Return a line for the group and for each of its members."""
    lines = [f"the group is {group.state}, by {group.assignor!r}"]
    for member in group.members:
        own = sorted(each.partition for each in member.partitions)
        lines.append(f"{member.client_id}, {member.member_id}: {own}")
    return "\n".join(lines)


def has_faulty_target(group: GroupDescription) -> bool:
    """True if Kafka gives a partition of the source to no member of the group, or to two."""
    given = Counter(each.partition for member in group.members for each in member.target)
    return any(given[partition] != 1 for partition in range(PARTITIONS))


def keeps_members(group: GroupDescription, gone: set[str]) -> bool:
    """True if Kafka still has members that ended many sessions ago."""
    return any(member.client_id in gone for member in group.members)


def check_each_once(servers: str, count: int) -> None:
    """Check that the target has each record once, in its order."""
    table = kbatch.read_table(
        TARGET, bootstrap_servers=servers, isolation="read_committed", columns=["partition", "value"]
    )
    assert table.num_rows == count, (table.num_rows, count)
    for partition in range(PARTITIONS):
        own = table.filter(pc.equal(table["partition"], partition))["value"]
        expected = pa.array(range(partition, count, PARTITIONS), pa.int64())
        assert own.cast(pa.string()).cast(pa.int64()).combine_chunks().equals(expected), partition


def play(run: campaign.Run) -> None:
    """Check a block of so many records."""
    rng = random.Random(f"groups {run.block}")
    while not run.outcomes["records"]:
        with RealKafka(PROPERTIES, java_options=(*JAVA_OPTIONS, *GROUP_OPTIONS)) as broker:
            try:
                run.outcomes += judge(broker, run, rng)
            except (AssertionError, kbatch.KafkaError) as error:
                faults = [name for text, name in FAULTS_OF_KAFKA.items() if broker.has_printed(text)]
                faults += FAULTS_OF_GROUP.intersection(getattr(error, "__notes__", ()))
                if not faults:
                    error.add_note(broker.output(KAFKA_BYTES))
                    raise
                run.outcomes.update(faults)


def judge(broker: RealKafka, run: campaign.Run, rng: random.Random) -> Counter[str]:
    """Return what happened; AssertionError on any fault."""
    size = max(run.cases // CASES_OF_A_STEP, LEAST)
    steps = min(STEPS, size)
    servers = broker.bootstrap_servers
    for topic in (SOURCE, TARGET):
        create_topic(servers, topic, PARTITIONS)
    with ExitStack() as stack:
        proxy = stack.enter_context(CuttingProxy(servers, run.block, spacing=SPACING, api_key=None))
        producer = stack.enter_context(kbatch.Producer(EAGER, bootstrap_servers=servers, acks="all"))
        protocol = "classic" if run.block % 2 else "consumer"
        count = min(MEMBERS, size)
        members = stack.enter_context(closing(Members(proxy.bootstrap_servers, protocol, rng, count)))
        members.start()
        for step in range(steps):
            first, last = (run.cases * each // steps for each in (step, step + 1))
            fill(producer, first, last - first)
            time.sleep(rng.uniform(*STEP_SECONDS))
            members.change()
            if step % BROKER_KILL_STEPS == BROKER_KILL_STEPS - 1:
                broker.kill()
                broker.start()
                members.outcomes["broker killed"] += 1
            run.say(step, dict(members.outcomes), dict(proxy.done))
        members.settle()
        try:
            await_lag_of_zero(servers, members)
        except AssertionError as error:
            members.describe()
            try:
                group = described(servers)
                error.add_note(words_of(group))
                if protocol == "consumer" and has_faulty_target(group):
                    error.add_note(FAULTY_TARGET)
                if keeps_members(group, members.gone):
                    error.add_note(KEPT_MEMBERS)
            finally:
                error.add_note(members.last_words())
            raise
        members.end()
        await_ended_transactions(servers)
        check_each_once(servers, run.cases)
        cuts = sum(proxy.done.values())
    return members.outcomes + Counter({"records": run.cases, "connections cut": cuts})
