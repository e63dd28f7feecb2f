"""Every answer that a transaction's requests can get, on the embedded broker (librdkafka's 0105).

A story is a transaction with a record and offsets, committed or aborted. A coordinator or leader refuses the
first one or three requests of an API with a code; what the oracle says must come of it: nothing that is seen
but in the requests, an abort and then the same again, or the end of the producer.

All codes are played with an engine that is linked to the broker's core, without sockets or threads. One code
of each meaning is played with a Producer and a broker over sockets as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kbatch import Delivery, OffsetAndMetadata, Producer, TopicPartition
from kbatch.core.producer.outcomes import BATCH_OUTCOMES, ERROR_RESPONSES, ErrorOutcome, ErrorResponse, Kind
from kbatch.errors import (
    ROWS,
    CommitFailedError,
    ErrorCode,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
)
from kbatch.testing import Broker
from tests.oracle import transaction_answers as oracle
from tests.oracle.transaction_answers import ABORT, AGAIN, BUMP, FATAL, FENCED, FIND, GONE, REJOIN, RETRY
from tests.support.cases import noted
from tests.support.patience import HANG_SECONDS
from tests.support.producing import producing, values, within
from tests.unit.producer.linked import LinkedBroker, LinkedProducer

# The engine decides what is reported, and one shell, Producer, is enough to show it.
REQUESTS = [request for request in oracle.ANSWERS if request != "Produce"]
COMMIT, END_BY_ABORT = "EndTxn (commit)", "EndTxn (abort)"
FUTURE_CODE = 9999
CODES = [*sorted(ROWS), FUTURE_CODE]
UNKNOWN_PRODUCER_ID, PRODUCER_FENCED = ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.PRODUCER_FENCED
# A leader that says DUPLICATE_SEQUENCE_NUMBER has the batch, and one that is made to say so has not: below.
PRODUCE_CODES = [code for code in CODES if code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER]
REPEATS = (1, 3)
OF_VERSION_1 = ("AddPartitionsToTxn", "AddOffsetsToTxn")
# By which version of transactions.
ASKED = [
    pytest.param(version, request, id=f"TV{version}-{request}")
    for version in (1, 2)
    for request in REQUESTS
    if version == 1 or request not in OF_VERSION_1
]
# Those that a coordinator gets, by version.
OF_TRANSACTIONS = [
    {"InitProducerId", *OF_VERSION_1, "TxnOffsetCommit", "EndTxn"},
    {"InitProducerId", "TxnOffsetCommit", "EndTxn"},
]
# What the story says of an answer that means more than one thing: one record is not split, a gap before the
# first sequence cannot be, and without a log start offset, which a faulty answer has not, it is not known
# whether records were lost.
OF_ONE_RECORD = {
    ErrorCode.MESSAGE_TOO_LARGE: ABORT,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: ABORT,
    UNKNOWN_PRODUCER_ID: RETRY,
}
UNNOTICED = (RETRY, FIND, GONE)
GROUP, TRANSACTION = 0, 1
_numbers = itertools.count()


SETTINGS = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "reconnect_backoff_ms": 1, "retries": 20}


@pytest.fixture(scope="module", params=[1, 2], ids=["TV1", "TV2"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """Yield a broker over sockets."""
    with Broker(topics=["source"], transaction_version=request.param) as running:
        yield running


@pytest.fixture
def producer(broker: Broker) -> Iterator[Producer]:
    name = f"{next(_numbers)}"
    with producing(broker, transactional_id=name, client_id=name, **SETTINGS) as made:
        yield made
    broker.clear_faults()


def play(version: int, judge: Callable[..., None], *case: Any) -> None:
    """Judge a case with an engine and a broker that are linked."""
    broker = LinkedBroker(["source"], transaction_version=version)
    producer = LinkedProducer(broker, transactional_id="linked", **SETTINGS)
    with noted(*case):
        judge(broker, producer, *case)


def one_of_each(request_name: str, codes: list[int]) -> list[int]:
    """Return the first code of each meaning."""
    return list({oracle.meaning_of(request_name, code): code for code in reversed(codes)}.values())


def is_version_1(broker: Broker) -> bool:
    return broker._options.transaction_version < 2


class Story:
    """The story of a transaction, up to its end or that of the producer."""

    def __init__(
        self, broker: Broker, producer: Producer, *, commits: bool = True, is_ready: bool = False
    ) -> None:
        self.broker = broker
        self.producer = producer
        self.commits = commits
        self.is_ready = is_ready
        self.errors: list[KafkaError] = []
        self.deliveries: list[Delivery] = []
        self.topic = f"story-{next(_numbers)}"  # others may have left transactions open
        broker.create_topic(self.topic)

    def tell(self, times: int) -> None:
        for _ in range(times + 1):
            try:
                self._go()
                return
            except KafkaError as error:
                self.errors.append(error)
                if not self._recovers(error):
                    return
        raise AssertionError(self.errors)

    def _go(self) -> None:
        producer = self.producer
        if not self.is_ready:
            producer.init_transactions()
            self.is_ready = True
        producer.begin_transaction()
        self.deliveries.append(producer.send(self.topic, b"sent"))
        producer.send_offsets_to_transaction({TopicPartition("source", 0): OffsetAndMetadata(1)}, "g")
        (producer.commit_transaction if self.commits else producer.abort_transaction)()

    def fail(self) -> None:
        """Let a leader refuse the record for good: only an abort helps."""
        self.broker.fail_next("Produce", "INVALID_RECORD")
        with pytest.raises(KafkaError) as raised:
            self._go()
        assert raised.value.abortable

    def abort(self, times: int) -> list[KafkaError]:
        """Repeat the call until it succeeds or is fatal; return the errors."""
        errors: list[KafkaError] = []
        for _ in range(times + 1):
            try:
                self.producer.abort_transaction()
                break
            except KafkaError as error:
                errors.append(error)
                if error.fatal:
                    break
        return errors

    def _recovers(self, error: KafkaError) -> bool:
        if error.fatal:
            return False
        if error.abortable:
            try:
                self.producer.abort_transaction()
            except KafkaError as failed:
                self.errors.append(failed)
                return not failed.fatal and failed.abortable
            self.is_ready = True
        return True

    @property
    def ends_well(self) -> bool:
        return not self.errors or not self.errors[-1].fatal


def api_of(request: str) -> str:
    return request.partition(" ")[0]


def is_the_end(meaning: str) -> bool:
    return meaning in (FATAL, FENCED)


def check(broker: Broker, story: Story, meaning: str, *, is_fatal: bool, code: int) -> None:
    """Check the `meaning` of the first answer; with `is_fatal` the last one ends the producer."""
    seen = values(broker, topic=story.topic)
    errors = story.errors
    assert story.ends_well != is_fatal, errors
    assert bool(errors) == (meaning not in UNNOTICED), errors
    if errors:
        first = errors[0]
        assert first.fatal == is_the_end(meaning)
        assert (first.abortable and not first.fatal) == (meaning in (ABORT, BUMP, REJOIN))
        assert isinstance(first, ProducerFencedError) == (meaning == FENCED or code == PRODUCER_FENCED)
        assert isinstance(first, CommitFailedError) == (meaning == REJOIN)
    if not is_fatal:
        assert len(seen) == story.commits
        assert all(error.abortable or error.code == code for error in errors)
    else:
        assert not seen
        with pytest.raises(KafkaError) as raised:
            story.producer.begin_transaction()
        assert raised.value.fatal


def asked(broker: Broker, producer: Producer, api: str) -> list[Any]:
    """Return the producer's requests of an API so far."""
    client_id = producer.config.client_id
    return [request.message for request in broker.requests(api) if request.client_id == client_id]


