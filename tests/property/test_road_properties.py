"""A lent connection and the engine take the same answer alike, however its bytes come; what the road does not
take, the engine gets unchanged.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch._native.fetch.fetch_answer import read_fetch_answer
from kbatch.protocol import codec
from kbatch.protocol.messages import FetchResponse
from tests.oracle.partition_log import PartitionLog, random_log
from tests.property.test_codec_properties import deterministic
from tests.support.roads import CORRELATION_ID, TOPIC_ID, VERSION, Judge, Reader, receive, rows_of

PARTITIONS = 3
# What an answer may have of a partition: what is usual, and what the engine must judge.
USUAL, UNUSUAL = ("records", "nothing", "alien"), ("left out", "error", "diverging", "replica", "broken")
# Most answers have one unusual part at most.
kinds_of_parts = st.lists(st.sampled_from(USUAL), min_size=PARTITIONS, max_size=PARTITIONS).flatmap(
    lambda usual: st.just(usual) | st.sampled_from(UNUSUAL).map(lambda one: [*usual[1:], one])
)


def part_of(kind: str, number: int, log: PartitionLog, offset: int, *, committed: bool) -> Any:
    records = log.fetched(offset) if kind in ("records", "broken", "alien") else b""
    if kind == "broken":
        records = bytes(20) + records
    part = FetchResponse.PartitionData(
        partition_index=number + 100 * (kind == "alien"),
        error_code=6 if kind == "error" else 0,
        high_watermark=log.end_offset,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=0,
        aborted_transactions=[
            FetchResponse.AbortedTransaction(producer_id=producer_id, first_offset=first)
            for producer_id, first in log.aborted(offset)
        ]
        if committed
        else None,
        preferred_read_replica=7 if kind == "replica" else -1,
        records=records,
    )
    if kind == "diverging":
        part.diverging_epoch = type(part.diverging_epoch)(epoch=1, end_offset=2)
    return part


@deterministic
@given(
    seed=st.integers(0, 10**6),
    kinds=kinds_of_parts,
    committed=st.booleans(),
    is_open=st.booleans(),
    cuts=st.lists(st.integers(1, 400), min_size=1, max_size=6),
)
def test_road_and_engine_take_the_same_answer_alike(
    seed: int, kinds: list[str], committed: bool, is_open: bool, cuts: list[int]
) -> None:
    choices = random.Random(seed)
    logs = [random_log(choices.randrange(10**6), batches=4) for _ in kinds]
    offsets = [choices.randrange(log.end_offset + 1) for log in logs]
    parts = [
        part_of(kind, number, log, offset, committed=committed)
        for number, (kind, log, offset) in enumerate(zip(kinds, logs, offsets, strict=True))
        if kind != "left out"
    ]
    topic = FetchResponse.FetchableTopicResponse(topic="", topic_id=TOPIC_ID, partitions=parts)
    message = FetchResponse(session_id=9, responses=[topic])
    sent = b"".join(codec.encode_response(message, VERSION, CORRELATION_ID))
    lent = Reader(offsets, committed=committed, is_open=is_open)
    before = lent.seen()
    found, left = receive(lent, sent, cuts)
    (back,) = lent.road.take_back()
    if back.requests:  # it is the engine's, as it came
        assert (back.received + left, found, lent.seen()) == (sent, [], before)
        return
    assert not back.received and not back.unsent
    judged = Reader(offsets, committed=committed, is_open=is_open)
    answer = read_fetch_answer(sent[4:], VERSION)
    assert answer is not None
    judged.session.handle_answer(9)
    expected = judged.road.take(judged.session, answer, Judge(), 0)
    judged.session.is_in_flight = False
    assert rows_of(found) == rows_of(expected)
    assert lent.seen() == judged.seen()
    assert (lent.session.session_id, lent.session.epoch) == (judged.session.session_id, judged.session.epoch)
    assert set(kinds) <= {"records", "nothing", "left out", "alien"}
    assert is_open or "left out" not in kinds


def test_usual_answers_are_taken() -> None:
    log = next(log for log in map(random_log, range(100)) if log.end_offset > 3)
    reader = Reader([0], committed=False, is_open=True)
    topic = FetchResponse.FetchableTopicResponse(
        topic="", topic_id=TOPIC_ID, partitions=[part_of("records", 0, log, 0, committed=False)]
    )
    sent = b"".join(
        codec.encode_response(FetchResponse(session_id=9, responses=[topic]), VERSION, CORRELATION_ID)
    )
    (fetched,), _ = receive(reader, sent, [len(sent)])
    assert fetched.next_offset == reader.states[0].fetch_offset > 0
    assert reader.states[0].backlog_bytes == fetched.charged_bytes > 0
    fetched.release()
    assert reader.states[0].backlog_bytes == 0


@pytest.mark.parametrize("frame", [b"\0\0\0\3abc", b"\x7f\0\0\0", b"\xff\xff\xff\xff"])
def test_impossible_frames_are_the_engines(frame: bytes) -> None:
    reader = Reader([0], committed=False, is_open=True)
    found, left = receive(reader, frame + b"and what follows", [3])
    (back,) = reader.road.take_back()
    assert (found, back.received + left) == ([], frame + b"and what follows")
