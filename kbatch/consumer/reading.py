"""read_table and scan_topic: a topic, or a part of it, as a table or as a stream of record batches.

Theory of operation. Both make a TopicReader for one read. The ranges of offsets are fixed before the first
record is read. `read_table` keeps the batches of each partition by themselves and puts them together at the
end, so the table does not depend on the order in which brokers answer or threads decode. `scan_topic` gives
batches as they come, and keeps no more than the buffers of the reader.

A deserializer whose type depends on the data sees the first values of the ranges that can be read before the
read begins (TopicReader).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self, final

from kbatch._native.io.threads import ClientThread
from kbatch.config import ConsumerConfig
from kbatch.consumer.projection import Projection
from kbatch.consumer.ranges import Gaps, Positions, Ranges, check_choice
from kbatch.consumer.runtime import configured
from kbatch.consumer.topic_reader import DEFAULTS, Reading, ReadProgress, TopicReader
from kbatch.consumer.topic_stream import TopicStream
from kbatch.consumer.typed_records import TypedRecords, column_formats
from kbatch.distribution import needs
from kbatch.errors import TypeNotKnownError
from kbatch.progress import ProgressBar
from kbatch.records import TopicPartition, check_integer

with needs("kbatch.read_table", "arrow"):
    import pyarrow as pa

if TYPE_CHECKING:
    from kbatch.formats.reading.base import ColumnDeserializer, ReadFormat

# The key of the table's metadata with the ranges that were skipped.
LOST = b"kbatch.lost"
# True for a bar.
Progress = bool | Callable[[ReadProgress], object] | None
ISOLATIONS = ("read_committed", "read_uncommitted")
# As kbatch.decode.threads.
MOST_THREADS = 64


def read_table(
    topic: str,
    *,
    start: Positions = "earliest",
    end: Positions = "latest",
    partitions: Iterable[int] | None = None,
    bootstrap_servers: str | Iterable[str] | None = None,
    config: ConsumerConfig | Mapping[str, object] | None = None,
    columns: Iterable[str] | None = None,
    key: ColumnDeserializer | ReadFormat | None = None,
    value: ColumnDeserializer | ReadFormat | None = None,
    isolation: str | None = None,
    on_data_loss: str = "raise",
    threads: int = 0,
    layout: str = "copy",
    progress: Progress = None,
) -> pa.Table:
    """Read a range of a topic's records into a table, without a Python object per record or a consumer group.

    Parameters
    ----------
    topic : str
    start, end : "earliest", "latest", int, datetime, timedelta, or a mapping of partitions to these
        The first record, and the one after the last. A time, which must have a time zone, or a while ago
        means the first record from then on. The end is fixed when the call begins: records that come
        later are not in the table. "latest" is the end of the log, under read_committed that of the last
        finished transaction.
    partitions : iterable of int or None
        None for all.
    bootstrap_servers : str or iterable of str
        The same as in `config`.
    config : ConsumerConfig or mapping
        Configuration keys, as docs/configuration.md lists them: for TLS and SASL, those of a producer.
    columns : iterable of str or None
        The columns, in this order; None for all: topic dictionary<int32, string>, partition int32, offset
        int64, timestamp timestamp[ms, UTC], timestamp_type dictionary<int8, string> (create_time or
        log_append_time), key binary, value binary, headers list<struct<key: string, value: binary>>,
        leader_epoch int32. Only these are decoded.
    key, value : Format, ColumnDeserializer or None
        Converts the column, see `kbatch.formats.reading`. One with errors="column" adds a column
        key_error or value_error. None: the format that `config` has as key.deserializer or
        value.deserializer, else bytes.
    isolation : "read_committed", "read_uncommitted" or None
        Whether records of aborted and open transactions are left out. None is isolation.level of `config`,
        and read_committed without one.
    on_data_loss : "raise" or "skip"
        What to do if the log does not have records any more that are to be read. The metadata of the schema
        name what was skipped, under `kbatch.lost`: JSON of {partition: [[first offset, the one after the
        last], ...]}.
    threads : int
        Threads that decode; 0 is one a CPU, at most four. The table is the same for every number.
    layout : "copy" or "view"
        "view" makes binary_view columns that point into the received or decompressed bytes. It saves a copy;
        those bytes stay in memory as long as the table.
    progress : bool, callable or None
        True shows a bar on a terminal, which takes the extra `cli`, or in a notebook. A function is called
        with a ReadProgress after each answer that was read, on the caller's thread.

    Returns
    -------
    pyarrow.Table
        A row for each record, by partition and in the order of offsets within it.

    Raises
    ------
    TypeError, ValueError
        An argument is unsuitable; the topic has no such partition; a range ends before it begins, or after
        its log.
    ConfigError
        Keys of `config` are unknown, invalid or contradictory.
    DataLossError
        Records are gone, and on_data_loss is "raise".
    CorruptRecordError
        A batch is invalid; its topic, partition and offset are in the text.
    DeserializationError
        A key or value cannot be deserialized, and its deserializer raises.
    KafkaError
        The topic cannot be read (UnknownTopicOrPartitionError, TopicAuthorizationError, a failed login), or
        brokers did not answer within default.api.timeout.ms (KafkaTimeoutError).
    """
    settings = _settings(config, bootstrap_servers, isolation, threads)
    projection = _projection(settings, topic, columns, layout, key, value)
    with _Reporting(progress) as reporting, TopicReader(settings) as reader:
        found = reader.ranges(topic, start=start, end=end, partitions=partitions, on_data_loss=on_data_loss)
        batches: dict[TopicPartition, list[pa.RecordBatch]] = {each: [] for each in found.ranges}
        with reader.read(
            found.ranges,
            columns=projection.columns,
            key=projection.deserializers.get("key"),
            value=projection.deserializers.get("value"),
            layout=layout,
            on_data_loss=on_data_loss,
            topic_ids={topic: found.topic_id},
            progress=reporting.report,
            look_ahead=None,  # the table has all of them anyway
        ) as reading:
            for batch in reading:
                batches[reading.partition].append(batch)
        lost = _all_gaps(found, reading)
    table = pa.Table.from_batches([batch for each in batches.values() for batch in each], reading.schema)
    return table.replace_schema_metadata({LOST: _as_json(lost)}) if lost else table


def scan_topic(
    topic: str,
    *,
    start: Positions = "earliest",
    end: Positions | None = "latest",
    partitions: Iterable[int] | None = None,
    bootstrap_servers: str | Iterable[str] | None = None,
    config: ConsumerConfig | Mapping[str, object] | None = None,
    columns: Iterable[str] | None = None,
    key: ColumnDeserializer | ReadFormat | None = None,
    value: ColumnDeserializer | ReadFormat | None = None,
    isolation: str | None = None,
    on_data_loss: str = "raise",
    threads: int = 0,
    layout: str = "copy",
    batch_rows: int = 100_000,
    progress: Progress = None,
) -> TopicStream:
    """Read a range of a topic's records as a stream of record batches, in bounded memory: for what is larger
    than memory, or has no end. duckdb, polars and pandas take the stream as it is.

    Parameters
    ----------
    end : as in `read_table`, or None
        None reads on for ever, waiting for new records.
    batch_rows : int
        Maximum rows of a batch. Batches are smaller if the records came in smaller answers.
    topic, start, partitions, bootstrap_servers, config, columns, key, value, isolation, on_data_loss,
    threads, layout, progress
        As in `read_table`.

    Returns
    -------
    TopicStream
        A pyarrow.RecordBatchReader, which has a client of its own. Closing, exhausting or dropping it closes
        that; a with block closes it. Rows of a partition come in the order of offsets, partitions as their
        answers come. Its `lost` has the ranges that were skipped.

    Raises
    ------
    TypeNotKnownError
        No value among the first 1,000,000 records, or 256 MiB of values, says the type of a column; with an
        `end` of None, none of those that are there. `TopicReader.read` has a parameter for the limit.
    TypeError, ValueError, ConfigError, DataLossError, KafkaError
        As in `read_table`; those about records are raised by the stream.
    """
    settings = _settings(config, bootstrap_servers, isolation, threads)
    projection = _projection(settings, topic, columns, layout, key, value)
    reporting = _Reporting(progress)
    reader = TopicReader(settings)
    try:
        found = reader.ranges(topic, start=start, end=end, partitions=partitions, on_data_loss=on_data_loss)
        reading = reader.read(
            found.ranges,
            columns=projection.columns,
            key=projection.deserializers.get("key"),
            value=projection.deserializers.get("value"),
            layout=layout,
            batch_rows=batch_rows,
            on_data_loss=on_data_loss,
            topic_ids={topic: found.topic_id},
            progress=reporting.report,
        )
        if end is None and projection.missing_types:
            name = projection.missing_types[0]
            raise TypeNotKnownError(
                f"topic {topic} has no {name} yet from which {name}= could learn its type; give it a schema"
            )
        batches = _OwnedReading(reader, reading, reporting)
        return TopicStream(reading.schema, batches, partial(_all_gaps, found, reading))
    except BaseException:
        reader.close()
        raise


@final
class _Reporting:
    """What becomes of the progress of a read: a bar, the user's function, or nothing."""

    report: Callable[[ReadProgress], object] | None = None

    def __init__(self, progress: Progress) -> None:
        self._bar: ProgressBar | None = None
        if progress is True:
            self._bar = ProgressBar("records")
            self.report = self._show
        elif callable(progress):
            self.report = progress
        elif progress not in (None, False):
            raise TypeError(f"progress must be True, a function of a ReadProgress or None, got {progress!r}")

    def _show(self, progress: ReadProgress) -> None:
        if self._bar is not None:
            self._bar.show(progress.position, progress.total, progress.rows)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


