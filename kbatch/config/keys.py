"""The table of configuration keys, as the class that has them as attributes.

Each attribute of `ProducerConfig` is one row: its name with dots for underscores is the key, and `key(...)`
has type, default, check, importance, purpose, and the reason for refusing it, if any. The rows match
org.apache.kafka.clients.producer.ProducerConfig 4.3.1, except for the defaults in `OTHER_DEFAULTS`.
"""

# ruff: noqa: RUF009 -- key() is dataclasses.field with a row of the table in it

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from kbatch.codecs import CODEC_NAMES, LEVELS
from kbatch.config.names import read_settings
from kbatch.config.rules import ADMIN_RULES, CLIENT_RULES, CONSUMER_RULES, PRODUCER_RULES, host_and_port
from kbatch.config.values import (
    ACKS,
    ANY,
    ASSIGNORS,
    AUTHORITIES,
    BOOLEAN,
    DOUBLE,
    EXTENSIONS,
    FILE,
    INT,
    INT_MAX,
    LIST,
    LITERAL,
    LONG,
    NAMES,
    NON_EMPTY,
    OBJECT,
    OBJECTS,
    OFFSET_RESET,
    PASSWORD,
    PRIVATE,
    REQUIRED,
    SECRET,
    SENDABLE,
    SENDABLE_NAME,
    SHORT,
    STORE_TYPE,
    STRING,
    TLS_CONTEXT,
    TOKEN_SOURCE,
    URL,
    Check,
    Importance,
    Key,
    Password,
    Rule,
    ValueType,
    at_least,
    between,
    class_named,
    each_of,
    one_of,
)

if TYPE_CHECKING:
    import ssl
else:

    class _Lazily:
        """A module that is imported on first use, for example by typing.get_type_hints: Python's ssl takes
        some 4 MiB.
        """

        def __init__(self, name):
            self._name = name

        def __getattr__(self, attribute):
            return getattr(importlib.import_module(self._name), attribute)

    ssl = _Lazily("ssl")

HIGH, MEDIUM, LOW = Importance

NO_PROVIDERS = "values are used literally: read secrets in Python and pass them"
NO_JMX = "there is no JMX: Producer.metrics() gives every metric"
PUSH = "it takes the extra `telemetry`; metrics() gives every metric without brokers"
NO_JAVA_TLS = "it configures Java's security providers: pass an ssl.SSLContext as ssl.context"
NO_JKS = "Python reads PEM, and PKCS12 if the extra pkcs12 is installed, but not Java's own format"
NO_JAVA_LOGIN = "it is a Java class: sasl.oauthbearer.token takes a callable that returns a token"
NO_KINIT = "the Kerberos library gets and renews tickets, from sasl.kerberos.keytab or its cache"
FOR_BROKERS = "Brokers check tokens with it. A client accepts it without effect, as Java's does"
NO_DESERIALIZERS = "keys and values are bytes unless a deserializer is set"
NO_TWO_PHASE = "two-phase commit (KIP-939) is not implemented yet"
# Half of the brokers' default producer.id.expiration.ms.
LONGEST_IDLE_MS = 43_200_000
OAUTH_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
ASSIGNOR_PACKAGE = "org.apache.kafka.clients.consumer"
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
    """Return a row, typed Any so that type checkers use the annotation beside it as the attribute's type."""
    return dataclasses.field(metadata={"key": Key(type, default, check, importance, doc, refused, origin)})


def _level_key(codec: str, doc: str) -> Any:
    """Return the row of a codec's level."""
    lowest, highest, default = LEVELS[codec]
    return key(INT, default, between(lowest, highest, LEVELS[codec].outside), MEDIUM, doc)


