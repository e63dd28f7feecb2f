"""Bugs of a producer without transactions: sequences, epochs, retries, batches, metadata and connections."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import kbatch
from kbatch._native.send.in_flight import Identity, InFlight
from kbatch.core.client import cluster, connections
from kbatch.core.client.backoff import ExponentialBackoff
from kbatch.core.client.node_state import NodeState
from kbatch.core.producer import engine, sender
from kbatch.core.producer.idempotence import Idempotence, Settled, WithoutIdempotence
from kbatch.core.producer.produce_attempt import ProduceAttempt
from kbatch.core.producer.sender import Sender
from kbatch.errors import ErrorCode
from kbatch.protocol import codec, messages
from tests.simulation.planted.planting import plants

# Sequences and epochs


@plants(Idempotence, "renumber")
def no_renumbering(original: Any) -> Any:
    """After a gap, batches keep their sequences under the new epoch."""

    def renumber(self: Idempotence, state: Any) -> list[InFlight]:
        counters = [each.counter for each in state.in_flight]
        held = original(self, state)
        for each, counter in zip(state.in_flight, counters, strict=True):
            each.counter = counter
        return held  # type: ignore[no-any-return]

    return renumber


@plants(Idempotence, "settle")
def resends_what_may_be_in_the_log(original: Any) -> Any:
    """Java: a bump ends a gap, and batches that may be in the log are sent again under the new epoch."""

    def settle(self: Idempotence, state: Any) -> Any:
        before, self._resends_gaps = self._resends_gaps, True
        try:
            return original(self, state)
        finally:
            self._resends_gaps = before

    return settle


@plants(Idempotence, "fail")
def unresolved_is_ignored(original: Any) -> Any:
    """A batch that failed after it got a sequence leaves no hole: its followers continue as if it were
    in the log.
    """

    def fail(self: Idempotence, entry: InFlight) -> None:
        before = entry.state.hole_end
        original(self, entry)
        entry.state.hole_end = before

    return fail


@plants(Idempotence, "fail")
def unresolved_only_in_a_retry(original: Any) -> Any:
    """Java: a batch that fails in its first transmission is not marked unresolved."""

    def fail(self: Idempotence, entry: InFlight) -> None:
        before = entry.state.hole_end
        original(self, entry)
        if entry.batch.attempts == 0:
            entry.state.hole_end = before

    return fail


@plants(Idempotence, "_begin_anew")
def acknowledged_numbers_outlive_their_epoch(original: Any) -> Any:
    """Acknowledgements of the old epoch count in the new one."""

    def begin_anew(self: Idempotence, state: Any) -> None:
        acked = state.acked_counter
        original(self, state)
        state.acked_counter = max(acked, state.acked_counter)

    return begin_anew


@plants(Idempotence, "admit")
def a_bump_touches_all_partitions(original: Any) -> Any:
    """Batches of other partitions continue under the new epoch with the old epoch's sequences."""

    def admit(self: Idempotence, state: Any, batch: Any, now_ns: int) -> InFlight:
        if state.in_flight and not self.needs_identity:
            state.identity = self.identity
        return original(self, state, batch, now_ns)  # type: ignore[no-any-return]

    return admit


@plants(Idempotence, "_bump")
def the_epoch_wraps(original: Any) -> Any:
    """After epoch 32767 comes 0 of the same producer id."""

    def bump(self: Idempotence) -> None:
        self.adopt(Identity(self.identity.producer_id, (self.identity.epoch + 1) & 0x7FFF))

    return bump


@plants(Idempotence, "settle")
def sends_without_a_producer_id(original: Any) -> Any:
    """Java: when epochs are used up, batches in flight are sent again without idempotence until there is a
    new producer id."""

    def admit(self: Idempotence, state: Any, batch: Any, now_ns: int) -> InFlight:
        entry = Idempotence.admit(self, state, batch, now_ns)
        if self.needs_identity:
            batch.stamp(-1, -1, -1)
        return entry

    def settle(self: Any, state: Any) -> Any:
        settled = original(self, state)
        if settled is None or not state.waits_for_identity:
            return settled
        state.waits_for_identity = False
        self.admit = partial(admit, self)
        held = [each for each in state.in_flight if each.is_set_aside]
        for each in held:
            each.is_set_aside = False
        return Settled(settled.lost, held)

    return settle


