"""Client quotas by request: DescribeClientQuotas, AlterClientQuotas (KIP-546)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.controller.quotas import (
    DEFAULT,
    IP,
    TYPES,
    Filter,
    check_limit,
    checked_entity,
    described,
)
from kbatch.testing.broker.security.authorizer import Operation

if TYPE_CHECKING:
    from kbatch.testing.broker.broker_state import BrokerState, Context

EXACT, DEFAULT_ONLY, ANY = range(3)
Component = messages.DescribeClientQuotasRequest.ComponentData
Changed = messages.AlterClientQuotasResponse.EntryData


def describe_client_quotas(
    state: BrokerState, request: messages.DescribeClientQuotasRequest, context: Context
) -> messages.DescribeClientQuotasResponse:
    kind = messages.DescribeClientQuotasResponse
    try:
        context.check_forced_error()
        state.authorize_cluster(context, Operation.DESCRIBE_CONFIGS)
        filters = _filters(request.components)
    except BrokerError as error:
        return kind(error_code=error.code, error_message=error.message, entries=None)
    entries = [
        kind.EntryData(
            entity=[kind.EntityData(entity_type=each, entity_name=name) for each, name in entity],
            values=[kind.ValueData(key=key, value=value) for key, value in limits.items()],
        )
        for entity, limits in described(state.cluster.quotas, filters, strict=request.strict)
    ]
    return kind(error_message="", entries=entries)


def _filters(components: Iterable[Component]) -> list[Filter]:
    """ClientQuotasImage.describe"""
    filters: dict[str, Filter] = {}
    for component in components:
        kind = component.entity_type
        if not kind:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in filters:
            text = f"Entity type {kind} cannot appear more than once in the filter."
            raise BrokerError(ErrorCode.INVALID_REQUEST, text)
        if kind not in TYPES:
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        filters[kind] = Filter(kind, _matches(component))
    if IP in filters and len(filters) > 1:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user "
            "or clientId filter component.",
        )
    return list(filters.values())


def _matches(component: Component) -> Callable[[str | None], bool]:
    name = component.match
    if component.match_type == EXACT:
        if name is None:
            text = "Request specified MATCH_TYPE_EXACT, but set match string to null."
            raise BrokerError(ErrorCode.INVALID_REQUEST, text)
        return lambda found: found == name
    if component.match_type not in (DEFAULT_ONLY, ANY):
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")
    if name is not None:
        kind = "DEFAULT" if component.match_type == DEFAULT_ONLY else "SPECIFIED"
        text = f"Request specified MATCH_TYPE_{kind}, but also specified a match string."
        raise BrokerError(ErrorCode.INVALID_REQUEST, text)
    return (lambda found: found is DEFAULT) if component.match_type == DEFAULT_ONLY else (lambda found: True)


def alter_client_quotas(
    state: BrokerState, request: messages.AlterClientQuotasRequest, context: Context
) -> messages.AlterClientQuotasResponse:
    """Change the limits of each entity, all of them or none."""
    kind = messages.AlterClientQuotasResponse
    with state.cluster.saved_once():
        return kind(
            entries=[
                context.fill(
                    Changed(error_message=None, entity=_named(entry)),
                    _alter,
                    state,
                    entry,
                    request.validate_only,
                    context,
                )
                for entry in request.entries
            ]
        )


def _named(
    entry: messages.AlterClientQuotasRequest.EntryData,
) -> list[messages.AlterClientQuotasResponse.EntityData]:
    names = {each.entity_type: each.entity_name for each in entry.entity}
    order = [*filter(names.__contains__, TYPES), *(each for each in names if each not in TYPES)]
    kind = messages.AlterClientQuotasResponse.EntityData
    return [kind(entity_type=each, entity_name=names[each]) for each in order]


def _alter(
    state: BrokerState,
    entry: messages.AlterClientQuotasRequest.EntryData,
    validate_only: bool,
    context: Context,
    answer: Changed,
) -> None:
    state.authorize_cluster(context, Operation.ALTER_CONFIGS)
    entity = checked_entity({each.entity_type: each.entity_name for each in entry.entity})
    limits = {each.key: None if each.remove else each.value for each in entry.ops}
    for key, value in limits.items():
        check_limit(entity, key, value)
    if not validate_only:
        state.cluster.change_quotas(entity, limits)


HANDLERS = {
    messages.DescribeClientQuotasRequest: describe_client_quotas,
    messages.AlterClientQuotasRequest: alter_client_quotas,
}
