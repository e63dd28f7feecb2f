"""Who may do what, and how much: ACLs, quotas, users of SCRAM, delegation tokens.

A password never leaves this process: brokers get its salted hash.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import pbkdf2_hmac
from secrets import token_bytes
from typing import TYPE_CHECKING, Any, Final, overload

from kbatch.admin.base import Part, checked_items, many, only, results_or_failure, text_of
from kbatch.admin.waiting import NODE_SECONDS
from kbatch.core.admin.names import OPERATIONS, PATTERNS, RESOURCES, SCRAM_MECHANISMS, number_of
from kbatch.core.admin.results import Acl, QuotaEntity, ScramInfo, Token
from kbatch.core.admin.security import (
    ANY_ENTITY,
    DEFAULT,
    DEFAULT_ENTITY,
    ENTITY_TYPES,
    EXACT,
    AclFilter,
    AllUsers,
    AlterQuotas,
    AlterUsers,
    CreateAcls,
    CreateToken,
    DeleteAcls,
    DescribeAcls,
    DescribeQuotas,
    DescribeUsers,
    ExpireToken,
    ListTokens,
    NodeTokens,
    RenewToken,
    ScramUpsert,
)
from kbatch.errors import DelegationTokenNotFoundError, KafkaTimeoutError, ResourceNotFoundError
from kbatch.records import check_integer, check_text

if TYPE_CHECKING:
    from kbatch.admin.base import ComputingCaller
    from kbatch.waiting.deadline import Deadline

# Any entity that has this part.
ANY: Final = "<any>"
# The operations that Kafka checks, by resource: brokers accept others, which have no effect.
_OF_RESOURCE: Mapping[str, frozenset[str]] = {
    "topic": frozenset(
        ("Read", "Write", "Create", "Describe", "Delete", "Alter", "DescribeConfigs", "AlterConfigs")
    ),
    "group": frozenset(("Read", "Describe", "Delete", "DescribeConfigs", "AlterConfigs")),
    "cluster": frozenset(
        ("Create", "ClusterAction", "DescribeConfigs", "AlterConfigs", "IdempotentWrite", "Alter", "Describe")
    ),
    "transactional_id": frozenset(("Describe", "Write", "TwoPhaseCommit")),
    "delegation_token": frozenset(("Describe",)),
    "user": frozenset(("CreateTokens", "DescribeTokens")),
}
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
SALT_BYTES = 32
# How often a new token is looked for.
TOKEN_SECONDS = 0.05


class AsyncAcls(Part):
    """Calls about rules of access. They raise KafkaTimeoutError at the deadline (`timeout` in seconds, None
    is default.api.timeout.ms), ClusterAuthorizationError if the ACL Describe or Alter on the cluster is
    missing, and SecurityDisabledError if brokers have no authorizer.
    """

    async def list(
        self,
        filter: AclFilter | None = None,
        *,
        resource: str | None = None,
        name: str | None = None,
        operation: str | None = None,
        principal: str | None = None,
        host: str | None = None,
        pattern: str | None = None,
        allow: bool | None = None,
        timeout: float | None = None,
    ) -> tuple[Acl, ...]:
        """Return the rules that a filter finds, or that have these parts; without any, all rules.

        Parameters
        ----------
        filter : AclFilter or None
        resource, name, operation, principal, host, pattern, allow
            As those of AclFilter. pattern="match" finds every rule that the name is subject to.
        """
        wanted = filter or AclFilter(resource, name, operation, principal, host, pattern, allow)
        found: tuple[Acl, ...] = await self._runtime.await_answer_of(
            DescribeAcls(_checked_filter(wanted)), self._runtime.api_deadline(timeout)
        )
        return found

    async def create(self, acls: Iterable[Acl], *, timeout: float | None = None) -> None:
        """Create rules; one that is there already is left as it is.

        Raises
        ------
        ValueError
            A resource does not have such an operation. Brokers would accept the rule, without an effect.
        PartialFailure
            With InvalidRequestError for a principal or name that is none.
        """
        request = CreateAcls(many("acls", acls, checked_acl))
        await self._results_of(request, self._runtime.api_deadline(timeout))

    async def delete(
        self, filters: Iterable[AclFilter | Acl], *, timeout: float | None = None
    ) -> dict[AclFilter, tuple[Acl, ...] | None]:
        """Delete the rules that filters find, or these rules. Return what was deleted; None if an answer was
        lost, so that this is unknown.
        """
        request = DeleteAcls(many("filters", filters, _filter_of))
        found = await self._results_of(request, self._runtime.api_deadline(timeout))
        return {
            filter: None if filter in request.doubtful and not acls else acls
            for filter, acls in found.items()
        }


def checked_acl(given: Any) -> Acl:
    """Return a rule in the words of brokers. Raise TypeError or ValueError."""
    if not isinstance(given, Acl):
        raise TypeError(f"acls must be Acl, got {given!r}")
    resource = RESOURCES[number_of(RESOURCES, "resource", given.resource)]
    operation = OPERATIONS[number_of(OPERATIONS, "operation", given.operation)]
    known = _OF_RESOURCE.get(resource)
    if known is None:
        raise ValueError(f"a rule must be about one kind of resource, got {given.resource!r}")
    if operation not in known | {"All"}:
        raise ValueError(f"a {resource} does not have {operation}, only {', '.join(sorted(known))}")
    pattern = PATTERNS[number_of(PATTERNS, "pattern", given.pattern)]
    if pattern not in ("literal", "prefixed"):
        raise ValueError(f'the pattern of a rule must be "literal" or "prefixed", got {given.pattern!r}')
    text_of("the name of the resource")(given.name)
    _checked_principal(given.principal)
    return given._replace(resource=resource, operation=operation, pattern=pattern)


def _checked_filter(filter: AclFilter) -> AclFilter:
    filter.numbers()
    for part in ("name", "principal", "host"):
        if (value := getattr(filter, part)) is not None:
            check_text(part, value)
    return filter


def _filter_of(given: Any) -> AclFilter:
    if isinstance(given, Acl):
        return _checked_filter(AclFilter(**given._asdict()))
    if not isinstance(given, AclFilter):
        raise TypeError(f"filters must be AclFilter or Acl, got {given!r}")
    return _checked_filter(given)


def _checked_principal(given: Any) -> str:
    check_text("principal", given)
    kind, colon, name = given.partition(":")
    if not (kind and colon and name):
        raise ValueError(f"a principal must be as User:alice, got {given!r}")
    return str(given)


class AsyncQuotas(Part):
    """Calls about quotas. They raise KafkaTimeoutError at the deadline (`timeout` in seconds, None is
    default.api.timeout.ms) and ClusterAuthorizationError if the ACL DescribeConfigs or AlterConfigs on the
    cluster is missing.
    """

    async def describe(
        self,
        *,
        user: str | None = None,
        client_id: str | None = None,
        ip: str | None = None,
        exact: bool = False,
        timeout: float | None = None,
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return the quotas of entities, such as producer_byte_rate (Kafka 2.6).

        Parameters
        ----------
        user, client_id, ip : str or None
            Only entities with this part: a name, DEFAULT ("<default>") for the default entity, ANY ("<any>")
            for all that have such a part.
        exact : bool
            True for entities that have no other part.
        """
        given = {"user": user, "client_id": client_id, "ip": ip}
        components = [
            (ENTITY_TYPES[part], *_match_of(part, name)) for part, name in given.items() if name is not None
        ]
        found: dict[QuotaEntity, dict[str, float]] = await self._runtime.await_answer_of(
            DescribeQuotas(components, is_exact=exact), self._runtime.api_deadline(timeout)
        )
        return found

    @overload
    async def alter(
        self,
        entity: QuotaEntity,
        set: Mapping[str, float] = ...,
        reset: Iterable[str] = (),
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None: ...
    @overload
    async def alter(
        self,
        entity: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> dict[QuotaEntity, None]: ...
    async def alter(
        self,
        entity: QuotaEntity | Mapping[QuotaEntity, Mapping[str, float | None]],
        set: Mapping[str, float] = {},
        reset: Iterable[str] = (),
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> dict[QuotaEntity, None] | None:
        """Change quotas of an entity, or of several.

        Parameters
        ----------
        entity : QuotaEntity, or mapping of QuotaEntity to mapping of str to float or None
            The name DEFAULT ("<default>") is all without a quota of their own. None takes a quota off.
        set : mapping of str to float
            Such as producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate.
        reset : iterable of str
            Quotas to take off.
        validate_only : bool
            True to check only.

        Raises
        ------
        InvalidRequestError
            The entity, a name or a value is invalid.
        """
        is_one = isinstance(entity, QuotaEntity)
        given: Any = {entity: {**set, **dict.fromkeys(reset)}} if is_one else entity
        items = checked_items("quotas", given, _checked_entity, _checked_quotas)
        request = await self._ask(
            AlterQuotas(items, validate_only=validate_only), self._runtime.api_deadline(timeout)
        )
        if is_one:
            only(request.results, request.errors)
            return None
        return results_or_failure("alter", request.results, request.errors)


def _match_of(part: str, name: str) -> tuple[int, str | None]:
    text_of(part)(name)
    return {ANY: (ANY_ENTITY, None), DEFAULT: (DEFAULT_ENTITY, None)}.get(name, (EXACT, name))


def _checked_entity(given: Any) -> QuotaEntity:
    if not isinstance(given, QuotaEntity) or given == QuotaEntity():
        raise TypeError(f"an entity must be a QuotaEntity with a user, client_id or ip, got {given!r}")
    for part, name in given._asdict().items():
        if name is not None:
            text_of(part)(name)
    return given


def _checked_quotas(given: Any) -> dict[str, float | None]:
    quotas: dict[str, float | None] = {}
    for key, value in given.items():
        text_of("the name of a quota")(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise TypeError(f"{key} must be a number, got {value!r}")
        if value is not None and not math.isfinite(value):
            raise ValueError(f"{key} must be finite, got {value!r}")
        quotas[key] = None if value is None else float(value)
    if not quotas:
        raise ValueError("alter() needs a quota to set or reset")
    return quotas


class AsyncUsers(Part):
    """Calls about users of SCRAM (Kafka 2.7). They raise KafkaTimeoutError at the deadline (`timeout` in
    seconds, None is default.api.timeout.ms) and ClusterAuthorizationError if the ACL Describe or Alter on the
    cluster is missing.
    """

    _runtime: ComputingCaller

    async def describe(
        self, names: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> dict[str, tuple[ScramInfo, ...]]:
        """Return the mechanisms for which users have a password.

        Parameters
        ----------
        names : iterable of str or None
            None for all.

        Raises
        ------
        PartialFailure
            With ResourceNotFoundError for users that there are not.
        """
        deadline = self._runtime.api_deadline(timeout)
        if names is None:
            found: dict[str, tuple[ScramInfo, ...]] = await self._runtime.await_answer_of(
                AllUsers(), deadline
            )
            return found
        return await self._results_of(DescribeUsers(many("names", names, text_of("user"))), deadline)

    async def set(
        self,
        name: str,
        password: str | bytes,
        mechanism: str = "SCRAM-SHA-512",
        iterations: int = 8192,
        *,
        timeout: float | None = None,
    ) -> None:
        """Set a user's password; logins with it work a moment later.

        Parameters
        ----------
        name : str
        password : str or bytes
        mechanism : "SCRAM-SHA-256" or "SCRAM-SHA-512"
        iterations : int
            4,096 to 16,384.

        Raises
        ------
        UnacceptableCredentialError
            The number of iterations is too small or too large.
        """
        text_of("user")(name)
        check_integer("iterations", iterations, 1, 2**31 - 1)
        mechanism = SCRAM_MECHANISMS[number_of(SCRAM_MECHANISMS, "mechanism", mechanism)]
        secret = password.encode() if isinstance(password, str) else password
        if not isinstance(secret, bytes) or not secret:
            raise ValueError("the password must be a str or bytes, and not empty")
        salt = token_bytes(SALT_BYTES)
        # milliseconds of work, during which an event loop must not stand still
        salted = await self._runtime.compute(
            partial(pbkdf2_hmac, _HASHES[mechanism], secret, salt, iterations)
        )
        upsert = ScramUpsert(mechanism, iterations, salt, salted)
        request = AlterUsers({(name, mechanism): upsert})
        await self._runtime.await_answer_of(request, self._runtime.api_deadline(timeout))

    async def delete(self, name: str, mechanism: str, *, timeout: float | None = None) -> None:
        """Delete a user's password for a mechanism.

        Raises
        ------
        ResourceNotFoundError
            There is none.
        """
        text_of("user")(name)
        mechanism = SCRAM_MECHANISMS[number_of(SCRAM_MECHANISMS, "mechanism", mechanism)]
        key = (name, mechanism)
        request = await self._ask(AlterUsers({key: None}), self._runtime.api_deadline(timeout))
        error = request.errors.get(key)
        # an earlier attempt has deleted it
        if error is not None and not (key in request.doubtful and isinstance(error, ResourceNotFoundError)):
            raise error


class AsyncTokens(Part):
    """Calls about delegation tokens (KIP-48). They raise KafkaTimeoutError at the deadline (`timeout` in
    seconds, None is default.api.timeout.ms), and UnsupportedByAuthenticationError unless the connection has
    authenticated with something else than a token.
    """

    async def create(
        self,
        owner: str | None = None,
        renewers: Iterable[str] = (),
        lifetime: timedelta | None = None,
        wait: bool = True,
        *,
        timeout: float | None = None,
    ) -> Token:
        """Make a token. Its `token_id` is a user name for SCRAM, its `hmac` as base64 the password.

        It is not repeated after a lost answer, since that makes a second token.

        Parameters
        ----------
        owner : str or None
            A principal such as User:alice (Kafka 3.3); None for this client's own.
        renewers : iterable of str
            Principals that may renew it, besides the owner.
        lifetime : timedelta or None
            Until when it can be renewed; None for the brokers' maximum.
        wait : bool
            False to return before all brokers know it. One that cannot be reached is not waited for.

        Raises
        ------
        DelegationTokenDisabledError
            The brokers have no delegation.token.secret.key.
        KafkaTimeoutError
            If `possibly_persisted`, there is a token: list and expire it.
        """
        principal = None if owner is None else _checked_principal(owner)
        lifetime_ms = -1 if lifetime is None else int(lifetime.total_seconds() * 1000)
        request = CreateToken(principal, many("renewers", renewers, _checked_principal), lifetime_ms)
        deadline = self._runtime.api_deadline(timeout)
        token: Token = await self._runtime.await_answer_of(request, deadline)
        if wait:
            await self._await_known(token, deadline)
        return token

    async def _await_known(self, token: Token, deadline: Deadline) -> None:
        left = await self._runtime.await_nodes(deadline, "create")
        while True:
            request = await self._ask(NodeTokens(left, [token.owner]), deadline.within(NODE_SECONDS))
            left = [
                node_id
                for node_id, found in request.results.items()
                if all(each.token_id != token.token_id for each in found)
            ]
            if not left:
                return
            if not await self._pause(TOKEN_SECONDS, deadline):
                error = KafkaTimeoutError(
                    f"token {token.token_id} is made, but node {left[0]} does not know it yet"
                )
                raise error.marked(possibly_persisted=True)

    async def renew(
        self, hmac: bytes | str, period: timedelta | None = None, *, timeout: float | None = None
    ) -> datetime:
        """Renew a token, and return when it expires now.

        Parameters
        ----------
        hmac : bytes or str
            The token's secret; base64 if it is a str.
        period : timedelta or None
            How long from now; None for the brokers' default.

        Raises
        ------
        DelegationTokenNotFoundError, DelegationTokenExpiredError, DelegationTokenOwnerMismatchError
            There is no such token; it has expired; this client is neither owner nor renewer.
        """
        request = RenewToken(_secret_of(hmac), _milliseconds(period))
        found: datetime = await self._runtime.await_answer_of(request, self._runtime.api_deadline(timeout))
        return found

    async def expire(
        self, hmac: bytes | str, period: timedelta | None = None, *, timeout: float | None = None
    ) -> datetime:
        """Let a token expire, and return when.

        Parameters
        ----------
        hmac : bytes or str
            The token's secret; base64 if it is a str.
        period : timedelta or None
            How long from now; None for at once.

        Raises
        ------
        DelegationTokenNotFoundError, DelegationTokenOwnerMismatchError
            There is no such token; this client is neither owner nor renewer.
        """
        request = ExpireToken(_secret_of(hmac), _milliseconds(period))
        await self._ask(request, self._runtime.api_deadline(timeout))
        if isinstance(request.error, DelegationTokenNotFoundError) and request.doubtful:
            return datetime.now(UTC)  # an earlier attempt has ended it
        found: datetime = only(request.results, request.errors)
        return found

    async def list(
        self, owners: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> tuple[Token, ...]:
        """Return the tokens that this client owns, may renew or may describe.

        Parameters
        ----------
        owners : iterable of str or None
            Only those of these principals.
        """
        request = ListTokens(None if owners is None else many("owners", owners, _checked_principal))
        found: tuple[Token, ...] = await self._runtime.await_answer_of(
            request, self._runtime.api_deadline(timeout)
        )
        return found


def _secret_of(hmac: bytes | str) -> bytes:
    return base64.b64decode(hmac, validate=True) if isinstance(hmac, str) else bytes(hmac)


def _milliseconds(period: timedelta | None) -> int:
    return -1 if period is None else int(period.total_seconds() * 1000)
