"""RecordSender: the work of `send` for every record; the producer is a subclass of it.

Theory of operation. Key, value and headers are converted to bytes, once; their size is checked; a partition
is chosen; the accumulator takes the record. None of this waits, or runs Python code except the caller's own
serializers and partitioner. A record that cannot go that way becomes a PendingRecord for the subclass's
`_send_slowly`: it waits for metadata or memory and calls `_append`, which continues where the record was
refused. How long a caller waits, as a thread or a coroutine, only concerns the subclass.

An encoded batch goes the same way (PendingBatch), without being decoded.

The partition is chosen from the current metadata and kept, except for the sticky one, which is chosen when
the record is appended. A record whose topic has disappeared meanwhile waits for it. A record without a
timestamp gets the time of the attempt that succeeds.

After org.apache.kafka.clients.producer.KafkaProducer.doSend.
"""

cimport cython
from cpython.pythread cimport PyThread_get_thread_ident
from cpython.time cimport PyTime_TimeRaw
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t

from kbatch._native.batch.buffer_pool cimport FIRST_IN_QUEUE, NOT_IN_QUEUE, Claim, kb_record_bound, claim_of
from kbatch._native.batch.delivery cimport BatchDelivery, Delivery
from kbatch._native.codec.c cimport (
    KB_BATCH_HEADER_SIZE,
    KB_MAX_RECORD_BODY,
    kb_partition_for_key,
    kb_record,
    kb_record_body_size,
)
from kbatch._native.codec.record cimport Record
from kbatch._native.codec.record_fields cimport as_bytes, as_integer, fill_record
from kbatch._native.flags cimport kb_count_add
from kbatch._native.send.accumulator cimport UNKNOWN_NS, RecordAccumulator, TopicInfo
from kbatch._native.send.cluster_view cimport TopicView
from kbatch._native.send.encoded_batch cimport PendingBatch

from kbatch._native.send.accumulator import Refusal
from kbatch.errors import PartialSendError, RecordTooLargeError

cdef object NO_METADATA = Refusal.METADATA
cdef object NO_SERIALIZER = Refusal.SERIALIZER

cdef enum:
    STICKY = -1
    NOT_CHOSEN = -2
    # A record's attributes and deltas at their longest, for which kb_record_body_size counts one byte each,
    # and the size in front (DefaultRecord.MAX_RECORD_OVERHEAD).
    OVERHEAD_BEYOND_BODY = 21 - 3


cdef int64_t most_bytes(const kb_record *record) noexcept nogil:
    """Return the largest size of a record alone in a request."""
    return KB_BATCH_HEADER_SIZE + OVERHEAD_BEYOND_BODY + kb_record_body_size(record, 0, 0)


cdef object beyond_request(int64_t size, int64_t max_request_bytes):
    """Return the error of a record of `most_bytes` beyond max.request.size."""
    return RecordTooLargeError(
        f"the record takes up to {size} bytes, more than max.request.size, which is {max_request_bytes}; "
        f"raise that, and the topic's max.message.bytes with it")


@cython.final
@cython.freelist(16)
cdef class PendingRecord:
    """A record that `send` was given and the accumulator does not have yet.

    Attributes
    ----------
    topic, value, key, headers, partition, timestamp_ms, on_delivery
        As given. An interceptor's changes count until `is_serialized`.
    transaction : int
        The accumulator's `transaction_count` when it was given to the producer: it belongs there, however
        long serializers, interceptors and waits take.
    is_serialized : bool
        True once key, value and headers are bytes, and everything is checked.
    """

    def __init__(self):
        raise TypeError("a PendingRecord comes from a send")

    def __repr__(self):
        return f"<PendingRecord to {self.topic!r}>"

    cdef void keep(self, const Ready *ready, bytes key, bytes value, HeaderSpans spans) noexcept:
        """Set `ready`, the serialized record, which points into the others."""
        self._ready = ready[0]
        self._key = key
        self._value = value
        self._spans = spans
        self.is_serialized = True


cdef str _name_of(object topic):
    """Return the topic as a plain str: it may be a member of an enum."""
    if type(topic) is str:
        return <str>topic
    if isinstance(topic, str):
        return str.__str__(topic)
    raise TypeError(f"topic must be a str, got {type(topic).__name__}")


