"""The transaction coordinator: every request in every state, both transaction versions, lost replies,
exhausted epochs. The expectations are those of Kafka 4.3.1 (TransactionCoordinator).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.transactions.transaction_coordinator import (
    END_TXN_V1,
    END_TXN_V2,
    EXPIRY_CHECK_INTERVAL_MS,
    RETRY_MS,
    TransactionCoordinator,
    compiled_pattern,
    unknown_states,
)
from kbatch.testing.broker.transactions.transaction_metadata import (
    NEXT_STATES,
    TransactionMetadata,
    TransactionState,
    to_record,
    tombstone,
)
from tests.support.broker_core import error_of
from tests.support.cases import noted
from tests.unit.testing.broker.transactions.harness import (
    ABORTABLE,
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
    NONE,
    NOW,
    ONGOING,
    OTHER,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED_STATES,
    STORED_STATES,
    TIMEOUT,
    TOPIC,
    Cluster,
    in_state,
    initialized,
    loaded,
)

# Every state x operation. Columns: unknown, EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT,
# COMPLETE_ABORT. A pair is the producer id and epoch of the answer.

SAME, BUMPED, FRESH, TV1_OK = (ID, EPOCH), (ID, EPOCH + 1), (NEW_ID, 0), (-1, -1)


def init_with(producer_id: int, epoch: int) -> Callable[[Cluster], Any]:
    return lambda cluster: cluster.init(producer_id, epoch)


def add_with(
    producer_id: int, epoch: int, partition: tuple[str, int], verify_only: bool = False
) -> Callable[[Cluster], Any]:
    return lambda cluster: cluster.coordinator.add_partitions(
        "tx", producer_id, epoch, [partition], NOW, verify_only=verify_only
    )[partition]


def end_with(producer_id: int, epoch: int, commit: bool, tv2: bool) -> Callable[[Cluster], Any]:
    return lambda cluster: cluster.end(producer_id, epoch, commit, tv2=tv2)


OPERATIONS: dict[str, tuple[Callable[[Cluster], Any], list[Any]]] = {
    "init, no id": (
        init_with(-1, -1),
        [FRESH, BUMPED, CONCURRENT, CONCURRENT, CONCURRENT, BUMPED, BUMPED],
    ),
    "init, current epoch": (
        init_with(ID, EPOCH),
        [FRESH, BUMPED, CONCURRENT, CONCURRENT, CONCURRENT, BUMPED, BUMPED],
    ),
    "init, retry of a lost reply": (
        init_with(ID, EPOCH - 1),
        [FRESH, SAME, CONCURRENT, CONCURRENT, CONCURRENT, SAME, SAME],
    ),
    "init, older epoch": (
        init_with(ID, EPOCH - 2),
        [FRESH, FENCED, CONCURRENT, CONCURRENT, CONCURRENT, FENCED, FENCED],
    ),
    "init, epoch to come": (
        init_with(ID, EPOCH + 1),
        [FRESH, FENCED, CONCURRENT, CONCURRENT, CONCURRENT, FENCED, FENCED],
    ),
    "init, unknown id": (
        init_with(77, EPOCH),
        [FRESH, FENCED, FENCED, CONCURRENT, CONCURRENT, FENCED, FENCED],
    ),
    "init, id before, epoch exhausted": (
        init_with(900, 32_766),
        [FRESH, FENCED, CONCURRENT, CONCURRENT, CONCURRENT, FENCED, FENCED],
    ),
    "init, id before, epochs left": (
        init_with(900, EPOCH),
        [FRESH, FENCED, FENCED, CONCURRENT, CONCURRENT, FENCED, FENCED],
    ),
    "init, id without epoch": (init_with(ID, -1), [ErrorCode.INVALID_REQUEST] * 7),
    "init, epoch without id": (init_with(-1, EPOCH), [ErrorCode.INVALID_REQUEST] * 7),
    "add new": (add_with(ID, EPOCH, OTHER), [MAPPING, NONE, NONE, CONCURRENT, CONCURRENT, NONE, NONE]),
    "add present": (add_with(ID, EPOCH, TOPIC), [MAPPING, NONE, NONE, CONCURRENT, CONCURRENT, NONE, NONE]),
    "add, other id": (
        add_with(77, EPOCH, OTHER),
        [MAPPING, MAPPING, MAPPING, CONCURRENT, CONCURRENT, MAPPING, MAPPING],
    ),
    "add, older epoch": (
        add_with(ID, EPOCH - 1, TOPIC),
        [MAPPING, FENCED, FENCED, CONCURRENT, CONCURRENT, FENCED, FENCED],
    ),
    "add, epoch to come": (
        add_with(ID, EPOCH + 1, TOPIC),
        [MAPPING, FENCED, FENCED, CONCURRENT, CONCURRENT, FENCED, FENCED],
    ),
    "verify present": (
        add_with(ID, EPOCH, TOPIC, True),
        [MAPPING, ABORTABLE, NONE, CONCURRENT, CONCURRENT, ABORTABLE, ABORTABLE],
    ),
    "verify missing": (
        add_with(ID, EPOCH, OTHER, True),
        [MAPPING, ABORTABLE, ABORTABLE, CONCURRENT, CONCURRENT, ABORTABLE, ABORTABLE],
    ),
    "verify, other id": (add_with(77, EPOCH, TOPIC, True), [MAPPING] * 7),
    "verify, older epoch": (add_with(ID, EPOCH - 1, TOPIC, True), [MAPPING] + [FENCED] * 6),
    "TV1 commit": (
        end_with(ID, EPOCH, True, False),
        [MAPPING, INVALID, TV1_OK, CONCURRENT, CONCURRENT, TV1_OK, INVALID],
    ),
    "TV1 abort": (
        end_with(ID, EPOCH, False, False),
        [MAPPING, INVALID, TV1_OK, CONCURRENT, CONCURRENT, INVALID, TV1_OK],
    ),
    "TV1 commit, other id": (end_with(77, EPOCH, True, False), [MAPPING] * 7),
    "TV1 commit, older epoch": (end_with(ID, EPOCH - 1, True, False), [MAPPING] + [FENCED] * 6),
    "TV1 abort, epoch to come": (end_with(ID, EPOCH + 1, False, False), [MAPPING] + [FENCED] * 6),
    "TV2 commit": (
        end_with(ID, EPOCH, True, True),
        [MAPPING, INVALID, BUMPED, CONCURRENT, CONCURRENT, INVALID, INVALID],
    ),
    "TV2 abort": (
        end_with(ID, EPOCH, False, True),
        [MAPPING, BUMPED, BUMPED, CONCURRENT, CONCURRENT, BUMPED, BUMPED],
    ),
    "TV2 commit, retry": (
        end_with(ID, EPOCH - 1, True, True),
        [MAPPING, FENCED, FENCED, CONCURRENT, CONCURRENT, SAME, INVALID],
    ),
    "TV2 abort, retry": (
        end_with(ID, EPOCH - 1, False, True),
        [MAPPING, FENCED, FENCED, CONCURRENT, CONCURRENT, INVALID, SAME],
    ),
    "TV2 commit, older epoch": (
        end_with(ID, EPOCH - 2, True, True),
        [MAPPING, FENCED, FENCED, CONCURRENT, CONCURRENT, FENCED, FENCED],
    ),
    "TV2 abort, epoch to come": (
        end_with(ID, EPOCH + 1, False, True),
        [MAPPING, FENCED, FENCED, CONCURRENT, CONCURRENT, FENCED, FENCED],
    ),
    "TV2 abort, other id": (
        end_with(77, EPOCH, False, True),
        [MAPPING, MAPPING, MAPPING, CONCURRENT, CONCURRENT, MAPPING, MAPPING],
    ),
    "TV2 commit, id before, epoch exhausted": (
        end_with(900, 32_766, True, True),
        [MAPPING, MAPPING, MAPPING, CONCURRENT, CONCURRENT, MAPPING, MAPPING],
    ),
}


@pytest.mark.parametrize("transaction_version", [1, 2])
@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation_in_each_state(name: str, transaction_version: int) -> None:
    for state, outcome in zip([None, *STORED_STATES], OPERATIONS[name][1], strict=True):
        with noted(state or "unknown"):
            check_operation(name, state, outcome, transaction_version)


def check_operation(
    name: str, state: TransactionState | None, outcome: Any, transaction_version: int
) -> None:
    cluster = Cluster(transaction_version)
    cluster.without_leader = {TOPIC} if state in (PREPARE_COMMIT, PREPARE_ABORT) else set()
    before = None if state is None else cluster.put(in_state(state))
    assert error_of(lambda: OPERATIONS[name][0](cluster)) == outcome
    fences = name.startswith("init") and state is ONGOING and outcome == CONCURRENT
    if isinstance(outcome, ErrorCode) and outcome != NONE and not fences:
        assert cluster.log == []
        if before is not None:
            assert cluster.known() == before
    if fences:
        assert cluster.stored_states() == [PREPARE_ABORT, COMPLETE_ABORT]
        assert cluster.markers == [(TOPIC, ID, EPOCH + 1, False, 9, 2 if transaction_version == 2 else 0)]


@pytest.mark.parametrize("state", STORED_STATES)
def test_the_tables_cover_every_state_that_takes_end_txn(state: TransactionState) -> None:
    answers = {commit for each, commit in END_TXN_V1 if each is state}
    retries = {(commit, is_retry) for each, commit, is_retry in END_TXN_V2 if each is state}
    if state in (PREPARE_COMMIT, PREPARE_ABORT):
        assert not answers and not retries
    else:
        assert answers == {True, False}
        assert {commit for commit, is_retry in retries if not is_retry} == {True, False}
        assert any(is_retry for _, is_retry in retries) == (state in (COMPLETE_COMMIT, COMPLETE_ABORT))


# InitProducerId, what does not depend on the state


@pytest.mark.parametrize(
    ("arguments", "options", "code"),
    [
        (("", TIMEOUT), {}, ErrorCode.INVALID_REQUEST),
        (("tx", 0), {}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (("tx", -1), {}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (("tx", 900_001), {}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (
            ("tx", TIMEOUT),
            {"enable_two_phase_commit": True},
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        (("tx", TIMEOUT), {"keep_prepared_transaction": True}, ErrorCode.UNSUPPORTED_VERSION),
        (
            ("tx", 2**31 - 1),
            {"enable_two_phase_commit": True, "keep_prepared_transaction": True},
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
    ],
)
def test_what_init_refuses(arguments: tuple[str, int], options: dict[str, Any], code: ErrorCode) -> None:
    cluster = Cluster()
    init = cluster.coordinator.init_producer_id
    refusal = error_of(lambda: init(*arguments, -1, -1, NOW, **options))
    assert refusal == code
    assert cluster.log == []


def test_the_longest_timeout_is_allowed() -> None:
    cluster = Cluster(max_timeout_ms=5_000)
    assert cluster.coordinator.init_producer_id("tx", 5_000, -1, -1, NOW) == FRESH


@pytest.mark.parametrize(
    "request_of",
    [
        lambda c: c.add_partitions("", 1, 0, [TOPIC], NOW),
        lambda c: c.add_partitions("", 1, 0, [TOPIC], NOW, verify_only=True),
        lambda c: c.add_offsets("", 1, 0, "group", NOW),
        lambda c: c.end_txn("", 1, 0, True, True, NOW),
        lambda c: c.end_txn("", 1, 0, True, False, NOW),
        lambda c: c.describe(""),
    ],
)
def test_an_empty_transactional_id_is_refused(request_of: Callable[[TransactionCoordinator], Any]) -> None:
    cluster = Cluster()
    assert error_of(lambda: request_of(cluster.coordinator)) == ErrorCode.INVALID_REQUEST


def test_a_second_producer_fences_the_first() -> None:
    cluster, first = initialized()
    second = cluster.init()
    assert (first, second) == ((NEW_ID, 0), (NEW_ID, 1))
    assert error_of(lambda: cluster.init(*first)) == FENCED
    assert error_of(lambda: cluster.add(*first, TOPIC)) == FENCED


def test_lost_reply_to_a_bump_is_repeated_on_request() -> None:
    cluster, first = initialized()
    answers = [cluster.init(*first) for _ in range(3)]
    assert answers == [(NEW_ID, 1)] * 3


def test_a_restart_forgets_which_epoch_was_before() -> None:
    """Kafka does not store it: the retry of a lost reply is then fenced."""
    cluster, first = initialized()
    cluster.init(*first)
    cluster.restart()
    assert error_of(lambda: cluster.init(*first)) == FENCED


def test_init_aborts_ongoing_transaction_and_retry_bumps_epoch() -> None:
    cluster, first = initialized()
    cluster.add(*first, TOPIC)
    assert error_of(cluster.init) == CONCURRENT
    assert cluster.markers == [(TOPIC, NEW_ID, 1, False, 9, 2)]
    assert cluster.init() == (NEW_ID, 2)


def test_init_sets_a_new_timeout() -> None:
    cluster = Cluster()
    cluster.init()
    cluster.coordinator.init_producer_id("tx", 1_234, -1, -1, NOW)
    assert cluster.known().timeout_ms == 1_234


# Epochs at their end


@pytest.mark.parametrize("transaction_version", [1, 2])
@pytest.mark.parametrize(
    ("epoch", "expected"), [(32_764, (ID, 32_765)), (32_765, (ID, 32_766)), (32_766, FRESH), (32_767, FRESH)]
)
@pytest.mark.parametrize("with_id", [False, True])
def test_init_gives_a_new_id_where_epochs_are_exhausted(
    epoch: int, expected: tuple[int, int], with_id: bool, transaction_version: int
) -> None:
    cluster = loaded(in_state(EMPTY, producer_epoch=epoch), transaction_version)
    assert cluster.init(*((ID, epoch) if with_id else (-1, -1))) == expected


def test_a_lost_reply_that_brought_a_new_id_is_given_again() -> None:
    cluster = loaded(in_state(COMPLETE_ABORT, producer_epoch=32_766))
    assert cluster.init(ID, 32_766) == FRESH
    assert cluster.init(ID, 32_766) == FRESH
    # as in Kafka, where every transition moves the id before along
    assert error_of(lambda: cluster.init(ID, 32_766)) == FENCED


def test_new_id_for_unnamed_producer_is_not_given_to_the_old() -> None:
    cluster = loaded(in_state(EMPTY, producer_epoch=32_766))
    assert cluster.init() == FRESH
    assert error_of(lambda: cluster.init(ID, 32_766)) == FENCED


@pytest.mark.parametrize("epoch", [5, 32_765])
def test_epoch_other_than_the_exhausted_one_is_a_server_error(epoch: int) -> None:
    """Kafka has an IllegalStateException there."""
    cluster = loaded(in_state(EMPTY, producer_epoch=32_766, last_producer_epoch=32_765))
    assert error_of(lambda: cluster.init(ID, epoch)) == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("restarts", [False, True])
def test_end_txn_and_retry_give_the_same_id_if_exhausted(commit: bool, restarts: bool) -> None:
    cluster = loaded(in_state(ONGOING, producer_epoch=32_766))
    assert cluster.end(ID, 32_766, commit) == FRESH
    assert cluster.markers == [(TOPIC, ID, 32_767, commit, 9, 2)]
    if restarts:
        cluster.restart()
    assert (cluster.known().previous_producer_id, cluster.known().next_producer_id) == (ID, -1)
    assert cluster.end(ID, 32_766, commit) == FRESH
    assert error_of(lambda: cluster.end(ID, 32_766, not commit)) == INVALID
    assert error_of(lambda: cluster.end(ID, 32_765, commit)) == MAPPING
    cluster.add(*FRESH, TOPIC)
    assert error_of(lambda: cluster.end(ID, 32_766, commit)) == MAPPING
    assert cluster.end(*FRESH, commit) == (NEW_ID, 1)


def test_end_txn_uses_the_last_epoch_before_the_exhausted_one() -> None:
    cluster = loaded(in_state(ONGOING, producer_epoch=32_765))
    assert cluster.end(ID, 32_765, True) == (ID, 32_766)


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_empty_abort_with_exhausted_epochs_gives_a_new_id(state: TransactionState) -> None:
    cluster = loaded(in_state(state, producer_epoch=32_766))
    assert cluster.end(ID, 32_766, False) == FRESH
    assert cluster.markers == []


def test_exhausted_transaction_keeps_new_id_over_a_restart() -> None:
    cluster = loaded(in_state(ONGOING, producer_epoch=32_766))
    cluster.without_leader = {TOPIC}
    assert cluster.end(ID, 32_766, True) == FRESH
    assert (cluster.known().state, cluster.known().next_producer_id) == (PREPARE_COMMIT, NEW_ID)
    cluster.without_leader.clear()
    cluster.restart()
    assert cluster.known().state is COMPLETE_COMMIT
    assert cluster.end(ID, 32_766, True) == FRESH


@pytest.mark.parametrize(
    ("transaction_version", "epoch", "marker_epoch", "afterwards"),
    [
        (2, 32_765, 32_766, (ID, 32_766)),
        (2, 32_766, 32_767, FRESH),
        (2, 32_767, 32_767, FRESH),
        (1, 32_765, 32_766, (ID, 32_766)),
        (1, 32_766, 32_767, (ID, 32_767)),
        (1, 32_767, 32_767, (ID, 32_767)),
    ],
)
def test_a_timeout_never_overflows_the_epoch(
    transaction_version: int, epoch: int, marker_epoch: int, afterwards: tuple[int, int]
) -> None:
    cluster = loaded(in_state(ONGOING, producer_epoch=epoch), transaction_version)
    cluster.coordinator.handle_timeout(NOW + TIMEOUT)
    assert [marker[2] for marker in cluster.markers] == [marker_epoch]
    assert (cluster.known().producer_id, cluster.known().producer_epoch) == afterwards
    answer = cluster.init()
    assert answer == ((NEW_ID, 0) if afterwards[1] >= 32_766 else (afterwards[0], afterwards[1] + 1))


# A transaction from begin to end


@pytest.mark.parametrize("commit", [True, False])
def test_a_tv2_transaction(commit: bool) -> None:
    cluster, first = initialized()
    cluster.coordinator.add_partitions("tx", *first, [OTHER, TOPIC], NOW + 1, client_tv2=True)
    assert cluster.known().client_transaction_version == 2
    assert cluster.end(*first, commit, now_ms=NOW + 2) == (NEW_ID, 1)
    assert cluster.markers == [
        (TOPIC, NEW_ID, 1, commit, 9, 2),
        (OTHER, NEW_ID, 1, commit, 9, 2),
    ]
    prepared, complete = (PREPARE_COMMIT, COMPLETE_COMMIT) if commit else (PREPARE_ABORT, COMPLETE_ABORT)
    assert cluster.stored_states() == [EMPTY, ONGOING, prepared, complete]
    assert cluster.known() == TransactionMetadata(
        "tx",
        NEW_ID,
        TIMEOUT,
        NOW + 2,
        producer_epoch=1,
        last_producer_epoch=0,
        previous_producer_id=NEW_ID,
        state=complete,
        start_ms=NOW + 1,
        client_transaction_version=2,
    )
    assert error_of(lambda: cluster.add(*first, TOPIC)) == FENCED
    cluster.add(NEW_ID, 1, TOPIC)
    assert cluster.end(NEW_ID, 1, True) == (NEW_ID, 2)


@pytest.mark.parametrize("transaction_version", [0, 1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_a_tv1_transaction_keeps_its_epoch(commit: bool, transaction_version: int) -> None:
    cluster, first = initialized(transaction_version)
    cluster.add(*first, TOPIC)
    for _ in range(2):  # the retry of a lost reply looks like the request
        assert cluster.end(*first, commit, tv2=False) == TV1_OK
    assert cluster.markers == [(TOPIC, NEW_ID, 0, commit, 9, 0)]
    assert error_of(lambda: cluster.end(*first, not commit, tv2=False)) == INVALID
    cluster.add(*first, OTHER)
    assert cluster.end(*first, commit, tv2=False) == TV1_OK
    assert cluster.known().producer_epoch == 0


def test_the_version_of_the_client_decides_not_the_feature_level() -> None:
    cluster, first = initialized(transaction_version=1)
    cluster.add(*first, TOPIC)
    assert cluster.end(*first, True, tv2=True) == (NEW_ID, 1)
    cluster.add(NEW_ID, 1, TOPIC)
    assert cluster.end(NEW_ID, 1, True, tv2=False) == TV1_OK


def test_partitions_are_stored_only_when_they_are_new() -> None:
    cluster, first = initialized()
    cluster.add(*first, TOPIC, now_ms=NOW + 1)
    cluster.add(*first, TOPIC, now_ms=NOW + 2)
    cluster.add(*first, TOPIC, OTHER, now_ms=NOW + 3)
    assert [metadata.partitions for metadata in cluster.stored() if metadata] == [
        frozenset(),
        {TOPIC},
        {TOPIC, OTHER},
    ]
    assert (cluster.known().start_ms, cluster.known().last_update_ms) == (NOW + 1, NOW + 3)


def test_markers_are_written_in_the_order_of_their_partitions() -> None:
    cluster, first = initialized()
    partitions = [(topic, index) for topic in "cab" for index in range(5)]
    cluster.add(*first, *partitions)
    cluster.end(*first, True)
    assert [marker[0] for marker in cluster.markers] == sorted(partitions)


def test_verifying_adds_nothing() -> None:
    cluster, first = initialized()
    cluster.add(*first, TOPIC)
    answer = cluster.coordinator.add_partitions("tx", *first, [TOPIC, OTHER], NOW, verify_only=True)
    assert answer == {TOPIC: NONE, OTHER: ABORTABLE}
    assert cluster.known().partitions == {TOPIC}


def test_offsets_add_the_partition_of_their_group() -> None:
    cluster, first = initialized(offsets_partition_count=50)
    partition = cluster.coordinator.add_offsets("tx", *first, "test-group", NOW)
    assert partition == 12
    assert cluster.known().partitions == {("__consumer_offsets", 12)}
    assert error_of(lambda: cluster.coordinator.add_offsets("tx", *first[:1], 7, "g", NOW)) == FENCED


def test_transactional_ids_do_not_touch_each_other() -> None:
    cluster = Cluster()
    one = cluster.coordinator.init_producer_id("one", TIMEOUT, -1, -1, NOW)
    two = cluster.coordinator.init_producer_id("two", TIMEOUT, -1, -1, NOW)
    cluster.coordinator.add_partitions("one", *one, [TOPIC], NOW)
    assert error_of(lambda: cluster.coordinator.add_partitions("one", *two, [TOPIC], NOW)) == MAPPING
    cluster.coordinator.end_txn("one", *one, True, True, NOW)
    assert (cluster.known("one").state, cluster.known("two").state) == (COMPLETE_COMMIT, EMPTY)


# Descriptions


def test_describe_shows_the_open_transaction() -> None:
    cluster, first = initialized()
    assert error_of(lambda: cluster.coordinator.describe("other")) == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    cluster.add(*first, TOPIC, now_ms=NOW + 3)
    described = cluster.coordinator.describe("tx")
    assert (described.state, described.partitions, described.start_ms) == (
        ONGOING,
        frozenset({TOPIC}),
        NOW + 3,
    )


@pytest.mark.parametrize(
    ("filters", "expected", "unknown"),
    [
        ({}, ["a-1", "a-2", "b-1"], []),
        ({"states": ["Ongoing"]}, ["a-2"], []),
        ({"states": ["Empty", "Nonsense", "ongoing"]}, ["a-1", "b-1"], ["Nonsense", "ongoing"]),
        ({"states": ["Nonsense"]}, [], ["Nonsense"]),
        ({"states": ["PrepareEpochFence", "Dead"]}, [], []),
        ({"producer_ids": [NEW_ID + 1, 77]}, ["a-2"], []),
        ({"duration_ms": 0}, ["a-1", "a-2", "b-1"], []),
        ({"duration_ms": 99, "states": ["Ongoing"]}, ["a-2"], []),
        ({"duration_ms": 100, "states": ["Ongoing"]}, [], []),
        ({"pattern": "a-.*"}, ["a-1", "a-2"], []),
        ({"pattern": "a"}, [], []),
        ({"pattern": ""}, ["a-1", "a-2", "b-1"], []),
        ({"pattern": ".*-1", "producer_ids": [NEW_ID]}, ["a-1"], []),
    ],
)
def test_list_filters(filters: dict[str, Any], expected: list[str], unknown: list[str]) -> None:
    cluster = Cluster()
    for name in ("a-1", "a-2", "b-1"):
        cluster.coordinator.init_producer_id(name, TIMEOUT, -1, -1, NOW)
    cluster.coordinator.add_partitions("a-2", NEW_ID + 1, 0, [TOPIC], NOW)
    filters["pattern"] = compiled_pattern(filters.get("pattern"))
    found = cluster.coordinator.list_transactions(NOW + 100, **filters)
    assert [metadata.transactional_id for metadata in found] == expected
    assert unknown_states(filters.get("states", ())) == unknown


def test_a_bad_pattern_is_refused_with_its_reason() -> None:
    with pytest.raises(BrokerError, match="`a\\(` is not a valid regular expression") as caught:
        compiled_pattern("a(")
    assert caught.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION


# The transaction coordinator over time: markers that cannot be written, time-outs, expiry, restarts, and
# all of it in any order.

# Markers that cannot be written


@pytest.mark.parametrize("commit", [True, False])
def test_missing_markers_are_tried_again_until_all_are_written(commit: bool) -> None:
    cluster, first = initialized()
    cluster.add(*first, TOPIC, OTHER)
    cluster.without_leader = {OTHER}
    assert cluster.end(*first, commit) == (NEW_ID, 1)
    prepared = PREPARE_COMMIT if commit else PREPARE_ABORT
    assert (cluster.known().state, cluster.known().partitions) == (prepared, frozenset({OTHER}))
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
    cluster, first = initialized()
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
    cluster, first = initialized(transaction_version)
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
    cluster, first = initialized()
    cluster.add(*first, TOPIC)
    cluster.coordinator.handle_timeout(NOW + TIMEOUT)
    assert error_of(lambda: cluster.end(*first, True)) == INVALID
    assert cluster.end(*first, False) == (NEW_ID, 1)


def test_a_tv1_client_is_fenced_by_the_timeout() -> None:
    cluster, first = initialized(transaction_version=1)
    cluster.add(*first, TOPIC)
    cluster.coordinator.handle_timeout(NOW + TIMEOUT)
    for commit in (True, False):
        assert error_of(partial(cluster.end, *first, commit, tv2=False)) == FENCED
    assert error_of(lambda: cluster.init(*first)) == FENCED
    assert cluster.init() == (NEW_ID, 2)


def test_after_a_tv1_timeout_no_older_epoch_is_taken_for_a_retry() -> None:
    cluster, first = initialized(transaction_version=1)
    second = cluster.init(*first)
    cluster.add(*second, TOPIC)
    cluster.coordinator.handle_timeout(NOW + TIMEOUT)
    assert error_of(lambda: cluster.init(*first)) == FENCED


def test_a_timeout_that_cannot_be_stored_is_tried_again() -> None:
    cluster, first = initialized()
    cluster.add(*first, TOPIC)
    cluster.store_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    cluster.coordinator.handle_timeout(NOW + TIMEOUT)
    assert cluster.known().state is ONGOING
    cluster.store_error = None
    deadline_ms = cluster.coordinator.next_deadline_ms()
    assert deadline_ms == NOW + TIMEOUT + RETRY_MS
    cluster.coordinator.handle_timeout(deadline_ms)
    assert cluster.known().state is COMPLETE_ABORT


def test_unused_transactional_ids_expire() -> None:
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


def test_transaction_time_after_a_restart_runs_from_its_start() -> None:
    cluster, first = initialized()
    cluster.add(*first, TOPIC)
    cluster.restart(NOW + 50_000)
    assert cluster.coordinator.next_deadline_ms() == NOW + TIMEOUT
    cluster.add(*first, OTHER, now_ms=NOW + 50_001)
    cluster.coordinator.handle_timeout(NOW + TIMEOUT)
    assert cluster.known().state is COMPLETE_ABORT


def test_restart_between_end_txn_and_retry_repeats_the_response() -> None:
    cluster, first = initialized()
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
        """Return the response, or None if the producer has to retry or restart."""
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
            lambda: coordinator.add_partitions("tx", *producer, [partition], self.now_ms, client_tv2=self.tv2)
        )
        if answer is not None:
            self.added.add(partition)

    @rule(commit=st.booleans(), restarts=st.booleans())
    def end(self, commit: bool, restarts: bool) -> None:
        """End a transaction and lose the reply: the same request again gets the same answer, also after a
        restart.
        """
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
        # a decision is read, then its markers, then later entries of the log
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
        """Check that with all leaders present every transaction ends, and every added partition has its
        marker.
        """
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
