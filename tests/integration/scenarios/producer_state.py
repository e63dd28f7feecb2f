"""Sequences, epochs and a partition's state of a producer id."""

from tests.integration.scenarios.requests import (
    ProducerId,
    add_partitions,
    await_complete,
    await_stable,
    batch,
    end_txn,
    init_producer_id,
    log,
    partition_state,
    produce,
    produce_transactional,
)
from tests.integration.scenarios.wire import Wire, scenario
from tests.oracle.plain import INT32_MAX
from tests.support.patience import until


def _send(
    wire: Wire, topic: str, producer: ProducerId, sequence: int, count: int = 1, note: str = ""
) -> None:
    records = batch(
        *(b"%d" % (sequence + index) for index in range(count)), producer=producer, sequence=sequence
    )
    produce(wire, topic, records, note=note or f"sequence {sequence}")


@scenario
def sequences_in_order_gaps_and_duplicates(wire: Wire) -> None:
    topic, producer = wire.topic(), init_producer_id(wire)
    for sequence in range(0, 14, 2):
        _send(wire, topic, producer, sequence, 2)
    for sequence in (12, 10, 8, 6, 4):
        _send(wire, topic, producer, sequence, 2, note=f"duplicate {sequence}")
    _send(wire, topic, producer, 2, 2, note="older than five")
    _send(wire, topic, producer, 0, 2, note="older than five, and the first")
    _send(wire, topic, producer, 12, 1, note="half of a duplicate")
    _send(wire, topic, producer, 13, 1, note="the other half")
    _send(wire, topic, producer, 12, 3, note="more than a duplicate")
    _send(wire, topic, producer, 15, 1, note="gap")
    _send(wire, topic, producer, 14, 1, note="in order")
    log(wire, topic)


@scenario
def sequence_of_an_unknown_producer_id_may_start_anywhere(wire: Wire) -> None:
    topic, producer = wire.topic(), init_producer_id(wire)
    _send(wire, topic, producer, 41)
    _send(wire, topic, producer, 42)
    _send(wire, topic, producer, 0)
    log(wire, topic)


@scenario
def sequences_wrap_at_int32(wire: Wire) -> None:
    topic, producer = wire.topic(), init_producer_id(wire)
    _send(wire, topic, producer, INT32_MAX - 1, 2)
    _send(wire, topic, producer, 1, note="one too far")
    _send(wire, topic, producer, 0)
    _send(wire, topic, producer, 1)
    log(wire, topic)


@scenario
def batch_across_the_wrap(wire: Wire) -> None:
    topic, producer = wire.topic(), init_producer_id(wire)
    _send(wire, topic, producer, INT32_MAX - 1, 4)
    _send(wire, topic, producer, INT32_MAX - 1, 4, note="duplicate")
    _send(wire, topic, producer, 3, note="one too far")
    _send(wire, topic, producer, 2)
    log(wire, topic)


@scenario
def epochs_old_new_and_skipped(wire: Wire) -> None:
    topic, first = wire.topic(), init_producer_id(wire)
    second, fourth = first._replace(producer_epoch=1), first._replace(producer_epoch=3)
    _send(wire, topic, first, 0)
    _send(wire, topic, second, 1, note="new epoch, sequence goes on")
    _send(wire, topic, first, 1, note="the old epoch goes on after the refusal")
    _send(wire, topic, second, 0, note="new epoch, sequence 0")
    _send(wire, topic, first, 2, note="old epoch")
    _send(wire, topic, first, 1, note="old epoch, duplicate")
    _send(wire, topic, fourth, 0, note="an epoch left out")
    _send(wire, topic, fourth, 0, note="duplicate")
    _send(wire, topic, second, 0, note="duplicate of an epoch before")
    log(wire, topic)


@scenario
def state_is_kept_for_each_partition(wire: Wire) -> None:
    topic, producer = wire.topic(partitions=2), init_producer_id(wire)
    for partition in (0, 1):
        for sequence in (0, 1, 0):
            records = batch(b"v", producer=producer, sequence=sequence)
            produce(wire, topic, records, partition=partition, note=f"{partition} {sequence}")
    log(wire, topic, 0)
    log(wire, topic, 1)


@scenario
def refused_batch_leaves_no_trace(wire: Wire) -> None:
    topic, producer = wire.topic(max_message_bytes=200), init_producer_id(wire)
    _send(wire, topic, producer, 0)
    produce(wire, topic, batch(b"x" * 300, producer=producer, sequence=1), note="too large")
    _send(wire, topic, producer, 1)
    log(wire, topic)


@scenario
def duplicate_is_answered_with_the_first_append_time(wire: Wire) -> None:
    topic, producer = wire.topic(message_timestamp_type="LogAppendTime"), init_producer_id(wire)
    first, again = (produce(wire, topic, batch(b"a", producer=producer, sequence=0)) for _ in range(2))
    times = [a.responses[0].partition_responses[0].log_append_time_ms for a in (first, again)]
    wire.note("the same time", times[0] == times[1])


@scenario
def duplicate_without_append_time(wire: Wire) -> None:
    topic, producer = wire.topic(), init_producer_id(wire)
    for version in (3, 12, 13):
        for _ in range(2):
            records = batch(b"a", b"b", producer=producer, sequence=0)
            produce(wire, topic, records, version=version)


# In transactions


