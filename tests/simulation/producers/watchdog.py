"""Watchdog: batches that a sleeping sender, or its lane, could send, of which nothing to come reminds it.

Theory of operation. What keeps a batch from being sent is stated here once more, without the accumulator's
own search, which would wake the sender. Only a producer that has nothing in flight is judged: everything else
waits for an answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbatch._native.send.in_flight import NO_IDENTITY, OPEN
from kbatch.core.client.backoff import NS_PER_MS
from kbatch.core.producer.transactional_sequences import TransactionalSequences
from kbatch.records import TopicPartition
from tests.simulation.world.nodes import takes_requests

if TYPE_CHECKING:
    from kbatch._native.batch.producer_batch import ProducerBatch
    from tests.simulation.producers.producer import SimulatedProducer

STATES = ("open", "sealed")


def forgotten_batches(producer: SimulatedProducer, now_ns: int) -> list[ProducerBatch]:
    """Return the batches that could be sent now, though nothing is in flight."""
    sender = producer.runtime.engine._sender
    if not _may_send(producer):
        return []
    first: dict[tuple[str, int], ProducerBatch] = {}
    for batch in producer._accumulator.incomplete_batches():
        first.setdefault((batch.topic, batch.partition), batch)
    return [
        batch
        for key, batch in first.items()
        if (key not in sender._states or sender._states[key].gate == OPEN)
        and not _waits_for_transaction(producer, batch)
        and _is_due(producer, batch, now_ns)
        and _takes_requests(producer, *key, now_ns)
    ]


def _may_send(producer: SimulatedProducer) -> bool:
    """True if the producer has an identity, if it needs one, has not failed, and awaits no answer. Without
    answers (acks=0) nothing tells what the lane has sent already.
    """
    sender = producer.runtime.engine._sender
    lane = sender._lane
    return not (
        producer.runtime.config.acks == 0
        or sender.unanswered_count
        or (lane is not None and lane.unanswered_count())
        or sender.first_failure is not None
        or sender.fatal_error is not None
        or (sender._sequences.is_idempotent and sender._sequences.identity is NO_IDENTITY)
    )


def _waits_for_transaction(producer: SimulatedProducer, batch: ProducerBatch) -> bool:
    """True if a new batch waits for a transaction, or for its coordinator to add the partition."""
    sequences = producer.runtime.engine._sender._sequences
    if not isinstance(sequences, TransactionalSequences) or batch.attempts:
        return False
    return not sequences.is_open or TopicPartition(batch.topic, batch.partition) in sequences._requested


def _is_due(producer: SimulatedProducer, batch: ProducerBatch, now_ns: int) -> bool:
    """True if a batch waits neither for more records, nor for its next attempt, nor for compression."""
    config = producer.runtime.config
    if batch.attempts:
        return now_ns >= batch.last_attempt_ns + batch.backoff_ns
    linger_ns = int(config.linger_ms * NS_PER_MS)
    return batch.state in STATES and now_ns >= batch.created_ns + linger_ns


def _takes_requests(producer: SimulatedProducer, topic: str, partition: int, now_ns: int) -> bool:
    """True if the leader of a partition takes a Produce request now, or may be connected to."""
    engine = producer.runtime.engine
    leader, _ = engine.snapshot.leader(topic, partition)
    node = engine._connections._by_purpose[0].get(leader)
    if leader < 0 or node is None or engine._sender.lacks_produce(leader):
        return False
    return takes_requests(node, engine._connections._max_in_flight, now_ns)
