"""The table of configuration keys, as the class whose attributes they are.

Every attribute of `ProducerConfig` is one row: its name with dots for underscores is the key, and `key(...)`
has type, default, check, importance, what it is for, and why it is refused where it is. They are those of
org.apache.kafka.clients.producer.ProducerConfig 4.3.1, but for the defaults in `OTHER_DEFAULTS`.
"""

# ruff: noqa: RUF009 -- key() is dataclasses.field with a row of the table in it

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from kbatch._native.codec.compression import codec_names, level_ranges
from kbatch.config.names import read_settings
from kbatch.config.rules import RULES, host_and_port
from kbatch.config.values import (
    ACKS,
    ANY,
    BOOLEAN,
    DOUBLE,
    INT,
    INT_MAX,
    LIST,
    LONG,
    NON_EMPTY,
    OBJECT,
    OBJECTS,
    PASSWORD,
    REQUIRED,
    SENDABLE,
    SENDABLE_NAME,
    SHORT,
    STRING,
    Check,
    Importance,
    Key,
    Password,
    ValueType,
    at_least,
    between,
    each_of,
    one_of,
)

if TYPE_CHECKING:
    import ssl
else:

    class _Lazily:
        """A module, imported when something of it is asked for, as typing.get_type_hints does: Python's ssl
        takes some 4 MiB.
        """

        def __init__(self, name):
            self._name = name

        def __getattr__(self, attribute):
            return getattr(importlib.import_module(self._name), attribute)

    ssl = _Lazily("ssl")

HIGH, MEDIUM, LOW = Importance

NO_PROVIDERS = "values are used as they stand: read secrets in Python and pass them"
NO_CANONICAL = "names are not made canonical, which is for Kerberos: all addresses behind a name are tried"
NO_JMX = "there is no JMX: Producer.metrics() gives every metric"
NO_PUSH = "client telemetry (KIP-714) is not there yet: Producer.metrics() gives every metric"
NO_JAVA_TLS = "it belongs to Java's security providers: pass an ssl.SSLContext as ssl.context"
NO_STORES = "Python's ssl reads PEM only: convert the store, or pass an ssl.SSLContext as ssl.context"
NO_STORE_PASSWORD = "a PEM file has no password of its own: that of its private key is ssl.key.password"
NO_JAVA_LOGIN = "it is a Java class: give sasl.username and sasl.password, or sasl.oauthbearer.token"
NO_LOGIN = "a token is asked for at every authentication: refresh and retry inside sasl.oauthbearer.token"
NO_OIDC = "tokens come from sasl.oauthbearer.token, a callable that may ask any provider"
NO_KINIT = "Kerberos tickets are renewed outside the process, by kinit or k5start"
NO_TWO_PHASE = "two-phase commit (KIP-939) is not there yet"
# Half of the producer.id.expiration.ms that brokers have by default.
LONGEST_IDLE_MS = 43_200_000
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM")


def key(
    type: ValueType,
    default: object,
    check: Check,
    importance: Importance,
    doc: str,
    refused: str | None = None,
    *,
    origin: str = "Kafka",
) -> Any:
    """A row. Any, so that for a type checker the annotation beside it is the attribute's type."""
    return dataclasses.field(metadata={"key": Key(type, default, check, importance, doc, refused, origin)})


