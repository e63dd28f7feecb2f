"""The states of a member by KIP-848 and of a share group's (KIP-932), as tables.

After org.apache.kafka.clients.consumer.internals.MemberState.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from kbatch.errors import IllegalStateError
from kbatch.logs import ClientLogger

logger = ClientLogger(__name__)


class MemberState(Enum):
    """The state of a member."""

    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"
    STABLE = "stable"
    RECONCILING = "reconciling"
    ACKNOWLEDGING = "acknowledging"
    FENCED = "fenced"
    PREPARE_LEAVING = "about to leave"
    LEAVING = "leaving"
    STALE = "stale"
    FATAL = "failed"


class MemberEvent(Enum):
    """An event in the life of a member."""

    JOIN = "it joins"
    TARGET = "its target differs from what it owns"
    REACH = "it owns its target"
    OWN = "what it owns has changed"
    ACKNOWLEDGE = "it reports what it owns"
    FENCE = "the coordinator has removed it"
    FAIL = "the coordinator refuses it for good"
    LEAVE = "it is to leave"
    RELEASE = "it has given up everything, and leaves"
    EXPIRE = "its program does not poll"
    SUBSCRIBE = "it subscribes to topics"
    LEFT = "it has left"


_State, _Event = MemberState, MemberEvent
_IN_GROUP = {
    _Event.FENCE: _State.FENCED,
    _Event.FAIL: _State.FATAL,
    _Event.LEAVE: _State.PREPARE_LEAVING,
    _Event.EXPIRE: _State.STALE,
}
TRANSITIONS: Mapping[MemberState, Mapping[MemberEvent, MemberState]] = {
    _State.UNSUBSCRIBED: {_Event.JOIN: _State.JOINING},
    _State.JOINING: {_Event.TARGET: _State.RECONCILING, **_IN_GROUP},
    _State.STABLE: {_Event.TARGET: _State.RECONCILING, **_IN_GROUP},
    _State.RECONCILING: {
        _Event.TARGET: _State.RECONCILING,
        _Event.OWN: _State.ACKNOWLEDGING,
        _Event.REACH: _State.STABLE,
        **_IN_GROUP,
    },
    _State.ACKNOWLEDGING: {
        _Event.TARGET: _State.ACKNOWLEDGING,
        _Event.ACKNOWLEDGE: _State.RECONCILING,
        **_IN_GROUP,
    },
    _State.FENCED: {_Event.JOIN: _State.JOINING, _Event.LEAVE: _State.PREPARE_LEAVING},
    _State.PREPARE_LEAVING: {
        _Event.RELEASE: _State.LEAVING,
        _Event.FENCE: _State.PREPARE_LEAVING,
        _Event.FAIL: _State.FATAL,
    },
    _State.LEAVING: {_Event.LEFT: _State.UNSUBSCRIBED},
    _State.STALE: {_Event.JOIN: _State.JOINING, _Event.LEAVE: _State.PREPARE_LEAVING},
    _State.FATAL: {},
}
# A share group's members own nothing for themselves: an assignment counts at once, and nothing is given up
# before the end.
_IN_SHARE_GROUP = {
    _Event.FENCE: _State.JOINING,
    _Event.FAIL: _State.FATAL,
    _Event.LEAVE: _State.LEAVING,
    _Event.EXPIRE: _State.STALE,
}
SHARE_TRANSITIONS: Mapping[MemberState, Mapping[MemberEvent, MemberState]] = {
    _State.UNSUBSCRIBED: {_Event.SUBSCRIBE: _State.JOINING, _Event.LEAVE: _State.LEAVING},
    _State.JOINING: {
        _Event.SUBSCRIBE: _State.JOINING,
        _Event.REACH: _State.STABLE,
        **_IN_SHARE_GROUP,
    },
    _State.STABLE: {_Event.SUBSCRIBE: _State.RECONCILING, **_IN_SHARE_GROUP},
    _State.RECONCILING: {
        _Event.SUBSCRIBE: _State.RECONCILING,
        _Event.REACH: _State.STABLE,
        **_IN_SHARE_GROUP,
    },
    _State.STALE: {
        _Event.SUBSCRIBE: _State.STALE,
        _Event.JOIN: _State.JOINING,
        _Event.LEAVE: _State.LEAVING,
    },
    _State.LEAVING: {
        _Event.SUBSCRIBE: _State.JOINING,
        _Event.LEAVE: _State.LEAVING,
        _Event.LEFT: _State.UNSUBSCRIBED,
    },
    _State.FATAL: {_Event.SUBSCRIBE: _State.JOINING, _Event.LEAVE: _State.LEAVING},
}
# States in which the member sends heartbeats.
BEATING = (
    MemberState.JOINING,
    MemberState.STABLE,
    MemberState.RECONCILING,
    MemberState.ACKNOWLEDGING,
    MemberState.PREPARE_LEAVING,
)
# States in which the coordinator may still have to learn that the member leaves.
ENDING = (MemberState.PREPARE_LEAVING, MemberState.LEAVING, MemberState.STALE)


def next_state(
    transitions: Mapping[MemberState, Mapping[MemberEvent, MemberState]],
    state: MemberState,
    event: MemberEvent,
    member: object,
) -> MemberState:
    """Return the state that the event leads to. Raise IllegalStateError if the table has none; `member` is
    what the text says.
    """
    found = transitions[state].get(event)
    if found is None:
        raise IllegalStateError(f"{member}: {event.value} while {state.value}")
    if found is not state:
        logger.debug("%s: %s, since %s", member, found.value, event.value)
    return found
