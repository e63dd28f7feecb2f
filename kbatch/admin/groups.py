"""Groups of all kinds: consumer, classic, share and streams groups; their members and offsets.

Theory of operation. A request about a group goes to its coordinator; the list of groups comes from all
brokers. Each protocol has a request of its own to describe a group: groups that are not of one protocol are
looked for by the next. `kind` leaves the others out.

Lists are waited for less long than calls: one broker that does not answer must not keep groups of the others
waiting.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, overload

from kbatch.admin.base import (
    Part,
    Partition,
    checked_topic,
    many,
    only,
    partition_items,
    results_or_failure,
    text_of,
    unique,
)
from kbatch.admin.waiting import NODE_SECONDS
from kbatch.core.admin.groups import (
    ClassicGroups,
    CommittedOffsets,
    ConsumerGroups,
    DeleteGroups,
    GroupListings,
    LeavingMember,
    OffsetCommit,
    OffsetDeletion,
    RemoveMembers,
    ShareGroups,
    ShareOffsetChange,
    ShareOffsetDeletion,
    ShareOffsets,
    StreamsGroups,
)
from kbatch.core.admin.results import timestamp_of
from kbatch.core.admin.topics import Offsets, TopicQuery
from kbatch.errors import (
    BrokerNotAvailableError,
    ErrorCode,
    GroupIdNotFoundError,
    GroupNotEmptyError,
    InvalidRequestError,
    KafkaError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kbatch.records import (
    INT64_MAX,
    GroupDescription,
    GroupListing,
    GroupOffset,
    OffsetAndMetadata,
    ShareGroupOffset,
    TopicPartition,
    check_integer,
    checked_partitions,
)

if TYPE_CHECKING:
    from kbatch.waiting.deadline import Deadline

_QUERIES: Mapping[str, type[ConsumerGroups] | type[ClassicGroups]] = {
    "consumer": ConsumerGroups,
    "share": ShareGroups,
    "streams": StreamsGroups,
    "classic": ClassicGroups,  # the last: every broker has it
}
# The states of all kinds (org.apache.kafka.common.GroupState). Brokers ignore words that they do not know.
_STATES = (
    "Assigning",
    "CompletingRebalance",
    "Dead",
    "Empty",
    "NotReady",
    "PreparingRebalance",
    "Reconciling",
    "Stable",
)
# The special times of ListOffsets.
_EARLIEST, _LATEST = -2, -1
# Of more groups a list is asked for first: each protocol would else be asked for all of them.
FEW_GROUPS = 3
# Kinds whose state is in topics of their own. While these cannot be written, groups of such a kind keep
# others of their request from an answer.
_WITH_STATE = ("share", "streams")
# All members of a group.
ALL: Final = "all"
_checked_group = text_of("group_id")


class OffsetReset(NamedTuple):
    """What a reset does to a partition.

    Attributes
    ----------
    before : int or None
        The committed offset; None without one.
    after : int
    """

    before: int | None
    after: int


class AsyncGroups(Part):
    """Calls about groups. They raise KafkaTimeoutError at the deadline (`timeout` in seconds, None is
    default.api.timeout.ms), GroupAuthorizationError or TopicAuthorizationError if an ACL is missing, and
    PartialFailure if they are about many items of which some fail.
    """

    # What there is

    async def list(
        self,
        kinds: Iterable[str] | None = None,
        states: Iterable[str] | None = None,
        protocol_types: Iterable[str] | None = None,
        *,
        timeout: float | None = None,
    ) -> tuple[GroupListing, ...]:
        """Return the groups for which this client has the ACL Describe, in the order of their names.

        Parameters
        ----------
        kinds : iterable of str or None
            Of "classic", "consumer", "share", "streams" (Kafka 3.8); None for all.
        states : iterable of str or None
            Such as "Stable" or "Empty" (Kafka 2.6); None for all.
        protocol_types : iterable of str or None
            As GroupListing has them; "consumer" for groups of consumers.

        Raises
        ------
        PartialFailure
            A broker did not answer; its `results` have the groups of the others, by broker.
        ValueError
            A kind or a state is unknown.
        """
        chosen_kinds = _chosen("kinds", kinds, tuple(_QUERIES))
        chosen_states = _chosen("states", states, _STATES)
        types = None if protocol_types is None else set(protocol_types)
        deadline = self._runtime.api_deadline(timeout)
        nodes = await self._runtime.await_brokers(deadline, "list")
        request = await self._ask(GroupListings(nodes, states=chosen_states, kinds=chosen_kinds), deadline)
        errors = {
            node_id: error
            for node_id, error in request.errors.items()
            if not isinstance(error, BrokerNotAvailableError)  # it has left the cluster
        }
        found = results_or_failure("list", request.results, errors)
        by_name = {
            each.group_id: each for listed in found.values() for each in listed
        }  # two list one that moves
        return tuple(
            by_name[name] for name in sorted(by_name) if types is None or by_name[name].protocol_type in types
        )

    @overload
    async def describe(  # type: ignore[overload-overlap]
        self,
        group_id: str,
        kind: str | None = None,
        *,
        operations: bool = False,
        timeout: float | None = None,
    ) -> GroupDescription: ...
    @overload
    async def describe(
        self,
        group_id: Iterable[str],
        kind: str | None = None,
        *,
        operations: bool = False,
        timeout: float | None = None,
    ) -> dict[str, GroupDescription]: ...
    async def describe(
        self,
        group_id: str | Iterable[str],
        kind: str | None = None,
        *,
        operations: bool = False,
        timeout: float | None = None,
    ) -> GroupDescription | dict[str, GroupDescription]:
        """Return a group with its members, or several by their ids.

        Parameters
        ----------
        group_id : str or iterable of str
        kind : str or None
            Only a group of this kind: "classic", "consumer", "share" or "streams".
        operations : bool
            True to be told what this client may do with it.

        Raises
        ------
        GroupIdNotFoundError
            There is no such group, or it is of another kind.
        """
        deadline = self._runtime.api_deadline(timeout)
        is_one = isinstance(group_id, str)
        ids = [_checked_group(group_id)] if is_one else many("group_id", group_id, _checked_group)
        kinds = _QUERIES if kind is None else {kind: _QUERIES[_chosen("kind", [kind], tuple(_QUERIES))[0]]}
        results, errors = await self._described(ids, list(kinds.values()), deadline, operations=operations)
        return only(results, errors) if is_one else results_or_failure("describe", results, errors)

    async def _described(
        self, ids: Iterable[str], queries: Sequence[Any], deadline: Deadline, *, operations: bool = False
    ) -> tuple[dict[str, GroupDescription], dict[str, KafkaError]]:
        """Look for groups by one protocol after the other; of many, each by its own, as lists have it."""
        chosen = list(ids)
        are_listed = len(chosen) > FEW_GROUPS and len(queries) > 1
        kinds = await self._listed_kinds((), deadline) if are_listed else {}
        results, errors = await self._looked_for(chosen, queries, kinds, deadline, operations=operations)
        moved = [each for each in errors if each in kinds and isinstance(errors[each], GroupIdNotFoundError)]
        if moved:  # to another protocol, since the list was made
            again, left = await self._looked_for(moved, queries, {}, deadline, operations=operations)
            results |= again
            errors = {each: error for each, error in errors.items() if each not in moved} | left
        return results, errors

    async def _listed_kinds(self, kinds: Sequence[str], deadline: Deadline) -> dict[str, str]:
        """Return the kinds of groups, as far as brokers list them; only groups of these `kinds`, if any."""
        nodes = await self._runtime.await_brokers(deadline, "describe")
        request = await self._ask(GroupListings(nodes, kinds=kinds), deadline.within(NODE_SECONDS))
        return {
            each.group_id: each.kind for listed in request.results.values() for each in listed if each.kind
        }

    async def _looked_for(
        self,
        ids: Iterable[str],
        queries: Sequence[Any],
        kinds: Mapping[str, str],
        deadline: Deadline,
        *,
        operations: bool,
    ) -> tuple[dict[str, GroupDescription], dict[str, KafkaError]]:
        """Look for groups whose kinds are known by their protocols, for others by each."""
        results: dict[str, GroupDescription] = {}
        errors: dict[str, KafkaError] = dict.fromkeys(ids, GroupIdNotFoundError())
        for query in queries:
            left = [
                each
                for each, error in errors.items()
                if isinstance(error, GroupIdNotFoundError | UnsupportedVersionError)
                and kinds.get(each, query.protocol) == query.protocol
            ]
            if not left:
                continue
            request = await self._ask(query(left, operations=operations), deadline)
            results |= request.results
            errors = {each: error for each, error in errors.items() if each not in request.results}
            errors |= request.errors
        return results, errors

    # Offsets

    @overload
    async def offsets(  # type: ignore[overload-overlap]
        self, group_id: str, *, timeout: float | None = None
    ) -> dict[TopicPartition, GroupOffset]: ...
    @overload
    async def offsets(
        self, group_id: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, dict[TopicPartition, GroupOffset]]: ...
    async def offsets(self, group_id: str | Iterable[str], *, timeout: float | None = None) -> Any:
        """Return what a group has committed, and where these partitions end: so its lag. Without commits, and
        for a group that does not exist, the result is empty. Several groups give a dict of such by their ids.

        Offsets of open transactions do not count. Under isolation.level=read_committed a partition ends with
        its last stable offset.
        """
        deadline = self._runtime.api_deadline(timeout)
        is_one = isinstance(group_id, str)
        ids = [_checked_group(group_id)] if is_one else many("group_id", group_id, _checked_group)
        request = await self._ask(CommittedOffsets(dict.fromkeys(ids), is_stable=False), deadline)
        if request.errors and is_one:
            raise next(iter(request.errors.values()))
        committed: dict[str, dict[TopicPartition, OffsetAndMetadata]] = request.results
        ends = await self._ends({each for group in committed.values() for each in group}, deadline)
        found = {
            group: {each: GroupOffset(offsets[each], ends.get(each)) for each in sorted(offsets)}
            for group, offsets in committed.items()
        }
        return only(found, {}) if is_one else results_or_failure("offsets", found, request.errors)

    async def share_offsets(
        self, group_id: str, *, timeout: float | None = None
    ) -> dict[TopicPartition, ShareGroupOffset]:
        """Return where a share group is in its partitions, and how many records it has left. It needs Kafka
        4.1, and 4.3 for the number of records. Partitions that the group has not begun are left out.

        Raises
        ------
        GroupIdNotFoundError
            There is no such share group.
        """
        deadline = self._runtime.api_deadline(timeout)
        found = await self._runtime.await_answer_of(ShareOffsets([_checked_group(group_id)]), deadline)
        ends = await self._ends(found, deadline)
        return {
            each: ShareGroupOffset(found[each][0], ends.get(each), found[each][1]) for each in sorted(found)
        }

    async def commit_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        *,
        timeout: float | None = None,
    ) -> None:
        """Commit offsets for a group that has no members, or does not exist yet.

        Parameters
        ----------
        group_id : str
        offsets : mapping of TopicPartition to int or OffsetAndMetadata
            The next offset to read of each partition. Offsets after the end of a log are accepted.

        Raises
        ------
        UnknownMemberIdError
            The group has members; only they commit.
        GroupAuthorizationError, TopicAuthorizationError
            The ACLs Read on the group and on the topics are missing.
        """
        _checked_group(group_id)
        checked = partition_items("offsets", offsets, _committable)
        await self._all(OffsetCommit(group_id, checked), timeout)

    async def set_share_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int],
        *,
        create: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Set the offsets from which a share group without members goes on (Kafka 4.1). Records that it
        has acknowledged after them are delivered again.

        Parameters
        ----------
        group_id : str
        offsets : mapping of TopicPartition to int
        create : bool
            True to make a share group of that name if there is none, as brokers do by themselves.

        Raises
        ------
        GroupNotEmptyError
            The group has members.
        GroupIdNotFoundError
            There is no such share group, and `create` is False.
        """
        _checked_group(group_id)
        checked = partition_items("offsets", offsets, _checked_offset)
        deadline = self._runtime.api_deadline(timeout)
        if not create:
            await self._runtime.await_answer_of(ShareGroups([group_id]), deadline)
        await self._all(ShareOffsetChange(group_id, checked), timeout, deadline)

    async def delete_offsets(
        self, group_id: str, partitions: Iterable[Partition], *, timeout: float | None = None
    ) -> None:
        """Delete what a group has committed for partitions: its next consumer begins where
        auto.offset.reset says.

        Raises
        ------
        GroupSubscribedToTopicError
            A member of the group reads such a topic.
        GroupIdNotFoundError
            There is no such group.
        GroupAuthorizationError, TopicAuthorizationError
            The ACLs Delete on the group and Read on the topics are missing.
        """
        _checked_group(group_id)
        chosen = unique("partitions", checked_partitions("delete_offsets", partitions))
        await self._all(OffsetDeletion(group_id, chosen), timeout)

    async def delete_share_offsets(
        self, group_id: str, topics: Iterable[str], *, timeout: float | None = None
    ) -> None:
        """Let a share group without members forget topics (Kafka 4.1).

        Raises
        ------
        GroupNotEmptyError, GroupIdNotFoundError
            The group has members; there is no such share group.
        """
        _checked_group(group_id)
        request = ShareOffsetDeletion(group_id, many("topics", topics, checked_topic))
        await self._all(request, timeout, done={ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})

    async def reset(
        self,
        group_id: str,
        *,
        topics: Iterable[str] | None = None,
        partitions: Iterable[Partition] | None = None,
        to: str | int | datetime | timedelta | None = None,
        shift: int | None = None,
        create: bool = False,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetReset]:
        """Set the committed offsets of a group without members, and return the old and the new ones. New
        offsets are kept within the log.

        Parameters
        ----------
        group_id : str
        topics, partitions : iterable or None
            All partitions of these topics, and these; with neither, those with a committed offset.
        to : "earliest", "latest", "current", int, datetime or timedelta
            The ends of the log; what is committed, or else the end; this offset; the first record from that
            time on, or so long ago.
        shift : int
            Instead of `to`: so many records later; earlier, if it is negative.
        create : bool
            True to give a group that does not exist yet its first offsets, in `topics` and `partitions`.
        dry_run : bool
            True to change nothing.

        Raises
        ------
        GroupIdNotFoundError
            There is no such group, and `create` is False.
        GroupNotEmptyError
            The group has members.
        UnknownTopicOrPartitionError
            There is no such topic.
        """
        _checked_group(group_id)
        if (to is None) == (shift is None):
            raise ValueError("reset() needs one of to= and shift=")
        if create and topics is None and partitions is None:
            raise ValueError(
                "reset() needs topics= or partitions= with create=True: a new group has no offsets"
            )
        deadline = self._runtime.api_deadline(timeout)
        await self._check_resettable(group_id, deadline, create=create, dry_run=dry_run)
        committed = await self._runtime.await_answer_of(
            CommittedOffsets({group_id: None}, is_stable=False), deadline
        )
        current = {each: found.offset for each, found in committed.items()}
        chosen = await self._chosen_partitions(topics, partitions, current, deadline)
        targets = await self._targets(chosen, current, to, shift, deadline)
        resets = {each: OffsetReset(current.get(each), targets[each]) for each in chosen}
        if not dry_run and resets:
            offsets = {each: OffsetAndMetadata(reset.after) for each, reset in resets.items()}
            await self._all(OffsetCommit(group_id, offsets), timeout, deadline)
        return resets

    async def _check_resettable(
        self, group_id: str, deadline: Deadline, *, create: bool, dry_run: bool
    ) -> None:
        """Raise unless a group can be reset. Brokers make groups that are not there, also misspelt ones."""
        results, errors = await self._described([group_id], list(_QUERIES.values()), deadline)
        for error in errors.values():
            if not isinstance(error, GroupIdNotFoundError):
                raise error
            if not create:
                raise GroupIdNotFoundError(
                    f"reset: there is no group {group_id}; list() names all, and create=True makes it"
                )
        for found in results.values():
            if found.kind == "share":
                raise InvalidRequestError(f"group {group_id} is a share group; use set_share_offsets()")
            if found.members and not dry_run:
                raise GroupNotEmptyError(
                    f"group {group_id} has members, whose commits would undo the reset: stop them first"
                )

    async def _chosen_partitions(
        self,
        topics: Iterable[str] | None,
        partitions: Iterable[Partition] | None,
        current: Collection[TopicPartition],
        deadline: Deadline,
    ) -> Sequence[TopicPartition]:
        if topics is None and partitions is None:
            return sorted(current)
        chosen = set(checked_partitions("reset", partitions or ()))
        names = many("topics", topics or (), checked_topic)
        if names:
            found = await self._results_of(TopicQuery(dict.fromkeys(names)), deadline)
            chosen |= {
                TopicPartition(each.name, row.partition) for each in found.values() for row in each.partitions
            }
        return sorted(chosen)

    async def _targets(
        self,
        chosen: Sequence[TopicPartition],
        current: Mapping[TopicPartition, int],
        to: Any,
        shift: int | None,
        deadline: Deadline,
    ) -> dict[TopicPartition, int]:
        """Return the new offsets, within the logs."""
        first = await self._at(chosen, _EARLIEST, deadline)
        last = await self._at(chosen, _LATEST, deadline)
        if isinstance(to, datetime | timedelta):
            at = datetime.now(UTC) - to if isinstance(to, timedelta) else to
            found = await self._at(chosen, timestamp_of(at), deadline)
            return {each: last[each] if found[each] is None else found[each] for each in chosen}
        if shift is not None:
            check_integer("shift", shift, -INT64_MAX, INT64_MAX)
            wanted = {each: current.get(each, last[each]) + shift for each in chosen}
        elif to == "earliest":
            wanted = first
        elif to == "latest":
            wanted = last
        elif to == "current":
            wanted = {each: current.get(each, last[each]) for each in chosen}
        else:
            wanted = dict.fromkeys(chosen, _checked_offset(to, "to"))
        return {each: min(max(wanted[each], first[each]), last[each]) for each in chosen}

    async def _at(
        self, partitions: Sequence[TopicPartition], time: int, deadline: Deadline
    ) -> dict[Any, Any]:
        found = await self._results_of(Offsets(dict.fromkeys(partitions, time)), deadline)
        return {each: None if row is None else row.offset for each, row in found.items()}

    # Ends

    @overload
    async def delete(  # type: ignore[overload-overlap]
        self,
        group_id: str,
        *,
        kind: str | None = None,
        missing_ok: bool = False,
        timeout: float | None = None,
    ) -> None: ...
    @overload
    async def delete(
        self,
        group_id: Iterable[str],
        *,
        kind: str | None = None,
        missing_ok: bool = False,
        timeout: float | None = None,
    ) -> dict[str, None]: ...
    async def delete(
        self,
        group_id: str | Iterable[str],
        *,
        kind: str | None = None,
        missing_ok: bool = False,
        timeout: float | None = None,
    ) -> dict[str, None] | None:
        """Delete groups without members, and what they have committed.

        Parameters
        ----------
        group_id : str or iterable of str
        kind : str or None
            Refuse groups of another kind, which brokers would delete, too.
        missing_ok : bool
            True to accept that there is no such group.

        Raises
        ------
        GroupNotEmptyError
            The group has members.
        GroupIdNotFoundError
            There is no such group.
        """
        deadline = self._runtime.api_deadline(timeout)
        is_one = isinstance(group_id, str)
        ids = [_checked_group(group_id)] if is_one else many("group_id", group_id, _checked_group)
        errors: dict[str, KafkaError] = {}
        if kind is None:
            alone = await self._with_state(ids, deadline)
        else:
            alone, errors = await self._of_kind(ids, kind, deadline)
        results: dict[str, None] = {}
        for chosen, at_once in ((set(ids) - alone, 1000), (alone, 1)):
            wanted = [each for each in ids if each in chosen and each not in errors]
            if wanted:
                request = await self._ask(DeleteGroups(wanted, max_items=at_once), deadline)
                results |= request.results
                errors |= request.errors
                # an earlier attempt has deleted it
                results |= dict.fromkeys(_gone(request.errors, request.doubtful))
        if missing_ok:
            results |= dict.fromkeys(_gone(errors, errors.keys()))
        errors = {each: error for each, error in errors.items() if each not in results}
        return only(results, errors) if is_one else results_or_failure("delete", results, errors)

    async def _with_state(self, ids: Sequence[str], deadline: Deadline) -> set[str]:
        """Return the groups of kinds in _WITH_STATE."""
        if len(ids) > FEW_GROUPS:
            return set(ids).intersection(await self._listed_kinds(_WITH_STATE, deadline))
        queries = [_QUERIES[kind] for kind in _WITH_STATE]
        found, _ = await self._looked_for(ids, queries, {}, deadline, operations=False)
        return set(found)

    async def _of_kind(
        self, ids: Sequence[str], kind: str, deadline: Deadline
    ) -> tuple[set[str], dict[str, KafkaError]]:
        """Return the groups of kinds in _WITH_STATE, and the errors of groups that are missing or of another
        kind.
        """
        _chosen("kind", [kind], tuple(_QUERIES))
        found, errors = await self._described(ids, list(_QUERIES.values()), deadline)
        kinds = {each: description.kind for each, description in found.items()}
        errors |= {
            each: InvalidRequestError(f"group {each} is a {known} group, not a {kind} group")
            for each, known in kinds.items()
            if known != kind
        }
        return {each for each, known in kinds.items() if known in _WITH_STATE}, errors

    async def remove_members(
        self, group_id: str, members: Iterable[str] | str, reason: str = "", *, timeout: float | None = None
    ) -> dict[str, None]:
        """Remove members from a group, so that others get their partitions now. A member that is alive joins
        again.

        Parameters
        ----------
        group_id : str
        members : iterable of str, or ALL
            Names of static members (group.instance.id); `kbatch.admin.groups.ALL` ("all") for all of them,
            static or not.
        reason : str
            For the brokers' logs.

        Returns
        -------
        dict of str to None
            The removed members.

        Raises
        ------
        PartialFailure
            With UnknownMemberIdError for names that the group does not have.
        """
        _checked_group(group_id)
        deadline = self._runtime.api_deadline(timeout)
        if members == ALL:
            found, errors = await self._described([group_id], list(_QUERIES.values()), deadline)
            leaving = [
                LeavingMember(each.member_id, each.group_instance_id) for each in only(found, errors).members
            ]
        else:
            names = many("members", members, text_of("members"))
            leaving = [LeavingMember(group_instance_id=name) for name in names]
        if not leaving:
            return {}
        request = await self._ask(RemoveMembers(group_id, leaving, reason or "removed by an admin"), deadline)
        gone = {
            each
            for each, error in request.errors.items()
            if each in request.doubtful and error.code == ErrorCode.UNKNOWN_MEMBER_ID
        }
        results = {str(each): None for each in (*request.results, *gone)}
        return results_or_failure(
            "remove_members",
            results,
            {str(each): error for each, error in request.errors.items() if each not in gone},
        )

    # What they share

    async def _all(
        self,
        request: Any,
        timeout: float | None,
        deadline: Deadline | None = None,
        *,
        done: Collection[ErrorCode] = (),
    ) -> None:
        """Send a request about items of one group. Raise the error if all have the same, or there is one
        item; else PartialFailure. A refusal in `done` of a doubtful item says that it was done before.
        """
        await self._ask(request, deadline or self._runtime.api_deadline(timeout))
        errors = {
            key: error
            for key, error in request.errors.items()
            if not (key in request.doubtful and error.code in done)
        }
        if not request.results and len({error.code for error in errors.values()}) == 1:
            raise next(iter(errors.values()))
        results_or_failure(request.name, request.results, errors)

    async def _ends(
        self, partitions: Collection[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, int]:
        """Return the ends of those of the partitions that there are."""
        if not partitions:
            return {}
        names = dict.fromkeys(each.topic for each in partitions)
        topics = await self._ask(TopicQuery(names), deadline)
        known = {
            TopicPartition(each.name, row.partition)
            for each in topics.results.values()
            for row in each.partitions
        }
        chosen = dict.fromkeys(sorted(known.intersection(partitions)), _LATEST)
        if not chosen:
            return {}
        request = Offsets(chosen, is_committed=self._runtime.reads_committed)
        await self._ask(request, deadline)
        for error in request.errors.values():
            if not isinstance(error, UnknownTopicOrPartitionError):
                raise error
        return {each: found.offset for each, found in request.results.items() if found is not None}


def _chosen(what: str, given: Iterable[str] | None, known: Sequence[str]) -> list[str]:
    """Return words of a list that brokers know. Raise ValueError for others."""
    chosen = [] if given is None else many(what, given, text_of(what))
    by_fold = {each.lower(): each for each in known}
    for each in chosen:
        if each.lower() not in by_fold:
            raise ValueError(f"{what} must be of {', '.join(known)}, got {each!r}")
    return [by_fold[each.lower()] for each in chosen]


def _committable(given: Any) -> OffsetAndMetadata:
    return given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)


def _checked_offset(given: Any, name: str = "offsets") -> int:
    check_integer(name, given, 0, INT64_MAX)
    return int(given)


def _gone(errors: Mapping[str, KafkaError], keys: Collection[str]) -> list[str]:
    """Return the groups among `keys` that are refused since they are not there."""
    return [
        each for each, error in errors.items() if each in keys and isinstance(error, GroupIdNotFoundError)
    ]
