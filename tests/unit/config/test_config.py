"""The configuration of a producer: Kafka's table, how values are read, and rules between keys."""

from __future__ import annotations

import dataclasses
import pickle
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch import Producer
from kbatch.config import CONSUMER_KEYS, KEYS, ClientConfig, ConsumerConfig, Password, ProducerConfig
from kbatch.config.keys import OAUTH_PACKAGE, OTHER_DEFAULTS, keys_of
from kbatch.config.names import ALIASES, FOREIGN
from kbatch.config.values import REQUIRED
from kbatch.errors import ConfigError, KafkaError
from tests import ROOT
from tests.oracle.java_config import NO_DEFAULT, JavaConfigError, ProducerFacts, producer_facts
from tests.support.effort import EXAMPLES

SERVER = "localhost:9092"
OURS = {name for name, row in KEYS.items() if row.origin != "Kafka"}


def config(given: Mapping[str, object] | None = None, /, **keywords: object) -> ProducerConfig:
    return ProducerConfig({"bootstrap.servers": SERVER, **(given or {})}, **keywords)


def with_protocol(*names: str) -> dict[str, Any]:
    """Return what a configuration with these keys needs besides: keys of security need the protocol."""
    of_security = any(name.startswith(("ssl.", "sasl.")) for name in names)
    return {"security.protocol": "PLAINTEXT"} if of_security else {}


def value_of(made: ProducerConfig, key: str) -> Any:
    return getattr(made, key.replace(".", "_"))


@pytest.fixture(scope="module")
def java() -> ProducerFacts:
    return producer_facts()


# The table


@pytest.mark.java
def test_the_table_is_javas(java: ProducerFacts) -> None:
    theirs = java.keys()
    assert KEYS.keys() - OURS == theirs.keys()
    for name, row in theirs.items():
        assert KEYS[name].type.name == row.type, name
        assert KEYS[name].importance == row.importance, name
        if name in OTHER_DEFAULTS:
            continue
        initial = KEYS[name].initial
        default: object = list(initial) if KEYS[name].type.name == "list" and initial is not None else initial
        if row.default == NO_DEFAULT:
            assert KEYS[name].default is REQUIRED, name
        else:
            assert (KEYS[name].default if name == "acks" else default) == row.default, name


@pytest.mark.java
def test_defaults_that_are_not_javas_are_named(java: ProducerFacts) -> None:
    theirs = java.keys()
    for name, other in OTHER_DEFAULTS.items():
        assert KEYS[name].initial != theirs[name].default
        shown = ",".join(theirs[name].default) if KEYS[name].type.name == "list" else theirs[name].default
        assert other.javas == (None if shown == NO_DEFAULT else shown), name


def test_page_names_the_defaults_that_differ_from_java() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    _, _, section = page.partition("\n## Defaults that are not those of Java\n")
    section, _, _ = section.partition("\n## ")
    assert re.findall(r"^\| `([\w.]+)` \| [^|]+ \| [^|]+ \| [^|]+ \|$", section, re.MULTILINE) == sorted(
        OTHER_DEFAULTS
    )


def test_every_attribute_has_the_type_it_says() -> None:
    hints = get_type_hints(ProducerConfig)
    of_type = {"boolean": bool, "string": str, "int": int, "short": int, "long": int, "double": float}
    of_type |= {"list": tuple, "password": Password}
    made = config()
    for name, row in KEYS.items():
        hint = hints[name.replace(".", "_")]
        expected = int if name == "acks" else of_type.get(row.type.name)
        if expected is not None:
            options = {getattr(option, "__origin__", option) for option in getattr(hint, "__args__", [hint])}
            assert expected in {getattr(hint, "__origin__", hint), *options}, name
            assert isinstance(value_of(made, name), expected | type(None)), name
        if value_of(made, name) is None and hint is not object:
            assert type(None) in hint.__args__, name


