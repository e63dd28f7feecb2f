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
from tests.simulation.planted.planting import plants, replaces

# Sequences and epochs


@plants(Idempotence, "renumber")
def no_renumbering(original: Any, self: Idempotence, state: Any) -> Any:
    """After a gap, batches keep their sequences under the new epoch."""
    counters = [each.counter for each in state.in_flight]
    held = original(self, state)
    for each, counter in zip(state.in_flight, counters, strict=True):
        each.counter = counter
    return held


@plants(Idempotence, "settle")
def resends_what_may_be_in_the_log(original: Any, self: Idempotence, state: Any) -> Any:
    """Java: a bump ends a gap, and batches that may be in the log are sent again under the new epoch."""
    before, self._resends_gaps = self._resends_gaps, True
    try:
        return original(self, state)
    finally:
        self._resends_gaps = before


@plants(Idempotence, "fail")
def unresolved_is_ignored(original: Any, self: Idempotence, entry: InFlight) -> None:
    """A batch that failed after it got a sequence leaves no hole: its followers continue as if it were
    in the log.
    """
    before = entry.state.hole_end
    original(self, entry)
    entry.state.hole_end = before


@plants(Idempotence, "fail")
def unresolved_only_in_a_retry(original: Any, self: Idempotence, entry: InFlight) -> None:
    """Java: a batch that fails in its first transmission is not marked unresolved."""
    before = entry.state.hole_end
    original(self, entry)
    if entry.batch.attempts == 0:
        entry.state.hole_end = before


@plants(Idempotence, "_begin_anew")
def acknowledged_numbers_outlive_their_epoch(original: Any, self: Idempotence, state: Any) -> None:
    """Acknowledgements of the old epoch count in the new one."""
    acked = state.acked_counter
    original(self, state)
    state.acked_counter = max(acked, state.acked_counter)


@plants(Idempotence, "admit")
def a_bump_touches_all_partitions(
    original: Any, self: Idempotence, state: Any, batch: Any, now_ns: int
) -> Any:
    """Batches of other partitions continue under the new epoch with the old epoch's sequences."""
    if state.in_flight and not self.needs_identity:
        state.identity = self.identity
    return original(self, state, batch, now_ns)


@plants(Idempotence, "_bump")
def the_epoch_wraps(original: Any, self: Idempotence) -> None:
    """After epoch 32767 comes 0 of the same producer id."""
    self.adopt(Identity(self.identity.producer_id, (self.identity.epoch + 1) & 0x7FFF))


@plants(Idempotence, "settle")
def sends_without_a_producer_id(original: Any, self: Any, state: Any) -> Any:
    """Java: when epochs are used up, batches in flight are sent again without idempotence until there is a
    new producer id."""
    settled = original(self, state)
    if settled is None or not state.waits_for_identity:
        return settled
    state.waits_for_identity = False
    self.admit = partial(_admit_without_identity, self)
    held = [each for each in state.in_flight if each.is_set_aside]
    for each in held:
        each.is_set_aside = False
    return Settled(settled.lost, held)


def _admit_without_identity(self: Idempotence, state: Any, batch: Any, now_ns: int) -> InFlight:
    entry = Idempotence.admit(self, state, batch, now_ns)
    if self.needs_identity:
        batch.stamp(-1, -1, -1)
    return entry


@plants(Idempotence, "_bump")
def no_bump(*_: Any) -> None:
    """Sequences start again from 0 in the old epoch."""


@plants(Idempotence, "is_proved")
def a_refused_batch_is_believed_delivered(*_: Any) -> bool:
    """A batch refused as out of order counts as a duplicate."""
    return True


# Knowledge of leaders


@plants(Idempotence, "__init__")
def an_idle_producer_is_not_forgotten(original: Any, self: Idempotence, **given: Any) -> None:
    """The leader is assumed to know the producer, however long the partition was idle."""
    original(self, **given | {"idle_ns": 2**61})


