"""Acls: the short form of permissions, for all clients alike; the authorizer has Kafka's own."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

CLUSTER = "kafka-cluster"
EVERYBODY = "User:*"
CLUSTER_OPERATIONS = ("CREATE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
OTHER_TOPIC_OPERATIONS = (
    "READ",
    "CREATE",
    "DELETE",
    "ALTER",
    "DESCRIBE",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
)


@dataclass(slots=True)
class Acls:
    """Permissions of all clients; may be changed while the broker runs.

    Each is a name or a collection of names, or None for all of them. A name that ends with `*` stands for all
    that begin like it. They become ACLs of Kafka's model, for `User:*`. `Broker(authorizer=)` tells clients
    apart.

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

    @property
    def restrict_something(self) -> bool:
        names = (self.topic_write, self.transactional_id_write, self.group_read)
        return not self.idempotent_write or names != (None, None, None)

    def bindings(self) -> Iterator[tuple[str, ...]]:
        """Yield the permissions as fields of `AclBinding`; none if nothing is restricted."""
        if not self.restrict_something:
            return
        for operation in CLUSTER_OPERATIONS:
            yield "CLUSTER", CLUSTER, EVERYBODY, operation
        if self.idempotent_write:
            yield "CLUSTER", CLUSTER, EVERYBODY, "IDEMPOTENT_WRITE"
        if self.topic_write is not None:
            for operation in OTHER_TOPIC_OPERATIONS:
                yield "TOPIC", "*", EVERYBODY, operation
        yield from _permissions("TOPIC", "WRITE" if self.topic_write is not None else "ALL", self.topic_write)
        yield from _permissions("TRANSACTIONAL_ID", "ALL", self.transactional_id_write)
        yield from _permissions("GROUP", "ALL", self.group_read)


def _permissions(
    resource_type: str, operation: str, allowed: Iterable[str] | None
) -> Iterator[tuple[str, ...]]:
    names = ("*",) if allowed is None else (allowed,) if isinstance(allowed, str) else allowed
    for name in names:
        if name == "*" or not name.endswith("*"):
            yield resource_type, name, EVERYBODY, operation
        else:
            yield resource_type, name[:-1], EVERYBODY, operation, "ALLOW", "*", "PREFIXED"


def check_names(what: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Raise TypeError, which names the nearest, for an unknown name."""
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f": did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}"
            raise TypeError(f"{what} has no {name!r}{hint}")
