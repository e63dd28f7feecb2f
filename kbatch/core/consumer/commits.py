"""Commits: offsets that a group's member commits and looks up.

Theory of operation. Commits are sent in the order of their calls, one at a time, so that an offset never goes
back, and calls are done in that order. A call with `retries` is sent again, partition by partition, until
default.api.timeout.ms; one without is done after the first answer. If an answer says that the member's
generation is outdated, the commit is sent again with the next generation, for the partitions that the member
still owns.

An offset belongs to the topic that it was read from, and not to another one of the same name. Requests name
topics by their ids; if the coordinator's version has names only, offsets of a topic that was made anew are
not sent. A topic that brokers do not know may be new to them, or deleted: metadata decides, and partitions
that are given up do not wait for that.

Look-ups do not wait for each other. If a broker still has open transactions for an offset, the look-up is
sent again (UNSTABLE_OFFSET_COMMIT, KIP-447).

After org.apache.kafka.clients.consumer.internals.CommitRequestManager; KIP-98, KIP-320 (leader epochs),
KIP-848 (topic ids), KAFKA-16224 (deleted topics).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kbatch.core.admin.groups import committed_offset
from kbatch.core.client.any_node_request import AnyNodeRequest
from kbatch.core.client.backoff import NEVER_NS, NS_PER_MS
from kbatch.core.client.calls import Call
from kbatch.core.consumer.outcomes import COMMIT_OUTCOMES, CommitOutcome
from kbatch.errors import CommitFailedError, ErrorCode, KafkaError, KafkaTimeoutError, error_of, row_of
from kbatch.protocol import features, messages
from kbatch.records import NO_TOPIC_ID, ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kbatch.core.client.cluster import Cluster
    from kbatch.core.client.connections import Response
    from kbatch.core.consumer.group_coordinator import GroupCoordinator
    from kbatch.core.consumer.group_metrics import GroupMetrics
    from kbatch.core.consumer.membership import Membership, Ownership
    from kbatch.protocol.structs import Message

# The time for which a broker may not know a topic that others have just created.
NEW_TOPIC_NS = 1_000 * NS_PER_MS
SHOWN_PARTITIONS = 10


class CommitOffsets(Call):
    """Offsets to commit.

    Parameters
    ----------
    offsets : Mapping[TopicPartition, OffsetAndMetadata]
    retries : bool
        True to try again until the time-out, False to be done after the first answer.
    timeout_ms : int | None
        None means default.api.timeout.ms.
    is_last : bool
        True if the partitions are given up: a topic that the coordinator does not know is not waited for.

    Attributes
    ----------
    failed : dict[TopicPartition, KafkaError]
        The partitions that were not committed, if the call is done with an error that is not a time-out.
    """

    __slots__ = ("created_ns", "deadline_ns", "failed", "is_last", "last_error", "offsets",
                 "refused_generation", "retries", "tenures", "timeout_ms", "unfinished")  # fmt: skip

    def __init__(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        retries: bool = True,
        timeout_ms: int | None = None,
        is_last: bool = False,
    ) -> None:
        super().__init__("commit" if retries else "commit_async")
        self.is_last = is_last
        self.offsets = dict(offsets)
        self.retries = retries
        self.timeout_ms = timeout_ms
        self.failed: dict[TopicPartition, KafkaError] = {}
        self.unfinished = dict(offsets)
        self.created_ns = 0
        self.deadline_ns = NEVER_NS
        self.tenures: dict[TopicPartition, int | None] = {}  # of the partitions, when it was made
        self.refused_generation: int | None = None  # in the last answer
        self.last_error: KafkaError | None = None


class CommittedLookup(Call):
    """The committed offsets of partitions, after all transactions that may change them.

    Parameters
    ----------
    partitions : Iterable[TopicPartition]
    timeout_ms : int | None
        None means default.api.timeout.ms.

    Attributes
    ----------
    answer : dict[TopicPartition, OffsetAndMetadata]
        The offsets, if it is done without an error; without partitions that have none.
    topic_ids : Mapping[TopicPartition, bytes]
        The ids of topics of which offsets are wanted; else they are those that metadata names.
    """

    __slots__ = ("answer", "created_ns", "deadline_ns", "last_error", "partitions", "pending", "then",
                 "timeout_ms", "topic_ids")  # fmt: skip

    def __init__(self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None) -> None:
        super().__init__("committed")
        self.partitions = set(partitions)  # without those that have an answer
        self.timeout_ms = timeout_ms
        self.answer: dict[TopicPartition, OffsetAndMetadata] = {}
        self.topic_ids: Mapping[TopicPartition, bytes] = {}
        self.created_ns = 0
        self.deadline_ns = NEVER_NS
        self.last_error: KafkaError | None = None
        self.pending = AnyNodeRequest()
        self.then: Callable[[CommittedLookup, int], None] | None = None


class Commits:
    """The commits and look-ups of one consumer that are not done.

    Parameters
    ----------
    cluster : Cluster
        Knows which topics there are, and their ids.
    coordinator : GroupCoordinator
    ownership : Ownership
    metrics : GroupMetrics
    timeout_ms : int
        default.api.timeout.ms.
    on_change : callable
        Called after a call is done.

    Attributes
    ----------
    is_subscribed : bool
        True if a member of the group commits; False if the program assigns partitions itself.
    membership : Membership | None
        The member, if there is one already.
    left_reason : str
        Why the consumer has lost its last membership, for errors; or empty.
    """

    def __init__(
        self,
        cluster: Cluster,
        coordinator: GroupCoordinator,
        ownership: Ownership,
        metrics: GroupMetrics,
        *,
        timeout_ms: int,
        on_change: Callable[[], object],
    ) -> None:
        self._cluster = cluster
        self._coordinator = coordinator
        self._ownership = ownership
        self._metrics = metrics
        self._timeout_ms = timeout_ms
        self._on_change = on_change
        self._commits: deque[CommitOffsets] = deque()
        self._pending = AnyNodeRequest()
        self._lookups: list[CommittedLookup] = []
        self.is_subscribed = False
        self.membership: Membership | None = None
        self.left_reason = ""

    @property
    def is_open(self) -> bool:
        """True if there are calls that are not done."""
        return bool(self._commits or self._lookups)

    def commit(self, call: CommitOffsets, now_ns: int) -> None:
        """Begin the call."""
        self._begin(call, now_ns)
        call.tenures = {each: self._ownership.tenure(each) for each in call.offsets}
        self._commits.append(call)

    def look_up(
        self, call: CommittedLookup, now_ns: int, then: Callable[[CommittedLookup, int], None] | None = None
    ) -> None:
        """Begin the call. `then` is called with the call after each answer, for what is no longer in
        `call.partitions`, and after it is done; the call has no deadline then.
        """
        self._begin(call, now_ns)
        if then is not None:
            call.then, call.deadline_ns = then, NEVER_NS
        self._lookups.append(call)

    def _begin(self, call: CommitOffsets | CommittedLookup, now_ns: int) -> None:
        timeout_ms = self._timeout_ms if call.timeout_ms is None else call.timeout_ms
        call.created_ns = now_ns
        call.deadline_ns = now_ns + timeout_ms * NS_PER_MS

    def _calls(self) -> list[CommitOffsets | CommittedLookup]:
        """Return the calls that are not done; the first commit may be late, and still in flight."""
        calls: list[CommitOffsets | CommittedLookup] = [*self._commits, *self._lookups]
        return [each for each in calls if not each.is_done]

    def run(self, now_ns: int) -> None:
        """Send what can be sent now, and finish what is late."""
        for call in self._calls():
            if now_ns >= call.deadline_ns:
                self._finish(call, self._late(call, now_ns), now_ns)
        self._send_commit(now_ns)
        self._lookups = [each for each in self._lookups if not each.is_done]
        for lookup in self._lookups:
            self._send_lookup(lookup, now_ns)

    def deadline_ns(self) -> int:
        """Return the time of the next `run`, if nothing happens before."""
        deadlines = [each.deadline_ns for each in self._calls()]
        deadlines += [each.pending.deadline_ns for each in self._lookups]
        if self._commits:
            deadlines.append(self._pending.deadline_ns)
        return min(deadlines, default=NEVER_NS)

    def fail(self, error: KafkaError) -> None:
        """Finish all calls with the error, for good."""
        for call in self._calls():
            call.finish(error)
        self._on_change()
        self._commits.clear()
        self._lookups.clear()

    def _finish(self, call: CommitOffsets | CommittedLookup, error: KafkaError | None, now_ns: int) -> None:
        if call.is_done:
            return
        call.finish(error)
        if isinstance(call, CommittedLookup) and call.then is not None:
            call.then(call, now_ns)
        self._on_change()

    def _late(self, call: CommitOffsets | CommittedLookup, now_ns: int) -> KafkaTimeoutError:
        waited_ms, group_id = (now_ns - call.created_ns) // NS_PER_MS, self._coordinator.group_id
        cause = call.last_error
        reason = f"the last error was: {cause}" if cause is not None else "its coordinator does not answer"
        error = KafkaTimeoutError(
            f"{call.name}(), group {group_id}: no answer after {waited_ms} ms; {reason}"
        )
        error.__cause__ = cause
        return error

    # Commits

    def _send_commit(self, now_ns: int) -> None:
        """Send the first commit, if it is not in flight, and finish what has nothing left to be sent."""
        while self._commits and not self._pending.is_in_flight:
            call = self._commits[0]
            if not call.is_done:
                self._drop_lost(call)
                if call.unfinished:
                    if self._has_next_generation(call):
                        self._pending.not_before_ns = 0
                    self._try_send(call, now_ns)
                    if not call.is_done:
                        return
                else:
                    self._finish(call, _error_of_all(call), now_ns)
            self._commits.popleft()
            self._pending = AnyNodeRequest()

    def _has_next_generation(self, call: CommitOffsets) -> bool:
        """True if the member has another generation than the one that the coordinator has refused."""
        member, refused = self.membership, call.refused_generation
        return refused is not None and member is not None and member.identity.generation_id != refused

    def _drop_lost(self, call: CommitOffsets) -> None:
        """Fail what the member may not commit, or may no longer: the coordinator does not compare offsets
        with assignments, and another member may be ahead of these, although the partition has come back.
        """
        if self.is_subscribed:
            is_member = self.membership is not None and self.membership.is_member
            tenure, tenures = self._ownership.tenure, call.tenures
            lost = [
                each
                for each in call.unfinished
                if not is_member or tenures[each] is None or tenure(each) != tenures[each]
            ]
            for was_owned, more in ((False, ""), (True, " any more")):
                if chosen := [each for each in lost if (tenures[each] is not None) is was_owned]:
                    why = self.left_reason or f"this consumer does not own them{more}"
                    self._fail_lost(call, chosen, why)

    def _fail_lost(self, call: CommitOffsets, lost: Iterable[TopicPartition], why: str) -> None:
        partitions = tuple(sorted(lost))
        error = CommitFailedError(
            f"group {self._coordinator.group_id}: {_named(partitions)} cannot be committed: {why}; "
            "poll again, and go on with the partitions that are assigned then"
        )
        error.partitions = partitions
        for partition in partitions:
            call.failed[partition] = error
            call.unfinished.pop(partition, None)

    def _try_send(self, call: CommitOffsets, now_ns: int) -> None:
        """Send the offsets, those with topic ids first: a request has either ids or names."""
        kind, member = messages.OffsetCommitRequest, self.membership
        identity = ConsumerGroupMetadata(self._coordinator.group_id) if member is None else member.identity
        try:
            version = self._coordinator.version_of(self._pending, kind, now_ns)
            if version is None:
                return
            topic_ids = {each: self._topic_id(each, offset) for each, offset in call.unfinished.items()}
            by_id = {each: topic_id for each, topic_id in topic_ids.items() if topic_id != NO_TOPIC_ID}
            if version < features.OFFSET_COMMIT_TOPIC_IDS:
                by_id.clear()
                self._fail_gone(call, [each for each in call.unfinished if self._is_of_another(call, each)])
            if not call.unfinished:
                self._finish(call, _error_of_all(call), now_ns)
                return
            sent = by_id or dict.fromkeys(call.unfinished, NO_TOPIC_ID)
            self._coordinator.send(
                self._pending,
                kind,
                lambda version: _commit_message(identity, call.unfinished, sent),
                partial(self._take_commit, call, sent, identity.generation_id, now_ns),
                now_ns,
                highest_version=version if by_id else features.OFFSET_COMMIT_TOPIC_IDS - 1,
            )
        except KafkaError as error:
            self._finish(call, error, now_ns)

    def _topic_id(self, partition: TopicPartition, offset: OffsetAndMetadata) -> bytes:
        """Return the id of the topic that an offset is of, or else of the one that has its name now."""
        is_known = offset.topic_id != NO_TOPIC_ID
        return offset.topic_id if is_known else self._cluster.snapshot.topic_id(partition.topic)

    def _is_of_another(self, call: CommitOffsets, partition: TopicPartition) -> bool:
        """True if the offset is of another topic than the one that has its name now."""
        now = self._cluster.snapshot.topic_id(partition.topic)
        return now not in (NO_TOPIC_ID, self._topic_id(partition, call.unfinished[partition]))

    def _is_gone(self, call: CommitOffsets, partition: TopicPartition, now_ns: int) -> bool:
        """True if a topic that the coordinator does not know is deleted, or if that does not matter."""
        unknown_since_ns = self._cluster.unknown_since_ns(partition.topic)
        is_unknown = unknown_since_ns is not None and now_ns - unknown_since_ns >= NEW_TOPIC_NS
        return call.is_last or is_unknown or self._is_of_another(call, partition)

    def _fail_gone(self, call: CommitOffsets, partitions: list[TopicPartition]) -> None:
        """Fail the offsets of topics that are deleted."""
        for partition in sorted(partitions):
            is_new = self._is_of_another(call, partition)
            what = "the topic was deleted, and so are its offsets"
            if is_new:
                what = "the topic was deleted and created again, and the offset is of the old one"
            call.failed[partition] = error_of(
                ErrorCode.UNKNOWN_TOPIC_ID if is_new else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"group {self._coordinator.group_id}: commit of {partition}: {what}",
            )
            del call.unfinished[partition]

    def _take_commit(
        self,
        call: CommitOffsets,
        sent: Mapping[TopicPartition, bytes],
        generation: int,
        sent_ns: int,
        response: Response,
    ) -> None:
        now_ns = response.now_ns
        self._metrics.commit_answered(sent_ns, now_ns)
        codes = dict.fromkeys(sent, int(ErrorCode.NETWORK_EXCEPTION))  # of what an answer leaves out
        if response.message is not None:
            names = _names_of(sent)
            for topic in response.message.topics:
                name = names.get(topic.topic_id, topic.name)
                for each in topic.partitions:
                    partition = TopicPartition(name, each.partition_index)
                    if partition in codes:
                        codes[partition] = each.error_code
        by_code: dict[int, list[TopicPartition]] = {}
        for partition, code in codes.items():
            by_code.setdefault(code, []).append(partition)
        outcomes = set()
        call.refused_generation = None
        for code, partitions in by_code.items():
            outcomes.add(self._take_code(call, code, sorted(partitions), generation, response.error, now_ns))
        if CommitOutcome.FIND in outcomes:
            self._coordinator.forget()
        if CommitOutcome.MISSING in outcomes:
            self._cluster.request_update(now_ns)
        if outcomes & {
            CommitOutcome.BACK_OFF,
            CommitOutcome.FIND,
            CommitOutcome.RENEW,
            CommitOutcome.MISSING,
        }:
            self._coordinator.back_off(self._pending, now_ns)
        self._send_commit(now_ns)

    def _take_code(
        self,
        call: CommitOffsets,
        code: int,
        partitions: list[TopicPartition],
        generation: int,
        cause: KafkaError | None,
        now_ns: int,
    ) -> CommitOutcome:
        """Handle the answer for the partitions that have the code."""
        outcome, member = COMMIT_OUTCOMES[code], self.membership
        if outcome is CommitOutcome.DONE:
            for partition in partitions:
                del call.unfinished[partition]
            return outcome
        if outcome in (CommitOutcome.RENEW, CommitOutcome.LOST) and member is not None:
            member.handle_commit_refused(ErrorCode(code), generation, now_ns)
            if outcome is CommitOutcome.RENEW:
                call.refused_generation = generation
                return outcome
        if outcome in (CommitOutcome.RENEW, CommitOutcome.LOST):
            self._fail_lost(call, partitions, self._why_lost(ErrorCode(code)))
            return CommitOutcome.LOST
        if outcome is CommitOutcome.MISSING:
            gone = [each for each in partitions if self._is_gone(call, each, now_ns)]
            self._fail_gone(call, gone)
            partitions = [each for each in partitions if each not in gone]
            if not partitions:
                return CommitOutcome.FAIL
        error = cause or error_of(code, self._text(code, partitions))
        if outcome is not CommitOutcome.FAIL and call.retries:
            call.last_error = error
            return outcome
        for partition in partitions:
            del call.unfinished[partition]
            call.failed[partition] = error
        return CommitOutcome.FIND if outcome is CommitOutcome.FIND else CommitOutcome.FAIL

    def _why_lost(self, code: ErrorCode) -> str:
        if not self.is_subscribed:
            return (
                f"the group has members ({code}), and only they commit; stop them, choose another group.id, "
                "or subscribe instead of assigning partitions"
            )
        return self.left_reason or f"the coordinator does not count this consumer among the members ({code})"

    def _text(self, code: int, partitions: list[TopicPartition]) -> str:
        return f"group {self._coordinator.group_id}: commit of {_named(partitions)}: {row_of(code).doc}"

    # Look-ups

    def _send_lookup(self, call: CommittedLookup, now_ns: int) -> None:
        kind, topic_id_of = messages.OffsetFetchRequest, self._cluster.snapshot.topic_id
        if not call.partitions and not call.pending.is_in_flight:
            self._finish(call, None, now_ns)
            return
        try:
            version = self._coordinator.version_of(call.pending, kind, now_ns)
            if version is None:
                return
            known = {
                each: call.topic_ids.get(each) or topic_id_of(each.topic) for each in sorted(call.partitions)
            }
            by_id = {each: topic_id for each, topic_id in known.items() if topic_id != NO_TOPIC_ID}
            if version < features.OFFSET_FETCH_TOPIC_IDS:
                by_id.clear()
            sent = by_id or known
            self._coordinator.send(
                call.pending,
                kind,
                partial(_fetch_message, self._coordinator.group_id, sent),
                partial(self._take_lookup, call, sent),
                now_ns,
                highest_version=version if by_id else features.OFFSET_FETCH_TOPIC_IDS - 1,
            )
        except KafkaError as error:
            self._finish(call, error, now_ns)

    def _take_lookup(
        self, call: CommittedLookup, sent: Mapping[TopicPartition, bytes], response: Response
    ) -> None:
        now_ns, answer = response.now_ns, response.message
        if call.is_done:
            return
        failed: dict[int, list[TopicPartition]] = {}
        if answer is None:
            failed[ErrorCode.NETWORK_EXCEPTION] = sorted(call.partitions)
        else:
            failed = _read_offsets(call, answer, sent)
        for code, partitions in failed.items():
            outcome = COMMIT_OUTCOMES[code]
            named = _named(partitions)
            text = f"group {self._coordinator.group_id}: committed offsets of {named}: {row_of(code).doc}"
            error = response.error or error_of(code, text)
            if outcome not in (CommitOutcome.BACK_OFF, CommitOutcome.FIND, CommitOutcome.MISSING):
                self._finish(call, error, now_ns)
                return
            call.last_error = error
            if outcome is CommitOutcome.FIND:
                self._coordinator.forget()
            if outcome is CommitOutcome.MISSING:
                self._cluster.request_update(now_ns)
        if call.partitions:
            if call.then is not None:
                call.then(call, now_ns)
            if failed or call.partitions & sent.keys():  # an answer may leave some out
                self._coordinator.back_off(call.pending, now_ns)
            else:  # the others, which are named
                self._send_lookup(call, now_ns)
        else:
            self._finish(call, None, now_ns)


def _names_of(sent: Mapping[TopicPartition, bytes]) -> dict[bytes, str]:
    """Return the names of topics that a request has by id."""
    return {topic_id: each.topic for each, topic_id in sent.items() if topic_id != NO_TOPIC_ID}


def _read_offsets(
    call: CommittedLookup, answer: Any, sent: Mapping[TopicPartition, bytes]
) -> dict[int, list[TopicPartition]]:
    """Store the offsets of an answer, and return the partitions without one by their code."""
    (group,) = answer.groups or [answer]
    failed: dict[int, list[TopicPartition]] = {}
    if group.error_code:
        return {group.error_code: sorted(call.partitions)}
    names = _names_of(sent)
    for topic in group.topics:
        name = getattr(topic, "name", "") or names.get(topic.topic_id, "")
        for each in topic.partitions:
            partition = TopicPartition(name, each.partition_index)
            if partition not in call.partitions:
                continue
            if each.error_code:
                failed.setdefault(each.error_code, []).append(partition)
                continue
            call.partitions.discard(partition)
            offset = committed_offset(each)
            if offset is not None:
                call.answer[partition] = replace(offset, topic_id=sent.get(partition, NO_TOPIC_ID))
    return failed


def _commit_message(
    identity: ConsumerGroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    sent: Mapping[TopicPartition, bytes],
) -> Message:
    kind = messages.OffsetCommitRequest
    topics: dict[tuple[str, bytes], list[Any]] = {}
    for each, topic_id in sorted(sent.items()):
        (topic, index), offset = each, offsets[each]
        partition = kind.OffsetCommitRequestPartition(
            partition_index=index,
            committed_offset=offset.offset,
            committed_leader_epoch=offset.leader_epoch,
            committed_metadata=offset.metadata,
        )
        topics.setdefault((topic, topic_id), []).append(partition)
    return kind(
        group_id=identity.group_id,
        generation_id_or_member_epoch=identity.generation_id,
        member_id=identity.member_id,
        group_instance_id=identity.group_instance_id,
        topics=[
            kind.OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=partitions)
            for (name, topic_id), partitions in topics.items()
        ],
    )


def _fetch_message(group_id: str, sent: Mapping[TopicPartition, bytes], version: int) -> Message:
    kind = messages.OffsetFetchRequest
    topics: dict[str, list[int]] = {}
    for topic, index in sent:
        topics.setdefault(topic, []).append(index)
    topic_ids = {each.topic: topic_id for each, topic_id in sent.items()}
    if version < features.OFFSET_FETCH_BATCHES:
        single = [
            kind.OffsetFetchRequestTopic(name=name, partition_indexes=each) for name, each in topics.items()
        ]
        return kind(group_id=group_id, topics=single, require_stable=version >= features.OFFSET_FETCH_STABLE)
    group = kind.OffsetFetchRequestGroup(
        group_id=group_id,
        topics=[
            kind.OffsetFetchRequestTopics(name=name, topic_id=topic_ids[name], partition_indexes=each)
            for name, each in topics.items()
        ],
    )
    return kind(groups=[group], require_stable=True)


def _named(partitions: Iterable[TopicPartition]) -> str:
    """Return the names of partitions for an error, the first of many."""
    names = [str(each) for each in partitions]
    more = f" and {len(names) - SHOWN_PARTITIONS} more" if len(names) > SHOWN_PARTITIONS else ""
    return ", ".join(names[:SHOWN_PARTITIONS]) + more


def _error_of_all(call: CommitOffsets) -> KafkaError | None:
    """Return the error of a call whose partitions have all been answered: the first, with the others' texts
    as notes.
    """
    errors = list({id(each): each for each in call.failed.values()}.values())
    if not errors:
        return None
    first, *others = sorted(errors, key=lambda error: error.retriable)
    for other in others:
        first.add_note(str(other))
    return first