@plants(Sender, "_look_up")
def a_topic_made_anew_knows_the_producer(original: Any, self: Sender, state: Any) -> None:
    """The leaders of a recreated topic are assumed to know what those of the old one knew."""
    before, known_ns = bytes(state.topic_id), state.known_ns
    original(self, state)
    if bytes(state.topic_id) != before:
        state.known_ns = known_ns


@plants(Sender, "_look_up")
def a_new_leader_knows_the_producer(original: Any, self: Sender, state: Any) -> None:
    """A leader's answers count after a fail-over, although the log may have been truncated."""
    before, known_ns = (state.leader, state.leader_epoch), state.known_ns
    original(self, state)
    if (state.leader, state.leader_epoch) != before:
        state.known_ns = known_ns


@plants(Sender, "_look_up")
def an_answer_of_an_old_epoch_is_believed(original: Any, self: Sender, state: Any) -> None:
    """After a fail-over, the answer to a batch of an old epoch counts in the new one."""
    nodes = [(each, each.node_id) for each in state.in_flight]
    original(self, state)
    for each, node_id in nodes:
        each.node_id = node_id


@plants(Sender, "leaders_changed")
def idle_partitions_hear_of_no_change(original: Any, self: Sender, topics: Any) -> None:
    """Only partitions with batches in flight notice a new leader or a recreated topic."""
    states = self._states
    self._states = {topic_partition: state for topic_partition, state in states.items() if state.in_flight}
    original(self, topics)
    self._states = states


# Draining


@plants(Idempotence, "admit")
def a_batch_uses_no_numbers_up(
    original: Any, self: Idempotence, state: Any, batch: Any, now_ns: int
) -> InFlight:
    """The batch after a new one reuses its sequences."""
    entry: InFlight = original(self, state, batch, now_ns)
    if not batch.attempts:
        state.next_counter = entry.counter
    return entry


@plants(ProduceAttempt, "answer")
def a_whole_answer_is_believed(original: Any, *given: Any) -> Any:
    """An answer that refuses some batches counts as one that accepts all."""

    def believe(attempt: ProduceAttempt, message: Any) -> None:
        message.node_endpoints = []
        for topic in message.responses:
            for answer in topic.partition_responses:
                answer.error_code = 0
                answer.record_errors, answer.error_message = [], None
                answer.current_leader = messages.ProduceResponse.LeaderIdAndEpoch()

    return _answer(original, *given, bend=believe)


@plants(WithoutIdempotence, "note_retry")
def a_partition_stays_muted(*_: Any) -> None:
    """A batch to retry leaves its partition muted."""


@plants(Sender, "_drain")
def a_blocked_partition_stops_its_node(original: Any, self: Sender, now_ns: int) -> None:
    """Java: a partition that may send nothing new yet ends the drain of its node."""
    stopped = {state.leader for state in self._states.values() if state.gate[1]}
    others = [state for state in self._states.values() if state.leader in stopped and not state.gate[1]]
    for state in others:
        self._accumulator.set_gate(state.topic, state.partition, muted=True)
    original(self, now_ns)
    for state in others:
        self._accumulator.set_gate(state.topic, state.partition, muted=state.gate[0])


# The sender


@plants(Sender, "_keeps_its_number")
def splits_what_may_be_in_the_log(*_: Any) -> bool:
    """Java: a batch that is too large is split, although an earlier attempt may have been appended."""
    return False


@plants(Sender, "_handle_no_answer")
def no_answer_means_not_appended(original: Any, self: Sender, attempt: Any, *rest: Any) -> None:
    """A request that was written but not answered counts as not done."""
    attempt.request = None
    original(self, attempt, *rest)


@plants(Sender, "_retry")
def a_retry_forgets_what_may_be_in_the_log(original: Any, self: Sender, entry: InFlight, *rest: Any) -> None:
    """possibly_persisted is that of the last attempt."""
    entry.batch.possibly_persisted = entry.is_ambiguous = False
    original(self, entry, *rest)


