"""Consumer and ShareConsumer: records of topics, one poll after another; for programs with threads.

Theory of operation. The network's thread (ThreadNetwork) drives the engine, which fetches ahead. A call that
has to wait blocks its thread, and Ctrl-C ends it. What the workers decode, and objects that the program makes
of records, come from the Backlog (`base`).

An interrupt between a poll and the assignment of what it returns would keep records from the program that
count as delivered. The interpreter looks for signals where Python functions begin, where loops turn, and
after calls of native code; not where Python functions return or generators yield. So the last point of a poll
is the end of its native call (`_handing_out`), and an iteration has none between a position and its record.

After org.apache.kafka.clients.consumer.KafkaConsumer and KafkaShareConsumer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from functools import partial, wraps
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Literal, Self, Unpack, final

from kbatch._native.fetch.read_cursor import ChainedIterator
from kbatch._native.io.interrupts import at_once, current_thread
from kbatch._native.io.threads import ClientThread
from kbatch.consumer.base import ConsumerBase
from kbatch.consumer.group_member import GroupMember
from kbatch.consumer.lifetime import CLOSE_SECONDS, EXIT_SECONDS, FORGOTTEN, Ending, MemberClient
from kbatch.consumer.process.options import ProcessOptions, ProcessReport, settings_of
from kbatch.consumer.process.processing import Processing
from kbatch.consumer.process.workers import (
    ChildWorkers,
    ExecutorWorkers,
    Job,
    ProcessWorkers,
    Report,
    ThreadWorkers,
    check_importable,
)
from kbatch.consumer.runtime import ReaderRuntime
from kbatch.consumer.share import ShareConsumerBase
from kbatch.errors import ConcurrentUseError
from kbatch.typed import K, V
from kbatch.waiting.methods import Method, P, T, blocking, named_for_users
from kbatch.waiting.threads import ThreadWaiter

if TYPE_CHECKING:
    from kbatch._native.codec.record import ConsumerRecord
    from kbatch._native.fetch.read_cursor import FetchIterator
    from kbatch.consumer.polled import Polled
    from kbatch.records import ShareRecord


def _handing_out(method: Method[P, T]) -> Callable[Concatenate[Any, P], T]:
    """Return the coroutine method of a poll as a plain one. If an interrupt keeps from the program what it
    returns, that is taken back.
    """

    @wraps(method)
    def call(client: Any, /, *arguments: P.args, **keywords: P.kwargs) -> T:
        before = client._poll_count
        try:
            return at_once(method, client, *arguments, **keywords)
        except ConcurrentUseError:
            raise
        except BaseException:
            if client._poll_count != before:
                client._take_back()
            raise

    return call


class ThreadClient(MemberClient):
    """What both consumers are in programs with threads."""

    client_instance_id = blocking(ReaderRuntime.client_instance_id, "_runtime")

    def _new_runtime(self) -> ReaderRuntime:
        runtime = ReaderRuntime(
            self.config, "consumer", new_waiter=ThreadWaiter, engine_type=self._engine_type
        )
        self._user = runtime.sole_user(current_thread, lambda thread: thread.name)
        return runtime

    def _start_network(self) -> None:
        self._runtime.start_thread(self._deliver())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        at_once(self._close, CLOSE_SECONDS, Ending(is_failing=kind is not None))

    def _close_at_exit(self) -> None:
        at_once(self._close, EXIT_SECONDS, FORGOTTEN)

    def _close_elsewhere(self) -> None:
        # the collector may run on any thread, even the network's, which cannot wait for its own end
        ClientThread(self._close_at_exit, "kbatch-closer", daemon=False).start()


@named_for_users
class Consumer(ThreadClient, ConsumerBase[K, V]):
    """Reads records from Kafka, as a member of a group or alone. One thread uses it at a time; any thread may
    close it.

    Iterating over it gives record after record, and never ends.
    """

    unsubscribe = blocking(GroupMember.unsubscribe, "_member")
    commit = blocking(GroupMember.commit, "_member")
    committed = blocking(GroupMember.committed, "_member")
    _poll_with_looks = _handing_out(ConsumerBase._poll)

    def poll(self, timeout: float | None = None, max_records: int | None = None) -> Polled[K, V]:
        before = self._backlog.poll_count
        try:
            polled: Polled[K, V] | None = self._quick.poll(timeout, max_records)
            if polled is not None:
                return polled
        except BaseException:
            if self._backlog.poll_count != before:
                self._take_back()
            raise
        # in one step: an interrupt before an assignment would lose what was taken
        return self._poll_with_looks(self._quick.left_of(timeout), max_records)

    poll.__doc__ = ConsumerBase._poll.__doc__
    poll_table = _handing_out(ConsumerBase._poll_table)
    position = blocking(ConsumerBase._position)
    lag = blocking(ConsumerBase._lag)
    topics = blocking(ReaderRuntime.topics, "_runtime")
    partitions_for = blocking(ConsumerBase._partitions_for)
    beginning_offsets = blocking(ConsumerBase._beginning_offsets)
    end_offsets = blocking(ConsumerBase._end_offsets)
    offsets_for_times = blocking(ConsumerBase._offsets_for_times)

    def _start_network(self) -> None:
        super()._start_network()
        self._quick = self._quick_polls()

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        """Iterate over the records of all polls from now on, without an end."""
        return self._chained(partial(at_once, self._next_iterator), self._quick.next_iterator)

    def _chained(
        self, next_iterator: Callable[[], Any], quick: Callable[[], FetchIterator | None] | None = None
    ) -> Iterator[ConsumerRecord[K, V]]:
        if self._typed is None:
            return ChainedIterator(next_iterator, quick)
        return chain.from_iterable(iter(next_iterator, None))

    def until_end(self) -> Iterator[ConsumerRecord[K, V]]:
        """Iterate over the records up to where each log ends when the iteration begins: under
        read_committed, at its last stable offset. Partitions that are paused are left out. A member of a
        group that was assigned none yet waits 8 s at most for some.

        Raises
        ------
        KafkaTimeoutError
            No record, and no end, came within default.api.timeout.ms.
        KafkaError
            As in `poll`.
        """
        at_once(self._begin_until_end)
        yield from self._chained(partial(at_once, self._next_iterator, is_bounded=True))

    # Many workers

    def process(
        self,
        function: Callable[[Any], object],
        *,
        workers: int = 16,
        executor: Literal["threads", "processes"] | Executor = "threads",
        **options: Unpack[ProcessOptions],
    ) -> ProcessReport:
        """Call a function for each record, many at a time, and commit what is finished without a gap, until
        `close`, Ctrl-C or an error. docs/process.md explains it.

        Parameters
        ----------
        function : callable
            Gets a ConsumerRecord, on the thread of a worker. A record is finished when it returns. With
            `batch` it gets a list of records of one key.
        workers : int
            Records, or lists of them, that are processed at a time.
        executor : "threads", "processes" or concurrent.futures.Executor
            Threads or processes of its own, or where the function runs instead. Processes import the function
            by its name, and the main module under another one.
        order : "key", "partition" or "none"
            Which records of a partition run one after the other: those of a key, all, none. Records without
            key have no order.
        batch : int
            Maximum number of records of a call. The function returns None, or None or an exception for each.
        max_in_flight, max_bytes : int
            Maximum number of records in memory, and of bytes of their keys and values.
        max_ahead : int
            Maximum distance of the newest record of a partition that is taken from the first that is not
            finished.
        retry : Retry
            When a record is tried again whose function has raised an exception.
        on_failure : "stop", "skip", DeadLetter, RetryTopics or callable
            What becomes of a record after its last attempt. A callable gets the record and the exception.
        commit_interval : float
            Seconds between commits.
        revoke_timeout : float
            Seconds that running records have to end before their partitions are given up, or at the end.
        stall_timeout : float or None
            Seconds after which a record that is still running is logged.

        Returns
        -------
        ProcessReport
            What was done, after `close` was called.

        Raises
        ------
        ProcessError
            A record failed for the last time, and `on_failure` is "stop", or failed too.
        InvalidGroupIdError, IllegalStateError
            group.id is not set; there is no subscription, and no partition is assigned.
        TypeError, ValueError
            Arguments are unsuitable.
        UnknownTopicOrPartitionError
            A retry topic does not exist.
        KafkaError
            As in `poll`.
        """
        settings = settings_of("workers", workers, options)
        settings.check_kind("a Consumer", is_async=False)
        if executor not in ("threads", "processes") and not isinstance(executor, Executor):
            raise TypeError(
                f'executor must be "threads", "processes" or a concurrent.futures.Executor, got {executor!r}'
            )
        if executor == "processes":
            check_importable(function)

        def new_workers(job: Job, report: Report) -> ProcessWorkers:
            name = f"kbatch-process-{self.config.client_id}"
            if executor == "processes":
                return ChildWorkers(job, report, workers, name)
            threads = ThreadWorkers(job.call_in_context, report, workers, name)
            return ExecutorWorkers(executor, job, report, threads) if executor != "threads" else threads

        return at_once(Processing(self, function, settings, workers, new_workers).run)

    # Its end

    def close(
        self, leave: bool | None = None, timeout: float | None = CLOSE_SECONDS, *, drain: bool = False
    ) -> None:
        """Commit what was delivered (enable.auto.commit), run the callbacks of a revocation and of commits,
        leave the group, and end all connections and threads. Any thread may call it; a poll that waits raises
        ConsumerClosedError first. A second call only waits for the first. A call by the function of
        `process()` returns at once, and `process()` closes the consumer before it returns.

        Leaving a with block by an exception closes it, too, but does not commit what the last poll has
        returned, or the record that an iteration has given.

        Parameters
        ----------
        leave : bool or None
            True to leave the group at once, False to stay a member until the session ends (KIP-1092). None is
            False for members with a group.instance.id, else True.
        timeout : float or None
            Seconds for all of it.
        drain : bool
            True to let `process()`, if it runs, finish all records that it has taken, not only those that its
            workers have.
        """
        at_once(self._close, timeout, Ending(leave, drains=drain))


@final
@named_for_users
class ShareConsumer(ThreadClient, ShareConsumerBase[K, V]):
    """Reads records as a member of a share group. One thread uses it at a time; any thread may close it."""

    unsubscribe = blocking(ShareConsumerBase._unsubscribe)
    if TYPE_CHECKING:  # K and V are lost in a decorator

        def poll(
            self, timeout: float | None = None, max_records: int | None = None
        ) -> list[ShareRecord[K, V]]: ...

    else:
        poll = _handing_out(ShareConsumerBase._poll)
    commit = blocking(ShareConsumerBase._commit)

    def close(self, timeout: float | None = CLOSE_SECONDS) -> None:
        """Send acknowledgements, as `commit` does, let brokers deliver all other records again, leave the
        group, and end all connections and threads. Any thread may call it; a poll that waits raises
        ConsumerClosedError first. A second call only waits for the first.

        Leaving a with block by an exception closes it, too, but does not accept what the last poll has
        returned.

        Parameters
        ----------
        timeout : float or None
            Seconds for all of it.
        """
        at_once(self._close, timeout, Ending())
