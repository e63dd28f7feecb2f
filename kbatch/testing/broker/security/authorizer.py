"""Kafka's authorizer: who may do what, by ACLs (KIP-11, KIP-290; StandardAuthorizer of Kafka 4.3).

An ACL allows or denies an operation on resources to a principal from a host. A denial beats any permission.
What no ACL speaks of is denied, except to super users, and for resources without any ACL if
allow.everyone.if.no.acl.found is true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple, Self, TypeVar

from kbatch.errors import ErrorCode
from kbatch.testing.broker.security.acls import Acls

WILDCARD = "*"
CLUSTER_NAME = "kafka-cluster"
ANY = 1


class ResourceType(IntEnum):
    """The resources that ACLs protect, with Kafka's numbers."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How an ACL names resources; MATCH occurs in filters only."""

    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """The operations that ACLs allow or deny, with Kafka's numbers."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class Permission(IntEnum):
    DENY = 2
    ALLOW = 3


R, O = ResourceType, Operation  # noqa: E741
# The operations of a resource that clients see (AclEntry.supportedOperations)
SUPPORTED_OPERATIONS: dict[ResourceType, tuple[Operation, ...]] = {
    R.TOPIC: (
        O.READ, O.WRITE, O.CREATE, O.DESCRIBE, O.DELETE, O.ALTER, O.DESCRIBE_CONFIGS, O.ALTER_CONFIGS
    ),
    R.GROUP: (O.READ, O.DESCRIBE, O.DELETE, O.DESCRIBE_CONFIGS, O.ALTER_CONFIGS),
    R.CLUSTER: (
        O.CREATE, O.CLUSTER_ACTION, O.DESCRIBE_CONFIGS, O.ALTER_CONFIGS, O.IDEMPOTENT_WRITE, O.ALTER,
        O.DESCRIBE,
    ),
}  # fmt: skip
REFUSALS = {
    R.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    R.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    R.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    R.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    R.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    R.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
# Permissions that imply another; denials imply nothing.
IMPLIED_BY = {
    O.DESCRIBE: {O.READ, O.WRITE, O.DELETE, O.ALTER},
    O.DESCRIBE_CONFIGS: {O.ALTER_CONFIGS},
}
Name = TypeVar("Name", bound=IntEnum)


class AclBinding(NamedTuple):
    """An ACL, as Kafka's `AclBinding`: `AclBinding("TOPIC", "events", "User:alice", "WRITE")`.

    Attributes
    ----------
    resource_type : ResourceType or its name
        TOPIC, GROUP, CLUSTER (whose name is "kafka-cluster"), TRANSACTIONAL_ID, DELEGATION_TOKEN or USER.
    resource_name : str
        "*" names all resources of the type, if the pattern is LITERAL.
    principal : str
        "User:alice", or "User:*" for everybody.
    operation : Operation or its name
    permission : Permission or its name
        ALLOW or DENY.
    host : str
        An address, or "*".
    pattern_type : PatternType or its name
        LITERAL or PREFIXED.
    """

    resource_type: ResourceType
    resource_name: str
    principal: str
    operation: Operation
    permission: Permission = Permission.ALLOW
    host: str = WILDCARD
    pattern_type: PatternType = PatternType.LITERAL

    @classmethod
    def of(cls, values: Iterable[object]) -> Self:
        """Convert a tuple whose enumerations may be names; raises ValueError, which names the value."""
        try:
            binding = cls(*values)  # type: ignore[arg-type]
        except TypeError as error:
            raise ValueError(
                f"an ACL must be an AclBinding or a tuple of its fields, got {values!r}"
            ) from error
        return binding._replace(
            resource_type=_member(ResourceType, binding.resource_type),
            operation=_member(Operation, binding.operation),
            permission=_member(Permission, binding.permission),
            pattern_type=_member(PatternType, binding.pattern_type),
        )

    def covers(self, resource_type: ResourceType, name: str) -> bool:
        """True if it is about the resource, for any client."""
        if self.resource_type != resource_type:
            return False
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.resource_name)
        return self.resource_name in (name, WILDCARD)

    def is_about(self, principal: str, host: str) -> bool:
        """True if it is for this principal on this host."""
        return self.principal in (principal, "User:*") and self.host in (host, WILDCARD)

    def decides(self, operation: Operation) -> bool:
        """True if it allows or denies the operation."""
        implying = IMPLIED_BY.get(operation, set()) if self.permission is Permission.ALLOW else set()
        return self.operation in (Operation.ALL, operation) or self.operation in implying


class AclFilter(NamedTuple):
    """A filter of DescribeAcls and DeleteAcls; None, ANY and MATCH leave a field open.

    ResourcePatternFilter and AccessControlEntryFilter
    """

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    @property
    def is_known(self) -> bool:
        """True if each enumeration has a number that Kafka knows."""
        return (
            self.resource_type in {ANY, *ResourceType}
            and self.pattern_type in {ANY, *PatternType}
            and self.operation in {ANY, *Operation}
            and self.permission in {ANY, *Permission}
        )

    def matches(self, acl: AclBinding) -> bool:
        return (
            self.resource_type in (ANY, acl.resource_type)
            and self._matches_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (ANY, acl.operation)
            and self.permission in (ANY, acl.permission)
        )

    def _matches_pattern(self, acl: AclBinding) -> bool:
        if self.pattern_type not in (ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.resource_name is None or self.resource_name == acl.resource_name:
            return True
        return self.pattern_type == PatternType.MATCH and acl.covers(acl.resource_type, self.resource_name)


class Authorizer:
    """The ACLs of a cluster.

    Parameters
    ----------
    acls : iterable of AclBinding, or None
        ACLs from the start; None means that there is no authorizer until one is needed for `coarse`.
    super_users : iterable of str
        Principals that may do everything.
    allows_without_acl : bool
        allow.everyone.if.no.acl.found
    coarse : callable
        Returns the Acls of `Broker.acls`, whose restrictions are ACLs too.
    """

    def __init__(
        self,
        acls: Iterable[AclBinding] | None,
        super_users: Iterable[str],
        allows_without_acl: bool,
        coarse: Callable[[], Acls],
    ) -> None:
        self._acls: dict[AclBinding, None] = dict.fromkeys(acls or ())
        self._super_users = frozenset(super_users)
        self._allows_without_acl = allows_without_acl
        self._is_configured = acls is not None or bool(self._super_users)
        self._coarse = coarse

    @property
    def is_there(self) -> bool:
        """True if there is an authorizer; without one every client may do everything."""
        return self._is_configured or bool(self._acls) or self._coarse().restrict_something

    def acls(self) -> Iterator[AclBinding]:
        yield from self._acls
        yield from map(AclBinding.of, self._coarse().bindings())

    def add(self, acl: AclBinding) -> None:
        self._acls[acl] = None

    def remove(self, acl: AclBinding) -> None:
        self._acls.pop(acl, None)

    def allows(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """True if the principal may do this (StandardAuthorizerData.authorize)."""
        if not self.is_there or principal in self._super_users:
            return True
        found = [acl for acl in self.acls() if acl.covers(resource_type, name)]
        if not found:
            return self._allows_without_acl
        permissions = {
            acl.permission for acl in found if acl.is_about(principal, host) and acl.decides(operation)
        }
        return permissions == {Permission.ALLOW}

    def allows_some(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """True if there is a resource of the type on which the principal may do this.

        Authorizer.authorizeByResourceType: ACLs that imply the operation do not count.
        """
        if self.allows(principal, host, operation, resource_type, "hardcode"):
            return True
        relevant = [
            acl
            for acl in self.acls()
            if acl.resource_type == resource_type
            and acl.is_about(principal, host)
            and acl.operation in (Operation.ALL, operation)
        ]
        denials = [acl for acl in relevant if acl.permission is Permission.DENY]
        if any(map(_is_wildcard, denials)):
            return False
        return any(
            _is_wildcard(acl) or not any(_dominates(denial, acl) for denial in denials)
            for acl in relevant
            if acl.permission is Permission.ALLOW
        )

    def authorized_operations(self, principal: str, host: str, resource_type: ResourceType, name: str) -> int:
        """Return the operations as the bits that Metadata and its like tell clients (KIP-430)."""
        return sum(
            1 << operation
            for operation in SUPPORTED_OPERATIONS[resource_type]
            if self.allows(principal, host, operation, resource_type, name)
        )


def _is_wildcard(acl: AclBinding) -> bool:
    return acl.pattern_type is PatternType.LITERAL and acl.resource_name == WILDCARD


def _dominates(denial: AclBinding, acl: AclBinding) -> bool:
    """True if the denial leaves nothing of a permission."""
    if denial.pattern_type is PatternType.PREFIXED:
        return acl.resource_name.startswith(denial.resource_name)
    return acl.pattern_type is PatternType.LITERAL and acl.resource_name == denial.resource_name


def _member(kind: type[Name], value: object) -> Name:
    if isinstance(value, kind):
        return value
    if not isinstance(value, str) or value not in kind.__members__:
        raise ValueError(f"{kind.__name__} must be one of {', '.join(kind.__members__)}, got {value!r}")
    return kind[value]
