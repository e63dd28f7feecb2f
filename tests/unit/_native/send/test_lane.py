"""The lane: usual batches and answers go through it, and everything else is left to the engine."""

from __future__ import annotations

import itertools
import random
import select
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch._native.batch.delivery import Completion
from kbatch._native.batch.producer_batch import ProducerBatch
from kbatch._native.io.sensor import RequestSensors, Sensor, SensorGroup
from kbatch._native.io.waker import Waker
from kbatch._native.send.cluster_view import ClusterView
from kbatch._native.send.in_flight import Identity, InFlight, PartitionState
from kbatch._native.send.lane import CAN_WAIT, Lane, LaneRequest
from kbatch._native.send.produce_wire import ProduceFrame
from kbatch._native.send.sealing import SealPolicy
from kbatch.protocol import codec, messages
from kbatch.protocol.messages import ProduceRequest
from tests.support.accumulating import MS, accumulator, drained, partition_of, put

IDENTITY = Identity(7, 3)
NODE = 1
CONNECTION = 42
VERSION = 13
TOPIC_ID = b"t" * 16
NOW_NS = 1_000 * MS
NEVER_NS = 2**63 - 1
ProduceResponse = messages.ProduceResponse


def sensor() -> Sensor:
    return Sensor(window_ms=30_000, num_samples=2)


class Loan:
    """A lane with a connection to the node that leads all partitions, and what came of its requests."""

    def __init__(
        self,
        partitions: int | list[int] = 2,
        max_in_flight: int = 5,
        acks: int = -1,
        transactional_id: str | None = None,
        **settings: Any,
    ) -> None:
        policy = SealPolicy.of(settings.get("compression", "none"))
        self.records = accumulator(partitions, **{"seal_policy": policy} | settings)
        self.acknowledged: list[ProducerBatch] = []
        self.completed: list[Completion] = []
        self.of_node = {name: sensor() for name in ("sent", "written", "received", "answered", "latency")}
        self.lane = Lane(
            self.records,
            client_id="client",
            transactional_id=transactional_id,
            acks=acks,
            request_timeout_ms=1500,
            max_in_flight=max_in_flight,
            max_request_size=1 << 20,
            idle_ns=300_000 * MS,
            is_idempotent=acks == -1,
            request_records=sensor(),
            latency=sensor(),
            throttle=sensor(),
            deliver=self.completed.extend,
            on_acknowledged=self.acknowledged.extend,
        )
        leaders = [NODE] * partitions if isinstance(partitions, int) else partitions
        self.states = [PartitionState("t", partition) for partition in range(len(leaders))]
        for partition, state in enumerate(self.states):
            state.restart(IDENTITY, 0)
            state.begin_leader(leaders[partition], 0)
            state.known_ns = NOW_NS - 1
            put(self.records, partition=partition)  # the engine finds the leaders
            self.records.note_state("t", partition, state)
        self.records.note_topic_id("t", TOPIC_ID)
        for node_id in set(leaders):
            for batch in drained(self.records, node=node_id):
                batch.complete(0)
        self.begin()

    def begin(
        self,
        requests: list[LaneRequest] | None = None,
        *,
        version: int = VERSION,
        loan: dict[str, Any] | None = None,
        **lent: Any,
    ) -> None:
        self.lane.begin(IDENTITY, is_changed=True, **loan or {})
        places = {"next_correlation_id": 5, "queued_bytes": 1000, "engine_count": 0} | lent
        self.lane.lend(
            NODE,
            CONNECTION,
            -1,
            version,
            usable_until_ns=NEVER_NS,
            requests=requests or [],
            sensors=RequestSensors(**{name: SensorGroup((each,)) for name, each in self.of_node.items()}),
            **places,
        )

    def step(self, now_ns: int = NOW_NS) -> int:
        return self.lane.step(now_ns, was_rung=True)

    def send(self) -> bytes:
        """Send one request, and return its bytes."""
        self.step()
        data = self.lane.unsent(CONNECTION)
        self.write(len(data))
        return data

    def write(self, size: int) -> None:
        self.lane.handed(CONNECTION, size)
        self.lane.written(CONNECTION, size, NOW_NS)

    def totals(self, *names: str) -> dict[str, tuple[int, float]]:
        """Return how often, and what in all, the node's sensors have recorded."""
        readings = {name: self.of_node[name].read(NOW_NS // MS) for name in names}
        return {name: (each.occurrences_ever, each.total_ever) for name, each in readings.items()}

    def receive(self, data: bytes) -> bool:
        return self.lane.received(CONNECTION, data, NOW_NS)


def answer(*partitions: int, correlation_id: int = 5, error_code: int = 0, **values: Any) -> bytes:
    """Return an answer that says the same of these partitions."""
    rows = [
        ProduceResponse.PartitionProduceResponse(
            index=partition, error_code=error_code, base_offset=100 + partition, log_append_time_ms=-1
        )
        for partition in partitions
    ]
    topic = ProduceResponse.TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=rows)
    return b"".join(
        codec.encode_response(ProduceResponse(responses=[topic], **values), VERSION, correlation_id)
    )


@pytest.mark.parametrize("codec_name", ["none", "lz4", "zstd", "gzip", "snappy"])
@pytest.mark.parametrize("size", [10, 20_000])
def test_bytes_are_those_of_the_engines_request(codec_name: str, size: int) -> None:
    """Both give the same batches the same sequences."""
    loan = Loan(compression=codec_name, batch_size=1 << 20)
    policy = SealPolicy.of(codec_name)
    twin = accumulator(2, compression=codec_name, batch_size=1 << 20, seal_policy=policy)
    for records, partition in itertools.product((loan.records, twin), range(2)):
        put(records, b"v" * size, partition=partition)
    frame = ProduceFrame(NODE, NOW_NS)
    for batch in drained(twin):
        batch.stamp(*IDENTITY, 0)
        frame.entries.append(InFlight(PartitionState("t", batch.partition), batch, NOW_NS))
    frame.topic_ids = dict.fromkeys(frame.group_by_topic(), TOPIC_ID)
    message = messages.ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1500)
    expected = b"".join(frame.write(message, VERSION, 5, "client"))
    sent = loan.send()
    if codec_name == "snappy" or (size > 16_384 and codec_name != "none"):
        # its package compresses, which takes the GIL; or another thread compresses so much
        assert not sent
        assert loan.step() == 0
    else:
        assert sent == expected


