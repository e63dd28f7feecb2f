"""Configurations: of topics, brokers, loggers, groups and subscriptions to metrics.

Theory of operation. A resource is named by one keyword, or by a ConfigResource. What belongs to one broker
goes to that broker. Changes are increments (KIP-339): settings that a change does not name stay as they are.
Brokers accept settings of brokers that do not exist, and never show them; so their names are looked up first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, overload

from kbatch.admin.base import Part, checked_items, many, only, results_or_failure, text_of
from kbatch.admin.topics import setting_of
from kbatch.core.admin.configs import (
    APPEND,
    RESET,
    SET,
    SUBTRACT,
    AlterConfigs,
    ConfigChange,
    DescribeConfigs,
    ListConfigResources,
)
from kbatch.core.admin.names import CONFIG_RESOURCES
from kbatch.core.admin.results import ConfigEntry, ConfigResource
from kbatch.errors import ConfigError

if TYPE_CHECKING:
    from kbatch.waiting.deadline import Deadline

_KINDS = tuple(CONFIG_RESOURCES.values())
_checked_name = text_of("the name of a setting")


class AsyncConfigs(Part):
    """Calls about configurations. They raise KafkaTimeoutError at the deadline (`timeout` in seconds, None is
    default.api.timeout.ms), TopicAuthorizationError, GroupAuthorizationError or ClusterAuthorizationError if
    the ACL DescribeConfigs or AlterConfigs is missing, and PartialFailure if they are about many resources of
    which some fail.

    A resource is one of the keywords `topic`, `broker`, `broker_defaults`, `logger`, `group` and
    `client_metrics`, or a ConfigResource.
    """

    @overload
    async def describe(
        self,
        resource: ConfigResource | None = None,
        names: Iterable[str] | None = None,
        *,
        topic: str | None = None,
        broker: int | None = None,
        broker_defaults: bool = False,
        logger: int | None = None,
        group: str | None = None,
        client_metrics: str | None = None,
        synonyms: bool = False,
        documentation: bool = False,
        timeout: float | None = None,
    ) -> dict[str, ConfigEntry]: ...
    @overload
    async def describe(
        self,
        resource: Iterable[ConfigResource],
        names: Iterable[str] | None = None,
        *,
        synonyms: bool = False,
        documentation: bool = False,
        timeout: float | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]: ...
    async def describe(
        self,
        resource: ConfigResource | Iterable[ConfigResource] | None = None,
        names: Iterable[str] | None = None,
        *,
        synonyms: bool = False,
        documentation: bool = False,
        timeout: float | None = None,
        **named: Any,
    ) -> Any:
        """Return the settings of a resource by their names, or of several resources.

        Parameters
        ----------
        resource : ConfigResource, or iterable of ConfigResource
        names : iterable of str or None
            Only these settings.
        topic, group, client_metrics : str
            The resource is a topic, a group, or a subscription to metrics. Any name of the last two has
            defaults.
        broker, logger : int
            It is the settings, or the log levels, of the broker with that id.
        broker_defaults : bool
            It is what is set for all brokers.
        synonyms, documentation : bool
            True to be told where values come from, and what settings mean.

        Raises
        ------
        UnknownTopicOrPartitionError
            There is no such topic.
        BrokerNotAvailableError
            There is no such broker in the cluster.
        """
        is_one = resource is None or isinstance(resource, ConfigResource)
        keys = [_resource_of(resource, named)] if is_one else _resources(resource, named)
        chosen = None if names is None else many("names", names, _checked_name)
        request = DescribeConfigs(dict.fromkeys(keys, chosen), synonyms=synonyms, documentation=documentation)
        await self._ask(request, self._runtime.api_deadline(timeout))
        if is_one:
            return only(request.results, request.errors)
        return results_or_failure("describe", request.results, request.errors)

    @overload
    async def alter(
        self,
        resource: ConfigResource | None = None,
        *,
        set: Mapping[str, object] = ...,
        reset: Iterable[str] = (),
        append: Mapping[str, object] = ...,
        subtract: Mapping[str, object] = ...,
        topic: str | None = None,
        broker: int | None = None,
        broker_defaults: bool = False,
        logger: int | None = None,
        group: str | None = None,
        client_metrics: str | None = None,
        validate_only: bool = False,
        unknown_ok: bool = False,
        timeout: float | None = None,
    ) -> None: ...
    @overload
    async def alter(
        self,
        resource: Mapping[ConfigResource, ConfigChange],
        *,
        validate_only: bool = False,
        unknown_ok: bool = False,
        timeout: float | None = None,
    ) -> dict[ConfigResource, None]: ...
    async def alter(
        self,
        resource: ConfigResource | Mapping[ConfigResource, ConfigChange] | None = None,
        *,
        set: Mapping[str, object] = {},
        reset: Iterable[str] = (),
        append: Mapping[str, object] = {},
        subtract: Mapping[str, object] = {},
        validate_only: bool = False,
        unknown_ok: bool = False,
        timeout: float | None = None,
        **named: Any,
    ) -> Any:
        """Change settings of a resource, all of them or none; other settings stay as they are. Or change
        several resources, each by its ConfigChange. Brokers apply changes a moment later.

        Parameters
        ----------
        resource : ConfigResource, or mapping of ConfigResource to ConfigChange
            As in `describe`, also by keyword.
        set : mapping of str to object
            New values; True is "true", numbers are their digits, lists are joined by commas.
        reset : iterable of str
            Settings that are to have their defaults again.
        append, subtract : mapping of str to str or list of str
            Entries to add to settings that are lists, and to take out.
        validate_only : bool
            True to check only.
        unknown_ok : bool
            True to set names that a broker does not know, for its plugins.

        Raises
        ------
        ConfigError
            The broker does not know the name of a setting.
        InvalidConfigurationError, InvalidRequestError
            A name or value is invalid, or cannot be changed.
        """
        if not (is_many := isinstance(resource, Mapping)):
            given: Any = {_resource_of(resource, named): ConfigChange(set, reset, append, subtract)}
        elif named or set or reset or append or subtract:
            raise TypeError("alter() takes the changes of several resources in their ConfigChange")
        else:
            given = resource
        items = checked_items("resources", given, _checked_resource, _changes_of)
        deadline = self._runtime.api_deadline(timeout)
        if not unknown_ok:
            await self._check_names(items, deadline)
        request = await self._ask(AlterConfigs(items, validate_only=validate_only), deadline)
        if not is_many:
            return only(request.results, request.errors)
        return results_or_failure("alter", request.results, request.errors)

    async def _check_names(
        self, items: Mapping[ConfigResource, list[tuple[str, int, str | None]]], deadline: Deadline
    ) -> None:
        """Raise ConfigError for settings that a broker does not know, and would accept."""
        brokers = [resource for resource in items if resource.kind == "broker"]
        if not brokers:
            return
        asked = [resource if resource.name else await self._any_broker(deadline) for resource in brokers]
        request = await self._ask(DescribeConfigs(dict.fromkeys(asked)), deadline)
        for resource, target in zip(brokers, asked, strict=True):
            if target in request.errors:
                raise request.errors[target]
            known = request.results[target]
            for name, _, _ in items[resource]:
                # a setting of one listener begins with its name
                if name not in known and name not in _UNLISTED and not name.startswith("listener.name."):
                    raise ConfigError(
                        f"{resource} does not know the setting {name!r}; correct the name, or pass "
                        "unknown_ok=True if a plugin of the broker reads it"
                    )

    async def _any_broker(self, deadline: Deadline) -> ConfigResource:
        node_id, *_ = await self._runtime.await_nodes(deadline, "alter")
        return ConfigResource("broker", str(node_id))

    async def list_resources(
        self, kinds: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> tuple[ConfigResource, ...]:
        """Return the resources that have a configuration of their own (Kafka 4.1; subscriptions to metrics
        3.7).

        Parameters
        ----------
        kinds : iterable of str or None
            Of "topic", "broker", "broker_logger", "client_metrics" and "group"; None for all.
        """
        request = ListConfigResources([] if kinds is None else many("kinds", kinds, text_of("kinds")))
        found: tuple[ConfigResource, ...] = await self._runtime.await_answer_of(
            request, self._runtime.api_deadline(timeout)
        )
        return found


# Settings that brokers have, and do not describe before they are set (o.a.k.server.config.QuotaConfig).
_UNLISTED = frozenset(
    (
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
)
_KEYWORDS = {
    "topic": "topic",
    "broker": "broker",
    "broker_defaults": "broker",
    "logger": "broker_logger",
    "group": "group",
    "client_metrics": "client_metrics",
}


def _resource_of(resource: Any, named: Mapping[str, Any]) -> ConfigResource:
    """Return the resource that a call names. Raise TypeError unless it is one."""
    if unknown := [name for name in named if name not in _KEYWORDS]:
        raise TypeError(f"there is no argument {unknown[0]!r}; resources are {', '.join(_KEYWORDS)}")
    given = {name: value for name, value in named.items() if value is not None and value is not False}
    if resource is not None and not given:
        return _checked_resource(resource)
    if resource is not None or len(given) != 1:
        raise TypeError(f"one resource must be named, by a ConfigResource or one of {', '.join(_KEYWORDS)}")
    ((keyword, value),) = given.items()
    name = "" if keyword == "broker_defaults" else str(value)
    return _checked_resource(ConfigResource(_KEYWORDS[keyword], name))


def _resources(resources: Any, named: Mapping[str, Any]) -> list[ConfigResource]:
    if named:
        raise TypeError(f"describe() takes either resources or {', '.join(named)}")
    return many("resources", resources, _checked_resource)


def _checked_resource(given: Any) -> ConfigResource:
    if not isinstance(given, tuple) or len(given) != 2:
        raise TypeError(f"a resource must be a ConfigResource, got {given!r}")
    kind, name = given
    if kind not in _KINDS:
        raise ValueError(f"the kind of a resource must be of {', '.join(_KINDS)}, got {kind!r}")
    if kind != "broker" or name:
        text_of(f"the name of a {kind}")(name)
    if kind in ("broker", "broker_logger") and name and not name.isdecimal():
        raise ValueError(f"the name of a {kind} must be the id of a broker, got {name!r}")
    return ConfigResource(kind, name)


def _changes_of(change: Any) -> list[tuple[str, int, str | None]]:
    """Return a change as the request has it. Raise ValueError if it names a setting twice, or none."""
    if not isinstance(change, ConfigChange):
        raise TypeError(f"resources must have a ConfigChange each, got {change!r}")
    changes: list[tuple[str, int, str | None]] = [
        (name, operation, setting_of(name, value))
        for operation, values in ((SET, change.set), (APPEND, change.append), (SUBTRACT, change.subtract))
        for name, value in values.items()
    ]
    changes += [(name, RESET, None) for name in many("reset", change.reset, _checked_name)]
    names = [name for name, _, _ in changes]
    if not names:
        raise ValueError("alter() needs a change: set, reset, append or subtract")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"a change must name each setting once, got {twice!r} twice")
    return changes
