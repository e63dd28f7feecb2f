"""Handlers of requests with many items, each made of a function that fills the answer of one item.

A BrokerError that the function raises is the code of this answer, and leaves the others alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kbatch.protocol.structs import Struct

if TYPE_CHECKING:
    from kbatch.testing.broker.broker_state import BrokerState, Context

Handler = Callable[["BrokerState", Any, "Context"], Any]
HandlerMaker = Callable[[Callable[..., None]], Handler]


def each_item(answers: str, kind: Callable[..., Struct], items: str, *keys: str) -> HandlerMaker:
    """Return a decorator that makes a handler of `fill(state, request, context, item, answer)`.

    The response has, under `answers`, a `kind` for each of the request's `items`. An answer has the keys of
    its item, or the item itself as its only key.
    """

    def handler_of(fill: Callable[..., None]) -> Handler:
        def handle(state: BrokerState, request: Any, context: Context) -> Any:
            filled = [
                context.fill(kind(**_named(item, keys)), fill, state, request, context, item)
                for item in getattr(request, items)
            ]
            return request.response(**{answers: filled})

        return handle

    return handler_of


def each_partition(
    topic_kind: Callable[..., Struct], kind: Callable[..., Struct], *, key: str = "partition_index"
) -> HandlerMaker:
    """Return a decorator that makes a handler of `fill(state, context, topic_name, partition, answer)`.

    The response has the request's topics as a `topic_kind` each, with a `kind` for each partition, by `key`.
    """

    def handler_of(fill: Callable[..., None]) -> Handler:
        def checked(state: BrokerState, context: Context, name: str, item: Any, answer: Struct) -> None:
            context.check_partition(name, getattr(answer, key))
            fill(state, context, name, item, answer)

        def handle(state: BrokerState, request: Any, context: Context) -> Any:
            def answer(name: str, partition: Any) -> Struct:
                blank = kind(**_named(partition, [key]))
                return context.fill(blank, checked, state, context, name, partition)

            return request.response(topics=by_topic(request.topics, topic_kind, answer))

        return handle

    return handler_of


def by_topic(
    topics: Iterable[Any], topic_kind: Callable[..., Struct], answer: Callable[[str, Any], Struct]
) -> list[Any]:
    """Return a request's topics as its response has them, with `answer(topic_name, partition)` for each
    partition.
    """
    answered = []
    for topic in topics:
        key = "name" if hasattr(topic, "name") else "topic"
        name = getattr(topic, key)
        partitions = topic.partitions if hasattr(topic, "partitions") else topic.partition_indexes
        answers = [answer(name, partition) for partition in partitions]
        answered.append(topic_kind(**{key: name}, partitions=answers))
    return answered


def _named(item: Any, keys: Iterable[str]) -> dict[str, Any]:
    if isinstance(item, Struct):
        return {key: getattr(item, key) for key in keys}
    return dict.fromkeys(keys, item)
