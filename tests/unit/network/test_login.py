"""The login thread: tokens come back in order, and nothing waits for a mechanism that does not answer."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from kbatch.core.client.actions import Authenticate, EndAuthentication
from kbatch.errors import AuthenticationError, KafkaError, NetworkError
from kbatch.network.login import Coroutines, Login
from kbatch.sasl import NEVER
from tests.support.patience import HANG_SECONDS
from tests.support.running_threads import threads_named

Step = Callable[[str, bytes | None], bytes | None]
BEGIN = Authenticate(1, "host", None)
THREAD = "kbatch-login-test"


class Scripted:
    """A mechanism whose steps are a function of the test's."""

    name = "SCRIPTED"

    def __init__(self, step: Step) -> None:
        self._step = step
        self.refresh_ns = NEVER
        self.refresh: Callable[[], None] = lambda: None
        self.hosts: list[str] = []
        self.is_closed = threading.Event()

    def exchange(self, host: str) -> Any:
        self.hosts.append(host)
        mechanism = self

        class Exchange:
            def step(self, challenge: bytes | None) -> bytes | None:
                return mechanism._step(host, challenge)

        return Exchange()

    def refresh_deadline_ns(self) -> int:
        return self.refresh_ns

    def close(self) -> None:
        self.is_closed.set()


Results = SimpleQueue[tuple[int, bytes | KafkaError | None]]


@contextlib.contextmanager
def logging_in(step: Step, coroutines: Coroutines | None = None) -> Iterator[tuple[Login, Scripted, Results]]:
    mechanism, results = Scripted(step), Results()
    login = Login(
        mechanism,
        coroutines or Coroutines(lambda: None),
        name=THREAD,
        report=lambda connection_id, result: results.put((connection_id, result)),
    )
    try:
        yield login, mechanism, results
    finally:
        login.stop()
        for thread in threads_named(THREAD):  # so that the next test counts only its own
            thread.join(HANG_SECONDS)


def echo(host: str, challenge: bytes | None) -> bytes | None:
    return None if challenge == b"end" else host.encode() + (challenge or b"")


def test_connections_have_own_exchanges_and_share_the_thread() -> None:
    with logging_in(echo) as (login, mechanism, results):
        assert threads_named(THREAD) == []  # until there is a step
        for connection_id, host in ((1, "a"), (2, "b")):
            login.perform(Authenticate(connection_id, host, None))
        assert [results.get(timeout=HANG_SECONDS) for _ in range(2)] == [(1, b"a"), (2, b"b")]
        login.perform(Authenticate(2, "b", b"x"))
        assert results.get(timeout=HANG_SECONDS) == (2, b"bx")
        login.perform(Authenticate(2, "b", b"end"))
        assert results.get(timeout=HANG_SECONDS) == (2, None)
        assert mechanism.hosts == ["a", "b"]
        assert len(threads_named(THREAD)) == 1


def test_next_login_of_a_connection_is_a_new_exchange() -> None:
    with logging_in(echo) as (login, mechanism, results):
        for _ in range(2):
            login.perform(BEGIN)
            results.get(timeout=HANG_SECONDS)
        assert mechanism.hosts == ["host", "host"]


@pytest.mark.parametrize(
    ("raised", "reported"),
    [
        (AuthenticationError("no"), AuthenticationError),
        (NetworkError("unreachable"), NetworkError),
        (ZeroDivisionError("a defect"), AuthenticationError),
        (SystemExit("from a callback"), AuthenticationError),
    ],
)
def test_errors_are_reported_and_the_thread_goes_on(
    raised: BaseException, reported: type[KafkaError]
) -> None:
    def step(host: str, challenge: bytes | None) -> bytes:
        if host == "bad":
            raise raised
        return b"token"

    with logging_in(step) as (login, _, results):
        login.perform(Authenticate(1, "bad", None))
        _, error = results.get(timeout=HANG_SECONDS)
        assert type(error) is reported
        assert str(raised) in str(error)
        login.perform(Authenticate(2, "good", None))
        assert results.get(timeout=HANG_SECONDS) == (2, b"token")


