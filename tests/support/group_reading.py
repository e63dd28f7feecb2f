"""A GroupEngine, an embedded cluster, and a coordinator that a test scripts, in virtual time.

The coordinator has the rules of KIP-848 that a member can see: epochs, what may be owned, and what waits for
an acknowledgement. A test sets the targets, and makes it refuse, forget or move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any

from kbatch.core.client.calls import Call
from kbatch.core.consumer.commits import CommitOffsets, CommittedLookup
from kbatch.core.consumer.group_engine import GroupEngine
from kbatch.core.consumer.membership import Rebalance, Subscription
from kbatch.errors import ErrorCode
from kbatch.metrics import CONSUMER_METRICS, COORDINATOR_METRICS
from kbatch.protocol import messages
from kbatch.records import NO_TOPIC_ID, OffsetAndMetadata, TopicPartition
from tests.support.broker_core import START_MS, TOPIC, VirtualBroker
from tests.support.reading import MANY_STEPS, MS, Reading

GROUP = "g"
INTERVAL_MS = 5000
_Answer = messages.ConsumerGroupHeartbeatResponse


class Coordinator:
    """The coordinator of a group with one member of interest.

    Attributes
    ----------
    target : frozenset of TopicPartition
        What the member is to own; `give` changes it.
    may_own : frozenset of TopicPartition
        What it may think its own: what it was given, without what it has acknowledged to have given up.
    epoch : int
        The member's; 0 if it is no member.
    committed : dict of TopicPartition to OffsetAndMetadata
    heartbeats, commits : list
        The requests.
    refusals : list of ErrorCode or None
        The answers to the next heartbeats; None is a good one.
    commit_refusals : list of ErrorCode or None
        Those to the next commits.
    unstable : set of TopicPartition
        What has an open transaction.
    """

    def __init__(self, reading: GroupReading) -> None:
        self._reading = reading
        self.target: frozenset[TopicPartition] = frozenset()
        self.may_own: frozenset[TopicPartition] = frozenset()
        self.epoch = 0
        self.previous_epoch = 0
        self.member_id = ""
        self.interval_ms = INTERVAL_MS
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.heartbeats: list[Any] = []
        self.commits: list[Any] = []
        self.times_ms: list[int] = []
        self.refusals: list[ErrorCode | None] = []
        self.commit_refusals: list[ErrorCode | None] = []
        self.words = "said by the broker"
        self.unstable: set[TopicPartition] = set()
        self._is_target_sent = True

    def give(self, *partitions: TopicPartition) -> None:
        """Change the target. What it adds is in the next answer only if nothing has to be given up first."""
        self.target = frozenset(partitions)
        self._is_target_sent = False

    def fence(self) -> None:
        """Remove the member."""
        self.epoch = 0
        self.may_own = frozenset()

    # Requests

    def heartbeat(self, request: Any) -> Any:
        self.heartbeats.append(request)
        self.times_ms.append(self._reading.now_ns // MS)
        code = self.refusals.pop(0) if self.refusals else None
        if code is not None:
            if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
                self.fence()
            return _Answer(error_code=code, error_message=self.words)
        if request.member_epoch < 0:
            self.fence()
            return _Answer(member_id=request.member_id, member_epoch=request.member_epoch)
        is_full = request.rebalance_timeout_ms != -1 and request.topic_partitions is not None
        owned = self._owned(request)
        if request.member_epoch == 0:
            assert is_full and owned == frozenset()
            self.may_own = frozenset()
            self.epoch, self.previous_epoch, self.member_id = self.epoch + 1, 0, request.member_id
        elif request.member_id != self.member_id or self.epoch == 0:
            return _Answer(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        elif request.member_epoch != self.epoch:
            is_repeated = request.member_epoch == self.previous_epoch
            if not (is_repeated and owned is not None and owned <= self.may_own):
                self.fence()
                return _Answer(error_code=ErrorCode.FENCED_MEMBER_EPOCH)
        return self._answer(owned, is_full=is_full)

    def _answer(self, owned: frozenset[TopicPartition] | None, *, is_full: bool) -> Any:
        """Reconcile as CurrentAssignmentBuilder does: nothing is added before all is given up."""
        kept = self.may_own & self.target
        if self.may_own != kept and owned is not None and owned <= kept:
            self.may_own = kept
        says = is_full or not self._is_target_sent
        if self.may_own == kept and kept != self.target:
            self.may_own = self.target
            says = True
            self.previous_epoch, self.epoch = self.epoch, self.epoch + 1
        self._is_target_sent = True
        return _Answer(
            member_id=self.member_id,
            member_epoch=self.epoch,
            heartbeat_interval_ms=self.interval_ms,
            assignment=self._assignment(self.may_own & self.target) if says else None,
        )

    def _assignment(self, partitions: Iterable[TopicPartition]) -> Any:
        by_id: dict[bytes, list[int]] = {}
        for topic, index in sorted(partitions):
            by_id.setdefault(self._reading.broker.topic_id(topic), []).append(index)
        return _Answer.Assignment(
            topic_partitions=[
                _Answer.TopicPartitions(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in by_id.items()
            ]
        )

    def _owned(self, request: Any) -> frozenset[TopicPartition] | None:
        if request.topic_partitions is None:
            return None
        names = self._names()
        return frozenset(
            TopicPartition(names[each.topic_id], index)
            for each in request.topic_partitions
            for index in each.partitions
        )

    def _names(self) -> dict[bytes, str]:
        return {each.topic_id: each.name for each in self._reading.cluster.topics.values()}

    def _name_of(self, topic: Any) -> str | None:
        """Return the name of a topic in a request; None if it has an id that no topic has."""
        return topic.name if topic.topic_id == NO_TOPIC_ID else self._names().get(topic.topic_id)

    def commit(self, request: Any) -> Any:
        self.commits.append(request)
        code = self.commit_refusals.pop(0) if self.commit_refusals else None
        kind = messages.OffsetCommitResponse
        is_member = request.member_id == self.member_id and self.epoch > 0
        if code is None and (request.member_id or self.epoch) and not is_member:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        if code is None and self.epoch and request.generation_id_or_member_epoch != self.epoch:
            code = ErrorCode.STALE_MEMBER_EPOCH
        topics = []
        for topic in request.topics:
            parts, name = [], self._name_of(topic)
            for each in topic.partitions:
                refusal = ErrorCode.UNKNOWN_TOPIC_ID if name is None else code
                if refusal is None:
                    self.committed[TopicPartition(name or "", each.partition_index)] = OffsetAndMetadata(
                        each.committed_offset,
                        each.committed_metadata,
                        each.committed_leader_epoch,
                        topic.topic_id,
                    )
                parts.append(
                    kind.OffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=refusal or 0
                    )
                )
            topics.append(
                kind.OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=parts)
            )
        return kind(topics=topics)

    def fetch_offsets(self, request: Any) -> Any:
        kind = messages.OffsetFetchResponse
        (group,) = request.groups
        topics = []
        for topic in group.topics:
            parts, name = [], self._name_of(topic)
            for index in topic.partition_indexes:
                partition = TopicPartition(name or "", index)
                found = self.committed.get(partition)
                if found is not None and NO_TOPIC_ID != found.topic_id != topic.topic_id != NO_TOPIC_ID:
                    found = None
                is_unstable = request.require_stable and partition in self.unstable
                parts.append(
                    kind.OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=-1 if found is None or is_unstable else found.offset,
                        committed_leader_epoch=-1 if found is None else found.leader_epoch,
                        metadata="" if found is None else found.metadata,
                        error_code=(
                            ErrorCode.UNKNOWN_TOPIC_ID
                            if name is None
                            else ErrorCode.UNSTABLE_OFFSET_COMMIT
                            if is_unstable
                            else 0
                        ),
                    )
                )
            topics.append(
                kind.OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=parts)
            )
        return kind(groups=[kind.OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)])


class GroupReading(Reading):
    """A member of a group and its program, which polls when the test says so.

    Attributes
    ----------
    coordinator : Coordinator
    callbacks : list of (kind, set of TopicPartition)
        What the program has seen of rebalances.
    """

    engine_class = GroupEngine
    metrics = (*CONSUMER_METRICS, *COORDINATOR_METRICS)
    engine: GroupEngine

    def __init__(self, *, seed: int = 1, has_script: bool = True, **settings: Any) -> None:
        settings.setdefault("group_id", GROUP)
        settings.setdefault("group_protocol", "consumer")
        settings.setdefault("auto_offset_reset", "earliest")
        heartbeats = {messages.ConsumerGroupHeartbeatRequest.api_key: (0, 1)} if has_script else {}
        versions = {**heartbeats, **settings.pop("versions", {})}
        super().__init__(seed=seed, versions=versions or None, **settings)
        self.coordinator = Coordinator(self)
        self.callbacks: list[tuple[str, set[TopicPartition]]] = []
        if has_script:
            self.faults.intercept("ConsumerGroupHeartbeat", self.coordinator.heartbeat)
            self.faults.intercept("OffsetCommit", self.coordinator.commit)
            self.faults.intercept("OffsetFetch", self.coordinator.fetch_offsets)

    # The program

    def subscribe(self, *topics: str, pattern: str | None = None) -> None:
        names = frozenset(topics or (() if pattern else (TOPIC,)))
        self.engine.subscribe(Subscription(names, pattern))
        self.run()

    def take(self) -> Rebalance | None:
        """Take a step without finishing it."""
        step = self.engine.take_rebalance()
        if step is not None:
            self.callbacks.append((step.kind, set(step.partitions)))
        self.run()
        return step

    def finish(self, step: Rebalance) -> None:
        self.engine.finish_rebalance(step)
        self.run()

    def poll(self) -> None:
        """Note a poll, and do all steps of rebalances."""
        self.engine.note_poll(self.now_ns)
        self.run()
        while (step := self.take()) is not None:
            self.finish(step)

    def live(self, duration_ms: int, every_ms: int = 100) -> None:
        """Poll again and again."""
        for _ in range(max(duration_ms // every_ms, 1)):
            self.advance(every_ms)
            self.poll()

    def join(self, *partitions: TopicPartition, topics: Iterable[str] = ()) -> None:
        """Join the group, and own these partitions."""
        self.coordinator.give(*partitions)
        self.subscribe(*topics)
        self.live(200)
        assert self.engine.owned == set(partitions)
        self.callbacks.clear()
        self.coordinator.heartbeats.clear()
        self.coordinator.times_ms.clear()

    def leave(self, leave: bool | None = None) -> Call:
        call = Call("close")
        self.engine.leave(call, leave)
        self.poll()
        return call

    def begin_commit(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], **rest: Any
    ) -> CommitOffsets:
        made = {
            each: offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
            for each, offset in offsets.items()
        }
        call = CommitOffsets(made, **rest)
        self.engine.commit(call)
        return call

    def commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], **rest: Any) -> CommitOffsets:
        call = self.begin_commit(offsets, **rest)
        self.run()
        return call

    def committed(self, *partitions: TopicPartition, **rest: Any) -> CommittedLookup:
        call = CommittedLookup(partitions, **rest)
        self.engine.committed(call)
        self.run()
        return call


class Members:
    """Members of one group, and an embedded cluster that coordinates it, in virtual time.

    Parameters
    ----------
    partitions : int
    **options
        Of the brokers.

    Attributes
    ----------
    members : list of GroupReading
        Those that run. A test removes one that stands still; `kill` stops one for ever.
    """

    kind: type[GroupReading] = GroupReading

    def __init__(self, partitions: int, **options: Any) -> None:
        self.broker = VirtualBroker(topics=(), **options)
        self.broker.state.cluster.create_topic(TOPIC, partitions)
        self.partitions = {TopicPartition(TOPIC, number) for number in range(partitions)}
        self.members: list[Any] = []
        self._seeds = count(1)

    @property
    def now_ns(self) -> int:
        return (self.broker.now_ms - START_MS) * MS

    def add(self, *, subscribes: bool = True, **settings: Any) -> Any:
        """Add a member, which subscribes."""
        member = self.kind(broker=self.broker, has_script=False, seed=next(self._seeds), **settings)
        self.members.append(member)
        if subscribes:
            member.engine.subscribe(Subscription(frozenset([TOPIC])))
        self.run()
        return member

    def kill(self, member: GroupReading) -> None:
        """Stop a member without a word, as a crash does."""
        self.members.remove(member)
        for link in member.links.values():
            link.is_open = False

    def run(self) -> None:
        """Let all work until only time helps."""
        for _ in range(MANY_STEPS):
            for member in self.members:
                member.run()
            if not any(member.is_busy for member in self.members):
                return
        raise AssertionError("there is no end of work although no time passes")

    def advance(self, duration_ms: int) -> None:
        """Let time pass, deadline by deadline, without polls."""
        end_ms = self.broker.now_ms + duration_ms
        self.run()
        for _ in range(MANY_STEPS):
            dues_ms = [START_MS - (-each.engine.deadline_ns(self.now_ns) // MS) for each in self.members]
            broker_ms = self.broker.core.next_deadline_ms()
            due_ms = min([*dues_ms, end_ms] if broker_ms is None else [*dues_ms, broker_ms, end_ms])
            self.broker.now_ms = max(self.broker.now_ms, due_ms)
            for member in self.members:
                member.now_ns = max(member.now_ns, self.now_ns)
            self.broker.core.handle_timeout(self.broker.now_ms)
            self.run()
            if due_ms >= end_ms:
                return
        raise AssertionError("a deadline that is not met: the loop would spin")

    def live(self, duration_ms: int, *members: GroupReading, every_ms: int = 100) -> None:
        """Let time pass, in which these members poll, or all."""
        for _ in range(max(duration_ms // every_ms, 1)):
            self.advance(every_ms)
            for member in members or tuple(self.members):
                member.poll()
            self.run()

    def owned(self) -> list[frozenset[TopicPartition]]:
        return [member.engine.owned for member in self.members]

    def check_owners(self) -> None:
        """Check that no partition has two owners."""
        counts = Counter(partition for owned in self.owned() for partition in owned)
        assert not [partition for partition, number in counts.items() if number > 1]