def finds(broker: Broker, producer: Producer) -> dict[int, int]:
    """Return the number of searches for the coordinators of its group and of its transactions."""
    kinds = [each.key_type for each in asked(broker, producer, "FindCoordinator")]
    return {kind: kinds.count(kind) for kind in (GROUP, TRANSACTION)}


def check_requests(broker: Broker, producer: Producer, request: str, meaning: str, times: int) -> None:
    """Check a story without visible errors: each request was sent once, and again for each refusal. The
    coordinator was searched again only if the answer said that it is elsewhere.
    """
    sought = TRANSACTION if request != "TxnOffsetCommit" else GROUP
    found = {GROUP: 1, TRANSACTION: 1}
    found[sought] += times * (meaning == FIND or request == "FindCoordinator")
    assert finds(broker, producer) == found
    if request != "FindCoordinator":
        assert len(asked(broker, producer, api_of(request))) == 1 + times


# Actions of kbatch's table, in the oracle's words.
_WORDS = {
    ErrorResponse.FENCED: FENCED,
    ErrorResponse.FATAL: FATAL,
    ErrorResponse.INIT_AGAIN: AGAIN,
    ErrorResponse.BUMP_OR_FATAL: BUMP,
    ErrorResponse.GONE: GONE,
    ErrorResponse.COMMIT_FAILED: REJOIN,
    ErrorResponse.ABORT: ABORT,
    ErrorResponse.FIND: FIND,
    ErrorResponse.RETRY: RETRY,
    ErrorResponse.DONE: oracle.DONE,
}
_OUTCOME_WORDS = {
    ErrorOutcome.COMPLETE: oracle.DONE,
    ErrorOutcome.RETRY: RETRY,
    ErrorOutcome.SPLIT: oracle.SPLIT,
    ErrorOutcome.GAP: oracle.GAP,
    ErrorOutcome.FAIL: ABORT,
    ErrorOutcome.FATAL: FATAL,
}


