"""Part: what the parts of an Admin share: how they ask the cluster, and which items calls take.

Theory of operation. A call is about one item, and then returns its result or raises its error; or about many,
and then returns a dict of all results, or raises a PartialFailure that has both. A call has one deadline,
which all its requests share.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from uuid import UUID

from kbatch.errors import KafkaError, PartialFailure
from kbatch.records import TopicPartition, check_text, checked_partition

if TYPE_CHECKING:
    from kbatch.core.client.admin_requests import AdminRequest
    from kbatch.core.client.engine import ClientEngine
    from kbatch.waiting.conditions import AwaitableEvent
    from kbatch.waiting.deadline import Deadline

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")
# What names a partition, and a topic.
Partition = TopicPartition | tuple[str, int]
Topic = str | UUID
# The keys of mappings, whose types do not vary.
AnyPartition = TypeVar("AnyPartition", bound=tuple[str, int])
AnyReplica = TypeVar("AnyReplica", bound=tuple[tuple[str, int], int])


class AdminCaller(Protocol):
    """The runtime of a client that asks for administration: of an Admin, or of a client that reads."""

    @property
    def new_event(self) -> Callable[[], AwaitableEvent]: ...
    @property
    def engine(self) -> ClientEngine: ...
    @property
    def reads_committed(self) -> bool: ...
    def api_deadline(self, timeout: float | None = None) -> Deadline: ...
    def deadline(self, seconds: float | None) -> Deadline: ...
    async def await_request(self, request: AdminRequest, deadline: Deadline) -> None: ...
    async def await_answer_of(self, request: AdminRequest, deadline: Deadline) -> Any: ...
    async def await_brokers(self, deadline: Deadline, name: str) -> list[int]: ...
    async def await_nodes(self, deadline: Deadline, name: str) -> list[int]: ...


class ComputingCaller(AdminCaller, Protocol):
    """The runtime of an Admin."""

    @property
    def compute(self) -> Callable[[Callable[[], bytes]], Awaitable[bytes]]: ...


class Part:
    """Calls about one subject.

    Parameters
    ----------
    runtime : AdminCaller
        The client's.
    client : object
        The client, which its parts keep from being dropped: a program may keep nothing else.
    """

    def __init__(self, runtime: AdminCaller, client: object) -> None:
        self._runtime = runtime
        self._client = client

    async def _ask(self, request: AdminRequest, deadline: Deadline) -> AdminRequest:
        """Send a request, and return it with its results and errors."""
        await self._runtime.await_request(request, deadline)
        return request

    async def _results_of(self, request: AdminRequest, deadline: Deadline) -> dict[Any, Any]:
        """Return the results of a request about many items. Raise PartialFailure."""
        await self._runtime.await_request(request, deadline)
        return results_or_failure(request.name, request.results, request.errors)

    async def _pause(self, seconds: float, deadline: Deadline) -> bool:
        """Wait; False if the deadline comes first."""
        await self._runtime.new_event().wait_until(lambda: False, deadline.within(seconds))
        return not deadline.is_over


def results_or_failure(
    call: str, results: dict[Key, Result], errors: Mapping[Key, KafkaError]
) -> dict[Key, Result]:
    """Return the results if there are no errors. Raise PartialFailure."""
    if errors:
        raise PartialFailure(call, results, errors)
    return results


def only(results: Mapping[Any, Result], errors: Mapping[Any, KafkaError]) -> Result:
    """Return the result of the only item, or raise its error."""
    for error in errors.values():
        raise error
    (result,) = results.values()
    return result


# Which items a call is about


def is_topic(given: object) -> bool:
    """True if it names one topic."""
    return isinstance(given, str | UUID)


def is_partition(given: object) -> bool:
    """True if it is one partition."""
    return isinstance(given, TopicPartition) or (
        isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str) and type(given[1]) is int
    )


def many(what: str, given: Iterable[Any], check: Callable[[Any], Any]) -> list[Any]:
    """Return the items of a call, each checked. Raise TypeError or ValueError for what is none, and for items
    that come twice.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"{what} must be a list, got {given!r}")
    items = [check(each) for each in given]
    return list(unique(what, items))


def unique(what: str, items: Iterable[Key]) -> dict[Key, None]:
    """Return items as keys. Raise ValueError if one comes twice."""
    found: dict[Key, None] = {}
    for item in items:
        if item in found:
            raise ValueError(f"{what} must be different, got {item} twice")
        found[item] = None
    return found


def checked_topic(given: Any) -> Any:
    """Return the name or the id of a topic. Raise TypeError or ValueError."""
    if isinstance(given, UUID):
        if not given.int:
            raise ValueError("the id of a topic must not be zero")
        return given
    check_text("topic", given)
    if not given:
        raise ValueError("the name of a topic must not be empty")
    return given


def checked_items(
    what: str, given: object, check: Callable[[Any], Any], check_value: Callable[[Any], Any]
) -> dict[Any, Any]:
    """Return a mapping with checked keys and values. Raise TypeError or ValueError."""
    if not isinstance(given, Mapping):
        raise TypeError(f"{what} must be a mapping, got {type(given).__name__}")
    keys = unique(what, [check(key) for key in given])
    return {key: check_value(value) for key, value in zip(keys, given.values(), strict=True)}


def partition_items(what: str, given: object, check_value: Callable[[Any], Any]) -> dict[TopicPartition, Any]:
    """Return a mapping of partitions with checked values. Raise TypeError or ValueError."""
    return checked_items(what, given, checked_partition, check_value)


def text_of(name: str) -> Callable[[Any], str]:
    """Return a check of a name that must not be empty."""

    def check(given: Any) -> str:
        check_text(name, given)
        if not given:
            raise ValueError(f"{name} must not be empty")
        return str(given)

    return check
