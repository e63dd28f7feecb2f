"""MemberEngine: a ReadingEngine that belongs to a group of some kind, while its program polls.

Theory of operation. The program polls at least once in max.poll.interval.ms. Else the member leaves the group
and loses its partitions, so that other members get them; it joins again at the next poll. `_check_polls` is
where that is decided, for groups of all kinds.

After org.apache.kafka.clients.consumer.internals.AbstractHeartbeatRequestManager (KIP-62).
"""

from __future__ import annotations

import base64
from random import Random
from typing import TYPE_CHECKING, ClassVar, Unpack

from kbatch.core.client.backoff import NEVER_NS, NS_PER_MS
from kbatch.core.client.calls import Call
from kbatch.core.consumer.engine import EngineOptions, ReadingEngine
from kbatch.core.consumer.group_coordinator import GROUP_PURPOSE, GroupCoordinator
from kbatch.core.consumer.topic_ids import TopicIds
from kbatch.logs import ClientLogger

if TYPE_CHECKING:
    from kbatch.config import ConsumerConfig
    from kbatch.core.consumer.membership import PolledMember

logger = ClientLogger(__name__)


class MemberEngine(ReadingEngine):
    """Base of GroupEngine and ShareEngine. Its parameters are those of ReadingEngine.

    Attributes
    ----------
    polled_ns : int
        When the program has polled last. Its thread may set it itself, instead of a call of `note_poll`, if
        `on_change` was not called since its last call.
    """

    purpose_count: ClassVar[int] = GROUP_PURPOSE + 1
    remedy: ClassVar[str] = "seek to another offset, or set auto.offset.reset"

    def __init__(self, config: ConsumerConfig, **options: Unpack[EngineOptions]) -> None:
        super().__init__(config, **options)
        self._config = config
        self._coordinator = GroupCoordinator(
            config.group_id or "", self._connections, self._coordinators, self._backoff
        )
        self._topic_ids = TopicIds(self._cluster, self._connections, self._backoff)
        self._new_member_id = new_member_id(options["random"])
        self._leave_calls: list[Call] = []
        self.polled_ns = options["now_ns"]
        self._expired_ns: int | None = None  # when the member has left, since there was none
        self._poll_interval_ns = config.max_poll_interval_ms * NS_PER_MS

    def _expiry_ns(self) -> int:
        """Return the time at which the member leaves unless the program polls."""
        return NEVER_NS if self._expired_ns is not None else self.polled_ns + self._poll_interval_ns

    def _check_polls(self, member: PolledMember, now_ns: int) -> str:
        """Leave the group after max.poll.interval.ms without a poll, and join again after the next one.
        Return the reason if the member does so now.
        """
        expired_ns, reason = self._expired_ns, ""
        if expired_ns is None:
            if now_ns >= self._expiry_ns():
                reason = self._overdue(now_ns - self.polled_ns)
                logger.warning("group %s: %s", self._config.group_id, reason)
                self._expired_ns = now_ns
                member.expire(now_ns)
                self._on_change()
        elif self.polled_ns > expired_ns:
            reason = self._overdue(self.polled_ns - expired_ns + self._poll_interval_ns)
            logger.warning("group %s: joins again: %s", self._config.group_id, reason)
            self._expired_ns = None
            member.rejoin(now_ns)
        return reason

    def _overdue(self, gap_ns: int) -> str:
        gap_ms, limit_ms = gap_ns // NS_PER_MS, self._config.max_poll_interval_ms
        return (
            f"the program did not poll for {gap_ms / 1000:.1f} s, {gap_ms - limit_ms} ms more than "
            f"max.poll.interval.ms={limit_ms}, so the consumer has left the group; poll more often, with "
            "smaller max.poll.records, or raise max.poll.interval.ms"
        )


def new_member_id(random: Random) -> str:
    """Return a UUID as Kafka writes it; one that begins with a dash would look like an option."""
    while True:
        text = base64.urlsafe_b64encode(random.randbytes(16)).decode().rstrip("=")
        if not text.startswith("-"):
            return text
