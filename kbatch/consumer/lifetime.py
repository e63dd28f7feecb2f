"""ReadingClient and MemberClient: how clients that read begin, how consumers wait for records, and how their
memberships end.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from kbatch._native.io.sole_user import SoleUser
from kbatch.config import ConsumerConfig
from kbatch.consumer.runtime import ReaderRuntime, configured
from kbatch.errors import IllegalStateError, KafkaError
from kbatch.network.lifetime import OpenClient
from kbatch.network.runtime import LOOK_SECONDS

if TYPE_CHECKING:
    from kbatch._native.fetch.arrivals import Arrivals
    from kbatch.config.keywords import ConsumerKeywords
    from kbatch.core.consumer.engine import ReadingEngine
    from kbatch.waiting.deadline import Deadline

# The time that close() has for its group; and if the program has dropped or forgotten the client.
CLOSE_SECONDS, EXIT_SECONDS = 30.0, 5.0


class ReadingClient(OpenClient):
    """Base of TopicReader and of all consumers."""

    config: ConsumerConfig
    _runtime: ReaderRuntime
    _defaults: Mapping[str, object] = {}  # of keys that are not set

    def __init__(
        self,
        settings: ConsumerConfig | Mapping[str, object] | None = None,
        /,
        **keywords: Unpack[ConsumerKeywords],
    ) -> None:
        """Start a client with this configuration, which its attribute `config` then has.

        Parameters
        ----------
        settings : ConsumerConfig or Mapping[str, object], optional
            Configuration keys with dots, as docs/configuration.md lists them.
        **keywords
            The same keys with underscores.

        Raises
        ------
        ConfigError
            Keys or values are unknown, invalid, contradictory, or for clients of another kind.
        InvalidGroupIdError
            It is a share consumer, and group.id is not set.
        """
        self.config = configured(settings, keywords, self._defaults)
        self._runtime = self._new_runtime()
        self._prepare()
        self._runtime.push_metrics(self.config)
        self._start_network()
        self._opened()

    # What the subclasses add

    @abstractmethod
    def _new_runtime(self) -> ReaderRuntime:
        """Return what the calls share, without a network."""

    @abstractmethod
    def _prepare(self) -> None:
        """Check the configuration, and make what keeps the results of the engine."""

    @abstractmethod
    def _start_network(self) -> None:
        """Make the network."""

    def _disowned(self) -> None:
        super()._disowned()
        self._runtime.on_change()  # an iteration gives nothing more of what the parent reads


class Ending(NamedTuple):
    """How a membership ends.

    Attributes
    ----------
    leave : bool or None
        True to leave the group at once, False to stay a member until the session ends; None decides by
        group.instance.id. Share groups are always left.
    is_failing : bool
        True if the program may not have processed what the last poll has returned.
    calls_back : bool
        False to run no callbacks of the program.
    drains : bool
        True if `process()` is to finish all records that it has taken, not only those that run.
    """

    leave: bool | None = None
    is_failing: bool = False
    calls_back: bool = True
    drains: bool = False


# A client that the program has dropped, or left open.
FORGOTTEN = Ending(is_failing=True, calls_back=False)


class MemberClient(ReadingClient):
    """Base of all consumers, which are used by one thread or task at a time. Half of a consumer knows how it
    waits (threads, event loops), the other half what it reads (ConsumerBase, ShareConsumerBase).
    """

    _engine_type: type[ReadingEngine]
    _arrivals: Arrivals[Any]
    _user: SoleUser
    # Makes tasks of the coroutines of callbacks; None if callbacks must be plain.
    _new_task: Callable[[Any], Any] | None = None
    _note_seconds = LOOK_SECONDS  # how often a poll that waits is noted
    _closer: Any = None  # the thread or task that is in close()
    _closing: tuple[Deadline, Ending] | None = None  # since close() was called
    _refused: KafkaError | None = None  # the error of a login that was raised

    @abstractmethod
    def _handle_arrivals(self) -> None:
        """Sort new results of the engine, or run the callbacks that they end, before a poll looks at them."""

    @abstractmethod
    def _check_membership(self) -> None:
        """Raise if the membership, or a topic that is subscribed to, keeps polls from records."""

    @property
    @abstractmethod
    def _poll_count(self) -> int:
        """The number of polls that may have taken records."""

    @abstractmethod
    def _take_back(self) -> None:
        """Take back the records of the last poll. A second call has no effect."""

    async def _give_way(self) -> None:
        """Let the network and other tasks run, if they need this thread for it."""

    def _deliver(self) -> Callable[[list[Any]], object]:
        """Return what takes the results of the engine; it must not refer to the client."""
        return self._arrivals

    async def _await_next(
        self,
        is_there: Callable[[], bool],
        deadline: Deadline,
        note: Callable[[], object] = lambda: None,
        note_quiet: Callable[[], object] = lambda: None,
    ) -> bool:
        """Return True once `is_there()` is true, which is called after each arrival; False at the deadline.
        Raise if the consumer fails, and the error of a failed login once. `note()` is called now and then,
        `note_quiet()` if nothing is there and nothing fails.
        """
        runtime = self._runtime

        def look() -> bool:
            self._handle_arrivals()
            if is_there():
                return True
            runtime.check_usable()
            refused, self._refused = self._refused, runtime.engine.authentication_error
            runtime.check_login(refused)
            self._check_membership()
            note_quiet()
            return False

        note()
        if look():  # most polls find something, and need no waiter
            return True
        if await runtime.await_until(look, deadline, request=note, look_seconds=self._note_seconds):
            return True
        if not deadline.is_over:
            raise IllegalStateError("the network of the consumer has ended; create another consumer")
        return False

    # Its end

    async def _close(self, timeout: float | None, ending: Ending) -> None:
        """Close the client to all calls, wait for the one that goes on, end the membership, and all else."""
        runtime = self._runtime
        deadline = runtime.deadline(timeout)
        if runtime.is_forked or self._is_released:
            return
        me = self._user.current
        if runtime.is_closed:
            if self._closer is None:  # an interrupt has ended the first call
                self._end(deadline)
            elif self._closer is not me:
                await runtime.await_until(lambda: self._is_released, deadline, needs_network=False)
            return
        self._user.refuse_callbacks("close")
        self._closer = self._user.caller_back = me
        self._closing = deadline, ending
        try:
            self._user.left = runtime.changed.notify  # which is waited for
            runtime.is_closed = True
            runtime.note_change()
            has_group = self.config.group_id is not None and runtime.engine.fatal_error is None
            if has_group and await runtime.await_until(lambda: self._user.is_free, deadline):
                await self._end_membership(deadline, ending)
            await runtime.end_telemetry(deadline)
        finally:
            self._user.caller_back = None
            try:
                self._end(deadline)
            finally:
                self._closer = None

    @abstractmethod
    async def _end_membership(self, deadline: Deadline, ending: Ending) -> None:
        """Leave the group, or end the membership in another way, until the deadline at most."""
