"""The matrix: a row for each way in, with the settings of each client in its own words.

A column is None where the client has no such way. kbatch takes Java's words and librdkafka's, so that it is
tested with both columns.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.integration.security.secrets_used import PASSWORDS, SCRAM_ODD, STORE_PASSWORD
from tests.integration.security.site import (
    GSSAPI,
    MODULES,
    OAUTHBEARER,
    PLAIN,
    SCRAM_256,
    SCRAM_512,
    Site,
    Value,
    jaas,
    kerberos_login,
)
from tests.oracle.kdc import REALM
from tests.oracle.token_server import unsecured_jwt

Settings = Mapping[str, Value]
OAUTH_MODULE = "oauthbearer.OAuthBearerLoginModule"
LOGIN_HANDLER = f"{MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler"
JWT_BEARER = f"{MODULES}.oauthbearer.JwtBearerJwtRetriever"
LIFETIME_SECONDS = 3600


class Cell(NamedTuple):
    """A way in. The listener gives the protocol; settings lack bootstrap servers, protocol and trust."""

    name: str
    listener: str
    java: Settings | None = None
    librdkafka: Settings | None = None
    kafka_python: Settings | None = None
    aiokafka: Settings | None = None
    needs_kdc: bool = False


# Tokens by callback, as each client wants them


def token_of(site: Site) -> str:
    return site.tokens.token("alice")


def unsecured_of(site: Site) -> str:
    return unsecured_jwt("alice")


class SyncTokens(AbstractTokenProvider):
    """kafka-python's provider."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def token(self) -> str:
        return token_of(self._site)


class AsyncTokens(AioTokenProvider):
    """aiokafka's provider."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def token(self) -> str:
        return token_of(self._site)


def oauth_cb(site: Site) -> Any:
    """Return confluent-kafka's callback."""
    return lambda config: (token_of(site), time.time() + LIFETIME_SECONDS)


def unsecured_cb(site: Site) -> Any:
    return lambda config: (unsecured_of(site), time.time() + LIFETIME_SECONDS)


# Rows