@pytest.mark.parametrize("version", [8, 11, 13])
def test_a_request_says_its_transaction_and_its_version(version: int) -> None:
    loan = Loan(transactional_id="transfers")
    loan.begin(version=version)
    put(loan.records)
    message = codec.decode_request(loan.send()[4:]).message
    assert isinstance(message, ProduceRequest)
    assert message.transactional_id == "transfers"
    (lent,) = loan.lane.take_back()
    assert [request.version for request in lent.requests] == [version]


def test_an_accepting_answer_completes_batches_in_order() -> None:
    loan = Loan()
    deliveries = [put(loan.records, partition=partition) for partition in (1, 0, 1)]
    loan.send()
    assert not deliveries[0].done()
    assert loan.receive(answer(1, 0))
    assert [delivery.result(0).offset for delivery in deliveries] == [101, 100, 102]
    assert [completion.partition for completion in loan.completed] == [1, 0]
    assert [batch.partition for batch in loan.acknowledged] == [1, 0]
    assert loan.lane.take_uses() == ([("t", NOW_NS)], [(NODE, NOW_NS)])
    assert loan.lane.take_uses() == ([], [])
    assert not any(state.in_flight for state in loan.states)
    assert [state.acked_counter for state in loan.states] == [0, 1]
    assert loan.lane.unanswered_count() == 0


