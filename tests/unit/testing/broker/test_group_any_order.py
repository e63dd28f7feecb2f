"""The group coordinator whose members do anything, in any order."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kbatch.errors import ErrorCode
from kbatch.testing.broker.group_messages import JoinResult, SyncResult
from kbatch.testing.broker.group_state import NEW_MEMBER_TIMEOUT_MS
from tests.unit.consumer_groups import NONE, REBALANCE, SESSION, UNKNOWN_MEMBER, Groups, Member


class Reply:
    """One answer: it must come, and only once."""

    def __init__(self) -> None:
        self.results: list[Any] = []

    def __call__(self, result: Any) -> None:
        self.results.append(result)


class GroupsInAnyOrder(RuleBasedStateMachine):
    """Members join, sync, beat, leave and fall silent; static ones come back.

    However it goes: no request is answered twice, and none for ever unanswered once time runs; each
    generation has one leader, who alone is told the members; all who join it get the same protocol, and get
    assignments that its leader made.
    """

    @initialize(delay_ms=st.sampled_from([0, 3_000]), max_size=st.sampled_from([2, 100]))
    def begin(self, delay_ms: int, max_size: int) -> None:
        self.groups = Groups(initial_rebalance_delay_ms=delay_ms, max_size=max_size)
        self.members: list[Member] = []
        self.replies: list[Reply] = []
        # generation -> (leader, protocol), and -> who was told the members
        self.generations: dict[int, tuple[str, str | None]] = {}
        self.leaders: dict[int, set[str]] = {}
        self.seen: set[int] = set()

    def reply(self) -> Reply:
        self.replies.append(Reply())
        return self.replies[-1]

    @rule(
        static=st.sampled_from([None, "i", "j"]),
        protocols=st.sampled_from(["ab", "b", "ba"]),
        version=st.sampled_from([3, 9]),
        rebalance_ms=st.sampled_from([5_000, 60_000]),
    )
    def new_member(self, static: str | None, protocols: str, version: int, rebalance_ms: int) -> None:
        member = Member(
            self.groups,
            f"c{len(self.members)}",
            group_instance_id=static,
            protocols=tuple((name, name.encode()) for name in protocols),
            rebalance_timeout_ms=rebalance_ms,
        )
        member.version = version  # type: ignore[attr-defined]
        self.members.append(member)
        self.join(member)

    def join(self, member: Member, **changes: Any) -> None:
        reply = self.reply()

        def joined(result: JoinResult) -> None:
            reply(result)
            if result.error_code == NONE:
                self.check_joined(result)
                member.member_id, member.generation_id = result.member_id, result.generation_id
            elif result.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                member.member_id = result.member_id
            elif result.error_code == UNKNOWN_MEMBER:
                member.member_id = ""

        member._joined = joined  # type: ignore[method-assign]
        member.join(version=member.version, **changes)  # type: ignore[attr-defined]

    def check_joined(self, result: JoinResult) -> None:
        described = (result.leader, result.protocol_name)
        is_back = result.generation_id in self.seen
        known = self.generations.setdefault(result.generation_id, described)
        assert known[1] == described[1]
        # a static leader that comes back has another id, and is the leader still
        assert known == described or is_back
        if result.members:
            assert result.leader == result.member_id
            assert result.member_id in {each.member_id for each in result.members}
            if not result.skip_assignment:
                self.leaders.setdefault(result.generation_id, set()).add(result.member_id)
                assert len(self.leaders[result.generation_id]) == 1

    @precondition(lambda self: getattr(self, "members", None))
    @rule(data=st.data(), metadata=st.sampled_from([b"a", b"b", b"c"]))
    def join_again(self, data: st.DataObject, metadata: bytes) -> None:
        member = data.draw(st.sampled_from(self.members))
        protocols = tuple((name, metadata) for name, _ in member.fields["protocols"])
        self.join(member, protocols=protocols)

    @precondition(lambda self: getattr(self, "members", None))
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(self.members))
        generation_id, reply = member.generation_id, self.reply()
        assignment = b"%d" % generation_id

        def synced(result: SyncResult) -> None:
            reply(result)
            if result.error_code == NONE and result.assignment:
                assert result.assignment == assignment

        self.groups.coordinator.sync(
            "g",
            member.member_id,
            generation_id,
            {each.member_id: assignment for each in self.members},
            synced,
            self.groups.now_ms,
            group_instance_id=member.instance_id,
        )
        self.seen.add(generation_id)

    @precondition(lambda self: getattr(self, "members", None))
    @rule(data=st.data(), action=st.sampled_from(["heartbeat", "leave", "restart client"]))
    def do(self, data: st.DataObject, action: str) -> None:
        member = data.draw(st.sampled_from(self.members))
        if action == "heartbeat":
            member.heartbeat()
        elif action == "leave":
            member.leave()
        else:
            member.member_id = ""
            self.join(member)

    @rule(later_ms=st.sampled_from([1, 3_000, SESSION, REBALANCE]), beating=st.booleans())
    def let_time_pass(self, later_ms: int, beating: bool) -> None:
        for _ in range(10):
            self.groups.pass_time(later_ms // 10)
            for member in self.members if beating else ():
                member.heartbeat()

    @invariant()
    def no_request_is_answered_twice(self) -> None:
        assert all(len(reply.results) <= 1 for reply in getattr(self, "replies", ()))

    @invariant()
    def a_stable_group_has_one_leader_who_is_in_it(self) -> None:
        if not hasattr(self, "groups") or (group := self.groups.coordinator.find("g")) is None:
            return
        if group.state.value == "Stable":
            assert group.leader_id in group.members
        assert set(group.static_members.values()) <= set(group.members)
        assert not set(group.pending_joins) & set(group.members)
        if group.state.value != "PreparingRebalance":
            assert all(member.join_reply is None for member in group.members.values())
        if group.state.value != "CompletingRebalance":
            assert all(member.sync_reply is None for member in group.members.values())

    def teardown(self) -> None:
        """Nobody beats any more: every request has its answer, and the group is empty."""
        if hasattr(self, "groups"):
            self.groups.pass_time(2 * NEW_MEMBER_TIMEOUT_MS)
            assert all(len(reply.results) == 1 for reply in self.replies)
            group = self.groups.coordinator.find("g")
            assert group is None or group.is_empty
            assert self.groups.coordinator.next_deadline_ms() is None


TestGroupsInAnyOrder = GroupsInAnyOrder.TestCase
TestGroupsInAnyOrder.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
