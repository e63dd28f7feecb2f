"""Whole reads against the embedded brokers' core in virtual time, with faults."""

from __future__ import annotations

import logging
import math
import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch import errors
from kbatch.core.consumer.budget import RowsAwaited
from kbatch.core.consumer.partition_state import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    NO_END,
    OffsetSpec,
    Start,
)
from kbatch.core.consumer.results import Failed, Fetched
from kbatch.errors import ErrorCode
from kbatch.metrics import FETCH, MetricName
from kbatch.protocol import messages
from kbatch.records import TopicPartition
from kbatch.testing.broker.logs.partition import Partition
from tests.support.broker_core import START_MS, TOPIC
from tests.support.effort import EXAMPLES
from tests.support.reading import FIRST, MS, Reading, done

COMMITTED: dict[str, Any] = {"isolation_level": "read_committed"}
FETCH_API, EPOCH_API = messages.FetchRequest.api_key, messages.OffsetForLeaderEpochRequest.api_key


def partitions_of(count: int) -> list[TopicPartition]:
    return [TopicPartition(TOPIC, number) for number in range(count)]


def fill(r: Reading, batches: int = 10, *, partition: TopicPartition = FIRST, size: int = 1) -> None:
    """Append batches of records whose values are their offsets."""
    for _ in range(batches):
        base = r.log(partition).log_end_offset
        r.put(*(str(base + number).encode() for number in range(size)), partition=partition)


def fetches(r: Reading) -> list[Any]:
    return r.requests("Fetch")


# Reading


@pytest.mark.parametrize("version", messages.FetchRequest.versions)
def test_R01_R21_log_is_read_to_its_end_and_on(version: int) -> None:
    r = Reading(versions={FETCH_API: (4, version)})
    fill(r, 5, size=3)
    r.read()
    assert r.values[FIRST] == [(offset, str(offset).encode()) for offset in range(15)]
    fill(r)
    r.advance(1000)
    assert r.offsets() == [*range(25)]
    assert not r.errors


def test_range_is_read_exactly() -> None:
    r = Reading()
    fill(r, 10, size=10)
    r.read(start=Start(25), ends={FIRST: 71})
    assert r.offsets() == [*range(25, 71)]
    assert r.is_complete()
    count = len(fetches(r))
    r.advance(5000)
    assert len(fetches(r)) == count


def test_empty_range_is_complete_at_once() -> None:
    r = Reading()
    fill(r)
    r.read(start=Start(5), ends={FIRST: 5})
    assert r.is_complete()
    assert fetches(r) == []


def test_R02_range_ends_although_its_last_offsets_are_markers() -> None:
    r = Reading(**COMMITTED)
    r.put(b"a", b"b", producer_id=7)
    r.end_transaction(7, commit=True)
    end = done(r.found({FIRST: LATEST}))[FIRST].offset
    assert end == 3
    r.read(ends={FIRST: end})
    assert r.offsets() == [0, 1]
    assert r.is_complete()


def test_R49_range_ends_in_an_aborted_tail() -> None:
    r = Reading(**COMMITTED)
    r.put(b"a")
    r.put(b"b", b"c", producer_id=7)
    r.end_transaction(7, commit=False)
    r.read(ends={FIRST: done(r.found({FIRST: LATEST}))[FIRST].offset})
    assert r.values[FIRST] == [(0, b"a")]
    assert r.is_complete()


@pytest.mark.parametrize("start", [0, 3])
def test_range_ends_in_a_gap_before_an_open_transaction(start: int) -> None:
    r = Reading(**COMMITTED)
    fill(r, 3)
    r.put(b"a", producer_id=7)
    r.end_transaction(7, commit=False)
    r.put(b"b", producer_id=8)
    log, fetch = r.log(), r.log().fetch

    def compacted(offset: int, **rest: Any) -> Any:
        """Leave out the aborted record, and its marker, as compaction does at last."""
        found = fetch(offset, **rest)
        kept = [each for each in found.batches if int.from_bytes(each[:8], "big") not in (3, 4)]
        return found._replace(batches=kept)

    log.fetch = compacted
    assert log.last_stable_offset == 5
    r.read(start=Start(start), ends={FIRST: 5})
    r.advance(2000)
    assert r.offsets() == [*range(start, 3)]
    assert r.is_complete()


def test_R47_read_committed_waits_for_open_transactions() -> None:
    r = Reading(**COMMITTED)
    r.put(b"a")
    r.put(b"b", producer_id=7)
    r.put(b"c")
    r.read()
    r.advance(2000)
    assert r.offsets() == [0]
    r.end_transaction(7, commit=True)
    r.advance(2000)
    assert r.offsets() == [0, 1, 2]


def test_nothing_above_the_last_stable_offset_is_handed_out() -> None:
    """Not even if a broker sends it."""
    r = Reading(**COMMITTED)
    fill(r, 3)
    kind = messages.FetchResponse
    batches = b"".join(map(bytes, r.log().fetch(0, max_bytes=10_000).batches))
    part = kind.PartitionData(
        high_watermark=3, last_stable_offset=1, records=batches, aborted_transactions=[]
    )
    topic = kind.FetchableTopicResponse(topic_id=r.broker.topic_id(), partitions=[part])
    answers = iter([kind(responses=[topic])])
    r.faults.intercept("Fetch", lambda request: next(answers, None))
    r.read(start=Start(0), ends={FIRST: 3})
    assert [(each.from_offset, each.next_offset) for each in r.results if isinstance(each, Fetched)] == [
        (0, 1),
        (1, 3),
    ]
    assert r.offsets() == [0, 1, 2]
    assert r.is_complete()


def test_read_uncommitted_reads_aborted_and_open_ones() -> None:
    r = Reading()
    r.put(b"a", producer_id=7)
    r.end_transaction(7, commit=False)
    r.put(b"b", producer_id=8)
    r.read()
    assert r.offsets() == [0, 2]


def test_start_by_time_and_at_the_end() -> None:
    r = Reading(partitions=2)
    first, second = partitions_of(2)
    for partition in (first, second):
        fill(r, 3, partition=partition)
    r.advance(10_000)
    for partition in (first, second):
        fill(r, 3, partition=partition)
    r.engine.assign({first: OffsetSpec(START_MS + 5000), second: LATEST})
    r.advance(1000)
    assert (r.offsets(first), r.offsets(second)) == ([3, 4, 5], [])
    fill(r, 1, partition=second)
    r.advance(1000)
    assert r.offsets(second) == [6]


def test_start_after_the_last_record_in_time_is_the_end() -> None:
    r = Reading()
    fill(r)
    r.read(start=OffsetSpec(START_MS + 1))
    fill(r, 1)
    r.advance(1000)
    assert r.offsets() == [10]


def test_records_of_many_batches_come_in_several_answers() -> None:
    r = Reading(max_partition_fetch_bytes=2000)
    fill(r, 100, size=10)
    r.read()
    assert r.offsets() == [*range(1000)]
    assert len(fetches(r)) >= 10


def test_R05_R10_batch_above_every_limit_comes_alone() -> None:
    r = Reading(max_partition_fetch_bytes=100, fetch_max_bytes=100)
    r.put(b"x" * 5_000_000)
    r.put(b"y")
    r.read()
    assert [value for _, value in r.values[FIRST]] == [b"x" * 5_000_000, b"y"]


