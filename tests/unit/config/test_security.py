"""Rules between the keys of TLS and SASL; no text shows a secret."""

from __future__ import annotations

import pickle
import ssl
from collections.abc import Callable, Mapping
from functools import partial

import pytest

from kbatch.config import ClientConfig, Password, ProducerConfig
from kbatch.errors import ConfigError

SERVER = "localhost:9092"
SASL = {"security.protocol": "SASL_SSL"}
OAUTH = {**SASL, "sasl.mechanism": "OAUTHBEARER"}
URL = {"sasl.oauthbearer.token.endpoint.url": "https://login/token"}
CLIENT = {"sasl.oauthbearer.client.id": "me", "sasl.oauthbearer.client.secret": "p"}


def config(given: Mapping[str, object] | None = None, /, **keywords: object) -> ProducerConfig:
    return ProducerConfig({"bootstrap.servers": SERVER, **(given or {})}, **keywords)


# The protocol


@pytest.mark.parametrize(
    ("given", "named", "remedy"),
    [
        ({"ssl.ca.location": "ca.pem"}, "ssl.truststore.location", "SSL"),
        ({"ssl_cafile": "ca.pem"}, "ssl.truststore.location", "SSL"),
        ({"ssl.context": ssl.create_default_context}, "ssl.context", "SSL"),
        ({"sasl.username": "me"}, "sasl.username", "SASL_SSL"),
        ({"sasl.mechanism": "PLAIN", "ssl.crl.location": "c"}, "ssl.crl.location, sasl.mech", "SASL_SSL"),
        ({"https.ca.location": "ca.pem"}, "https.ca.location", "SASL_SSL"),
    ],
)
def test_keys_of_security_need_the_protocol(given: dict[str, object], named: str, remedy: str) -> None:
    keywords = {name: given.pop(name) for name in list(given) if "." not in name}
    with pytest.raises(ConfigError, match=f"^security.protocol must be set with {named}.*: .*set {remedy}"):
        config(given, **keywords)
    made = config(given, security_protocol="PLAINTEXT", **keywords)
    assert made.security_protocol == "PLAINTEXT"


@pytest.mark.parametrize(
    ("given", "ignored"),
    [
        ({"security.protocol": "SSL", "sasl.username": "me", "ssl.crl.location": "c"}, "sasl.username"),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "ssl.ca.location": "ca.pem",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "me",
                "sasl.password": "p",
            },
            "ssl.truststore.location",
        ),
    ],
)
def test_keys_that_the_protocol_ignores_are_named(
    given: dict[str, object], ignored: str, caplog: pytest.LogCaptureFixture
) -> None:
    config(given)
    assert caplog.messages == [f"security.protocol={given['security.protocol']} ignores {ignored}"]


# TLS


@pytest.mark.parametrize(
    "contradiction",
    [
        {"ssl.context": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), "ssl.ca.location": "ca.pem"},
        {"ssl.truststore.location": "ca.pem", "ssl.truststore.certificates": "-----BEGIN"},
        {"ssl.keystore.location": "a.pem", "ssl.keystore.key": "-----BEGIN"},
        {"ssl.key.location": "key.pem"},
        {"ssl.keystore.key": "-----BEGIN"},
        {"ssl.keystore.certificate.chain": "-----BEGIN"},
        {"ssl.keystore.password": "p"},
        {"ssl.truststore.password": "p"},
        {"ssl.truststore.type": "PKCS12"},
        {"ssl.truststore.location": "ca.pem", "ssl.truststore.password": "p"},
        {"ssl.truststore.type": "PKCS12", "ssl.truststore.certificates": "-----BEGIN"},
        {"ssl.keystore.location": "a.p12", "ssl.key.location": "key.pem"},
        {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.key": "-----BEGIN",
            "ssl.keystore.certificate.chain": "-----BEGIN",
        },
        {"ssl.keystore.location": "a.p12", "ssl.keystore.password": "p", "ssl.key.password": "q"},
    ],
)
def test_certificates_and_keys_come_from_one_place(contradiction: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"^ssl\.[\w.]+[= ].*ssl") as raised:
        config(contradiction, security_protocol="SSL")
    assert "-----BEGIN" not in str(raised.value)


