"""The transaction coordinator: producer ids, adding partitions and offsets, ending, and the tools' views."""

from functools import partial
from itertools import product
from typing import Any

from kbatch.protocol import messages
from tests.integration.scenarios.groups import fetch_offsets, offset_fetch_request
from tests.integration.scenarios.requests import (
    ProducerId,
    add_partitions,
    await_complete,
    await_stable,
    batch,
    end_txn,
    init_producer_id,
    log,
    produce,
    produce_transactional,
)
from tests.integration.scenarios.wire import Wire, error_codes, named_scenario, scenario
from tests.support.patience import until

NOBODY = ProducerId(987_654_321, 0)
TV1, TV2 = 4, 5


def _bumped(producer: ProducerId, by: int) -> ProducerId:
    return producer._replace(producer_epoch=producer.producer_epoch + by)


# InitProducerId


@scenario
def producer_ids_without_transactional_id(wire: Wire) -> None:
    for version in (0, 2, 3, 5):
        init_producer_id(wire, version=version)
    first = init_producer_id(wire)
    init_producer_id(wire, None, first, note="with its id")
    init_producer_id(wire, timeout_ms=-1, note="negative time-out")
    init_producer_id(wire, timeout_ms=2**31 - 1, note="largest time-out")


@scenario
def init_refusals(wire: Wire) -> None:
    init_producer_id(wire, "", note="empty")
    init_producer_id(wire, wire.name, timeout_ms=900_001, note="time-out too large")
    init_producer_id(wire, wire.name, timeout_ms=0, note="time-out 0")
    init_producer_id(wire, wire.name, timeout_ms=-1, note="time-out negative")
    init_producer_id(wire, wire.name, timeout_ms=900_000, note="largest time-out")
    init_producer_id(wire, wire.name, NOBODY, note="unknown producer id")
    init_producer_id(wire, f"{wire.name}-new", NOBODY, note="no metadata yet")
    init_producer_id(wire, wire.name, ProducerId(-1, 5), note="epoch without id")
    init_producer_id(wire, wire.name, ProducerId(5, -1), note="id without epoch")


@scenario
def init_bumps_the_epoch(wire: Wire) -> None:
    first = init_producer_id(wire, wire.name)
    init_producer_id(wire, wire.name)
    third = init_producer_id(wire, wire.name)
    fourth = init_producer_id(wire, wire.name, third, note="own epoch")
    init_producer_id(wire, wire.name, third, note="the same again: the answer was lost")
    init_producer_id(wire, wire.name, first, note="an old epoch")
    init_producer_id(wire, wire.name, _bumped(fourth, 1), note="an epoch to come")
    init_producer_id(wire, wire.name, fourth._replace(producer_id=NOBODY.producer_id), note="another id")
    init_producer_id(wire, wire.name, version=0, note="old version")


@scenario
def init_in_a_transaction_aborts_it(wire: Wire) -> None:
    topic, first = wire.topic(), init_producer_id(wire, wire.name)
    produce_transactional(wire, topic, wire.name, first, b"a", 0)
    second = init_producer_id(wire, wire.name, first, note="own epoch")
    await_stable(wire, topic)
    produce_transactional(wire, topic, wire.name, second, b"b", 0)
    init_producer_id(wire, wire.name, first, note="old epoch")
    third = init_producer_id(wire, wire.name, note="no epoch")
    await_stable(wire, topic)
    end_txn(wire, wire.name, third, commit=False)
    log(wire, topic)


@scenario
def init_after_a_transaction(wire: Wire) -> None:
    topic, producer = wire.topic(), init_producer_id(wire, wire.name)
    produce_transactional(wire, topic, wire.name, producer, b"a", 0)
    ended = end_txn(wire, wire.name, producer)
    init_producer_id(wire, wire.name, producer, note="the epoch before the end")
    init_producer_id(wire, wire.name, ended, note="the epoch since the end")


# AddPartitionsToTxn, AddOffsetsToTxn


@scenario
def add_partitions_refusals(wire: Wire) -> None:
    topic, producer = wire.topic(partitions=2), init_producer_id(wire, wire.name)
    add_partitions(wire, "nobody", producer, {topic: [0]}, note="unknown transactional id")
    add_partitions(wire, "", producer, {topic: [0]}, note="empty transactional id")
    add_partitions(wire, wire.name, NOBODY, {topic: [0]}, note="other producer id")
    for by in (-1, 1):
        add_partitions(wire, wire.name, _bumped(producer, by), {topic: [0]}, note=f"epoch {by}")
    add_partitions(wire, wire.name, producer, {topic: [0], "unknown": [0]}, note="unknown topic with a known")
    add_partitions(wire, wire.name, producer, {topic: [1, 2]}, note="unknown partition with a known")
    add_partitions(wire, wire.name, producer, {"__consumer_offsets": [0]}, note="internal topic")
    add_partitions(wire, wire.name, producer, {topic: [0]}, version=0)
    add_partitions(wire, wire.name, producer, {topic: [0, 1]}, note="one is added already")
    end_txn(wire, wire.name, producer, version=TV1)
    add_partitions(wire, wire.name, producer, {}, note="no partitions")


