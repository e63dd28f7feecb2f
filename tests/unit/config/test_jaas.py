"""Lines of sasl.jaas.config: read as Java reads them, and never shown."""

from __future__ import annotations

import base64
import json
import string
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.config import Password, ProducerConfig
from kbatch.config.jaas import parse, quoted
from kbatch.config.unsecured import UnsecuredToken
from kbatch.errors import ConfigError
from tests.oracle.java_config import JavaConfigError, producer_facts
from tests.support.effort import EXAMPLES

KAFKA = "org.apache.kafka.common.security"
PLAIN = f"{KAFKA}.plain.PlainLoginModule"
SCRAM = f"{KAFKA}.scram.ScramLoginModule"
OAUTH = f"{KAFKA}.oauthbearer.OAuthBearerLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
AWS = "software.amazon.msk.auth.iam.IAMLoginModule"
ENDPOINT = {"sasl.oauthbearer.token.endpoint.url": "https://login/token"}


def config(mechanism: str, line: str, /, **keywords: object) -> ProducerConfig:
    return ProducerConfig(
        {
            "bootstrap.servers": "localhost:9092",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": line,
        },
        **keywords,
    )


# Modules


@pytest.mark.parametrize(
    ("mechanism", "line", "login"),
    [
        ("PLAIN", f'{PLAIN} required username="me" password="p w";', ("me", "p w")),
        ("PLAIN", f"{PLAIN} required\n  username='me'\n  password='p\"w' ;", ("me", 'p"w')),
        ("PLAIN", f'{PLAIN} required username=me password="a\\"b\\\\";', ("me", 'a"b\\')),
        ("PLAIN", f'kafkashaded.{PLAIN} Required username="me" password=" p " user_x="q";', ("me", " p ")),
        ("SCRAM-SHA-512", f'{SCRAM} required password="" username="u" tokenauth="false";', ("u", "")),
        ("SCRAM-SHA-256", f'{SCRAM} required serviceName="kafka" password="p" username="u";', ("u", "p")),
    ],
)
def test_a_line_gives_user_name_and_password(mechanism: str, line: str, login: tuple[str, str]) -> None:
    made = config(mechanism, line)
    assert (made.sasl_username, made.sasl_password) == (login[0], Password(login[1]))
    assert made.sasl_scram_tokenauth is False


def test_a_line_keeps_that_it_is_a_delegation_token() -> None:
    made = config("SCRAM-SHA-256", f'{SCRAM} required username="id" password="hmac" tokenauth="true";')
    assert made.sasl_scram_tokenauth is True


def test_a_line_gives_client_id_secret_scope_and_extensions() -> None:
    line = f"""{OAUTH} required clientId="me" clientSecret="s3 cret" scope="kafka"
        extension_logicalCluster="lkc-1" extension_identityPoolId='pool-1'
        ssl.truststore.location="/ca.pem" ssl.truststore.type="PEM";"""
    made = config("OAUTHBEARER", line, **{name.replace(".", "_"): url for name, url in ENDPOINT.items()})
    assert made.sasl_oauthbearer_client_credentials_client_id == "me"
    assert made.sasl_oauthbearer_client_credentials_client_secret == Password("s3 cret")
    assert (made.sasl_oauthbearer_scope, made.https_ca_location) == ("kafka", "/ca.pem")
    assert made.sasl_oauthbearer_extensions == {"logicalCluster": "lkc-1", "identityPoolId": "pool-1"}


def test_a_line_of_strimzi_gives_the_endpoint_too() -> None:
    line = f"""{OAUTH} required oauth.client.id="me" oauth.client.secret="p"
        oauth.token.endpoint.uri="https://login/token" oauth.scope="kafka" ;"""
    handler = "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler"
    made = config("OAUTHBEARER", line, sasl_login_callback_handler_class=handler)
    assert made.sasl_oauthbearer_token_endpoint_url == "https://login/token"
    assert made.sasl_oauthbearer_client_credentials_client_id == "me"