def test_certificates_and_keys_that_go_together() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    assert config(ssl_context=context, security_protocol="SSL").ssl_context is context
    made = config(
        {"ssl.certificate.location": "me.pem", "ssl.key.location": "key.pem"}, security_protocol="SSL"
    )
    assert (made.ssl_keystore_location, made.ssl_key_location) == ("me.pem", "key.pem")
    made = config(security_protocol="SSL", ssl_keystore_key="K", ssl_keystore_certificate_chain="C")
    assert made.ssl_keystore_key == Password("K")
    probed = config({"ssl.ca.location": "probe", "https.ca.location": "probe"}, security_protocol="SSL")
    assert probed.ssl_truststore_location is probed.https_ca_location is None


@pytest.mark.parametrize("store", ["truststore", "keystore"])
@pytest.mark.parametrize(
    ("settings", "type"),
    [
        ({"location": "a.pem"}, "PEM"),
        ({"location": "folder"}, "PEM"),
        ({"location": "a.p12"}, "PKCS12"),
        ({"location": "a.P12", "password": "p"}, "PKCS12"),
        ({"location": "a.pfx", "password": "p"}, "PKCS12"),
        ({"location": "client.keystore", "password": "p"}, "PKCS12"),  # librdkafka's are always PKCS12
        ({"location": "a.p12", "type": "PEM"}, "PEM"),
        ({"location": "a.jks", "password": "p"}, "PKCS12"),  # what keytool writes since Java 9
        ({"location": "a.p12", "type": "JKS", "password": "p"}, "PKCS12"),
        ({"type": "jks"}, "PEM"),  # Java's default, of a store that is not there
        ({}, "PEM"),
    ],
)
def test_type_of_a_store_is_given_or_follows_from_its_name(
    store: str, settings: dict[str, str], type: str
) -> None:
    given = {f"ssl.{store}.{name}": value for name, value in settings.items()}
    assert getattr(config(given, security_protocol="SSL"), f"ssl_{store}_type") == type


# Names and passwords


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_mechanism_with_passwords_needs_both(mechanism: str) -> None:
    made = config(security_protocol="PLAINTEXT", sasl_mechanism=mechanism)
    assert made.sasl_mechanism == mechanism  # no SASL spoken: nothing needed
    with pytest.raises(ConfigError, match=f"{mechanism} needs sasl.username and sasl.password; set them"):
        config(SASL, sasl_mechanism=mechanism)
    with pytest.raises(ConfigError, match=f"{mechanism} needs sasl.password; set"):
        config(SASL, sasl_mechanism=mechanism, sasl_username="me")
    made = config(SASL, sasl_mechanism=mechanism, sasl_username="me", sasl_password="p")
    assert (made.sasl_username, made.sasl_password) == ("me", Password("p"))


