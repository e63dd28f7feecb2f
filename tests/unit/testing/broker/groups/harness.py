"""The surroundings of a group coordinator and its offsets under test, and members that call them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

from kbatch.errors import ErrorCode
from kbatch.protocol import codec, messages
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.coordinator_records import Record
from kbatch.testing.broker.groups.classic_group import Group
from kbatch.testing.broker.groups.group_coordinator import GroupCoordinator
from kbatch.testing.broker.groups.offset_store import CommittedOffset, FetchedOffset, OffsetStore
from kbatch.testing.broker.groups.requests import JoinGroup, JoinResult, SyncResult
from tests.support.broker_core import error_of

NOW, SESSION, REBALANCE = 1_000_000, 10_000, 60_000
NONE = ErrorCode.NONE
UNKNOWN_MEMBER, FENCED = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID
ILLEGAL, REBALANCING = ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS
INCONSISTENT = ErrorCode.INCONSISTENT_GROUP_PROTOCOL

T0, T1, OTHER = ("orders", 0), ("orders", 1), ("other", 0)
NO_OFFSET = FetchedOffset()
UNSTABLE = FetchedOffset(ErrorCode.UNSTABLE_OFFSET_COMMIT)
PRODUCER = (4_242, 7)
ID = bytes(15) + b"\x01"


def subscription(*topics: str) -> bytes:
    """Return a consumer's metadata."""
    message = messages.ConsumerProtocolSubscription(topics=list(topics))
    return b"\x00\x01" + b"".join(codec.encode(message, 1))


class Log:
    """Stores the records of __consumer_offsets, unless it has an error to return."""

    def __init__(self) -> None:
        self.batches: list[tuple[list[Record], int, int]] = []
        self.error: ErrorCode | None = None

    def store(self, records: Iterable[Record], producer_id: int = -1, producer_epoch: int = -1) -> None:
        if self.error is not None:
            raise BrokerError(self.error)
        self.batches.append((list(records), producer_id, producer_epoch))

    @property
    def records(self) -> list[Record]:
        return [record for records, _, _ in self.batches for record in records]


