"""The real Kafka as a judge: tests/java/Oracle.java in a separate process, called over a pipe.

One JVM serves all requests of a session.
"""

import struct
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

from tests.oracle.java_programs import STDERR_TAIL_BYTES, Program
from tests.oracle.plain import CODECS, HEADER_FIELDS, Batch, Headers, Record, Row

NO_LEVEL = -(2**31)
# The options of a server, in place of those of short runs.
OPTIMIZING = ("-XX:TieredStopAtLevel=4", "-XX:-UseSerialGC", "-XX:+UseG1GC")
BUILD, READ, BUILD_EMPTY, MURMUR2, PARTITIONS, BENCH_WRITE, BENCH_READ, DUMP = range(1, 9)


class JavaDiedError(RuntimeError):
    """The process ended in the middle of a request; the text ends with what it said on stderr."""


class JavaError(Exception):
    """An exception of Kafka's, by its class name."""

    def __init__(self, class_name: str, message: str) -> None:
        super().__init__(f"{class_name}: {message}")
        self.class_name = class_name.rpartition(".")[2]
        self.message = message


class Reading(NamedTuple):
    """The result of Java's reading: the batches before the first error, that error, and the size of the
    batches.
    """

    batches: list[Batch]
    error: JavaError | None
    used_bytes: int


class Timing(NamedTuple):
    """Nanoseconds a record of each round, and the batch's size."""

    ns_per_record: list[float]
    size_bytes: int


# The wire: see class Wire in Oracle.java


