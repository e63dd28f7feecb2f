"""A peer that answers the same error for ever, whichever, to any request of a producer: what a client does
about it at most. All in virtual time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from kbatch.core.producer.transaction_states import TransactionState
from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from tests.support.core_shell import versions_answer
from tests.support.links import Asked
from tests.support.sending import OK, Sending
from tests.unit.core.producer.transacting import Transacting

SECONDS = 5
# Requests of one partition, coordinator and node in that time, with those that follow at once.
MOST = 10 * SECONDS + 10
CODES = [code for code in ErrorCode if code]
# Waits that double, as they do unless a program wants others.
GROWS: dict[str, Any] = {"retry_backoff_max_ms": 1000, "reconnect_backoff_max_ms": 1000}


class Endless(deque[Any]):
    """Answers that do not end."""

    def __init__(self, *codes: Any) -> None:
        super().__init__(codes)

    def popleft(self) -> Any:
        self.rotate(-1)
        return self[-1]


def lives(s: Sending, answers: deque[Any] | None = None) -> None:
    """Let time pass, in which brokers answer each batch at once."""
    answers = Endless(OK) if answers is None else answers
    for _ in range(SECONDS * 5):
        for _ in range(MOST):
            if not s.waiting:
                break
            s.answer(**{s.waiting[0]: answers.popleft()})
        s.advance(200)


def check_rates(rates: dict[ErrorCode, int]) -> None:
    assert {code.name: number for code, number in rates.items() if number > MOST} == {}


def initializes(s: Transacting) -> None:
    s.init()
    lives(s)


def commits(s: Transacting) -> None:
    """Send a record in a transaction, with offsets, and end it; again if that fails."""
    if s.at is not TransactionState.READY:
        s.ready()
    s.begin()
    s.send("a")
    s.offsets()
    s.run()
    lives(s)
    s.commit()
    lives(s)


CASES: dict[str, tuple[int, Callable[[Transacting], Any]]] = {
    "FindCoordinator": (2, initializes),
    "InitProducerId": (2, initializes),
    "AddPartitionsToTxn": (1, commits),
    "AddOffsetsToTxn": (1, commits),
    "TxnOffsetCommit": (2, commits),
    "EndTxn": (2, commits),
}


@pytest.mark.slow
@pytest.mark.parametrize("every_other", [False, True])
@pytest.mark.parametrize("api", CASES)
def test_same_error_for_ever_costs_a_transaction_few_requests(api: str, every_other: bool) -> None:
    version, act = CASES[api]
    rates = {}
    for code in CODES:
        s = Transacting(version, **GROWS)
        if api not in ("FindCoordinator", "InitProducerId"):
            s.ready()
        s.replies[api] = Endless(code, OK) if every_other else Endless(code)
        before = len(s.said)
        act(s)
        rates[code] = (len(s.said) - before) // (2 if act is commits else 1)
    check_rates(rates)


@pytest.mark.slow
def test_same_error_for_ever_costs_a_batch_of_a_transaction_few_requests() -> None:
    rates = {}
    for code in CODES:
        s = Transacting(**GROWS).ready()
        before = len(s.sent)
        s.begin()
        s.send("b0")
        lives(s, Endless(code))
        rates[code] = len(s.sent) - before
    check_rates(rates)


@pytest.mark.slow
@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("every_other", [False, True])
def test_same_error_for_ever_costs_a_batch_few_requests(idempotent: bool, every_other: bool) -> None:
    rates = {}
    for code in CODES:
        s = Sending(enable_idempotence=idempotent, **GROWS).warmed()
        answers = Endless(code, OK) if every_other else Endless(code)
        before = len(s.sent)
        s.send("b0", "b1")
        lives(s, answers)
        rates[code] = len(s.sent) - before
    check_rates(rates)


class Refusing(Sending):
    """Nodes answer ApiVersions, or Metadata about any topic, with these codes."""

    def __init__(self, api: str, codes: Endless, **settings: Any) -> None:
        self._api, self._codes = api, codes
        super().__init__(**settings)

    def _answer_at_once(self, asked: Asked) -> None:
        if self._api == "ApiVersions" and isinstance(asked.request.message, messages.ApiVersionsRequest):
            self._give(asked, versions_answer(error=self._codes.popleft()))
        else:
            super()._answer_at_once(asked)

    def _metadata(self, request: Any) -> Any:
        answer = super()._metadata(request)
        if self._api == "Metadata" and (code := self._codes.popleft()):
            for topic in answer.topics:
                topic.error_code, topic.partitions = code, []
        return answer


@pytest.mark.slow
@pytest.mark.parametrize("every_other", [False, True])
@pytest.mark.parametrize("api", ["ApiVersions", "Metadata"])
def test_same_error_for_ever_costs_a_node_few_requests(api: str, every_other: bool) -> None:
    rates = {}
    for code in CODES:
        s = Refusing(api, Endless(OK, code) if every_other else Endless(code), **GROWS)
        s.send("b0")
        lives(s)
        assert s.asked[api] > 1 or every_other, "it was refused"
        rates[code] = s.asked[api]
    check_rates(rates)


def test_same_error_for_ever_costs_few_producer_ids() -> None:
    rates = {}
    for code in CODES:
        s = Sending(identities=(code,) * 1000, **GROWS)
        s.send("b0")
        lives(s)
        rates[code] = s.asked["InitProducerId"]
    check_rates(rates)
