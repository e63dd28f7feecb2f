"""Requests about who may do what, and how much: ACLs, quotas, users of SCRAM, delegation tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from kbatch.core.admin.names import OPERATIONS, PATTERNS, RESOURCES, SCRAM_MECHANISMS, UNKNOWN, number_of
from kbatch.core.admin.results import Acl, QuotaEntity, ScramInfo, Token
from kbatch.core.client.admin_requests import AdminRequest, Refusal, refused
from kbatch.core.client.routes import ANY, CONTROLLER, NODE
from kbatch.errors import UnsupportedVersionError
from kbatch.protocol import features, messages

if TYPE_CHECKING:
    from kbatch.protocol.structs import Message

_DENY, _ALLOW, _ANY = 2, 3, 1
# How parts of an entity are matched by DescribeClientQuotas.
EXACT, DEFAULT_ENTITY, ANY_ENTITY = 0, 1, 2
DEFAULT = "<default>"
ENTITY_TYPES = {"user": "user", "client_id": "client-id", "ip": "ip"}


class AclFilter(NamedTuple):
    """Which rules are meant; None is any.

    Attributes
    ----------
    resource, name, operation, principal, host, pattern, allow
        As those of Acl. The pattern "match" finds all rules that a name is subject to.
    """

    resource: str | None = None
    name: str | None = None
    operation: str | None = None
    principal: str | None = None
    host: str | None = None
    pattern: str | None = None
    allow: bool | None = None

    def __str__(self) -> str:
        given = [f"{name}={value!r}" for name, value in self._asdict().items() if value is not None]
        return f"filter({', '.join(given)})"

    def numbers(self) -> dict[str, Any]:
        """Return the fields of a filter in DescribeAcls and DeleteAcls."""
        permission = _ANY if self.allow is None else _ALLOW if self.allow else _DENY
        return {
            "resource_type_filter": number_of(RESOURCES, "resource", self.resource or "any"),
            "resource_name_filter": self.name,
            "pattern_type_filter": number_of(PATTERNS, "pattern", self.pattern or "any"),
            "principal_filter": self.principal,
            "host_filter": self.host,
            "operation": number_of(OPERATIONS, "operation", self.operation or "Any"),
            "permission_type": permission,
        }


class DescribeAcls(AdminRequest):
    """Rules that a filter finds; the only item is the AclFilter, the result a tuple of Acl."""

    kind = messages.DescribeAclsRequest
    route = ANY

    def __init__(self, filter: AclFilter) -> None:
        super().__init__("list", {filter: None})

    def message(self, items: Mapping[AclFilter, None], version: int, timeout_ms: int) -> Message:
        (filter,) = items
        return messages.DescribeAclsRequest(**filter.numbers())

    def read(self, answer: Any, items: Mapping[AclFilter, None]) -> Iterable[tuple[AclFilter, Any]]:
        if answer.error_code:
            return refused(items, answer)
        found = [
            _acl(resource.resource_type, resource.resource_name, resource.pattern_type, each)
            for resource in answer.resources
            for each in resource.acls
        ]
        return [(filter, tuple(sorted(found))) for filter in items]

    def subject(self, key: Any) -> str:
        return "list of ACLs"


class CreateAcls(AdminRequest):
    """Rules to create; the results are None."""

    kind = messages.CreateAclsRequest
    route = CONTROLLER

    def __init__(self, acls: Iterable[Acl]) -> None:
        super().__init__("create", dict.fromkeys(acls))

    def message(self, items: Mapping[Acl, None], version: int, timeout_ms: int) -> Message:
        kind = messages.CreateAclsRequest
        creations = [
            kind.AclCreation(
                resource_type=number_of(RESOURCES, "resource", acl.resource),
                resource_name=acl.name,
                resource_pattern_type=number_of(PATTERNS, "pattern", acl.pattern),
                principal=acl.principal,
                host=acl.host,
                operation=number_of(OPERATIONS, "operation", acl.operation),
                permission_type=_ALLOW if acl.allow else _DENY,
            )
            for acl in items
        ]
        return kind(creations=creations)

    def read(self, answer: Any, items: Mapping[Acl, None]) -> Iterable[tuple[Acl, Any]]:
        return [
            (acl, Refusal(each.error_code, each.error_message) if each.error_code else None)
            for acl, each in zip(items, answer.results, strict=False)
        ]

    def subject(self, key: Any) -> str:
        return f"create of {key}"


class DeleteAcls(AdminRequest):
    """Filters whose rules are to be deleted; the results are tuples of the deleted Acls."""

    kind = messages.DeleteAclsRequest
    route = CONTROLLER

    def __init__(self, filters: Iterable[AclFilter]) -> None:
        super().__init__("delete", dict.fromkeys(filters))

    def message(self, items: Mapping[AclFilter, None], version: int, timeout_ms: int) -> Message:
        kind = messages.DeleteAclsRequest
        return kind(filters=[kind.DeleteAclsFilter(**filter.numbers()) for filter in items])

    def read(self, answer: Any, items: Mapping[AclFilter, None]) -> Iterable[tuple[AclFilter, Any]]:
        for filter, found in zip(items, answer.filter_results, strict=False):
            if found.error_code:
                yield filter, Refusal(found.error_code, found.error_message)
                continue
            refusal = next((each for each in found.matching_acls if each.error_code), None)
            if refusal is not None:
                yield filter, Refusal(refusal.error_code, refusal.error_message)
                continue
            acls = [
                _acl(each.resource_type, each.resource_name, each.pattern_type, each)
                for each in found.matching_acls
            ]
            yield filter, tuple(sorted(acls))

    def subject(self, key: Any) -> str:
        return f"delete of {key}"


def _acl(resource_type: int, name: str, pattern: int, found: Any) -> Acl:
    return Acl(
        RESOURCES.get(resource_type, UNKNOWN),
        name,
        OPERATIONS.get(found.operation, UNKNOWN),
        found.principal,
        found.host,
        PATTERNS.get(pattern, UNKNOWN),
        found.permission_type == _ALLOW,
    )


class DescribeQuotas(AdminRequest):
    """Quotas of entities that have all of some parts: (type, match, name) each. The only item is None, the
    result a dict of QuotaEntity to dict of str to float. `is_exact`: and no other parts.
    """

    kind = messages.DescribeClientQuotasRequest

    def __init__(self, components: Sequence[tuple[str, int, str | None]], *, is_exact: bool) -> None:
        super().__init__("describe", {None: None})
        self.components = components
        self.is_exact = is_exact

    def message(self, items: Mapping[Any, None], version: int, timeout_ms: int) -> Message:
        kind = messages.DescribeClientQuotasRequest
        components = [
            kind.ComponentData(entity_type=type, match_type=match, match=name)
            for type, match, name in self.components
        ]
        return kind(components=components, strict=self.is_exact)

    def read(self, answer: Any, items: Mapping[Any, None]) -> Iterable[tuple[Any, Any]]:
        if answer.error_code:
            return refused(items, answer)
        found = {
            _entity(entry.entity): {each.key: each.value for each in entry.values}
            for entry in answer.entries or ()
        }
        return [(None, found)]

    def subject(self, key: Any) -> str:
        return "describe of quotas"


class AlterQuotas(AdminRequest):
    """Changes of quotas: by QuotaEntity a dict of str to float, or None to remove. The results are None."""

    kind = messages.AlterClientQuotasRequest
    route = CONTROLLER
    noun = "quotas of"

    def __init__(
        self, items: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool
    ) -> None:
        super().__init__("alter", items)
        self.validate_only = validate_only

    def message(self, items: Mapping[QuotaEntity, Any], version: int, timeout_ms: int) -> Message:
        kind = messages.AlterClientQuotasRequest
        entries = [
            kind.EntryData(
                entity=[
                    kind.EntityData(
                        entity_type=ENTITY_TYPES[part], entity_name=None if name == DEFAULT else name
                    )
                    for part, name in entity._asdict().items()
                    if name is not None
                ],
                ops=[
                    kind.OpData(key=key, value=value or 0.0, remove=value is None)
                    for key, value in changes.items()
                ],
            )
            for entity, changes in items.items()
        ]
        return kind(entries=entries, validate_only=self.validate_only)

    def read(self, answer: Any, items: Mapping[QuotaEntity, Any]) -> Iterable[tuple[QuotaEntity, Any]]:
        return [
            (
                _entity(entry.entity),
                Refusal(entry.error_code, entry.error_message) if entry.error_code else None,
            )
            for entry in answer.entries
        ]


def _entity(parts: Iterable[Any]) -> QuotaEntity:
    names = {type: part for part, type in ENTITY_TYPES.items()}
    given = {
        names[each.entity_type]: DEFAULT if each.entity_name is None else each.entity_name
        for each in parts
        if each.entity_type in names
    }
    return QuotaEntity(**given)


class DescribeUsers(AdminRequest):
    """The passwords of users of SCRAM, as far as brokers tell: by name tuples of ScramInfo."""

    kind = messages.DescribeUserScramCredentialsRequest
    route = CONTROLLER
    noun = "user"

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__("describe", dict.fromkeys(names))

    def message(self, items: Mapping[str, None], version: int, timeout_ms: int) -> Message:
        kind = messages.DescribeUserScramCredentialsRequest
        return kind(users=[kind.UserName(name=name) for name in items])

    def read(self, answer: Any, items: Mapping[str, None]) -> Iterable[tuple[str, Any]]:
        if answer.error_code:
            return refused(items, answer)
        return [
            (
                found.user,
                Refusal(found.error_code, found.error_message)
                if found.error_code
                else _scram_infos(found.credential_infos),
            )
            for found in answer.results
        ]


class AllUsers(DescribeUsers):
    """All users of SCRAM; the only item is None, the result a dict."""

    def __init__(self) -> None:
        super().__init__([None])  # type: ignore[list-item]

    def message(self, items: Mapping[Any, None], version: int, timeout_ms: int) -> Message:
        # null means the same, and keeps Kafka 4.3 from answering a client that lacks the ACL
        return messages.DescribeUserScramCredentialsRequest(users=[])

    def read(self, answer: Any, items: Mapping[Any, None]) -> Iterable[tuple[Any, Any]]:
        if answer.error_code:
            return refused(items, answer)
        return [(None, {found.user: _scram_infos(found.credential_infos) for found in answer.results})]


def _scram_infos(found: Iterable[Any]) -> tuple[ScramInfo, ...]:
    return tuple(
        sorted(ScramInfo(SCRAM_MECHANISMS.get(each.mechanism, UNKNOWN), each.iterations) for each in found)
    )


class ScramUpsert(NamedTuple):
    """A password to set, salted and hashed; its text does not show it."""

    mechanism: str
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"<password for {self.mechanism}>"


class AlterUsers(AdminRequest):
    """Passwords to set and delete: by name and mechanism a ScramUpsert, or None to delete. The results are
    None.
    """

    kind = messages.AlterUserScramCredentialsRequest
    route = CONTROLLER
    max_items = 1  # the answer names the user only

    def __init__(self, items: Mapping[tuple[str, str], ScramUpsert | None]) -> None:
        super().__init__("alter", items)

    def message(self, items: Mapping[tuple[str, str], Any], version: int, timeout_ms: int) -> Message:
        kind = messages.AlterUserScramCredentialsRequest
        deletions = [
            kind.ScramCredentialDeletion(
                name=name, mechanism=number_of(SCRAM_MECHANISMS, "mechanism", mechanism)
            )
            for (name, mechanism), change in items.items()
            if change is None
        ]
        upsertions = [
            kind.ScramCredentialUpsertion(
                name=name,
                mechanism=number_of(SCRAM_MECHANISMS, "mechanism", mechanism),
                iterations=change.iterations,
                salt=change.salt,
                salted_password=change.salted_password,
            )
            for (name, mechanism), change in items.items()
            if change is not None
        ]
        return kind(deletions=deletions, upsertions=upsertions)

    def read(self, answer: Any, items: Mapping[tuple[str, str], Any]) -> Iterable[tuple[Any, Any]]:
        return [
            (key, Refusal(found.error_code, found.error_message) if found.error_code else None)
            for key in items
            for found in answer.results
            if found.user == key[0]
        ]

    def subject(self, key: Any) -> str:
        return f"{key[1]} password of user {key[0]}"


class CreateToken(AdminRequest):
    """A delegation token to make; the only item is None, the result a Token."""

    kind = messages.CreateDelegationTokenRequest
    route = CONTROLLER
    repeats = False  # a repetition makes a second token

    def __init__(self, owner: str | None, renewers: Sequence[str], lifetime_ms: int) -> None:
        super().__init__("create", {None: None})
        self.owner = owner
        self.renewers = renewers
        self.lifetime_ms = lifetime_ms

    def message(self, items: Mapping[Any, None], version: int, timeout_ms: int) -> Message:
        kind = messages.CreateDelegationTokenRequest
        owner: dict[str, str] = {}
        if self.owner is not None:
            if version < features.CREATE_DELEGATION_TOKEN_OWNER:
                raise UnsupportedVersionError(
                    f"the broker makes tokens of this client's own only (CreateDelegationToken version "
                    f"{version}, KIP-373); upgrade it to Kafka 3.3 or newer"
                )
            type, _, name = self.owner.partition(":")
            owner = {"owner_principal_type": type, "owner_principal_name": name}
        renewers = [
            kind.CreatableRenewers(principal_type=type, principal_name=name)
            for type, _, name in (each.partition(":") for each in self.renewers)
        ]
        return kind(renewers=renewers, max_lifetime_ms=self.lifetime_ms, **owner)

    def read(self, answer: Any, items: Mapping[Any, None]) -> Iterable[tuple[Any, Any]]:
        if answer.error_code:
            return refused(items, answer)
        owner = f"{answer.principal_type}:{answer.principal_name}"
        requester = f"{answer.token_requester_principal_type}:{answer.token_requester_principal_name}"
        token = Token(
            answer.token_id,
            answer.hmac,
            owner,
            requester if answer.token_requester_principal_name else owner,
            _time(answer.issue_timestamp_ms),
            _time(answer.expiry_timestamp_ms),
            _time(answer.max_timestamp_ms),
            tuple(self.renewers),
        )
        return [(None, token)]

    def subject(self, key: Any) -> str:
        return "create of a delegation token"


class RenewToken(AdminRequest):
    """A token to renew, or to expire, by its secret; the only item is None, the result the time at which it
    expires. `period_ms` of -1 is the broker's default, or to expire at once.
    """

    kind = messages.RenewDelegationTokenRequest
    route = CONTROLLER

    def __init__(self, hmac: bytes, period_ms: int) -> None:
        super().__init__("renew", {None: None})
        self.hmac = hmac
        self.period_ms = period_ms

    def message(self, items: Mapping[Any, None], version: int, timeout_ms: int) -> Message:
        return messages.RenewDelegationTokenRequest(hmac=self.hmac, renew_period_ms=self.period_ms)

    def read(self, answer: Any, items: Mapping[Any, None]) -> Iterable[tuple[Any, Any]]:
        if answer.error_code:
            return refused(items, answer)
        return [(None, _time(answer.expiry_timestamp_ms))]

    def subject(self, key: Any) -> str:
        return f"{self.name} of a delegation token"


class ExpireToken(RenewToken):
    """A token to expire."""

    kind = messages.ExpireDelegationTokenRequest  # type: ignore[assignment]

    def __init__(self, hmac: bytes, period_ms: int) -> None:
        super().__init__(hmac, period_ms)
        self.name = "expire"

    def message(self, items: Mapping[Any, None], version: int, timeout_ms: int) -> Message:
        return messages.ExpireDelegationTokenRequest(hmac=self.hmac, expiry_time_period_ms=self.period_ms)


class ListTokens(AdminRequest):
    """Tokens that this client may see; the only item is None, the result a tuple of Token. `owners` of None
    are all.
    """

    kind = messages.DescribeDelegationTokenRequest

    def __init__(self, owners: Sequence[str] | None) -> None:
        super().__init__("list", {None: None})
        self.owners = owners

    def message(self, items: Mapping[Any, None], version: int, timeout_ms: int) -> Message:
        kind = messages.DescribeDelegationTokenRequest
        owners = None
        if self.owners is not None:
            owners = [
                kind.DescribeDelegationTokenOwner(principal_type=type, principal_name=name)
                for type, _, name in (each.partition(":") for each in self.owners)
            ]
        return kind(owners=owners)

    def read(self, answer: Any, items: Mapping[Any, None]) -> Iterable[tuple[Any, Any]]:
        if answer.error_code:
            return refused(items, answer)
        return [(None, tuple(sorted(map(_token, answer.tokens), key=lambda token: token.token_id)))]

    def subject(self, key: Any) -> str:
        return "list of delegation tokens"


class NodeTokens(ListTokens):
    """The same, as nodes see them; the items are their ids."""

    route = NODE

    def __init__(self, node_ids: Iterable[int], owners: Sequence[str]) -> None:
        AdminRequest.__init__(self, "list", dict.fromkeys(node_ids))
        self.owners = owners

    def read(self, answer: Any, items: Mapping[Any, None]) -> Iterable[tuple[Any, Any]]:
        return ((node_id, found) for _, found in super().read(answer, items) for node_id in items)


def _token(found: Any) -> Token:
    owner = f"{found.principal_type}:{found.principal_name}"
    requester = f"{found.token_requester_principal_type}:{found.token_requester_principal_name}"
    return Token(
        found.token_id,
        found.hmac,
        owner,
        requester if found.token_requester_principal_name else owner,
        _time(found.issue_timestamp),
        _time(found.expiry_timestamp),
        _time(found.max_timestamp),
        tuple(f"{each.principal_type}:{each.principal_name}" for each in found.renewers),
    )


def _time(timestamp_ms: int) -> datetime:
    # Kafka's longest lifetime is beyond the years of datetime
    return datetime.fromtimestamp(min(max(timestamp_ms, 0) / 1000, 253_402_300_799), UTC)
