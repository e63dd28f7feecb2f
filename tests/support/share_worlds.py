"""Worlds of share groups: members with engines of their own, one log, and faults, from a seed.

The brokers of each member are its own, and share the log's state: which member has acquired a record, until
when, and which is done. They keep KIP-932's rules: a record is acquired by one member at a time, and only
that member acknowledges it, before its lock ends and in the session in which it has acquired it.

Checked at the end: each record is done; what a member was told to be accepted is done by that member, and by
no other; nothing remains of what was acquired, and each call has an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from kbatch.consumer.acquired import AcquiredRecords
from kbatch.core.consumer.share_session import Acknowledge
from kbatch.errors import ErrorCode, KafkaError
from kbatch.records import AcknowledgeType, TopicPartition
from tests.support.reading import FIRST, MS
from tests.support.share_reading import LOCK_MS, ShareReading, acquired_of, batch_of

ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
KINDS = (*[ACCEPT] * 8, RELEASE, REJECT, RENEW)
STEP_MS, MANY_STEPS = 300, 2000
SESSION_CODES = (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH)


class SharedLog:
    """The records of a partition, and who has them.

    Attributes
    ----------
    owners : dict of int to (int, int)
        The member that has acquired an offset, and when its lock ends.
    done : dict of int to int
        The member that has accepted or rejected an offset.
    """

    def __init__(self, record_count: int) -> None:
        self.record_count = record_count
        self.owners: dict[int, tuple[int, int]] = {}
        self.done: dict[int, int] = {}

    def acquire(self, member: int, most: int, now_ns: int) -> list[int]:
        self._expire(now_ns)
        found = [
            each for each in range(self.record_count) if each not in self.owners and each not in self.done
        ]
        for offset in found[:most]:
            self.owners[offset] = member, now_ns + LOCK_MS * MS
        return found[:most]

    def acknowledge(self, member: int, types: Mapping[int, int], now_ns: int) -> ErrorCode:
        """Take all acknowledgements, or none if the member has not acquired one of the records."""
        self._expire(now_ns)
        if any(self.owners.get(offset, (-1, 0))[0] != member for offset in types):
            return ErrorCode.INVALID_RECORD_STATE
        for offset, kind in types.items():
            if kind == RENEW:
                self.owners[offset] = member, now_ns + LOCK_MS * MS
                continue
            del self.owners[offset]
            if kind != RELEASE:
                self.done[offset] = member
        return ErrorCode.NONE

    def release(self, member: int) -> None:
        """End the member's session."""
        self.owners = {offset: each for offset, each in self.owners.items() if each[0] != member}

    def _expire(self, now_ns: int) -> None:
        self.owners = {offset: each for offset, each in self.owners.items() if now_ns < each[1]}


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
            self.shared.release(self.number)
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
            self.shared.release(self.number)
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
        self.records.arrivals.results.extend(self.results)  # type: ignore[arg-type]
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
        assert {log.done[offset] for offset in member.accepted} <= {member.number}, f"seed {seed}"
        assert member.engine._budget.used == 0, f"seed {seed}: memory is left"
    assert not log.owners, f"seed {seed}: locks are left"
