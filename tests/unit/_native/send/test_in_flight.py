"""Batches of a whole request: numbered and acknowledged where all is as usual, and otherwise left alone."""

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
    acknowledge_all,
    number_new,
)
from kbatch.core.producer.produce_attempt import ProduceAttempt
from kbatch.protocol import messages
from tests.support.accumulating import accumulator, drained, put

IDENTITY = Identity(7, 3)
NOW_NS = 1_000_000
OLDEST_NS = 900_000  # what was known then is known no more
Entries = dict[tuple[str, int], InFlight]
Answer = messages.ProduceResponse.PartitionProduceResponse


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
        self.attempt = ProduceAttempt(1, NOW_NS)
        self.completed: list[Completion] = []

    def next_batches(self) -> list[ProducerBatch]:
        for partition in range(2):
            put(self.records, partition=partition)
        return drained(self.records)

    def number(self, identity: Identity = IDENTITY) -> Entries | None:
        return number_new(self.batches, self.states, identity, 5, self.attempt, OLDEST_NS)

    def entries(self) -> Entries:
        entries = self.number()
        assert entries is not None
        return entries

    def acknowledge(self, entries: Entries, *answers: Any) -> bool:
        topic = messages.ProduceResponse.TopicProduceResponse(
            topic_id=b"t" * 16, partition_responses=list(answers)
        )
        names = {b"t" * 16: "t"}
        return acknowledge_all(entries, [topic], names, IDENTITY, 5, self.completed, OLDEST_NS)

    @property
    def is_untouched(self) -> bool:
        return not any(
            state.in_flight or state.gate != OPEN or state.next_counter for state in self.states.values()
        )


def accepted(partition: int, offset: int = 100) -> Any:
    return Answer(index=partition, error_code=0, base_offset=offset + partition, log_append_time_ms=-1)


def test_new_batches_get_next_sequences_after_retried_ones() -> None:
    request = Request(sequence=2**31 - 1)
    first = request.entries()
    assert list(first) == [("t", 0), ("t", 1)]
    for entry in first.values():
        assert entry.batch.base_sequence == 2**31 - 1
        assert (entry.node_id, entry.sent_ns) == (1, NOW_NS)
        assert (entry.attempt, entry.is_in_flight, entry.batch.was_sent) == (request.attempt, True, True)
        assert entry.state.gate == (False, False, entry.number)
        assert entry.state.in_flight == [entry]
    request.batches = request.next_batches()
    second = request.entries()
    assert {entry.batch.base_sequence for entry in second.values()} == {0}
    assert {entry.counter for entry in second.values()} == {2**31}
    assert {entry.state.gate[2] for entry in second.values()} == {0}


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
    assert request.number(identity) is None
    assert request.is_untouched
    assert not request.batches[0].was_sent
    assert not request.batches[0].has_sequence


def test_an_answer_that_says_yes_to_all_completes_them() -> None:
    request = Request()
    entries = request.entries()
    assert request.acknowledge(entries, accepted(1), accepted(0))
    assert [completion.outcome for completion in request.completed] == ["succeeded"] * 2
    assert [completion.partition for completion in request.completed] == [1, 0]
    for state in request.states.values():
        assert (state.in_flight, state.gate, state.acked_counter) == ([], OPEN, 0)


def test_the_first_answer_makes_a_partition_known() -> None:
    request = Request()
    for state in request.states.values():
        state.doubt_leader()
    entries = request.entries()
    assert {state.gate[1] for state in request.states.values()} == {True}  # the first travels alone
    assert request.acknowledge(entries, accepted(0), accepted(1))
    for state in request.states.values():
        assert (state.known_ns, state.gate) == (NOW_NS, OPEN)


ODD_ANSWERS = {
    "one refused": lambda: [accepted(0), Answer(index=1, error_code=6)],
    "one missing": lambda: [accepted(0)],
    "one twice": lambda: [accepted(0), accepted(0)],
    "one too many": lambda: [accepted(0), accepted(1), accepted(2)],
    "none": lambda: [],
}


