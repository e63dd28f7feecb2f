"""Rules between keys. A rule gets all values, may complete them, and raises ConfigError.

They run in Kafka's order: CommonClientConfigs, then postProcessParsedConfig of ProducerConfig or
ConsumerConfig, then the checks of the client's constructor; our own come last.
"""

import logging
import re
from collections.abc import Collection
from ipaddress import ip_address

from kbatch.codecs import LEVELS
from kbatch.config.security import SECURITY_RULES
from kbatch.config.values import INT_MAX, Rule, Values
from kbatch.errors import ConfigError

logger = logging.getLogger(__name__)

# The broker remembers this many batches of a producer id and partition (ProducerStateEntry).
MAX_IN_FLIGHT_WITH_IDEMPOTENCE = 5
# ClientUtils.parseAndValidateAddresses: a protocol may precede the host, and IPv6 is in brackets.
SERVER = re.compile(
    r"(?:[A-Za-z0-9._%-]*://)?"
    r"(?:\[(?P<v6>[^\[\]/]+)\]|(?P<host>[^\[\]/:]+)):(?P<port>\d{1,5})"
)


def host_and_port(server: str, name: str = "bootstrap.servers") -> tuple[str, int]:
    """Return host and port of one of the bootstrap.servers, or of another key with this name. Raise
    ConfigError if one of them is missing.
    """
    match = SERVER.fullmatch(server)
    if match is None or not 0 < int(match["port"]) <= 65535:
        host, _, port = server.rpartition(":")
        hint = f"; an IPv6 address is in brackets: '[{host}]:{port}'" if _is_ipv6(host) else ""
        raise ConfigError(f"{name} must be host:port, such as localhost:9092, got {server!r}{hint}")
    return match["v6"] or match["host"], int(match["port"])


def _is_ipv6(host: str) -> bool:
    try:
        return ip_address(host).version == 6
    except ValueError:
        return False


def _bootstrap_servers(values: Values, given: Collection[str]) -> None:
    if "bootstrap.servers" not in given:
        raise ConfigError("bootstrap.servers is missing; set at least one broker as host:port")
    for server in values["bootstrap.servers"]:
        host_and_port(server)


def _bootstrap_of_admin(values: Values, given: Collection[str]) -> None:
    """Demand brokers or controllers, and not both (KIP-919)."""
    if "bootstrap.controllers" not in given:
        _bootstrap_servers(values, given)
    elif "bootstrap.servers" in given:
        raise ConfigError(
            "bootstrap.servers and bootstrap.controllers exclude each other: an admin asks either; set one"
        )
    for controller in values["bootstrap.controllers"]:
        host_and_port(controller, "bootstrap.controllers")


def _backoff(values: Values, given: Collection[str]) -> None:
    """Warn of a first wait above the maximum, which then is every wait (ExponentialBackoff)."""
    if "reconnect.backoff.ms" in given and "reconnect.backoff.max.ms" not in given:
        values["reconnect.backoff.max.ms"] = values["reconnect.backoff.ms"]
    for first, maximum in (
        ("retry.backoff.ms", "retry.backoff.max.ms"),
        ("reconnect.backoff.ms", "reconnect.backoff.max.ms"),
        ("socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms"),
    ):
        if values[first] > values[maximum]:
            text = "%s=%d is above %s=%d, which is then used from the start"
            logger.warning(text, first, values[first], maximum, values[maximum])


def _idempotence(values: Values, given: Collection[str]) -> None:
    """Refuse contradictions to a set idempotence; a default one gives way to acks and retries (KIP-679)."""
    if values["enable.idempotence"]:
        conflicts = [
            f"{name}={values[name]} (must be {needed})"
            for name, needed, kept in (
                ("retries", "above 0", values["retries"] > 0),
                ("acks", "all", values["acks"] == -1),
            )
            if not kept
        ]
        if conflicts and "enable.idempotence" in given:
            raise ConfigError(
                f"enable.idempotence=true contradicts {' and '.join(conflicts)}; change one of them"
            )
        in_flight = values["max.in.flight.requests.per.connection"]
        if in_flight > MAX_IN_FLIGHT_WITH_IDEMPOTENCE:
            raise ConfigError(
                f"max.in.flight.requests.per.connection must be at most {MAX_IN_FLIGHT_WITH_IDEMPOTENCE} "
                f"with idempotence, got {in_flight}; lower it, or set enable.idempotence=false"
            )
        if conflicts:
            logger.info("idempotence is off: it contradicts %s", " and ".join(conflicts))
            values["enable.idempotence"] = False
    if values["transactional.id"] is not None and not values["enable.idempotence"]:
        raise ConfigError(
            f"transactional.id={values['transactional.id']!r} needs idempotence; leave enable.idempotence, "
            "acks and retries at their defaults"
        )