def test_result_of_a_dropped_exchange_is_not_reported() -> None:
    began, goes_on = threading.Event(), threading.Event()

    def step(host: str, challenge: bytes | None) -> bytes:
        if host == "slow":
            began.set()
            goes_on.wait(HANG_SECONDS)
        return host.encode()

    with logging_in(step) as (login, mechanism, results):
        login.perform(Authenticate(1, "slow", None))
        assert began.wait(HANG_SECONDS)
        login.end(EndAuthentication(1))
        login.perform(Authenticate(2, "dropped", None))
        login.end(EndAuthentication(2))
        login.perform(Authenticate(1, "new", None))
        goes_on.set()
        assert results.get(timeout=HANG_SECONDS) == (1, b"new")
        assert mechanism.hosts == ["slow", "new"]


def test_credentials_are_refreshed_when_due() -> None:
    refreshed = threading.Event()
    with logging_in(echo) as (login, mechanism, results):

        def refresh() -> None:
            mechanism.refresh_ns = NEVER
            refreshed.set()

        mechanism.refresh = refresh
        mechanism.refresh_ns = time.monotonic_ns() + 10_000_000
        login.perform(BEGIN)
        assert results.get(timeout=HANG_SECONDS) == (1, b"host")
        assert refreshed.wait(HANG_SECONDS)


def test_defect_of_a_refresh_leaves_logins_alone(caplog: pytest.LogCaptureFixture) -> None:
    refreshed = threading.Event()
    with logging_in(echo) as (login, mechanism, results):

        def refresh() -> None:
            refreshed.set()
            raise ZeroDivisionError

        mechanism.refresh = refresh
        mechanism.refresh_ns = 0
        login.perform(BEGIN)
        results.get(timeout=HANG_SECONDS)
        assert refreshed.wait(HANG_SECONDS)
        login.perform(BEGIN)
        assert results.get(timeout=HANG_SECONDS) == (1, b"host")
    assert len([each for each in caplog.records if "refreshing" in each.message]) == 1


def test_stop_does_not_wait_for_a_stuck_callback() -> None:
    began, goes_on = threading.Event(), threading.Event()

    def step(host: str, challenge: bytes | None) -> bytes:
        began.set()
        goes_on.wait(HANG_SECONDS)
        return b"late"

    with logging_in(step) as (login, mechanism, results):
        login.perform(BEGIN)
        assert began.wait(HANG_SECONDS)
        login.stop()
        assert mechanism.is_closed.is_set()
        (thread,) = threads_named(THREAD)
        assert thread.daemon
        goes_on.set()
        thread.join(HANG_SECONDS)
        assert not thread.is_alive()
        assert results.empty()


# Coroutines


async def slowly(value: bytes) -> bytes:
    await asyncio.sleep(0)
    return value


def test_coroutine_runs_on_a_loop_of_the_thread() -> None:
    coroutines = Coroutines(lambda: None)
    with logging_in(lambda host, _: coroutines.run(slowly(host.encode())), coroutines) as (login, _, results):
        for _ in range(2):
            login.perform(BEGIN)
            assert results.get(timeout=HANG_SECONDS) == (1, b"host")


def test_coroutine_runs_on_the_loop_of_the_client() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        ran_on: list[Any] = []

        async def token() -> bytes:
            ran_on.append(asyncio.get_running_loop())
            return b"token"

        coroutines = Coroutines(lambda: loop)
        with logging_in(lambda *_: coroutines.run(token()), coroutines) as (login, _, results):
            login.perform(BEGIN)
            assert await asyncio.to_thread(results.get, timeout=HANG_SECONDS) == (1, b"token")
            assert ran_on == [loop]

    asyncio.run(main())


@pytest.mark.parametrize("is_on_loop", [False, True])
def test_stop_cancels_a_stuck_coroutine(is_on_loop: bool) -> None:
    began, was_cancelled = threading.Event(), threading.Event()

    async def stuck() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            was_cancelled.set()
            raise

    async def main() -> None:
        loop = asyncio.get_running_loop() if is_on_loop else None
        coroutines = Coroutines(lambda: loop)
        with logging_in(lambda *_: coroutines.run(stuck()), coroutines) as (login, _, results):
            login.perform(BEGIN)
            assert await asyncio.to_thread(began.wait, HANG_SECONDS)
            (thread,) = threads_named(THREAD)
            login.stop()
            assert await asyncio.to_thread(was_cancelled.wait, HANG_SECONDS)
            await asyncio.to_thread(thread.join, HANG_SECONDS)
            assert not thread.is_alive()
            assert results.empty()

    asyncio.run(main())
