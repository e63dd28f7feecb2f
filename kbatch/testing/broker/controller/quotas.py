"""Client quotas: limits of users, clients and addresses, and which limit counts for a request.

After org.apache.kafka.controller.ClientQuotaControlManager and kafka.server.ClientQuotaManager (KIP-13, 546).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_address
from typing import NamedTuple

from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError

CLIENT_ID, USER, IP = "client-id", "user", "ip"
TYPES = (CLIENT_ID, USER, IP)  # in the order in which Kafka names them
DEFAULT = None  # the name of the entity for all that have no own
PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE = "producer_byte_rate", "consumer_byte_rate"
REQUEST_PERCENTAGE, MUTATION_RATE = "request_percentage", "controller_mutation_rate"
CONNECTION_RATE = "connection_creation_rate"
OF_CLIENTS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, MUTATION_RATE)
KEYS = {CLIENT_ID: OF_CLIENTS, USER: OF_CLIENTS, IP: (CONNECTION_RATE,)}
WHOLE_NUMBERS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONNECTION_RATE)
EPSILON = 1e-6  # ClientQuotaControlManager takes so small a fraction for none

Entity = tuple[tuple[str, str | None], ...]  # (type, name) in the order of TYPES


class Limit(NamedTuple):
    """A limit, and who shares it: the user, the client, or the client of the user that its entity names."""

    value: float
    sharers: tuple[tuple[str, str], ...]


class Quotas:
    """The limits of entities, by key."""

    def __init__(self) -> None:
        self.limits: dict[Entity, dict[str, float]] = {}

    def set(self, entity: Entity, key: str, value: float | None) -> None:
        """Set a limit that was checked, or with None remove it."""
        limits = self.limits.setdefault(entity, {})
        limits.pop(key, None)
        if value is not None:
            limits[key] = value
        if not limits:
            del self.limits[entity]

    def limit_of(self, key: str, user: str, client_id: str) -> Limit | None:
        """Return the limit that counts for a client: that of the most specific entity."""
        for names in _candidates(user, client_id):
            entity = entity_of(names)
            value = self.limits.get(entity, {}).get(key)
            if value is not None:
                present = {USER: user, CLIENT_ID: client_id}
                return Limit(value, tuple((kind, present[kind]) for kind, _ in entity))
        return None

    def connections_of(self, address: str) -> Limit | None:
        """Return the limit of new connections that counts for an address, which shares it with no other."""
        for name in (address, DEFAULT):
            value = self.limits.get(entity_of({IP: name}), {}).get(CONNECTION_RATE)
            if value is not None:
                return Limit(value, ((IP, address),))
        return None


def entity_of(names: Mapping[str, str | None]) -> Entity:
    return tuple((kind, names[kind]) for kind in TYPES if kind in names)


def _candidates(user: str, client_id: str) -> Iterable[dict[str, str | None]]:
    """Yield the entities that a client may have a limit by, the most specific first."""
    for named_user in (user, DEFAULT):
        yield {USER: named_user, CLIENT_ID: client_id}
        yield {USER: named_user, CLIENT_ID: DEFAULT}
        yield {USER: named_user}
    yield {CLIENT_ID: client_id}
    yield {CLIENT_ID: DEFAULT}


# What is refused


def checked_entity(names: Mapping[str, str | None]) -> Entity:
    """Return the entity of a change, or raise BrokerError INVALID_REQUEST."""
    if not names:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in names.items():
        if kind not in TYPES:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if IP in names and len(names) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
        )
    address = names.get(IP)
    if address is not None and not _is_address(address):
        raise _invalid(f"{address} is not a valid IP or resolvable host.")
    return entity_of(names)


def check_limit(entity: Entity, key: str, value: float | None) -> None:
    """Check a limit that is set, or with None removed; raise BrokerError INVALID_REQUEST."""
    if any(key not in KEYS[kind] for kind, _ in entity):
        raise _invalid(f"Invalid configuration key {key}")
    if value is None:
        return
    if value <= 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    if key in WHOLE_NUMBERS and abs(value - int(value + EPSILON)) > EPSILON:
        raise _invalid(f"{key} cannot be a fractional value.")


def _is_address(text: str) -> bool:
    try:
        return bool(ip_address(text))
    except ValueError:
        return text == "localhost"


def _invalid(text: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, text)


# What is described


class Filter(NamedTuple):
    """The entities with a type whose name `matches`."""

    kind: str
    matches: Callable[[str | None], bool]


def described(
    quotas: Quotas, filters: Iterable[Filter], *, strict: bool
) -> list[tuple[Entity, dict[str, float]]]:
    """Return the entities that all filters match; strictly, only those without further types."""
    wanted = {each.kind: each.matches for each in filters}
    found = []
    for entity, limits in quotas.limits.items():
        names = dict(entity)
        if all(kind in names and matches(names[kind]) for kind, matches in wanted.items()) and (
            not strict or len(names) == len(wanted)
        ):
            found.append((entity, limits))
    return found
