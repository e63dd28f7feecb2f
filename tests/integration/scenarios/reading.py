"""Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from typing import Any

from kbatch.protocol import messages
from tests.integration.scenarios.requests import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    TIME_MS,
    add_partitions,
    await_stable,
    batch,
    end_txn,
    fetch,
    fetch_request,
    init_producer_id,
    list_offsets,
    log,
    partition_state,
    produce,
    produce_transactional,
)
from tests.integration.scenarios.wire import Wire, scenario, unknown_topic_id
from tests.oracle import plain
from tests.support.patience import until

EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -2, -1, -3, -4, -5


def _with_records(wire: Wire, *batches: bytes) -> str:
    topic = wire.topic()
    for records in batches or (batch(b"a", b"b"), batch(b"c"), batch(b"d", b"e", b"f")):
        produce(wire, topic, records)
    return topic


@scenario
def fetch_from_each_offset(wire: Wire) -> None:
    topic = _with_records(wire)
    for offset in range(-2, 9):
        fetch(wire, topic, offset, note=str(offset))


@scenario
def fetch_in_each_version(wire: Wire) -> None:
    topic = _with_records(wire)
    for version in range(4, 19):
        fetch(wire, topic, 2, version=version)


@scenario
def fetch_gives_at_least_one_batch_whatever_its_size(wire: Wire) -> None:
    topic = _with_records(wire, batch(b"a" * 1000), batch(b"b" * 1000))
    fetch(wire, topic, partition_max_bytes=1, note="one byte a partition")
    fetch(wire, topic, partition_max_bytes=1500, note="one and a half batches")
    fetch(wire, topic, max_bytes=1, note="one byte")
    fetch(wire, topic, max_bytes=0, note="none")
    fetch(wire, topic, partition_max_bytes=0, note="none a partition")


@scenario
def fetch_refusals(wire: Wire) -> None:
    topic = _with_records(wire)
    wire.forge_topic_id("unknown", unknown_topic_id())
    for version in (12, 17):
        fetch(wire, "unknown", version=version, note="unknown topic")
        fetch(wire, topic, version=version, partition=3, note="unknown partition")
        fetch(wire, topic, version=version, current_leader_epoch=7, note="epoch to come")
        fetch(wire, topic, version=version, current_leader_epoch=0, note="epoch now")
    wire.forge_topic_id("zero", bytes(16))
    fetch(wire, "zero", note="zero id")


@scenario
def fetch_tells_where_a_log_diverges(wire: Wire) -> None:
    topic = _with_records(wire)
    for last_fetched_epoch in (0, 5):
        fetch(wire, topic, 3, last_fetched_epoch=last_fetched_epoch, current_leader_epoch=0)


@scenario
def fetch_of_several_partitions(wire: Wire) -> None:
    topic = wire.topic(partitions=3)
    produce(wire, topic, batch(b"a" * 500), partition=0)
    produce(wire, topic, batch(b"b" * 500), partition=2)
    kind = messages.FetchRequest
    partitions = [
        kind.FetchPartition(partition=p, fetch_offset=0, partition_max_bytes=1 << 20) for p in (2, 1, 0, 9)
    ]
    topics = [kind.FetchTopic(topic_id=wire.topic_id(topic), partitions=partitions)]
    wire.call(kind(max_wait_ms=0, min_bytes=0, topics=topics), 17)
    wire.call(kind(max_wait_ms=0, min_bytes=0), 17, note="nothing")


@scenario
def fetch_waits_for_records(wire: Wire) -> None:
    topic = wire.topic()
    request = fetch_request(wire, topic, max_wait_ms=15_000, min_bytes=1)
    with wire.second_connection() as other:
        other.send(request, 17)
        produce(wire, topic, batch(b"a"))
        wire.note("woken", other.receive())


@scenario
def fetch_waits_no_longer_than_requested(wire: Wire) -> None:
    topic = wire.topic()
    fetch(wire, topic, max_wait_ms=50, min_bytes=1)


@scenario
def fetch_sessions(wire: Wire) -> None:
    topic = wire.topic(partitions=2)
    produce(wire, topic, batch(b"a"))

    def ask(session_id: int, session_epoch: int, note: str, **parameters: Any) -> Any:
        fields = {"session_id": session_id, "session_epoch": session_epoch}
        return fetch(wire, topic, parameters.pop("offset", 0), note=note, **fields, **parameters)

    fetch(wire, topic, note="without a session")
    session_id = ask(0, 0, "new").session_id
    nothing = messages.FetchRequest(max_wait_ms=0, min_bytes=0, session_id=session_id, session_epoch=1)
    wire.call(nothing, 17, note="the same partitions again")
    ask(session_id, 2, "from after the first record", offset=1)
    nothing.session_epoch = 3
    wire.call(nothing, 17, note="nothing is new")
    produce(wire, topic, batch(b"b"))
    nothing.session_epoch = 4
    wire.call(nothing, 17, note="a new record")
    ask(session_id, 5, "another partition", partition=1)
    ask(session_id, 9, "epoch left out")
    ask(session_id + 1, 1, "unknown session")
    kind = messages.FetchRequest.ForgottenTopic
    nothing.session_epoch = 6
    nothing.forgotten_topics_data = [kind(topic_id=wire.topic_id(topic), partitions=[0])]
    wire.call(nothing, 17, note="one partition forgotten")
    ask(session_id, -1, "closed")
    ask(session_id, 7, "after its end")


@scenario
def read_committed_stops_at_an_open_transaction(wire: Wire) -> None:
    topic, producer = wire.topic(), init_producer_id(wire, wire.name)
    produce(wire, topic, batch(b"before"))
    produce_transactional(wire, topic, wire.name, producer, b"inside", 0)
    produce(wire, topic, batch(b"after"))
    for isolation_level in (READ_UNCOMMITTED, READ_COMMITTED):
        for offset in (0, 1, 2, 3, 4):
            fetch(wire, topic, offset, isolation_level=isolation_level, note=f"{offset} {isolation_level}")
        for timestamp in (EARLIEST, LATEST, MAX_TIMESTAMP, TIME_MS):
            list_offsets(wire, topic, timestamp, isolation_level=isolation_level)
    end_txn(wire, wire.name, producer)
    await_stable(wire, topic)
    fetch(wire, topic, isolation_level=READ_COMMITTED, note="afterwards")


@scenario
def read_committed_lists_aborted_transactions(wire: Wire) -> None:
    topic = wire.topic()
    one, two = f"{wire.name}-one", f"{wire.name}-two"
    first, second = init_producer_id(wire, one), init_producer_id(wire, two)
    produce_transactional(wire, topic, one, first, b"a", 0)
    produce_transactional(wire, topic, two, second, b"b", 0)
    first = end_txn(wire, one, first, commit=False)
    _await_offsets(wire, topic, 3, 1)
    produce_transactional(wire, topic, one, first, b"c", 0)
    second = end_txn(wire, two, second, commit=False)
    _await_offsets(wire, topic, 5, 3)
    end_txn(wire, one, first, commit=True)
    await_stable(wire, topic)
    for offset in range(7):
        fetch(wire, topic, offset, isolation_level=READ_COMMITTED, note=str(offset))
    fetch(wire, topic, note="read_uncommitted")
    log(wire, topic)


def _await_offsets(wire: Wire, topic: str, high_watermark: int, last_stable_offset: int) -> None:
    """Wait until a marker is written and readers may read up to it."""

    def is_there() -> bool:
        found = partition_state(wire, topic)
        return (found.high_watermark, found.last_stable_offset) == (high_watermark, last_stable_offset)

    until(is_there)


@scenario
def last_stable_offset_is_that_of_the_oldest_transaction(wire: Wire) -> None:
    topic = wire.topic()
    names = [f"{wire.name}-{number}" for number in range(3)]
    producers = [init_producer_id(wire, name) for name in names]
    for name, producer in zip(names, producers, strict=True):
        add_partitions(wire, name, producer, {topic: [0]})
        produce_transactional(wire, topic, name, producer, b"v", 0, version=11)
    # The first to end is not the oldest: what holds readers back stays where it is.
    for number, high_watermark, last_stable_offset in ((1, 4, 0), (0, 5, 2), (2, 6, 6)):
        end_txn(wire, names[number], producers[number], version=4)
        _await_offsets(wire, topic, high_watermark, last_stable_offset)
        fetch(wire, topic, 3, isolation_level=READ_COMMITTED, note=f"ended {number}")


# ListOffsets


@scenario
def list_offsets_special_timestamps(wire: Wire) -> None:
    topic = wire.topic()
    for note in ("empty", "with records"):
        for version, timestamps in ((2, (EARLIEST, LATEST)), (7, (MAX_TIMESTAMP,)), (11, range(-7, 0))):
            for timestamp in timestamps:
                list_offsets(wire, topic, timestamp, version=version)
        produce(wire, topic, batch(b"a", b"b"), note=note)
        produce(wire, topic, batch(b"c"))


@scenario
def list_offsets_by_time(wire: Wire) -> None:
    topic = wire.topic()
    for start in (TIME_MS, TIME_MS + 1000, TIME_MS + 500):
        rows: list[Any] = [(None, b"v", (), start + index * 10) for index in range(3)]
        for compression in ("none", "gzip"):
            produce(wire, topic, plain.encode(rows, compression=compression))
    for delta in (-1, 0, 1, 10, 20, 21, 500, 505, 1000, 1010, 1020, 1021):
        list_offsets(wire, topic, TIME_MS + delta)
    list_offsets(wire, topic, 0)
    list_offsets(wire, topic, MAX_TIMESTAMP)
    list_offsets(wire, topic, 2**63 - 1)


@scenario
def list_offsets_refusals(wire: Wire) -> None:
    topic = wire.topic()
    for version in (1, 6, 11):
        list_offsets(wire, "unknown", LATEST, version=version)
        list_offsets(wire, topic, LATEST, version=version, partition=4)
    list_offsets(wire, topic, LATEST, current_leader_epoch=5)
    list_offsets(wire, topic, LATEST, current_leader_epoch=0)
    list_offsets(wire, topic, MAX_TIMESTAMP, version=6)
    list_offsets(wire, topic, EARLIEST_LOCAL, version=7)
    list_offsets(wire, topic, -8)


@scenario
def list_offsets_of_a_partition_twice(wire: Wire) -> None:
    topic = wire.topic()
    kind = messages.ListOffsetsRequest
    wanted = [kind.ListOffsetsPartition(partition_index=0, timestamp=stamp) for stamp in (EARLIEST, LATEST)]
    wire.call(kind(replica_id=-1, topics=[kind.ListOffsetsTopic(name=topic, partitions=wanted)]))


# OffsetForLeaderEpoch, DeleteRecords


@scenario
def offset_for_leader_epoch(wire: Wire) -> None:
    topic = _with_records(wire)
    kind = messages.OffsetForLeaderEpochRequest

    def ask(name: str, leader_epoch: int, current: int = -1, partition: int = 0, version: int = 4) -> None:
        wanted = kind.OffsetForLeaderPartition(
            partition=partition, current_leader_epoch=current, leader_epoch=leader_epoch
        )
        topics = [kind.OffsetForLeaderTopic(topic=name, partitions=[wanted])]
        wire.call(kind(replica_id=-1, topics=topics), version, note=f"{leader_epoch} {current}")

    for leader_epoch in (-1, 0, 1, 7):
        ask(topic, leader_epoch)
    ask(topic, 0, version=2)
    ask(topic, 0, current=0)
    ask(topic, 0, current=5)
    ask(topic, 0, partition=9)
    ask("unknown", 0)


@scenario
def delete_records(wire: Wire) -> None:
    topic = _with_records(wire)
    kind = messages.DeleteRecordsRequest

    def delete(name: str, offset: int, partition: int = 0) -> None:
        wanted = kind.DeleteRecordsPartition(partition_index=partition, offset=offset)
        topics = [kind.DeleteRecordsTopic(name=name, partitions=[wanted])]
        wire.call(kind(topics=topics, timeout_ms=5000), note=str(offset))

    delete(topic, 1)
    fetch(wire, topic, 0, note="deleted")
    fetch(wire, topic, 1, note="from the middle of a batch")
    delete(topic, 0)
    delete(topic, 99)
    delete(topic, -2)
    delete(topic, 2, partition=4)
    delete("unknown", 2)
    delete(topic, -1)
    list_offsets(wire, topic, EARLIEST)
    list_offsets(wire, topic, MAX_TIMESTAMP)
    produce(wire, topic, batch(b"later"))
    fetch(wire, topic, 6)