@dataclasses.dataclass(frozen=True, slots=True, init=False, repr=False)
class ProducerConfig:
    """The configuration of a producer, complete and checked: an immutable attribute for every key.

    Parameters
    ----------
    settings : Mapping[str, object], optional
        Keys with dots, as Kafka writes them, or the names that librdkafka and other clients have for them.
    client_number : int
        The N of client.id where none is given: kbatch-producer-N.
    **keywords
        The same keys with underscores for dots. In both a value None leaves a key at its default.

    Attributes
    ----------
    given : frozenset of str
        The keys that were given; the others have their defaults.

    Raises
    ------
    ConfigError
        For an unknown or refused key, a value that cannot be, a key given twice, or keys that contradict each
        other.
    """

    given: frozenset[str] = dataclasses.field(compare=False)

    # The cluster and the connections to it

    bootstrap_servers: tuple[str, ...] = key(LIST, REQUIRED, NON_EMPTY, HIGH,
        "Brokers to start from, each host:port; they tell of all the others.")
    client_id: str = key(STRING, "", SENDABLE, MEDIUM,
        "The name brokers see in logs, quotas and metrics. By default kbatch-producer-N, N being a number or "
        "the transactional.id.")
    client_dns_lookup: str = key(STRING, "use_all_dns_ips", ANY, MEDIUM,
        "All addresses behind a name are tried in turn, or bootstrap names are made canonical first.",
        NO_CANONICAL)
    connections_max_idle_ms: int = key(LONG, 540_000, ANY, MEDIUM,
        "A connection unused for so long is closed; a negative value keeps it.")
    reconnect_backoff_ms: int = key(LONG, 50, at_least(0), LOW,
        "Wait before the first reconnection to a node. Each failure doubles it, with 20 % of jitter.")
    reconnect_backoff_max_ms: int = key(LONG, 1000, at_least(0), LOW,
        "Where the doubling of reconnect.backoff.ms ends. Where only that is given, this is the same.")
    socket_connection_setup_timeout_ms: int = key(LONG, 10_000, ANY, MEDIUM,
        "How long TCP connect may take at first. Each failure in a row doubles it (KIP-601).")
    socket_connection_setup_timeout_max_ms: int = key(LONG, 30_000, ANY, MEDIUM,
        "Where the doubling of socket.connection.setup.timeout.ms ends.")
    send_buffer_bytes: int = key(INT, -1, at_least(-1), MEDIUM,
        "SO_SNDBUF of a connection; -1 leaves it to the system, which lets it grow.")
    receive_buffer_bytes: int = key(INT, 32_768, at_least(-1), MEDIUM,
        "SO_RCVBUF of a connection; -1 leaves it to the system.")
    request_timeout_ms: int = key(INT, 30_000, at_least(0), MEDIUM,
        "How long an answer may take before the connection counts as broken and its requests are sent again.")
    metadata_max_age_ms: int = key(LONG, 300_000, at_least(0), LOW,
        "Metadata is asked for anew at this age, even if nothing hints at a change.")
    metadata_max_idle_ms: int = key(LONG, 300_000, at_least(5000), LOW,
        "A topic that nothing was sent to for so long is forgotten, until the next record for it.")
    metadata_recovery_strategy: str = key(STRING, "rebootstrap",
        one_of("rebootstrap", "none", fold=str.lower), LOW,
        "With rebootstrap, bootstrap.servers are tried again when no known broker can be reached (KIP-899).")
    metadata_recovery_rebootstrap_trigger_ms: int = key(LONG, 300_000, at_least(0), LOW,
        "Without any metadata for so long, the client starts over from bootstrap.servers (KIP-1102).")

    # Batches, compression, memory

    batch_size: int = key(INT, 16_384, at_least(0), MEDIUM,
        "Bytes a batch may grow to, compressed. 0 gives every record a batch.")
    linger_ms: int = key(LONG, 5, at_least(0), MEDIUM,
        "How long a batch that is not full waits for more records.")
    buffer_memory: int = key(LONG, 33_554_432, at_least(0), HIGH,
        "Bytes for all records that are not yet acknowledged. Where they are used up, send() waits.")
    max_block_ms: int = key(LONG, 60_000, at_least(0), MEDIUM,
        "How long send() may wait, for metadata and memory together; the transaction calls have it too.")
    max_request_size: int = key(INT, 1_048_576, at_least(0), MEDIUM,
        "Bytes of a request, and so of a record, before compression.")
    compression_type: str = key(STRING, "none", one_of(*codec_names), HIGH,
        "Codec of the batches. Larger batches compress better.")
    compression_level: int | None = key(INT, None, ANY, LOW,
        "Level of whichever codec compression.type names, in that codec's own scale; -1 is its default.",
        origin="librdkafka")
    compression_gzip_level: int = key(INT, -1, between(*level_ranges["gzip"]), MEDIUM,
        "Level of gzip. -1 is a fast one of about level 1 (isal's 2; zlib's 1 where isal is not installed); "
        "1 to 9 mean what they mean to zlib.")
    compression_lz4_level: int = key(INT, 9, between(*level_ranges["lz4"]), MEDIUM,
        "Level of lz4. 9, the default, is the fast compressor, as in Java; others are slower and tighter.")
    compression_zstd_level: int = key(INT, 3, between(*level_ranges["zstd"]), MEDIUM,
        "Level of zstd; negative ones are the fastest.")

    # Delivery

    acks: int = key(ACKS, "all", ANY, LOW,
        "Which replicas have a batch before it counts as delivered: all in sync, 1 the leader, 0 nobody.")
    enable_idempotence: bool = key(BOOLEAN, True, ANY, LOW,
        "Every batch is in the log once and in order, whatever is retried. Given acks or retries that "
        "contradict it turn it off, unless it was asked for.")
    max_in_flight_requests_per_connection: int = key(INT, 5, at_least(1), LOW,
        "Requests on a connection that have no answer yet. At most 5 with idempotence; without it, more than "
        "1 can change the order of records when one is retried.")
    retries: int = key(INT, INT_MAX, between(0, INT_MAX), HIGH,
        "How often a batch is sent again. Better left alone: delivery.timeout.ms is the limit that matters.")
    retry_backoff_ms: int = key(LONG, 100, at_least(0), LOW,
        "Wait before a request is first repeated. Each failure doubles it, with 20 % of jitter (KIP-580).")
    retry_backoff_max_ms: int = key(LONG, 1000, at_least(0), LOW,
        "Where the doubling of retry.backoff.ms ends.")
    delivery_timeout_ms: int = key(INT, 120_000, at_least(0), MEDIUM,
        "From the first record of a batch to its success or failure, all waits and retries included. At "
        "least linger.ms + request.timeout.ms, to which it is raised where it was not given.")
    kbatch_on_delivery_failure: str = key(STRING, "continue",
        one_of("continue", "stop_partition", "stop"), MEDIUM,
        "After a record failed: go on, fail all later records of its partition, or those of the producer, "
        "until resume(). With the last two nothing passes a failed record.", origin="kbatch")
    kbatch_sequence_gap: str = key(STRING, "fail", one_of("fail", "resend"), LOW,
        "What becomes of a batch that may or may not be in the log, when its followers do not tell: fail it, "
        "or send it again under a new epoch as Java does, which can double its records.", origin="kbatch")
    kbatch_sequence_idle_ms: int = key(LONG, 60_000, between(0, LONGEST_IDLE_MS), LOW,
        "A broker that hears nothing of a producer for long forgets its sequences. If the last batch that "
        "a partition acknowledged was sent longer ago than this, the next one travels alone, which costs a "
        "round trip, and its success proves nothing about earlier ones. Keep this well below the brokers' "
        "producer.id.expiration.ms, which is a day by default.", origin="kbatch")

    # Partitions, serialization, interceptors

    partitioner_class: object = key(OBJECT, None, ANY, MEDIUM,
        "A callable (topic, key, value, partition_count, available) that returns a partition, or a name: "
        "round_robin, random, or one of librdkafka's. By default murmur2 of the key, as in Java.")
    partitioner_ignore_keys: bool = key(BOOLEAN, False, ANY, MEDIUM,
        "Keys do not choose the partition. Of no effect with a partitioner.class.")
    partitioner_adaptive_partitioning_enable: bool = key(BOOLEAN, True, ANY, LOW,
        "Records without a key go rather to partitions with shorter queues (KIP-794).")
    partitioner_availability_timeout_ms: int = key(LONG, 0, at_least(0), LOW,
        "Records without a key avoid partitions whose leader took no batch for so long; 0 turns that off.")
    key_serializer: object = key(OBJECT, None, ANY, HIGH,
        "Makes bytes of keys: a callable (value), (topic, value) or (topic, headers, value), or the name of "
        "one of kbatch.serializers. By default keys are bytes already.")
    value_serializer: object = key(OBJECT, None, ANY, HIGH,
        "Makes bytes of values, like key.serializer.")
    interceptor_classes: tuple[object, ...] = key(OBJECTS, "", ANY, LOW,
        "Interceptors, or classes of them: they see records on the way in, acknowledgements on the way out.")

    # Transactions

    transactional_id: str | None = key(STRING, None, SENDABLE_NAME, LOW,
        "Makes the producer transactional. A later producer of the same id fences this one.")
    transaction_timeout_ms: int = key(INT, 60_000, ANY, LOW,
        "The coordinator aborts a transaction that is open for so long; brokers set a limit to it.")
    transaction_two_phase_commit_enable: bool = key(BOOLEAN, False, ANY, LOW,
        "Transactions that only an outside coordinator ends.", NO_TWO_PHASE)

    # Metrics

    metrics_num_samples: int = key(INT, 2, at_least(1), LOW,
        "Windows that averages, maxima and rates reach back.")
    metrics_sample_window_ms: int = key(LONG, 30_000, at_least(1), LOW,
        "Length of such a window.")
    metrics_recording_level: str = key(STRING, "INFO", one_of("INFO", "DEBUG", "TRACE"), LOW,
        "The most detailed metrics that are recorded.")
    metric_reporters: tuple[str, ...] = key(LIST, "", ANY, LOW,
        "Classes that metrics are reported to.", NO_JMX)
    enable_metrics_push: bool = key(BOOLEAN, False, ANY, LOW,
        "Metrics are sent to the brokers that ask for them.", NO_PUSH)

    # TLS

    security_protocol: str = key(STRING, "PLAINTEXT",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", fold=str.upper), MEDIUM,
        "Whether connections are encrypted (SSL) and authenticated (SASL). "
        "A producer does not speak SASL yet, and says so.")
    ssl_context: "ssl.SSLContext | None" = key(OBJECT, None, ANY, MEDIUM,
        "An ssl.SSLContext that is used as it is, instead of all other ssl keys.", origin="kbatch")
    ssl_truststore_location: str | None = key(STRING, None, ANY, HIGH,
        "PEM file with the certificates of the authorities that are trusted; by default the system's.")
    ssl_truststore_certificates: Password | None = key(PASSWORD, None, ANY, HIGH,
        "Certificates of the trusted authorities as PEM text.")
    ssl_truststore_type: str = key(STRING, "PEM", ANY, MEDIUM,
        "Format of the trust store.", NO_STORES)
    ssl_truststore_password: Password | None = key(PASSWORD, None, ANY, HIGH,
        "Password of the trust store.", NO_STORE_PASSWORD)
    ssl_keystore_location: str | None = key(STRING, None, ANY, HIGH,
        "PEM file with the client's certificate chain, and its private key unless ssl.key.location has it.")
    ssl_key_location: str | None = key(STRING, None, ANY, MEDIUM,
        "PEM file with the client's private key.", origin="librdkafka")
    ssl_keystore_certificate_chain: Password | None = key(PASSWORD, None, ANY, HIGH,
        "The client's certificate chain as PEM text.")
    ssl_keystore_key: Password | None = key(PASSWORD, None, ANY, HIGH,
        "The client's private key as PEM text.")
    ssl_key_password: Password | None = key(PASSWORD, None, ANY, HIGH,
        "Password of the private key, where it is encrypted.")
    ssl_keystore_type: str = key(STRING, "PEM", ANY, MEDIUM,
        "Format of the key store.", NO_STORES)
    ssl_keystore_password: Password | None = key(PASSWORD, None, ANY, HIGH,
        "Password of the key store.", NO_STORE_PASSWORD)
    ssl_endpoint_identification_algorithm: str = key(STRING, "https",
        one_of("https", "", fold=lambda name: name.removeprefix("none")), LOW,
        "https: the broker's certificate must be for the name connected to. Empty or none: any will do, "
        "which invites a man in the middle.")
    ssl_enabled_protocols: tuple[str, ...] = key(LIST, "TLSv1.2,TLSv1.3",
        each_of("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"), MEDIUM,
        "Versions of TLS that may be spoken, the lowest to the highest of them.")
    ssl_cipher_suites: tuple[str, ...] = key(LIST, "", ANY, LOW,
        "Cipher suites for TLS up to 1.2, by OpenSSL's names; by default those of Python's ssl.")
    ssl_protocol: str = key(STRING, "TLSv1.3", ANY, MEDIUM,
        "Name of the Java SSLContext.", "ssl.enabled.protocols says which versions are spoken")
    ssl_provider: str | None = key(STRING, None, ANY, MEDIUM, "Java's security provider.", NO_JAVA_TLS)
    ssl_engine_factory_class: object = key(OBJECT, None, ANY, LOW, "Maker of TLS engines.", NO_JAVA_TLS)
    ssl_keymanager_algorithm: str = key(STRING, "SunX509", ANY, LOW, "Java's key manager.", NO_JAVA_TLS)
    ssl_trustmanager_algorithm: str = key(STRING, "PKIX", ANY, LOW, "Java's trust manager.", NO_JAVA_TLS)
    ssl_secure_random_implementation: str | None = key(STRING, None, ANY, LOW,
        "Java's source of random numbers.", NO_JAVA_TLS)
    security_providers: str | None = key(STRING, None, ANY, LOW,
        "Classes of security providers.", NO_JAVA_TLS)
    config_providers: tuple[str, ...] = key(LIST, "", ANY, LOW, "Classes that look values up.", NO_PROVIDERS)

    # SASL

    sasl_mechanism: str = key(STRING, "GSSAPI", one_of(*MECHANISMS), MEDIUM,
        "How a client proves who it is, where security.protocol has SASL. GSSAPI and AWS_MSK_IAM are extras.")
    sasl_username: str | None = key(STRING, None, ANY, HIGH,
        "User name for PLAIN and SCRAM.", origin="librdkafka")
    sasl_password: Password | None = key(PASSWORD, None, ANY, HIGH,
        "Password for PLAIN and SCRAM.", origin="librdkafka")
    sasl_jaas_config: Password | None = key(PASSWORD, None, ANY, MEDIUM,
        "User name and password in Java's way: the line of a PlainLoginModule or ScramLoginModule.")
    sasl_oauthbearer_token: Callable[[], str] | None = key(OBJECT, None, ANY, HIGH,
        "A callable without arguments that returns the token for OAUTHBEARER.", origin="kbatch")
    sasl_kerberos_service_name: str | None = key(STRING, None, ANY, MEDIUM,
        "Name of the brokers' Kerberos principal, for GSSAPI.")
    sasl_kerberos_kinit_cmd: str = key(STRING, "/usr/bin/kinit", ANY, LOW, "Path of kinit.", NO_KINIT)
    sasl_kerberos_min_time_before_relogin: int = key(LONG, 60_000, ANY, LOW,
        "Pause between logins.", NO_KINIT)
    sasl_kerberos_ticket_renew_jitter: float = key(DOUBLE, 0.05, ANY, LOW,
        "Jitter of the time of renewal.", NO_KINIT)
    sasl_kerberos_ticket_renew_window_factor: float = key(DOUBLE, 0.8, ANY, LOW,
        "Part of a ticket's life after which it is renewed.", NO_KINIT)
    sasl_client_callback_handler_class: object = key(OBJECT, None, ANY, MEDIUM,
        "Class that answers the mechanism's questions.", NO_JAVA_LOGIN)
    sasl_login_callback_handler_class: object = key(OBJECT, None, ANY, MEDIUM,
        "Class that answers the login's questions.", NO_JAVA_LOGIN)
    sasl_login_class: object = key(OBJECT, None, ANY, MEDIUM, "Class of the login.", NO_JAVA_LOGIN)
    sasl_login_connect_timeout_ms: int | None = key(INT, None, ANY, LOW,
        "How long connecting to a provider may take.", NO_LOGIN)
    sasl_login_read_timeout_ms: int | None = key(INT, None, ANY, LOW,
        "How long a provider's answer may take.", NO_LOGIN)
    sasl_login_refresh_window_factor: float = key(DOUBLE, 0.8, between(0.5, 1.0), LOW,
        "Part of a token's life after which it is refreshed.", NO_LOGIN)
    sasl_login_refresh_window_jitter: float = key(DOUBLE, 0.05, between(0.0, 0.25), LOW,
        "Jitter of the time of refreshing.", NO_LOGIN)
    sasl_login_refresh_min_period_seconds: int = key(SHORT, 60, between(0, 900), LOW,
        "Pause between refreshes.", NO_LOGIN)
    sasl_login_refresh_buffer_seconds: int = key(SHORT, 300, between(0, 3600), LOW,
        "Time left of a token's life when it is refreshed.", NO_LOGIN)
    sasl_login_retry_backoff_ms: int = key(LONG, 100, ANY, LOW,
        "Wait before a provider is asked again.", NO_LOGIN)
    sasl_login_retry_backoff_max_ms: int = key(LONG, 10_000, ANY, LOW,
        "Where the doubling of that wait ends.", NO_LOGIN)
    sasl_oauthbearer_jwt_retriever_class: object = key(OBJECT,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever", ANY, MEDIUM,
        "Class that fetches tokens.", NO_OIDC)
    sasl_oauthbearer_jwt_validator_class: object = key(OBJECT,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator", ANY, MEDIUM,
        "Class that checks tokens.", NO_OIDC)
    sasl_oauthbearer_token_endpoint_url: str | None = key(STRING, None, ANY, MEDIUM,
        "Where tokens are fetched.", NO_OIDC)
    sasl_oauthbearer_scope: str | None = key(STRING, None, ANY, MEDIUM, "Scope that is asked for.", NO_OIDC)
    sasl_oauthbearer_client_credentials_client_id: str | None = key(STRING, None, ANY, MEDIUM,
        "Client id of the client-credentials grant.", NO_OIDC)
    sasl_oauthbearer_client_credentials_client_secret: Password | None = key(PASSWORD, None, ANY, MEDIUM,
        "Secret of the client-credentials grant.", NO_OIDC)
    sasl_oauthbearer_assertion_algorithm: str = key(STRING, "RS256",
        one_of("RS256", "ES256", fold=str.upper), MEDIUM, "Signature of an assertion.", NO_OIDC)
    sasl_oauthbearer_assertion_claim_aud: str | None = key(STRING, None, ANY, MEDIUM,
        "Audience of an assertion.", NO_OIDC)
    sasl_oauthbearer_assertion_claim_exp_seconds: int = key(INT, 300, between(0, 86_400), LOW,
        "How long an assertion is valid.", NO_OIDC)
    sasl_oauthbearer_assertion_claim_iss: str | None = key(STRING, None, ANY, MEDIUM,
        "Issuer of an assertion.", NO_OIDC)
    sasl_oauthbearer_assertion_claim_jti_include: bool = key(BOOLEAN, False, ANY, MEDIUM,
        "Whether an assertion has an id.", NO_OIDC)
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = key(INT, 60, between(0, 3600), LOW,
        "How far back an assertion's validity begins.", NO_OIDC)
    sasl_oauthbearer_assertion_claim_sub: str | None = key(STRING, None, ANY, MEDIUM,
        "Subject of an assertion.", NO_OIDC)
    sasl_oauthbearer_assertion_file: str | None = key(STRING, None, ANY, MEDIUM,
        "File with a ready assertion.", NO_OIDC)
    sasl_oauthbearer_assertion_private_key_file: str | None = key(STRING, None, ANY, MEDIUM,
        "File with the key that signs assertions.", NO_OIDC)
    sasl_oauthbearer_assertion_private_key_passphrase: Password | None = key(PASSWORD, None, ANY, MEDIUM,
        "Password of that key.", NO_OIDC)
    sasl_oauthbearer_assertion_template_file: str | None = key(STRING, None, ANY, MEDIUM,
        "File with further claims of an assertion.", NO_OIDC)
    sasl_oauthbearer_header_urlencode: bool = key(BOOLEAN, False, ANY, LOW,
        "Whether client id and secret are URL-encoded.", NO_OIDC)
    sasl_oauthbearer_scope_claim_name: str = key(STRING, "scope", ANY, LOW, "Claim with the scope.", NO_OIDC)
    sasl_oauthbearer_sub_claim_name: str = key(STRING, "sub", ANY, LOW, "Claim with the subject.", NO_OIDC)
    sasl_oauthbearer_clock_skew_seconds: int = key(INT, 30, ANY, LOW,
        "How far clocks may be apart when a token is checked.", NO_OIDC)
    sasl_oauthbearer_expected_audience: tuple[str, ...] = key(LIST, "", ANY, HIGH,
        "Audiences that a token must be for.", NO_OIDC)
    sasl_oauthbearer_expected_issuer: str | None = key(STRING, None, ANY, HIGH,
        "Issuer that a token must be from.", NO_OIDC)
    sasl_oauthbearer_jwks_endpoint_url: str | None = key(STRING, None, ANY, MEDIUM,
        "Where the keys that signed tokens are fetched.", NO_OIDC)
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = key(LONG, 3_600_000, ANY, LOW,
        "Pause between fetches of those keys.", NO_OIDC)
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = key(LONG, 100, ANY, LOW,
        "Wait before they are fetched again.", NO_OIDC)
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = key(LONG, 10_000, ANY, LOW,
        "Where the doubling of that wait ends.", NO_OIDC)

    def __init__(
        self, settings: Mapping[str, object] | None = None, client_number: int = 1, /, **keywords: object
    ) -> None:
        values = {name: row.initial for name, row in KEYS.items()}
        given = read_settings({} if settings is None else settings, keywords, KEYS)
        values |= given
        for rule in RULES:
            rule(values, given.keys())
        if "client.id" not in given:
            values["client.id"] = f"kbatch-producer-{values['transactional.id'] or client_number}"
        object.__setattr__(self, "given", frozenset(given))
        for name, value in values.items():
            object.__setattr__(self, name.replace(".", "_"), value)

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name.replace('.', '_'))!r}" for name in sorted(self.given))
        return f"ProducerConfig({', '.join(shown)})"

    @property
    def bootstrap_addresses(self) -> tuple[tuple[str, int], ...]:
        """Host and port of each of the bootstrap.servers."""
        return tuple(map(host_and_port, self.bootstrap_servers))


KEYS: Mapping[str, Key] = MappingProxyType(
    {
        field.name.replace("_", "."): field.metadata["key"]
        for field in dataclasses.fields(ProducerConfig)
        if "key" in field.metadata
    }
)


class OtherDefault(NamedTuple):
    """Why a default is not Java's, which is `javas`; None: a Java program must give the key."""

    javas: object
    reason: str


OTHER_DEFAULTS: Mapping[str, OtherDefault] = MappingProxyType(
    {
        "enable.metrics.push": OtherDefault(True, NO_PUSH),
        "key.serializer": OtherDefault(None, "keys are bytes already, unless a serializer is given"),
        "metric.reporters": OtherDefault("org.apache.kafka.common.metrics.JmxReporter", NO_JMX),
        "send.buffer.bytes": OtherDefault(
            131_072, "the system's own grows, and takes a request of several large batches in one go"
        ),
        "ssl.keystore.type": OtherDefault("JKS", NO_STORES),
        "ssl.truststore.type": OtherDefault("JKS", NO_STORES),
        "value.serializer": OtherDefault(None, "values are bytes already, unless a serializer is given"),
    }
)
