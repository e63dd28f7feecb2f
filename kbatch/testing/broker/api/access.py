"""Who may do what and log in, by request: ACLs, users of SCRAM, delegation tokens.

Kafka's AclApis, ScramControlManager, DelegationTokenControlManager
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kbatch.errors import ErrorCode
from kbatch.protocol import features, messages
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.security.authorizer import (
    ANY,
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from kbatch.testing.broker.security.delegation_tokens import RENEW_LIFETIME_MS, DelegationToken
from kbatch.testing.broker.security.scram import MAX_ITERATIONS, MIN_ITERATIONS, ScramCredential

if TYPE_CHECKING:
    from kbatch.testing.broker.broker_state import BrokerState, Context

MECHANISM_NUMBERS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
USER = "User"
Change = (
    messages.AlterUserScramCredentialsRequest.ScramCredentialDeletion
    | messages.AlterUserScramCredentialsRequest.ScramCredentialUpsertion
)
NO_AUTHORIZER = "No Authorizer is configured."


def _authorize_cluster(state: BrokerState, context: Context, operation: Operation) -> None:
    context.check_forced_error()
    state.authorize_cluster(context, operation)


# ACLs


def _filter_of(
    wanted: messages.DescribeAclsRequest | messages.DeleteAclsRequest.DeleteAclsFilter, context: Context
) -> AclFilter:
    acl_filter = AclFilter(
        wanted.resource_type_filter,
        wanted.resource_name_filter,
        wanted.pattern_type_filter,
        wanted.principal_filter,
        wanted.host_filter,
        wanted.operation,
        wanted.permission_type,
    )
    if not acl_filter.is_known:
        context.closes_connection = True
    return acl_filter


def describe_acls(
    state: BrokerState, request: messages.DescribeAclsRequest, context: Context
) -> messages.DescribeAclsResponse:
    wanted = _filter_of(request, context)
    _authorize_cluster(state, context, Operation.DESCRIBE)
    if not state.authorizer.is_there:
        raise BrokerError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    by_pattern: dict[tuple[ResourceType, str, PatternType], list[AclBinding]] = {}
    for acl in state.authorizer.acls():
        if wanted.matches(acl):
            pattern = (acl.resource_type, acl.resource_name, acl.pattern_type)
            by_pattern.setdefault(pattern, []).append(acl)
    described = messages.DescribeAclsResponse.AclDescription
    return messages.DescribeAclsResponse(
        resources=[
            messages.DescribeAclsResponse.DescribeAclsResource(
                resource_type=resource_type,
                resource_name=name,
                pattern_type=pattern_type,
                acls=[
                    described(
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission,
                    )
                    for acl in acls
                ],
            )
            for (resource_type, name, pattern_type), acls in by_pattern.items()
        ]
    )


def create_acls(
    state: BrokerState, request: messages.CreateAclsRequest, context: Context
) -> messages.CreateAclsResponse:
    if not all(map(_is_known, request.creations)):
        context.closes_connection = True
        return messages.CreateAclsResponse()
    result = messages.CreateAclsResponse.AclCreationResult
    try:
        _authorize_alter(state, context)
        acls = [_new_acl(wanted) for wanted in request.creations]
    except BrokerError as error:  # of all of them
        return messages.CreateAclsResponse(
            results=[result(error_code=error.code, error_message=error.message) for _ in request.creations]
        )
    return messages.CreateAclsResponse(
        results=[context.fill(result(error_message=None), _create_acl, state, acl) for acl in acls]
    )


def _authorize_alter(state: BrokerState, context: Context) -> None:
    _authorize_cluster(state, context, Operation.ALTER)
    if not state.authorizer.is_there:
        raise BrokerError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)


def _is_known(wanted: messages.CreateAclsRequest.AclCreation) -> bool:
    """True if each enumeration has a number that Kafka knows; others end the connection."""
    return (
        wanted.resource_type in {ANY, *ResourceType}
        and wanted.resource_pattern_type in {ANY, *PatternType}
        and wanted.operation in {ANY, *Operation}
        and wanted.permission_type in {ANY, *Permission}
    )


def _new_acl(wanted: messages.CreateAclsRequest.AclCreation) -> AclBinding:
    """Return the ACL; Kafka fails on one that leaves something open (AccessControlEntry, ResourcePattern)."""
    pattern_type = wanted.resource_pattern_type
    enumerations = (wanted.resource_type, pattern_type, wanted.operation, wanted.permission_type)
    if ANY in enumerations or pattern_type == PatternType.MATCH:
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR)
    return AclBinding(
        ResourceType(wanted.resource_type),
        wanted.resource_name,
        wanted.principal,
        Operation(wanted.operation),
        Permission(wanted.permission_type),
        wanted.host,
        PatternType(pattern_type),
    )


def _create_acl(
    state: BrokerState, acl: AclBinding, answer: messages.CreateAclsResponse.AclCreationResult
) -> None:
    """Add the ACL, unless AclApis or StandardAcl refuses it."""
    if acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
        )
    if not acl.resource_name:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "Invalid empty resource name")
    if ":" not in acl.principal:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"Could not parse principal from `{acl.principal}`")
    state.authorizer.add(acl)


def delete_acls(
    state: BrokerState, request: messages.DeleteAclsRequest, context: Context
) -> messages.DeleteAclsResponse:
    result = messages.DeleteAclsResponse.DeleteAclsFilterResult

    def delete(
        wanted: messages.DeleteAclsRequest.DeleteAclsFilter,
        answer: messages.DeleteAclsResponse.DeleteAclsFilterResult,
    ) -> None:
        acl_filter = _filter_of(wanted, context)
        _authorize_alter(state, context)
        matching = [acl for acl in state.authorizer.acls() if acl_filter.matches(acl)]
        answer.matching_acls = [_deleted(acl) for acl in matching]
        gone.extend(matching)

    # each filter sees the ACLs from before the request
    gone: list[AclBinding] = []
    results = [context.fill(result(error_message=None), delete, wanted) for wanted in request.filters]
    for acl in gone:
        state.authorizer.remove(acl)
    return messages.DeleteAclsResponse(filter_results=results)


def _deleted(acl: AclBinding) -> messages.DeleteAclsResponse.DeleteAclsMatchingAcl:
    return messages.DeleteAclsResponse.DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


# SCRAM users


def describe_user_scram_credentials(
    state: BrokerState, request: messages.DescribeUserScramCredentialsRequest, context: Context
) -> messages.DescribeUserScramCredentialsResponse:
    result = messages.DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
    names = [user.name for user in request.users or ()]
    try:
        _authorize_cluster(state, context, Operation.DESCRIBE)
    except BrokerError as error:
        refused = [result(error_code=error.code, error_message=None) for _ in names]
        return messages.DescribeUserScramCredentialsResponse(
            error_code=error.code, error_message=error.message, results=refused
        )
    counts = Counter(names or state.scram_users.users())
    return messages.DescribeUserScramCredentialsResponse(
        error_message=None,
        results=[
            context.fill(result(user=user), _describe_user, state, count > 1)
            for user, count in counts.items()
        ],
    )


def _describe_user(
    state: BrokerState,
    is_duplicate: bool,
    answer: messages.DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult,
) -> None:
    if is_duplicate:
        raise BrokerError(
            ErrorCode.DUPLICATE_RESOURCE,
            "Cannot describe SCRAM credentials for the same user twice in a single request: " + answer.user,
        )
    iterations = state.scram_users.iterations(answer.user)
    if not iterations:
        raise BrokerError(
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to describe a user credential that does not exist: " + answer.user,
        )
    info = messages.DescribeUserScramCredentialsResponse.CredentialInfo
    answer.credential_infos = [
        info(mechanism=number, iterations=iterations[mechanism])
        for number, mechanism in MECHANISM_NUMBERS.items()
        if mechanism in iterations
    ]


def alter_user_scram_credentials(
    state: BrokerState, request: messages.AlterUserScramCredentialsRequest, context: Context
) -> messages.AlterUserScramCredentialsResponse:
    """Change the credentials of each user, once a request."""
    changes: list[Change] = [*request.deletions, *request.upsertions]
    counts = Counter(change.name for change in changes)
    result = messages.AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult

    def alter(change: Change, answer: object) -> None:
        _authorize_cluster(state, context, Operation.ALTER)
        _alter_user(state, change, counts)

    by_user = {change.name: change for change in changes}
    return messages.AlterUserScramCredentialsResponse(
        results=[
            context.fill(result(user=user, error_message=None), alter, change)
            for user, change in by_user.items()
        ]
    )


def _alter_user(state: BrokerState, change: Change, counts: Counter[str]) -> None:
    mechanism = MECHANISM_NUMBERS.get(change.mechanism)
    if counts[change.name] > 1:
        raise BrokerError(
            ErrorCode.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        )
    if not change.name:
        raise BrokerError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if mechanism is None:
        raise BrokerError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    users = state.scram_users
    if isinstance(change, messages.AlterUserScramCredentialsRequest.ScramCredentialDeletion):
        if mechanism not in users.iterations(change.name):
            raise BrokerError(
                ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
            )
        users.remove(change.name, mechanism)
        return
    if not MIN_ITERATIONS <= change.iterations <= MAX_ITERATIONS:
        few = change.iterations < MIN_ITERATIONS
        raise BrokerError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations" if few else "Too many iterations"
        )
    salted_password, salt = bytes(change.salted_password), bytes(change.salt)
    users.set(
        change.name,
        mechanism,
        ScramCredential.of_salted_password(mechanism, salted_password, salt, change.iterations),
    )


# Delegation tokens


def _authorize_token_request(state: BrokerState, context: Context) -> None:
    """Refuse clients that did not log in, or did so by a token (KafkaApis.allowTokenRequests)."""
    context.check_forced_error()
    session = context.connection.session
    if session.user is None or session.is_by_token:
        raise BrokerError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def create_delegation_token(
    state: BrokerState, request: messages.CreateDelegationTokenRequest, context: Context
) -> messages.CreateDelegationTokenResponse:
    requester = context.connection.principal
    owner = requester
    if request.owner_principal_name:
        owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
    response = messages.CreateDelegationTokenResponse(
        issue_timestamp_ms=-1, expiry_timestamp_ms=-1, max_timestamp_ms=-1
    )
    _name_principals(response, owner, requester, context)
    return context.fill(response, _create_token, state, request, context, owner)


def _create_token(
    state: BrokerState,
    request: messages.CreateDelegationTokenRequest,
    context: Context,
    owner: str,
    response: messages.CreateDelegationTokenResponse,
) -> None:
    _authorize_token_request(state, context)
    requester = context.connection.principal
    if owner != requester:
        state.authorize(context, Operation.CREATE_TOKENS, ResourceType.USER, owner)
    if any(renewer.principal_type != USER for renewer in request.renewers):
        raise BrokerError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    renewers = tuple(f"{USER}:{renewer.principal_name}" for renewer in request.renewers)
    tokens = state.delegation_tokens
    token = tokens.create(owner, requester, renewers, request.max_lifetime_ms, context.now_ms)
    response.token_id, response.hmac = token.token_id, token.hmac
    response.issue_timestamp_ms = token.issued_ms
    response.expiry_timestamp_ms, response.max_timestamp_ms = token.expires_ms, token.max_ms


def renew_delegation_token(
    state: BrokerState, request: messages.RenewDelegationTokenRequest, context: Context
) -> messages.RenewDelegationTokenResponse:
    _authorize_token_request(state, context)
    token = state.delegation_tokens.by_hmac(bytes(request.hmac))
    _check_not_expired(token, context)
    _check_renewer(token, context)
    period_ms = RENEW_LIFETIME_MS
    if request.renew_period_ms > 0:
        period_ms = min(period_ms, request.renew_period_ms)
    token.expires_ms = min(token.max_ms, context.now_ms + period_ms)
    return messages.RenewDelegationTokenResponse(expiry_timestamp_ms=token.expires_ms)


def expire_delegation_token(
    state: BrokerState, request: messages.ExpireDelegationTokenRequest, context: Context
) -> messages.ExpireDelegationTokenResponse:
    """Set the time at which the token expires; a negative one is now."""
    _authorize_token_request(state, context)
    token = state.delegation_tokens.by_hmac(bytes(request.hmac))
    _check_renewer(token, context)
    if request.expiry_time_period_ms < 0:
        state.delegation_tokens.remove(token)
        return messages.ExpireDelegationTokenResponse(expiry_timestamp_ms=context.now_ms)
    _check_not_expired(token, context)
    token.expires_ms = min(token.max_ms, context.now_ms + request.expiry_time_period_ms)
    return messages.ExpireDelegationTokenResponse(expiry_timestamp_ms=token.expires_ms)


def _check_not_expired(token: DelegationToken, context: Context) -> None:
    if token.is_expired(context.now_ms):
        raise BrokerError(ErrorCode.DELEGATION_TOKEN_EXPIRED)


def _check_renewer(token: DelegationToken, context: Context) -> None:
    if not token.may_be_renewed_by(context.connection.principal):
        raise BrokerError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def describe_delegation_token(
    state: BrokerState, request: messages.DescribeDelegationTokenRequest, context: Context
) -> messages.DescribeDelegationTokenResponse:
    """Return the tokens of the named owners that the client may see."""
    _authorize_token_request(state, context)
    owners = None
    if request.owners is not None:
        owners = {f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners}
    return messages.DescribeDelegationTokenResponse(
        tokens=[
            _described_token(token, context)
            for token in state.delegation_tokens.all(context.now_ms)
            if (owners is None or token.owner in owners) and _may_see(state, context, token)
        ]
    )


def _may_see(state: BrokerState, context: Context, token: DelegationToken) -> bool:
    return (
        token.may_be_renewed_by(context.connection.principal)
        or state.allows(context, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
        or state.allows(context, Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
    )


def _described_token(
    token: DelegationToken, context: Context
) -> messages.DescribeDelegationTokenResponse.DescribedDelegationToken:
    kind = messages.DescribeDelegationTokenResponse
    described = kind.DescribedDelegationToken(
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=token.hmac,
        renewers=[
            kind.DescribedDelegationTokenRenewer(principal_type=USER, principal_name=renewer[5:])
            for renewer in token.renewers
        ],
    )
    _name_principals(described, token.owner, token.requester, context)
    return described


def _name_principals(
    answer: messages.CreateDelegationTokenResponse
    | messages.DescribeDelegationTokenResponse.DescribedDelegationToken,
    owner: str,
    requester: str,
    context: Context,
) -> None:
    answer.principal_type, _, answer.principal_name = owner.partition(":")
    if context.version >= features.DESCRIBE_DELEGATION_TOKEN_REQUESTER:
        kind, _, name = requester.partition(":")
        answer.token_requester_principal_type, answer.token_requester_principal_name = kind, name


HANDLERS = {
    messages.DescribeAclsRequest: describe_acls,
    messages.CreateAclsRequest: create_acls,
    messages.DeleteAclsRequest: delete_acls,
    messages.DescribeUserScramCredentialsRequest: describe_user_scram_credentials,
    messages.AlterUserScramCredentialsRequest: alter_user_scram_credentials,
    messages.CreateDelegationTokenRequest: create_delegation_token,
    messages.RenewDelegationTokenRequest: renew_delegation_token,
    messages.ExpireDelegationTokenRequest: expire_delegation_token,
    messages.DescribeDelegationTokenRequest: describe_delegation_token,
}
