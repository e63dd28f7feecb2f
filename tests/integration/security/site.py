"""A site with every security mechanism of Kafka at once: authority, token endpoint, KDC, and a real Kafka."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition

from kbatch import Admin
from kbatch.admin import Acl, ScramInfo
from tests.integration.security.secrets_used import PASSWORDS, SCRAM_ODD, STORE_PASSWORD
from tests.oracle import java_clients
from tests.oracle.authority import Authority
from tests.oracle.kafka import RealKafka
from tests.oracle.kdc import REALM, Kdc, KdcMissingError
from tests.oracle.token_server import AUDIENCE, ISSUER, TokenServer
from tests.support.patience import HANG_SECONDS, until
from tests.support.secrets import register

TOPIC = "secure"
SESSION_MS = 3000
MODULES = "org.apache.kafka.common.security"
CLIENT = "mutual-client"  # the subject of the client certificate
PLAIN, SCRAM_256, SCRAM_512 = "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"
OAUTHBEARER, GSSAPI = "OAUTHBEARER", "GSSAPI"
LISTENERS: Mapping[str, str] = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "SASL_SSL": "SASL_SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "UNSECURED": "SASL_SSL",  # OAUTHBEARER of KIP-255, without keys
    "SHORT": "SASL_SSL",  # sessions of SESSION_MS
}
WITH_ALL = ("SASL_SSL", "SASL_PLAINTEXT", "SHORT")
# Of the SCRAM users, by mechanism.
ITERATIONS: Mapping[str, int] = {SCRAM_256: 4096, SCRAM_512: 8192}
ALLOWED = ("alice", "odd", SCRAM_ODD, CLIENT)
# What they may do, by prefix: topics as they like, and what exactly-once writes of Spark need.
ACLS = (
    ("topic", TOPIC, ("Write", "Read", "Describe")),
    ("transactional_id", "kbatch", ("Write", "Describe")),
    ("group", "kbatch", ("Read", "Describe")),
)
POLL_SECONDS = 0.02


def jaas(module: str, **options: str) -> str:
    """Return a line of sasl.jaas.config; `module` is below Kafka's package, or whole."""
    name = module if module.startswith("com.") else f"{MODULES}.{module}"
    quoted = ((key, value.replace("\\", "\\\\").replace('"', '\\"')) for key, value in options.items())
    return " ".join([name, "required", *(f'{key}="{value}"' for key, value in quoted)]) + ";"


