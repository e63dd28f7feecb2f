"""Calls of users about topics and offsets, and what answers them.

Theory of operation. A call is made once, by `ReadingEngine.list_topics`, `partition_count` or `list_offsets`,
and is done after its answer, an error that a repetition does not cure, or default.api.timeout.ms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kbatch.core.client.any_node_request import AnyNodeRequest
from kbatch.core.client.backoff import NEVER_NS, ExponentialBackoff
from kbatch.core.client.calls import Call
from kbatch.core.consumer.leader_requests import FoundOffset, LeaderRequests, OffsetRequest
from kbatch.errors import KafkaError, KafkaTimeoutError, error_of
from kbatch.protocol import messages
from kbatch.records import TopicPartition

if TYPE_CHECKING:
    from kbatch.core.client.cluster import Cluster
    from kbatch.core.client.connections import Connections, Response
    from kbatch.core.consumer.partition_state import OffsetSpec


class TopicListing(NamedTuple):
    """A topic of the cluster.

    Attributes
    ----------
    topic_id : bytes
        16 bytes, all zero if the cluster has no ids.
    partition_count : int
    is_internal : bool
        True for topics of Kafka itself, such as __consumer_offsets.
    """

    topic_id: bytes
    partition_count: int
    is_internal: bool


class TopicNames(Call):
    """The topics that the client may see: all, or those of some names.

    Attributes
    ----------
    names : Sequence[str] or None
        None for all.
    answer : dict[str, TopicListing]
        The topics by name, if it is done without an error.
    """

    __slots__ = ("answer", "deadline_ns", "last_error", "names", "pending")

    def __init__(self, names: Sequence[str] | None = None) -> None:
        super().__init__("the list of topics")
        self.names = names
        self.answer: dict[str, TopicListing] = {}
        self.pending = AnyNodeRequest()
        self.deadline_ns = NEVER_NS
        self.last_error: KafkaError | None = None


class PartitionCount(Call):
    """The number of partitions of a topic.

    Attributes
    ----------
    topic : str
    answer : int
        The number, if it is done without an error.
    """

    __slots__ = ("answer", "deadline_ns", "topic")

    def __init__(self, topic: str) -> None:
        super().__init__(f"the partitions of topic {topic}")
        self.topic = topic
        self.answer = 0
        self.deadline_ns = NEVER_NS


class OffsetLookup(Call):
    """Offsets at times, or at the ends of logs; under read_committed the end is the last stable offset.

    Attributes
    ----------
    specs : Mapping[TopicPartition, OffsetSpec]
    answer : dict[TopicPartition, FoundOffset | None]
        The offsets, if it is done without an error. None: no record is as late as the time.
    """

    __slots__ = ("answer", "requests", "specs")

    def __init__(self, specs: Mapping[TopicPartition, OffsetSpec]) -> None:
        super().__init__("the look-up of offsets")
        self.specs = specs
        self.answer: dict[TopicPartition, FoundOffset | None] = {}
        self.requests: list[OffsetRequest] = []


class TopicCalls:
    """The open calls of one client.

    Parameters
    ----------
    cluster, connections, backoff
    leader_requests : LeaderRequests
    timeout_ms : int
        default.api.timeout.ms.
    on_change : callable
        Called after a call is done.
    """

    def __init__(
        self,
        cluster: Cluster,
        connections: Connections,
        backoff: ExponentialBackoff,
        leader_requests: LeaderRequests,
        *,
        timeout_ms: int,
        on_change: Callable[[], object],
    ) -> None:
        self._cluster = cluster
        self._connections = connections
        self._backoff = backoff
        self._leader_requests = leader_requests
        self._timeout_ms = timeout_ms
        self._on_change = on_change
        self._listings: list[TopicNames] = []
        self._counts: list[PartitionCount] = []
        self._lookups: list[OffsetLookup] = []

    @property
    def is_open(self) -> bool:
        """True if a call waits."""
        return bool(self._listings or self._counts or self._lookups)

    def topics(self) -> set[str]:
        """Return the topics of calls that wait."""
        return {each.topic for each in self._counts}

    def list_topics(self, call: TopicNames, now_ns: int) -> None:
        """Begin the call."""
        call.deadline_ns = self._deadline_ns(now_ns)
        self._listings.append(call)

    def count_partitions(self, call: PartitionCount, now_ns: int) -> None:
        """Begin the call."""
        call.deadline_ns = self._deadline_ns(now_ns)
        self._cluster.want(call.topic, now_ns)
        self._counts.append(call)

    def list_offsets(self, call: OffsetLookup, now_ns: int) -> None:
        """Begin the call."""
        if not call.specs:
            self._finish(call, None)
            return
        self._lookups.append(call)
        deadline_ns = self._deadline_ns(now_ns)
        for each, spec in call.specs.items():
            request = OffsetRequest(each, spec, partial(self._take_offset, call, each), now_ns, deadline_ns)
            call.requests.append(request)
            self._leader_requests.submit(request, now_ns)

    def run(self, now_ns: int) -> None:
        """Send what can be sent now, and finish what has an answer or is late."""
        for count in self._counts:
            self._look_at(count, now_ns)
        for listing in self._listings:
            if now_ns >= listing.deadline_ns:
                self._finish(listing, self._late(listing, listing.last_error, now_ns))
            elif not listing.pending.is_in_flight and now_ns >= listing.pending.not_before_ns:
                self._request_topics(listing, now_ns)
        self._counts = [each for each in self._counts if not each.is_done]
        self._listings = [each for each in self._listings if not each.is_done]
        self._lookups = [each for each in self._lookups if not each.is_done]

    def deadline_ns(self) -> int:
        """Return the time of the next `run`, if nothing happens before."""
        times = [each.deadline_ns for each in self._counts]
        times += [each.deadline_ns for each in self._listings]
        times += [each.pending.deadline_ns for each in self._listings]
        return min(times, default=NEVER_NS)

    def fail(self, error: KafkaError) -> None:
        """Finish all calls with the error."""
        for call in (*self._counts, *self._listings, *self._lookups):
            self._finish(call, error)

    def _deadline_ns(self, now_ns: int) -> int:
        return now_ns + self._timeout_ms * 1_000_000

    def _finish(self, call: Call, error: KafkaError | None) -> None:
        call.finish(error)
        self._on_change()

    def _late(self, call: Call, last_error: KafkaError | None, now_ns: int) -> KafkaTimeoutError:
        cause = last_error or self._connections.hindrance(now_ns) or self._cluster.last_error
        reason = f"; the last error was: {cause}" if cause is not None else ""
        error = KafkaTimeoutError(
            f"{call.name}: no answer after default.api.timeout.ms={self._timeout_ms}{reason}"
        )
        error.__cause__ = cause
        return error

    # Partitions of a topic

    def _look_at(self, call: PartitionCount, now_ns: int) -> None:
        count = self._cluster.snapshot.partition_count(call.topic)
        error = self._cluster.topic_error(call.topic)
        if count or error is not None:
            call.answer = count
            self._finish(call, error)
        elif now_ns >= call.deadline_ns:
            self._finish(call, self._late(call, None, now_ns))
        else:
            self._cluster.want(call.topic, now_ns)

    # All topics

    def _request_topics(self, call: TopicNames, now_ns: int) -> None:
        node_id = call.pending.find_node(self._connections, self._backoff, now_ns)
        if node_id is not None:
            call.pending.is_in_flight = True
            topic = messages.MetadataRequest.MetadataRequestTopic
            topics = None if call.names is None else [topic(name=name) for name in call.names]
            request = messages.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
            self._connections.send(node_id, request, partial(self._take_topics, call), now_ns)

    def _take_topics(self, call: TopicNames, response: Response) -> None:
        call.pending.is_in_flight = False
        answer = response.message
        error = response.error
        if answer is not None and answer.error_code:
            error = error_of(answer.error_code)
        if error is None:
            call.answer = dict(_listings(answer))
            self._finish(call, None)
        elif error.retriable:
            call.last_error = error
            call.pending.back_off(self._backoff, response.now_ns)
        else:
            self._finish(call, error)

    # Offsets

    def _take_offset(
        self,
        call: OffsetLookup,
        each: TopicPartition,
        found: FoundOffset | None,
        error: KafkaError | None,
        now_ns: int,
    ) -> None:
        if error is not None:
            for request in call.requests:
                request.is_done = True
            self._finish(call, error)
            return
        call.answer[each] = found
        if len(call.answer) == len(call.specs):
            self._finish(call, None)


def _listings(answer: Any) -> list[tuple[str, TopicListing]]:
    """Return the topics of an answer; one that is being deleted or created has no partitions yet."""
    return [
        (topic.name, TopicListing(topic.topic_id, len(topic.partitions), topic.is_internal))
        for topic in answer.topics
        if topic.name is not None and topic.partitions
    ]
