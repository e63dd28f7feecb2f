"""The Spark data source `kbatch-segments`: record batches into Kafka's log segments, and records back."""

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from kbatch._native.codec.record_batch import RecordBatch
from kbatch.codec.columns import decode_arrow
from kbatch.codec.segments import SEGMENT_BYTES, SegmentWriter, check_topic, read_segment
from kbatch.errors import CorruptRecordError
from kbatch.spark.committed import CommittedBatches
from kbatch.spark.schemas import (
    ENCODED_SCHEMA,
    SEGMENT_ARROW,
    SEGMENT_SCHEMA,
    declared_batches,
    null_if_empty,
)
from kbatch.spark.segment_store import PartitionFiles, StagedWrite, StoredSegment, local_path, segments

# Spark passes option names in lower case. Other names are refused.
WRITE_OPTIONS = ("path", "topic", "segment.bytes")
READ_OPTIONS = ("path", "topic", "check.crcs", "isolation")
ISOLATIONS = ("read_uncommitted", "read_committed")
REQUIRED_COLUMNS = ("partition", "batch")

# Bounds for one decoding call; the content of the bytes may be many times larger.
RUN_BYTES = 4 << 20
RUN_RECORDS = 1 << 17


class SegmentDataSource(DataSource):
    """The format `kbatch-segments`.

    Writing takes rows of ENCODED_SCHEMA. All batches of a Kafka partition must come in one Spark partition
    (`frame.repartitionById(n, "partition")`), which assigns offsets from 0. Modes: append (the path must not
    have the topic yet) and overwrite (replaces this topic only). Options: `path` (a folder that all executors
    see), `topic`, `segment.bytes`.

    Reading gives SEGMENT_SCHEMA, a task for each segment, without control records. Options: `path`, `topic`
    (default: all), `check.crcs` (default true), `isolation` (default read_uncommitted). read_committed omits
    aborted records and everything from the first open transaction on; a task is then a partition, whose files
    are read twice.
    """

    @classmethod
    def name(cls) -> str:
        return "kbatch-segments"

    def schema(self) -> StructType:
        return SEGMENT_SCHEMA

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        path = _path(self.options, WRITE_OPTIONS)
        _check_encoded(schema)
        topic = self.options.get("topic")
        if topic is None:
            raise ValueError("option 'topic' is missing; name the Kafka topic with .option('topic', ...)")
        check_topic(topic)
        segment_bytes = _whole_number(self.options, "segment.bytes", SEGMENT_BYTES)
        return SegmentsWriter(StagedWrite(path, topic, replace=overwrite), segment_bytes)

    def reader(self, schema: StructType) -> DataSourceReader:
        path = _path(self.options, READ_OPTIONS)
        if [(field.name, field.dataType) for field in schema] != [
            (field.name, field.dataType) for field in SEGMENT_SCHEMA
        ]:
            raise ValueError(
                f"the schema of kbatch-segments is {SEGMENT_SCHEMA.simpleString()}, "
                f"not {schema.simpleString()}; omit .schema(...) and select what you need"
            )
        check_crc = self.options.get("check.crcs", "true").lower()
        if check_crc not in ("true", "false"):
            raise ValueError(f"option 'check.crcs' must be true or false, got {check_crc!r}")
        isolation = self.options.get("isolation", ISOLATIONS[0])
        if isolation not in ISOLATIONS:
            raise ValueError(f"option 'isolation' must be {' or '.join(ISOLATIONS)}, got {isolation!r}")
        found = segments(path, self.options.get("topic"))
        return SegmentsReader(found, check_crc == "true", committed=isolation == "read_committed")


def _path(options: Mapping[str, str], known: tuple[str, ...]) -> Path:
    """Return the folder, if every option is one of `known`."""
    for name in options:
        if name.lower() not in known:
            nearest = difflib.get_close_matches(name.lower(), known, 1, 0) or known
            raise ValueError(
                f"unknown option {name!r}: did you mean {nearest[0]!r}? Known: {', '.join(known)}"
            )
    path = options.get("path")
    if not path:
        raise ValueError("option 'path' is missing; name the folder in .save(path) or .load(path)")
    return local_path(path)