def _sized(data: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if data is None else struct.pack(">i", len(data)) + data


def _compression(codec: str, level: int | None) -> bytes:
    return struct.pack(">bi", CODECS.index(codec), NO_LEVEL if level is None else level)


def _rows(rows: Sequence[Row], offsets: Iterable[int]) -> bytes:
    parts = [struct.pack(">i", len(rows))]
    for offset, (key, value, headers, timestamp_ms) in zip(offsets, rows, strict=True):
        parts += struct.pack(">qq", offset, timestamp_ms), _sized(key), _sized(value), _headers(headers)
    return b"".join(parts)


def _headers(headers: Headers) -> bytes:
    pairs = (_sized(name.encode()) + _sized(content) for name, content in headers)
    return struct.pack(">i", len(headers)) + b"".join(pairs)


class _Answer:
    """Reads a response front to back."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def fields(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from(">" + layout, self.data, self.position)
        self.position += struct.calcsize(">" + layout)
        return values

    def field(self, layout: str) -> Any:
        return self.fields(layout)[0]

    def sized(self) -> bytes | None:
        length = self.field("i")
        return None if length < 0 else self.field(f"{length}s")

    def text(self) -> str:
        return (self.sized() or b"").decode()

    def error(self) -> JavaError | None:
        """Read the status byte, and the error after it."""
        return JavaError(self.text(), self.text()) if self.field("b") else None

    def record(self) -> Record:
        offset, timestamp_ms = self.fields("qq")
        key, value = self.sized(), self.sized()
        headers = tuple((self.text(), self.sized()) for _ in range(self.field("i")))
        return Record(offset, timestamp_ms, key, value, headers)

    def batch(self) -> Batch:
        values = [*self.fields("bhqqiq"), self.text()]
        values.append("log_append_time" if self.field("?") else "create_time")
        values += self.fields("??qq")
        has_horizon, horizon = self.fields("?q")
        values += [horizon if has_horizon else None, *self.fields("qhiii")]
        header = dict(zip((*HEADER_FIELDS, "count"), values, strict=True))
        return Batch(header, [self.record() for _ in range(header["count"])])


def build_request(
    rows: Sequence[Row],
    *,
    compression: str = "none",
    compression_level: int | None = None,
    base_offset: int = 0,
    offsets: Sequence[int] | None = None,
    last_offset: int | None = None,
    partition_leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """Return a batch for `JavaOracle.build_many`: the parameters of `plain.encode`."""
    offsets = range(base_offset, base_offset + len(rows)) if offsets is None else offsets
    append_time_ms, horizon_ms, last = (
        -1 if value is None else value for value in (log_append_time_ms, delete_horizon_ms, last_offset)
    )
    return (
        _compression(compression, compression_level)
        + struct.pack(">q?q", base_offset, log_append_time_ms is not None, append_time_ms)
        + struct.pack(">qhi", producer_id, producer_epoch, base_sequence)
        + struct.pack(">??iqq", transactional, control, partition_leader_epoch, horizon_ms, last)
        + _rows(rows, offsets)
    )


class JavaOracle:
    """Kafka's record classes. A context manager; not for several threads.

    `java_options` come last: OPTIMIZING makes it fast in the long run.
    """

    def __init__(self, java_options: Sequence[str] = ()) -> None:
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            Program("Oracle", java_options=java_options).command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process by closing its stdin."""
        self._process.communicate()
        self._stderr.close()

    def _ask(self, operation: int, body: bytes) -> _Answer:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(struct.pack(">ib", len(body) + 1, operation) + body)
            stdin.flush()
            (length,) = struct.unpack(">i", stdout.read(4))
            data = stdout.read(length)
        except (OSError, struct.error) as error:
            raise self._death() from error
        if len(data) < length:
            raise self._death()
        answer = _Answer(data)
        if failure := answer.error():
            raise failure
        return answer

    def _death(self) -> JavaDiedError:
        self._process.kill()
        status = self._process.wait()
        self._stderr.seek(0)
        tail = self._stderr.read()[-STDERR_TAIL_BYTES:].decode(errors="replace")
        return JavaDiedError(f"the Java oracle ended with status {status}: {tail}")

    def build(self, rows: Sequence[Row], **parameters: Any) -> bytes:
        """Return one batch of MemoryRecordsBuilder; parameters as for `plain.encode`. Raises JavaError."""
        (built,) = self.build_many([build_request(rows, **parameters)])
        return built

    def build_many(self, requests: Sequence[bytes]) -> list[bytes]:
        """Return a batch for each `build_request`. Raises the first JavaError."""
        answer = self._ask(BUILD, struct.pack(">i", len(requests)) + b"".join(map(_sized, requests)))
        return [answer.sized() or b"" for _ in requests]

    def build_empty(
        self,
        base_offset: int,
        last_offset: int,
        *,
        timestamp_ms: int = -1,
        log_append_time: bool = False,
        partition_leader_epoch: int = -1,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
    ) -> bytes:
        """Return the rest of a batch when no record survives compaction
        (DefaultRecordBatch.writeEmptyHeader).
        """
        body = struct.pack(">qhiqq", producer_id, producer_epoch, base_sequence, base_offset, last_offset)
        body += struct.pack(">i?q", partition_leader_epoch, log_append_time, timestamp_ms)
        body += struct.pack(">??", transactional, control)
        return self._ask(BUILD_EMPTY, body).sized() or b""

    def read(self, data: bytes) -> Reading:
        """Return all whole batches of `data`, each validated; a batch cut off at the end is skipped."""
        answer = self._ask(READ, _sized(data))
        batches = []
        while (mark := answer.field("b")) == 1:
            batches.append(answer.batch())
        return Reading(batches, answer.error() if mark == 2 else None, answer.field("i"))

    def read_valid(self, data: bytes) -> list[Batch]:
        """Return the batches of `data`; raise if Java objects, or if bytes are left over."""
        reading = self.read(data)
        if reading.error:
            raise reading.error
        if reading.used_bytes != len(data):
            raise ValueError(f"{len(data) - reading.used_bytes} bytes that Java takes for no batch")
        return reading.batches

    def murmur2(self, keys: Sequence[bytes]) -> list[int]:
        body = struct.pack(">i", len(keys)) + b"".join(map(_sized, keys))
        return list(self._ask(MURMUR2, body).fields(f"{len(keys)}i"))

    def partitions(self, keys: Sequence[bytes], partitions: int) -> list[int]:
        """Return BuiltInPartitioner.partitionForKey of each key."""
        body = struct.pack(">ii", partitions, len(keys)) + b"".join(map(_sized, keys))
        return list(self._ask(PARTITIONS, body).fields(f"{len(keys)}i"))

    def bench_encode(
        self,
        rows: Sequence[Row],
        *,
        compression: str = "none",
        compression_level: int | None = None,
        warm_up_seconds: float = 2.0,
        rounds: int = 10,
    ) -> Timing:
        """Time MemoryRecordsBuilder over one batch of `rows`, warm, its buffer reused.

        Ask a fresh process for each codec: what the JIT learnt of another one makes Java up to twice as slow.
        """
        body = _compression(compression, compression_level) + struct.pack(">di", warm_up_seconds, rounds)
        return self._timing(BENCH_WRITE, body + _rows(rows, range(len(rows))))

    def bench_decode(
        self, batch: bytes, *, check_crc: bool = True, warm_up_seconds: float = 2.0, rounds: int = 10
    ) -> Timing:
        """Time the consumer's iterator over one batch, keys and values touched but not copied."""
        body = _sized(batch) + struct.pack(">?di", check_crc, warm_up_seconds, rounds)
        return self._timing(BENCH_READ, body)

    def _timing(self, operation: int, body: bytes) -> Timing:
        answer = self._ask(operation, body)
        return Timing(list(answer.fields(f"{answer.field('i')}d")), answer.field("i"))

    def dump(self, files: Iterable[Path]) -> str:
        """Return DumpLogSegments' output for .log, .index and .timeindex files: records, and complaints."""
        return self._ask(DUMP, _sized(",".join(map(str, files)).encode())).text()
