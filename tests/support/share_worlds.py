"""Worlds of share groups: members with engines of their own, one log, and faults, from a seed.

The brokers of each member are its own, and have one share partition, the embedded broker's: which member has
acquired a record, until when, and which is done. A new session of a member begins after its old connection
was lost, so that what it had acquired is released.

Checked at the end: each record is done; what a member was told to be accepted is done by that member, and by
no other, but for what came too late to count; nothing remains of what was acquired, and each call has an
answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, NamedTuple

from kbatch.consumer.acquired import AcquiredRecords
from kbatch.core.consumer.share_session import Acknowledge
from kbatch.errors import ErrorCode, KafkaError
from kbatch.records import AcknowledgeType, TopicPartition
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.share.record_states import Acknowledged
from kbatch.testing.broker.share.share_partition import SharePartition, ShareSettings
from kbatch.testing.broker.share.share_state import StoredShare
from kbatch.testing.broker.timers import Timers
from tests.support.reading import FIRST, MS
from tests.support.share_reading import LOCK_MS, ShareReading, acquired_of, batch_of

ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
KINDS = (*[ACCEPT] * 8, RELEASE, REJECT, RENEW)
STEP_MS, MANY_STEPS, MANY_DELIVERIES = 300, 2000, 10_000
SESSION_CODES = (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH)


class LogBatch(NamedTuple):
    """A batch of the log, as a share partition looks at it: each has one record."""

    base_offset: int
    last_offset: int


class SharedLog:
    """The records of a partition, as the embedded broker's share partition delivers them.

    Attributes
    ----------
    done : dict of int to int
        The member that has accepted or rejected an offset.
    ignored : set of (int, int)
        Members and offsets whose acknowledgements came after another member's had moved the start offset
        over the record. Kafka takes them without an error, and they count for nothing.
    """

    def __init__(self, record_count: int) -> None:
        self.record_count = record_count
        self.done: dict[int, int] = {}
        self.ignored: set[tuple[int, int]] = set()
        self._timers = Timers()
        self._share = SharePartition(
            0,
            StoredShare(0, 0, 0, 0, 0),
            lambda: ShareSettings(LOCK_MS, MANY_DELIVERIES),
            lambda start_offset, final_count, batches, now_ms: None,
            self._timers,
            lambda: None,
        )

    @property
    def acquired(self) -> list[int]:
        deliveries = self._share.describe().deliveries
        return [offset for offset, each in deliveries.items() if each.state == "ACQUIRED"]

    def acquire(self, member: int, most: int, now_ns: int) -> list[int]:
        self._timers.run(now_ns // MS)
        first = self._share.next_fetch_offset
        read: Any = [LogBatch(each, each) for each in range(first, self.record_count)]
        ranges = self._share.acquire(
            str(member),
            read,
            now_ns // MS,
            max_records=most,
            batch_size=most,
            is_limit=True,
            is_visible=lambda batch: True,
        )
        return [offset for each in ranges for offset in range(each.first_offset, each.last_offset + 1)]

    def acknowledge(self, member: int, types: Mapping[int, int], now_ns: int) -> ErrorCode:
        """Take all acknowledgements, or none if the member has not acquired one of the records."""
        self._timers.run(now_ns // MS)
        start_offset = self._share.start_offset
        batches = [Acknowledged(offset, offset, [kind]) for offset, kind in sorted(types.items())]
        try:
            self._share.acknowledge(str(member), batches, now_ns // MS)
        except BrokerError as error:
            return error.code
        for offset, kind in types.items():
            if offset < start_offset:
                self.ignored.add((member, offset))
            elif kind in (ACCEPT, REJECT):
                self.done[offset] = member
        return ErrorCode.NONE

    def release(self, member: int, now_ns: int) -> None:
        """End the member's session."""
        self._share.release(str(member), now_ns // MS)


class SharingMember(ShareReading):
    """A member with its brokers, and a program that acknowledges what it gets."""

    def __init__(self, number: int, log: SharedLog, rng: Random) -> None:
        self.number = number
        self.shared = log
        self.rng = rng
        self._most = 0
        super().__init__(seed=rng.randrange(2**32), retry_backoff_ms=10, reconnect_backoff_ms=10)
        self.records = AcquiredRecords(
            self.engine, self.config, lambda: self.now_ns, wake=lambda: None, notify=lambda: False
        )
        self.calls: list[Acknowledge] = []
        self._renewed: list[tuple[TopicPartition, int]] = []

    # Its brokers

    def _refusal(self, request: Any) -> int:
        code = super()._refusal(request)
        if code or request.share_session_epoch == 0:
            self.shared.release(self.number, self.now_ns)
        return code

    def _note(self, request: Any) -> dict[TopicPartition, int]:
        codes: dict[TopicPartition, int] = {}
        for part in (part for topic in request.topics for part in topic.partitions):
            types: dict[int, int] = {}
            for batch in part.acknowledgement_batches:
                for index, offset in enumerate(range(batch.first_offset, batch.last_offset + 1)):
                    kinds = batch.acknowledge_types
                    types[offset] = kinds[0] if len(kinds) == 1 else kinds[index]
            if types:
                codes[FIRST] = self.shared.acknowledge(self.number, types, self.now_ns)
        if request.share_session_epoch < 0:
            self.shared.release(self.number, self.now_ns)
        return codes

    def _fetch(self, request: Any) -> Any:
        answer = super()._fetch(request)
        for part in (part for topic in answer.responses for part in topic.partitions):
            if offsets := self.shared.acquire(self.number, request.max_records, self.now_ns):
                part.records, part.acquired_records = batch_of(offsets), acquired_of(offsets)
        return answer

    # Its program

    def step(self) -> None:
        """Poll once, and acknowledge what came."""
        for partition, offset in self._renewed:
            self.records.choose(partition, offset, ACCEPT)
        self._renewed.clear()
        self.engine.note_poll(self.now_ns)
        self.records.note_poll()
        call = Acknowledge(self.records.collect())
        self.calls.append(call)
        self.engine.acknowledge(call, 0 if self.records.has_next else self.rng.randint(1, 6))
        self.pass_time(STEP_MS)
        try:
            taken = self.records.take(self.rng.randint(1, 4))
        except KafkaError:
            taken = []
        for each in taken:
            kind = self.rng.choice(KINDS)
            self.records.choose(FIRST, each.offset, kind)
            if kind is RENEW:
                self._renewed.append((FIRST, each.offset))
        self.engine.stop_acquiring()

    def pass_time(self, duration_ms: int) -> None:
        self.advance(duration_ms)
        self.records.arrivals(list(self.results))  # type: ignore[arg-type]
        self.results.clear()

    def break_something(self) -> None:
        """Let one fault come."""
        match self.rng.randrange(5):
            case 0:
                self.cut()
            case 1:
                self.session_codes.append(self.rng.choice(SESSION_CODES))
            case 2:
                api = self.rng.choice(("ShareFetch", "ShareAcknowledge"))
                self.faults.drop_connection(api, self.rng.choice(("before", "after")), 1)
            case 3:
                self.beat_codes.append(ErrorCode.UNKNOWN_MEMBER_ID)
            case 4:
                self.pass_time(LOCK_MS + 1000)

    @property
    def accepted(self) -> set[int]:
        """Offsets whose acceptance a broker has confirmed."""
        return {
            offset
            for call in self.calls
            if call.is_done and call.error is None
            for types in call.types.values()
            for offset, kind in types.items()
            if kind == ACCEPT
        }

    def end(self) -> None:
        """Leave, as `close` does."""
        self.leave()
        self.pass_time(10_000)
        self.records.clear()
        self.run()


def play(seed: int, record_count: int = 60, members: int = 3) -> None:
    """Play a world, and check it."""
    rng = Random(seed)
    log = SharedLog(record_count)
    group = [SharingMember(number, log, rng) for number in range(members)]
    for member in group:
        member.join()
        member.pass_time(0)
    for step in range(MANY_STEPS):
        now_ns = max(member.now_ns for member in group)
        for member in group:
            member.pass_time((now_ns - member.now_ns) // MS)
            if step < 60 and rng.random() < 0.15:
                member.break_something()
            member.step()
        if len(log.done) == record_count and step > 60:
            break
    assert log.done.keys() == set(range(record_count)), f"seed {seed}: a standstill"
    for member in group:
        member.step()
        member.end()
        assert all(call.is_done for call in member.calls), f"seed {seed}: a call has no answer"
        counted = {each for each in member.accepted if (member.number, each) not in log.ignored}
        assert {log.done[offset] for offset in counted} <= {member.number}, f"seed {seed}"
        assert member.engine._budget.used == 0, f"seed {seed}: memory is left"
    assert not log.acquired, f"seed {seed}: locks are left"