@plants(Sender, "_retry")
def a_retry_does_not_back_off(original: Any, self: Sender, entry: InFlight, error: Any, now_ns: int) -> None:
    """Batches are retried at once."""
    self._sequences.note_retry(entry)
    self._accumulator.reenqueue(entry.batch, now_ns, attempted=False)


@plants(Sender, "_retry")
def a_back_off_without_end(original: Any, self: Sender, entry: InFlight, error: Any, now_ns: int) -> None:
    """Milliseconds are taken for seconds."""
    original(self, entry, error, now_ns + 1000 * self._config.retry_backoff_max_ms * 1_000_000)


@plants(Sender, "run")
def an_expired_batch_is_sent(original: Any, self: Sender, now_ns: int) -> None:
    """Java: batches are drained first and expired after that."""
    self._drain(now_ns)
    original(self, now_ns)


@plants(Sender, "_expire")
def nothing_expires(*_: Any) -> None:
    """delivery.timeout.ms has no effect."""


@plants(Sender, "_done")
def a_completion_is_lost(original: Any, self: Sender, batch: Any) -> None:
    """The callbacks of failed batches do not run."""
    if batch.completion.error is None:
        original(self, batch)


@plants(engine.ProducerEngine, "poll_completed")
def completions_come_twice(original: Any, self: Any) -> Any:
    """The list of completed batches is not cleared."""
    completed = original(self)
    self._completed += completed
    return completed


@plants(Sender, "_succeed")
def the_offset_is_one_off(original: Any, self: Sender, entry: InFlight, base_offset: int, *rest: Any) -> None:
    """The reported offset is the next one."""
    original(self, entry, base_offset + (base_offset >= 0), *rest)


@plants(Sender, "_stop_after")
def records_pass_a_failed_one(*_: Any) -> None:
    """kbatch.on.delivery.failure has no effect, like Java's close(0) in a callback."""


@plants(Sender, "_split")
def a_split_loses_its_sequences(original: Any, self: Sender, entry: InFlight, *rest: Any) -> None:
    """The parts of a split batch get the next sequences instead of their own."""
    original(self, entry, *rest)
    for each in entry.state.in_flight:
        if each.batch.is_split and each.counter >= 0:
            each.counter += 1


class Beside:
    """An object with other attributes than its own."""

    def __init__(self, own: Any, **others: Any) -> None:
        self._own = own
        self.__dict__.update(others)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


@plants(Sender, "_split")
def a_part_of_an_unsure_batch_is_sure(original: Any, self: Sender, entry: InFlight, *rest: Any) -> None:
    """If a batch that may be in the log is split, its last part counts as never sent."""
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


@plants(Sender, "_send")
def acks_1_for_acks_all(original: Any, self: Sender, *rest: Any) -> None:
    """acks=1 is sent whatever the user configured."""
    self._request.acks = abs(self._request.acks)
    original(self, *rest)


@plants(Sender, "_handle_answer")
def an_error_with_an_offset_is_believed(
    original: Any, self: Sender, entry: InFlight, answer: Any, *rest: Any
) -> None:
    """A batch that was appended but not replicated, by its answer, counts as delivered."""
    if answer.error_code and answer.base_offset >= 0:
        self._succeed(entry, answer.base_offset, answer.log_append_time_ms)
    else:
        original(self, entry, answer, *rest)


@plants(sender, "outcome_of")
def a_duplicate_is_taken_for_a_gap(original: Any, code: int, answer: Any, **rest: Any) -> Any:
    """DUPLICATE_SEQUENCE_NUMBER counts as OUT_OF_ORDER_SEQUENCE_NUMBER."""
    is_duplicate = code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    return original(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if is_duplicate else code, answer, **rest)


@plants(ProduceAttempt, "answer")
def answers_are_matched_by_position(original: Any, *given: Any) -> Any:
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

    return _answer(original, *given, bend=move)


