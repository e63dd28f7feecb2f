"""The transaction coordinator over time: markers that cannot be written, time-outs, expiry, restarts, and
all of it in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kbatch.errors import ErrorCode
from kbatch.testing.broker.transaction_metadata import (
    NEXT_STATES,
    TransactionMetadata,
    TransactionState,
    to_record,
    tombstone,
)
from kbatch.testing.broker.transaction_state import EXPIRY_CHECK_INTERVAL_MS, RETRY_MS
from tests.unit.transaction_cluster import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    CONCURRENT,
    EMPTY,
    EPOCH,
    FENCED,
    ID,
    INVALID,
    MAPPING,
    NEW_ID,
    NOW,
    ONGOING,
    OTHER,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED_STATES,
    TIMEOUT,
    TOPIC,
    Cluster,
    error_of,
    in_state,
)

# Markers that cannot be written


@pytest.mark.parametrize("commit", [True, False])
def test_missing_markers_are_tried_again_until_all_are_written(commit: bool) -> None:
    cluster = Cluster()
    first = cluster.init()
    cluster.add(*first, TOPIC, OTHER)
    cluster.without_leader = {OTHER}
    assert cluster.end(*first, commit) == (NEW_ID, 1)
    prepared = PREPARE_COMMIT if commit else PREPARE_ABORT
    assert (cluster.known().state, cluster.known().partitions) == (prepared, {OTHER})
    assert [marker[0] for marker in cluster.markers] == [TOPIC]
    for request in (
        lambda: cluster.init(),
        lambda: cluster.add(NEW_ID, 1, TOPIC),
        lambda: cluster.end(*first, commit),
        lambda: cluster.end(*first, not commit),
        lambda: cluster.end(NEW_ID, 1, commit, tv2=False),
    ):
        assert error_of(request) == CONCURRENT
    assert cluster.coordinator.next_deadline_ms() == NOW + RETRY_MS
    cluster.coordinator.handle_timeout(NOW + RETRY_MS)
    assert cluster.coordinator.next_deadline_ms() == NOW + 2 * RETRY_MS
    cluster.without_leader.clear()
    cluster.coordinator.handle_timeout(NOW + 2 * RETRY_MS - 1)
    assert cluster.known().state is prepared
    cluster.coordinator.handle_timeout(NOW + 2 * RETRY_MS)
    assert cluster.known().state is (COMPLETE_COMMIT if commit else COMPLETE_ABORT)
    assert [marker[0] for marker in cluster.markers] == [TOPIC, OTHER]
    assert cluster.end(*first, commit) == (NEW_ID, 1)


def test_a_decision_stands_where_its_completion_cannot_be_stored() -> None:
    cluster = Cluster()
    first = cluster.init()
    cluster.add(*first, TOPIC)
    completes = cluster.coordinator._complete

    def complete_without_log(metadata: TransactionMetadata, now_ms: int) -> None:
        cluster.store_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        completes(metadata, now_ms)

    cluster.coordinator._complete = complete_without_log  # type: ignore[method-assign]
    assert cluster.end(*first, True) == (NEW_ID, 1)
    assert cluster.known().state is PREPARE_COMMIT
    cluster.coordinator.handle_timeout(NOW + RETRY_MS)
    assert cluster.known().state is PREPARE_COMMIT
    cluster.coordinator._complete = completes  # type: ignore[method-assign]
    cluster.store_error = None
    cluster.coordinator.handle_timeout(NOW + 2 * RETRY_MS)
    assert cluster.known().state is COMPLETE_COMMIT
    assert len(cluster.markers) == 1


@pytest.mark.parametrize(
    ("state", "request_of"),
    [
        (None, lambda c: c.init()),
        (EMPTY, lambda c: c.init()),
        (ONGOING, lambda c: c.init()),
        (EMPTY, lambda c: c.add(ID, EPOCH, OTHER)),
        (ONGOING, lambda c: c.add(ID, EPOCH, OTHER)),
        (ONGOING, lambda c: c.end(ID, EPOCH, True)),
        (ONGOING, lambda c: c.end(ID, EPOCH, False, tv2=False)),
    ],
)
@pytest.mark.parametrize("transaction_version", [1, 2])
def test_what_is_not_stored_did_not_happen(
    state: TransactionState | None, request_of: Callable[[Cluster], Any], transaction_version: int
) -> None:
    cluster = Cluster(transaction_version)
    before = None if state is None else cluster.put(in_state(state))
    cluster.store_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert error_of(lambda: request_of(cluster)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert cluster.markers == []
    if before is None:
        assert error_of(cluster.known) == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    else:
        assert cluster.known() == before


# Time-outs


@pytest.mark.parametrize("transaction_version", [1, 2])
def test_a_transaction_is_aborted_when_its_time_is_over(transaction_version: int) -> None:
    cluster = Cluster(transaction_version)
    first = cluster.init()
    cluster.add(*first, TOPIC, now_ms=NOW + 10)
    cluster.add(*first, OTHER, now_ms=NOW + 20)
    deadline_ms = NOW + 10 + TIMEOUT
    assert cluster.coordinator.next_deadline_ms() == deadline_ms
    cluster.coordinator.handle_timeout(deadline_ms - 1)
    assert cluster.known().state is ONGOING
    cluster.coordinator.handle_timeout(deadline_ms)
    assert cluster.known().state is COMPLETE_ABORT
    version = 2 if transaction_version == 2 else 0
    assert cluster.markers == [
        (TOPIC, NEW_ID, 1, False, 9, version),
        (OTHER, NEW_ID, 1, False, 9, version),
    ]
    assert error_of(lambda: cluster.add(*first, TOPIC)) == FENCED


def test_a_tv2_client_learns_of_the_timeout_from_its_end_txn() -> None:
    cluster = Cluster()
    first = cluster.init()
    cluster.add(*first, TOPIC)
    cluster.coordinator.handle_timeout(NOW + TIMEOUT)
    assert error_of(lambda: cluster.end(*first, True)) == INVALID
    assert cluster.end(*first, False) == (NEW_ID, 1)


def test_a_tv1_client_is_fenced_by_the_timeout() -> None:
    cluster = Cluster(transaction_version=1)
    first = cluster.init()
    cluster.add(*first, TOPIC)
    cluster.coordinator.handle_timeout(NOW + TIMEOUT)
    for commit in (True, False):
        assert error_of(lambda commit=commit: cluster.end(*first, commit, tv2=False)) == FENCED
    assert error_of(lambda: cluster.init(*first)) == FENCED
    assert cluster.init() == (NEW_ID, 2)


def test_after_a_tv1_timeout_no_older_epoch_is_taken_for_a_retry() -> None:
    cluster = Cluster(transaction_version=1)
    first = cluster.init()
    second = cluster.init(*first)
    cluster.add(*second, TOPIC)
    cluster.coordinator.handle_timeout(NOW + TIMEOUT)
    assert error_of(lambda: cluster.init(*first)) == FENCED


def test_a_timeout_that_cannot_be_stored_is_tried_again() -> None:
    cluster = Cluster()
    first = cluster.init()
    cluster.add(*first, TOPIC)
    cluster.store_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    cluster.coordinator.handle_timeout(NOW + TIMEOUT)
    assert cluster.known().state is ONGOING
    cluster.store_error = None
    deadline_ms = cluster.coordinator.next_deadline_ms()
    assert deadline_ms == NOW + TIMEOUT + RETRY_MS
    cluster.coordinator.handle_timeout(deadline_ms)
    assert cluster.known().state is COMPLETE_ABORT


def test_transactional_ids_expire_when_nobody_used_them() -> None:
    cluster = Cluster(expiration_ms=10 * EXPIRY_CHECK_INTERVAL_MS)
    cluster.init()
    busy = cluster.coordinator.init_producer_id("busy", 900_000, -1, -1, NOW)
    for hour in range(1, 12):
        now_ms = NOW + hour * EXPIRY_CHECK_INTERVAL_MS
        cluster.coordinator.add_partitions("busy", *busy, [("orders", hour)], now_ms)
        _, epoch = cluster.coordinator.end_txn("busy", *busy, True, True, now_ms)
        busy = (busy[0], epoch)
        assert cluster.coordinator.next_deadline_ms() == now_ms
        cluster.coordinator.handle_timeout(now_ms)
        is_known = error_of(cluster.known) != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert is_known == (hour < 10)
    assert cluster.known("busy").producer_epoch == 11
    assert cluster.log.count(tombstone("tx")) == 1
    cluster.restart()
    assert error_of(cluster.known) == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    # a producer that comes back with its id gets another, and is not fenced
    assert cluster.init(NEW_ID, 0) == (NEW_ID + 2, 0)


@pytest.mark.parametrize("state", [ONGOING, PREPARE_COMMIT, PREPARE_ABORT])
def test_an_open_transaction_does_not_expire(state: TransactionState) -> None:
    cluster = Cluster(expiration_ms=1)
    cluster.without_leader = {TOPIC}
    cluster.put(in_state(state, timeout_ms=900_000_000))
    cluster.coordinator.handle_timeout(NOW + EXPIRY_CHECK_INTERVAL_MS)
    assert cluster.known().state is state


def test_an_expiry_that_cannot_be_stored_is_left_for_later() -> None:
    cluster = Cluster(expiration_ms=1)
    cluster.init()
    cluster.store_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    cluster.coordinator.handle_timeout(NOW + EXPIRY_CHECK_INTERVAL_MS)
    assert cluster.known().state is EMPTY
    cluster.store_error = None
    cluster.coordinator.handle_timeout(NOW + 2 * EXPIRY_CHECK_INTERVAL_MS)
    assert error_of(cluster.known) == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert cluster.coordinator.next_deadline_ms() is None


# Restarts


@pytest.mark.parametrize("state", [EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT])
@pytest.mark.parametrize("transaction_version", [1, 2])
def test_a_restart_knows_what_was_stored(state: TransactionState, transaction_version: int) -> None:
    cluster = Cluster(transaction_version)
    metadata = in_state(state, last_producer_epoch=-1)
    cluster.log = [to_record(in_state(EMPTY, producer_epoch=1), 1), to_record(metadata, 1)]
    cluster.restart(NOW + 1)
    assert cluster.known() == metadata
    assert len(cluster.log) == 2


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("client_version", [0, 2])
def test_a_restart_completes_what_was_prepared(commit: bool, client_version: int) -> None:
    cluster = Cluster()
    prepared = in_state(
        PREPARE_COMMIT if commit else PREPARE_ABORT,
        partitions=frozenset({OTHER, TOPIC}),
        client_transaction_version=client_version,
    )
    cluster.log = [to_record(prepared, 1)]
    cluster.restart(NOW + 7)
    assert cluster.markers == [
        (TOPIC, ID, EPOCH, commit, 9, client_version),
        (OTHER, ID, EPOCH, commit, 9, client_version),
    ]
    complete = COMPLETE_COMMIT if commit else COMPLETE_ABORT
    assert (cluster.known().state, cluster.known().last_update_ms) == (complete, NOW + 7)
    assert cluster.stored_states()[-1] is complete


def test_a_restart_without_a_leader_tries_the_markers_again() -> None:
    cluster = Cluster()
    cluster.log = [to_record(in_state(PREPARE_COMMIT), 1)]
    cluster.without_leader = {TOPIC}
    cluster.restart()
    assert cluster.known().state is PREPARE_COMMIT
    cluster.without_leader.clear()
    deadline_ms = cluster.coordinator.next_deadline_ms()
    assert deadline_ms is not None
    cluster.coordinator.handle_timeout(deadline_ms)
    assert cluster.known().state is COMPLETE_COMMIT


def test_after_a_restart_the_time_of_a_transaction_runs_from_its_start() -> None:
    cluster = Cluster()
    first = cluster.init()
    cluster.add(*first, TOPIC)
    cluster.restart(NOW + 50_000)
    assert cluster.coordinator.next_deadline_ms() == NOW + TIMEOUT
    cluster.add(*first, OTHER, now_ms=NOW + 50_001)
    cluster.coordinator.handle_timeout(NOW + TIMEOUT)
    assert cluster.known().state is COMPLETE_ABORT


def test_a_restart_between_end_txn_and_its_retry_gives_the_same_answer() -> None:
    cluster = Cluster()
    first = cluster.init()
    cluster.add(*first, TOPIC)
    answer = cluster.end(*first, True)
    cluster.restart()
    assert cluster.end(*first, True) == answer


# Anything, in any order


class Transactions(RuleBasedStateMachine):
    """A producer that does what it may, with restarts, missing leaders and time in between.

    What was decided is read from the log: each PREPARE_* must name the partitions that were added since the
    one before, its markers alone may be written, and all of them before COMPLETE_*.
    """

    @initialize(transaction_version=st.sampled_from([1, 2]), epoch=st.sampled_from([0, 32_762]))
    def begin(self, transaction_version: int, epoch: int) -> None:
        self.cluster = Cluster(transaction_version)
        self.tv2 = transaction_version == 2
        self.now_ms = NOW
        self.cluster.log = [to_record(in_state(EMPTY, producer_epoch=epoch), 1)]
        self.cluster.restart()
        self.given: set[tuple[int, int]] = set()
        self.producer: tuple[int, int] | None = None
        self.added: set[tuple[str, int]] = set()
        self.decision: TransactionMetadata | None = None
        self.read_records = self.read_markers = 0
        self.marked: set[tuple[str, int]] = set()

    def ask(self, request: Callable[[], Any]) -> Any:
        """The answer, or None where the producer has to ask again, or to begin anew."""
        answer = error_of(request)
        if isinstance(answer, ErrorCode):
            assert answer in (CONCURRENT, FENCED, INVALID, MAPPING)
            if answer != CONCURRENT:
                self.producer = None
            return None
        return answer

    def give(self, answer: tuple[int, int]) -> None:
        assert answer not in self.given
        self.given.add(answer)
        self.producer = answer

    @rule()
    def init(self) -> None:
        answer = self.ask(lambda: self.cluster.init(now_ms=self.now_ms))
        if answer is not None:
            self.give(answer)

    @rule(index=st.integers(0, 3))
    def add(self, index: int) -> None:
        if self.producer is None:
            return
        producer, partition = self.producer, ("orders", index)
        coordinator = self.cluster.coordinator
        answer = self.ask(
            lambda: coordinator.add_partitions(
                "tx", *producer, [partition], self.now_ms, client_tv2=self.tv2
            )
        )
        if answer is not None:
            self.added.add(partition)

    @rule(commit=st.booleans(), restarts=st.booleans())
    def end(self, commit: bool, restarts: bool) -> None:
        """The reply gets lost: the same request again gets the same answer, also after a restart."""
        if self.producer is None or not self.added:
            return
        producer = self.producer

        def request() -> Any:
            return self.cluster.end(*producer, commit, tv2=self.tv2, now_ms=self.now_ms)

        answer = self.ask(request)
        if answer is None:
            return
        if restarts:
            self.cluster.restart(self.now_ms)
        assert error_of(request) in (answer, CONCURRENT)
        self.read_log()
        assert self.decision is not None
        assert (self.decision.state is PREPARE_COMMIT) == commit
        if self.tv2:
            self.give(answer)

    @rule(indexes=st.sets(st.integers(0, 3)))
    def lose_leaders(self, indexes: set[int]) -> None:
        self.cluster.without_leader = {("orders", index) for index in indexes}

    @rule(later_ms=st.sampled_from([1, RETRY_MS, TIMEOUT // 2, TIMEOUT]))
    def let_time_pass(self, later_ms: int) -> None:
        self.now_ms += later_ms
        self.cluster.coordinator.handle_timeout(self.now_ms)

    @rule()
    def restart(self) -> None:
        before = self.cluster.known()
        self.cluster.restart(self.now_ms)
        if not before.state.is_preparing:
            assert self.cluster.known() == replace(before, last_producer_epoch=-1)

    @invariant()
    def read_log(self) -> None:
        if not hasattr(self, "cluster"):
            return
        stored = self.cluster.stored()
        for earlier, later in pairwise(stored[max(self.read_records - 1, 0) :]):
            assert earlier is not None and later is not None
            assert later.state in NEXT_STATES[earlier.state]
        # a decision is read, then its markers, then what came behind it in the log
        for metadata in stored[self.read_records :]:
            assert metadata is not None
            if metadata.state.is_preparing:
                assert metadata.partitions == self.added
                self.decision, self.added, self.marked = metadata, set(), set()
            self.check_markers()
            if metadata.state in (COMPLETE_COMMIT, COMPLETE_ABORT):
                assert self.decision is not None and self.marked == self.decision.partitions
        self.check_markers()
        self.read_records = len(stored)

    def check_markers(self) -> None:
        for marker in self.cluster.markers[self.read_markers :]:
            partition, producer_id, epoch, commit, _, version = marker
            assert self.decision is not None and partition in self.decision.partitions
            assert (producer_id, epoch) == (self.decision.producer_id, self.decision.producer_epoch)
            assert commit == (self.decision.state is PREPARE_COMMIT)
            assert version == self.decision.client_transaction_version
            self.marked.add(partition)
        self.read_markers = len(self.cluster.markers)

    @invariant()
    def what_is_open_has_a_deadline(self) -> None:
        if hasattr(self, "cluster") and self.cluster.known().state in (ONGOING, *PREPARED_STATES):
            assert self.cluster.coordinator.next_deadline_ms() is not None

    def teardown(self) -> None:
        """With leaders everywhere every transaction ends, and all that was added has its marker."""
        if hasattr(self, "cluster"):
            self.cluster.without_leader.clear()
            for _ in range(2):
                self.now_ms += TIMEOUT
                self.cluster.coordinator.handle_timeout(self.now_ms)
                self.read_log()
            assert self.cluster.known().state not in (ONGOING, *PREPARED_STATES)
            assert not self.added


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
