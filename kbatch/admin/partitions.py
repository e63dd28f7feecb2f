"""Partitions: which brokers lead them and have their replicas, and in which directories.

Theory of operation. Elections, and the beginning of a move, are done when the call returns; a move of
replicas goes on after it: `reassignments` and `replica_dirs` show how far it is. `plan` computes new replicas
(`planner`), and `apply` carries a plan out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kbatch.admin.base import (
    AnyPartition,
    AnyReplica,
    Part,
    Partition,
    many,
    partition_items,
    results_or_failure,
    text_of,
    unique,
)
from kbatch.admin.planner import Plan, plan_of
from kbatch.core.admin.cluster import DescribeCluster
from kbatch.core.admin.configs import RESET, SET, AlterConfigs
from kbatch.core.admin.partitions import (
    DescribeLogDirs,
    ElectLeaders,
    ListReassignments,
    MoveLogDirs,
    Reassign,
)
from kbatch.core.admin.results import ConfigResource, LogDir, Reassignment, ReplicaDirs
from kbatch.core.admin.topics import TopicQuery
from kbatch.core.client.admin_requests import Refusal
from kbatch.errors import (
    BrokerNotAvailableError,
    ErrorCode,
    InvalidReplicaAssignmentError,
    KafkaError,
    KafkaTimeoutError,
    NoReassignmentInProgressError,
    PartialFailure,
    UnsupportedVersionError,
    error_of,
)
from kbatch.records import INT32_MAX, INT64_MAX, TopicPartition, check_integer, checked_partition

if TYPE_CHECKING:
    from kbatch.waiting.deadline import Deadline

MAX_INT16 = 2**15 - 1
# Partitions that `apply` moves together, and how often it looks.
MOVES_AT_ONCE, MOVE_SECONDS = 100, 0.2
ROLES = ("leader", "follower")


class AsyncPartitions(Part):
    """Calls about replicas. They raise KafkaTimeoutError at the deadline (`timeout` in seconds, None is
    default.api.timeout.ms), ClusterAuthorizationError if the ACL Alter or Describe on the cluster is missing,
    and PartialFailure if some items fail.
    """

    # Leaders

    async def elect(
        self,
        partitions: Iterable[Partition] | None = None,
        *,
        unclean: bool = False,
        timeout: float | None = None,
    ) -> dict[TopicPartition, bool]:
        """Elect the preferred leaders of partitions: the first of their replicas (Kafka 2.2).

        Parameters
        ----------
        partitions : iterable of TopicPartition, or None
            None for all of the cluster.
        unclean : bool
            True to elect a replica that is not in sync where there is no leader: records are lost (Kafka
            2.4).

        Returns
        -------
        dict of TopicPartition to bool
            True if a leader was elected, False if that was not needed. For all partitions, those that were
            elected.

        Raises
        ------
        PartialFailure
            With PreferredLeaderNotAvailableError or EligibleLeadersNotAvailableError if the replicas are
            down, UnknownTopicOrPartitionError if there is no such partition.
        """
        chosen = None if partitions is None else many("partitions", partitions, checked_partition)
        deadline = self._runtime.api_deadline(timeout)
        request = await self._ask(ElectLeaders(chosen, unclean=unclean), deadline)
        if chosen is None:
            for error in request.errors.values():
                raise error
            found: Mapping[TopicPartition, Any] = request.answer
            refusals = {key: each for key, each in found.items() if isinstance(each, Refusal)}
            errors = {key: request.error_of(key, each) for key, each in refusals.items()}
            results = {key: each for key, each in found.items() if key not in refusals}
            return results_or_failure("elect", results, errors)
        # a leader that was elected by an attempt whose answer was lost needs no other one
        results = {key: done or key in request.doubtful for key, done in request.results.items()}
        return results_or_failure("elect", results, request.errors)

    # Replicas

    async def reassign(
        self, replicas: Mapping[AnyPartition, Sequence[int]], *, timeout: float | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Give partitions other replicas, as many as they have (Kafka 2.4). The copying goes on after the
        call; it replaces what goes on for a partition.

        Parameters
        ----------
        replicas : mapping of TopicPartition to sequence of int
            The ids of brokers, the preferred leader first. Another order of the same ones changes only that;
            `elect` then makes it the leader.

        Returns
        -------
        dict of TopicPartition to Reassignment
            What goes on; partitions whose replicas have only another order are done.

        Raises
        ------
        BrokerNotAvailableError
            A broker is not alive. Kafka would accept it, and never end.
        PartialFailure
            With InvalidReplicaAssignmentError, InvalidReplicationFactorError (of another number of replicas)
            or UnknownTopicOrPartitionError.
        """
        items = partition_items("replicas", replicas, _checked_replicas)
        deadline = self._runtime.api_deadline(timeout)
        return await self._reassign("reassign", items, deadline, changes_factor=False)

    async def _reassign(
        self,
        call: str,
        items: Mapping[TopicPartition, Sequence[int]],
        deadline: Deadline,
        *,
        changes_factor: bool,
    ) -> dict[TopicPartition, Reassignment]:
        wanted = {each for brokers in items.values() for each in brokers}
        check_alive(wanted, await self._alive(deadline))
        errors = await self._cancel_stuck(call, items, deadline)
        free = {each: brokers for each, brokers in items.items() if each not in errors}
        if free:
            errors |= (await self._ask(Reassign(call, free, changes_factor=changes_factor), deadline)).errors
        found: dict[TopicPartition, Reassignment] = await self._runtime.await_answer_of(
            ListReassignments(items), deadline
        )
        if errors:
            begun = {each: found.get(each) for each in items if each not in errors}
            raise PartialFailure(call, begun, errors)
        return found

    async def _cancel_stuck(
        self, call: str, items: Mapping[TopicPartition, Sequence[int]], deadline: Deadline
    ) -> dict[TopicPartition, KafkaError]:
        """Cancel what adds a replica that is not wanted any more. A controller that replaces it would wait
        for a change of the ISR which does not come once the replica is in sync (seen in Kafka 4.3). Return
        the errors of partitions that go on as before.
        """
        found: Mapping[TopicPartition, Reassignment] = await self._runtime.await_answer_of(
            ListReassignments(items), deadline
        )
        stuck = [each for each, moving in found.items() if not set(moving.adding) <= set(items[each])]
        if not stuck:
            return {}
        name = f"{call} (which cancels an earlier move)"
        request = await self._ask(Reassign(name, dict.fromkeys(stuck), changes_factor=True), deadline)
        return {
            each: _uncancelled(call, each, found[each], error)
            for each, error in request.errors.items()
            if not isinstance(error, NoReassignmentInProgressError)
        }

    async def _alive(self, deadline: Deadline) -> dict[int, str | None]:
        """Return the racks of the brokers that are alive, as one of them says now (before Kafka 2.8, as this
        client knows it).
        """
        request = await self._ask(DescribeCluster(fenced=False, operations=False), deadline)
        for error in request.errors.values():
            if not isinstance(error, UnsupportedVersionError):
                raise error
            await self._runtime.await_nodes(deadline, "reassign")
            nodes = self._runtime.engine.snapshot.nodes
            return {node_id: node.rack for node_id, node in sorted(nodes.items())}
        return {each.node_id: each.rack for each in request.answer.nodes}

    async def cancel(
        self, partitions: Iterable[Partition], *, timeout: float | None = None
    ) -> dict[TopicPartition, None]:
        """Cancel the reassignments of partitions, which get their old replicas again (Kafka 2.4).

        Raises
        ------
        PartialFailure
            With NoReassignmentInProgressError for a partition that has none.
        """
        chosen = many("partitions", partitions, checked_partition)
        deadline = self._runtime.api_deadline(timeout)
        request = await self._ask(Reassign("cancel", dict.fromkeys(chosen), changes_factor=True), deadline)
        gone = [
            each
            for each, error in request.errors.items()
            if each in request.doubtful and isinstance(error, NoReassignmentInProgressError)
        ]
        errors = {each: error for each, error in request.errors.items() if each not in gone}
        return results_or_failure("cancel", {**request.results, **dict.fromkeys(gone)}, errors)

    async def set_replication_factor(
        self, topic: str, replication_factor: int, *, timeout: float | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Give the partitions of a topic more or fewer replicas, and return what goes on. Replicas stay where
        they are as far as possible; new ones go to the brokers and racks with the fewest.

        Raises
        ------
        InvalidReplicationFactorError
            There are fewer brokers.
        UnknownTopicOrPartitionError
            There is no such topic.
        PartialFailure
            With InvalidReplicaAssignmentError for a partition whose earlier move Kafka does not cancel.
        """
        text_of("topic")(topic)
        check_integer("replication_factor", replication_factor, 1, MAX_INT16)
        deadline = self._runtime.api_deadline(timeout)
        plan = await self._plan([topic], replication_factor, None, (), deadline, measures=False)
        items = {move.partition: move.after for move in plan.moves}
        if not items:
            return {}
        return await self._reassign("set_replication_factor", items, deadline, changes_factor=True)

    async def plan(
        self,
        topics: Iterable[str],
        *,
        brokers: Iterable[int] | None = None,
        drain: Iterable[int] = (),
        replication_factor: int | None = None,
        timeout: float | None = None,
    ) -> Plan:
        """Return the moves after which topics have replicas on certain brokers only, with as few copies as
        possible. Nothing is changed; print the plan, which says how much brokers copy and which leaders
        move, and `apply` it.

        Parameters
        ----------
        topics : iterable of str
        brokers : iterable of int, or None
            Brokers that may have replicas; None for all that are alive.
        drain : iterable of int
            Brokers that must not.
        replication_factor : int or None
            How many replicas each partition is to have; None for as many as it has.

        Raises
        ------
        InvalidReplicationFactorError
            There are fewer brokers.
        """
        names = many("topics", topics, text_of("topic"))
        allowed = None if brokers is None else many("brokers", brokers, checked_broker)
        leaving = many("drain", drain, checked_broker)
        if replication_factor is not None:
            check_integer("replication_factor", replication_factor, 1, MAX_INT16)
        deadline = self._runtime.api_deadline(timeout)
        return await self._plan(names, replication_factor, allowed, leaving, deadline, measures=True)

    async def _plan(
        self,
        topics: Iterable[str],
        replication_factor: int | None,
        brokers: Iterable[int] | None,
        drain: Iterable[int],
        deadline: Deadline,
        *,
        measures: bool,
    ) -> Plan:
        """Make a plan, and ask for the sizes of logs if it `measures` what is copied."""
        found = await self._results_of(TopicQuery(dict.fromkeys(topics)), deadline)
        alive = await self._alive(deadline)
        allowed = sorted(set(alive if brokers is None else brokers) - set(drain))
        check_alive(allowed, alive)
        racks = {each: alive[each] for each in allowed}
        partitions = {
            TopicPartition(topic.name, each.partition): each
            for topic in found.values()
            for each in topic.partitions
        }
        leaders = {at: each.leader for at, each in partitions.items()}
        return plan_of(
            {at: each.replicas for at, each in partitions.items()},
            racks,
            replication_factor=replication_factor,
            leaders=leaders,
            sizes=await self._sizes(leaders, deadline) if measures else None,
        )

    async def _sizes(
        self, leaders: Mapping[TopicPartition, int | None], deadline: Deadline
    ) -> dict[TopicPartition, int]:
        """Return the sizes of leaders' logs, of which the others are copies, as far as brokers tell them."""
        by_broker: dict[int, list[TopicPartition]] = {}
        for partition, leader in leaders.items():
            if leader is not None:
                by_broker.setdefault(leader, []).append(partition)
        request = await self._ask(DescribeLogDirs(by_broker, by_broker), deadline)
        return {
            partition: replica.size
            for dirs in request.results.values()
            for each in dirs
            for partition, replica in each.replicas.items()
            if not replica.is_future
        }

    async def apply(
        self,
        plan: Plan,
        *,
        throttle: int | None = None,
        on_progress: Callable[[int], object] | None = None,
        timeout: float | None = None,
    ) -> dict[TopicPartition, tuple[int, ...]]:
        """Carry out a plan: move its partitions, 100 at a time, wait until they have their new replicas, and
        elect their preferred leaders. Return the new replicas.

        Parameters
        ----------
        plan : Plan
        throttle : int or None
            Bytes a second for copies from and to each broker. It is taken off at the end.
        on_progress : callable or None
            Called with the number of partitions that have been moved, whenever it grows.
        timeout : float or None
            Seconds without progress; the whole may take longer.

        Raises
        ------
        KafkaTimeoutError
            Moves made no progress; what has begun goes on.
        """
        brokers = sorted({each for move in plan.moves for each in (*move.before, *move.after)})
        topics = sorted({move.partition.topic for move in plan.moves})
        deadline = self._runtime.api_deadline(timeout)
        check_alive({each for move in plan.moves for each in move.after}, await self._alive(deadline))
        if throttle is not None:
            check_integer("throttle", throttle, 1, INT64_MAX)
            await self._throttle(brokers, topics, str(throttle), "*", deadline)
        try:
            for first in range(0, len(plan.moves), MOVES_AT_ONCE):
                items = {move.partition: move.after for move in plan.moves[first : first + MOVES_AT_ONCE]}
                deadline = self._runtime.api_deadline(timeout)
                await self._reassign("apply", items, deadline, changes_factor=True)
                async for left in self._moving(items, timeout):
                    if on_progress is not None:
                        on_progress(first + len(items) - left)
        finally:
            if throttle is not None:
                await self._throttle(brokers, topics, None, None, self._runtime.api_deadline(timeout))
        moved = {move.partition: move.after for move in plan.moves}
        if moved:
            deadline = self._runtime.api_deadline(timeout)
            await self._results_of(ElectLeaders(moved, unclean=False), deadline)
        return moved

    async def _moving(self, items: Mapping[TopicPartition, Any], timeout: float | None) -> AsyncIterator[int]:
        """Wait until nothing of a step goes on. Yield how many partitions still move, whenever fewer do."""
        left = len(items)
        deadline = self._runtime.api_deadline(timeout)
        while left:
            found = await self._runtime.await_answer_of(ListReassignments(items), deadline)
            if len(found) < left:
                left, deadline = len(found), self._runtime.api_deadline(timeout)
                yield left
            if left and not await self._pause(MOVE_SECONDS, deadline):
                raise KafkaTimeoutError(f"apply: {left} partitions still move, {min(found)} for one")

    async def _throttle(
        self,
        brokers: Iterable[int],
        topics: Iterable[str],
        rate: str | None,
        replicas: str | None,
        deadline: Deadline,
    ) -> None:
        """Set what limits the copying of replicas, or take it off (KIP-73)."""

        def changes(value: str | None, end: str) -> list[tuple[str, int, str | None]]:
            operation = RESET if value is None else SET
            return [(f"{role}.replication.throttled.{end}", operation, value) for role in ROLES]

        items = {ConfigResource("broker", str(each)): changes(rate, "rate") for each in brokers}
        items |= {ConfigResource("topic", each): changes(replicas, "replicas") for each in topics}
        await self._results_of(AlterConfigs(items, validate_only=False), deadline)

    async def reassignments(
        self, partitions: Iterable[Partition] | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Return the reassignments that go on (Kafka 2.4); None for those of all partitions."""
        chosen = None if partitions is None else many("partitions", partitions, checked_partition)
        found: dict[TopicPartition, Reassignment] = await self._runtime.await_answer_of(
            ListReassignments(chosen), self._runtime.api_deadline(timeout)
        )
        return found

    # Log directories

    async def log_dirs(
        self, brokers: Iterable[int] | None = None, *, timeout: float | None = None
    ) -> dict[int, tuple[LogDir, ...]]:
        """Return the log directories of brokers, with their replicas.

        Parameters
        ----------
        brokers : iterable of int, or None
            None for all.

        Raises
        ------
        PartialFailure
            A broker does not answer; `results` has the others.
        """
        deadline = self._runtime.api_deadline(timeout)
        chosen = (
            await self._runtime.await_brokers(deadline, "log_dirs")
            if brokers is None
            else many("brokers", brokers, checked_broker)
        )
        return await self._results_of(DescribeLogDirs(chosen), deadline)

    async def replica_dirs(
        self, replicas: Iterable[tuple[Partition, int]], *, timeout: float | None = None
    ) -> dict[tuple[TopicPartition, int], ReplicaDirs]:
        """Return the directories of replicas, and those that they move to.

        Parameters
        ----------
        replicas : iterable of (TopicPartition, int)
            Partitions, and the ids of brokers.
        """
        chosen = many("replicas", replicas, _checked_replica)
        by_broker: dict[int, list[TopicPartition]] = {}
        for partition, broker in chosen:
            by_broker.setdefault(broker, []).append(partition)
        deadline = self._runtime.api_deadline(timeout)
        request = await self._ask(DescribeLogDirs(by_broker, by_broker), deadline)
        found = {
            (partition, broker): _dirs_of(partition, dirs)
            for broker, dirs in request.results.items()
            for partition in by_broker[broker]
        }
        errors = {
            (partition, broker): error
            for broker, error in request.errors.items()
            for partition in by_broker[broker]
        }
        return results_or_failure("replica_dirs", found, errors)

    async def move_log_dirs(
        self, moves: Mapping[AnyReplica, str], *, timeout: float | None = None
    ) -> dict[tuple[TopicPartition, int], None]:
        """Begin to move replicas to other log directories of their brokers. `replica_dirs` shows how far it
        is. If a broker does not have the replica yet, it makes it there.

        Parameters
        ----------
        moves : mapping of (TopicPartition, int) to str
            By partition and broker the absolute path of a log directory.

        Raises
        ------
        PartialFailure
            With LogDirNotFoundError if the broker does not have the directory.
        """
        unique("moves", [_checked_replica(each) for each in moves])
        by_broker: dict[int, dict[TopicPartition, str]] = {}
        for replica, path in moves.items():
            partition, broker = _checked_replica(replica)
            by_broker.setdefault(broker, {})[partition] = text_of("the path of a log directory")(path)
        request = await self._ask(MoveLogDirs(by_broker), self._runtime.api_deadline(timeout))
        results: dict[tuple[TopicPartition, int], None] = {}
        errors: dict[tuple[TopicPartition, int], KafkaError] = {}
        for broker, each in by_broker.items():
            found = request.results.get(broker, {})
            for partition in each:
                refusal = found.get(partition)
                if broker in request.errors:
                    errors[partition, broker] = request.errors[broker]
                elif refusal is not None:
                    errors[partition, broker] = error_of(
                        refusal.code, f"move of {partition} on broker {broker} to {each[partition]!r}"
                    )
                else:
                    results[partition, broker] = None
        return results_or_failure("move_log_dirs", results, errors)


def check_alive(brokers: Iterable[int], alive: Iterable[int]) -> None:
    """Raise BrokerNotAvailableError unless the brokers of new replicas are alive."""
    if dead := sorted(set(brokers) - set(alive)):
        raise BrokerNotAvailableError(
            f"broker {dead[0]} is not alive, only {', '.join(map(str, alive))}: replicas on it would never "
            "be in sync; name others, or start it first"
        )


def _uncancelled(call: str, partition: TopicPartition, moving: Reassignment, error: KafkaError) -> KafkaError:
    """Return the error of a partition whose earlier move cannot be cancelled."""
    if not isinstance(error, InvalidReplicaAssignmentError):
        return error
    earlier = ", ".join(str(each) for each in moving.replicas if each not in moving.adding)
    added = ", ".join(map(str, moving.adding))
    return error_of(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"{call} of partition {partition}: nothing was changed. An earlier move to broker {added} goes on, "
        f"and Kafka does not cancel it while no earlier replica (on {earlier}) is in sync: start these "
        f"brokers, or wait for the end of the move, and call {call} again ({error})",
    )


def _dirs_of(partition: TopicPartition, dirs: Iterable[LogDir]) -> ReplicaDirs:
    current = future = future_lag = None
    for each in dirs:
        found = each.replicas.get(partition)
        if found is None:
            continue
        if found.is_future:
            future, future_lag = each.path, found.lag
        else:
            current = each.path
    return ReplicaDirs(current, future, future_lag)


def checked_broker(given: Any) -> int:
    """Return the id of a broker. Raise TypeError or ValueError."""
    check_integer("the id of a broker", given, 0, INT32_MAX)
    return int(given)


def _checked_replicas(given: Any) -> tuple[int, ...]:
    replicas = tuple(many("replicas", given, checked_broker))
    if not replicas:
        raise ValueError("a partition must have a replica; cancel() undoes a reassignment")
    return replicas


def _checked_replica(given: Any) -> tuple[TopicPartition, int]:
    if not isinstance(given, tuple) or len(given) != 2:
        raise TypeError(f"a replica must be a pair of a partition and the id of a broker, got {given!r}")
    return checked_partition(given[0]), checked_broker(given[1])
