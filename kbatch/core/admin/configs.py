"""Requests about configurations of topics, brokers, groups and the like."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kbatch.core.admin.names import CONFIG_RESOURCES, CONFIG_SOURCES, CONFIG_TYPES, UNKNOWN, number_of
from kbatch.core.admin.results import ConfigEntry, ConfigResource, ConfigSynonym
from kbatch.core.client.admin_requests import AdminRequest, Refusal, refused
from kbatch.core.client.routes import ANY, CONTROLLER, NODE, ByDestination, Paths, Route
from kbatch.errors import UnsupportedVersionError
from kbatch.protocol import features, messages

if TYPE_CHECKING:
    from kbatch.protocol.structs import Message

SET, RESET, APPEND, SUBTRACT = range(4)


class _ResourceRoute(Route):
    """Resources of one broker go to it, others to any node or to the controller."""

    def __init__(self, otherwise: Route) -> None:
        self._otherwise = otherwise

    def _route(self, node_id: int | None) -> Route:
        return self._otherwise if node_id is None else NODE

    def destinations(self, items: dict[ConfigResource, Any], paths: Paths, now_ns: int) -> ByDestination:
        found: ByDestination = {}
        for key, payload in items.items():
            found.setdefault(_node_of(key), {})[key] = payload
        return found

    def node_of(self, destination: int | None, *given: Any, **options: Any) -> int | None:
        return self._route(destination).node_of(destination, *given, **options)

    def forget(self, key: ConfigResource, *given: Any) -> None:
        self._route(_node_of(key)).forget(key, *given)


def _node_of(resource: ConfigResource) -> int | None:
    """Return the id of the broker whose resource it is; None if it is no broker's."""
    is_own = resource.kind in ("broker", "broker_logger") and resource.name
    return int(resource.name) if is_own else None


class _ResourceRequest(AdminRequest):
    """A request about resources."""

    def subject(self, key: Any) -> str:
        return f"{self.name} of {key}"


class DescribeConfigs(_ResourceRequest):
    """Configurations of resources, by the names of the settings, or None for all; the results are dicts of
    str to ConfigEntry.
    """

    kind = messages.DescribeConfigsRequest
    route = _ResourceRoute(ANY)
    repeated = frozenset({"configs"})  # most settings of a topic are those of the others

    def __init__(
        self,
        items: Mapping[ConfigResource, Sequence[str] | None],
        *,
        synonyms: bool = False,
        documentation: bool = False,
    ) -> None:
        super().__init__("describe", items)
        self.synonyms = synonyms
        self.documentation = documentation

    def message(self, items: Mapping[ConfigResource, Any], version: int, timeout_ms: int) -> Message:
        kind = messages.DescribeConfigsRequest
        resources = [
            kind.DescribeConfigsResource(
                resource_type=_number(resource),
                resource_name=resource.name,
                configuration_keys=None if names is None else list(names),
            )
            for resource, names in items.items()
        ]
        return kind(
            resources=resources,
            include_synonyms=self.synonyms,
            include_documentation=self.documentation and version >= features.DESCRIBE_CONFIGS_DOCUMENTATION,
        )

    def read(self, answer: Any, items: Mapping[ConfigResource, Any]) -> Iterable[tuple[ConfigResource, Any]]:
        rows: dict[int, tuple[str, ConfigEntry]] = {}  # by the identity of what was read: many are one object
        for found in answer.results:
            resource = _resource(found)
            if found.error_code:
                yield resource, Refusal(found.error_code, found.error_message)
                continue
            for each in found.configs:
                if id(each) not in rows:
                    rows[id(each)] = (each.name, _entry(each))
            yield resource, dict(map(rows.__getitem__, map(id, found.configs)))


def _entry(found: Any) -> ConfigEntry:
    return ConfigEntry(
        found.name,
        found.value,
        CONFIG_SOURCES.get(found.config_source, UNKNOWN),
        CONFIG_TYPES.get(found.config_type, UNKNOWN),
        found.is_sensitive,
        found.read_only,
        tuple(
            ConfigSynonym(each.name, each.value, CONFIG_SOURCES.get(each.source, UNKNOWN))
            for each in found.synonyms
        ),
        found.documentation or None,
    )


class ConfigChange(NamedTuple):
    """A change of a resource's configuration.

    Attributes
    ----------
    set : mapping of str to object
        New values.
    reset : iterable of str
        Settings that are to have their defaults again.
    append, subtract : mapping of str to str or list of str
        Entries to add to lists, and to take out.
    """

    set: Mapping[str, object] = {}
    reset: Iterable[str] = ()
    append: Mapping[str, object] = {}
    subtract: Mapping[str, object] = {}


class AlterConfigs(_ResourceRequest):
    """Changes of configurations: by resource a list of (setting, operation, value or None). The results are
    None. All changes of a resource are made, or none.
    """

    kind = messages.IncrementalAlterConfigsRequest
    route = _ResourceRoute(CONTROLLER)

    def __init__(
        self,
        items: Mapping[ConfigResource, Sequence[tuple[str, int, str | None]]],
        *,
        validate_only: bool,
    ) -> None:
        super().__init__("alter", items)
        self.validate_only = validate_only

    def message(self, items: Mapping[ConfigResource, Any], version: int, timeout_ms: int) -> Message:
        kind = messages.IncrementalAlterConfigsRequest
        resources = [
            kind.AlterConfigsResource(
                resource_type=_number(resource),
                resource_name=resource.name,
                configs=[
                    kind.AlterableConfig(name=name, config_operation=operation, value=value)
                    for name, operation, value in changes
                ],
            )
            for resource, changes in items.items()
        ]
        return kind(resources=resources, validate_only=self.validate_only)

    def read(self, answer: Any, items: Mapping[ConfigResource, Any]) -> Iterable[tuple[ConfigResource, Any]]:
        for found in answer.responses:
            refusal = Refusal(found.error_code, found.error_message) if found.error_code else None
            yield _resource(found), refusal


class ListConfigResources(AdminRequest):
    """Resources that have a configuration of their own; the only item is None, the result a tuple of
    ConfigResource. Empty `kinds` are all.
    """

    kind = messages.ListConfigResourcesRequest

    def __init__(self, kinds: Sequence[str]) -> None:
        super().__init__("list_resources", {None: None})
        self.numbers = [number_of(CONFIG_RESOURCES, "kinds", each) for each in kinds]

    def message(self, items: Mapping[Any, Any], version: int, timeout_ms: int) -> Message:
        if version >= features.LIST_CONFIG_RESOURCES_KINDS:
            return messages.ListConfigResourcesRequest(resource_types=self.numbers)
        if self.numbers != [number_of(CONFIG_RESOURCES, "kinds", "client_metrics")]:
            raise UnsupportedVersionError(
                f"the broker lists only subscriptions of metrics (ListConfigResources version {version}); "
                'pass kinds=["client_metrics"], or upgrade it to Kafka 4.1 or newer'
            )
        return messages.ListConfigResourcesRequest()

    def read(self, answer: Any, items: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
        if answer.error_code:
            return refused(items, answer)
        found = sorted(map(_resource, answer.config_resources))
        return iter([(None, tuple(found))])


def _number(resource: ConfigResource) -> int:
    return number_of(CONFIG_RESOURCES, "the kind of a resource", resource.kind)


def _resource(found: Any) -> ConfigResource:
    return ConfigResource(CONFIG_RESOURCES.get(found.resource_type, UNKNOWN), found.resource_name)
