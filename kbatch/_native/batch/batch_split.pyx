"""Splitting a batch that is too large for the broker (MESSAGE_TOO_LARGE) into smaller ones.

Theory of operation. The records are read back and written again, with the deltas of their new batch, sealed
at once. A batch that Kafka's estimate let grow beyond batch.size is cut into batches of batch.size, before
compression; one that is smaller, or came from a split itself, in halves, or around its largest record; one
that came encoded, by whatever batch.size, in halves, and they by the codec that it has. Either way it gives
two batches at least, so that splitting ends with single records (KAFKA-8350).

The parts take the place of the whole, in the queue, in the list of unfinished batches, in its deliveries and
in its sequences; they count as never tried, and as old as the whole. Their bytes come from no pool, but are
charged like all others, in one step with what they replace.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset

from kbatch._native.batch.buffer_pool cimport kb_chain_gather, kb_chunk
from kbatch._native.batch.producer_batch cimport DONE, IN_FLIGHT, SEALED, ProducerBatch
from kbatch._native.codec.c cimport (
    KB_BATCH_HEADER_SIZE,
    KB_CODEC_MASK,
    kb_count_record,
    kb_memory,
    kb_open_batch,
    kb_record,
    kb_record_body_size,
    kb_record_error,
    kb_record_get,
    kb_record_header,
    kb_record_header_get,
    kb_record_put,
    kb_record_view,
    kb_records_check,
    kb_varint_size,
)
from kbatch._native.codec.compression cimport compress_records, decompress_records, level_of
from kbatch._native.codec.lock cimport kb_lock_acquire, kb_lock_release
from kbatch._native.codec.memory cimport give_up, reserve
from kbatch._native.codec.record_batch cimport record_error, record_timestamp

from kbatch.errors import IllegalStateError

# What records that came encoded may take uncompressed, nobody having looked; as `kbatch.decode` has it.
cdef int64_t MAX_DECOMPRESSED_BYTES = 268435456


cdef list split_batch(ProducerBatch batch):
    """Replaces a batch in flight by smaller ones, which it returns, in order."""
    cdef list parts, completions = []
    cdef ProducerBatch part, before = batch
    cdef kb_chunk *chunks = NULL
    cdef int64_t discharged = 0, charged = 0
    if batch._state != IN_FLIGHT or batch._open.count < 2:
        raise IllegalStateError(f"a batch is split when it is in flight and has two records or more; this is "
                                f"{batch!r}")
    parts = _parts_of(batch)
    for part in parts:
        completions.append(part.completion)
        charged += part._charged_bytes
    batch.completion.split(completions)
    for part in parts:
        batch._owner.add_incomplete(part, before)
        before = part
    kb_lock_acquire(&batch._queue.lock)
    try:
        for part in parts:
            batch._queue.insert(part)
        batch._state = DONE
        batch._users -= 1
        if batch._users == 0:
            chunks = batch.dismissed(&discharged)
    finally:
        kb_lock_release(&batch._queue.lock)
    batch._owner.remove_incomplete(batch)
    batch._owner.memory.exchange(chunks, discharged - charged)
    if batch._owner.codec and not batch.is_encoded:
        batch._queue.ratios.reset(batch._owner.codec,
                                  <double>batch._body_bytes / <double>batch._open.records_bytes)
    return parts


cdef list _parts_of(ProducerBatch batch):
    cdef bytes records = _records_of(batch)
    cdef const uint8_t *at = <const uint8_t *>PyBytes_AS_STRING(records)
    cdef const uint8_t *end = at + PyBytes_GET_SIZE(records)
    cdef int64_t target_bytes = _target_bytes(batch, PyBytes_GET_SIZE(records))
    cdef int32_t index = 0
    cdef int64_t largest_bytes
    cdef list parts = []
    cdef kb_memory scratch
    cdef kb_memory headers
    cdef kb_open_batch filled
    memset(&scratch, 0, sizeof(scratch))
    memset(&headers, 0, sizeof(headers))
    try:
        while index < batch._open.count:
            memset(&filled, 0, sizeof(filled))
            scratch.used = 0
            largest_bytes = 0
            at = _fill(batch, at, end, batch._open.count - index, target_bytes, &scratch, &headers, &filled,
                       &largest_bytes)
            parts.append(_part(batch, index, &scratch, &filled, largest_bytes))
            index += filled.count
    finally:
        give_up(&scratch)
        give_up(&headers)
    return parts


cdef bytes _records_of(ProducerBatch batch):
    """The records as they were appended; CorruptRecordError where the batch came encoded, and wrongly."""
    cdef bytes records
    cdef int codec = batch._header.attributes & KB_CODEC_MASK
    if batch._body_at:
        return _checked_records(batch, decompress_records(
            codec, <const uint8_t *>PyBytes_AS_STRING(batch._packed) + batch._body_at, batch._body_bytes,
            MAX_DECOMPRESSED_BYTES,
        ))
    if batch._packed is not None:
        return decompress_records(codec, <const uint8_t *>PyBytes_AS_STRING(batch._packed),
                                  batch._body_bytes, batch._open.records_bytes)
    records = PyBytes_FromStringAndSize(NULL, batch._open.records_bytes)
    kb_chain_gather(&batch._chain, <uint8_t *>PyBytes_AS_STRING(records))
    return records


cdef bytes _checked_records(ProducerBatch batch, bytes records):
    cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(records)
    cdef int32_t failed_at
    cdef kb_record_error error = kb_records_check(start, start + PyBytes_GET_SIZE(records),
                                                  batch._open.count, &failed_at)
    if error:
        raise record_error(error, failed_at, 0)
    return records


cdef int64_t _target_bytes(ProducerBatch batch, int64_t records_bytes) noexcept:
    """The most that the records of one part take together, unless it is a single record."""
    cdef int64_t room = batch._owner.batch_size - KB_BATCH_HEADER_SIZE
    if batch._body_at:
        return records_bytes // 2
    if not batch.is_split and batch._open.records_bytes > room:
        return room
    return max(batch._largest_record_bytes, batch._open.records_bytes // 2)


cdef const uint8_t *_fill(ProducerBatch batch, const uint8_t *at, const uint8_t *end, int32_t left,
                          int64_t target_bytes, kb_memory *scratch, kb_memory *headers,
                          kb_open_batch *filled, int64_t *largest_bytes) except NULL:
    """Writes the records of one part; returns where the next begins."""
    cdef kb_record_view view
    cdef kb_record record
    cdef const uint8_t *start = at
    cdef const uint8_t *record_at
    cdef int64_t delta, body, size
    while filled.count < left:
        record_at = at
        if kb_record_get(&at, end, &view):
            raise AssertionError(f"the records of {batch!r} cannot be read back")
        if filled.count and at - start > target_bytes:
            return record_at
        _take_record(batch, &view, headers, &record)
        delta = 0
        if filled.count:  # timestamps that came encoded may be any; readers wrap as this does
            delta = <int64_t>(<uint64_t>record.timestamp_ms - <uint64_t>filled.base_timestamp_ms)
        body = kb_record_body_size(&record, delta, filled.count)
        reserve(scratch, body + 5)
        scratch.used += kb_record_put(scratch.data + scratch.used, &record, body, delta, filled.count) - (
            scratch.data + scratch.used)
        size = body + kb_varint_size(body)
        largest_bytes[0] = max(largest_bytes[0], size)  # as it is here, for its deltas are others than before
        kb_count_record(filled, record.timestamp_ms, size, filled.count)
    return at


cdef int _take_record(ProducerBatch batch, const kb_record_view *view, kb_memory *headers,
                      kb_record *record) except -1:
    cdef const uint8_t *at = view.headers
    cdef int32_t i
    headers.used = 0
    reserve(headers, view.header_count * sizeof(kb_record_header))
    for i in range(view.header_count):
        kb_record_header_get(&at, view.end, &(<kb_record_header *>headers.data)[i])
    record.timestamp_ms = record_timestamp(&batch._header, view.timestamp_delta)
    record.key = view.key
    record.value = view.value
    record.headers = <const kb_record_header *>headers.data
    record.header_count = view.header_count
    return 0


cdef ProducerBatch _part(ProducerBatch batch, int32_t index, const kb_memory *records,
                         const kb_open_batch *filled, int64_t largest_bytes):
    """A sealed batch of `records`, which begin with record `index` of the whole."""
    cdef ProducerBatch part = ProducerBatch.new(batch._owner, batch._queue, batch.created_ns)
    cdef int codec = batch._owner.codec
    cdef int level = batch._owner.level
    if batch.is_encoded and batch._header.attributes & KB_CODEC_MASK != codec:
        codec = batch._header.attributes & KB_CODEC_MASK
        level = level_of(codec, None)
    part.first_number = batch.first_number + index
    part.is_split = True
    part.is_encoded = batch.is_encoded
    part.possibly_persisted = batch.possibly_persisted
    part._open = filled[0]
    part._largest_record_bytes = largest_bytes
    part.completion.record_count = filled.count
    part._header.producer_id = batch._header.producer_id
    part._header.producer_epoch = batch._header.producer_epoch
    if batch._header.base_sequence >= 0:
        part._header.base_sequence = <int32_t>(
            (<int64_t>batch._header.base_sequence + index) & INT32_MAX
        )
    part.set_body(compress_records(codec, records.data, records.used, level), codec)
    part._charged_bytes = part._body_bytes
    part._state = SEALED
    return part
