"""The campaign of hostile requests: the embedded broker's duties for each, in blocks to be replayed.

Theory of operation. A block is a broker without sockets, whose requests come from a few personas: valid ones,
in any order, and their mutants. Between them time passes, nodes stop and start, leaders move, and a broker
with a directory is killed and comes back. Each request is answered, now or later, with what can be read as
its response, or its connection is closed because it cannot be read. At the end of a block all is healed,
every answer that was outstanding comes, what is in the logs fits what is known of them, and a client is
served as ever. The last cases of a block go over sockets (hostile_connections.py).
"""

from __future__ import annotations

import logging
import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from kbatch.protocol import codec, messages
from kbatch.protocol.structs import Message
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.broker_state import BrokerState, Connection
from kbatch.testing.broker.core import BrokerCore, Reply
from kbatch.testing.broker.options import Options
from tests.fuzz import broker_invariants, campaign, hostile_connections, request_mutator
from tests.fuzz.request_judge import Expected, answer, expected, is_spared
from tests.fuzz.requests import INT32_MAX, KINDS, PERSONAS, WEIGHTS, Persona, Requests

BLOCK_CASES = 2_000
START_MS = 1_700_000_000_000
NODES = 2
# Ten thousand requests are remembered; logs grow by some hundred bytes a request.
GROWTH_BYTES = 96 << 20
WARMING_CASES = 100
KILLED_EVERY = 500
# One case of so many goes over a socket.
SOCKET_SHARE = 20
HOUR_MS = 3_600_000
# How much later the next request comes at most, and how often.
PAUSES_MS = {50: 950, 5_000: 40, 60_000: 8, 30 * HOUR_MS: 2}
TOPICS: dict[str, dict[str, str | None]] = {
    "one": {},
    "other": {},
    "compacted": {"cleanup.policy": "compact"},
    "timed": {"message.timestamp.type": "LogAppendTime", "compression.type": "lz4"},
    "small": {"internal.segment.bytes": "1000"},
}
ASKS_TRANSACTION_COORDINATOR = {
    messages.AddOffsetsToTxnRequest,
    messages.AddPartitionsToTxnRequest,
    messages.EndTxnRequest,
    messages.InitProducerIdRequest,
}