class Site:
    """Everything that a secured client needs; see `open_site`. `kdc_missing` is why there is no `kdc`."""

    def __init__(self, authority: Authority, tokens: TokenServer, kdc: Kdc | None, kdc_missing: str) -> None:
        self.authority = authority
        self.folder = authority.folder
        self.tokens = tokens
        self.kdc = kdc
        self.kdc_missing = kdc_missing
        self.java_options = self._java_options()
        self.broker = RealKafka(self._properties(), listeners=LISTENERS, java_options=self.java_options)

    def path(self, file: str) -> str:
        return str(self.authority.path(file))

    def keytab(self, principal: str) -> str:
        assert self.kdc is not None
        return str(self.kdc.keytab(principal))

    def address(self, listener: str) -> str:
        return self.broker.address(listener)

    def trust(self, protocol: str) -> dict[str, str]:
        """Return Java's settings that trust the site's authority, where the protocol has TLS."""
        trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.path("ca.pem")}
        return trusted if "SSL" in protocol.split("_") else {}

    def set_up(self) -> None:
        """Make the topic, the ACLs and the users of SCRAM; returns when the broker knows all of them."""
        self.broker.create_topic(TOPIC, partitions=4)
        self.allow(*ALLOWED)
        for name in ("alice", "bob", SCRAM_ODD):
            self.set_password(name, PASSWORDS[name])

    def allow(self, *principals: str) -> None:
        """Let them do what ACLS says. The broker knows it when it knows a user who is made after this."""
        self._admin.acls.create(
            Acl(kind, name, operation, f"User:{who}", pattern="prefixed")
            for who in principals
            for kind, name, operations in ACLS
            for operation in operations
        )

    def set_password(self, name: str, password: str) -> None:
        """Make a user of SCRAM, or change the password; returns when the broker knows a new user."""
        for mechanism, iterations in ITERATIONS.items():
            self._admin.users.set(name, password, mechanism, iterations)
        until(lambda: self._has_password(name), f"that the broker knows {name}", pause_seconds=POLL_SECONDS)

    def _has_password(self, name: str) -> bool:
        known = self._admin.users.describe().get(name, ())
        return set(known) == {ScramInfo(*each) for each in ITERATIONS.items()}

    @cached_property
    def _admin(self) -> Admin:
        return Admin(bootstrap_servers=self.broker.bootstrap_servers)

    @cached_property
    def delegation_token(self) -> tuple[str, str]:
        """The id and the HMAC, which are a name and a password of SCRAM, of a token of alice's (KIP-48)."""
        settings = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": PLAIN,
            "sasl.jaas.config": jaas("plain.PlainLoginModule", username="alice", password=PASSWORDS["alice"]),
        }
        (token,) = java_clients.admin(
            self.address("SASL_PLAINTEXT"), {"call": "createDelegationToken"}, properties=settings
        )
        register(token["hmac"])
        return token["id"], token["hmac"]

    def read(self, partition: int, offset: int, topic: str = TOPIC) -> bytes:
        """Return the value of a record, read without security by another client."""
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self.broker.bootstrap_servers, "group.id": "judge", "fetch.wait.max.ms": 20}
        )
        try:
            consumer.assign([TopicPartition(topic, partition, offset)])
            message = consumer.poll(HANG_SECONDS)
            assert message is not None and message.error() is None, message and message.error()
            assert message.offset() == offset
            value = message.value()
            assert isinstance(value, bytes)
            return value
        finally:
            consumer.close()

    def _java_options(self) -> tuple[str, ...]:
        """Kafka's Java reaches no URL and no file of OAUTHBEARER that is not allowed here."""
        allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
        urls = ",".join(f"{self.tokens.url}/{path}" for path in ("jwks", "token"))
        files = ",".join(self.path(name) for name in ("assertion.key", "assertion.jwt"))
        options = [f"{allowed}.urls={urls}", f"{allowed}.files={files}"]
        if self.kdc is not None:
            options.append(f"-Djava.security.krb5.conf={self.kdc.configuration}")
        return tuple(options)

    def _properties(self) -> dict[str, object]:
        properties: dict[str, object] = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.path("broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.path("ca.pem"),
            "listener.name.mutual.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "sasl.kerberos.service.name": "kafka",
            "delegation.token.secret.key": "a broker's own",
            "listener.name.unsecured.sasl.enabled.mechanisms": OAUTHBEARER,
            "listener.name.unsecured.oauthbearer.sasl.jaas.config": jaas(
                "oauthbearer.OAuthBearerLoginModule", unsecuredLoginStringClaim_sub="broker"
            ),
        }
        for name in WITH_ALL:
            for mechanism, settings in self._mechanisms().items():
                start = f"listener.name.{name.lower()}.{mechanism.lower()}"
                properties |= {f"{start}.{key}": value for key, value in settings.items()}
                if name == "SHORT":
                    properties[f"{start}.connections.max.reauth.ms"] = SESSION_MS
            properties[f"listener.name.{name.lower()}.sasl.enabled.mechanisms"] = ",".join(self._mechanisms())
        return properties

    def _mechanisms(self) -> dict[str, dict[str, object]]:
        """Return the broker's settings of each mechanism."""
        users = {f"user_{name}": PASSWORDS[name] for name in ("alice", "bob", "odd")}
        scram = {"sasl.jaas.config": jaas("scram.ScramLoginModule")}
        mechanisms: dict[str, dict[str, object]] = {
            PLAIN: {"sasl.jaas.config": jaas("plain.PlainLoginModule", **users)},
            SCRAM_256: {**scram},
            SCRAM_512: {**scram},
            OAUTHBEARER: {
                "sasl.jaas.config": jaas("oauthbearer.OAuthBearerLoginModule"),
                "sasl.server.callback.handler.class": (
                    f"{MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
                ),
                "sasl.oauthbearer.jwks.endpoint.url": f"{self.tokens.url}/jwks",
                "sasl.oauthbearer.expected.audience": AUDIENCE,
                "sasl.oauthbearer.expected.issuer": ISSUER,
                # An unknown key is requested at once, but not twice within this time.
                "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": 20,
                "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": 100,
            },
        }
        if self.kdc is not None:
            login = kerberos_login(self.keytab("kafka"), "kafka/localhost")
            mechanisms[GSSAPI] = {"sasl.jaas.config": login}
        return mechanisms


def kerberos_login(keytab: str, principal: str) -> str:
    """Return the line of JAAS for a principal by its keytab."""
    options = {"useKeyTab": "true", "storeKey": "true", "keyTab": keytab, "principal": f"{principal}@{REALM}"}
    return jaas("com.sun.security.auth.module.Krb5LoginModule", **options)


@contextlib.contextmanager
def _realm(folder: Path) -> Iterator[tuple[Kdc | None, str]]:
    try:
        kdc = Kdc(folder)
    except KdcMissingError as missing:
        yield None, str(missing)
        return
    with kdc:
        for principal in ("kafka/localhost", "alice"):
            kdc.add(principal)
        kdc.log_in("alice")
        yield kdc, ""


@contextlib.contextmanager
def open_site(folder: Path) -> Iterator[Site]:
    """Start everything, and end it when the context is left."""
    authority = Authority(folder, STORE_PASSWORD)
    authority.issue("broker", subject="localhost")
    authority.issue("client", subject=CLIENT)
    authority.issue("expired", subject=CLIENT, lifetime=-timedelta(hours=1))
    (folder / "others").mkdir()
    Authority(folder / "others", STORE_PASSWORD)
    clients = {"alice": PASSWORDS["alice"], "bob": PASSWORDS["bob"]}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.path("broker.crt"), authority.path("broker.key"))
    with TokenServer(clients, context) as tokens, _realm(folder) as (kdc, kdc_missing):
        authority.path("assertion.key").write_bytes(tokens.assertion_key_pem())
        authority.path("assertion.jwt").write_text(tokens.assertion("alice"))
        site = Site(authority, tokens, kdc, kdc_missing)
        with site.broker:
            site.set_up()
            yield site


Value = str | Callable[[Site], Any]


def resolved(settings: Mapping[str, Value], site: Site) -> dict[str, Any]:
    """Return the settings for a site: a function makes the value of a key."""
    return {key: value if isinstance(value, str) else value(site) for key, value in settings.items()}