@dataclasses.dataclass(frozen=True, slots=True, init=False, repr=False)
class ClientConfig:
    """The keys of every client: what connections, metadata, TLS, SASL and metrics need.

    Parameters
    ----------
    settings : Mapping[str, object], optional
        Keys with dots, as Kafka writes them, or the names of librdkafka and other clients.
    client_number : int
        The N of the default client.id, kbatch-client-N.
    **keywords
        The same keys with underscores for dots. In both, None leaves a key at its default.

    Attributes
    ----------
    given : frozenset of str
        The keys that were set; the others have their defaults.

    Raises
    ------
    ConfigError
        For unknown or refused keys, invalid values, duplicates, and contradictions.
    """

    given: frozenset[str] = dataclasses.field(compare=False)

    # What a subclass replaces: what the keys demand of each other, and what an error calls the client.
    rules: ClassVar[tuple[Rule, ...]] = CLIENT_RULES
    name: ClassVar[str] = "client"

    # The cluster and the connections to it

    bootstrap_servers: tuple[str, ...] = key(LIST, REQUIRED, NON_EMPTY, HIGH,
        "Brokers to start from, each host:port; the client learns the others from them.")
    client_id: str = key(STRING, "", SENDABLE, MEDIUM,
        "The client's name in the brokers' logs, quotas and metrics. The default is kbatch-client-N; N is a "
        "number.")
    client_dns_lookup: str = key(STRING, "use_all_dns_ips",
        one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"), MEDIUM,
        "Try all addresses of a name in turn; with the second value, also replace the names in "
        "bootstrap.servers by their canonical names first, which Kerberos may need.")
    connections_max_idle_ms: int = key(LONG, 540_000, ANY, MEDIUM,
        "Close a connection that was unused for this long; a negative value keeps it.")
    reconnect_backoff_ms: int = key(LONG, 50, at_least(0), LOW,
        "Wait before the first reconnection to a node. Each failure doubles it, with 20 % jitter.")
    reconnect_backoff_max_ms: int = key(LONG, 1000, at_least(0), LOW,
        "Maximum of the doubling of reconnect.backoff.ms. If only that key is set, it is the maximum too.")
    socket_connection_setup_timeout_ms: int = key(LONG, 10_000, ANY, MEDIUM,
        "Time-out of the first TCP connect. Each failure in a row doubles it (KIP-601).")
    socket_connection_setup_timeout_max_ms: int = key(LONG, 30_000, ANY, MEDIUM,
        "Maximum of the doubling of socket.connection.setup.timeout.ms.")
    send_buffer_bytes: int = key(INT, -1, at_least(-1), MEDIUM,
        "SO_SNDBUF of a connection; -1 leaves it to the operating system, which lets it grow.")
    receive_buffer_bytes: int = key(INT, 32_768, at_least(-1), MEDIUM,
        "SO_RCVBUF of a connection; -1 leaves it to the operating system.")
    request_timeout_ms: int = key(INT, 30_000, at_least(0), MEDIUM,
        "Time for an answer, after which the connection counts as broken and its requests are sent again.")
    retry_backoff_ms: int = key(LONG, 100, at_least(0), LOW,
        "Wait before the first retry of a request. Each failure doubles it, with 20 % jitter (KIP-580).")
    retry_backoff_max_ms: int = key(LONG, 1000, at_least(0), LOW,
        "Maximum of the doubling of retry.backoff.ms.")
    metadata_max_age_ms: int = key(LONG, 300_000, at_least(0), LOW,
        "Refresh metadata at this age, even without a sign of change.")
    metadata_recovery_strategy: str = key(STRING, "rebootstrap",
        one_of("rebootstrap", "none", fold=str.lower), LOW,
        "With rebootstrap, the client tries bootstrap.servers again when no known broker answers (KIP-899).")
    metadata_recovery_rebootstrap_trigger_ms: int = key(LONG, 300_000, at_least(0), LOW,
        "Without metadata for this long, the client starts over from bootstrap.servers (KIP-1102).")

    # Metrics

    metrics_num_samples: int = key(INT, 2, at_least(1), LOW,
        "Number of windows that averages, maxima and rates cover.")
    metrics_sample_window_ms: int = key(LONG, 30_000, at_least(1), LOW,
        "Length of one window.")
    metrics_recording_level: str = key(STRING, "INFO", one_of("INFO", "DEBUG", "TRACE"), LOW,
        "The most detailed level of metrics to record.")
    metric_reporters: tuple[str, ...] = key(LIST, "", ANY, LOW,
        "Classes that receive metrics.", NO_JMX)
    enable_metrics_push: bool = key(BOOLEAN, False, ANY, LOW,
        "Push metrics to brokers that collect them (KIP-714), and a last time at close().")

    # TLS

    security_protocol: str = key(STRING, "PLAINTEXT",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", fold=str.upper), MEDIUM,
        "Whether connections are encrypted (SSL) and authenticated (SASL). It must be set if a key that "
        "starts with ssl, sasl or https is.")
    ssl_context: "ssl.SSLContext | Callable[[], ssl.SSLContext] | None" = key(TLS_CONTEXT, None, ANY, MEDIUM,
        "An ssl.SSLContext, or a callable that returns one for each connection, to use instead of all other "
        "ssl keys.", origin="kbatch")
    ssl_truststore_location: str | None = key(AUTHORITIES, None, ANY, HIGH,
        "File with the certificates of trusted authorities, PEM or PKCS12, or a folder of PEM files. By "
        "default the system's. A change of it, and of the other files here, counts from the next connection.")
    ssl_truststore_certificates: Password | None = key(PASSWORD, None, ANY, HIGH,
        "Certificates of the trusted authorities as PEM text.")
    ssl_truststore_type: str = key(STRING, "PEM", STORE_TYPE, MEDIUM,
        "Format of the trust store. By default PKCS12 if its name ends with .p12, .pfx or .jks, or if it has "
        "a password.")
    ssl_truststore_password: Password | None = key(PASSWORD, None, ANY, HIGH,
        "Password of a PKCS12 trust store.")
    ssl_crl_location: str | None = key(FILE, None, ANY, LOW,
        "PEM file with the authority's list of revoked certificates (CRL), which must be valid and not have "
        "the broker's.", origin="librdkafka")
    ssl_keystore_location: str | None = key(FILE, None, ANY, HIGH,
        "File with the client's certificate chain, and its private key unless ssl.key.location names it: "
        "PEM or PKCS12.")
    ssl_key_location: str | None = key(FILE, None, ANY, MEDIUM,
        "PEM file with the client's private key.", origin="librdkafka")
    ssl_keystore_certificate_chain: Password | None = key(PASSWORD, None, ANY, HIGH,
        "The client's certificate chain as PEM text.")
    ssl_keystore_key: Password | None = key(PASSWORD, None, ANY, HIGH,
        "The client's private key as PEM text.")
    ssl_key_password: Password | None = key(PASSWORD, None, ANY, HIGH,
        "Password of the private key, if it is encrypted.")
    ssl_keystore_type: str = key(STRING, "PEM", STORE_TYPE, MEDIUM,
        "Format of the key store. By default PKCS12 if its name ends with .p12, .pfx or .jks, or if it has "
        "a password.")
    ssl_keystore_password: Password | None = key(PASSWORD, None, ANY, HIGH,
        "Password of a PKCS12 key store.")
    ssl_endpoint_identification_algorithm: str = key(STRING, "https",
        one_of("https", "", fold=lambda name: name.removeprefix("none")), LOW,
        "https: the broker's certificate must be for the host name in use. Empty or none: any certificate is "
        "accepted, which allows a man in the middle.")
    ssl_enabled_protocols: tuple[str, ...] = key(LIST, "TLSv1.2,TLSv1.3",
        each_of("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"), MEDIUM,
        "Versions of TLS to accept, from the lowest to the highest of them.")
    ssl_cipher_suites: tuple[str, ...] = key(LIST, "", ANY, LOW,
        "Cipher suites by IANA's names, as in Java, or for TLS up to 1.2 by OpenSSL's; by default those of "
        "Python's ssl. Choosing among those of TLS 1.3 needs Python 3.15. With IANA's names, versions "
        "of TLS without a suite in the list are not used.")
    ssl_protocol: str = key(STRING, "TLSv1.3", ANY, MEDIUM,
        "Name of the Java SSLContext.", "ssl.enabled.protocols sets the accepted versions")
    ssl_provider: str | None = key(STRING, None, ANY, MEDIUM, "Java's security provider.", NO_JAVA_TLS)
    ssl_engine_factory_class: object = key(OBJECT, None, ANY, LOW, "Factory of TLS engines.", NO_JAVA_TLS)
    ssl_keymanager_algorithm: str = key(STRING, "SunX509", ANY, LOW, "Java's key manager.", NO_JAVA_TLS)
    ssl_trustmanager_algorithm: str = key(STRING, "PKIX", ANY, LOW, "Java's trust manager.", NO_JAVA_TLS)
    ssl_secure_random_implementation: str | None = key(STRING, None, ANY, LOW,
        "Java's source of random numbers.", NO_JAVA_TLS)
    security_providers: str | None = key(STRING, None, ANY, LOW,
        "Classes of security providers.", NO_JAVA_TLS)
    config_providers: tuple[str, ...] = key(LIST, "", ANY, LOW, "Classes that look up values.", NO_PROVIDERS)
    https_ca_location: str | None = key(AUTHORITIES, None, ANY, LOW,
        "PEM file, or folder of PEM files, with the authorities that a token endpoint is trusted by. By "
        "default the system's.", origin="librdkafka")
    https_ca_pem: Password | None = key(PASSWORD, None, ANY, LOW,
        "The same authorities as PEM text.", origin="librdkafka")

    # SASL: names, passwords, Kerberos, MSK

    sasl_mechanism: str = key(STRING, "GSSAPI", one_of(*MECHANISMS), MEDIUM,
        "Mechanism of authentication, if security.protocol has SASL. GSSAPI needs the extra gssapi.")
    sasl_username: str | None = key(LITERAL, None, ANY, HIGH,
        "User name for PLAIN and SCRAM; the id of a delegation token.", origin="librdkafka")
    sasl_password: Password | None = key(SECRET, None, ANY, HIGH,
        "Password for PLAIN and SCRAM; the HMAC of a delegation token. Blanks at its ends count.",
        origin="librdkafka")
    sasl_scram_tokenauth: bool = key(BOOLEAN, False, ANY, LOW,
        "True if sasl.username and sasl.password are a delegation token (KIP-48).", origin="kbatch")
    sasl_jaas_config: Password | None = key(PASSWORD, None, ANY, MEDIUM,
        "The login in Java's format, as one line of a PlainLoginModule, ScramLoginModule, "
        "OAuthBearerLoginModule, Krb5LoginModule or IAMLoginModule. It sets the keys for its options.")
    sasl_kerberos_service_name: str | None = key(STRING, None, ANY, MEDIUM,
        "Name of the brokers' Kerberos principal, for GSSAPI; usually kafka.")
    sasl_kerberos_domain_name: str | None = key(STRING, None, ANY, LOW,
        "Host name of the brokers' Kerberos principal, if it is not the one to connect to.",
        origin="kafka-python")
    sasl_kerberos_principal: str | None = key(STRING, None, ANY, LOW,
        "The client's Kerberos principal; by default that of the ticket cache or keytab.",
        origin="librdkafka")
    sasl_kerberos_keytab: str | None = key(FILE, None, ANY, LOW,
        "File with the client's Kerberos keys. Without it, a ticket must be in the ticket cache.",
        origin="librdkafka")
    sasl_kerberos_ticket_cache: str | None = key(FILE, None, ANY, LOW,
        "Ticket cache with the client's tickets, instead of the one of the environment (KRB5CCNAME).",
        origin="kbatch")
    sasl_kerberos_kinit_cmd: str = key(STRING, "/usr/bin/kinit", ANY, LOW, "Path of kinit.", NO_KINIT)
    sasl_kerberos_min_time_before_relogin: int = key(LONG, 60_000, ANY, LOW,
        "Minimum time between logins.", NO_KINIT)
    sasl_kerberos_ticket_renew_jitter: float = key(DOUBLE, 0.05, ANY, LOW,
        "Jitter of the renewal time.", NO_KINIT)
    sasl_kerberos_ticket_renew_window_factor: float = key(DOUBLE, 0.8, ANY, LOW,
        "Fraction of a ticket's life after which it is renewed.", NO_KINIT)
    sasl_aws_role_arn: str | None = key(STRING, None, ANY, LOW,
        "Role to assume for AWS_MSK_IAM.", origin="kbatch")
    sasl_aws_role_session_name: str | None = key(STRING, None, ANY, LOW,
        "Name of the session of that role.", origin="kbatch")
    sasl_aws_sts_region: str | None = key(STRING, None, ANY, LOW,
        "Region of the AWS STS that gives the role.", origin="kbatch")
    sasl_aws_profile_name: str | None = key(STRING, None, ANY, LOW,
        "Profile of AWS's configuration files with the credentials for AWS_MSK_IAM.", origin="kbatch")

    # SASL: tokens

    sasl_oauthbearer_token: object = key(TOKEN_SOURCE, None, ANY, HIGH,
        "Source of tokens for OAUTHBEARER: a callable, an object with token() and perhaps extensions(), or "
        "the name of one as package.module:name. A callable with a parameter gets sasl.oauthbearer.config, "
        "as with confluent-kafka. The result is a token, or a tuple with its expiry after it.",
        origin="kbatch")
    sasl_oauthbearer_config: str | None = key(PRIVATE, None, ANY, LOW,
        "Text for the callable, or the claims of an unsecured token, such as principal=alice.",
        origin="librdkafka")
    sasl_oauthbearer_extensions: Mapping[str, str] = key(EXTENSIONS, "", ANY, LOW,
        "SASL extensions to send with each token, such as logicalCluster=lkc-1,identityPoolId=pool-1.",
        origin="librdkafka")
    enable_sasl_oauthbearer_unsecure_jwt: bool = key(BOOLEAN, False, ANY, LOW,
        "Make unsigned tokens from sasl.oauthbearer.config, for tests (KIP-255).", origin="librdkafka")
    sasl_oauthbearer_jwt_retriever_class: str = key(OBJECT, f"{OAUTH_PACKAGE}.DefaultJwtRetriever",
        class_named("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever",
                    "JwtBearerJwtRetriever", package=OAUTH_PACKAGE, remedy=NO_JAVA_LOGIN), MEDIUM,
        "How tokens are fetched, by the name of Java's class. The default is the client credentials grant, "
        "or a file if the URL is one.")
    sasl_oauthbearer_jwt_validator_class: str = key(OBJECT, f"{OAUTH_PACKAGE}.DefaultJwtValidator",
        class_named("DefaultJwtValidator", "ClientJwtValidator", package=OAUTH_PACKAGE,
                    remedy="brokers check tokens, and kbatch sends them as they are"), MEDIUM,
        "Java's check of tokens. It has no effect, as brokers check them.")
    sasl_oauthbearer_token_endpoint_url: str | None = key(URL, None, ANY, MEDIUM,
        "URL to fetch tokens from: https, http on this machine, or file for a file with a token.")
    sasl_oauthbearer_scope: str | None = key(STRING, None, ANY, MEDIUM, "Scope to request tokens for.")
    sasl_oauthbearer_client_credentials_client_id: str | None = key(STRING, None, ANY, MEDIUM,
        "Client id at the token endpoint.")
    sasl_oauthbearer_client_credentials_client_secret: Password | None = key(PASSWORD, None, ANY, MEDIUM,
        "Client secret at the token endpoint.")
    sasl_oauthbearer_header_urlencode: bool = key(BOOLEAN, False, ANY, LOW,
        "URL-encode client id and secret, as RFC 6749 asks and some endpoints expect.")
    sasl_oauthbearer_assertion_algorithm: str = key(STRING, "RS256",
        one_of("RS256", "ES256", fold=str.upper), MEDIUM, "Algorithm of an assertion's signature.")
    sasl_oauthbearer_assertion_claim_aud: str | None = key(STRING, None, ANY, MEDIUM,
        "Audience of an assertion.")
    sasl_oauthbearer_assertion_claim_exp_seconds: int = key(INT, 300, between(0, 86_400), LOW,
        "Validity of an assertion.")
    sasl_oauthbearer_assertion_claim_iss: str | None = key(STRING, None, ANY, MEDIUM,
        "Issuer of an assertion.")
    sasl_oauthbearer_assertion_claim_jti_include: bool = key(BOOLEAN, False, ANY, MEDIUM,
        "Give each assertion an id.")
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = key(INT, 60, between(0, 3600), LOW,
        "How long ago an assertion's validity begins.")
    sasl_oauthbearer_assertion_claim_sub: str | None = key(STRING, None, ANY, MEDIUM,
        "Subject of an assertion.")
    sasl_oauthbearer_assertion_file: str | None = key(FILE, None, ANY, MEDIUM,
        "File with a ready assertion. It is read again after a change.")
    sasl_oauthbearer_assertion_private_key_file: str | None = key(FILE, None, ANY, MEDIUM,
        "PEM file with the private key that signs assertions. It is read again after a change.")
    sasl_oauthbearer_assertion_private_key_pem: Password | None = key(PASSWORD, None, ANY, LOW,
        "The private key that signs assertions as PEM text.", origin="librdkafka")
    sasl_oauthbearer_assertion_private_key_passphrase: Password | None = key(PASSWORD, None, ANY, MEDIUM,
        "Password of that key, if it is encrypted.")
    sasl_oauthbearer_assertion_template_file: str | None = key(FILE, None, ANY, MEDIUM,
        "JSON file with more headers and claims of an assertion.")
    sasl_oauthbearer_scope_claim_name: str = key(STRING, "scope", ANY, LOW,
        f"Claim with the scope. {FOR_BROKERS}.")
    sasl_oauthbearer_sub_claim_name: str = key(STRING, "sub", ANY, LOW,
        "Claim with the subject, which is the principal's name in logs.")
    sasl_oauthbearer_clock_skew_seconds: int = key(INT, 30, ANY, LOW,
        f"Allowed difference of clocks. {FOR_BROKERS}.")
    sasl_oauthbearer_expected_audience: tuple[str, ...] = key(LIST, "", ANY, HIGH,
        f"Audiences that a token must name. {FOR_BROKERS}.")
    sasl_oauthbearer_expected_issuer: str | None = key(STRING, None, ANY, HIGH,
        f"Issuer that a token must have. {FOR_BROKERS}.")
    sasl_oauthbearer_jwks_endpoint_url: str | None = key(URL, None, ANY, MEDIUM,
        f"URL of the keys that sign tokens. {FOR_BROKERS}.")
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = key(LONG, 3_600_000, ANY, LOW,
        f"Time between fetches of those keys. {FOR_BROKERS}.")
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = key(LONG, 100, ANY, LOW,
        f"Wait before the next fetch. {FOR_BROKERS}.")
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = key(LONG, 10_000, ANY, LOW,
        f"Maximum of the doubling of that wait. {FOR_BROKERS}.")
    sasl_client_callback_handler_class: object = key(OBJECT, None,
        class_named("IAMClientCallbackHandler", remedy=NO_JAVA_LOGIN), MEDIUM,
        "Java's class for AWS_MSK_IAM. It has no effect, as sasl.mechanism says it.")
    sasl_login_callback_handler_class: object = key(OBJECT, None,
        class_named("OAuthBearerLoginCallbackHandler", "OAuthBearerUnsecuredLoginCallbackHandler",
                    "JaasClientOauthLoginCallbackHandler", "IAMOAuthBearerLoginCallbackHandler",
                    remedy=NO_JAVA_LOGIN), MEDIUM,
        "Java's class for tokens of Kafka or Strimzi, which has no effect, or of AWS, which makes "
        "OAUTHBEARER AWS_MSK_IAM.")
    sasl_login_class: object = key(OBJECT, None, ANY, MEDIUM, "Class of the login.", NO_JAVA_LOGIN)
    sasl_login_connect_timeout_ms: int | None = key(INT, None, ANY, LOW,
        "Time-out of connecting to a token endpoint; by default 10 s.")
    sasl_login_read_timeout_ms: int | None = key(INT, None, ANY, LOW,
        "Time-out of a token endpoint's answer; by default 10 s.")
    sasl_login_refresh_window_factor: float = key(DOUBLE, 0.8, between(0.5, 1.0), LOW,
        "Fraction of a token's life after which it is refreshed.")
    sasl_login_refresh_window_jitter: float = key(DOUBLE, 0.05, between(0.0, 0.25), LOW,
        "Largest random fraction to add to that one.")
    sasl_login_refresh_min_period_seconds: int = key(SHORT, 60, between(0, 900), LOW,
        "Minimum time between refreshes.")
    sasl_login_refresh_buffer_seconds: int = key(SHORT, 300, between(0, 3600), LOW,
        "Remaining life of a token at which it is refreshed at the latest.")
    sasl_login_retry_backoff_ms: int = key(LONG, 100, ANY, LOW,
        "Wait before the next request to a token endpoint. Each failure doubles it.")
    sasl_login_retry_backoff_max_ms: int = key(LONG, 10_000, ANY, LOW,
        "Maximum of the doubling of sasl.login.retry.backoff.ms.")

    def __init__(
        self, settings: Mapping[str, object] | None = None, client_number: int = 1, /, **keywords: object
    ) -> None:
        keys = keys_of(type(self))
        values = {name: row.initial for name, row in keys.items()}
        given = read_settings({} if settings is None else settings, keywords, keys, self.name, OWNERS)
        values |= given
        for rule in self.rules:
            rule(values, given.keys())
        if "client.id" not in given:
            values["client.id"] = f"kbatch-{self.name}-{self._default_number(values, client_number)}"
        object.__setattr__(self, "given", frozenset(given))
        for name, value in values.items():
            object.__setattr__(self, name.replace(".", "_"), value)

    def settings(self) -> dict[str, object]:
        """Return the keys that were set, with their values, to make the same configuration of them."""
        return {name: getattr(self, name.replace(".", "_")) for name in sorted(self.given)}

    def __repr__(self) -> str:
        if not hasattr(self, "given"):  # its constructor has raised
            return f"<{type(self).__name__}, refused>"
        rows = keys_of(type(self))
        values = ((name, getattr(self, name.replace(".", "_"))) for name in sorted(self.given))
        shown = (f"{name}={rows[name].type.show(value)}" for name, value in values)
        return f"{type(self).__name__}({', '.join(shown)})"

    @staticmethod
    def _default_number(values: Mapping[str, Any], client_number: int) -> object:
        """Return the N of client.id."""
        return client_number

    @property
    def bootstrap_addresses(self) -> tuple[tuple[str, int], ...]:
        """Return host and port of each of the bootstrap.servers."""
        return tuple(map(host_and_port, self.bootstrap_servers))


