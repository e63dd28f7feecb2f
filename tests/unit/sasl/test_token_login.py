"""The login: when a token is refreshed, and the effect of a failure, by clocks that the test moves."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.config import ProducerConfig
from kbatch.errors import AuthenticationError, NetworkError
from kbatch.sasl.exchange import NEVER
from kbatch.sasl.token_login import LoginPolicy, TokenLogin, policy_of, refresh_at
from kbatch.sasl.tokens import Token
from tests.support.effort import EXAMPLES
from tests.support.patience import HANG_SECONDS
from tests.unit.sasl.secrecy import failing

SECRET = "s3cret-token"
START = 1_800_000_000.0
SECOND = 10**9

policies = st.builds(
    LoginPolicy,
    st.floats(0.5, 1.0),
    st.floats(0.0, 0.25),
    st.integers(0, 900),
    st.integers(0, 3600),
)


def by_java(policy: LoginPolicy, now: float, expires_at: float, chance: float) -> float:
    """ExpiringCredentialRefreshingLogin.refreshMs, step by step, of a credential that begins now."""
    part = policy.window_factor + policy.window_jitter * chance
    if now + policy.min_period_seconds + policy.buffer_seconds > expires_at:
        return now + (expires_at - now) * part
    proposed = now + (expires_at - now) * part
    if proposed > expires_at - policy.buffer_seconds:
        return expires_at - policy.buffer_seconds
    if proposed < now + policy.min_period_seconds:
        return now + policy.min_period_seconds
    return proposed


@settings(max_examples=4 * EXAMPLES)
@given(policy=policies, life=st.floats(0, 1e7), chance=st.floats(0, 1))
def test_a_token_is_refreshed_when_java_does(policy: LoginPolicy, life: float, chance: float) -> None:
    due = refresh_at(policy, START, START + life, chance)
    assert due == pytest.approx(by_java(policy, START, START + life, chance), abs=1e-5)
    if life >= policy.min_period_seconds + policy.buffer_seconds:
        assert START + policy.min_period_seconds - 1e-5 <= due <= START + life - policy.buffer_seconds + 1e-5


@pytest.mark.parametrize(
    ("life", "chance", "due"),
    [
        (3600, 0.0, 2880),  # 0.8 of an hour
        (3600, 1.0, 3060),  # 0.85
        (900, 0.5, 600),  # MSK: the buffer of 300 s comes first
        (370, 0.0, 70),
        (359, 0.0, 287.2),  # neither buffer nor minimum period fits
        (10, 0.0, 8),
    ],
)
def test_the_defaults_are_those_of_java(life: float, chance: float, due: float) -> None:
    policy = policy_of(ProducerConfig(bootstrap_servers="localhost:9092"))
    assert policy == LoginPolicy()
    assert refresh_at(policy, START, START + life, chance) - START == pytest.approx(due)


class World:
    """A login whose source returns or raises what is next, and the clock of both."""

    def __init__(self, *answers: Token | BaseException | Callable[[], object]) -> None:
        self.passed = 0.0
        self.calls = 0
        self._answers = iter(answers)
        self.login = TokenLogin(
            self._answer,
            "the source",
            LoginPolicy(),
            now=lambda: START + self.passed,
            monotonic_ns=lambda: int(self.passed * SECOND),
            chance=lambda: 0.5,
        )

    def _answer(self) -> Token:
        self.calls += 1
        answer = next(self._answers)
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[return-value]

    @property
    def due(self) -> float:
        """Return when the refresh is due, in seconds of this world."""
        return self.login.refresh_deadline_ns() / SECOND


def token(name: str, life: float | None) -> Token:
    return Token(name, None if life is None else START + life)


def test_connections_share_a_token_until_it_expires() -> None:
    world = World(token("first", 3600), token("second", 7200))
    assert [world.login.token().value for _ in range(3)] == ["first"] * 3
    world.passed = 3599.9
    assert world.login.token().value == "first"
    world.passed = 3600
    assert world.login.token().value == "second"
    assert world.calls == 2


def test_token_without_expiry_is_requested_each_time() -> None:
    world = World(token("first", None), token("second", None))
    assert [world.login.token().value, world.login.token().value] == ["first", "second"]
    assert world.login.refresh_deadline_ns() == NEVER


def test_expired_token_is_sent_once_for_the_broker_to_judge() -> None:
    world = World(token("old", -60), token("new", 60))
    assert [world.login.token().value, world.login.token().value] == ["old", "new"]


def test_a_refresh_replaces_the_token_ahead_of_its_end() -> None:
    world = World(token("first", 3600), token("second", 6570))
    world.login.token()
    assert world.due == pytest.approx(2970)  # (0.8 + 0.5 x 0.05) x 3600
    world.passed = 2970
    world.login.refresh()
    assert world.login.token().value == "second"
    assert world.due == pytest.approx(2970 + 0.825 * 3600)


def test_the_old_token_stays_in_use_while_refreshes_fail(caplog: pytest.LogCaptureFixture) -> None:
    failures = [NetworkError("the endpoint is down"), AuthenticationError("refused"), OSError(5, "no route")]
    world = World(token("first", 3600), *failures, token("second", 7200))
    world.login.token()
    world.passed = 2970
    for attempt in range(1, 4):
        world.login.refresh()
        assert world.login.token().value == "first"
        assert world.due == pytest.approx(2970 + 10 * attempt)
        world.passed += 10
    world.login.refresh()
    assert world.login.token().value == "second"
    assert [record.message.partition(": ")[2] for record in caplog.records] == [
        "the endpoint is down",
        "refused",
        "the source raised OSError: [Errno 5] no route",
    ]


def test_repeated_token_is_requested_every_ten_seconds_at_most() -> None:
    same = token("first", 100)
    world = World(*itertools.repeat(same, 30))
    world.login.token()
    while world.passed < 100:
        world.passed = world.due
        world.login.refresh()
        assert world.due >= world.passed + 10
    assert world.calls <= 5


def test_a_failure_holds_for_the_backoff_and_doubles_it() -> None:
    world = World(*(ValueError(f"attempt {number}") for number in range(10)), token("late", 3600))
    for number, wait in enumerate((0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10, 10)):
        text = f"the source raised ValueError: attempt {number}"
        assert failing(world.login.token, NetworkError) == text
        world.passed += wait - 0.001
        assert failing(world.login.token, NetworkError) == text  # without another attempt
        assert world.calls == number + 1
        world.passed += 0.002
    assert world.login.token().value == "late"


def test_kafka_error_is_raised_unchanged_and_during_backoff() -> None:
    world = World(AuthenticationError("unknown client"), token("first", 60))
    assert failing(world.login.token, AuthenticationError) == "unknown client"
    assert failing(world.login.token, AuthenticationError) == "unknown client"
    assert world.calls == 1
    world.passed = 0.2
    assert world.login.token().value == "first"


def test_what_is_no_token_is_named() -> None:
    world = World(lambda: SECRET)
    text = failing(world.login.token, AuthenticationError)
    assert text == "the source returned function instead of a Token"


def test_a_refused_token_is_replaced_but_not_again_and_again() -> None:
    first, second = token("first", 3600), token("second", 7200)
    world = World(first, second)
    world.login.token()
    world.passed = 59
    world.login.forget(first)
    assert world.login.token() is first
    world.passed = 60
    world.login.forget(first)
    assert world.login.refresh_deadline_ns() == NEVER
    assert world.login.token() is second
    world.login.forget(first)  # by a connection that was slow
    world.passed = 200
    world.login.forget(first)
    assert world.login.token() is second


def test_token_is_not_requested_twice_during_a_refresh() -> None:
    """The old one expires while the source is slow."""
    may_answer, is_asked = threading.Event(), threading.Event()
    world = World(token("first", 100))
    world.login.token()

    def source() -> Token:
        is_asked.set()
        may_answer.wait(HANG_SECONDS)
        return token("second", 7200)

    world.login._source = source
    refreshing = threading.Thread(target=world.login.refresh)
    refreshing.start()
    is_asked.wait(HANG_SECONDS)
    world.passed = 101
    found: list[Token] = []
    waiting = threading.Thread(target=lambda: found.append(world.login.token()))
    waiting.start()
    world.login._source = lambda: token("third", 7200)
    may_answer.set()
    refreshing.join()
    waiting.join()
    assert found[0].value == "second"


def test_separate_refresh_leaves_the_old_token_usable() -> None:
    may_answer, is_asked = threading.Event(), threading.Event()
    answers = [Token("first", time.time() + 3600), Token("second", time.time() + 7200)]

    def source() -> Token:
        if len(answers) == 1:
            is_asked.set()
            may_answer.wait(HANG_SECONDS)
        return answers.pop(0)

    login = TokenLogin(source, "the source", LoginPolicy(), refreshes_apart=True)
    login.token()
    login.refresh()
    is_asked.wait(HANG_SECONDS)
    login.refresh()  # which is in progress
    assert login.token().value == "first"
    assert time.monotonic_ns() < login.refresh_deadline_ns() <= time.monotonic_ns() + 10 * SECOND
    may_answer.set()
    refreshing = login._refreshing
    assert refreshing is not None
    refreshing.join()
    assert login.token().value == "second"
    assert login.refresh_deadline_ns() > time.monotonic_ns() + 3600 * SECOND