@scenario
def add_partitions_of_brokers_adds_and_verifies(wire: Wire) -> None:
    topic, producer = wire.topic(partitions=2), init_producer_id(wire, wire.name)
    kind = messages.AddPartitionsToTxnRequest

    def add(verify_only: bool, partitions: list[int], version: int, note: str) -> None:
        transaction = kind.AddPartitionsToTxnTransaction(
            transactional_id=wire.name,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            verify_only=verify_only,
            topics=[kind.AddPartitionsToTxnTopic(name=topic, partitions=partitions)],
        )
        wire.call(kind(transactions=[transaction]), version, note=note)

    for version in (4, 5):
        add(True, [0], version, "verify before adding")
        add(False, [0], version, "add")
        add(True, [0, 1], version, "verify: one of two is added")
        producer = end_txn(wire, wire.name, producer, commit=False)


def _add_offsets(wire: Wire, transactional_id: str, producer: ProducerId, group: str, note: str = "") -> None:
    request = messages.AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        group_id=group,
    )
    wire.call(request, 3, note=note)


@scenario
def add_offsets_refusals(wire: Wire) -> None:
    producer = init_producer_id(wire, wire.name)
    _add_offsets(wire, "nobody", producer, wire.name, "unknown transactional id")
    _add_offsets(wire, wire.name, NOBODY, wire.name, "other producer id")
    _add_offsets(wire, wire.name, _bumped(producer, 1), wire.name, "epoch 1")
    _add_offsets(wire, wire.name, producer, "", "empty group")
    _add_offsets(wire, wire.name, producer, wire.name)
    _add_offsets(wire, wire.name, producer, wire.name, "again")
    end_txn(wire, wire.name, producer, version=TV1)


# TxnOffsetCommit


def _commit_offsets(
    wire: Wire,
    transactional_id: str,
    producer: ProducerId,
    topic: str,
    offset: int,
    *,
    version: int = 5,
    partition: int = 0,
    note: str = "",
    **member: Any,
) -> Any:
    kind = messages.TxnOffsetCommitRequest
    committed = kind.TxnOffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_leader_epoch=0, committed_metadata="m"
    )
    request = kind(
        transactional_id=transactional_id,
        group_id=wire.name,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        topics=[kind.TxnOffsetCommitRequestTopic(name=topic, partitions=[committed])],
        **member,
    )
    return wire.call(request, version, note=note)


@scenario
def txn_offset_commit_shows_when_the_transaction_is_committed(wire: Wire) -> None:
    topic, producer = wire.topic(), init_producer_id(wire, wire.name)
    for commit, offset in ((True, 5), (False, 9)):
        _commit_offsets(wire, wire.name, producer, topic, offset)
        fetch_offsets(wire, topic, require_stable=True, note="stable, inside")
        fetch_offsets(wire, topic, note="inside")
        producer = end_txn(wire, wire.name, producer, commit)
        _await_stable_offsets(wire, topic)
        fetch_offsets(wire, topic, require_stable=True, note="afterwards")


def _await_stable_offsets(wire: Wire, topic: str) -> None:
    request = offset_fetch_request(wire, topic, require_stable=True)
    until(lambda: not any(error_codes(wire.ask(request, 9))))


@scenario
def txn_offset_commit_of_tv1_needs_the_offsets_added(wire: Wire) -> None:
    topic, producer = wire.topic(), init_producer_id(wire, wire.name)
    for version in (3, 4):
        _commit_offsets(wire, wire.name, producer, topic, 3, version=version, note="not added")
        _commit_offsets(wire, wire.name, _bumped(producer, 1), topic, 3, version=version, note="epoch 1")
    _add_offsets(wire, wire.name, producer, wire.name)
    _commit_offsets(wire, wire.name, producer, topic, 4, version=3, note="added")
    end_txn(wire, wire.name, producer, version=TV1)
    _await_stable_offsets(wire, topic)
    fetch_offsets(wire, topic)


@scenario
def txn_offset_commit_refusals(wire: Wire) -> None:
    topic, producer = wire.topic(), init_producer_id(wire, wire.name)
    _commit_offsets(wire, "nobody", producer, topic, 1, note="unknown transactional id")
    _commit_offsets(wire, wire.name, NOBODY, topic, 1, note="other producer id")
    _commit_offsets(wire, wire.name, _bumped(producer, 1), topic, 1, note="epoch 1")
    _commit_offsets(wire, wire.name, producer, "unknown", 1, note="unknown topic")
    _commit_offsets(wire, wire.name, producer, topic, 1, partition=7, note="unknown partition")
    _commit_offsets(
        wire, wire.name, producer, topic, 1, member_id="m", generation_id=3, note="unknown member"
    )
    _commit_offsets(wire, wire.name, producer, topic, 1, generation_id=3, note="generation of no group")
    _commit_offsets(wire, wire.name, producer, topic, 1, group_instance_id="i", note="unknown instance")
    _commit_offsets(wire, wire.name, producer, topic, -1, note="negative offset")
    _commit_offsets(wire, wire.name, producer, topic, 1, version=3, note="not added, in an old version")
    end_txn(wire, wire.name, producer, commit=False)


