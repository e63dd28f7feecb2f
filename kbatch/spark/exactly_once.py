"""Exactly once: a transaction for each task attempt, with a marker by which a replay recognizes itself.

Theory of operation. app_id and sink name a write, version its write of one batch, and the Spark partition a
task of it. They give the name of the task:

    <prefix>.<app_id>.<sink>.<Spark partition>

The name is the task's transactional.id, so InitProducerId of a newer attempt fences the older one and aborts
its open transaction. It is also the id of the consumer group with the marker. The marker is the offset
`version`, committed for partition 0 of the marker topic in the same transaction as the rows (Delta's
txnAppId, txnVersion). The marker's metadata has the number of rows and an order-free digest of them.

An attempt first requests the producer id and then reads the marker, because an older attempt can commit until
then. If there is no marker, or one below the version, it writes the rows. At the version, the rows are there,
and the attempt only reads its input to check that it is the same. Above it, the query runs from a checkpoint
older than the topic, which nothing here can repair.

The transaction begins with a claim, the offset that the marker will replace. While it is open, brokers report
the offset as unstable (KIP-447), so others see that an attempt is at work.

The job's commit, or its abort if tasks had ended, leaves a marker of its own in the group
<prefix>.<app_id>.<sink>.tasks: the version and the number of tasks. Spark tells no task how many there are.
So a repetition with more tasks is found by those that the first run had not: they refuse before they write.

A fenced attempt does not fail, which would count towards spark.task.maxFailures: a newer one has its rows. It
waits until the marker says so, or until Spark kills it. But Spark may have given up the newer attempt while
it was connecting, so that it never commits. If there is neither a marker nor a claim, no attempt has the
rows, and the fenced one fails, so that Spark begins another.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from kbatch._native.arrow.row_hashes import digest_rows
from kbatch.config import CONSUMER_KEYS, ProducerConfig
from kbatch.consumer.topic_reader import TopicReader
from kbatch.errors import (
    DeliveryError,
    InvalidProducerEpochError,
    InvalidTxnTimeoutError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
)
from kbatch.producer.threads import Producer
from kbatch.records import OffsetAndMetadata, TopicPartition
from kbatch.spark.sink_formats import Serializers, with_bytes
from kbatch.spark.sink_options import SinkOptions
from kbatch.spark.sink_rows import RowSender, TaskReport, naming_rows, refuse_null_topic

logger = logging.getLogger(__name__)

# The fraction of transaction.timeout.ms after which a task gives up, before the coordinator does.
GIVES_UP_AT = 0.9
# The interval at which a fenced attempt checks the newer one's marker.
POLL_SECONDS = 0.5
# After fencing, an attempt claims the rows within this time: after it, there is none at work.
CLAIM_SECONDS = 10.0
# Brokers that take longer to answer withhold the offset because of an open transaction.
LOOK_SECONDS = 2.0
# Time for a failing attempt to abort; otherwise a newer one does it.
ABORT_SECONDS = 5.0
# Metadata of an offset that is never committed, instead of a marker's.
CLAIM = "claim"
_DIGEST_MODULUS = 2**64


# Time for which the driver waits for brokers to create a topic.
CREATE_SECONDS = 10.0
# Time for which a topic that was there is taken to be there: streams ask for each micro-batch, twice.
THERE_SECONDS = 60.0


def write_name(prefix: str, app_id: str, sink: str) -> str:
    """Return the prefix of the names of a write's tasks; different for different writes."""
    escaped = app_id.replace("%", "%25").replace(".", "%2E")
    return f"{prefix}.{escaped}.{sink}."


def job_group(prefix: str, app_id: str, sink: str) -> str:
    """Return the group of the marker of a write's jobs."""
    return write_name(prefix, app_id, sink) + "tasks"


@dataclass(frozen=True)
class Marker:
    """A record of what was written: the version, the number of rows, and their digest."""

    version: int
    rows: int
    digest: int

    def to_offset(self) -> OffsetAndMetadata:
        content = {"rows": self.rows, "digest": f"{self.digest:016x}"}
        return OffsetAndMetadata(self.version, json.dumps(content))

    @classmethod
    def of(cls, group: str, committed: OffsetAndMetadata) -> Marker:
        """Parse a committed offset; raise ValueError if it is not a marker."""
        try:
            content = json.loads(committed.metadata)
            return cls(committed.offset, content["rows"], int(content["digest"], 16))
        except (ValueError, KeyError, TypeError) as error:
            raise _foreign(group, committed) from error