def test_a_line_of_kerberos() -> None:
    line = f"""{KERBEROS} required useKeyTab=true storeKey=true debug=true doNotPrompt=true
        keyTab="/etc/me.keytab" principal="me@REALM" serviceName="kafka";"""
    made = config("GSSAPI", line, sasl_kerberos_service_name="kafka")
    assert (made.sasl_kerberos_keytab, made.sasl_kerberos_principal) == ("/etc/me.keytab", "me@REALM")
    made = config("GSSAPI", f"{KERBEROS} required useTicketCache=true serviceName=kafka;")
    assert (made.sasl_kerberos_keytab, made.sasl_kerberos_service_name) == (None, "kafka")


@pytest.mark.parametrize("mechanism", ["AWS_MSK_IAM", "OAUTHBEARER"])
def test_a_line_of_msk(mechanism: str) -> None:
    module = AWS if mechanism == "AWS_MSK_IAM" else OAUTH
    line = f"""{module} required awsRoleArn="arn:aws:iam::1:role/r" awsRoleSessionName="s"
        awsStsRegion="eu-west-1" awsProfileName="dev";"""
    handler = "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"
    made = config(mechanism, line, sasl_login_callback_handler_class=handler)
    assert (made.sasl_aws_role_arn, made.sasl_aws_role_session_name) == ("arn:aws:iam::1:role/r", "s")
    assert (made.sasl_aws_sts_region, made.sasl_aws_profile_name) == ("eu-west-1", "dev")
    assert made.sasl_mechanism == "AWS_MSK_IAM"


# Lines that cannot be