@pytest.mark.parametrize("version", [18, 6])  # with and without sessions
def test_R18_partitions_take_turns_if_answers_are_full(version: int) -> None:
    r = Reading(
        partitions=4,
        versions={FETCH_API: (4, version)},
        fetch_max_bytes=600,
        max_partition_fetch_bytes=600,
        keeps=True,
    )
    four = partitions_of(4)
    for partition in four:
        fill(r, 20, partition=partition, size=5)
    r.read(*four)
    orders = [each.partition for each in r.results if isinstance(each, Fetched)]
    assert set(orders[:5]) == set(four)
    last = [len(orders) - orders[::-1].index(partition) for partition in four]
    assert max(last) - min(last) < 8  # all come to their ends together
    assert all(r.offsets(partition) == [*range(100)] for partition in four)


# One Fetch a node, sessions


def test_R16_next_fetch_goes_out_before_records_are_decoded() -> None:
    r = Reading(max_partition_fetch_bytes=200)
    fill(r, 20, size=3)
    taken: list[Any] = []
    r._keep = taken.append  # type: ignore[method-assign,assignment]
    r.read(start=Start(0))
    assert len(taken) > 1 and len(fetches(r)) == len(taken) + 1
    for fetched, request in zip(taken, fetches(r), strict=False):
        assert fetched.records.position == fetched.from_offset  # nothing was taken of it
        assert request.topics[0].partitions[0].fetch_offset == fetched.from_offset
    assert [each.offset for fetched in taken for each in fetched.records.take_records(1000)] == [*range(60)]


def test_R15_R17_node_has_one_fetch_on_its_own_connection() -> None:
    r = Reading(partitions=3)
    r.read(*partitions_of(3))
    assert len(fetches(r)) == 1  # which waits for records
    assert done(r.partition_count(TOPIC)) == 3
    assert done(r.found({FIRST: EARLIEST}))[FIRST].offset == 0  # nor does it wait behind the Fetch
    assert len(fetches(r)) == 1


def test_R18_R42_next_fetch_names_only_what_has_changed() -> None:
    r = Reading(partitions=3)
    three = partitions_of(3)
    fill(r, 1, partition=three[1])
    r.read(*three)
    first, second = fetches(r)
    assert (first.session_id, first.session_epoch) == (0, 0)
    assert [each.partition for each in first.topics[0].partitions] == [0, 1, 2]
    assert {each.current_leader_epoch for each in first.topics[0].partitions} == {0}  # KIP-320
    assert second.session_id and second.session_epoch == 1
    assert [(each.partition, each.fetch_offset) for each in second.topics[0].partitions] == [(1, 1)]


@pytest.mark.parametrize(
    "code", ["FETCH_SESSION_ID_NOT_FOUND", "INVALID_FETCH_SESSION_EPOCH", "FETCH_SESSION_TOPIC_ID_ERROR"]
)
def test_R19_session_error_loses_and_doubles_nothing(code: str) -> None:
    r = Reading(partitions=2, max_partition_fetch_bytes=500)
    two = partitions_of(2)
    for partition in two:
        fill(r, 30, partition=partition)
    r.broker.core.faults.intercept("Fetch", lambda request: code if request.session_epoch == 3 else None)
    r.read(*two)
    r.advance(2000)
    assert [r.offsets(each) for each in two] == [[*range(30)]] * 2
    assert not r.errors


def test_stop_of_a_generation_leaves_later_ones() -> None:
    """Another thread may begin to read meanwhile."""
    r = Reading()
    generation = r.engine.new_generation()
    r.engine.assign({FIRST: Start(0)}, generation=generation)
    r.engine.assign({FIRST: Start(0)})
    r.engine.stop(generation)
    fill(r)
    r.run()
    assert r.engine.reading(FIRST) is not None and len(r.values[FIRST]) == 10
    r.engine.stop()
    r.run()
    assert r.engine.reading(FIRST) is None


def test_stop_closes_sessions_of_idle_nodes() -> None:
    r = Reading()
    fill(r)
    r.read(ends={FIRST: 10})
    r.engine.stop()
    r.run()
    assert fetches(r)[-1].session_epoch == -1


@pytest.mark.parametrize("when", ["before", "after"])
def test_R19_lost_answers_lose_and_double_nothing(when: str) -> None:
    r = Reading(max_partition_fetch_bytes=500)
    fill(r, 50)
    for times in (1, 2, 3):
        r.faults.drop_connection("Fetch", when, times)
    r.read()
    r.advance(20_000)
    assert r.offsets() == [*range(50)]
    assert not r.errors


# Leaders


def test_R24_new_leader_is_asked_without_metadata() -> None:
    """KIP-951: the answer names it."""
    r = Reading(nodes=3)
    fill(r, 1)
    r.read()
    count = len(r.requests("Metadata"))
    r.move_leader(2)
    fill(r, 1)
    r.run()
    assert r.offsets() == [0, 1]
    assert len(r.requests("Metadata")) == count
    assert [each.node_id for each in r.broker.core.requests if each.api == "Fetch"][-1] == 2


def test_new_leader_is_found_by_metadata_from_older_brokers() -> None:
    r = Reading(nodes=3, versions={FETCH_API: (4, 15)})
    fill(r, 1)
    r.read()
    r.move_leader(2)
    fill(r, 1)
    r.advance(5000)
    assert r.offsets() == [0, 1]


def test_answer_of_an_old_leader_does_not_count() -> None:
    """The answer of node 0 is held up while node 1 leads and answers."""
    r = Reading(nodes=2)
    fill(r, 3)
    r.faults.delay("Fetch", 8)
    r.read()
    r.faults.delay("Fetch", 0)
    r.move_leader(1)
    r.engine.want_topic(TOPIC)
    r.advance(2000)
    assert r.offsets() == [0, 1, 2]
    r.advance(10_000)
    assert r.offsets() == [0, 1, 2]


@pytest.mark.parametrize(
    "code",
    [
        "NOT_LEADER_OR_FOLLOWER",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "OFFSET_NOT_AVAILABLE",
        "REPLICA_NOT_AVAILABLE",
        "KAFKA_STORAGE_ERROR",
        "UNKNOWN_SERVER_ERROR",
        "UNKNOWN_TOPIC_ID",
        "INCONSISTENT_TOPIC_ID",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ],
)
def test_R23_R26_passing_error_backs_off_its_partition_only(code: str) -> None:
    r = Reading(partitions=2)
    first, second = partitions_of(2)
    fill(r, 3, partition=first)
    fill(r, 3, partition=second)
    count = 0

    def answer(request: Any) -> Any:
        """Refuse the first partition, and answer the other with nothing, twice."""
        nonlocal count
        count += 1
        if count > 2 or not request.topics:
            return None
        kind = messages.FetchResponse
        topic = request.topics[0]
        parts = [
            kind.PartitionData(
                partition_index=each.partition, error_code=ErrorCode[code] if each.partition == 0 else 0
            )
            for each in topic.partitions
        ]
        return kind(responses=[kind.FetchableTopicResponse(topic_id=topic.topic_id, partitions=parts)])

    r.faults.intercept("Fetch", answer)
    r.read(first, second, start=Start(0))
    assert r.offsets(second) == [0, 1, 2]  # at once
    assert r.offsets(first) == []
    r.advance(5000)
    assert r.offsets(first) == [0, 1, 2]
    assert not r.errors


def test_R25_preferred_replica_is_read_until_it_fails() -> None:
    """KIP-392: with client.rack, a leader may name a replica."""
    r = Reading(nodes=2, client_rack="east")
    fill(r, 2)
    asked: list[tuple[int, int]] = []

    def answer(request: Any) -> Any:
        node_id = r.broker.core.requests[-1].node_id
        (topic,) = request.topics or (None,)
        if topic is None:
            return None
        asked.append((node_id, topic.partitions[0].fetch_offset))
        assert request.rack_id == "east"
        kind = messages.FetchResponse
        if node_id == 0 and len(asked) == 1:
            part = kind.PartitionData(high_watermark=2, preferred_read_replica=1, records=b"")
        elif node_id == 1:
            part = kind.PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        else:
            return None
        return kind(responses=[kind.FetchableTopicResponse(topic_id=topic.topic_id, partitions=[part])])

    r.faults.intercept("Fetch", answer)
    r.read(start=Start(0))
    assert asked[:3] == [(0, 0), (1, 0), (0, 0)]  # out of range at a follower goes back to the leader
    assert r.offsets() == [0, 1]
    assert not r.moves and not r.errors


