"""Translate user settings to values by key: other clients' names, keywords, and unknown names.

librdkafka's names are those of its CONFIGURATION.md (2.15), kafka-python's and aiokafka's the arguments of
their clients.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kbatch.config.values import BOOLEAN, INT, INT_MAX, Key
from kbatch.errors import ConfigError


class Alias(NamedTuple):
    """Another client's name for a key. `convert` translates its value and unit to ours; `annotation` is the
    type of that value, if it is not that of the key.
    """

    key: str
    convert: Callable[[object], object] | None = None
    annotation: str | None = None


class Foreign(NamedTuple):
    """Another client's key without a counterpart. `harmless` values ask for what kbatch does anyway."""

    reason: str
    harmless: tuple[str, ...] = ()


def _timeout(value: object) -> object:
    """Return the time-out; librdkafka's 0 means no limit."""
    return INT_MAX if str(value).strip() == "0" else value


def _buffer(value: object) -> object:
    """Return the buffer size; librdkafka's 0 means the system's default."""
    return -1 if str(value).strip() == "0" else value


def _kibibytes(value: object) -> int:
    return int(INT.parse(value)) * 1024


def _retriever(value: object) -> object:
    return {
        "client_credentials": "ClientCredentialsJwtRetriever",
        "urn:ietf:params:oauth:grant-type:jwt-bearer": "JwtBearerJwtRetriever",
    }[str(value).strip()]


def _endpoint_identification(value: object) -> str:
    return "https" if BOOLEAN.parse(value) else "none"


ALIASES: Mapping[str, Alias] = {
    "metadata.broker.list": Alias("bootstrap.servers"),
    "request.required.acks": Alias("acks"),
    "compression.codec": Alias("compression.type"),
    "queue.buffering.max.ms": Alias("linger.ms"),
    "queue.buffering.max.kbytes": Alias("buffer.memory", _kibibytes),
    "message.timeout.ms": Alias("delivery.timeout.ms", _timeout),
    "message.send.max.retries": Alias("retries"),
    "message.max.bytes": Alias("max.request.size"),
    "max.in.flight": Alias("max.in.flight.requests.per.connection"),
    "socket.timeout.ms": Alias("request.timeout.ms"),
    "socket.send.buffer.bytes": Alias("send.buffer.bytes", _buffer),
    "socket.receive.buffer.bytes": Alias("receive.buffer.bytes", _buffer),
    "auto.commit.enable": Alias("enable.auto.commit"),
    "fetch.wait.max.ms": Alias("fetch.max.wait.ms"),
    "fetch.message.max.bytes": Alias("max.partition.fetch.bytes"),
    "queued.max.messages.kbytes": Alias("kbatch.fetch.buffer.memory", _kibibytes),
    "topic.metadata.refresh.interval.ms": Alias("metadata.max.age.ms"),
    "partitioner": Alias("partitioner.class"),
    "ssl.ca.location": Alias("ssl.truststore.location"),
    "ssl.ca.pem": Alias("ssl.truststore.certificates"),
    "ssl.certificate.location": Alias("ssl.keystore.location"),
    "ssl.certificate.pem": Alias("ssl.keystore.certificate.chain"),
    "ssl.key.pem": Alias("ssl.keystore.key"),
    "sasl.mechanisms": Alias("sasl.mechanism"),
    "sasl.oauthbearer.client.id": Alias("sasl.oauthbearer.client.credentials.client.id"),
    "sasl.oauthbearer.client.secret": Alias("sasl.oauthbearer.client.credentials.client.secret"),
    "sasl.oauthbearer.grant.type": Alias("sasl.oauthbearer.jwt.retriever.class", _retriever, "str"),
    "sasl.oauthbearer.assertion.jwt.template.file": Alias("sasl.oauthbearer.assertion.template.file"),
    # confluent-kafka
    "oauth.cb": Alias("sasl.oauthbearer.token"),
    # kafka-python and aiokafka
    "max.batch.size": Alias("batch.size"),
    "ssl.cafile": Alias("ssl.truststore.location"),
    "ssl.crlfile": Alias("ssl.crl.location"),
    "ssl.ciphers": Alias("ssl.cipher.suites"),
    "ssl.certfile": Alias("ssl.keystore.location"),
    "ssl.keyfile": Alias("ssl.key.location"),
    "ssl.password": Alias("ssl.key.password"),
    "ssl.check.hostname": Alias(
        "ssl.endpoint.identification.algorithm", _endpoint_identification, "bool | str"
    ),
    "sasl.plain.username": Alias("sasl.username"),
    "sasl.plain.password": Alias("sasl.password"),
    "sasl.oauth.token.provider": Alias("sasl.oauthbearer.token"),
}