@pytest.mark.parametrize(
    ("mechanism", "line", "reason"),
    [
        ("PLAIN", "s3cret", "must have the form MODULE required"),
        ("PLAIN", "", "must have the form MODULE required"),
        ("PLAIN", '"" required password="s3cret";', "must have the form MODULE required"),
        ("PLAIN", f'{PLAIN} required username="me" password="s3cret"', "must end with a semicolon"),
        ("PLAIN", f'{PLAIN} username="me" password="s3cret";', "must have the form MODULE required"),
        ("PLAIN", f'KafkaClient {{ {PLAIN} required password="s3cret"; }};', "whole section of a JAAS file"),
        ("PLAIN", f'{PLAIN} required username="me" password="s3cret"; {PLAIN} required;', "have one mod"),
        ("PLAIN", f"{PLAIN} required username=me password=a,s3cret;", "put values in quotes"),
        ("PLAIN", f'{PLAIN} required username=me password="a"b"s3cret";', "put values in quotes"),
        ("PLAIN", f'{PLAIN} required username=me password="s3cret;', "put values in quotes"),
        ("PLAIN", f'{PLAIN} required username"="me password=s3cret;', "an option without a value"),
        ("PLAIN", f'{PLAIN} required username=me password=s3cret ";"', "an option without a value"),
        ("PLAIN", f"{PLAIN} required username=me password=1s3cret;", "put values in quotes"),
        ("PLAIN", f"{PLAIN} required username=me password=a s3cret;", "an option without a value"),
        ("PLAIN", f"{PLAIN} required username=me s3cret=s3cret;", "not know for PlainLoginModule"),
        ("PLAIN", f'{SCRAM} required username="me" password="s3cret";', "not fit .*set sasl.mechanism"),
        ("GSSAPI", f'{PLAIN} required username="me" password="s3cret";', "fit sasl.mechanism=GSSAPI"),
        ("PLAIN", 'com.x.LoginModule required password="s3cret";', "module LoginModule; use one of PlainLog"),
        ("PLAIN", f'{PLAIN} required password="s3cret";', "PLAIN needs sasl.username; set"),
        ("PLAIN", f'{PLAIN} required username="a\\0b" password="s3cret";', "U\\+0000"),
        ("SCRAM-SHA-256", f'{SCRAM} required tokenAuth="s3cret";', "did you mean tokenauth"),
        ("SCRAM-SHA-256", f'{SCRAM} required tokenauth="s3cret";', "tokenauth in .* must be true"),
        ("GSSAPI", f'{KERBEROS} required keyTab="s3cret";', "no effect without useKeyTab=true"),
        ("GSSAPI", f'{KERBEROS} required ticketCache="s3cret";', "no effect without useTicketCache=true"),
        ("GSSAPI", f'{KERBEROS} required useTicketCache="s3cret";', "useTicketCache .* must be true"),
        ("OAUTHBEARER", f'{OAUTH} required extension_auth="s3cret";', "extensions in .* must be"),
        ("OAUTHBEARER", f'{OAUTH} required ssl.truststore.type="s3cret";', "truststore.type .* must be PEM"),
        ("OAUTHBEARER", f'{OAUTH} required clientSecret="s3cret";', "needs a source of tokens"),
        ("OAUTHBEARER", f'{OAUTH} required unsecuredLoginX="s3cret";', "unknown option of unsecured tokens"),
    ],
)
def test_a_line_that_cannot_be_is_not_shown(mechanism: str, line: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as raised:
        config(mechanism, line)
    assert "s3cret" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


def test_a_line_and_a_key_may_not_differ() -> None:
    line = f'{PLAIN} required username="me" password="p";'
    assert config("PLAIN", line, sasl_username="me").sasl_username == "me"
    with pytest.raises(ConfigError, match=r"sasl.jaas.config and sasl.username cannot both be set to diff"):
        config("PLAIN", line, sasl_username="you")


# Quotes

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


@settings(max_examples=10 * EXAMPLES)
@given(username=TEXTS, password=TEXTS)
def test_any_user_name_and_password_survive_their_quotes(username: str, password: str) -> None:
    line = f"{PLAIN} required username={quoted(username)} password={quoted(password)};"
    made = config("PLAIN", line)
    assert (made.sasl_username, made.sasl_password) == (username, Password(password))


SIGNS = '._-$/=;:,"\\ \n\u00e4\u0080\u4e2d\U0001f600'
WORDS = st.text(string.ascii_letters + string.digits + SIGNS, max_size=6)
ANYTHING = st.lists(st.one_of(st.sampled_from(["=", ";", " ", "//", "/*", "*/", "a=", '="v"', "'"]), WORDS))
# Parts of a value in quotes, with StreamTokenizer's escapes.
INSIDE = ["a", "\\\n", r"\n", r"\t", r"\101", r"\8", r"\477", r"\0", r"\\", r"\"", r"\'", "=", ";", "//"]
VALUES = st.one_of(
    st.builds(quoted, WORDS),
    st.lists(st.sampled_from([*INSIDE, "'"])).map(lambda parts: '"' + "".join(parts) + '"'),
    st.lists(st.sampled_from([*INSIDE, '"'])).map(lambda parts: "'" + "".join(parts) + "'"),
    st.from_regex(r"[A-Za-z_$\u00e4][A-Za-z0-9._$-]{0,4}", fullmatch=True),
    WORDS,
)
BLANKS = st.sampled_from([" ", "\n", "\t\x01", " /* ; */ ", " // ;\n", " / ;\r", ""])
OPTIONS = st.tuples(BLANKS, st.sampled_from(["a", "b.c", "'d'"]), BLANKS, st.just("="), BLANKS, VALUES)
LINES = st.one_of(
    ANYTHING.map("".join).map(lambda rest: f"M optional a='b' {rest};"),
    st.lists(OPTIONS.map("".join), max_size=4).map(lambda options: f"a.b.M REQUIRED {' '.join(options)};"),
)


@pytest.mark.java
@settings(max_examples=20 * EXAMPLES, deadline=None)
@given(line=LINES)
def test_lines_are_read_as_java_reads_them(line: str) -> None:
    try:
        entry = parse(line)
    except ConfigError:
        return  # stricter: Java takes an unknown sign for a name, for example
    module, options = producer_facts().jaas(line)
    assert (entry.module, entry.options) == (module.rpartition(".")[2], options)


@pytest.mark.java
@settings(max_examples=10 * EXAMPLES, deadline=None)
@given(options=st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), TEXTS, max_size=3))
def test_quoted_values_are_javas(options: dict[str, str]) -> None:
    line = f"a.Module required {' '.join(f'{name}={quoted(value)}' for name, value in options.items())};"
    assert producer_facts().jaas(line) == ("a.Module", options)
    assert parse(line).options == options