def _delivery_timeout(values: Values, given: Collection[str]) -> None:
    """Keep batches from expiring before their first attempt (KafkaProducer.configureDeliveryTimeout)."""
    needed = min(min(values["linger.ms"], INT_MAX) + values["request.timeout.ms"], INT_MAX)
    if values["delivery.timeout.ms"] >= needed:
        return
    if "delivery.timeout.ms" in given:
        raise ConfigError(
            f"delivery.timeout.ms must be at least linger.ms + request.timeout.ms = {needed}, got "
            f"{values['delivery.timeout.ms']}; raise it, or lower one of those"
        )
    logger.warning("raised delivery.timeout.ms to linger.ms + request.timeout.ms = %d", needed)
    values["delivery.timeout.ms"] = needed


def _memory(values: Values, given: Collection[str]) -> None:
    """Refuse a batch size that memory can never hold: every send() would fail."""
    if values["batch.size"] > values["buffer.memory"]:
        raise ConfigError(
            f"batch.size={values['batch.size']} is above buffer.memory={values['buffer.memory']}, so no "
            "batch would ever fit; raise buffer.memory or lower batch.size"
        )


def _compression_level(values: Values, given: Collection[str]) -> None:
    """Merge compression.level and the codec's own key into one value."""
    codec, level = values["compression.type"], values["compression.level"]
    own = f"compression.{codec}.level"
    if "compression.level" in given:
        if codec not in LEVELS:
            raise ConfigError(f"compression.level must not be set, got {level}: {codec} has no levels")
        if own in given:
            raise ConfigError(f"compression.level and {own} are the same; set one of them")
        lowest, highest, _ = LEVELS[codec]
        if level != -1:
            if not lowest <= level <= highest:
                raise ConfigError(f"compression.level of {codec} must be {lowest} to {highest}, got {level}")
            values[own] = level
    values["compression.level"] = values.get(own)


def _fetch_wait(values: Values, given: Collection[str]) -> None:
    """Refuse a wait that is longer than the time for an answer: every Fetch without records would fail."""
    wait_ms, timeout_ms = values["fetch.max.wait.ms"], values["request.timeout.ms"]
    if wait_ms >= timeout_ms:
        raise ConfigError(
            f"fetch.max.wait.ms={wait_ms} must be below request.timeout.ms={timeout_ms}; lower the one or "
            "raise the other"
        )


# Keys that one protocol of groups has, by the protocol.
KEYS_OF_PROTOCOLS = {
    "classic": ("partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms"),
    "consumer": ("group.remote.assignor",),
}


def _group_protocol(values: Values, given: Collection[str]) -> None:
    """Choose the only protocol that has all keys that are set. Refuse keys that the protocol lacks."""
    chosen = values["group.protocol"]
    needed = {
        protocol: [name for name in names if name in given] for protocol, names in KEYS_OF_PROTOCOLS.items()
    }
    if chosen == "auto":
        if all(needed.values()):
            classic, consumer = (" and ".join(names) for names in needed.values())
            raise ConfigError(
                f"{classic} must not be set with {consumer}: no protocol of groups has both; omit one"
            )
        (values["group.protocol"],) = [protocol for protocol, names in needed.items() if names] or ["auto"]
        return
    (other,) = KEYS_OF_PROTOCOLS.keys() - {chosen}
    if needed[other]:
        names = " and ".join(needed[other])
        raise ConfigError(
            f"{names} must not be set with group.protocol={chosen}; omit it, or set group.protocol={other}"
        )


def _group_sessions(values: Values, given: Collection[str]) -> None:
    """Refuse heartbeats that are too rare (Heartbeat)."""
    beat_ms, session_ms = values["heartbeat.interval.ms"], values["session.timeout.ms"]
    if beat_ms >= session_ms:
        raise ConfigError(
            f"heartbeat.interval.ms={beat_ms} must be below session.timeout.ms={session_ms}; a third of it "
            "is usual"
        )


def _auto_commit(values: Values, given: Collection[str]) -> None:
    """Commit only for a group (ConsumerConfig.maybeOverrideEnableAutoCommit)."""
    if values["group.id"] is None and values["enable.auto.commit"]:
        if "enable.auto.commit" in given:
            raise ConfigError("enable.auto.commit=true needs group.id; set that, or omit enable.auto.commit")
        values["enable.auto.commit"] = False


CLIENT_RULES: tuple[Rule, ...] = (_bootstrap_servers, _backoff, *SECURITY_RULES)
ADMIN_RULES: tuple[Rule, ...] = (_bootstrap_of_admin, _backoff, *SECURITY_RULES)
PRODUCER_RULES: tuple[Rule, ...] = (
    _bootstrap_servers,
    _backoff,
    _idempotence,
    _delivery_timeout,
    _memory,
    _compression_level,
    *SECURITY_RULES,
)
CONSUMER_RULES: tuple[Rule, ...] = (
    _bootstrap_servers,
    _backoff,
    _fetch_wait,
    _auto_commit,
    _group_protocol,
    _group_sessions,
    *SECURITY_RULES,
)