@scenario
def non_transactional_batch_within_a_transaction(wire: Wire) -> None:
    topic, producer = wire.topic(), init_producer_id(wire, wire.name)
    produce_transactional(wire, topic, wire.name, producer, b"inside", 0)
    _send(wire, topic, producer, 1, note="not transactional")
    other = init_producer_id(wire)
    _send(wire, topic, other, 0, note="another producer")
    producer = end_txn(wire, wire.name, producer)
    await_stable(wire, topic)
    _send(wire, topic, producer, 0, note="not transactional, afterwards")
    log(wire, topic)


@scenario
def transactional_batch_without_adding_the_partition(wire: Wire) -> None:
    topic, producer = wire.topic(), init_producer_id(wire, wire.name)
    for version in (3, 11):
        produce_transactional(wire, topic, wire.name, producer, b"not added", 0, version=version)
    produce_transactional(wire, topic, wire.name, producer, b"added by itself", 0, version=12)
    produce_transactional(wire, topic, wire.name, producer, b"added", 1, version=11)
    end_txn(wire, wire.name, producer)
    await_stable(wire, topic)
    log(wire, topic)


@scenario
def first_sequence_of_a_transaction_without_state(wire: Wire) -> None:
    topic, producer = wire.topic(), init_producer_id(wire, wire.name)
    produce_transactional(wire, topic, wire.name, producer, b"TV2", 5, version=12)
    produce_transactional(wire, topic, wire.name, producer, b"TV2", 0, version=12)
    end_txn(wire, wire.name, producer, commit=False)
    other, old = wire.topic("old"), init_producer_id(wire, f"{wire.name}-old")
    add_partitions(wire, f"{wire.name}-old", old, {other: [0]})
    produce_transactional(wire, other, f"{wire.name}-old", old, b"TV1", 5, version=11)
    end_txn(wire, f"{wire.name}-old", old, version=4)
    await_stable(wire, topic)
    await_stable(wire, other)
    log(wire, topic)
    log(wire, other)


@scenario
def transactional_id_and_batch_must_fit(wire: Wire) -> None:
    topic, producer = wire.topic(partitions=2), init_producer_id(wire, wire.name)
    records = batch(b"v", producer=producer, sequence=0, transactional=True)
    for version in (11, 12):
        produce(wire, topic, records, version=version, note="no transactional id")
        produce(wire, topic, records, version=version, transactional_id="other", note="another's")
        stranger = producer._replace(producer_id=producer.producer_id + 1_000_000)
        foreign = batch(b"v", producer=stranger, sequence=0, transactional=True)
        produce(wire, topic, foreign, version=version, transactional_id=wire.name, note="foreign producer id")
        newer = batch(b"v", producer=producer._replace(producer_epoch=9), sequence=0, transactional=True)
        produce(wire, topic, newer, version=version, transactional_id=wire.name, note="epoch too high")
    plain_batch = batch(b"v", producer=producer, sequence=0)
    produce(wire, topic, plain_batch, transactional_id=wire.name, note="batch not transactional")
    log(wire, topic)


@scenario
def old_epoch_after_the_marker_of_tv2(wire: Wire) -> None:
    topic, producer = wire.topic(), init_producer_id(wire, wire.name)
    for commit in (True, False):
        produce_transactional(wire, topic, wire.name, producer, b"inside", 0)
        late, producer = producer, end_txn(wire, wire.name, producer, commit)
        await_stable(wire, topic)
        produce_transactional(wire, topic, wire.name, late, b"late", 1, note="late")
        produce_transactional(wire, topic, wire.name, producer, b"wrong", 1, note="sequence goes on")
    # The refused batch has added the partition, so there will be a marker.
    end_txn(wire, wire.name, producer, commit=False)
    until(lambda: partition_state(wire, topic).high_watermark == 5)
    log(wire, topic)


@scenario
def sequences_go_on_after_the_marker_of_tv1(wire: Wire) -> None:
    topic, producer = wire.topic(), init_producer_id(wire, wire.name)
    sequence = 0
    for commit in (True, False):
        add_partitions(wire, wire.name, producer, {topic: [0]})
        for _ in range(2):
            produce_transactional(wire, topic, wire.name, producer, b"inside", sequence, version=11)
            sequence += 1
        end_txn(wire, wire.name, producer, commit, version=4)
        await_stable(wire, topic)
        await_complete(wire)  # until then Kafka refuses with NOT_ENOUGH_REPLICAS
        produce_transactional(wire, topic, wire.name, producer, b"late", sequence, version=11, note="late")
    add_partitions(wire, wire.name, producer, {topic: [0]})
    produce_transactional(wire, topic, wire.name, producer, b"gap", sequence + 1, version=11, note="gap")
    produce_transactional(wire, topic, wire.name, producer, b"in order", sequence, version=11)
    end_txn(wire, wire.name, producer, version=4)
    await_stable(wire, topic)
    log(wire, topic)


@scenario
def fencing_aborts_and_old_epoch_is_refused(wire: Wire) -> None:
    topic, old = wire.topic(), init_producer_id(wire, wire.name)
    produce_transactional(wire, topic, wire.name, old, b"zombie", 0)
    new = init_producer_id(wire, wire.name)
    await_stable(wire, topic)
    produce_transactional(wire, topic, wire.name, old, b"late", 1, note="late")
    produce_transactional(wire, topic, wire.name, new, b"heir", 0)
    end_txn(wire, wire.name, old, note="zombie")
    end_txn(wire, wire.name, new)
    await_stable(wire, topic)
    log(wire, topic)