@dataclasses.dataclass(frozen=True, slots=True, init=False, repr=False)
class ProducerConfig(ClientConfig):
    """The complete, checked configuration of a producer: an immutable attribute for every key.

    Parameters
    ----------
    settings : Mapping[str, object], optional
        Keys with dots, as Kafka writes them, or the names of librdkafka and other clients.
    client_number : int
        The N of the default client.id, kbatch-producer-N.
    **keywords
        The same keys with underscores for dots. In both, None leaves a key at its default.

    Attributes
    ----------
    given : frozenset of str
        The keys that were set; the others have their defaults.

    Raises
    ------
    ConfigError
        For unknown or refused keys, invalid values, duplicates, and contradictions.
    """

    rules: ClassVar[tuple[Rule, ...]] = PRODUCER_RULES
    name: ClassVar[str] = "producer"

    client_id: str = key(STRING, "", SENDABLE, MEDIUM,
        "The client's name in the brokers' logs, quotas and metrics. The default is kbatch-producer-N; N is "
        "a number or the transactional.id.")
    metadata_max_idle_ms: int = key(LONG, 300_000, at_least(5000), LOW,
        "Forget a topic that was unused for this long, until its next record.")

    # Batches, compression, memory

    batch_size: int = key(INT, 16_384, at_least(0), MEDIUM,
        "Maximum bytes of a batch, compressed. 0 gives every record its own batch.")
    linger_ms: int = key(LONG, 5, at_least(0), MEDIUM,
        "Time that a batch that is not full waits for more records.")
    buffer_memory: int = key(LONG, 33_554_432, at_least(0), HIGH,
        "Bytes for all records that are not yet acknowledged. When they are used up, send() waits.")
    max_block_ms: int = key(LONG, 60_000, at_least(0), MEDIUM,
        "Time that send() may wait, for metadata and memory together; also the default of transaction calls.")
    max_request_size: int = key(INT, 1_048_576, at_least(0), MEDIUM,
        "Maximum bytes of a request, and so of a record, before compression.")
    compression_type: str = key(STRING, "none", one_of(*CODEC_NAMES), HIGH,
        "Codec of the batches. Larger batches compress better.")
    compression_level: int | None = key(INT, None, ANY, LOW,
        "Level of the codec in compression.type, on that codec's own scale; -1 is its default.",
        origin="librdkafka")
    compression_gzip_level: int = _level_key("gzip",
        "Level of gzip. -1 is fast, about level 1 (isal's 2, or zlib's 1 if isal is not installed); "
        "1 to 9 are zlib's.")
    compression_lz4_level: int = _level_key("lz4",
        "Level of lz4. 9, the default, is the fast compressor, as in Java; others compress more slowly.")
    compression_zstd_level: int = _level_key("zstd",
        "Level of zstd; negative levels are the fastest.")

    # Delivery

    acks: int = key(ACKS, "all", ANY, LOW,
        "Replicas that must have a batch before it is delivered: all = all in-sync replicas, 1 = leader, "
        "0 = none.")
    enable_idempotence: bool = key(BOOLEAN, True, ANY, LOW,
        "Every batch is in the log once and in order, also after retries. Contradicting acks or retries turn "
        "it off, unless it was set.")
    max_in_flight_requests_per_connection: int = key(INT, 5, at_least(1), LOW,
        "Unanswered requests on a connection. At most 5 with idempotence; without it, more than 1 can change "
        "the order of records when one is retried.")
    retries: int = key(INT, INT_MAX, between(0, INT_MAX), HIGH,
        "How often a batch is retried. Leave it alone: delivery.timeout.ms is the limit that matters.")
    delivery_timeout_ms: int = key(INT, 120_000, at_least(0), MEDIUM,
        "Time from the first record of a batch to its success or failure, all waits and retries included. At "
        "least linger.ms + request.timeout.ms; the default is raised to that.")
    kbatch_on_delivery_failure: str = key(STRING, "continue",
        one_of("continue", "stop_partition", "stop"), MEDIUM,
        "After a failed record: go on, or fail all later records of its partition or of the producer until "
        "resume(). With the last two no record passes a failed one.", origin="kbatch")
    kbatch_sequence_gap: str = key(STRING, "fail", one_of("fail", "resend"), LOW,
        "What to do with a batch that may be in the log, if later batches do not prove it: fail it, or "
        "resend it under a new epoch. Java resends, which can duplicate records.", origin="kbatch")
    kbatch_sequence_idle_ms: int = key(LONG, 60_000, between(0, LONGEST_IDLE_MS), LOW,
        "Brokers forget the sequences of a producer that is idle for long. If the last batch that a "
        "partition acknowledged was sent longer ago than this, the next one travels alone. That costs a "
        "round trip, and its success proves nothing about earlier batches. Keep this well below the brokers' "
        "producer.id.expiration.ms, which is a day by default.", origin="kbatch")
    kbatch_lane: str = key(STRING, "auto", one_of("auto", "python"), LOW,
        "How Producer's thread sends and waits for sockets: without the GIL where that is possible (plain "
        "connections on Linux), or in Python, as it does elsewhere. There is no reason to set it but to "
        "compare.", origin="kbatch")

    # Partitions, serialization, interceptors

    partitioner_class: object = key(OBJECT, None, ANY, MEDIUM,
        "A callable (topic, key, value, partition_count, available) that returns a partition, or a name: "
        "round_robin, random, or one of librdkafka's. The default is murmur2 of the key, as in Java.")
    partitioner_ignore_keys: bool = key(BOOLEAN, False, ANY, MEDIUM,
        "Do not choose the partition by key. It has no effect with a partitioner.class.")
    partitioner_adaptive_partitioning_enable: bool = key(BOOLEAN, True, ANY, LOW,
        "Prefer partitions with shorter queues for records without a key (KIP-794).")
    partitioner_availability_timeout_ms: int = key(LONG, 0, at_least(0), LOW,
        "Records without a key avoid partitions whose leader took no batch for this long; 0 turns it off.")
    key_serializer: object = key(OBJECT, None, ANY, HIGH,
        "Converts keys to bytes: a callable (value), (topic, value) or (topic, headers, value), or the name "
        "of one of kbatch.formats. By default keys must be bytes.")
    value_serializer: object = key(OBJECT, None, ANY, HIGH,
        "Converts values to bytes, like key.serializer.")
    interceptor_classes: tuple[object, ...] = key(OBJECTS, "", ANY, LOW,
        "Interceptors or their classes, which see records before sending and their acknowledgements.")

    # Transactions

    transactional_id: str | None = key(STRING, None, SENDABLE_NAME, LOW,
        "Makes the producer transactional. A later producer with the same id fences this one.")
    transaction_timeout_ms: int = key(INT, 60_000, ANY, LOW,
        "The coordinator aborts a transaction that is open for this long; brokers limit it.")
    transaction_two_phase_commit_enable: bool = key(BOOLEAN, False, ANY, LOW,
        "Lets only an external coordinator end transactions.", NO_TWO_PHASE)

    @staticmethod
    def _default_number(values: Mapping[str, Any], client_number: int) -> object:
        """Return the N of client.id."""
        return values["transactional.id"] or client_number


