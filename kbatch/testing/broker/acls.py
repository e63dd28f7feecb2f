"""Acls: the permissions of the embedded broker's clients."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase

from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError


@dataclass(slots=True)
class Acls:
    """Permissions of clients; may be changed while the broker runs.

    Each is a name or a collection of names, in which `*` stands for anything, or None for all of them.

    Attributes
    ----------
    topic_write
        Topics to produce to; others are TOPIC_AUTHORIZATION_FAILED (29).
    transactional_id_write
        Transactional ids to use; others are TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53).
    group_read
        Groups to join and to commit for; others are GROUP_AUTHORIZATION_FAILED (30).
    idempotent_write
        True if a producer without a transactional id gets a producer id. False answers
        CLUSTER_AUTHORIZATION_FAILED (31). Kafka also gives one to a client that may
        write to some topic (KIP-679); here only this field decides.
    """

    topic_write: Iterable[str] | None = None
    transactional_id_write: Iterable[str] | None = None
    group_read: Iterable[str] | None = None
    idempotent_write: bool = True

    @classmethod
    def of(cls, acls: Acls | Mapping[str, object] | None) -> Acls:
        """Convert the value of `Broker(acls=)` to Acls; TypeError for an unknown name names the nearest."""
        if isinstance(acls, Acls):
            return acls
        given = dict(acls or {})
        check_names("acls", given, [field.name for field in fields(cls)])
        return cls(**given)  # type: ignore[arg-type]

    def check_topic_write(self, topic: str) -> None:
        _check(self.topic_write, topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def check_transactional_id(self, transactional_id: str) -> None:
        _check(self.transactional_id_write, transactional_id, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

    def check_group(self, group_id: str) -> None:
        _check(self.group_read, group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)

    def check_idempotent_write(self) -> None:
        if not self.idempotent_write:
            raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def _check(allowed: Iterable[str] | None, name: str, code: ErrorCode) -> None:
    patterns = (allowed,) if isinstance(allowed, str) else allowed
    if patterns is not None and not any(fnmatchcase(name, pattern) for pattern in patterns):
        raise BrokerError(code)


def check_names(what: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Raise TypeError, which names the nearest, for an unknown name."""
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f": did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}"
            raise TypeError(f"{what} has no {name!r}{hint}")