def _foreign(group: str, committed: OffsetAndMetadata) -> ValueError:
    return ValueError(
        f"group {group} has offset {committed.offset} with metadata {committed.metadata!r}, "
        "which kbatch did not write; choose another transactional.id.prefix, or delete the group"
    )


@dataclass(frozen=True)
class JobMarker:
    """A record of a job that has ended: the version, and how many tasks it had."""

    version: int
    tasks: int

    def to_offset(self) -> OffsetAndMetadata:
        return OffsetAndMetadata(self.version, json.dumps({"tasks": self.tasks}))

    @classmethod
    def of(cls, group: str, committed: OffsetAndMetadata) -> JobMarker:
        """Parse a committed offset; raise ValueError if it is not such a marker."""
        try:
            return cls(committed.offset, int(json.loads(committed.metadata)["tasks"]))
        except (ValueError, KeyError, TypeError) as error:
            raise _foreign(group, committed) from error


class Digest:
    """Count the rows of a task and compute their digest, independent of order and batches."""

    def __init__(self, topic: str | None, task: int, serializers: Serializers | None = None) -> None:
        self._topic = topic
        self._task = task
        self._serializers = serializers or {}
        self.rows = 0
        self.value = 0

    def add(self, batch: pa.RecordBatch) -> None:
        refuse_null_topic(batch, self._topic, self._task, self.rows)
        with naming_rows(self._task, self.rows):
            batch = with_bytes(batch, self._serializers, for_digest=True)
        for topic, part in _by_topic(batch, self._topic):
            self.value = (self.value + digest_rows(part, topic)) % _DIGEST_MODULUS
        self.rows += batch.num_rows