class Member:
    """One member of group "g": sends requests, and keeps what comes back."""

    def __init__(self, cluster: Groups, client_id: str, **join: Any) -> None:
        self.cluster = cluster
        self.client_id = client_id
        self.fields: dict[str, Any] = {"protocol_type": "consumer", "protocols": (("range", b""),), **join}
        self.member_id = ""
        self.generation_id = -1
        self.joins: list[JoinResult] = []
        self.syncs: list[SyncResult] = []

    @property
    def instance_id(self) -> str | None:
        return self.fields.get("group_instance_id")

    def join(self, *, version: int = 3, **changes: Any) -> JoinResult | None:
        """Return the response, if it is there at once. Version 3 needs no member id."""
        request = JoinGroup(
            **{
                "group_id": "g",
                "member_id": self.member_id,
                "session_timeout_ms": SESSION,
                "rebalance_timeout_ms": REBALANCE,
                "client_id": self.client_id,
                "client_host": "/127.0.0.1",
                "version": version,
                **self.fields,
                **changes,
            }
        )
        before = len(self.joins)
        self.cluster.coordinator.join(request, self._joined, self.cluster.now_ms)
        return self.joins[-1] if len(self.joins) > before else None

    def _joined(self, result: JoinResult) -> None:
        self.joins.append(result)
        if result.error_code == NONE:
            self.member_id, self.generation_id = result.member_id, result.generation_id

    def sync(self, assignments: dict[str, bytes] | None = None, **changes: Any) -> SyncResult | None:
        before = len(self.syncs)
        request = {
            **self._ids(),
            "assignments": assignments or {},
            "reply": self.syncs.append,
            "now_ms": self.cluster.now_ms,
            **changes,
        }
        self.cluster.coordinator.sync(**request)
        return self.syncs[-1] if len(self.syncs) > before else None

    def heartbeat(self, **changes: Any) -> Any:
        """Return NONE or the code of the refusal."""
        request = {**self._ids(), "now_ms": self.cluster.now_ms, **changes}
        code = error_of(lambda: self.cluster.coordinator.heartbeat(**request))
        return NONE if code is None else code

    def _ids(self) -> dict[str, Any]:
        return {
            "group_id": "g",
            "member_id": self.member_id,
            "generation_id": self.generation_id,
            "group_instance_id": self.instance_id,
        }

    def beat(self, later_ms: int) -> Any:
        """Send heartbeats for this long; return the last response."""
        for _ in range(later_ms // 5_000):
            self.cluster.pass_time(5_000)
            code = self.heartbeat()
        return code

    def leave(self) -> ErrorCode:
        return self.cluster.coordinator.leave("g", [(self.member_id, None)], self.cluster.now_ms)[0]


class Groups:
    """A coordinator, its log and its time."""

    def __init__(self, **options: int) -> None:
        self.options = options
        self.log = Log()
        self.now_ms = NOW
        self.uuids = count(1)
        self.coordinator = self.start()

    def start(self) -> GroupCoordinator:
        return GroupCoordinator(self.log.store, lambda: next(self.uuids).to_bytes(16, "big"), **self.options)

    def restart(self) -> None:
        self.coordinator = self.start()
        self.coordinator.load(self.log.records, self.now_ms)

    def pass_time(self, later_ms: int) -> None:
        """Advance the time, and run everything that is due."""
        until_ms = self.now_ms + later_ms
        while (deadline_ms := self.coordinator.next_deadline_ms()) is not None and deadline_ms <= until_ms:
            self.now_ms = max(deadline_ms, self.now_ms)
            self.coordinator.handle_timeout(self.now_ms)
        self.now_ms = until_ms

    @property
    def group(self) -> Group | None:
        """Return group "g" if there is one."""
        group = self.coordinator.find("g")
        assert group is None or isinstance(group, Group)
        return group

    @property
    def state(self) -> str:
        return self.coordinator.describe("g").state

    def stable(self, *members: Member) -> None:
        """Let all of them join and sync: each member is assigned its own id."""
        for member in members:
            member.join()
        for member in members:
            if member.generation_id < members[-1].generation_id or members[-1].generation_id == -1:
                member.join()
        leader = next(member for member in members if member.joins[-1].members)
        leader.sync({member.member_id: member.member_id.encode() for member in members})
        for member in members:
            if member is not leader:
                member.sync()
        assert self.state == "Stable"
        assert {member.generation_id for member in members} == {leader.generation_id}


def stable_group(*clients: str) -> tuple[Any, ...]:
    """Return a coordinator, and members that have joined and synced; "a=i" is client "a" as instance "i"."""
    groups = Groups()
    members = []
    for client in clients:
        client_id, _, instance_id = client.partition("=")
        instance = {"group_instance_id": instance_id} if instance_id else {}
        members.append(Member(groups, client_id, **instance))
    groups.stable(*members)
    return groups, *members


class Offsets(Groups):
    """A coordinator with its offsets."""

    def __init__(self, **options: int) -> None:
        super().__init__()
        self.offset_options = options
        self.offsets = self.start_offsets()

    def start_offsets(self) -> OffsetStore:
        return OffsetStore(self.coordinator, self.log.store, self.now_ms, **self.offset_options)

    def restart(self, markers: Iterable[tuple[int, int, bool]] = ()) -> None:
        """`markers` are (how many batches before it, producer id, commit)."""
        self.coordinator = self.start()
        self.offsets = self.start_offsets()
        at = {index: (producer_id, commit) for index, producer_id, commit in markers}
        for index, (records, producer_id, _) in enumerate(self.log.batches):
            if index in at:
                self.offsets.complete_transaction(*at[index])
            self.coordinator.load(records, self.now_ms)
            self.offsets.load(records, self.now_ms, producer_id)
        if len(self.log.batches) in at:
            self.offsets.complete_transaction(*at[len(self.log.batches)])

    def commit(self, offsets: dict[tuple[str, int], int], group_id: str = "g", **changes: Any) -> Any:
        """Commit offsets, by default as a standalone consumer. Return the one code, or all of them."""
        return self._commit(self.offsets.commit, offsets, {"group_id": group_id, **changes})

    def commit_in_transaction(
        self,
        offsets: dict[tuple[str, int], int],
        group_id: str = "g",
        producer: tuple[int, int] = PRODUCER,
        **changes: Any,
    ) -> Any:
        ids = {"group_id": group_id, "producer_id": producer[0], "producer_epoch": producer[1]}
        return self._commit(self.offsets.commit_transactional, offsets, {**ids, **changes})

    def _commit(self, request: Any, offsets: dict[tuple[str, int], int], fields: dict[str, Any]) -> Any:
        committed = {each: CommittedOffset(n) for each, n in offsets.items()}
        usual = {"member_id": "", "generation_id": -1, "offsets": committed, "now_ms": self.now_ms}
        codes = error_of(lambda: request(**{**usual, **fields}))
        if isinstance(codes, dict):
            assert set(codes) == set(offsets)
            return next(iter(codes.values())) if len(set(codes.values())) == 1 else codes
        return codes

    def fetched(self, group_id: str = "g", **options: Any) -> dict[tuple[str, int], int]:
        fetched = self.offsets.fetch(group_id, None, **options)
        return {each: offset.offset for each, offset in fetched.items()}

    def expire(self, later_ms: int) -> None:
        self.now_ms += later_ms
        self.offsets.handle_timeout(self.now_ms)