@plants(Idempotence, "_bump")
def no_bump(original: Any) -> Any:
    """Sequences start again from 0 in the old epoch."""

    def bump(self: Idempotence) -> None:
        """Not at all."""

    return bump


@plants(Idempotence, "is_proved")
def a_refused_batch_is_believed_delivered(original: Any) -> Any:
    """A batch refused as out of order counts as a duplicate."""

    def is_proved(self: Idempotence, entry: InFlight) -> bool:
        return True

    return is_proved


# Knowledge of leaders


@plants(Idempotence, "__init__")
def an_idle_producer_is_not_forgotten(original: Any) -> Any:
    """The leader is assumed to know the producer, however long the partition was idle."""

    def init(self: Idempotence, **given: Any) -> None:
        original(self, **given | {"idle_ns": 2**61})

    return init


@plants(Sender, "_look_up")
def a_topic_made_anew_knows_the_producer(original: Any) -> Any:
    """The leaders of a recreated topic are assumed to know what those of the old one knew."""
    return _knows_on(original, lambda state: bytes(state.topic_id))


@plants(Sender, "_look_up")
def a_new_leader_knows_the_producer(original: Any) -> Any:
    """A leader's answers count after a fail-over, although the log may have been truncated."""
    return _knows_on(original, lambda state: (state.leader, state.leader_epoch))


@plants(Sender, "_look_up")
def an_answer_of_an_old_epoch_is_believed(original: Any) -> Any:
    """After a fail-over, the answer to a batch of an old epoch counts in the new one."""

    def look_up(self: Sender, state: Any) -> None:
        nodes = [(each, each.node_id) for each in state.in_flight]
        original(self, state)
        for each, node_id in nodes:
            each.node_id = node_id

    return look_up


def _knows_on(original: Any, noted: Callable[[Any], Any]) -> Any:
    def look_up(self: Sender, state: Any) -> None:
        before, known_ns = noted(state), state.known_ns
        original(self, state)
        if noted(state) != before:
            state.known_ns = known_ns

    return look_up


@plants(Sender, "leaders_changed")
def idle_partitions_hear_of_no_change(original: Any) -> Any:
    """Only partitions with batches in flight notice a new leader or a recreated topic."""

    def changed(self: Sender) -> None:
        states = self._states
        self._states = {
            topic_partition: state for topic_partition, state in states.items() if state.in_flight
        }
        original(self)
        self._states = states

    return changed


# Draining


@plants(Idempotence, "admit")
def a_batch_uses_no_numbers_up(original: Any) -> Any:
    """The batch after a new one reuses its sequences."""

    def admit(self: Idempotence, state: Any, batch: Any, now_ns: int) -> InFlight:
        entry: InFlight = original(self, state, batch, now_ns)
        if not batch.attempts:
            state.next_counter = entry.counter
        return entry

    return admit


@plants(ProduceAttempt, "answer")
def a_whole_answer_is_believed(original: Any) -> Any:
    """An answer that refuses some batches counts as one that accepts all."""

    def believe(attempt: ProduceAttempt, message: Any) -> None:
        message.node_endpoints = []
        for topic in message.responses:
            for answer in topic.partition_responses:
                answer.error_code = 0
                answer.record_errors, answer.error_message = [], None
                answer.current_leader = messages.ProduceResponse.LeaderIdAndEpoch()

    return _with_answers(original, believe)


@plants(WithoutIdempotence, "note_retry")
def a_partition_stays_muted(original: Any) -> Any:
    """A batch to retry leaves its partition muted."""

    def note_retry(self: WithoutIdempotence, entry: InFlight) -> None:
        """Not at all."""

    return note_retry