_LOGGING = "kbatch logs through Python's logging, under the logger kbatch"
_STICKY = "records without a key stay with one partition for batch.size bytes (KIP-794)"
_TOKEN = "set sasl.oauthbearer.token, a callable without arguments that returns the token"
_CONTEXT = "pass an ssl.SSLContext as ssl.context"
_VERSIONS = "kbatch always requests brokers' versions"
_FOR_C = "it is for programs in C; leave it out"
_NETWORK = "kbatch has a network of its own; leave it out"
_BACKOFF = "set reconnect.backoff.ms and reconnect.backoff.max.ms"
_ON_COMMIT = "pass on_commit to commit_async(); automatic commits that fail are logged"
_STORED = "offsets are committed for the group: set enable.auto.commit and auto.commit.interval.ms"
_DIRECT = "kbatch connects to brokers directly: let a tunnel forward the addresses of advertised.listeners"
_ASKED_AGAIN = "a topic or leader that is not known is requested again after retry.backoff.ms"
_EVERY_RECORD = "every send() has its own on_delivery and its own result"

FOREIGN: Mapping[str, Foreign] = {
    "queued.min.messages": Foreign("bytes limit what is fetched ahead: set kbatch.fetch.buffer.memory"),
    "receive.message.max.bytes": Foreign("fetch.max.bytes and kbatch.fetch.buffer.memory limit an answer"),
    "enable.partition.eof": Foreign(
        "pass an end: read_table and scan_topic stop where the topic ended at the call", ("false",)
    ),
    "fetch.queue.backoff.ms": Foreign(
        "fetching continues as soon as memory is free: there is no wait to set"
    ),
    "fetch.error.backoff.ms": Foreign("set retry.backoff.ms"),
    "consume.callback.max.messages": Foreign("records come in columns or by an iterator, not by callbacks"),
    "consume.cb": Foreign("records come in columns or by an iterator, not by callbacks"),
    "consumer.timeout.ms": Foreign(
        "iterate over until_end(), which ends where the logs ended, or call poll(timeout) in seconds",
        ("inf",),
    ),
    "rebalance.cb": Foreign("pass on_assigned, on_revoked and on_lost to subscribe()"),
    "rebalance.timeout.ms": Foreign("members have max.poll.interval.ms to rejoin"),
    "offset.commit.cb": Foreign(_ON_COMMIT),
    "on.commit": Foreign(_ON_COMMIT),
    "default.offset.commit.callback": Foreign(_ON_COMMIT),
    "enable.auto.offset.store": Foreign(
        "automatic commits leave out what the last poll has returned, so there is nothing to store; or set "
        "enable.auto.commit=false and commit(record) when it is processed",
        ("true",),
    ),
    "offset.store.method": Foreign(_STORED, ("broker",)),
    "offset.store.path": Foreign(_STORED),
    "offset.store.sync.interval.ms": Foreign(_STORED),
    "group.protocol.type": Foreign("groups of consumers have one type", ("consumer",)),
    "coordinator.query.interval.ms": Foreign("a coordinator is looked for when it is needed"),
    "enable.incremental.fetch.sessions": Foreign("fetch sessions are incremental (KIP-227)", ("true",)),
    "internal.throw.on.fetch.stable.offset.unsupported": Foreign("it is for Kafka Streams; leave it out"),
    "batch.num.messages": Foreign("bytes limit a batch: set batch.size"),
    "queue.buffering.max.messages": Foreign("bytes limit the memory: set buffer.memory"),
    "queue.buffering.backpressure.threshold": Foreign("a batch closes when it is full or after linger.ms"),
    "sticky.partitioning.linger.ms": Foreign(f"{_STICKY}; partitioner.class=random spreads every record"),
    "queuing.strategy": Foreign("records of a partition are sent in order", ("fifo",)),
    "msg.order.cmp": Foreign("records of a partition are sent in order"),
    "produce.offset.report": Foreign(_EVERY_RECORD),
    "message.copy.max.bytes": Foreign("records are copied into their batch"),
    "opaque": Foreign("on_delivery can be a closure or a bound method"),
    "default.topic.conf": Foreign("pass its keys beside the others"),
    "enable.gapless.guarantee": Foreign("use kbatch.on.delivery.failure=stop_partition", ("false",)),
    "delivery.report.only.error": Foreign(_EVERY_RECORD, ("false",)),
    "dr.cb": Foreign(_EVERY_RECORD),
    "dr.msg.cb": Foreign(_EVERY_RECORD),
    "on.delivery": Foreign(_EVERY_RECORD),
    "partitioner.cb": Foreign("set the callable as partitioner.class"),
    "enable.ssl.certificate.verification": Foreign(_CONTEXT, ("true",)),
    "ssl.certificate.verify.cb": Foreign(_CONTEXT),
    "ssl.ca.certificate.stores": Foreign(_CONTEXT),
    "ssl.curves.list": Foreign(_CONTEXT),
    "ssl.sigalgs.list": Foreign(_CONTEXT),
    "ssl.providers": Foreign(_CONTEXT),
    "ssl.engine.location": Foreign(_CONTEXT),
    "ssl.engine.callback.data": Foreign(_CONTEXT),
    "ssl.ca": Foreign("set ssl.truststore.certificates or ssl.truststore.location"),
    "ssl.certificate": Foreign("set ssl.keystore.certificate.chain or ssl.keystore.location"),
    "ssl.key": Foreign("set ssl.keystore.key or ssl.key.location"),
    "ssl.engine.id": Foreign(_CONTEXT, ("dynamic",)),
    "socket.nagle.disable": Foreign("Nagle's algorithm is always off, as in Java", ("true",)),
    "socket.keepalive.enable": Foreign("keep-alive is always on, as in Java", ("true",)),
    "socket.blocking.max.ms": Foreign("set request.timeout.ms"),
    "socket.max.fails": Foreign("a connection ends with the first request that times out", ("1",)),
    "socket.options": Foreign(
        "set send.buffer.bytes and receive.buffer.bytes; Nagle's algorithm is off and keep-alive on"
    ),
    "broker.address.family": Foreign("every address that a name has is tried, IPv4 and IPv6", ("any",)),
    "broker.address.ttl": Foreign("names are looked up for each connection"),
    "reconnect.backoff.jitter.ms": Foreign(_BACKOFF),
    "proxy.url": Foreign(_DIRECT),
    "socks5.proxy": Foreign(_DIRECT),
    "kafka.client": Foreign(_NETWORK),
    "selector": Foreign(_NETWORK),
    "bootstrap.timeout.ms": Foreign(
        "calls wait for max.block.ms, and a consumer's for default.api.timeout.ms"
    ),
    "api.version.request": Foreign(_VERSIONS, ("true",)),
    "api.version.request.timeout.ms": Foreign(_VERSIONS),
    "api.version.fallback.ms": Foreign(_VERSIONS),
    "api.version.auto.timeout.ms": Foreign(_VERSIONS),
    "broker.version.fallback": Foreign(_VERSIONS),
    "api.version": Foreign(_VERSIONS, ("auto",)),
    "topic.metadata.refresh.fast.interval.ms": Foreign(_ASKED_AGAIN),
    "topic.metadata.refresh.fast.cnt": Foreign(_ASKED_AGAIN),
    "topic.metadata.propagation.max.ms": Foreign(_ASKED_AGAIN),
    "topic.metadata.refresh.sparse": Foreign("only topics in use are requested", ("true",)),
    "topic.blacklist": Foreign("name the topics that are wanted in subscribe()"),
    "metrics.enabled": Foreign("metrics() gives every metric at any time", ("true",)),
    "metric.group.prefix": Foreign("metrics() names them as Java's clients do"),
    "statistics.interval.ms": Foreign("Producer.metrics() gives every metric at any time", ("0",)),
    "stats.cb": Foreign("Producer.metrics() gives every metric at any time"),
    "error.cb": Foreign("deliveries carry their errors; the rest is logged"),
    "throttle.cb": Foreign("read the metric produce-throttle-time-avg"),
    "logger": Foreign(_LOGGING),
    "log.level": Foreign(_LOGGING),
    "log.cb": Foreign(_LOGGING),
    "debug": Foreign(_LOGGING),
    "log.queue": Foreign(_LOGGING, ("false",)),
    "log.thread.name": Foreign(_LOGGING),
    "log.connection.close": Foreign(_LOGGING),
    "interceptors": Foreign("set interceptor.classes"),
    "plugin.library.paths": Foreign("kbatch loads no plugins of librdkafka; set interceptor.classes"),
    **dict.fromkeys(
        (
            "background.event.cb",
            "builtin.features",
            "closesocket.cb",
            "connect.cb",
            "enable.random.seed",
            "enabled.events",
            "internal.termination.signal",
            "open.cb",
            "resolve.cb",
            "socket.cb",
        ),
        Foreign(_FOR_C),
    ),
    "oauthbearer.token.refresh.cb": Foreign(_TOKEN),
    "sasl.oauthbearer.method": Foreign(
        "set sasl.oauthbearer.token.endpoint.url for OIDC, or sasl.oauthbearer.token", ("default", "oidc")
    ),
    "sasl.oauthbearer.metadata.authentication.type": Foreign(_TOKEN, ("none",)),
    "sasl.kerberos.name": Foreign("set sasl.kerberos.service.name and sasl.kerberos.domain.name"),
    "loop": Foreign("a client belongs to the event loop on which it is first used"),
}


