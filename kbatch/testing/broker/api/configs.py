"""Configs by request: DescribeConfigs of topics, nodes, groups and subscriptions to metrics; AlterConfigs,
also incremental, of them.

After org.apache.kafka.controller.ConfigurationControlManager and ConfigAdminManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kbatch.errors import ErrorCode
from kbatch.protocol import features, messages
from kbatch.testing.broker.api.items import each_item
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.cluster import EVERY_BROKER, check_topic_name, config_of
from kbatch.testing.broker.controller.controller import MIN_ISR, UNCLEAN_ELECTION
from kbatch.testing.broker.groups.group_configs import KEYS as GROUP_KEYS
from kbatch.testing.broker.logs.topic_config import TOPIC_CONFIGS, TopicConfig, broker_default
from kbatch.testing.broker.metric_subscriptions import KEYS as SUBSCRIPTION_KEYS
from kbatch.testing.broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from kbatch.testing.broker.broker_state import BrokerState, Context

TOPIC_RESOURCE, BROKER_RESOURCE, LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE = 2, 4, 8, 16, 32
DYNAMIC_TOPIC_CONFIG, DYNAMIC_BROKER_CONFIG, DYNAMIC_DEFAULT_CONFIG = 1, 2, 3
STATIC_BROKER_CONFIG, DEFAULT_CONFIG, CLIENT_METRICS_CONFIG, GROUP_CONFIG = 4, 5, 7, 8
CONFIG_TYPES = {"boolean": 1, "string": 2, "int": 3, "long": 5, "double": 6, "list": 7}
# The configs of brokers that can be set while they run, and have an effect here.
DYNAMIC_CONFIGS = frozenset({MIN_ISR, UNCLEAN_ELECTION})
SET, DELETE, APPEND, SUBTRACT = range(4)
OPERATIONS = {SET: "SET", DELETE: "DELETE", APPEND: "APPEND", SUBTRACT: "SUBTRACT"}

Described = messages.DescribeConfigsResponse.DescribeConfigsResourceResult
Synonym = messages.DescribeConfigsResponse.DescribeConfigsSynonym


# Descriptions


@each_item(
    "results",
    messages.DescribeConfigsResponse.DescribeConfigsResult,
    "resources",
    "resource_type",
    "resource_name",
)
def describe_configs(
    state: BrokerState,
    request: messages.DescribeConfigsRequest,
    context: Context,
    resource: messages.DescribeConfigsRequest.DescribeConfigsResource,
    result: messages.DescribeConfigsResponse.DescribeConfigsResult,
) -> None:
    if resource.resource_type == TOPIC_RESOURCE:
        state.authorize(context, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, resource.resource_name)
    elif resource.resource_type == GROUP_RESOURCE:
        state.authorize(context, Operation.DESCRIBE_CONFIGS, ResourceType.GROUP, resource.resource_name)
    else:
        state.authorize_cluster(context, Operation.DESCRIBE_CONFIGS)
    keys = resource.configuration_keys
    configs = _configs_of(state, resource, context.node_id)
    result.configs = [config for config in configs if not keys or config.name in keys]
    if not request.include_synonyms:
        for config in result.configs:
            config.synonyms = []


def _configs_of(
    state: BrokerState, resource: messages.DescribeConfigsRequest.DescribeConfigsResource, node_id: int
) -> list[Described]:
    if resource.resource_type == TOPIC_RESOURCE:
        check_topic_name(resource.resource_name)
        topic = state.cluster.topics.get(resource.resource_name)
        if topic is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic_configs(topic.config)
    if resource.resource_type == GROUP_RESOURCE:
        if not resource.resource_name:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return group_configs(state, resource.resource_name)
    if resource.resource_type == CLIENT_METRICS_RESOURCE:
        if not resource.resource_name:
            text = "Client metrics subscription name must not be empty"
            raise BrokerError(ErrorCode.INVALID_REQUEST, text)
        return subscription_configs(state, resource.resource_name)
    if resource.resource_type == BROKER_RESOURCE:
        return broker_configs(state, resource.resource_name, node_id)
    raise BrokerError(
        ErrorCode.INVALID_REQUEST, f"Resource type {resource.resource_type} is not described here."
    )


def broker_configs(state: BrokerState, name: str, node_id: int) -> list[Described]:
    """Return the configs of a node, or with the name "" those that are set for all."""
    if name == EVERY_BROKER:
        for_all = state.cluster.broker_overrides.get(name, {})
        return [_described_broker_config(state, key, name) for key in for_all]
    if _broker_id(name, "Broker id") != node_id:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {node_id} or empty string, but received {name}",
        )
    own = state.cluster.broker_overrides.get(name, {})
    names = dict.fromkeys((*state.options.broker_configs(), *own))
    return [_described_broker_config(state, key, name) for key in names]


def _described_broker_config(state: BrokerState, key: str, broker: str) -> Described:
    """Describe a config by what is set for the broker, for every broker, and at its start, in this order.

    Kafka takes what it does not know for a secret.
    """
    static = state.options.broker_configs().get(key)
    if static is None:
        source = DYNAMIC_DEFAULT_CONFIG if broker == EVERY_BROKER else DYNAMIC_BROKER_CONFIG
        return Described(
            name=key,
            value=None,
            config_source=source,
            is_sensitive=True,
            read_only=True,
            synonyms=[Synonym(name=key, value=None, source=source)],
            documentation=None,
        )
    values = [(EVERY_BROKER, DYNAMIC_DEFAULT_CONFIG)]
    if broker != EVERY_BROKER:
        values.insert(0, (broker, DYNAMIC_BROKER_CONFIG))
    synonyms = [
        Synonym(name=key, value=value, source=source)
        for name, source in values
        if (value := state.cluster.broker_overrides.get(name, {}).get(key)) is not None
    ]
    synonyms.append(Synonym(name=key, value=str(static).lower(), source=STATIC_BROKER_CONFIG))
    kind = "boolean" if isinstance(static, bool) else "int"
    return _described(key, synonyms[0].value or "", kind, synonyms, read_only=key not in DYNAMIC_CONFIGS)


def _broker_id(name: str, what: str) -> int:
    try:
        return int(name)
    except ValueError:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"{what} must be an integer, but it is: {name}"
        ) from None


def topic_configs(config: TopicConfig) -> list[Described]:
    """Return all configs of a topic. Synonyms say where a value comes from: the first that is set counts."""
    described = []
    for name, value in config.items():
        synonyms = []
        if name in config.overrides:
            synonyms.append(Synonym(name=name, value=value, source=DYNAMIC_TOPIC_CONFIG))
        if found := broker_default(name):
            synonyms.append(Synonym(name=found[0], value=found[1], source=DEFAULT_CONFIG))
        described.append(_described(name, value, TOPIC_CONFIGS[name].kind, synonyms))
    return described


def group_configs(state: BrokerState, group_id: str) -> list[Described]:
    """Return all configs of a group, also of one that does not exist, with the broker's own settings."""
    configs = state.group_configs
    described = []
    for name, key in GROUP_KEYS.items():
        synonyms = []
        if (value := configs.overrides(group_id).get(name)) is not None:
            synonyms.append(Synonym(name=name, value=value, source=GROUP_CONFIG))
        if (twin := configs.twin(name)) is not None:
            synonyms.append(Synonym(name=f"group.{name}", value=twin, source=STATIC_BROKER_CONFIG))
        twin_name = f"group.{name}" if key.has_twin else name
        synonyms.append(Synonym(name=twin_name, value=key.default, source=DEFAULT_CONFIG))
        described.append(_described(name, configs.value(group_id, name), key.kind, synonyms))
    return described