@pytest.mark.parametrize("kind", Kind)
def test_0105_the_table_is_that_of_the_oracle(kind: Kind) -> None:
    for code in CODES:
        assert _WORDS[ERROR_RESPONSES[kind][code]] == oracle.meaning_of(kind.value, code), (kind, code)


def test_0105_the_table_of_batches_is_that_of_the_oracle() -> None:
    for code in map(ErrorCode, sorted(ROWS)):
        outcome = BATCH_OUTCOMES[code]
        is_fatal = outcome is ErrorOutcome.FAIL and ROWS[code].fatal
        found = FATAL if is_fatal else _OUTCOME_WORDS[outcome]
        assert found == oracle.meaning_of("Produce", code), code


@pytest.mark.slow
@pytest.mark.parametrize(("version", "request_name"), ASKED)
def test_0105_responses_of_coordinators(version: int, request_name: str) -> None:
    for code, times in itertools.product(CODES, REPEATS):
        play(version, judge_coordinator, request_name, code, times)


@pytest.mark.parametrize(
    ("broker", "request_name", "code"),
    [
        pytest.param(*asked.values, code, id=f"{asked.id}-{code}")
        for asked in ASKED
        for code in one_of_each(str(asked.values[1]), CODES)
    ],
    indirect=["broker"],
)
def test_responses_of_coordinators_over_sockets(
    broker: Broker, producer: Producer, request_name: str, code: int
) -> None:
    judge_coordinator(broker, producer, request_name, code, 1)


def judge_coordinator(broker: Broker, producer: Producer, request_name: str, code: int, times: int) -> None:
    commits = request_name != END_BY_ABORT
    is_at_the_end = not commits or (request_name == COMMIT and times > 1)
    if code == UNKNOWN_PRODUCER_ID and is_at_the_end:
        forget_as_it_is_said(broker, times)
    else:
        broker.fail_next(api_of(request_name), code, times)
    meaning = oracle.meaning_of(request_name, code)
    story = Story(broker, producer, commits=commits)
    story.tell(times)
    is_fatal = is_the_end(meaning)
    if request_name == COMMIT and times > 1 and not is_fatal:  # the abort gets it too
        is_fatal = is_the_end(oracle.meaning_of(END_BY_ABORT, code))
    check(broker, story, meaning, is_fatal=is_fatal, code=code)
    if meaning in (RETRY, FIND):
        check_requests(broker, producer, request_name, meaning, times)


