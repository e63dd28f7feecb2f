"""What keys of the configuration demand of each other."""

import ssl

import pytest

from kbatch.config import Password
from kbatch.errors import ConfigError
from tests.unit.config.test_config import config


@pytest.mark.parametrize(
    ("conflict", "reason"),
    [
        ({"acks": 1}, "acks=1 .must be all"),
        ({"acks": "0"}, "acks=0 .must be all"),
        ({"retries": 0}, "retries=0 .must be above 0"),
        ({"retries": 0, "acks": 1}, "retries=0 .* and acks=1"),
    ],
)
def test_I33_a_default_idempotence_gives_way_and_an_explicit_one_does_not(
    conflict: dict[str, object], reason: str
) -> None:
    assert config(conflict).enable_idempotence is False
    assert config(conflict, enable_idempotence=False).enable_idempotence is False
    with pytest.raises(ConfigError, match=reason):
        config(conflict, enable_idempotence=True)


def test_I33_at_most_five_in_flight_with_idempotence_even_by_default() -> None:
    assert config(max_in_flight_requests_per_connection=5).enable_idempotence is True
    for idempotence in ({}, {"enable.idempotence": True}):
        with pytest.raises(ConfigError, match=r"at most 5 with idempotence, got 6"):
            config(idempotence, max_in_flight_requests_per_connection=6)
    relaxed = config(enable_idempotence=False, max_in_flight_requests_per_connection=6)
    assert relaxed.max_in_flight_requests_per_connection == 6


@pytest.mark.parametrize("conflict", [{"acks": 1}, {"retries": 0}, {"enable.idempotence": False}])
def test_I33_a_transactional_id_needs_idempotence(conflict: dict[str, object]) -> None:
    assert config(transactional_id="t").enable_idempotence is True
    with pytest.raises(ConfigError, match=r"transactional.id='t' needs idempotence"):
        config(conflict, transactional_id="t")


def test_D08_an_explicit_delivery_timeout_covers_linger_and_one_request() -> None:
    assert config(delivery_timeout_ms=30005).delivery_timeout_ms == 30005
    with pytest.raises(ConfigError, match=r"linger.ms \+ request.timeout.ms = 30005, got 30004"):
        config(delivery_timeout_ms=30004)


def test_D08_a_default_delivery_timeout_is_raised() -> None:
    assert config(linger_ms=100_000).delivery_timeout_ms == 130_000
    assert config(linger_ms=2**62, request_timeout_ms=2**31 - 1).delivery_timeout_ms == 2**31 - 1


def test_reconnect_backoff_alone_is_constant() -> None:
    assert config(reconnect_backoff_ms=70).reconnect_backoff_max_ms == 70
    both = config(reconnect_backoff_ms=70, reconnect_backoff_max_ms=50)
    assert (both.reconnect_backoff_ms, both.reconnect_backoff_max_ms) == (70, 50)


def test_a_first_wait_above_the_maximum_is_said(caplog: pytest.LogCaptureFixture) -> None:
    config(retry_backoff_ms=100)
    assert not caplog.messages
    config(retry_backoff_ms=5000)
    (message,) = caplog.messages
    assert message.startswith("retry.backoff.ms=5000 is above retry.backoff.max.ms=1000")


def test_a_batch_fits_into_the_memory() -> None:
    assert config(batch_size=20000, buffer_memory=20000).batch_size == 20000
    with pytest.raises(ConfigError, match=r"batch.size=16384 is above buffer.memory=16383"):
        config(buffer_memory=16383)


@pytest.mark.parametrize(
    ("given_keys", "level"),
    [
        ({}, None),
        ({"compression.type": "snappy"}, None),
        ({"compression.type": "gzip"}, -1),
        ({"compression.type": "lz4"}, 9),
        ({"compression.type": "zstd"}, 3),
        ({"compression.type": "zstd", "compression.zstd.level": -5}, -5),
        ({"compression.type": "zstd", "compression.gzip.level": 2}, 3),
        ({"compression.type": "gzip", "compression.level": "9"}, 9),
        ({"compression.type": "zstd", "compression.level": -1}, 3),
    ],
)
def test_the_level_is_that_of_the_codec(given_keys: dict[str, object], level: int | None) -> None:
    assert config(given_keys).compression_level == level


