"""The engine's Produce requests, and which answers their `read` takes: those that accept every batch."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch._native.send.in_flight import InFlight, PartitionState
from kbatch._native.send.produce_wire import AllAccepted, ProduceFrame
from kbatch.errors import ProtocolError, UnsupportedVersionError
from kbatch.protocol import codec, messages
from tests.support.accumulating import accumulator, data_of, drained, put

NOW_NS = 1_000_000
TOPIC_ID = b"t" * 16
VERSION = 13
Answer = messages.ProduceResponse.PartitionProduceResponse
MESSAGE = messages.ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1500)


def unwritten() -> ProduceFrame:
    """Return a request with a batch of each of two partitions."""
    records = accumulator(2, batch_size=20_000)
    put(records, b"small", partition=0)
    put(records, b"x" * 10_000, partition=1)
    frame = ProduceFrame(1, NOW_NS)
    frame.entries = [InFlight(PartitionState("t", each.partition), each, 0) for each in drained(records)]
    frame.topic_ids = dict.fromkeys(frame.group_by_topic(), TOPIC_ID)
    return frame


def written() -> ProduceFrame:
    frame = unwritten()
    frame.write(MESSAGE, VERSION, 1, "client")
    return frame


def accepted(partition: int, offset: int = 100) -> Any:
    return Answer(index=partition, error_code=0, base_offset=offset + partition, log_append_time_ms=-1)


def read(frame: ProduceFrame, *answers: Any, **values: Any) -> AllAccepted | None:
    """Let the request read an answer with these partitions."""
    kind = messages.ProduceResponse
    topic = kind.TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=list(answers))
    message = kind(responses=[topic], **values)
    return frame.read(b"".join(codec.encode_response(message, VERSION, 1))[4:])


def test_an_answer_names_its_batches_and_their_offsets() -> None:
    frame = written()
    answer = read(frame, accepted(1), accepted(0), throttle_time_ms=70)
    assert answer is not None and answer.throttle_time_ms == 70
    assert answer.batches() == [(frame.entries[1], 101, -1), (frame.entries[0], 100, -1)]
    frame.entries.clear()
    with pytest.raises(ValueError, match="must stay"):
        answer.batches()
    with pytest.raises(TypeError, match="comes from"):
        AllAccepted()


ODD_ANSWERS: dict[str, list[Any]] = {
    "one refused": [accepted(0), Answer(index=1, error_code=6)],
    "one missing": [accepted(0)],
    "one twice": [accepted(0), accepted(0)],
    "one twice and the other": [accepted(0), accepted(1), accepted(0)],
    "one too many": [accepted(0), accepted(1), accepted(2)],
    "none": [],
    "a message": [accepted(0), Answer(index=1, error_message="well")],
    "an error of a record": [
        accepted(0),
        Answer(index=1, record_errors=[messages.ProduceResponse.BatchIndexAndErrorMessage(batch_index=0)]),
    ],
    "a leader": [
        accepted(0),
        Answer(index=1, current_leader=messages.ProduceResponse.LeaderIdAndEpoch(leader_id=2)),
    ],
}


@pytest.mark.parametrize("odd", ODD_ANSWERS)
def test_unusual_answers_fall_back_to_codec(odd: str) -> None:
    assert read(written(), *ODD_ANSWERS[odd]) is None


# Bytes


def test_large_batches_are_views_of_their_memory() -> None:
    frame = unwritten()
    small, large = (data_of(entry.batch) for entry in frame.entries)
    head, body, end = frame.write(MESSAGE, VERSION, 1, "client")
    assert (type(head), type(body), type(end)) == (bytes, memoryview, bytes)
    assert small in bytes(head) and bytes(head).endswith(large[:61]) and bytes(body) == large[61:]
    assert frame.entries[1].batch.user_count == 2
    assert isinstance(body, memoryview)
    body.release()
    assert frame.entries[1].batch.user_count == 1


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"version": 2}, UnsupportedVersionError, "version must be 3 to 13, got 2"),
        ({"version": 14}, UnsupportedVersionError, "got 14"),
        ({"client_id": "c" * 32_768}, ProtocolError, "client_id must have at most 32767 bytes, got 32768"),
        ({"topic_id": bytes(15)}, ProtocolError, "topic 't' must have 16 bytes"),
    ],
)
def test_what_the_protocol_cannot_hold_is_refused(
    change: dict[str, Any], error: type[Exception], text: str
) -> None:
    frame = unwritten()
    values: dict[str, Any] = {"version": VERSION, "client_id": "client", "topic_id": TOPIC_ID} | change
    frame.topic_ids = {"t": values["topic_id"]}
    with pytest.raises(error, match=text):
        frame.write(MESSAGE, values["version"], 1, values["client_id"])


def test_a_request_that_was_not_written_reads_nothing() -> None:
    assert ProduceFrame(1, NOW_NS).read(bytes(100)) is None