@pytest.mark.parametrize(
    ("username", "password", "reason"),
    [
        ("m\0e", "s3cret", r"sasl.username must not contain the character U\+0000"),
        ("me", "s3cret\0", r"sasl.password must not contain the character U\+0000"),
        ("", "s3cret", "sasl.username must not be empty"),
        ("me", "", "sasl.password must not be empty"),
        ("me", "s3cret\ud800", "sasl.password must be text that UTF-8 can express"),
    ],
)
def test_names_and_passwords_that_no_broker_accepts(username: str, password: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as raised:
        config(SASL, sasl_mechanism="PLAIN", sasl_username=username, sasl_password=password)
    assert "s3cret" not in str(raised.value)


def test_mechanism_must_be_set_with_a_user_name() -> None:
    with pytest.raises(ConfigError, match=r"sasl.mechanism must be set with sasl.username.*GSSAPI; set"):
        config(SASL, sasl_plain_username="me", sasl_plain_password="p")


def test_tokenauth_is_of_scram() -> None:
    login = {"sasl.username": "id", "sasl.password": "hmac", "sasl.scram.tokenauth": "true"}
    assert config({**SASL, **login}, sasl_mechanism="SCRAM-SHA-256").sasl_scram_tokenauth is True
    with pytest.raises(ConfigError, match=r"sasl.scram.tokenauth=true needs sasl.mechanism SCRAM"):
        config({**SASL, **login}, sasl_mechanism="PLAIN")


def test_gssapi_needs_the_service_name() -> None:
    with pytest.raises(ConfigError, match=r"GSSAPI needs sasl.kerberos.service.name; .*usually kafka"):
        config(SASL)
    made = config(
        SASL,
        sasl_kerberos_service_name="kafka",
        sasl_kerberos_domain_name="kafka.example",
        sasl_kerberos_keytab="me.keytab",
        client_dns_lookup="resolve_canonical_bootstrap_servers_only",
    )
    assert (made.sasl_kerberos_domain_name, made.sasl_kerberos_keytab) == ("kafka.example", "me.keytab")


def test_msk_by_javas_classes() -> None:
    made = config(
        SASL,
        sasl_mechanism="AWS_MSK_IAM",
        sasl_client_callback_handler_class="software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    )
    assert made.sasl_mechanism == "AWS_MSK_IAM"
    handler = "shaded.software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"
    assert config(OAUTH, sasl_login_callback_handler_class=handler).sasl_mechanism == "AWS_MSK_IAM"
    with pytest.raises(ConfigError, match=r"^sasl.aws.sts.region must be set with sasl.aws.role.arn"):
        config(SASL, sasl_mechanism="AWS_MSK_IAM", sasl_aws_sts_region="eu-west-1")
    with pytest.raises(ConfigError, match=r"handler.class must be a class named .* got 'com.x.Y'; it is a J"):
        config(OAUTH, sasl_login_callback_handler_class="com.x.Y")


# Tokens


def no_parameter() -> str:
    return "token"


def confluents(config: object) -> tuple[object, float]:
    return config, 1.0


async def asynchronous() -> str:
    return "token"


class Provider:
    def token(self) -> str:
        return "token"


@pytest.mark.parametrize("source", [no_parameter, asynchronous, Provider(), "package.module:name", Provider])
def test_sources_of_tokens_stay_as_they_are(source: object) -> None:
    assert config(OAUTH, sasl_oauthbearer_token=source).sasl_oauthbearer_token is source


def test_confluents_callback_and_its_text() -> None:
    made = config(OAUTH, oauth_cb=confluents, sasl_oauthbearer_config="principal=alice")
    assert (made.sasl_oauthbearer_token, made.sasl_oauthbearer_config) == (confluents, "principal=alice")


def test_oauthbearer_needs_one_source_of_tokens() -> None:
    with pytest.raises(ConfigError, match=r"OAUTHBEARER needs a source of tokens; set sasl.oauth"):
        config(OAUTH)
    with pytest.raises(ConfigError, match=r"sasl.oauthbearer.token and .*endpoint.url are two sources"):
        config({**OAUTH, **URL}, sasl_oauthbearer_token=no_parameter)
    with pytest.raises(ConfigError, match=r"unsecure.jwt and sasl.oauthbearer.token cannot both be set"):
        config(OAUTH, sasl_oauthbearer_token=no_parameter, enable_sasl_oauthbearer_unsecure_jwt=True)


def test_a_token_is_no_source_of_tokens_and_not_shown() -> None:
    with pytest.raises(ConfigError, match=r"token must be a callable.*got a value of type str$") as raised:
        config(OAUTH, sasl_oauthbearer_token="eyJhbGciOiJub25lIn0.e30.c2VjcmV0")
    assert "eyJ" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, r"endpoint.url needs sasl.oauthbearer.client.credentials.client.id and .*client.secret, or"),
        ({"sasl.oauthbearer.client.id": "me"}, r"endpoint.url needs .*credentials.client.secret, or"),
        ({"sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion.file or"),
        ({**CLIENT, "sasl.oauthbearer.assertion.file": "a"}, "client.secret and .*file cannot both be set"),
        (
            {"sasl.oauthbearer.assertion.file": "a", "sasl.oauthbearer.assertion.private.key.file": "k"},
            "assertion.file and .*private.key.file cannot both be set",
        ),
        ({**CLIENT, "sasl.oauthbearer.jwt.retriever.class": "FileJwtRetriever"}, "does not fit .*url"),
        ({**CLIENT, "https.ca.location": "a", "https.ca.pem": "b"}, "https.ca.location and https.ca.pem"),
    ],
)
def test_token_endpoint_needs_credentials(given: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        config({**OAUTH, **URL, **given})


@pytest.mark.parametrize(
    "given",
    [
        CLIENT,
        {**CLIENT, "sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.scope": "kafka"},
        {"sasl.oauthbearer.assertion.file": "a"},
        {"sasl.oauthbearer.assertion.private.key.pem": "k", "sasl.oauthbearer.client.id": "me"},
        {
            "sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
            "sasl.oauthbearer.assertion.private.key.file": "k",
        },
    ],
)
def test_token_endpoint_with_credentials(given: dict[str, object]) -> None:
    made = config({**OAUTH, **URL, **given})
    assert made.sasl_oauthbearer_token is None
    assert made.sasl_oauthbearer_token_endpoint_url == "https://login/token"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://user:s3cret@login/token?key=s3cret#s3cret", "'http://login/token'"),
        ("ftp://s3cret@login/token", "'ftp://login/token'"),
        ("https://[s3cret", "a value of type str"),
        ("login/token?key=s3cret", "'login/token'"),
        ("file:", "'file:"),
    ],
)
def test_token_endpoint_that_cannot_be_is_shown_without_secrets(url: str, shown: str) -> None:
    with pytest.raises(ConfigError, match=r"sasl.oauthbearer.token.endpoint.url must be ") as raised:
        config({**OAUTH, **CLIENT, "sasl.oauthbearer.token.endpoint.url": url})
    assert shown in str(raised.value)
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/t", "http://localhost/t", "http://[::1]/t", "file:/t"])
def test_token_endpoint_of_this_machine_needs_no_https(url: str) -> None:
    made = config({**OAUTH, **CLIENT, "sasl.oauthbearer.token.endpoint.url": url})
    assert made.sasl_oauthbearer_token_endpoint_url == url


