"""A peer that answers the same error for ever, whichever, to any request of a reader, a member or a share
group: what a client does about it at most. All in virtual time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from itertools import cycle
from typing import Any

import pytest

from kbatch import errors
from kbatch.core.consumer.consumer_protocol import encode_assignment
from kbatch.core.consumer.partition_state import EARLIEST, Start
from kbatch.core.consumer.share_session import Acknowledge
from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.records import TopicPartition
from tests.support.broker_core import TOPIC
from tests.support.classic_group import ClassicMember
from tests.support.group_reading import GroupReading
from tests.support.reading import FIRST, Reading
from tests.support.share_reading import ShareReading

SECONDS = 5
# Requests of one partition, group and node in that time, with those that follow at once in the beginning.
MOST = 10 * SECONDS + 10
UNKNOWN_CODES = (-32768, 12345)
CODES = [*(code for code in ErrorCode if code), *UNKNOWN_CODES]
# One of each kind, and all that any table of outcomes names.
KINDS_OF_CODES = [
    *map(ErrorCode, (-1, 1, 2, 3, 6, 7, 14, 15, 16, 22, 25, 27, 29, 30, 70, 71, 74, 75, 76, 79)),
    *map(ErrorCode, (82, 88, 100, 103, 106, 110, 113, 122, 129)),
    *UNKNOWN_CODES,
]
EARLIEST_RESET: dict[str, Any] = {"auto_offset_reset": "earliest"}


def reader() -> Reading:
    r = Reading(nodes=1, **EARLIEST_RESET)
    r.put(b"a", b"b")
    return r


def reads_from(start: Any) -> Callable[[Reading], None]:
    def read(r: Reading) -> None:
        r.read(start=start)
        r.advance(SECONDS * 1000)

    return read


def member(kind: type[GroupReading], **settings: Any) -> Callable[[], GroupReading]:
    def make() -> GroupReading:
        r = kind(**EARLIEST_RESET, **settings)
        r.put(b"a", b"b")
        return r

    return make


def lives(r: Any) -> None:
    r.subscribe(TOPIC)
    r.live(SECONDS * 1000, 250)


def commits(r: Any) -> None:
    """Commit all the time, as a program does whose commits fail, from the beginning of a membership on."""
    r.subscribe(TOPIC)
    for offset in range(SECONDS):
        r.live(500, 250)
        if r.engine.owned:
            r.begin_commit({FIRST: offset})
        r.live(500, 250)


def shares(r: Any) -> None:
    r.join()
    while r.now_ns < SECONDS * 10**9:
        r.available = {FIRST: [0]}
        polls(r)


def polls(r: ShareReading) -> None:
    """Poll, and accept what came."""
    r.poll()
    for acquired in r.acquired:
        if acquired.release():
            r.engine.acknowledge(Acknowledge({acquired.at: {0: 1}}))
    r.run()


consumer_member = member(GroupReading, has_script=False)
classic_member = member(ClassicMember)
CASES: dict[str, tuple[Callable[[], Any], str, Callable[[Any], None]]] = {
    "reader: ApiVersions": (reader, "ApiVersions", reads_from(EARLIEST)),
    "reader: Metadata": (reader, "Metadata", reads_from(EARLIEST)),
    "reader: ListOffsets": (reader, "ListOffsets", reads_from(EARLIEST)),
    "reader: Fetch": (reader, "Fetch", reads_from(Start(1))),
    "reader: OffsetForLeaderEpoch": (
        lambda: Reading(versions={messages.FetchRequest.api_key: (4, 11)}, **EARLIEST_RESET),
        "OffsetForLeaderEpoch",
        reads_from(Start(0, 0)),
    ),
    "consumer: FindCoordinator": (consumer_member, "FindCoordinator", lives),
    "consumer: ConsumerGroupHeartbeat": (consumer_member, "ConsumerGroupHeartbeat", lives),
    "consumer: OffsetFetch": (consumer_member, "OffsetFetch", lives),
    "consumer: OffsetCommit": (consumer_member, "OffsetCommit", commits),
    "classic: JoinGroup": (classic_member, "JoinGroup", lives),
    "classic: SyncGroup": (classic_member, "SyncGroup", lives),
    "classic: Heartbeat": (classic_member, "Heartbeat", lives),
    "classic: OffsetFetch": (classic_member, "OffsetFetch", lives),
    "classic: OffsetCommit": (classic_member, "OffsetCommit", commits),
}


def count(r: Reading, api: str = "") -> int:
    """Return the number of requests; ApiVersions, with which each connection begins, only if it is `api`."""
    return sum(each.api == api or each.api != "ApiVersions" for each in r.broker.core.requests)


def check_rates(rates: dict[object, int]) -> None:
    assert {str(code): number for code, number in rates.items() if number > MOST} == {}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_same_error_for_ever_costs_few_requests(case: str) -> None:
    make, api, act = CASES[case]
    rates: dict[object, int] = {}
    for code in CODES:
        r = make()
        r.faults.intercept(api, lambda request, code=code: code)
        act(r)
        rates[code] = count(r, api)
        assert rates[code], "it was asked"
    check_rates(rates)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith("reader: Api")])
def test_error_every_other_time_costs_few_requests(case: str) -> None:
    """A success in between is no progress: what follows from it is refused again."""
    make, api, act = CASES[case]
    rates: dict[object, int] = {}
    for code in KINDS_OF_CODES:
        r, answers = make(), cycle([None, code])
        r.faults.intercept(api, lambda request, answers=answers: next(answers))
        act(r)
        rates[code] = count(r)
    check_rates(rates)


class Endless(list[ErrorCode]):
    """Refusals that do not end."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__([code])

    def pop(self, index: Any = 0) -> ErrorCode:
        return self[0]


