"""Rules between keys. A rule gets all values, may complete them, and raises ConfigError.

They run in Kafka's order: CommonClientConfigs, then ProducerConfig.postProcessParsedConfig, then the checks
of KafkaProducer's constructor; our own come last.
"""

import logging
import re
from collections.abc import Callable, Collection
from typing import Any

from kbatch._native.codec.compression import level_ranges
from kbatch.config.values import INT_MAX, Password
from kbatch.errors import ConfigError

Values = dict[str, Any]
Rule = Callable[[Values, Collection[str]], None]

logger = logging.getLogger(__name__)

# The broker remembers this many batches of a producer id and partition (ProducerStateEntry).
MAX_IN_FLIGHT_WITH_IDEMPOTENCE = 5
# ClientUtils.parseAndValidateAddresses: a protocol may precede the host, and IPv6 is in brackets.
SERVER = re.compile(
    r"(?:[A-Za-z0-9._%-]*://)?"
    r"(?:\[(?P<v6>[^\[\]/]+)\]|(?P<host>[^\[\]/:]+)):(?P<port>\d{1,5})"
)
# The modules of kafka.common.security whose options are a user name and a password.
JAAS = re.compile(
    r"\s*(?P<module>[\w.]+)\s+(?:required|requisite|sufficient|optional)\b(?P<options>.*);\s*", re.DOTALL
)
JAAS_OPTION = re.compile(r"""\s*(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"';]+))""")
JAAS_MODULES = {"PlainLoginModule": ("PLAIN",), "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512")}


def host_and_port(server: str) -> tuple[str, int]:
    """Return host and port of one of the bootstrap.servers. Raise ConfigError if one of them is missing."""
    match = SERVER.fullmatch(server)
    if match is None or not 0 < int(match["port"]) <= 65535:
        raise ConfigError(f"bootstrap.servers must be host:port, such as localhost:9092, got {server!r}")
    return match["v6"] or match["host"], int(match["port"])


def _bootstrap_servers(values: Values, given: Collection[str]) -> None:
    if "bootstrap.servers" not in given:
        raise ConfigError("bootstrap.servers is missing; set at least one broker as host:port")
    for server in values["bootstrap.servers"]:
        host_and_port(server)


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
        if codec not in level_ranges:
            raise ConfigError(f"compression.level must not be set, got {level}: {codec} has no levels")
        if own in given:
            raise ConfigError(f"compression.level and {own} are the same; set one of them")
        lowest, highest, _ = level_ranges[codec]
        if level != -1:
            if not lowest <= level <= highest:
                raise ConfigError(f"compression.level of {codec} must be {lowest} to {highest}, got {level}")
            values[own] = level
    values["compression.level"] = values.get(own)


def _tls(values: Values, given: Collection[str]) -> None:
    """Require one source each for trust, chain and private key (DefaultSslEngineFactory)."""
    ours = sorted(name for name in given if name.startswith("ssl.") and name != "ssl.context")
    if "ssl.context" in given and ours:
        raise ConfigError(
            f"ssl.context replaces all other ssl keys: remove {', '.join(ours)}, and configure the context"
        )
    for name, other in (
        ("ssl.truststore.location", "ssl.truststore.certificates"),
        ("ssl.keystore.location", "ssl.keystore.certificate.chain"),
        ("ssl.key.location", "ssl.keystore.key"),
        ("ssl.keystore.location", "ssl.keystore.key"),
    ):
        if name in given and other in given:
            raise ConfigError(f"{name} and {other} cannot both be set; remove one of them")
    for name, needed in (
        ("ssl.key.location", "ssl.keystore.location"),
        ("ssl.keystore.key", "ssl.keystore.certificate.chain"),
        ("ssl.keystore.certificate.chain", "ssl.keystore.key"),
    ):
        if name in given and needed not in given:
            raise ConfigError(f"{name} needs {needed}; set a private key and its certificates together")


def _sasl(values: Values, given: Collection[str]) -> None:
    """Require the credentials of the mechanism, if the security protocol has SASL."""
    if not values["security.protocol"].startswith("SASL_"):
        return
    mechanism = values["sasl.mechanism"]
    if "sasl.jaas.config" in given:
        for name in ("sasl.username", "sasl.password"):
            if name in given:
                raise ConfigError(f"sasl.jaas.config and {name} cannot both be set; remove one of them")
        username, password = _jaas_login(values["sasl.jaas.config"].value, mechanism)
        values["sasl.username"], values["sasl.password"] = username, Password(password)
    needed = {"PLAIN": ("sasl.username", "sasl.password"), "OAUTHBEARER": ("sasl.oauthbearer.token",)}
    needed |= dict.fromkeys(("SCRAM-SHA-256", "SCRAM-SHA-512"), needed["PLAIN"])
    missing = [name for name in needed.get(mechanism, ()) if values[name] is None]
    if missing:
        raise ConfigError(f"sasl.mechanism={mechanism} needs {' and '.join(missing)}")
    token = values["sasl.oauthbearer.token"]
    if token is not None and not callable(token):
        raise ConfigError("sasl.oauthbearer.token must be a callable that returns the token")


def _jaas_login(line: str, mechanism: str) -> tuple[str, str]:
    """Return name and password of a JAAS line (JaasContext). No error shows the line: it has a password."""
    match = JAAS.fullmatch(line)
    if match is None:
        raise ConfigError('sasl.jaas.config must have the form "MODULE required username=... password=...;"')
    module = match["module"].rpartition(".")[2]
    if mechanism not in JAAS_MODULES.get(module, ()):
        raise ConfigError(
            f"sasl.jaas.config has the module {module}, which does not fit sasl.mechanism={mechanism}; use "
            f"it with {' or '.join(JAAS_MODULES)} only, and the other mechanisms' own keys"
        )
    options: dict[str, str] = {}
    for name, double, single, bare in JAAS_OPTION.findall(match["options"]):
        options[name] = re.sub(r"\\(.)", r"\1", double or single or bare)
    if not {"username", "password"} <= options.keys():
        raise ConfigError("sasl.jaas.config must have a username and a password")
    return options["username"], options["password"]


CLIENT_RULES: tuple[Rule, ...] = (_bootstrap_servers, _backoff, _tls, _sasl)
PRODUCER_RULES: tuple[Rule, ...] = (
    _bootstrap_servers,
    _backoff,
    _idempotence,
    _delivery_timeout,
    _memory,
    _compression_level,
    _tls,
    _sasl,
)
