"""ShareConsumerBase: records of a share group, each acknowledged by itself. It is what ShareConsumer and
AsyncShareConsumer have in common, which is everything but how they wait.

Theory of operation. The members of a share group read the same partitions. A broker locks the records that it
delivers for a while, until they are acknowledged; then it delivers others, or the same ones again. So there
are no offsets to commit, and more members than partitions are of use.

A poll sends the acknowledgements of what earlier polls have returned, and acquires records only if none are
left of an earlier answer. Whatever it awaits, it awaits before it takes records. So a poll that is cancelled
has taken nothing: what its request acquires comes with a later poll, or is released. Records that an
interrupt has kept from the program are released.

After org.apache.kafka.clients.consumer.KafkaShareConsumer; KIP-932.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Generic, Unpack

from kbatch._native.codec.record import ConsumerRecord
from kbatch.config import ConsumerConfig
from kbatch.config.readers import NOT_FOR_SHARE_GROUPS
from kbatch.consumer.acquired import AcquiredRecords
from kbatch.consumer.group_member import topic_names
from kbatch.consumer.lifetime import Ending, MemberClient
from kbatch.consumer.poll_metrics import poll_times
from kbatch.consumer.typed_records import Prepared, TypedRecords, check_letter
from kbatch.consumer.typed_share import TypedShareRecords
from kbatch.core.client.calls import Call
from kbatch.core.consumer.share_engine import ShareEngine
from kbatch.core.consumer.share_session import Acknowledge
from kbatch.errors import (
    ConfigError,
    IllegalStateError,
    InvalidGroupIdError,
    KafkaError,
    KafkaTimeoutError,
    RecordDeserializationError,
)
from kbatch.interceptors import interceptors_of_consumer
from kbatch.logs import ClientLogger
from kbatch.network.workers import Workers
from kbatch.records import (
    INT64_MAX,
    AcknowledgeType,
    ShareRecord,
    TopicPartition,
    check_integer,
)
from kbatch.typed import K, V

if TYPE_CHECKING:
    from kbatch.config.keywords import ShareConsumerKeywords
    from kbatch.consumer.typed_records import Unknown
    from kbatch.waiting.deadline import Deadline

logger = ClientLogger("kbatch.consumer")

OnCommit = Callable[[dict[TopicPartition, KafkaError | None]], object]


class ShareConsumerBase(MemberClient, Generic[K, V]):
    """Base of the share consumers. Keys are of K and values of V, where they are not null."""

    _engine_type = ShareEngine
    _is_async = False

    if TYPE_CHECKING:  # its own keywords

        def __init__(
            self,
            settings: ConsumerConfig | Mapping[str, object] | None = None,
            /,
            **keywords: Unpack[ShareConsumerKeywords[K, V]],
        ) -> None: ...

    def _prepare(self) -> None:
        runtime, config = self._runtime, self.config
        assert isinstance(runtime.engine, ShareEngine)
        _check(config)
        self._engine = runtime.engine
        self._is_explicit = config.share_acknowledgement_mode == "explicit"
        self._acquired = AcquiredRecords(
            runtime.engine,
            config,
            runtime.now_ns,
            wake=lambda: runtime.network.wake(),
            notify=runtime.changed.notify,
        )
        self._arrivals = self._acquired.arrivals
        typed = TypedRecords.of(config, on_loop=self._is_async)
        check_letter(typed, type(self).__name__, is_async=self._is_async)
        self._typed = (
            None
            if typed is None
            else TypedShareRecords(typed, self._acquired, self._ask_registry, self._prepared_records)
        )
        self._registry_threads = Workers(f"kbatch-registry-{config.client_id}", 1)
        self._topics: frozenset[str] = frozenset()
        self._missing: set[str] = set()  # topics that a warning was about
        self._calls: deque[tuple[Acknowledge, OnCommit | None]] = deque()
        self._interceptors = interceptors_of_consumer(config)
        self._times = poll_times(runtime.registry)

    # Subscription

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read these topics as a member of the group. Another call replaces the topics.

        Raises
        ------
        TypeError, ValueError
            Topics are unsuitable. Share groups have no patterns.
        """
        names = _names_of(topics)
        with self._user:
            self._engine.subscribe(names)
            self._topics = names
            self._missing.clear()
            self._runtime.network.wake()

    def subscription(self) -> set[str]:
        """Return the topics that are subscribed to."""
        return set(self._topics)

    async def _unsubscribe(self) -> None:
        """Leave the group, after what was acknowledged is sent. Brokers deliver all other records again.

        Raises
        ------
        KafkaTimeoutError
            It took longer than default.api.timeout.ms. It goes on.
        """
        with self._user:
            self._user.refuse_callbacks("unsubscribe")
            if self._topics:
                await self._leave("unsubscribe", self._runtime.api_deadline(), is_failing=False)

    async def _leave(self, name: str, deadline: Deadline, *, is_failing: bool) -> None:
        if not (self._is_explicit or is_failing):
            self._acquired.decide_all(AcknowledgeType.ACCEPT)
        self._send(None)
        call = Call(name)
        self._engine.leave(call)
        self._topics = frozenset()
        self._runtime.network.wake()
        is_done = await self._runtime.await_until(lambda: call.is_done, deadline)
        self._acquired.clear()
        self._run_callbacks()
        if not is_done and name != "close":
            why = self._engine.last_connection_failure or "brokers are slow"
            raise KafkaTimeoutError(f"{name}() timed out: {why}; it goes on")

    # Polls

    async def _poll(
        self, timeout: float | None = None, max_records: int | None = None
    ) -> list[ShareRecord[K, V]]:
        """Acknowledge what earlier polls have returned, and return the next records as soon as there are
        some. Their locks last for the group's share.record.lock.duration.ms. If a task's call is cancelled,
        the program has none of them: the next poll returns them, or brokers deliver them again.

        Parameters
        ----------
        timeout : float or None
            Seconds to wait for the first record; 0 returns what is there, None waits as long as it takes.
        max_records : int or None
            Maximum number of records; None is max.poll.records.

        Returns
        -------
        list of ShareRecord
            It is empty if the time-out came first.

        Raises
        ------
        IllegalStateError
            There is no subscription; or share.acknowledgement.mode=explicit, and records of an earlier poll
            are not acknowledged.
        GroupAuthorizationError, UnsupportedVersionError, ...
            The membership has ended, with the broker's words; `subscribe` begins another.
        TopicAuthorizationError, CorruptRecordError, ...
            A partition cannot be read. Invalid batches are rejected.
        RecordDeserializationError
            A record cannot be read, under on.deserialization.error=raise. Records before it have come with
            the poll before; `skip` rejects it.
        SchemaRegistryError
            A deserializer's registry refuses, or cannot be reached. The next poll begins with the same
            records, while their locks last.
        AuthenticationError
            A login failed; raised once for each.
        ConcurrentUseError
            Another thread or task uses the consumer.
        ConsumerClosedError
            The consumer is closed, or was closed while the call waited.
        """
        most = self.config.max_poll_records if max_records is None else max_records
        check_integer("max_records", most, 1, INT64_MAX)
        runtime, acquired = self._runtime, self._acquired
        deadline = runtime.deadline(timeout)
        with self._user:
            self._user.refuse_callbacks("poll")
            if not self._topics:
                raise IllegalStateError("the consumer has no subscription; subscribe() to topics first")
            self._decide()
            acquired.note_poll()
            self._times.begin(runtime.now_ns())
            self._interceptors.on_poll()
            try:
                self._send(None, 0 if acquired.has_next else min(most, 2**31 - 1))
                while await self._await_next(
                    lambda: acquired.has_next, deadline, lambda: self._engine.note_poll(runtime.now_ns())
                ):
                    taken = acquired.take(most)
                    if taken and self._typed is not None:
                        taken = await self._typed.prepared(taken)
                    if taken:
                        self._interceptors.on_consume(taken)
                        return taken
                    self._send(None, min(most, 2**31 - 1))
                return []
            except BaseException:
                self._take_back()
                raise
            finally:
                self._engine.stop_acquiring()
                runtime.network.wake()
                self._times.end(runtime.now_ns())

    @property
    def _poll_count(self) -> int:
        return self._acquired.poll_count

    def _take_back(self) -> None:
        self._acquired.take_back()

    async def _ask_registry(self, unknown: Unknown) -> None:
        assert self._typed is not None
        deadline = self._runtime.api_deadline()
        await self._typed.typed.ask(
            unknown,
            self._registry_threads.submit,
            lambda is_there: self._await_next(
                is_there, deadline, lambda: self._engine.note_poll(self._runtime.now_ns())
            ),
            self._runtime.changed.notify,
        )

    async def _prepared_records(self, records: Sequence[ConsumerRecord]) -> Prepared:
        assert self._typed is not None
        return await self._typed.typed.prepared(
            records,
            self._registry_threads.submit,
            lambda is_there: self._await_next(
                is_there,
                self._runtime.deadline(None),
                lambda: self._engine.note_poll(self._runtime.now_ns()),
            ),
            self._runtime.changed.notify,
        )

    def skip(self, error: RecordDeserializationError) -> None:
        """Reject the record of an error that the last poll has raised: no member gets it again. Without this
        it is released, and delivered again up to the group's limit.

        Raises
        ------
        IllegalStateError
            There are no deserializers, or the record was acknowledged before: call it before the next poll.
        """
        with self._user:
            if self._typed is None:
                raise IllegalStateError("skip() is for consumers with deserializers")
            self._typed.skip(error)

    def _decide(self) -> None:
        """Accept what the last poll has returned, or make sure that the program has acknowledged it."""
        if not self._is_explicit:
            self._acquired.decide_all(AcknowledgeType.ACCEPT)
        elif open_ones := self._acquired.undecided:
            partition, offset = open_ones[0]
            raise IllegalStateError(
                f"{len(open_ones)} records of the last poll are not acknowledged, such as offset {offset} of "
                f"{partition}; acknowledge() each before the next poll (share.acknowledgement.mode=explicit)"
            )

    def _handle_arrivals(self) -> None:
        self._run_callbacks()

    def _check_membership(self) -> None:
        if (error := self._engine.membership_error) is not None:
            raise error.marked()
        self._runtime.check_topics(self._topics, self._missing)

    # Acknowledgement

    def acknowledge(self, record: ShareRecord, kind: AcknowledgeType | str = AcknowledgeType.ACCEPT) -> None:
        """Set the outcome of a record; the next poll or commit sends it. It needs
        share.acknowledgement.mode=explicit.

        Parameters
        ----------
        record : ShareRecord
        kind : AcknowledgeType or str
            ACCEPT, RELEASE (deliver it again), REJECT (never again) or RENEW (lock it for longer, and
            acknowledge it later). Names in lower case do as well.

        Raises
        ------
        IllegalStateError
            The mode is implicit, or the record does not wait for an acknowledgement.
        TypeError, ValueError
            An argument is unsuitable.
        """
        chosen = _kind_of(kind)
        if not isinstance(record, ShareRecord):
            raise TypeError(f"record must be a ShareRecord of a poll, got {type(record).__name__}")
        with self._user:
            if not self._is_explicit:
                raise IllegalStateError(
                    "acknowledge() needs share.acknowledgement.mode=explicit; in the mode implicit the next "
                    "poll or commit accepts all records"
                )
            self._acquired.choose(TopicPartition(record.topic, record.partition), record.offset, chosen)

    async def _commit(self, timeout: float | None = None) -> None:
        """Send acknowledgements, and return when brokers have taken them, and all earlier ones. In the mode
        implicit all records of the last poll are accepted.

        Parameters
        ----------
        timeout : float or None
            Seconds; None is default.api.timeout.ms.

        Raises
        ------
        InvalidRecordStateError, ShareSessionNotFoundError, NotLeaderOrFollowerError, ...
            The locks of some records have ended, so that they are delivered again, or were. The text names
            the partition; acknowledgements for others have arrived.
        KafkaTimeoutError
            It is unknown whether brokers have taken them.
        """
        deadline = self._runtime.api_deadline(timeout)
        with self._user:
            self._user.refuse_callbacks("commit")
            if not self._is_explicit:
                self._acquired.decide_all(AcknowledgeType.ACCEPT)
            call = Acknowledge(self._acquired.collect())
            self._engine.acknowledge(call)
            earlier = [each for each, _ in self._calls]

            def is_done() -> bool:
                return call.is_done and all(each.is_done for each in earlier)

            await self._runtime.await_answer(is_done, deadline, "commit")
            self._run_callbacks()
            if call.error is not None:
                raise call.error

    def commit_async(self, on_commit: OnCommit | None = None) -> None:
        """Begin to send acknowledgements, without waiting. In the mode implicit all records of the last poll
        are accepted.

        Parameters
        ----------
        on_commit : callable or None
            Called by a later poll, `commit` or `close` with a dict of each TopicPartition and its error, None
            if its broker has taken the acknowledgements. Without one, failures are logged.
        """
        if on_commit is not None and (not callable(on_commit) or iscoroutinefunction(on_commit)):
            raise TypeError(f"on_commit must be a plain callable or None, got {on_commit!r}")
        with self._user:
            if not self._is_explicit:
                self._acquired.decide_all(AcknowledgeType.ACCEPT)
            self._send(on_commit)

    def _send(self, on_commit: OnCommit | None, wanted_records: int = 0) -> None:
        """Send acknowledgements, and acquire records if some are wanted."""
        call = Acknowledge(self._acquired.collect())
        self._engine.acknowledge(call, wanted_records)
        if call.types or on_commit is not None:  # the last step, as nothing ends a call that is not made
            self._calls.append((call, on_commit))
        self._runtime.network.wake()

    def _run_callbacks(self) -> None:
        """Report what is done, in the order of calls."""
        while self._calls and self._calls[0][0].is_done:
            call, on_commit = self._calls.popleft()
            if on_commit is not None:
                self._user.call_back(on_commit, dict(call.results))
            elif call.error is not None:
                logger.warning("acknowledgements failed: %s", call.error)

    # Its end

    async def _end_membership(self, deadline: Deadline, ending: Ending) -> None:
        if not ending.calls_back:
            self._calls = deque((call, None) for call, _ in self._calls)
        await self._leave("close", deadline, is_failing=ending.is_failing)

    def _end(self, deadline: Deadline | None = None) -> None:
        self._registry_threads.stop()
        self._interceptors.close()
        super()._end(deadline)


def _check(config: ConsumerConfig) -> None:
    if config.group_id is None:
        raise InvalidGroupIdError("a ShareConsumer needs a group; set group.id")
    for name, remedy in NOT_FOR_SHARE_GROUPS.items():
        if name in config.given:
            value = getattr(config, name.replace(".", "_"))
            raise ConfigError(f"{name}={value} is not for share groups; {remedy}")


def _names_of(topics: Any) -> frozenset[str]:
    if isinstance(topics, str):
        raise TypeError(f"topics must be a list of names, got {topics!r}; subscribe([{topics!r}])")
    return topic_names(topics, "share groups have no patterns")


def _kind_of(kind: object) -> AcknowledgeType:
    if isinstance(kind, AcknowledgeType):
        return kind
    names = [each.name.lower() for each in AcknowledgeType]
    if not isinstance(kind, str):
        raise TypeError(f"kind must be an AcknowledgeType or its name, got {kind!r}")
    if kind not in names:
        raise ValueError(f"kind must be one of {', '.join(names)}, got {kind!r}")
    return AcknowledgeType[kind.upper()]