# EndTxn


def _prepare(wire: Wire, state: str, version: int) -> tuple[ProducerId, ProducerId]:
    """Bring a transactional id into `state`; return its producer before and after the transaction's end."""
    topic, producer = wire.topic(), init_producer_id(wire, wire.name)
    if state == "empty":
        return producer, producer
    if version == TV1:
        add_partitions(wire, wire.name, producer, {topic: [0]})
    produce_transactional(wire, topic, wire.name, producer, b"a", 0, version=11 if version == TV1 else 12)
    if state == "ongoing":
        return producer, producer
    ended = end_txn(wire, wire.name, producer, state == "committed", version=version)
    await_stable(wire, topic)
    return producer, ended


def _end_txn_case(wire: Wire, *, state: str, commit: bool, version: int) -> None:
    before, after = _prepare(wire, state, version)
    end_txn(wire, wire.name, NOBODY, commit, version=version, note="other producer id")
    end_txn(wire, wire.name, _bumped(after, 1), commit, version=version, note="epoch to come")
    if version == TV2:
        end_txn(wire, wire.name, before, commit, version=version, note="epoch of the transaction")
    after = end_txn(wire, wire.name, after, commit, version=version, note="epoch now")
    end_txn(wire, wire.name, before, commit, version=version, note="again")
    end_txn(wire, wire.name, after, not commit, version=version, note="the opposite")


for _state, _commit, _version in product(
    ("empty", "ongoing", "committed", "aborted"), (True, False), (TV1, TV2)
):
    named_scenario(
        f"end_txn_tv{_version - 3}_{'commit' if _commit else 'abort'}_of_{_state}",
        partial(_end_txn_case, state=_state, commit=_commit, version=_version),
    )


@scenario
def end_txn_refusals(wire: Wire) -> None:
    for version in (0, TV1, TV2):
        end_txn(wire, "nobody", NOBODY, version=version, note="unknown transactional id")
        end_txn(wire, "", NOBODY, version=version, note="empty transactional id")


@scenario
def end_txn_of_the_other_version(wire: Wire) -> None:
    topic, producer = wire.topic(), init_producer_id(wire, wire.name)
    produce_transactional(wire, topic, wire.name, producer, b"TV2", 0, version=12)
    end_txn(wire, wire.name, producer, version=TV1)
    await_stable(wire, topic)
    produce_transactional(wire, topic, wire.name, producer, b"TV2", 1, version=12)
    producer = end_txn(wire, wire.name, producer, version=TV2)
    await_stable(wire, topic)
    add_partitions(wire, wire.name, producer, {topic: [0]})
    produce_transactional(wire, topic, wire.name, producer, b"TV1", 0, version=11)
    end_txn(wire, wire.name, producer, commit=False, version=TV1)
    await_stable(wire, topic)
    log(wire, topic)


@scenario
def transaction_over_several_partitions(wire: Wire) -> None:
    one, two, producer = wire.topic("one", 2), wire.topic("two"), init_producer_id(wire, wire.name)
    for commit in (True, False):
        for topic, partition in ((one, 0), (one, 1), (two, 0)):
            records = batch(b"v", producer=producer, sequence=0, transactional=True)
            produce(wire, topic, records, partition=partition, transactional_id=wire.name)
        producer = end_txn(wire, wire.name, producer, commit)
        for topic, partition in ((one, 0), (one, 1), (two, 0)):
            await_stable(wire, topic, partition)
    log(wire, one, 0)
    log(wire, one, 1)
    log(wire, two)


# Views


def _describe(wire: Wire, topic: str, note: str) -> None:
    producers = messages.DescribeProducersRequest
    topics = [
        producers.TopicRequest(name=topic, partition_indexes=[0, 1]),
        producers.TopicRequest(name="unknown", partition_indexes=[0]),
    ]
    wire.call(producers(topics=topics), note=note)
    wire.call(messages.DescribeTransactionsRequest(transactional_ids=[wire.name, "nobody"]), note=note)
    for state in ("Ongoing", "Empty", "CompleteCommit", "nonsense"):
        request = messages.ListTransactionsRequest(
            state_filters=[state], transactional_id_pattern=f"{wire.name}.*"
        )
        wire.call(request, note=f"{state} {note}")


@scenario
def transactions_are_described(wire: Wire) -> None:
    topic, producer = wire.topic(), init_producer_id(wire, wire.name)
    _describe(wire, topic, "empty")
    produce_transactional(wire, topic, wire.name, producer, b"a", 0)
    _describe(wire, topic, "ongoing")
    listed = messages.ListTransactionsRequest(producer_id_filters=[producer.producer_id])
    wire.call(listed, note="by producer id")
    end_txn(wire, wire.name, producer)
    await_stable(wire, topic)
    await_complete(wire)
    _describe(wire, topic, "committed")
    wire.call(messages.DescribeTransactionsRequest(transactional_ids=[""]), note="empty")
    pattern = messages.ListTransactionsRequest(transactional_id_pattern="[")
    wire.call(pattern, note="bad pattern")