@pytest.mark.parametrize("odd", [*ODD_ANSWERS, "one held", "one given up", "a hole"])
def test_an_answer_that_is_not_yes_to_all_is_left_alone(odd: str) -> None:
    request = Request()
    entries = request.entries()
    state = request.states["t", 1]
    gates = [each.gate for each in request.states.values()]
    if odd == "one held":
        state.in_flight[0].is_set_aside = True
    elif odd == "one given up":
        state.in_flight[0].batch.fail(TimeoutError())
    elif odd == "a hole":
        state.hole_end = 10
    assert not request.acknowledge(entries, *ODD_ANSWERS.get(odd, lambda: [accepted(0), accepted(1)])())
    assert not request.completed
    assert [len(each.in_flight) for each in request.states.values()] == [1, 1]
    assert [each.gate for each in request.states.values()] == gates
    assert request.batches[0].state == "in_flight"


# Forgetful leaders


@pytest.mark.parametrize("known_ns", [OLDEST_NS, UNKNOWN_NS])
def test_second_batch_to_forgetful_leader_is_left_alone(known_ns: int) -> None:
    """The gate was open when it was set."""
    request = Request()
    request.entries()
    request.batches = request.next_batches()
    state = request.states["t", 1]
    state.known_ns = known_ns
    assert request.number() is None
    assert [len(each.in_flight) for each in request.states.values()] == [1, 1]
    state.known_ns = OLDEST_NS + 1
    assert request.number() is not None


@pytest.mark.parametrize("is_known", [True, False])
def test_a_batch_is_proved_by_a_later_one_if_the_leader_is_known(is_known: bool) -> None:
    request = Request()
    first = request.entries()
    request.batches = request.next_batches()
    second = request.entries()
    request.batches = request.next_batches()
    third = request.entries()
    if not is_known:
        for state in request.states.values():
            state.doubt_leader()
    assert request.acknowledge(second, accepted(0), accepted(1))
    assert {entry.is_proved for entry in first.values()} == {is_known}
    for state in request.states.values():
        assert state.gate[1]  # nothing new follows a passed batch
    assert request.acknowledge(third, accepted(0), accepted(1))
    assert {entry.is_proved for entry in first.values()} == {is_known}


def test_another_leader_or_epoch_ends_what_is_known() -> None:
    request = Request()
    state = request.states["t", 0]
    state.begin_leader(1, 0)
    assert state.is_known_since(OLDEST_NS)
    for leader, epoch in ((1, 1), (2, 2), (-1, -1)):
        state.known_ns = NOW_NS
        state.begin_leader(leader, epoch)
        assert not state.is_known_since(OLDEST_NS)


def test_acknowledgement_of_former_leader_proves_no_new_leader() -> None:
    request = Request()
    entries = request.entries()
    for state in request.states.values():
        state.begin_leader(1, 7)  # the same node, elected again
    assert request.acknowledge(entries, accepted(0), accepted(1))
    for state in request.states.values():
        assert (state.acked_counter, state.known_ns) == (0, UNKNOWN_NS)


def test_a_topic_made_anew_ends_what_is_known() -> None:
    request = Request()
    (state, _) = request.states.values()
    for topic_id, is_known in ((b"a" * 16, True), (b"a" * 16, True), (b"b" * 16, False)):
        state.begin_topic(topic_id)
        assert state.is_known_since(OLDEST_NS) == is_known


def test_topic_made_anew_ends_what_was_proved() -> None:
    """The later batch went with the old topic; it proves nothing about the new one."""
    request = Request()
    first = request.entries()
    for state in request.states.values():
        state.begin_topic(b"a" * 16)
    request.batches = request.next_batches()
    assert request.acknowledge(request.entries(), accepted(0), accepted(1))
    assert {entry.is_proved for entry in first.values()} == {True}
    for state in request.states.values():
        state.begin_topic(b"b" * 16)
    assert {entry.is_proved for entry in first.values()} == {False}
