"""A share partition against a model that knows who has a record, and how often it came (KIP-932)."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

import pytest

from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.share.record_states import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Acknowledged,
    RecordState,
    StateBatch,
    state_batches,
)
from kbatch.testing.broker.share.share_partition import AcquiredRange, SharePartition, ShareSettings
from kbatch.testing.broker.share.share_state import StoredShare
from kbatch.testing.broker.timers import Timers

LOCK_MS, LIMIT, MOST_LOCKS = 1000, 4, 100
MEMBERS = ("a", "b", "c")


class LogBatch(NamedTuple):
    """What a share partition looks at of a batch of the log."""

    base_offset: int
    last_offset: int


class Model:
    """A share partition over a log, with what a bystander knows of each record."""

    def __init__(self, rng: Random, record_count: int) -> None:
        self.rng = rng
        self.now_ms = 0
        self.log: list[LogBatch] = []
        while self.log_end < record_count:
            self.log.append(LogBatch(self.log_end, self.log_end + rng.choice((0, 0, 1, 4, 9, 29))))
        self.stored = StoredShare(0, 0, 0, 0, 0)
        self.owners: dict[int, tuple[str, int]] = {}  # with the end of the lock
        self.counts: dict[int, int] = {}
        self.final: set[int] = set()
        self.refuses = False
        self.open()

    @property
    def log_end(self) -> int:
        return self.log[-1].last_offset + 1 if self.log else 0

    def open(self) -> None:
        self.timers = Timers()
        self.share = SharePartition(
            self.stored.start_offset,
            self.stored,
            lambda: ShareSettings(LOCK_MS, LIMIT, MOST_LOCKS),
            self.write,
            self.timers,
            lambda: None,
        )

    def write(self, start_offset: int, final_count: int, batches: Sequence[StateBatch], now_ms: int) -> None:
        if self.refuses:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.stored.update(start_offset, final_count, batches)

    # What happens

    def acquire(self, member: str) -> list[AcquiredRange]:
        first = self.share.next_fetch_offset
        read: Any = [each for each in self.log if each.last_offset >= first][: self.rng.randint(1, 8)]
        is_limit = self.rng.random() < 0.5
        most = self.rng.choice((0, 1, 3, 10, 500))
        acquired = self.share.acquire(
            member,
            read if self.share.may_acquire else [],
            self.now_ms,
            max_records=most,
            batch_size=self.rng.choice((1, 10, 500)),
            is_limit=is_limit,
            is_visible=lambda batch: True,
        )
        for found in acquired:
            for offset in range(found.first_offset, found.last_offset + 1):
                assert offset not in self.owners and offset not in self.final
                self.counts[offset] = self.counts.get(offset, 0) + 1
                assert self.counts[offset] == found.delivery_count <= LIMIT
                self.owners[offset] = member, self.now_ms + LOCK_MS
        if is_limit:
            assert sum(each.last_offset - each.first_offset + 1 for each in acquired) <= most
        return acquired

    def acknowledge(self, member: str) -> None:
        """Acknowledge some offsets, often ones that the member has; all count or none."""
        mine = sorted(offset for offset, (owner, _) in self.owners.items() if owner == member)
        offsets = [each for each in mine if self.rng.random() < 0.6]
        if self.rng.random() < 0.3:
            offsets = sorted({*offsets, self.rng.randrange(self.share.end_offset + 3)})
        if offsets and self.rng.random() < 0.1:
            offsets.append(offsets[-1])
        kinds = [self.rng.choice((GAP, ACCEPT, ACCEPT, RELEASE, RELEASE, REJECT, RENEW)) for _ in offsets]
        batches = [Acknowledged(each, each, [kind]) for each, kind in zip(offsets, kinds, strict=True)]
        relevant = [each for each in offsets if each >= self.share.start_offset]
        is_right = all(self.owners.get(each, ("", 0))[0] == member for each in relevant)
        is_right = is_right and len(set(relevant)) == len(relevant)
        before = self.facts()
        try:
            self.share.acknowledge(member, batches, self.now_ms)
        except BrokerError:
            assert not is_right or self.refuses
            assert self.facts() == before
            return
        assert is_right
        for offset, kind in zip(offsets, kinds, strict=True):
            if offset in relevant:
                self.end(offset, kind)

    def end(self, offset: int, kind: int) -> None:
        member, _ = self.owners.pop(offset)
        if kind == RENEW:
            self.owners[offset] = member, self.now_ms + LOCK_MS
        elif kind != RELEASE or self.counts[offset] >= LIMIT:
            self.final.add(offset)

    def release(self, member: str) -> None:
        self.share.release(member, self.now_ms)
        for offset in [each for each, (owner, _) in self.owners.items() if owner == member]:
            self.end(offset, RELEASE)

    def advance(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        self.timers.run(self.now_ms)
        for offset in [each for each, (_, end_ms) in self.owners.items() if end_ms <= self.now_ms]:
            self.end(offset, RELEASE)

    def restart(self) -> None:
        """Go on from what is stored, as another leader does: acquisitions are forgotten."""
        self.share.close()
        self.open()
        self.owners.clear()
        final = {each for each, (state, _) in self.stored.states.items() if state.is_final}
        assert self.final >= final | set(range(self.stored.start_offset))
        self.counts |= {
            each: self.stored.states[each][1] if each in self.stored.states else 0
            for each in range(self.share.start_offset, self.log_end)
        }

    def step(self) -> None:
        member = self.rng.choice(MEMBERS)
        match self.rng.randrange(12):
            case 0:
                self.advance(self.rng.choice((1, LOCK_MS // 2, LOCK_MS)))
            case 1:
                self.release(member)
            case 2 | 3 | 4 | 5:
                self.acknowledge(member)
            case 6 if self.rng.random() < 0.3:
                self.restart()
            case _:
                self.acquire(member)
        self.check()

    # What must be so

    def facts(self) -> object:
        share = self.share
        states = {each: (record.state, record.delivery_count) for each, record in share.records.items()}
        return share.start_offset, share.end_offset, state_batches(states)

    def check(self) -> None:
        share = self.share
        assert set(range(share.start_offset)) <= self.final
        assert share.start_offset == share.end_offset or share.start_offset not in self.final
        for offset, record in share.records.items():
            assert share.start_offset <= offset < share.end_offset
            assert record.state.is_final == (offset in self.final)
            assert (record.state is RecordState.ACQUIRED) == (offset in self.owners)
            assert record.delivery_count == self.counts.get(offset, 0)
        assert share._final_count == sum(each.state.is_final for each in share.records.values())
        assert [each.start for each in share.batches] == sorted(each.start for each in share.batches)
        # the last batch of the log that is acquired may exceed the limit
        assert share.end_offset - share.start_offset < MOST_LOCKS + 30


@pytest.mark.parametrize("seed", range(60))
def test_every_record_is_one_members_at_a_time_until_it_is_final(seed: int) -> None:
    model = Model(Random(seed), 150)
    for _ in range(250):
        model.step()
    for _ in range(2000):
        model.advance(LOCK_MS)
        for found in model.acquire("a"):
            batch = Acknowledged(found.first_offset, found.last_offset, [ACCEPT])
            model.share.acknowledge("a", [batch], model.now_ms)
            for offset in range(found.first_offset, found.last_offset + 1):
                model.end(offset, ACCEPT)
        model.check()
    assert model.final == set(range(model.log_end))
    assert model.share.next_fetch_offset == model.log_end
    assert model.timers.next_deadline_ms() is None, "no lock is left"


def test_acknowledgements_that_cannot_be_stored_change_nothing() -> None:
    model = Model(Random(1), 10)
    while not model.acquire("a"):
        pass
    model.refuses = True
    before = model.facts()
    with pytest.raises(BrokerError):
        model.share.acknowledge("a", [Acknowledged(0, 0, [ACCEPT])], 0)
    assert model.facts() == before
    model.advance(LOCK_MS)
    assert model.share.next_fetch_offset == 0, "a lock ends all the same"


def test_lock_of_a_renewed_record_ends_later_than_that_of_its_batch() -> None:
    model = Model(Random(1), 10)
    model.log = [LogBatch(0, 9)]
    while not model.acquire("a"):
        pass
    model.advance(LOCK_MS - 1)
    model.share.acknowledge("a", [Acknowledged(0, 0, [RENEW])], model.now_ms)
    model.timers.run(LOCK_MS)
    states = [model.share.records[each].state for each in (0, 1)]
    assert states == [RecordState.ACQUIRED, RecordState.AVAILABLE]
    model.timers.run(2 * LOCK_MS - 1)
    assert model.share.records[0].state is RecordState.AVAILABLE


def test_what_the_log_has_lost_below_its_start_is_not_waited_for() -> None:
    model = Model(Random(3), 40)
    model.log = [LogBatch(each, each) for each in range(40)]
    while not model.acquire("a"):
        pass
    model.release("a")
    model.share.log_starts_at(20)
    assert (model.share.start_offset, model.share.next_fetch_offset) == (20, 20)
    assert all(each >= 20 for each in model.share.records)


def test_offsets_that_compaction_has_removed_are_final() -> None:
    model = Model(Random(1), 10)
    model.log = [LogBatch(0, 4), LogBatch(5, 9)]
    while not model.acquire("a"):
        pass
    model.release("a")
    rest: Any = [LogBatch(5, 9)]
    acquired = model.share.acquire(
        "b", rest, 0, max_records=9, batch_size=9, is_limit=False, is_visible=lambda batch: True
    )
    assert [each[:2] for each in acquired] == [(5, 9)]
    assert model.share.start_offset == 5