def test_R25_replica_is_left_after_metadata_max_age() -> None:
    r = Reading(nodes=2, client_rack="east", metadata_max_age_ms=3000)
    fill(r, 1)
    nodes: list[int] = []

    def answer(request: Any) -> Any:
        nodes.append(r.broker.core.requests[-1].node_id)
        kind = messages.FetchResponse
        part = kind.PartitionData(
            high_watermark=1, records=b"", preferred_read_replica=1 if nodes[-1] == 0 else -1
        )
        topic = kind.FetchableTopicResponse(topic_id=r.broker.topic_id(), partitions=[part])
        # not at once, or the test would spin
        r.faults.delay("Fetch", 0.5)
        return kind(responses=[topic])

    r.faults.intercept("Fetch", answer)
    r.read(start=Start(0))
    r.advance(10_000)
    changes = [node for before, node in zip([-1, *nodes], nodes, strict=False) if node != before]
    assert changes[:4] == [0, 1, 0, 1]
    assert nodes.count(1) > nodes.count(0)


def test_R25_replica_is_asked_although_the_back_off_lasts_longer_than_it_may_be_read() -> None:
    r = Reading(
        nodes=2,
        client_rack="east",
        metadata_max_age_ms=1000,
        retry_backoff_ms=2000,
        retry_backoff_max_ms=2000,
    )
    fill(r, 1)
    nodes: list[int] = []

    def answer(request: Any) -> Any:
        node_id = r.broker.core.requests[-1].node_id
        nodes.append(node_id)
        if node_id == 1:
            return None
        kind = messages.FetchResponse
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if len(nodes) < 4 else ErrorCode.NONE
        part = kind.PartitionData(
            error_code=code, high_watermark=1, records=b"", preferred_read_replica=-1 if code else 1
        )
        topic = kind.FetchableTopicResponse(topic_id=r.broker.topic_id(), partitions=[part])
        return kind(responses=[topic])

    r.faults.intercept("Fetch", answer)
    r.read(start=Start(0))
    r.advance(20_000)
    assert nodes[:5] == [0, 0, 0, 0, 1]


def test_R25_replica_is_asked_with_the_epoch_of_the_present_leader() -> None:
    """Else it would refuse: FENCED_LEADER_EPOCH."""
    r = Reading(nodes=3, client_rack="east", metadata_max_age_ms=3000)
    fill(r, 1)
    asked: list[tuple[int, int]] = []

    def answer(request: Any) -> Any:
        kind, node_id = messages.FetchResponse, r.broker.core.requests[-1].node_id
        (topic,) = request.topics
        asked.append((node_id, topic.partitions[0].current_leader_epoch))
        part = kind.PartitionData(
            high_watermark=1, records=b"", preferred_read_replica=1 if node_id != 1 else -1
        )
        r.faults.delay("Fetch", 0.4)  # its time begins, and so ends, after that of the metadata
        return kind(responses=[kind.FetchableTopicResponse(topic_id=topic.topic_id, partitions=[part])])

    r.faults.intercept("Fetch", answer)
    r.faults.delay("Fetch", 0.9)
    r.read(start=Start(0))
    r.move_leader(2)
    r.advance(4500)
    of_replica = asked[1 : [node for node, _ in asked].index(2)]
    assert of_replica[0] == (1, 0) and of_replica[-1] == (1, 1)


# Positions that the log does not have


def test_out_of_range_fails_without_a_policy() -> None:
    r = Reading()
    fill(r)
    r.log().delete_records_before(4)
    r.read(start=Start(2))
    (error,) = r.errors
    assert isinstance(error, errors.OffsetOutOfRangeError)
    assert error.partitions == {FIRST: 2}
    assert str(error).startswith(f"{FIRST}: the log does not have offset 2")
    assert str(error).endswith(r.engine.remedy)
    r.advance(5000)
    assert len(r.errors) == 1


@pytest.mark.parametrize(("policy", "offsets"), [("earliest", [*range(4, 10)]), ("latest", [])])
def test_R37_out_of_range_follows_the_policy(policy: str, offsets: list[int]) -> None:
    r = Reading(auto_offset_reset=policy)
    fill(r)
    r.log().delete_records_before(4)
    r.read(start=Start(2))
    r.advance(1000)
    assert r.offsets() == offsets
    (moved,) = r.moves
    assert (moved.from_offset, moved.to_offset) == (2, 4 if offsets else 10)
    assert isinstance(moved.error, errors.OffsetOutOfRangeError)
    assert r.engine.remedy not in str(moved.error)


def test_R33_reset_by_duration_goes_back_from_now() -> None:
    r = Reading()
    fill(r, 5)
    r.advance(60_000)
    fill(r, 5)
    r.read(start=Start(99), reset=timedelta(seconds=30))
    r.advance(1000)
    assert r.offsets() == [*range(5, 10)]


def test_range_whose_beginning_is_gone_skips_it() -> None:
    r = Reading()
    fill(r)
    r.log().delete_records_before(4)
    r.read(start=Start(2), ends={FIRST: 8}, reset=EARLIEST)
    assert r.offsets() == [4, 5, 6, 7]
    assert r.is_complete()
    assert [each[2:4] for each in r.moves] == [(2, 4)]


def test_range_that_is_gone_is_complete() -> None:
    r = Reading()
    fill(r)
    r.log().delete_records_before(9)
    r.read(start=Start(2), ends={FIRST: 8}, reset=EARLIEST)
    assert r.offsets() == []
    assert r.is_complete()
    assert [each[2:4] for each in r.moves] == [(2, 8)]


def test_range_of_a_shrunken_log_reads_nothing_twice() -> None:
    r = Reading()
    fill(r)
    r.log().truncate_to(5, r.broker.now_ms)
    r.read(start=Start(7), ends={FIRST: 10}, reset=EARLIEST)
    assert r.offsets() == []
    assert r.is_complete()


# Truncation


def truncated(r: Reading, offset: int) -> None:
    """Let a node lead whose log ends at an offset, as after an unclean election."""
    r.log().truncate_to(offset, r.broker.now_ms)
    r.move_leader(1)


@pytest.mark.parametrize("version", [18, 12, 11])
def test_R43_R44_R45_truncation_fails_without_a_policy(version: int) -> None:
    r = Reading(nodes=2, versions={FETCH_API: (4, version)})
    fill(r)
    r.read()
    truncated(r, 6)
    r.advance(10_000)
    (error,) = r.errors
    assert isinstance(error, errors.LogTruncationError)
    assert error.partitions == {FIRST: 10}
    assert error.divergent_offsets == {FIRST: 6}
    assert r.offsets() == [*range(10)]


@pytest.mark.parametrize("version", [18, 12, 11])
def test_R44_R45_truncation_goes_back_with_a_policy(version: int) -> None:
    r = Reading(nodes=2, versions={FETCH_API: (4, version)}, auto_offset_reset="latest")
    fill(r)
    r.read()
    truncated(r, 6)
    r.put(b"new 6", b"new 7")
    r.advance(10_000)
    assert r.values[FIRST][10:] == [(6, b"new 6"), (7, b"new 7")]
    (moved,) = r.moves
    assert (moved.from_offset, moved.to_offset, moved.last_epoch) == (10, 6, 0)