# Secrets

SECRET_KEYS: dict[str, object] = {
    "sasl.password": "s3cret",
    "sasl.jaas.config": "s3cret",
    "ssl.key.password": Password("s3cret"),
    "ssl.keystore.password": "s3cret",
    "ssl.truststore.certificates": "s3cret",
    "https.ca.pem": "s3cret",
    "sasl.oauthbearer.client.secret": "s3cret",
    "sasl.oauthbearer.assertion.private.key.pem": "s3cret",
    "sasl.oauthbearer.assertion.private.key.passphrase": "s3cret",
    "sasl.oauthbearer.token.endpoint.url": "https://user:s3cret@login/token?key=s3cret",
    "sasl.oauthbearer.token": partial(confluents, "s3cret"),
    "sasl.oauthbearer.config": "clientSecret=s3cret",
}


@pytest.mark.parametrize("name", SECRET_KEYS)
def test_repr_shows_no_secret(name: str) -> None:
    more = {"ssl.keystore.location": "a.p12"} if name == "ssl.keystore.password" else {}
    made = config({"security.protocol": "PLAINTEXT", name: SECRET_KEYS[name], **more})
    assert "s3cret" not in repr(made)
    assert "security.protocol='PLAINTEXT'" in repr(made)


@pytest.mark.parametrize("name", [name for name in SECRET_KEYS if not name.endswith((".url", ".token"))])
@pytest.mark.parametrize("wrong", [["s3cret"], b"s3cret", {"s3cret": 1}])
def test_value_of_another_type_shows_no_secret(name: str, wrong: object) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be a string, got a value of type ") as raised:
        config({"security.protocol": "SSL", name: wrong})
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("kind", [ClientConfig, ProducerConfig])
def test_configuration_with_secrets_is_hashable_and_can_be_sent(kind: Callable[..., ClientConfig]) -> None:
    extensions = {"sasl.oauthbearer.extensions": "logicalCluster=lkc-1"}
    made = kind({"bootstrap.servers": SERVER, **OAUTH, **URL, **CLIENT, **extensions})
    assert pickle.loads(pickle.dumps(made)) == made
    assert len({made, pickle.loads(pickle.dumps(made))}) == 1
    assert made.sasl_oauthbearer_extensions == {"logicalCluster": "lkc-1"}
    with pytest.raises(TypeError):
        made.sasl_oauthbearer_extensions["a"] = "b"  # type: ignore[index]
