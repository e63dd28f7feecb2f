"""Kafka's own clients and command-line tools as judges, with time limits.

`tests/java/Clients.java` is the other side of `consume`, `share`, `read`, `copy`, `transaction`, `produce`,
`admin` and `judging_admin`: its processes are kept for the next job, because the start of one takes longer
than most jobs do.
ProducerPerformance and ConsoleConsumer are Kafka's, unchanged, each run a process.
"""

import atexit
import contextlib
import json
import re
import subprocess
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

from tests.oracle.java_programs import Program
from tests.oracle.partition_log import Seen
from tests.support.patience import HANG_SECONDS

TIMEOUT_SECONDS = HANG_SECONDS
STDERR_TAIL_CHARACTERS = 4000
JAVA_OPTIONS = ("-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
SUMMARY = re.compile(
    r"(\d+) records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\), ([\d.]+) ms avg latency, ([\d.]+) ms max"
)


class JavaClientError(RuntimeError):
    """A client failed or took too long; the text ends with what it said on stderr."""


class JavaAdminError(Exception):
    """An exception of the AdminClient's, by its class name."""

    def __init__(self, class_name: str, message: str) -> None:
        super().__init__(f"{class_name}: {message}")
        self.class_name = class_name


class Performance(NamedTuple):
    """The summary line of ProducerPerformance."""

    records: int
    records_per_second: float
    megabytes_per_second: float
    average_latency_ms: float
    maximum_latency_ms: float


def run(
    program: str,
    arguments: Sequence[str],
    *,
    archive: str,
    timeout_seconds: float = TIMEOUT_SECONDS,
    java_options: Sequence[str] = (),
) -> str:
    """Return the output of a program. Raises JavaClientError."""
    prepared = Program(program, arguments, archive=archive, java_options=(*JAVA_OPTIONS, *java_options))
    status: int | None = None
    try:
        done = subprocess.run(
            prepared.command, capture_output=True, text=True, check=False, timeout=timeout_seconds
        )
        status, output, complaints = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as expired:
        output, complaints = (
            (part or b"").decode(errors="replace") for part in (expired.stdout, expired.stderr)
        )
    finally:
        prepared.ended(properly=status == 0)
    if status == 0:
        return output
    what = f"was not done after {timeout_seconds} s" if status is None else f"ended with status {status}"
    tail = (output + complaints)[-STDERR_TAIL_CHARACTERS:]
    raise JavaClientError(f"{archive} {what}: {tail}")


def perf(
    bootstrap_servers: str,
    topic: str,
    *,
    records: int,
    record_bytes: int = 100,
    properties: Mapping[str, object] | None = None,
    arguments: Sequence[str] = (),
    **limits: Any,
) -> Performance:
    """Run ProducerPerformance with the producer's defaults (idempotent, acks=all) under `properties`.

    `arguments` are further ones of the tool, `limits` those of `run`. Raises JavaClientError.
    """
    settings = {"bootstrap.servers": bootstrap_servers} | dict(properties or {})
    command = ["--topic", topic, "--num-records", str(records), "--record-size", str(record_bytes)]
    command += ["--throughput", "-1", *arguments, "--command-property"]
    command += [f"{name}={value}" for name, value in settings.items()]
    output = run(PRODUCER_PERFORMANCE, command, archive="ProducerPerformance", **limits)
    summaries = SUMMARY.findall(output)
    if not summaries:
        raise JavaClientError(f"ProducerPerformance printed no summary: {output}")
    count, *figures = summaries[-1]
    return Performance(int(count), *map(float, figures))


def console_consumer(
    bootstrap_servers: str,
    topic: str,
    *,
    group: str,
    max_messages: int,
    timeout_ms: int = 20_000,
    isolation_level: str = "read_uncommitted",
    **limits: Any,
) -> list[tuple[int, int, str, str]]:
    """Return ConsoleConsumer's output from the beginning: partition, offset, key and value.

    Raises JavaClientError.
    """
    command = ["--bootstrap-server", bootstrap_servers, "--topic", topic, "--from-beginning"]
    command += ["--group", group, "--isolation-level", isolation_level]
    command += ["--max-messages", str(max_messages), "--timeout-ms", str(timeout_ms)]
    for shown in ("partition", "offset", "key"):
        command += ["--formatter-property", f"print.{shown}=true"]
    lines = run(CONSOLE_CONSUMER, command, archive="ConsoleConsumer", **limits).splitlines()
    return [_console_row(line) for line in lines]


def _console_row(line: str) -> tuple[int, int, str, str]:
    partition, offset, key, value = line.split("\t")
    return int(partition.removeprefix("Partition:")), int(offset.removeprefix("Offset:")), key, value


def consume(
    bootstrap_servers: str,
    topics: Sequence[str] | str,
    *,
    group: str,
    max_records: int = 2**31,
    idle_ms: int = 10_000,
    first_ms: int | None = None,
    isolation_level: str = "read_committed",
    properties: Mapping[str, str] | None = None,
    **limits: Any,
) -> list[dict[str, Any]]:
    """Return records read by a group's member, as dicts: topic, partition, offset, timestamp, key, value,
    headers.

    `topics` are names, or a pattern of RE2. Ends with the `max_records`th record's batch or after `idle_ms`
    without one, or after `first_ms` without the first. Raises JavaClientError.
    """
    job: dict[str, Any] = {"group": group, "max_records": max_records, "idle_ms": idle_ms}
    job["first_ms"] = idle_ms if first_ms is None else first_ms
    job["pattern" if isinstance(topics, str) else "topics"] = topics
    job |= {"isolation.level": isolation_level, "properties": dict(properties or {})}
    return _job("consume", bootstrap_servers, job, limits)


class Shared(NamedTuple):
    """A record that a member of a share group has got, and whether it has accepted or released it."""

    partition: int
    offset: int
    delivery_count: int
    is_accepted: bool


def share(
    bootstrap_servers: str, topics: Sequence[str], *, group: str, first_ms: int, idle_ms: int, releases: int
) -> list[Shared]:
    """Return what a member of a share group gets. It releases the first delivery of each record whose offset
    is a multiple of `releases`, and accepts all others. It ends as that of `consume` does.
    """
    job = {"group": group, "topics": topics, "first_ms": first_ms, "idle_ms": idle_ms, "releases": releases}
    return [Shared(*row) for row in _job("share", bootstrap_servers, job, {})]


def read(
    bootstrap_servers: str, topic: str, ends: Mapping[str, Mapping[int, int]], **limits: Any
) -> dict[str, dict[int, list[Seen]]]:
    """Return the records of a topic that a consumer without a group sees under each isolation level, by
    partition: up to these positions by isolation level and partition. Raises JavaClientError.
    """
    job = {"topic": topic, "ends": ends}
    found: dict[str, dict[int, list[Seen]]] = {level: {} for level in ends}
    for level, partition, offset, timestamp_ms, kind, epoch, key, value, headers in _job(
        "read", bootstrap_servers, job, limits
    ):
        pairs = tuple((bytes.fromhex(name).decode(), _bytes(content)) for name, content in headers)
        is_append_time = kind == "LogAppendTime"
        record = Seen(offset, timestamp_ms, is_append_time, _bytes(key), _bytes(value), pairs, epoch)
        found[level].setdefault(partition, []).append(record)
    return found


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def copy(
    bootstrap_servers: str,
    source: str,
    target: str,
    *,
    group: str,
    transactional_id: str,
    batch_records: int,
    abort_every: int = 0,
    **limits: Any,
) -> dict[str, int]:
    """Copy what is committed in `source` to `target` in transactions; {"copied", "committed", "aborted"}.

    `abort_every`: each so many-th transaction is aborted and done again. Raises JavaClientError.
    """
    job: dict[str, Any] = {"source": source, "target": target, "group": group}
    job |= {"transactional_id": transactional_id}
    job |= {"batch_records": batch_records, "abort_every": abort_every, "isolation.level": "read_committed"}
    counts: dict[str, int]
    (counts,) = _job("copy", bootstrap_servers, job, limits)
    return counts


@contextlib.contextmanager
def transaction(
    bootstrap_servers: str, topic: str, value: str, *, transactional_id: str
) -> Iterator[Callable[[], str]]:
    """Yield a transaction of the Java producer's, which is open, with a record, while the context is entered.

    What is given ends it: "committed", or the class of the exception that the commit raised. The process is
    killed if it was not called.
    """
    job = {"topic": topic, "value": value, "transactional_id": transactional_id}
    with _clients() as clients:
        answers = clients.answers("transact", bootstrap_servers, job)
        if next(answers) != "open":
            raise JavaClientError("the transaction is not open")

        def commit() -> str:
            clients.write("")
            (answer,) = answers
            return str(answer)

        yield commit


def admin(
    bootstrap_servers: str,
    *calls: Mapping[str, Any],
    properties: Mapping[str, str] | None = None,
    **limits: Any,
) -> list[Any]:
    """Return the answers of an AdminClient to `calls`, {"call": name, ...}: a result or a JavaAdminError for
    each.

    Raises JavaClientError.
    """
    job = {"calls": calls, "properties": dict(properties or {})}
    answers = _job("admin", bootstrap_servers, job, limits)
    return [
        answer["result"] if "error" not in answer else JavaAdminError(answer["error"], answer["message"])
        for answer in answers
    ]


@contextlib.contextmanager
def judging_admin(
    bootstrap_servers: str, properties: Mapping[str, str] | None = None
) -> Iterator[Callable[[Mapping[str, Any]], dict[str, Any]]]:
    """Yield a function that lets an AdminClient do a call, {"call": name, ...}, of tests/java/AdminJudge.

    It returns {item: {"result": ...} or {"code": the error's}}. Raises JavaClientError.
    """
    with _clients() as clients:
        answers = clients.answers("judge", bootstrap_servers, {"properties": dict(properties or {})})
        if next(answers) != "open":
            raise JavaClientError("the admin is not open")

        def ask(call: Mapping[str, Any]) -> dict[str, Any]:
            clients.write(json.dumps(call))
            return dict(next(answers))

        yield ask
        clients.write("")
        list(answers)


def produce(
    topic: str, values: Mapping[str, Mapping[str, str]], **limits: Any
) -> dict[str, tuple[int, int] | JavaAdminError]:
    """Return the partition and offset of each of `values`, or its error; each goes by a producer with the
    properties that are given for it. Raises JavaClientError.
    """
    records = [
        {"topic": topic, "value": value, "properties": dict(properties)}
        for value, properties in values.items()
    ]
    answers = _job("produce", "", {"records": records}, limits)
    return {
        value: JavaAdminError(answer["error"], answer["message"])
        if "error" in answer
        else (answer["partition"], answer["offset"])
        for value, answer in zip(values, answers, strict=True)
    }


def _job(
    command: str, bootstrap_servers: str, job: Mapping[str, Any], limits: Mapping[str, Any]
) -> list[Any]:
    with _clients(**limits) as clients:
        return list(clients.answers(command, bootstrap_servers, job))


class Clients:
    """A process of tests/java/Clients.java, which does one job at a time."""

    def __init__(self, java_options: Sequence[str]) -> None:
        self._program = Program("Clients", archive="Clients", java_options=(*JAVA_OPTIONS, *java_options))
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            self._program.command,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )
        self._is_busy = False

    @property
    def is_free(self) -> bool:
        """True if it can do another job. The first process ends after its job, to write its archive."""
        return not self._is_busy and not self._program.recording and self._process.poll() is None

    def answers(self, command: str, bootstrap_servers: str, job: Mapping[str, Any]) -> Iterator[Any]:
        """Do a job, and yield its answers as they come. Raises JavaClientError."""
        self._is_busy = True
        self.write(json.dumps({"command": command, "bootstrap.servers": bootstrap_servers, **job}))
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            if "answer" in said:
                yield said["answer"]
                continue
            self._is_busy = False
            if "failure" in said:
                raise JavaClientError(f"{command} failed: {said['failure'][-STDERR_TAIL_CHARACTERS:]}")
            return
        raise self._death(command)

    def write(self, line: str) -> None:
        """Write a line to its stdin; the answers say so if it has ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def _death(self, command: str) -> JavaClientError:
        status = self._process.wait()
        self._stderr.seek(0)
        tail = self._stderr.read().decode(errors="replace")[-STDERR_TAIL_CHARACTERS:]
        return JavaClientError(f"{command} ended with status {status} (-9: it took too long): {tail}")

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """End the process, by force if a job is not done."""
        if self._is_busy:
            self.kill()
        with contextlib.suppress(OSError):  # of a process that has ended
            self._process.communicate()
        self._program.ended(properly=self._process.wait() == 0)
        self._stderr.close()


# Processes without a job, by their Java options.
_free: defaultdict[tuple[str, ...], list[Clients]] = defaultdict(list)


@contextlib.contextmanager
def _clients(
    *, java_options: Sequence[str] = (), timeout_seconds: float = TIMEOUT_SECONDS
) -> Iterator[Clients]:
    """Lend a process for a job; it is killed after the time limit."""
    free = _free[tuple(java_options)]
    clients = free.pop() if free else Clients(java_options)
    watchdog = threading.Timer(timeout_seconds, clients.kill)
    watchdog.start()
    try:
        yield clients
    finally:
        watchdog.cancel()
        if clients.is_free:
            free.append(clients)
        else:
            clients.close()


@atexit.register
def _close_free() -> None:
    for free in _free.values():
        while free:
            free.pop().close()
