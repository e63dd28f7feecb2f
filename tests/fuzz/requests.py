"""Requests as clients send them, from a seed: mostly with values that the broker gave, in any order.

Theory of operation. A persona is both a producer and a member of a group. It keeps values from responses
(ids, epochs, generations, sequences) and mostly uses them, with a few topics and groups, so that requests
often reach deep. Otherwise a field has a value at the limits of its type. Every persona sends any request at
any time, and half of the time the usual next one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kbatch.errors import ErrorCode
from kbatch.protocol import codec, messages
from kbatch.protocol.schema import Field
from kbatch.protocol.structs import Message, Struct
from kbatch.testing.broker.cluster import Topic
from kbatch.testing.broker.core import HANDLERS
from tests.fuzz import mutator
from tests.oracle import plain
from tests.oracle.messages import BITS, FLOATS, TEXTS, UNSIGNED_BITS

INT32_MAX = 2**31 - 1
PERSONAS = 6
TOPICS = (*["one"] * 8, *["other"] * 4, *["compacted", "timed", "small"] * 2, "new", "__consumer_offsets")
# What a field is mostly, by its name or by its struct's and its own: one of these.
USUAL: dict[str, tuple[object, ...]] = {
    "acks": (*[-1] * 12, *[1] * 6, 0, 2),
    "allow_auto_topic_creation": (False, False, False, True),
    "auth_bytes": (b"\0user\0password", b"", b"\0user", b"\0\xff\0\xff"),
    "broker_ids": (0, 1, 2),
    "committed": (True, False),
    "compression_type": (0, 1),
    "count": (2, 4, 5, 0, 10_001),
    "CreatableTopicConfig.name": ("cleanup.policy", "segment.bytes", "retention.ms", "no.such.config"),
    "client_software_name": ("client", "", "a b"),
    "client_software_version": ("1.0", "-"),
    "coordinator_epoch": (0, 1, 2, -1),
    "current_leader_epoch": (-1, -1, -1, 0, 1),
    "committed_leader_epoch": (-1, 0),
    "committed_metadata": ("", None, "x" * 4096, "x" * 4097),
    "committed_offset": (0, 1, 5),
    "endpoint_type": (1, 2),
    "fetch_offset": (0, 0, 1, 2, 5, 20),
    "isolation_level": (0, 1),
    "key_type": (0, 1, 2),
    "last_fetched_epoch": (-1,),
    "leader_epoch": (-1, 0, 1, 2),
    "max_bytes": (1, 1000, 1 << 20),
    "max_wait_ms": (0, 0, 100, 500),
    "mechanism": ("PLAIN", "GSSAPI"),
    **dict.fromkeys(("ScramCredentialDeletion.mechanism", "ScramCredentialUpsertion.mechanism"), (1, 2, 0)),
    "min_bytes": (0, 1, 1000),
    "num_partitions": (1, 2, 5, -1, 0, 10_001),
    "offset": (-1, 0, 1, 5),
    "partition_max_bytes": (1, 1000, 1 << 20),
    "protocol_name": (*["range"] * 9, None),
    "JoinGroupRequestProtocol.name": (*["range"] * 9, "sticky"),
    "protocol_type": (*["consumer"] * 19, "connect"),
    "rebalance_timeout_ms": (6000, 30_000),
    "replica_id": (-1, -1, 0),
    "replication_factor": (-1, 1, 2),
    "require_stable": (True, False),
    "resource_type": (2, 4),
    "retention_time_ms": (-1, 0, 1000),
    "session_epoch": (-1, 0),
    "session_id": (0,),
    "session_timeout_ms": (6000, 30_000, 30_000),
    "state_filters": ("Ongoing", "Empty", "NoState"),
    "states_filter": ("Stable", "empty"),
    "timeout_ms": (0, 100, 30_000),
    "timestamp": (-1, -2, -3, -4, -5, 0, 1_700_000_000_000),
    "transaction_timeout_ms": (1000, 60_000, 60_000),
    "transaction_version": (0, 1, 2),
    "transactional_id_pattern": ("t.*", None, "(", "t{4294967296}", "(" * 2000 + ")" * 2000),
    "types_filter": ("classic", "share"),
    "validate_only": (False, False, True),
    "value": ("compact", "delete", "1", None),
    "verify_only": (False, True),
}
# Other names of what a persona keeps.
KEPT = {
    "generation_id_or_member_epoch": "generation_id",
    "groups": "group_id",
    "groups_names": "group_id",
    "member_epoch": "generation_id",
    "OffsetFetchRequestTopics.partition_indexes": "partition",
    "index": "partition",
    "key": "coordinator_key",
    "coordinator_keys": "coordinator_key",
    "name": "topic",
    "partition_index": "partition",
    "partition_indexes": "partition",
    "partitions": "partition",
    "producer_id_filters": "producer_id",
    "resource_name": "topic",
    "topic_names": "topic",
    "transactional_ids": "transactional_id",
    "v3_and_below_producer_epoch": "producer_epoch",
    "v3_and_below_producer_id": "producer_id",
    "v3_and_below_transactional_id": "transactional_id",
}
AT_LIMITS: dict[str, Callable[[random.Random], object]] = {
    "bool": lambda rng: rng.random() < 0.5,
    "bytes": lambda rng: rng.randbytes(rng.choice((0, 1, 300))),
    "float64": lambda rng: rng.choice(FLOATS),
    "string": lambda rng: rng.choice((*TEXTS, "z" * 32767)),
    "uuid": lambda rng: rng.choice((bytes(16), rng.randbytes(16))),
}
KINDS: list[type[Message]] = list(HANDLERS)
# How often each is sent; others once.
WEIGHTS: dict[type[Message], int] = {
    messages.AddOffsetsToTxnRequest: 3,
    messages.AddPartitionsToTxnRequest: 4,
    messages.EndTxnRequest: 6,
    messages.FetchRequest: 5,
    messages.HeartbeatRequest: 3,
    messages.InitProducerIdRequest: 4,
    messages.JoinGroupRequest: 8,
    messages.OffsetCommitRequest: 4,
    messages.ProduceRequest: 14,
    messages.SyncGroupRequest: 6,
    messages.TxnOffsetCommitRequest: 4,
}
# The usual next request.
FOLLOWERS: dict[type[Message], tuple[type[Message], ...]] = {
    messages.AddOffsetsToTxnRequest: (messages.TxnOffsetCommitRequest,),
    messages.AddPartitionsToTxnRequest: (messages.ProduceRequest,),
    messages.EndTxnRequest: (messages.AddPartitionsToTxnRequest, messages.ProduceRequest),
    messages.InitProducerIdRequest: (messages.AddPartitionsToTxnRequest, messages.ProduceRequest),
    messages.JoinGroupRequest: (messages.SyncGroupRequest,),
    messages.OffsetCommitRequest: (messages.HeartbeatRequest, messages.OffsetFetchRequest),
    messages.ProduceRequest: (
        *(messages.ProduceRequest, messages.FetchRequest, messages.EndTxnRequest),
        *(messages.AddPartitionsToTxnRequest, messages.AddOffsetsToTxnRequest),
    ),
    messages.SyncGroupRequest: (messages.HeartbeatRequest, messages.OffsetCommitRequest),
    messages.TxnOffsetCommitRequest: (messages.EndTxnRequest, messages.ProduceRequest),
}
# These errors end a member or producer: it joins, or begins, again.
MEMBER_IS_OVER = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}
GENERATION_IS_OVER = {ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}
PRODUCER_IS_OVER = {
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.PRODUCER_FENCED,
}


class Persona:
    """A client. Its attributes have the names of fields."""

    def __init__(self, number: int, rng: random.Random, topics: Mapping[str, Topic]) -> None:
        self._rng = rng
        self._topics = topics
        self._topic = "one"
        self._partition = 0
        self._sequences: dict[tuple[str, int], int] = {}
        # not an id of another: they fence each other by chance, not always
        self.transactional_id = f"t{number}" if number else None
        self.group_id = f"g{number % 2}"
        self.group_instance_id = f"i{number}" if number % 4 == 0 else None
        self.producer_id = self.producer_epoch = -1
        self.member_id = ""
        self.generation_id = -1
        self.last_request: type[Message] = messages.ApiVersionsRequest

    # Fields that differ each time

    @property
    def topic(self) -> str:
        self._topic = self._rng.choice(TOPICS)
        return self._topic

    @property
    def topic_id(self) -> bytes:
        topic = self._topics.get(self.topic)
        return topic.topic_id if topic is not None else bytes(16)

    @property
    def partition(self) -> int:
        self._partition = self._rng.choice((0, 0, 0, 1, 2))
        return self._partition

    @property
    def coordinator_key(self) -> str | None:
        return self._rng.choice((self.group_id, self.transactional_id))

    @property
    def assignment(self) -> bytes:
        return self._rng.choice((b"", b"\0\0\0\0\0\0\0\0\0\0"))

    @property
    def metadata(self) -> bytes:
        subscription = messages.ConsumerProtocolSubscription(topics=[self.topic])
        return self._rng.choice((b"\0\0" + b"".join(codec.encode(subscription, 0)), b"", b"\x7f\xff"))

    def records(self, now_ms: int) -> bytes | None:
        """Return a batch for the topic and partition that were named last, mostly this producer's next."""
        rng = self._rng
        if rng.random() < 0.05:
            return next(mutator.mutants(rng.random(), 1)).data
        if rng.random() < 0.02:
            return None
        place = (self._topic, self._partition)
        count = rng.choice((1, 1, 2, 5))
        sequence = rng.choice((*[self._sequences.get(place, 0)] * 6, 0, rng.randrange(10), INT32_MAX))
        self._sequences[place] = (sequence + count) % (INT32_MAX + 1)
        is_idempotent = rng.random() < 0.8
        keys = (b"k",) if self._topic == "compacted" else (b"k", None)
        rows = [(rng.choice(keys), rng.randbytes(rng.randrange(40)), (), now_ms) for _ in range(count)]
        return plain.encode(
            rows,
            compression=rng.choice((*["none"] * 5, *plain.CODECS)),
            producer_id=self.producer_id if is_idempotent else -1,
            producer_epoch=self.producer_epoch if is_idempotent else -1,
            base_sequence=sequence if is_idempotent and self.producer_id >= 0 else -1,
            transactional=self.transactional_id is not None and rng.random() < 0.9,
        )

    # Answers

    def learn(self, response: Message) -> None:
        """Keep the values of a response, or forget those that it ends."""
        codes = set(error_codes(response))
        if isinstance(response, messages.InitProducerIdResponse | messages.EndTxnResponse) and (
            response.producer_id >= 0 or response.error_code != ErrorCode.NONE
        ):
            self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
            self._sequences.clear()
        if isinstance(response, messages.JoinGroupResponse):
            self.member_id, self.generation_id = response.member_id, response.generation_id
        if codes & MEMBER_IS_OVER:
            self.member_id, self.generation_id = "", -1
        if codes & GENERATION_IS_OVER:
            self.generation_id = -1
        if codes & PRODUCER_IS_OVER and self._rng.random() < 0.3:
            self.producer_id = self.producer_epoch = -1

    @property
    def usual_requests(self) -> tuple[type[Message], ...]:
        """Return a request that continues from the last one, or adds what is missing."""
        if self.producer_id < 0:
            return (messages.InitProducerIdRequest,)
        if self.generation_id < 0:
            return (messages.JoinGroupRequest, messages.ProduceRequest, messages.EndTxnRequest)
        return FOLLOWERS.get(self.last_request, ())