@pytest.mark.slow
@pytest.mark.parametrize("what", ["beat_codes", "session_codes", "part_codes", "acknowledge_codes"])
def test_same_error_for_ever_of_a_share_group_costs_few_requests(what: str) -> None:
    rates: dict[object, int] = {}
    for code in CODES[: -len(UNKNOWN_CODES)]:
        r = ShareReading()
        setattr(r, what, Endless(ErrorCode(code)))
        shares(r)
        rates[code] = count(r)
    check_rates(rates)


# Answers that are no errors by their codes, but move a reader back to where it was


def fetched(r: Reading, **fields: Any) -> Any:
    kind = messages.FetchResponse
    part = kind.PartitionData(high_watermark=2, log_start_offset=0, records=b"", **fields)
    topic = kind.FetchableTopicResponse(topic_id=r.broker.topic_id(), partitions=[part])
    return kind(responses=[topic])


_Part = messages.FetchResponse
LIES: dict[str, dict[str, Any]] = {
    "preferred replica is the leader": {"preferred_read_replica": 0},
    "preferred replica is another node": {"preferred_read_replica": 1},
    "preferred replica is unknown": {"preferred_read_replica": 99},
    "epoch diverges at the position": {"diverging_epoch": _Part.EpochEndOffset(epoch=0, end_offset=1)},
    "epoch diverges before": {"diverging_epoch": _Part.EpochEndOffset(epoch=0, end_offset=0)},
    "epoch diverges everywhere": {"diverging_epoch": _Part.EpochEndOffset(epoch=-7, end_offset=-7)},
    "batch of 2 GiB": {"records": b"\0" * 8 + b"\x7f\xff\xff\xff" + b"\0" * 49},
    "batch that never grows": {"records": b"\0" * 8 + b"\0\0\1\0" + b"\0" * 49},
    "batch without a length": {"records": b"\0" * 61},
}


@pytest.mark.slow
@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("node_count", [1, 2])
def test_answer_without_progress_costs_few_requests(lie: str, node_count: int) -> None:
    r = Reading(nodes=node_count, **EARLIEST_RESET)
    r.put(b"a", b"b")
    r.faults.intercept("Fetch", lambda request: fetched(r, **{"records": b"", **LIES[lie]}))
    r.read(start=Start(1))
    r.advance(SECONDS * 1000)
    check_rates({lie: count(r)})
    r.faults.intercept("Fetch", None)
    r.advance(3000)
    assert r.errors or r.offsets()[-1:] == [1], "it goes on when the lies are over"


@pytest.mark.parametrize("code", ["FETCH_SESSION_ID_NOT_FOUND", "INVALID_FETCH_SESSION_EPOCH"])
def test_sessions_that_never_last_cost_few_requests(code: str) -> None:
    r = Reading(**EARLIEST_RESET)
    r.put(b"a", b"b")

    def answer(request: Any) -> Any:
        if request.session_epoch == 0:
            opened = fetched(r)
            opened.session_id = 7
            return opened
        return messages.FetchResponse(error_code=ErrorCode[code])

    r.faults.intercept("Fetch", answer)
    r.read(start=Start(1))
    r.advance(SECONDS * 1000)
    check_rates({code: count(r)})


