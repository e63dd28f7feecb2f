"""MemberEngine: a ReadingEngine that belongs to a group of some kind."""

from __future__ import annotations

import base64
from random import Random
from typing import TYPE_CHECKING, ClassVar, Unpack

from kbatch.core.client.calls import Call
from kbatch.core.consumer.engine import EngineOptions, ReadingEngine
from kbatch.core.consumer.group_coordinator import GROUP_LANE, GroupCoordinator
from kbatch.core.consumer.topic_ids import TopicIds

if TYPE_CHECKING:
    from kbatch.config import ConsumerConfig


class MemberEngine(ReadingEngine):
    """Base of GroupEngine and ShareEngine. Its parameters are those of ReadingEngine."""

    lane_count: ClassVar[int] = GROUP_LANE + 1
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


def new_member_id(random: Random) -> str:
    """Return a UUID as Kafka writes it; one that begins with a dash would look like an option."""
    while True:
        text = base64.urlsafe_b64encode(random.randbytes(16)).decode().rstrip("=")
        if not text.startswith("-"):
            return text
