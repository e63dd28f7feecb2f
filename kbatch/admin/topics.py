"""Topics: created, described, changed and deleted; their records and producers.

Theory of operation. Brokers learn of changes after the controller has answered. So `create` and `delete` wait
until every broker shows the change, by the topic's id: a name may be an older or newer topic's. `delete`
looks up ids first and deletes by them, so a repetition never deletes a topic that was made meanwhile.

A refusal after a lost answer may be the result of the first attempt: then the cluster is looked at
(`_settled`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, overload
from uuid import UUID

from kbatch.admin.base import (
    AnyPartition,
    Part,
    Partition,
    Topic,
    checked_items,
    checked_topic,
    is_partition,
    is_topic,
    many,
    only,
    partition_items,
    results_or_failure,
)
from kbatch.admin.waiting import MOST_SECONDS, NODE_SECONDS, GoneTopics, NewTopics, await_everywhere
from kbatch.core.admin.configs import DescribeConfigs
from kbatch.core.admin.results import (
    ConfigResource,
    CreatedTopic,
    OffsetAndTime,
    ProducerState,
    TopicDescription,
    TopicListing,
    timestamp_of,
)
from kbatch.core.admin.topics import (
    MOST_ADDED_PARTITIONS,
    CreatePartitions,
    CreateTopics,
    DeleteRecords,
    DeleteTopics,
    NewPartitions,
    NewTopic,
    NodeProducers,
    Offsets,
    Producers,
    TopicIds,
    TopicListings,
    TopicPages,
    TopicQuery,
)
from kbatch.core.client.admin_requests import Refusal, error_about
from kbatch.errors import (
    InvalidPartitionsError,
    KafkaError,
    TopicExistsError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kbatch.records import INT32_MAX, INT64_MAX, TopicPartition, check_integer, check_text, checked_partition

if TYPE_CHECKING:
    from kbatch.waiting.deadline import Deadline

# The special times of ListOffsets, by what users call them.
OFFSETS: Mapping[str, int] = {
    "latest": -1,
    "earliest": -2,
    "max_timestamp": -3,
    "earliest_local": -4,
    "latest_tiered": -5,
    "earliest_pending_upload": -6,
}
ISOLATIONS = ("read_uncommitted", "read_committed")
_MISSING = (UnknownTopicOrPartitionError, UnknownTopicIdError)
MAX_INT16 = 2**15 - 1


class AsyncTopics(Part):
    """Calls about topics. They raise KafkaTimeoutError at the deadline (`timeout` in seconds, None is
    default.api.timeout.ms), TopicAuthorizationError or ClusterAuthorizationError if an ACL is missing, and
    PartialFailure if they are about many items of which some fail.
    """

    # What there is

    async def list(self, *, internal: bool = False, timeout: float | None = None) -> tuple[TopicListing, ...]:
        """Return the topics for which this client has the ACL Describe, in the order of their names.

        Parameters
        ----------
        internal : bool
            True for Kafka's own, too, such as __consumer_offsets.
        """
        found = await self._runtime.await_answer_of(TopicListings(), self._runtime.api_deadline(timeout))
        return tuple(each for each in found if internal or not each.internal)

    @overload
    async def describe(  # type: ignore[overload-overlap]
        self, topic: Topic, *, operations: bool = False, timeout: float | None = None
    ) -> TopicDescription: ...
    @overload
    async def describe(
        self, topic: Iterable[Topic], *, operations: bool = False, timeout: float | None = None
    ) -> dict[Topic, TopicDescription]: ...
    async def describe(
        self, topic: Topic | Iterable[Topic], *, operations: bool = False, timeout: float | None = None
    ) -> TopicDescription | dict[Topic, TopicDescription]:
        """Return a topic with its partitions, or several by what they were asked for.

        Parameters
        ----------
        topic : str, UUID, or iterable of these
            Names or ids.
        operations : bool
            True to be told what this client may do with it (Kafka 2.3).

        Raises
        ------
        UnknownTopicOrPartitionError, UnknownTopicIdError
            There is no such topic.
        """
        deadline = self._runtime.api_deadline(timeout)
        keys = [checked_topic(topic)] if is_topic(topic) else many("topics", topic, checked_topic)  # type: ignore[arg-type]
        results, errors = await self._described(keys, deadline, operations=operations)
        return only(results, errors) if is_topic(topic) else results_or_failure("describe", results, errors)

    async def _described(
        self, keys: Iterable[Any], deadline: Deadline, *, operations: bool = False
    ) -> tuple[dict[Any, TopicDescription], dict[Any, KafkaError]]:
        """Describe topics: names by DescribeTopicPartitions, in pages; ids, and names before Kafka 3.8, by
        metadata.
        """
        names = sorted(key for key in keys if isinstance(key, str))
        others = dict.fromkeys(key for key in keys if not isinstance(key, str))
        results: dict[Any, TopicDescription] = {}
        errors: dict[Any, KafkaError] = {}
        try:
            async for page, failed in self._pages_of(names, 2000, deadline):
                errors |= failed
                for name, each in page.items():
                    before = results.get(name)
                    results[name] = each if before is None else _joined(before, each)
        except UnsupportedVersionError:
            others |= dict.fromkeys(names)
        if others:
            request = await self._ask(TopicQuery(others, operations=operations), deadline)
            results |= request.results
            errors |= request.errors
        return {key: results[key] for key in keys if key in results}, errors

    async def pages(
        self, topics: Iterable[str], size: int = 2000, *, timeout: float | None = None
    ) -> AsyncIterator[dict[str, TopicDescription]]:
        """Iterate over topics in the order of their names, a page at a time (Kafka 3.8): a topic with many
        partitions comes in several pages. So the memory of one page is enough for any number.

        Parameters
        ----------
        topics : iterable of str
        size : int
            The most partitions of a page; brokers make it 2,000 at most.
        timeout : float or None
            Seconds for each page.

        Raises
        ------
        PartialFailure
            Some topics are not there; it comes after the pages of the others.
        """
        names = sorted(many("topics", topics, _checked_name))
        check_integer("size", size, 1, INT32_MAX)
        errors: dict[str, KafkaError] = {}
        async for page, failed in self._pages_of(names, size, timeout):
            errors |= failed
            if page:
                yield page
        results_or_failure("pages", {}, errors)

    async def _pages_of(
        self, names: Sequence[str], size: int, limit: Deadline | float | None
    ) -> AsyncIterator[tuple[dict[str, TopicDescription], dict[str, KafkaError]]]:
        """Yield pages of a sorted list of topics, and their errors."""
        left, cursor = list(names), None
        while left:
            is_own = limit is None or isinstance(limit, int | float)
            deadline = self._runtime.api_deadline(limit) if is_own else limit  # type: ignore[arg-type]
            request = TopicPages(left, cursor, size)
            rows, cursor = await self._runtime.await_answer_of(request, deadline)  # type: ignore[arg-type]
            found = {name: row for name, row in rows if not isinstance(row, Refusal)}
            errors = {
                name: error_about(f"describe of topic {name}", row)
                for name, row in rows
                if isinstance(row, Refusal)
            }
            yield found, errors
            # brokers refuse a cursor whose topic is not in the list
            left = [] if cursor is None else [name for name in left if name >= cursor[0]]

    # Made, changed and deleted

    @overload
    async def create(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        assignment: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, object] = ...,
        exist_ok: bool = False,
        validate_only: bool = False,
        wait: bool = True,
        timeout: float | None = None,
    ) -> CreatedTopic: ...
    @overload
    async def create(
        self,
        name: Mapping[str, NewTopic],
        *,
        exist_ok: bool = False,
        validate_only: bool = False,
        wait: bool = True,
        timeout: float | None = None,
    ) -> dict[str, CreatedTopic]: ...
    async def create(
        self,
        name: str | Mapping[str, NewTopic],
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        assignment: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, object] = {},
        exist_ok: bool = False,
        validate_only: bool = False,
        wait: bool = True,
        timeout: float | None = None,
    ) -> CreatedTopic | dict[str, CreatedTopic]:
        """Create a topic, or several, and return what they are.

        After a lost answer, or one that took so long that the controller may have died, a topic of that name
        with the partitions, replicas and settings that were asked for counts as created, even if another
        program has made it meanwhile.

        Parameters
        ----------
        name : str, or mapping of str to NewTopic
        partitions, replication_factor : int or None
            None for the cluster's defaults.
        assignment : mapping of int to sequence of int, or None
            By partition the brokers with its replicas, the preferred leader first; instead of these two.
        configs : mapping of str to object
            Settings of the topic. True is "true", numbers are their digits.
        exist_ok : bool
            True to accept that there is such a topic, whatever it is like.
        validate_only : bool
            True to check only.
        wait : bool
            False to return before all brokers show the topic with its leaders. Over bootstrap.controllers the
            call never waits for brokers.

        Raises
        ------
        TopicExistsError
            There is such a topic.
        InvalidTopicError, InvalidPartitionsError, InvalidReplicationFactorError,
        InvalidReplicaAssignmentError, InvalidConfigurationError, PolicyViolationError
            The broker refuses the name, a number, the assignment or a setting.
        KafkaTimeoutError
            Also if a broker does not show the topic in time; `possibly_persisted` is True then.
        UnsupportedEndpointTypeError
            `exist_ok` is True, the topic exists, and controllers are asked, which do not describe it.
        """
        is_one = isinstance(name, str)
        if is_one:
            given: Any = {name: NewTopic(partitions, replication_factor, assignment, configs)}
        elif (partitions, replication_factor, assignment) == (None, None, None) and not configs:
            given = name
        else:
            raise TypeError("create() takes partitions and the like of several topics in their NewTopic")
        topics = checked_items("topics", given, _checked_name, _checked_new)
        deadline = self._runtime.api_deadline(timeout)
        request = await self._ask(CreateTopics(topics, validate_only=validate_only), deadline)
        results: dict[str, CreatedTopic] = request.results
        errors = await self._settled(topics, request.errors, request.doubtful, results, deadline)
        if exist_ok:
            existing = [each for each, error in errors.items() if isinstance(error, TopicExistsError)]
            found, _ = await self._described(existing, deadline)
            results |= {each: _created(topic, existed=True) for each, topic in found.items()}
            errors = {each: error for each, error in errors.items() if each not in found}
        if wait and not validate_only:
            errors |= await await_everywhere(self, NewTopics(results), deadline)
        results = {each: results[each] for each in topics if each in results and each not in errors}
        return only(results, errors) if is_one else results_or_failure("create", results, errors)

    async def _settled(
        self,
        topics: Mapping[str, NewTopic],
        errors: Mapping[str, KafkaError],
        doubtful: set[str],
        results: dict[str, CreatedTopic],
        deadline: Deadline,
    ) -> dict[str, KafkaError]:
        """Return the errors but those of topics that an earlier attempt has made; these become results."""
        doubts = [each for each in doubtful if isinstance(errors.get(each), TopicExistsError)]
        if doubts and self._runtime.engine.asks_controllers:  # which do not describe them
            return _open_to_doubt(errors, doubts)
        if doubts:
            found = await self._seen(dict.fromkeys(doubts, 1), deadline)
            settings = await self._settings([each for each in found if topics[each].configs], deadline)
            results |= {
                each: _created(topic)
                for each, topic in found.items()
                if _is_as_asked(topics[each], topic, settings.get(each, {}))
            }
        return {each: error for each, error in errors.items() if each not in results}

    async def _seen(self, counts: Mapping[str, int], deadline: Deadline) -> dict[str, TopicDescription]:
        """Describe topics that the controller knows with so many partitions, or more: brokers may follow a
        moment later.
        """
        limit = deadline.within(NODE_SECONDS)
        while True:
            found, _ = await self._described(counts, deadline)
            if all(name in found and len(found[name].partitions) >= counts[name] for name in counts):
                return found
            if not await self._pause(MOST_SECONDS, limit):
                return found

    async def _settings(self, names: Iterable[str], deadline: Deadline) -> dict[str, dict[str, str | None]]:
        resources = {ConfigResource("topic", name): None for name in names}
        if not resources:
            return {}
        request = await self._ask(DescribeConfigs(resources), deadline)
        return {
            resource.name: {key: entry.value for key, entry in entries.items()}
            for resource, entries in request.results.items()
        }

    @overload
    async def delete(  # type: ignore[overload-overlap]
        self, topic: Topic, *, missing_ok: bool = False, wait: bool = True, timeout: float | None = None
    ) -> None: ...
    @overload
    async def delete(
        self,
        topic: Iterable[Topic],
        *,
        missing_ok: bool = False,
        wait: bool = True,
        timeout: float | None = None,
    ) -> dict[Topic, None]: ...
    async def delete(
        self,
        topic: Topic | Iterable[Topic],
        *,
        missing_ok: bool = False,
        wait: bool = True,
        timeout: float | None = None,
    ) -> dict[Topic, None] | None:
        """Delete a topic, or several.

        Brokers before Kafka 2.8, and controllers (bootstrap.controllers), delete by name: then a repetition
        after a lost answer may delete a topic that was made meanwhile. A UUID does not have this danger.

        Parameters
        ----------
        topic : str, UUID, or iterable of these
        missing_ok : bool
            True to accept that there is no such topic.
        wait : bool
            False to return before all brokers have forgotten the topic. Over bootstrap.controllers the call
            never waits for brokers.

        Raises
        ------
        UnknownTopicOrPartitionError, UnknownTopicIdError
            There is no such topic.
        TopicDeletionDisabledError
            The brokers' delete.topic.enable is false.
        """
        deadline = self._runtime.api_deadline(timeout)
        keys = [checked_topic(topic)] if is_topic(topic) else many("topics", topic, checked_topic)  # type: ignore[arg-type]
        topics, errors = await self._identified(keys, deadline)
        targets: dict[Any, Any] = {}
        for key, (topic_id, name) in topics.items():
            if targets.setdefault(topic_id or name, key) is not key:
                raise ValueError(f"topics must be different, got {key} by its name and its id")
        request = await self._ask(DeleteTopics(topics), deadline)
        errors |= {
            key: error
            for key, error in request.errors.items()
            if not (key in request.doubtful and isinstance(error, _MISSING))
        }
        if missing_ok:
            errors = {key: error for key, error in errors.items() if not isinstance(error, _MISSING)}
        if wait:
            gone = {
                UUID(bytes=target) if isinstance(target, bytes) else target: key
                for target, key in targets.items()
                if key not in errors
            }
            late = await await_everywhere(self, GoneTopics(gone), deadline)
            errors |= {gone[target]: error for target, error in late.items()}
        results = dict.fromkeys(key for key in keys if key not in errors)
        return only(results, errors) if is_topic(topic) else results_or_failure("delete", results, errors)

    async def _identified(
        self, keys: Iterable[Any], deadline: Deadline
    ) -> tuple[dict[Any, tuple[bytes | None, str | None]], dict[Any, KafkaError]]:
        """Return by name or id the id and the name of topics, and the errors of the others. The id of a topic
        of which the broker has not heard yet is None; controllers tell neither.
        """
        if self._runtime.engine.asks_controllers:
            return {key: (None, key) if isinstance(key, str) else (key.bytes, None) for key in keys}, {}
        request = await self._ask(TopicIds(dict.fromkeys(keys)), deadline)
        unheard = {
            key: (None, key)
            for key, error in request.errors.items()
            if isinstance(key, str) and isinstance(error, UnknownTopicOrPartitionError)
        }
        errors = {key: error for key, error in request.errors.items() if key not in unheard}
        return {**request.results, **unheard}, errors

    @overload
    async def add_partitions(
        self,
        topic: str,
        to: int,
        *,
        assignment: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> int: ...
    @overload
    async def add_partitions(
        self,
        topic: Mapping[str, int | NewPartitions],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> dict[str, int]: ...
    async def add_partitions(
        self,
        topic: str | Mapping[str, int | NewPartitions],
        to: int | None = None,
        *,
        assignment: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> int | dict[str, int]:
        """Give a topic more partitions, or several topics, and return their new numbers. Keys may go to other
        partitions from then on.

        Parameters
        ----------
        topic : str, or mapping of str to int or NewPartitions
        to : int
            How many it is to have.
        assignment : sequence of sequence of int, or None
            For each new partition the brokers with its replicas; None lets the controller choose.
        validate_only : bool
            True to check only.

        Raises
        ------
        InvalidPartitionsError
            It has as many already, or more.
        UnknownTopicOrPartitionError, InvalidReplicaAssignmentError
            There is no such topic; the assignment is unsuitable.
        """
        is_one = isinstance(topic, str)
        if is_one and to is None:
            raise TypeError("add_partitions() needs the number of partitions that the topic is to have")
        given: Any = {topic: NewPartitions(to or 0, assignment)} if is_one else topic
        items = checked_items("topics", given, _checked_name, _checked_partitions)
        deadline = self._runtime.api_deadline(timeout)
        results: dict[str, int] = {}
        errors: dict[str, KafkaError] = {}
        for step in await self._steps(items, deadline, validate_only=validate_only):
            wanted = {name: new for name, new in step.items() if name not in errors}
            request = await self._ask(CreatePartitions(wanted, validate_only=validate_only), deadline)
            results |= request.results
            errors |= await self._grown(request, wanted, results, deadline)
        results = {name: count for name, count in results.items() if name not in errors}
        return only(results, errors) if is_one else results_or_failure("add_partitions", results, errors)

    async def _steps(
        self, items: Mapping[str, NewPartitions], deadline: Deadline, *, validate_only: bool
    ) -> Sequence[dict[str, NewPartitions]]:
        """Return requests that do not add more partitions than a controller can at a time."""
        large = {
            name: new
            for name, new in items.items()
            if new.total > MOST_ADDED_PARTITIONS and new.assignment is None and not validate_only
        }
        if not large:
            return [dict(items)]
        found, _ = await self._described(large, deadline)
        steps = [
            {name: NewPartitions(total)}
            for name, topic in found.items()
            for total in range(
                len(topic.partitions) + MOST_ADDED_PARTITIONS, large[name].total, MOST_ADDED_PARTITIONS
            )
        ]
        return [*steps, dict(items)]

    async def _grown(
        self, request: Any, wanted: Mapping[str, NewPartitions], results: dict[str, int], deadline: Deadline
    ) -> dict[str, KafkaError]:
        """Return the errors but those of topics that an earlier attempt has enlarged: these get results."""
        doubts = [
            name for name in request.doubtful if isinstance(request.errors.get(name), InvalidPartitionsError)
        ]
        if doubts and self._runtime.engine.asks_controllers:
            return _open_to_doubt(request.errors, doubts)
        if doubts:
            found = await self._seen({name: wanted[name].total for name in doubts}, deadline)
            results |= {
                name: wanted[name].total
                for name, topic in found.items()
                if len(topic.partitions) == wanted[name].total
            }
        return {name: error for name, error in request.errors.items() if name not in results}

    # Records and producers

    async def delete_records(
        self, offsets: Mapping[AnyPartition, int | str], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset of each partition, and return the new first offsets.

        Parameters
        ----------
        offsets : mapping of TopicPartition to int or "end"
            The first record to keep; "end" keeps none.

        Raises
        ------
        PartialFailure
            With OffsetOutOfRangeError for offsets after the end, PolicyViolationError for compacted topics.
        """
        items = partition_items("offsets", offsets, _kept_from)
        return await self._results_of(DeleteRecords(items), self._runtime.api_deadline(timeout))

    async def offsets(
        self,
        specs: Mapping[AnyPartition, str | datetime | timedelta],
        *,
        isolation: str = "read_uncommitted",
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTime | None]:
        """Return an offset of each partition; None if no record is as late.

        Parameters
        ----------
        specs : mapping of TopicPartition to str, datetime or timedelta
            "earliest", "latest", "max_timestamp" (Kafka 3.0), "earliest_local" (3.4), "latest_tiered" (3.9),
            "earliest_pending_upload" (4.2); or a time, or how long ago it was, for the first record from
            then on.
        isolation : "read_uncommitted" or "read_committed"
            With the second, "latest" is the last stable offset.

        Raises
        ------
        UnsupportedVersionError
            The broker is too old for the spec.
        """
        now = datetime.now(UTC)
        items = partition_items("specs", specs, lambda spec: _time_of(spec, now))
        if isolation not in ISOLATIONS:
            raise ValueError(f"isolation must be one of {', '.join(ISOLATIONS)}, got {isolation!r}")
        request = Offsets(items, is_committed=isolation == ISOLATIONS[1])
        return await self._results_of(request, self._runtime.api_deadline(timeout))

    @overload
    async def producers(
        self, partition: Partition, *, broker: int | None = None, timeout: float | None = None
    ) -> tuple[ProducerState, ...]: ...
    @overload
    async def producers(
        self, partition: Iterable[Partition], *, broker: int | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]: ...
    async def producers(
        self,
        partition: Partition | Iterable[Partition],
        *,
        broker: int | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Return the idempotent and transactional producers that a partition knows, or several partitions
        (Kafka 2.8).

        Parameters
        ----------
        partition : TopicPartition, or iterable of TopicPartition
        broker : int or None
            Ask this replica instead of the leader.
        """
        is_one = is_partition(partition)
        keys = [checked_partition(partition)] if is_one else many("partitions", partition, checked_partition)
        deadline = self._runtime.api_deadline(timeout)
        if broker is None:
            request = await self._ask(Producers(dict.fromkeys(keys)), deadline)
            results, errors = request.results, request.errors
        else:
            found = await self._runtime.await_answer_of(NodeProducers(broker, keys), deadline)
            results = {key: each for key, each in found.items() if not isinstance(each, Refusal)}
            errors = {
                key: error_about(f"producers of partition {key}", each)
                for key, each in found.items()
                if isinstance(each, Refusal)
            }
        return only(results, errors) if is_one else results_or_failure("producers", results, errors)


def _open_to_doubt(errors: Mapping[str, KafkaError], doubts: Iterable[str]) -> dict[str, KafkaError]:
    """Return errors, of which some may be due to an earlier attempt that has done it."""
    return {**errors, **{each: errors[each].marked(possibly_persisted=True) for each in doubts}}


def _joined(first: TopicDescription, more: TopicDescription) -> TopicDescription:
    """Return a topic whose partitions came in two pages."""
    return first._replace(partitions=(*first.partitions, *more.partitions))


def _created(topic: TopicDescription, *, existed: bool = False) -> CreatedTopic:
    factor = max((len(each.replicas) for each in topic.partitions), default=-1)
    return CreatedTopic(topic.name, topic.topic_id, len(topic.partitions), factor, existed)


def _is_as_asked(asked: NewTopic, found: TopicDescription, settings: Mapping[str, str | None]) -> bool:
    """True if a topic is what the call asked for, as far as that can be seen."""
    if asked.assignment is not None:
        replicas = {each.partition: each.replicas for each in found.partitions}
        if replicas != {partition: tuple(brokers) for partition, brokers in asked.assignment.items()}:
            return False
    if asked.partitions not in (None, len(found.partitions)):
        return False
    if asked.replication_factor is not None and any(
        len(each.replicas) != asked.replication_factor for each in found.partitions
    ):
        return False
    return all(settings.get(key) == value for key, value in asked.configs.items())


# Arguments


def _checked_name(given: Any) -> str:
    check_text("topic", given)
    if not given:
        raise ValueError("the name of a topic must not be empty")
    return str(given)


def _checked_new(given: Any) -> NewTopic:
    if not isinstance(given, NewTopic):
        raise TypeError(f"topics must have a NewTopic each, got {given!r}")
    if given.partitions is not None:
        check_integer("partitions", given.partitions, -INT32_MAX, INT32_MAX)
    if given.replication_factor is not None:
        check_integer("replication_factor", given.replication_factor, -MAX_INT16, MAX_INT16)
    return given._replace(configs={key: setting_of(key, value) for key, value in given.configs.items()})


def setting_of(key: object, value: object) -> str:
    """Return a setting as brokers read it. Raise TypeError for what they would not."""
    check_text("the name of a setting", key)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list | tuple):
        return ",".join(setting_of(key, each) for each in value)
    if not isinstance(value, str):
        remedy = f"; reset it for its default (reset=[{key!r}] of alter)" if value is None else ""
        raise TypeError(f"{key} must be a str, a number, a bool or a list of these, got {value!r}{remedy}")
    return value


def _checked_partitions(given: Any) -> NewPartitions:
    new = given if isinstance(given, NewPartitions) else NewPartitions(given)
    check_integer("the number of partitions", new.total, 1, INT32_MAX)
    return new


def _kept_from(given: Any) -> int:
    if given == "end":
        return -1
    check_integer('offsets, if they are not "end",', given, 0, INT64_MAX)
    return int(given)


def _time_of(spec: Any, now: datetime) -> int:
    """Return a spec as ListOffsets has it."""
    if isinstance(spec, timedelta):
        spec = now - spec
    if isinstance(spec, datetime):
        if spec.tzinfo is None:
            raise ValueError(f"specs must have a time zone, got {spec}; pass datetime(..., tzinfo=UTC)")
        return timestamp_of(spec)
    if spec not in OFFSETS:
        raise ValueError(f"specs must be of {', '.join(OFFSETS)}, a datetime or a timedelta, got {spec!r}")
    return OFFSETS[spec]
