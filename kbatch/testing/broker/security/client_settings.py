"""The settings with which a client reaches a listener, under the keys of Kafka's own client or librdkafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kbatch.testing.broker.security.certificates import BrokerTls, PemPair
from kbatch.testing.broker.security.listeners import SCRAM_HASHES, Listener

DIALECTS = ("java", "librdkafka")
MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
} | dict.fromkeys(SCRAM_HASHES, "org.apache.kafka.common.security.scram.ScramLoginModule")
JAVA_KEYSTORE = ("ssl.keystore.certificate.chain", "ssl.keystore.key")
LIBRDKAFKA_KEYSTORE = ("ssl.certificate.pem", "ssl.key.pem")
OIDC_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


class Login(NamedTuple):
    """The user who logs in, with mechanism and password."""

    mechanism: str
    user: str
    password: str
    token_endpoint_url: str | None


def settings_of(
    dialect: str,
    bootstrap_servers: str,
    listener: Listener,
    authority_pem: str | None,
    client_certificate: PemPair | None,
    login: Login | None,
) -> dict[str, str]:
    """Return the settings as key to value, both texts."""
    if dialect not in DIALECTS:
        raise ValueError(f"dialect must be one of {', '.join(DIALECTS)}, got {dialect!r}")
    settings = {"bootstrap.servers": bootstrap_servers, "security.protocol": listener.security_protocol}
    is_java = dialect == "java"
    if authority_pem is not None:
        settings |= _java_tls(authority_pem) if is_java else {"ssl.ca.pem": authority_pem}
    if client_certificate is not None:
        names = JAVA_KEYSTORE if is_java else LIBRDKAFKA_KEYSTORE
        settings |= {names[0]: client_certificate.certificate, names[1]: client_certificate.key}
        settings |= {"ssl.keystore.type": "PEM"} if is_java else {}
    if login is not None:
        settings["sasl.mechanism"] = login.mechanism
        settings |= _java_login(listener, login) if is_java else _librdkafka_login(listener, login)
    return settings


def _java_tls(authority_pem: str) -> dict[str, str]:
    return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority_pem}


def _java_login(listener: Listener, login: Login) -> dict[str, str]:
    if login.mechanism != "OAUTHBEARER":
        options = {"username": login.user, "password": login.password}
        return {"sasl.jaas.config": _jaas(login.mechanism, options)}
    if listener.unsecured_tokens:
        return {"sasl.jaas.config": _jaas(login.mechanism, {"unsecuredLoginStringClaim_sub": login.user})}
    assert login.token_endpoint_url is not None
    options = {"clientId": login.user, "clientSecret": login.password}
    return {
        "sasl.jaas.config": _jaas(login.mechanism, options),
        "sasl.login.callback.handler.class": OIDC_HANDLER,
        "sasl.oauthbearer.token.endpoint.url": login.token_endpoint_url,
    }


def _jaas(mechanism: str, options: Mapping[str, str]) -> str:
    shown = " ".join(f"{name}={_quoted(value)}" for name, value in options.items())
    return f"{MODULES[mechanism]} required {shown};"


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _librdkafka_login(listener: Listener, login: Login) -> dict[str, str]:
    if login.mechanism != "OAUTHBEARER":
        return {"sasl.username": login.user, "sasl.password": login.password}
    if listener.unsecured_tokens:
        return {
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": f"principal={login.user}",
        }
    assert login.token_endpoint_url is not None
    return {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": login.user,
        "sasl.oauthbearer.client.secret": login.password,
        "sasl.oauthbearer.token.endpoint.url": login.token_endpoint_url,
    }


def tls_settings(tls: BrokerTls, listener: Listener, user: str) -> tuple[str | None, PemPair | None]:
    """Return (what the client trusts, its own certificate) for a listener."""
    if not listener.has_tls:
        return None, None
    return tls.authority_pem, tls.client(user) if listener.client_auth != "none" else None