def subscription_configs(state: BrokerState, name: str) -> list[Described]:
    """Return all configs of a subscription to metrics, also of one that does not exist."""
    overrides = state.metric_subscriptions.stored.of(name)
    described = []
    for key, (kind, default) in SUBSCRIPTION_KEYS.items():
        synonyms = [Synonym(name=key, value=default, source=DEFAULT_CONFIG)]
        if key in overrides:
            synonyms.insert(0, Synonym(name=key, value=overrides[key], source=CLIENT_METRICS_CONFIG))
        described.append(_described(key, overrides.get(key, default), kind, synonyms))
    return described


def _described(
    name: str, value: str, kind: str, synonyms: list[Synonym], *, read_only: bool = False
) -> Described:
    return Described(
        name=name,
        value=value,
        config_source=synonyms[0].source if synonyms else DEFAULT_CONFIG,
        config_type=CONFIG_TYPES[kind],
        read_only=read_only,
        synonyms=synonyms,
        documentation=None,
    )


def list_config_resources(
    state: BrokerState, request: messages.ListConfigResourcesRequest, context: Context
) -> messages.ListConfigResourcesResponse:
    """Return the resources that have or can have configs, of the types given; none means all (KIP-1142).

    Raises BrokerError UNSUPPORTED_VERSION for a type that Kafka does not list.
    """
    context.check_forced_error()
    state.authorize_cluster(context, Operation.DESCRIBE_CONFIGS)
    nodes = [str(node.node_id) for node in state.cluster.running_nodes]
    names = {
        TOPIC_RESOURCE: list(state.cluster.topics),
        BROKER_RESOURCE: nodes,
        LOGGER_RESOURCE: nodes,
        CLIENT_METRICS_RESOURCE: state.metric_subscriptions.stored.names,
        GROUP_RESOURCE: state.group_configs.group_ids,
    }
    by_type = context.version >= features.LIST_CONFIG_RESOURCES_KINDS
    wanted = list(dict.fromkeys(request.resource_types)) if by_type else [CLIENT_METRICS_RESOURCE]
    if not set(wanted) <= names.keys():
        raise BrokerError(ErrorCode.UNSUPPORTED_VERSION)
    kind = messages.ListConfigResourcesResponse
    return kind(
        config_resources=[
            kind.ConfigResource(resource_name=name, resource_type=resource_type)
            for resource_type in wanted or names
            for name in names[resource_type]
        ]
    )