@dataclasses.dataclass(frozen=True, slots=True, init=False, repr=False)
class ConsumerConfig(ClientConfig):
    """The complete, checked configuration of a client that reads: an immutable attribute for every key.

    Parameters
    ----------
    settings : Mapping[str, object], optional
        Keys with dots, as Kafka writes them, or the names of librdkafka and other clients.
    client_number : int
        The N of the default client.id, kbatch-consumer-N.
    **keywords
        The same keys with underscores for dots. In both, None leaves a key at its default.

    Attributes
    ----------
    given : frozenset of str
        The keys that were set; the others have their defaults.

    Raises
    ------
    ConfigError
        For unknown or refused keys, invalid values, duplicates, and contradictions.
    """

    rules: ClassVar[tuple[Rule, ...]] = CONSUMER_RULES
    name: ClassVar[str] = "consumer"

    client_id: str = key(STRING, "", SENDABLE, LOW,
        "The client's name in the brokers' logs, quotas and metrics. The default is kbatch-consumer-N; N is "
        "a number.")
    receive_buffer_bytes: int = key(INT, -1, at_least(-1), MEDIUM,
        "SO_RCVBUF of a connection; -1 leaves it to the operating system, which lets it grow.")

    # Fetching

    fetch_min_bytes: int = key(INT, 1, at_least(0), HIGH,
        "A broker answers when it has this many bytes, or after fetch.max.wait.ms.")
    fetch_max_wait_ms: int = key(INT, 500, at_least(0), LOW,
        "Time for which a broker waits for fetch.min.bytes. It must be below request.timeout.ms.")
    fetch_max_bytes: int = key(INT, 52_428_800, at_least(0), MEDIUM,
        "Maximum bytes of an answer. A larger batch comes alone. kbatch.fetch.buffer.memory lowers it.")
    max_partition_fetch_bytes: int = key(INT, 1_048_576, at_least(0), HIGH,
        "Maximum bytes of a partition in an answer. A larger batch comes alone.")
    kbatch_fetch_buffer_memory: int = key(LONG, 67_108_864, at_least(1_048_576), HIGH,
        "Bytes for all answers that are requested or not yet read by the program. When they are used up, "
        "nothing is fetched. One batch that is larger than this passes it alone.", origin="kbatch")
    kbatch_decode_threads: int = key(INT, 0, between(0, 64), MEDIUM,
        "Threads that check, decompress and decode records. 0 is one a CPU, at most four.", origin="kbatch")
    kbatch_max_decompressed_bytes: int = key(LONG, 268_435_456, between(1, INT_MAX), LOW,
        "A batch that decompresses to more than this is an error.", origin="kbatch")
    check_crcs: bool = key(BOOLEAN, True, ANY, LOW,
        "Compare the CRC of each batch with its bytes.")
    isolation_level: str = key(STRING, "read_uncommitted",
        one_of("read_committed", "read_uncommitted"), MEDIUM,
        "Whether records of aborted and open transactions are read, too.")
    client_rack: str = key(STRING, "", SENDABLE, LOW,
        "The client's rack. Brokers may name a replica in the same rack to fetch from (KIP-392).")

    # Topics and positions

    allow_auto_create_topics: bool = key(BOOLEAN, True, ANY, MEDIUM,
        "Let brokers create a missing topic that is requested, if their auto.create.topics.enable allows it.")
    auto_offset_reset: str = key(STRING, "latest", OFFSET_RESET, MEDIUM,
        "Where to go on if the log does not have the position: at its beginning (earliest), at its end "
        "(latest), or nowhere (none). by_duration:PT1H goes to the first record of the last hour (KIP-1106).")
    default_api_timeout_ms: int = key(INT, 60_000, at_least(0), MEDIUM,
        "Time for a call about topics or offsets.")

    # Groups

    group_id: str | None = key(STRING, None, SENDABLE_NAME, HIGH,
        "The consumer group: its members share the partitions of their topics, and commit offsets. Without "
        "it, a consumer reads the partitions that it assigns itself, and commits nothing.")
    group_instance_id: str | None = key(STRING, None, SENDABLE_NAME, MEDIUM,
        "The name of a static member (KIP-345): it may restart within the session without a rebalance.")
    group_protocol: str = key(STRING, "auto", one_of("auto", "classic", "consumer", fold=str.lower), HIGH,
        "The protocol of the group: classic, or consumer (KIP-848), by which brokers compute assignments. "
        "auto is consumer if the cluster has it, else classic; a key of only one of them chooses that one.")
    group_remote_assignor: str | None = key(STRING, None, SENDABLE_NAME, MEDIUM,
        "The broker's assignor, such as uniform or range, for group.protocol=consumer. The default is the "
        "broker's.")
    partition_assignment_strategy: tuple[str, ...] = key(NAMES,
        f"{ASSIGNOR_PACKAGE}.RangeAssignor,{ASSIGNOR_PACKAGE}.CooperativeStickyAssignor", ASSIGNORS, MEDIUM,
        "Assignors in the order of preference, for group.protocol=classic. Members go on reading during a "
        "rebalance if all are cooperative.")
    session_timeout_ms: int = key(INT, 45_000, at_least(1), HIGH,
        "Time without a heartbeat after which the group removes a member, for group.protocol=classic. By the "
        "consumer protocol brokers set it.")
    heartbeat_interval_ms: int = key(INT, 3000, at_least(1), HIGH,
        "Time between heartbeats, for group.protocol=classic. It must be below session.timeout.ms.")
    max_poll_interval_ms: int = key(INT, 300_000, at_least(1), MEDIUM,
        "Time without a poll after which a member leaves the group, and the limit of a rebalance.")
    max_poll_records: int = key(INT, 500, at_least(1), MEDIUM, "Maximum records of a poll.")
    enable_auto_commit: bool = key(BOOLEAN, True, ANY, MEDIUM,
        "Commit the offsets of records that earlier polls returned: in later polls, when partitions are "
        "revoked, and at the end. Without group.id nothing is committed.")
    auto_commit_interval_ms: int = key(INT, 5000, at_least(0), LOW,
        "Time between automatic commits.")
    exclude_internal_topics: bool = key(BOOLEAN, True, ANY, MEDIUM,
        "Leave internal topics out of a pattern's matches.")
    share_acknowledgement_mode: str = key(STRING, "implicit", one_of("implicit", "explicit"), MEDIUM,
        "How a ShareConsumer acknowledges records: implicit accepts those of a poll by the next poll or "
        "commit; explicit expects acknowledge() for each.")
    share_acquire_mode: str = key(STRING, "BATCH_OPTIMIZED",
        one_of("BATCH_OPTIMIZED", "RECORD_LIMIT", fold=str.upper), MEDIUM,
        "How a ShareConsumer acquires records: in whole batches, or max.poll.records at most (KIP-1206).")
    key_deserializer: object = key(OBJECT, None, ANY, HIGH,
        "Makes the keys of records: a format of kbatch.formats, its name, or a callable of (data), "
        "(topic, data) or (topic, headers, data), or an object with such a deserialize. By default keys are "
        "bytes.")
    value_deserializer: object = key(OBJECT, None, ANY, HIGH,
        "Makes the values of records, like key.deserializer.")
    deserialize: str = key(STRING, "used", one_of("used", "taken"), MEDIUM,
        "When keys and values are made of their bytes: used, at their first use; taken, when a poll or an "
        "iteration takes the records, so that it raises the error of one that cannot be read, after those "
        "before it have come, and again until skip().",
        origin="kbatch")
    on_deserialization_error: object = key(OBJECT, "raise", ANY, MEDIUM,
        "What becomes of a record whose key or value cannot be made of its bytes: raise raises where it is "
        "used; null gives None, with the error in deserialization_error; skip does not deliver the record; "
        "a function of the error returns the value; a DeadLetter sends the record to another topic.",
        origin="kbatch")
    interceptor_classes: tuple[object, ...] = key(OBJECTS, "", ANY, LOW,
        "Subclasses of ConsumerInterceptor (kbatch.interceptors), or objects of them.")