@plants(Sender, "_drain")
def a_blocked_partition_stops_its_node(original: Any) -> Any:
    """Java: a partition that may send nothing new yet ends the drain of its node."""

    def drain(self: Sender, now_ns: int) -> None:
        stopped = {state.leader for state in self._states.values() if state.gate[1]}
        others = [state for state in self._states.values() if state.leader in stopped and not state.gate[1]]
        for state in others:
            self._accumulator.set_gate(state.topic, state.partition, muted=True)
        original(self, now_ns)
        for state in others:
            self._accumulator.set_gate(state.topic, state.partition, muted=state.gate[0])

    return drain


# The sender


@plants(Sender, "_keeps_its_number")
def splits_what_may_be_in_the_log(original: Any) -> Any:
    """Java: a batch that is too large is split, although an earlier attempt may have been appended."""
    return lambda self, entry: False


@plants(Sender, "_handle_no_answer")
def no_answer_means_not_appended(original: Any) -> Any:
    """A request that was written but not answered counts as not done."""

    def handle(self: Sender, attempt: Any, *rest: Any) -> None:
        attempt.request = None
        original(self, attempt, *rest)

    return handle


@plants(Sender, "_retry")
def a_retry_forgets_what_may_be_in_the_log(original: Any) -> Any:
    """possibly_persisted is that of the last attempt."""

    def retry(self: Sender, entry: InFlight, *rest: Any) -> None:
        entry.batch.possibly_persisted = entry.is_ambiguous = False
        original(self, entry, *rest)

    return retry


@plants(Sender, "_retry")
def a_retry_does_not_back_off(original: Any) -> Any:
    """Batches are retried at once."""

    def retry(self: Sender, entry: InFlight, error: Any, now_ns: int) -> None:
        self._sequences.note_retry(entry)
        self._accumulator.reenqueue(entry.batch, now_ns, attempted=False)

    return retry


@plants(Sender, "_retry")
def a_back_off_without_end(original: Any) -> Any:
    """Milliseconds are taken for seconds."""

    def retry(self: Sender, entry: InFlight, error: Any, now_ns: int) -> None:
        original(self, entry, error, now_ns + 1000 * self._config.retry_backoff_max_ms * 1_000_000)

    return retry


@plants(Sender, "run")
def an_expired_batch_is_sent(original: Any) -> Any:
    """Java: batches are drained first and expired after that."""

    def run(self: Sender, now_ns: int) -> None:
        self._drain(now_ns)
        original(self, now_ns)

    return run


@plants(Sender, "_expire")
def nothing_expires(original: Any) -> Any:
    """delivery.timeout.ms has no effect."""
    return lambda self, now_ns: None


@plants(Sender, "_done")
def a_completion_is_lost(original: Any) -> Any:
    """The callbacks of failed batches do not run."""

    def done(self: Sender, batch: Any) -> None:
        if batch.completion.error is None:
            original(self, batch)

    return done


@plants(engine.ProducerEngine, "poll_completed")
def completions_come_twice(original: Any) -> Any:
    """The list of completed batches is not cleared."""

    def poll(self: Any) -> Any:
        completed = original(self)
        self._completed += completed
        return completed

    return poll


@plants(Sender, "_succeed")
def the_offset_is_one_off(original: Any) -> Any:
    """The reported offset is the next one."""

    def succeed(self: Sender, entry: InFlight, base_offset: int, *rest: Any) -> None:
        original(self, entry, base_offset + (base_offset >= 0), *rest)

    return succeed


@plants(Sender, "_enforce_stop")
def records_pass_a_failed_one(original: Any) -> Any:
    """kbatch.on.delivery.failure has no effect, like Java's close(0) in a callback."""
    return lambda self, *rest: None


@plants(Sender, "_split")
def a_split_loses_its_sequences(original: Any) -> Any:
    """The parts of a split batch get the next sequences instead of their own."""

    def split(self: Sender, entry: InFlight, *rest: Any) -> None:
        original(self, entry, *rest)
        for each in entry.state.in_flight:
            if each.batch.is_split and each.counter >= 0:
                each.counter += 1

    return split


class Beside:
    """An object with other attributes than its own."""

    def __init__(self, own: Any, **others: Any) -> None:
        self._own = own
        self.__dict__.update(others)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