def test_hints_exist_without_ssl() -> None:
    code = """
import sys, typing, kbatch.config
assert "ssl" not in sys.modules
hints = typing.get_type_hints(kbatch.config.ProducerConfig)
import ssl
assert ssl.SSLContext in hints["ssl_context"].__args__
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_there_is_no_other_attribute() -> None:
    fields = {field.name for field in dataclasses.fields(ProducerConfig)}
    assert fields == {"given", *(name.replace(".", "_") for name in KEYS)}
    assert all("_" not in name for name in KEYS)


def test_names_of_others_lead_to_keys_and_to_no_second_meaning() -> None:
    assert {alias.key for alias in ALIASES.values()} <= KEYS.keys() | CONSUMER_KEYS.keys()
    assert not (KEYS.keys() | CONSUMER_KEYS.keys()) & ALIASES.keys()
    assert not (KEYS.keys() | CONSUMER_KEYS.keys()) & FOREIGN.keys()
    assert not ALIASES.keys() & FOREIGN.keys()


def test_every_row_is_explained() -> None:
    for name, row in KEYS.items():
        assert row.doc.endswith("."), name
        assert row.refused is None or not row.refused.endswith("."), name


# Keys of every client


def test_client_keys_are_producer_keys_except_record_keys() -> None:
    keys = keys_of(ClientConfig)
    assert keys.keys() < KEYS.keys()
    assert {name for name, row in keys.items() if row != KEYS[name]} == {"client.id"}  # its doc
    of_security = {name for name in KEYS if name.startswith(("ssl.", "sasl.", "security.", "metrics."))}
    assert of_security <= keys.keys()
    assert not keys.keys() & {"acks", "batch.size", "linger.ms", "max.block.ms", "transactional.id"}


def test_client_config_applies_its_own_rules_and_name() -> None:
    made = ClientConfig({"bootstrap.servers": SERVER, "reconnect.backoff.ms": "7"}, 3)
    assert (made.client_id, made.reconnect_backoff_max_ms) == ("kbatch-client-3", 7)
    assert made.bootstrap_addresses == ProducerConfig(bootstrap_servers=SERVER).bootstrap_addresses
    assert repr(made).startswith("ClientConfig(")
    with pytest.raises(ConfigError, match="cannot both be set"):
        ClientConfig(
            bootstrap_servers=SERVER, security_protocol="SSL", ssl_key_location="k", ssl_keystore_key="k"
        )


@pytest.mark.parametrize("name", ["acks", "request.required.acks"])
def test_client_config_knows_no_key_of_a_producer_by_any_name(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is a configuration key of a producer, not of a client"):
        ClientConfig({"bootstrap.servers": SERVER, name: "1"})


# Defaults


def test_defaults() -> None:
    made = ProducerConfig(bootstrap_servers=SERVER)
    assert made == config()
    assert made.given == {"bootstrap.servers"}
    assert (made.acks, made.enable_idempotence, made.linger_ms, made.batch_size) == (-1, True, 5, 16384)
    assert (made.buffer_memory, made.max_block_ms, made.delivery_timeout_ms) == (33554432, 60000, 120000)
    assert made.enable_metrics_push is False
    assert made.transactional_id is made.key_serializer is made.partitioner_class is None


def test_client_id_counts_producers_or_is_the_transactional_id() -> None:
    assert config().client_id == "kbatch-producer-1"
    assert ProducerConfig({"bootstrap.servers": SERVER}, 7).client_id == "kbatch-producer-7"
    assert config(transactional_id="orders").client_id == "kbatch-producer-orders"
    assert config(client_id="mine").client_id == "mine"
    assert config(client_id="").client_id == ""


def test_a_config_does_not_change_and_can_be_sent() -> None:
    made = config(linger_ms=7, transactional_id="t", client_id="c")
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.linger_ms = 8  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(made)) == made
    assert hash(made) == hash(config(linger_ms=7, transactional_id="t", client_id="c"))
    assert made != config(linger_ms=7, transactional_id="t", client_id="another")


@pytest.mark.parametrize("kind", [ProducerConfig, ConsumerConfig])
def test_settings_of_a_config_make_the_same_one(kind: type[ClientConfig]) -> None:
    keys = {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "SASL_SSL",
        "sasl.jaas.config": 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" '
        'password="s3cret";',
        "sasl.mechanism": "PLAIN",
        "interceptor.classes": "",
        "ssl.cipher.suites": ["TLS_AES_128_GCM_SHA256"],
        "connections.max.idle.ms": "1000",
    }
    made = kind(keys, 7)
    again = kind(made.settings(), 7)
    assert again == made
    assert again.given == made.given
    assert "s3cret" not in repr(made.settings())


def test_a_config_that_was_refused_has_a_repr() -> None:
    refused = ProducerConfig.__new__(ProducerConfig)
    with pytest.raises(ConfigError):
        refused.__init__({"bootstrap.servers": "a:1", "acks": "7"})  # type: ignore[misc]
    assert repr(refused) == "<ProducerConfig, refused>"


def test_a_config_shows_what_was_given() -> None:
    assert repr(config(linger_ms=7)) == f"ProducerConfig(bootstrap.servers=('{SERVER}',), linger.ms=7)"


# Names


def test_mapping_keys_have_dots_and_keywords_underscores() -> None:
    assert config({"linger.ms": 9}) == config(linger_ms=9)
    assert config({"max.in.flight": 2}) == config(max_in_flight=2)


@pytest.mark.parametrize(
    ("mapping", "keywords"),
    [
        ({"linger.ms": 5}, {"linger_ms": 5}),
        ({"linger.ms": 5, "queue.buffering.max.ms": 5}, {}),
        ({"acks": 1}, {"request_required_acks": 1}),
        ({"ssl.ca.location": "a"}, {"ssl_cafile": "b"}),
    ],
)
def test_a_key_given_twice_is_an_error(mapping: dict[str, object], keywords: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="set one of them"):
        config(mapping, **keywords)


def test_none_leaves_a_key_at_its_default() -> None:
    assert config({"linger.ms": None}, transactional_id=None, compression_type=None) == config()
    assert config({"linger.ms": None}, linger_ms=3).linger_ms == 3


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("linger.m", "linger.ms"),
        ("boostrap.servers", "bootstrap.servers"),
        ("enable.idempotance", "enable.idempotence"),
        ("compresion.type", "compression.type"),
        ("max.in.flight.requests", "max.in.flight"),
    ],
)
def test_an_unknown_key_names_the_nearest(wrong: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=f"^{wrong} .*did you mean {nearest}"):
        config({wrong: 1})
    word = wrong.replace(".", "_")
    with pytest.raises(ConfigError, match=f"^{word} .*did you mean {nearest.replace('.', '_')}"):
        config(**{word: 1})


def test_keyword_in_a_mapping_is_corrected_to_its_key() -> None:
    with pytest.raises(ConfigError, match=r"^linger_ms .*did you mean linger\.ms\?"):
        config({"linger_ms": 1})


@pytest.mark.parametrize("wrong", ["localhost:9092", [("linger.ms", 1)], {1: 2}, {b"linger.ms": 1}])
def test_what_is_no_mapping_of_keys_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"^a configuration (must be a mapping|key must be a str)"):
        ProducerConfig(wrong, bootstrap_servers=SERVER)
    with pytest.raises(ConfigError, match=r"^a configuration (must be a mapping|key must be a str)"):
        Producer(wrong, bootstrap_servers=SERVER)


def test_an_unknown_key_that_is_near_to_nothing() -> None:
    with pytest.raises(ConfigError, match=r"^qqqq\.zzzz is not a configuration key.*docs/configuration\.md"):
        config({"qqqq.zzzz": 1})


@pytest.mark.parametrize(
    ("name", "value", "key", "expected"),
    [
        ("metadata.broker.list", None, "bootstrap.servers", (SERVER,)),
        ("request.required.acks", -1, "acks", -1),
        ("compression.codec", "zstd", "compression.type", "zstd"),
        ("queue.buffering.max.ms", "20", "linger.ms", 20),
        ("queue.buffering.max.kbytes", "1024", "buffer.memory", 1048576),
        ("message.timeout.ms", 60000, "delivery.timeout.ms", 60000),
        ("message.timeout.ms", "0", "delivery.timeout.ms", 2147483647),
        ("message.send.max.retries", 3, "retries", 3),
        ("message.max.bytes", 1000000, "max.request.size", 1000000),
        ("socket.send.buffer.bytes", 0, "send.buffer.bytes", -1),
        ("socket.receive.buffer.bytes", 4096, "receive.buffer.bytes", 4096),
        ("partitioner", "murmur2_random", "partitioner.class", "murmur2_random"),
        ("ssl.ca.location", "ca.pem", "ssl.truststore.location", "ca.pem"),
        ("ssl.certificate.location", "me.pem", "ssl.keystore.location", "me.pem"),
        ("sasl.mechanisms", "PLAIN", "sasl.mechanism", "PLAIN"),
        ("sasl.plain.username", "me", "sasl.username", "me"),
        ("sasl.oauth.token.provider", list, "sasl.oauthbearer.token", list),
        ("oauth_cb", list, "sasl.oauthbearer.token", list),
        ("sasl.oauthbearer.client.id", "me", "sasl.oauthbearer.client.credentials.client.id", "me"),
        (
            "sasl.oauthbearer.client.secret",
            "p",
            "sasl.oauthbearer.client.credentials.client.secret",
            Password("p"),
        ),
        (
            "sasl.oauthbearer.grant.type",
            "urn:ietf:params:oauth:grant-type:jwt-bearer",
            "sasl.oauthbearer.jwt.retriever.class",
            f"{OAUTH_PACKAGE}.JwtBearerJwtRetriever",
        ),
        ("ssl.crlfile", "crl.pem", "ssl.crl.location", "crl.pem"),
        ("ssl.ciphers", "A:B", "ssl.cipher.suites", ("A:B",)),
        ("ssl.check.hostname", False, "ssl.endpoint.identification.algorithm", ""),
        ("ssl.check.hostname", "true", "ssl.endpoint.identification.algorithm", "https"),
    ],
)
def test_names_of_other_clients(name: str, value: object, key: str, expected: object) -> None:
    settings = {name: value} | with_protocol(key)
    made = ProducerConfig({name: SERVER}) if key == "bootstrap.servers" else config(settings)
    assert value_of(made, key) == expected
    assert key in made.given


@pytest.mark.parametrize("name", ["queue.buffering.max.kbytes", "ssl.check.hostname"])
def test_a_value_that_cannot_be_converted_names_both_keys(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name}, which sets {ALIASES[name].key}, cannot be 'many'"):
        config({name: "many"})


@pytest.mark.parametrize("name", FOREIGN)
def test_keys_without_a_counterpart_say_what_to_do_instead(name: str) -> None:
    with pytest.raises(ConfigError) as raised:
        config({name: "some other value"})
    assert str(raised.value) == f"{name} is not a key of kbatch: {FOREIGN[name].reason}"
    for harmless in FOREIGN[name].harmless:
        assert config({name: harmless}) == config()


def test_librdkafka_callbacks_are_known_with_underscores() -> None:
    for name in ("error_cb", "stats_cb", "throttle_cb"):
        with pytest.raises(ConfigError, match=f"^{name} is not a key of kbatch"):
            config({name: print})
        with pytest.raises(ConfigError, match=f"^{name} is not a key of kbatch"):
            config(**{name: print})


REFUSED = {name: row for name, row in KEYS.items() if row.refused is not None}
ANOTHER = {"boolean": True, "string": "other", "password": "other", "list": "other", "class": "other"}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_keys_accept_their_default_or_give_the_reason(name: str) -> None:
    row = REFUSED[name]
    another = ANOTHER.get(row.type.name, 0.06 if row.type.name == "double" else 61)
    if name.endswith("algorithm") and "RS256" in row.check.text:
        another = "ES256"
    if name.endswith("window.factor") and "login" in name:
        another = "0.7"
    with pytest.raises(ConfigError) as raised:
        config({name: another})
    assert str(row.refused) in str(raised.value)
    if row.initial is not None:
        assert config({name: row.default} | with_protocol(name)) == config(with_protocol(name))


# Values


def test_errors_are_value_errors_and_name_key_value_and_remedy() -> None:
    expected = r"^linger\.ms must be a whole number of 64 bits, got '5\.0'$"
    with pytest.raises(ValueError, match=expected) as raised:
        config({"linger.ms": "5.0"})
    assert isinstance(raised.value, KafkaError)
    with pytest.raises(ConfigError, match=r"^linger_ms must be at least 0, got -1$"):
        config(linger_ms=-1)
    with pytest.raises(ConfigError, match=r"one of none, gzip, snappy, lz4, zstd, got 'LZ4'"):
        config(compression_type="LZ4")


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("linger.ms", " +7 ", 7),
        ("linger.ms", "\u0667", 7),
        ("retries", "2147483647", 2147483647),
        ("enable.idempotence", " False\t", False),
        ("acks", "all", -1),
        ("acks", 1, 1),
        ("acks", " 0", 0),
        ("client.id", " spaces ", "spaces"),
        ("bootstrap.servers", " a:1 , b:2,a:1", ("a:1", "b:2")),
        ("bootstrap.servers", ["a:1", " b:2"], ("a:1", "b:2")),
        ("ssl.cipher.suites", "", ()),
        ("ssl.truststore.location", Path("/etc/ca.pem"), "/etc/ca.pem"),
        ("security.protocol", "ssl", "SSL"),
        ("metadata.recovery.strategy", "NONE", "none"),
        ("ssl.endpoint.identification.algorithm", "none", ""),
        ("interceptor.classes", [str], (str,)),
        ("interceptor.classes", "", ()),
        ("sasl.password", " p ", Password(" p ")),
        ("sasl.oauthbearer.token", "package.module:function", "package.module:function"),
        ("sasl.oauthbearer.extensions", " a=1 , b=x=y", {"a": "1", "b": "x=y"}),
        ("sasl.oauthbearer.extensions", {"a": "1,2"}, {"a": "1,2"}),
        ("sasl.oauthbearer.jwt.retriever.class", "x.FileJwtRetriever", f"{OAUTH_PACKAGE}.FileJwtRetriever"),
        ("ssl.truststore.type", "pem", "PEM"),
    ],
)
def test_values_are_read_as_java_reads_them(key: str, value: object, expected: object) -> None:
    settings = {"bootstrap.servers": SERVER} | with_protocol(key) | {key: value}
    assert value_of(ProducerConfig(settings), key) == expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("linger.ms", True),
        ("linger.ms", 5.0),
        ("linger.ms", "1_000"),
        ("linger.ms", ""),
        ("linger.ms", 2**63),
        ("batch.size", "2147483648"),
        ("enable.idempotence", "yes"),
        ("enable.idempotence", 1),
        ("acks", "ALL"),
        ("acks", 2),
        ("acks", True),
        ("client.id", 5),
        ("client.id", b"bytes"),
        ("bootstrap.servers", "a:1,,b:2"),
        ("bootstrap.servers", []),
        ("bootstrap.servers", {"a:1": 1}),
        ("interceptor.classes", "com.example.Interceptor"),
        ("transactional.id", " "),
        ("transactional.id", "\ud800"),
        ("transactional.id", "ü" * 16_001),
        ("client.id", "\ud800"),
        ("client.id", "x" * 32_001),
        ("ssl.enabled.protocols", "SSLv3"),
        ("ssl.enabled.protocols", ""),
        ("kbatch.on.delivery.failure", "abort"),
        ("kbatch.sequence.gap", "skip"),
        ("kbatch.sequence.idle.ms", -1),
        ("kbatch.sequence.idle.ms", 43_200_001),
        ("sasl.login.refresh.window.factor", "0_8"),
        ("sasl.oauthbearer.extensions", "auth=x"),
        ("sasl.oauthbearer.extensions", "a=1,a=2"),
        ("sasl.oauthbearer.extensions", {"a": ""}),
        ("sasl.oauthbearer.extensions", {"a.b": "1"}),
        ("sasl.oauthbearer.extensions", {"a": "1\x01"}),
        ("sasl.oauthbearer.extensions", {"a": 1}),
        ("sasl.oauthbearer.token", 5),
        ("sasl.oauthbearer.jwt.retriever.class", "com.example.Retriever"),
        ("ssl.context", 5),
        ("ssl.keystore.type", "PKCS11"),
    ],
)
def test_values_that_cannot_be(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"^{key} "):
        ProducerConfig({"bootstrap.servers": SERVER} | {key: value})


@pytest.mark.parametrize("server", ["::1:9092", "fe80::1:2:9092", "2001:db8::9:9092"])
def test_an_ipv6_address_without_brackets_is_refused_with_them(server: str) -> None:
    host, _, port = server.rpartition(":")
    with pytest.raises(ConfigError, match=re.escape(f"in brackets: '[{host}]:{port}'")):
        ProducerConfig(bootstrap_servers=server)


@pytest.mark.parametrize("server", ["a", "a:", ":1", "a:0", "a:65536", "a:1:2", "::1:90", "a b://c:1", "a:x"])
def test_a_server_without_host_or_port(server: str) -> None:
    with pytest.raises(ConfigError, match=r"bootstrap.servers must be host:port"):
        ProducerConfig(bootstrap_servers=["good:1", server])


def test_servers_are_hosts_and_ports() -> None:
    made = ProducerConfig(bootstrap_servers="a.b-c:1,[::1]:9092,PLAINTEXT://d:2,10.0.0.1:65535")
    expected = (("a.b-c", 1), ("::1", 9092), ("d", 2), ("10.0.0.1", 65535))
    assert made.bootstrap_addresses == expected


def test_bootstrap_servers_are_needed() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap.servers is missing"):
        ProducerConfig({"linger.ms": 1})


# Java as judge

# Deliberately stricter or wider than Java; the other tests say where.
NOT_COMPARED = REFUSED.keys() | OTHER_DEFAULTS.keys() | {"client.id"}
# Java keeps the case that was given.
FOLDED = {"metadata.recovery.strategy", "security.protocol"}


def as_text(key: str, value: object) -> str | None:
    if value is None:
        return None
    if KEYS[key].type.name == "list":
        assert isinstance(value, tuple)
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def assert_java_agrees(java: ProducerFacts, settings: Mapping[str, object]) -> None:
    full = {"bootstrap.servers": SERVER, **settings}
    try:
        made = ProducerConfig(full)
    except ConfigError as error:
        try:
            java.configuration(full)
        except JavaConfigError:
            return
        raise AssertionError("Java takes what we refuse") from error
    theirs = java.configuration(full)
    for key in KEYS.keys() - OURS - NOT_COMPARED:
        text, their_text = as_text(key, value_of(made, key)), theirs[key]
        if key in FOLDED:
            text, their_text = str(text).upper(), str(their_text).upper()
        assert text == their_text, key


NUMERIC = [
    name
    for name, row in KEYS.items()
    if row.type.name in ("int", "long") and row.refused is None and name not in OURS
]


@pytest.mark.java
@pytest.mark.parametrize("name", NUMERIC)
def test_numbers_have_javas_bounds(java: ProducerFacts, name: str) -> None:
    # memory and windows are the two that must make sense besides: batch.size fits, and a window has a length
    room = {"buffer.memory": str(2**62), "delivery.timeout.ms": str(2**31 - 1), "acks": "0", "retries": "0"}
    room |= {"enable.idempotence": "false"} | with_protocol(name)
    room.pop(name, None)
    around = [-131073, -131072, -2, -1, 0, 1, 2, 5, 6, 9, 10, 17, 18, 22, 23, 4999, 5000, 30005]
    skipped = {"metrics.sample.window.ms": [0], "buffer.memory": range(16384)}.get(name, [])
    for number in [*around, 2**31 - 1, 2**31, 2**63 - 1, 2**63]:
        if number not in skipped:
            assert_java_agrees(java, room | {name: str(number)})


SOMETIMES = {
    "acks": ["all", "-1", "0", "1", "2", " all "],
    "retries": ["0", "1", "2147483647", "-1"],
    "enable.idempotence": ["true", "false", "TRUE", "no"],
    "max.in.flight.requests.per.connection": ["0", "1", "5", "6"],
    "transactional.id": ["", "id"],
    "delivery.timeout.ms": ["0", "30004", "30005", "120000", "2147483647"],
    "request.timeout.ms": ["0", "30000", "2147483647"],
    "linger.ms": ["0", "5", "100000", "9223372036854775807"],
    "reconnect.backoff.ms": ["10", "5000"],
    "reconnect.backoff.max.ms": ["10", "5000"],
    "retry.backoff.ms": ["5000"],
    "compression.type": ["none", "gzip", "lz5"],
    "security.protocol": ["plaintext", "SSL", "TLS"],
    "ssl.enabled.protocols": ["TLSv1.3", "TLSv1.2,TLSv1.2"],
    "metrics.recording.level": ["DEBUG", "debug"],
}


@pytest.mark.java
@settings(max_examples=10 * EXAMPLES, deadline=None)
@given(chosen=st.fixed_dictionaries({}, optional={key: st.sampled_from(v) for key, v in SOMETIMES.items()}))
def test_what_java_takes_is_taken_and_what_it_refuses_is_refused(chosen: dict[str, str]) -> None:
    assert_java_agrees(producer_facts(), with_protocol(*chosen) | chosen)


# The page


def test_the_page_is_what_the_table_says() -> None:
    printed = subprocess.check_output([sys.executable, "-m", "kbatch.config"], text=True, cwd=ROOT)
    command = "run `python -m kbatch.config > docs/configuration.md`"
    assert (ROOT / "docs" / "configuration.md").read_text() == printed, command


def test_the_page_has_every_name_and_whole_rows() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    for name in (*KEYS, *ALIASES, *FOREIGN):
        assert f"| `{name}` |" in page


# What keys of the configuration demand of each other.


@pytest.mark.parametrize(
    ("conflict", "reason"),
    [
        ({"acks": 1}, "acks=1 .must be all"),
        ({"acks": "0"}, "acks=0 .must be all"),
        ({"retries": 0}, "retries=0 .must be above 0"),
        ({"retries": 0, "acks": 1}, "retries=0 .* and acks=1"),
    ],
)
def test_I33_default_idempotence_yields_and_explicit_conflicts(
    conflict: dict[str, object], reason: str
) -> None:
    assert config(conflict).enable_idempotence is False
    assert config(conflict, enable_idempotence=False).enable_idempotence is False
    with pytest.raises(ConfigError, match=reason):
        config(conflict, enable_idempotence=True)


def test_I33_default_idempotence_allows_five_in_flight() -> None:
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


def test_D08_delivery_timeout_must_cover_linger_and_a_request() -> None:
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