def _moved(answer: Any, index: int) -> Any:
    answer.index = index
    return answer


def _answer(
    original: Any,
    self: ProduceAttempt,
    request: Any,
    frame: Any,
    *,
    bend: Callable[[ProduceAttempt, Any], None],
) -> Any:
    """Do ProduceAttempt.answer with what `bend` makes of the message."""
    version = request.api_version
    correlation_id, message = codec.decode_response(messages.ProduceResponse, version, frame)
    bend(self, message)
    return original(self, request, b"".join(codec.encode_response(message, version, correlation_id))[4:])


@plants(engine.ProducerEngine, "poll_completed")
def failed_batches_are_called_back_first(original: Any, self: Any) -> Any:
    """The callbacks of failed batches run before those of delivered ones."""
    return sorted(original(self), key=lambda completion: getattr(completion, "error", None) is None)


@replaces(ProduceAttempt, "write")
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


@replaces(ProduceAttempt, "write")
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
def requests_without_limit(original: Any, self: Any, max_in_flight: Any, *given: Any) -> Any:
    """max.in.flight.requests.per.connection has no effect."""
    return original(self, 1000, *given)


@plants(NodeState, "can_send")
def throttling_is_ignored(original: Any, self: Any, max_in_flight: Any, now_ns: Any, *given: Any) -> Any:
    """A node that throttles still gets requests."""
    return original(self, max_in_flight, max(now_ns, self.throttled_until_ns), *given)


@plants(connections.Connections, "_time_out")
def a_request_never_times_out(original: Any, self: Any, state: Any, now_ns: int) -> None:
    """The client waits for a connection that has died silently."""
    for request in state.connection.in_flight:
        request.deadline_ns = 2**63 - 1


@plants(cluster.Cluster, "_is_believed")
def an_older_leader_is_believed(*_: Any) -> bool:
    """Metadata of a node that lags replaces newer metadata."""
    return True


@plants(ExponentialBackoff, "delay_ns")
def questions_do_not_back_off(*_: Any) -> int:
    """Metadata and InitProducerId are requested again at once."""
    return 0


@replaces(Sender, "_admit")
def a_request_keeps_its_batches(original: Any) -> Any:
    """The bytes of sent batches stay until the garbage collector runs."""
    kept: list[Any] = []

    def admit(self: Sender, batch: Any, *rest: Any) -> Any:
        entry = original(self, batch, *rest)
        kept.append(batch.buffers() if entry is not None else None)
        return entry

    return admit


@plants(cluster.Cluster, "update_leader")
def a_leader_of_an_old_epoch_is_believed(
    original: Any, self: Any, topic: str, partition: int, leader_id: int, leader_epoch: int, nodes: Any
) -> bool:
    """After a fail-over, a leader named by a node that does not know of it is believed."""
    entry = self._topics.get(topic)
    if entry is not None and entry.known is not None and partition < len(entry.known.partitions):
        partitions = list(entry.known.partitions)
        partitions[partition] = partitions[partition]._replace(leader_epoch=leader_epoch - 1)
        entry.known = entry.known._replace(partitions=tuple(partitions))
    return bool(original(self, topic, partition, leader_id, leader_epoch, nodes))


@plants(cluster.ClusterSnapshot, "changed_since")
def only_new_topics_have_changed(original: Any, self: Any, before: Any) -> Any:
    """Leaders are used as they were when a topic was new."""
    return {topic for topic in original(self, before) if topic not in before.topics}


@plants(cluster.Cluster, "handle_failure")
def a_failed_metadata_request_is_forgotten(*_: Any) -> None:
    """A failed metadata request counts as unanswered, and no other is sent."""


@plants(cluster.Cluster, "request_update")
def metadata_is_not_asked_for(*_: Any) -> None:
    """NOT_LEADER_OR_FOLLOWER does not refresh the metadata."""
