"""A whole request: admitted and acknowledged at once if all is usual, and otherwise left alone."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch._native.batch.delivery import Completion
from kbatch._native.batch.producer_batch import ProducerBatch
from kbatch._native.send.in_flight import (
    NO_IDENTITY,
    OPEN,
    UNKNOWN_NS,
    Identity,
    InFlight,
    PartitionState,
)
from kbatch._native.send.produce_wire import AllAccepted, ProduceFrame
from kbatch.errors import ProtocolError, UnsupportedVersionError
from kbatch.protocol import codec, messages
from tests.support.accumulating import accumulator, data_of, drained, put

IDENTITY = Identity(7, 3)
NOW_NS = 1_000_000
OLDEST_NS = 900_000  # what was known then is known no more
TOPIC_ID = b"t" * 16
VERSION = 13
Answer = messages.ProduceResponse.PartitionProduceResponse
MESSAGE = messages.ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1500)


class Request:
    """A request with a batch of each of two partitions, of which brokers have state."""

    def __init__(self, sequence: int = 0) -> None:
        self.records = accumulator(2)
        self.states = {("t", partition): PartitionState("t", partition) for partition in range(2)}
        for state in self.states.values():
            state.restart(IDENTITY, sequence)
            state.begin_leader(1, 0)
            state.known_ns = OLDEST_NS + 1
        self.batches = self.next_batches()
        self.completed: list[Completion] = []

    def next_batches(self) -> list[ProducerBatch]:
        for partition in range(2):
            put(self.records, partition=partition)
        return drained(self.records)

    def admit(self, identity: Identity | None = IDENTITY, max_in_flight: int = 5) -> ProduceFrame | None:
        """Admit the batches to a request; None if they are left alone."""
        frame = ProduceFrame(1, NOW_NS)
        if frame.admit_new(self.batches, self.states, identity, max_in_flight, OLDEST_NS):
            return frame
        assert not frame.entries
        return None

    def send(self, identity: Identity | None = IDENTITY, max_in_flight: int = 5) -> ProduceFrame:
        """Return a request with the batches, written."""
        frame = self.admit(identity, max_in_flight)
        assert frame is not None
        frame.topic_ids = dict.fromkeys(frame.group_by_topic(), TOPIC_ID)
        frame.write(MESSAGE, VERSION, 1, "client")
        return frame

    def acknowledge(
        self,
        answer: AllAccepted | None,
        identity: Identity | None = IDENTITY,
        max_in_flight: int = 5,
    ) -> bool:
        assert answer is not None
        return answer.acknowledge(identity, max_in_flight, self.completed, OLDEST_NS)

    @property
    def is_untouched(self) -> bool:
        return not any(
            state.in_flight or state.gate != OPEN or state.next_counter for state in self.states.values()
        )


def accepted(partition: int, offset: int = 100) -> Any:
    return Answer(index=partition, error_code=0, base_offset=offset + partition, log_append_time_ms=-1)


def read(frame: ProduceFrame, *answers: Any, **values: Any) -> AllAccepted | None:
    """Let the request read an answer with these partitions."""
    kind = messages.ProduceResponse
    topic = kind.TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=list(answers))
    message = kind(responses=[topic], **values)
    return frame.read(b"".join(codec.encode_response(message, VERSION, 1))[4:])


def test_new_batches_get_next_sequences_after_retried_ones() -> None:
    request = Request(sequence=2**31 - 1)
    attempt = request.send()
    first = attempt.entries
    assert [entry.state.key for entry in first] == [("t", 0), ("t", 1)]
    for entry in first:
        assert entry.batch.base_sequence == 2**31 - 1
        assert (entry.node_id, entry.sent_ns) == (1, NOW_NS)
        assert (entry.attempt, entry.is_in_flight, entry.batch.was_sent) == (attempt, True, True)
        assert entry.state.gate == (False, False, entry.number)
        assert entry.state.in_flight == [entry]
    request.batches = request.next_batches()
    second = request.send().entries
    assert {entry.batch.base_sequence for entry in second} == {0}
    assert {entry.counter for entry in second} == {2**31}
    assert {entry.state.gate[2] for entry in second} == {0}


@pytest.mark.parametrize("odd", ["identity", "partition", "epoch", "attempts", "sequence"])
def test_a_request_with_an_unusual_batch_is_left_alone(odd: str) -> None:
    request = Request()
    identity = IDENTITY
    last = request.batches[-1]
    if odd == "identity":
        identity = NO_IDENTITY
        for state in request.states.values():
            state.restart(NO_IDENTITY, 0)
    elif odd == "partition":
        del request.states["t", 1]
    elif odd == "epoch":
        request.states["t", 1].restart(Identity(7, 2), 0)
    elif odd == "attempts":
        request.records.reenqueue(last, 0)
        request.batches = [*request.batches[:-1], *drained(request.records, now_ns=2**40)]
        assert request.batches == [request.batches[0], last]
    else:
        last.stamp(7, 3, 5)
    assert request.admit(identity) is None
    assert request.is_untouched
    assert not request.batches[0].was_sent
    assert not request.batches[0].has_sequence


@pytest.mark.parametrize("max_in_flight", [1, 5])
def test_batches_without_sequences_mute_if_order_is_kept(max_in_flight: int) -> None:
    request = Request()
    for state in request.states.values():
        state.restart(NO_IDENTITY, 0)
    attempt = request.send(None, max_in_flight)
    for entry in attempt.entries:
        assert (entry.counter, entry.node_id, entry.is_in_flight) == (-1, 1, True)
        assert (entry.batch.has_sequence, entry.batch.was_sent) == (False, True)
        assert entry.state.gate == (max_in_flight == 1, False, -1)
    assert request.acknowledge(attempt.unanswered(), None, max_in_flight)
    assert [completion.outcome for completion in request.completed] == ["succeeded"] * 2
    for state in request.states.values():
        assert (state.in_flight, state.gate, state.acked_counter) == ([], OPEN, -1)


def test_bytes_in_use_keep_a_batch_from_new_requests() -> None:
    request = Request()
    views = request.batches[1].buffers()
    assert request.admit(None) is None
    for view in views:
        view.release()
    assert request.admit(None) is not None


def test_an_answer_that_says_yes_to_all_completes_them() -> None:
    request = Request()
    answer = read(request.send(), accepted(1), accepted(0), throttle_time_ms=70)
    assert answer is not None and answer.throttle_time_ms == 70
    assert request.acknowledge(answer)
    assert [completion.outcome for completion in request.completed] == ["succeeded"] * 2
    assert [completion.partition for completion in request.completed] == [1, 0]
    for state in request.states.values():
        assert (state.in_flight, state.gate, state.acked_counter) == ([], OPEN, 0)


def test_an_answer_names_its_batches_and_their_offsets() -> None:
    frame = Request().send()
    answer = read(frame, accepted(1), accepted(0))
    assert answer is not None
    assert answer.batches() == [(frame.entries[1], 101, -1), (frame.entries[0], 100, -1)]
    frame.entries.clear()
    with pytest.raises(ValueError, match="must stay"):
        answer.batches()
    with pytest.raises(TypeError, match="comes from"):
        AllAccepted()


def test_the_first_answer_makes_a_partition_known() -> None:
    request = Request()
    for state in request.states.values():
        state.doubt_leader()
    attempt = request.send()
    assert {state.gate[1] for state in request.states.values()} == {True}  # the first travels alone
    assert request.acknowledge(read(attempt, accepted(0), accepted(1)))
    for state in request.states.values():
        assert (state.known_ns, state.gate) == (NOW_NS, OPEN)


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
def test_an_answer_that_is_not_yes_to_all_is_left_alone(odd: str) -> None:
    assert read(Request().send(), *ODD_ANSWERS[odd]) is None


@pytest.mark.parametrize("odd", ["one held", "one given up", "a hole"])
def test_an_answer_for_a_broken_partition_is_left_alone(odd: str) -> None:
    request = Request()
    attempt = request.send()
    state = request.states["t", 1]
    gates = [each.gate for each in request.states.values()]
    if odd == "one held":
        state.in_flight[0].is_set_aside = True
    elif odd == "one given up":
        state.in_flight[0].batch.fail(TimeoutError())
    else:
        state.hole_end = 10
    assert not request.acknowledge(read(attempt, accepted(0), accepted(1)))
    assert not request.completed
    assert [len(each.in_flight) for each in request.states.values()] == [1, 1]
    assert [each.gate for each in request.states.values()] == gates
    assert request.batches[0].state == "in_flight"


# Bytes


def test_large_batches_are_views_of_their_memory() -> None:
    records = accumulator(2, batch_size=20_000)
    put(records, b"small", partition=0)
    put(records, b"x" * 10_000, partition=1)
    frame = ProduceFrame(1, NOW_NS)
    frame.entries = [InFlight(PartitionState("t", each.partition), each, 0) for each in drained(records)]
    frame.topic_ids = {"t": TOPIC_ID}
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
    frame = Request().send()
    values: dict[str, Any] = {"version": VERSION, "client_id": "client", "topic_id": TOPIC_ID} | change
    frame.topic_ids = {"t": values["topic_id"]}
    with pytest.raises(error, match=text):
        frame.write(MESSAGE, values["version"], 1, values["client_id"])


def test_a_request_that_was_not_written_reads_nothing() -> None:
    assert ProduceFrame(1, NOW_NS).read(bytes(100)) is None


# Forgetful leaders


@pytest.mark.parametrize("known_ns", [OLDEST_NS, UNKNOWN_NS])
def test_second_batch_to_forgetful_leader_is_left_alone(known_ns: int) -> None:
    """The gate was open when it was set."""
    request = Request()
    request.send()
    request.batches = request.next_batches()
    state = request.states["t", 1]
    state.known_ns = known_ns
    assert request.admit() is None
    assert [len(each.in_flight) for each in request.states.values()] == [1, 1]
    state.known_ns = OLDEST_NS + 1
    assert request.admit() is not None


@pytest.mark.parametrize("is_known", [True, False])
def test_a_batch_is_proved_by_a_later_one_if_the_leader_is_known(is_known: bool) -> None:
    request = Request()
    first = request.send().entries
    request.batches = request.next_batches()
    second = request.send()
    request.batches = request.next_batches()
    third = request.send()
    if not is_known:
        for state in request.states.values():
            state.doubt_leader()
    assert request.acknowledge(read(second, accepted(0), accepted(1)))
    assert {entry.is_proved for entry in first} == {is_known}
    for state in request.states.values():
        assert state.gate[1]  # nothing new follows a passed batch
    assert request.acknowledge(read(third, accepted(0), accepted(1)))
    assert {entry.is_proved for entry in first} == {is_known}


def test_acknowledgement_of_former_leader_proves_no_new_leader() -> None:
    request = Request()
    attempt = request.send()
    for state in request.states.values():
        state.begin_leader(1, 7)  # the same node, elected again
    assert request.acknowledge(read(attempt, accepted(0), accepted(1)))
    for state in request.states.values():
        assert (state.acked_counter, state.known_ns) == (0, UNKNOWN_NS)


def test_topic_made_anew_ends_what_was_proved() -> None:
    """The later batch went with the old topic; it proves nothing about the new one."""
    request = Request()
    first = request.send().entries
    for state in request.states.values():
        state.begin_topic(b"a" * 16)
    request.batches = request.next_batches()
    assert request.acknowledge(read(request.send(), accepted(0), accepted(1)))
    assert {entry.is_proved for entry in first} == {True}
    for state in request.states.values():
        state.begin_topic(b"b" * 16)
    assert {entry.is_proved for entry in first} == {False}
