"""Names of topics and groups that a shell completes: a cluster is asked for them, for a short while.

The cluster is the one of the call, by the options that are typed already, the environment and files. A shell
gets names or nothing: what fails is not said, since it would stand in the line that is being typed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from kbatch.cli.options import settings_of
from kbatch.errors import KafkaError

if TYPE_CHECKING:
    from kbatch.consumer.topic_reader import TopicReader

# How long a person waits for a key.
ANSWER_MS = 2000


def complete_topics(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the topics that begin so; Kafka's own only where "_" is typed."""
    is_wanted = incomplete.startswith("_")
    return _completed(
        context,
        incomplete,
        lambda reader: (
            name for name, each in reader.describe().items() if is_wanted or not each.is_internal
        ),
    )


def complete_groups(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the groups that begin so."""
    return _completed(context, incomplete, lambda reader: (each.group_id for each in reader.groups.list()))


def _completed(
    context: click.Context, incomplete: str, ask: Callable[[TopicReader], Iterable[str]]
) -> list[CompletionItem]:
    logging.disable()
    try:
        names = _names(context.params, ask)
    except (KafkaError, OSError, click.ClickException):
        return []
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


def _names(typed: dict[str, Any], ask: Callable[[TopicReader], Iterable[str]]) -> list[str]:
    from kbatch.consumer.topic_reader import TopicReader

    settings = settings_of(typed.get("config"), typed.get("properties") or (), typed.get("bootstrap_servers"))
    if "bootstrap.servers" not in settings:
        return []
    with TopicReader({**settings, "default.api.timeout.ms": str(ANSWER_MS)}) as reader:
        return list(ask(reader))