@dataclasses.dataclass(frozen=True, slots=True, init=False, repr=False)
class AdminConfig(ClientConfig):
    """The complete, checked configuration of an Admin: an immutable attribute for every key.

    Parameters
    ----------
    settings : Mapping[str, object], optional
        Keys with dots, as Kafka writes them, or the names of librdkafka and other clients.
    client_number : int
        The N of the default client.id, kbatch-admin-N.
    **keywords
        The same keys with underscores for dots. In both, None leaves a key at its default.

    Attributes
    ----------
    given : frozenset of str
        The keys that were set; the others have their defaults.

    Raises
    ------
    ConfigError
        For unknown or refused keys, invalid values, duplicates, and contradictions.
    """

    rules: ClassVar[tuple[Rule, ...]] = ADMIN_RULES
    name: ClassVar[str] = "admin"

    bootstrap_servers: tuple[str, ...] = key(LIST, "", NON_EMPTY, HIGH,
        "Brokers to start from, each host:port; the client learns the others from them.")
    bootstrap_controllers: tuple[str, ...] = key(LIST, "", NON_EMPTY, HIGH,
        "Controllers to start from, each host:port, instead of brokers (KIP-919): for what they answer by "
        "themselves, also while no broker runs. They take no metrics (enable.metrics.push).")
    client_id: str = key(STRING, "", SENDABLE, MEDIUM,
        "The client's name in the brokers' logs, quotas and metrics. The default is kbatch-admin-N; N is a "
        "number.")
    receive_buffer_bytes: int = key(INT, -1, at_least(-1), MEDIUM,
        "SO_RCVBUF of a connection; -1 leaves it to the operating system, which lets it grow.")
    default_api_timeout_ms: int = key(INT, 60_000, at_least(0), MEDIUM,
        "Time for a call, all its requests, repetitions and waits included.")
    retries: int = key(INT, INT_MAX, between(0, INT_MAX), LOW,
        "It has no effect: default.api.timeout.ms ends repetitions, as it should in Java.")

    @property
    def bootstrap_addresses(self) -> tuple[tuple[str, int], ...]:
        """Return host and port of each of the bootstrap.controllers, or of the bootstrap.servers."""
        return tuple(map(host_and_port, self.bootstrap_controllers or self.bootstrap_servers))