def test_truncation_is_found_although_the_log_has_grown_again() -> None:
    """Without epochs, the records from 6 to 9 would be missed."""
    r = Reading(nodes=2, auto_offset_reset="latest")
    fill(r)
    r.read()
    truncated(r, 6)
    for number in range(6, 15):
        r.put(f"new {number}".encode())
    r.advance(10_000)
    assert r.values[FIRST][10:] == [(number, f"new {number}".encode()) for number in range(6, 15)]


def test_R43_same_log_under_a_new_leader_is_no_truncation() -> None:
    r = Reading(nodes=2, versions={FETCH_API: (4, 11)})
    fill(r)
    r.read()
    r.move_leader(1)
    fill(r, 2)
    r.advance(10_000)
    assert r.offsets() == [*range(12)]
    assert r.requests("OffsetForLeaderEpoch")
    assert not r.moves


def test_R35_start_with_an_epoch_is_checked_before_reading() -> None:
    r = Reading(nodes=2)
    fill(r)
    truncated(r, 6)
    fill(r)
    r.read(start=Start(10, leader_epoch=0))
    (error,) = r.errors
    assert isinstance(error, errors.LogTruncationError)
    assert r.offsets() == []


@pytest.mark.parametrize("version", [18, 12, 11])
@pytest.mark.parametrize("epoch", [0, 7], ids=["its own epoch", "a later epoch"])
@pytest.mark.parametrize("offset", [4, 50])
def test_position_of_another_log_is_no_truncation(version: int, epoch: int, offset: int) -> None:
    """A leader has all records of its own epoch, and of none after it."""
    r = Reading(versions={FETCH_API: (4, version)}, auto_offset_reset="earliest")
    fill(r)
    r.read(start=Start(offset, leader_epoch=epoch))
    r.advance(1000)
    is_possible = (offset, epoch) == (4, 0)
    assert r.offsets() == [*range(4 if is_possible else 0, 10)]
    if not is_possible:
        (moved,) = r.moves
        assert (moved.from_offset, moved.to_offset) == (offset, 0)
        assert isinstance(moved.error, errors.OffsetOutOfRangeError)


def test_position_of_another_log_fails_without_a_policy() -> None:
    r = Reading()
    fill(r)
    r.read(start=Start(50, leader_epoch=0))
    (error,) = r.errors
    assert isinstance(error, errors.OffsetOutOfRangeError)
    assert error.partitions == {FIRST: 50}
    assert "offset 50 of leader epoch 0 is not of this log, whose leader is in epoch 0" in str(error)


def test_range_of_a_truncated_log_reads_nothing_twice() -> None:
    r = Reading(nodes=2)
    fill(r)
    r.read(ends={FIRST: 14}, reset=EARLIEST)
    truncated(r, 6)
    for number in range(6, 20):
        r.put(f"new {number}".encode())
    r.advance(10_000)
    assert r.offsets() == [*range(14)]
    assert r.values[FIRST][10:] == [(number, f"new {number}".encode()) for number in range(10, 14)]
    assert r.is_complete()
    assert isinstance(r.moves[0].error, errors.LogTruncationError)


def test_position_is_not_compared_again_without_a_new_leader() -> None:
    r = Reading(versions={FETCH_API: (4, 11)})
    for _ in range(3):
        fill(r, 1)
        r.read()
    assert not r.requests("OffsetForLeaderEpoch")


# Topics


def test_R22_topic_created_again_is_another_topic() -> None:
    r = Reading(metadata_max_age_ms=1000)
    fill(r, 20)
    r.read()
    r.broker.act(lambda state: state.delete_topic(TOPIC))
    r.cluster.create_topic(TOPIC, 1)
    fill(r, 30)
    r.advance(10_000)
    (error,) = r.errors
    assert isinstance(error, errors.DataLossError)
    assert r.offsets() == [*range(20)]


def test_R22_topic_created_again_follows_the_policy() -> None:
    r = Reading(auto_offset_reset="earliest", metadata_max_age_ms=1000)
    fill(r, 20)
    r.read()
    r.broker.act(lambda state: state.delete_topic(TOPIC))
    r.cluster.create_topic(TOPIC, 1)
    fill(r, 3)
    r.advance(10_000)
    assert r.offsets() == [*range(20), 0, 1, 2]
    (moved,) = r.moves
    assert (moved.from_offset, moved.to_offset) == (20, 0)


def create_again(r: Reading, size: int = 30) -> bytes:
    """Delete the topic, create it again with records, and return the id of the new one."""
    r.broker.act(lambda state: state.delete_topic(TOPIC))
    r.cluster.create_topic(TOPIC, 1)
    fill(r, size)
    r.values.clear()
    r.results.clear()
    return bytes(r.cluster.topics[TOPIC].topic_id)


@pytest.mark.parametrize("reset", [None, EARLIEST])
@pytest.mark.parametrize("is_given", [True, False])
@pytest.mark.parametrize("start", [0, 10])
def test_range_is_of_the_topic_that_has_the_name_now(reset: Any, is_given: bool, start: int) -> None:
    r = Reading()
    fill(r, 20)
    r.read(ends={FIRST: 20})
    topic_id = create_again(r)
    at = Start(start, topic_id=topic_id) if is_given else Start(start)
    r.read(start=at, ends={FIRST: 30}, reset=reset)
    r.advance(10_000)
    assert r.offsets() == [*range(start, 30)]
    assert r.is_complete() and not r.errors and not r.moves


@pytest.mark.parametrize("is_known", [True, False])
def test_range_of_a_topic_that_is_gone_is_lost(is_known: bool) -> None:
    r = Reading()
    fill(r, 20)
    old_id = bytes(r.cluster.topics[TOPIC].topic_id)
    if is_known:
        r.read(ends={FIRST: 20})
    create_again(r)
    r.read(start=Start(5, topic_id=old_id), ends={FIRST: 20}, reset=None)
    r.advance(10_000)
    (error,) = r.errors
    assert isinstance(error, errors.DataLossError) and error.lost == {FIRST: (5, 20)}
    r.read(start=Start(5, topic_id=old_id), ends={FIRST: 20}, reset=EARLIEST)
    r.advance(10_000)
    (moved,) = r.moves
    assert (moved.from_offset, moved.to_offset) == (5, 20)
    assert not r.values


def test_metadata_from_before_the_topic_count_for_nothing() -> None:
    r = Reading()
    fill(r, 20)
    old_id = bytes(r.cluster.topics[TOPIC].topic_id)
    topic_id = create_again(r)
    new = r.cluster.topics[TOPIC]
    new.topic_id = old_id  # as a broker answers that has not heard of the new topic yet
    r.read(start=Start(0, topic_id=topic_id), ends={FIRST: 30})
    r.advance(3_000)
    assert 1 < len(r.requests("Metadata")) < 30 and not r.values
    new.topic_id = topic_id
    r.advance(3_000)
    assert r.offsets() == [*range(30)] and not r.errors


def test_R22_results_name_the_topic_that_they_are_of() -> None:
    r = Reading(auto_offset_reset="earliest", metadata_max_age_ms=1000)
    old = r.broker.topic_id(TOPIC)
    fill(r, 2)
    r.read()
    r.broker.act(lambda state: state.delete_topic(TOPIC))
    r.cluster.create_topic(TOPIC, 1)
    fill(r, 1)
    r.advance(10_000)
    new = r.broker.topic_id(TOPIC)
    found = [
        (each.topic_id, each.records.topic_id)
        for each in r.results
        if isinstance(each, Fetched) and each.records is not None
    ]
    assert {of_answer for of_answer, _ in found} == {of_records for _, of_records in found} == {old, new}
    assert r.moves[0].topic_id == new != old


