"""The requests of the group coordinator, and its answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

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


@dataclass(slots=True, frozen=True)
class GroupDescription:
    """A group for DescribeGroups; `protocol` and the members' metadata are set while it is stable."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: list[MemberDescription]