@pytest.mark.parametrize(
    ("given_keys", "reason"),
    [
        ({"compression.level": 3}, "none has no levels"),
        ({"compression.level": 10, "compression.type": "gzip"}, "1 to 9, got 10"),
        ({"compression.level": 3, "compression.lz4.level": 3, "compression.type": "lz4"}, "set one of them"),
        ({"compression.gzip.level": 0}, "must be 1 to 9 or -1, got 0"),
        ({"compression.lz4.level": 18}, "must be 1 to 17, got 18"),
        ({"compression.zstd.level": 23}, "must be -131072 to 22, got 23"),
    ],
)
def test_levels_that_cannot_be(given_keys: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        config(given_keys)


@pytest.mark.parametrize(
    "contradiction",
    [
        {"ssl.context": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), "ssl.ca.location": "ca.pem"},
        {"ssl.truststore.location": "ca.pem", "ssl.truststore.certificates": "-----BEGIN"},
        {"ssl.keystore.location": "a.pem", "ssl.keystore.key": "-----BEGIN"},
        {"ssl.key.location": "key.pem"},
        {"ssl.keystore.key": "-----BEGIN"},
        {"ssl.keystore.certificate.chain": "-----BEGIN"},
    ],
)
def test_certificates_and_keys_come_from_one_place(contradiction: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="ssl"):
        config(contradiction)


def test_certificates_and_keys_that_go_together() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    assert config(ssl_context=context, security_protocol="SSL").ssl_context is context
    made = config({"ssl.certificate.location": "me.pem", "ssl.key.location": "key.pem"})
    assert (made.ssl_keystore_location, made.ssl_key_location) == ("me.pem", "key.pem")
    assert config(ssl_keystore_key="K", ssl_keystore_certificate_chain="C").ssl_keystore_key == Password("K")


SASL = {"security.protocol": "SASL_SSL"}
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_mechanism_with_passwords_needs_both(mechanism: str) -> None:
    assert config(sasl_mechanism=mechanism).sasl_mechanism == mechanism  # no SASL spoken: nothing needed
    with pytest.raises(ConfigError, match=f"{mechanism} needs sasl.username and sasl.password"):
        config(SASL, sasl_mechanism=mechanism)
    with pytest.raises(ConfigError, match=f"{mechanism} needs sasl.password$"):
        config(SASL, sasl_mechanism=mechanism, sasl_username="me")
    made = config(SASL, sasl_mechanism=mechanism, sasl_username="me", sasl_password="p")
    assert (made.sasl_username, made.sasl_password) == ("me", Password("p"))


def test_oauthbearer_needs_a_callable() -> None:
    with pytest.raises(ConfigError, match=r"OAUTHBEARER needs sasl.oauthbearer.token"):
        config(SASL, sasl_mechanism="OAUTHBEARER")
    with pytest.raises(ConfigError, match="must be a callable"):
        config(SASL, sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token="text")
    made = config(SASL, sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token=lambda: "text")
    assert made.sasl_oauthbearer_token is not None
    assert made.sasl_oauthbearer_token() == "text"


@pytest.mark.parametrize(
    ("mechanism", "line", "login"),
    [
        ("PLAIN", f'{PLAIN_MODULE} required username="me" password="p w";', ("me", "p w")),
        ("PLAIN", f"{PLAIN_MODULE} required\n  username='me'\n  password='p\"w' ;", ("me", 'p"w')),
        ("PLAIN", f'{PLAIN_MODULE} required username=me password="a\\"b\\\\";', ("me", 'a"b\\')),
        ("SCRAM-SHA-512", f'{SCRAM_MODULE} required password="" username="u" tokenauth="false";', ("u", "")),
    ],
)
def test_a_jaas_line_gives_user_name_and_password(mechanism: str, line: str, login: tuple[str, str]) -> None:
    made = config(SASL, sasl_mechanism=mechanism, sasl_jaas_config=line)
    assert (made.sasl_username, made.sasl_password) == (login[0], Password(login[1]))


@pytest.mark.parametrize(
    ("mechanism", "line", "reason"),
    [
        ("PLAIN", f'{PLAIN_MODULE} required username="me" password="s3cret"', "MODULE required"),
        ("PLAIN", f'{PLAIN_MODULE} username="me" password="s3cret";', "MODULE required"),
        ("PLAIN", f'{SCRAM_MODULE} required username="me" password="s3cret";', "does not fit"),
        ("GSSAPI", 'com.sun.security.auth.module.Krb5LoginModule required keyTab="s3cret";', "does not fit"),
        ("PLAIN", f'{PLAIN_MODULE} required password="s3cret";', "must have a username and a password"),
    ],
)
def test_a_jaas_line_that_cannot_be_is_not_shown(mechanism: str, line: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as raised:
        config(SASL, sasl_mechanism=mechanism, sasl_jaas_config=line)
    assert "s3cret" not in str(raised.value)


def test_a_jaas_line_and_a_user_name_are_one_too_many() -> None:
    line = f'{PLAIN_MODULE} required username="me" password="p";'
    with pytest.raises(ConfigError, match=r"sasl.jaas.config and sasl.username cannot both be set"):
        config(SASL, sasl_mechanism="PLAIN", sasl_jaas_config=line, sasl_username="me")
