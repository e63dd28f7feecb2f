"""Polled: what a poll has returned, as records and as columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Generic, final, overload

from kbatch.consumer.backlog import offset_after
from kbatch.consumer.fetch_columns import FetchColumns
from kbatch.records import OffsetAndMetadata, TopicPartition, checked_partition
from kbatch.typed import K, Part, V

if TYPE_CHECKING:
    import pyarrow as pa

    from kbatch._native.codec.record import ConsumerRecord
    from kbatch._native.fetch.fetch_buffer import LastRead, PolledRecords
    from kbatch.formats.reading.base import ColumnDeserializer, ReadFormat


@final
class Polled(Sequence["ConsumerRecord[K, V]"], Generic[K, V]):
    """The records of a poll: a sequence, in the order of the offsets of each partition. It is empty, and
    false, if the time-out came first.

    A Polled keeps the received bytes of its records, from which `table` makes columns. Records that you keep
    by themselves do not.
    """

    def __init__(
        self,
        polled: list[PolledRecords],
        moves: Mapping[TopicPartition, LastRead | ConsumerRecord],
        formats: Mapping[Part, ReadFormat],
    ) -> None:
        self._polled = polled
        self._moves = moves
        self._formats = formats  # of columns
        if len(polled) == 1:
            self._records = polled[0].records
        else:
            self._records = list(chain.from_iterable([each.records for each in polled]))

    @property
    def offsets(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """The offsets to commit after these records, for every partition that this poll has moved."""
        return {each: offset_after(last) for each, last in self._moves.items()}

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions that the records are from."""
        return list(dict.fromkeys(each.partition for each in self._polled))

    def records(self, partition: TopicPartition | tuple[str, int]) -> list[ConsumerRecord[K, V]]:
        """Return the records of one partition. Raise TypeError or ValueError unless it is one."""
        checked = checked_partition(partition)
        return [record for each in self._polled if each.partition == checked for record in each.records]

    def table(
        self,
        columns: Iterable[str] | None = None,
        *,
        key: ColumnDeserializer | ReadFormat | None = None,
        value: ColumnDeserializer | ReadFormat | None = None,
        layout: str = "copy",
    ) -> pa.Table:
        """Return the records as columns, a row for each, in order, and also for those that
        on.deserialization.error has skipped. It needs pyarrow.

        Keys and values are read by the consumer's formats, unless you give others: `Bytes()` leaves bytes.
        They stay bytes if the deserializer is a function, or an object of another client's. Parameters,
        columns, types and errors are those of `read_table`.
        """
        from kbatch.consumer.projection import Projection  # which takes pyarrow

        projection = Projection(columns, layout, {"key": key, "value": value}, self._formats)
        batches: list[pa.RecordBatch] = []
        for _, fetch, first_row, row_count, _ in self._polled:
            made = FetchColumns.of(fetch)
            decoded = made.now(projection)
            found = decoded.rows(first_row, row_count)
            if decoded.error is not None and sum(batch.num_rows for batch in found) < row_count:
                made.forget()  # a registry may answer the next call
                raise decoded.error
            batches += found
        return projection.table(batches)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the records as an Arrow stream with all columns, for pyarrow, polars, pandas and duckdb."""
        return self.table().__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        return iter(self._records)

    @overload
    def __getitem__(self, index: int) -> ConsumerRecord[K, V]: ...
    @overload
    def __getitem__(self, index: slice) -> list[ConsumerRecord[K, V]]: ...
    def __getitem__(self, index: int | slice) -> ConsumerRecord[K, V] | list[ConsumerRecord[K, V]]:
        return self._records[index]

    def __repr__(self) -> str:
        return f"<Polled: {len(self)} records of {', '.join(map(str, self.partitions())) or 'no partition'}>"
