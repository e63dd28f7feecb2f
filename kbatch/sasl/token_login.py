"""One login for all connections of a client: its token, the refresh, and the wait after a failure."""

import random
import time
from asyncio import CancelledError
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from kbatch._native.io.backoff import backoff_ns
from kbatch._native.io.threads import ClientThread
from kbatch.config import ClientConfig
from kbatch.errors import AuthenticationError, KafkaError, NetworkError
from kbatch.errors.words import shown
from kbatch.logs import ClientLogger
from kbatch.sasl.exchange import NEVER
from kbatch.sasl.tokens import Token
from kbatch.unpatched import real_threading

logger = ClientLogger(__name__)

# After a failed refresh (ExpiringCredentialRefreshingLogin).
REFRESH_RETRY_SECONDS = 10
NS_PER_SECOND = 10**9
NS_PER_MS = 10**6


class LoginPolicy(NamedTuple):
    """When a token is refreshed, and how long a failed login waits: the keys sasl.login.*.

    Attributes
    ----------
    window_factor, window_jitter : float
        The part of a token's life after which it is refreshed, and what chance adds to it at most.
    min_period_seconds, buffer_seconds : float
        The shortest time between refreshes, and the rest of its life in which a token is not refreshed.
    backoff_ms, backoff_max_ms : int
        The wait after a failed login, which doubles with each failure, and its maximum.
    """

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_seconds: float = 60
    buffer_seconds: float = 300
    backoff_ms: int = 100
    backoff_max_ms: int = 10_000


def policy_of(config: ClientConfig) -> LoginPolicy:
    return LoginPolicy(
        config.sasl_login_refresh_window_factor,
        config.sasl_login_refresh_window_jitter,
        config.sasl_login_refresh_min_period_seconds,
        config.sasl_login_refresh_buffer_seconds,
        config.sasl_login_retry_backoff_ms,
        config.sasl_login_retry_backoff_max_ms,
    )


def refresh_at(policy: LoginPolicy, now: float, expires_at: float, chance: float) -> float:
    """Return the time at which a token that was obtained now is refreshed.

    After org.apache.kafka.common.security.oauthbearer.internals.expiring.ExpiringCredentialRefreshingLogin.

    Parameters
    ----------
    policy : LoginPolicy
    now, expires_at : float
        In seconds; `expires_at` is not before `now`.
    chance : float
        From 0 to 1.

    Returns
    -------
    float
        At the window's part of the token's life, moved out of the minimum period and of the buffer. Both are
        left out if they do not fit into its life.
    """
    part = policy.window_factor + policy.window_jitter * chance
    proposed = now + (expires_at - now) * part
    earliest, latest = now + policy.min_period_seconds, expires_at - policy.buffer_seconds
    return proposed if earliest > latest else max(earliest, min(proposed, latest))