def keys_of(kind: type[ClientConfig]) -> Mapping[str, Key]:
    """Return the rows of a class, by the names of the keys."""
    return MappingProxyType(
        {
            field.name.replace("_", "."): field.metadata["key"]
            for field in dataclasses.fields(kind)
            if "key" in field.metadata
        }
    )


KEYS = keys_of(ProducerConfig)
CONSUMER_KEYS = keys_of(ConsumerConfig)
ADMIN_KEYS = keys_of(AdminConfig)
# The client that has a key; either, if several have it.
OWNERS = {name: kind.name for kind in (AdminConfig, ProducerConfig, ConsumerConfig) for name in keys_of(kind)}


class OtherDefault(NamedTuple):
    """A default that differs from Java's, `javas`; None means that a Java program must set the key."""

    javas: object
    reason: str


OTHER_DEFAULTS: Mapping[str, OtherDefault] = MappingProxyType(
    {
        "enable.metrics.push": OtherDefault(True, PUSH),
        "key.serializer": OtherDefault(None, "keys must be bytes unless a serializer is set"),
        "metric.reporters": OtherDefault("org.apache.kafka.common.metrics.JmxReporter", NO_JMX),
        "send.buffer.bytes": OtherDefault(
            131_072, "the system's own grows, and accepts a request of several large batches at once"
        ),
        "ssl.keystore.type": OtherDefault("JKS", NO_JKS),
        "ssl.truststore.type": OtherDefault("JKS", NO_JKS),
        "value.serializer": OtherDefault(None, "values must be bytes unless a serializer is set"),
    }
)
CONSUMER_OTHER_DEFAULTS: Mapping[str, OtherDefault] = MappingProxyType(
    {
        "enable.metrics.push": OTHER_DEFAULTS["enable.metrics.push"],
        "group.protocol": OtherDefault("classic", "the consumer protocol is used where the cluster has it"),
        "key.deserializer": OtherDefault(None, NO_DESERIALIZERS),
        "metric.reporters": OTHER_DEFAULTS["metric.reporters"],
        "receive.buffer.bytes": OtherDefault(
            65_536, "the system's own grows: a fixed one limits the rate from a distant broker"
        ),
        "send.buffer.bytes": OTHER_DEFAULTS["send.buffer.bytes"],
        "ssl.keystore.type": OTHER_DEFAULTS["ssl.keystore.type"],
        "ssl.truststore.type": OTHER_DEFAULTS["ssl.truststore.type"],
        "value.deserializer": OtherDefault(None, NO_DESERIALIZERS),
    }
)
ADMIN_OTHER_DEFAULTS: Mapping[str, OtherDefault] = MappingProxyType(
    {
        "enable.metrics.push": OTHER_DEFAULTS["enable.metrics.push"],
        "metric.reporters": OTHER_DEFAULTS["metric.reporters"],
        "receive.buffer.bytes": CONSUMER_OTHER_DEFAULTS["receive.buffer.bytes"],
        "send.buffer.bytes": OTHER_DEFAULTS["send.buffer.bytes"],
        "ssl.keystore.type": OTHER_DEFAULTS["ssl.keystore.type"],
        "ssl.truststore.type": OTHER_DEFAULTS["ssl.truststore.type"],
    }
)