# Changes


def alter_configs(
    state: BrokerState, request: messages.AlterConfigsRequest, context: Context
) -> messages.AlterConfigsResponse:
    """Replace all configs of each resource."""
    response = messages.AlterConfigsResponse()
    response.responses = _altered(state, request, response.AlterConfigsResourceResponse, _replaced, context)
    return response


def incremental_alter_configs(
    state: BrokerState, request: messages.IncrementalAlterConfigsRequest, context: Context
) -> messages.IncrementalAlterConfigsResponse:
    """Change the named configs of each resource: all of them, or none after an error (KIP-339)."""
    response = messages.IncrementalAlterConfigsResponse()
    response.responses = _altered(state, request, response.AlterConfigsResourceResponse, _changed, context)
    return response


class Configured(NamedTuple):
    """A resource whose configs can be changed.

    Attributes
    ----------
    overrides : mapping
        Its configs that are set.
    lists : mapping of str to (str or None)
        The keys that are lists, with their defaults.
    change : callable
        Checks all configs, as they are to be, and returns what sets them; raises BrokerError.
    """

    overrides: Mapping[str, str | None]
    lists: Mapping[str, str | None]
    change: Callable[[dict[str, str | None]], Callable[[], None]]


def _configured_topic(state: BrokerState, name: str) -> Configured:
    check_topic_name(name)
    topic = state.cluster.topics.get(name)
    if topic is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")

    def change(overrides: dict[str, str | None]) -> Callable[[], None]:
        config = config_of(overrides)
        return lambda: state.cluster.change_config(topic, config)

    lists = {key: row.default for key, row in TOPIC_CONFIGS.items() if row.kind == "list"}
    return Configured(topic.config.overrides, lists, change)


def _configured_group(state: BrokerState, name: str) -> Configured:
    if not name:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")

    def change(overrides: dict[str, str | None]) -> Callable[[], None]:
        try:
            checked = state.group_configs.checked(overrides)
        except ValueError as error:
            raise BrokerError(ErrorCode.INVALID_CONFIG, str(error)) from error
        return lambda: state.group_configs.change(name, checked)

    return Configured(state.group_configs.overrides(name), {}, change)


def _configured_subscription(state: BrokerState, name: str) -> Configured:
    stored = state.metric_subscriptions.stored

    def change(overrides: dict[str, str | None]) -> Callable[[], None]:
        checked = state.metric_subscriptions.checked(name, overrides)
        return lambda: stored.change(name, checked)

    return Configured(stored.of(name), {}, change)


def _configured_broker(state: BrokerState, name: str) -> Configured:
    """Find the configs of a broker, or with the name "" those of all.

    Raises BrokerError for a broker that is not there. A config that is unknown is taken, and has no effect.
    """
    if name != EVERY_BROKER and _broker_id(name, "Node id") not in range(len(state.cluster.nodes)):
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"No broker with id {name}; choose 0 to {len(state.cluster.nodes) - 1}.",
        )

    def change(overrides: dict[str, str | None]) -> Callable[[], None]:
        before = state.cluster.broker_overrides.get(name, {})
        _check_broker_configs(state, name, before, overrides)
        return lambda: state.cluster.change_broker_configs(name, overrides)

    return Configured(state.cluster.broker_overrides.get(name, {}), {}, change)