@final
class _OwnedReading:
    """A read and its reader, which is closed at the end of the read, as its bar is."""

    def __init__(self, reader: TopicReader, reading: Reading[pa.RecordBatch], reporting: _Reporting) -> None:
        self._reader = reader
        self._reading = reading
        self._reporting = reporting

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            return next(self._reading)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        _close(self._reporting, self._reader)

    def __del__(self) -> None:
        if self._reader.is_open:
            with suppress(RuntimeError):  # no new threads: the interpreter ends, which closes it
                # the collector may run on any thread, which must not wait for the network's
                close = partial(_close, self._reporting, self._reader)
                ClientThread(close, "kbatch-closer", daemon=False).start()


def _close(*parts: _Reporting | TopicReader) -> None:
    for part in parts:
        part.close()


def _settings(
    config: ConsumerConfig | Mapping[str, object] | None,
    bootstrap_servers: str | Iterable[str] | None,
    isolation: str | None,
    threads: int,
) -> ConsumerConfig:
    """Return the configuration of a read; it is read_committed unless something else is asked for."""
    if isolation is not None:
        check_choice("isolation", isolation, ISOLATIONS)
    check_integer("threads", threads, 0, MOST_THREADS)
    keywords = {
        "bootstrap_servers": bootstrap_servers,
        "isolation_level": isolation,
        "kbatch_decode_threads": threads or None,
    }
    return configured(config, keywords, {**DEFAULTS, "isolation_level": "read_committed"})


def _projection(
    settings: ConsumerConfig,
    topic: str,
    columns: Iterable[str] | None,
    layout: str,
    key: ColumnDeserializer | ReadFormat | None,
    value: ColumnDeserializer | ReadFormat | None,
) -> Projection:
    formats = column_formats(TypedRecords.of(settings))
    return Projection(columns, layout, {"key": key, "value": value}, formats, topic)


def _all_gaps(found: Ranges, reading: Reading[Any]) -> dict[TopicPartition, Gaps]:
    """Return the ranges that were skipped, before the read and in it."""
    partitions = {**found.lost, **reading.lost}
    return {each: [*found.lost.get(each, ()), *reading.lost.get(each, ())] for each in partitions}


def _as_json(lost: Mapping[TopicPartition, Gaps]) -> bytes:
    return json.dumps({str(each.partition): gaps for each, gaps in lost.items()}).encode()
