"""Iterators over records that are taken one by one, and the cursor that they move."""

import threading

import pytest

from kbatch._native.fetch.fetched_batches import FetchedRecords
from kbatch._native.fetch.frames import FramePool
from kbatch._native.fetch.read_cursor import ChainedIterator, FetchIterator, ReadCursor
from tests.oracle import plain

ROWS: list[plain.Row] = [(b"k%d" % n, b"value %d" % n, (), 1000 + n) for n in range(10)]


def fetched(batches: int = 1, compression: str = "lz4") -> FetchedRecords:
    data = b"".join(plain.encode(ROWS, base_offset=10 * n, compression=compression) for n in range(batches))
    return FetchedRecords(data, topic="orders", partition=3, from_offset=0)


def begun(cursor: ReadCursor, records: FetchedRecords, count: int = 100) -> FetchIterator:
    cursor.iterator = iterator = FetchIterator(cursor, records, count)
    return iterator


def test_iterator_moves_its_cursor_with_each_record() -> None:
    cursor, records = ReadCursor(), fetched(batches=2)
    for number, record in enumerate(begun(cursor, records)):
        assert cursor.last is record
        assert (record.offset, records.taken_count, records.position) == (number, number + 1, number + 1)
    assert cursor.last.offset == 19
    assert (cursor.iterator, records.is_used_up) == (None, True)


def test_iterator_ends_after_its_count() -> None:
    cursor, records = ReadCursor(), fetched()
    assert [record.offset for record in begun(cursor, records, 4)] == [0, 1, 2, 3]
    assert [record.offset for record in begun(cursor, records, 4)] == [4, 5, 6, 7]
    assert cursor.last.offset == 7


def test_iterator_takes_nothing_after_its_cursor_has_another() -> None:
    cursor, records = ReadCursor(), fetched()
    iterator = begun(cursor, records)
    assert next(iterator).offset == 0
    other = begun(cursor, records)
    assert list(iterator) == []
    assert (cursor.iterator, cursor.last.offset) == (other, 0)
    assert next(other).offset == 1
    cursor.iterator = None
    assert (list(other), cursor.last.offset, records.taken_count) == ([], 1, 2)


def test_iterator_ended_by_another_thread_takes_nothing() -> None:
    """The other thread comes while the iterator decompresses, without the GIL: the cursor is where it was."""
    cursor, is_over = ReadCursor(), threading.Event()

    def end_iterators() -> None:
        while not is_over.is_set():
            cursor.iterator = None

    thread = threading.Thread(target=end_iterators)
    thread.start()
    try:
        for _ in range(20):
            records, before = fetched(batches=3), cursor.last
            taken = list(begun(cursor, records))
            assert records.taken_count == len(taken)
            assert cursor.last is (taken[-1] if taken else before)
    finally:
        is_over.set()
        thread.join()


def test_iterators_follow_each_other_until_there_is_none() -> None:
    cursor, records = ReadCursor(), fetched(batches=2)
    iterator = ChainedIterator(lambda: None if records.is_used_up else begun(cursor, records, 7))
    assert [record.offset for record in iterator] == list(range(20))
    assert list(iterator) == []


def test_error_of_the_next_iterator_loses_no_record() -> None:
    cursor, records = ReadCursor(), fetched()

    def next_iterator() -> FetchIterator | None:
        if records.taken_count == 3 and cursor.last is not None and not errors:
            errors.append(KeyboardInterrupt())
            raise errors[0]
        return None if records.is_used_up else begun(cursor, records, 3)

    errors: list[KeyboardInterrupt] = []
    iterator = ChainedIterator(next_iterator)
    found = [next(iterator).offset for _ in range(3)]
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    assert found + [record.offset for record in iterator] == list(range(10))


def test_iterators_that_are_over_keep_no_memory() -> None:
    pool = FramePool()
    data = plain.encode(ROWS)
    frame = pool.take(len(data))
    memoryview(frame)[:] = data
    records: FetchedRecords | None = FetchedRecords(
        memoryview(frame), topic="orders", partition=3, from_offset=0
    )
    del frame
    cursor, used = ReadCursor(), []

    def next_iterator() -> FetchIterator | None:
        nonlocal records
        if records is None:
            used.append(pool.used_bytes)
            return None
        iterator, records = begun(cursor, records), None
        return iterator

    assert len(list(ChainedIterator(next_iterator))) == 10
    assert used == [0]


def test_place_takes_several_records_at_once() -> None:
    cursor, records = ReadCursor(), fetched()
    assert [record.offset for record in cursor.take(records, 8)] == list(range(8))
    assert cursor.last.offset == 7
    taken = cursor.take(records, 8)
    assert ([record.offset for record in taken], cursor.last) == ([8, 9], taken[-1])
    assert (cursor.take(records, 8), cursor.last) == ([], taken[-1])


def test_peeked_records_are_those_that_are_taken() -> None:
    cursor, records = ReadCursor(), fetched(batches=2)
    peeked = records.peek_records(13)
    assert ([record.offset for record in peeked], records.taken_count) == (list(range(13)), 0)
    assert (records.position, records.is_used_up) == (0, False)
    assert records.peek_records(5) == peeked[:5]
    taken = list(begun(cursor, records, 6))
    assert all(a is b for a, b in zip(taken, peeked, strict=False))
    assert (records.position, records.taken_count) == (6, 6)
    assert [record.offset for record in records.peek_records(100)] == list(range(6, 20))
    assert (records.is_used_up, records.position) == (False, 6)
    assert [record.offset for record in records.take_records(100)] == list(range(6, 20))
    assert (records.is_used_up, records.position, records.taken_count) == (True, 20, 20)


def test_skipped_records_count_as_taken() -> None:
    records = fetched(batches=2)
    assert records.skip_to(0)
    assert records.taken_count == 0
    assert records.skip_to(12)
    assert (records.taken_count, records.position) == (12, 12)
    assert [record.offset for record in records.take_records(2)] == [12, 13]
    records.peek_records(3)
    assert records.skip_to(15)
    assert [record.offset for record in records.take_records(1)] == [15]
    assert not records.skip_to(20)
    assert (records.is_used_up, records.taken_count) == (True, 20)


@pytest.mark.parametrize("count", [0, -1])
def test_peeking_at_less_than_one_record_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"count must be at least 1, got {count}"):
        fetched().peek_records(count)