def forget_as_it_is_said(broker: Broker, times: int) -> None:
    """Answer `times` EndTxn requests with UNKNOWN_PRODUCER_ID; for an abort the coordinator has no
    transaction any more.
    """
    left = [times]

    def forget(request: Any) -> ErrorCode | None:
        if not left[0]:
            return None
        left[0] -= 1
        if not request.committed:
            broker._call(lambda core: abort(request, core.state))
        return UNKNOWN_PRODUCER_ID

    def abort(request: Any, state: Any) -> None:
        of = (request.transactional_id, request.producer_id, request.producer_epoch)
        shard = state.coordinators.of_transaction(request.transactional_id)
        shard.transactions.end_txn(*of, False, not is_version_1(broker), state.now_ms)

    broker.intercept("EndTxn", forget)


def test_0105_responses_to_init_after_an_abort() -> None:
    """The abort is what waits for it; where it can be made again it leads to the next transaction."""
    for code, times in itertools.product(CODES, REPEATS):
        play(1, judge_init_after_abort, code, times)


@pytest.mark.parametrize("code", one_of_each("InitProducerId", CODES))
@pytest.mark.parametrize("broker", [pytest.param(1, id="TV1")], indirect=True)
def test_responses_to_init_after_an_abort_over_sockets(broker: Broker, producer: Producer, code: int) -> None:
    judge_init_after_abort(broker, producer, code, 1)


def judge_init_after_abort(broker: Broker, producer: Producer, code: int, times: int) -> None:
    failed = Story(broker, producer)
    failed.fail()
    broker.fail_next("InitProducerId", code, times)
    meaning = oracle.meaning_of("InitProducerId", code)
    errors = failed.abort(times)
    assert len(errors) == (0 if meaning in UNNOTICED else 1 if is_the_end(meaning) else times)
    for error in errors:
        assert error.fatal == is_the_end(meaning)
        assert error.fatal or error.abortable
        assert isinstance(error, ProducerFencedError) == (meaning == FENCED)
    noted = Story(broker, producer, is_ready=True)
    noted.tell(0)
    assert noted.ends_well != is_the_end(meaning)
    assert values(broker, topic=noted.topic) == [b"sent"] * noted.ends_well
    assert not values(broker, topic=failed.topic)
    if noted.ends_well:
        assert len(asked(broker, producer, "InitProducerId")) == 2 + times
        assert finds(broker, producer)[TRANSACTION] == 1 + times * (meaning == FIND)


@pytest.mark.parametrize("code", [None, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED])
@pytest.mark.parametrize("broker", [pytest.param(1, id="TV1")], indirect=True)
def test_0105_slow_init_after_abort_is_awaited_by_the_abort(
    broker: Broker, producer: Producer, code: ErrorCode | None
) -> None:
    failed = Story(broker, producer)
    failed.fail()
    broker.delay("InitProducerId", 0.1)
    if code is not None:
        broker.fail_next("InitProducerId", code)
    with pytest.raises(KafkaTimeoutError):
        producer.abort_transaction(timeout=0.01)
    for call in (producer.begin_transaction, producer.commit_transaction):
        with pytest.raises(IllegalStateError, match="call it again"):
            call()
    if code is None:
        producer.abort_transaction()
        noted = Story(broker, producer, is_ready=True)
        noted.tell(0)
        assert values(broker, topic=noted.topic) == [b"sent"] and not noted.errors
    else:
        with pytest.raises(ProducerFencedError):
            producer.abort_transaction()
        with pytest.raises(ProducerFencedError):
            producer.begin_transaction()
    assert not values(broker, topic=failed.topic)


@pytest.mark.parametrize("version", [1, 2])
def test_0105_responses_of_leaders(version: int) -> None:
    for code, times in itertools.product(PRODUCE_CODES, REPEATS):
        play(version, judge_leader, code, times)


@pytest.mark.parametrize("code", one_of_each("Produce", PRODUCE_CODES))
def test_responses_of_leaders_over_sockets(broker: Broker, producer: Producer, code: int) -> None:
    judge_leader(broker, producer, code, 1)


