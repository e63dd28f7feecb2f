"""Transactions: which there are, those that hang, and how they are ended."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, overload

from kbatch.admin.base import Part, many, only, results_or_failure, text_of
from kbatch.core.admin.results import Fenced, Hanging, Transaction, TransactionListing
from kbatch.core.admin.topics import Producers, TopicListings, TopicQuery
from kbatch.core.admin.transactions import (
    AbortMarker,
    DescribeTransactions,
    FenceProducers,
    ListTransactions,
)
from kbatch.errors import BrokerNotAvailableError, InvalidRequestError
from kbatch.records import INT64_MAX, TopicPartition, check_integer

# org.apache.kafka.clients.admin.TransactionState
STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
# The transaction.timeout.ms of a fenced id, until its next producer has another (Java: request.timeout.ms).
FENCED_TIMEOUT_MS = 60_000
_checked_id = text_of("transactional_id")


class AsyncTransactions(Part):
    """Calls about transactions. They raise KafkaTimeoutError at the deadline (`timeout` in seconds, None is
    default.api.timeout.ms), TransactionalIdAuthorizationError or ClusterAuthorizationError if an ACL is
    missing, and PartialFailure if they are about many items of which some fail.
    """

    async def list(
        self,
        states: Iterable[str] | None = None,
        producer_ids: Iterable[int] | None = None,
        longer_than: timedelta | None = None,
        pattern: str | None = None,
        *,
        timeout: float | None = None,
    ) -> tuple[TransactionListing, ...]:
        """Return the transactional.ids for which this client has the ACL Describe, in order (Kafka 3.0).

        Parameters
        ----------
        states : iterable of str or None
            Such as "Ongoing".
        producer_ids : iterable of int or None
        longer_than : timedelta or None
            Only transactions that are open for longer (Kafka 3.8).
        pattern : str or None
            A regular expression (RE2) that the whole id matches (Kafka 4.1).

        Raises
        ------
        ValueError
            A state is unknown.
        InvalidRegularExpressionError
            The pattern is none.
        PartialFailure
            A broker does not answer; `results` has the lists of the others.
        """
        deadline = self._runtime.api_deadline(timeout)
        nodes = await self._runtime.await_brokers(deadline, "list")
        request = await self._ask(
            ListTransactions(
                nodes,
                states=many("states", states or (), _checked_state),
                producer_ids=many("producer_ids", producer_ids or (), _checked_producer_id),
                longer_than_ms=-1 if longer_than is None else int(longer_than.total_seconds() * 1000),
                pattern=pattern,
            ),
            deadline,
        )
        errors = {
            node_id: error
            for node_id, error in request.errors.items()
            if not isinstance(error, BrokerNotAvailableError)  # it has left the cluster
        }
        if errors and len(errors) == len(nodes) and len({error.code for error in errors.values()}) == 1:
            raise next(iter(errors.values()))
        found = results_or_failure("list", request.results, errors)
        return tuple(sorted(each for listed in found.values() for each in listed))

    @overload
    async def describe(  # type: ignore[overload-overlap]
        self, transactional_id: str, *, timeout: float | None = None
    ) -> Transaction: ...
    @overload
    async def describe(
        self, transactional_id: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, Transaction]: ...
    async def describe(
        self, transactional_id: str | Iterable[str], *, timeout: float | None = None
    ) -> Transaction | dict[str, Transaction]:
        """Return the state of a transactional.id, or of several (Kafka 3.0).

        Raises
        ------
        TransactionalIdNotFoundError
            No producer had it in the last days.
        """
        is_one = isinstance(transactional_id, str)
        ids = [_checked_id(transactional_id)] if is_one else many("ids", transactional_id, _checked_id)
        request = await self._ask(DescribeTransactions(ids), self._runtime.api_deadline(timeout))
        if is_one:
            found: Transaction = only(request.results, request.errors)
            return found
        return results_or_failure("describe", request.results, request.errors)

    async def find_hanging(
        self,
        topics: Iterable[str] | None = None,
        *,
        older_than: timedelta = timedelta(minutes=15),
        timeout: float | None = None,
    ) -> tuple[Hanging, ...]:
        """Return transactions of partitions that no coordinator will end, as their last record is old and
        their coordinator does not have them open (KIP-664). They keep read_committed consumers waiting.

        Parameters
        ----------
        topics : iterable of str or None
            None for all.
        older_than : timedelta
            The least age of the last record; more than the brokers' transaction.max.timeout.ms.
        """
        deadline = self._runtime.api_deadline(timeout)
        if topics is None:
            listed = await self._runtime.await_answer_of(TopicListings(), deadline)
            names = [each.name for each in listed if not each.internal]
        else:
            names = many("topics", topics, text_of("topic"))
        described = await self._results_of(TopicQuery(dict.fromkeys(names)), deadline)
        partitions = [
            TopicPartition(topic.name, each.partition)
            for topic in described.values()
            for each in topic.partitions
        ]
        states = await self._results_of(Producers(dict.fromkeys(partitions)), deadline)
        latest = datetime.now(UTC) - older_than
        old = [
            Hanging(
                partition,
                each.producer_id,
                each.epoch,
                each.coordinator_epoch,
                each.transaction_start,
                each.last_timestamp,
            )
            for partition, found in states.items()
            for each in found
            if each.transaction_start is not None
            and (each.last_timestamp is None or each.last_timestamp <= latest)
        ]
        open_ones = await self._open_partitions({each.producer_id for each in old}, timeout)
        return tuple(sorted(each for each in old if each.partition not in open_ones[each.producer_id]))

    async def _open_partitions(
        self, producer_ids: set[int], timeout: float | None
    ) -> dict[int, set[TopicPartition]]:
        """Return the partitions in which coordinators have transactions of producers open."""
        found: dict[int, set[TopicPartition]] = {each: set() for each in producer_ids}
        if producer_ids:
            listed = await AsyncTransactions.list(self, producer_ids=sorted(producer_ids), timeout=timeout)
            ids = [each.transactional_id for each in listed]
            request = await self._ask(DescribeTransactions(ids), self._runtime.api_deadline(timeout))
            for each in request.results.values():
                found.setdefault(each.producer_id, set()).update(each.partitions)
        return found

    async def abort(self, hanging: Hanging, *, timeout: float | None = None) -> None:
        """Abort a transaction in a partition, which `find_hanging` has found. Never do that to one that its
        coordinator has open.

        Raises
        ------
        InvalidRequestError
            The partition does not have that transaction open. A broker would write a marker all the same.
        InvalidProducerEpochError
            The producer has another epoch.
        """
        if not isinstance(hanging, Hanging):
            raise TypeError(f"abort() takes a Hanging of find_hanging(), got {hanging!r}")
        deadline = self._runtime.api_deadline(timeout)
        found = await self._runtime.await_answer_of(Producers({hanging.partition: None}), deadline)
        if not any(
            each.producer_id == hanging.producer_id and each.transaction_start is not None for each in found
        ):
            raise InvalidRequestError(
                f"{hanging.partition} has no open transaction of producer id {hanging.producer_id}; look "
                "again with find_hanging()"
            )
        await self._runtime.await_answer_of(AbortMarker(hanging), deadline)

    async def fence(self, ids: Iterable[str], *, timeout: float | None = None) -> dict[str, Fenced]:
        """Fence the producers of transactional.ids: their open transactions are aborted, and their next call
        fails. A repetition after a lost answer uses up a second epoch.

        Raises
        ------
        PartialFailure
            With TransactionalIdAuthorizationError.
        """
        request = FenceProducers("fence", many("ids", ids, _checked_id), FENCED_TIMEOUT_MS)
        return await self._results_of(request, self._runtime.api_deadline(timeout))

    async def terminate(self, transactional_id: str, *, timeout: float | None = None) -> Fenced:
        """End the open transaction of a transactional.id, and fence its producer.

        Raises
        ------
        TransactionalIdNotFoundError
            There is no such id. A broker would make it.
        """
        deadline = self._runtime.api_deadline(timeout)
        known = DescribeTransactions([_checked_id(transactional_id)])
        await self._runtime.await_answer_of(known, deadline)
        request = FenceProducers("terminate", [transactional_id], FENCED_TIMEOUT_MS)
        found: Fenced = await self._runtime.await_answer_of(request, deadline)
        return found


def _checked_state(given: Any) -> str:
    text_of("states")(given)
    for known in STATES:
        if known.lower() == given.lower():
            return known
    raise ValueError(f"states must be of {', '.join(STATES)}, got {given!r}")


def _checked_producer_id(given: Any) -> int:
    check_integer("producer_ids", given, 0, INT64_MAX)
    return int(given)