def _check_broker_configs(
    state: BrokerState,
    name: str,
    before: Mapping[str, str | None],
    overrides: Mapping[str, str | None],
) -> None:
    known = state.options.broker_configs().keys()
    static = [key for key in overrides if key in known and key not in DYNAMIC_CONFIGS]
    if static:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{', '.join(static)}]"
        )
    try:
        TopicConfig.of({key: value for key, value in overrides.items() if key in DYNAMIC_CONFIGS})
    except ValueError as error:
        raise BrokerError(ErrorCode.INVALID_REQUEST, str(error)) from error
    if state.options.eligible_leader_replicas and before.get(MIN_ISR) != overrides.get(MIN_ISR):
        if name != EVERY_BROKER:
            text = "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
            raise BrokerError(ErrorCode.INVALID_CONFIG, text)
        if MIN_ISR not in overrides:
            text = "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
            raise BrokerError(ErrorCode.INVALID_CONFIG, text)


# What finds a resource, by its type, and what it is to the authorizer.
CONFIGURED = {
    TOPIC_RESOURCE: (_configured_topic, ResourceType.TOPIC),
    BROKER_RESOURCE: (_configured_broker, ResourceType.CLUSTER),
    GROUP_RESOURCE: (_configured_group, ResourceType.GROUP),
    CLIENT_METRICS_RESOURCE: (_configured_subscription, ResourceType.CLUSTER),
}


def change_configs(
    state: BrokerState, resource_type: int, name: str, changes: Mapping[str, str], reset: Iterable[str]
) -> None:
    """Set configs of a resource and reset others; raise BrokerError, having changed nothing."""
    target = CONFIGURED[resource_type][0](state, name)
    dropped = set(reset)
    overrides = {key: value for key, value in target.overrides.items() if key not in dropped}
    target.change({**overrides, **changes})()


def _altered(
    state: BrokerState,
    request: Any,
    result: Any,
    overrides_of: Callable[[Configured, Any], dict[str, str | None]],
    context: Context,
) -> list[Any]:
    counts = Counter((each.resource_type, each.resource_name) for each in request.resources)
    with state.cluster.saved_once():
        return [
            context.fill(
                result(
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    error_message=None,
                ),
                _alter_resource,
                state,
                resource,
                counts[resource.resource_type, resource.resource_name] > 1,
                overrides_of,
                request.validate_only,
                context,
            )
            for resource in request.resources
        ]


def _alter_resource(
    state: BrokerState,
    resource: Any,
    is_duplicate: bool,
    overrides_of: Callable[[Configured, Any], dict[str, str | None]],
    validate_only: bool,
    context: Context,
    result: Any,
) -> None:
    if is_duplicate:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    if len({each.name for each in resource.configs}) < len(resource.configs):
        raise BrokerError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if resource.resource_type not in CONFIGURED:
        state.authorize_cluster(context, Operation.ALTER_CONFIGS)
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"Resources of type {resource.resource_type} cannot be changed here."
        )
    find, kind = CONFIGURED[resource.resource_type]
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else resource.resource_name
    state.authorize(context, Operation.ALTER_CONFIGS, kind, name)
    target = find(state, resource.resource_name)
    apply = target.change(overrides_of(target, resource))
    if not validate_only:
        apply()


def _replaced(target: Configured, resource: Any) -> dict[str, str | None]:
    _check_values(resource.configs)
    return {each.name: each.value for each in resource.configs}


def _changed(target: Configured, resource: Any) -> dict[str, str | None]:
    for each in resource.configs:
        if each.config_operation not in OPERATIONS:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"Unknown operation {each.config_operation} of {each.name}."
            )
    _check_values([each for each in resource.configs if each.config_operation != DELETE])
    overrides: dict[str, str | None] = dict(target.overrides)
    for each in resource.configs:
        if each.config_operation == DELETE:
            overrides.pop(each.name, None)
        elif each.config_operation == SET:
            overrides[each.name] = each.value
        else:
            overrides[each.name] = _with_items(target.lists, overrides.get(each.name), each)
    return overrides


def _check_values(configs: list[Any]) -> None:
    if missing := [each.name for each in configs if each.value is None]:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(missing)}")


def _with_items(lists: Mapping[str, str | None], value: str | None, change: Any) -> str:
    """Return the list with the items of the change, or without them."""
    if change.name not in lists:
        raise BrokerError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {OPERATIONS[change.config_operation]} to key {change.name} because its type is not LIST.",
        )
    text = lists[change.name] if value is None else value
    items = [item for item in (text or "").split(",") if item]
    for item in change.value.split(","):
        if change.config_operation == APPEND and item not in items:
            items.append(item)
        elif change.config_operation == SUBTRACT and item in items:
            items.remove(item)
    return ",".join(items)


HANDLERS = {
    messages.DescribeConfigsRequest: describe_configs,
    messages.AlterConfigsRequest: alter_configs,
    messages.IncrementalAlterConfigsRequest: incremental_alter_configs,
    messages.ListConfigResourcesRequest: list_config_resources,
}
