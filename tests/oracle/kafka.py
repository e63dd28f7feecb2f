"""A real Apache Kafka as a judge: broker and controller (KRaft) in one process, on loopback.

`tests/java/RealKafka.java` formats and runs it. It ends with this process: `close` at exit ends what is still
there, and the JVM halts by itself when its stdin does.
"""

import atexit
import contextlib
import json
import os
import random
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from kbatch import Admin
from tests.oracle.java_programs import KAFKA_VERSION, Program
from tests.support.patience import HANG_SECONDS

HOST, NAME = "127.0.0.1", "localhost"
CLUSTER_ID = "kbatch-oracle-AAAAAAAA"
START_SECONDS = HANG_SECONDS
STOP_SECONDS = HANG_SECONDS
POLL_SECONDS = 0.02
LOG_TAIL_BYTES = 4000
# Below what Linux and macOS give to outgoing connections: else a client could take the port during a restart.
PORTS = range(20_000, 32_000)
METADATA_OF_ALL_TOPICS = struct.pack(">ihhihi", 14, 3, 0, 1, -1, 0)
PROTOCOL_MAP = "listener.security.protocol.map"
JAVA_OPTIONS = ("-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
DEFAULTS: Mapping[str, object] = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "BROKER",
    PROTOCOL_MAP: "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    # Else a rebalance of the new protocol takes two intervals of five seconds.
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.assignment.interval.ms": 0,
    "group.share.min.heartbeat.interval.ms": 100,
    "group.share.heartbeat.interval.ms": 500,
    "group.share.assignment.interval.ms": 0,
    # Else a test of the end of locks takes 15 seconds.
    "group.share.min.record.lock.duration.ms": 1000,
    # After a kill the controller lets a broker in again only when its old session is over; on a busy machine
    # a live one may be late for some seconds.
    "broker.session.timeout.ms": 6000,
    "broker.heartbeat.interval.ms": 500,
    # Half of what an idle broker does is to write records of its idleness.
    "metadata.max.idle.interval.ms": 0,
    # Tests write timestamps of long ago, which are not to be cleaned away.
    "log.retention.ms": -1,
    "log.roll.ms": 10**12,
    # Small preallocations: the folder may be in memory.
    "log.index.size.max.bytes": 1 << 20,
    "log.cleaner.dedupe.buffer.size": 4 << 20,
}


class KafkaDiedError(RuntimeError):
    """The broker's process ended, or never answered; the text ends with what it printed."""


def create_topic(
    bootstrap_servers: str,
    name: str,
    partitions: int = 1,
    configs: Mapping[str, str] | None = None,
    *,
    timeout_seconds: float = HANG_SECONDS,
) -> None:
    """Create a topic, and wait until each partition is led: not by metadata alone, which a broker has a
    moment before it leads. Raises KafkaError.
    """
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        admin.topics.create(
            name,
            partitions=partitions,
            replication_factor=1,
            configs=configs or {},
            timeout=timeout_seconds,
        )
        ends = {(name, number): "latest" for number in range(partitions)}
        admin.topics.offsets(ends, timeout=timeout_seconds)


def free_ports(count: int) -> list[int]:
    """Return consecutive ports of `PORTS` on which no process listens."""
    while True:
        ports = range(random.SystemRandom().choice(PORTS), PORTS.stop)[:count]
        with contextlib.ExitStack() as probes, contextlib.suppress(OSError):
            for port in ports:
                probes.enter_context(socket.socket()).bind((HOST, port))
            if len(ports) == count:
                return list(ports)


class Node(NamedTuple):
    """Which node of a cluster a broker is, and the ports of all brokers and controllers."""

    node_id: int
    brokers: Sequence[int]
    controllers: Sequence[int]


