"""Who may do what and log in, by request: ACLs (Kafka's AclApis) and SCRAM users (ScramControlManager)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing.broker.authorizer import (
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


def describe_acls(
    state: BrokerState, request: messages.DescribeAclsRequest, context: Context
) -> messages.DescribeAclsResponse:
    _authorize_cluster(state, context, Operation.DESCRIBE)
    if not state.authorizer.is_there:
        raise BrokerError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    wanted = AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    if not wanted.is_known:
        raise BrokerError(ErrorCode.INVALID_REQUEST)
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
    result = messages.CreateAclsResponse.AclCreationResult

    def create(wanted: messages.CreateAclsRequest.AclCreation, answer: object) -> None:
        _authorize_alter(state, context)
        state.authorizer.add(_new_acl(wanted))

    return messages.CreateAclsResponse(
        results=[context.fill(result(), create, wanted) for wanted in request.creations]
    )


def _authorize_alter(state: BrokerState, context: Context) -> None:
    _authorize_cluster(state, context, Operation.ALTER)
    if not state.authorizer.is_there:
        raise BrokerError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)


def _new_acl(wanted: messages.CreateAclsRequest.AclCreation) -> AclBinding:
    """Return the ACL; raise BrokerError for one that AclApis or AclControlManager refuses."""
    if wanted.resource_type == ResourceType.CLUSTER and wanted.resource_name != CLUSTER_NAME:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
        )
    if not wanted.resource_name:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "Invalid empty resource name")
    kind, separator, name = wanted.principal.partition(":")
    if not kind or not separator or not name:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"expected a string in format principalType:principalName but got {wanted.principal}",
        )
    try:
        acl = AclBinding(
            ResourceType(wanted.resource_type),
            wanted.resource_name,
            wanted.principal,
            Operation(wanted.operation),
            Permission(wanted.permission_type),
            wanted.host,
            PatternType(wanted.resource_pattern_type),
        )
    except ValueError as error:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"Invalid ACL: {error}") from error
    if acl.pattern_type is PatternType.MATCH:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "Invalid patternType MATCH")
    return acl


def delete_acls(
    state: BrokerState, request: messages.DeleteAclsRequest, context: Context
) -> messages.DeleteAclsResponse:
    result = messages.DeleteAclsResponse.DeleteAclsFilterResult

    def delete(
        wanted: messages.DeleteAclsRequest.DeleteAclsFilter,
        answer: messages.DeleteAclsResponse.DeleteAclsFilterResult,
    ) -> None:
        _authorize_alter(state, context)
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
            raise BrokerError(ErrorCode.INVALID_REQUEST, "Filters contain UNKNOWN elements")
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
    _authorize_cluster(state, context, Operation.DESCRIBE)
    counts = Counter([user.name for user in request.users or ()] or state.scram_users.users())
    result = messages.DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
    return messages.DescribeUserScramCredentialsResponse(
        error_message=None,
        results=[
            context.fill(result(user=user, error_message=None), _describe_user, state, count > 1)
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
