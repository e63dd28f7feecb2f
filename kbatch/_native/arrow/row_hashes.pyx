"""Hashes of rows of Arrow tables: murmur2 of keys, and a digest that is independent of the order of rows."""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint32_t, uint64_t

from kbatch._native.arrow.arrow cimport ArrowBatch, ArrowStream
from kbatch._native.arrow.table_columns cimport TableColumns
from kbatch._native.codec.c cimport kb_murmur2, kb_partition_for_key, kb_record_header, kb_span
from kbatch._native.codec.hashes cimport crc32c_extend

cdef int64_t BLOCK_ROWS = 2048


cdef uint64_t _mixed(uint64_t value) noexcept nogil:
    """Apply the finalizer of splitmix64: every bit of the value changes half of the result's."""
    value = (value ^ (value >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    value = (value ^ (value >> 27)) * <uint64_t>0x94D049BB133111EB
    return value ^ (value >> 31)


cdef uint64_t _with_span(uint64_t digest, kb_span span) noexcept nogil:
    """Mix in a value; null and empty differ, and so do the same bytes split elsewhere."""
    cdef uint64_t hashes = 0
    if span.size > 0:
        hashes = (<uint64_t>kb_murmur2(span.data, span.size) << 32) | crc32c_extend(0, span.data, span.size)
    return _mixed(_mixed(digest ^ hashes) + <uint64_t>span.size)


cdef uint64_t _digest_of_block(TableColumns columns, int64_t first, uint64_t seed) except? 1 nogil:
    cdef uint64_t total = 0
    cdef uint64_t digest
    cdef const kb_record_header *header
    cdef int64_t i, j
    for i in range(columns.rows.count):
        digest = _with_span(_with_span(seed, columns.rows.keys[i]), columns.rows.values[i])
        if columns.timestamp_at >= 0:
            digest = _mixed(digest ^ <uint64_t>columns.rows.timestamps_ms[i])
        if columns.partition_at >= 0:
            digest = _mixed(digest ^ <uint64_t>columns.named_partition(first + i, INT32_MAX, None, NULL))
        if columns.headers_at >= 0:
            for j in range(columns.rows.header_counts[i]):
                header = &columns.rows.headers[columns.rows.header_starts[i] + j]
                digest = _with_span(_with_span(digest, header.key), header.value)
        total += digest
    return total


def digest_rows(data, str topic not None):
    """Return the sum, modulo 2^64, of a hash of every row: the same for the same rows in any order.

    Parameters
    ----------
    data : anything with __arrow_c_stream__ or __arrow_c_array__
        Its columns are value and, if present, key, headers, timestamp and partition, as for
        `kbatch.encode_arrow`. A null timestamp counts as such.
    topic : str
        The topic's partitions; a row's partition is part of its hash.

    Raises
    ------
    TypeError, ValueError
        See `kbatch.encode_arrow`.
    """
    cdef TableColumns columns
    cdef ArrowStream stream = ArrowStream(data)
    cdef ArrowBatch batch
    cdef bytes name = topic.encode()
    cdef kb_span span
    cdef uint64_t seed, total = 0
    cdef int64_t first, count
    span.data, span.size = name, len(name)
    seed = _with_span(0, span)
    columns = TableColumns({role: (role, role == "value") for role in
                            ("key", "value", "headers", "timestamp", "partition")}, BLOCK_ROWS)
    columns.rows.now_ms = -1
    columns.find(stream)
    while (batch := stream.next_batch()) is not None:
        columns.bind(stream, batch)
        with nogil:
            first = 0
            while first < batch.array.length:
                count = columns.block_length(first, batch.array.length - first)
                columns.fill(first, count)
                total += _digest_of_block(columns, first, seed)
                first += count
        columns.rows_before += batch.array.length
    return total


def hash_keys(data, str column not None, int32_t partitions=0):
    """Return Java's murmur2 of every key of a column, or with `partitions` its partition.

    Parameters
    ----------
    data : anything with __arrow_c_stream__ or __arrow_c_array__
    column : str
        A column of binary or strings, in any of Arrow's forms.
    partitions : int
        0 returns the hash itself.

    Returns
    -------
    bytearray
        int32 in machine order, one a row; 0 for a null key.

    Raises
    ------
    TypeError, ValueError
        See `kbatch.encode_arrow`; or `partitions` is negative.
    """
    cdef TableColumns columns
    cdef ArrowStream stream = ArrowStream(data)
    cdef ArrowBatch batch
    cdef bytearray result = bytearray()
    cdef bytearray block
    cdef int32_t[::1] target
    cdef kb_span key
    cdef int64_t first, count, i
    if partitions < 0:
        raise ValueError(f"partitions must be 1 or more, the topic's number of partitions, got "
                         f"{partitions}")
    columns = TableColumns({"key": ("", False), "value": (column, True), "headers": ("", False),
                            "timestamp": ("", False), "partition": ("", False)}, BLOCK_ROWS)
    columns.find(stream)
    while (batch := stream.next_batch()) is not None:
        columns.bind(stream, batch)
        block = bytearray(4 * batch.array.length)
        target = memoryview(block).cast("i")
        with nogil:
            first = 0
            while first < batch.array.length:
                count = columns.block_length(first, batch.array.length - first)
                columns.fill(first, count)
                for i in range(count):
                    key = columns.rows.values[i]
                    if key.size < 0:
                        continue
                    if partitions:
                        target[first + i] = kb_partition_for_key(key.data, key.size, partitions)
                    else:
                        target[first + i] = <int32_t>kb_murmur2(key.data, key.size)
                first += count
        columns.rows_before += batch.array.length
        del target
        result += block
    return result