def test_missing_topic_is_not_created_and_fails_soon() -> None:
    r = Reading(allow_auto_create_topics=False)
    missing = TopicPartition("missing", 0)
    r.read(missing)
    r.advance(6000)
    (error,) = r.errors
    assert error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "missing" not in r.cluster.topics


@pytest.mark.parametrize("start", [Start(0), EARLIEST])
def test_missing_partition_fails_with_their_number(start: Start | OffsetSpec) -> None:
    r = Reading(partitions=2)
    r.read(TopicPartition(TOPIC, 5), start=start)
    r.advance(3000)
    (error,) = r.errors
    assert f"'{TOPIC}' has 2 partitions, 0 to 1, but not 5" in str(error)


def test_R26_refused_topic_fails_after_the_data_of_others() -> None:
    r = Reading()
    other = TopicPartition("other", 0)
    r.cluster.create_topic("other", 1)
    fill(r, 3)
    fill(r, 3, partition=other)
    is_refused = True

    def answer(request: Any) -> Any:
        """Answer with an error of the first partition, and the records of the second."""
        kind = messages.FetchResponse
        topics = [kind.FetchableTopicResponse(topic_id=each.topic_id) for each in request.topics]
        if len(topics) < 2 or not is_refused:
            return None
        batches = b"".join(map(bytes, r.log(other).fetch(0, max_bytes=10_000).batches))
        refused = kind.PartitionData(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        topics[0].partitions = [refused]
        topics[1].partitions = [kind.PartitionData(high_watermark=3, records=batches)]
        return kind(responses=topics)

    r.faults.intercept("Fetch", answer)
    r.read(FIRST, other, start=Start(0))
    assert [type(each) for each in r.results] == [Fetched, Failed]
    assert isinstance(r.errors[0], errors.TopicAuthorizationError)
    assert r.offsets(other) == [0, 1, 2]


def test_deleted_topic_fails_soon() -> None:
    r = Reading(allow_auto_create_topics=False)
    fill(r, 3)
    r.read()
    r.broker.act(lambda state: state.delete_topic(TOPIC))
    r.advance(20_000)
    (error,) = r.errors
    assert error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


def test_unknown_replica_is_looked_up_and_not_asked_at_once() -> None:
    r = Reading()
    fill(r, 1)
    kind = messages.FetchResponse
    part = kind.PartitionData(high_watermark=1, records=b"", preferred_read_replica=77)
    topic = kind.FetchableTopicResponse(topic_id=r.broker.topic_id(), partitions=[part])
    r.faults.intercept("Fetch", lambda request: kind(responses=[topic]))
    r.read(start=Start(0))
    assert len(fetches(r)) == 1
    r.faults.intercept("Fetch", None)
    r.advance(2000)
    assert r.offsets() == [0]


def answer_offset(r: Reading, offset: int) -> None:
    kind = messages.ListOffsetsResponse
    part = kind.ListOffsetsPartitionResponse(offset=offset, leader_epoch=-7)
    topic = kind.ListOffsetsTopicResponse(name=TOPIC, partitions=[part])
    r.faults.intercept("ListOffsets", lambda request: kind(topics=[topic]))


@pytest.mark.parametrize("offset", [-1, -(2**63), 2**63 - 1])
@pytest.mark.parametrize("spec", [EARLIEST, LATEST, OffsetSpec(START_MS)])
def test_impossible_offset_is_an_error_of_the_partition(spec: OffsetSpec, offset: int) -> None:
    r = Reading()
    answer_offset(r, offset)
    r.read(start=spec)
    (error,) = r.errors
    assert isinstance(error, errors.ProtocolError)
    assert f"at offset {offset}, which is impossible" in str(error)
    call = r.found({FIRST: spec})
    if offset < 0 and spec == OffsetSpec(START_MS):  # no record is as late
        assert done(call) == {FIRST: None}
    else:
        assert isinstance(call.error, errors.ProtocolError)


def test_impossible_epoch_of_an_offset_is_none() -> None:
    r = Reading()
    answer_offset(r, 3)
    assert done(r.found({FIRST: LATEST}))[FIRST][::2] == (3, -1)


@pytest.mark.parametrize("start", [2**63 - 1, 2**63 - 2, 2**62])
def test_position_beyond_every_log_is_out_of_range(start: int) -> None:
    r = Reading(auto_offset_reset="earliest")
    fill(r, 3)
    r.read(start=Start(start))
    r.advance(1000)
    assert r.offsets() == [0, 1, 2]
    assert [each.from_offset for each in r.moves] == [start]
    r = Reading()
    r.read(start=Start(start))
    (error,) = r.errors
    assert isinstance(error, errors.OffsetOutOfRangeError)


# Memory


def test_R28_R32_nothing_is_fetched_above_the_memory() -> None:
    r = Reading(kbatch_fetch_buffer_memory=1 << 20, keeps=True)
    for _ in range(200):
        r.put(b"x" * 20_000)
    r.read()
    held = sum(each.size_bytes for each in r.kept)
    assert 300_000 < held <= 1 << 20
    count = len(fetches(r))
    r.advance(5000)
    assert len(fetches(r)) == count
    while r.kept:
        r.release_all()
        assert sum(each.size_bytes for each in r.kept) <= 1 << 20
    assert r.offsets() == [*range(200)]


def test_many_partitions_share_the_memory() -> None:
    """Each has less than its share, and all together would have more than there is."""
    r = Reading(partitions=8, kbatch_fetch_buffer_memory=1 << 20, keeps=True)
    eight = partitions_of(8)
    for partition in eight:
        r.put(b"x" * 200_000, partition=partition)
        r.put(b"y", partition=partition)
    r.read(*eight)
    assert 500_000 < sum(each.size_bytes for each in r.kept) <= 1 << 20
    while r.kept:
        r.release_all()
        assert sum(each.size_bytes for each in r.kept) <= 1 << 20
    assert all(r.offsets(partition) == [0, 1] for partition in eight)


def test_R15_slow_partition_does_not_stop_the_others() -> None:
    r = Reading(
        partitions=2, kbatch_fetch_buffer_memory=1 << 20, max_partition_fetch_bytes=100_000, keeps=True
    )
    slow, quick = partitions_of(2)
    for partition in (slow, quick):
        for _ in range(100):
            r.put(b"x" * 20_000, partition=partition)
    r.read(slow, quick)
    for _ in range(200):
        for each in [each for each in r.kept if each.partition == quick]:
            r.kept.remove(each)
            r.engine.release(each)
        r.run()
    assert len(r.offsets(quick)) == 100
    assert len(r.offsets(slow)) < 100


def test_poll_that_waits_for_rows_gets_what_others_leave_and_learns_of_the_end() -> None:
    r = Reading(
        partitions=4, kbatch_fetch_buffer_memory=1 << 20, max_partition_fetch_bytes=50_000, keeps=True
    )
    four = partitions_of(4)
    for _ in range(100):
        r.put(b"x" * 20_000, partition=four[0])
    r.read(*four)
    shared_count = len(r.offsets(four[0]))
    awaited = RowsAwaited(r._changed)
    before = r.change_count
    r.engine.await_rows(awaited)
    r.advance(1000)
    assert awaited.is_memory_used_up and r.change_count > before
    assert len(r.offsets(four[0])) >= 2 * shared_count
    assert sum(each.size_bytes for each in r.kept) <= 1 << 20
    r.put(b"y", partition=four[1])  # whose memory is not taken
    r.advance(1000)
    assert len(r.offsets(four[1])) == 1
    r.release_all()
    assert not awaited.is_memory_used_up
    r.engine.await_rows(None)
    for _ in range(10):
        r.advance(1000)
        r.release_all()
    assert len(r.offsets(four[0])) == 100


def test_R30_metadata_and_lookups_go_on_without_memory() -> None:
    r = Reading(kbatch_fetch_buffer_memory=1 << 20, keeps=True)
    for _ in range(100):
        r.put(b"x" * 20_000)
    r.read()
    assert done(r.found({FIRST: LATEST}))[FIRST].offset == 100
    assert list(done(r.topic_names())) == [TOPIC]


def test_R30_release_wakes_nothing_while_an_answer_is_due() -> None:
    r = Reading(keeps=True)
    r.put(b"x")
    r.read()
    (first,) = r.kept
    assert not r.engine.release(first)
    while_running = []
    r.engine.submit(lambda now_ns: while_running.append(r.engine.release(first)))
    r.run()
    assert while_running == [True]  # that run may not see it


def test_R30_release_wakes_what_waits_for_memory() -> None:
    r = Reading(partitions=2, kbatch_fetch_buffer_memory=1 << 20, keeps=True)
    slow, quick = partitions_of(2)
    for _ in range(100):
        r.put(b"x" * 20_000, partition=slow)
    r.read(slow, quick)
    assert r.engine.release(r.kept[0])


def test_R30_release_wakes_if_no_answer_is_due() -> None:
    r = Reading(keeps=True)
    r.put(b"x")
    r.read(ends={FIRST: 1})
    (first,) = r.kept
    assert r.engine.release(first)


def test_release_twice_counts_once() -> None:
    r = Reading(partitions=2, keeps=True)
    two = partitions_of(2)
    for partition in two:
        fill(r, partition=partition)
    r.read(*two)
    first, second = r.kept  # of one answer, whose memory both share
    name = MetricName("fetch-buffer-used-bytes", FETCH, (("client-id", "c"),))

    def used() -> float:
        return r.registry.snapshot(0)[name] - 2 * r.config.max_partition_fetch_bytes

    held = used()
    assert held > first.size_bytes + second.size_bytes
    r.engine.release(first)
    r.engine.release(first)
    r.run()
    assert used() == held
    r.engine.release(second)
    r.run()
    assert used() == 0


# Seek, pause, assign


def test_seek_drops_what_was_asked_for_before() -> None:
    r = Reading()
    fill(r)
    r.read(start=LATEST)
    generation = r.engine.seek(FIRST, Start(3))
    r.advance(1000)
    assert r.offsets() == [*range(3, 10)]
    assert {each.generation for each in r.results} == {generation}


def test_R20_answer_that_comes_after_a_seek_does_not_count() -> None:
    r = Reading()
    fill(r)
    r.faults.delay("Fetch", 1)
    r.read()
    r.faults.delay("Fetch", 0)
    r.engine.seek(FIRST, Start(8))
    r.advance(3000)
    assert r.offsets() == [8, 9]


def test_R20_lookup_that_ends_after_a_seek_does_not_count() -> None:
    r = Reading()
    fill(r)
    r.faults.delay("ListOffsets", 1)
    r.read(start=EARLIEST)
    r.faults.delay("ListOffsets", 0)
    r.engine.seek(FIRST, OffsetSpec(START_MS + 1))  # no record is as late
    r.engine.seek(FIRST, Start(8))
    r.advance(3000)
    assert r.offsets() == [8, 9]


def test_seek_ends_a_failure() -> None:
    r = Reading()
    fill(r)
    r.read(start=Start(77))
    assert len(r.errors) == 1
    r.engine.seek(FIRST, Start(9))
    r.advance(1000)
    assert r.offsets() == [9]


def test_partition_that_fails_again_and_again_is_read_after_a_wait() -> None:
    """A program that polls after each error must not ask the leader at its own pace."""
    r = Reading()
    fill(r)
    r.read(start=Start(77))
    seen = 0
    for _ in range(1000):  # ten seconds
        if len(r.errors) > seen:
            seen = len(r.errors)
            r.engine.seek(FIRST, Start(77))
        r.advance(10)
    assert 10 < len(r.errors) < 25
    r.engine.seek(FIRST, Start(9))
    r.advance(2000)
    assert r.offsets() == [9]


def test_seeks_do_not_lengthen_the_wait_after_a_failure() -> None:
    r = Reading()
    fill(r)
    r.read(start=Start(77))
    for _ in range(25):  # half a second
        r.engine.seek(FIRST, Start(9))
        r.advance(20)
        if r.offsets():
            break
    assert r.offsets() == [9]


def test_pause_fetches_nothing_and_skips_nothing() -> None:
    r = Reading(partitions=2)
    first, second = partitions_of(2)
    r.read(first, second)
    r.engine.pause([first])
    r.advance(1000)
    fill(r, 3, partition=first)
    fill(r, 3, partition=second)
    r.advance(2000)
    assert (r.offsets(first), r.offsets(second)) == ([], [0, 1, 2])
    r.engine.resume([first])
    r.advance(2000)
    assert r.offsets(first) == [0, 1, 2]


def test_add_and_remove_leave_other_partitions_alone() -> None:
    r = Reading(partitions=3)
    a, b, c = partitions_of(3)
    for partition in (a, b, c):
        fill(r, 2, partition=partition)
    r.read(a, b)
    r.engine.add({c: Start(1)})
    r.engine.remove([a])
    r.run()
    for partition in (a, b, c):
        fill(r, 2, partition=partition)
    r.advance(1000)
    assert (r.offsets(a), r.offsets(b), r.offsets(c)) == ([0, 1], [0, 1, 2, 3], [1, 2, 3])


def test_seek_sets_and_removes_an_end() -> None:
    r = Reading()
    fill(r)
    r.read(start=LATEST)
    r.engine.seek(FIRST, Start(3), 6)
    r.advance(1000)
    assert r.offsets() == [3, 4, 5] and r.is_complete()
    r.engine.seek(FIRST, Start(6), NO_END)
    r.advance(1000)
    fill(r, 1)
    r.advance(1000)
    assert r.offsets() == [*range(3, 11)]


def test_first_offset_stays_when_reading_goes_on() -> None:
    r = Reading()
    fill(r)
    r.faults.delay("ListOffsets", 1)
    r.engine.assign({FIRST: LATEST})
    r.run()
    reading, before = r.engine.reading(FIRST), r.change_count
    assert reading is not None and reading.first_offset == -1
    r.advance(1500)
    assert r.change_count > before  # or a program that waits for it would not look
    fill(r)
    r.advance(1000)
    assert (reading.first_offset, reading.fetch_offset) == (10, 20)
    assert r.engine.reading(TopicPartition(TOPIC, 7)) is None


def test_assign_replaces_the_partitions() -> None:
    r = Reading(partitions=3)
    a, b, c = partitions_of(3)
    for partition in (a, b, c):
        fill(r, 2, partition=partition)
    r.read(a, b)
    r.engine.assign({b: EARLIEST, c: EARLIEST})
    fill(r, 2, partition=a)
    r.advance(2000)
    assert [r.offsets(each) for each in (a, b, c)] == [[0, 1], [0, 1, 0, 1], [0, 1]]


# Throttling, faults of the connection


def test_R27_throttled_node_is_not_asked_before_time() -> None:
    r = Reading(nodes=2, partitions=2)
    slow, quick = partitions_of(2)
    r.read(slow, quick)
    r.faults.throttle(10)
    fill(r, 1, partition=slow, size=10)
    r.run()
    assert r.offsets(slow) == [*range(10)]  # what a throttled answer brings counts
    r.faults.throttle(0)
    for partition in (slow, quick):
        fill(r, 1, partition=partition)
    r.advance(9000)
    assert (len(r.offsets(slow)), len(r.offsets(quick))) == (10, 1)
    r.advance(2000)
    assert len(r.offsets(slow)) == 11


def test_unreadable_answer_is_an_error() -> None:
    r = Reading()
    fill(r)
    r.faults.intercept(
        "Fetch",
        lambda request: messages.FetchResponse(
            responses=[
                messages.FetchResponse.FetchableTopicResponse(
                    topic_id=r.broker.topic_id(),
                    partitions=[messages.FetchResponse.PartitionData(high_watermark=10, records=b"\0" * 100)],
                )
            ]
        ),
    )
    r.read(start=Start(0))
    (error,) = r.errors
    assert isinstance(error, errors.CorruptRecordError)
    assert str(FIRST) in str(error) or (TOPIC in str(error))


def test_defect_fails_partitions_and_calls() -> None:
    r = Reading(allow_auto_create_topics=False)
    r.read()
    call = r.partition_count("missing")
    assert not call.is_done
    cause = errors.KafkaError("a defect")
    r.engine.fail(cause)
    r.run()
    assert r.errors == [cause]
    assert call.error is cause
    late = r.partition_count(TOPIC)
    assert late.error is cause
    r.read()
    assert r.errors == [cause, cause]


# Calls


def test_R39_offsets_are_found_by_one_request_a_leader() -> None:
    r = Reading(nodes=3, partitions=9)
    nine = partitions_of(9)
    for number, partition in enumerate(nine):
        fill(r, number, partition=partition)
    found = done(r.found(dict.fromkeys(nine, LATEST)))
    assert [found[each].offset for each in nine] == [*range(9)]
    assert len(r.requests("ListOffsets")) == 3
    assert r.change_count > 0


def test_time_after_all_records_has_no_offset() -> None:
    r = Reading()
    fill(r)
    specs = {FIRST: OffsetSpec(START_MS + 1)}
    assert done(r.found(specs)) == {FIRST: None}


def test_R38_end_under_read_committed_is_the_last_stable_offset() -> None:
    for isolation, end in (("read_committed", 1), ("read_uncommitted", 3)):
        r = Reading(isolation_level=isolation)
        r.put(b"a")
        r.put(b"b", producer_id=7)
        r.put(b"c")
        assert done(r.found({FIRST: LATEST}))[FIRST].offset == end


def test_lookup_survives_passing_errors() -> None:
    r = Reading(nodes=2, partitions=2)
    for code in ("NOT_LEADER_OR_FOLLOWER", "LEADER_NOT_AVAILABLE", "UNKNOWN_LEADER_EPOCH"):
        r.faults.fail_next("ListOffsets", code, 2)
    call = r.found(dict.fromkeys(partitions_of(2), EARLIEST))
    assert not call.is_done
    r.advance(10_000)
    assert len(done(call)) == 2


def test_lookup_finds_a_new_leader() -> None:
    r = Reading(nodes=2)
    done(r.partition_count(TOPIC))
    r.move_leader(1)
    call = r.found({FIRST: EARLIEST})
    assert not call.is_done  # it has asked the old one
    r.advance(2000)
    assert done(call)[FIRST].offset == 0


@pytest.mark.parametrize("epoch", [7, 2**31 - 1])
def test_a_leader_epoch_that_goes_back_does_not_end_reading(epoch: int) -> None:
    """Brokers were restored from an older state, and name another leader of the same topic."""
    r = Reading(nodes=2)
    led = r.cluster.partition(*FIRST)
    led.register(replace(led.registration, leader_epoch=epoch), 0)
    fill(r, 3)
    r.read()
    assert r.offsets() == [0, 1, 2]
    led.register(replace(led.registration, leader_epoch=1), 0)
    r.move_leader(1)
    r.put(b"d")
    r.advance(20_000)
    assert r.offsets() == [0, 1, 2, 3]


def test_lookup_ends_at_its_deadline_with_the_reason() -> None:
    r = Reading(default_api_timeout_ms=3000)
    r.faults.fail_next("ListOffsets", "NOT_LEADER_OR_FOLLOWER", 1000)
    call = r.found({FIRST: EARLIEST})
    r.advance(2999)
    assert not call.is_done
    r.advance(1)
    assert isinstance(call.error, errors.KafkaTimeoutError)
    assert "within 3000 ms (default.api.timeout.ms); the last error was" in str(call.error)


def test_calls_without_brokers_end_at_their_deadline() -> None:
    r = Reading(default_api_timeout_ms=3000)
    r.unreachable = {0}
    calls = [r.topic_names(), r.partition_count(TOPIC), r.found({FIRST: LATEST})]
    r.advance(3100)
    assert [type(call.error) for call in calls] == [errors.KafkaTimeoutError] * 3
    assert all("cut" in str(call.error) for call in calls)


def test_special_time_needs_a_broker_that_knows_it() -> None:
    r = Reading(versions={messages.ListOffsetsRequest.api_key: (1, 6)})
    call = r.found({FIRST: OffsetSpec(-3)})
    assert isinstance(call.error, errors.UnsupportedVersionError)
    assert "upgrade it" in str(call.error)


def test_topics_are_listed_with_their_partitions() -> None:
    r = Reading(partitions=4)
    listing = done(r.topic_names())[TOPIC]
    assert (listing.partition_count, listing.is_internal) == (4, False)
    assert listing.topic_id == r.broker.topic_id()


# Metrics


def test_metrics_count_what_was_fetched_and_read() -> None:
    r = Reading(partitions=2)
    fill(r, 10)
    r.read(*partitions_of(2))
    values = {(each.name, each.tags): value for each, value in r.registry.snapshot(r.now_ns // MS).items()}
    client = ("client-id", "c")
    tags = (client, ("topic", TOPIC), ("partition", "0"))
    size = sum(each.size_bytes for each in r.results if isinstance(each, Fetched))
    assert values["bytes-consumed-total", (client,)] == size
    assert values["bytes-consumed-total", (client, ("topic", TOPIC))] == size
    assert values["fetch-total", (client,)] == len(fetches(r)) - 1
    assert (values["records-lag", tags], values["records-lead", tags]) == (0, 10)
    assert values["preferred-read-replica", tags] == -1
    r.engine.stop()
    late = next(each for each in r.results if isinstance(each, Fetched))
    r.engine.release(late, 1)  # does not bring them back
    r.run()
    assert not [each for each in r.registry.snapshot(0) if ("partition", "0") in each.tags]


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
def test_R94_lag_and_lead_are_those_of_the_moment(isolation_level: str) -> None:
    r = Reading(keeps=True, isolation_level=isolation_level)
    for _ in range(10):
        r.put(b"x")
    if isolation_level == "read_committed":
        r.put(b"open", producer_id=7)
    r.log().delete_records_before(2)
    r.engine.distances.position_of = lambda state: position
    position = -1

    def values(*of: tuple[str, str]) -> dict[str, float]:
        tags = (("client-id", "c"), *of)
        found = r.registry.snapshot(r.now_ns // MS)
        return {each.name: value for each, value in found.items() if each.tags == tags}

    partition = ("topic", TOPIC), ("partition", "0")
    r.read()
    found = values(*partition)
    assert math.isnan(found["records-lag"]) and math.isnan(found["records-lead"])
    for position in (2, 7, 10):
        found = values(*partition)
        assert (found["records-lag"], found["records-lead"]) == (10 - position, position - 2)
    assert (found["records-lag-max"], found["records-lead-min"]) == (8, 0)
    assert (values()["records-lag-max"], values()["records-lead-min"]) == (8, 0)
    r.advance(3 * 30_000)  # windows end, and the program still has read nothing more
    position = 4
    found = values(*partition)
    assert (found["records-lag"], found["records-lag-max"], values()["records-lag-max"]) == (6, 6, 6)
    r.put(b"y")
    if isolation_level == "read_committed":
        r.end_transaction(7, commit=True)
    r.advance(1000)
    assert values(*partition)["records-lag"] == r.log().high_watermark - 4


# All of it at once


FAULTS = ("cut", "drop", "move", "error", "session", "none")


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None)
@given(seed=st.integers(0, 2**32), version=st.sampled_from([18, 15, 12, 11, 6, 4]))
def test_R01_R21_each_record_comes_once_in_order_under_faults(seed: int, version: int) -> None:
    choices = random.Random(seed)
    r = Reading(
        nodes=3,
        partitions=4,
        seed=seed,
        versions={FETCH_API: (4, version)},
        isolation_level=choices.choice(["read_committed", "read_uncommitted"]),
        max_partition_fetch_bytes=choices.choice([300, 1000, 1 << 20]),
    )
    four = partitions_of(4)
    expected: dict[TopicPartition, list[Any]] = {each: [] for each in four}
    r.read(*four)
    for step in range(30):
        partition = choices.choice(four)
        _append(r, choices, partition, step, expected[partition])
        _disturb(r, choices, choices.choice(FAULTS), partition)
        r.advance(choices.choice([0, 10, 700]))
    r.advance(60_000)
    assert not r.errors and not r.moves
    assert {each: r.offsets(each) for each in four} == expected


def _append(
    r: Reading, choices: random.Random, partition: TopicPartition, step: int, expected: list[int]
) -> None:
    """Append a batch, perhaps in a transaction, and note the offsets that are to be read."""
    count = choices.randint(1, 20)
    is_transactional = choices.random() < 0.3
    producer_id = 1000 + step if is_transactional else -1
    base = r.put(*[b"x" * choices.randint(0, 50)] * count, partition=partition, producer_id=producer_id)
    commits = choices.random() < 0.5
    if is_transactional:
        r.end_transaction(producer_id, commit=commits, partition=partition)
    if not is_transactional or commits or r.config.isolation_level == "read_uncommitted":
        expected += range(base, base + count)


def _disturb(r: Reading, choices: random.Random, fault: str, partition: TopicPartition) -> None:
    if fault == "cut":
        r.cut(choices.randrange(3))
    elif fault == "drop":
        r.faults.drop_connection("Fetch", choices.choice(["before", "after"]), choices.randint(1, 3))
    elif fault == "move":
        r.move_leader(choices.randrange(3), partition)
    elif fault == "error":
        r.faults.fail_next("Fetch", choices.choice(["UNKNOWN_SERVER_ERROR", "KAFKA_STORAGE_ERROR"]), 2)
    elif fault == "session":
        r.faults.fail_next("Fetch", "INVALID_FETCH_SESSION_EPOCH", 1)


@pytest.mark.parametrize("code", [-1, 6, 1234])
def test_partition_that_cannot_be_fetched_for_long_is_a_warning(
    code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker's defect, a leader that is none, an unknown code: poll() waits, and the log says why."""
    caplog.set_level(logging.INFO, "kbatch.core.consumer")
    r = Reading()
    fill(r, 3)
    is_failing = True

    def answer(request: Any) -> Any:
        if not is_failing or not request.topics:
            return None
        kind = messages.FetchResponse
        topic = request.topics[0]
        parts = [
            kind.PartitionData(partition_index=each.partition, error_code=code) for each in topic.partitions
        ]
        return kind(responses=[kind.FetchableTopicResponse(topic_id=topic.topic_id, partitions=parts)])

    r.faults.intercept("Fetch", answer)
    r.read(partitions_of(1)[0], start=Start(0))
    r.advance(5_000)
    assert not caplog.records
    r.advance(55_000)
    is_failing = False
    r.advance(10_000)
    assert r.offsets() == [0, 1, 2]
    begun, ended = caplog.records
    assert begun.levelno == logging.WARNING
    assert begun.getMessage().startswith(f"no records come of {TOPIC}-0: ")
    assert (ended.levelno, ended.getMessage().partition(", ")[0]) == (
        logging.INFO,
        f"topic {TOPIC}: all partitions can be read again",
    )


def test_failed_partition_does_not_stop_others() -> None:
    r = Reading(partitions=2)
    first, second = partitions_of(2)
    fill(r, 3, partition=second)
    r.engine.assign({first: Start(99), second: Start(0)})
    r.advance(1000)
    assert [each.partition for each in r.results if isinstance(each, Failed)] == [first]
    fill(r, 2, partition=second)
    r.advance(1000)
    assert r.offsets(second) == [0, 1, 2, 3, 4]


# Ranges that end in a gap


def gap(monkeypatch: pytest.MonkeyPatch, first: int, **sizes: int) -> None:
    """Let logs have no records from an offset on, as after compaction, and their local part begin at
    `local_start`.
    """
    fetch, list_offset = Partition.fetch, Partition.list_offset

    def fetch_up_to(log: Partition, offset: int, **rest: Any) -> Any:
        fetched = fetch(log, offset, **rest)
        kept = [each for each in fetched.batches if int.from_bytes(each[:8], "big") < first]
        return fetched._replace(batches=kept)

    def local_start(log: Partition, timestamp: int, **rest: Any) -> Any:
        found = list_offset(log, timestamp, **rest)
        if timestamp == EARLIEST_LOCAL.timestamp_ms and found is not None and "local_start" in sizes:
            return found._replace(offset=sizes["local_start"])
        return found

    monkeypatch.setattr(Partition, "fetch", fetch_up_to)
    monkeypatch.setattr(Partition, "list_offset", local_start)


@pytest.mark.parametrize("version", [7, 8, 11])
def test_range_that_ends_in_a_gap_completes(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    gap(monkeypatch, 6)
    r = Reading(versions={messages.ListOffsetsRequest.api_key: (1, version)})
    fill(r)
    r.read(start=Start(0), ends={FIRST: 9})
    assert not r.is_complete()
    r.advance(1000)
    assert r.offsets() == [*range(6)] and r.is_complete()
    last = r.results[-1]
    assert isinstance(last, Fetched) and (last.from_offset, last.next_offset, last.is_last) == (6, 9, True)


def test_position_in_tiered_storage_is_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    gap(monkeypatch, 6, local_start=7)
    r = Reading()
    fill(r)
    r.read(start=Start(0), ends={FIRST: 9})
    r.advance(5000)
    assert not r.is_complete()
    monkeypatch.undo()  # the answer from there comes at last
    r.advance(5000)
    assert r.offsets() == [*range(9)] and r.is_complete()


def test_empty_answer_of_a_throttled_read_is_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    gap(monkeypatch, 6)
    r = Reading()
    fill(r)
    r.faults.throttle(1)
    r.read(start=Start(0), ends={FIRST: 9})
    r.advance(20_000)
    assert not r.is_complete()


def test_end_after_the_log_is_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    r = Reading()
    fill(r)
    r.read(start=Start(0), ends={FIRST: 12})
    r.advance(20_000)
    assert not r.is_complete()
    fill(r)
    r.advance(1000)
    assert r.offsets() == [*range(12)] and r.is_complete()


def test_idle_reader_does_not_connect_again() -> None:
    """A reader that is kept for the next task stays quiet when its cluster is gone, and then reads on."""
    r = Reading(reconnect_backoff_ms=10, reconnect_backoff_max_ms=10)
    fill(r)
    r.read(start=Start(0), ends={FIRST: 9})
    r.engine.stop()
    r.run()
    before = len(r.links)
    r.unreachable = {0, 1}
    r.cut()
    r.advance(10_000)
    assert len(r.links) == before
    call = r.partition_count(TOPIC)
    assert call.is_done and call.error is None  # it is known
    r.read(start=Start(0), ends={FIRST: 9})
    r.advance(1000)
    assert len(r.links) > before + 5  # now it is wanted
    r.unreachable.clear()
    r.advance(1000)
    assert r.offsets() == [*range(9), *range(9)]
