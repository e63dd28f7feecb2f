"""Produce requests and their answers, made from seeds: the codec writes and reads them, and judges the wire's
C.
"""

from __future__ import annotations

import random
from functools import cache
from typing import Any, NamedTuple

from kbatch._native.batch.producer_batch import ProducerBatch
from kbatch._native.send.in_flight import InFlight, PartitionState
from kbatch._native.send.produce_wire import AllAccepted, ProduceFrame
from kbatch.protocol import codec, features
from kbatch.protocol.messages import ProduceRequest, ProduceResponse
from tests.support.accumulating import accumulator, data_of, drained, put

CORRELATION_ID = 77
# The values of batches: joined with their request, or views of their memory, one or more.
SIZES = (0, 1, 100, 8_000, 8_130, 9_000, 40_000)
NAMES = ("t", "orders", "ü" * 40, "x" * 249)
_OFFSETS = (0, 1, 2**31, 2**63 - 1, -1)

Fields = list[tuple[str, int, int, int]]


class Asked(NamedTuple):
    """A partition in a request."""

    topic: str
    partition: int
    batch: ProducerBatch


class Case(NamedTuple):
    """A request of a version."""

    version: int
    asked: list[Asked]
    topic_ids: dict[str, bytes]
    client_id: str | None
    head: ProduceRequest


@cache
def batches() -> list[ProducerBatch]:
    """Return a batch of each size."""
    records = accumulator(len(SIZES), batch_size=16_384)
    for partition, size in enumerate(SIZES):
        put(records, b"v" * size, partition=partition)
    return drained(records)


def random_case(version: int, seed: object, most: int = 12) -> Case:
    """Return a request with one partition or more, its topics in any order."""
    choices = random.Random(f"request {version} {seed}")
    names = choices.sample(NAMES, choices.randint(1, len(NAMES)))
    places = {
        (choices.choice(names), choices.choice((0, 1, 2, 70_000, 2**31 - 1)))
        for _ in range(choices.choice((1, 1, 2, most)))
    }
    asked = [Asked(*place, choices.choice(batches())) for place in sorted(places)]
    choices.shuffle(asked)
    topic_ids = {name: choices.randbytes(16) for name in dict.fromkeys(each.topic for each in asked)}
    head = ProduceRequest(
        transactional_id=choices.choice((None, "", "id", "é" * 300)),
        acks=choices.choice((-1, 0, 1)),
        timeout_ms=choices.choice((0, 30_000, 2**31 - 1)),
    )
    return Case(version, asked, topic_ids, choices.choice((None, "", "client", "c" * 200)), head)


def frame_of(case: Case) -> ProduceFrame:
    """Return the request with its batches, not written yet."""
    frame = ProduceFrame(1, 0)
    frame.entries = [
        InFlight(PartitionState(each.topic, each.partition), each.batch, 0) for each in case.asked
    ]
    frame.topic_ids = {name: case.topic_ids[name] for name in frame.group_by_topic()}
    return frame


def written(frame: ProduceFrame, case: Case) -> bytes:
    return b"".join(frame.write(case.head, case.version, CORRELATION_ID, case.client_id))


def expected_request(case: Case) -> bytes:
    """Return the request as the codec writes it."""
    by_name = case.version < features.PRODUCE_TOPIC_IDS
    topics: dict[str, list[Any]] = {}
    for each in case.asked:
        records = data_of(each.batch)
        topics.setdefault(each.topic, []).append(
            ProduceRequest.PartitionProduceData(index=each.partition, records=records)
        )
    message = ProduceRequest(
        transactional_id=case.head.transactional_id,
        acks=case.head.acks,
        timeout_ms=case.head.timeout_ms,
        topic_data=[
            ProduceRequest.TopicProduceData(
                **({"name": name} if by_name else {"topic_id": case.topic_ids[name]}), partition_data=data
            )
            for name, data in topics.items()
        ],
    )
    return b"".join(codec.encode_request(message, case.version, CORRELATION_ID, case.client_id))


def random_answer(case: Case, seed: object) -> ProduceResponse:
    """Return an answer to the request: mostly one that accepts all, in any order."""
    choices = random.Random(f"answer {case.version} {seed}")
    asked = list(case.asked)
    if choices.random() < 0.5:
        choices.shuffle(asked)
    oddity = choices.choice((None, None, None, "error", "missing", "twice", "foreign", "text", "records"))
    topics: dict[str, list[Any]] = {}
    for each in asked:
        topics.setdefault(each.topic, []).append(_accepted(each.partition, case.version, choices))
    name = choices.choice(asked).topic
    partitions = topics[name]
    if oddity == "error":
        choices.choice(partitions).error_code = choices.choice((3, 6, 45, -1))
    elif oddity == "missing":
        partitions.pop()
    elif oddity == "twice":
        partitions.append(choices.choice(partitions))
    elif oddity == "foreign":
        choices.choice(partitions).index = 3
    elif oddity == "text" and case.version >= 8:
        partitions[0].error_message = ""
    elif oddity == "records" and case.version >= 8:
        partitions[0].record_errors = [ProduceResponse.BatchIndexAndErrorMessage(batch_index=1)]
    return ProduceResponse(
        responses=[_topic(case, name, answers) for name, answers in topics.items()],
        throttle_time_ms=choices.choice((0, 0, 1000, -1)),
    )


def _accepted(partition: int, version: int, choices: random.Random) -> Any:
    answer = ProduceResponse.PartitionProduceResponse(
        index=partition,
        base_offset=choices.choice(_OFFSETS),
        log_append_time_ms=choices.choice((-1, 10**12)),
    )
    if version >= 5:
        answer.log_start_offset = choices.choice(_OFFSETS)
    return answer


def _topic(case: Case, name: str, answers: list[Any]) -> Any:
    by_name = case.version < features.PRODUCE_TOPIC_IDS
    return ProduceResponse.TopicProduceResponse(
        **({"name": name} if by_name else {"topic_id": case.topic_ids[name]}), partition_responses=answers
    )


def frame_of_answer(message: ProduceResponse, version: int) -> bytes:
    """Return the answer as a broker sends it, without its size."""
    return b"".join(codec.encode_response(message, version, CORRELATION_ID))[4:]


def fields_of(answer: AllAccepted) -> tuple[int, Fields]:
    """Return the throttle time, and topic, partition, offset and time of each batch."""
    return answer.throttle_time_ms, [
        (*entry.state.key, base_offset, append_time_ms)
        for entry, base_offset, append_time_ms in answer.batches()
    ]


def expected_fields(message: ProduceResponse, case: Case) -> tuple[int, Fields] | None:
    """Return the same of what the codec has read; None if the answer is unusual."""
    names = {topic_id: name for name, topic_id in case.topic_ids.items()}
    nothing = ProduceResponse.LeaderIdAndEpoch()
    found: Fields = []
    for topic in message.responses:
        by_name = case.version < features.PRODUCE_TOPIC_IDS
        name = topic.name if by_name else names.get(topic.topic_id, "")
        if not topic.partition_responses:
            return None
        for each in topic.partition_responses:
            found.append((name, each.index, each.base_offset, each.log_append_time_ms))
            says_more = each.record_errors or each.error_message is not None or each.current_leader != nothing
            if each.error_code or says_more:
                return None
    asked = sorted((each.topic, each.partition) for each in case.asked)
    is_usual = sorted(each[:2] for each in found) == asked and not message.node_endpoints
    return (message.throttle_time_ms, found) if is_usual else None
