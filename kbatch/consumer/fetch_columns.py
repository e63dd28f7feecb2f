"""FetchColumns: the records of a fetch as columns, which workers decode, or the caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, final

from kbatch._native.fetch.fetch_buffer import CompletedFetch, LastRead
from kbatch.network.decoding import DecodingTask

if TYPE_CHECKING:
    import pyarrow as pa

    from kbatch._native.fetch.fetched_batches import FetchedRecords
    from kbatch.consumer.projection import Projection

Submit = Callable[[Callable[[], object]], object]


class Decoded(NamedTuple):
    """The records of a fetch as columns.

    Attributes
    ----------
    projection : Projection
    batches : list of pyarrow.RecordBatch
    row_count : int
    error : Exception or None
        The reason why the rows end early.
    """

    projection: Projection
    batches: list[pa.RecordBatch]
    row_count: int
    error: Exception | None

    @classmethod
    def of(cls, records: FetchedRecords, projection: Projection) -> Decoded:
        """Decode the records."""
        batches, error = projection.batches(records)
        return cls(projection, batches, sum(batch.num_rows for batch in batches), error)

    def rows(self, first: int, row_count: int) -> list[pa.RecordBatch]:
        """Return some of the rows."""
        found = []
        for batch in self.batches:
            if first < batch.num_rows and row_count > 0:
                found.append(batch.slice(first, row_count))
                row_count -= found[-1].num_rows
            first = max(first - batch.num_rows, 0)
        return found

    def byte_count(self, first: int, row_count: int) -> int:
        """Return the bytes of some of the rows."""
        return sum(batch.nbytes for batch in self.rows(first, row_count))

    def count_within(self, first: int, most_rows: int, most_bytes: int) -> int:
        """Return the number of rows from `first` on, `most_rows` at most, that are within so many bytes."""
        low, high = 0, most_rows
        while low < high:
            middle = (low + high + 1) // 2
            if self.byte_count(first, middle) <= most_bytes:
                low = middle
            else:
                high = middle - 1
        return low


@final
class FetchColumns:
    """The columns of a fetch. The one in `CompletedFetch.columns` is made when columns are first wanted.

    Parameters
    ----------
    fetch : CompletedFetch
        One with records.
    """

    __slots__ = ("_decoding", "_ends", "_result")

    def __init__(self, fetch: CompletedFetch) -> None:
        assert fetch.fetched is not None
        self._result = fetch.fetched  # not the fetch, which refers to these columns: that keeps memory
        self._decoding: DecodingTask[Projection, Decoded] | None = None
        self._ends: Decoded | None = None

    @classmethod
    def of(cls, fetch: CompletedFetch) -> FetchColumns:
        """Return the columns of a fetch with records."""
        if fetch.columns is None:
            fetch.columns = cls(fetch)
        columns: FetchColumns = fetch.columns
        return columns

    @classmethod
    def decode_last(cls, fetch: CompletedFetch, projection: Projection) -> Callable[[], None]:
        """Return what decodes the columns of a fetch with records, which has them as busy ones from now on.
        Then the records are let go: nothing else is made of them. An unexpected error ends the rows, too: it
        comes after those of fetches before.
        """
        columns = cls(fetch)
        begun = columns._decoding = DecodingTask(projection)

        def decoded(projection: Projection) -> Decoded:
            try:
                return Decoded.of(columns._records, projection)
            except Exception as error:
                return Decoded(projection, [], 0, error)

        def decode() -> None:
            begun.do(decoded)
            columns._result.records = None

        fetch.columns = columns
        return decode

    @property
    def _records(self) -> FetchedRecords:
        records = self._result.records
        assert records is not None
        return records

    @property
    def is_busy(self) -> bool:
        """True if a worker decodes them."""
        return self._decoding is not None and not self._decoding.is_done

    @property
    def decoded(self) -> Decoded | None:
        """The columns that are there; None if there are none. Raise an unexpected error of decoding, once."""
        task = self._decoding
        if task is None or not task.is_done:
            return None
        if task.error is not None:
            self._decoding = None
            raise task.error
        return task.decoded

    def decode(self, projection: Projection, submit: Submit, notify: Callable[[], object]) -> None:
        """Begin to decode them, unless that has happened for such a projection. Small ones are there at once,
        if no deserializer could take its time with them.
        """
        if self._is_begun(projection):
            return
        if self._records.is_small and not projection.deserializers:
            self._decode_at_once(projection)
            return
        records = self._records
        task: DecodingTask[Projection, Decoded] = DecodingTask(projection)

        def decode() -> None:
            task.do(lambda projection: Decoded.of(records, projection))
            notify()

        submit(decode)
        self._decoding = task  # now: an interrupt before would leave what nobody decodes

    def forget(self) -> None:
        """Drop what is decoded; errors of deserializers do not concern objects."""
        if not self.is_busy:
            self._decoding = None

    def now(self, projection: Projection) -> Decoded:
        """Return the columns, which are decoded now if they are not there."""
        if not self._is_begun(projection):
            self._decode_at_once(projection)
        decoded = self.decoded
        if decoded is None or not decoded.projection.is_same(projection):  # a worker has it for another one
            decoded = Decoded.of(self._records, projection)
        return decoded

    def _is_begun(self, projection: Projection) -> bool:
        """True if they are decoded for such a projection, or a worker decodes them for any."""
        task = self._decoding
        return task is not None and (not task.is_done or task.argument.is_same(projection))

    def _decode_at_once(self, projection: Projection) -> None:
        """Decode them; an error waits until the rows before it are taken, an interrupt does not."""
        task: DecodingTask[Projection, Decoded] = DecodingTask(projection)
        task.do(lambda projection: Decoded.of(self._records, projection))
        if task.error is not None and not isinstance(task.error, Exception):
            raise task.error
        self._decoding = task

    def of_projection(self, projection: Projection) -> Decoded | None:
        """Return the columns that are there if they are such ones."""
        decoded = None if self.is_busy else self.decoded
        return decoded if decoded is not None and decoded.projection.is_same(projection) else None

    def size_left(self, projection: Projection, first: int, *, in_bytes: bool) -> tuple[int, int]:
        """Return how many rows there are from `first` on, and their bytes, which are 0 unless they are asked
        for. Until they are decoded, these are a maximum of rows, and the bytes that were fetched.
        """
        decoded = self.of_projection(projection)
        if decoded is None:
            return max(self._records.row_bound - first, 0), self._records.byte_count
        rows = max(decoded.row_count - first, 0)
        return rows, decoded.byte_count(first, rows) if in_bytes else 0

    def last_of(self, end: int) -> LastRead:
        """Return where the program is when it has the rows before `end`."""
        from kbatch.consumer.projection import ENDS  # which takes pyarrow

        result, decoded = self._result, self.decoded
        assert decoded is not None
        if end == decoded.row_count and decoded.error is None:
            return LastRead(result.next_offset - 1, self._records.last_epoch, result.topic_id)
        if self._ends is None:
            self._ends = Decoded.of(self._records, ENDS)
        (row,) = self._ends.rows(end - 1, 1)
        offset, leader_epoch = (column[0].as_py() for column in row.columns)
        return LastRead(offset, leader_epoch, result.topic_id)