def judge_leader(broker: Broker, producer: Producer, code: int, times: int) -> None:
    story = Story(broker, producer)
    broker.fail_next("Produce", code, times)
    story.tell(times)
    meaning = OF_ONE_RECORD.get(ErrorCode(code)) or oracle.meaning_of("Produce", code)
    check(broker, story, meaning, is_fatal=is_the_end(meaning), code=code)
    failures = [each.exception(HANG_SECONDS) for each in story.deliveries]
    failed = [each for each in failures if isinstance(each, KafkaError)]
    assert bool(failed) == bool(story.errors)
    for each in failed:  # a program that waits for the delivery learns what the commit would tell
        assert (each.fatal, each.abortable) == (is_the_end(meaning), not is_the_end(meaning)), each
    if meaning == RETRY:
        assert len(asked(broker, producer, "Produce")) == 1 + times
        assert finds(broker, producer) == {GROUP: 1, TRANSACTION: 1}


@pytest.mark.parametrize("times", REPEATS)
def test_0105_a_leader_that_has_the_batch_already(broker: Broker, producer: Producer, times: int) -> None:
    """The broker took the batch, and its answers were lost, until it reports a duplicate (0144)."""
    story = Story(broker, producer)
    seen = itertools.count()

    def duplicate(request: Any) -> ErrorCode | None:
        return ErrorCode.DUPLICATE_SEQUENCE_NUMBER if next(seen) == times else None

    broker.drop_connection("Produce", "after", times)
    broker.intercept("Produce", duplicate)
    story.tell(0)
    assert not story.errors
    assert values(broker, topic=story.topic) == [b"sent"]
    assert len(broker.records(story.topic, committed=False)) == 1
    assert len(asked(broker, producer, "Produce")) == 1 + times


APIS = sorted({api_of(request) for request in oracle.ANSWERS})


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("api", APIS)
def test_0105_lost_requests_and_answers(version: int, api: str) -> None:
    for times, when, commits in itertools.product(REPEATS, ("before", "after"), (True, False)):
        play(version, judge_loss, api, times, when, commits)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("api", APIS)
def test_lost_requests_and_answers_over_sockets(
    broker: Broker, producer: Producer, api: str, when: str
) -> None:
    judge_loss(broker, producer, api, 1, when, True)


def judge_loss(broker: Broker, producer: Producer, api: str, times: int, when: str, commits: bool) -> None:
    story = Story(broker, producer, commits=commits)
    broker.drop_connection(api, when, times)
    story.tell(0)
    assert not story.errors
    assert len(values(broker, topic=story.topic)) == commits
    if api in OF_TRANSACTIONS[not is_version_1(broker)]:
        # every attempt is there, and the coordinator was searched again after each lost one
        assert len(asked(broker, producer, api)) == 1 + times
        assert finds(broker, producer)[GROUP if api == "TxnOffsetCommit" else TRANSACTION] >= 1 + times


def test_0105_coordinator_is_missing_for_a_while(broker: Broker, producer: Producer) -> None:
    broker.fail_next("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", 20)
    story = Story(broker, producer)
    story.tell(0)
    assert not story.errors


def test_0105_end_is_reported_after_retried_offsets(broker: Broker, producer: Producer) -> None:
    api = "AddOffsetsToTxn" if is_version_1(broker) else "TxnOffsetCommit"
    broker.fail_next(api, "COORDINATOR_LOAD_IN_PROGRESS", 3)
    producer.init_transactions()
    with producer.transaction():
        producer.send_offsets_to_transaction({TopicPartition("source", 0): OffsetAndMetadata(1)}, "g")
    ends: list[Any] = [request.message for request in broker.requests("EndTxn")]
    assert [each.transactional_id for each in ends].count(producer.config.transactional_id) == 1


def test_0105_concurrent_senders_of_offsets(broker: Broker, producer: Producer) -> None:
    def send(number: int) -> Any:
        offsets = {TopicPartition("source", 0): OffsetAndMetadata(number)}
        return within(lambda: producer.send_offsets_to_transaction(offsets, f"g{number}"))

    producer.init_transactions()
    with producer.transaction():
        for future in [send(number) for number in range(8)]:
            future.result(HANG_SECONDS)