@plants(Sender, "_split")
def a_part_of_an_unsure_batch_is_sure(original: Any) -> Any:
    """If a batch that may be in the log is split, its last part counts as never sent."""

    def split(self: Sender, entry: InFlight, *rest: Any) -> None:
        accumulator = self._accumulator

        def parts_of(batch: Any) -> Any:
            parts = accumulator.split(batch)
            parts[-1].possibly_persisted = False
            return parts

        self._accumulator = Beside(accumulator, split=parts_of)  # type: ignore[assignment]
        try:
            original(self, entry, *rest)
        finally:
            self._accumulator = accumulator

    return split


@plants(Sender, "_send")
def acks_1_for_acks_all(original: Any) -> Any:
    """acks=1 is sent whatever the user configured."""

    def send(self: Sender, *rest: Any) -> None:
        self._request.acks = abs(self._request.acks)
        original(self, *rest)

    return send


@plants(Sender, "_handle_answer")
def an_error_with_an_offset_is_believed(original: Any) -> Any:
    """A batch that was appended but not replicated, by its answer, counts as delivered."""

    def handle(self: Sender, entry: InFlight, answer: Any, *rest: Any) -> None:
        if answer.error_code and answer.base_offset >= 0:
            self._succeed(entry, answer.base_offset, answer.log_append_time_ms)
        else:
            original(self, entry, answer, *rest)

    return handle


@plants(sender, "outcome_of")
def a_duplicate_is_taken_for_a_gap(original: Any) -> Any:
    """DUPLICATE_SEQUENCE_NUMBER counts as OUT_OF_ORDER_SEQUENCE_NUMBER."""

    def outcome(code: int, answer: Any, **rest: Any) -> Any:
        is_duplicate = code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        return original(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if is_duplicate else code, answer, **rest)

    return outcome


@plants(ProduceAttempt, "answer")
def answers_are_matched_by_position(original: Any) -> Any:
    """The first answer of a response is matched with the first batch of the request."""

    def move(attempt: ProduceAttempt, message: Any) -> None:
        places: dict[str, list[int]] = {}
        for entry in attempt.entries:
            places.setdefault(entry.state.topic, []).append(entry.state.partition)
        in_turn = iter([each for topic in message.responses for each in topic.partition_responses])
        message.responses = [
            messages.ProduceResponse.TopicProduceResponse(
                name=topic,
                topic_id=attempt.topic_ids[topic],
                partition_responses=[_moved(next(in_turn), index) for index in partitions],
            )
            for topic, partitions in places.items()
        ]

    return _with_answers(original, move)


def _moved(answer: Any, index: int) -> Any:
    answer.index = index
    return answer


def _with_answers(original: Any, bend: Callable[[ProduceAttempt, Any], None]) -> Any:
    """Return ProduceAttempt.answer of what `bend` makes of each message."""

    def answer(self: ProduceAttempt, request: Any, frame: Any) -> Any:
        version = request.api_version
        correlation_id, message = codec.decode_response(messages.ProduceResponse, version, frame)
        bend(self, message)
        return original(self, request, b"".join(codec.encode_response(message, version, correlation_id))[4:])

    return answer


@plants(engine.ProducerEngine, "poll_completed")
def failed_batches_are_called_back_first(original: Any) -> Any:
    """The callbacks of failed batches run before those of delivered ones."""
    return lambda self: sorted(
        original(self), key=lambda completion: getattr(completion, "error", None) is None
    )


@plants(ProduceAttempt, "write")
def a_retry_is_merged_with_what_came_later(original: Any) -> Any:
    """librdkafka #4736: a retry has other records than the first attempt, under the same sequence."""
    sent: set[tuple[int, int, int, int]] = set()

    def merge(index: int, records: Any) -> Any:
        (batch,) = kbatch.decode(records)
        key = (index, batch.producer_id, batch.producer_epoch, batch.base_sequence)
        if key in sent and batch.producer_id >= 0:
            content = [(each.key, each.value, each.headers, each.timestamp_ms) for each in batch]
            records = kbatch.encode(
                [*content, content[-1]],
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                base_sequence=batch.base_sequence,
            )
        sent.add(key)
        return records

    return _with_batches(original, merge)