class Alarm(logging.Handler):
    """The broker logs nothing but handlers that failed."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.rung: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.rung.append(self.format(record))


@contextmanager
def alarm_on(*names: str) -> Iterator[Alarm]:
    alarm = Alarm()
    for name in names:
        logging.getLogger(name).addHandler(alarm)
    try:
        yield alarm
    finally:
        for name in names:
            logging.getLogger(name).removeHandler(alarm)


class Client:
    """A persona and its connection, with at most one request in flight."""

    def __init__(self, persona: Persona) -> None:
        self.persona = persona
        self.connection = Connection(0)
        self.is_waiting = False


class Block:
    """A broker and those who talk to it."""

    def __init__(self, number: object, directory: Path | None) -> None:
        self.rng = random.Random(f"hostile requests {number}")
        self.now_ms = START_MS
        self._directory = directory
        self._incarnation = 0
        self._options = Options(
            auto_create_topics=self.rng.random() < 0.5,
            transaction_version=self.rng.choice((2, 2, 1, 0)),
            producer_snapshot_batches=self.rng.choice((1, 5)),
            strict_batches=self.rng.random() < 0.2,
            group_initial_rebalance_delay_ms=self.rng.choice((0, 0, 3000)),
            internal_topic_partitions=3,
        )
        self._open()
        self._make_topics()

    def _open(self) -> None:
        state = BrokerState(
            options=self._options,
            directory=self._directory,
            rng=random.Random(self.rng.random()),
            now_ms=self.now_ms,
            node_count=NODES,
        )
        for node in state.cluster.nodes:
            node.ports = [9092 for _ in state.options.listeners]
        self.core = BrokerCore(state)
        topics = state.cluster.topics
        self._clients = [Client(Persona(number, self.rng, topics)) for number in range(PERSONAS)]
        self._previous: request_mutator.Request | None = None

    # Cases

    def next_case(self) -> tuple[str, Client, bytes]:
        """Draw (name of the mutation, sender, frame)."""
        while not (idle := [client for client in self._clients if not client.is_waiting]):
            self._pass_time(self._next_deadline_ms())
        client = self.rng.choice(idle)
        (kind,) = self.rng.choices(KINDS, [WEIGHTS.get(kind, 1) for kind in KINDS])
        if (usual := client.persona.usual_requests) and self.rng.random() < 0.5:
            kind = self.rng.choice(usual)
        client.persona.last_request = kind
        client.connection.node_id = self._node_for(kind, client.persona)
        version = self.rng.choice(kind.versions)
        message = Requests(client.persona, self.rng, self.now_ms).message(kind, version)
        client_id = self.rng.choice(("client", "client", None, ""))
        request = request_mutator.taken_apart(message, version, self.rng.getrandbits(31), client_id)
        mutation, frame = request_mutator.mutated(request, self._previous or request, self.rng)
        self._previous = request
        return mutation, client, frame

    def _node_for(self, kind: type[Message], persona: Persona) -> int:
        """Choose a node, mostly the right one."""
        coordinators, cluster = self.core.state.coordinators, self.core.state.cluster
        with suppress(BrokerError):  # where an internal topic is not as it was made
            if kind in ASKS_TRANSACTION_COORDINATOR:
                led = coordinators.partition_of_transaction(persona.transactional_id or "")
            elif any(field.name == "group_id" for field in kind._spec.fields):
                led = coordinators.partition_of_group(persona.group_id)
            else:
                led = cluster.partition("one", 0)
            if led.leader >= 0 and self.rng.random() < 0.9:
                return led.leader
        return self.rng.randrange(NODES)

    def try_case(self, client: Client, frame: bytes) -> str:
        """Return the outcome of a request: "answered", "answered later", "closed", "not to be answered",
        "spared".
        """
        wanted = expected(frame)
        if is_spared(wanted.message):
            return "spared"
        client.is_waiting = True
        reply = self.core.handle(client.connection, frame, self.now_ms)
        reply.then(lambda: self._answered(client, wanted, reply))
        return "answered later" if client.is_waiting else outcome(reply)

    def _answered(self, client: Client, wanted: Expected, reply: Reply) -> None:
        client.is_waiting = False
        response = judged(wanted, reply)
        if response is not None:
            client.persona.learn(response)
        if reply.closes_connection:
            client.connection = Connection(0)

    # Between cases

    def pause(self) -> None:
        (longest_ms,) = self.rng.choices(list(PAUSES_MS), list(PAUSES_MS.values()))
        self._pass_time(self.now_ms + self.rng.randint(0, longest_ms))
        if self.rng.random() < 0.02:
            self._disturb()
        if self.rng.random() < 0.1:
            self._make_topics()

    def _pass_time(self, until_ms: int) -> None:
        """Call the broker at its deadlines, as a server does."""
        while (deadline_ms := self.core.next_deadline_ms()) is not None and deadline_ms <= until_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.core.handle_timeout(self.now_ms)
            later_ms = self.core.next_deadline_ms()
            assert later_ms is None or later_ms > self.now_ms, "a deadline that does not go away"
        self.now_ms = max(self.now_ms, until_ms)

    def _next_deadline_ms(self) -> int:
        deadline_ms = self.core.next_deadline_ms()
        assert deadline_ms is not None, "requests wait, and nothing is to happen"
        return deadline_ms

    def _disturb(self) -> None:
        """Stop or start nodes; at least one keeps running."""
        state, cluster = self.core.state, self.core.state.cluster
        running = [node.node_id for node in cluster.running_nodes]
        place = self.rng.choice(("one", "other", "__consumer_offsets", "__transaction_state")), 0
        match self.rng.randrange(4):
            case 0 if len(running) == NODES:
                state.stop_node(self.rng.choice(running))
            case 1:
                self._start_nodes()
            case 2 if place[0] in cluster.topics:
                in_sync = cluster.partition(*place).registration.isr
                if candidates := [each for each in running if each in in_sync]:
                    state.move_leader(*place, self.rng.choice(candidates))
            case 3 if place[0] in cluster.topics:
                state.hold_high_watermark(*place, self.rng.random() < 0.3)
        self.core.handle_timeout(self.now_ms)

    def _make_topics(self) -> None:
        """Return names that do not exist, or no longer."""
        for name, configs in TOPICS.items():
            if name not in self.core.state.cluster.topics:
                self.core.state.cluster.create_topic(name, 3, configs=configs)

    def _start_nodes(self) -> None:
        for node in self.core.state.cluster.nodes:
            if not node.is_running:
                self.core.state.start_node(node.node_id)

    def kill(self) -> None:
        """Restart the broker with the files as the operating system has them."""
        if self._directory is None:
            return
        before = broker_invariants.kept(self.core.state)
        self._incarnation += 1
        self._directory = shutil.copytree(
            self._directory, self._directory.with_name(f"incarnation {self._incarnation}")
        )
        self._open()
        broker_invariants.check_kept(before, self.core.state)

    # The end

    def end(self) -> None:
        self._start_nodes()
        for topic in self.core.state.cluster.topics.values():
            for partition in topic.partitions:
                self.core.state.hold_high_watermark(topic.name, partition.index, False)
        self.core.handle_timeout(self.now_ms)
        # what a request may wait for is an int32 of milliseconds, in a group several times over
        last_ms = self.now_ms + 10 * INT32_MAX
        while any(client.is_waiting for client in self._clients):
            self._pass_time(self._next_deadline_ms())
            assert self.now_ms < last_ms, "an answer that never comes"
        broker_invariants.check_logs(self.core.state)
        broker_invariants.Round(self._ask, "sane", self.now_ms).run()
        self.core.state.close()

    def _ask(self, node_id: int, message: Message, version: int) -> Any:
        client = Client(self._clients[0].persona)
        client.connection.node_id = node_id
        frame = b"".join(codec.encode_request(message, version, 1))[4:]
        reply = self.core.handle(client.connection, frame, self.now_ms)
        while reply.buffers is None:
            self._pass_time(self._next_deadline_ms())
        assert reply.buffers and not reply.closes_connection, message
        return judged(expected(frame), reply)


# Judging


def outcome(reply: Reply) -> str:
    if reply.closes_connection:
        return "closed"
    return "answered" if reply.buffers else "not to be answered"


def judged(wanted: Expected, reply: Reply) -> Message | None:
    """Return the response, if there is one; AssertionError for what the broker must not do."""
    assert reply.buffers is not None
    if reply.closes_connection:
        assert wanted.may_close, f"a request that could be read closes the connection: {wanted.message}"
    if not reply.buffers:
        assert wanted.response is None or reply.closes_connection
        return None
    data = b"".join(reply.buffers)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return answer(wanted, data[4:])


# Blocks


def play(run: campaign.Run) -> None:
    """Check a block's cases. Every other block has a broker with a directory."""
    with alarm_on("kbatch.testing", "asyncio") as alarm:
        campaign.play_bounded(run, partial(_play, alarm), WARMING_CASES, GROWTH_BYTES)


def _play(alarm: Alarm, run: campaign.Run) -> None:
    over_sockets = run.cases // SOCKET_SHARE
    with tempfile.TemporaryDirectory() as folder:
        directory = None
        if run.block % 2:
            directory = Path(folder, "incarnation 0")
            directory.mkdir()
        world = Block(run.block, directory)
        run.judge(_cases(world, run.cases - over_sockets, alarm))
        world.end()
    hostile_connections.run(run.block, over_sockets)
    run.outcomes["over sockets"] += over_sockets
    assert not alarm.rung, alarm.rung[0]


def _cases(world: Block, count: int, alarm: Alarm) -> Iterator[campaign.Case]:
    for number in range(count):
        world.pause()
        mutation, client, frame = world.next_case()
        yield mutation, frame, partial(world.try_case, client, frame)
        if number % KILLED_EVERY == KILLED_EVERY - 1:
            world.kill()
        assert not alarm.rung, alarm.rung[0]
