"""The transaction coordinator: every request in every state, both transaction versions, lost replies,
exhausted epochs. The expectations are those of Kafka 4.3.1 (TransactionCoordinator).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.transaction_metadata import TransactionMetadata, TransactionState
from kbatch.testing.broker.transaction_state import END_TXN_V1, END_TXN_V2, TransactionCoordinator
from tests.unit.transaction_cluster import (
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
    STORED_STATES,
    TIMEOUT,
    TOPIC,
    Cluster,
    error_of,
    in_state,
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
CASES = [
    pytest.param(name, state, outcome, id=f"{name} in {state or 'unknown'}")
    for name, (_, outcomes) in OPERATIONS.items()
    for state, outcome in zip([None, *STORED_STATES], outcomes, strict=True)
]


@pytest.mark.parametrize("transaction_version", [1, 2])
@pytest.mark.parametrize(("name", "state", "outcome"), CASES)
def test_each_operation_in_each_state(
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


def test_without_a_transactional_id_each_producer_gets_an_id() -> None:
    cluster = Cluster()
    answers = [cluster.coordinator.init_producer_id(None, 0, -1, -1, NOW) for _ in range(3)]
    assert answers == [(NEW_ID, 0), (NEW_ID + 1, 0), (NEW_ID + 2, 0)]
    assert cluster.log == []


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
def test_what_init_refuses(arguments: tuple[str, int], options: dict[str, bool], code: ErrorCode) -> None:
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
    cluster = Cluster()
    first = cluster.init()
    second = cluster.init()
    assert (first, second) == ((NEW_ID, 0), (NEW_ID, 1))
    assert error_of(lambda: cluster.init(*first)) == FENCED
    assert error_of(lambda: cluster.add(*first, TOPIC)) == FENCED


def test_a_lost_reply_to_a_bump_is_given_again_as_often_as_asked() -> None:
    cluster = Cluster()
    first = cluster.init()
    answers = [cluster.init(*first) for _ in range(3)]
    assert answers == [(NEW_ID, 1)] * 3


def test_a_restart_forgets_which_epoch_was_before() -> None:
    """Kafka does not store it: the retry of a lost reply is then fenced."""
    cluster = Cluster()
    first = cluster.init()
    cluster.init(*first)
    cluster.restart()
    assert error_of(lambda: cluster.init(*first)) == FENCED


def test_init_of_an_ongoing_transaction_aborts_it_and_the_retry_gets_an_epoch_beyond() -> None:
    cluster = Cluster()
    first = cluster.init()
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
    cluster = Cluster(transaction_version)
    cluster.put(in_state(EMPTY, producer_epoch=epoch))
    assert cluster.init(*((ID, epoch) if with_id else (-1, -1))) == expected


def test_a_lost_reply_that_brought_a_new_id_is_given_again() -> None:
    cluster = Cluster()
    cluster.put(in_state(COMPLETE_ABORT, producer_epoch=32_766))
    assert cluster.init(ID, 32_766) == FRESH
    assert cluster.init(ID, 32_766) == FRESH
    # as in Kafka, where every transition moves the id before along
    assert error_of(lambda: cluster.init(ID, 32_766)) == FENCED


def test_a_new_id_for_who_named_none_is_not_given_to_the_old_producer() -> None:
    cluster = Cluster()
    cluster.put(in_state(EMPTY, producer_epoch=32_766))
    assert cluster.init() == FRESH
    assert error_of(lambda: cluster.init(ID, 32_766)) == FENCED


@pytest.mark.parametrize("epoch", [5, 32_765])
def test_another_epoch_than_the_exhausted_one_is_an_error_of_the_server(epoch: int) -> None:
    """As in Kafka, which has an IllegalStateException there."""
    cluster = Cluster()
    cluster.put(in_state(EMPTY, producer_epoch=32_766, last_producer_epoch=32_765))
    assert error_of(lambda: cluster.init(ID, epoch)) == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("restarts", [False, True])
def test_end_txn_with_exhausted_epochs_gives_a_new_id_and_its_retry_the_same(
    commit: bool, restarts: bool
) -> None:
    cluster = Cluster()
    cluster.put(in_state(ONGOING, producer_epoch=32_766))
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
    cluster = Cluster()
    cluster.put(in_state(ONGOING, producer_epoch=32_765))
    assert cluster.end(ID, 32_765, True) == (ID, 32_766)


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_an_abort_of_nothing_with_exhausted_epochs_gives_a_new_id(state: TransactionState) -> None:
    cluster = Cluster()
    cluster.put(in_state(state, producer_epoch=32_766))
    assert cluster.end(ID, 32_766, False) == FRESH
    assert cluster.markers == []


def test_an_exhausted_transaction_keeps_its_new_id_over_a_restart_before_its_markers() -> None:
    cluster = Cluster()
    cluster.put(in_state(ONGOING, producer_epoch=32_766))
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
    cluster = Cluster(transaction_version)
    cluster.put(in_state(ONGOING, producer_epoch=epoch))
    cluster.coordinator.handle_timeout(NOW + TIMEOUT)
    assert [marker[2] for marker in cluster.markers] == [marker_epoch]
    assert (cluster.known().producer_id, cluster.known().producer_epoch) == afterwards
    answer = cluster.init()
    assert answer == ((NEW_ID, 0) if afterwards[1] >= 32_766 else (afterwards[0], afterwards[1] + 1))


# A transaction from begin to end


@pytest.mark.parametrize("commit", [True, False])
def test_a_tv2_transaction(commit: bool) -> None:
    cluster = Cluster()
    first = cluster.init()
    cluster.coordinator.add_partitions("tx", *first, [OTHER, TOPIC], NOW + 1, client_tv2=True)
    assert cluster.known().client_transaction_version == 2
    assert cluster.end(*first, commit, now_ms=NOW + 2) == (NEW_ID, 1)
    assert cluster.markers == [
        (TOPIC, NEW_ID, 1, commit, 9, 2),
        (OTHER, NEW_ID, 1, commit, 9, 2),
    ]
    prepared, complete = (
        (PREPARE_COMMIT, COMPLETE_COMMIT) if commit else (PREPARE_ABORT, COMPLETE_ABORT)
    )
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
    cluster = Cluster(transaction_version)
    first = cluster.init()
    cluster.add(*first, TOPIC)
    for _ in range(2):  # the retry of a lost reply is not told from the request
        assert cluster.end(*first, commit, tv2=False) == TV1_OK
    assert cluster.markers == [(TOPIC, NEW_ID, 0, commit, 9, 0)]
    assert error_of(lambda: cluster.end(*first, not commit, tv2=False)) == INVALID
    cluster.add(*first, OTHER)
    assert cluster.end(*first, commit, tv2=False) == TV1_OK
    assert cluster.known().producer_epoch == 0


def test_the_version_of_the_client_decides_not_the_feature_level() -> None:
    cluster = Cluster(transaction_version=1)
    first = cluster.init()
    cluster.add(*first, TOPIC)
    assert cluster.end(*first, True, tv2=True) == (NEW_ID, 1)
    cluster.add(NEW_ID, 1, TOPIC)
    assert cluster.end(NEW_ID, 1, True, tv2=False) == TV1_OK


def test_partitions_are_stored_only_when_they_are_new() -> None:
    cluster = Cluster()
    first = cluster.init()
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
    cluster = Cluster()
    first = cluster.init()
    partitions = [(topic, index) for topic in "cab" for index in range(5)]
    cluster.add(*first, *partitions)
    cluster.end(*first, True)
    assert [marker[0] for marker in cluster.markers] == sorted(partitions)


def test_verifying_adds_nothing() -> None:
    cluster = Cluster()
    first = cluster.init()
    cluster.add(*first, TOPIC)
    answer = cluster.coordinator.add_partitions("tx", *first, [TOPIC, OTHER], NOW, verify_only=True)
    assert answer == {TOPIC: NONE, OTHER: ABORTABLE}
    assert cluster.known().partitions == {TOPIC}


def test_offsets_add_the_partition_of_their_group() -> None:
    cluster = Cluster(offsets_partition_count=50)
    first = cluster.init()
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
    cluster = Cluster()
    first = cluster.init()
    assert error_of(lambda: cluster.coordinator.describe("other")) == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    cluster.add(*first, TOPIC, now_ms=NOW + 3)
    described = cluster.coordinator.describe("tx")
    assert (described.state, described.partitions, described.start_ms) == (ONGOING, {TOPIC}, NOW + 3)


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
    found, unknown_states = cluster.coordinator.list_transactions(NOW + 100, **filters)
    assert ([metadata.transactional_id for metadata in found], unknown_states) == (expected, unknown)


def test_a_bad_pattern_is_refused_with_its_reason() -> None:
    with pytest.raises(BrokerError, match="`a\\(` is not a valid regular expression") as caught:
        Cluster().coordinator.list_transactions(NOW, pattern="a(")
    assert caught.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