def _whole_number(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not text.isdecimal() or not 0 < int(text) < 2**31:
        raise ValueError(f"option {name!r} must be a whole number from 1 to {2**31 - 1}, got {text!r}")
    return int(text)


def _check_encoded(schema: StructType) -> None:
    expected = {field.name: field.dataType for field in ENCODED_SCHEMA}
    for field in schema:
        if field.name not in expected:
            raise ValueError(
                f"unknown column {field.name!r}; kbatch-segments takes the columns of ENCODED_SCHEMA, "
                f"{', '.join(expected)}; encode the frame with kbatch.spark.encode first"
            )
        if field.dataType != expected[field.name]:
            raise TypeError(
                f"column {field.name!r} must be {expected[field.name].simpleString()}, "
                f"got {field.dataType.simpleString()}"
            )
    for name in REQUIRED_COLUMNS:
        if name not in schema.names:
            raise ValueError(f"column {name!r} is missing; keep it as kbatch.spark.encoder returns it")


@dataclass
class TaskResult(WriterCommitMessage):
    """The files that one task staged."""

    folder: Path
    partitions: dict[int, PartitionFiles]


class SegmentsWriter(DataSourceArrowWriter):
    """Write the batches of a task to a staging folder; `commit` moves those of all tasks into place."""

    def __init__(self, staged: StagedWrite, segment_bytes: int) -> None:
        self._staged = staged
        self._segment_bytes = segment_bytes

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None, "Spark calls this inside a task"
        folder = self._staged.stage(context.partitionId(), context.taskAttemptId())
        writers: dict[int, SegmentWriter] = {}
        batches: Counter[int] = Counter()
        with ExitStack() as open_files:
            for partition, batch in _batches(iterator):
                if partition not in writers:
                    writers[partition] = open_files.enter_context(
                        SegmentWriter(
                            folder, self._staged.topic, partition, segment_bytes=self._segment_bytes
                        )
                    )
                try:
                    writers[partition].append(batch)
                except ValueError as error:
                    raise ValueError(f"column 'batch', Kafka partition {partition}: {error}") from error
                batches[partition] += 1
        files = {
            partition: PartitionFiles(
                writer.next_offset,
                batches[partition],
                {log.name: log.stat().st_size for log in writer.log_paths},
            )
            for partition, writer in writers.items()
        }
        return TaskResult(folder, files)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._staged.commit(
            (message.folder, message.partitions) for message in messages if isinstance(message, TaskResult)
        )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._staged.discard()


def _batches(rows: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.Buffer]]:
    """Yield Kafka partition and record batch of each row; the buffers are views of Spark's bytes."""
    for some in rows:
        partitions = some.column("partition").to_pylist()
        for partition, batch in zip(partitions, some.column("batch"), strict=True):
            data = batch.as_buffer()
            if partition is None or data is None:
                name = "partition" if partition is None else "batch"
                raise ValueError(f"column {name!r} has a null; every row needs a Kafka partition and a batch")
            yield partition, data


class SegmentsReader(DataSourceReader):
    """Read a segment in each task; with `committed`, the committed records of a partition in each task."""

    def __init__(self, found: list[StoredSegment], check_crc: bool, *, committed: bool = False) -> None:
        self._segments = found
        self._check_crc = check_crc
        self._committed = committed

    def partitions(self) -> list[InputPartition]:
        tasks: dict[object, list[StoredSegment]] = {}
        for segment in self._segments:
            of = (segment.topic, segment.partition) if self._committed else segment.log_path
            tasks.setdefault(of, []).append(segment)
        # Without partitions Spark inserts one of its own, whose form depends on the version.
        return [InputPartition(task) for task in tasks.values()] or [InputPartition([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        task: list[StoredSegment] = partition.value
        seen = None
        if self._committed:
            seen = CommittedBatches(
                batch for segment in task for batch in read_segment(segment.log_path, check_crc=False)
            )
        for segment in task:
            yield from self._read_segment(segment, seen)

    def _read_segment(
        self, segment: StoredSegment, seen: CommittedBatches | None
    ) -> Iterator[pa.RecordBatch]:
        batches = read_segment(segment.log_path, check_crc=self._check_crc)
        data_batches = (
            batch for batch in batches if not batch.is_control and (seen is None or seen.holds(batch))
        )
        for timestamp_type, run in groupby(data_batches, key=lambda batch: batch.timestamp_type):
            for some in _slices(run):
                try:
                    records = decode_arrow(some, check_crc=False)  # read_segment checks CRCs if wanted
                except CorruptRecordError as error:
                    raise CorruptRecordError(f"{segment.log_path}: {error}") from error
                yield from declared_batches(_with_origin(records, segment, timestamp_type), SEGMENT_ARROW)


def _slices(batches: Iterator[RecordBatch]) -> Iterator[list[bytes]]:
    """Yield the batches' bytes in lists of at most about RUN_BYTES and RUN_RECORDS."""
    some: list[bytes] = []
    size = records = 0
    for batch in batches:
        some.append(bytes(batch))
        size, records = size + batch.size_bytes, records + len(batch)
        if size >= RUN_BYTES or records >= RUN_RECORDS:
            yield some
            some, size, records = [], 0, 0
    if some:
        yield some


def _with_origin(records: pa.Table, segment: StoredSegment, timestamp_type: str) -> pa.Table:
    constants: dict[str, tuple[Any, pa.DataType]] = {
        "topic": (segment.topic, pa.string()),
        "partition": (segment.partition, pa.int32()),
        "timestampType": (int(timestamp_type == "log_append_time"), pa.int32()),
    }
    for name, (value, kind) in constants.items():
        records = records.append_column(name, pa.repeat(pa.scalar(value, kind), records.num_rows))
    index = records.schema.get_field_index("headers")
    headers = records.column(index)
    found = pa.chunked_array([null_if_empty(each) for each in headers.chunks], headers.type)
    return records.set_column(index, "headers", found)