def read_settings(
    settings: Mapping[str, object],
    keywords: Mapping[str, object],
    keys: Mapping[str, Key],
    client: str,
    owners: Mapping[str, str] = {},
) -> dict[str, Any]:
    """Return the settings by key, each in its type. Raise ConfigError for what is wrong with them.

    Parameters
    ----------
    settings, keywords : mapping of str to object
        By names with dots, and with underscores.
    keys : mapping of str to Key
    client : str
        What is configured, for errors.
    owners : mapping of str to str
        Which client has a key that this one may not have.
    """
    if not isinstance(settings, Mapping):
        raise ConfigError(
            f"a configuration must be a mapping of keys to values, got {type(settings).__name__}; pass one "
            "such as {'bootstrap.servers': 'localhost:9092'}"
        )
    for name in settings:
        if not isinstance(name, str):
            raise ConfigError(f"a configuration key must be a str, got {name!r}")
    known = [*keys, *owners, *ALIASES, *FOREIGN]
    dotted = {name.replace(".", "_"): name for name in known}
    # librdkafka's own names for callbacks have underscores.
    underscored = {word: name for word, name in dotted.items() if name in FOREIGN or name.endswith(".cb")}
    named = [(name, underscored.get(name, name), value) for name, value in settings.items()]
    named += [(word, dotted.get(word, word), value) for word, value in keywords.items()]
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for given, name, value in named:
        translated = None if value is None else _translate(given, name, value, keys)
        if translated is None:
            continue
        key, value, shown = translated
        if key not in keys:
            raise _unknown(given, key, keys, client, owners)
        if key in sources:
            raise ConfigError(f"{sources[key]} and {given} both set {key}; set one of them")
        sources[key] = given
        values[key] = keys[key].read(shown, value)
    return values