def test_partition_that_answers_leave_out_costs_few_requests() -> None:
    r = Reading(**EARLIEST_RESET)
    r.put(b"a", b"b")
    r.faults.intercept("Fetch", lambda request: messages.FetchResponse())
    r.read(start=Start(1))
    r.advance(SECONDS * 1000)
    check_rates({"left out": count(r)})
    r.faults.intercept("Fetch", None)
    r.advance(3000)
    assert r.offsets() == [1]


@pytest.mark.parametrize("interval_ms", [-1, 0, 1])
def test_heartbeat_interval_has_a_minimum(interval_ms: int) -> None:
    r = GroupReading()
    r.coordinator.interval_ms = interval_ms
    r.coordinator.give(FIRST)
    lives(r)
    assert len(r.coordinator.heartbeats) <= MOST


def test_alternating_leaders_cost_few_requests() -> None:
    """Each names the other one as a newer leader (KIP-951), which is asked at once."""
    r = Reading(nodes=2, **EARLIEST_RESET)
    r.put(b"a", b"b")
    epochs = iter(range(100, 10**6))
    leaders = cycle([1, 0])

    def answer(request: Any) -> Any:
        kind = messages.FetchResponse
        leader = next(leaders)
        response = fetched(
            r,
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            current_leader=kind.LeaderIdAndEpoch(leader_id=leader, leader_epoch=next(epochs)),
        )
        response.node_endpoints = [kind.NodeEndpoint(node_id=leader, host="a", port=9092)]
        return response

    r.faults.intercept("Fetch", answer)
    r.read(start=Start(1))
    r.advance(SECONDS * 1000)
    check_rates({"leaders": count(r)})


# Values that no coordinator gives


def with_partitions(response: Any) -> Any:
    for topic in response.assignment.topic_partitions:
        topic.partitions = [-5]
    return response


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_partition_below_0_ends_the_membership(kind: str) -> None:
    r: Any = GroupReading() if kind == "consumer" else ShareReading()
    api = "ConsumerGroupHeartbeat" if kind == "consumer" else "ShareGroupHeartbeat"
    answer = r.coordinator.heartbeat if kind == "consumer" else r._heartbeat
    if kind == "consumer":
        r.coordinator.give(FIRST)
    r.faults.intercept(api, lambda request: with_partitions(answer(request)))
    (r.subscribe if kind == "consumer" else r.join)()
    r.advance(2000)
    error = r.engine.membership_error
    assert isinstance(error, errors.ProtocolError)
    assert "partition -5 was assigned" in str(error)


@pytest.mark.parametrize(("field", "value"), [("generation_id", -5), ("member_id", "")])
def test_generation_of_no_member_ends_the_membership(field: str, value: Any) -> None:
    r = classic_member()
    kind = messages.JoinGroupResponse
    fields = {"generation_id": 1, "member_id": "m", "leader": "n", "protocol_name": "range", field: value}
    r.faults.intercept("JoinGroup", lambda request: kind(**fields))
    lives(r)
    assert isinstance(r.engine.membership_error, errors.ProtocolError)
    assert "which is impossible" in str(r.engine.membership_error)


def test_assignment_below_partition_0_ends_a_classic_membership() -> None:
    r = classic_member()
    data = encode_assignment([TopicPartition(TOPIC, -5)])
    r.faults.intercept("SyncGroup", lambda request: messages.SyncGroupResponse(assignment=data))
    lives(r)
    assert isinstance(r.engine.membership_error, errors.ProtocolError)


# What is logged


@pytest.mark.parametrize(
    ("make", "api", "code"),
    [
        (consumer_member, "ConsumerGroupHeartbeat", "UNKNOWN_MEMBER_ID"),
        (classic_member, "Heartbeat", "UNKNOWN_MEMBER_ID"),
        (classic_member, "Heartbeat", "REBALANCE_IN_PROGRESS"),
        (classic_member, "SyncGroup", "REBALANCE_IN_PROGRESS"),
        (classic_member, "JoinGroup", "UNKNOWN_MEMBER_ID"),
    ],
)
def test_same_refusal_is_logged_once(
    make: Callable[[], Any], api: str, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    r, answers = make(), cycle([None, ErrorCode[code]])
    r.faults.intercept(api, lambda request: ErrorCode[code] if r.engine.owned else next(answers))
    caplog.set_level("INFO", "kbatch")
    lives(r)
    lives(r)
    said = Counter(re.sub(r"\d+", "#", each.getMessage()) for each in caplog.records)
    assert max(said.values()) <= 2, said