def error_codes(value: Struct) -> Iterator[int]:
    for field in value._spec.fields:
        content = getattr(value, field.name)
        if field.name.endswith("error_code"):
            yield content
        elif field.struct and field.is_array:
            for element in content or ():
                yield from error_codes(element)


class Requests:
    """Valid requests of a persona, one after another."""

    def __init__(self, persona: Persona, rng: random.Random, now_ms: int) -> None:
        self._persona = persona
        self._rng = rng
        self._now_ms = now_ms

    def message(self, kind: type[Message], version: int) -> Message:
        message: Message = self._struct(kind, version)
        return message

    def _struct(self, kind: type[Any], version: int) -> Any:
        values = {
            field.name: self._value(field, f"{kind.__name__}.{field.name}", kind._structs, version)
            for field in kind._spec.fields
            if version in field.versions and (field.tag is None or self._rng.random() < 0.5)
        }
        return kind(**values)

    def _value(self, field: Field, path: str, structs: dict[str, type[Struct]], version: int) -> object:
        if version in field.nullable and self._rng.random() < 0.05:
            return None
        if field.is_array:
            count = self._rng.choice((0, *[1] * 9, 2, 3))
            return [self._value(field.element, path, structs, version) for _ in range(count)]
        if field.struct:
            return self._struct(structs[field.type], version)
        if field.type == "records":
            return self._persona.records(self._now_ms)
        value = self._limit(field) if self._rng.random() < 0.04 else self._usual(field, path)
        return self._limit(field) if value is None and version not in field.nullable else value

    def _usual(self, field: Field, path: str) -> object:
        if field.type == "float64":  # a quota's; others of its name are texts
            return self._limit(field)
        for name in (path, field.name):
            if name in USUAL:
                return self._rng.choice(USUAL[name])
            if (kept := KEPT.get(name, name)) in vars(Persona) or kept in vars(self._persona):
                return getattr(self._persona, kept)
        return self._limit(field)

    def _limit(self, field: Field) -> object:
        rng = self._rng
        if field.type in AT_LIMITS:
            return AT_LIMITS[field.type](rng)
        is_signed = field.type in BITS
        bits = (BITS if is_signed else UNSIGNED_BITS)[field.type]
        low = -(1 << bits - 1) if is_signed else 0
        high = low + (1 << bits) - 1
        return rng.choice((low, max(low, -1), 0, 1, high, rng.randint(low, high)))