class TokenLogin:
    """The token that all connections of a client use, and the attempts to get one.

    After a failure, `token` raises the same error without another attempt until the wait is over. So a client
    with a hundred brokers does not send a wrong secret to a provider a hundred times.

    Parameters
    ----------
    source : callable
        Returns a new token. May block, and raise anything.
    what : str
        The name of the source in errors.
    policy : LoginPolicy
    refreshes_apart : bool
        Refresh on a thread of its own. A source that waits for a network must not keep connections from
        logging in with the old token; a user's callback runs on the login thread only.
    now : callable
        Seconds since 1970, the clock of tokens.
    monotonic_ns : callable
        The clock of deadlines.
    chance : callable
        Returns a random number from 0 to 1.
    """

    def __init__(
        self,
        source: Callable[[], Token],
        what: str,
        policy: LoginPolicy,
        *,
        refreshes_apart: bool = False,
        now: Callable[[], float] = time.time,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._source = source
        self._what = what
        self._policy = policy
        self._refreshes_apart = refreshes_apart
        self._now = now
        self._monotonic_ns = monotonic_ns
        self._chance = chance
        self._token: Token | None = None
        self._obtained_ns = 0
        self._refresh_deadline_ns = NEVER
        self._failure: KafkaError | None = None
        self._failures = 0
        self._retry_ns = 0
        self._asking = real_threading().Lock()  # around the source: it serves one thread at a time
        self._refreshing: ClientThread | None = None

    def token(self) -> Token:
        """Return a token that has not expired, the current one or a new one.

        Raises
        ------
        AuthenticationError
            If the source refuses, or returns what cannot be sent.
        NetworkError
            If the source fails for another reason: a later call may succeed.
        """
        token = self._valid()
        if token is not None:
            return token
        with self._asking:
            token = self._valid()  # a refresh may have been under way
            if token is not None:
                return token
            if self._failure is not None and self._monotonic_ns() < self._retry_ns:
                raise self._failure.marked()
            return self._obtained()

    def forget(self, token: Token) -> None:
        """Use a refused token no more. A new one that is refused too stays, for the minimum period."""
        is_old = self._monotonic_ns() >= self._obtained_ns + self._policy.min_period_seconds * NS_PER_SECOND
        if token is self._token and is_old:
            self._token, self._refresh_deadline_ns = None, NEVER

    def refresh_deadline_ns(self) -> int:
        """Return when `refresh` is due; NEVER without a token that expires."""
        return self._refresh_deadline_ns

    def refresh(self) -> None:
        """Replace the token before it expires. After a failure the old one stays in use."""
        if not self._refreshes_apart:
            self._refresh()
            return
        self._refresh_deadline_ns = self._in_seconds(REFRESH_RETRY_SECONDS)
        if self._refreshing is None or not self._refreshing.is_alive:
            self._refreshing = ClientThread(self._refresh, "kbatch-token")
            with suppress(RuntimeError):  # no new threads while the interpreter ends
                self._refreshing.start()

    def _refresh(self) -> None:
        old, expiry = self._token, self._expires_at()
        try:
            with self._asking:
                self._obtained()
        except KafkaError as error:
            logger.warning(
                "the token was not refreshed, and is tried again in %d s: %s", REFRESH_RETRY_SECONDS, error
            )
            self._refresh_deadline_ns = self._in_seconds(REFRESH_RETRY_SECONDS)
            return
        if self._token is old or expiry == self._expires_at():
            # The source keeps tokens itself and is not done with this one, or has none that expires later.
            soonest_ns = self._in_seconds(REFRESH_RETRY_SECONDS)
            self._refresh_deadline_ns = max(self._refresh_deadline_ns, soonest_ns)

    def _obtained(self) -> Token:
        """Return a new token from the source, and keep it if it expires."""
        try:
            token = self._source()
            if not isinstance(token, Token):
                raise AuthenticationError(f"{self._what} returned {type(token).__name__} instead of a Token")
        except KafkaError as error:
            self._fail(error)
            raise
        except (Exception, CancelledError) as error:
            failure = NetworkError(f"{self._what} raised {type(error).__name__}: {shown(str(error))}")
            self._fail(failure)
            raise failure from error
        self._failure, self._failures = None, 0
        self._keep(token)
        return token

    def _keep(self, token: Token) -> None:
        """Use the token from now on, if it expires: another one serves a single authentication."""
        now = self._now()
        if token.expires_at is None or token.expires_at <= now:
            return
        self._token, self._obtained_ns = token, self._monotonic_ns()
        due = refresh_at(self._policy, now, token.expires_at, self._chance())
        self._refresh_deadline_ns = self._in_seconds(due - now)
        logger.debug("a token for %s expires in %.0f s", token.principal, token.expires_at - now)

    def _valid(self) -> Token | None:
        token = self._token
        return token if token is not None and (token.expires_at or 0.0) > self._now() else None

    def _expires_at(self) -> float:
        """Return the end of the current token; 0 if there is none."""
        return 0.0 if self._token is None else self._token.expires_at or 0.0

    def _fail(self, error: KafkaError) -> None:
        wait_ns = backoff_ns(
            self._policy.backoff_ms * NS_PER_MS,
            self._policy.backoff_max_ms * NS_PER_MS,
            self._failures,
            self._chance(),
        )
        self._failure, self._failures = error.marked(), self._failures + 1
        self._retry_ns = self._monotonic_ns() + wait_ns

    def _in_seconds(self, seconds: float) -> int:
        return min(self._monotonic_ns() + int(seconds * NS_PER_SECOND), NEVER)
