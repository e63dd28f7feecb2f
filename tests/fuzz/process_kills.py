"""Members that process records by `process()` are killed, leave and come: nothing is lost or passed.

Theory of operation. A block is a broker, embedded in even blocks and Kafka's in odd ones, with a topic of
numbered keys, some records of which fail always or take long. Members (process_member.py) process them, in
threads or in tasks, by the protocol of the block. A few times a second one of them is killed, asked to leave,
or stopped for longer than a session. Each record that was processed is a line of a file.

All the time, what the group has committed must have its line: every record before the offset, and all that
the metadata says is finished. In the end every record has a line, at least one, each key was first processed
in order, every bad record is in the dead-letter topic, and all is committed.

Every third block has retry topics, in which records that failed are processed again, and a key with many
records, which are parked behind those that fail.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import ExitStack, closing
from pathlib import Path

import kbatch
from kbatch import TopicPartition
from kbatch.core.process.finished_runs import decode_runs
from kbatch.testing import Broker
from tests import ROOT
from tests.fuzz import campaign
from tests.fuzz.process_member import BAD, DEAD, FLAKY, GROUP, RETRY_TOPICS, SESSION_MS, SLOW, TOPIC
from tests.oracle.kafka import RealKafka, create_topic
from tests.support.patience import HANG_SECONDS, until

BLOCK_CASES = 20_000
PARTITIONS, KEYS, MEMBERS = 4, 400, 3
BAD_RATE, SLOW_RATE = 0.001, 0.002
# In blocks with retry topics.
FLAKY_RATE, HOT_RATE = 0.004, 0.3
RETRY_PARTITIONS = 2
PAUSE_SECONDS = SESSION_MS / 1000 * 1.3
PROPERTIES = {
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.session.timeout.ms": SESSION_MS,
    "group.consumer.heartbeat.interval.ms": SESSION_MS // 12,
    "group.consumer.min.heartbeat.interval.ms": SESSION_MS // 12,
    "group.initial.rebalance.delay.ms": 0,
}


def has_retries(block: int) -> bool:
    """True if the records of a block that fail go to retry topics."""
    return block % 3 == 2


class Members:
    """The processes of the group."""

    def __init__(self, servers: str, path: Path, block: int, rng: random.Random) -> None:
        self._given = {"servers": servers, "path": str(path)}
        self._given["protocol"] = ("consumer", "classic")[block // 2 % 2]
        self._given["kind"] = ("threads", "tasks")[block // 4 % 2]
        self._given["failing"] = "retries" if has_retries(block) else "letters"
        self._rng = rng
        self._count = 0
        self._running: list[subprocess.Popen[bytes]] = []
        self._stopped: list[tuple[float, subprocess.Popen[bytes]]] = []
        self.outcomes: Counter[str] = Counter()

    def start(self) -> None:
        """Start those that are missing, and let go on those that have been stopped for long enough."""
        for entry in list(self._stopped):
            if time.monotonic() > entry[0]:
                entry[1].send_signal(signal.SIGCONT)
                self._stopped.remove(entry)
                self._running.append(entry[1])
        while len(self._running) + len(self._stopped) < MEMBERS:
            self._count += 1
            given = {**self._given, "name": f"member-{self._count}"}
            words = [text for name, value in given.items() for text in (f"--{name}", value)]
            environment = os.environ | {"PYTHONPATH": str(ROOT)}
            command = [sys.executable, "-m", "tests.fuzz.process_member", *words]
            self._running.append(subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE))

    def disturb(self) -> None:
        """Kill a member, let it leave, or stop it for longer than a session."""
        self.check()
        member = self._rng.choice(self._running)
        what = self._rng.choice(("killed", "killed", "left", "stopped"))
        if what == "stopped" and self._stopped:
            return
        self.outcomes[what] += 1
        self._running.remove(member)
        if what == "stopped":
            member.send_signal(signal.SIGSTOP)
            self._stopped.append((time.monotonic() + PAUSE_SECONDS, member))
            return
        member.send_signal(signal.SIGKILL if what == "killed" else signal.SIGTERM)
        self._ended(member)

    def check(self) -> None:
        """Raise if a member has ended by itself."""
        for member in self._running:
            if member.poll() is not None:
                raise AssertionError(f"a member has ended with {member.returncode}: {_last_words(member)}")

    def _ended(self, member: subprocess.Popen[bytes]) -> None:
        status = member.wait(HANG_SECONDS)
        if status not in (0, -signal.SIGKILL, -signal.SIGTERM):  # which comes before it is heeded, too
            raise AssertionError(f"a member has ended with {status}: {_last_words(member)}")

    def settle(self) -> None:
        """Let all go on that are stopped."""
        for _, member in self._stopped:
            member.send_signal(signal.SIGCONT)
            self._running.append(member)
        self._stopped.clear()

    def close(self) -> None:
        self.settle()
        for member in self._running:
            member.kill()
            member.wait()


def _last_words(member: subprocess.Popen[bytes]) -> str:
    assert member.stderr is not None
    return member.stderr.read().decode(errors="replace")[-campaign.MESSAGE_CHARACTERS :]


class Judge:
    """What must be true of the lines and of what the group has committed."""

    def __init__(self, servers: str, path: Path, sent: dict[int, dict[int, bytes]]) -> None:
        self._reader = kbatch.TopicReader(bootstrap_servers=servers)
        self.close = self._reader.close
        self._servers = servers
        self._path = path
        self._sent = sent
        with kbatch.Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([(TOPIC, next(iter(sent)))])
            self._topic_id = consumer.poll(HANG_SECONDS, max_records=1)[0].topic_id
        self._read_bytes = 0
        self._order: dict[tuple[int, bytes], list[int]] = defaultdict(list)
        self._seen: set[tuple[int, int]] = set()
        self._again: set[tuple[int, int]] = set()  # from retry topics
        self.line_count = 0

    def _read(self) -> None:
        """Read the lines that were written since."""
        data = self._path.read_bytes() if self._path.exists() else b""
        whole = data[self._read_bytes : data.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        for line in whole.splitlines():
            *word, partition, offset, key = line.split()
            record = int(partition), int(offset)
            if word:
                self._again.add(record)
                continue
            self.line_count += 1
            if record not in self._seen:
                self._seen.add(record)
                self._order[record[0], key].append(record[1])

    def look(self) -> bool:
        """Check what is committed. Return True if that is all."""
        try:
            found = self._reader.groups.offsets(GROUP)
        except kbatch.KafkaError as error:
            if not error.retriable:
                raise
            return False
        self._read()  # after that: what is committed was written before
        is_all = True
        for index, log in self._sent.items():
            state = found.get(TopicPartition(TOPIC, index))
            committed = None if state is None else state.committed
            if committed is None:
                is_all = False
                continue
            runs = decode_runs(committed.offset, committed.metadata, self._topic_id, max(log) + 1)
            said = [each for each in log if each < committed.offset or any(a <= each < b for a, b in runs)]
            if wrong := [each for each in said if (index, each) not in self._seen]:
                raise AssertionError(f"{TOPIC}-{index} is committed at {committed}; {wrong[:5]} are not done")
            is_all = is_all and committed.offset == max(log) + 1
        return is_all and self._again >= self._of(FLAKY) and self._dead() >= self._of(BAD)

    def _of(self, value: bytes) -> set[tuple[int, int]]:
        """Return where records of a value are."""
        return {(index, at) for index, log in self._sent.items() for at, each in log.items() if each == value}

    def _dead(self) -> set[tuple[int, int]]:
        """Return where dead letters were first."""
        if not self._of(BAD):
            return set()
        table = kbatch.read_table(DEAD, bootstrap_servers=self._servers).to_pylist()
        headers = [{each["key"]: each["value"] for each in row["headers"]} for row in table]
        return {(int(each["__dlq.partition"]), int(each["__dlq.offset"])) for each in headers}

    def judge(self) -> None:
        """Check the lines after the end."""
        self._read()
        records = {(index, offset) for index, log in self._sent.items() for offset in log}
        assert self._seen == records, f"{len(records - self._seen)} records were not processed"
        wrong = [each for each, offsets in self._order.items() if offsets != sorted(offsets)]
        assert not wrong, f"keys out of order: {wrong[:5]}"
        assert self._again == self._of(FLAKY)
        bad, dead = self._of(BAD), self._dead()
        assert dead == bad, f"dead letters: {sorted(dead ^ bad)[:5]}"


def _fill(servers: str, run: campaign.Run, rng: random.Random) -> dict[int, dict[int, bytes]]:
    """Write the records, and return their values by partition and offset."""
    flaky_rate, hot_rate = (FLAKY_RATE, HOT_RATE) if has_retries(run.block) else (0.0, 0.0)
    values = (BAD, SLOW, FLAKY, b"v")
    rates = (BAD_RATE, SLOW_RATE, flaky_rate, 1 - BAD_RATE - SLOW_RATE - flaky_rate)
    sent: dict[int, dict[int, bytes]] = defaultdict(dict)
    with kbatch.Producer(bootstrap_servers=servers) as producer:
        pending = []
        for _ in range(run.cases):
            (value,) = rng.choices(values, rates)
            key = b"hot" if rng.random() < hot_rate else b"k%d" % rng.randrange(KEYS)
            pending.append((producer.send(TOPIC, value, key), value))
        for delivery, value in pending:
            metadata = delivery.result()
            sent[metadata.partition][metadata.offset] = value
    return dict(sent)


def play(run: campaign.Run) -> None:
    """Process a block's records."""
    rng = random.Random(f"process {run.block}")
    topics = {TOPIC: PARTITIONS, DEAD: 1, **dict.fromkeys(RETRY_TOPICS, RETRY_PARTITIONS)}
    with ExitStack() as stack:
        if run.block % 2:
            kafka = stack.enter_context(RealKafka(PROPERTIES))
            servers = kafka.bootstrap_servers
            for name, partitions in topics.items():
                create_topic(servers, name, partitions)
        else:
            embedded = Broker(
                topics,
                group_initial_rebalance_delay_ms=0,
                group_consumer_session_timeout_ms=SESSION_MS,
                group_consumer_heartbeat_interval_ms=SESSION_MS // 12,
            )
            servers = stack.enter_context(embedded).bootstrap_servers
        path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "lines"
        sent = _fill(servers, run, rng)
        judge = stack.enter_context(closing(Judge(servers, path, sent)))
        members = stack.enter_context(closing(Members(servers, path, run.block, rng)))
        _process(judge, members, rng)
        judge.judge()
        run.outcomes.update(members.outcomes)
        run.outcomes["records"] += run.cases
        run.outcomes["repeated"] += judge.line_count - run.cases


def _process(judge: Judge, members: Members, rng: random.Random) -> None:
    """Disturb the members until all is processed."""
    due = time.monotonic() + rng.uniform(0.5, 3.0)

    def is_over() -> bool:
        nonlocal due
        members.start()
        members.check()
        if time.monotonic() > due:
            due = time.monotonic() + rng.uniform(1.0, 6.0)
            members.disturb()
        return judge.look()

    until(is_over, "all processed and committed", pause_seconds=0.02)
