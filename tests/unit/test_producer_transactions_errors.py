"""Every answer that a transaction's requests can get, on the embedded broker (librdkafka's 0105).

A story is a transaction with a record and offsets, committed or aborted. A coordinator or leader refuses the
first one or three requests of an API with a code; what the table says must come of it: nothing that is seen,
an abort and then the same again, or the end of the producer.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from kbatch import OffsetAndMetadata, Producer, TopicPartition
from kbatch.core.outcome import OUTCOMES, Outcome
from kbatch.core.transaction_requests import ACTIONS, Action, Kind
from kbatch.errors import ROWS, ErrorCode, KafkaError
from kbatch.testing import Broker
from tests.unit.producing import producing, values, within

# What is told is the engine's business, and Producer is enough to have it told.
APIS = {kind: kind.value.partition(" ")[0] for kind in Kind}
CODES = sorted(ROWS)
# Without a log start offset, which a faulty answer has not, it is not known whether records were lost.
LEAVES_OPEN = (ErrorCode.UNKNOWN_PRODUCER_ID,)
# A leader that says DUPLICATE_SEQUENCE_NUMBER has the batch, and one that is made to say so has not.
PRODUCE_CODES = [code for code in CODES if code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER]
REPEATS = (1, 3)
OF_VERSION_1 = (Kind.ADD_PARTITIONS, Kind.ADD_OFFSETS)
# By which version of transactions.
ASKED = [
    pytest.param(version, kind, id=f"TV{version}-{kind.value}")
    for version in (1, 2)
    for kind in Kind
    if version == 1 or kind not in OF_VERSION_1
]
_numbers = itertools.count()


@pytest.fixture(scope="module", params=[1, 2], ids=["TV1", "TV2"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(topics=["source"], transaction_version=request.param) as running:
        yield running


@pytest.fixture
def producer(broker: Broker) -> Iterator[Producer]:
    keys = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "reconnect_backoff_ms": 1, "retries": 20}
    with producing(broker, transactional_id=f"{next(_numbers)}", **keys) as made:
        yield made
    broker.clear_faults()


def is_version_1(broker: Broker) -> bool:
    return broker._options.transaction_version < 2


class Story:
    """A transaction, told until it comes to its end or to that of the producer."""

    def __init__(self, broker: Broker, producer: Producer, *, commits: bool = True) -> None:
        self.producer = producer
        self.commits = commits
        self.is_ready = False
        self.errors: list[KafkaError] = []
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
        producer.send(self.topic, b"told")
        producer.send_offsets_to_transaction({TopicPartition("source", 0): OffsetAndMetadata(1)}, "g")
        (producer.commit_transaction if self.commits else producer.abort_transaction)()

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


def check(broker: Broker, story: Story, *, is_fatal: bool, is_noticed: bool, code: int) -> None:
    seen = values(broker, topic=story.topic)
    assert story.ends_well != is_fatal, story.errors
    assert bool(story.errors) == is_noticed, story.errors
    if not is_fatal:
        assert len(seen) == story.commits
        assert all(error.abortable or error.code == code for error in story.errors)
    else:
        assert not seen
        with pytest.raises(KafkaError) as raised:
            story.producer.begin_transaction()
        assert raised.value.fatal


@pytest.mark.parametrize("times", REPEATS)
@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize(("broker", "kind"), ASKED, indirect=["broker"])
def test_0105_what_coordinators_answer(
    broker: Broker, producer: Producer, kind: Kind, code: int, times: int
) -> None:
    is_at_the_end = kind is Kind.ABORT or (kind is Kind.COMMIT and times > 1)
    if code == ErrorCode.UNKNOWN_PRODUCER_ID and is_at_the_end and is_version_1(broker):
        pytest.skip("a coordinator that has the transaction, as this one does, says no such thing")
    action = ACTIONS[kind][ErrorCode(code)]
    story = Story(broker, producer, commits=kind is not Kind.ABORT)
    broker.fail_next(APIS[kind], code, times)
    story.tell(times)
    is_fatal = action in (Action.FATAL, Action.FENCED)
    if kind is Kind.COMMIT and times > 1 and not is_fatal:  # the abort gets it too
        is_fatal = ACTIONS[Kind.ABORT][ErrorCode(code)] in (Action.FATAL, Action.FENCED)
    is_noticed = action not in (Action.RETRY, Action.FIND, Action.GONE)
    check(broker, story, is_fatal=is_fatal, is_noticed=is_noticed, code=code)


@pytest.mark.parametrize("times", REPEATS)
@pytest.mark.parametrize("code", PRODUCE_CODES)
def test_0105_what_leaders_answer(broker: Broker, producer: Producer, code: int, times: int) -> None:
    story = Story(broker, producer)
    broker.fail_next("Produce", code, times)
    story.tell(times)
    outcome = OUTCOMES[ErrorCode(code)]
    is_fatal = outcome is Outcome.FATAL or code == ErrorCode.UNSUPPORTED_VERSION
    is_noticed = outcome is not Outcome.RETRY and code not in LEAVES_OPEN
    check(broker, story, is_fatal=is_fatal, is_noticed=is_noticed, code=code)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("times", REPEATS)
@pytest.mark.parametrize("api", sorted({*APIS.values(), "Produce"}))
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_0105_lost_requests_and_answers(
    broker: Broker, producer: Producer, api: str, times: int, when: str, commits: bool
) -> None:
    story = Story(broker, producer, commits=commits)
    broker.drop_connection(api, when, times)
    story.tell(0)
    assert not story.errors
    assert len(values(broker, topic=story.topic)) == commits


def test_0105_nobody_coordinates_for_a_while(broker: Broker, producer: Producer) -> None:
    broker.fail_next("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", 20)
    story = Story(broker, producer)
    story.tell(0)
    assert not story.errors


def test_0105_the_end_is_told_though_offsets_were_tried_again(broker: Broker, producer: Producer) -> None:
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
            future.result(30)
