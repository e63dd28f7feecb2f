"""PatternTopics: which of the cluster's topics a pattern matches, for a member of either protocol.

Theory of operation. The member lists the names of all topics as often as metadata is due, and matches them
itself, as Java's clients do with a Pattern. KIP-848's coordinator could match patterns, too, but in another
syntax (RE2), and internal topics with the others: a subscription would mean something else after an upgrade
of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kbatch.core.client.any_node_request import AnyNodeRequest
from kbatch.core.client.backoff import NS_PER_MS
from kbatch.core.consumer.group_coordinator import GROUP_PURPOSE
from kbatch.protocol import messages

if TYPE_CHECKING:
    from kbatch.config import ConsumerConfig
    from kbatch.core.client.connections import Response
    from kbatch.core.consumer.group_coordinator import GroupCoordinator
    from kbatch.core.consumer.membership import Subscription


class PatternTopics:
    """The topics of a pattern.

    Parameters
    ----------
    subscription : Subscription
    coordinator : GroupCoordinator
    config : ConsumerConfig
    on_answer : callable
        Called with the time after each attempt.

    Attributes
    ----------
    topics : frozenset[str]
        Those of the last answer.
    is_known : bool
        True after the first one.
    """

    def __init__(
        self,
        subscription: Subscription,
        coordinator: GroupCoordinator,
        config: ConsumerConfig,
        on_answer: Callable[[int], object],
    ) -> None:
        self._subscription = subscription
        self._coordinator = coordinator
        self._excludes_internal = config.exclude_internal_topics
        self._period_ns = config.metadata_max_age_ms * NS_PER_MS
        self._on_answer = on_answer
        self._pending = AnyNodeRequest(GROUP_PURPOSE)
        self._due_ns = 0
        self.topics: frozenset[str] = frozenset()
        self.is_known = False

    @property
    def deadline_ns(self) -> int:
        """When to run again."""
        return max(self._due_ns, self._pending.deadline_ns)

    def run(self, now_ns: int) -> None:
        """Request the names of all topics, if that is due, from the coordinator: a broker like the others."""
        if now_ns >= self._due_ns:
            self._coordinator.send(
                self._pending,
                messages.MetadataRequest,
                lambda _version: messages.MetadataRequest(topics=None, allow_auto_topic_creation=False),
                self._take,
                now_ns,
            )

    def _take(self, response: Response) -> None:
        now_ns = response.now_ns
        if response.message is None:
            self._coordinator.forget()
            self._coordinator.back_off(self._pending, now_ns)
        else:
            self._pending.attempts = 0
            self._due_ns = now_ns + self._period_ns
            self.is_known = True
            self.topics = frozenset(
                topic.name
                for topic in response.message.topics
                if not topic.error_code
                and not (topic.is_internal and self._excludes_internal)
                and not self._subscription.excludes(topic.name)
            )
        self._on_answer(now_ns)