def _by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each topic: of `topic`, or of those that rows name."""
    if topic is not None:
        yield topic, batch
        return
    column = batch.column("topic")
    for each in pc.unique(column):
        yield each.as_py(), batch.filter(pc.equal(column, each))


class TaskWrite:
    """The write of one attempt of one task.

    Parameters
    ----------
    options : SinkOptions
    app_id, version
        Identifies the write.
    report : TaskReport
        The report of this attempt.
    settings : Mapping[str, object]
        Settings of the producer, without transactional.id.
    """

    def __init__(
        self,
        options: SinkOptions,
        app_id: str,
        version: int,
        report: TaskReport,
        settings: Mapping[str, object],
    ) -> None:
        self._options = options
        self._report = report
        self._settings = settings
        self._write = f"{options.sink!r} of {app_id!r}, version {version}"
        self._version = version
        self._name = f"{write_name(options.prefix, app_id, options.sink)}{report.task}"
        self._job_group = job_group(options.prefix, app_id, options.sink)
        self._marker_partition = TopicPartition(options.marker_topic, 0)
        self._digest = Digest(options.topic, report.task, options.serializers)
        report.app_id, report.version = app_id, version

    def run(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write the rows, or find that they are there."""
        iterator = iter(batches)
        try:
            with self._report.stage("connect"):
                producer = Producer({**self._settings, "transactional.id": self._name})
            with closing_now(producer):
                self._run(producer, iterator)
        except KafkaError as error:
            if not is_fenced(error):
                raise
            logger.warning("%s: a newer attempt has taken over: %s", self._name, error)
            self._await_successor(iterator, error)

    def _run(self, producer: Producer, batches: Iterator[pa.RecordBatch]) -> None:
        with self._report.stage("connect"):
            self._initialize(producer)
            marker = read_marker(producer, self._name, self._marker_partition)
        if self._is_replay(marker):
            assert marker is not None
            self._skip(batches, marker)
            return
        with self._report.stage("connect"):
            self._check_number(producer)
        deadline = time.monotonic() + GIVES_UP_AT * producer.config.transaction_timeout_ms / 1000
        producer.begin_transaction()
        with self._report.stage("connect"):
            self._commit_offset(producer, OffsetAndMetadata(self._version, CLAIM))
        rows = RowSender(producer, self._report, self._options.topic, self._options.serializers)
        for batch in batches:
            self._check_time(deadline, producer)
            self._digest.add(batch)
            rows.send(batch)
        rows.flush()
        self._check_time(deadline, producer)
        with self._report.stage("commit"):
            marker = Marker(self._version, self._digest.rows, self._digest.value)
            self._commit_offset(producer, marker.to_offset())
            commit(producer, deadline)

    def _commit_offset(self, producer: Producer, offset: OffsetAndMetadata) -> None:
        producer.send_offsets_to_transaction({self._marker_partition: offset}, self._name)

    def _initialize(self, producer: Producer) -> None:
        try:
            producer.init_transactions()
        except InvalidTxnTimeoutError as error:
            raise InvalidTxnTimeoutError(
                f"kafka.transaction.timeout.ms={producer.config.transaction_timeout_ms} is more than the "
                "brokers' transaction.max.timeout.ms; lower the one or raise the other; a task must be "
                "done within it"
            ) from error

    def _check_time(self, deadline: float, producer: Producer) -> None:
        if time.monotonic() > deadline:
            raise KafkaTimeoutError(
                f"Spark partition {self._report.task} took longer than {GIVES_UP_AT:.0%} of "
                f"kafka.transaction.timeout.ms={producer.config.transaction_timeout_ms}, after which the "
                "brokers would abort its transaction; use smaller tasks (repartition, "
                "maxOffsetsPerTrigger), or a higher limit, which the brokers' transaction.max.timeout.ms "
                "bounds"
            )

    # Rows that are already there

    def _is_replay(self, marker: Marker | None) -> bool:
        if marker is None or marker.version < self._version:
            return False
        if marker.version > self._version:
            raise self._outdated(marker.version, f", by Spark partition {self._report.task}")
        return True

    def _outdated(self, version: int, by: str = "") -> ValueError:
        return ValueError(
            f"{self._write}: version {version} was written before{by}. A checkpoint older than the topic was "
            "restored, or txnversion does not grow, so later rows cannot be distinguished from new ones; go "
            "on with another checkpoint or txnappid, and remove duplicates by hand"
        )

    def _check_number(self, producer: Producer) -> None:
        """Raise ValueError if this version was begun before with fewer tasks, none of which was this one."""
        partition = self._marker_partition
        found = producer.committed_offsets(self._job_group, [partition]).get(partition)
        if found is None:
            return
        job = JobMarker.of(self._job_group, found)
        if job.version > self._version:
            raise self._outdated(job.version)
        if job.version == self._version and self._report.task >= job.tasks:
            raise ValueError(
                f"{self._write}: it was written before by {job.tasks} tasks, and now there are more: this is "
                f"Spark partition {self._report.task}. Nothing was written by it. Repeat a batch with as "
                "many partitions, from the same input"
            )

    def _skip(self, batches: Iterable[pa.RecordBatch], marker: Marker) -> None:
        """Write nothing, and compare the input with the rows written before."""
        for batch in batches:
            self._digest.add(batch)
        self._report.skipped = True
        self._report.records = self._digest.rows
        if (marker.rows, marker.digest) != (self._digest.rows, self._digest.value):
            raise ValueError(
                f"{self._write}, Spark partition {self._report.task}: {marker.rows} rows with digest "
                f"{marker.digest:016x} were written, but now there are {self._digest.rows} with "
                f"{self._digest.value:016x}. A repeated batch must have the same rows in the same tasks: "
                "no repartition(n) without columns, no rand(), no current time"
            )

    def _await_successor(self, batches: Iterator[pa.RecordBatch], fenced: KafkaError) -> None:
        """Wait until the newer attempt has committed, has expired, or is not at work."""
        for batch in batches:
            self._digest.add(batch)
        with Producer(asking(self._settings)) as client:
            end = time.monotonic() + client.config.transaction_timeout_ms / 1000
            claimed_until = time.monotonic() + CLAIM_SECONDS
            while time.monotonic() < min(end, claimed_until):
                try:
                    marker = read_marker(client, self._name, self._marker_partition, LOOK_SECONDS)
                except KafkaTimeoutError:
                    claimed_until = time.monotonic() + CLAIM_SECONDS
                    continue
                if self._is_replay(marker):
                    assert marker is not None
                    self._report.offsets.clear()
                    self._skip((), marker)
                    return
                time.sleep(POLL_SECONDS)
        fenced.add_note("The attempt that took over has not committed the rows: a new one has to write them")
        raise fenced


def commit(producer: Producer, deadline: float) -> None:
    """Commit; if the answer is late, call again, because the outcome is unknown until then."""
    while True:
        try:
            producer.commit_transaction()
            return
        except KafkaTimeoutError:
            if time.monotonic() > deadline:
                raise


@contextmanager
def closing_now(producer: Producer) -> Iterator[None]:
    """Close a producer at the end of a block; after an exception wait only for an abort."""
    try:
        yield
    except BaseException:
        with suppress(DeliveryError):
            producer.close(ABORT_SECONDS)
        raise
    producer.close()