@plants(ProduceAttempt, "write")
def a_buffer_in_flight_is_used_again(original: Any) -> Any:
    """KAFKA-19012: the memory of a request that is still being written goes to another batch."""
    memory = bytearray(1 << 16)

    def share(index: int, records: Any) -> Any:
        if len(records) > len(memory):
            return records
        memory[: len(records)] = records
        return memoryview(memory)[: len(records)]

    return _with_batches(original, share)


def _with_batches(original: Any, bend: Callable[[int, Any], Any]) -> Any:
    """Return ProduceAttempt.write with what `bend` makes of each partition's batch."""

    def write(self: ProduceAttempt, message: Any, version: int, correlation_id: int, client_id: str) -> Any:
        frame = b"".join(original(self, message, version, correlation_id, client_id))
        request: Any = codec.decode_request(frame[4:]).message
        for topic in request.topic_data:
            for partition in topic.partition_data:
                partition.records = [bend(partition.index, partition.records)]
        return codec.encode_request(request, version, correlation_id, client_id)

    return write


# Connections and metadata


@plants(NodeState, "can_send")
def requests_without_limit(original: Any) -> Any:
    """max.in.flight.requests.per.connection has no effect."""
    return lambda self, max_in_flight, now_ns: original(self, 1000, now_ns)


@plants(NodeState, "can_send")
def throttling_is_ignored(original: Any) -> Any:
    """A node that throttles still gets requests."""
    return lambda self, max_in_flight, now_ns: original(
        self, max_in_flight, max(now_ns, self.throttled_until_ns)
    )


@plants(connections.Connections, "_time_out")
def a_request_never_times_out(original: Any) -> Any:
    """The client waits for a connection that has died silently."""

    def time_out(self: Any, state: Any, now_ns: int) -> None:
        for request in state.connection.in_flight:
            request.deadline_ns = 2**63 - 1

    return time_out


@plants(cluster.Cluster, "_is_believed")
def an_older_leader_is_believed(original: Any) -> Any:
    """Metadata of a node that lags replaces newer metadata."""
    return lambda self, entry, partition, before, leader_epoch, nodes: True


@plants(ExponentialBackoff, "delay_ns")
def questions_do_not_back_off(original: Any) -> Any:
    """Metadata and InitProducerId are requested again at once."""
    return lambda self, attempts: 0


@plants(Sender, "_admit")
def a_request_keeps_its_batches(original: Any) -> Any:
    """The bytes of sent batches stay until the garbage collector runs."""
    kept: list[Any] = []

    def admit(self: Sender, batch: Any, *rest: Any) -> Any:
        entry = original(self, batch, *rest)
        kept.append(batch.buffers() if entry is not None else None)
        return entry

    return admit


@plants(cluster.Cluster, "update_leader")
def a_leader_of_an_old_epoch_is_believed(original: Any) -> Any:
    """After a fail-over, a leader named by a node that does not know of it is believed."""

    def update(self: Any, topic: str, partition: int, leader_id: int, leader_epoch: int, nodes: Any) -> bool:
        entry = self._topics.get(topic)
        if entry is not None and entry.known is not None and partition < len(entry.known.partitions):
            partitions = list(entry.known.partitions)
            partitions[partition] = partitions[partition]._replace(leader_epoch=leader_epoch - 1)
            entry.known = entry.known._replace(partitions=tuple(partitions))
        return bool(original(self, topic, partition, leader_id, leader_epoch, nodes))

    return update


@plants(cluster.Cluster, "handle_failure")
def a_failed_metadata_request_is_forgotten(original: Any) -> Any:
    """A failed metadata request counts as unanswered, and no other is sent."""
    return lambda self, error, now_ns: None


@plants(cluster.Cluster, "request_update")
def metadata_is_not_asked_for(original: Any) -> Any:
    """NOT_LEADER_OR_FOLLOWER does not refresh the metadata."""
    return lambda self, now_ns: None
