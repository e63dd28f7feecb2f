"""Requests about groups, as messages."""

from __future__ import annotations

import pytest

from kbatch import TopicPartition
from kbatch.core.client.admin_requests import CommittedOffsets
from kbatch.errors import UnsupportedVersionError

GROUP = "markers"
PARTITION = TopicPartition("events", 0)


def test_committed_offsets_of_old_brokers_are_refused() -> None:
    with pytest.raises(UnsupportedVersionError, match=r"Kafka 2\.5"):
        CommittedOffsets(GROUP, [PARTITION]).message(6)
    assert CommittedOffsets(GROUP, [PARTITION]).message(7).group_id == GROUP