cdef PendingRecord _new_pending(str topic, object value, object key, object headers, object partition,
                                object timestamp_ms, object on_delivery, int64_t transaction):
    cdef PendingRecord record = PendingRecord.__new__(PendingRecord)
    record.topic = topic
    record.value = value
    record.key = key
    record.headers = headers
    record.partition = partition
    record.timestamp_ms = timestamp_ms
    record.on_delivery = on_delivery
    record.transaction = transaction
    return record


cdef inline bytes _serialized(object serializer, str topic, object headers, object data, str field):
    if serializer is not None and data is not None:
        data = serializer(topic, headers, data)
    return <bytes>data if type(data) is bytes else as_bytes(data, field)


cdef inline object _own_headers(object headers):
    """Return headers as a list for serializers to append to: those of the caller stay as they are."""
    if headers is None:
        return []
    try:
        return list(headers)
    except TypeError:
        raise TypeError(f"headers must be a sequence of (str, bytes | None), got "
                        f"{type(headers).__name__}") from None


cdef class RecordSender:
    """Sends records into an accumulator.

    Parameters
    ----------
    accumulator : RecordAccumulator
        Its view of the cluster has the partitions of topics.
    max_request_size : int
        max.request.size, in bytes: no record may be larger, by Kafka's upper bound.
    key_serializer, value_serializer : callable or None
        `serializer(topic, headers, value)` returns something bytes-like; None accepts only bytes-like values.
        One with a true `adds_headers` appends to `headers`.
    partitioner : kbatch.partitioner.Partitioner or None
        None is Java's: murmur2 of the key over all partitions, the sticky partition without a key.
    ignore_keys : bool
        partitioner.ignore.keys: no partitioner, and always the sticky partition.

    Attributes
    ----------
    _gives_way : bool
        True if a record that may wait goes to `_send_slowly` first when the sender has work
        (`_has_to_give_way`), because that needs the same thread.
    _is_giving_way : bool
        True while another call does so: later ones give way too, to keep records in order.
    _turn_left : int
        Number of records that may go before the next call that gave way gets its turn; -1: none waits.
    _loop_is_running : callable or None
        is_running of the producer's event loop, whose thread `BufferPool` knows.
    _key_topics, _value_topics : set of str, or None
        The topics for which the serializer waits for nothing, because it knows their schema; others are a
        Refusal.SERIALIZER. None: it may be called for any.
    _slow_count, _refused_count : int
        Number of records that went to `_send_slowly`, and for which `send` raised.
    """

    def __init__(self, RecordAccumulator accumulator not None, *, int64_t max_request_size=1048576,
                 key_serializer=None, value_serializer=None, partitioner=None, bint ignore_keys=False):
        self._accumulator = accumulator
        self.max_request_bytes = min(max_request_size, <int64_t>KB_MAX_RECORD_BODY)
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._adds_headers = any(getattr(each, "adds_headers", False)
                                 for each in (key_serializer, value_serializer))
        self.partitioner = partitioner
        self.hashes_keys = not ignore_keys
        self._turn_left = -1

    def send(self, topic, value=None, key=None, *, headers=None, partition=None,
             timestamp_ms=None, on_delivery=None):
        """Accept a record for sending; wait up to max.block.ms for metadata or memory if there is none.

        Parameters
        ----------
        topic : str
        value, key : bytes-like or None; with a serializer, its input
        headers : sequence of (str, bytes-like or None), or None
        partition : int or None
            None leaves it to the partitioner.
        timestamp_ms : int or None
            Milliseconds since the Unix epoch; None is the time of the call, -1 no timestamp.
        on_delivery : callable or None
            Called as `on_delivery(metadata, error)` when the record was delivered, or failed.

        Returns
        -------
        Delivery

        Raises
        ------
        TypeError, ValueError
            An argument is invalid; the message names it. Exceptions of serializers and the partitioner pass
            through.
        KafkaError
            RecordTooLargeError; KafkaTimeoutError, BufferExhaustedError after max.block.ms; the topic's own
            error; ProducerClosedError, or the error that ended the producer.
        """
        return self._send(_name_of(topic), value, key, headers, partition, timestamp_ms, on_delivery, True)

    def try_send(self, topic, value=None, key=None, *, headers=None, partition=None,
                 timestamp_ms=None, on_delivery=None):
        """Send like `send`, but never wait: return None where `send` would."""
        return self._send(_name_of(topic), value, key, headers, partition, timestamp_ms, on_delivery, False)

    def send_many(self, topic, records):
        """Send each record as `send` does.

        Parameters
        ----------
        topic : str
        records : iterable of kbatch.Record, or of tuples (key, value[, headers[, timestamp_ms]])

        Returns
        -------
        list of Delivery

        Raises
        ------
        PartialSendError
            A record was refused, or `records` raised; it has the deliveries of earlier ones.
        """
        cdef list deliveries = []
        cdef str name = _name_of(topic)
        iterator = iter(records)
        try:
            self._send_on(name, iterator, deliveries)
        except Exception as error:
            raise PartialSendError(deliveries, len(deliveries), error) from error
        return deliveries

    def send_batch(self, topic, partition, batch_bytes, *, on_delivery=None):
        """Accept an encoded record batch, from `kbatch.encode` or `encode_arrow`, for example on a Spark
        executor: it is sent as it is, after all earlier records of the partition.

        CRC, header and size are checked, and without compression also the number of records. The records are
        not decoded or decompressed. The producer writes base offset, producer id, epoch and sequence into the
        header, and in a transaction marks it as part of that. Wait up to max.block.ms for metadata or memory,
        as `send` does.

        Parameters
        ----------
        topic : str
        partition : int
            0 or more, because the batch has no key to choose it by.
        batch_bytes : bytes-like
            One whole batch with magic 2, without producer id, transactional only if the producer is. A bytes
            object is kept while the batch is in flight, and charged to buffer.memory; anything else is
            copied.
        on_delivery : callable or None
            Called once, as `on_delivery(metadata, error)`: when the whole batch was delivered, or when it, or
            a part of it, failed. The offset is that of the first record, which the others follow.

        Returns
        -------
        BatchDelivery
            A Delivery with `record_count` and `offset_runs()`, which has the offsets of all records even if
            the batch was too large for the topic and was sent in parts.

        Raises
        ------
        TypeError, ValueError, CorruptRecordError
            An argument, or a field of the batch's header, is invalid; the message names it.
        IllegalStateError
            An interceptor with on_send would not see the records.
        KafkaError
            As in `send`; RecordTooLargeError if the batch is larger than max.request.size or buffer.memory.
        """
        return self._send_encoded(PendingBatch.new(_name_of(topic), partition, batch_bytes, on_delivery))

    # Called by the subclass, or defined by it

    def _offer(self, topic, value, key, headers, partition, timestamp_ms, on_delivery, /):
        """Send like `send`, for tasks of an event loop, with the cheapest arguments."""
        if not self._is_on_loop():
            self._check_here()
        return self._send(_name_of(topic), value, key, headers, partition, timestamp_ms, on_delivery, True)

    @property
    def _has_to_give_way(self):
        """True if the sender, or another task, is to run first."""
        return self._must_give_way()

    @cython.final
    cdef bint _is_on_loop(self) except -1:
        """True if its loop runs here; this thread has no other. asyncio's own get_running_loop is a system
        call up to Python 3.11 (getpid), a tenth of the cost of `send`.
        """
        return (self._loop_is_running is not None
                and PyThread_get_thread_ident() == self._accumulator.memory.loop_thread_ident
                and self._loop_is_running())

    @cython.final
    cdef bint _must_give_way(self) noexcept:
        if not self._gives_way:
            return False
        if self._turn_left > 0:
            self._turn_left -= 1
        return self._is_giving_way or self._turn_left == 0 or self._accumulator.alarm.is_due()

    def _send_on(self, topic, iterator, list deliveries not None):
        """Send the records of `send_many`, up to the end, or up to one for which `_send_slowly` returned
        something other than a Delivery, which is returned.
        """
        cdef str name = _name_of(topic)
        for item in iterator:
            sent = self._send_item(name, item)
            if type(sent) is not Delivery:
                return sent
            deliveries.append(sent)
        return None

    def _append(self, object record not None, *, bint first_in_queue=False):
        """Continue with a PendingRecord or PendingBatch that was refused, or was not tried yet. Return a
        Delivery, or the Refusal to wait for; `first_in_queue` as for `RecordAccumulator.append`.
        """
        cdef Claim claim = FIRST_IN_QUEUE if first_in_queue else NOT_IN_QUEUE
        if type(record) is PendingBatch:
            return self._attempt_batch(<PendingBatch>record, claim)
        return self._attempt_pending(<PendingRecord?>record, claim)

    def _serialize(self, PendingRecord record not None):
        """Make bytes of a record that has none yet, on any thread; `_append` then calls no serializer.

        Raises
        ------
        Exception
            Those of arguments and serializers that `send` raises.
        """
        cdef Ready ready
        cdef bytes key, value
        cdef HeaderSpans spans
        self._check(&ready, record.partition, record.timestamp_ms, record.on_delivery)
        headers = _own_headers(record.headers) if self._adds_headers else record.headers
        key = _serialized(self._key_serializer, record.topic, headers, record.key, "key")
        value = _serialized(self._value_serializer, record.topic, headers, record.value, "value")
        spans = fill_record(&ready.record, key, value, headers)
        self._check_size(&ready.record)
        ready.transaction = record.transaction
        record.keep(&ready, key, value, spans)

    def _send_slowly(self, record, refusal, may_wait):
        """Send a record, or batch, that could not go at once: because of `refusal`, or if that is None,
        because the accumulator's `accepts_directly` is False. Return a Delivery, or None if `may_wait` is
        False.
        """
        raise NotImplementedError

    def _check_here(self):
        """Raise unless the producer may be used here, by a task of the loop; the first use binds it to that
        loop.
        """

    def _handle_refused(self, record, error):
        """Called when `send` will raise `error`, a BaseException, for a PendingRecord or PendingBatch."""

    cdef object _send(self, str topic, object value, object key, object headers, object partition,
                      object timestamp_ms, object on_delivery, bint may_wait):
        cdef Ready ready
        cdef bytes key_bytes, value_bytes
        cdef HeaderSpans spans
        cdef PendingRecord pending = None
        cdef int64_t transaction = self._accumulator.transaction()
        try:
            if self._goes_at_once(may_wait) and self._may_serialize(topic, key, value):
                ready.transaction = transaction
                self._check(&ready, partition, timestamp_ms, on_delivery)
                sent_headers = _own_headers(headers) if self._adds_headers else headers
                key_bytes = _serialized(self._key_serializer, topic, sent_headers, key, "key")
                value_bytes = _serialized(self._value_serializer, topic, sent_headers, value, "value")
                spans = fill_record(&ready.record, key_bytes, value_bytes, sent_headers)
                self._check_size(&ready.record)
                outcome = self._attempt(topic, &ready, key_bytes, value_bytes, on_delivery, NOT_IN_QUEUE)
                if type(outcome) is Delivery:
                    return outcome
                pending = _new_pending(topic, value, key, headers, partition, timestamp_ms, on_delivery,
                                       transaction)
                pending.keep(&ready, key_bytes, value_bytes, spans)
                return self._send_refused(pending, outcome, may_wait)
            pending = _new_pending(topic, value, key, headers, partition, timestamp_ms, on_delivery,
                                   transaction)
            return self._send_refused(pending, None, may_wait)
        except BaseException as error:
            if pending is None:
                pending = _new_pending(topic, value, key, headers, partition, timestamp_ms, on_delivery,
                                       transaction)
            self._refuse(pending, error)
            raise

    cdef object _send_item(self, str topic, object item):
        """Unpack a record as for `kbatch.encode`: a Record, or a tuple of 2 to 4."""
        cdef Record record
        cdef Py_ssize_t size
        cdef tuple fields
        if isinstance(item, Record):
            record = <Record>item
            return self._send(topic, record.value, record.key, record.headers, None, record.timestamp_ms,
                              None, True)
        if not isinstance(item, tuple):
            raise TypeError(f"it must be a Record or a tuple (key, value[, headers[, timestamp_ms]]), got "
                            f"{type(item).__name__}")
        fields = item if type(item) is tuple else tuple(item)
        size = len(fields)
        if size < 2 or size > 4:
            raise TypeError(f"it must be a tuple (key, value[, headers[, timestamp_ms]]), got {size} "
                            f"items")
        return self._send(topic, fields[1], fields[0], fields[2] if size > 2 else None, None,
                          fields[3] if size > 3 else None, None, True)

    cdef object _send_encoded(self, PendingBatch batch):
        outcome = None
        batch.transaction = self._accumulator.transaction()
        try:
            if self._goes_at_once(True):
                outcome = self._attempt_batch(batch, NOT_IN_QUEUE)
                if type(outcome) is BatchDelivery:
                    return outcome
            return self._send_refused(batch, outcome, True)
        except BaseException as error:
            self._refuse(batch, error)
            raise

    @cython.final
    cdef bint _goes_at_once(self, bint may_wait) noexcept:
        return self._accumulator.goes_directly() and not (may_wait and self._must_give_way())

    @cython.final
    cdef bint _may_serialize(self, str topic, object key, object value) except -1:
        if self._value_topics is not None and value is not None and topic not in self._value_topics:
            return False
        return self._key_topics is None or key is None or topic in self._key_topics

    cdef object _send_refused(self, object pending, object refusal, bint may_wait):
        kb_count_add(&self._slow_count, 1)
        return self._send_slowly(pending, refusal, may_wait)

    cdef int _refuse(self, object pending, object error) except -1:
        kb_count_add(&self._refused_count, 1)
        self._handle_refused(pending, error)
        return 0

    @cython.final
    cdef Claim _claim(self, Claim claim) noexcept:
        return claim_of(claim == FIRST_IN_QUEUE, self._accumulator.in_callback())

    cdef object _attempt_batch(self, PendingBatch batch, Claim claim):
        cdef TopicInfo info
        cdef TopicView view
        if not batch.is_checked:
            batch.check(self._accumulator.context.attributes, self.max_request_bytes)
        info = self._accumulator.info_if_known(batch.topic)
        view = None if info is None else info.partitions_now()
        if view is None or view.partition_count <= batch.checked_partition:
            return NO_METADATA
        return self._accumulator.accept_batch(info, batch, self._accumulator.now_ns(), self._claim(claim))

    cdef object _attempt_pending(self, PendingRecord record, Claim claim):
        if not record.is_serialized:
            if not self._may_serialize(record.topic, record.key, record.value):
                return NO_SERIALIZER
            self._serialize(record)
        return self._attempt(record.topic, &record._ready, record._key, record._value, record.on_delivery,
                             claim)

    @cython.final
    cdef object _attempt(self, str topic, Ready *ready, bytes key, bytes value, object on_delivery,
                         Claim claim):
        cdef TopicInfo info = self._accumulator.info_if_known(topic)
        if info is None:
            return NO_METADATA
        if ready.partition == NOT_CHOSEN and not self._choose_partition(info, ready, key, value):
            return NO_METADATA
        if not ready.has_time:
            ready.record.timestamp_ms = PyTime_TimeRaw() // 1_000_000
        claim = self._claim(claim)
        outcome = self._accumulator.accept(info, ready.partition, &ready.record, UNKNOWN_NS, on_delivery,
                                          claim, ready.transaction)
        if outcome is None:  # a batch begins: only then is the clock read
            outcome = self._accumulator.accept(info, ready.partition, &ready.record,
                                              self._accumulator.now_ns(), on_delivery, claim,
                                              ready.transaction)
        return outcome

    @cython.final
    cdef int _check(self, Ready *ready, object partition, object timestamp_ms, object on_delivery) except -1:
        """Find everything that can be wrong before anything is serialized."""
        ready.partition = NOT_CHOSEN
        ready.given_partition = STICKY
        if partition is not None:
            ready.given_partition = <int32_t>as_integer(partition, "partition", 0, INT32_MAX)
        ready.has_time = timestamp_ms is not None
        if ready.has_time:  # the difference of two must fit in 64 bits
            ready.record.timestamp_ms = as_integer(timestamp_ms, "timestamp_ms", -1, INT64_MAX - 1)
        if on_delivery is not None and not callable(on_delivery):
            raise TypeError(f"on_delivery must be callable as on_delivery(metadata, error), or None, got "
                            f"{type(on_delivery).__name__}")
        return 0

    @cython.final
    cdef int _check_size(self, const kb_record *record) except -1:
        """Check AbstractRecords.estimateSizeInBytesUpperBound against max.request.size."""
        cdef int64_t size
        if KB_BATCH_HEADER_SIZE + kb_record_bound(record) <= self.max_request_bytes:
            return 0
        size = most_bytes(record)
        if size > self.max_request_bytes:
            raise beyond_request(size, self.max_request_bytes)
        return 0

    @cython.final
    cdef bint _choose_partition(self, TopicInfo info, Ready *ready, bytes key, bytes value) except -1:
        """False if the requested partition, or any at all, is unknown."""
        cdef TopicView view = info.partitions_now()
        if view is None or view.partition_count <= max(ready.given_partition, 0):
            return False
        if ready.given_partition >= 0:
            ready.partition = ready.given_partition
        elif self.partitioner is not None:
            ready.partition = self.partitioner.partition(info.name, key, value, view.partition_count,
                                                          view.available_partitions)
        elif key is None or not self.hashes_keys:
            ready.partition = STICKY
        else:
            ready.partition = kb_partition_for_key(ready.record.key.data, ready.record.key.size,
                                                   view.partition_count)
        return True