def test_an_answer_may_come_byte_by_byte() -> None:
    loan = Loan()
    delivery = put(loan.records)
    loan.send()
    data = answer(0)
    for at in range(len(data)):
        assert not delivery.done()
        assert loan.receive(data[at : at + 1])
    assert delivery.done()


def test_requests_go_on_up_to_the_limit_of_the_connection() -> None:
    loan = Loan(partitions=1, max_in_flight=2, batch_size=0)
    for _ in range(3):
        put(loan.records)
    assert [bool(loan.send()) for _ in range(3)] == [True, True, False]
    assert loan.lane.unanswered_count() == 2
    loan.receive(answer(0))
    assert loan.send()


def test_a_request_goes_only_after_the_one_before_is_written() -> None:
    loan = Loan(partitions=1, batch_size=0)
    for _ in range(2):
        put(loan.records)
    loan.step()
    first = loan.lane.unsent(CONNECTION)
    loan.write(10)
    loan.step()
    assert loan.lane.unsent(CONNECTION) == first[10:]
    loan.write(len(first) - 10)
    loan.step()
    assert loan.lane.unsent(CONNECTION)


def test_what_is_in_flight_is_taken_back_and_lent_again() -> None:
    loan = Loan(partitions=1, batch_size=0)
    deliveries = [put(loan.records) for _ in range(2)]
    size = len(loan.send())
    loan.step()
    second = loan.lane.unsent(CONNECTION)
    loan.write(3)
    (lent,) = loan.lane.take_back()
    assert (lent.node_id, lent.connection_id, lent.next_correlation_id) == (NODE, CONNECTION, 7)
    assert (lent.queued_bytes, lent.written_bytes) == (1000 + size + len(second), 1000 + size + 3)
    assert lent.unsent == second[3:]
    assert [request.correlation_id for request in lent.requests] == [5, 6]
    assert [request.start_offset for request in lent.requests] == [1000, 1000 + size]
    assert [request.written_ns for request in lent.requests] == [NOW_NS, -1]
    entries = loan.states[0].in_flight  # the engine makes its objects now
    assert [entry.batch for entry in entries] == [batch for each in lent.requests for batch in each.batches]
    assert all(entry.is_in_flight and entry.attempt is None for entry in entries)
    loan.begin(lent.requests, next_correlation_id=7, queued_bytes=lent.queued_bytes)
    assert loan.receive(answer(0) + answer(0, correlation_id=6))
    assert all(delivery.done() for delivery in deliveries)
    assert loan.totals("sent", "received") == {
        "sent": (2, size + len(second)),
        "received": (2, 2 * len(answer(0))),
    }
    assert not loan.states[0].in_flight
    with pytest.raises(ValueError, match="again"):
        loan.begin(lent.requests)


@pytest.mark.parametrize(
    "data",
    [
        answer(0, 1, error_code=6),
        answer(0),
        answer(0, 1, throttle_time_ms=5),
        answer(0, 1, correlation_id=6),
        answer(0, 1)[:-1] + b"\1",
        b"\x7f\xff\xff\xff",
        b"\0\0\0\1x",
    ],
    ids=["error", "one is missing", "throttle", "correlation id", "tag", "size", "no correlation id"],
)
def test_an_unusual_answer_is_left_to_the_engine(data: bytes) -> None:
    loan = Loan()
    deliveries = [put(loan.records, partition=partition) for partition in range(2)]
    loan.send()
    later = answer(0, 1, correlation_id=6)
    assert loan.receive(data[:7])
    assert loan.receive(data[7:] + later)
    assert loan.step() == 0
    (lent,) = loan.lane.take_back()
    assert lent.received == data + later
    assert len(lent.requests) == 1
    assert not loan.acknowledged
    assert loan.totals("received", "latency") == {"received": (0, 0), "latency": (0, 0)}
    assert not any(delivery.done() for delivery in deliveries)
    assert [len(state.in_flight) for state in loan.states] == [1, 1]


