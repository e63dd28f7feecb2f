"""The requests of the group coordinator, and its answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from kbatch.errors import ErrorCode

# (name, metadata) in the order of preference
Protocols = tuple[tuple[str, bytes], ...]


@dataclass(slots=True, frozen=True)
class JoinGroup:
    """A JoinGroup request; `rebalance_timeout_ms` is -1 in version 0, which means the session's."""

    group_id: str
    member_id: str
    protocol_type: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int = -1
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    version: int = 9

    @property
    def time_to_join_ms(self) -> int:
        return self.session_timeout_ms if self.rebalance_timeout_ms < 0 else self.rebalance_timeout_ms


@dataclass(slots=True, frozen=True)
class JoinedMember:
    """A member, as the leader sees it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(slots=True)
class JoinResult:
    """The answer to JoinGroup; `members` is for the leader alone."""

    error_code: ErrorCode
    member_id: str
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: list[JoinedMember] = field(default_factory=list)


@dataclass(slots=True)
class SyncResult:
    """The answer to SyncGroup."""

    error_code: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


JoinReply = Callable[[JoinResult], None]
SyncReply = Callable[[SyncResult], None]


@dataclass(slots=True, frozen=True)
class MemberDescription:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class Commit(NamedTuple):
    """A request to commit offsets, for the group to check.

    `epoch` is a generation or a member epoch, -1 for none; `partitions` are (topic id, index).
    """

    member_id: str
    group_instance_id: str | None
    epoch: int
    is_transactional: bool
    version: int
    partitions: tuple[tuple[bytes, int], ...]

    @property
    def names_nothing(self) -> bool:
        """True if neither member nor epoch is named: an admin client, a consumer without a group, an old
        client.
        """
        return (self.member_id, self.group_instance_id, self.epoch) == ("", None, -1)


class ListedGroup(NamedTuple):
    """A group for ListGroups."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


@dataclass(slots=True, frozen=True)
class GroupDescription:
    """A group for DescribeGroups; `protocol` and the members' metadata is set while it is stable."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: list[MemberDescription]