def password_cell(name: str, listener: str, mechanism: str, user: str, *, kafka_python: bool = True) -> Cell:
    module = "plain.PlainLoginModule" if mechanism == PLAIN else "scram.ScramLoginModule"
    password = PASSWORDS[user]
    librdkafka = {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
    python = {"sasl_mechanism": mechanism, "sasl_plain_username": user, "sasl_plain_password": password}
    return Cell(
        name,
        listener,
        {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas(module, username=user, password=password)},
        librdkafka,
        python if kafka_python else None,
        python,
    )


OIDC_LIBRDKAFKA: Settings = {
    "sasl.mechanism": OAUTHBEARER,
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "alice",
    "sasl.oauthbearer.client.secret": PASSWORDS["alice"],
    "sasl.oauthbearer.token.endpoint.url": lambda site: f"{site.tokens.url}/token",
    "sasl.oauthbearer.scope": "produce",
}
OIDC_JAVA: Settings = {
    "sasl.mechanism": OAUTHBEARER,
    "sasl.login.callback.handler.class": LOGIN_HANDLER,
    "sasl.oauthbearer.token.endpoint.url": lambda site: f"{site.tokens.url}/token",
}
ASSERTED: Settings = {
    **OIDC_JAVA,
    "sasl.jaas.config": jaas(OAUTH_MODULE),
    "sasl.oauthbearer.assertion.algorithm": "RS256",
    "sasl.oauthbearer.assertion.private.key.file": lambda site: site.path("assertion.key"),
    "sasl.oauthbearer.assertion.claim.aud": lambda site: site.tokens.url,
    "sasl.oauthbearer.assertion.claim.iss": "alice",
    "sasl.oauthbearer.assertion.claim.sub": "alice",
}
KERBEROS: Settings = {"sasl_mechanism": GSSAPI, "sasl_kerberos_service_name": "kafka"}

CELLS = (
    Cell("TLS", "TLS", {}, {}, {}, {}),
    Cell(
        "mTLS, PEM",
        "MUTUAL",
        {"ssl.keystore.type": "PEM", "ssl.keystore.location": lambda site: site.path("client.pem")},
        {
            "ssl.certificate.location": lambda site: site.path("client.crt"),
            "ssl.key.location": lambda site: site.path("client.key"),
        },
        {
            "ssl_certfile": lambda site: site.path("client.crt"),
            "ssl_keyfile": lambda site: site.path("client.key"),
        },
        {
            "ssl_certfile": lambda site: site.path("client.crt"),
            "ssl_keyfile": lambda site: site.path("client.key"),
        },
    ),
    Cell(
        "mTLS, PKCS12",
        "MUTUAL",
        {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": lambda site: site.path("client.p12"),
            "ssl.keystore.password": STORE_PASSWORD,
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": lambda site: site.path("ca.p12"),
            "ssl.truststore.password": STORE_PASSWORD,
        },
        {
            "ssl.keystore.location": lambda site: site.path("client.p12"),
            "ssl.keystore.password": STORE_PASSWORD,
        },
    ),
    password_cell("PLAIN", "SASL_SSL", PLAIN, "alice"),
    password_cell("PLAIN, no TLS", "SASL_PLAINTEXT", PLAIN, "alice"),
    password_cell("PLAIN, odd characters", "SASL_SSL", PLAIN, "odd"),
    password_cell("SCRAM-SHA-256", "SASL_SSL", SCRAM_256, "alice"),
    password_cell("SCRAM-SHA-512", "SASL_SSL", SCRAM_512, "alice"),
    password_cell("SCRAM-SHA-256, no TLS", "SASL_PLAINTEXT", SCRAM_256, "alice"),
    # kafka-python escapes neither "," nor "=" in a user's name
    password_cell("SCRAM-SHA-512, odd characters", "SASL_SSL", SCRAM_512, SCRAM_ODD, kafka_python=False),
    Cell(
        "delegation token",
        "SASL_SSL",
        {
            "sasl.mechanism": SCRAM_256,
            "sasl.jaas.config": lambda site: jaas(
                "scram.ScramLoginModule",
                username=site.delegation_token[0],
                password=site.delegation_token[1],
                tokenauth="true",
            ),
        },
    ),
    Cell(
        "OAUTHBEARER, callback",
        "SASL_SSL",
        None,
        {"sasl.mechanism": OAUTHBEARER, "oauth_cb": oauth_cb},
        {"sasl_mechanism": OAUTHBEARER, "sasl_oauth_token_provider": SyncTokens},
        {"sasl_mechanism": OAUTHBEARER, "sasl_oauth_token_provider": AsyncTokens},
    ),
    Cell(
        "OAUTHBEARER, client credentials in JAAS",
        "SASL_SSL",
        {
            **OIDC_JAVA,
            "sasl.jaas.config": jaas(
                OAUTH_MODULE,
                clientId="alice",
                clientSecret=PASSWORDS["alice"],
                scope="produce",
                extension_logicalCluster="lkc-1",
            ),
        },
        {**OIDC_LIBRDKAFKA, "sasl.oauthbearer.extensions": "logicalCluster=lkc-1"},
    ),
    Cell(
        "OAUTHBEARER, client credentials",
        "SASL_SSL",
        {
            **OIDC_JAVA,
            "sasl.jaas.config": jaas(OAUTH_MODULE),
            "sasl.oauthbearer.client.credentials.client.id": "alice",
            "sasl.oauthbearer.client.credentials.client.secret": PASSWORDS["alice"],
            "sasl.oauthbearer.scope": "produce",
        },
    ),
    Cell(
        "OAUTHBEARER, https endpoint",
        "SASL_SSL",
        None,
        {
            **OIDC_LIBRDKAFKA,
            "sasl.oauthbearer.token.endpoint.url": lambda site: f"{site.tokens.secure_url}/token",
            "https.ca.location": lambda site: site.path("ca.pem"),
        },
    ),
    Cell("OAUTHBEARER, client assertion", "SASL_SSL", ASSERTED),
    Cell(
        "OAUTHBEARER, assertion in a file",
        "SASL_SSL",
        {
            **OIDC_JAVA,
            "sasl.jaas.config": jaas(OAUTH_MODULE),
            "sasl.oauthbearer.assertion.file": lambda site: site.path("assertion.jwt"),
        },
    ),
    Cell(
        "OAUTHBEARER, jwt-bearer",
        "SASL_SSL",
        {**ASSERTED, "sasl.oauthbearer.jwt.retriever.class": JWT_BEARER},
    ),
    Cell(
        "OAUTHBEARER, unsecured",
        "UNSECURED",
        {
            "sasl.mechanism": OAUTHBEARER,
            "sasl.jaas.config": jaas(OAUTH_MODULE, unsecuredLoginStringClaim_sub="alice"),
        },
        {"sasl.mechanism": OAUTHBEARER, "oauth_cb": unsecured_cb},
    ),
    Cell(
        "GSSAPI, keytab",
        "SASL_SSL",
        {
            "sasl.mechanism": GSSAPI,
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": lambda site: kerberos_login(site.keytab("alice"), "alice"),
        },
        {
            "sasl.mechanism": GSSAPI,
            "sasl.kerberos.service.name": "kafka",
            "sasl.kerberos.keytab": lambda site: site.keytab("alice"),
            "sasl.kerberos.principal": f"alice@{REALM}",
        },
        needs_kdc=True,
    ),
    Cell(
        "GSSAPI, ticket",
        "SASL_PLAINTEXT",
        {
            "sasl.mechanism": GSSAPI,
            "sasl.jaas.config": lambda site: jaas(
                "com.sun.security.auth.module.Krb5LoginModule",
                useTicketCache="true",
                ticketCache=str(site.folder / "ccache"),
                serviceName="kafka",
            ),
        },
        None,
        KERBEROS,
        KERBEROS,
        needs_kdc=True,
    ),
    password_cell("SCRAM-SHA-256, sessions of 3 s", "SHORT", SCRAM_256, "alice"),
)
# The wheels of confluent-kafka for Linux are built without Kerberos.
WITHOUT_PROVIDER = {"GSSAPI, keytab"}


def trusted_context(site: Site, certificate: str = "", key: str = "") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=site.path("ca.pem"))
    if certificate:
        context.load_cert_chain(certificate, key)
    return context