def _translate(
    given: str, name: str, value: object, keys: Mapping[str, Key]
) -> tuple[str, object, str] | None:
    """Return the key, perhaps an unknown one, the value in our terms, and the key for errors; None if the
    value asks for what kbatch does anyway.
    """
    if name in ALIASES and name not in keys:
        key, convert, _ = ALIASES[name]
        if key not in keys or convert is None:
            return key, value, given
        shown = keys[key].type.show(value)
        try:
            made = convert(value)
            return key, made, given if made is value else f"{key}, which {given}={shown} sets,"
        except (TypeError, ValueError, KeyError):
            raise ConfigError(f"{given}, which sets {key}, cannot be {shown}") from None
    if name in FOREIGN and name not in keys:
        if str(value).strip().lower() in FOREIGN[name].harmless:
            return None
        raise ConfigError(f"{given} is not a key of kbatch: {FOREIGN[name].reason}")
    return name, value, given


def _article(client: str) -> str:
    return f"{'an' if client[0] in 'aeiou' else 'a'} {client}"


def _unknown(
    given: str, key: str, keys: Mapping[str, Key], client: str, owners: Mapping[str, str]
) -> ConfigError:
    """Return the error of a key that the client does not have."""
    owner = owners.get(key) or owners.get(key.replace("_", "."))
    known = [*keys, *(alias for alias, row in ALIASES.items() if row.key in keys)]
    words = {candidate.replace(".", "_"): candidate for candidate in known}
    if owner is not None and given not in words:
        return ConfigError(
            f"{given} is a configuration key of {_article(owner)}, not of {_article(client)}; leave it out"
        )
    import difflib  # takes memory, so only after a wrong name

    nearest = difflib.get_close_matches(given, known if "." in given else words, n=1)
    if given in words:  # right as a keyword
        nearest = [words[given]]
    hint = f"did you mean {nearest[0]}?" if nearest else "docs/configuration.md lists the keys"
    return ConfigError(f"{given} is not a configuration key of {_article(client)}; {hint}")
