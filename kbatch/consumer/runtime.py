"""ReaderRuntime: what the calls of every client that reads share, its engine and how they wait for it.

A TopicReader, a Consumer and an AsyncConsumer each own one, and give it the network that drives the engine.
"""

from __future__ import annotations

import itertools
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from operator import attrgetter
from random import Random
from typing import TYPE_CHECKING, Any, final

from kbatch._native.io.sole_user import SoleUser
from kbatch.config import ConsumerConfig
from kbatch.core.client.calls import Call
from kbatch.core.consumer.calls import OffsetLookup, PartitionCount, TopicNames
from kbatch.core.consumer.engine import ReadingEngine
from kbatch.core.consumer.leader_requests import FoundOffset
from kbatch.core.consumer.partition_state import OffsetSpec
from kbatch.errors import (
    ConsumerClosedError,
    ForkedConsumerError,
    InvalidTopicError,
    KafkaError,
    TopicAuthorizationError,
)
from kbatch.logs import ClientLogger
from kbatch.network import ThreadNetwork
from kbatch.network.runtime import ClientRuntime
from kbatch.records import TopicPartition, check_text
from kbatch.timeouts import checked_seconds

if TYPE_CHECKING:
    from kbatch.waiting.deadline import Deadline
    from kbatch.waiting.protocols import Waiter

logger = ClientLogger("kbatch.consumer")
_client_numbers = itertools.count(1)


@final
class ReaderRuntime(ClientRuntime):
    """The engine of a client that reads.

    Parameters
    ----------
    config : ConsumerConfig
    noun : str
        What errors call the client.
    new_waiter, check_caller
        Parameters of ClientRuntime.
    engine_type : type[ReadingEngine]

    Attributes
    ----------
    on_change : callable
        Called after each change of the engine, before waiting callers are.
    """

    engine: ReadingEngine

    def __init__(
        self,
        config: ConsumerConfig,
        noun: str,
        *,
        new_waiter: Callable[[], Waiter],
        check_caller: weakref.WeakMethod[Callable[[], object]] | None = None,
        engine_type: type[ReadingEngine] = ReadingEngine,
    ) -> None:
        super().__init__(
            config, new_waiter=new_waiter, check_caller=check_caller, metrics=engine_type.metrics
        )
        self.config = config
        self._noun = noun
        self.on_change: Callable[[], object] = lambda: None
        self.engine = engine_type(
            config,
            random=Random(),
            registry=self.registry,
            now_ns=self.now_ns(),
            wall_clock_ms=lambda: time.time_ns() // 1_000_000,
            on_change=self.note_change,
        )

    def note_change(self) -> None:
        """Make all callers look at what has changed. Any thread may call it."""
        self.on_change()
        self.changed.notify()

    def start_thread(self, deliver: Callable[[list[Any]], object]) -> None:
        """Begin to drive the engine, on the network's thread."""
        network = self.network = ThreadNetwork(
            self.engine,
            config=self.config,
            deliver=deliver,
            name=f"kbatch-reader-{self.config.client_id}",
            metrics=self.registry,
        )
        network.use_loans(self.engine)
        network.start()

    def sole_user(self, current: Callable[[], Any], name_of: Callable[[Any], str]) -> SoleUser:
        """Return what lets one thread or task use the client at a time."""
        return SoleUser(current, name_of, check=self.check_usable)

    def check_topics(self, topics: Iterable[str], missing: set[str]) -> None:
        """Raise if a topic that is subscribed to cannot be read. Warn of one that is not there, unless it is
        `missing` already.
        """
        for topic in topics:
            error = self.engine.topic_error(topic)
            if isinstance(error, TopicAuthorizationError | InvalidTopicError):
                raise error.marked()
            if error is not None and topic not in missing:
                missing.add(topic)
                logger.warning("no records of topic %s so far: %s", topic, error)

    def closed_error(self) -> KafkaError:
        return ConsumerClosedError(f"the {self._noun} is closed; create another")

    def forked_error(self) -> KafkaError:
        return ForkedConsumerError(
            f"the {self._noun} belongs to the parent process and has no threads in this one; create another "
            f"in the child process"
        )

    @property
    def reads_committed(self) -> bool:
        """True if open transactions end what it reads."""
        return self.config.isolation_level == "read_committed"

    def api_deadline(self, timeout: float | None = None) -> Deadline:
        """Return the deadline `timeout` seconds from now; None is default.api.timeout.ms."""
        milliseconds = api_milliseconds(timeout)
        return self.deadline(
            (self.config.default_api_timeout_ms if milliseconds is None else milliseconds) / 1000
        )

    async def await_calls(self, calls: Iterable[Call], make: Callable[[Any], object]) -> None:
        """Make calls of the engine together, and return when all are done. Raise the first error."""
        self.check_usable()
        calls = list(calls)
        for call in calls:
            make(call)
        for call in calls:  # the engine ends them after default.api.timeout.ms
            is_done = partial(attrgetter("is_done"), call)
            await self.await_answer(is_done, self.deadline(None), call.name)
            if call.error is not None:
                raise call.error

    async def topics(self) -> list[str]:
        """Return the names of all topics that this client may see, in order.

        Raises
        ------
        KafkaTimeoutError
            No answer came within default.api.timeout.ms.
        """
        call = TopicNames()
        await self.await_calls([call], self.engine.list_topics)
        return sorted(call.answer)

    async def await_partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic, in order."""
        check_text("topic", topic)
        call = PartitionCount(topic)
        await self.await_calls([call], self.engine.partition_count)
        return list(range(call.answer))

    async def await_offsets(
        self, specs: Mapping[TopicPartition, OffsetSpec]
    ) -> dict[TopicPartition, FoundOffset | None]:
        """Return the offsets at times or ends of logs; None where no record is as late."""
        call = OffsetLookup(specs)
        await self.await_calls([call], self.engine.list_offsets)
        return call.answer


def api_milliseconds(timeout: float | None) -> int | None:
    """Return a time-out of a call in milliseconds; None, the default, leaves it to default.api.timeout.ms."""
    remedy = "leave it out for default.api.timeout.ms"
    return None if timeout is None else int(checked_seconds(timeout, remedy=remedy) * 1000)


def configured(
    settings: ConsumerConfig | Mapping[str, object] | None,
    keywords: Mapping[str, object],
    defaults: Mapping[str, object] = {},
) -> ConsumerConfig:
    """Return the configuration of a new client. `defaults` are for keys that are not set."""
    if isinstance(settings, ConsumerConfig):
        settings = settings.settings()
    number = next(_client_numbers)
    made = ConsumerConfig(settings, number, **keywords)
    unset = {name: value for name, value in defaults.items() if name.replace("_", ".") not in made.given}
    return ConsumerConfig(settings, number, **{**keywords, **unset}) if unset else made