@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 60), max_size=3))
def test_mutated_answers_complete_all_batches_or_none(seed: int, cuts: list[int]) -> None:
    rng = random.Random(seed)
    loan = Loan()
    deliveries = [put(loan.records, partition=partition) for partition in range(2)]
    loan.send()
    data = bytearray(answer(0, 1))
    for _ in range(rng.randrange(3)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    places = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    for start, end in itertools.pairwise(places):
        if not loan.receive(bytes(data[start:end])):
            break
    done = {delivery.done() for delivery in deliveries}
    assert len(done) == 1
    (lent,) = loan.lane.take_back()
    assert len(lent.requests) == (0 if done == {True} else 1)
    if done == {False}:
        assert bytes(data).startswith(lent.received)


def test_the_next_epoch_begins_at_0_with_nothing_in_flight() -> None:
    loan = Loan()
    for state, last in zip(loan.states, (Identity(7, 2), IDENTITY), strict=True):
        state.restart(last, 40)
        state.hole_end = 60  # which the next epoch ends
    loan.records.set_gate("t", 1, fresh_blocked=True)
    for partition in range(2):
        put(loan.records, partition=partition)
    loan.send()
    (lent,) = loan.lane.take_back()
    (batch,) = (batch for request in lent.requests for batch in request.batches)
    assert (batch.partition, batch.producer_epoch, batch.base_sequence) == (0, 3, 0)
    assert loan.states[0].identity == IDENTITY
    assert (loan.states[0].next_counter, loan.states[0].has_hole) == (1, False)


def test_an_epoch_with_batches_in_flight_is_left_to_the_engine() -> None:
    loan = Loan(partitions=1, batch_size=0)
    put(loan.records)
    loan.send()
    loan.states[0].identity = Identity(7, 2)
    put(loan.records)
    assert loan.step() == 0
    assert not loan.lane.unsent(CONNECTION)


@pytest.mark.parametrize(("added_to", "is_sent"), [(0, False), (1, False), (2, True)])
def test_a_partition_must_be_added_to_the_transaction(added_to: int, is_sent: bool) -> None:
    loan = Loan(partitions=1)
    loan.begin(loan={"transaction": 2})
    loan.states[0].transaction = added_to
    put(loan.records)
    looks_ns = loan.step()
    assert bool(loan.lane.unsent(CONNECTION)) == is_sent
    assert (looks_ns == 0) != is_sent


@pytest.mark.parametrize("is_awaited", [True, False])
def test_the_last_answer_ends_a_loan_that_a_commit_awaits(is_awaited: bool) -> None:
    loan = Loan(partitions=1, batch_size=0)
    loan.begin(loan={"ends_when_answered": is_awaited})
    assert loan.step() != 0  # the engine has seen that nothing is in flight
    for _ in range(2):
        put(loan.records)
    loan.send()
    loan.send()
    assert loan.receive(answer(0))
    assert loan.step() != 0
    assert loan.receive(answer(0, correlation_id=6))
    assert (loan.step() == 0) == is_awaited


def test_without_answers_a_written_request_is_complete() -> None:
    loan = Loan(acks=0)
    deliveries = [put(loan.records, partition=partition) for partition in range(2)]
    loan.step()
    size = len(loan.lane.unsent(CONNECTION))
    loan.write(size - 1)
    assert not any(delivery.done() for delivery in deliveries)
    loan.lane.written(CONNECTION, 1, NOW_NS + 1)
    assert [delivery.result(0).offset for delivery in deliveries] == [-1, -1]
    assert loan.totals("sent", "written", "answered") == {
        "sent": (1, size),
        "written": (1, size),
        "answered": (0, 0),
    }
    assert loan.lane.take_uses() == ([("t", NOW_NS + 1)], [])
    assert not any(state.in_flight for state in loan.states)
    assert loan.lane.unanswered_count() == 0
    put(loan.records)
    assert loan.send()  # nothing stands before it


def test_a_request_without_answer_is_taken_back_unwritten() -> None:
    loan = Loan(acks=0)
    delivery = put(loan.records)
    loan.step()
    loan.write(1)
    (lent,) = loan.lane.take_back()
    (request,) = lent.requests
    assert not request.expects_answer
    assert not delivery.done()


@pytest.mark.parametrize("odd", ["retry", "identity", "unknown leader", "stopped", "no topic id", "gap"])
def test_an_unusual_batch_is_left_to_the_engine(odd: str) -> None:
    loan = Loan(partitions=1)
    state = loan.states[0]
    if odd == "retry":
        put(loan.records)
        loan.records.reenqueue(drained(loan.records)[0], 0, longest_ns=0)
    elif odd == "identity":
        state.restart(Identity(6, 3), 0)
    elif odd == "unknown leader":
        loan.records.publish(ClusterView({"t": [(-1, 0)]}))
        loan.records.ready(0)
    elif odd == "stopped":
        state.is_stopped = True
    elif odd == "no topic id":
        loan = Loan(partitions=1)
        loan.records.note_topic_id("t", bytes(16))
    else:
        state.hole_end = 5
        loan.records.set_gate("t", 0, fresh_blocked=True)
    if odd != "retry":
        put(loan.records)
    looks_ns = loan.step()
    assert not loan.lane.unsent(CONNECTION)
    assert looks_ns == 0 or odd == "gap"  # a gate that is closed needs no engine


def test_D16_a_node_that_takes_nothing_is_not_chosen() -> None:
    loan = Loan([NODE, NODE, 2], 1, batch_size=1, linger_ns=0, partition_availability_timeout_ns=100 * MS)
    loan.lane.lend(
        2,
        43,
        -1,
        VERSION,
        next_correlation_id=5,
        queued_bytes=0,
        engine_count=0,
        usable_until_ns=NEVER_NS,
        requests=[],
    )

    def chosen(count: int) -> set[int | None]:
        loan.records.pass_loads()
        put(loan.records, b"v", -1)  # to the partition that was chosen before
        return {partition_of(put(loan.records, b"v", -1)) for _ in range(count)}

    put(loan.records, partition=0)
    loan.send()
    put(loan.records, partition=1)
    loan.step(NOW_NS + 100 * MS)
    assert 0 in chosen(100)
    loan.step(NOW_NS + 101 * MS)
    assert chosen(100) == {2}
    loan.receive(answer(0))
    loan.step(NOW_NS + 102 * MS)
    assert 0 in chosen(1000)


def test_answers_to_the_engine_are_not_read() -> None:
    loan = Loan()
    loan.begin(engine_count=1)
    put(loan.records)
    assert loan.send()  # after the engine's own request
    assert not loan.receive(answer(0))


def test_a_late_answer_ends_the_turn_in_time() -> None:
    loan = Loan(delivery_timeout_ns=2_000 * MS)
    put(loan.records, now_ns=NOW_NS)
    loan.send()
    assert loan.step() == NOW_NS + 1500 * MS


@pytest.mark.skipif(not CAN_WAIT, reason="this system has no lane that waits for sockets")
@pytest.mark.parametrize("is_late", [True, False], ids=["after the deadline", "with work for the engine"])
def test_a_loan_that_is_over_at_once_still_looks_at_sockets(is_late: bool) -> None:
    loan = Loan([NODE, NODE + 1])
    if not is_late:
        put(loan.records, partition=1)  # of a node that is not lent
    loan.begin()
    ours, theirs = socket.socketpair()
    with ours, theirs, select.epoll() as poller:
        poller.register(ours, select.EPOLLIN)
        theirs.send(b"x")
        found = loan.lane.wait(poller.fileno(), Waker(), 0 if is_late else NEVER_NS, lambda: None)
        assert found == [(ours.fileno(), select.EPOLLIN)]