@pytest.mark.java
def test_javas_errors_are_errors_here() -> None:
    lines = ["", "M", "M required a;", "M required a=;", "M required a=1;", "M needed;", "M required a=b"]
    for line in lines:
        with pytest.raises(ConfigError):
            parse(line)
        with pytest.raises(JavaConfigError):
            producer_facts().jaas(line)


# Unsecured tokens


def parts_of(token: str) -> list[dict[str, Any]]:
    *parts, signature = token.split(".")
    assert signature == ""
    return [json.loads(base64.urlsafe_b64decode(part + "==")) for part in parts]


def test_unsecured_token_of_a_line(caplog: pytest.LogCaptureFixture) -> None:
    line = f"""{OAUTH} required unsecuredLoginStringClaim_sub="alice" unsecuredLoginNumberClaim_n="5"
        unsecuredLoginListClaim_scope="|a|b" unsecuredLoginLifetimeSeconds="60"
        unsecuredLoginExtension_traceId="123";"""
    made = config("OAUTHBEARER", line)
    assert made.sasl_oauthbearer_extensions == {"traceId": "123"}
    assert isinstance(made.sasl_oauthbearer_token, UnsecuredToken)
    header, claims = parts_of(made.sasl_oauthbearer_token())
    assert header == {"alg": "none"}
    assert claims["exp"] - claims["iat"] == 60
    assert abs(claims["iat"] - time.time()) < 3600
    assert (claims["sub"], claims["n"], claims["scope"]) == ("alice", 5, ["a", "b"])
    (message,) = caplog.messages
    assert "unsecured" in message


def test_unsecured_token_of_librdkafka() -> None:
    claims = "principalClaimName=azp principal=admin scopeClaimName=roles scope=r1,r2"
    text = f"{claims} lifeSeconds=600 extension_a=b"
    made = ProducerConfig(
        {
            "bootstrap.servers": "localhost:9092",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": text,
        }
    )
    assert made.sasl_oauthbearer_extensions == {"a": "b"}
    assert isinstance(made.sasl_oauthbearer_token, UnsecuredToken)
    _, found = parts_of(made.sasl_oauthbearer_token())
    assert (found["azp"], found["roles"], found["exp"] - found["iat"]) == ("admin", ["r1", "r2"], 600)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"LifetimeSeconds": "60"}, "needs unsecuredLoginStringClaim_sub in sasl.jaas.config"),
        ({"StringClaim_sub": "a", "NumberClaim_exp": "5"}, "sets iat and exp itself"),
        ({"StringClaim_sub": "a", "NumberClaim_n": "s3cret"}, "unsecuredLoginNumberClaim_n .* be a number"),
        ({"StringClaim_sub": "a", "LifetimeSeconds": "s3cret"}, "whole number of seconds above 0"),
        ({"StringClaim_sub": "a", "PrincipalClaimName": "azp"}, "needs unsecuredLoginStringClaim_azp"),
    ],
)
def test_unsecured_token_that_cannot_be(options: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as raised:
        UnsecuredToken.of_jaas(options)
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("text", ["", "principal=", "principal=a s3cret=1", "principal=a lifeSeconds=x"])
def test_text_of_librdkafka_that_cannot_be(text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        UnsecuredToken.of_text(text)
    assert "s3cret" not in str(raised.value)