class RealKafka:
    """A broker, from `start` (or entering the context) to `close`; its folder and ports stay the same.

    `properties` go before the defaults above. `transaction_version` is the feature level of a new folder;
    None where Kafka's `version` has no such feature. `listeners` are further ones, and the protocol of each;
    clients reach them at `address`.
    `java_options` come last: `-XX:TieredStopAtLevel=4` makes it fast in the long run. `node` says which one
    of a RealCluster it is. With `dynamic_quorum` controllers may be added and removed (KIP-853). `log_dirs`
    is the number of its log directories, of which `log_directory` is the first.
    """

    def __init__(
        self,
        properties: Mapping[str, object] | None = None,
        *,
        auto_create_topics: bool = False,
        transaction_version: int | None = 2,
        listeners: Mapping[str, str] | None = None,
        java_options: Sequence[str] = (),
        version: str = KAFKA_VERSION,
        node: Node | None = None,
        dynamic_quorum: bool = False,
        log_dirs: int = 1,
    ) -> None:
        protocols = dict(listeners or {})
        if node is None:
            port, controller, *ports = free_ports(2 + len(protocols))
            node = Node(0, [port], [controller])
        else:
            ports = free_ports(len(protocols)) if protocols else []
        self.port = node.brokers[node.node_id]
        self.controllers = [f"{HOST}:{port}" for port in node.controllers]
        self._ports = dict(zip(protocols, ports, strict=True))
        self._folder = tempfile.TemporaryDirectory(prefix="kbatch-kafka-")
        self._log_path = Path(self._folder.name) / "output"
        self._properties_path = Path(self._folder.name) / "server.properties"
        bound = [f"BROKER://{HOST}:{self.port}", f"CONTROLLER://{self.controllers[node.node_id]}"]
        advertised = [f"BROKER://{HOST}:{self.port}"]
        for name, port in self._ports.items():
            bound.append(f"{name}://{HOST}:{port}")
            advertised.append(f"{name}://{NAME}:{port}")
        mapped = [str(DEFAULTS[PROTOCOL_MAP]), *(f"{name}:{each}" for name, each in protocols.items())]
        settings = dict(DEFAULTS) | {
            "listeners": ",".join(bound),
            "advertised.listeners": ",".join(advertised),
            PROTOCOL_MAP: ",".join(mapped),
            "node.id": node.node_id,
            "log.dirs": ",".join(map(str, self.log_directories(log_dirs))),
            "auto.create.topics.enable": str(auto_create_topics).lower(),
        }
        if dynamic_quorum:
            settings["controller.quorum.bootstrap.servers"] = ",".join(self.controllers)
        else:
            voters = (f"{number}@{address}" for number, address in enumerate(self.controllers))
            settings["controller.quorum.voters"] = ",".join(voters)
        settings |= properties or {}
        lines = (f"{key}={_escaped(value)}\n" for key, value in settings.items())
        self._properties_path.write_text("".join(lines))
        self._features = []
        if transaction_version is not None:
            self._features.append(f"transaction.version={transaction_version}")
        if dynamic_quorum:  # which begins with the first node's vote
            self._features.append("--no-initial-controllers" if node.node_id else "--standalone")
        self._version = version
        self._java_options = (*JAVA_OPTIONS, *java_options)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self.port}"

    def address(self, listener: str) -> str:
        """Return the bootstrap servers of a further listener, by their name, which certificates have."""
        return f"{NAME}:{self._ports[listener]}"

    @property
    def log_directory(self) -> Path:
        """Return the folder with a folder for each partition."""
        return Path(self._folder.name) / "logs"

    def log_directories(self, count: int) -> list[Path]:
        """Return the first so many log directories."""
        first = self.log_directory
        return [first, *(first.with_name(f"{first.name}-{number}") for number in range(1, count))]

    @property
    def security(self) -> Mapping[str, str]:
        """The keys of TLS and SASL that clients of `bootstrap_servers` need: none."""
        return {}

    @property
    def process_id(self) -> int | None:
        """Return the process id of the JVM, while it runs."""
        return None if self._process is None else self._process.pid

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # Lifecycle

    def start(self) -> Self:
        """Wait until the broker serves clients. Raises KafkaDiedError.

        The first one of all stops then, to write the archive of its classes, and starts again with it.
        """
        self.begin(records=True)
        self.await_served()
        if self._program.recording:
            self.stop()
            self.begin()
            self.await_served()
        return self

    def begin(self, *, records: bool = False) -> None:
        """Start the process; it serves after `await_served`. It may write the archive of its classes."""
        arguments = [str(self._properties_path), CLUSTER_ID, *self._features]
        self._program = Program(
            "RealKafka",
            arguments,
            archive="RealKafka" if self._version == KAFKA_VERSION else None,  # others start once or twice
            records=records,
            java_options=self._java_options,
            kafka_version=self._version,
        )
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._program.command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        atexit.register(self.close)

    def await_served(self) -> None:
        """Wait until the broker serves clients. Raises KafkaDiedError."""
        assert self._process is not None
        for _ in _until(START_SECONDS):
            if self._process.poll() is not None:
                break
            if self._serves():
                return
        raise self._death()

    def stop(self) -> None:
        """Shut the broker down in a controlled way."""
        if self._process is None:
            return
        self.resume()
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
            self._ended(properly=True)
        self.kill()

    def kill(self) -> None:
        """Kill the process as kill -9 does."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait()
            self._ended(properly=False)

    def restart(self) -> None:
        """Start it again on the same folder and port; stop it first if it runs."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Stop the process (SIGSTOP); its sockets stay open."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """Kill the process, and remove its folder."""
        self.kill()
        self._folder.cleanup()
        atexit.unregister(self.close)

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic that a kill leaves as it is, and wait until each partition is led.

        Kafka writes the id of a topic into a partition's folder a moment after the partition is led. A broker
        that is killed in between takes the folder for a stray one when it starts, and begins an empty log.
        """
        create_topic(self.bootstrap_servers, name, partitions, configs)
        ids = [self.log_directory / f"{name}-{number}" / "partition.metadata" for number in range(partitions)]
        for _ in _until(START_SECONDS):
            if all(path.exists() for path in ids):
                return
        raise TimeoutError(f"the folders of topic {name} have no id of it after {START_SECONDS} s")

    def output(self, size_bytes: int = LOG_TAIL_BYTES) -> str:
        """Return the end of its output."""
        return self._log_path.read_bytes()[-size_bytes:].decode(errors="replace")

    def has_printed(self, text: str) -> bool:
        """True if the text is in any output since its first start."""
        return text.encode() in self._log_path.read_bytes()

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def _ended(self, *, properly: bool) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process = None
        self._program.ended(properly=properly)

    def _serves(self) -> bool:
        """True if it answers and has registered itself: an unfenced broker is in its own metadata."""
        try:
            with socket.create_connection((HOST, self.port), timeout=10) as connection:
                connection.sendall(METADATA_OF_ALL_TOPICS)
                answer = connection.makefile("rb").read(12)
        except OSError:
            return False
        return len(answer) == 12 and struct.unpack(">iii", answer)[2] > 0

    def _death(self) -> KafkaDiedError:
        assert self._process is not None
        status = self._process.poll()
        self.kill()
        what = "does not answer" if status is None else f"ended with status {status}"
        return KafkaDiedError(f"Kafka {what}: {self.output()}")


class RealCluster:
    """Nodes 0, 1, ... of one cluster, each a broker and a controller; its methods are those of
    kbatch.testing.Broker.
    """

    def __init__(
        self,
        nodes: int = 3,
        properties: Mapping[str, object] | None = None,
        *,
        listeners: Mapping[str, str] | None = None,
        dynamic_quorum: bool = False,
        log_dirs: int = 1,
        racks: Sequence[str] = (),
    ) -> None:
        ports = free_ports(2 * nodes)
        brokers, controllers = ports[:nodes], ports[nodes:]
        own = [{"broker.rack": rack} for rack in racks] or [{}] * nodes
        self.nodes = [
            RealKafka(
                {**(properties or {}), **own[node_id]},
                listeners=listeners,
                node=Node(node_id, brokers, controllers),
                dynamic_quorum=dynamic_quorum,
                log_dirs=log_dirs,
            )
            for node_id in range(nodes)
        ]

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            for node in self.nodes:
                stack.callback(node.close)
                node.begin()
            for node in self.nodes:
                node.await_served()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.bootstrap_servers for node in self.nodes)

    def address(self, listener: str) -> str:
        """Return the bootstrap servers of a further listener."""
        return ",".join(node.address(listener) for node in self.nodes)

    @property
    def controllers(self) -> str:
        """The addresses of the controllers."""
        return ",".join(self.nodes[0].controllers)

    def kill_node(self, node: int) -> None:
        self.nodes[node].kill()

    def start_node(self, node: int) -> None:
        self.nodes[node].start()

    def pause_node(self, node: int) -> None:
        self.nodes[node].pause()

    def resume_node(self, node: int) -> None:
        self.nodes[node].resume()


def _escaped(value: object) -> str:
    """Format it for java.util.Properties: JSON escapes the same characters."""
    return json.dumps(str(value))[1:-1]


def _until(seconds: float) -> Iterator[None]:
    """Rounds of polling until the time is over."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield
        time.sleep(POLL_SECONDS)
