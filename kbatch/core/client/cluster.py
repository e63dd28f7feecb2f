"""Cluster: metadata of brokers, topics and leaders, and when the next update is due.

Theory of operation. A topic is *wanted* from its first use until `max_idle_ms` after its last. *Partial*
updates request topics that are new or had an error in their last answer; *full* updates request all, at
metadata.max.age.ms and on demand. One request is in flight at a time. A pause follows every update; it
doubles while requests fail or answers are equivalent. A new topic skips the pause.

Brokers learn of changes at different times, so an answer may be older than the known state. Therefore a
partition's new leader counts only if its epoch is not below the known one. Epochs start over with a topic
that was deleted and created again (another id, or none and unknown in between) and with another cluster. A
known leader that has refused requests or has left is given up after GIVING_UP answers that name another one.
An id that another one has replaced is believed again after as many answers.
Brokers whose epochs are not reliable send Metadata below version 9 (Kafka before 2.4): these epochs do not
count.

A topic that brokers do not know keeps its partitions, without leaders, for `patience_ms`, since a new topic
is not known everywhere at once. After that it is an error, which is remembered, and requested again now and
then. A topic may come back with fewer partitions (`lacks`).

User threads read `snapshot`, which is immutable: the next update publishes another.

After org.apache.kafka.clients.Metadata, MetadataSnapshot and ProducerMetadata; KIP-526 (partial updates),
KIP-516 (topic ids), KIP-951 (leaders in Produce answers), KIP-899 and KIP-1102 (starting over); franz-go
(giving up an epoch).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from kbatch._native.codec.hashes import MAX_PARTITIONS
from kbatch.config import ClientConfig
from kbatch.core.client.backoff import NEVER_NS, NS_PER_MS, ExponentialBackoff
from kbatch.core.client.lasting_faults import LastingFaults
from kbatch.errors import ErrorCode, KafkaError, ProtocolError, error_of, row_of
from kbatch.errors.words import shown
from kbatch.logs import ClientLogger
from kbatch.protocol import messages
from kbatch.records import NO_TOPIC_ID

if TYPE_CHECKING:
    from kbatch.protocol.structs import Message

logger = ClientLogger(__name__)

# The time after which a topic with an error is requested again, while it is wanted.
REMEMBERED_NS = 5_000 * NS_PER_MS
_UNUSABLE = ()  # the subject of metadata as a whole; topics are subjects, too
# The longest name of a host that is kept; none of DNS is longer.
MAX_HOST = 255
# The time after which partitions without a leader are a fault; elections take less.
LEADERLESS_NS = 10_000 * NS_PER_MS
NO_EPOCH = -1
# So many answers in a row name a leader of a lower epoch before it is believed.
GIVING_UP = 5
MAX_FORMER_IDS = 8
# After that time, and in a second answer, a topic has the partitions that brokers report.
STABLE_NS = 1_000 * NS_PER_MS


class Node(NamedTuple):
    """A broker."""

    node_id: int
    host: str
    port: int
    rack: str | None


def node_of(node_id: int, host: str, port: int, rack: str | None) -> Node:
    """Return the broker that an answer names. Its host can be shown and has a bounded length. It may be an
    IPv6 address in brackets, as Java's resolver takes it.
    """
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return Node(node_id, shown(host, MAX_HOST), port, rack)


class PartitionMetadata(NamedTuple):
    """A partition, with its number; -1 means an unknown leader or epoch. `replicas` are node ids."""

    leader: int
    leader_epoch: int
    error: ErrorCode
    replicas: tuple[int, ...] = ()
    partition: int = -1


class TopicMetadata(NamedTuple):
    """A topic, with its partitions in the order of their numbers.

    `topic_id` is 16 zero bytes if brokers have no ids; `error` is the code of the last answer.
    """

    name: str
    topic_id: bytes
    partitions: tuple[PartitionMetadata, ...]
    error: ErrorCode


class ClusterSnapshot:
    """The metadata at one moment. It is immutable, and any thread may read it.

    Attributes
    ----------
    nodes : Mapping[int, Node]
        Empty while only bootstrap.servers are known.
    topics : Mapping[str, TopicMetadata]
        The topics with known partitions.
    errors : Mapping[str, ErrorCode]
        The errors of other topics.
    cluster_id : str | None
    controller_id : int
    updated_ns : int
        The time of the last answer.
    """

    __slots__ = ("cluster_id", "controller_id", "errors", "nodes", "topics", "updated_ns")

    def __init__(
        self,
        *,
        nodes: Mapping[int, Node],
        topics: Mapping[str, TopicMetadata],
        errors: Mapping[str, ErrorCode],
        cluster_id: str | None,
        controller_id: int,
        updated_ns: int,
    ) -> None:
        self.nodes = nodes
        self.topics = topics
        self.errors = errors
        self.cluster_id = cluster_id
        self.controller_id = controller_id
        self.updated_ns = updated_ns

    def changed_since(self, before: ClusterSnapshot) -> Collection[str]:
        """Return all topics whose partitions or leaders differ from an earlier snapshot, and perhaps more."""
        old = before.topics
        if self.nodes is not before.nodes:
            return self.topics.keys() | old.keys()
        changed = {name for name, known in self.topics.items() if old.get(name) is not known}
        return changed | (old.keys() - self.topics.keys())

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions; 0 if the topic is unknown."""
        known = self.topics.get(topic)
        return 0 if known is None else len(known.partitions)

    def topic_id(self, topic: str) -> bytes:
        """Return the topic's id, or NO_TOPIC_ID if that is unknown."""
        known = self.topics.get(topic)
        return NO_TOPIC_ID if known is None else known.topic_id

    def leader(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the leader and its epoch; (-1, -1) if the partition is unknown. The leader is also -1 if it
        is not in the cluster any more.
        """
        metadata = self.topics.get(topic)
        if metadata is None or not 0 <= partition < len(metadata.partitions):
            return -1, -1
        known = metadata.partitions[partition]
        return known.leader if known.leader in self.nodes else -1, known.leader_epoch


class TopicUse(NamedTuple):
    """How a client uses topics.

    Attributes
    ----------
    max_idle_ms : int
        Time for which a topic's metadata is kept after its last use.
    patience_ms : int
        Time for which brokers may not know a topic before that is an error.
    acl_operations : str
        The operations that an ACL has to allow, for errors.
    creates : bool
        True if brokers may create a topic that they do not know (auto.create.topics.enable).
    """

    max_idle_ms: int
    patience_ms: int
    acl_operations: str
    creates: bool


class _Topic:
    """A wanted topic.

    `known` is the last good answer, with the highest epochs seen; `update_ns` is the time of its next partial
    update, or NEVER_NS; `unknown_since_ns` is the time of the first answer without the topic, and
    `leaderless_ns` that of the first one without a leader of a partition. `doubts` has
    the partitions whose known leader has refused requests or left, with the number of answers in a row that
    named a leader of a lower epoch. `former_ids` are the ids that others have replaced, and `former_answers`
    the number of answers in a row that named one of them. `shape` is the topic's id and number of partitions
    in its last answer, the same since `shape_ns` and in `shape_answers` answers.
    """

    __slots__ = (
        "doubts",
        "error",
        "expires_ns",
        "former_answers",
        "former_ids",
        "known",
        "leaderless_ns",
        "shape",
        "shape_answers",
        "shape_ns",
        "unknown_since_ns",
        "update_ns",
        "was_requested",
    )

    def __init__(self, now_ns: int, expires_ns: int) -> None:
        self.known: TopicMetadata | None = None
        self.error = ErrorCode.NONE
        self.expires_ns = expires_ns
        self.update_ns = now_ns
        self.was_requested = False
        self.unknown_since_ns: int | None = None
        self.leaderless_ns: int | None = None
        self.doubts: dict[int, int] = {}
        self.former_ids: tuple[bytes, ...] = ()
        self.former_answers = 0
        self.shape = (NO_TOPIC_ID, 0)
        self.shape_ns = now_ns
        self.shape_answers = 0

    def note_shape(self, shape: tuple[bytes, int], now_ns: int) -> None:
        """Record the id and the number of partitions in an answer."""
        if shape != self.shape:
            self.shape, self.shape_ns, self.shape_answers = shape, now_ns, 0
        self.shape_answers += 1

    def is_outdated(self, topic_id: bytes) -> bool:
        """True if an answer names a former id, and is not believed: its broker lags. Count such answers."""
        self.former_answers = self.former_answers + 1 if topic_id in self.former_ids else 0
        return 0 < self.former_answers < GIVING_UP

    def note_former(self, topic_id: bytes, new_id: bytes) -> None:
        """Record that another id has replaced the topic's."""
        kept = [each for each in (*self.former_ids, topic_id) if each not in (new_id, NO_TOPIC_ID)]
        self.former_ids = tuple(kept[-MAX_FORMER_IDS:])

    def believes_lower(self, partition: int, *, has_left: bool) -> bool:
        """Count an answer with a lower epoch than the known one of a leader, which `has_left` the cluster or
        not. True if it is believed all the same.
        """
        if not has_left and partition not in self.doubts:
            return False
        self.doubts[partition] = count = self.doubts.get(partition, 0) + 1
        return count >= GIVING_UP


# Characters of a topic's name in errors.
_SHOWN_CHARACTERS = 260
_REMEDIES = {
    ErrorCode.INVALID_TOPIC_EXCEPTION: "; names are 1 to 249 of A-Z, a-z, 0-9, '.', '_' and '-', but not '.' "
    "or '..'",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "; add the ACLs {acl_operations}",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "; check its name, or create it",
}


class Cluster:
    """The cluster's metadata, for one client.

    Parameters
    ----------
    config : ClientConfig
    backoff : ExponentialBackoff
        The pauses between updates.
    now_ns : int
        The time of any monotonic clock.
    topic_use : TopicUse

    Attributes
    ----------
    version : int
        The number of snapshots, which grows.
    last_error : KafkaError | None
        The error of the last update; None after a success.
    given_up : int
        How often known epochs were given up for lower ones.
    request_type : type of Message
        What `make_request` returns.
    remedy : str
        What to do if nodes do not answer that.
    is_of_controllers : bool
        True if the nodes are controllers, not brokers.
    """

    request_type: ClassVar[type[Message]] = messages.MetadataRequest
    remedy: ClassVar[str] = (
        "name brokers in bootstrap.servers, no controllers, which an Admin takes as bootstrap.controllers"
    )
    is_of_controllers: ClassVar[bool] = False

    def __init__(
        self, config: ClientConfig, backoff: ExponentialBackoff, now_ns: int, topic_use: TopicUse
    ) -> None:
        self._max_age_ns = config.metadata_max_age_ms * NS_PER_MS
        self._topic_use = topic_use
        self._max_idle_ns = topic_use.max_idle_ms * NS_PER_MS
        self._patience_ns = topic_use.patience_ms * NS_PER_MS
        self._rebootstraps = config.metadata_recovery_strategy == "rebootstrap"
        self._trigger_ns = config.metadata_recovery_rebootstrap_trigger_ms * NS_PER_MS
        self._backoff = backoff
        self._faults = LastingFaults(logger)
        self._topics: dict[str, _Topic] = {}
        # when updates are due: on demand, by age, for single topics; and their limits
        self._requested_ns = now_ns
        self._expires_ns = now_ns + self._max_age_ns
        self._partial_update_ns = NEVER_NS
        self._not_before_ns = now_ns
        self._progress_ns = now_ns
        self._failures = 0
        self._equivalent_answers = 0
        # of the request in flight
        self._is_in_flight = False
        self._is_full = False
        self._requested_since_ns = NEVER_NS
        self._is_outdated = False
        self.last_error: KafkaError | None = None
        self.version = 0
        self.given_up = 0
        self._snapshot = ClusterSnapshot(
            nodes={}, topics={}, errors={}, cluster_id=None, controller_id=-1, updated_ns=now_ns
        )

    @property
    def snapshot(self) -> ClusterSnapshot:
        """The latest snapshot. Any thread may read it."""
        return self._snapshot

    def topic_error(self, topic: str) -> KafkaError | None:
        """Return the topic's error; None if it is known, or may still appear. Any thread may call this."""
        code = self._snapshot.errors.get(topic)
        if code is None:
            return None
        name = repr(topic) if len(topic) <= _SHOWN_CHARACTERS else f"{topic[:_SHOWN_CHARACTERS]!r}..."
        remedy = _REMEDIES.get(code, "").format(acl_operations=self._topic_use.acl_operations)
        return error_of(code, f"there is no metadata of topic {name}: {code}{remedy}")

    def is_answered(self, topic: str) -> bool:
        """True if brokers have said which partitions the topic has, or that they do not know it."""
        entry = self._topics.get(topic)
        return entry is not None and (entry.known is not None or entry.unknown_since_ns is not None)

    def unknown_since_ns(self, topic: str) -> int | None:
        """Return when brokers said first that they do not know the topic; None if they know it, or were not
        asked.
        """
        entry = self._topics.get(topic)
        return None if entry is None else entry.unknown_since_ns

    # Wanted topics and due updates

    def want(self, topic: str, now_ns: int) -> None:
        """Record that the topic is used now. A new one is requested at once; a known one is kept."""
        entry = self._topics.get(topic)
        if entry is not None:
            entry.expires_ns = max(entry.expires_ns, now_ns + self._max_idle_ns)
            return
        self._topics[topic] = _Topic(now_ns, now_ns + self._max_idle_ns)
        self._partial_update_ns = min(self._partial_update_ns, now_ns)
        self._not_before_ns = now_ns
        self._equivalent_answers = 0

    def note_named(self, topic: str, now_ns: int) -> None:
        """Record that a broker names the topic: it is wanted, and requested again now if it was unknown."""
        self.want(topic, now_ns)
        entry = self._topics[topic]
        if not entry.error or not row_of(entry.error).retriable:
            return
        entry.error = ErrorCode.NONE
        entry.unknown_since_ns = entry.update_ns = now_ns
        self._partial_update_ns = self._not_before_ns = now_ns
        old = self._snapshot
        self._publish(old.nodes, old.cluster_id, old.controller_id, old.updated_ns)

    def use(self, topic: str, now_ns: int) -> bytes:
        """Call `want`, and return the topic's id, or NO_TOPIC_ID if that is unknown."""
        self.want(topic, now_ns)
        return self._snapshot.topic_id(topic)

    def request_update(self, now_ns: int) -> None:
        """Request a full update after the pause, because of a sign of change."""
        self._requested_ns = min(self._requested_ns, now_ns)

    def doubt_leader(self, topic: str, partition: int, now_ns: int) -> None:
        """Record that a request was refused by what is known as the partition's leader: request an update."""
        self.request_update(now_ns)
        entry = self._topics.get(topic)
        if entry is not None and entry.known is not None:
            entry.doubts.setdefault(partition, 0)

    def lacks(self, topic: str, partition: int, now_ns: int) -> bool:
        """True if it is certain that the topic, which brokers know, does not have the partition: one answer
        may be that of a broker that lags.
        """
        entry = self._topics.get(topic)
        return (
            entry is not None
            and entry.known is not None
            and entry.unknown_since_ns is None
            and partition >= len(entry.known.partitions)
            and entry.shape == (entry.known.topic_id, len(entry.known.partitions))
            and entry.shape_answers > 1
            and now_ns - entry.shape_ns >= STABLE_NS
        )

    def update_delay_ns(self, now_ns: int) -> int:
        """Return the time until `make_request` is due: 0 for now, NEVER_NS while a request is in flight."""
        if self._is_in_flight:
            return NEVER_NS
        return max(self._due_ns(), self._not_before_ns, now_ns) - now_ns

    def is_due(self, now_ns: int) -> bool:
        """True if `make_request` is due now."""
        return not self._is_in_flight and now_ns >= self._not_before_ns and now_ns >= self._due_ns()

    def is_calm(self, now_ns: int) -> bool:
        """True if nothing can be due now: a quick check before `is_due` and `must_rebootstrap`."""
        return not (
            now_ns >= self._requested_ns
            or now_ns >= self._expires_ns
            or now_ns >= self._partial_update_ns
            or self._is_outdated
            or now_ns - self._progress_ns > self._trigger_ns
        )

    def _due_ns(self) -> int:
        return min(self._requested_ns, self._expires_ns, self._partial_update_ns)

    def must_rebootstrap(self, now_ns: int, *, is_hopeful: Callable[[], bool]) -> bool:
        """True if the metadata is useless: a broker sent REBOOTSTRAP_REQUIRED, or requests were tried for
        metadata.recovery.rebootstrap.trigger.ms without an answer, and `is_hopeful()` is false.
        """
        if not self._rebootstraps:
            return False
        if self._is_outdated:
            return True
        if now_ns - self._progress_ns <= self._trigger_ns:  # tries are no older than the last progress
            return False
        if now_ns - self._trying_since_ns() <= self._trigger_ns or is_hopeful():
            return False
        # names of bootstrap servers are resolved again anyway
        return bool(self._snapshot.nodes)

    def _trying_since_ns(self) -> int:
        return max(min(self._due_ns(), self._requested_since_ns), self._progress_ns)

    def rebootstrap(self, now_ns: int) -> None:
        """Forget nodes and leaders, but no partitions and epochs. A request in flight has failed."""
        if not self._is_outdated:  # else brokers may say so again: after the pause that follows errors
            self._not_before_ns = now_ns
        self._is_outdated = False
        self._is_in_flight = False
        self._requested_since_ns = NEVER_NS
        self._requested_ns = now_ns
        for entry in self._topics.values():
            if entry.known is not None:
                entry.known = _without_leaders(entry.known, entry.known.error)
        old = self._snapshot
        self._publish({}, old.cluster_id, -1, old.updated_ns)

    # The request and its answer

    def make_request(self) -> Any:
        """Return the request due now. Its result goes to `handle_response` or `handle_failure`."""
        self._is_full = self._requested_ns < NEVER_NS or self._partial_update_ns == NEVER_NS
        self._is_in_flight = True
        self._requested_since_ns = self._due_ns()
        names = []
        for name, entry in self._topics.items():
            if self._is_full or entry.update_ns < NEVER_NS:
                entry.was_requested = True
                names.append(name)
        if self._is_full:
            self._requested_ns = NEVER_NS
        topic = messages.MetadataRequest.MetadataRequestTopic
        return messages.MetadataRequest(
            topics=[topic(name=name) for name in names],
            allow_auto_topic_creation=self._topic_use.creates,
        )

    def handle_failure(self, error: KafkaError, now_ns: int) -> None:
        """Handle a failure of the request, or an answer without metadata."""
        if self._is_in_flight and self._is_full:
            self._requested_ns = min(self._requested_ns, self._requested_since_ns)
        self._is_in_flight = False
        self._requested_since_ns = NEVER_NS
        self.last_error = error
        self._equivalent_answers = 0
        self._not_before_ns = now_ns + self._backoff.delay_ns(self._failures)
        self._failures += 1

    def handle_response(self, response: Any, now_ns: int, *, has_epochs: bool = True) -> None:
        """Handle the answer to `make_request`; `has_epochs` if its leader epochs are reliable."""
        fault = _fault_of(response)
        if fault is not None:
            if fault.code == ErrorCode.REBOOTSTRAP_REQUIRED:
                self._is_outdated = True
            self._faults.note(_UNUSABLE, f"brokers send no usable metadata: {fault}", now_ns)
            self.handle_failure(fault, now_ns)
            return
        nodes = {
            broker.node_id: node_of(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        }
        old = self._snapshot
        if None not in (old.cluster_id, response.cluster_id) and old.cluster_id != response.cluster_id:
            self._begin_cluster(now_ns)
        for topic in response.topics:
            entry = self._topics.get(topic.name)
            if entry is not None:
                self._take(entry, topic, nodes, now_ns, has_epochs=has_epochs)
                self._note_leaders(topic.name, entry, now_ns)
        self._faults.end(_UNUSABLE, "brokers send usable metadata again", now_ns)
        self._forget_idle(now_ns)
        self._publish(
            old.nodes if nodes == old.nodes else nodes, response.cluster_id, response.controller_id, now_ns
        )
        self._pause(_is_equivalent(self._snapshot, old), now_ns)

    def _note_leaders(self, topic: str, entry: _Topic, now_ns: int) -> None:
        """Log partitions that have no leader for long: nothing is sent to them or read of them."""
        is_known = entry.known is not None and entry.unknown_since_ns is None
        partitions = entry.known.partitions if entry.known is not None and is_known else ()
        missing = [str(number) for number, partition in enumerate(partitions) if partition.leader < 0]
        if not missing:
            if entry.leaderless_ns is not None:
                entry.leaderless_ns = None
                self._faults.end(topic, f"topic {topic}: all partitions have leaders", now_ns)
        elif entry.leaderless_ns is None:
            entry.leaderless_ns = now_ns
        elif now_ns - entry.leaderless_ns >= LEADERLESS_NS:
            few = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
            text = (
                f"topic {topic}: {len(missing)} of {len(partitions)} partitions ({few}) have no leader, so "
                "they take and give no records; check that the brokers with their replicas run"
            )
            self._faults.note(topic, text, now_ns)

    def _begin_cluster(self, now_ns: int) -> None:
        """Forget leaders and epochs: the nodes are those of another cluster."""
        self.given_up += 1
        self.request_update(now_ns)
        for entry in self._topics.values():
            if entry.known is not None:
                entry.known = _without_epochs(entry.known)

    def _take(
        self, entry: _Topic, answer: Any, nodes: Mapping[int, Node], now_ns: int, *, has_epochs: bool
    ) -> None:
        """Handle one topic's part of an answer."""
        code = ErrorCode(answer.error_code) if answer.error_code else ErrorCode.NONE
        if not code:
            if entry.is_outdated(answer.topic_id):
                entry.note_shape((answer.topic_id, len(answer.partitions)), now_ns)
                entry.update_ns = now_ns
                return
            has_id = answer.topic_id != NO_TOPIC_ID
            if entry.unknown_since_ns is not None and entry.known is not None and not has_id:
                self.given_up += 1  # it may be another topic
                entry.known = _without_epochs(entry.known)
            entry.known = known = self._newest(entry, answer, nodes, has_epochs=has_epochs)
            entry.note_shape((known.topic_id, len(answer.partitions)), now_ns)
            entry.error = code
            entry.unknown_since_ns = None
            is_open = any(partition.error and _refreshes(partition.error) for partition in known.partitions)
            entry.update_ns = now_ns if is_open else NEVER_NS
            return
        if entry.known is not None:
            entry.known = _without_leaders(entry.known, code)
        if entry.unknown_since_ns is None:
            entry.unknown_since_ns = now_ns
        if row_of(code).retriable and now_ns - entry.unknown_since_ns < self._patience_ns:
            entry.error = ErrorCode.NONE
            entry.update_ns = now_ns
        else:
            entry.error = code
            entry.update_ns = now_ns + REMEMBERED_NS

    def _newest(
        self, entry: _Topic, answer: Any, nodes: Mapping[int, Node], *, has_epochs: bool
    ) -> TopicMetadata:
        """Return the topic of an answer, with known partitions instead of those with an older leader
        epoch.
        """
        known = entry.known
        old: tuple[PartitionMetadata, ...] = ()
        has_id = answer.topic_id != NO_TOPIC_ID
        if known is not None and (not has_id or answer.topic_id == known.topic_id):
            old = known.partitions
        else:
            entry.doubts.clear()
            if known is not None:
                entry.note_former(known.topic_id, answer.topic_id)
        new = {partition.partition_index: partition for partition in answer.partitions}
        # a topic loses no partitions, so an answer with fewer is old
        count = max(max(new, default=-1) + 1, len(old) if has_id else 0)
        partitions = []
        for index in range(count):
            partition, found = old[index] if index < len(old) else None, new.get(index)
            if found is not None:
                epoch = found.leader_epoch if has_epochs else NO_EPOCH
                if partition is None or self._is_believed(entry, index, partition, epoch, nodes):
                    partition = PartitionMetadata(
                        found.leader_id,
                        epoch,
                        ErrorCode(found.error_code) if found.error_code else ErrorCode.NONE,
                        tuple(found.replica_nodes),
                        index,
                    )
            elif partition is None:
                partition = PartitionMetadata(-1, NO_EPOCH, ErrorCode.LEADER_NOT_AVAILABLE, (), index)
            if partition.leader not in nodes:
                partition = partition._replace(leader=-1)
            partitions.append(partition)
        # during the upgrade of a cluster some brokers send no ids
        topic_id = answer.topic_id if has_id or known is None else known.topic_id
        return TopicMetadata(answer.name, topic_id, tuple(partitions), ErrorCode.NONE)

    def _is_believed(
        self,
        entry: _Topic,
        partition: int,
        before: PartitionMetadata,
        leader_epoch: int,
        nodes: Mapping[int, Node],
    ) -> bool:
        """True if an answer's leader, with this epoch, counts instead of the known one."""
        if 0 <= leader_epoch < before.leader_epoch:
            if not entry.believes_lower(partition, has_left=before.leader not in nodes):
                return False
            self.given_up += 1
        entry.doubts.pop(partition, None)
        return True

    def _forget_idle(self, now_ns: int) -> None:
        """Drop topics that are not used any more."""
        for name in [name for name, entry in self._topics.items() if entry.expires_ns <= now_ns]:
            del self._topics[name]

    def _pause(self, is_equivalent: bool, now_ns: int) -> None:
        """Set the pause before the next update, and the due partial updates."""
        if self._is_full or not self._is_in_flight:
            if now_ns >= self._expires_ns:
                self._equivalent_answers = 0  # the update was due by age only
            self._expires_ns = now_ns + self._max_age_ns
        self._is_in_flight = False
        self._requested_since_ns = NEVER_NS
        self._progress_ns = now_ns
        self._failures = 0
        self.last_error = None
        self._is_outdated = False
        self._equivalent_answers = self._equivalent_answers + 1 if is_equivalent else 0
        self._partial_update_ns = min((entry.update_ns for entry in self._topics.values()), default=NEVER_NS)
        self._not_before_ns = now_ns
        if all(entry.was_requested for entry in self._topics.values()):
            self._not_before_ns += self._backoff.delay_ns(max(self._equivalent_answers - 1, 0))

    # Leaders in other answers

    def update_leader(
        self, topic: str, partition: int, leader_id: int, leader_epoch: int, nodes: Iterable[Node]
    ) -> bool:
        """Use a partition's leader from an answer to another request, with its nodes (KIP-951).

        Returns False, and changes nothing, if that is not newer than the known leader, or has no known node.
        """
        entry = self._topics.get(topic)
        if entry is None or entry.known is None or entry.error:
            return False
        if not 0 <= partition < len(entry.known.partitions):
            return False
        if leader_epoch <= entry.known.partitions[partition].leader_epoch:
            return False
        old = self._snapshot
        named = {node.node_id: node for node in nodes}
        if leader_id not in named and leader_id not in old.nodes:
            return False
        entry.doubts.pop(partition, None)
        partitions = list(entry.known.partitions)
        partitions[partition] = partitions[partition]._replace(
            leader=leader_id, leader_epoch=leader_epoch, error=ErrorCode.NONE
        )
        entry.known = entry.known._replace(partitions=tuple(partitions))
        is_news = any(old.nodes.get(node_id) != node for node_id, node in named.items())
        self._publish(
            {**old.nodes, **named} if is_news else old.nodes,
            old.cluster_id,
            old.controller_id,
            old.updated_ns,
        )
        return True

    def _publish(
        self, nodes: Mapping[int, Node], cluster_id: str | None, controller_id: int, updated_ns: int
    ) -> None:
        old = self._snapshot
        topics, errors = {}, {}
        for name, entry in self._topics.items():
            if entry.error:
                errors[name] = entry.error
            elif entry.known is not None:
                topics[name] = entry.known
        is_same = topics == old.topics
        self._snapshot = ClusterSnapshot(
            nodes=nodes if nodes is old.nodes else MappingProxyType(dict(nodes)),
            topics=old.topics if is_same else MappingProxyType(topics),
            errors=errors,
            cluster_id=cluster_id,
            controller_id=controller_id,
            updated_ns=updated_ns,
        )
        self.version += 1


def _fault_of(response: Any) -> KafkaError | None:
    """Return the error of an unusable answer, or None."""
    if response.error_code:
        return error_of(response.error_code)
    if not response.brokers:
        # as Kafka does: the broker is starting up
        return error_of(ErrorCode.BROKER_NOT_AVAILABLE, "a metadata answer without brokers")
    for topic in response.topics:
        for partition in topic.partitions:
            if not 0 <= partition.partition_index < MAX_PARTITIONS:
                return ProtocolError(
                    f"MetadataResponse: topic {topic.name!r} with a partition {partition.partition_index}"
                )
    return None


def _is_equivalent(new: ClusterSnapshot, old: ClusterSnapshot) -> bool:
    return new.topics is old.topics and new.nodes is old.nodes and new.errors == old.errors


def _refreshes(code: ErrorCode) -> bool:
    return row_of(code).refresh_metadata


def _without_leaders(topic: TopicMetadata, error: ErrorCode) -> TopicMetadata:
    partitions = tuple(partition._replace(leader=-1) for partition in topic.partitions)
    return topic._replace(partitions=partitions, error=error)


def _without_epochs(topic: TopicMetadata) -> TopicMetadata:
    partitions = tuple(each._replace(leader=-1, leader_epoch=NO_EPOCH) for each in topic.partitions)
    return topic._replace(partitions=partitions)
