"""The campaign of hostile answers on the road: bent answers to Fetch, which a lent connection receives.

Theory of operation. The rounds are those of `hostile_answers`, without those that are batches alone. A road
has asked for the partitions of an answer, as the way of the round says. Each case comes in pieces of other
sizes. The road takes it, and its records are read; or it leaves it to the engine, as it came, and has changed
nothing. In the end all memory is back. A case of many is also given to the engine's way through an answer:
what the road has taken must mean the same there.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from kbatch._native.fetch.budget import Budget
from kbatch._native.fetch.fetch_answer import read_fetch_answer
from kbatch._native.fetch.fetched import Fetched
from kbatch._native.fetch.frames import FramePool
from kbatch.errors import CorruptRecordError
from tests.fuzz import campaign, hostile_answers
from tests.fuzz.hostile_answers import GROWTH_BYTES, MAX_DECOMPRESSED_BYTES, ROUND_CASES, How
from tests.support.roads import CORRELATION_ID, RESERVED_BYTES, TOPIC, Judge, Reader, receive, rows_of

BLOCK_CASES = 10_000
WARMING_CASES = 1_000
PARTITIONS = 2
COMPARED_EVERY = 100
# The sizes of the pieces in which cases come, in turn.
CUTS = ((1 << 20,), (3, 1 << 20), (4, 1, 100), (1, 2, 40, 300))


class Lending:
    """A reader whose connection is lent, and its memory."""

    def __init__(self, version: int, how: How) -> None:
        self.budget, self.frames = Budget(1 << 30), FramePool(spare_bytes=0)
        self.how = how
        self._version = version
        self._offsets = [how.from_offset] * PARTITIONS
        self.reader = self._new_reader()

    def _new_reader(self) -> Reader:
        return Reader(
            self._offsets,
            committed=self.how.committed,
            is_open=True,
            version=self._version,
            budget=self.budget,
            frames=self.frames,
            check_crcs=self.how.check_crcs,
            max_decompressed_bytes=MAX_DECOMPRESSED_BYTES,
        )

    def judge(self, case: bytes, cuts: tuple[int, ...], *, is_compared: bool) -> str:
        """Let the road receive a case, and return what became of it."""
        if is_compared:  # with a reader that has seen no other answer, either
            self.reader = self._new_reader()
        reader, budget = self.reader, self.budget
        assert budget.reserve(RESERVED_BYTES)
        reader.ask(self._offsets, is_open=True)
        before = reader.seen()
        sent = len(case).to_bytes(4, "big") + case
        found, left = receive(reader, sent, cuts)
        (back,) = reader.road.take_back()
        if back.requests:
            assert back.received + left == sent
            assert (found, reader.seen()) == ([], before)
            assert budget.reserved == RESERVED_BYTES
            budget.end_reservation(RESERVED_BYTES)
            outcome = "left to the engine"
        else:
            assert not back.received and not left and budget.reserved == 0
            if is_compared:
                self._compare(case, found)
            outcome = self._read(found)
        found.clear()
        assert (budget.used, self.frames.used_bytes) == (0, 0)
        assert not any(state.backlog_bytes for state in reader.states)
        return outcome

    def _read(self, found: list[Fetched]) -> str:
        """Read all records of the results, and give their memory back."""
        row_count, is_faulty = 0, False
        for each in found:
            assert self.how.from_offset <= each.from_offset < each.next_offset
            records = each.records
            while records is not None and (taken := records.take_records(self.how.lot)):
                row_count += len(taken)
            if records is not None and records.fault is not None:
                assert type(records.fault) is CorruptRecordError, repr(records.fault)
                assert f"{TOPIC}-{each.partition[1]} at offset " in str(records.fault)
                is_faulty = True
            each.release()
        if is_faulty:
            return "corrupt after records" if row_count else "corrupt"
        return "records" if row_count else "no records"

    def _compare(self, case: bytes, found: list[Fetched]) -> None:
        """Check that the engine makes the same of an answer."""
        judged = self._new_reader()
        answer = read_fetch_answer(case, self._version)
        assert answer is not None and answer.correlation_id == CORRELATION_ID
        expected = judged.road.take(judged.session, answer, Judge(), 0)
        judged.session.is_in_flight = False
        assert rows_of(expected) == rows_of(found)
        assert judged.seen() == self.reader.seen()


def play(run: campaign.Run) -> None:
    """Check a block's cases."""
    campaign.play_bounded(run, lambda run: run.judge(_cases(run)), WARMING_CASES, GROWTH_BYTES)


def _cases(run: campaign.Run) -> Iterator[campaign.Case]:
    left = max(run.cases // ROUND_CASES, 1)
    for name, version, how, cases in hostile_answers.rounds(run.block, 10 * left):
        if version is None:
            continue
        described = f"{name}, version {version}, {how}"
        lending = Lending(version, how)
        for place, case in enumerate(cases):
            cuts = CUTS[place % len(CUTS)]
            compared = place % COMPARED_EVERY == 0
            yield described, case, partial(lending.judge, case, cuts, is_compared=compared)
        left -= 1
        if not left:
            return
