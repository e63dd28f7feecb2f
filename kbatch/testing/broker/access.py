"""Who may do what and log in, by request: ACLs (Kafka's AclApis) and SCRAM users (ScramControlManager)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing.broker.authorizer import (
    ANY,
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.scram import MAX_ITERATIONS, MIN_ITERATIONS, ScramCredential

if TYPE_CHECKING:
    from kbatch.testing.broker.state import BrokerState, Context

MECHANISM_NUMBERS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
Change = (
    messages.AlterUserScramCredentialsRequest.ScramCredentialDeletion
    | messages.AlterUserScramCredentialsRequest.ScramCredentialUpsertion
)
NO_AUTHORIZER = "No Authorizer is configured."


def _authorize_cluster(state: BrokerState, context: Context, operation: Operation) -> None:
    context.check_forced_error()
    state.authorize(context, operation, ResourceType.CLUSTER, CLUSTER_NAME)


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


HANDLERS = {
    messages.DescribeAclsRequest: describe_acls,
    messages.CreateAclsRequest: create_acls,
    messages.DeleteAclsRequest: delete_acls,
    messages.DescribeUserScramCredentialsRequest: describe_user_scram_credentials,
    messages.AlterUserScramCredentialsRequest: alter_user_scram_credentials,
}
