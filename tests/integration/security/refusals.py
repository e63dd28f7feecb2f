"""Ways in that must fail, in Java's words, and the error that says why: Java's class and ours."""

from __future__ import annotations

from typing import Any, NamedTuple

from kbatch import errors
from tests.integration.security.cells import OAUTH_MODULE, OIDC_JAVA, Settings
from tests.integration.security.secrets_used import PASSWORDS, WRONG_PASSWORD
from tests.integration.security.site import (
    GSSAPI,
    LISTENERS,
    OAUTHBEARER,
    PLAIN,
    SCRAM_256,
    SCRAM_512,
    Site,
    jaas,
    kerberos_login,
    resolved,
)

PLAIN_MODULE, SCRAM_MODULE = "plain.PlainLoginModule", "scram.ScramLoginModule"
SASL_REFUSED = "SaslAuthenticationException"
UNSECURED: Settings = {
    "sasl.mechanism": OAUTHBEARER,
    "sasl.jaas.config": jaas(OAUTH_MODULE, unsecuredLoginStringClaim_sub="alice"),
}


class Refusal(NamedTuple):
    """`java` is the class of the last cause of what Java's producer raises; None where it only times out."""

    name: str
    listener: str
    settings: Settings
    java: str | None
    error: type[errors.KafkaError]
    match: str = ""
    needs_kdc: bool = False


def _password(mechanism: str, user: str, password: str) -> Settings:
    module = PLAIN_MODULE if mechanism == PLAIN else SCRAM_MODULE
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas(module, username=user, password=password)}


REFUSALS = (
    Refusal(
        "PLAIN, wrong password",
        "SASL_SSL",
        _password(PLAIN, "alice", WRONG_PASSWORD),
        SASL_REFUSED,
        errors.SaslAuthenticationError,
        "Invalid username or password",
    ),
    *(
        Refusal(
            f"{mechanism}, wrong password",
            "SASL_SSL",
            _password(mechanism, "alice", WRONG_PASSWORD),
            SASL_REFUSED,
            errors.SaslAuthenticationError,
            f"SASL mechanism {mechanism}",
        )
        for mechanism in (SCRAM_256, SCRAM_512)
    ),
    Refusal(
        "SCRAM-SHA-256, unknown user",
        "SASL_PLAINTEXT",
        _password(SCRAM_256, "nobody", WRONG_PASSWORD),
        SASL_REFUSED,
        errors.SaslAuthenticationError,
    ),
    Refusal(
        "delegation token without tokenauth",
        "SASL_SSL",
        {
            "sasl.mechanism": SCRAM_256,
            "sasl.jaas.config": lambda site: jaas(
                SCRAM_MODULE, username=site.delegation_token[0], password=site.delegation_token[1]
            ),
        },
        SASL_REFUSED,
        errors.SaslAuthenticationError,
    ),
    Refusal(
        "mechanism that is not enabled",
        "UNSECURED",
        _password(PLAIN, "alice", PASSWORDS["alice"]),
        "UnsupportedSaslMechanismException",
        errors.UnsupportedSaslMechanismError,
        "OAUTHBEARER",
    ),
    Refusal("OAUTHBEARER, forged token", "SASL_SSL", UNSECURED, SASL_REFUSED, errors.SaslAuthenticationError),
    Refusal(
        "OAUTHBEARER, wrong client secret",
        "SASL_SSL",
        {
            **OIDC_JAVA,
            "sasl.jaas.config": jaas(OAUTH_MODULE, clientId="alice", clientSecret=WRONG_PASSWORD),
        },
        "LoginException",
        errors.AuthenticationError,
        "401",
    ),
    Refusal(
        "GSSAPI, unknown service",
        "SASL_SSL",
        {
            "sasl.mechanism": GSSAPI,
            "sasl.kerberos.service.name": "elsewhere",
            "sasl.jaas.config": lambda site: kerberos_login(site.keytab("alice"), "alice"),
        },
        None,
        errors.AuthenticationError,
        "elsewhere",
        needs_kdc=True,
    ),
    Refusal(
        "GSSAPI, principal without a key",
        "SASL_SSL",
        {
            "sasl.mechanism": GSSAPI,
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": lambda site: kerberos_login(site.keytab("alice"), "nobody"),
        },
        "LoginException",
        errors.AuthenticationError,
        needs_kdc=True,
    ),
    Refusal("mTLS without a certificate", "MUTUAL", {}, "SSLHandshakeException", errors.AuthenticationError),
    Refusal(
        "mTLS with an expired certificate",
        "MUTUAL",
        {"ssl.keystore.type": "PEM", "ssl.keystore.location": lambda site: site.path("expired.pem")},
        "SSLHandshakeException",
        errors.AuthenticationError,
    ),
    Refusal(
        "broker of an unknown authority",
        "TLS",
        {"ssl.truststore.location": lambda site: site.path("others/ca.pem")},
        "CertPathValidatorException",
        errors.AuthenticationError,
        "certificate",
    ),
    Refusal(
        "principal without ACL",
        "SASL_SSL",
        _password(SCRAM_512, "bob", PASSWORDS["bob"]),
        "TopicAuthorizationException",
        errors.TopicAuthorizationError,
    ),
)


def refused_settings(refusal: Refusal, site: Site) -> dict[str, Any]:
    protocol = LISTENERS[refusal.listener]
    return {
        "bootstrap.servers": site.address(refusal.listener),
        "security.protocol": protocol,
        **site.trust(protocol),
        **resolved(refusal.settings, site),
    }