def asking(settings: Mapping[str, object]) -> dict[str, object]:
    """Return settings for a producer that only makes queries and needs no ACL of its own."""
    return {**settings, "enable.idempotence": "false"}


def read_marker(
    client: Producer, group: str, partition: TopicPartition, timeout: float | None = None
) -> Marker | None:
    """Return the marker. Raise KafkaTimeoutError after max.block.ms or `timeout` seconds, also while a claim
    is open.
    """
    committed = client.committed_offsets(group, [partition], timeout).get(partition)
    return None if committed is None else Marker.of(group, committed)


def is_fenced(error: BaseException | None) -> bool:
    """True if another producer now has the transactional.id."""
    while error is not None:
        if isinstance(error, ProducerFencedError | InvalidProducerEpochError):
            return True
        error = error.__cause__
    return False


def check_other_tasks(options: SinkOptions, app_id: str, version: int, tasks: set[int]) -> None:
    """Raise ValueError if a task outside `tasks` has written the same version: the write was begun with more
    tasks, and repeated with fewer.
    """
    begin = write_name(options.prefix, app_id, options.sink)
    partition = TopicPartition(options.marker_topic, 0)
    with Producer(asking(options.settings)) as client:
        for group in client.group_ids():
            number = group.removeprefix(begin)
            if number == group or not number.isdecimal() or int(number) in tasks:
                continue
            marker = _last_marker(client, options.settings, group, partition)
            if marker is not None and marker.version == version:
                raise ValueError(
                    f"{options.sink!r} of {app_id!r}, version {version}: Spark partition {number} had "
                    f"written {marker.rows} rows, and now there are {len(tasks)} tasks; the topic may have "
                    "rows twice. Repeat a batch with as many partitions, from the same input"
                )


def note_tasks(options: SinkOptions, app_id: str, version: int, tasks: int) -> None:
    """Leave the marker of a job that has ended, unless this version or a later one has one. KafkaError if
    brokers do not take it.
    """
    group = job_group(options.prefix, app_id, options.sink)
    partition = TopicPartition(options.marker_topic, 0)
    with TopicReader(_of_readers(options.settings)) as reader:
        found = reader.groups.offsets(group).get(partition)
        if found is not None and found.committed.offset >= version:
            return
        reader.groups.commit_offsets(group, {partition: JobMarker(version, tasks).to_offset()})


def _of_readers(settings: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of a producer that a client has too that reads; this one only asks."""
    config = ProducerConfig(settings)
    given = {name: getattr(config, name.replace(".", "_")) for name in config.given if name in CONSUMER_KEYS}
    return {**given, "fetch.max.wait.ms": 0}  # which must be below request.timeout.ms


_there_until: dict[tuple[str, object], float] = {}


def check_topics(options: SinkOptions) -> None:
    """Raise ValueError unless the topics of a write are there, or brokers create them now, as they do at the
    first record. Otherwise each task would wait for max.block.ms.
    """
    now = time.monotonic()
    servers = options.settings.get("bootstrap.servers")
    names = {options.marker_topic, options.topic or options.marker_topic}
    unsure = {name for name in names if now >= _there_until.get((name, servers), now)}
    if not unsure:
        return
    with TopicReader(_of_readers(options.settings)) as reader:
        missing = unsure - reader.describe(sorted(unsure)).keys()
    for name in sorted(missing):
        _create(options, name)
    _there_until.update({(name, servers): now + THERE_SECONDS for name in unsure})


def _create(options: SinkOptions, topic: str) -> None:
    """Make brokers create a topic, if they do so for topics that they do not know."""
    wait_ms = str(int(CREATE_SECONDS * 1000))
    with Producer({**asking(options.settings), "max.block.ms": wait_ms}) as producer:
        try:
            producer.partitions_for(topic)
        except KafkaTimeoutError as error:
            name = "topic" if topic == options.topic else "marker.topic"
            raise ValueError(
                f"option {name!r}: there is no topic {topic}, and brokers do not create it "
                f"(auto.create.topics.enable); create it before a write with delivery=exactly_once"
            ) from error


def _last_marker(
    client: Producer, settings: Mapping[str, object], group: str, partition: TopicPartition
) -> Marker | None:
    """Return the marker of a task that no longer exists, after aborting its open transaction, which it could
    still commit.
    """
    with suppress(KafkaTimeoutError):
        return read_marker(client, group, partition, LOOK_SECONDS)
    with Producer({**settings, "transactional.id": group}) as successor:
        successor.init_transactions()
    return read_marker(client, group, partition)
